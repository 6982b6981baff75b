//! The network of the on-ramp's tests: pc - laptop - near - far - server.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{ChildStderr, Command, Output, Stdio};

use wanbed::{Lab, Overrides, Scenario};

use crate::common::{Service, has_labs, new_key, started};
use crate::path::quiet;

const NETWORK: &str = r#"
title = "a laboratory, its gateway, and a server behind two depots"
[nodes.pc]
[nodes.laptop]
[nodes.near]
[nodes.far]
[nodes.server]
[links.bench]
ends = ["pc", "laptop"]
delay = "0.1 ms"
rate = "1 Gbit/s"
[links.first]
ends = ["laptop", "near"]
delay = "5 ms"
rate = "1 Gbit/s"
[links.middle]
ends = ["near", "far"]
delay = "5 ms"
rate = "1 Gbit/s"
[links.last]
ends = ["far", "server"]
delay = "0.1 ms"
rate = "1 Gbit/s"
"#;

pub const WEB_PORT: u16 = 8080;
/// A port without a listener.
pub const CLOSED_PORT: u16 = 8081;
/// A port that the off-ramp's policy forbids.
pub const FORBIDDEN_PORT: u16 = 9000;
pub const FILE: &str = "file";

/// The network, the processes in it, and a file at the web server. They end on drop.
pub struct World {
    // Dropped in this order: processes in the lab first.
    /// The depot on near, the depot on far, the off-ramp, the web server.
    pub servers: Vec<Option<Service>>,
    pub lab: Lab,
    pub dir: tempfile::TempDir,
    pub data: Vec<u8>,
    pub offramp_key: String,
}

/// A running on-ramp, ended on drop.
pub struct Onramp {
    pub service: Service,
    pub places: serde_json::Value,
    log: BufReader<ChildStderr>,
}

