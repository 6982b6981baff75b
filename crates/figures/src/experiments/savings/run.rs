//! One copy, with what the path carried and what both ends used.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::{Cell, Observation, program_of};
use crate::children::output_within;
use crate::experiment::Here;
use crate::peers::contents;
use crate::peers::place::PeerNode;
use crate::peers::{Item, Peer};
use crate::usage::{TreeUsage, ended_children_cpu_seconds};

/// Maximum time of a copy, so that a hang ends.
const COPY_TIMEOUT: Duration = Duration::from_secs(180);
/// Time after a copy in which processes of the server end. Reading their times as they end could
/// miss them.
const SETTLE_TIME: Duration = Duration::from_millis(100);

/// Serves, copies with one command of the client, and compares what arrived with the source.
///
/// # Errors
/// A program does not start or fails, or what arrived differs.
pub fn run(here: &Here<'_, ()>, cell: &Cell) -> Result<Observation> {
    let source = cell.data.prepare(here.tools, cell.path)?;
    let bytes = cell.data.bytes(cell.path);
    let target = here.folder.join("target");
    std::fs::create_dir(&target).context("cannot make a folder for the copy")?;
    cell.data.place_older(&source, bytes, &target)?;
    let node = |node| PeerNode {
        lab: here.lab,
        node,
        scratch: here.folder,
    };
    let peer: Box<dyn Peer + '_> = program_of(cell)?.peer(here.tools)?;
    let serving = peer.serve(&node("server"), &source.root)?;
    let item = Item {
        tree: source.root.join(&source.name).is_dir(),
        name: source.name.clone(),
    };
    let command = peer.fetch(&node("client"), &serving, &item, &target, 1)?;
    let server = || TreeUsage::read_cpu_seconds(serving.process());
    // Nothing else runs meanwhile, so every child that ends is the client's command.
    let before = (ended_children_cpu_seconds()?, server()?);
    let started = Instant::now();
    let (status, out, err) = output_within(command, peer.name(), COPY_TIMEOUT)?;
    let seconds = started.elapsed().as_secs_f64();
    let receiver_cpu_seconds = ended_children_cpu_seconds()? - before.0;
    if !status.success() {
        let (out, err) = (out.trim(), err.trim());
        bail!("{} ended with {status}: {out} {err}", peer.name());
    }
    thread::sleep(SETTLE_TIME);
    let sender_cpu_seconds = server()? - before.1;
    let links = here.lab.links()?.links;
    let ways = links.iter().flat_map(|link| {
        let counters = &link.counters;
        [counters.forward.bytes, counters.backward.bytes]
    });
    contents::compare(&source.root.join(&item.name), &target.join(&item.name))
        .with_context(|| format!("{} reported success", peer.name()))?;
    Ok(Observation {
        bytes,
        seconds,
        wire_bytes: ways.sum(),
        receiver_cpu_seconds,
        sender_cpu_seconds,
    })
}
