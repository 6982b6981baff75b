//! rclone, with an SSH server and with an HTTP server.
//!
//! rclone(1): `--multi-thread-streams` is the most streams of one file that is fetched, a stream
//! for every `--multi-thread-cutoff` of its bytes, and `--transfers` the number of files at a time;
//! a file that is sent has one stream. `--sftp-chunk-size` "will increase transfer speed
//! dramatically on high latency links", and 255k "works well" with OpenSSH. After a copy it
//! compares hashes where the server has them, which takes round trips for each file. Over SFTP
//! several streams can be slower than one: at 32 MiB, 200 Mbit/s and 20 ms four fetched at 44
//! Mbit/s and one at 117.

use super::http::{self, RCLONE};
use super::place::{PeerNode, SERVED, Serving, USER};
use super::ssh::{self, KEYGEN, SSHD};
use super::{Abilities, Item, Need, Peer, Program};
use anyhow::Result;
use std::path::Path;
use std::process::Command;

/// Minimum number of simultaneous files, which is rclone's default.
const TRANSFERS_AT_LEAST: u32 = 4;

/// rclone's `sftp` with an OpenSSH server.
pub struct RcloneSftp;

/// rclone's `http` with `rclone serve http`.
pub struct RcloneHttp;

/// `rclone copyto` for a file and `rclone copy` for a folder.
fn command(place: &PeerNode, serving: &Serving, item: &Item, streams: u32) -> Result<Command> {
    let mut command = place.client(&RCLONE, serving)?;
    command
        .arg(if item.tree { "copy" } else { "copyto" })
        .args(["--config=", "--retries=1", "--multi-thread-cutoff=1M"])
        .arg(format!("--multi-thread-streams={streams}"))
        .arg(format!("--transfers={}", streams.max(TRANSFERS_AT_LEAST)));
    Ok(command)
}

impl RcloneSftp {
    fn command(place: &PeerNode, serving: &Serving, item: &Item, streams: u32) -> Result<Command> {
        let at = serving.endpoint.address;
        let mut command = command(place, serving, item, streams)?;
        command
            .arg("--sftp-chunk-size=255k")
            .arg(format!("--sftp-host={}", at.ip()))
            .arg(format!("--sftp-port={}", at.port()))
            .arg(format!("--sftp-user={USER}"))
            .arg(format!(
                "--sftp-key-file={}",
                serving.setting("user").display()
            ))
            .arg(format!(
                "--sftp-known-hosts-file={}",
                serving.setting("known_hosts").display()
            ));
        Ok(command)
    }
}

impl Program for RcloneSftp {
    fn name(&self) -> &'static str {
        "rclone-sftp"
    }
    fn title(&self) -> &'static str {
        "rclone, sftp"
    }
    fn options(&self) -> &'static str {
        "--sftp-chunk-size 255k --multi-thread-streams N --multi-thread-cutoff 1M --transfers N \
         (4 or more)"
    }
    fn needs(&self) -> &'static [Need] {
        &[SSHD, KEYGEN, RCLONE]
    }
}

impl Peer for RcloneSftp {
    fn abilities(&self) -> Abilities {
        Abilities {
            streams: true,
            socks: false,
            ..ssh::ABILITIES
        }
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
        streams: u32,
    ) -> Result<Command> {
        let mut command = Self::command(place, from, item, streams)?;
        command
            .arg(format!(":sftp:{SERVED}/{}", item.name))
            .arg(to.join(&item.name));
        Ok(command)
    }

    fn send(
        &self,
        place: &PeerNode,
        to: &Serving,
        root: &Path,
        item: &Item,
        streams: u32,
    ) -> Result<Command> {
        let mut command = Self::command(place, to, item, streams)?;
        command
            .arg(root.join(&item.name))
            .arg(format!(":sftp:{SERVED}/{}", item.name));
        Ok(command)
    }
}

impl Program for RcloneHttp {
    fn name(&self) -> &'static str {
        "rclone-http"
    }
    fn title(&self) -> &'static str {
        "rclone, http"
    }
    fn options(&self) -> &'static str {
        "--multi-thread-streams N --multi-thread-cutoff 1M --transfers N (4 or more)"
    }
    fn needs(&self) -> &'static [Need] {
        &[RCLONE]
    }
}

impl Peer for RcloneHttp {
    fn abilities(&self) -> Abilities {
        Abilities {
            send: false,
            trees: true,
            streams: true,
            forward: true,
            socks: true,
        }
    }

    fn serve(&self, place: &PeerNode, root: &Path) -> Result<Serving> {
        http::serve(place, root)
    }

    fn fetch(
        &self,
        place: &PeerNode,
        from: &Serving,
        item: &Item,
        to: &Path,
        streams: u32,
    ) -> Result<Command> {
        let mut command = command(place, from, item, streams)?;
        if let Some(socks) = from.endpoint.socks {
            command.env("HTTP_PROXY", format!("socks5://{socks}"));
        }
        command
            .arg("--http-url")
            .arg(http::url(from, ""))
            .arg(format!(":http:{}", item.name))
            .arg(to.join(&item.name));
        Ok(command)
    }
}
