//! One transfer: the reservation, the flows of others, GridFTP under `longhaul run`, and the links'
//! counters meanwhile.

use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use wanbed::Lab;

use super::network::PAPER_BUFFER_BYTES;
use super::plan::{Beside, CONNECTIONS, Cell, Path, RATE_DIVISOR, Scale};
use super::{BesideRates, Observation};
use crate::children::Server;
use crate::controlled::Controlled;
use crate::experiment::Here;
use crate::experiments::gridftp::{CLIENT, PROGRAM};
use crate::peers::place::{PeerNode, Serving};
use crate::peers::{self, Peer};

/// Block size of the paper, in bytes.
const BLOCK_BYTES: u64 = 1_048_576;
/// Port of GridFTP's control connection.
const CONTROL_PORT: u16 = 2811;
/// Rate that the router uses of each link. It is slightly less than all, so that the queue is at
/// the router.
const ROUTED: f64 = 0.99;
/// Reservable share of that.
const RESERVABLE: f64 = 0.97;
/// First port of the others' servers.
const OTHERS_PORT: u16 = 5301;
/// Flows of others on A, and as many on C.
pub const OTHERS: u32 = 4;
/// Time for which the others' flows are alone, in seconds.
const OTHERS_ALONE_SECONDS: f64 = 5.0;
/// Time at which a transfer beside others counts, in seconds after its start: slow start is over.
pub const SETTLE_SECONDS: f64 = 4.0;
/// Maximum time of a transfer, relative to the estimate.
const MAX_SLOWNESS: f64 = 5.0;

/// Counters of the lab's links, in bytes with packet headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LinkBytes {
    /// Delivered by A, B and C.
    paths: [u64; 3],
    /// Sent by the others over A and over C.
    others: [u64; 2],
}

/// Source ports of a path.
type PathPorts = (Path, std::ops::RangeInclusive<u16>);

/// Makes the transfer.
///
/// # Errors
/// A program does not start, nothing is reserved, or the transfer fails.
pub fn run(here: &Here<'_, ()>, cell: &Cell) -> Result<Observation> {
    let mut world = Controlled::new(here)?;
    let place = |node| PeerNode {
        lab: here.lab,
        node,
        scratch: here.folder,
    };
    let server = peers::find(PROGRAM)?.serve(&place("server"), here.folder)?;
    let reserved = match cell.beside {
        Beside::BestEffort => None,
        Beside::Nothing | Beside::Reserved => Some(reserve(&mut world, cell)?),
    };
    if cell.beside != Beside::Nothing {
        start_others(here, &mut world)?;
        thread::sleep(Duration::from_secs_f64(OTHERS_ALONE_SECONDS));
    }
    let mut command = match &reserved {
        Some((id, _)) => {
            let mut run = world.longhaul("client", "client")?;
            run.args(["run", "--reservation", id, "--spread", cell.spread(), "--"]);
            run.env("HOME", here.folder)
                .arg(peers::need(CLIENT)?.find()?);
            run
        }
        None => place("client").client(CLIENT, &server)?,
    };
    arguments(&mut command, here, cell, &server)?;
    let ports = reserved.map_or_else(|| vec![(Path::C, 1..=u16::MAX)], |(_, ports)| ports);
    let mut seen = watch(here.lab, cell, command, &ports)?;
    seen.reserved_bps = Path::ALL.map(|path| cell.reserved_bps(path));
    Ok(seen)
}

/// Appends the arguments of the paper (Table 3), the transfer's size and its ends.
fn arguments(
    command: &mut Command,
    here: &Here<'_, ()>,
    cell: &Cell,
    server: &Serving,
) -> Result<()> {
    let buffer = PAPER_BUFFER_BYTES / RATE_DIVISOR;
    command
        .env("GLOBUS_HOSTNAME", here.lab.address("client")?.to_string())
        .args(["-fast", "-p", &CONNECTIONS.to_string()])
        .args(["-bs", &BLOCK_BYTES.to_string()])
        .args(["-tcp-bs", &format!("{buffer:.0}")])
        .args(["-len", &cell.bytes().to_string()])
        .arg("file:///dev/zero")
        .arg(format!("ftp://{}/dev/null", server.endpoint.address))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    Ok(())
}

