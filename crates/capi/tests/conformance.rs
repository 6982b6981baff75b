//! The suite of socket behaviour. The same source is built twice: over plain TCP, and with the
//! library. Both must print the same lines, except for the intended differences.

#![allow(clippy::unwrap_used, clippy::panic)] // a test that can't go on has failed

mod support;

use std::path::{Path, PathBuf};

use support::{Installed, Onramp, World, run};

/// Differences by design: the case, the result of TCP, the result of a session. `docs/capi.md`
/// explains them.
const DIFFERENCES: [(&str, &str, &str); 1] = [(
    "urgent-data",
    "urgent-data: send:ok recv:EINVAL",
    "urgent-data: send:EOPNOTSUPP recv:EINVAL",
)];

fn suite(installed: &Installed, name: &str, flags: &[String]) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance");
    let mut sources: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "c"))
        .collect();
    sources.sort();
    let options = [
        "-std=gnu11",
        "-D_GNU_SOURCE",
        "-pthread",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Werror",
    ];
    installed.compile(name, &options, &sources, flags)
}

#[test]
fn a_session_behaves_as_tcp_does() {
    let installed = Installed::get();
    let Some(world) = World::new() else { return };
    let onramp = Onramp::start(&world, World::NEAR);
    let plain = suite(installed, "suite-plain", &[]);
    let mut flags = vec!["-include".to_owned(), "longhaul-sockets.h".to_owned()];
    flags.extend(installed.flags(&["--cflags", "--libs"]));
    let routed = suite(installed, "suite-routed", &flags);
    let lines = |program: &Path, environment: &[(&str, &Path)]| {
        let mut command = world.command(World::NEAR, program);
        for (name, value) in environment {
            command.env(name, value);
        }
        command.env("LD_LIBRARY_PATH", installed.path("lib"));
        let output = command.output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let expected = lines(&plain, &[]);
    let found = lines(&routed, &[("LONGHAUL_ONRAMP", &onramp.path)]);
    let mut differences = Vec::new();
    for (over_tcp, by_route) in expected.lines().zip(found.lines()) {
        let case = over_tcp.split(':').next().unwrap();
        match DIFFERENCES.iter().find(|(name, ..)| *name == case) {
            Some((_, tcp, route)) => assert_eq!((over_tcp, by_route), (*tcp, *route)),
            None if over_tcp != by_route => {
                differences.push(format!("TCP      {over_tcp}\nsession  {by_route}"))
            }
            None => {}
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert_eq!(expected.lines().count(), found.lines().count());
    assert!(expected.lines().count() > 80);
    for bad in ["DIED", "HANGS", "KILLED"] {
        assert!(!expected.contains(bad), "{expected}");
    }
}

#[test]
fn without_an_onramp_it_is_tcp() {
    let installed = Installed::get();
    let Some(world) = World::new() else { return };
    let plain = suite(installed, "suite-plain-2", &[]);
    let mut flags = vec!["-include".to_owned(), "longhaul-sockets.h".to_owned()];
    flags.extend(installed.flags(&["--cflags", "--libs"]));
    let direct = suite(installed, "suite-direct", &flags);
    let expected = run(&mut world.command(World::NEAR, &plain));
    let found = run(world
        .command(World::NEAR, &direct)
        .env("LONGHAUL_ONRAMP", "/nowhere/socket")
        .env("LD_LIBRARY_PATH", installed.path("lib")));
    assert_eq!(expected, found);
}
