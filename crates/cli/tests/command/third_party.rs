//! Copies between two servers, which the destination's server makes in the client's name.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::resuming::has_journal;
use crate::stage::*;

/// Time limit for records that are written when a copy has ended.
const LIMIT: Duration = Duration::from_secs(120);
/// Size of a file that takes long enough to be interrupted, and of the part that passes before.
const FILE_BYTES: usize = 48 << 20;
const FIRST_BYTES: u64 = 20 << 20;
/// Rule of a server that fetches from loopback.
const FROM_LOOPBACK: [&str; 2] = ["--third-party", "127.0.0.1:*"];

/// A relay that counts what it carries, and lets a limited number of bytes pass.
struct Gate {
    address: SocketAddr,
    state: Arc<GateState>,
}

struct GateState {
    carried: Mutex<u64>,
    limit: Mutex<u64>,
    changed: Condvar,
}

impl Gate {
    /// Listens on loopback, and relays to `server`. Its threads end with the test's process.
    fn start(server: &str, limit: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(GateState {
            carried: Mutex::new(0),
            limit: Mutex::new(limit),
            changed: Condvar::new(),
        });
        let (of_thread, server) = (state.clone(), server.to_owned());
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // A refused connection looks like a closed one.
                let Ok(server) = TcpStream::connect(&server) else {
                    continue;
                };
                let reverse = (server.try_clone().unwrap(), client.try_clone().unwrap());
                for (from, to) in [(client, server), reverse] {
                    let state = of_thread.clone();
                    thread::spawn(move || state.carry(from, to));
                }
            }
        });
        Self { address, state }
    }

    fn carried(&self) -> u64 {
        *self.state.carried.lock().unwrap()
    }

    /// Lets everything pass from now on.
    fn open(&self) {
        *self.state.limit.lock().unwrap() = u64::MAX;
        self.state.changed.notify_all();
    }
}

impl GateState {
    fn carry(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut buffer = [0; 16 << 10];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            let carried = {
                let mut carried = self.carried.lock().unwrap();
                *carried += length as u64;
                *carried
            };
            let limit = self.limit.lock().unwrap();
            drop(
                self.changed
                    .wait_while(limit, |limit| carried > *limit)
                    .unwrap(),
            );
            if to.write_all(&buffer[..length]).is_err() {
                break;
            }
        }
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    }
}

/// Starts a server of the directory `NAME-root` with these grants and options.
fn serve(stage: &Stage, name: &str, listen: &str, more: &[&str]) -> Service {
    let root = format!("{name}-root");
    std::fs::create_dir_all(stage.path(&root)).unwrap();
    stage.key(name);
    let mut command = stage.longhaul(name);
    command
        .args(["serve", "--root", &root, "--listen", listen])
        .args(more);
    stage.service(command, "address")
}

/// Starts a server that lets `me` read and write.
fn serve_me(stage: &Stage, name: &str, more: &[&str]) -> Service {
    let key = stage.key("me");
    let all = [&["--read", &key, "--write", &key], more].concat();
    serve(stage, name, "127.0.0.1:0", &all)
}

fn cp_command(stage: &Stage, arguments: &[&str]) -> Command {
    let mut command = stage.longhaul("me");
    command.args(["cp", "--accept-new"]).args(arguments);
    command
}

fn cp(stage: &Stage, arguments: &[&str]) -> Output {
    cp_command(stage, arguments).output().unwrap()
}

fn assert_code(output: &Output, code: i32, words: &str) {
    let reported = errors(output);
    assert_eq!(output.status.code(), Some(code), "{reported}");
    assert!(reported.contains(words), "{words:?} in {reported:?}");
}

/// Starts a copy with events.
fn start(stage: &Stage, arguments: &[&str]) -> Running {
    let mut command = cp_command(stage, &[&["--json"], arguments].concat());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    Running::new(command)
}

