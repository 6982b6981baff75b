//! What services tell systemd (sd_notify(3)), and how they are replaced without losing a copy.

use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixDatagram;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::stage::*;

/// Time limit of every wait: far more than anything takes.
const WAIT_TIMEOUT: Duration = Duration::from_secs(120);

/// The socket at which systemd receives messages.
struct NotifySocket(UnixDatagram);

impl NotifySocket {
    fn bind(stage: &Stage) -> Self {
        let path = stage.path("notify");
        let _ = std::fs::remove_file(&path);
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
        Self(socket)
    }

    /// Returns the first line of the next message.
    fn next(&self) -> String {
        let mut message = [0; 4096];
        let length = self.0.recv(&mut message).unwrap();
        let text = String::from_utf8(message[..length].to_vec()).unwrap();
        text.lines().next().unwrap().to_owned()
    }
}

/// A service that systemd would have started.
struct Unit {
    child: Child,
    ready: Value,
    out: BufReader<ChildStdout>,
}

impl Unit {
    fn start(stage: &Stage, who: &str, arguments: &[&str]) -> Self {
        let mut command = stage.longhaul(who);
        command.args(arguments).arg("--json");
        Self::start_by(stage, command)
    }

    fn start_by(stage: &Stage, mut command: Command) -> Self {
        let mut child = command
            .env("NOTIFY_SOCKET", stage.path("notify"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let ready = next_line(&mut out);
        Self { child, ready, out }
    }

    /// Replaces the process, and returns its successor's number and first line.
    fn replace(&mut self, notify: &NotifySocket) -> (Successor, Value) {
        signal(&self.child, "USR2");
        let ready = next_line(&mut self.out);
        let message = notify.next();
        let process = message.strip_prefix("MAINPID=");
        let process = process.unwrap_or_else(|| panic!("{message}"));
        (Successor(process.parse().unwrap()), ready)
    }

    fn wait(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A process that a service has started to replace itself.
struct Successor(i32);

impl Successor {
    fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .args([format!("-{name}"), self.0.to_string()])
            .status();
        assert!(sent.unwrap().success());
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        let _ = Command::new("kill")
            .args(["-KILL", &self.0.to_string()])
            .stderr(Stdio::null())
            .status();
    }
}

fn next_line(out: &mut BufReader<ChildStdout>) -> Value {
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
}

/// Writes a policy for depots and off-ramps.
fn write_policy(stage: &Stage) {
    let key = stage.key("me");
    let rule = |to: &str| format!("[[allow]]\nprincipals = [\"{key}\"]\n{to}ports = [\"any\"]\n");
    let policy = rule("to = [\"127.0.0.0/8\"]\nmax_rate = \"100 Mbit/s\"\n")
        + &rule("servers = [\"127.0.0.0/8\"]\n");
    std::fs::write(stage.path("policy.toml"), policy).unwrap();
}

#[test]
fn systemd_hears_of_every_service() {
    let stage = Stage::new();
    let notify = NotifySocket::bind(&stage);
    let key = stage.key("me");
    write_policy(&stage);
    let node = "[depot]\npolicy = \"policy.toml\"\nlisten = [\"127.0.0.1:0\"]\n\
        [offramp]\npolicy = \"policy.toml\"\nlisten = [\"127.0.0.1:0\"]\n";
    std::fs::write(stage.path("node.toml"), node).unwrap();
    let here = "127.0.0.1:0";
    let relay = |command| vec![command, "--listen", here, "--policy", "policy.toml"];
    for arguments in [
        vec!["serve", "--root", "root", "--listen", here, "--read", &key],
        relay("depot"),
        relay("offramp"),
        vec!["onramp", "--socks", here, "--socket", "programs/socket"],
        vec!["control"],
        vec!["agent"],
        vec!["node", "--config", "node.toml"],
    ] {
        let name = arguments[0];
        let mut unit = Unit::start(&stage, name, &arguments);
        assert_eq!(notify.next(), "READY=1", "{name}");
        // An agent for its own user has nothing to read again.
        if name != "agent" {
            signal(&unit.child, "HUP");
            assert_eq!(notify.next(), "RELOADING=1", "{name}");
            assert_eq!(notify.next(), "READY=1", "{name}");
        }
        signal(&unit.child, "TERM");
        let mut message = notify.next();
        // The services of a node may reload one after the other.
        while name == "node" && ["RELOADING=1", "READY=1"].contains(&message.as_str()) {
            message = notify.next();
        }
        assert_eq!(message, "STOPPING=1", "{name}");
        assert_eq!(unit.wait(), Some(0), "{name}");
    }
}

#[test]
fn a_watched_service_says_that_it_is_alive() {
    let stage = Stage::new();
    let notify = NotifySocket::bind(&stage);
    write_policy(&stage);
    let mut command = stage.longhaul("depot");
    command
        .args(["depot", "--json", "--listen", "127.0.0.1:0", "--policy"])
        .arg("policy.toml")
        .env("WATCHDOG_USEC", "50000");
    let _unit = Unit::start_by(&stage, command);
    assert_eq!(notify.next(), "READY=1");
    for _ in 0..3 {
        assert_eq!(notify.next(), "WATCHDOG=1");
    }
}

/// A copy through a depot goes on while the depot and the server are replaced in turn, and new
/// copies are accepted meanwhile.
#[test]
fn no_copy_ends_when_services_are_replaced() {
    let stage = Stage::new();
    let notify = NotifySocket::bind(&stage);
    let key = stage.key("me");
    write_policy(&stage);
    let listen = ["--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"];
    let serve = ["serve", "--root", "root", "--write", &key];
    let mut server = Unit::start(&stage, "server", &[&serve[..], &listen].concat());
    assert_eq!(notify.next(), "READY=1");
    let depot = ["depot", "--policy", "policy.toml", "--drain", "1"];
    let mut depot = Unit::start(&stage, "depot", &[&depot[..], &listen].concat());
    assert_eq!(notify.next(), "READY=1");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let (address, server_key) = (text(&server.ready["address"]), text(&server.ready["key"]));
    let route = text(&depot.ready["addresses"][0]);
    let data = stage.noise("here/data", 64 << 20);
    let target = format!("lh://{address}/");
    let cp = |more: &[&str]| {
        let mut command = stage.longhaul("me");
        command
            .args([
                "cp",
                "--json",
                "--patience",
                "60 s",
                "--host-key",
                &server_key,
            ])
            .args(more)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Running::new(command)
    };
    let mut copy = cp(&["--route", &route, "here/data", &target]);
    copy.until_mid_copy();
    let mut successors = Vec::new();
    for unit in [&mut depot, &mut server] {
        let (successor, ready) = unit.replace(&notify);
        for field in ["address", "addresses", "metrics", "key"] {
            assert_eq!(ready[field], unit.ready[field]);
        }
        std::fs::write(stage.path("here/small"), "content").unwrap();
        let (report, code, errors) = cp(&["--route", &route, "here/small", &target]).report();
        assert_eq!(code, Some(0), "{report} {errors}");
        std::fs::remove_file(stage.path("root/small")).unwrap();
        assert_eq!(unit.wait(), Some(0));
        successors.push(successor);
    }
    let (report, code, errors) = copy.report();
    assert_eq!(code, Some(0), "{report} {errors}");
    assert_eq!(std::fs::read(stage.path("root/data")).unwrap(), data);
    for successor in &successors {
        successor.signal("TERM");
        assert_eq!(notify.next(), "STOPPING=1");
    }
}

#[test]
fn a_service_whose_successor_fails_continues() {
    let stage = Stage::new();
    let notify = NotifySocket::bind(&stage);
    write_policy(&stage);
    let log = stage.path("log");
    let mut command = stage.longhaul("depot");
    command
        .args(["depot", "--json", "--listen", "127.0.0.1:0", "--policy"])
        .arg("policy.toml")
        .stderr(std::fs::File::create(&log).unwrap());
    let mut unit = Unit::start_by(&stage, command);
    assert_eq!(notify.next(), "READY=1");
    std::fs::write(stage.path("policy.toml"), "mistake").unwrap();
    signal(&unit.child, "USR2");
    let began = std::time::Instant::now();
    while !std::fs::read_to_string(&log)
        .unwrap()
        .contains("not replaced")
    {
        assert!(began.elapsed() < WAIT_TIMEOUT);
        std::thread::sleep(Duration::from_millis(20));
    }
    write_policy(&stage);
    let (successor, ready) = unit.replace(&notify);
    assert_eq!(ready["addresses"], unit.ready["addresses"]);
    assert_eq!(unit.wait(), Some(0));
    successor.signal("TERM");
    assert_eq!(notify.next(), "STOPPING=1");
}
