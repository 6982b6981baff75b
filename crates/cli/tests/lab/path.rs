//! A long path with two depots, a server at its end, and copies over it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use wanbed::{Lab, Overrides, Scenario};

use crate::common::{Service, has_labs, new_key, started};

/// client - 100 ms - near - 100 ms - far - 100 ms - server, round trips; both depots forward
/// packets too.
const PATH: &str = r#"
title = "three hops of 100 ms"
[nodes.client]
[nodes.near]
[nodes.far]
[nodes.server]
[links.first]
ends = ["client", "near"]
delay = "50 ms"
rate = "1 Gbit/s"
queue = "1 bdp of 300 ms"
[links.middle]
ends = ["near", "far"]
delay = "50 ms"
rate = "1 Gbit/s"
queue = "1 bdp of 300 ms"
[links.last]
ends = ["far", "server"]
delay = "50 ms"
rate = "1 Gbit/s"
queue = "1 bdp of 300 ms"
"#;

/// The path, with `longhaul serve` at its end and a depot on each node between. Ended on drop.
pub struct LongPath {
    // Dropped in this order: processes in the lab first.
    servers: Vec<Service>,
    lab: Lab,
    dir: tempfile::TempDir,
    client_key: String,
    server_key: String,
}

impl LongPath {
    /// Starts it. Prints why and returns `None` if this machine allows no labs.
    pub fn up() -> Option<Self> {
        Self::with(&Overrides::default())
    }

