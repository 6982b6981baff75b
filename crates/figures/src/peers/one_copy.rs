//! One copy with a peer, timed and checked.

use super::contents::{self, Contents};
use super::place::PeerNode;
use super::{Item, Peer, Relay, RelayKind};
use crate::children::output_within;
use crate::copy::Source;
use anyhow::{Context, Result, bail, ensure};
use std::path::Path;
use std::time::{Duration, Instant};
use wanbed::Lab;

/// Maximum time of a copy, so that a hang ends.
const COPY_TIME_LIMIT: Duration = Duration::from_secs(900);

/// Direction of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PeerDirection {
    /// From the server to the client.
    Fetch,
    /// From the client to the server.
    Send,
}

/// Copied data, and the two nodes of the copy.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    /// The running lab.
    pub lab: &'a Lab,
    /// The node whose command is timed.
    pub client: &'a str,
    /// The node that serves.
    pub server: &'a str,
    /// A relay, and the node that it runs in.
    pub relay: Option<(&'a dyn Relay, &'a str)>,
    /// Folder for settings and arrived files. It is memory-backed, so that no disk is measured.
    pub scratch: &'a Path,
    /// The file or folder.
    pub source: &'a Source,
    /// Direction of the data.
    pub direction: PeerDirection,
    /// Number of streams, for peers with such an option; 1 for the others.
    pub streams: u32,
}

/// A finished copy.
#[derive(Clone, Debug)]
pub struct Timed {
    /// Number and size of the files, which all arrived unchanged.
    pub contents: Contents,
    /// Time of the client's command from start to end, in seconds.
    pub seconds: f64,
    /// Standard output of the client.
    pub printed: String,
}

impl Timed {
    /// Returns the bits of files per second.
    pub fn goodput_bps(&self) -> f64 {
        8.0 * self.contents.bytes as f64 / self.seconds
    }
}

/// Serves, copies with one command of the client, and compares what arrived with the source.
///
/// # Errors
/// The peer or the relay is not installed or lacks an ability, or a server does not start. The
/// command fails or does not end within 15 minutes. What arrived differs from the source, whatever
/// the command reported.
pub fn one_copy(peer: &dyn Peer, job: &Job) -> Result<Timed> {
    let timed = copy_within(peer, job, COPY_TIME_LIMIT)?;
    timed.with_context(|| {
        format!(
            "{} did not end within {} s",
            peer.name(),
            COPY_TIME_LIMIT.as_secs()
        )
    })
}

/// Copies like [`one_copy`], but kills a command that does not end within `limit`. The result is
/// then `None`.
///
/// # Errors
/// As [`one_copy`].
pub fn copy_within(peer: &dyn Peer, job: &Job, limit: Duration) -> Result<Option<Timed>> {
    peer.installed()?;
    able(peer, job)?;
    let target = tempfile::tempdir_in(job.scratch).context("cannot make a folder for the copy")?;
    let place = |node| PeerNode {
        lab: job.lab,
        node,
        scratch: job.scratch,
    };
    let root = match job.direction {
        PeerDirection::Fetch => job.source.root.as_path(),
        PeerDirection::Send => target.path(),
    };
    let mut serving = peer.serve(&place(job.server), root)?;
    let relaying = match job.relay {
        None => None,
        Some((relay, node)) => {
            relay.installed()?;
            Some(relay.start(&place(node), serving.endpoint.address)?)
        }
    };
    if let Some(relaying) = &relaying {
        serving.endpoint = relaying.endpoint;
    }
    let (client, item) = (place(job.client), item(job.source));
    let command = match job.direction {
        PeerDirection::Fetch => peer.fetch(&client, &serving, &item, target.path(), job.streams)?,
        PeerDirection::Send => {
            peer.send(&client, &serving, &job.source.root, &item, job.streams)?
        }
    };
    let started = Instant::now();
    let ended = output_within(command, peer.name(), limit);
    let seconds = started.elapsed().as_secs_f64();
    if ended.is_err() && seconds >= limit.as_secs_f64() {
        return Ok(None);
    }
    let (status, out, err) = ended?;
    if !status.success() {
        bail!(
            "{} ended with {status}: {} {}",
            peer.name(),
            out.trim(),
            err.trim()
        );
    }
    let contents = contents::compare(
        &job.source.root.join(&item.name),
        &target.path().join(&item.name),
    )
    .with_context(|| format!("{} reported success", peer.name()))?;
    Ok(Some(Timed {
        contents,
        seconds,
        printed: out,
    }))
}

fn item(source: &Source) -> Item {
    Item {
        name: source.name.clone(),
        tree: source.root.join(&source.name).is_dir(),
    }
}

/// Checks that the peer can do what is asked.
fn able(peer: &dyn Peer, job: &Job) -> Result<()> {
    let (name, able) = (peer.name(), peer.abilities());
    ensure!(
        job.direction == PeerDirection::Fetch || able.send,
        "{name} only fetches"
    );
    ensure!(
        !item(job.source).tree || able.trees,
        "{name} copies no folders"
    );
    ensure!(
        job.streams == 1 || (job.streams > 1 && able.streams),
        "{name} has one stream, not {}",
        job.streams
    );
    if let Some((relay, _)) = job.relay {
        let passes = match relay.kind() {
            RelayKind::Forward => able.forward,
            RelayKind::Socks => able.socks,
        };
        ensure!(passes, "{name} cannot go through {}", relay.name());
    }
    Ok(())
}
