//! Reservations that take effect: a controller, two `longhaul router` agents on Linux nodes, and a
//! person who reserves.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use wanbed::{Lab, Overrides, Scenario};

use crate::common::{Service, has_labs, started};

/// Long enough for any working machine.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(120);
/// A reservation that ends soon, in seconds: long enough to be inspected.
const SHORT_WINDOW_S: u64 = 40;

const NETWORK: &str = r#"
title = "a client, two routers, a server"
[nodes.client]
[nodes.west]
[nodes.middle]
[nodes.server]
[links.access]
ends = ["client", "west"]
delay = "1 ms"
rate = "1 Gbit/s"
[links.wide]
ends = ["west", "middle"]
delay = "1 ms"
rate = "1 Gbit/s"
[links.last]
ends = ["middle", "server"]
delay = "1 ms"
rate = "1 Gbit/s"
"#;

/// A lab with a router on `west` and one on `middle`, and a controller beside it that knows both.
struct Bed {
    // Dropped in this order: processes in the lab first.
    controller: Option<Service>,
    routers: Vec<Service>,
    lab: Lab,
    dir: tempfile::TempDir,
}

impl Bed {
    fn up() -> Option<Self> {
        if !has_labs() {
            return None;
        }
        let lab = Lab::up(
            &Scenario::from_text("circuits", NETWORK),
            &Overrides::default(),
        )
        .unwrap();
        let dir = tempfile::tempdir().unwrap();
        let mut bed = Self {
            controller: None,
            routers: Vec::new(),
            lab,
            dir,
        };
        for (node, link, to) in [("west", "wide", "middle"), ("middle", "last", "server")] {
            bed.start_router(node, link, to);
        }
        Some(bed)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn address(&self, node: &str) -> String {
        self.lab.address(node).unwrap().to_string()
    }

    /// Returns the interface and next router by which packets leave a node for another.
    fn leaves(&self, node: &str, to: &str) -> (String, Option<String>) {
        let mut ip = self.lab.command(node, "ip").unwrap();
        let output = ip
            .args(["-j", "route", "get", &self.address(to)])
            .output()
            .unwrap();
        let routes: Value = serde_json::from_slice(&output.stdout).unwrap();
        let route = &routes[0];
        let gateway = route["gateway"].as_str().map(str::to_owned);
        (route["dev"].as_str().unwrap().to_owned(), gateway)
    }

    fn start_router(&mut self, node: &str, link: &str, to: &str) {
        let (interface, gateway) = self.leaves(node, to);
        let gateways: Vec<String> = gateway.into_iter().collect();
        let config = serde_json::json!({"owner": "longhaul", "links": {
            link: {"interface": interface, "gateways": gateways, "rate": 900_000_000_u64}}});
        let file = self.path(&format!("{node}.json"));
        fs::write(&file, config.to_string()).unwrap();
        let mut command = self
            .lab
            .command(node, env!("CARGO_BIN_EXE_longhaul"))
            .unwrap();
        command.args(["router", "--config"]).arg(&file);
        command
            .arg("--state")
            .arg(self.path(&format!("{node}.state")));
        command
            .arg("--listen")
            .arg(format!("unix:{}", self.socket(node).display()));
        self.routers.push(started(quiet(command)));
    }

    fn socket(&self, node: &str) -> PathBuf {
        self.path(&format!("{node}.d")).join("agent")
    }

    fn longhaul(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
        command
            .env("LONGHAUL_HOME", self.path("home"))
            .env("LONGHAUL_STATE", self.path("state"))
            .env("TZ", "UTC")
            .stdin(Stdio::null());
        command
    }

    /// Starts the controller, which uses these nodes as `setup` says.
    fn start_controller(&mut self, setup: &str) {
        let file = self.path("control.toml");
        fs::write(&file, setup).unwrap();
        let mut command = self.longhaul();
        command.args(["control", "--config"]).arg(&file);
        let mut child = quiet(command).stdout(Stdio::piped()).spawn().unwrap();
        wait_for_line(&mut child);
        self.controller = Some(Service(child));
        let map = self.path("map.json");
        fs::write(&map, self.map().to_string()).unwrap();
        self.run(&["map", "import", map.to_str().unwrap()]);
    }

    fn agents(&self) -> String {
        let node = |site: &str, node: &str| {
            format!(
                "[setup.nodes.{site}]\nagent = \"unix:{}\"\n",
                self.socket(node).display()
            )
        };
        format!("{}{}", node("west", "west"), node("middle", "middle"))
    }

    fn map(&self) -> Value {
        let link = |name: &str, from: &str, to: &str| {
            serde_json::json!({
                "name": name, "from": from, "to": to, "forward": {"capacity": {"rate_bps": 8e8}}
            })
        };
        serde_json::json!({
            "sites": [{"name": "west"}, {"name": "middle"}, {"name": "east"}],
            "hosts": [
                {"name": "client", "site": "west", "addresses": [self.address("client")]},
                {"name": "server", "site": "east", "addresses": [self.address("server")]},
            ],
            "links": [link("wide", "west", "middle"), link("last", "middle", "east")],
        })
    }

    fn run(&self, arguments: &[&str]) -> String {
        let output = self.longhaul().args(arguments).output().unwrap();
        let (said, complained) = (
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        );
        assert!(output.status.success(), "{arguments:?}: {said}{complained}");
        said
    }

    /// Reserves and provisions now, for this many seconds. Returns the number.
    fn reserve(&self, for_s: u64, more: &[&str]) -> String {
        let time = format!("{for_s} s");
        let usual = [
            "reserve",
            "client",
            "server",
            "--rate",
            "100M",
            "--provision",
            "--json",
            "--for",
            &time,
        ];
        let said: Value = serde_json::from_str(&self.run(&[&usual[..], more].concat())).unwrap();
        said["reservations"][0]["id"].to_string()
    }

    fn reservation(&self, id: &str) -> Value {
        serde_json::from_str(&self.run(&["reservations", id, "--json"])).unwrap()
    }

    /// Waits until a reservation has the expected state.
    fn becomes(&self, id: &str, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + CHANGE_TIMEOUT;
        loop {
            let now = self.reservation(id);
            if is(&now) {
                return now;
            }
            assert!(Instant::now() < deadline, "{what}: {now:#}");
            std::thread::yield_now();
        }
    }

    /// Returns the classes of the interface by which a node reaches another, one per line.
    fn classes(&self, node: &str, to: &str) -> String {
        let interface = self.leaves(node, to).0;
        let mut tc = self.lab.command(node, "tc").unwrap();
        let output = tc
            .args(["class", "show", "dev", &interface])
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns true if the class of a circuit of 100 Mbit/s exists.
    fn is_there(&self, node: &str, to: &str) -> bool {
        let classes = self.classes(node, to);
        let mut htb = classes.lines().filter(|line| line.starts_with("class htb"));
        htb.any(|line| line.contains("rate 100Mbit ceil 100Mbit"))
    }

    fn are_gone(&self) {
        let deadline = Instant::now() + CHANGE_TIMEOUT;
        while self.is_there("west", "server") || self.is_there("middle", "server") {
            assert!(
                Instant::now() < deadline,
                "{} {}",
                self.classes("west", "server"),
                self.classes("middle", "server")
            );
            std::thread::yield_now();
        }
    }
}

fn wait_for_line(child: &mut Child) {
    use std::io::{BufRead, BufReader};
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert!(line.contains("is ready"), "{line}");
}

fn quiet(mut command: Command) -> Command {
    command.stdin(Stdio::null()).env("RUST_LOG", "error");
    command
}

fn is_set_up(reservation: &Value) -> bool {
    reservation["state"]["provision"] == "provisioned"
        && reservation["circuit"]["standing"] == "set-up"
}

#[test]
fn a_reservation_is_provisioned_in_its_time_despite_kills() {
    let Some(mut bed) = Bed::up() else { return };
    let agents = bed.agents();
    bed.start_controller(&agents);
    let id = bed.reserve(SHORT_WINDOW_S, &[]);
    bed.becomes(&id, "set up", is_set_up);
    assert!(
        bed.is_there("west", "server"),
        "{}",
        bed.classes("west", "server")
    );
    assert!(
        bed.is_there("middle", "server"),
        "{}",
        bed.classes("middle", "server")
    );
    // Packets over it are counted. Three connection attempts that are not answered: one packet
    // each.
    let knock = format!(
        "for i in 1 2 3; do : </dev/tcp/{}/9; done; true",
        bed.address("server")
    );
    let mut bash = bed.lab.command("client", "bash").unwrap();
    assert!(
        bash.args(["-c", &knock])
            .stderr(Stdio::null())
            .status()
            .unwrap()
            .success()
    );
    let counted = bed.becomes(&id, "counted", |now| {
        now["pieces"][0]["paths"][0]["carried"]["packets"].as_u64() >= Some(3)
    });
    let said = bed.run(&["reservations", &id]);
    assert!(
        said.contains("circuit: set up") && said.contains("went over it"),
        "{said} {counted}"
    );
    // Killed and restarted within the reserved time: the circuit exists as before, and is torn down
    // at its end.
    let killed = bed.controller.take().unwrap();
    killed.signal("KILL");
    drop(killed);
    assert!(bed.is_there("west", "server"));
    bed.start_controller(&agents);
    bed.becomes(&id, "over", |now| now["state"]["life"] == "passed-end-time");
    bed.are_gone();
}

#[test]
fn released_and_unknown_circuits_are_torn_down() {
    let Some(mut bed) = Bed::up() else { return };
    let agents = bed.agents();
    bed.start_controller(&agents);
    let id = bed.reserve(600, &[]);
    bed.becomes(&id, "set up", is_set_up);
    let released = bed.run(&["reservations", &id, "release"]);
    assert!(released.contains("releas"), "{released}");
    bed.becomes(&id, "released", |now| {
        now["state"]["provision"] == "released"
    });
    bed.are_gone();
    bed.run(&["reservations", &id, "provision"]);
    bed.becomes(&id, "set up again", is_set_up);
    assert!(bed.is_there("west", "server"));
    // A controller without any record takes over, as after the loss of its store.
    drop(bed.controller.take());
    fs::remove_dir_all(bed.path("state")).unwrap();
    bed.start_controller(&agents);
    bed.are_gone();
}

#[test]
fn a_refusing_driver_ends_the_reservation() {
    let Some(mut bed) = Bed::up() else { return };
    let script = bed.path("refuse.sh");
    fs::write(&script, REFUSES).unwrap();
    let setup = format!(
        "[setup.nodes.west]\nagent = \"unix:{}\"\n[setup.nodes.middle]\n\
         program = [\"/bin/sh\", \"{}\"]\n",
        bed.socket("west").display(),
        script.display()
    );
    bed.start_controller(&setup);
    let all = ["--rate", "400M"];
    let id = {
        let usual = [
            "reserve",
            "client",
            "server",
            "--provision",
            "--json",
            "--for",
            "10 min",
        ];
        let said: Value = serde_json::from_str(&bed.run(&[&usual[..], &all[..]].concat())).unwrap();
        said["reservations"][0]["id"].to_string()
    };
    let failed = bed.becomes(&id, "failed", |now| now["state"]["life"] == "failed");
    let why = failed["failure"].as_str().unwrap();
    assert!(
        why.contains("middle") && why.contains("the switch is full"),
        "{why}"
    );
    assert!(
        bed.run(&["reservations", &id])
            .contains("failed: middle, link last"),
        "{why}"
    );
    bed.are_gone();
    // Its bandwidth is available again.
    bed.run(
        &[
            &["reserve", "client", "server", "--for", "10 min"][..],
            &all[..],
        ]
        .concat(),
    );
}

/// A driver that sets up nothing.
const REFUSES: &str = r#"
read -r request
case $request in
*'"do":"set_up"'*) echo '{"answer":"error","kind":"refused","why":"the switch is full"}' ;;
*'"do":"list"'*) echo '{"answer":"parts","parts":[]}' ;;
*) echo '{"answer":"done"}' ;;
esac
"#;