/// Waits until a file of accounts has this many records.
fn records(stage: &Stage, file: &str, number: usize) -> Vec<Value> {
    let begin = Instant::now();
    loop {
        let text = std::fs::read_to_string(stage.path(file)).unwrap_or_default();
        let lines = text.lines().map(serde_json::from_str);
        let found: Vec<Value> = lines.flatten().collect();
        if found.len() >= number || begin.elapsed() > LIMIT {
            return found;
        }
        thread::yield_now();
    }
}

#[test]
fn data_goes_directly_and_both_servers_record_it() {
    let stage = Stage::new();
    let a = serve_me(&stage, "a", &["--accounts", "a.jsonl"]);
    let more = [&FROM_LOOPBACK[..], &["--accounts", "b.jsonl"]].concat();
    let b = serve_me(&stage, "b", &more);
    std::fs::create_dir(stage.path("a-root/tree")).unwrap();
    let large = stage.noise("a-root/tree/large", 20 << 20);
    stage.noise("a-root/tree/small", 1000);
    let gate = Gate::start(&b.address, u64::MAX);
    let from = format!("lh://{}/tree", a.address);
    let to = format!("lh://{}/copy", gate.address);
    let copied = cp(&stage, &["-r", "--json", &from, &to]);
    assert_code(&copied, 0, "");
    let report = String::from_utf8(copied.stdout).unwrap();
    let report: Value = serde_json::from_str(report.lines().last().unwrap()).unwrap();
    assert_eq!(report["files"], 2, "{report}");
    assert_eq!(
        std::fs::read(stage.path("b-root/copy/large")).unwrap(),
        large
    );
    let carried = gate.carried();
    assert!(carried < 1 << 20, "{carried} bytes passed the client");
    let [at_a, at_b] = ["a.jsonl", "b.jsonl"].map(|file| records(&stage, file, 1));
    for (record, direction) in [(&at_a[0], "sent"), (&at_b[0], "received")] {
        assert_eq!(record["key"], stage.key("me"), "{record}");
        assert_eq!(record["delegate"], b.key, "{record}");
        assert_eq!(record["direction"], direction, "{record}");
        assert_eq!(record["result"], "completed", "{record}");
        assert_eq!(record["files"], 2, "{record}");
        assert_eq!(record["from"][0], "127.0.0.1", "{record}");
    }
    assert!(at_a[0]["receipt"].is_string(), "{}", at_a[0]);
    assert_eq!(at_a[0]["receipt"], at_b[0]["receipt"]);
    assert_eq!(at_b[0]["names"][0], "/copy", "{}", at_b[0]);
    // Everything is in place.
    let again = cp(&stage, &["-r", "--json", &format!("{from}/."), &to]);
    assert_code(&again, 0, "");
    let found = records(&stage, "b.jsonl", 2);
    assert_eq!(found[1]["bytes_travelled"], 0, "{}", found[1]);
}

#[test]
fn options_of_a_copy_hold_between_servers() {
    let stage = Stage::new();
    let a = serve_me(&stage, "a", &[]);
    let b = serve_me(&stage, "b", &FROM_LOOPBACK);
    std::fs::create_dir(stage.path("a-root/tree")).unwrap();
    for name in ["keep", "leave.tmp"] {
        stage.noise(&format!("a-root/tree/{name}"), 1000);
    }
    let from = |path: &str| format!("lh://{}/{path}", a.address);
    let to = |path: &str| format!("lh://{}/{path}", b.address);
    let copied = cp(
        &stage,
        &["-r", "--exclude", "*.tmp", &from("tree"), &to("tree")],
    );
    assert_code(&copied, 0, "");
    assert!(stage.path("b-root/tree/keep").exists());
    assert!(!stage.path("b-root/tree/leave.tmp").exists());
    // A file that differs is replaced only if asked, and a missing one is reported.
    stage.noise("b-root/other", 500);
    let arguments = [from("tree/keep"), to("other")];
    let [one, other] = [&arguments[0][..], &arguments[1]];
    assert_code(&cp(&stage, &[one, other]), 1, "already exists");
    assert_code(&cp(&stage, &["--overwrite", one, other]), 0, "");
    assert_eq!(
        std::fs::metadata(stage.path("b-root/other")).unwrap().len(),
        1000
    );
    assert_code(&cp(&stage, &[&from("none"), &to("x")]), 2, "no such file");
    for (flag, value) in [
        ("--route", "127.0.0.1:1"),
        ("--host-key", &a.key),
        ("--by", "+2h"),
    ] {
        let mut command = stage.longhaul("me");
        command.args(["cp", flag, value, one, other]);
        assert_code(&command.output().unwrap(), 2, flag);
    }
    assert_code(&cp(&stage, &["--fall-back", one, other]), 2, "--fall-back");
}