    /// Starts it with `overrides`.
    pub fn with(overrides: &Overrides) -> Option<Self> {
        if !has_labs() {
            return None;
        }
        let lab = Lab::up(&Scenario::from_text("path", PATH), overrides).unwrap();
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("root")).unwrap();
        let keys = ["client", "server", "near", "far"].map(|name| new_key(&dir.path().join(name)));
        let [client_key, server_key, ..] = keys;
        let mut path = Self {
            lab,
            dir,
            client_key,
            server_key,
            servers: vec![],
        };
        path.start_servers();
        Some(path)
    }

    fn start_servers(&mut self) {
        let policy = self.dir.path().join("policy.toml");
        let rule = format!(
            "[[allow]]\nprincipals = [\"{}\"]\nto = [\"10.77.0.0/16\", \"fd77::/64\"]\n\
             next_hops = [\"direct\", \"10.77.0.0/16\", \"fd77::/64\"]\n",
            self.client_key
        );
        fs::write(&policy, rule).unwrap();
        for node in ["near", "far"] {
            let mut depot = self.longhaul(node);
            depot
                .args(["depot", "--listen", &self.any_address(7510), "--policy"])
                .arg(&policy);
            self.servers.push(started(quiet(depot)));
        }
        let mut serve = self.longhaul("server");
        serve.args([
            "serve",
            "--perf",
            "--listen",
            &self.any_address(7511),
            "--read",
            &self.client_key,
            "--root",
        ]);
        serve.arg(self.root());
        self.servers.push(started(quiet(serve)));
    }

    /// Returns the listening address for all of a node's addresses.
    fn any_address(&self, port: u16) -> String {
        let host = match self.lab.endpoint("server", port).unwrap() {
            SocketAddr::V4(_) => "0.0.0.0",
            SocketAddr::V6(_) => "[::]",
        };
        format!("{host}:{port}")
    }

    /// Returns the served directory.
    pub fn root(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    /// Returns `longhaul` on a node, with that node's key.
    fn longhaul(&self, node: &str) -> Command {
        let mut command = self
            .lab
            .command(node, env!("CARGO_BIN_EXE_longhaul"))
            .unwrap();
        command
            .env("LONGHAUL_HOME", self.dir.path().join(node))
            .stdin(Stdio::null());
        command
    }

    /// Returns the route through these depots.
    pub fn route(&self, depots: &[&str]) -> String {
        if depots.is_empty() {
            return "direct".into();
        }
        let hops: Vec<String> = depots
            .iter()
            .map(|depot| self.lab.endpoint(depot, 7510).unwrap().to_string())
            .collect();
        hops.join(",")
    }

    /// Has the first node silently drop all packets for the server, or forward them again. The
    /// depot there still reaches the next one.
    pub fn drop_what_goes_directly(&self, drops: bool) {
        let change = if drops { "add" } else { "delete" };
        let server = self.lab.address("server").unwrap().to_string();
        let mut ip = self.lab.command("near", "ip").unwrap();
        ip.args(["rule", change, "to", &server, "blackhole"]);
        assert!(ip.status().unwrap().success());
    }

    /// Has it refuse connections to the server instead, as some firewalls do.
    pub fn refuse_what_goes_directly(&self) {
        let server = self.lab.address("server").unwrap();
        let rules = format!(
            "add table ip refusing
             add chain ip refusing forward {{ type filter hook forward priority filter; }}
             add rule ip refusing forward ip daddr {server} meta l4proto tcp reject with tcp reset"
        );
        let mut nft = self.lab.command("near", "nft").unwrap();
        assert!(nft.arg(rules).status().unwrap().success());
    }

    /// Returns the process of the depot on the first node.
    pub fn first_depot(&self) -> &Child {
        &self.servers[0].0
    }

    /// Has the client use this table of routes for fetches, from a controller that does not run; or
    /// no table.
    pub fn keep_table(&self, table: Option<&serde_json::Value>) {
        let (home, url) = (self.dir.path().join("client"), "unix:/nobody/is/there");
        let state = home.join("state/control");
        fs::create_dir_all(&state).unwrap();
        for file in ["held.json", "fetching.json"] {
            let _ = fs::remove_file(state.join(file));
        }
        if let Some(table) = table {
            let kept = serde_json::json!({ "format": 1, "controller": url, "table": table });
            fs::write(state.join("fetching.json"), kept.to_string()).unwrap();
        }
        fs::write(home.join("controller.toml"), format!("url = \"{url}\"\n")).unwrap();
    }

    /// Copies `name` from the server, and returns the seconds from its own report.
    pub fn fetch(&self, name: &str, route: &str) -> f64 {
        self.fetched(name, &["--route", route])["seconds"]
            .as_f64()
            .unwrap()
    }

    /// Copies `name` from the server with these arguments, and returns its report.
    pub fn fetched(&self, name: &str, arguments: &[&str]) -> serde_json::Value {
        self.fetched_hearing(name, arguments, |_| {})
    }

    /// Copies as [`Self::fetched`]; `observe` receives each event.
    pub fn fetched_hearing(
        &self,
        name: &str,
        arguments: &[&str],
        mut observe: impl FnMut(&serde_json::Value),
    ) -> serde_json::Value {
        let target = tempfile::tempdir_in(self.dir.path()).unwrap();
        let mut cp = self.longhaul("client");
        cp.args(["cp", "--json", "--host-key", &self.server_key])
            .args(arguments);
        cp.arg(format!(
            "lh://{}/{name}",
            self.lab.endpoint("server", 7511).unwrap()
        ))
        .arg(target.path());
        let mut child = cp.stdout(Stdio::piped()).spawn().unwrap();
        let mut report = serde_json::Value::Null;
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            report = serde_json::from_str(&line.unwrap()).unwrap();
            observe(&report);
        }
        assert!(child.wait().unwrap().success(), "{report}");
        assert_eq!(
            fs::read(target.path().join(name)).unwrap(),
            fs::read(self.root().join(name)).unwrap()
        );
        report
    }
}

impl LongPath {
    /// Starts a copy from a node that must fail, and returns its standard error.
    pub fn refused(&self, node: &str, arguments: &[&str]) -> String {
        let mut cp = self.longhaul("client");
        cp.args(["cp", "--host-key", &self.server_key])
            .args(arguments)
            .arg(format!("lh://{}/any", self.lab.address(node).unwrap()))
            .arg(self.dir.path());
        let output = cp.output().unwrap();
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// Runs `longhaul perf --json` to the server, with more arguments.
    pub fn measure(&self, arguments: &[&str]) -> serde_json::Value {
        let mut perf = self.longhaul("client");
        perf.args(["perf", "--json", "--host-key", &self.server_key])
            .args(arguments)
            .arg(self.lab.endpoint("server", 7511).unwrap().to_string());
        let output = perf.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let failure = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}{failure}");
        serde_json::from_str(&said).unwrap()
    }
}

/// Configures a server whose log nobody reads.
pub fn quiet(mut command: Command) -> Command {
    command.stderr(Stdio::null());
    command
}