/// Reserves the paths of a transfer, and waits until they are set up. Returns the reservation's ID
/// and the source ports of each path.
fn reserve(world: &mut Controlled<'_, '_, ()>, cell: &Cell) -> Result<(String, Vec<PathPorts>)> {
    let links: serde_json::Map<String, Value> = Path::ALL
        .into_iter()
        .map(|path| {
            // In a lab, a device has the name of its link.
            let link = json!({"interface": path.link(), "gateways": [],
                "rate": (ROUTED * path.link_bps()) as u64,
                "reservable": (RESERVABLE * 1e6) as u64});
            (path.link().to_owned(), link)
        })
        .collect();
    let setup = world.router_of("west", &Value::Object(links))?;
    world.controller("server", "client", &map(world)?, &setup)?;
    let mut reserve = vec!["reserve", "client", "server", "--for", "2 h"];
    reserve.extend(["--provision", "--pin", "--json"]);
    let mut paths = Vec::new();
    for path in &cell.paths {
        let rate = cell.reserved_bps(*path);
        paths.push(format!("west,{},east={rate:.0}", path.link()));
    }
    for path in &paths {
        reserve.extend(["--path", path]);
    }
    let said = world.ask("client", "client", &reserve)?;
    let said: Value = serde_json::from_str(&said).context("longhaul reserve")?;
    let reservation = &said["reservations"][0];
    let id = reservation["id"]
        .as_u64()
        .with_context(|| format!("nothing is reserved: {said}"))?
        .to_string();
    world.wait_set_up("client", &id)?;
    Ok((id, ports(reservation)?))
}

/// Returns the map: a site in the middle of each path, so that paths can be named.
fn map(world: &Controlled<'_, '_, ()>) -> Result<Value> {
    let mut links = Vec::new();
    for path in Path::ALL {
        let direction = json!({"capacity": {"rate_bps": ROUTED * path.link_bps()},
            "reservable": {"share": RESERVABLE}});
        let far = format!("{}-far", path.link());
        for (name, from, to) in [
            (path.link(), "west", path.link()),
            (far.as_str(), path.link(), "east"),
        ] {
            links.push(json!({"name": name, "from": from, "to": to, "forward": direction}));
        }
    }
    let host = |node: &str, site: &str| {
        let addresses = [world.address(node)?];
        Ok::<_, anyhow::Error>(json!({"name": node, "site": site, "addresses": addresses}))
    };
    Ok(json!({
        "sites": (["west", "a", "b", "c", "east"].map(|site| json!({"name": site}))),
        "hosts": [host("client", "west")?, host("server", "east")?],
        "links": links,
    }))
}

/// Returns the source ports of each path of a reservation.
fn ports(reservation: &Value) -> Result<Vec<PathPorts>> {
    let paths = reservation["pieces"][0]["paths"].as_array();
    let found = paths.into_iter().flatten().filter_map(|path| {
        let link = path["links"][0]["link"].as_str()?;
        let of_link = Path::ALL.into_iter().find(|path| path.link() == link)?;
        let port = |name: &str| u16::try_from(path["source_ports"][name].as_u64()?).ok();
        Some((of_link, port("first")?..=port("last")?))
    });
    let found: Vec<PathPorts> = found.collect();
    match found.is_empty() {
        true => bail!("the reservation has no source ports: {reservation}"),
        false => Ok(found),
    }
}

/// Starts the flows of others over A and over C.
fn start_others(here: &Here<'_, ()>, world: &mut Controlled<'_, '_, ()>) -> Result<()> {
    let server = world.address("server")?;
    for (port, node) in (OTHERS_PORT..).zip(["other-a", "other-c"]) {
        let text = port.to_string();
        let mut takes = here.lab.command("server", "iperf3")?;
        takes.args(["--server", "--port", &text]);
        world.keep(Server::start_listening(takes, "iperf3", port)?);
        let mut sends = here.lab.command(node, "iperf3")?;
        sends.args(["--client", &server, "--port", &text, "--time", "3600"]);
        sends.args(["--parallel", &OTHERS.to_string()]);
        world.keep(Server::start_silent(sends, "iperf3")?);
    }
    Ok(())
}

