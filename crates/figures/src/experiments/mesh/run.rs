//! One pass over the copies on one route.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::Value;

use super::conditions::{SITES, Transfer, sizes};
use super::{MeshCopy, MeshRoute};
use crate::children::{Server, output_within, succeed_within};
use crate::copy::{DEPOT_PORT, SERVER_PORT, in_node, served};
use crate::dataset;
use crate::experiment::Here;
use crate::identities::new_key;
use crate::tools::Tools;

/// Time for services to start and for depots to register, in seconds.
pub(super) const STARTING_SECONDS: f64 = 20.0;

/// Maximum time of a command of the preparation.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum time of a copy.
const COPY_TIMEOUT: Duration = Duration::from_secs(180);

/// Index of the controller's site: Chicago, which is near all others.
const CONTROLLER: usize = 3;
const CONTROLLER_PORT: u16 = 7513;

/// The link with wrong forecasts, by the numbers of its sites; the reported rate, and the number of
/// reports for each direction.
const MISREPORTED: (usize, usize) = (0, 5);
const MISREPORTED_BPS: f64 = 2e9;
const MISREPORTS: u64 = 50;

/// A file of each size of the copies.
pub struct MeshFiles {
    root: PathBuf,
}

impl MeshFiles {
    /// Writes them.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn make(tools: &Tools) -> Result<Self> {
        let root = tools.scratch.path().join("mesh-files");
        for bytes in sizes() {
            dataset::sized_file(&root.join(format!("{bytes}.bin")), bytes, bytes)?;
        }
        Ok(Self { root })
    }
}

/// Keys of all parties, and their running programs.
pub(super) struct World<'a, 'h> {
    here: &'a Here<'h, MeshFiles>,
    /// If true, there is a controller, with which the depots register.
    is_routed: bool,
    /// Keys of the sites, with which they serve and copy.
    keys: Vec<String>,
    depot_keys: Vec<String>,
    depots: Vec<Option<Server>>,
    _servers: Vec<Server>,
}

/// Makes all copies, each at its moment; the first one so many seconds after the lab's start.
///
/// # Errors
/// Something other than a copy fails.
pub fn run(
    here: &Here<'_, MeshFiles>,
    way: MeshRoute,
    first_s: f64,
    transfers: &[Transfer],
) -> Result<Vec<MeshCopy>> {
    let began = Instant::now();
    let mut world = World::up(here, way.is_routed())?;
    let mut passed = BTreeMap::<usize, usize>::new();
    let mut made = Vec::with_capacity(transfers.len());
    for (number, transfer) in transfers.iter().enumerate() {
        if way == MeshRoute::Faults {
            if number == transfers.len() / 3 {
                let most = passed.iter().max_by_key(|(_, times)| **times);
                let most = most.map_or(CONTROLLER, |(site, _)| *site);
                world.depots[most] = None;
            }
            if number == transfers.len() * 2 / 3 {
                world.misreport()?;
            }
        }
        wait_until(began, first_s + transfer.at_s);
        let one = world.copy(way, transfer)?;
        for depot in &one.depots {
            if let Some(site) = SITES.iter().position(|(name, ..)| name == depot) {
                *passed.entry(site).or_default() += 1;
            }
        }
        made.push(one);
    }
    Ok(made)
}

/// Waits for a moment in seconds after the lab's start. Copies start at moments of the links'
/// trace, which runs in real time.
pub(super) fn wait_until(began: Instant, seconds: f64) {
    thread::sleep(Duration::from_secs_f64(seconds).saturating_sub(began.elapsed()));
}

impl<'a, 'h> World<'a, 'h> {
    /// Starts servers and depots, and a controller if routes are to be picked.
    ///
    /// # Errors
    /// One of them does not start.
    pub(super) fn up(here: &'a Here<'h, MeshFiles>, is_routed: bool) -> Result<Self> {
        let longhaul = &here.tools.longhaul;
        let home = |name: String| here.folder.join(name);
        let keys = SITES.map(|(site, ..)| new_key(longhaul, &home(site.to_owned())));
        let depot_keys = SITES.map(|(site, ..)| new_key(longhaul, &home(format!("depot-{site}"))));
        let mut world = Self {
            here,
            is_routed,
            keys: keys.into_iter().collect::<Result<_>>()?,
            depot_keys: depot_keys.into_iter().collect::<Result<_>>()?,
            depots: Vec::new(),
            _servers: Vec::new(),
        };
        if world.is_routed {
            world.bare_homes()?;
            let controller = world.controller()?;
            world._servers.push(controller);
            world.introduce()?;
        }
        let quoted = |keys: &[String]| {
            let keys = keys.iter().map(|key| format!("\"{key}\""));
            keys.collect::<Vec<_>>().join(", ")
        };
        let policy = here.folder.join("policy.toml");
        let rules = format!(
            "probes = [{}]\n[[allow]]\nprincipals = [{}]\nto = [\"10.77.0.0/16\"]\n\
             next_hops = [\"direct\", \"10.77.0.0/16\"]\n",
            quoted(&world.depot_keys),
            quoted(&world.keys)
        );
        std::fs::write(&policy, rules).context("cannot write the depots' policy")?;
        for (site, (name, ..)) in SITES.iter().enumerate() {
            let serving = world.serve(site)?;
            world._servers.push(serving);
            let mut depot = world.longhaul(site, &format!("depot-{name}"))?;
            depot
                .args([
                    "depot",
                    "--listen",
                    &format!("0.0.0.0:{DEPOT_PORT}"),
                    "--policy",
                ])
                .arg(&policy);
            if world.is_routed {
                depot.args(["--register", &format!("depot-{name}"), "--site", name]);
                depot.args([
                    "--advertise",
                    &format!("{}:{DEPOT_PORT}", here.lab.address(name)?),
                ]);
            }
            world
                .depots
                .push(Some(Server::start(depot, "longhaul depot", "listening")?));
        }
        Ok(world)
    }

