//! A scenario: nodes, the links between them, and the routes traffic takes, read from a TOML file.
//!
//! [`Scenario`] holds the file; [`Scenario::resolve`] checks it, lays the overrides over it and
//! gives the [`Network`] to build, in which nothing is left to interpret. The language is described
//! in `docs/wanbed.md`.

mod document;
mod fields;
mod quantity;
mod read;
mod read_link;
mod read_noise;
mod trace_file;

#[cfg(test)]
mod tests;

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, ScenarioError};
use crate::spec::LinkSpec;

/// The text of a scenario file, and where it lies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scenario {
    file: PathBuf,
    /// Where trace files are looked for.
    directory: PathBuf,
    text: String,
}

impl Scenario {
    /// Reads a scenario file. Its content is checked by [`Scenario::resolve`].
    ///
    /// # Errors
    /// [`Error::Read`] when the file cannot be read as text.
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

    /// A scenario from text instead of a file; `name` stands in errors, trace files are looked for
    /// in the working directory.
    pub fn from_text(name: &str, text: impl Into<String>) -> Self {
        Scenario {
            file: name.into(),
            directory: std::env::current_dir().unwrap_or_default(),
            text: text.into(),
        }
    }

    /// The file the scenario came from.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Checks the scenario and works out every number in it.
    ///
    /// # Errors
    /// [`Error::Scenario`] names file, line and field; [`Error::Read`] a trace file that cannot be
    /// read.
    pub fn resolve(&self, overrides: &Overrides) -> Result<Network> {
        read::network(
            &self.file.display().to_string(),
            &self.directory,
            &self.text,
            overrides,
        )
    }
}

/// What one run changes about a scenario, so that one file serves a whole table of measurements.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overrides {
    /// Laid over the file in this order.
    pub settings: Vec<Setting>,
    /// In place of the file's seed.
    pub seed: Option<u64>,
    /// What carries the links.
    pub backend: Backend,
    /// The lab's name; one is made up when there is none.
    pub name: Option<String>,
    /// The nodes that relay connections in this run, in place of those the file says; no name is
    /// none.
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

    /// Chooses the seed of every random process in the lab.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Names the lab.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Names the nodes that relay connections in this run, in place of those the file says:
    /// `relays(["gw1", "gw2"])`, or none for a run without depots. Control loops end there, and
    /// with them what a link's lag is judged by
    /// ([`LinkReport::loop_rtt_ms`](crate::LinkReport::loop_rtt_ms)).
    #[must_use]
    pub fn relays<N: Into<String>>(mut self, nodes: impl IntoIterator<Item = N>) -> Self {
        self.relays = Some(nodes.into_iter().map(Into::into).collect());
        self
    }

    /// Chooses what carries the links.
    #[must_use]
    pub fn backend(mut self, backend: Backend) -> Self {
        self.backend = backend;
        self
    }
}

/// One `--set path=value`. A `*` in the path stands for every name at that level.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// Dotted: `links.wan.loss`.
    pub path: String,
    /// A TOML value, or plain text.
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

/// What the user-space links take packets from and give them to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// TUN devices where they may be opened, else packet sockets.
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
                "{text:?} is no backend: choose user, tun or packet"
            )),
        }
    }
}

/// A scenario with every number worked out.
#[derive(Debug, Clone, PartialEq)]
pub struct Network {
    /// What the scenario calls itself.
    pub title: String,
    /// The seed that every link's own is derived from.
    pub seed: u64,
    /// In the order of the file.
    pub nodes: Vec<Node>,
    /// In the order of the file.
    pub links: Vec<Link>,
    /// The explicit routes, both directions written out; everything else goes the shortest way by
    /// delay.
    pub routes: Vec<PinnedRoute>,
    /// The paths over which the scenario spreads a loss, as indices of links.
    pub named_paths: Vec<Vec<usize>>,
}

impl Network {
    /// The index of the node called `name`.
    pub fn node(&self, name: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node.name == name)
    }
}

/// A host, router or depot: one network namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Also its host name in every node's `/etc/hosts`.
    pub name: String,
    /// Its one address, on its loopback device.
    pub address: Ipv4Addr,
    /// Whether it passes packets on.
    pub forwards: bool,
    /// Whether connections end here and are relayed, and where the scenario says so.
    pub relays: Option<bool>,
    /// Its default congestion control, and where the scenario says so.
    pub congestion: Option<String>,
    /// Dotted name and value, in the order they are set.
    pub sysctls: Vec<(String, String)>,
}

/// A link between two nodes. Its device has the link's name in both.
#[derive(Debug, Clone, PartialEq)]
pub struct Link {
    /// Index of the node at the a end.
    pub a: usize,
    /// Index of the node at the b end.
    pub b: usize,
    /// What it does to packets; `forward` is from a to b.
    pub spec: LinkSpec,
}

impl Link {
    /// The node at the other end.
    pub fn far_end(&self, node: usize) -> usize {
        if node == self.a { self.b } else { self.a }
    }
}

/// Traffic of one node to another that leaves the shortest way, in one direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinnedRoute {
    /// Index of the node whose own traffic it is.
    pub from: usize,
    /// Index of the node it goes to.
    pub to: usize,
    /// Indices of the links, in the order they are crossed.
    pub links: Vec<usize>,
    /// Only TCP with these ports.
    pub ports: Option<PortRange>,
}

/// A range of TCP ports at the end that opened the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortRange {
    /// The lowest.
    pub first: u16,
    /// The highest, included.
    pub last: u16,
    /// Whether the sender of this route's packets is the end that opened the connection (else it is
    /// the receiver).
    pub at_sender: bool,
}

type Located<T> = std::result::Result<T, ScenarioError>;
