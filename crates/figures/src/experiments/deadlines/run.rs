//! One pass over the copies with one kind of reservation.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::plan::{SIZES, Wanted};
use super::{DeadlineCopy, ROUTED_BPS, ReservationMethod, SHARED_BPS, Said};
use crate::children::{Server, succeed_within};
use crate::controlled::Controlled;
use crate::copy::{SERVER_PORT, served};
use crate::dataset;
use crate::experiment::Here;
use crate::identities::new_key;
use crate::tools::Tools;
use crate::watched_copy::WatchedCopy;

/// Maximum duration of a command of the setup.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);
/// Time after which a copy counts as lost.
const COPY_TIMEOUT: Duration = Duration::from_secs(240);
/// Time for which others' flows run before a copy begins.
const OTHERS_FIRST: Duration = Duration::from_secs(3);
/// Duration of others' flows in seconds, longer than any copy.
const OTHERS_SECONDS: &str = "300";
const FIRST_IPERF_PORT: u16 = 5201;

/// A file of each size that copies have.
pub struct DeadlineFiles {
    root: PathBuf,
}

impl DeadlineFiles {
    /// Writes them.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn make(tools: &Tools) -> Result<Self> {
        let root = tools.scratch.path().join("deadline-files");
        for bytes in SIZES {
            dataset::sized_file(&root.join(format!("{bytes}.bin")), bytes, bytes)?;
        }
        Ok(Self { root })
    }
}

/// Makes all copies, one after the other.
///
/// # Errors
/// Something other than a copy fails.
pub fn run(
    here: &Here<'_, DeadlineFiles>,
    way: ReservationMethod,
    wanted: &[Wanted],
) -> Result<Vec<DeadlineCopy>> {
    let world = World::up(here)?;
    let numbered = (0_u16..).zip(wanted);
    numbered
        .map(|(number, copy)| world.copy(number, copy, way))
        .collect()
}

/// Keys and running services.
struct World<'a, 'h> {
    here: &'a Here<'h, DeadlineFiles>,
    services: Controlled<'a, 'h, DeadlineFiles>,
    server_key: String,
}

impl<'a, 'h> World<'a, 'h> {
    /// Starts the router at which packets for the shared link wait, a controller that knows both
    /// ends and that link, and a server.
    fn up(here: &'a Here<'h, DeadlineFiles>) -> Result<Self> {
        let mut services = Controlled::new(here)?;
        let server_key = new_key(&here.tools.longhaul, &here.folder.join("server"))?;
        // Half of a link is reservable.
        let setup = services.router("west", "server", "shared", ROUTED_BPS, 0.5)?;
        let capacity = json!({"capacity": {"rate_bps": ROUTED_BPS}});
        let map = json!({
            "sites": [{"name": "west"}, {"name": "east"}],
            "hosts": [
                {"name": "client", "site": "west", "addresses": [services.address("client")?]},
                {"name": "server", "site": "east", "addresses": [services.address("server")?]},
            ],
            "links": [{"name": "shared", "from": "west", "to": "east", "forward": capacity,
                "backward": capacity}],
        });
        services.controller("east", "client", &map, &setup)?;
        let target = here.folder.join("target");
        std::fs::create_dir(&target).context("cannot make a folder")?;
        let mut serve = services.longhaul("server", "server")?;
        serve
            .args(["serve", "--listen", &format!("0.0.0.0:{SERVER_PORT}")])
            .args(["--write", &services.client_key, "--root"])
            .arg(&target);
        services.keep(Server::start(serve, "longhaul serve", "listening")?);
        Ok(Self {
            here,
            services,
            server_key,
        })
    }

    /// Returns the bytes that the sink has received.
    fn arrived(&self) -> Result<u64> {
        let mut ip = self.here.lab.command("sink", "ip")?;
        ip.args(["-j", "-s", "link"]);
        let links: Value = serde_json::from_str(&succeed_within(ip, "ip link", COMMAND_TIMEOUT)?)
            .context("ip link")?;
        let links = links.as_array().into_iter().flatten();
        let outside = links.filter(|link| link["ifname"] != "lo");
        Ok(outside
            .filter_map(|link| link["stats64"]["rx"]["bytes"].as_u64())
            .sum())
    }

