//! Other programs for bulk data, run between two nodes of a lab.
//!
//! Each [`Peer`] names its packages, serves a folder in one node, and builds the command of another
//! node that fetches from it or sends to it. The commands of programs of others are in
//! `peers.toml`, with the options that their own documentation recommends. [`one_copy::one_copy`]
//! runs that command, measures its time from start to end, and compares every arrived byte with the
//! source. [`Relay`] is a program that forwards connections in a node between.

pub mod contents;
pub mod iperf3;
pub mod longhaul;
pub mod longhaul_over_ssh;
pub mod longhaul_plain;
pub mod one_copy;
pub mod place;
pub mod table;
mod templates;
#[cfg(test)]
mod tests;

use anyhow::{Context, Result, bail};
use place::{PeerNode, Serving};
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::process::Command;
use table::TablePeer;

pub use table::{need, relays};

/// Folders of programs that only root has in `PATH`.
const SYSTEM_FOLDERS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// A required program and its Debian package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// The program's file name.
    pub program: &'static str,
    /// The Debian package.
    pub package: &'static str,
}

impl Need {
    /// Returns the program's path.
    ///
    /// # Errors
    /// It is not installed. The error names the package in one line.
    pub fn find(&self) -> Result<PathBuf> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&path)
            .chain(SYSTEM_FOLDERS.iter().map(PathBuf::from))
            .map(|folder| folder.join(self.program))
            .find(|candidate| candidate.is_file());
        let Self { program, package } = self;
        found.with_context(|| format!("{program} is missing: apt-get install {package}"))
    }
}

/// A program of others: its description, and its needs.
pub trait Program {
    /// A short name, for commands and records.
    fn name(&self) -> &'static str;
    /// The name on a page.
    fn title(&self) -> &'static str;
    /// Options of the program, for a page. `N` stands for the number of streams.
    fn options(&self) -> &'static str;
    /// Returns the packages that must be installed for both ends.
    fn needs(&self) -> Vec<Need>;

    /// Checks that all required programs are installed.
    ///
    /// # Errors
    /// One is missing. The error names the first one and its package in one line.
    fn installed(&self) -> Result<()> {
        self.needs()
            .iter()
            .try_for_each(|need| need.find().map(drop))
    }
}

/// Abilities of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// If true, data can also flow from the client to the server.
    pub send: bool,
    /// If true, folders can be copied too.
    pub trees: bool,
    /// If true, the number of streams can be set.
    pub streams: bool,
    /// If true, all its connections go to the one served port, so that a [`RelayKind::Forward`] can
    /// stand between.
    pub forward: bool,
    /// If true, its client can use a SOCKS5 server.
    pub socks: bool,
}

/// One file or folder below a root.
#[derive(Clone, Debug)]
pub struct Item {
    /// Name below the root. It consists of letters, digits, `.`, `-` and `_`, which have no special
    /// meaning to any client.
    pub name: String,
    /// If true, it is a folder.
    pub tree: bool,
}

/// A program that copies files between two nodes.
pub trait Peer: Program {
    /// Returns its abilities.
    fn abilities(&self) -> Abilities;

    /// Serves `root` in a node until the result is dropped, and returns once it listens.
    ///
    /// # Errors
    /// The server is missing or does not start. The error quotes its output.
    fn serve(&self, place: &PeerNode, root: &Path) -> Result<Serving>;

    /// Returns the client's command that fetches `item` of the served root into the folder `to`.
    ///
    /// # Errors
    /// The client is missing, or its configuration cannot be written.
    fn fetch(
        &self,
        place: &PeerNode,
        from: &Serving,
        item: &Item,
        to: &Path,
        streams: u32,
    ) -> Result<Command>;

    /// Returns the client's command that sends `item` of the folder `root` into the served root.
    ///
    /// # Errors
    /// As [`Peer::fetch`], and if the peer cannot send.
    fn send(
        &self,
        _place: &PeerNode,
        _to: &Serving,
        _root: &Path,
        _item: &Item,
        _streams: u32,
    ) -> Result<Command> {
        bail!("{} only fetches", self.name())
    }
}

/// Use of a relay by clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RelayKind {
    /// Forwards every connection to one server. Clients connect to the relay instead.
    Forward,
    /// A SOCKS5 server (RFC 1928). Clients name their server.
    Socks,
}

/// A program that forwards TCP connections, in a depot's place.
pub trait Relay: Program {
    /// Returns the way in which clients use it.
    fn kind(&self) -> RelayKind;

    /// Relays to `server` until the result is dropped. Clients connect to the result's endpoint
    /// instead of the server.
    ///
    /// # Errors
    /// As [`Peer::serve`].
    fn start(&self, place: &PeerNode, server: SocketAddrV4) -> Result<Serving>;
}

/// Returns all peers.
pub fn all() -> Vec<Box<dyn Peer>> {
    let boxed = |peer| Box::new(peer) as Box<dyn Peer>;
    table::peers().into_iter().map(boxed).collect()
}

/// Returns a program of others by its name, be it a peer or one that only fetches.
///
/// # Errors
/// There is no such program.
pub fn find(name: &str) -> Result<TablePeer> {
    let mut all = table::peers()
        .into_iter()
        .chain(table::fetchers())
        .chain(table::plain())
        .chain(table::saving());
    let found = all.find(|peer| peer.name() == name);
    found.with_context(|| format!("there is no program {name}"))
}
