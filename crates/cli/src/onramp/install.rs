//! `longhaul onramp install`: a systemd unit for one user.

use anyhow::Result;

use super::entries::Entries;
use crate::exit::Exit;
use crate::systemd::{self, Unit};

/// Seconds that stopping may take in addition to the time for connections to finish.
const STOP_MARGIN_SECONDS: u64 = 10;

/// Writes the unit with the given options, and prints how to start it.
pub fn install(entries: &Entries) -> Result<Exit> {
    // Options that would prevent a start are reported now.
    let drain = entries.config()?.drain;
    let mut arguments = vec!["onramp".to_owned()];
    arguments.extend(entries.arguments()?);
    systemd::install(&Unit {
        name: "longhaul-onramp",
        description: "Longhaul on-ramp: connections of other programs take routes",
        arguments: &arguments,
        stop: (
            drain.as_secs() + STOP_MARGIN_SECONDS,
            "Connections under way may finish.",
        ),
    })
}
