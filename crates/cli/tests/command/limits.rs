//! Commands under system limits: output to full disks and without readers, file sizes, descriptors,
//! memory and threads.

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::stage::*;

/// A limit that allows a user no threads beyond those of the test.
const NO_THREADS: &str = "--nproc=1";
/// A user without other processes, for tests that run as root: limits on threads do not apply to
/// root.
const NOBODY: &str = "54321";

fn full() -> Stdio {
    Stdio::from(File::options().write(true).open("/dev/full").unwrap())
}

/// The write end of a pipe that nobody reads.
fn unread() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

/// Wraps `command` with limits as prlimit(1) takes them.
fn limited(command: &Command, limits: &[&str]) -> Command {
    wrapped("prlimit", limits, command)
}

/// Wraps `command` with a time limit: far more than it takes on a busy machine.
fn bounded(command: &Command) -> Command {
    wrapped("timeout", &["--signal", "KILL", "300"], command)
}

fn wrapped(program: &str, options: &[&str], command: &Command) -> Command {
    let mut wrapped = Command::new(program);
    wrapped.args(options);
    wrapped.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        wrapped.env(name, value.unwrap_or_default());
    }
    if let Some(directory) = command.get_current_dir() {
        wrapped.current_dir(directory);
    }
    wrapped.stdin(Stdio::null());
    wrapped
}

fn cp(stage: &Stage, server: &Service, arguments: &[&str]) -> Command {
    let mut command = stage.longhaul("me");
    command
        .args(["cp", "--host-key", &server.key])
        .args(arguments);
    bounded(&command)
}

#[track_caller]
fn ended_with(output: &Output, code: i32) {
    assert_eq!(output.status.code(), Some(code), "{}", errors(output));
    assert!(!errors(output).contains("panicked"), "{}", errors(output));
}

/// Makes a tree with a file that is reported as not copied, and one that is copied.
fn tree_with_a_message(at: &Path) {
    std::fs::create_dir_all(at).unwrap();
    let made = Command::new("mkfifo")
        .arg(at.join("0fifo"))
        .status()
        .unwrap();
    assert!(made.success());
    std::fs::write(at.join("file"), "copied").unwrap();
}

#[test]
fn unwritable_messages_do_not_fail_a_copy() {
    let stage = Stage::new();
    let server = stage.serve(&[]);
    tree_with_a_message(&stage.path("here/t"));
    tree_with_a_message(&stage.path("root/t"));
    for (n, stderr) in [full as fn() -> Stdio, unread].into_iter().enumerate() {
        let there = format!("lh://{}", server.address);
        for (from, to, arrives) in [
            (
                "here/t".to_owned(),
                format!("here/l{n}"),
                format!("here/l{n}/file"),
            ),
            (
                "here/t".to_owned(),
                format!("{there}/p{n}"),
                format!("root/p{n}/file"),
            ),
            (
                format!("{there}/t"),
                format!("here/q{n}"),
                format!("here/q{n}/file"),
            ),
        ] {
            let output = cp(&stage, &server, &["-r", &from, &to])
                .stderr(stderr())
                .output()
                .unwrap();
            // The named pipe is not copied, as the lost message said.
            ended_with(&output, 1);
            assert_eq!(
                std::fs::read(stage.path(&arrives)).unwrap(),
                b"copied",
                "{arrives}"
            );
        }
    }
}

#[test]
fn a_server_serves_without_its_log() {
    for stderr in [full as fn() -> Stdio, unread] {
        let stage = Stage::new();
        let mut command = stage.longhaul("server");
        let key = stage.key("me");
        command
            .args([
                "serve",
                "--root",
                "root",
                "--listen",
                "127.0.0.1:0",
                "--write",
                &key,
            ])
            .env("RUST_LOG", "trace")
            .stderr(stderr());
        let server = stage.service(command, "address");
        stage.noise("here/f", 1000);
        let there = format!("lh://{}/f", server.address);
        ended_with(&stage.cp(&server, &["here/f", &there]), 0);
        assert_eq!(server.terminate(), Some(0));
    }
}

#[test]
fn output_on_a_full_disk_is_an_error_after_the_work() {
    let stage = Stage::new();
    let server = stage.serve(&[]);
    stage.noise("here/f", 1000);
    stage.noise("root/listed", 1000);
    let there = format!("lh://{}", server.address);
    let target = format!("{there}/f");
    for arguments in [
        &["keys", "show"][..],
        &["ls", "--host-key", &server.key, &there],
        &["cp", "--json", "--host-key", &server.key, "here/f", &target],
        &["cp", "--json", "here/f", "here/g"],
        &["completions", "bash"],
        &["--help"],
    ] {
        let mut command = stage.longhaul("me");
        let output = bounded(command.args(arguments))
            .stdout(full())
            .output()
            .unwrap();
        ended_with(&output, 1);
        let expected = "longhaul: writing standard output failed: No space left on device";
        assert!(
            errors(&output).contains(expected),
            "{arguments:?}: {}",
            errors(&output)
        );
    }
    assert!(stage.path("root/f").exists() && stage.path("here/g").exists());
}

#[test]
fn a_closed_output_pipe_is_no_error() {
    let stage = Stage::new();
    let server = stage.serve(&[]);
    stage.noise("here/f", 1000);
    let target = format!("lh://{}/f", server.address);
    for arguments in [
        &["keys", "show"][..],
        &["cp", "--json", "--host-key", &server.key, "here/f", &target],
        &["--help"],
    ] {
        let mut command = stage.longhaul("me");
        let output = bounded(command.args(arguments))
            .stdout(unread())
            .output()
            .unwrap();
        ended_with(&output, 0);
        assert!(
            !errors(&output).contains("standard output"),
            "{}",
            errors(&output)
        );
    }
    assert!(stage.path("root/f").exists());
}

