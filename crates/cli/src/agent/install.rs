//! `longhaul agent install`: a systemd unit for one user.

use anyhow::Result;

use crate::exit::Exit;
use crate::systemd::{self, Unit};

/// Writes the unit, and prints how to start it.
pub fn install() -> Result<Exit> {
    systemd::install(&Unit {
        name: "longhaul-agent",
        description: "Longhaul agent: copies in the background",
        arguments: &["agent".to_owned()],
        stop: (30, "Copies save their progress before they end."),
    })
}