/// Runs a transfer to its end, and reads the counters meanwhile.
fn watch(lab: &Lab, cell: &Cell, mut command: Command, ports: &[PathPorts]) -> Result<Observation> {
    let interval = match cell.scale {
        Scale::Full => Duration::from_secs(1),
        Scale::Short => Duration::from_millis(250),
    };
    let limit = Duration::from_secs_f64(MAX_SLOWNESS * cell.seconds());
    let before = counters(lab)?;
    let started = Instant::now();
    let child = command.spawn().context("cannot start globus-url-copy")?;
    let process = child.id();
    let ended = wait(child);
    let (mut samples, mut connections) = (vec![(0.0, before)], [0; 3]);
    let seconds = loop {
        match ended.recv_timeout(interval) {
            Ok(ended) => break ended?.duration_since(started).as_secs_f64(),
            Err(mpsc::RecvTimeoutError::Timeout) if started.elapsed() < limit => {}
            Err(_) => {
                kill(process);
                bail!("globus-url-copy did not end within {} s", limit.as_secs());
            }
        }
        samples.push((started.elapsed().as_secs_f64(), counters(lab)?));
        let open = open_connections(process, ports);
        connections = std::array::from_fn(|path| connections[path].max(open[path]));
    };
    let during = rates(&samples);
    samples.push((seconds, counters(lab)?));
    let over_time = samples
        .iter()
        .map(|(at, bytes)| (round(*at), bytes.of_transfer(&before)))
        .collect();
    Ok(Observation {
        seconds,
        goodput_bps: cell.bytes() as f64 * 8.0 / seconds,
        reserved_bps: [0.0; 3],
        connections,
        over_time,
        beside: (cell.beside != Beside::Nothing).then_some(during).flatten(),
    })
}

/// Waits for the end of a transfer. The result is its time, or its failure.
fn wait(child: Child) -> mpsc::Receiver<Result<Instant>> {
    let (sends, ended) = mpsc::channel();
    thread::spawn(move || {
        let output = child.wait_with_output();
        let at = Instant::now();
        let result = match output {
            Ok(output) if output.status.success() => Ok(at),
            Ok(output) => Err(anyhow::anyhow!(
                "globus-url-copy ended with {}: {}",
                output.status,
                String::from_utf8_lossy(&output.stderr).trim()
            )),
            Err(error) => Err(error.into()),
        };
        let _ = sends.send(result);
    });
    ended
}

fn kill(process: u32) {
    let process = i32::try_from(process)
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    if let Some(process) = process {
        let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
    }
}

/// Rounds to hundredths of a second.
fn round(seconds: f64) -> f64 {
    (seconds * 100.0).round() / 100.0
}

impl LinkBytes {
    /// Returns the bytes that the paths carried for the transfer since `before`.
    fn of_transfer(&self, before: &Self) -> [u64; 3] {
        let others = [
            self.others[0] - before.others[0],
            0,
            self.others[1] - before.others[1],
        ];
        std::array::from_fn(|path| {
            let all = self.paths[path].saturating_sub(before.paths[path]);
            all.saturating_sub(others[path])
        })
    }
}

/// Returns the mean rates after [`SETTLE_SECONDS`]. `None` if the transfer was shorter.
fn rates(samples: &[(f64, LinkBytes)]) -> Option<BesideRates> {
    let (from, first) = samples.iter().find(|(at, _)| *at >= SETTLE_SECONDS)?;
    let (to, last) = samples.last()?;
    let seconds = to - from;
    let bps = |last: u64, first: u64| (last - first) as f64 * 8.0 / seconds;
    (seconds > 0.0).then(|| BesideRates {
        links_bps: std::array::from_fn(|path| bps(last.paths[path], first.paths[path])),
        others_bps: std::array::from_fn(|path| bps(last.others[path], first.others[path])),
    })
}

