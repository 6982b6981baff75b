//! The environment in which transcripts run: three machines in a lab, each with folders of its own.
//!
//! | machine | names | in the text, its address is | content |
//! |---|---|---|---|
//! | `laptop` | `laptop.example` | 192.0.2.30 | `results/` with four files, `big.dat` |
//! | `depot` | `depot.example` | 192.0.2.20 | `policy.toml`, which lets every key go to the store |
//! | `store` | `store.example` | 192.0.2.10 | `/srv/data/` |
//!
//! Commands begin in the home directory. `lhk1:LAPTOP...` stands for the laptop's default key (made
//! when it is first named, if it does not exist yet), and so on.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use wanbed::{Lab, Overrides, Scenario};

use crate::common::{has_labs, noise};
use crate::page::{Kind, Part, Step};
use crate::programs;
use crate::shape::describes;
use crate::shell::simple_commands;

/// TCP buffers are those of Linux with enough memory.
const SCENARIO: &str = r#"
title = "a laptop, a depot and a store"
[nodes.laptop]
congestion = "cubic"
sysctl = { tcp_rmem = "4096 131072 6291456", tcp_wmem = "4096 16384 4194304" }
[nodes.depot]
congestion = "cubic"
sysctl = { tcp_rmem = "4096 131072 6291456", tcp_wmem = "4096 16384 4194304" }
[nodes.store]
congestion = "cubic"
sysctl = { tcp_rmem = "4096 131072 6291456", tcp_wmem = "4096 16384 4194304" }
[links.near]
ends = ["laptop", "depot"]
delay = "5 ms"
rate = "1 Gbit/s"
[links.far]
ends = ["depot", "store"]
delay = "20 ms"
rate = "1 Gbit/s"
"#;

/// A machine's name and its address in the text.
const MACHINES: [(&str, &str); 3] = [
    ("laptop", "192.0.2.30"),
    ("depot", "192.0.2.20"),
    ("store", "192.0.2.10"),
];
/// Time limit in seconds for a command or a service of a page.
const COMMAND_TIMEOUT_SECONDS: &str = "600";
/// A person's home directory, within a machine's folder.
const HOME: &str = "home/ana";
/// Paths in the text with this prefix lie in a machine's own folder.
const SERVED: &str = "/srv/";

/// The machines, and what runs on them.
pub struct Place {
    lab: Lab,
    folder: tempfile::TempDir,
    services: Vec<Service>,
}

/// A running server or depot, and its output.
struct Service {
    machine: String,
    command: String,
    line: usize,
    shown: Vec<String>,
    child: Child,
    printed: Arc<Mutex<Vec<String>>>,
    reader: Option<JoinHandle<()>>,
}

impl Place {
    /// Starts it. Prints why and returns `None` if this machine allows no labs.
    pub fn up() -> Option<Self> {
        if !has_labs() {
            return None;
        }
        let lab = Lab::up(
            &Scenario::from_text("docs", SCENARIO),
            &Overrides::default(),
        )
        .unwrap();
        let place = Self {
            lab,
            folder: tempfile::tempdir().unwrap(),
            services: vec![],
        };
        let names = MACHINES.map(|(name, _)| format!("{} {name}.example\n", place.address(name)));
        for (name, _) in MACHINES {
            fs::create_dir_all(place.path(name, HOME)).unwrap();
            let mut hosts = place.lab.command(name, "sh").unwrap();
            // Without a name server in its configuration, no name is looked up, not even in the
            // hosts file.
            let script = format!(
                "printf '{}' >> /etc/hosts; echo nameserver 127.0.0.1 > /etc/resolv.conf",
                names.concat()
            );
            assert!(hosts.args(["-c", &script]).status().unwrap().success());
        }
        place.fill();
        Some(place)
    }