#[test]
fn a_file_size_limit_fails_files_but_no_process() {
    let stage = Stage::new();
    let key = stage.key("me");
    let mut command = stage.longhaul("server");
    command.args([
        "serve",
        "--root",
        "root",
        "--listen",
        "127.0.0.1:0",
        "--read",
        &key,
        "--write",
        &key,
    ]);
    let mut server = stage.service(limited(&command, &["--fsize=1000000"]), "address");
    stage.noise("here/large", 3_000_000);
    stage.noise("here/small", 1000);
    let there = format!("lh://{}/", server.address);
    ended_with(&stage.cp(&server, &["here/large", &there]), 1);
    assert_eq!(server.ended(), None);
    ended_with(&stage.cp(&server, &["here/small", &there]), 0);
    // The same for a client.
    let mut local = stage.longhaul("me");
    local.args(["cp", "here/large", "here/copy"]);
    let output = bounded(&limited(&local, &["--fsize=1000000"]))
        .output()
        .unwrap();
    ended_with(&output, 1);
}

#[test]
fn few_descriptors_copy_fewer_files_at_once() {
    let stage = Stage::new();
    let server = stage.serve(&[]);
    for at in ["here", "root"] {
        for d in 0..12 {
            let dir = stage.path(&format!("{at}/t/d{d}/deeper"));
            std::fs::create_dir_all(&dir).unwrap();
            for f in 0..8 {
                std::fs::write(dir.join(format!("small{f}")), vec![f; 3000]).unwrap();
            }
            let large = crate::common::noise(700_000, d + 1);
            std::fs::write(dir.join("large"), large).unwrap();
        }
    }
    let there = format!("lh://{}", server.address);
    for (from, to) in [
        ("here/t".to_owned(), "here/local".to_owned()),
        ("here/t".to_owned(), format!("{there}/pushed")),
        (format!("{there}/t"), "here/pulled".to_owned()),
    ] {
        let mut command = stage.longhaul("me");
        command.args(["cp", "-r", "--streams", "8", "--host-key", &server.key]);
        command.args([&from, &to]);
        let output = bounded(&limited(&command, &["--nofile=32"]))
            .output()
            .unwrap();
        ended_with(&output, 0);
    }
    for copy in ["here/local", "root/pushed", "here/pulled"] {
        let same = Command::new("diff")
            .arg("-r")
            .args([stage.path("here/t"), stage.path(copy)])
            .status();
        assert!(same.unwrap().success(), "{copy}");
    }
}

#[test]
fn a_server_with_little_memory_survives_a_pull() {
    let stage = Stage::new();
    let key = stage.key("me");
    let mut command = stage.longhaul("server");
    command.args([
        "serve",
        "--root",
        "root",
        "--listen",
        "127.0.0.1:0",
        "--read",
        &key,
    ]);
    let mut server = stage.service(limited(&command, &["--as=512000000"]), "address");
    let data = stage.noise("root/f", 64 << 20);
    let from = format!("lh://{}/f", server.address);
    ended_with(&stage.cp(&server, &["--streams", "16", &from, "here/f"]), 0);
    assert!(std::fs::read(stage.path("here/f")).unwrap() == data);
    assert_eq!(server.ended(), None);
}

#[test]
fn a_depot_names_the_descriptors_that_it_needs() {
    let stage = Stage::new();
    let mut command = stage.depot_command("depot", None);
    command.args(["--max-sessions", "1000"]);
    // Two for each session and pipe, those of what is being set up, and 128 others.
    let needed = 2 * (1000 + 64) + 512 + 256 + 128;
    for (limit, warns) in [(needed - 1, true), (needed, false)] {
        let log = stage.path("depot.log");
        let mut limited = limited(&command, &[&format!("--nofile={limit}")]);
        limited
            .env("RUST_LOG", "warn")
            .stderr(File::create(&log).unwrap());
        let _depot = stage.service(limited, "addresses");
        let log = std::fs::read_to_string(log).unwrap();
        let warning = format!("may have {limit} descriptors, and needs {needed} for 1000 sessions");
        assert_eq!(log.contains(&warning), warns, "{log}");
    }
}

#[test]
fn too_few_threads_are_reported_in_one_line() {
    let stage = Stage::new();
    let mut command = stage.longhaul("me");
    stage.key("me");
    stage.noise("here/f", 1000);
    command.args(["cp", "here/f", "here/g"]);
    let mut limited = bounded(&limited(&command, &[NO_THREADS]));
    if rustix::process::geteuid().is_root() {
        let mut plain = Command::new("setpriv");
        plain
            .args([
                "--reuid",
                NOBODY,
                "--clear-groups",
                "--inh-caps=-all",
                "--bounding-set=-all",
            ])
            .args(["timeout", "--signal", "KILL", "300", "prlimit", NO_THREADS])
            .arg(env!("CARGO_BIN_EXE_longhaul"))
            .args(["cp", "here/f", "here/g"])
            .env("LONGHAUL_HOME", stage.path("none"))
            .current_dir(stage.tmp.path());
        std::os::unix::fs::chown(stage.tmp.path(), Some(54321), None).unwrap();
        limited = plain;
    }
    let output = limited.output().unwrap();
    assert_eq!(output.status.signal(), None, "{}", errors(&output));
    ended_with(&output, 1);
    assert!(
        errors(&output).contains("starting threads failed"),
        "{}",
        errors(&output)
    );
    assert_eq!(errors(&output).lines().count(), 1, "{}", errors(&output));
}
