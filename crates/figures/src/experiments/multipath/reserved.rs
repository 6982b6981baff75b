//! A copy that reserves its paths by itself, with a controller, depots that accept its grants, and
//! the bytes of each path.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Cell, FILE_BYTES, Observation, Path};
use crate::children::Server;
use crate::controlled::Controlled;
use crate::copy::{SERVER_PORT, in_node};
use crate::experiment::Here;
use crate::watched_copy::WatchedCopy;

/// Maximum time of a copy.
const COPY_TIMEOUT: Duration = Duration::from_secs(200);
/// Reservable share of each link.
const RESERVABLE: f64 = 0.9;
/// Rate that the copy reserves with `--reserve`, in bit/s: nine tenths of all three paths, minus
/// the packet headers.
pub const RATE_BPS: u64 = 800_000_000;
/// Deadline of the copy, in seconds. Best effort alone, over the shortest path, takes about 50.
pub const DEADLINE_SECONDS: u64 = 32;

/// Option of the copy for its reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reserve {
    /// `--reserve RATE` with [`RATE_BPS`].
    Rate,
    /// `--by` with a deadline in [`DEADLINE_SECONDS`].
    By,
    /// `--by` together with `--reserve never`.
    Never,
}

impl Reserve {
    /// All options, in the order of the table.
    pub const ALL: [Self; 3] = [Self::Never, Self::By, Self::Rate];

    /// Returns the option as typed.
    pub fn title(self) -> String {
        match self {
            Self::Rate => format!("`--reserve {}M`", RATE_BPS / 1_000_000),
            Self::By => format!("`--by +{DEADLINE_SECONDS}s`"),
            Self::Never => format!("`--by +{DEADLINE_SECONDS}s --reserve never`"),
        }
    }
}

/// Result of the reservation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReservedSeen {
    /// If true, everything arrived by the deadline; `None` without a deadline.
    pub met: Option<bool>,
    /// Reserved bytes, and those of them that were returned early.
    pub reserved_bytes: u64,
    pub returned_bytes: u64,
    /// If true, nothing was still reserved when the copy was over.
    pub returned: bool,
    /// Maximum reserved rates of A, B and C, in bit/s; their streams' rates, from their opening to
    /// the end of the copy, follow.
    pub reserved_bps: [f64; 3],
    pub carried_bps: [f64; 3],
    /// Best-effort rate over the whole copy.
    pub best_effort_bps: f64,
    /// Time at which the first stream of a reserved path opened, in seconds after the start of the
    /// copy. `None` if none did.
    pub joined_s: Option<f64>,
}

/// Makes the copy.
///
/// # Errors
/// A program cannot be started, or the copy does not end or verify.
pub fn run(here: &Here<'_, PathBuf>, cell: &Cell, reserve: Reserve) -> Result<Observation> {
    let mut world = Controlled::new(here)?;
    let target = here.folder.join("target");
    std::fs::create_dir(&target).context("cannot make a folder")?;
    let mut serve = in_node(
        here.tools,
        here.lab,
        "server",
        &here.tools.identities.server_home,
    )?;
    serve.args(["serve", "--listen", &format!("0.0.0.0:{SERVER_PORT}")]);
    serve
        .args(["--write", &world.client_key])
        .arg("--root")
        .arg(&target);
    world.keep(Server::start(serve, "longhaul serve", "listening")?);
    let mut depots = Vec::new();
    for path in &cell.paths {
        depots.push(world.depot(path.node(), "server")?);
    }
    let map = map(&world, depots)?;
    world.controller("server", "client", &map, "")?;

    let mut cp = world.longhaul("client", "client")?;
    cp.args([
        "cp",
        "--json",
        "--host-key",
        &here.tools.identities.server_key,
    ]);
    let by = format!("+{DEADLINE_SECONDS}s");
    match reserve {
        Reserve::Rate => cp.args(["--reserve", &RATE_BPS.to_string()]),
        Reserve::By => cp.args(["--by", &by]),
        Reserve::Never => cp.args(["--by", &by, "--reserve", "never"]),
    };
    cp.args((0..cell.files()).map(|file| here.setup.join(file.to_string())));
    cp.arg(format!("lh://{}:{SERVER_PORT}/", world.address("server")?));
    let (ended, events) = WatchedCopy::start(cp)?.end(COPY_TIMEOUT)?;
    let report = ended.report.context("longhaul cp printed no report")?;
    if ended.code != Some(0) || report["verification"]["verified"] != true {
        bail!(
            "longhaul cp ended with {:?}: {}",
            ended.code,
            ended.errors.trim()
        );
    }
    let seconds = report["seconds"]
        .as_f64()
        .context("the report has no seconds")?;
    let addresses: Vec<String> = Path::ALL
        .iter()
        .map(|path| world.address(path.node()))
        .collect::<Result<_>>()?;
    let seen = reserved(&report, &events, &addresses, seconds)?;
    let carried = seen.carried_bytes;
    Ok(Observation {
        seconds,
        goodput_bps: (cell.files() * FILE_BYTES) as f64 * 8.0 / seconds,
        streams: report["streams"].as_array().map_or(0, Vec::len) as u32,
        carried: carried.to_vec(),
        reserved: Some(seen.of_report),
        ..Observation::default()
    })
}

