//! One run: servers, depots, and the timed command of the client.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::Observation;
use super::cells::{Cell, CopyWay, FILE_BYTES, PERF_SECONDS, PerfWay};
use crate::children::{Server, output_within};
use crate::copy::{
    COPY_TIMEOUT, DEPOT_PORT, SERVER_PORT, Source, first_copy, in_node, serve, start_depot_with,
};
use crate::experiment::Here;
use crate::peers::longhaul::{copy_files, streams_of};

/// Nodes with depots, in order from the client.
pub const GATEWAYS: [&str; 2] = ["gw1", "gw2"];

const CLIENT: &str = "client";
const SERVER: &str = "server";
/// Time that a measurement may take beyond its own duration.
const PERF_MARGIN: Duration = Duration::from_secs(60);

/// Makes a run.
///
/// # Errors
/// A program does not start, or the command of the client fails.
pub fn run(here: &Here<'_, Source>, cell: &Cell) -> Result<Observation> {
    match *cell {
        Cell::RandomLoss { way } => copy(here, way),
        Cell::Fasp { .. } => copy(here, CopyWay::Cp),
        Cell::Gateways { way, .. } => measure(here, way),
    }
}

/// Copies the file to the client.
fn copy(here: &Here<'_, Source>, way: CopyWay) -> Result<Observation> {
    let source = here.setup;
    let _server = serve(here.tools, here.lab, SERVER, &source.root)?;
    let (route, _depots) = match way.has_depots() {
        true => start_depots(here, &[])?,
        false => Default::default(),
    };
    let mut command = first_copy(here, CLIENT)?;
    forget(here, &mut command)?;
    command
        .arg("--json")
        .args(way.options(&route))
        .arg(format!(
            "lh://{}/{}",
            here.lab.endpoint(SERVER, SERVER_PORT)?,
            source.name
        ))
        .arg(here.folder.join("arrived"));
    let started = Instant::now();
    let (status, out, errors) = output_within(command, "longhaul cp", COPY_TIMEOUT)?;
    let seconds = started.elapsed().as_secs_f64();
    if !status.success() {
        bail!("longhaul cp ended with {status}: {}", errors.trim());
    }
    streams_of(&out)?;
    Ok(Observation {
        seconds,
        goodput_bps: FILE_BYTES as f64 * 8.0 / seconds,
    })
}

/// Measures from the client to the server.
fn measure(here: &Here<'_, Source>, way: PerfWay) -> Result<Observation> {
    let keys = &here.tools.identities;
    let endpoint = here.lab.endpoint(SERVER, SERVER_PORT)?.to_string();
    let mut server = in_node(here.tools, here.lab, SERVER, &keys.server_home)?;
    server.args(["perf", "--serve", "--allow", &keys.client_key]);
    server.args(["--listen", &endpoint]);
    let _server = Server::start(server, "longhaul perf --serve", "listening")?;
    let (route, _depots) = match way {
        PerfWay::Direct => Default::default(),
        _ => start_depots(here, way.depot_options())?,
    };
    let mut command = in_node(here.tools, here.lab, CLIENT, &keys.client_home)?;
    forget(here, &mut command)?;
    command
        .args(["perf", "--json", "--host-key", &keys.server_key])
        .args(["--time", &PERF_SECONDS.to_string()])
        .args(way.options(&route))
        .arg(&endpoint);
    let limit = Duration::from_secs(PERF_SECONDS.into()) + PERF_MARGIN;
    let (status, out, errors) = output_within(command, "longhaul perf", limit)?;
    let report: PerfReport = serde_json::from_str(&out)
        .with_context(|| format!("longhaul perf ended with {status}: {}", errors.trim()))?;
    let end = report.end.filter(|_| status.success());
    let Some(PerfEnd { sum_received }) = end else {
        let reason = report.error.unwrap_or(errors);
        bail!("longhaul perf ended with {status}: {}", reason.trim());
    };
    Ok(Observation {
        seconds: sum_received.seconds,
        goodput_bps: sum_received.bits_per_second,
    })
}

/// Starts both depots with these options. Returns their endpoints for a route.
fn start_depots(here: &Here<'_, Source>, options: &[&str]) -> Result<([String; 2], Vec<Server>)> {
    let depots = GATEWAYS.map(|node| start_depot_with(here.tools, here.lab, node, options));
    let depots = depots.into_iter().collect::<Result<_>>()?;
    let [first, second] = GATEWAYS.map(|node| here.lab.endpoint(node, DEPOT_PORT));
    Ok(([first?.to_string(), second?.to_string()], depots))
}

/// Gives a client's command a home and a state of its own, so that no earlier run has an effect.
fn forget(here: &Here<'_, Source>, command: &mut Command) -> Result<()> {
    let home = here.folder.join("client");
    std::fs::create_dir_all(&home).with_context(|| format!("cannot make {}", home.display()))?;
    copy_files(&here.tools.identities.client_home, &home)?;
    command
        .env("LONGHAUL_HOME", &home)
        .env("LONGHAUL_STATE", here.folder.join("state"));
    Ok(())
}

/// Output of `longhaul perf --json`.
#[derive(Deserialize)]
struct PerfReport {
    end: Option<PerfEnd>,
    error: Option<String>,
}

#[derive(Deserialize)]
struct PerfEnd {
    sum_received: PerfSum,
}

#[derive(Deserialize)]
struct PerfSum {
    seconds: f64,
    bits_per_second: f64,
}
