//! Command line of `wanbed`.

mod check;
mod labs;
mod run;
mod trace;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};
use wanbed::{Backend, Lab, Overrides, Setting};

/// Emulated wide-area networks on one machine
#[derive(Debug, Parser)]
#[command(
    version,
    max_term_width = 100,
    after_help = "Exit codes: 0 done; 1 failed, the reason on standard error; 2 wrong usage; \
3 `check` found a link that is not as asked; `run` and `exec` give their command's own."
)]
pub(crate) struct CommandLine {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Bring a scenario's network up and leave it up
    Up(labs::Up),
    /// Run a command in a node
    Exec(labs::Exec),
    /// Take a lab down: processes in its nodes are ended, and nothing of it remains
    Down(Which),
    /// Bring a lab up, run a command beside it, and take the lab down whatever happens
    Run(run::Run),
    /// Show the links' counters, and whether the measurements can be trusted
    Links(labs::Links),
    /// Measure delay, rate and loss of every link against what the scenario asks
    Check(check::Check),
    /// List the labs that are up
    List,
    /// Write a trace of changes with the path statistics of the DRS paper
    TraceDrs(trace::TraceDrs),
    /// The process of a lab; started by the other commands
    #[command(hide = true)]
    Daemon,
    /// The process that keeps a guest's processors from halting; started by measurements
    #[command(hide = true)]
    Awake,
    /// The process that cleans up after a lab; started by the lab
    #[command(hide = true)]
    Reaper {
        /// The lab's directory
        directory: PathBuf,
    },
}

/// Selection of a lab
#[derive(Debug, Args)]
struct Which {
    /// The lab's name [default: $WANBED_LAB, else the only lab that is up]
    #[arg(long, value_name = "LAB")]
    name: Option<String>,
}

impl Which {
    fn attach(&self) -> wanbed::Result<Lab> {
        let named = self.name.clone().or_else(|| {
            std::env::var("WANBED_LAB")
                .ok()
                .filter(|name| !name.is_empty())
        });
        let name = match named {
            Some(name) => name,
            None => match &Lab::list()?[..] {
                [only] => only.clone(),
                _ => DEFAULT_NAME.to_owned(),
            },
        };
        Lab::attach(&name)
    }
}

/// Name of a lab that `up` starts without a name.
const DEFAULT_NAME: &str = "lab";

/// A scenario, and the changes for this run
#[derive(Debug, Args)]
struct Asked {
    /// Name of the lab
    #[arg(long, value_name = "LAB")]
    name: Option<String>,
    /// Seed of all losses, instead of the scenario's
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Change a value of the scenario, such as links.wan.loss=0.1% or nodes.*.congestion=cubic; may
    /// be repeated
    #[arg(long = "set", value_name = "PATH=VALUE")]
    settings: Vec<Setting>,
    /// Kind of link devices: tun, packet, or user (tun if it may be opened, else packet)
    #[arg(long, value_name = "BACKEND", default_value = "user")]
    backend: Backend,
    /// Comma-separated nodes that relay connections in this run, instead of those of the scenario;
    /// "" for none
    #[arg(long, value_name = "NODES")]
    relays: Option<String>,
}

impl Asked {
    fn overrides(&self) -> Overrides {
        Overrides {
            settings: self.settings.clone(),
            seed: self.seed,
            backend: self.backend,
            name: self.name.clone(),
            relays: self.relays.as_ref().map(|names| {
                let names = names
                    .split(',')
                    .map(str::trim)
                    .filter(|name| !name.is_empty());
                names.map(str::to_owned).collect()
            }),
        }
    }
}

impl CommandLine {
    pub(crate) fn act(self) -> anyhow::Result<ExitCode> {
        match self.verb {
            Verb::Up(up) => up.act(),
            Verb::Exec(exec) => exec.act(),
            Verb::Down(which) => labs::down(&which),
            Verb::Run(run) => run.act(),
            Verb::Links(links) => links.act(),
            Verb::Check(check) => check.act(),
            Verb::List => labs::list(),
            Verb::TraceDrs(trace) => trace.act(),
            Verb::Daemon => {
                // The refusal was already reported on standard output to the program that started
                // the lab.
                Ok(if wanbed::daemon::run().is_ok() {
                    ExitCode::SUCCESS
                } else {
                    ExitCode::FAILURE
                })
            }
            Verb::Awake => {
                wanbed::stay_awake().context("keeping the processors awake")?;
                Ok(ExitCode::SUCCESS)
            }
            Verb::Reaper { directory } => {
                wanbed::daemon::reap(&directory)?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}
