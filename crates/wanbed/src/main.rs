//! `wanbed`: emulated wide-area networks on one machine.

mod command;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match command::CommandLine::parse().act() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("wanbed: {error:#}");
            ExitCode::FAILURE
        }
    }
}
