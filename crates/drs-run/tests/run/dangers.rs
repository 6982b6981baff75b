//! Tests of situations in which little is allowed: in a fork, in a signal handler, when cancelled.

use std::path::Path;
use std::process::{Command, Output};

use crate::{compiled, drs_run, reported};

/// Time after which a hanging program is killed; none of these works for longer than a moment.
const KILL_AFTER_SECONDS: &str = "60";

/// Compiles an object that is loaded after the library.
fn object(folder: &Path, name: &str) -> std::path::PathBuf {
    compiled(folder, name, &["-shared", "-fPIC", "-ldl"])
}

/// Runs a program under `timeout`, with or without the library; `behind` is loaded after it.
fn ran(program: &Path, arguments: &[&str], behind: Option<&Path>) -> Output {
    let mut command = Command::new("timeout");
    // A process whose only remaining thread takes no signals ends only by SIGKILL.
    command.args(["--signal", "KILL", KILL_AFTER_SECONDS]);
    let run = drs_run(&["--mode", "auto", "--log", "/dev/null"]);
    command.arg(run.get_program()).args(run.get_args());
    for (name, value) in run.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    if let Some(object) = behind {
        command.env("LD_PRELOAD", object);
    }
    command.arg(program).args(arguments).output().unwrap()
}

fn plain(program: &Path, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).output().unwrap()
}

/// Tests that the program does the same with the library as without.
#[track_caller]
fn same(program: &Path, arguments: &[&str]) {
    let plain = plain(program, arguments);
    let with = ran(program, arguments, None);
    assert_eq!(reported(&with), reported(&plain));
}

#[test]
fn a_cancelled_thread_ends_where_it_would() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), "cancelled", &[]);
    let expected = plain(&program, &[]);
    assert_eq!(
        expected.stdout,
        b"0: cancelled\n1: cancelled\n",
        "{}",
        reported(&expected)
    );
    same(&program, &[]);
}

#[test]
fn no_thread_is_started_within_a_fork() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), "forked", &[]);
    let output = ran(&program, &[], None);
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "in the handler: 1, after it: 1\nafter the first call: 2\n",
        "{}",
        reported(&output)
    );
}

#[test]
fn a_fork_while_the_host_is_read_leaves_the_child_free() {
    let folder = tempfile::tempdir().unwrap();
    let blocks = object(folder.path(), "blocks");
    let program = compiled(folder.path(), "forks_while_read", &[]);
    let output = ran(&program, &[], Some(&blocks));
    assert_eq!(output.status.code(), Some(3), "{}", reported(&output));
}

#[test]
fn a_process_without_proc_ends_with_its_last_thread() {
    let folder = tempfile::tempdir().unwrap();
    let root = tempfile::tempdir().unwrap();
    let program = compiled(
        folder.path(),
        "rootless",
        &["-Wl,--no-as-needed", "-lgcc_s"],
    );
    same(&program, &[root.path().to_str().unwrap()]);
}

#[test]
fn nothing_is_looked_up_after_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let counts = object(folder.path(), "counts");
    let program = compiled(folder.path(), "in_handler", &["-ldl", "-Wl,-z,now"]);
    let output = ran(&program, &[], Some(&counts));
    assert_eq!(output.stdout, b"came back\n", "{}", reported(&output));
}

#[test]
fn handler_on_minimal_stack_does_not_overflow() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), "in_handler", &["-ldl", "-Wl,-z,now"]);
    let expected = plain(&program, &["small"]);
    assert_eq!(expected.stdout, b"came back\n", "{}", reported(&expected));
    let output = ran(&program, &["small"], None);
    assert_eq!(output.stdout, b"came back\n", "{}", reported(&output));
}