    /// Makes a second home for every site, with the same key and without a controller.
    fn bare_homes(&self) -> Result<()> {
        for (site, ..) in SITES {
            let (home, bare) = (
                self.here.folder.join(site),
                self.here.folder.join(bare(site)),
            );
            std::fs::create_dir_all(&bare).context("cannot make a home")?;
            for entry in std::fs::read_dir(&home).context("cannot read a home")? {
                let file = entry.context("cannot read a home")?.path();
                if let Some(name) = file.file_name().filter(|_| file.is_file()) {
                    std::fs::copy(&file, bare.join(name)).context("cannot copy a key")?;
                }
            }
        }
        Ok(())
    }

    /// Returns the command `longhaul` at a site, with the keys and the memory of `home`.
    fn longhaul(&self, site: usize, home: &str) -> Result<Command> {
        let home = self.here.folder.join(home);
        let mut command = in_node(self.here.tools, self.here.lab, SITES[site].0, &home)?;
        command.env("LONGHAUL_STATE", home.join("state"));
        Ok(command)
    }

    fn serve(&self, site: usize) -> Result<Server> {
        let mut serve = self.longhaul(site, SITES[site].0)?;
        serve.args(["serve", "--listen", &format!("0.0.0.0:{SERVER_PORT}")]);
        for key in &self.keys {
            serve.args(["--read", key]);
        }
        serve.arg("--root").arg(&self.here.setup.root);
        Server::start(serve, "longhaul serve", "listening")
    }

    fn controller(&self) -> Result<Server> {
        let mut control = self.longhaul(CONTROLLER, "controller")?;
        let address = self.here.lab.address(SITES[CONTROLLER].0)?;
        control.args([
            "control",
            "--listen",
            &format!("{address}:{CONTROLLER_PORT}"),
        ]);
        Server::start(control, "longhaul control", "is ready")
    }

    /// Puts sites, hosts and depots on the map, permits every site to ask, and tells all of them
    /// the controller. It states nothing about the links.
    fn introduce(&self) -> Result<()> {
        let mut map = String::new();
        for (site, (name, latitude, longitude)) in SITES.iter().enumerate() {
            let address = self.here.lab.address(name)?;
            map += &format!(
                "[[site]]\nname = \"{name}\"\nlatitude = {latitude}\nlongitude = {longitude}\n\
                 [[host]]\nname = \"host-{name}\"\nsite = \"{name}\"\naddresses = [\"{address}\"]\n\
                 [[depot]]\nname = \"depot-{name}\"\nkey = \"{}\"\nsite = \"{name}\"\n\
                 addresses = [\"{address}:{DEPOT_PORT}\"]\n",
                self.depot_keys[site]
            );
        }
        let file = self.here.folder.join("map.toml");
        std::fs::write(&file, map).context("cannot write the map")?;
        let ask = |arguments: &[&str]| -> Result<String> {
            let mut command = self.longhaul(CONTROLLER, "controller")?;
            command.args(arguments);
            succeed_within(command, arguments[0], COMMAND_TIMEOUT)
        };
        ask(&["map", "import", &file.to_string_lossy()])?;
        for (site, (name, ..)) in SITES.iter().enumerate() {
            ask(&[
                "control",
                "grant",
                &self.keys[site],
                "client",
                "--name",
                &format!("host-{name}"),
            ])?;
            ask(&[
                "control",
                "grant",
                &self.depot_keys[site],
                "depot",
                "--name",
                &format!("depot-{name}"),
            ])?;
        }
        let url = format!(
            "https://{}:{CONTROLLER_PORT}",
            self.here.lab.address(SITES[CONTROLLER].0)?
        );
        for (site, (name, ..)) in SITES.iter().enumerate() {
            for home in [(*name).to_owned(), format!("depot-{name}")] {
                let mut know = self.longhaul(site, &home)?;
                know.args(["controller", "use", &url, "--accept-new"]);
                succeed_within(know, "controller use", COMMAND_TIMEOUT)?;
            }
        }
        Ok(())
    }

