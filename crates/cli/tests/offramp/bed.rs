//! A path with two depots, an off-ramp at its end and a machine behind that. The initiator is the
//! test itself, started again on the path's first node.

use std::fs::{self, File};
use std::future::Future;
use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use longhaul_session::{ConnectOptions, Endpoint, Error, Identity, ServerTrust, Session, connect};
use serde_json::Value;
use wanbed::{Lab, Overrides, Scenario};

use crate::common::bed::until;
use crate::common::{Service, has_labs, key_of, listening, new_key, started};

const PATH: &str = r#"
title = "two depots, a gateway, a machine behind it"
[nodes.client]
[nodes.near]
[nodes.far]
[nodes.gateway]
[nodes.inside]
[links.first]
ends = ["client", "near"]
delay = "HOP ms"
rate = "1 Gbit/s"
queue = "1 bdp of 300 ms"
[links.middle]
ends = ["near", "far"]
delay = "HOP ms"
rate = "1 Gbit/s"
queue = "1 bdp of 300 ms"
[links.last]
ends = ["far", "gateway"]
delay = "HOP ms"
rate = "1 Gbit/s"
queue = "1 bdp of 300 ms"
[links.lan]
ends = ["gateway", "inside"]
delay = "0.1 ms"
rate = "unlimited"
"#;

/// Set by the lab for processes in a node.
const IN_A_NODE: &str = "WANBED_NODE";
/// Time limit for everything that an initiator does: far more than it takes.
const INITIATOR_TIMEOUT: Duration = Duration::from_secs(600);
/// Port of the off-ramp on the gateway.
const OFFRAMP: u16 = 7512;

/// Parameters of the initiator, passed in its environment.
pub struct Initiator {
    /// Directory of this test, which both sides share.
    pub directory: PathBuf,
    pub gateway: Ipv4Addr,
    pub inside: Ipv4Addr,
    near: Ipv4Addr,
    far: Ipv4Addr,
    key: String,
    identity: Arc<Identity>,
}

impl Initiator {
    fn of_environment() -> Self {
        let reported = |name: &str| std::env::var(name).unwrap();
        let address = |name: &str| reported(name).parse().unwrap();
        let directory = PathBuf::from(reported("TEST_DIRECTORY"));
        Self {
            gateway: address("TEST_GATEWAY"),
            inside: address("TEST_INSIDE"),
            near: address("TEST_NEAR"),
            far: address("TEST_FAR"),
            key: reported("TEST_KEY"),
            identity: Arc::new(Identity::load(&directory.join("client/identity")).unwrap()),
            directory,
        }
    }

    /// Returns the options for a session with `server` through both depots and the off-ramp.
    pub fn options_to(&self, server: &str) -> ConnectOptions {
        let server: Endpoint = server.parse().unwrap();
        let route = format!("{}:7510,{}:7510", self.near, self.far);
        ConnectOptions {
            purpose: Some("a test".to_owned()),
            rate: Some(1_000_000_000),
            duration: Some(60),
            ..ConnectOptions::through_offramp(
                server,
                route.parse().unwrap(),
                format!("{}:{OFFRAMP}", self.gateway).parse().unwrap(),
                self.identity.clone(),
                ServerTrust::Pinned(self.key.parse().unwrap()),
            )
        }
    }

    pub async fn connect(&self, server: &str) -> Result<Session, Error> {
        connect(&self.options_to(server)).await
    }
}

/// The test's side: the lab, the off-ramp, and further processes.
pub struct Bed {
    lab: Lab,
    directory: tempfile::TempDir,
    pub offramp: Service,
    /// The depots, which end with the bed.
    _depots: Vec<Service>,
}

/// Runs the test called `name`: `initiator` as a process on the path's first node, and `beside` at
/// the same time. `beside` gets the bed and the initiator's process, and returns when that has
/// ended.
pub fn on_the_path<F: Future<Output = ()>>(
    name: &str,
    hop_delay_ms: f64,
    beside: impl FnOnce(&mut Bed, Running),
    initiator: impl FnOnce(Initiator) -> F,
) {
    if std::env::var_os(IN_A_NODE).is_some() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        return runtime.block_on(async {
            let all = initiator(Initiator::of_environment());
            let ended = tokio::time::timeout(INITIATOR_TIMEOUT, all).await;
            assert!(ended.is_ok(), "the initiator does not come to an end");
        });
    }
    if !has_labs() {
        return;
    }
    let mut bed = Bed::up(hop_delay_ms);
    let running = bed.initiator(name);
    beside(&mut bed, running);
}

/// The initiator's process.
pub struct Running {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
    name: String,
}