impl World {
    /// Starts it. Prints why and returns `None` if this machine allows no labs.
    pub fn up() -> Option<Self> {
        if !has_labs() {
            return None;
        }
        let lab = Lab::up(
            &Scenario::from_text("onramp", NETWORK),
            &Overrides::default(),
        )
        .unwrap();
        let dir = tempfile::tempdir().unwrap();
        let data: Vec<u8> = (0..6_000_000u32)
            .map(|number| (number.wrapping_mul(2_654_435_761) >> 13) as u8)
            .collect();
        fs::create_dir(dir.path().join("www")).unwrap();
        fs::write(dir.path().join("www").join(FILE), &data).unwrap();
        let mut world = Self {
            lab,
            data,
            servers: Vec::new(),
            offramp_key: String::new(),
            dir,
        };
        let [client, _, _, offramp] =
            ["laptop", "near", "far", "offramp"].map(|name| new_key(&world.file(name)));
        world.offramp_key = offramp;
        // The off-ramp is on the depot's own machine, which only a rule that names its address
        // permits.
        let far = world.address("far");
        let policy = format!(
            "[[allow]]\nprincipals = [\"{client}\"]\nto = [\"10.77.0.0/16\", \"{far}\"]\n\
             ports = [7512]\nnext_hops = [\"direct\", \"10.77.0.0/16\"]\n"
        );
        fs::write(world.file("depot.toml"), policy).unwrap();
        let policy = format!(
            "[[allow]]\nprincipals = [\"{client}\"]\nservers = [\"10.77.0.0/16\"]\n\
             ports = [{WEB_PORT}, {CLOSED_PORT}, 22]\n"
        );
        fs::write(world.file("offramp.toml"), policy).unwrap();
        for server in ["near", "far", "offramp", "web"] {
            let server = world.start(server);
            world.servers.push(Some(server));
        }
        Some(world)
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn address(&self, node: &str) -> Ipv4Addr {
        self.lab.address(node).unwrap()
    }

    pub fn start(&self, server: &str) -> Service {
        let policy = |name: &str| self.file(name).to_str().unwrap().to_owned();
        match server {
            "web" => {
                let mut web = self.lab.command("server", "busybox").unwrap();
                web.args(["httpd", "-f", "-p", &WEB_PORT.to_string(), "-h"])
                    .arg(self.file("www"));
                let web = Service(web.spawn().unwrap());
                // It prints nothing when it listens.
                while !self
                    .curl(&["-o", "/dev/null"], &self.url())
                    .status
                    .success()
                {}
                web
            }
            "offramp" => {
                let mut offramp = self.longhaul("far", "offramp");
                offramp.args([
                    "offramp",
                    "--listen",
                    "0.0.0.0:7512",
                    "--policy",
                    &policy("offramp.toml"),
                ]);
                started(quiet(offramp))
            }
            node => {
                let mut depot = self.longhaul(node, node);
                depot.args([
                    "depot",
                    "--listen",
                    "0.0.0.0:7510",
                    "--policy",
                    &policy("depot.toml"),
                ]);
                started(quiet(depot))
            }
        }
    }

    pub fn longhaul(&self, node: &str, home: &str) -> Command {
        let mut command = self
            .lab
            .command(node, env!("CARGO_BIN_EXE_longhaul"))
            .unwrap();
        command
            .env("LONGHAUL_HOME", self.file(home))
            .stdin(Stdio::null());
        command
    }

    pub fn kill(&mut self, server: usize) {
        let mut server = self.servers[server].take().unwrap();
        server.0.kill().unwrap();
        server.0.wait().unwrap();
    }

    /// Writes rules that send everything through both depots and the off-ramp, with additional
    /// lines.
    pub fn rules(&self, more: &str) {
        let (near, far) = (self.address("near"), self.address("far"));
        let rule = format!(
            "[[route]]\nto = [\"10.77.0.0/16\", \"server\"]\nvia = \"{near},{far}\"\n\
             offramp = \"{}@{far}\"\n{more}\n",
            self.offramp_key
        );
        fs::write(self.file("laptop/routes.toml"), rule).unwrap();
    }

    /// Starts an on-ramp with these entries.
    pub fn onramp(&self, entries: &[&str]) -> Onramp {
        let mut command = self.longhaul("laptop", "laptop");
        command.args(["onramp", "--json"]).args(entries);
        let child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut service = Service(child.unwrap());
        let log = BufReader::new(service.0.stderr.take().unwrap());
        let mut line = String::new();
        BufReader::new(service.0.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let places =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"));
        Onramp {
            service,
            places,
            log,
        }
    }

    pub fn url(&self) -> String {
        format!("http://{}:{WEB_PORT}/{FILE}", self.address("server"))
    }

    /// Runs curl on the laptop.
    pub fn curl(&self, options: &[&str], url: &str) -> Output {
        self.run(
            "laptop",
            "curl",
            &[&["-sS", "--max-time", "60"], options, &[url]].concat(),
        )
    }

    pub fn run(&self, node: &str, program: &str, arguments: &[&str]) -> Output {
        let mut command = self.lab.command(node, program).unwrap();
        command
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    pub fn is_the_file(&self, output: &Output, how: &str) {
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{how}: {said}");
        assert!(
            output.stdout == self.data,
            "{how}: {} bytes came, or others",
            output.stdout.len()
        );
    }
}

impl Onramp {
    pub fn entry_address(&self, entry: &str) -> String {
        self.places[entry][0].as_str().unwrap().to_owned()
    }

    pub fn port(&self, entry: &str) -> String {
        self.entry_address(entry)
            .rsplit_once(':')
            .unwrap()
            .1
            .to_owned()
    }

    /// Returns the next line of the log with all of these words.
    pub fn logged(&mut self, words: &[&str]) -> String {
        let mut seen = String::new();
        loop {
            let mut line = String::new();
            assert!(
                self.log.read_line(&mut line).unwrap() > 0,
                "no {words:?} in:\n{seen}"
            );
            eprint!("{line}");
            if words.iter().all(|word| line.contains(word)) {
                return line;
            }
            seen.push_str(&line);
        }
    }

    pub fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.service.0.id()))
            .unwrap()
            .count()
    }

    /// Waits until it holds at most this many descriptors: they are released a moment after the end
    /// was logged.
    pub fn holds_again(&self, descriptors: usize) {
        while self.descriptors() > descriptors {
            std::thread::yield_now();
        }
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.service.0);
        rustix::process::kill_process(pid, signal).unwrap();
    }
}

/// Runs nft in a node, with a ruleset.
pub fn nft(world: &World, node: &str, ruleset: &str) {
    let mut nft = world.lab.command(node, "nft").unwrap();
    let mut nft = nft.args(["-f", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    nft.stdin
        .take()
        .unwrap()
        .write_all(ruleset.as_bytes())
        .unwrap();
    assert!(nft.wait().unwrap().success(), "{ruleset}");
}
