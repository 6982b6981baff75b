//! The controller as a process: acknowledged data survives every kill, and no connection is refused
//! during a restart.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::postgres::Postgres;
use crate::stage::*;

/// Measurements per batch.
const BATCH: u64 = 50;
/// Simultaneous reporters.
const REPORTERS: u64 = 4;
/// Acknowledged batches before the controller is killed.
const ACKNOWLEDGED: usize = 30;
/// Start of the measurements, in milliseconds before now. Single measurements older than a week are
/// merged.
const BEFORE_NOW_MS: u64 = 3_600_000;
/// Number of kills.
const ROUNDS: u64 = 4;

pub struct Controller {
    child: Child,
    out: BufReader<ChildStdout>,
    pub socket: PathBuf,
    pub key: String,
    /// Address for other machines, if it listens for them.
    https: Option<String>,
}

impl Controller {
    pub fn start(stage: &Stage, more: &[&str]) -> Self {
        Self::start_as(stage, "control", more)
    }

    /// Starts a controller with a directory of its own.
    pub fn start_as(stage: &Stage, who: &str, more: &[&str]) -> Self {
        let mut child = stage
            .longhaul(who)
            .args(["control", "--json"])
            .args(more)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let ready = ready(&mut out);
        let text = |field: &str| ready[field].as_str().map(str::to_owned);
        Self {
            child,
            out,
            socket: text("socket").unwrap().into(),
            key: text("key").unwrap(),
            https: text("https"),
        }
    }

    /// Returns its URL for other machines.
    pub fn url(&self) -> String {
        format!("https://{}", self.https.as_ref().unwrap())
    }

    /// Restarts it with its sockets, so that it reads its configuration again.
    pub fn restart(&mut self) {
        signal(&self.child, "USR2");
        ready(&mut self.out);
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Signals the end when dropped, so that reporters stop even if the test fails.
struct EndSignal<'a>(&'a AtomicBool);

impl Drop for EndSignal<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns the moment of the first measurement.
fn base() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(now.as_millis()).unwrap() - BEFORE_NOW_MS
}

/// Reads the line that says that it is ready.
fn ready(out: &mut BufReader<ChildStdout>) -> Value {
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    let value: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"));
    assert_eq!(value["event"], "ready");
    value
}

/// Sends a request. Returns the status and the answer, or `None` if it broke off. With
/// `must_connect`, the connection itself must succeed.
pub fn ask(
    socket: &Path,
    must_connect: bool,
    method: &str,
    path: &str,
    body: &str,
) -> Option<(u16, Value)> {
    let stream = UnixStream::connect(socket);
    assert!(stream.is_ok() || !must_connect, "{stream:?}");
    let mut stream = stream.ok()?;
    let length = body.len();
    let request = format!(
        "{method} /api/v1{path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, serde_json::from_str(body).unwrap_or(Value::Null)))
}

/// Posts batches until one is not acknowledged. Each measurement has its own moment; `from`
/// identifies the round and the reporter.
fn post(
    socket: &Path,
    from: &str,
    base: u64,
    is_over: &AtomicBool,
    acknowledged: &mpsc::Sender<(String, u64)>,
) {
    for batch in 0.. {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        let measurements: Vec<Value> = (batch * BATCH..(batch + 1) * BATCH)
            .map(|at| {
                json!({
                    "from": from, "to": "z", "quantity": "rate", "at_ms": base + at, "value": 1.0,
                    "source": "relay"
                })
            })
            .collect();
        let body = json!({"measurements": measurements}).to_string();
        match ask(socket, false, "POST", "/measurements", &body) {
            Some((200, answer)) => {
                assert_eq!(answer["kept"], BATCH);
                if acknowledged.send((from.to_owned(), batch)).is_err() {
                    return;
                }
            }
            _ => return,
        }
    }
}

/// Returns all stored measurements as (from, moment), and asserts that each is stored once.
fn kept(socket: &Path, base: u64) -> BTreeSet<(String, u64)> {
    let (mut found, mut after) = (BTreeSet::new(), "0".to_owned());
    loop {
        let path = format!("/measurements?limit=5000&after={after}");
        let mut page = Value::Null;
        // After a crash of its store, a controller connects to it again.
        until("the measurements are listed", || {
            match ask(socket, true, "GET", &path, "") {
                Some((200, listed)) => {
                    page = listed;
                    true
                }
                Some((503, _)) | None => false,
                Some(other) => panic!("{other:?}"),
            }
        });
        for item in page["items"].as_array().unwrap() {
            let one = (
                item["from"].as_str().unwrap().to_owned(),
                item["at_ms"].as_u64().unwrap() - base,
            );
            assert!(found.insert(one), "kept twice: {item}");
        }
        match page["next"].as_str() {
            Some(next) => next.clone_into(&mut after),
            None => return found,
        }
    }
}

/// Posts from several reporters, calls `blow` meanwhile, and returns what was acknowledged.
fn acknowledged_until(
    socket: &Path,
    round: u64,
    base: u64,
    blow: impl FnOnce(),
) -> Vec<(String, u64)> {
    let (sender, receiver) = mpsc::channel();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let over = EndSignal(&is_over);
        for reporter in 0..REPORTERS {
            let (sender, is_over) = (sender.clone(), &is_over);
            scope.spawn(move || {
                post(
                    socket,
                    &format!("r{round}-{reporter}"),
                    base,
                    is_over,
                    &sender,
                )
            });
        }
        drop(sender);
        let mut acknowledged: Vec<(String, u64)> = receiver.iter().take(ACKNOWLEDGED).collect();
        assert_eq!(acknowledged.len(), ACKNOWLEDGED);
        blow();
        drop(over);
        acknowledged.extend(receiver.iter());
        acknowledged
    })
}

