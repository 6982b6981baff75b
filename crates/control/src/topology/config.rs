//! The operator's configuration of live topology.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use longhaul_map::ospf::RouterNames;
use serde::Deserialize;

use super::source::TopologySource;

/// Default interval between two readings of the database.
const DEFAULT_INTERVAL: Duration = Duration::from_millis(250);
/// Default time limit of one reading.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);
/// Bounds of the interval, in milliseconds.
const INTERVAL_RANGE_MS: std::ops::RangeInclusive<u64> = 50..=60_000;
/// Bounds of the time limit, in seconds.
const TIMEOUT_RANGE_S: std::ops::RangeInclusive<u64> = 1..=60;
/// Maximum number of routers to read from.
const MAX_SOURCES: usize = 16;

/// Routers to read from, and the names of the network's routers and links on the map.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OspfConfig {
    /// Routers to read from: the first one that answers is used.
    #[serde(default, rename = "source")]
    pub sources: Vec<SourceConfig>,
    /// Interval between two readings, in milliseconds; 250 if `None`.
    #[serde(default)]
    pub interval_ms: Option<u64>,
    /// Router ids by site.
    #[serde(default)]
    pub routers: BTreeMap<String, Ipv4Addr>,
    /// Addresses of interfaces by link, where several links join the same two sites.
    #[serde(default)]
    pub links: BTreeMap<String, BTreeSet<Ipv4Addr>>,
}

/// Access to the database of a router by exactly one of socket and command.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceConfig {
    /// Socket of `ospfd`, such as `/run/frr/ospfd.vty`.
    #[serde(default)]
    pub socket: Option<PathBuf>,
    /// Command that prints the database in JSON.
    #[serde(default)]
    pub command: Option<Vec<String>>,
    /// Time limit of one reading, in seconds; 5 if `None`.
    #[serde(default)]
    pub time_s: Option<u64>,
}

/// Fault of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OspfFault {
    /// There is no router to read from, or there are too many: add 1 to 16 `[[ospf.source]]`.
    #[error("ospf: add 1 to {MAX_SOURCES} [[ospf.source]], each with a socket or a command")]
    Sources,
    /// The access is missing or ambiguous: name one of socket and command.
    #[error("ospf.source {0}: name one of socket and command")]
    NotExactlyOne(usize),
    /// The command is empty: write the program and its arguments.
    #[error(
        "ospf.source {0}: the command is empty: write the program and its arguments, as \
        [\"vtysh\", \"-c\", \"show ip ospf mpls-te database json\"]"
    )]
    Empty(usize),
    /// The time limit is out of range: choose 1 to 60 s.
    #[error("ospf.source {0}: time_s must be 1 to 60")]
    Time(usize),
    /// The interval is out of range: choose 50 ms to a minute.
    #[error("ospf: interval_ms must be 50 to 60000")]
    Interval,
    /// No link can be followed: name the routers of at least two sites.
    #[error(
        "ospf.routers: name the router ids of two or more sites, as west = \"192.0.2.1\": a link \
         is followed if both of its sites have one"
    )]
    Routers,
    /// Two sites have the same router: give each site its own.
    #[error("ospf.routers: {0:?} and {1:?} have the same router: give each site its own")]
    SameRouter(String, String),
    /// A link has no addresses: name one or more of its interfaces.
    #[error("ospf.links: {0:?} has no addresses: name those of its interfaces")]
    NoAddress(String),
}

impl OspfConfig {
    /// Returns true if no topology is followed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the interval between two readings.
    #[must_use]
    pub fn interval(&self) -> Duration {
        self.interval_ms
            .map_or(DEFAULT_INTERVAL, Duration::from_millis)
    }

    /// Returns the names of routers and links.
    #[must_use]
    pub fn names(&self) -> RouterNames {
        RouterNames {
            routers: self.routers.clone(),
            interfaces: self.links.clone(),
        }
    }

    /// Returns the routers to read from; none if no topology is followed.
    ///
    /// # Errors
    /// [`OspfFault`] names the first fault.
    pub fn sources(&self) -> Result<Vec<TopologySource>, OspfFault> {
        if self.is_empty() {
            return Ok(Vec::new());
        }
        if self.sources.is_empty() || self.sources.len() > MAX_SOURCES {
            return Err(OspfFault::Sources);
        }
        if let Some(interval) = self.interval_ms
            && !INTERVAL_RANGE_MS.contains(&interval)
        {
            return Err(OspfFault::Interval);
        }
        if self.routers.len() < 2 {
            return Err(OspfFault::Routers);
        }
        let mut sites: BTreeMap<Ipv4Addr, &String> = BTreeMap::new();
        for (site, router) in &self.routers {
            if let Some(other) = sites.insert(*router, site) {
                return Err(OspfFault::SameRouter(other.clone(), site.clone()));
            }
        }
        if let Some((link, _)) = self.links.iter().find(|(_, own)| own.is_empty()) {
            return Err(OspfFault::NoAddress(link.clone()));
        }
        let sources = self.sources.iter().zip(1..);
        sources
            .map(|(source, number)| source.open(number))
            .collect()
    }
}

impl SourceConfig {
    fn open(&self, number: usize) -> Result<TopologySource, OspfFault> {
        let timeout = match self.time_s {
            None => DEFAULT_TIMEOUT,
            Some(time) if TIMEOUT_RANGE_S.contains(&time) => Duration::from_secs(time),
            Some(_) => return Err(OspfFault::Time(number)),
        };
        match (&self.socket, &self.command) {
            (Some(socket), None) => Ok(TopologySource::socket(socket.clone(), timeout)),
            (None, Some(command)) => {
                match command.split_first() {
                    Some((program, arguments)) if !program.is_empty() => Ok(
                        TopologySource::command(program.into(), arguments.to_vec(), timeout),
                    ),
                    _ => Err(OspfFault::Empty(number)),
                }
            }
            _ => Err(OspfFault::NotExactlyOne(number)),
        }
    }
}

#[cfg(test)]
mod tests;
