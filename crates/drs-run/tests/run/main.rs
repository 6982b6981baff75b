//! `drs run` with real programs: what they see, what the log says, and what it refuses.

#![allow(clippy::unwrap_used, clippy::panic)] // a test that can't go on has failed

mod behaviour;
mod dangers;
mod lab;
mod refusals;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

/// The preload object, which cargo does not build for these tests by itself: nothing links it.
static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args(["build", "--quiet", "--locked", "--manifest-path"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../preload-object/Cargo.toml"))
        .arg("--target-dir")
        .arg(target);
    // What cargo tells this test of its own package is not for another build.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("CARGO_PKG_") {
            cargo.env_remove(name);
        }
    }
    succeeded(&mut cargo);
    target.join("debug/liblonghaul_preload_object.so")
});

/// `drs run` with options, up to the program.
fn drs_run(options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_drs"));
    command
        .env("DRS_PRELOAD", &*LIBRARY)
        .arg("run")
        .args(options)
        .arg("--");
    command
}

/// A C program of this folder, compiled into `folder`.
fn compiled(folder: &Path, name: &str, options: &[&str]) -> PathBuf {
    let program = folder.join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/run/{name}.c"));
    let mut cc = Command::new("cc");
    cc.args(["-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
        .arg(&program)
        .arg(source)
        .args(options);
    succeeded(&mut cc);
    program
}

fn succeeded(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", told(&output));
    output
}

fn told(output: &Output) -> String {
    let [out, err] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    format!("{}\n{out}\n{err}", output.status)
}

/// A log's lines.
fn lines(log: &Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(log).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}")))
        .collect()
}
