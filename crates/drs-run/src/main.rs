//! `drs`: right-sizes the TCP connections of programs that know nothing of it.
//!
//! `drs run -- program args` starts a program with the preload library in front of the C library;
//! see `drs(1)`.

mod run;
mod summary;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use longhaul_output::message;
use longhaul_preload::launch::Unfit;

/// Exit code when `drs` itself fails, as `env`, `nice` and `timeout` have it.
const FAILED: u8 = 125;

#[derive(Parser)]
#[command(
    name = "drs",
    version,
    about = "Right-sizes the TCP connections of any program"
)]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Runs a program, measures its TCP connections and right-sizes them.
    Run(Run),
}

#[derive(Args)]
struct Run {
    /// How far to go.
    #[arg(long, value_enum, default_value_t = Mode::Auto)]
    mode: Mode,
    /// Append what was found and done to this file, one JSON object a line.
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// When the program has ended, say on standard error what limited its connections, what was
    /// done and why nothing was.
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
    /// Measure and change nothing.
    Observe,
    /// Act only where the kernel's own tuning is held down.
    Auto,
    /// The Dynamic Right-Sizing of the paper.
    Classic,
    /// The same with shrinking and shared memory.
    #[value(name = "paper+")]
    PaperPlus,
}

fn main() -> ExitCode {
    let What::Run(run) = Arguments::parse().what;
    match run::run(run) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            message!("drs: {error:#}");
            let code = error.downcast_ref::<Unfit>().map(Unfit::exit_code);
            ExitCode::from(code.unwrap_or(FAILED))
        }
    }
}
