//! `longhaul cp` from a host with a login: OpenSSH starts the remote end, and the data goes
//! directly between the hosts.

use super::longhaul::empty_home;
use super::place::{PeerNode, SERVED, Serving, USER};
use super::table::server;
use super::{Abilities, Item, Need, Peer, Program, need};
use crate::copy::in_node;
use crate::tools::Tools;
use anyhow::{Context, Result};
use minijinja::context;
use std::path::Path;
use std::process::Command;

/// The short name.
pub const NAME: &str = "longhaul-ssh";

/// Server of the table that starts the remote end.
const SERVER: &str = "sshd";

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
    fn needs(&self) -> Vec<Need> {
        let ssh = need("ssh").into_iter();
        server(SERVER)
            .map_or_else(|_| Vec::new(), |sshd| sshd.needs())
            .into_iter()
            .chain(ssh)
            .collect()
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
        server(SERVER)?.serve(place, root, context!(programs => folder.to_string()))
    }

    fn fetch(
        &self,
        place: &PeerNode,
        from: &Serving,
        item: &Item,
        to: &Path,
        _streams: u32,
    ) -> Result<Command> {
        server(SERVER)?.client(place, from, context!())?;
        let mut command = in_node(self.tools, place.lab, place.node, &empty_home(from)?)?;
        command
            .args(["cp", "-r", "--json", "-F"])
            .arg(from.setting("ssh_config"))
            .arg(format!("{USER}:{SERVED}/{}", item.name))
            .arg(to);
        Ok(command)
    }
}
