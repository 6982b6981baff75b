//! Logins that print, refuse or have a different clock: a copy works, or ends with the host's own
//! message.

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

use crate::common::login::Login;
use crate::stage::{Stage, errors};

/// A login and a file to copy.
struct World {
    stage: Stage,
    login: Login,
}

impl World {
    fn new() -> Self {
        let stage = Stage::new();
        stage.noise("here/f", 300_000);
        let login = Login::new(stage.path("host"));
        Self { stage, login }
    }

    fn here(&self) -> PathBuf {
        self.stage.path("here")
    }

    fn cp(&self, arguments: &[&str]) -> Output {
        self.login.cp(&self.here(), arguments)
    }

    /// Copies the file there and back.
    #[track_caller]
    fn assert_copies(&self, name: &str) {
        let there = format!("host:{name}");
        let pushed = self.cp(&["f", &there]);
        assert_eq!(pushed.status.code(), Some(0), "{name}: {}", errors(&pushed));
        let pulled = self.cp(&[&there, name]);
        assert_eq!(pulled.status.code(), Some(0), "{name}: {}", errors(&pulled));
        let read = |name| std::fs::read(self.here().join(name)).unwrap();
        assert!(read(name) == read("f"), "{name}");
    }
}

fn report(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().unwrap_or_default();
    serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {text} {}", errors(output)))
}

#[test]
fn login_output_does_not_break_copies() {
    let world = World::new();
    for (name, prints) in [
        ("title", r"printf '\033]0;host\007'"),
        ("letter", "printf x"),
        ("errors", "echo hello; echo noise >&2"),
        ("binary", "head -c 3000 /dev/urandom"),
        ("long", "seq -f 'a long line of motd number %g' 3000"),
    ] {
        world.login.begins_with(prints);
        world.assert_copies(name);
    }
}

#[test]
fn accounts_without_a_shell_are_reported_as_such() {
    let world = World::new();
    for (begins, says) in [
        (
            "echo This account is currently not available.; exit 1",
            "This account is currently not available.",
        ),
        (
            "echo sftp connections only.; echo banner >&2; exit 1",
            "sftp connections only.",
        ),
        ("echo exec: restricted >&2; exit 1", "exec: restricted"),
        ("exit 1", "exit status 1"),
        // A host that prints the command that it refuses.
        ("echo \"refused: $command\"; exit 1", "refused: exec sh -c"),
    ] {
        world.login.begins_with(begins);
        let refused = world.cp(&["f", "host:f"]);
        assert_eq!(
            refused.status.code(),
            Some(3),
            "{begins}: {}",
            errors(&refused)
        );
        let report = report(&refused);
        let error = report["error"].as_str().unwrap();
        assert!(
            error.starts_with("host does not run commands for this login: ")
                && error.contains(says),
            "{error}"
        );
        assert_eq!(report["worth_retrying"], false, "{report}");
    }
}

#[test]
fn an_endlessly_printing_login_is_abandoned() {
    let world = World::new();
    world.login.begins_with("yes the same line again");
    let noisy = world.cp(&["f", "host:f"]);
    assert_eq!(noisy.status.code(), Some(3), "{}", errors(&noisy));
    let report = report(&noisy);
    let error = report["error"].as_str().unwrap();
    assert!(
        error.contains("printed more than 1024 KiB") && error.contains("the same line again"),
        "{error}"
    );
}

#[test]
fn sources_that_are_all_missing_are_a_wrong_command() {
    let world = World::new();
    for flags in [&[][..], &["-r"]] {
        let missing = world.cp(&[flags, &["host:nope", "host:none/at/all", "."]].concat());
        assert_eq!(missing.status.code(), Some(2), "{}", errors(&missing));
        let report = report(&missing);
        assert_eq!(report["failures"][1]["kind"], "not_found", "{report}");
    }
    world.assert_copies("there");
    let one_missing = world.cp(&["host:nope", "host:there", "."]);
    assert_eq!(
        one_missing.status.code(),
        Some(1),
        "{}",
        errors(&one_missing)
    );
}

#[test]
fn sources_missing_at_a_server_are_a_wrong_command() {
    let stage = Stage::new();
    let server = stage.serve(&[]);
    let missing = stage.cp(
        &server,
        &[&format!("lh://{}/nope", server.address), "here/"],
    );
    assert_eq!(missing.status.code(), Some(2), "{}", errors(&missing));
}

#[test]
fn copies_work_with_a_clock_off_by_days() {
    if Command::new("faketime").arg("--version").output().is_err() {
        return eprintln!("not tested: no faketime here (apt-get install faketime)");
    }
    let world = World::new();
    for (name, offset) in [("behind", "-2d"), ("ahead", "+2d")] {
        let longhaul = env!("CARGO_BIN_EXE_longhaul");
        let script = format!("#!/bin/sh\nexec faketime -f {offset} {longhaul} \"$@\"\n");
        world.login.runs_longhaul_by(&script);
        world.assert_copies(name);
        // Files keep the source's times, whatever the clock there.
        let again = world.cp(&["f", &format!("host:{name}")]);
        assert_eq!(report(&again)["unchanged_files"], 1, "{}", errors(&again));
        let between = world.cp(&[&format!("host:{name}"), &format!("host:{name}2")]);
        assert_eq!(between.status.code(), Some(0), "{}", errors(&between));
    }
}

#[test]
fn a_wrong_server_clock_is_reported_with_its_offset() {
    if Command::new("faketime").arg("--version").output().is_err() {
        return eprintln!("not tested: no faketime here (apt-get install faketime)");
    }
    let stage = Stage::new();
    stage.noise("here/f", 10);
    let key = stage.key("me");
    // 3660 s, or some seconds less or more if this machine is slow.
    for (offset, says) in [
        ("-61m", "s behind this machine's"),
        ("+61m", "s ahead of this machine's"),
    ] {
        let mut command = Command::new("faketime");
        command
            .args([
                "-f",
                offset,
                // faketime waits for the program, and does not end it if it is killed.
                "setpriv",
                "--pdeathsig",
                "KILL",
                env!("CARGO_BIN_EXE_longhaul"),
                "serve",
                "--root",
                "root",
            ])
            .args(["--listen", "127.0.0.1:0", "--write", &key])
            .env("LONGHAUL_HOME", stage.path("server"))
            .current_dir(stage.tmp.path());
        let server = stage.service(command, "address");
        let refused = stage.cp(&server, &["here/f", &format!("lh://{}/f", server.address)]);
        assert_eq!(refused.status.code(), Some(3), "{}", errors(&refused));
        let said = errors(&refused);
        let server_named = format!("the server ({}) has a clock that is 36", server.address);
        assert!(
            said.contains(&server_named) && said.contains(says),
            "{said}"
        );
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}
