//! Programs that others move bulk data with, run between two nodes of a lab.
//!
//! Each [`Peer`] says what must be installed, serves a folder in one node, and gives the command
//! that fetches from it or sends to it in another, with the options that its own documentation
//! recommends. [`one_copy::one_copy`] runs that command, times it from its start to its end and
//! compares every byte that arrived with the source. [`Relay`] is a program that passes connections
//! on in a node between.

pub mod contents;
mod danted;
pub mod fetchers;
pub mod gridftp;
mod haproxy;
mod http;
pub mod iperf3;
mod lftp;
pub mod longhaul;
pub mod longhaul_over_ssh;
pub mod one_copy;
pub mod place;
mod rclone;
mod rsync;
mod scp;
mod sftp;
mod ssh;
#[cfg(test)]
mod tests;
mod xrootd;

use anyhow::{Result, bail};
use place::{Place, Serving};
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Folders of programs that only root has in its PATH.
const SYSTEM_FOLDERS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// A program that must be installed, and where Debian has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// The program's file name.
    pub program: &'static str,
    /// The Debian package.
    pub package: &'static str,
}

impl Need {
    /// The program's path.
    ///
    /// # Errors
    /// It is not installed: one line with the package to install.
    pub fn find(&self) -> Result<PathBuf> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&path)
            .chain(SYSTEM_FOLDERS.iter().map(PathBuf::from))
            .map(|folder| folder.join(self.program))
            .find(|candidate| candidate.is_file());
        match found {
            Some(program) => Ok(program),
            None => bail!(
                "{} is missing: apt-get install {}",
                self.program,
                self.package
            ),
        }
    }
}

/// A program of others: its description, and its needs.
pub trait Program {
    /// A short name, for commands and records.
    fn name(&self) -> &'static str;
    /// The name on a page.
    fn title(&self) -> &'static str;
    /// The options it runs with, for a page; `N` stands for the number of streams.
    fn options(&self) -> &'static str;
    /// Returns the packages that must be installed for both ends.
    fn needs(&self) -> &'static [Need];

    /// Checks that all its needs are installed.
    ///
    /// # Errors
    /// The first one that is missing, in one line with its package.
    fn installed(&self) -> Result<()> {
        self.needs()
            .iter()
            .try_for_each(|need| need.find().map(drop))
    }
}

/// Abilities of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// Data can also flow from the client to the server.
    pub send: bool,
    /// Folders can be copied, too.
    pub trees: bool,
    /// The number of streams can be chosen.
    pub streams: bool,
    /// All its connections go to the one port that it serves, so that a [`RelayKind::Forward`] can
    /// stand between.
    pub forward: bool,
    /// Its client can be told to use a SOCKS5 server.
    pub socks: bool,
}

/// One file or folder below a root.
#[derive(Clone, Debug)]
pub struct Item {
    /// Its name below the root: letters, digits, `.`, `-` and `_`, which no client's language takes
    /// for anything else.
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
    /// The server is missing or does not start: the error quotes what it printed.
    fn serve(&self, place: &Place, root: &Path) -> Result<Serving>;

    /// The client's command that fetches `item` of the served root into the folder `to`.
    ///
    /// # Errors
    /// The client is missing, or its configuration cannot be written.
    fn fetch(
        &self,
        place: &Place,
        from: &Serving,
        item: &Item,
        to: &Path,
        streams: u32,
    ) -> Result<Command>;

    /// The client's command that sends `item` of the folder `root` into the served root.
    ///
    /// # Errors
    /// As [`Peer::fetch`], and when it cannot send at all.
    fn send(
        &self,
        _place: &Place,
        _to: &Serving,
        _root: &Path,
        _item: &Item,
        _streams: u32,
    ) -> Result<Command> {
        bail!("{} only fetches", self.name())
    }
}

/// Way in which clients use a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelayKind {
    /// It forwards every connection to one server: clients connect to the relay instead.
    Forward,
    /// A SOCKS5 server (RFC 1928): clients name the server that they want.
    Socks,
}

/// A program that passes TCP connections on, in a depot's place.
pub trait Relay: Program {
    /// Returns the way in which clients use it.
    fn kind(&self) -> RelayKind;

    /// Relays to `server` until the result is dropped; the result's endpoint is what clients use in
    /// the server's stead.
    ///
    /// # Errors
    /// As [`Peer::serve`].
    fn start(&self, place: &Place, server: SocketAddrV4) -> Result<Serving>;
}

/// Every peer.
pub fn all() -> Vec<Box<dyn Peer>> {
    vec![
        Box::new(scp::Scp),
        Box::new(sftp::Sftp),
        Box::new(rsync::RsyncSsh),
        Box::new(rsync::RsyncDaemon),
        Box::new(rclone::RcloneSftp),
        Box::new(rclone::RcloneHttp),
        Box::new(gridftp::GridFtp),
        Box::new(xrootd::Xrootd),
        Box::new(lftp::Lftp),
    ]
}

/// Every relay.
pub fn relays() -> Vec<Box<dyn Relay>> {
    vec![Box::new(haproxy::HaProxy), Box::new(danted::Danted)]
}