#[test]
fn each_server_decides_for_itself() {
    let stage = Stage::new();
    let me = stage.key("me");
    let [key_a, key_b] = ["a", "b"].map(|name| stage.key(name));
    assert_ne!(key_a, key_b);
    let a = serve_me(&stage, "a", &[]);
    stage.noise("a-root/f", 1000);
    let from = format!("lh://{}/f", a.address);
    let to = |server: &Service| format!("lh://{}/f", server.address);
    let refused = |name: &str, more: &[&str], code: i32, words: &str| {
        let b = serve_me(&stage, name, more);
        assert_code(&cp(&stage, &[&from, &to(&b)]), code, words);
        assert!(!stage.path(&format!("{name}-root/f")).exists());
    };
    // A server fetches nothing unless its operator permits it, and nothing from its own machine
    // unless that is named.
    refused("b1", &[], 1, "--third-party");
    refused("b2", &["--third-party", "*:*"], 1, "does not fetch from");
    refused(
        "b3",
        &["--third-party", "0.0.0.0/0:*"],
        1,
        "does not fetch from",
    );
    refused(
        "b4",
        &["--third-party", "127.0.0.1"],
        1,
        "does not fetch from",
    );
    // The key may read there, and not write.
    let read_only = [&["--read", &me][..], &FROM_LOOPBACK].concat();
    let b = serve(&stage, "b5", "127.0.0.1:0", &read_only);
    assert_code(&cp(&stage, &[&from, &to(&b)]), 4, "does not let key");
    // The source's server knows the one that fetches, and not the client.
    let knows_b = serve(
        &stage,
        "a2",
        "127.0.0.1:0",
        &["--read", &key_b, "--read", &key_a],
    );
    stage.noise("a2-root/f", 1000);
    let b = serve_me(&stage, "b", &FROM_LOOPBACK);
    let from = format!("lh://{}/f", knows_b.address);
    // The client cannot ask for the key of a server that does not know it.
    let known = format!("{} {}\n", knows_b.address, knows_b.key);
    let file = stage.path("me/known_hosts");
    let before = std::fs::read_to_string(&file).unwrap_or_default();
    std::fs::write(&file, before + &known).unwrap();
    assert_code(&cp(&stage, &[&from, &to(&b)]), 4, &me);
    assert!(!stage.path("b-root/f").exists());
}

/// A copy of one large file between two servers, with a gate before the source.
struct LongCopy {
    stage: Stage,
    a: Service,
    b: Service,
    gate: Gate,
    data: Vec<u8>,
}

impl LongCopy {
    fn new() -> Self {
        Self::from(|stage| serve_me(stage, "a", &[]))
    }

    /// Copies from the server that `serve_source` starts, of the directory `a-root`.
    fn from(serve_source: impl FnOnce(&Stage) -> Service) -> Self {
        let stage = Stage::new();
        let a = serve_source(&stage);
        let more = [&FROM_LOOPBACK[..], &["--accounts", "b.jsonl"]].concat();
        let b = serve_me(&stage, "b", &more);
        let data = stage.noise("a-root/f", FILE_BYTES);
        let gate = Gate::start(&a.address, FIRST_BYTES);
        Self {
            stage,
            a,
            b,
            gate,
            data,
        }
    }