    /// Makes a copy on a route.
    ///
    /// # Errors
    /// Something other than the copy fails.
    pub(super) fn copy(&self, way: MeshRoute, transfer: &Transfer) -> Result<MeshCopy> {
        let Transfer {
            from, to, bytes, ..
        } = *transfer;
        let into = tempfile::tempdir_in(self.here.folder).context("cannot make a folder")?;
        // Routes that no controller picks use a home without one.
        let home = match self.is_routed && !way.is_routed() {
            true => bare(SITES[to].0),
            false => SITES[to].0.to_owned(),
        };
        let mut cp = self.longhaul(to, &home)?;
        cp.args(["cp", "--json", "--host-key", &self.keys[from]]);
        if !way.is_routed() {
            let route = match way.depot(transfer) {
                Some(site) => format!("{}:{DEPOT_PORT}", self.here.lab.address(SITES[site].0)?),
                None => "direct".to_owned(),
            };
            cp.args(["--route", &route]);
        }
        let name = format!("{bytes}.bin");
        cp.arg(served(self.here.lab, SITES[from].0, &name)?)
            .arg(into.path());
        let began = Instant::now();
        let ended = output_within(cp, "longhaul cp", COPY_TIMEOUT);
        let seconds = began.elapsed().as_secs_f64();
        let same = || {
            Ok::<bool, std::io::Error>(
                std::fs::read(into.path().join(&name))?
                    == std::fs::read(self.here.setup.root.join(&name))?,
            )
        };
        let report = match &ended {
            Ok((_, out, _)) => out
                .lines()
                .last()
                .and_then(|line| serde_json::from_str::<Value>(line).ok()),
            Err(_) => None,
        };
        let is_success = ended.as_ref().is_ok_and(|(status, ..)| status.success());
        let whole = is_success && same().unwrap_or(false);
        let report = report.unwrap_or_default();
        let lost = (!whole).then(|| match &ended {
            Ok((status, _, errors)) => {
                let said = report["error"].as_str().unwrap_or(errors);
                format!("{status}: {}", said.trim())
            }
            Err(error) => format!("{error:#}"),
        });
        Ok(MeshCopy {
            seconds,
            whole,
            lost,
            depots: self.depots_of(&report),
            promised: promised(&report),
        })
    }

    /// Returns the sites of the depots that the streams of a copy used.
    fn depots_of(&self, report: &Value) -> Vec<String> {
        let routes = report["routes"].as_array().into_iter().flatten();
        let routes = routes
            .filter_map(|route| route["route"].as_str())
            .collect::<Vec<_>>()
            .join(",");
        let passed = SITES.iter().filter(|(site, ..)| {
            self.here
                .lab
                .address(site)
                .is_ok_and(|address| routes.contains(&format!("{address}:{DEPOT_PORT}")))
        });
        passed.map(|(site, ..)| (*site).to_owned()).collect()
    }

    /// Makes the controller believe that a link carries more than ten times its maximum rate, as it
    /// trusts an operator's imports.
    fn misreport(&self) -> Result<()> {
        let end = |site: usize| format!("host-{}", SITES[site].0);
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |since| since.as_millis() as u64);
        let one = |number: u64, from: usize, to: usize| {
            serde_json::json!({
                "from": end(from), "to": end(to), "quantity": "rate",
                "at_ms": now - MISREPORTS + number, "value": MISREPORTED_BPS, "source": "archive",
            })
        };
        let (from, to) = MISREPORTED;
        let measurements: Vec<Value> = (0..MISREPORTS)
            .flat_map(|number| [one(number, from, to), one(number, to, from)])
            .collect();
        let body = self.here.folder.join("misreport.json");
        std::fs::write(
            &body,
            serde_json::json!({ "measurements": measurements }).to_string(),
        )
        .context("cannot write measurements")?;
        let mut curl = self.here.lab.command(SITES[CONTROLLER].0, "curl")?;
        curl.args([
            "--silent",
            "--show-error",
            "--fail-with-body",
            "-H",
            "Content-Type: application/json",
            "--data-binary",
        ])
        .arg(format!("@{}", body.display()))
        .arg("--unix-socket")
        .arg(self.here.folder.join("controller/state/control/socket"))
        .arg("http://localhost/api/v1/measurements");
        succeed_within(curl, "curl", COMMAND_TIMEOUT).map(|_| ())
    }
}

/// Returns the home of a site without a controller.
fn bare(site: &str) -> String {
    format!("bare-{site}")
}

/// Returns the promised time of the copy in seconds: p10 and p90.
fn promised(report: &Value) -> Option<(f64, f64)> {
    let promised = &report["routing"]["promised_seconds"];
    Some((promised["p10"].as_f64()?, promised["p90"].as_f64()?))
}
