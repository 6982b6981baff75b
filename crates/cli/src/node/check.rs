//! `longhaul node check`: what a file would start.

use std::collections::HashMap;
use std::path::Path;

use anyhow::Result;

use super::config::NodeConfig;
use crate::answer;
use crate::exit::Exit;

/// Prints what the file would start, and its faults. With a fault, the exit code is that of a wrong
/// command line.
pub fn run(file: &Path) -> Result<Exit> {
    let config = NodeConfig::load(file)?;
    let mut faults = 0;
    let mut taken = HashMap::new();
    if let Some(address) = config.metrics {
        answer::write_line(format_args!(
            "[node]\n  metrics of all services at {address}"
        ));
        taken.insert(address, "node");
    }
    for role in &config.roles {
        let name = role.name();
        let mut plan = role.plan();
        for address in &plan.listens {
            if let Some(other) = taken.insert(*address, name) {
                plan.faults
                    .push(format!("{address} is an address of [{other}] as well"));
            }
        }
        answer::write_line(format_args!("[{name}]"));
        for fact in &plan.facts {
            answer::write_line(format_args!("  {fact}"));
        }
        for fault in &plan.faults {
            answer::write_line(format_args!("  wrong: {fault}"));
        }
        faults += plan.faults.len();
    }
    answer::write_line(match faults {
        0 => "nothing is wrong".to_owned(),
        1 => "1 thing is wrong".to_owned(),
        many => format!("{many} things are wrong"),
    });
    match faults {
        0 => Ok(Exit::Success),
        _ => Ok(Exit::Usage),
    }
}
