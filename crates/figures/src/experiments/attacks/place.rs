//! One lab: the attacked processes, the attacker and the honest copy in their nodes.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::Attack;
use super::attack::Victim;
use super::attacker::READY;
use super::bed::Bed;
use crate::children::{Server, output_within, succeed_within};
use crate::experiment::Here;

/// The lab: the honest copy goes over the depot's node to the server; the attacker has links of its
/// own to both.
pub const LAB: &str = include_str!("../../../labs/attacks.toml");
/// Addresses of the attacker besides its node's own.
const OTHERS: (&str, &str) = ("10.99.0.0", "10.99.0.0/16");
/// Time after which a copy counts as failed.
const COPY_TIMEOUT: Duration = Duration::from_secs(25);
/// Interval of checks that the first byte has arrived.
const ARRIVAL_SAMPLE_PERIOD: Duration = Duration::from_millis(2);

/// A fresh lab with the keys and files.
pub struct AttackBed<'a> {
    here: &'a Here<'a, Bed>,
}

/// A server or depot: its process, key and log.
pub struct Process {
    /// Child process, ended with this value.
    pub child: Child,
    /// Key of the process.
    pub key: String,
    /// Log file.
    pub log: PathBuf,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl<'a> AttackBed<'a> {
    /// Gives the attacker its addresses in a lab.
    ///
    /// # Errors
    /// `ip` fails.
    pub fn set_up(here: &'a Here<'a, Bed>) -> Result<Self> {
        let place = Self { here };
        place.give_addresses()?;
        Ok(place)
    }

    /// Gives the attacker a whole /16 without listing each address.
    fn give_addresses(&self) -> Result<()> {
        for (node, kind, device) in [
            ("attacker", "local", "lo"),
            ("depot", "unicast", "to-depot"),
            ("server", "unicast", "to-server"),
        ] {
            let mut ip = self.here.lab.command(node, "ip")?;
            ip.args(["route", "add", kind, OTHERS.1, "dev", device]);
            succeed_within(ip, "ip route", COPY_TIMEOUT)?;
        }
        let names = format!("nameserver {}\n", self.here.lab.address("attacker")?);
        let mut tee = self.here.lab.command("depot", "sh")?;
        tee.args(["-c", &format!("printf '{names}' > /etc/resolv.conf")]);
        succeed_within(tee, "sh", COPY_TIMEOUT)?;
        Ok(())
    }

    /// Starts `longhaul serve` for the client, who may read, and the attacker, who may do
    /// everything.
    pub fn serve(&self, root: &Path) -> Result<Process> {
        let mut command = self.here.lab.command("server", &self.here.tools.longhaul)?;
        let (client, attacker) = (
            &self.here.tools.identities.client_key,
            &self.here.setup.attacker_key,
        );
        command
            .env("LONGHAUL_HOME", &self.here.tools.identities.server_home)
            .args(["serve", "--json", "--listen", "0.0.0.0:7511"])
            .args(["--read", client, "--read", attacker, "--write", attacker])
            .arg("--root")
            .arg(root);
        self.start(command, "serve")
    }

    /// Starts `longhaul depot`.
    pub fn depot(&self) -> Result<Process> {
        let mut command = self.here.lab.command("depot", &self.here.tools.longhaul)?;
        command
            .env(
                "LONGHAUL_HOME",
                self.here.tools.identities.depot_home("depot"),
            )
            .args(["depot", "--json", "--listen", "0.0.0.0:7510", "--policy"])
            .arg(&self.here.setup.policy_file);
        self.start(command, "depot")
    }

    /// Starts a process that prints its key as JSON, and logs to a file.
    fn start(&self, mut command: Command, name: &str) -> Result<Process> {
        let log = self.here.folder.join(format!("{name}.log"));
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
        let reported: serde_json::Value = serde_json::from_str(&line).with_context(|| {
            format!(
                "longhaul {name}: {}",
                fs::read_to_string(&log).unwrap_or_default()
            )
        })?;
        let key = reported["key"].as_str().unwrap_or_default().to_owned();
        Ok(Process { child, key, log })
    }

    /// Starts the attacker, and waits until the attack is at its height.
    pub fn attacker(&self, attack: Attack, key: &str) -> Result<Server> {
        let own = std::env::current_exe()?;
        let (node, port) = match attack.victim() {
            Victim::Serve => ("server", 7511),
            Victim::Depot => ("depot", 7510),
        };
        let word =
            clap::ValueEnum::to_possible_value(&attack).context("an attack without a name")?;
        let mut command = self.here.lab.command("attacker", own)?;
        command
            .args(["attacker", "--attack", word.get_name()])
            .args([
                "--target",
                &format!("{}:{port}", self.here.lab.address(node)?),
            ])
            .args([
                "--key",
                key,
                "--listed",
                &self.here.tools.identities.client_key,
            ])
            .args(["--own", &self.here.lab.address("attacker")?.to_string()])
            .args(["--others", OTHERS.0, "--home"])
            .arg(&self.here.setup.attacker_home);
        Server::start_within(command, "the attacker", READY, Duration::from_secs(60))
    }

    /// Copies honestly: seconds until data arrived, and from then to the end; or what was said
    /// instead.
    pub fn copy(&self, attack: Attack, key: &str) -> Result<Result<(f64, f64), String>> {
        let target = tempfile::tempdir_in(self.here.folder)?;
        let mut command = self.here.lab.command("client", &self.here.tools.longhaul)?;
        let route = match attack.victim() {
            Victim::Serve => "direct".to_owned(),
            Victim::Depot => format!("{}:7510", self.here.lab.address("depot")?),
        };
        // By name if look-ups are attacked: the depot knows it from its own file.
        let server = match attack {
            Attack::SlowNames => "server".to_owned(),
            _ => self.here.lab.address("server")?.to_string(),
        };
        command
            .env("LONGHAUL_HOME", &self.here.tools.identities.client_home)
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
                    thread::sleep(ARRIVAL_SAMPLE_PERIOD);
                }
                None
            });
            let output = output_within(command, "longhaul cp", COPY_TIMEOUT);
            let ended = began.elapsed();
            over.store(true, Ordering::Relaxed);
            let arrived = arrival.join().unwrap_or_default();
            Ok(match (output, arrived) {
                (Ok((status, ..)), Some(arrived)) if status.success() => {
                    Ok((arrived.as_secs_f64(), (ended - arrived).as_secs_f64()))
                }
                (Ok((status, _, reported)), _) => Err(format!("{status}: {}", reported.trim())),
                (Err(error), _) => Err(format!("{error:#}")),
            })
        })
    }
}

/// Returns true if a file in `dir` has any content.
fn has_data(dir: &Path) -> bool {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.metadata().ok())
        .any(|meta| meta.is_file() && meta.blocks() > 0)
}
