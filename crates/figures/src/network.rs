//! The network of a run.

use anyhow::Result;
use wanbed::{Overrides, Scenario};

use crate::tools::Tools;

/// A network to bring up.
pub struct Network {
    /// The scenario.
    pub scenario: Scenario,
    /// Changes to the scenario.
    pub overrides: Overrides,
}

impl Network {
    /// Returns the network of an unchanged scenario file.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn load(tools: &Tools, file: &str) -> Result<Self> {
        Ok(Self {
            scenario: Scenario::read(tools.scenarios.join(file))?,
            overrides: Overrides::default(),
        })
    }

    /// Returns a minimal network for runs that need none, because each run has a lab.
    pub fn none() -> Self {
        const TWO_SILENT_MACHINES: &str = include_str!("../labs/none.toml");
        Self::of_text("no-network", TWO_SILENT_MACHINES)
    }

    /// Returns the network of a scenario in text.
    pub fn of_text(name: &str, text: &str) -> Self {
        Self {
            scenario: Scenario::from_text(name, text),
            overrides: Overrides::default(),
        }
    }

    /// Makes exactly these nodes the relays of this run, at which control loops end.
    #[must_use]
    pub fn relays(self, nodes: &[&str]) -> Self {
        Self {
            overrides: self.overrides.relays(nodes.iter().copied()),
            ..self
        }
    }

    /// Changes one value of the scenario.
    #[must_use]
    pub fn set(self, path: impl Into<String>, value: impl Into<String>) -> Self {
        Self {
            overrides: self.overrides.set(path, value),
            ..self
        }
    }
}