    fn fill(&self) {
        fs::create_dir_all(self.path("store", "srv/data")).unwrap();
        let results = self.path("laptop", HOME).join("results");
        fs::create_dir_all(results.join("plots")).unwrap();
        for (name, bytes) in [
            ("run-1.dat", 12 << 20),
            ("run-2.dat", 12 << 20),
            ("notes.txt", 500),
            ("plots/one.svg", 9000),
        ] {
            fs::write(results.join(name), noise(bytes, bytes as u64)).unwrap();
        }
        let policy = format!(
            "[[allow]]\nprincipals = [\"*\"]\nto = [\"{}\"]\n",
            self.address("store")
        );
        fs::write(self.path("depot", HOME).join("policy.toml"), policy).unwrap();
        fs::write(
            self.path("laptop", HOME).join("big.dat"),
            noise(64 << 20, 64 << 20),
        )
        .unwrap();
    }

    fn address(&self, machine: &str) -> String {
        self.lab.address(machine).unwrap().to_string()
    }

    fn path(&self, machine: &str, path: &str) -> PathBuf {
        self.folder.path().join(machine).join(path)
    }

    /// Carries out a part of a page, and returns the differences.
    pub fn carry_out(&mut self, part: &Part) -> Vec<String> {
        let result = match &part.kind {
            Kind::File {
                machine,
                path,
                content,
            } => self.write(machine, path, content),
            Kind::Transcript(steps, exit) if part.not_run.is_none() => {
                let exits = std::iter::repeat_n(0, steps.len().saturating_sub(1)).chain([*exit]);
                let results = steps
                    .iter()
                    .zip(exits)
                    .map(|(step, exit)| self.run(step, exit));
                return results.filter_map(Result::err).collect();
            }
            _ => Ok(()),
        };
        result.err().into_iter().collect()
    }

    fn write(&self, machine: &str, path: &str, content: &str) -> Result<(), String> {
        let file = self.path(machine, HOME).join(self.real(machine, path));
        fs::write(&file, self.real(machine, content))
            .map_err(|error| format!("{}: {error}", file.display()))
    }

    fn run(&mut self, step: &Step, exit: i32) -> Result<(), String> {
        let reported = |why: String| format!("line {}: {}\n    {why}", step.line, step.command);
        if let Some(kind) = service(&step.command).filter(|_| exit == 0) {
            return self.start(step, kind).map_err(reported);
        }
        let output = self
            .command(&step.machine, &step.command)
            .output()
            .map_err(|error| reported(error.to_string()))?;
        let printed = self.printed(&step.machine, &output.stdout);
        if output.status.code() != Some(exit) {
            return Err(reported(format!(
                "ended with {}, not {exit}, and printed:\n{}",
                output.status,
                printed.join("\n")
            )));
        }
        if step.output.is_empty() || describes(&step.output, &printed, false) {
            return Ok(());
        }
        Err(reported(format!("printed:\n{}", printed.join("\n"))))
    }

    /// Starts a server or depot, replacing the one of its kind that ran there, and waits until it
    /// has reported its key.
    fn start(&mut self, step: &Step, kind: &str) -> Result<(), String> {
        let same = |service: &Service| {
            service.machine == step.machine && service.command.starts_with(kind)
        };
        if let Some(at) = self.services.iter().position(same) {
            let before = self.services.remove(at);
            self.stop(before)?;
        }
        let mut child = self
            .command(&step.machine, &format!("exec {}", step.command))
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let mut lines = BufReader::new(child.stdout.take().ok_or("no output")?);
        let printed = Arc::new(Mutex::new(Vec::new()));
        let ready = until_ready(&mut lines, &printed);
        let reader = std::thread::spawn({
            let printed = Arc::clone(&printed);
            move || gather(lines, &printed)
        });
        self.services.push(Service {
            machine: step.machine.clone(),
            command: step.command.clone(),
            line: step.line,
            shown: step.output.clone(),
            child,
            printed,
            reader: Some(reader),
        });
        match ready {
            true => Ok(()),
            false => Err("ended before it had reported its key".to_owned()),
        }
    }

    /// Ends a service, and compares its output with the page.
    fn stop(&self, mut service: Service) -> Result<(), String> {
        // It prints its last messages at its end.
        let pid = service.child.id().to_string();
        let asked = Command::new("kill").args(["-INT", &pid]).status();
        if !asked.is_ok_and(|status| status.success()) {
            let _ = service.child.kill();
        }
        let _ = service.child.wait();
        if let Some(reader) = service.reader.take() {
            let _ = reader.join();
        }
        let printed = service
            .printed
            .lock()
            .map(|lines| lines.join("\n"))
            .unwrap_or_default();
        let printed = self.printed(&service.machine, printed.as_bytes());
        if describes(&service.shown, &printed, true) {
            return Ok(());
        }
        Err(format!(
            "line {}: {}\n    printed:\n{}",
            service.line,
            service.command,
            printed.join("\n")
        ))
    }

