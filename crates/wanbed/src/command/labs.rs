//! `up`, `exec`, `down`, `links` and `list`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use longhaul_output::{message, print_line};
use wanbed::{Lab, Scenario};

use super::{DEFAULT_NAME, LabSelection, ScenarioArguments};

#[derive(Debug, Args)]
pub(super) struct Up {
    /// The scenario file
    scenario: PathBuf,
    #[command(flatten)]
    asked: ScenarioArguments,
}

impl Up {
    pub(super) fn act(self) -> anyhow::Result<ExitCode> {
        let mut overrides = self.asked.overrides();
        overrides
            .name
            .get_or_insert_with(|| DEFAULT_NAME.to_owned());
        let lab = Lab::up_detached(&Scenario::read(&self.scenario)?, &overrides)?;
        print_line!(
            "lab {} is up: {} (seed {}, {})",
            lab.name(),
            lab.title(),
            lab.seed(),
            lab.backend()
        );
        for (name, address) in lab.nodes() {
            match lab.ipv6_address(name) {
                Ok(ipv6) => print_line!("  {name:<20} {address:<15} {ipv6}"),
                Err(_) => print_line!("  {name:<20} {address}"),
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

#[derive(Debug, Args)]
pub(super) struct Exec {
    #[command(flatten)]
    which: LabSelection,
    /// The node to run it in
    node: String,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

impl Exec {
    pub(super) fn act(self) -> anyhow::Result<ExitCode> {
        let (program, arguments) = self.command.split_first().context("no command given")?;
        let mut command = self.which.attach()?.command(&self.node, program)?;
        command.args(arguments);
        let error = wanbed::become_command(command);
        Err(error)
            .with_context(|| format!("{}: cannot run in node {}", program.display(), self.node))
    }
}

pub(super) fn down(which: &LabSelection) -> anyhow::Result<ExitCode> {
    let report = which.attach()?.down()?;
    if let Some(warning) = report.warning() {
        message!("wanbed: {warning}");
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, Args)]
pub(super) struct Links {
    #[command(flatten)]
    which: LabSelection,
    /// Write JSON, for programs
    #[arg(long)]
    json: bool,
}

impl Links {
    pub(super) fn act(self) -> anyhow::Result<ExitCode> {
        let report = self.which.attach()?.links()?;
        if self.json {
            print_line!("{}", serde_json::to_string_pretty(&report)?);
        } else {
            longhaul_output::print(&report.table());
        }
        Ok(ExitCode::SUCCESS)
    }
}

pub(super) fn list() -> anyhow::Result<ExitCode> {
    for name in Lab::list()? {
        // A lab may go down between listing and asking.
        if let Ok(lab) = Lab::attach(&name) {
            print_line!(
                "{name}\t{}\tseed {}\t{}",
                lab.title(),
                lab.seed(),
                lab.backend()
            );
        }
    }
    Ok(ExitCode::SUCCESS)
}
