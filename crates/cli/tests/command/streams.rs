//! `longhaul cp` from standard input and to standard output.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::login::Login;
use crate::stage::*;

/// Runs a command with this standard input.
fn feed(mut command: Command, content: &[u8]) -> Output {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(content).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn standard_input_is_copied_over_ssh() {
    let stage = Stage::new();
    let login = Login::new(stage.path("host"));
    let content = stage.noise("input", 3_000_001);
    let mut command = login.command(&stage.path(""), &["-", "host:x.tar"]);
    command.env("TMPDIR", "/nowhere");
    let output = feed(command, &content);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    assert!(std::fs::read(login.home().join("x.tar")).unwrap() == content);
}

#[test]
fn standard_input_is_stored_where_its_size_is_needed() {
    let stage = Stage::new();
    let server = stage.serve(&[]);
    let content = stage.noise("input", 3_000_001);
    let to = format!("lh://{}/x.tar", server.address);
    let mut command = stage.longhaul("me");
    command.args(["cp", "--host-key", &server.key, "--update", "-", &to]);
    let output = feed(command, &content);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    assert!(
        errors(&output).contains("standard input is first stored in"),
        "{}",
        errors(&output)
    );
    assert!(std::fs::read(stage.path("root/x.tar")).unwrap() == content);
}

#[test]
fn stopped_copy_of_standard_input_leaves_no_file() {
    for signal in [Signal::KILL, Signal::INT] {
        stop_copy_of_standard_input(signal);
    }
}

fn stop_copy_of_standard_input(signal: Signal) {
    let stage = Stage::new();
    let server = stage.serve(&[]);
    let content = stage.noise("input", 3_000_001);
    let to = format!("lh://{}/x.tar", server.address);
    let mut command = stage.longhaul("me");
    command
        .args(["cp", "--host-key", &server.key, "--json", "-", &to])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(&content).unwrap();
    // Some of it has arrived, and the end has not come.
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut events = lines
        .map_while(Result::ok)
        .map(|line| serde_json::from_str::<Value>(&line).unwrap());
    let has_arrived =
        |event: Value| event["event"] == "progress" && event["bytes"].as_u64() > Some(0);
    assert!(events.any(has_arrived));
    let names = || std::fs::read_dir(stage.path("root")).unwrap();
    assert_eq!(names().count(), 1, "a temporary file");
    let process = Pid::from_child(&child);
    kill_process(process, signal).unwrap();
    child.wait().unwrap();
    drop(input);
    if signal == Signal::INT {
        assert_eq!(events.last().unwrap()["kept"], false);
    }
    assert!(!stage.path("root/x.tar").exists());
    // The same name is free for the next copy.
    let mut command = stage.longhaul("me");
    command.args(["cp", "--host-key", &server.key, "-q", "-", &to]);
    let output = feed(command, &content);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    assert!(std::fs::read(stage.path("root/x.tar")).unwrap() == content);
}

#[test]
fn standard_input_is_copied_to_a_server_and_back() {
    let stage = Stage::new();
    let server = stage.serve(&[]);
    let content = stage.noise("input", 3_000_001);
    let place = |name: &str| format!("lh://{}/{name}", server.address);
    for (to, at) in [
        (place("x.tar"), "root/x.tar"),
        ("here/".to_owned(), "here/stdin"),
    ] {
        let mut command = stage.longhaul("me");
        command
            .args(["cp", "--host-key", &server.key, "-q", "-", &to])
            // It is sent while it is read, so it is stored nowhere.
            .env("TMPDIR", "/nowhere");
        let output = feed(command, &content);
        assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
        assert!(std::fs::read(stage.path(at)).unwrap() == content, "{at}");
    }
    let print = |sources: &[&str]| {
        let mut command = stage.longhaul("me");
        command.args(["cp", "--host-key", &server.key]);
        command.args(sources).arg("-").output().unwrap()
    };
    let printed = print(&[&place("x.tar")]);
    assert_eq!(printed.status.code(), Some(0), "{}", errors(&printed));
    assert!(printed.stdout == content);
    // Files follow each other, from any place.
    std::fs::write(stage.path("here/a"), "abc").unwrap();
    std::fs::write(stage.path("root/empty"), "").unwrap();
    let printed = print(&["here/a", &place("empty"), "here/a"]);
    assert_eq!(printed.status.code(), Some(0), "{}", errors(&printed));
    assert_eq!(printed.stdout, b"abcabc");
    let missing = print(&[&place("none")]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(
        errors(&missing).contains("/none: no such file"),
        "{}",
        errors(&missing)
    );
    let refused = print(&["--json", "here/a"]);
    assert_eq!(refused.status.code(), Some(2), "{}", errors(&refused));
}

#[test]
fn files_of_unknown_size_are_copied() {
    let stage = Stage::new();
    let server = stage.serve(&[]);
    let to = format!("lh://{}/", server.address);
    let copied = stage.cp(&server, &["/proc/version", "/proc/sys/kernel/ostype", &to]);
    assert_eq!(copied.status.code(), Some(0), "{}", errors(&copied));
    for (file, name) in [("version", "version"), ("sys/kernel/ostype", "ostype")] {
        let content = std::fs::read(format!("/proc/{file}")).unwrap();
        assert!(!content.is_empty());
        assert!(std::fs::read(stage.path(&format!("root/{name}"))).unwrap() == content);
    }
}

#[test]
fn a_growing_file_is_followed() {
    use std::io::Read;
    let stage = Stage::new();
    let server = stage.serve(&[]);
    std::fs::write(stage.path("root/log"), "one\n").unwrap();
    let from = format!("lh://{}/log", server.address);
    let mut command = stage.longhaul("me");
    command
        .args(["cp", "--host-key", &server.key, "--follow", &from, "-"])
        .stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut output = child.stdout.take().unwrap();
    let mut read = |expected: &str| {
        let mut bytes = vec![0; expected.len()];
        output.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes, expected.as_bytes());
    };
    read("one\n");
    let log = std::fs::File::options()
        .append(true)
        .open(stage.path("root/log"));
    log.unwrap().write_all(b"two\n").unwrap();
    read("two\n");
    child.kill().unwrap();
    child.wait().unwrap();
}
