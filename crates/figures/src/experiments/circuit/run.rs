//! One run: the reservation, the flows, and the machines' own counters of both.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{CROSS_FLOWS, Cell, Flow, MEASURED_SECONDS, Observation, ROUTED, SETTLE_SECONDS};
use crate::children::Server;
use crate::controlled::Controlled;
use crate::copy::{DEPOT_PORT, in_node};
use crate::experiment::Here;

const PERF_PORT: u16 = 7511;
const IPERF_PORT: u16 = 5201;
/// Interval at which counters are read.
const SAMPLE: Duration = Duration::from_millis(100);
/// Additional duration of the flows beyond the measurement, in seconds.
const LONGER_SECONDS: f64 = 15.0;

/// Measures once.
///
/// # Errors
/// A program does not start or ends early, or nothing is reserved.
pub fn run(here: &Here<'_, ()>, cell: Cell) -> Result<Observation> {
    let mut world = Controlled::new(here)?;
    let (reserved, perf) = match cell.flow {
        Flow::None => (None, None),
        _ => prepared(here, &mut world, cell)?,
    };
    let lasts = format!("{:.0}", SETTLE_SECONDS + MEASURED_SECONDS + LONGER_SECONDS);
    let mut sink = None;
    if cell.cross {
        let mut takes = here.lab.command("sink", "iperf3")?;
        takes.args(["--server", "--port", &IPERF_PORT.to_string()]);
        let takes = Server::start_listening(takes, "iperf3", IPERF_PORT)?;
        sink = Some(takes.process());
        world.keep(takes);
        let mut sends = here.lab.command("other", "iperf3")?;
        sends.args([
            "--client",
            &world.address("sink")?,
            "--port",
            &IPERF_PORT.to_string(),
        ]);
        sends.args(["--parallel", &CROSS_FLOWS.to_string(), "--time", &lasts]);
        world.keep(Server::start_silent(sends, "iperf3")?);
    }
    let flow = match &perf {
        Some(prepared) => {
            let mut command = world.longhaul("client", "client")?;
            command.args([
                "perf",
                "--json",
                "--host-key",
                &here.tools.identities.server_key,
            ]);
            command.args(&prepared.arguments).args(["--time", &lasts]);
            command.arg(format!("{}:{PERF_PORT}", world.address("server")?));
            Some(Server::start_silent(command, "longhaul perf")?)
        }
        None => None,
    };
    std::thread::sleep(Duration::from_secs_f64(SETTLE_SECONDS));
    let depot = world.depot_process(0);
    let [server, sender] = [
        perf.as_ref().map(|prepared| prepared.server),
        flow.as_ref().map(Server::process),
    ];
    let resent = || Some([sent_again(depot?).ok()?, sent_again(sender?).ok()?]);
    let before = resent();
    let [of_flow, of_cross] = sampled(server.filter(|_| flow.is_some()), sink)?;
    let after = resent();
    if flow.is_some() {
        ensure!(
            after.is_some(),
            "longhaul perf ended before it was measured"
        );
    }
    drop(flow);
    Ok(Observation {
        reserved_bps: reserved,
        flow_bps: of_flow.as_deref().map(mean),
        deviation_percent: of_flow.as_deref().map(deviation_percent),
        second_bps: of_flow.as_deref().map(of_seconds),
        resent: before
            .zip(after)
            .map(|([d0, s0], [d1, s1])| [d1 - d0, s1 - s0]),
        cross_bps: of_cross.as_deref().map(mean),
    })
}

/// Prepared state with which the flow is started.
struct Prepared {
    /// Process of the server to which it goes.
    server: u32,
    arguments: Vec<String>,
}