fn all_of(acknowledged: &[(String, u64)]) -> impl Iterator<Item = (String, u64)> + '_ {
    acknowledged.iter().flat_map(|(from, batch)| {
        (batch * BATCH..(batch + 1) * BATCH).map(move |at| (from.clone(), at))
    })
}

fn nothing_acknowledged_is_lost_on_kill(more: &[&str]) {
    let stage = Stage::new();
    let (mut acknowledged, base) = (Vec::new(), base());
    for round in 0..ROUNDS {
        let mut controller = Controller::start(&stage, more);
        let socket = controller.socket.clone();
        acknowledged.extend(acknowledged_until(&socket, round, base, || {
            controller.kill()
        }));
        let again = Controller::start(&stage, more);
        let kept = kept(&again.socket, base);
        let lost: Vec<(String, u64)> = all_of(&acknowledged)
            .filter(|one| !kept.contains(one))
            .collect();
        assert!(
            lost.is_empty(),
            "round {round}: {} lost, as {:?}",
            lost.len(),
            lost.first()
        );
        // A batch is stored as a whole, or not at all.
        assert_eq!(kept.len() as u64 % BATCH, 0);
    }
}

#[test]
fn measurements_in_sqlite_survive_kill_9() {
    nothing_acknowledged_is_lost_on_kill(&[]);
}

#[test]
fn measurements_in_postgresql_survive_kill_9() {
    let server = Postgres::start();
    server.create_database("control");
    nothing_acknowledged_is_lost_on_kill(&["--store", &server.url_of("control")]);
}

#[test]
fn measurements_survive_the_death_of_postgresql() {
    let stage = Stage::new();
    let mut server = Postgres::start();
    server.create_database("control");
    let url = server.url_of("control");
    let controller = Controller::start(&stage, &["--store", &url]);
    let base = base();
    let acknowledged =
        acknowledged_until(&controller.socket, 0, base, || server.crash_and_restart());
    let kept = kept(&controller.socket, base);
    assert!(all_of(&acknowledged).all(|one| kept.contains(&one)));
}

/// Under load it restarts in the same process. Connections made meanwhile wait, and acknowledged
/// data is stored.
#[test]
fn no_connection_is_refused_during_a_restart() {
    let stage = Stage::new();
    let mut controller = Controller::start(&stage, &[]);
    let (process, socket) = (controller.child.id(), controller.socket.clone());
    let (done, base) = (AtomicBool::new(false), base());
    let posted = thread::scope(|scope| {
        let over = EndSignal(&done);
        let posting = scope.spawn(|| {
            let mut posted = 0_u64;
            while !done.load(Ordering::Relaxed) {
                let body = json!({"measurements": [{
                    "from": "a", "to": "b", "quantity": "rtt", "at_ms": base + posted, "value": 0.1,
                    "source": "probe"
                }]});
                // A request that broke off is repeated, as by any client; it may have been stored
                // already.
                if let Some((status, answer)) =
                    ask(&socket, true, "POST", "/measurements", &body.to_string())
                {
                    assert_eq!(status, 200, "{answer}");
                    posted += 1;
                }
            }
            posted
        });
        for _ in 0..2 {
            signal(&controller.child, "USR2");
            ready(&mut controller.out);
        }
        assert_eq!(ask(&socket, true, "GET", "/controller", "").unwrap().0, 200);
        drop(over);
        posting.join().unwrap()
    });
    assert_eq!(controller.child.id(), process);
    assert!(controller.child.try_wait().unwrap().is_none());
    assert_eq!(kept(&socket, base).len() as u64, posted);
    signal(&controller.child, "TERM");
    assert_eq!(controller.child.wait().unwrap().code(), Some(0));
    assert!(!socket.exists());
}

