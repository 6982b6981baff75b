//! `wanbed`: emulated wide-area networks on one machine.

mod command;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match command::CommandLine::parse().act() {
        Ok(code) => code,
        Err(error) => {
            // The library's messages hold their causes already.
            match error.downcast_ref::<wanbed::Error>() {
                Some(error) => eprintln!("wanbed: {error}"),
                None => eprintln!("wanbed: {error:#}"),
            }
            ExitCode::FAILURE
        }
    }
}