impl Running {
    /// Waits until the initiator prints `word`.
    pub fn receive(&mut self, word: &str) {
        let mut line = String::new();
        loop {
            line.clear();
            let read = self.out.read_line(&mut line).unwrap();
            print!("initiator: {line}");
            assert!(read > 0, "the initiator ended before it said {word}");
            if line.trim().ends_with(word) {
                return;
            }
        }
    }

    /// Waits until it has ended, and asserts success.
    pub fn finish(mut self) {
        let mut passed = false;
        let mut line = String::new();
        while self.out.read_line(&mut line).unwrap() > 0 {
            print!("initiator: {line}");
            passed |= line.contains("1 passed");
            line.clear();
        }
        assert!(
            self.child.wait().unwrap().success(),
            "it failed on its node"
        );
        assert!(passed, "the test is not called {}", self.name);
    }
}

impl Bed {
    fn up(hop_delay_ms: f64) -> Self {
        let path = PATH.replace("HOP", &hop_delay_ms.to_string());
        let lab = Lab::up(
            &Scenario::from_text("offramp", &path),
            &Overrides::default(),
        )
        .unwrap();
        let directory = tempfile::tempdir().unwrap();
        let client = new_key(&directory.path().join("client"));
        let policy = directory.path().join("policy.toml");
        let inside = lab.address("inside").unwrap();
        let rules = format!(
            "[[allow]]\nname = \"through\"\nprincipals = [\"{client}\"]\nto = [\"10.77.0.0/16\"]\n\
             ports = [{OFFRAMP}]\nnext_hops = [\"direct\", \"10.77.0.0/16\"]\n\
             [[allow]]\nname = \"off\"\nprincipals = [\"{client}\"]\n\
             servers = [\"127.0.0.1\", \"{inside}\", \"192.0.2.0/24\"]\nports = [\"5000-5999\"]\n"
        );
        fs::write(&policy, rules).unwrap();
        let start = |node: &str, arguments: &[&str]| {
            new_key(&directory.path().join(node));
            let mut command = lab.command(node, env!("CARGO_BIN_EXE_longhaul")).unwrap();
            command
                .env("LONGHAUL_HOME", directory.path().join(node))
                .args(arguments)
                .arg("--policy")
                .arg(&policy)
                .stdin(Stdio::null())
                .stderr(File::create(directory.path().join(format!("{node}.log"))).unwrap());
            started(command)
        };
        let depots =
            ["near", "far"].map(|node| start(node, &["depot", "--listen", "0.0.0.0:7510"]));
        let offramp = start("gateway", &["offramp", "--listen", "0.0.0.0:7512"]);
        Self {
            lab,
            directory,
            offramp,
            _depots: depots.into(),
        }
    }

    fn initiator(&self, name: &str) -> Running {
        let mut again = self
            .lab
            .command("client", std::env::current_exe().unwrap())
            .unwrap();
        again
            .args(["--exact", name, "--nocapture"])
            .env("TEST_DIRECTORY", self.directory.path())
            .env("TEST_KEY", key_of(&self.path("gateway")))
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        for (variable, node) in [
            ("TEST_GATEWAY", "gateway"),
            ("TEST_INSIDE", "inside"),
            ("TEST_NEAR", "near"),
            ("TEST_FAR", "far"),
        ] {
            again.env(variable, self.lab.address(node).unwrap().to_string());
        }
        let mut child = again.spawn().unwrap();
        Running {
            out: BufReader::new(child.stdout.take().unwrap()),
            child,
            name: name.to_owned(),
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns the log of the program on a node.
    pub fn log(&self, node: &str) -> String {
        fs::read_to_string(self.path(&format!("{node}.log"))).unwrap()
    }

    /// Waits until the log of the program on a node has these words.
    pub fn logged(&self, node: &str, words: &str) {
        until(words, || {
            let log = self.log(node);
            if log.contains(words) {
                Ok(())
            } else {
                Err(Value::String(log))
            }
        });
    }

    /// Returns a command for a program of Debian's on a node, which ends on drop.
    pub fn program(&self, node: &str, program: &str, arguments: &[&str]) -> Command {
        let mut command = self.lab.command(node, program).unwrap();
        command
            .args(arguments)
            .current_dir(self.directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        command
    }

    /// Waits until a process listens at this port of a node.
    pub fn listening(&self, node: &str, port: u16) {
        listening(&self.lab, node, port);
    }
}

/// Prints a word for the test's side.
pub fn say(word: &str) {
    use std::io::Write;
    println!("\n{word}");
    std::io::stdout().flush().unwrap();
}

/// Waits until a file exists.
pub async fn file(path: &Path) {
    while !path.exists() {
        tokio::task::yield_now().await;
    }
}
