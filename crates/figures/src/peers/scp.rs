//! scp over SSH's file transfer protocol, as OpenSSH has it since 9.0.

use super::place::{PeerNode, SERVED, Serving};
use super::ssh::{self, HOST, KEYGEN, SSH, SSHD};
use super::{Abilities, Item, Need, Peer, Program};
use anyhow::Result;
use std::path::Path;
use std::process::Command;

const SCP: Need = Need {
    program: "scp",
    package: "openssh-client",
};

/// scp(1) at its defaults, which are 64 requests in flight, with the cipher of
/// [`ssh::client_config`].
pub struct Scp;

impl Scp {
    fn command(place: &PeerNode, serving: &Serving) -> Result<Command> {
        let mut command = place.client(&SCP, serving)?;
        command
            .args(["-q", "-r", "-F"])
            .arg(ssh::client_config(serving)?);
        Ok(command)
    }
}

impl Program for Scp {
    fn name(&self) -> &'static str {
        "scp"
    }
    fn title(&self) -> &'static str {
        "scp"
    }
    fn options(&self) -> &'static str {
        "-r -o Ciphers=^aes128-gcm@openssh.com"
    }
    fn needs(&self) -> &'static [Need] {
        &[SSHD, SSH, KEYGEN, SCP]
    }
}

impl Peer for Scp {
    fn abilities(&self) -> Abilities {
        ssh::ABILITIES
    }

    fn serve(&self, place: &PeerNode, root: &Path) -> Result<Serving> {
        ssh::serve(place, root)
    }

    fn fetch(
        &self,
        place: &PeerNode,
        from: &Serving,
        item: &Item,
        to: &Path,
        _streams: u32,
    ) -> Result<Command> {
        let mut command = Self::command(place, from)?;
        command.arg(ssh::remote(&item.name)).arg(to);
        Ok(command)
    }

    fn send(
        &self,
        place: &PeerNode,
        to: &Serving,
        root: &Path,
        item: &Item,
        _streams: u32,
    ) -> Result<Command> {
        let mut command = Self::command(place, to)?;
        command
            .arg(root.join(&item.name))
            .arg(format!("{HOST}:{SERVED}/"));
        Ok(command)
    }
}
