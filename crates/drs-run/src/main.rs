//! `drs`: right-sizes the TCP connections of unmodified programs.
//!
//! `drs run -- program args` starts a program with the preload library before the C library; see
//! `drs(1)`.

mod run;
mod summary;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use longhaul_output::message;
use longhaul_preload::launch::UnsuitableProgram;

/// Exit code of `drs` for its own failures, as of `env`, `nice` and `timeout`.
const EXIT_FAILURE: u8 = 125;

#[derive(Parser)]
#[command(
    name = "drs",
    version,
    about = "Right-sizes the TCP connections of any program"
)]
struct Arguments {
    #[command(subcommand)]
    what: DrsCommand,
}

#[derive(Subcommand)]
enum DrsCommand {
    /// Runs a program, and measures and right-sizes its TCP connections.
    Run(RunArguments),
}

#[derive(Args)]
struct RunArguments {
    /// Mode of right-sizing.
    #[arg(long, value_enum, default_value_t = Mode::Auto)]
    mode: Mode,
    /// Append measurements and actions to this file, one JSON object per line.
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// When the program has ended, print on standard error what limited its connections, what was
    /// done, and if nothing was, why.
    #[arg(long)]
    summary: bool,
    /// The program and its arguments, after `--`.
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    program: Vec<OsString>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Mode {
    /// Measure, and change nothing.
    Observe,
    /// Act only if the kernel's own tuning is held down.
    Auto,
    /// Use the paper's Dynamic Right-Sizing.
    Classic,
    /// Use the paper's algorithm with shrinking and shared memory.
    #[value(name = "paper+")]
    PaperPlus,
}

fn main() -> ExitCode {
    let DrsCommand::Run(run) = Arguments::parse().what;
    match run::run(run) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            message!("drs: {error:#}");
            let code = error
                .downcast_ref::<UnsuitableProgram>()
                .map(UnsuitableProgram::exit_code);
            ExitCode::from(code.unwrap_or(EXIT_FAILURE))
        }
    }
}
