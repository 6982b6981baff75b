//! sftp in batch mode.

use super::place::{PeerNode, SERVED, Serving, write};
use super::ssh::{self, HOST, KEYGEN, SSH, SSHD};
use super::{Abilities, Item, Need, Peer, Program};
use anyhow::Result;
use std::path::Path;
use std::process::Command;

const SFTP: Need = Need {
    program: "sftp",
    package: "openssh-client",
};

/// sftp(1) with 256 requests in flight: "increasing this may slightly improve file transfer speed"
/// (`-R`). Their size is what the server allows.
pub struct Sftp;

impl Sftp {
    /// sftp with one line of a batch file.
    fn command(place: &PeerNode, serving: &Serving, line: &str) -> Result<Command> {
        let batch = serving.setting("batch");
        write(&batch, line)?;
        let mut command = place.client(&SFTP, serving)?;
        command
            .args(["-q", "-R", "256", "-F"])
            .arg(ssh::client_config(serving)?)
            .arg("-b")
            .arg(batch)
            .arg(HOST);
        Ok(command)
    }
}

impl Program for Sftp {
    fn name(&self) -> &'static str {
        "sftp"
    }
    fn title(&self) -> &'static str {
        "sftp"
    }
    fn options(&self) -> &'static str {
        "-R 256 -o Ciphers=^aes128-gcm@openssh.com"
    }
    fn needs(&self) -> &'static [Need] {
        &[SSHD, SSH, KEYGEN, SFTP]
    }
}

impl Peer for Sftp {
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
        let line = format!("get -r \"{SERVED}/{}\" \"{}\"\n", item.name, to.display());
        Self::command(place, from, &line)
    }

    fn send(
        &self,
        place: &PeerNode,
        to: &Serving,
        root: &Path,
        item: &Item,
        _streams: u32,
    ) -> Result<Command> {
        let line = format!(
            "put -r \"{}\" \"{SERVED}/\"\n",
            root.join(&item.name).display()
        );
        Self::command(place, to, &line)
    }
}
