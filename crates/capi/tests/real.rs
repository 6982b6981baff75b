//! Test with a published program of others: compiled from its original source with the macro
//! header, and run between two machines.

#![allow(clippy::unwrap_used, clippy::panic)] // a test that can't go on has failed

mod support;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use support::{Installed, Onramp, World, run};

/// Number of bytes that are sent.
const BYTES: usize = 20_000_000;

/// Returns the folder of a package's source. If it cannot be had, returns `None` and prints the
/// reason.
fn source(package: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sources");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/real/fetch-source");
    let output = Command::new(script)
        .arg(package)
        .arg(&folder)
        .output()
        .unwrap();
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        eprintln!(
            "left out: the source of {package} can't be had here: {}",
            why.trim()
        );
        return None;
    }
    Some(folder.join(package))
}

/// Returns bytes without repetitions.
fn bytes(count: usize) -> Vec<u8> {
    let mut state = 1u64;
    std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()[0]
    })
    .take(count)
    .collect()
}

#[test]
fn nuttcp_is_compiled_and_moves_its_bytes() {
    let Some(source) = source("nuttcp") else {
        return;
    };
    let Some(world) = World::new() else { return };
    let installed = Installed::get();
    let mut flags = vec!["-include".to_owned(), "longhaul-sockets.h".to_owned()];
    flags.extend(installed.flags(&["--cflags", "--libs"]));
    let nuttcp = installed.compile("nuttcp", &["-O1", "-w"], &[source.join("nuttcp.c")], &flags);

    let folder = tempfile::tempdir().unwrap();
    let (sent, received) = (folder.path().join("sent"), folder.path().join("received"));
    fs::write(&sent, bytes(BYTES)).unwrap();
    let onramps = [World::NEAR, World::FAR].map(|machine| Onramp::start(&world, machine));
    let command = |machine: &str, onramp: &Onramp| {
        let mut command = world.command(machine, &nuttcp);
        command
            .env("LONGHAUL_ONRAMP", &onramp.path)
            .env("LD_LIBRARY_PATH", installed.path("lib"));
        command
    };
    let mut receiving = command(World::FAR, &onramps[1])
        .args(["-r", "-s"])
        .stdout(File::create(&received).unwrap())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(300);
    // Each attempt takes a round trip, until the receiver listens.
    while !command(World::NEAR, &onramps[0])
        .args(["-t", "-s", &world.address(World::FAR)])
        .stdin(File::open(&sent).unwrap())
        .output()
        .unwrap()
        .status
        .success()
    {
        assert!(Instant::now() < deadline, "the receiver does not listen");
    }
    assert!(receiving.wait().unwrap().success());
    assert!(fs::read(&sent).unwrap() == fs::read(&received).unwrap());
    // Both ends went through their on-ramps.
    for onramp in &onramps {
        onramp.is_used();
    }
    let calls = run(Command::new("nm")
        .args(["--dynamic", "--undefined-only"])
        .arg(&nuttcp));
    for name in ["connect", "accept", "send", "recv", "read", "write"] {
        assert!(
            !calls
                .lines()
                .any(|line| line.trim_start().starts_with(&format!("U {name}@"))),
            "{calls}"
        );
    }
}