    /// Starts this many flows of others to a server of their own; they end when dropped.
    fn others(&self, number: u16, flows: u32) -> Result<Vec<Server>> {
        if flows == 0 {
            return Ok(Vec::new());
        }
        let port = FIRST_IPERF_PORT + number;
        let mut takes = self.here.lab.command("sink", "iperf3")?;
        takes.args(["--server", "--port", &port.to_string()]);
        let takes = Server::start_listening(takes, "iperf3", port)?;
        let mut sends = self.here.lab.command("other", "iperf3")?;
        sends.args([
            "--client",
            &self.services.address("sink")?,
            "--port",
            &port.to_string(),
        ]);
        sends.args(["--parallel", &flows.to_string(), "--time", OTHERS_SECONDS]);
        let sends = Server::start_silent(sends, "iperf3")?;
        std::thread::sleep(OTHERS_FIRST);
        // The sender ends first.
        Ok(vec![sends, takes])
    }

    fn copy(&self, number: u16, wanted: &Wanted, way: ReservationMethod) -> Result<DeadlineCopy> {
        let others = self.others(number, wanted.others)?;
        let before = self.arrived()?;
        let (name, target) = (format!("{}.bin", wanted.bytes), format!("{number}.bin"));
        let source = self.here.setup.root.join(&name);
        let mut cp = self.services.longhaul("client", "client")?;
        cp.args(["cp", "--json", "--host-key", &self.server_key]);
        cp.args(["--by", &format!("+{}s", wanted.deadline_s)]);
        match way {
            ReservationMethod::BestEffort => cp.args(["--reserve", "never"]),
            ReservationMethod::Auto => cp.args(["--reserve", "auto"]),
            // Half of a link is reservable.
            ReservationMethod::Peak => cp.args(["--reserve", &format!("{:.0}", ROUTED_BPS / 2.0)]),
        };
        cp.arg(&source)
            .arg(served(self.here.lab, "server", &target)?);
        let (ended, events) = WatchedCopy::start(cp)?.end(COPY_TIMEOUT)?;
        let seconds = events.last().map_or(f64::NAN, |(at, _)| *at);
        drop(others);
        let arrived = self.here.folder.join("target").join(&target);
        let is_same =
            || Ok::<bool, std::io::Error>(std::fs::read(&arrived)? == std::fs::read(&source)?);
        let whole = ended.code == Some(0) && is_same().unwrap_or(false);
        let _ = std::fs::remove_file(&arrived);
        let report = ended.report.unwrap_or_default();
        let deadline = &report["deadline"];
        ensure!(
            deadline.is_object(),
            "the copy reports no deadline: {report} {}",
            ended.errors.trim()
        );
        let at_risk = events.iter().filter(|(at, event)| {
            *at < wanted.deadline_s && event["event"] == "deadline" && event["state"] == "at-risk"
        });
        // The risk is reported first, then the miss, if both occur.
        let said = at_risk.fold(Said::Met, |_, (at, event)| {
            match event["is_missed"] == true {
                true => Said::Missed(*at),
                false => Said::AtRisk(*at),
            }
        });
        let bytes = |field: &str| deadline[field].as_u64().unwrap_or_default();
        Ok(DeadlineCopy {
            bytes: wanted.bytes,
            deadline_s: wanted.deadline_s,
            others: wanted.others,
            seconds,
            whole,
            met: deadline["met"] == true,
            said,
            reserved_bytes: bytes("reserved_bytes").saturating_sub(bytes("returned_bytes")),
            others_bytes: self.arrived()?.saturating_sub(before),
        })
    }
}

const _: () = assert!(ROUTED_BPS < SHARED_BPS);
