//! The agent: jobs are submitted, followed, paused, interrupted and resumed, whichever process is
//! killed.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::Value;

use crate::common::write_program;
use crate::stage::*;

const LARGE_BYTES: usize = 30_000_000;
/// Rate of a depot on the route while a copy is to be interrupted. At lower rates, data on its way
/// would arrive for so long after an interruption that the next attempt could not resume.
const SLOW: Option<&str> = Some("30 Mbit/s");

/// A running agent. Its copies end with it.
pub struct Agent {
    child: Child,
    // Kept open so that its writes do not fail.
    _out: BufReader<ChildStdout>,
}

impl Agent {
    fn start(stage: &Stage) -> Self {
        Self::start_with(stage, &[])
    }

    fn start_with(stage: &Stage, more: &[&str]) -> Self {
        Self::start_by(stage.longhaul("me"), more)
    }

    /// Starts it with this command and more arguments of `longhaul agent`.
    pub fn start_by(mut command: Command, more: &[&str]) -> Self {
        let mut child = command
            .args(["agent", "--json"])
            .args(more)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        assert!(line.contains("\"ready\""), "{line}");
        Self { child, _out: out }
    }

    /// Kills it with SIGKILL.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends it with a signal.
    pub fn end(mut self, name: &str) {
        signal(&self.child, name);
        self.child.wait().unwrap();
    }

