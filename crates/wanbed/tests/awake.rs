//! Tests of the process that keeps processors awake: it yields to everything else, and ends with
//! the program that started it.

#![allow(clippy::unwrap_used, clippy::panic)] // a test that can't go on has failed

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The policy `SCHED_IDLE`, as proc_pid_stat(5) gives it.
const SCHED_IDLE: &str = "5";
/// Indices of a `stat` line's fields from the state on: nice value and policy.
const NICE: usize = 16;
const POLICY: usize = 38;

/// Returns the policies and nice values of a process's threads.
fn threads(process: u32) -> Vec<(String, String)> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let lines = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("stat")).ok());
    let fields = lines.map(|line| {
        let (_, rest) = line.rsplit_once(") ").unwrap();
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        (fields[POLICY].to_owned(), fields[NICE].to_owned())
    });
    fields.collect()
}

#[test]
fn awake_process_yields_and_ends_with_its_starter() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_wanbed"))
        .arg("awake")
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let processors = std::thread::available_parallelism().unwrap().get();
    // It gets a processor only when nothing else wants it.
    let deadline = Instant::now() + Duration::from_secs(300);
    let all = loop {
        let all = threads(child.id());
        if all.len() > processors {
            break all;
        }
        assert!(child.try_wait().unwrap().is_none(), "it has ended");
        assert!(Instant::now() < deadline, "{all:?}");
        std::thread::yield_now();
    };
    for thread in all {
        assert_eq!(thread, (SCHED_IDLE.to_owned(), "19".to_owned()));
    }
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}
