//! Tests of `drs run` with real programs: their behaviour, the log, and refusals.

#![allow(clippy::unwrap_used, clippy::panic)] // a test that can't go on has failed

mod behaviour;
mod dangers;
mod lab;
mod refusals;
#[path = "../../../preload/tests/support/mod.rs"]
mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use support::{OBJECT, refused, reported, succeeded};

/// Returns a `drs run` command with options, up to the program.
fn drs_run(options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_drs"));
    command
        .env("DRS_PRELOAD", &*OBJECT)
        .arg("run")
        .args(options)
        .arg("--");
    command
}

/// Compiles a C program of this folder into `folder`.
fn compiled(folder: &Path, name: &str, options: &[&str]) -> PathBuf {
    let program = folder.join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/run/{name}.c"));
    let mut cc = Command::new("cc");
    cc.args(["-Wall", "-Wextra", "-Werror", "-pthread", "-I"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../preload/tests/support"))
        .arg("-o")
        .arg(&program)
        .arg(source)
        .args(options);
    succeeded(&mut cc);
    program
}

/// Returns a log's lines.
fn lines(log: &Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(log).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}")))
        .collect()
}
