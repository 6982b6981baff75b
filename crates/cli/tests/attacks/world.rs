//! Shared by the attacks: a stage with logs, a runtime for the attackers, and commands with time
//! limits.

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use longhaul_hostile::{Crowd, CrowdPlan, StrangerBehaviour, client};
use longhaul_session::Identity;
use tokio::runtime::Runtime;

use crate::stage::{Service, Stage};

/// Time limit of an honest copy under attack: far above its usual time, far below the duration of a
/// lock-out.
pub const HONEST: Duration = Duration::from_secs(30);
/// A free port on loopback.
pub const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// A stage, and a runtime for the attackers.
pub struct World {
    pub stage: Stage,
    pub attackers: Runtime,
}

impl World {
    pub fn new() -> Self {
        Self {
            stage: Stage::new(),
            attackers: Runtime::new().unwrap(),
        }
    }

    /// Starts a server with these grants (`--read KEY`, ...). Its default log goes to `server.log`.
    pub fn serve(&self, arguments: &[&str]) -> Service {
        let mut command = self.logged("server");
        command
            .args(["serve", "--root", "root", "--listen", "127.0.0.1:0"])
            .args(arguments);
        self.stage.service(command, "address")
    }

    /// Starts a depot with this policy that logs to `NAME.log`.
    pub fn depot(&self, name: &str, listen: &str, policy: &str) -> Service {
        let file = self.stage.path(&format!("{name}.toml"));
        std::fs::write(&file, policy).unwrap();
        let mut command = self.logged(name);
        command
            .args(["depot", "--listen", listen, "--policy"])
            .arg(file);
        self.stage.service(command, "addresses")
    }

    /// Starts an off-ramp with this policy that logs to `offramp.log`.
    pub fn offramp(&self, policy: &str) -> Service {
        let file = self.stage.path("offramp.toml");
        std::fs::write(&file, policy).unwrap();
        let mut command = self.logged("offramp");
        command
            .args(["offramp", "--listen", "127.0.0.1:0", "--policy"])
            .arg(file);
        self.stage.service(command, "addresses")
    }

    /// Starts a depot for sessions of `me` and `attacker` to all of loopback.
    pub fn open_depot(&self) -> Service {
        let keys = [self.stage.key("me"), self.stage.key("attacker")];
        self.depot("depot", "127.0.0.1:0", &policy(&keys, "127.0.0.0/8"))
    }

    /// Returns the command with the keys of `who`, and its default log in `WHO.log`.
    pub fn logged(&self, who: &str) -> Command {
        self.stage.key(who);
        let mut command = self.stage.longhaul(who);
        command
            .env_remove("RUST_LOG")
            .stderr(File::create(self.log(who)).unwrap());
        command
    }

    pub fn log(&self, who: &str) -> PathBuf {
        self.stage.path(&format!("{who}.log"))
    }

    /// Waits until the log of `who` has these words: an answer may arrive before its line is
    /// written.
    pub fn wait_for_log(&self, who: &str, words: &str) {
        let deadline = Instant::now() + HONEST;
        loop {
            let log = std::fs::read_to_string(self.log(who)).unwrap();
            if log.contains(words) {
                return;
            }
            assert!(Instant::now() < deadline, "no {words:?} in {log}");
            std::thread::yield_now();
        }
    }

    /// Returns the identity of `who`, for a session by hand.
    pub fn identity(&self, who: &str) -> Identity {
        self.stage.key(who);
        Identity::load(&self.stage.path(who).join("identity")).unwrap()
    }

    /// Returns `server` as a target for the key of `who`.
    pub fn target(&self, server: &Service, who: &str) -> client::AttackTarget {
        self.stage.key(who);
        let address = server.address.parse().unwrap();
        client::AttackTarget::load(address, server.key.parse().unwrap(), &self.stage.path(who))
            .unwrap()
    }

    /// Runs `longhaul cp` as `who`. Returns `None` if it did not end within `limit`.
    pub fn cp_within(&self, limit: Duration, who: &str, arguments: &[&str]) -> Option<Output> {
        let mut command = self.stage.longhaul(who);
        command.arg("cp").args(arguments);
        self.within(limit, command)
    }

    /// Returns the output of `command`. Kills it and returns `None` if it does not end within
    /// `limit`.
    pub fn within(&self, limit: Duration, command: Command) -> Option<Output> {
        let mut command = tokio::process::Command::from(command);
        command.kill_on_drop(true);
        self.attackers
            .block_on(async { tokio::time::timeout(limit, command.output()).await })
            .ok()
            .map(Result::unwrap)
    }

    /// Asserts that an honest copy to `server` over `route` succeeds.
    pub fn assert_honest_copy(&self, server: &Service, route: &str) {
        self.stage.noise("here/honest", 300_000);
        let there = format!("lh://{}/", server.address);
        let arguments = [
            "--host-key",
            &server.key,
            "--overwrite",
            "--route",
            route,
            "here/honest",
            &there,
        ];
        let output = self.cp_within(HONEST, "me", &arguments);
        let output = output.expect("an honest copy did not end in time");
        let reported = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            output.status.code(),
            Some(0),
            "an honest copy failed: {reported}"
        );
        assert_eq!(
            std::fs::read(self.stage.path("here/honest")).unwrap(),
            std::fs::read(self.stage.path("root/honest")).unwrap()
        );
    }

    /// Opens this many hostile connections to `target` from four addresses that no honest peer has.
    /// Returns once all were made.
    pub fn strangers(
        &self,
        target: &str,
        connections: usize,
        per_second: u32,
        manner: StrangerBehaviour,
    ) -> Crowd {
        self.gather(&CrowdPlan {
            target: target.parse().unwrap(),
            sources: addresses(4),
            connections,
            per_second,
            manner,
        })
    }

    /// Opens hostile connections as described. Returns once all were made.
    pub fn gather(&self, gathering: &CrowdPlan) -> Crowd {
        let _on = self.attackers.enter();
        let crowd = Crowd::start(gathering);
        // The target may refuse some.
        self.attackers
            .block_on(crowd.has_made(gathering.connections as u64, Duration::from_secs(2)));
        crowd
    }
}

/// Returns loopback addresses that no honest peer has.
pub fn addresses(count: u8) -> Vec<IpAddr> {
    (1..=count)
        .map(|last| IpAddr::from([127, 66, 0, last]))
        .collect()
}

/// Returns a policy that lets `keys` go to `to`, any port, directly or through it.
pub fn policy(keys: &[String], to: &str) -> String {
    format!(
        "[[allow]]\nprincipals = {keys:?}\nto = [\"{to}\"]\nports = [\"any\"]\n\
         next_hops = [\"direct\", \"{to}\"]\n"
    )
}

/// Returns a policy that lets `keys` go to these servers, any port.
pub fn servers(keys: &[String], servers: &[&str]) -> String {
    format!("[[allow]]\nprincipals = {keys:?}\nservers = {servers:?}\nports = [\"any\"]\n")
}

/// Returns the characters that control a terminal or change the displayed order: controls, and
/// Unicode's relevant format, line and paragraph separators (bidirectional marks, zero widths,
/// U+2028, U+2029).
pub fn steering(text: &str) -> Vec<char> {
    let steers = |c: &char| {
        (c.is_control() && !matches!(c, '\n' | '\r' | '\t'))
            || matches!(
                *c,
                '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}'
                    | '\u{feff}' | '\u{61c}'
            )
    };
    text.chars().filter(steers).collect()
}
