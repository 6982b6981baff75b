//! Tests with an unmodified program of the distribution on a long path.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use wanbed::{Lab, Overrides, Scenario};

use crate::{OBJECT, lines, reported};

/// Maximum number of connections until one is right-sized at both ends.
const MAX_CONNECTIONS: u32 = 12;

/// A server that ends with the test.
struct Server(std::process::Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns a `drs run` command in a node.
fn drs_run(lab: &Lab, node: &str, log: &Path) -> Command {
    let mut command = lab.command(node, env!("CARGO_BIN_EXE_drs")).unwrap();
    command
        .env("DRS_PRELOAD", &*OBJECT)
        .args(["run", "--log"])
        .arg(log)
        .arg("--");
    command
}

#[test]
fn busybox_and_curl_are_right_sized_where_the_ceiling_is_low() {
    if let Err(why) = Lab::possible() {
        eprintln!("left out: no lab here: {why}");
        return;
    }
    let runs = |program: &str| Command::new(program).arg("--help").output().is_ok();
    if !runs("busybox") || !runs("curl") {
        eprintln!("left out: busybox or curl is not installed");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    fs::create_dir(&root).unwrap();
    fs::write(root.join("file"), vec![7; 8 << 20]).unwrap();
    let scenarios = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let scenario = Scenario::read(scenarios.join("drs-low-ceiling.toml")).unwrap();
    let lab = Lab::up(&scenario, &Overrides::default()).unwrap();
    let [sending, receiving] =
        ["sender", "receiver"].map(|name| folder.path().join(format!("{name}.log")));

    let server = drs_run(&lab, "sender", &sending)
        .args(["busybox", "httpd", "-f", "-p", "8080", "-h"])
        .arg(&root)
        .spawn()
        .unwrap();
    let _server = Server(server);
    let url = format!("http://{}:8080/file", lab.address("sender").unwrap());
    let deadline = Instant::now() + Duration::from_secs(120);
    // Each attempt takes a round trip of the path.
    while !lab
        .command("receiver", "curl")
        .unwrap()
        .args(["--silent", "--head", &url])
        .stdout(Stdio::null())
        .status()
        .unwrap()
        .success()
    {
        assert!(Instant::now() < deadline, "the server does not answer");
    }
    let did = |lines: &[serde_json::Value], what: &str| {
        lines
            .iter()
            .any(|line| line["what"] == what && line["made"].is_u64())
    };
    // A window that leaves in one burst lifts the round trip like a queue, and is then mistaken for
    // one. So the send buffer is not recognized as the limit of every connection.
    for attempt in 1.. {
        let copy = folder.path().join("copy");
        let output = drs_run(&lab, "receiver", &receiving)
            .args(["curl", "--silent", "--show-error", "--output"])
            .arg(&copy)
            .arg(&url)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", reported(&output));
        assert_eq!(
            fs::read(&copy).unwrap(),
            fs::read(root.join("file")).unwrap()
        );
        let logged = lines(&receiving);
        assert!(did(&logged, "receive-buffer"), "{logged:?}");
        let logged = lines(&sending);
        if did(&logged, "send-buffer") {
            break;
        }
        assert!(attempt < MAX_CONNECTIONS, "{logged:?}");
    }
    let (sending, receiving) = (lines(&sending), lines(&receiving));
    let ended = |lines: &[serde_json::Value], name: &str, least: u64| {
        let mut ends = lines.iter().filter(|line| line["event"] == "end");
        ends.any(|line| line[name].as_u64() >= Some(least))
    };
    assert!(ended(&receiving, "received", 8 << 20), "{receiving:?}");
    // The server closes with the last bytes in flight.
    assert!(ended(&sending, "sent", 4 << 20), "{sending:?}");
}
