//! `longhaul node`: several services in one process, its checks, and joining a controller.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::ClosedPort;
use crate::control::Controller;
use crate::stage::*;

/// Time limit of every wait: far more than anything takes.
const WAIT_TIMEOUT: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A running node of a server, a depot and an off-ramp.
struct Node {
    child: Child,
    server: String,
    depot: String,
    key: String,
    page: String,
    // Kept open so that its writes do not fail.
    _out: BufReader<ChildStdout>,
}

impl Node {
    /// Starts a node whose server serves `root`.
    fn start(stage: &Stage) -> Self {
        let mut child = stage
            .longhaul("node")
            .args(["node", "--json", "--config", "node.toml"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut ready = || {
            let mut line = String::new();
            out.read_line(&mut line).unwrap();
            serde_json::from_str::<Value>(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
        };
        let lines = [ready(), ready(), ready(), ready()];
        let service = |name: &str| {
            let line = lines.iter().find(|line| line["service"] == name);
            line.unwrap_or_else(|| panic!("no {name}: {lines:?}"))
        };
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        assert!(service("offramp")["addresses"][0].is_string());
        Self {
            server: text(&service("serve")["address"]),
            depot: text(&service("depot")["addresses"][0]),
            key: text(&service("serve")["key"]),
            page: text(&service("node")["metrics"]),
            child,
            _out: out,
        }
    }

    /// Returns the status code and the text of a page, if it answers.
    fn get(&self, path: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect(&self.page).ok()?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", self.page);
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, text) = answer.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some((status, text.to_owned()))
    }

    /// Waits until the metrics have a line.
    fn wait_for_metric(&self, line: &str) {
        let began = Instant::now();
        loop {
            let (status, page) = self.get("/metrics").unwrap();
            assert_eq!(status, 200, "{page}");
            if page.lines().any(|found| found == line) {
                assert!(page.ends_with("# EOF\n") && page.matches("# EOF").count() == 1);
                return;
            }
            assert!(began.elapsed() < WAIT_TIMEOUT, "no {line} in\n{page}");
            thread::sleep(POLL_INTERVAL);
        }
    }

    fn route(&self) -> [&str; 4] {
        ["--route", &self.depot, "--host-key", &self.key]
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Writes the files of a node. Its depot relays at most at `rate`.
fn write_files(stage: &Stage, rate: &str) {
    let key = stage.key("me");
    write_grants(stage, &key, "write");
    let rule = |to: &str| format!("[[allow]]\nprincipals = [\"{key}\"]\n{to}ports = [\"any\"]\n");
    let policy = format!(
        "{}max_rate = \"{rate}\"\n{}",
        rule("to = [\"127.0.0.0/8\"]\n"),
        rule("servers = [\"127.0.0.0/8\"]\n"),
    );
    std::fs::write(stage.path("policy.toml"), policy).unwrap();
    let node = "[node]\nmetrics = \"127.0.0.1:0\"\n\
        [serve]\nroot = \"root\"\ngrants = \"grants.toml\"\nlisten = \"127.0.0.1:0\"\n\
        drain = \"10min\"\n\
        [depot]\npolicy = \"policy.toml\"\nlisten = [\"127.0.0.1:0\"]\ndrain = \"10min\"\n\
        [offramp]\npolicy = \"policy.toml\"\nlisten = [\"127.0.0.1:0\"]\n";
    std::fs::write(stage.path("node.toml"), node).unwrap();
}

fn write_grants(stage: &Stage, key: &str, access: &str) {
    let grants = format!("[[grant]]\nkey = \"{key}\"\n{access} = [\"/\"]\n");
    std::fs::write(stage.path("grants.toml"), grants).unwrap();
}

fn output_of(stage: &Stage, arguments: &[&str]) -> Output {
    stage.longhaul("node").args(arguments).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_node_copies_and_reloads() {
    let stage = Stage::new();
    write_files(&stage, "10 Gbit/s");
    let node = Node::start(&stage);
    assert_eq!(node.get("/readyz"), Some((200, "ready\n".to_owned())));
    assert_eq!(node.get("/healthz"), Some((200, "ok\n".to_owned())));
    let sent = stage.noise("here/file", 300_000);
    let copy = |name: &str| {
        let to = format!("lh://{}/{name}", node.server);
        let mut command = stage.longhaul("me");
        command
            .arg("cp")
            .args(node.route())
            .args(["here/file", &to]);
        command.output().unwrap()
    };
    let copied = copy("first");
    assert_eq!(copied.status.code(), Some(0), "{}", errors(&copied));
    assert_eq!(std::fs::read(stage.path("root/first")).unwrap(), sent);
    node.wait_for_metric("longhaul_serve_copies_ended_total{result=\"completed\"} 1");
    node.wait_for_metric("longhaul_serve_copied_bytes_total{direction=\"received\"} 300000");
    node.wait_for_metric("longhaul_serve_sessions_active 0");
    node.wait_for_metric("longhaul_depot_sessions_active 0");
    node.wait_for_metric("longhaul_offramp_sessions_active 0");

    // The depot reads its policy again, and the server its grants.
    write_grants(&stage, &stage.key("me"), "read");
    signal(&node.child, "HUP");
    node.wait_for_metric("longhaul_serve_grants_reloads_total{outcome=\"loaded\"} 1");
    node.wait_for_metric("longhaul_depot_policy_reloads_total{outcome=\"loaded\"} 1");
    let refused = copy("second");
    assert_eq!(refused.status.code(), Some(4), "{}", errors(&refused));
}

#[test]
fn a_node_drains_before_it_ends() {
    let stage = Stage::new();
    write_files(&stage, "8 Mbit/s");
    let mut node = Node::start(&stage);
    let sent = stage.noise("here/file", 4 << 20);
    let to = format!("lh://{}/file", node.server);
    let mut command = stage.longhaul("me");
    command
        .args(["cp", "--json", "--streams", "1"])
        .args(node.route())
        .args(["here/file", &to])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut copy = Running::new(command);
    copy.until_mid_copy();
    signal(&node.child, "TERM");
    let began = Instant::now();
    while node.get("/readyz").is_some_and(|(status, _)| status == 200) {
        assert!(began.elapsed() < WAIT_TIMEOUT, "it does not drain");
        thread::sleep(POLL_INTERVAL);
    }
    let (report, code, errors) = copy.report();
    assert_eq!(code, Some(0), "{report} {errors}");
    assert_eq!(std::fs::read(stage.path("root/file")).unwrap(), sent);
    assert_eq!(node.child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_check_names_what_is_wrong() {
    let stage = Stage::new();
    write_files(&stage, "1 Gbit/s");
    let check = ["node", "check", "--config", "node.toml"];
    let good = output_of(&stage, &check);
    assert_eq!(
        good.status.code(),
        Some(0),
        "{} {}",
        text(&good),
        errors(&good)
    );
    for line in [
        "[serve]",
        "[depot]",
        "[offramp]",
        "  policy policy.toml: 2 rules",
    ] {
        assert!(
            text(&good).lines().any(|found| found == line),
            "{}",
            text(&good)
        );
    }
    std::fs::remove_file(stage.path("policy.toml")).unwrap();
    std::fs::remove_dir(stage.path("root")).unwrap();
    let wrong = output_of(&stage, &check);
    assert_eq!(wrong.status.code(), Some(2), "{}", text(&wrong));
    let shown = text(&wrong);
    assert!(
        shown.contains("\n  wrong: policy.toml: cannot read "),
        "{shown}"
    );
    assert!(shown.contains("\n  wrong: root root: "), "{shown}");
    // A mistake in the file itself prevents both.
    std::fs::write(stage.path("node.toml"), "[serve]\nroots = \"root\"\n").unwrap();
    for arguments in [&check[..], &["node", "--config", "node.toml"]] {
        let refused = output_of(&stage, arguments);
        assert_eq!(refused.status.code(), Some(2));
        let expected = "longhaul: node.toml:2: [serve] has no key roots: its keys are the options \
                        of longhaul serve\n";
        assert_eq!(errors(&refused), expected);
    }
}

#[test]
fn a_depot_joins_a_controller_that_accepts_its_key() {
    let stage = Stage::new();
    let controller = Controller::start(&stage, &["--listen", "127.0.0.1:0"]);
    let url = controller.url();
    let join = |url: &str| {
        let key = ["--host-key", &controller.key];
        let own = ["--name", "west", "--advertise", "192.0.2.1"];
        let file = ["--config", "node.toml"];
        output_of(
            &stage,
            &[&["node", "join", url], &key[..], &own, &file].concat(),
        )
    };
    let key = stage.key("node");
    let refused = join(&url);
    assert_eq!(refused.status.code(), Some(4), "{}", errors(&refused));
    assert!(text(&refused).contains(&format!("the depot's key is {key}\n")));
    let advice = format!("longhaul control grant {key} depot --name west");
    assert!(errors(&refused).contains(&advice), "{}", errors(&refused));

    let granted = stage
        .longhaul("control")
        .args(["control", "grant", &key, "depot"])
        .output()
        .unwrap();
    assert!(granted.status.success(), "{}", errors(&granted));
    let joined = join(&url);
    assert_eq!(joined.status.code(), Some(0), "{}", errors(&joined));
    let shown = text(&joined);
    for line in [
        "the controller accepts it as west, at 192.0.2.1:7510".to_owned(),
        "register = \"west\"".to_owned(),
        "advertise = [\"192.0.2.1:7510\"]".to_owned(),
        format!("controller = \"{url}\""),
        format!("controller-key = \"{}\"", controller.key),
        format!("controllers = [\"{}\"]", controller.key),
    ] {
        assert!(
            shown.lines().any(|found| found == line),
            "{line} in\n{shown}"
        );
    }
    // The proposed lines are a section that the node accepts.
    let begin = shown.find("register = ").unwrap();
    let lines = &shown[begin..begin + shown[begin..].find("\n\n").unwrap()];
    write_policy(&stage.path("policy.toml"), &shown, &stage.key("me"));
    let file = format!("[depot]\npolicy = \"policy.toml\"\nlisten = [\"127.0.0.1:0\"]\n{lines}\n");
    std::fs::write(stage.path("node.toml"), file).unwrap();
    let checked = output_of(&stage, &["node", "check", "--config", "node.toml"]);
    assert_eq!(
        checked.status.code(),
        Some(0),
        "{}{}",
        text(&checked),
        errors(&checked)
    );
    assert!(text(&checked).contains(&format!("  registers as west with {url}\n")));

    let nowhere = ClosedPort::new();
    let gone = join(&format!("https://{}", nowhere.address));
    assert_eq!(gone.status.code(), Some(3), "{}", errors(&gone));
}

/// Writes a policy with the line that `node join` proposed.
fn write_policy(file: &Path, shown: &str, key: &str) {
    let controllers = shown
        .lines()
        .find(|line| line.starts_with("controllers = "));
    let rule = format!("[[allow]]\nprincipals = [\"{key}\"]\nto = [\"192.0.2.0/24\"]\n");
    std::fs::write(file, format!("{}\n{rule}", controllers.unwrap())).unwrap();
}
