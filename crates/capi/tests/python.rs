//! Tests of the Python module: its wheel is built and installed, and its own tests run.

#![allow(clippy::unwrap_used, clippy::panic)] // a test that can't go on has failed

mod support;

use std::path::Path;
use std::process::Command;

use support::{Installed, Onramp, World, program, run};

#[test]
fn copies_need_the_program_alone() {
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("left out: no python3 here");
        return;
    }
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("python");
    let output = Command::new("python3")
        .args(["-W", "error", "-m", "unittest", "-v", "test_copies"])
        .current_dir(python.join("tests"))
        .env("PYTHONPATH", &python)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("LONGHAUL_PROGRAM", program())
        .output()
        .unwrap();
    let reported = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{reported}");
    assert!(reported.contains("\nOK"), "{reported}");
}

#[test]
fn the_wheel_holds_what_it_needs_and_works() {
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("left out: no python3 here");
        return;
    }
    let Some(world) = World::new() else { return };
    let installed = Installed::get();
    let onramp = Onramp::start(&world, World::NEAR);
    let folder = tempfile::tempdir().unwrap();
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("python");
    let wheel = run(Command::new("python3")
        .arg(python.join("backend.py"))
        .arg(folder.path())
        .env("LONGHAUL_LIBRARY", installed.path("lib/liblonghaul.so.0")));
    // A wheel is a zip file that is unpacked into a directory of modules.
    let site = folder.path().join("site");
    run(Command::new("python3")
        .args(["-m", "zipfile", "-e"])
        .arg(folder.path().join(wheel.trim()))
        .arg(&site));
    let mut tests = world.command(World::NEAR, Path::new("/usr/bin/env"));
    let output = tests
        .args([
            "python3",
            "-W",
            "error",
            "-m",
            "unittest",
            "-v",
            "test_longhaul",
        ])
        .current_dir(python.join("tests"))
        .env("PYTHONPATH", &site)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("LONGHAUL_ONRAMP", &onramp.path)
        .output()
        .unwrap();
    let reported = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{reported}");
    assert!(reported.contains("\nOK"), "{reported}");
    // The same files make the same wheel.
    let again = tempfile::tempdir().unwrap();
    run(Command::new("python3")
        .arg(python.join("backend.py"))
        .arg(again.path())
        .env("LONGHAUL_LIBRARY", installed.path("lib/liblonghaul.so.0")));
    let read = |folder: &Path| std::fs::read(folder.join(wheel.trim())).unwrap();
    assert!(read(folder.path()) == read(again.path()));
}