    /// Ends every service, and returns differences of their output.
    pub fn end(mut self) -> Vec<String> {
        let services = std::mem::take(&mut self.services);
        services
            .into_iter()
            .filter_map(|service| self.stop(service).err())
            .collect()
    }

    fn command(&self, machine: &str, command: &str) -> Command {
        let home = self.path(machine, HOME);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut folders = vec![programs::folder().to_owned()];
        folders.extend(std::env::split_paths(&path));
        let mut shell = self.lab.command(machine, "timeout").unwrap();
        shell
            .args([COMMAND_TIMEOUT_SECONDS, "sh", "-c"])
            .arg(format!("exec 2>&1; {}", self.real(machine, command)))
            .env("HOME", &home)
            .env("PATH", std::env::join_paths(folders).unwrap_or(path))
            .env_remove("LONGHAUL_HOME")
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("RUST_LOG")
            .current_dir(home)
            .stdin(Stdio::null());
        shell
    }

    /// Replaces the page's keys, addresses and folders by those of this lab.
    fn real(&self, machine: &str, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, address) in MACHINES {
            let key = format!("lhk1:{}...", name.to_uppercase());
            if text.contains(&key) {
                text = text.replace(&key, &self.key(name));
            }
            text = text.replace(address, &self.address(name));
        }
        text.replace(SERVED, &format!("{}/", self.path(machine, "srv").display()))
    }

    /// Replaces the machine's own folders in output by their names in the text.
    fn printed(&self, machine: &str, bytes: &[u8]) -> Vec<String> {
        let folder = self.path(machine, "");
        let folder = folder.to_string_lossy();
        let text = String::from_utf8_lossy(bytes).replace(folder.trim_end_matches('/'), "");
        text.lines().map(str::to_owned).collect()
    }

    /// Returns a machine's default key.
    fn key(&self, machine: &str) -> String {
        let longhaul = |action: &str| {
            let output = Command::new(env!("CARGO_BIN_EXE_longhaul"))
                .args(["keys", action])
                .env(
                    "LONGHAUL_HOME",
                    self.path(machine, HOME).join(".config/longhaul"),
                )
                .output()
                .unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        let mut reported = longhaul("show");
        if reported.is_empty() {
            reported = longhaul("new");
        }
        reported
            .split_whitespace()
            .next()
            .unwrap_or_default()
            .to_owned()
    }
}

/// Returns the word for the service if the command runs until it is ended.
fn service(command: &str) -> Option<&'static str> {
    let commands = simple_commands(command);
    let words = commands.first()?;
    match (words.first()?.as_str(), words.get(1)?.as_str()) {
        ("longhaul", "serve") => Some("longhaul serve"),
        ("longhaul", "depot") => Some("longhaul depot"),
        ("longhaul", "offramp") => Some("longhaul offramp"),
        ("longhaul", "perf") if words.iter().any(|word| word == "--serve") => Some("longhaul perf"),
        _ => None,
    }
}

fn until_ready(lines: &mut BufReader<ChildStdout>, printed: &Mutex<Vec<String>>) -> bool {
    let mut line = String::new();
    while lines.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
        let ready = line.starts_with("key ") || line.contains("\"key\"");
        if let Ok(mut printed) = printed.lock() {
            printed.push(line.trim_end().to_owned());
        }
        if ready {
            return true;
        }
        line.clear();
    }
    false
}

fn gather(mut lines: impl Read, printed: &Mutex<Vec<String>>) {
    let mut rest = String::new();
    let _ = lines.read_to_string(&mut rest);
    if let Ok(mut printed) = printed.lock() {
        printed.extend(rest.lines().map(str::to_owned));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for service in &mut self.services {
            let _ = service.child.kill();
            let _ = service.child.wait();
        }
    }
}
