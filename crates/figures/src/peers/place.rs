//! A node for a peer's server and client, with everything that a server needs to run there.
//!
//! Servers from Debian expect a machine of their own: a host name that resolves to its address, a
//! user other than root that they can look up, a private `/run`, permission to read what they
//! serve, and free ports. A node of a lab already has its own network and `/etc/hosts`. `unshare`
//! (util-linux) gives a server the rest: the node's name as its host name, its own user database
//! with the user [`USER`], an empty `/run`, the served folder at [`SERVED`], and a process
//! namespace, so that its children end with it. [`USER`] is the user who runs the lab, with another
//! number, in a user namespace. So no server runs as root, even if root runs the lab, and none
//! needs a privilege separation directory or an account on the machine.

use super::need;
use crate::children::Server;
use anyhow::{Context, Result};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;
use wanbed::Lab;

/// User of the servers, and of logins.
pub const USER: &str = "peer";
/// Path at which a server finds the folder that it serves.
pub const SERVED: &str = "/run/served";

/// The server's own user database with [`USER`]. The namespace maps that user's number to the user
/// who runs the lab.
const PASSWD: &str = "root:x:0:0:root:/run:/bin/sh\npeer:x:1000:1000:peer:/run:/bin/sh\n";
const GROUP: &str = "root:x:0:\npeer:x:1000:\n";

/// Script that prepares the server's namespaces as their root, and then runs the server. Arguments:
/// the folder of the files above, the node, the served folder, the server.
const PREPARE_NAMESPACES: &str = "set -eu
settings=$1 node=$2 served=$3; shift 3
hostname \"$node\"
mount --bind \"$settings/passwd\" /etc/passwd
mount --bind \"$settings/group\" /etc/group
mkdir \"$settings/run\"
mount -t tmpfs -o mode=755 peer \"$settings/run\"
mkdir \"$settings/run/served\"
mount --bind \"$served\" \"$settings/run/served\"
mount --rbind \"$settings/run\" /run
cd /run
export HOME=/run
exec unshare --user --map-user=1000 --map-group=1000 -- \"$@\"";

/// A node of a lab, and a folder for settings.
#[derive(Clone, Copy, Debug)]
pub struct PeerNode<'a> {
    /// The lab.
    pub lab: &'a Lab,
    /// The node's name.
    pub node: &'a str,
    /// Folder for settings, with a subfolder for each server.
    pub scratch: &'a Path,
}

/// Address to which a client connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Address of the server, or of the relay that forwards to it.
    pub address: SocketAddrV4,
    /// SOCKS5 server on the route.
    pub socks: Option<SocketAddrV4>,
}

/// A server in a node, which ends when it is dropped.
pub struct Serving {
    server: Server,
    settings: TempDir,
    /// Address to which a client connects.
    pub endpoint: Endpoint,
}

impl Serving {
    /// Returns the folder of the server's settings.
    pub fn folder(&self) -> &Path {
        self.settings.path()
    }

    /// Returns the number of the server's process, or of the one that prepared its namespaces and
    /// waits for it.
    pub fn process(&self) -> u32 {
        self.server.process()
    }

    /// Returns the path of a file of the server's settings.
    pub fn setting(&self, file: &str) -> PathBuf {
        self.settings.path().join(file)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // Waits until all its processes have ended, so that the port is free for the next server.
        self.server.end_with_children();
    }
}

impl PeerNode<'_> {
    /// Returns the node's address.
    ///
    /// # Errors
    /// The lab has no such node.
    pub fn address(&self) -> Result<Ipv4Addr> {
        Ok(self.lab.address(self.node)?)
    }

    /// Makes a folder for a server's settings.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn settings(&self) -> Result<TempDir> {
        let folder = tempfile::Builder::new()
            .prefix("peer-")
            .tempdir_in(self.scratch)
            .with_context(|| format!("cannot make a folder in {}", self.scratch.display()))?;
        write(&folder.path().join("passwd"), PASSWD)?;
        write(&folder.path().join("group"), GROUP)?;
        Ok(folder)
    }

    /// Starts a server as [`USER`] with `root` at [`SERVED`], and returns once it listens on the
    /// node's port `port`.
    ///
    /// # Errors
    /// The program or `unshare` is missing, or the server does not listen. The error quotes its
    /// output.
    pub fn serve(
        &self,
        server: &[String],
        settings: TempDir,
        root: &Path,
        port: u16,
    ) -> Result<Serving> {
        let (program, arguments) = server.split_first().context("no server is named")?;
        let mut command = self.lab.command(self.node, need("unshare")?.find()?)?;
        command
            .args(["--mount", "--uts", "--pid", "--fork", "--kill-child", "--"])
            .args(["sh", "-c", PREPARE_NAMESPACES, "sh"])
            .arg(settings.path())
            .arg(self.node)
            .arg(root)
            .arg(need(program)?.find()?)
            .args(arguments);
        let server = Server::start_listening(command, program, port)?;
        self.serving(server, settings, port)
    }

    /// Wraps a server that already runs in the node, and listens on `port` there.
    ///
    /// # Errors
    /// The lab has no such node.
    pub fn serving(&self, server: Server, settings: TempDir, port: u16) -> Result<Serving> {
        Ok(Serving {
            server,
            settings,
            endpoint: Endpoint {
                address: SocketAddrV4::new(self.address()?, port),
                socks: None,
            },
        })
    }

    /// Returns a client's command in the node. Its home is the server's folder of settings, so that
    /// the user's own files have no effect.
    ///
    /// # Errors
    /// The program or the node is missing.
    pub fn client(&self, program: &str, serving: &Serving) -> Result<Command> {
        let program = match Path::new(program).is_absolute() {
            true => PathBuf::from(program),
            false => need(program)?.find()?,
        };
        let mut command = self.lab.command(self.node, program)?;
        command.env("HOME", serving.settings.path());
        Ok(command)
    }
}

/// Writes a settings file.
///
/// # Errors
/// It cannot be written.
pub fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
