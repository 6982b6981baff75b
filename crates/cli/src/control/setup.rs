//! Which nodes the controller has set up: the operator's `control.toml`.

use std::path::Path;

use anyhow::{Context, Result, anyhow};
use longhaul_setup::nodes::SetupConfig;
use serde::Deserialize;

use crate::home;

/// What it is called in the controller's directory.
pub const FILE: &str = "control.toml";

/// What an operator says of a controller.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ControlFile {
    /// Which nodes are set up, and how.
    #[serde(default)]
    setup: SetupConfig,
}

/// Reads the file that is named; where none is, the one in the directory, if it is there.
pub fn read(named: Option<&Path>, dir: &Path) -> Result<SetupConfig> {
    let usual = dir.join(FILE);
    let file = match named {
        Some(file) => file,
        None if usual.exists() => &usual,
        None => return Ok(SetupConfig::default()),
    };
    let shown = home::shown(file);
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {shown}"))?;
    let config: ControlFile = toml::from_str(&text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start));
        let line = before.map_or(1, |before| before.matches('\n').count() + 1);
        anyhow!("{shown}, line {line}: {}", error.message())
    })?;
    // What makes no sense is reported with the file's name, before anything begins.
    config.setup.drivers().with_context(|| shown.clone())?;
    Ok(config.setup)
}
