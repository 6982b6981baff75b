//! The lab, the attacked process, the attacker, and the honest copy.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use longhaul_hostile::Usage;
use wanbed::{Lab, Overrides, Scenario};

use super::attack::Victim;
use super::attacker::{HELD_FILE, READY};
use super::{Attack, Build, Run};
use crate::children::{Server, output_within};
use crate::identities::Identities;
use crate::{copy, dataset};

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
[links.to_depot]
ends = ["attacker", "depot"]
delay = "1 ms"
rate = "100 Mbit/s"
[links.to_server]
ends = ["attacker", "server"]
delay = "1 ms"
rate = "100 Mbit/s"
"#;
/// Addresses of the attacker beside its node's own.
const OTHERS: (&str, &str) = ("10.99.0.0", "10.99.0.0/16");
/// What is copied, in bytes: two seconds at the links' rate.
const BYTES: u64 = 24 << 20;
/// A copy that has not ended by then has failed.
const LIMIT: Duration = Duration::from_secs(25);
/// How often the attacked process is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// How often the arrival of the first byte is looked for.
const ARRIVAL: Duration = Duration::from_millis(2);

/// The lab, keys and files.
pub struct Bed {
    lab: Lab,
    identities: Identities,
    attacker_home: PathBuf,
    attacker_key: String,
    scratch: tempfile::TempDir,
}

/// A server or depot: its process, key and log.
struct Process {
    child: Child,
    key: String,
    log: PathBuf,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Bed {
    /// Brings up the lab and makes keys with `longhaul`.
    ///
    /// # Errors
    /// What the lab, or `longhaul keys`, says.
    pub fn make(longhaul: &Path) -> Result<Self> {
        let lab = Lab::up(&Scenario::from_text("attacks", LAB), &Overrides::default())?;
        let scratch = copy::scratch()?;
        let keys = scratch.path().join("keys");
        let identities = Identities::create(longhaul, &keys)?;
        let attacker_home = keys.join("attacker");
        let attacker_key = crate::identities::new_key(longhaul, &attacker_home)?;
        dataset::sized_file(&scratch.path().join("root/file"), BYTES, 1)?;
        dataset::sized_file(&scratch.path().join("root").join(HELD_FILE), 4 << 20, 2)?;
        let bed = Self {
            lab,
            identities,
            attacker_home,
            attacker_key,
            scratch,
        };
        bed.give_addresses()?;
        bed.write_policy()?;
        Ok(bed)
    }

    /// All of a /16 is the attacker's, without being listed one by one.
    fn give_addresses(&self) -> Result<()> {
        for (node, kind, device) in [
            ("attacker", "local", "lo"),
            ("depot", "unicast", "to_depot"),
            ("server", "unicast", "to_server"),
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

    fn policy_file(&self) -> PathBuf {
        self.scratch.path().join("policy.toml")
    }

    /// The attacker is listed, for somewhere else.
    fn write_policy(&self) -> Result<()> {
        let honest = fs::read_to_string(&self.identities.depot_policy)?;
        let attacker = format!(
            "[[allow]]\nprincipals = [\"{}\"]\nto = [\"198.51.100.0/24\", \"*.example.net\"]\n",
            self.attacker_key
        );
        fs::write(self.policy_file(), honest + &attacker).context("cannot write the policy")
    }

    /// One honest copy from fresh processes of `program`.
    ///
    /// # Errors
    /// A process cannot be started. A copy that fails is a result.
    pub fn run(
        &self,
        program: &Path,
        attack: Attack,
        build: Build,
        round: u32,
        under_attack: bool,
    ) -> Result<Run> {
        let root = tempfile::tempdir_in(self.scratch.path())?;
        for name in ["file", HELD_FILE] {
            fs::hard_link(
                self.scratch.path().join("root").join(name),
                root.path().join(name),
            )?;
        }
        let serve = self.serve(program, root.path())?;
        let depot = self.depot(program)?;
        let victim = match attack.victim() {
            Victim::Serve => &serve,
            Victim::Depot => &depot,
        };
        let process = victim.child.id();
        let attacker = under_attack
            .then(|| self.attacker(attack, &victim.key))
            .transpose()?;
        let began = Instant::now();
        let log_before = fs::metadata(&victim.log)?.len();
        let over = AtomicBool::new(false);
        let (copied, descriptors) = thread::scope(|scope| {
            let watch = scope.spawn(|| {
                let mut most = 0;
                while !over.load(Ordering::Relaxed) {
                    most = most.max(Usage::of(process).unwrap_or_default().descriptors);
                    thread::sleep(LOOK);
                }
                most
            });
            let copied = self.copy(program, attack, &serve.key);
            over.store(true, Ordering::Relaxed);
            (copied, watch.join().unwrap_or_default())
        });
        let seconds = began.elapsed().as_secs_f64();
        let usage = Usage::of(process).unwrap_or_default();
        let logged = fs::metadata(&victim.log)?.len() - log_before;
        drop(attacker);
        let valid = self.lab.links()?.valid;
        let mut run = Run {
            attack,
            build,
            round,
            under_attack,
            begins_s: None,
            rate_bps: None,
            error: None,
            peak_memory: usage.most_resident,
            peak_descriptors: descriptors.max(usage.descriptors),
            log_bytes_per_s: logged as f64 / seconds,
            valid,
        };
        match copied? {
            Ok((begins, lasts)) => {
                run.begins_s = Some(begins);
                run.rate_bps = Some(BYTES as f64 * 8.0 / lasts);
            }
            Err(told) => run.error = Some(told),
        }
        Ok(run)
    }

    fn serve(&self, program: &Path, root: &Path) -> Result<Process> {
        let mut command = self.lab.command("server", program)?;
        let (client, attacker) = (&self.identities.client_key, &self.attacker_key);
        command
            .env("LONGHAUL_HOME", &self.identities.server_home)
            .args(["serve", "--json", "--listen", "0.0.0.0:7511"])
            .args(["--read", client, "--read", attacker, "--write", attacker])
            .arg("--root")
            .arg(root);
        self.start(command, "serve")
    }

    fn depot(&self, program: &Path) -> Result<Process> {
        let mut command = self.lab.command("depot", program)?;
        command
            .env("LONGHAUL_HOME", self.identities.depot_home("depot"))
            .args(["depot", "--json", "--listen", "0.0.0.0:7510", "--policy"])
            .arg(self.policy_file());
        self.start(command, "depot")
    }

    /// Starts a process that prints its key as JSON, and logs to a file.
    fn start(&self, mut command: Command, name: &str) -> Result<Process> {
        let log = self.scratch.path().join(format!("{name}.log"));
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

    fn attacker(&self, attack: Attack, key: &str) -> Result<Server> {
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
            .args(["--key", key, "--listed", &self.identities.client_key])
            .args(["--own", &self.lab.address("attacker")?.to_string()])
            .args(["--others", OTHERS.0, "--home"])
            .arg(&self.attacker_home);
        Server::start_within(command, "the attacker", READY, Duration::from_secs(60))
    }

    /// Copies honestly: seconds until data arrived, and from then to the end; or what was said instead.
    fn copy(&self, program: &Path, attack: Attack, key: &str) -> Result<Result<(f64, f64), String>> {
        let target = tempfile::tempdir_in(self.scratch.path())?;
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
            .env("LONGHAUL_HOME", &self.identities.client_home)
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
