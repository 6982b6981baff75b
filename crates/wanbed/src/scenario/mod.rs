//! A scenario: nodes, the links between them, and the routes of traffic, read from a TOML file.
//!
//! [`Scenario`] holds the file. [`Scenario::resolve`] checks it, applies the overrides and returns
//! the [`ScenarioNetwork`] to build, which needs no further interpretation. `docs/wanbed.md`
//! describes the language.

mod document;
mod fields;
mod loss;
mod quantity;
mod read;
mod read_link;
mod read_noise;
mod trace_file;

#[cfg(test)]
mod tests;

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, ScenarioError};
use crate::spec::LinkSpec;

/// Text of a scenario file, and its location.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scenario {
    file: PathBuf,
    /// Directory of trace files.
    directory: PathBuf,
    text: String,
}

impl Scenario {
    /// Reads a scenario file. [`Scenario::resolve`] checks its content.
    ///
    /// # Errors
    /// [`Error::Read`] if the file cannot be read as text.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let failed = |source| Error::Read {
            path: path.to_owned(),
            source,
        };
        let text = std::fs::read_to_string(path).map_err(failed)?;
        let absolute = std::path::absolute(path).map_err(failed)?;
        let directory = absolute.parent().unwrap_or(Path::new("/")).to_owned();
        Ok(Scenario {
            file: path.to_owned(),
            directory,
            text,
        })
    }

    /// Returns a scenario from text instead of a file. Errors use `name`; trace files are in the
    /// working directory.
    pub fn from_text(name: &str, text: impl Into<String>) -> Self {
        Scenario {
            file: name.into(),
            directory: std::env::current_dir().unwrap_or_default(),
            text: text.into(),
        }
    }

    /// Returns the file of the scenario.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Checks the scenario and computes every number in it.
    ///
    /// # Errors
    /// [`Error::Scenario`] names file, line and field; [`Error::Read`] a trace file that cannot be
    /// read.
    pub fn resolve(&self, overrides: &Overrides) -> Result<ScenarioNetwork> {
        read::network(
            &self.file.display().to_string(),
            &self.directory,
            &self.text,
            overrides,
        )
    }
}

/// Changes of one run to a scenario, so that one file serves a whole table of measurements.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overrides {
    /// Settings, applied to the file in this order.
    pub settings: Vec<Setting>,
    /// Seed, instead of the file's.
    pub seed: Option<u64>,
    /// Kind of link devices.
    pub backend: Backend,
    /// Name of the lab; a unique one is chosen if `None`.
    pub name: Option<String>,
    /// Nodes that relay connections in this run, instead of those of the file; an empty list means
    /// no relays.
    pub relays: Option<Vec<String>>,
}

impl Overrides {
    /// Adds a setting, as `--set path=value` does: `set("links.wan.loss", "0.1%")`,
    /// `set("nodes.*.congestion", "cubic")`.
    #[must_use]
    pub fn set(mut self, path: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.push(Setting {
            path: path.into(),
            value: value.into(),
        });
        self
    }

    /// Sets the seed of every random process in the lab.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Sets the name of the lab.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the nodes that relay connections in this run, instead of those of the file:
    /// `relays(["gw1", "gw2"])`, or an empty list for a run without depots. Control loops end at
    /// relays, and a link's lag is judged by these loops
    /// ([`LinkReport::loop_rtt_ms`](crate::LinkReport::loop_rtt_ms)).
    #[must_use]
    pub fn relays<N: Into<String>>(mut self, nodes: impl IntoIterator<Item = N>) -> Self {
        self.relays = Some(nodes.into_iter().map(Into::into).collect());
        self
    }

    /// Sets the kind of link devices.
    #[must_use]
    pub fn backend(mut self, backend: Backend) -> Self {
        self.backend = backend;
        self
    }
}

/// One `--set path=value`. A `*` in the path stands for every name at that level.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// Dotted path: `links.wan.loss`.
    pub path: String,
    /// TOML value, or plain text.
    pub value: String,
}

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let (path, value) = text
            .split_once('=')
            .ok_or_else(|| format!("{text:?} has no `=`: write it like links.wan.loss=0.1%"))?;
        Ok(Setting {
            path: path.trim().to_owned(),
            value: value.trim().to_owned(),
        })
    }
}

/// Kind of devices from which the links take packets and to which they give them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// TUN devices if they may be opened, else packet sockets.
    #[default]
    User,
    /// TUN devices.
    Tun,
    /// Packet sockets on veth pairs.
    Packet,
}

impl FromStr for Backend {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "user" => Ok(Backend::User),
            "tun" => Ok(Backend::Tun),
            "packet" => Ok(Backend::Packet),
            _ => Err(format!(
                "{text:?} is not a backend: choose user, tun or packet"
            )),
        }
    }
}

/// A scenario with every number computed.
#[derive(Debug, Clone, PartialEq)]
pub struct ScenarioNetwork {
    /// Title of the scenario.
    pub title: String,
    /// Seed from which every link's own is derived.
    pub seed: u64,
    /// Nodes, in the order of the file.
    pub nodes: Vec<Node>,
    /// Links, in the order of the file.
    pub links: Vec<ScenarioLink>,
    /// Explicit routes, for each direction; all other traffic takes the path with the shortest
    /// delay.
    pub routes: Vec<PinnedRoute>,
    /// Paths over which the scenario spreads a loss, as indices of links.
    pub named_paths: Vec<Vec<usize>>,
}

impl ScenarioNetwork {
    /// Returns the index of the node called `name`.
    pub fn node(&self, name: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node.name == name)
    }
}

/// A host, router or depot: one network namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Name, which is also its host name in every node's `/etc/hosts`.
    pub name: String,
    /// Its only IPv4 address, on its loopback device.
    pub address: Ipv4Addr,
    /// Its only IPv6 address, on its loopback device; `None` in a scenario without IPv6.
    pub ipv6: Option<Ipv6Addr>,
    /// If true, it forwards packets.
    pub forwards: bool,
    /// If true, connections end here and are relayed; `None` if the scenario does not say.
    pub relays: Option<bool>,
    /// Default congestion control; `None` if the scenario does not say.
    pub congestion: Option<String>,
    /// Dotted names and values, in the order in which they are set.
    pub sysctls: Vec<(String, String)>,
}

/// A link between two nodes. Its device has the link's name in both.
#[derive(Debug, Clone, PartialEq)]
pub struct ScenarioLink {
    /// Index of the node at the a end.
    pub a: usize,
    /// Index of the node at the b end.
    pub b: usize,
    /// Properties of the link; `forward` is from a to b.
    pub spec: LinkSpec,
}

impl ScenarioLink {
    /// Returns the node at the other end.
    pub fn far_end(&self, node: usize) -> usize {
        if node == self.a { self.b } else { self.a }
    }
}

/// Traffic from one node to another, in one direction, that does not take the shortest path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinnedRoute {
    /// Index of the node that sends the traffic.
    pub from: usize,
    /// Index of the node that receives it.
    pub to: usize,
    /// Indices of the links, in the order in which they are crossed.
    pub links: Vec<usize>,
    /// If set, only TCP with these ports.
    pub ports: Option<PortRange>,
}

/// A range of TCP ports at the end that opened the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortRange {
    /// Lowest port.
    pub first: u16,
    /// Highest port, inclusive.
    pub last: u16,
    /// If true, the sender of this route's packets opened the connection; otherwise the receiver
    /// did.
    pub at_sender: bool,
}

type Located<T> = std::result::Result<T, ScenarioError>;
