//! Measured settings: a scenario, its hosts, the two ends of the copy, and its depots.

use std::sync::LazyLock;

use anyhow::{Context, Result};

use crate::experiment::Cost;
use crate::network::Network;
use crate::plans::plan;
use crate::tools::Tools;

/// Route of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CopyRoute {
    /// One TCP connection from end to end.
    Direct,
    /// Through the setting's depots, in order from the client.
    Depots,
}

impl CopyRoute {
    /// Both routes, in the order of the output.
    pub const BOTH: [Self; 2] = [Self::Direct, Self::Depots];

    /// Returns the word for tables and reports.
    pub fn word(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Depots => "depots",
        }
    }
}

/// One setting of a paper, as used in the lab: an entry of `plans/settings.toml`.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setting {
    /// Short name, used in reports and file names.
    pub id: &'static str,
    /// Description in one line.
    pub title: &'static str,
    /// Scenario file below `scenarios/`.
    pub scenario: &'static str,
    /// Overrides of the scenario: path and value.
    #[serde(default)]
    pub set: Vec<(&'static str, &'static str)>,
    /// Congestion control of the end hosts, for reports. The scenario or `set` applies it.
    pub congestion: &'static str,
    /// Buffers of the end hosts, as text.
    pub hosts: &'static str,
    /// Node of the command. Data flows towards it, as in the papers.
    pub client: &'static str,
    /// Node that serves the files.
    pub server: &'static str,
    /// Depot nodes, in order from the client.
    pub depots: Vec<&'static str>,
    /// Wide-area links, to which noise adds jitter and reordering.
    pub noisy_links: Vec<&'static str>,
    /// Share of this machine that one run needs, direct and through depots. Runs are parallel while
    /// the shares sum to at most 1.
    pub load: (f64, f64),
    /// Approximate rates of a copy, direct and through depots, in Mbit/s. They determine its
    /// expected duration.
    pub about_mbps: (f64, f64),
    /// Sizes of the copies in the comparison of depots, in bytes.
    pub sizes: Vec<u64>,
    /// Averages that the paper printed for this setting: size in bytes, direct rate and rate
    /// through the depot in Mbit/s.
    #[serde(default)]
    pub paper: Vec<(u64, f64, f64)>,
}

impl Setting {
    /// Returns the cost of a copy of `bytes`, including the setup of the lab.
    pub fn cost(&self, way: CopyRoute, bytes: u64) -> Cost {
        let of = |(direct, depots): (f64, f64)| match way {
            CopyRoute::Direct => direct,
            CopyRoute::Depots => depots,
        };
        let seconds = 2.0 + bytes as f64 * 8.0 / (1e6 * of(self.about_mbps));
        Cost::new(of(self.load), seconds)
    }

    /// Returns the network of one copy. The limit of lag depends on the hops of the copy's route.
    ///
    /// # Errors
    /// The scenario cannot be read.
    pub fn network(&self, tools: &Tools, way: CopyRoute) -> Result<Network> {
        let relays = match way {
            CopyRoute::Direct => &[][..],
            CopyRoute::Depots => &self.depots,
        };
        let network = Network::load(tools, self.scenario)?.relays(relays);
        let set = self.set.iter();
        Ok(set.fold(network, |network, (path, value)| network.set(*path, *value)))
    }
}

/// One of the MNEMONIC paths: `client - LAN - gateway - WAN - gateway - LAN - server`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mnemonic {
    /// 10 ms LAN, 50 ms WAN (round trips).
    Short,
    /// 25 ms LAN, 100 ms WAN.
    Long,
}

/// Contents of `plans/settings.toml`.
#[derive(serde::Deserialize)]
#[serde(bound(deserialize = "'de: 'static"))]
struct Settings {
    setting: Vec<Setting>,
}

/// Returns all settings.
pub fn all() -> &'static [Setting] {
    static ALL: LazyLock<Settings> = LazyLock::new(|| plan(include_str!("../plans/settings.toml")));
    &ALL.setting
}

/// Returns the setting of this name.
///
/// # Errors
/// There is none.
pub fn named(id: &str) -> Result<&'static Setting> {
    let found = all().iter().find(|setting| setting.id == id);
    found.with_context(|| format!("there is no setting {id}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_has_a_name_of_its_own() {
        for setting in all() {
            assert_eq!(named(setting.id).unwrap().title, setting.title);
        }
        assert_eq!(all().len(), 12);
    }
}