    fn paths(&self) -> [String; 2] {
        let from = format!("lh://{}/f", self.gate.address);
        [from, format!("lh://{}/f", self.b.address)]
    }

    /// Starts the copy, and waits until some of it has arrived and is recorded, and no more comes.
    fn start(&self) -> Running {
        let [from, to] = self.paths();
        let mut copy = start(&self.stage, &["--patience", "60s", &from, &to]);
        copy.until(|event| {
            event["event"] == "progress"
                && event["bytes"].as_u64() >= Some(FIRST_BYTES / 2)
                && has_journal(&self.stage.path("b-root"))
        });
        copy
    }

    /// Repeats the command. Returns its events.
    fn repeat(&self) -> Vec<Value> {
        self.gate.open();
        let [from, to] = self.paths();
        let mut copy = start(&self.stage, &[&from, &to]);
        copy.until(|event| event["event"] == "report");
        let events = std::mem::take(&mut copy.events);
        assert_eq!(copy.child.wait().unwrap().code(), Some(0), "{events:?}");
        self.assert_copied();
        events
    }

    fn assert_copied(&self) {
        assert!(std::fs::read(self.stage.path("b-root/f")).unwrap() == self.data);
        assert!(no_temps(&self.stage.path("b-root")));
    }
}

#[test]
fn a_killed_client_ends_the_copy_which_resumes() {
    let copy = LongCopy::new();
    let mut running = copy.start();
    running.child.kill().unwrap();
    running.child.wait().unwrap();
    let ended = records(&copy.stage, "b.jsonl", 1);
    assert_eq!(ended[0]["result"], "abandoned", "{}", ended[0]);
    let events = copy.repeat();
    let resumed = events.iter().find(|event| event["event"] == "resumed");
    assert!(resumed.is_some(), "{events:?}");
}

#[test]
fn a_killed_server_breaks_the_copy_off_which_resumes() {
    let mut copy = LongCopy::new();
    let running = copy.start();
    copy.b.kill();
    let (report, code, errors) = running.report();
    assert_eq!(code, Some(5), "{errors}");
    assert_eq!(report["ok"], false, "{report}");
    let key = copy.stage.key("me");
    let grants = ["--read", &key, "--write", &key];
    let more = [&grants[..], &FROM_LOOPBACK].concat();
    copy.b = serve(&copy.stage, "b", &copy.b.address.clone(), &more);
    copy.repeat();
}

#[test]
fn grant_withdrawn_at_the_source_ends_the_copy() {
    let copy = LongCopy::from(|stage| {
        let grant = format!("[[grant]]\nkey = \"{}\"\nread = [\"/\"]\n", stage.key("me"));
        std::fs::write(stage.path("a.toml"), grant).unwrap();
        let options = ["--grants", "a.toml", "--accounts", "a.jsonl"];
        serve(stage, "a", "127.0.0.1:0", &options)
    });
    let running = copy.start();
    std::fs::write(copy.stage.path("a.toml"), "").unwrap();
    copy.a.hang_up();
    let ended = records(&copy.stage, "a.jsonl", 1);
    assert_eq!(ended[0]["result"], "revoked", "{}", ended[0]);
    copy.gate.open();
    let (report, code, errors) = running.report();
    assert_eq!(code, Some(4), "{report} {errors}");
}

#[test]
fn a_killed_source_is_waited_for() {
    let mut copy = LongCopy::new();
    let mut running = copy.start();
    copy.a.kill();
    running.until(|event| event["event"] == "stream_lost");
    let key = copy.stage.key("me");
    let address = copy.a.address.clone();
    copy.a = serve(&copy.stage, "a", &address, &["--read", &key]);
    copy.gate.open();
    let (report, code, errors) = running.report();
    assert_eq!(code, Some(0), "{errors}");
    assert_eq!(report["ok"], true, "{report}");
    copy.assert_copied();
}
