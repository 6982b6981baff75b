//! `check`: measures every link.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use longhaul_output::{message, print_line};
use wanbed::{Lab, LinkCheck, LinkVerdict, Scenario};

use super::ScenarioArguments;

/// Exit code if a link was not as asked.
const OFF: u8 = 3;

#[derive(Debug, Args)]
pub(super) struct Check {
    /// The scenario to bring up and measure; without one, the lab that is up is measured
    scenario: Option<PathBuf>,
    #[command(flatten)]
    asked: ScenarioArguments,
    /// Measure only this link; may be repeated
    #[arg(long = "link", value_name = "LINK")]
    only: Vec<String>,
    /// Write JSON, for programs
    #[arg(long)]
    json: bool,
}

impl Check {
    pub(super) fn act(self) -> anyhow::Result<ExitCode> {
        let lab = match &self.scenario {
            Some(file) => Lab::up(&Scenario::read(file)?, &self.asked.overrides())?,
            None => super::LabSelection {
                name: self.asked.name.clone(),
            }
            .attach()?,
        };
        let links: Vec<String> = lab
            .link_ends()
            .map(|(name, _, _)| name.to_owned())
            .collect();
        if let Some(unknown) = self.only.iter().find(|name| !links.contains(name)) {
            anyhow::bail!(
                "there is no link {unknown:?}: there are {}",
                links.join(", ")
            );
        }
        let measured = |name: &String| self.only.is_empty() || self.only.contains(name);
        let mut checks = Vec::new();
        for (index, name) in links.iter().enumerate().filter(|(_, name)| measured(name)) {
            for forward in [true, false] {
                progress(&format!(
                    "measuring {name} ({} of {})",
                    2 * index + usize::from(!forward) + 1,
                    2 * links.len()
                ));
                let check = lab.check(index, forward)?;
                progress("");
                if !self.json {
                    print(&check);
                }
                checks.push(check);
            }
        }
        let report = lab.links()?;
        let off = checks.iter().filter(|check| check.is_off()).count();
        if self.json {
            let all = serde_json::json!({
                "lab": report.lab, "backend": lab.backend(),
                "as_asked": off == 0, "links": checks, "machine_fast_enough": report.valid,
                "reasons": report.reasons,
            });
            print_line!("{}", serde_json::to_string_pretty(&all)?);
        } else {
            print_line!("backend: {}", lab.backend());
            match off {
                0 => print_line!("every link is as configured, as far as measured"),
                _ => print_line!("{off} of {} directions are off", checks.len()),
            }
        }
        if let Some(warning) = report.warning() {
            message!("wanbed: {warning}");
        }
        Ok(if off == 0 {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(OFF)
        })
    }
}

fn print(check: &LinkCheck) {
    print_line!("{} {} -> {}", check.link, check.from, check.to);
    for finding in &check.findings {
        let verdict = match finding.verdict {
            LinkVerdict::AsAsked => "ok",
            LinkVerdict::Off => "OFF",
            LinkVerdict::NotMeasured => "not measured",
        };
        print_line!("  {:<7} {verdict}: {}", finding.what, finding.text);
    }
}

/// Prints a line that the next one replaces, on a terminal only.
fn progress(text: &str) {
    if std::io::stderr().is_terminal() {
        longhaul_output::prompt(&format!("\r\x1b[K{text}"));
    }
}
