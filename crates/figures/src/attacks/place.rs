//! One lab: the attacked processes, the attacker and the honest copy in their nodes.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use wanbed::{Lab, Overrides, Scenario};

use super::Attack;
use super::attack::Victim;
use super::attacker::READY;
use super::bed::Bed;
use crate::children::{Server, output_within};

/// The honest copy goes over the depot's node to the server; the attacker has links of its own to both.
const LAB: &str = r#"
title = "a client, a depot and a server, and an attacker with links of its own"
[nodes.client]
[nodes.depot]
[nodes.server]
[nodes.attacker]
[links.first]
ends = ["client", "depot"]
delay = "5 ms"
rate = "100 Mbit/s"
queue = "2 bdp of 20 ms"
[links.last]
ends = ["depot", "server"]
delay = "5 ms"
rate = "100 Mbit/s"
queue = "2 bdp of 20 ms"
[links.to-depot]
ends = ["attacker", "depot"]
delay = "1 ms"
rate = "100 Mbit/s"
[links.to-server]
ends = ["attacker", "server"]
delay = "1 ms"
rate = "100 Mbit/s"
"#;
/// Addresses of the attacker beside its node's own.
const OTHERS: (&str, &str) = ("10.99.0.0", "10.99.0.0/16");
/// A copy that has not ended by then has failed.
const LIMIT: Duration = Duration::from_secs(25);
/// How often the arrival of the first byte is looked for.
const ARRIVAL: Duration = Duration::from_millis(2);

/// A lab that has carried nothing yet, and the keys and files.
pub struct Place<'a> {
    /// The lab.
    pub lab: Lab,
    bed: &'a Bed,
}

