//! One timed transfer of GridFTP, directly or through gateways.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use wanbed::Lab;

use super::{CLIENT, Cell, PROGRAM};
use crate::children::Server;
use crate::experiment::Here;
use crate::gateways::Gateways;
use crate::peers::place::PeerNode;
use crate::peers::{self, Peer, Program};
use crate::setting::CopyRoute;

/// Bytes of a segment's headers: IPv4 and TCP with timestamps.
const HEADERS: u64 = 52;

/// Checks that all programs are installed.
///
/// # Errors
/// A program is missing.
pub fn programs() -> Result<()> {
    peers::find(PROGRAM)?.installed()
}

/// Returns the payload that had arrived at each of `moments`, in seconds from the start of the
/// client's program.
///
/// # Errors
/// A program cannot be started, or the transfer ended early.
pub fn transfer(here: &Here<'_, ()>, cell: Cell, moments: &[u32]) -> Result<Vec<(u32, u64)>> {
    let place = |node| PeerNode {
        lab: here.lab,
        node,
        scratch: here.folder,
    };
    let server = peers::find(PROGRAM)?.serve(&place("server"), here.folder)?;
    let (mut client, _gateways) = match cell.way {
        CopyRoute::Direct => (place("client").client(CLIENT, &server)?, Vec::new()),
        CopyRoute::Depots => through(here)?,
    };
    let last = moments.last().copied().unwrap_or(0);
    client
        .env("GLOBUS_HOSTNAME", here.lab.address("client")?.to_string())
        // Beyond the last count, because the end of a transfer waits for the bytes in flight.
        .args(["-t", &(last + 5).to_string()]);
    if cell.streams > 1 {
        client.args(["-fast", "-p", &cell.streams.to_string()]);
    }
    client
        .arg("file:///dev/zero")
        .arg(format!("ftp://{}/dev/null", server.endpoint.address))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let started = Instant::now();
    let before = delivered(here.lab)?;
    let mut child = client.spawn().context("cannot start globus-url-copy")?;
    let mut arrived = Vec::new();
    for &seconds in moments {
        let moment = started + Duration::from_secs(u64::from(seconds));
        std::thread::sleep(moment.saturating_duration_since(Instant::now()));
        if child.try_wait()?.is_some() {
            let said = child
                .wait_with_output()
                .context("cannot read what it said")?;
            bail!(
                "globus-url-copy ended before its time: {}",
                String::from_utf8_lossy(&said.stderr).trim()
            );
        }
        arrived.push((seconds, delivered(here.lab)?.saturating_sub(before)));
    }
    let _ = child.kill();
    let _ = child.wait();
    if arrived.iter().all(|(_, bytes)| *bytes == 0) {
        bail!("nothing arrived");
    }
    Ok(arrived)
}

/// Returns the client's program under `longhaul run`, with a depot at the first gateway and an
/// off-ramp at the second.
fn through(here: &Here<'_, ()>) -> Result<(Command, Vec<Server>)> {
    let gateways = Gateways {
        tools: here.tools,
        lab: here.lab,
        folder: here.folder,
        depots: &["gw1"],
        offramp: "gw2",
    };
    let servers = gateways.start()?;
    let mut client = gateways.run(&gateways.routes("")?, &[])?;
    client
        .env("HOME", here.folder)
        .arg(peers::need(CLIENT)?.find()?);
    Ok((client, servers))
}

/// Returns the payload that the last link has delivered to the server so far, in bytes.
fn delivered(lab: &Lab) -> Result<u64> {
    let report = lab.links()?;
    let link = report
        .links
        .iter()
        .find(|link| link.counters.link == "lan2");
    let way = &link.context("the lab has no link lan2")?.counters.forward;
    Ok(way.bytes.saturating_sub(HEADERS * way.packets))
}
