//! `longhaul cp` from a host with a login: OpenSSH starts the remote end, and the data goes
//! directly between the hosts.

use super::longhaul::empty_home;
use super::place::{PeerNode, Serving};
use super::ssh::{self, KEYGEN, SSH, SSHD};
use super::{Abilities, Item, Need, Peer, Program};
use crate::copy::in_node;
use crate::tools::Tools;
use anyhow::{Context, Result};
use std::path::Path;
use std::process::Command;

/// The short name.
pub const NAME: &str = "longhaul-ssh";

/// `longhaul cp host:path` of this project's own build, which the remote end finds in the login's
/// `PATH`. So [`super::all`] lacks it.
pub struct LonghaulOverSsh<'a> {
    /// The program.
    pub tools: &'a Tools,
}

impl Program for LonghaulOverSsh<'_> {
    fn name(&self) -> &'static str {
        NAME
    }
    fn title(&self) -> &'static str {
        "longhaul cp over ssh, without a server"
    }
    fn options(&self) -> &'static str {
        "none"
    }
    fn needs(&self) -> &'static [Need] {
        &[SSHD, SSH, KEYGEN]
    }
}

impl Peer for LonghaulOverSsh<'_> {
    fn abilities(&self) -> Abilities {
        Abilities {
            send: false,
            trees: true,
            streams: false,
            forward: false,
            socks: false,
        }
    }

    fn serve(&self, place: &PeerNode, root: &Path) -> Result<Serving> {
        let folder = self.tools.longhaul.parent();
        let folder = folder.context("the program is in no folder")?.display();
        ssh::serve_with(
            place,
            root,
            &format!("SetEnv \"PATH={folder}:/usr/bin:/bin\"\n"),
        )
    }

    fn fetch(
        &self,
        place: &PeerNode,
        from: &Serving,
        item: &Item,
        to: &Path,
        _streams: u32,
    ) -> Result<Command> {
        let mut command = in_node(self.tools, place.lab, place.node, &empty_home(from)?)?;
        command
            .args(["cp", "-r", "--json", "-F"])
            .arg(ssh::client_config(from)?)
            .arg(ssh::remote(&item.name))
            .arg(to);
        Ok(command)
    }
}