    /// Ends it with SIGTERM, and returns its exit code.
    fn terminate(mut self) -> Option<i32> {
        signal(&self.child, "TERM");
        self.child.wait().unwrap().code()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a command that asks the agent. Returns its JSON answer and exit code.
fn ask(stage: &Stage, arguments: &[&str]) -> (Value, Option<i32>) {
    let output = stage
        .longhaul("me")
        .args(arguments)
        .arg("--json")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let last = text.lines().last().unwrap_or_default();
    let value = serde_json::from_str(last).unwrap_or_else(|_| Value::String(errors(&output)));
    (value, output.status.code())
}

/// Submits a copy, and returns the number of its job.
fn submit(stage: &Stage, arguments: &[&str]) -> String {
    let (job, code) = ask(stage, &[&["submit"], arguments].concat());
    assert_eq!(code, Some(0), "{job}");
    job["id"].to_string()
}

/// Follows a job to its end. Returns the job and the exit code.
fn end(stage: &Stage, id: &str) -> (Value, Option<i32>) {
    ask(stage, &["job", id, "--follow"])
}

/// Follows a job until `pleases` accepts a reported state.
fn until(stage: &Stage, id: &str, pleases: impl Fn(&Value) -> bool) {
    let mut command: Command = stage.longhaul("me");
    let mut child = command
        .args(["job", id, "--follow", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let found = lines
        .map(|line| serde_json::from_str(&line.unwrap()).unwrap())
        .any(|value: Value| pleases(&value));
    let _ = child.kill();
    let _ = child.wait();
    assert!(found, "it ended before that");
}

/// Returns true if part of the data has arrived.
fn some_is_there(reported: &Value) -> bool {
    reported["progress"]["bytes"]
        .as_u64()
        .is_some_and(|bytes| bytes > 0)
}

/// Starts a server, and a depot `d` that limits the rate. Returns them with the arguments of a
/// copy, and its data.
fn slow_copy(stage: &Stage) -> (Service, Service, Vec<String>, Vec<u8>) {
    let data = stage.noise("here/large", LARGE_BYTES);
    let depot = stage.depot("d", SLOW);
    let server = stage.serve_at_own_address();
    let to = format!("lh://{}/large", server.address);
    let arguments = [
        "--route",
        &depot.address,
        "--host-key",
        &server.key,
        "here/large",
        &to,
    ];
    let arguments = arguments.map(str::to_owned).to_vec();
    (server, depot, arguments, data)
}

fn words(arguments: &[String]) -> Vec<&str> {
    arguments.iter().map(String::as_str).collect()
}

#[test]
fn jobs_work_from_any_directory() {
    let stage = Stage::new();
    let data = stage.noise("here/file", 300_000);
    let _agent = Agent::start(&stage);
    let id = submit(&stage, &["here/file", "root/", "--label", "first"]);
    let (job, code) = end(&stage, &id);
    assert_eq!(
        (job["state"].as_str(), code),
        (Some("done"), Some(0)),
        "{job}"
    );
    assert_eq!(std::fs::read(stage.path("root/file")).unwrap(), data);
    let (report, _) = ask(&stage, &["job", &id, "--report"]);
    assert_eq!(
        (report["bytes"].as_u64(), report["ok"].as_bool()),
        (Some(300_000), Some(true))
    );
    // People see the same in words.
    let shown = stage.longhaul("me").args(["jobs"]).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(
        shown.starts_with("1 done\n") && shown.contains("first"),
        "{shown}"
    );
    let (_, code) = ask(&stage, &["job", "99"]);
    assert_eq!(code, Some(1));
}

/// Ends the agent that a command of this stage has started.
fn end_started_agent(stage: &Stage) {
    let home = format!("LONGHAUL_HOME={}", stage.path("me").display());
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    for number in numbers {
        let read = |name: &str| std::fs::read(format!("/proc/{number}/{name}")).unwrap_or_default();
        let is_agent = read("cmdline")
            .split(|&byte| byte == 0)
            .any(|word| word == b"--detach");
        let is_own = read("environ")
            .split(|&byte| byte == 0)
            .any(|word| word == home.as_bytes());
        if is_agent && is_own {
            let process = rustix::process::Pid::from_raw(number).unwrap();
            rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
        }
    }
}

#[test]
fn jobs_starts_the_agent() {
    let stage = Stage::new();
    let shown = stage.longhaul("me").args(["jobs"]).output().unwrap();
    let again = stage
        .longhaul("me")
        .args(["jobs", "--state", "failed"])
        .output()
        .unwrap();
    end_started_agent(&stage);
    let text = |output: &std::process::Output| String::from_utf8(output.stdout.clone()).unwrap();
    assert_eq!(shown.status.code(), Some(0), "{}", errors(&shown));
    assert!(
        text(&shown).starts_with("no jobs: longhaul submit"),
        "{}",
        text(&shown)
    );
    assert!(
        text(&again).ends_with("no jobs are failed\n"),
        "{}",
        text(&again)
    );
}

#[test]
fn a_job_resumes_after_any_process_is_killed() {
    let stage = Stage::new();
    let (_server, depot, arguments, data) = slow_copy(&stage);
    let agent = Agent::start(&stage);
    let id = submit(&stage, &words(&arguments));
    until(&stage, &id, some_is_there);
    agent.kill();
    // It resumed, and is told to end in good order.
    let agent = Agent::start(&stage);
    until(&stage, &id, some_is_there);
    assert_eq!(agent.terminate(), Some(0));
    stage.set_depot_rate("d", &depot, None);
    let _agent = Agent::start(&stage);
    let (job, code) = end(&stage, &id);
    assert_eq!(
        (job["state"].as_str(), code),
        (Some("done"), Some(0)),
        "{job}"
    );
    assert_eq!(job["attempts"].as_u64(), Some(3));
    assert!(std::fs::read(stage.path("root/large")).unwrap() == data);
    let (report, _) = ask(&stage, &["job", &id, "--report"]);
    assert!(report["resumed_bytes"].as_u64() > Some(0), "{report}");
}

#[test]
fn a_job_is_paused_resumed_and_cancelled() {
    let stage = Stage::new();
    let (_server, depot, mut arguments, data) = slow_copy(&stage);
    let _agent = Agent::start(&stage);
    let id = submit(&stage, &words(&arguments));
    until(&stage, &id, some_is_there);
    let (job, code) = ask(&stage, &["pause", &id]);
    assert_eq!(
        (job["stopping"].as_str(), code),
        (Some("pause"), Some(0)),
        "{job}"
    );
    until(&stage, &id, |reported| reported["state"] == "paused");
    // A paused job delays no other.
    let other = submit(&stage, &["here/large", "root/other"]);
    assert_eq!(end(&stage, &other).1, Some(0));
    stage.set_depot_rate("d", &depot, None);
    ask(&stage, &["resume", &id]);
    let (job, code) = end(&stage, &id);
    assert_eq!(
        (job["state"].as_str(), job["attempts"].as_u64(), code),
        (Some("done"), Some(2), Some(0)),
        "{job}"
    );
    assert!(std::fs::read(stage.path("root/large")).unwrap() == data);
    std::fs::remove_file(stage.path("root/large")).unwrap();
    // Another depot, as it takes a moment until this one is slow again.
    let slow = stage.depot("slow", SLOW);
    arguments[1].clone_from(&slow.address);
    let id = submit(&stage, &words(&arguments));
    until(&stage, &id, some_is_there);
    ask(&stage, &["cancel", &id]);
    let (job, code) = end(&stage, &id);
    assert_eq!(
        (job["state"].as_str(), code),
        (Some("cancelled"), Some(130)),
        "{job}"
    );
    assert!(!stage.path("root/large").exists());
}

#[test]
fn only_passing_errors_are_retried() {
    let stage = Stage::new();
    let _agent = Agent::start(&stage);
    let id = submit(&stage, &["here/missing", "root/"]);
    let (job, code) = end(&stage, &id);
    assert_eq!(
        (job["state"].as_str(), job["attempts"].as_u64(), code),
        (Some("failed"), Some(1), Some(2)),
        "{job}"
    );
    assert!(
        job["error"].as_str().unwrap().contains("here/missing"),
        "{job}"
    );
    stage.noise("here/missing", 1000);
    ask(&stage, &["retry", &id]);
    assert_eq!(end(&stage, &id).1, Some(0));
    // A missing server may appear later.
    let mut server = stage.serve_at_own_address();
    let (address, key) = (server.address.clone(), server.key.clone());
    server.kill();
    let to = format!("lh://{address}/");
    let id = submit(&stage, &["--host-key", &key, "here/missing", &to]);
    until(&stage, &id, |reported| reported["state"] == "waiting");
    let _server = stage.serve_at(&address);
    ask(&stage, &["retry", &id]);
    assert_eq!(end(&stage, &id).1, Some(0));
}

#[test]
fn one_agent_is_started_on_demand() {
    let stage = Stage::new();
    stage.noise("here/file", 1000);
    /// Ends a background process when dropped.
    struct Background(String);
    impl Drop for Background {
        fn drop(&mut self) {
            let _ = Command::new("kill").args(["-KILL", &self.0]).status();
        }
    }
    let id = submit(&stage, &["here/file", "root/"]);
    let background = Background(
        std::fs::read_to_string(stage.path("me/state/agent/lock"))
            .unwrap()
            .trim()
            .to_owned(),
    );
    assert_eq!(end(&stage, &id).1, Some(0));
    use std::os::unix::fs::PermissionsExt;
    let dir = stage.path("me/state/agent").metadata().unwrap();
    assert_eq!(dir.permissions().mode() & 0o777, 0o700);
    let second = stage.longhaul("me").args(["agent"]).output().unwrap();
    assert_eq!(second.status.code(), Some(2));
    assert!(
        errors(&second).contains("an agent is running already"),
        "{}",
        errors(&second)
    );
    drop(background);
}

#[test]
fn http_needs_listen_and_the_token() {
    let stage = Stage::new();
    let outside = stage
        .longhaul("me")
        .args(["agent", "--listen", "0.0.0.0:0"])
        .output()
        .unwrap();
    assert_eq!(outside.status.code(), Some(2));
    assert!(
        errors(&outside).contains("loopback"),
        "{}",
        errors(&outside)
    );
    let _agent = Agent::start_with(&stage, &["--listen", "127.0.0.1:0"]);
    let token = stage.path("me/state/agent/token");
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(
        token.metadata().unwrap().permissions().mode() & 0o777,
        0o600
    );
    assert_eq!(
        stage
            .path("me/state/agent")
            .metadata()
            .unwrap()
            .permissions()
            .mode()
            & 0o777,
        0o700
    );
}

#[test]
fn places_are_named_and_a_test_reports_errors() {
    let stage = Stage::new();
    stage.noise("root/file", 1000);
    let _agent = Agent::start(&stage);
    let server = stage.serve_at_own_address();
    let root = format!("lh://{}/", server.address);
    assert_eq!(ask(&stage, &["places", "add", "store", &root]).1, Some(0));
    assert_eq!(
        ask(&stage, &["places", "add", "store", "relative"]).1,
        Some(1)
    );
    // The server's key is unknown.
    let (test, code) = ask(&stage, &["places", "test", "store"]);
    assert_eq!((&test["ok"], code), (&Value::Bool(false), Some(3)));
    assert!(
        test["detail"].as_str().unwrap().contains("--accept-new"),
        "{test}"
    );
    let known = stage
        .longhaul("me")
        .args(["ls", "--accept-new", &root])
        .output()
        .unwrap();
    assert!(known.status.success(), "{}", errors(&known));
    let (test, code) = ask(&stage, &["places", "test", "store"]);
    assert_eq!((&test["ok"], code), (&Value::Bool(true), Some(0)), "{test}");
    drop(server);
    assert_eq!(ask(&stage, &["places", "test", "store"]).1, Some(3));
    let shown = stage.longhaul("me").args(["places"]).output().unwrap();
    assert!(String::from_utf8(shown.stdout).unwrap().contains(&root));
    assert_eq!(ask(&stage, &["places", "remove", "store"]).1, Some(0));
    assert_eq!(ask(&stage, &["places", "test", "store"]).1, Some(1));
}

#[test]
fn the_page_opens_with_a_private_ticket() {
    let stage = Stage::new();
    let _agent = Agent::start(&stage);
    let printed = stage
        .longhaul("me")
        .args(["ui", "--print"])
        .output()
        .unwrap();
    let url = String::from_utf8(printed.stdout).unwrap();
    let (address, ticket) = url.trim().split_once("/#ticket=").unwrap();
    assert!(address.starts_with("http://127.0.0.1:"), "{url}");
    assert_eq!(ticket.len(), 43);
    // The browser gets the address in a file, not in its arguments.
    let seen = stage.path("seen");
    let browser = stage.path("browser");
    let script = format!(
        "#!/bin/sh\nprintf %s \"$*\" > {0}\ncat \"$1\" >> {0}.content\n",
        seen.display()
    );
    write_program(&browser, &script);
    let opened = stage
        .longhaul("me")
        .env("BROWSER", &browser)
        .args(["ui"])
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&opened.stdout),
        "opened in the browser\n",
        "{}",
        errors(&opened)
    );
    let arguments = std::fs::read_to_string(&seen).unwrap();
    assert!(
        !arguments.contains("ticket") && arguments.ends_with("open.html"),
        "{arguments}"
    );
    assert!(
        std::fs::read_to_string(stage.path("seen.content"))
            .unwrap()
            .contains("/#ticket=")
    );
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(
        std::path::Path::new(&arguments)
            .metadata()
            .unwrap()
            .permissions()
            .mode()
            & 0o777,
        0o600
    );
}

#[test]
fn a_job_survives_a_kill_in_every_state() {
    let stage = Stage::new();
    let (mut server, depot, arguments, data) = slow_copy(&stage);
    let address = server.address.clone();
    let state = |id: &str| {
        ask(&stage, &["job", id]).0["state"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    // Queued, as this agent runs no jobs.
    let agent = Agent::start_with(&stage, &["--max-jobs", "0"]);
    let id = submit(&stage, &words(&arguments));
    agent.kill();
    // Once it runs, and in its middle.
    for sign in [
        |reported: &Value| reported["state"] == "running",
        some_is_there,
    ] {
        let agent = Agent::start(&stage);
        until(&stage, &id, sign);
        agent.kill();
    }
    // Told to pause, and killed before it could.
    let agent = Agent::start(&stage);
    until(&stage, &id, some_is_there);
    ask(&stage, &["pause", &id]);
    agent.kill();
    for _ in 0..2 {
        let agent = Agent::start(&stage);
        until(&stage, &id, |reported| reported["state"] == "paused");
        agent.kill();
    }
    // Waits for a missing server.
    server.kill();
    let agent = Agent::start(&stage);
    ask(&stage, &["resume", &id]);
    until(&stage, &id, |reported| reported["state"] == "waiting");
    agent.kill();
    let server = stage.serve_at(&address);
    stage.set_depot_rate("d", &depot, None);
    let agent = Agent::start(&stage);
    ask(&stage, &["retry", &id]);
    let (job, code) = end(&stage, &id);
    assert_eq!(
        (job["state"].as_str(), code),
        (Some("done"), Some(0)),
        "{job}"
    );
    assert!(std::fs::read(stage.path("root/large")).unwrap() == data);
    agent.kill();
    let _agent = Agent::start(&stage);
    assert_eq!(state(&id), "done");
    drop(server);
}
