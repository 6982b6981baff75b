//! `wanbed`: emulated wide-area networks on one machine.

mod command;

use std::process::ExitCode;

use clap::Parser;
use longhaul_output::message;

fn main() -> ExitCode {
    match command::CommandLine::parse().act() {
        Ok(code) => match longhaul_output::stdout_error() {
            Some(error) => {
                message!("wanbed: writing standard output failed: {error}");
                ExitCode::FAILURE
            }
            None => code,
        },
        Err(error) => {
            // The library's messages already include their causes.
            match error.downcast_ref::<wanbed::Error>() {
                Some(error) => message!("wanbed: {error}"),
                None => message!("wanbed: {error:#}"),
            }
            ExitCode::FAILURE
        }
    }
}