fn counters(lab: &Lab) -> Result<LinkBytes> {
    let report = lab.links()?;
    let forward = |name: &str| {
        let link = report
            .links
            .iter()
            .find(|link| link.counters.link == name)
            .with_context(|| format!("the lab has no link {name}"))?;
        Ok::<_, anyhow::Error>(link.counters.forward.bytes)
    };
    let [a, b, c] = Path::ALL.map(|path| forward(path.link()));
    Ok(LinkBytes {
        paths: [a?, b?, c?],
        others: [forward("other-a-lan")?, forward("other-c-lan")?],
    })
}

/// Returns the number of open data connections of A, B and C in the network of a process, by
/// proc_net(5).
fn open_connections(process: u32, ports: &[PathPorts]) -> [u32; 3] {
    let table = std::fs::read_to_string(format!("/proc/{process}/net/tcp")).unwrap_or_default();
    count_connections(&table, ports)
}

fn count_connections(table: &str, ports: &[PathPorts]) -> [u32; 3] {
    let mut counts = [0; 3];
    for line in table.lines().skip(1) {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let port = |field: Option<&str>| {
            let (_, port) = field?.rsplit_once(':')?;
            u16::from_str_radix(port, 16).ok()
        };
        let (local, remote) = (port(fields.next()), port(fields.next()));
        let is_established = fields.next() == Some("01");
        let (Some(local), Some(remote)) = (local, remote) else {
            continue;
        };
        if !is_established || remote == CONTROL_PORT {
            continue;
        }
        if let Some((path, _)) = ports.iter().find(|(_, ports)| ports.contains(&local)) {
            counts[*path as usize] += 1;
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_connections_are_counted_by_their_source_ports() {
        let line = |local: u16, remote: u16, state: &str| {
            format!("   0: 0A4D0001:{local:04X} 0A4D0002:{remote:04X} {state} 00000000:0\n")
        };
        let table = ["  sl local_address\n".to_owned()]
            .into_iter()
            .chain([
                line(10_240, 40_000, "01"),
                line(10_241, 40_000, "01"),
                line(10_242, 40_000, "06"),
                line(10_243, CONTROL_PORT, "01"),
                line(10_304, 40_000, "01"),
                line(50_000, 40_000, "01"),
            ])
            .collect::<String>();
        let ports = [(Path::A, 10_240..=10_303), (Path::C, 10_304..=10_367)];
        assert_eq!(count_connections(&table, &ports), [2, 0, 1]);
    }

    #[test]
    fn ports_of_each_path_are_read_from_the_reservation() {
        let path = |link: &str, first: u16| {
            json!({"links": [{"link": link}, {"link": "far"}],
                "source_ports": {"first": first, "last": first + 63}})
        };
        let reservation = json!({"pieces": [{"paths": [path("c", 10_240), path("b", 10_304)]}]});
        assert_eq!(
            ports(&reservation).unwrap(),
            [(Path::C, 10_240..=10_303), (Path::B, 10_304..=10_367)]
        );
        assert!(ports(&json!({})).is_err());
    }

    #[test]
    fn others_are_not_counted_as_the_transfers() {
        let at = |paths, others| LinkBytes { paths, others };
        let before = at([100, 10, 100], [50, 40]);
        let after = at([1_100, 510, 900], [450, 140]);
        assert_eq!(after.of_transfer(&before), [600, 500, 700]);
        let samples = [
            (0.0, before),
            (SETTLE_SECONDS, before),
            (SETTLE_SECONDS + 2.0, after),
        ];
        let rates = rates(&samples).unwrap();
        assert_eq!(rates.links_bps, [4_000.0, 2_000.0, 3_200.0]);
        assert_eq!(rates.others_bps, [1_600.0, 400.0]);
        assert_eq!(super::rates(&samples[..2]), None);
    }
}
