//! rsync over SSH, and with its own daemon.
//!
//! rsync(1): `-W` sends whole files, which "may be faster [...] when the bandwidth between the
//! source and destination machines is higher than the bandwidth to disk"; `--inplace` writes the
//! file itself instead of a copy that is renamed. It compresses only when told to, and checks every
//! file by a hash of its own.

use super::place::{PeerNode, SERVED, Serving, write};
use super::ssh::{self, HOST, KEYGEN, SSH, SSHD};
use super::{Abilities, Item, Need, Peer, Program};
use anyhow::Result;
use std::path::Path;
use std::process::Command;

const RSYNC: Need = Need {
    program: "rsync",
    package: "rsync",
};

/// Port of the daemon in its node.
const PORT: u16 = 8730;
/// Recursive, with times, whole files, in place. Owners stay out: a node has one user.
const OPTIONS: &str = "-rtW --inplace";

/// rsync(1) over SSH.
pub struct RsyncSsh;

/// rsync(1) with `rsync --daemon`, rsyncd.conf(5): no encryption.
pub struct RsyncDaemon;

fn command(place: &PeerNode, serving: &Serving) -> Result<Command> {
    let mut command = place.client(&RSYNC, serving)?;
    command.args(OPTIONS.split(' '));
    Ok(command)
}

impl RsyncSsh {
    fn command(place: &PeerNode, serving: &Serving) -> Result<Command> {
        let config = ssh::client_config(serving)?;
        let mut command = command(place, serving)?;
        command
            .arg("-e")
            .arg(format!("{} -F {}", SSH.find()?.display(), config.display()));
        Ok(command)
    }
}

impl Program for RsyncSsh {
    fn name(&self) -> &'static str {
        "rsync-ssh"
    }
    fn title(&self) -> &'static str {
        "rsync over SSH"
    }
    fn options(&self) -> &'static str {
        "-rtW --inplace, with Ciphers=^aes128-gcm@openssh.com"
    }
    fn needs(&self) -> &'static [Need] {
        &[SSHD, SSH, KEYGEN, RSYNC]
    }
}

impl Peer for RsyncSsh {
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
        command
            .arg(ssh::remote(&item.name))
            .arg(format!("{}/", to.display()));
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

impl Program for RsyncDaemon {
    fn name(&self) -> &'static str {
        "rsync"
    }
    fn title(&self) -> &'static str {
        "rsync daemon"
    }
    fn options(&self) -> &'static str {
        OPTIONS
    }
    fn needs(&self) -> &'static [Need] {
        &[RSYNC]
    }
}

impl Peer for RsyncDaemon {
    fn abilities(&self) -> Abilities {
        Abilities {
            socks: false,
            ..ssh::ABILITIES
        }
    }

    fn serve(&self, place: &PeerNode, root: &Path) -> Result<Serving> {
        let settings = place.settings()?;
        let file = settings.path().join("rsyncd.conf");
        write(
            &file,
            &format!(
                "use chroot = no\nreverse lookup = no\n[served]\npath = {SERVED}\nread only = no\n"
            ),
        )?;
        let arguments = [
            "--daemon",
            "--no-detach",
            "--log-file=/dev/stderr",
            &format!("--port={PORT}"),
            &format!("--config={}", file.display()),
        ];
        place.serve(&RSYNC, &arguments, settings, root, PORT)
    }

    fn fetch(
        &self,
        place: &PeerNode,
        from: &Serving,
        item: &Item,
        to: &Path,
        _streams: u32,
    ) -> Result<Command> {
        let mut command = command(place, from)?;
        command
            .arg(format!(
                "rsync://{}/served/{}",
                from.endpoint.address, item.name
            ))
            .arg(format!("{}/", to.display()));
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
        let mut command = command(place, to)?;
        command
            .arg(root.join(&item.name))
            .arg(format!("rsync://{}/served/", to.endpoint.address));
        Ok(command)
    }
}