#[test]
fn roles_are_granted_listed_and_taken_away() {
    let stage = Stage::new();
    let _controller = Controller::start(&stage, &["--listen", "127.0.0.1:0"]);
    let key = stage.key("ana");
    let run = |arguments: &[&str]| {
        stage
            .longhaul("control")
            .arg("control")
            .args(arguments)
            .output()
            .unwrap()
    };
    assert!(
        run(&["grant", &key, "depot", "--name", "west"])
            .status
            .success()
    );
    let listed = String::from_utf8(run(&["principals"]).stdout).unwrap();
    assert!(
        listed.contains(&key) && listed.contains("west") && listed.contains("depot"),
        "{listed}"
    );
    let wrong = run(&["grant", &key, "king"]);
    assert!(
        errors(&wrong).contains("there is no role king"),
        "{}",
        errors(&wrong)
    );
    assert!(run(&["revoke", &key]).status.success());
    let listed: Value = serde_json::from_slice(&run(&["principals", "--json"]).stdout).unwrap();
    assert_eq!(listed["items"], json!([]));
    let second = run(&[]);
    assert!(
        errors(&second).contains("a controller is running already"),
        "{}",
        errors(&second)
    );
}

#[test]
fn a_map_is_imported_and_printed() {
    let stage = Stage::new();
    let run = |arguments: &[&str]| {
        stage
            .longhaul("control")
            .arg("map")
            .args(arguments)
            .output()
            .unwrap()
    };
    let file = stage.path("map.toml");
    let text = "[[site]]\nname = \"west\"\n\n[[site]]\nname = \"east\"\n\n[[link]]\n\
        between = [\"west\", \"east\"]\ncapacity = \"10 Gbit/s\"\n";
    std::fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();
    assert!(errors(&run(&[])).contains("no controller runs here"));
    // Checking a file needs no controller.
    let checked = run(&["import", "--check", file]);
    assert!(checked.status.success(), "{}", errors(&checked));
    // Later files may name sites of the first.
    let more = stage.path("hosts.toml");
    let host = "[[host]]\nname = \"store\"\nsite = \"east\"\naddresses = [\"192.0.2.7\"]\n";
    std::fs::write(&more, host).unwrap();
    let both = run(&["import", "--check", file, more.to_str().unwrap()]);
    assert!(
        both.stdout
            .starts_with(b"2 sites, 0 depots, 1 hosts, 1 links"),
        "{}",
        errors(&both)
    );
    let _controller = Controller::start(&stage, &[]);
    let imported = run(&["import", file]);
    let said = String::from_utf8(imported.stdout.clone()).unwrap();
    assert!(
        said.starts_with("2 sites, 0 depots, 0 hosts, 1 links"),
        "{said} {}",
        errors(&imported)
    );
    let shown = String::from_utf8(run(&[]).stdout).unwrap();
    assert!(
        shown.contains("west") && shown.contains("10 Gbit/s"),
        "{shown}"
    );
    let known: Value = serde_json::from_slice(&run(&["--json"]).stdout).unwrap();
    assert_eq!(known["map"]["sites"][1]["name"], "east");
    // The printed map can be imported again.
    let json = stage.path("map.json");
    std::fs::write(&json, known.to_string()).unwrap();
    assert!(run(&["import", json.to_str().unwrap()]).status.success());
    let wrong = stage.path("map.yaml");
    std::fs::write(&wrong, "").unwrap();
    assert!(
        errors(&run(&["import", wrong.to_str().unwrap()]))
            .contains("the name of a map must end in")
    );
}