/// Starts depots and server, and reserves what the cell wants: its rate, and what the flow is
/// started with.
fn prepared(
    here: &Here<'_, ()>,
    world: &mut Controlled<'_, '_, ()>,
    cell: Cell,
) -> Result<(Option<f64>, Option<Prepared>)> {
    let depots = vec![world.depot("west", "east")?, world.depot("east", "east")?];
    let mut serve = in_node(
        here.tools,
        here.lab,
        "server",
        &here.tools.identities.server_home,
    )?;
    serve.args(["perf", "--serve", "--allow", &world.client_key, "--listen"]);
    serve.arg(format!("0.0.0.0:{PERF_PORT}"));
    let server = Server::start(serve, "longhaul perf --serve", "listening")?;
    let process = server.process();
    world.keep(server);
    if cell.flow == Flow::BestEffort {
        let hops =
            [world.address("west")?, world.address("east")?].map(|at| format!("{at}:{DEPOT_PORT}"));
        let arguments = vec!["--route".to_owned(), hops.join(",")];
        let server = process;
        return Ok((None, Some(Prepared { server, arguments })));
    }
    let routed = cell.path.shared_bps() * ROUTED;
    let setup = match cell.flow.has_class() {
        true => world.router("west", "east", "shared", routed, 0.5)?,
        false => String::new(),
    };
    let direction = json!({"capacity": {"rate_bps": routed}});
    let host = |name: &str, site: &str, address: String| {
        json!({"name": name, "site": site,
        "addresses": [address]})
    };
    // The ends are the depots' machines: what the router is to know are the packets between these.
    let map = json!({
        "sites": [{"name": "west"}, {"name": "east"}],
        "hosts": [
            host("client", "west", world.address("client")?),
            host("west-depot", "west", world.address("west")?),
            host("east-depot", "east", world.address("east")?),
        ],
        "depots": depots,
        "links": [{"name": "shared", "from": "west", "to": "east", "forward": direction,
            "backward": direction}],
    });
    world.controller("east", "client", &map, &setup)?;
    let rate = cell.path.reserved_bps();
    let said = world.ask(
        "client",
        "client",
        &[
            "reserve",
            "west-depot",
            "east-depot",
            "--rate",
            &format!("{rate:.0}"),
            "--for",
            "10min",
            "--provision",
            "--json",
        ],
    )?;
    let said: Value = serde_json::from_str(&said).context("longhaul reserve")?;
    let id = said["reservations"][0]["id"]
        .as_u64()
        .context("nothing was reserved")?
        .to_string();
    if cell.flow.has_class() {
        world.wait_set_up("client", &id)?;
    }
    let grants = world.ask(
        "client",
        "client",
        &["reservations", &id, "grants", "--json"],
    )?;
    let grants: Value = serde_json::from_str(&grants).context("longhaul reservations grants")?;
    let text = |field: &str| -> Result<String> {
        let text = grants["items"][0][field].as_str();
        Ok(text
            .with_context(|| format!("the path has no {field}: {grants}"))?
            .to_owned())
    };
    let arguments = vec![
        "--route".to_owned(),
        text("route")?,
        "--grant".to_owned(),
        text("grant")?,
    ];
    let is_used = cell.flow != Flow::Idle;
    let server = process;
    Ok((
        Some(rate),
        is_used.then_some(Prepared { server, arguments }),
    ))
}

/// The rates of both in each [`SAMPLE`], in bit/s, as they come to the machines of these processes.
fn sampled(flow: Option<u32>, cross: Option<u32>) -> Result<[Option<Vec<f64>>; 2]> {
    let processes = [flow, cross];
    let read = || -> Result<[u64; 2]> {
        let [flow, cross] = processes.map(|process| process.map_or(Ok(0), received));
        Ok([flow?, cross?])
    };
    let (began, mut last, mut at) = (Instant::now(), read()?, Instant::now());
    let mut rates = [Vec::new(), Vec::new()];
    let samples = (MEASURED_SECONDS / SAMPLE.as_secs_f64()).round() as u32;
    for sample in 1..=samples {
        let due = began + SAMPLE * sample;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let (now, found) = (Instant::now(), read()?);
        let seconds = now.duration_since(at).as_secs_f64();
        for ((rates, now), before) in rates.iter_mut().zip(found).zip(last) {
            rates.push(now.saturating_sub(before) as f64 * 8.0 / seconds);
        }
        (last, at) = (found, now);
    }
    let [of_flow, of_cross] = rates;
    Ok([flow.map(|_| of_flow), cross.map(|_| of_cross)])
}

/// Bytes that have come to the machine of a process, by proc_net(5), but for its loopback device.
fn received(process: u32) -> Result<u64> {
    let path = format!("/proc/{process}/net/dev");
    let table = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let devices = table.lines().filter_map(|line| line.trim().split_once(':'));
    let outside = devices.filter(|(name, _)| *name != "lo");
    Ok(outside
        .filter_map(|(_, counts)| counts.split_ascii_whitespace().next()?.parse::<u64>().ok())
        .sum())
}

/// Segments that the machine of a process has sent again (`RetransSegs` of RFC 1213).
fn sent_again(process: u32) -> Result<u64> {
    let path = format!("/proc/{process}/net/snmp");
    let table = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let mut tcp = table.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, values) = tcp.next().zip(tcp.next()).context("no counters of TCP")?;
    let mut both = names
        .split_ascii_whitespace()
        .zip(values.split_ascii_whitespace());
    let found = both.find(|(name, _)| *name == "RetransSegs");
    found
        .and_then(|(_, value)| value.parse().ok())
        .context("no RetransSegs")
}

fn mean(rates: &[f64]) -> f64 {
    rates.iter().sum::<f64>() / rates.len().max(1) as f64
}

fn deviation_percent(rates: &[f64]) -> f64 {
    let mean = mean(rates);
    let squares: f64 = rates.iter().map(|rate| (rate - mean).powi(2)).sum();
    100.0 * (squares / rates.len().max(1) as f64).sqrt() / mean
}

/// The least and the greatest mean of a second.
fn of_seconds(rates: &[f64]) -> [f64; 2] {
    let each = (1.0 / SAMPLE.as_secs_f64()).round() as usize;
    let seconds = rates.chunks_exact(each).map(mean);
    seconds.fold([f64::INFINITY, 0.0], |[least, most], rate| {
        [least.min(rate), most.max(rate)]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_reported_by_mean_deviation_and_extremes() {
        let rates: Vec<f64> = (0..20)
            .map(|at| if at < 10 { 90.0 } else { 110.0 })
            .collect();
        assert_eq!((mean(&rates), of_seconds(&rates)), (100.0, [90.0, 110.0]));
        assert!((deviation_percent(&rates) - 10.0).abs() < 1e-9);
    }

    #[test]
    fn this_machines_counters_are_read() {
        let me = std::process::id();
        received(me).unwrap();
        sent_again(me).unwrap();
    }
}