/// Each site has the name of its node: both ends, and each depot's.
fn map(world: &Controlled<'_, '_, PathBuf>, depots: Vec<Value>) -> Result<Value> {
    let mut links = Vec::new();
    for path in Path::ALL {
        let direction = json!({"capacity": {"rate_bps": path.mbps() * 1e6},
            "reservable": {"share": RESERVABLE}});
        for (name, from, to) in [
            ("near", "client", path.node()),
            ("far", path.node(), "server"),
        ] {
            links.push(
                json!({"name": format!("{}-{name}", path.node()), "from": from, "to": to,
                "forward": direction, "backward": direction}),
            );
        }
    }
    let host = |node: &str| {
        Ok::<_, anyhow::Error>(
            json!({"name": node, "site": node, "addresses": [world.address(node)?]}),
        )
    };
    Ok(json!({
        "sites": (["client", "a", "b", "c", "server"].map(|site| json!({"name": site}))),
        "hosts": [host("client")?, host("server")?],
        "depots": depots,
        "links": links,
    }))
}

struct Reported {
    of_report: ReservedSeen,
    carried_bytes: [u64; 3],
}

fn reserved(
    report: &Value,
    events: &[(f64, Value)],
    addresses: &[String],
    seconds: f64,
) -> Result<Reported> {
    let deadline = &report["deadline"];
    if !deadline.is_object() {
        bail!("the copy reports no deadline: {report}");
    }
    let is_reserved = |route: &str| route.contains(" by circuit ");
    let passes = |route: &str, address: &String| {
        is_reserved(route) && route.contains(&format!("@{address}:"))
    };
    let opened = |wanted: &dyn Fn(&str) -> bool| {
        let opens = |event: &Value| {
            event["event"] == "stream_opened" && event["route"].as_str().is_some_and(wanted)
        };
        events
            .iter()
            .find(|(_, event)| opens(event))
            .map(|(at, _)| *at)
    };
    let routes = || report["routes"].as_array().into_iter().flatten();
    let bytes = |wanted: &dyn Fn(&str) -> bool| -> u64 {
        let of = routes().filter(|route| route["route"].as_str().is_some_and(wanted));
        of.filter_map(|route| route["bytes"].as_u64()).sum()
    };
    let (mut reserved_bps, mut carried_bps, mut carried_bytes) = ([0.0; 3], [0.0; 3], [0; 3]);
    for (place, address) in addresses.iter().enumerate().take(3) {
        let is_it = |route: &str| passes(route, address);
        let ways = deadline["ways"].as_array().into_iter().flatten();
        let rates = ways.filter(|way| way["route"].as_str().is_some_and(is_it));
        reserved_bps[place] = rates
            .filter_map(|way| way["rate_bps"].as_f64())
            .fold(0.0, f64::max);
        carried_bytes[place] = bytes(&is_it);
        if let Some(at) = opened(&is_it) {
            carried_bps[place] = carried_bytes[place] as f64 * 8.0 / (seconds - at).max(0.001);
        }
    }
    let number = |field: &str| deadline[field].as_u64().unwrap_or_default();
    Ok(Reported {
        of_report: ReservedSeen {
            met: deadline["met"].as_bool(),
            reserved_bytes: number("reserved_bytes"),
            returned_bytes: number("returned_bytes"),
            returned: deadline["returned"] == true,
            reserved_bps,
            carried_bps,
            best_effort_bps: bytes(&|route| !is_reserved(route)) as f64 * 8.0 / seconds,
            joined_s: opened(&is_reserved),
        },
        carried_bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_each_path_carried_is_reported_for_each() {
        let [a, b, direct] = [
            "k@10.0.0.1:7510 by circuit 3.1",
            "k@10.0.0.2:7510 by circuit 3.2",
            "direct",
        ];
        let report = json!({
            "routes": [{"route": a, "bytes": 300}, {"route": b, "bytes": 100},
                {"route": direct, "bytes": 50}],
            "deadline": {"met": true, "reserved_bytes": 500, "returned_bytes": 100,
                "returned": true,
                "ways": [{"route": a, "rate_bps": 40.0}, {"route": b, "rate_bps": 10.0}]},
        });
        let events = [
            (2.0, json!({"event": "stream_opened", "route": a})),
            (4.0, json!({"event": "stream_opened", "route": b})),
        ];
        let addresses = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(str::to_owned);
        let reported = reserved(&report, &events, &addresses, 12.0).unwrap();
        assert_eq!(reported.carried_bytes, [300, 100, 0]);
        let seen = reported.of_report;
        assert_eq!(
            (seen.reserved_bps, seen.carried_bps),
            ([40.0, 10.0, 0.0], [240.0, 100.0, 0.0])
        );
        assert_eq!((seen.joined_s, seen.met), (Some(2.0), Some(true)));
        assert!((seen.best_effort_bps - 400.0 / 12.0).abs() < 1e-9);
    }
}