/// A server or depot: its process, key and log.
pub struct Process {
    /// It is ended with this value.
    pub child: Child,
    /// Its key.
    pub key: String,
    /// Its log.
    pub log: PathBuf,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl<'a> Place<'a> {
    /// Brings up a lab.
    ///
    /// # Errors
    /// What the lab says.
    pub fn up(bed: &'a Bed) -> Result<Self> {
        let lab = Lab::up(&Scenario::from_text("attacks", LAB), &Overrides::default())?;
        let place = Self { lab, bed };
        place.give_addresses()?;
        Ok(place)
    }

    /// All of a /16 is the attacker's, without being listed one by one.
    fn give_addresses(&self) -> Result<()> {
        for (node, kind, device) in [
            ("attacker", "local", "lo"),
            ("depot", "unicast", "to-depot"),
            ("server", "unicast", "to-server"),
        ] {
            let mut ip = self.lab.command(node, "ip")?;
            ip.args(["route", "add", kind, OTHERS.1, "dev", device]);
            let (status, _, told) = output_within(ip, "ip route", LIMIT)?;
            if !status.success() {
                bail!("ip route in {node}: {}", told.trim());
            }
        }
        let names = format!("nameserver {}\n", self.lab.address("attacker")?);
        let mut tee = self.lab.command("depot", "sh")?;
        tee.args(["-c", &format!("printf '{names}' > /etc/resolv.conf")]);
        let (status, _, told) = output_within(tee, "sh", LIMIT)?;
        if !status.success() {
            bail!("resolv.conf of the depot: {}", told.trim());
        }
        Ok(())
    }

    /// Starts `longhaul serve` for the client, who may read, and the attacker, who may do everything.
    pub fn serve(&self, program: &Path, root: &Path) -> Result<Process> {
        let mut command = self.lab.command("server", program)?;
        let (client, attacker) = (&self.bed.identities.client_key, &self.bed.attacker_key);
        command
            .env("LONGHAUL_HOME", &self.bed.identities.server_home)
            .args(["serve", "--json", "--listen", "0.0.0.0:7511"])
            .args(["--read", client, "--read", attacker, "--write", attacker])
            .arg("--root")
            .arg(root);
        self.start(command, "serve")
    }

    /// Starts `longhaul depot`.
    pub fn depot(&self, program: &Path) -> Result<Process> {
        let mut command = self.lab.command("depot", program)?;
        command
            .env("LONGHAUL_HOME", self.bed.identities.depot_home("depot"))
            .args(["depot", "--json", "--listen", "0.0.0.0:7510", "--policy"])
            .arg(self.bed.policy_file());
        self.start(command, "depot")
    }

    /// Starts a process that prints its key as JSON, and logs to a file.
    fn start(&self, mut command: Command, name: &str) -> Result<Process> {
        let log = self.bed.scratch.path().join(format!("{name}.log"));
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&log)?)
            .spawn()
            .with_context(|| format!("cannot start longhaul {name}"))?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut line)?;
        }
        let told: serde_json::Value = serde_json::from_str(&line).with_context(|| {
            format!(
                "longhaul {name}: {}",
                fs::read_to_string(&log).unwrap_or_default()
            )
        })?;
        let key = told["key"].as_str().unwrap_or_default().to_owned();
        Ok(Process { child, key, log })
    }

    /// Starts the attacker, and waits until the attack is at its height.
    pub fn attacker(&self, attack: Attack, key: &str) -> Result<Server> {
        let own = std::env::current_exe()?;
        let (node, port) = match attack.victim() {
            Victim::Serve => ("server", 7511),
            Victim::Depot => ("depot", 7510),
        };
        let word = clap::ValueEnum::to_possible_value(&attack).context("an attack without a name")?;
        let mut command = self.lab.command("attacker", own)?;
        command
            .args(["attacker", "--attack", word.get_name()])
            .args(["--target", &format!("{}:{port}", self.lab.address(node)?)])
            .args(["--key", key, "--listed", &self.bed.identities.client_key])
            .args(["--own", &self.lab.address("attacker")?.to_string()])
            .args(["--others", OTHERS.0, "--home"])
            .arg(&self.bed.attacker_home);
        Server::start_within(command, "the attacker", READY, Duration::from_secs(60))
    }

    /// Copies honestly: seconds until data arrived, and from then to the end; or what was said instead.
    pub fn copy(&self, program: &Path, attack: Attack, key: &str) -> Result<Result<(f64, f64), String>> {
        let target = tempfile::tempdir_in(self.bed.scratch.path())?;
        let mut command = self.lab.command("client", program)?;
        let route = match attack.victim() {
            Victim::Serve => "direct".to_owned(),
            Victim::Depot => format!("{}:7510", self.lab.address("depot")?),
        };
        // By name where look-ups are attacked: the depot knows it from its own file.
        let server = match attack {
            Attack::SlowNames => "server".to_owned(),
            _ => self.lab.address("server")?.to_string(),
        };
        command
            .env("LONGHAUL_HOME", &self.bed.identities.client_home)
            .args([
                "cp",
                "--quiet",
                "--streams",
                "1",
                "--host-key",
                key,
                "--route",
                &route,
            ])
            .arg(format!("lh://{server}:7511/file"))
            .arg(target.path().join("file"));
        let over = AtomicBool::new(false);
        let began = Instant::now();
        thread::scope(|scope| {
            let arrival = scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    if has_data(target.path()) {
                        return Some(began.elapsed());
                    }
                    thread::sleep(ARRIVAL);
                }
                None
            });
            let output = output_within(command, "longhaul cp", LIMIT);
            let ended = began.elapsed();
            over.store(true, Ordering::Relaxed);
            let arrived = arrival.join().unwrap_or_default();
            Ok(match (output, arrived) {
                (Ok((status, ..)), Some(arrived)) if status.success() => {
                    Ok((arrived.as_secs_f64(), (ended - arrived).as_secs_f64()))
                }
                (Ok((status, _, told)), _) => Err(format!("{status}: {}", told.trim())),
                (Err(error), _) => Err(format!("{error:#}")),
            })
        })
    }
}

/// Whether a file in `dir` holds anything.
fn has_data(dir: &Path) -> bool {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.metadata().ok())
        .any(|meta| meta.is_file() && meta.blocks() > 0)
}
