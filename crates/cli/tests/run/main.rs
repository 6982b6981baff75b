//! `longhaul run` with unmodified programs.

#![allow(clippy::unwrap_used, clippy::panic)] // a test that can't go on has failed

#[path = "../common/mod.rs"]
mod common;
mod isolated;
#[allow(dead_code, reason = "shared with the tests of the preload object")]
#[path = "../../../preload/tests/routes/onramp.rs"]
mod onramp;
mod path;
#[path = "../../../preload/tests/support/mod.rs"]
mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use onramp::{OnRamp, routed_sources};
use support::{OBJECT, refused, reported};

/// Properties of a connection, as options of `longhaul run`.
const WISHES: [&str; 9] = [
    "--purpose",
    "nightly copy",
    "--size",
    "10G",
    "--rate",
    "500M",
    "--for",
    "90min",
    "--closed",
];
/// The same properties, as the on-ramp receives them.
const REPORTED_WISHES: &str =
    "nightly copy, Some(10737418240) bytes, Some(500000000) bit/s, Some(5400) s";

/// Returns `longhaul run` with options, up to the program.
fn run(onramp: &OnRamp, options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command
        .env("LONGHAUL_PRELOAD", &*OBJECT)
        .env("LONGHAUL_ONRAMP", &onramp.socket)
        .arg("run")
        .args(options)
        .arg("--");
    command
}

/// Compiles a C program into a folder.
fn compiled(folder: &Path, sources: &[PathBuf], options: &[&str]) -> Option<PathBuf> {
    let program = folder.join("program");
    let output = Command::new("cc")
        .args(options)
        .args(["-pthread", "-o"])
        .arg(&program)
        .args(sources)
        .output()
        .unwrap();
    output.status.success().then_some(program)
}

fn routed(folder: &Path) -> PathBuf {
    compiled(folder, &routed_sources(), &[]).unwrap()
}

#[test]
fn a_program_uses_routes_with_its_purpose() {
    let onramp = OnRamp::start();
    let folder = tempfile::tempdir().unwrap();
    for extra in [&[][..], &["--right-size"]] {
        let output = run(&onramp, &[&WISHES[..], extra].concat())
            .arg(routed(folder.path()))
            .arg("nonblocking")
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", reported(&output));
        let seen = String::from_utf8(output.stdout).unwrap();
        assert!(
            seen.contains("peer: 192.0.2.5 80") && seen.contains("echo: there and back"),
            "{seen}"
        );
        let wishes = onramp.wishes();
        assert_eq!(wishes.last().map(String::as_str), Some(REPORTED_WISHES));
    }
    assert!(onramp.asked().iter().all(|asked| asked.ends_with(" true")));
}

#[test]
fn codes_signals_arguments_and_limits_are_the_programs() {
    let onramp = OnRamp::start();
    let sh = |script: &str| {
        run(&onramp, &[])
            .args(["sh", "-c", script, "name", "argument"])
            .output()
            .unwrap()
    };
    assert_eq!(sh("exit 42").status.code(), Some(42));
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&sh("kill -9 $$").status),
        Some(9)
    );
    assert_eq!(sh("echo \"$0 $1\"").stdout, b"name argument\n");
    let plain = Command::new("sh")
        .args(["-c", "ulimit -Sn"])
        .output()
        .unwrap();
    assert_eq!(
        sh("ulimit -Sn").stdout,
        plain.stdout,
        "the limit of descriptors"
    );
}

#[test]
fn unsupported_programs_are_reported_in_a_line() {
    let onramp = OnRamp::start();
    refused(
        run(&onramp, &[]).arg("no-such-program"),
        127,
        &["no-such-program"],
    );
    refused(run(&onramp, &[]).arg("/etc/passwd"), 126, &["/etc/passwd"]);
    let mut nowhere = run(&onramp, &[]);
    nowhere
        .env("LONGHAUL_PRELOAD", "/no/such/object.so")
        .arg("sh");
    refused(
        &mut nowhere,
        125,
        &["LONGHAUL_PRELOAD", "/no/such/object.so"],
    );
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("still.c");
    std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    match compiled(folder.path(), &[source], &["-static"]) {
        Some(program) => refused(
            run(&onramp, &[]).arg(program),
            126,
            &["statically linked", "--isolate", "SOCKS"],
        ),
        None => eprintln!("left out: no static C library here"),
    }
}
