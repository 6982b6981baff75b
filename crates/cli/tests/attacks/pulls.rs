//! Servers that answer a pull with something else than was requested.

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use longhaul_hostile::{HostileServer, ServerAnswer, frames};

use crate::world::*;

/// Runs `cp` from a server that sends `said`. `sources` are appended to the server's address.
fn pull(world: &World, said: &[Vec<u8>], flags: &[&str], sources: &[&str], to: &str) -> Output {
    let answer = ServerAnswer {
        frames: said.concat(),
        later: None,
    };
    let server = world
        .attackers
        .block_on(HostileServer::start(ANY, answer))
        .unwrap();
    let key = server.key.to_string();
    let mut arguments = vec!["--host-key", &key];
    arguments.extend(flags);
    let sources: Vec<String> = sources
        .iter()
        .map(|source| format!("lh://{}/{source}", server.address))
        .collect();
    arguments.extend(sources.iter().map(String::as_str));
    arguments.push(to);
    let output = world.cp_within(Duration::from_secs(60), "me", &arguments);
    output.expect("a copy from a hostile server did not end")
}

/// Returns the names beneath `dir`, in order.
fn found(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// A tree with files that a shell and an ssh server would read.
fn tree() -> Vec<Vec<u8>> {
    vec![
        frames::directory(0, b""),
        frames::honest_small(1, b".bashrc", b"evil"),
        frames::directory(2, b".ssh"),
        frames::honest_small(3, b".ssh/authorized_keys", b"evil"),
        frames::end(4),
    ]
}

#[test]
fn a_pull_of_the_root_without_recursion_writes_no_tree() {
    let world = World::new();
    let output = pull(&world, &tree(), &[], &[""], "here/");
    assert_ne!(output.status.code(), Some(0));
    assert_eq!(found(&world.stage.path("here")), Vec::<String>::new());
}

#[test]
fn a_requested_file_does_not_become_a_tree() {
    let world = World::new();
    let output = pull(&world, &tree(), &[], &["report"], "here/");
    assert_ne!(output.status.code(), Some(0));
    assert!(!world.stage.path("here/report/.bashrc").exists());
    assert!(!world.stage.path("here/.bashrc").exists());
    assert!(!world.stage.path("here/report").is_dir());
}

#[test]
fn a_requested_file_does_not_become_a_link() {
    let world = World::new();
    let said = [frames::symlink(0, b"", b"/etc/passwd"), frames::end(1)];
    let output = pull(&world, &said, &[], &["report"], "here/");
    assert_ne!(output.status.code(), Some(0));
    assert!(std::fs::symlink_metadata(world.stage.path("here/report")).is_err());
}

#[test]
fn a_requested_file_has_nothing_beneath_it() {
    let world = World::new();
    let said = [
        frames::honest_small(0, b".bashrc", b"evil"),
        frames::honest_small(1, b".ssh", b"evil"),
        frames::end(2),
    ];
    for (flags, source) in [(&[][..], "report"), (&["--overwrite"], ""), (&[], "")] {
        let output = pull(&world, &said, flags, &[source], "here/");
        assert_ne!(output.status.code(), Some(0), "{source:?}");
        assert_eq!(found(&world.stage.path("here")), Vec::<String>::new());
    }
}

#[test]
fn one_source_has_one_root() {
    let world = World::new();
    let said = [
        frames::honest_small(0, b"", b"first"),
        frames::honest_small(1, b"", b"second"),
        frames::end(2),
    ];
    let output = pull(&world, &said, &["--overwrite"], &["report"], "here/");
    assert_ne!(output.status.code(), Some(0));
    let got = std::fs::read(world.stage.path("here/report"));
    assert!(got.is_err() || got.unwrap() == b"first");
}

#[test]
fn a_requested_tree_stays_in_its_place() {
    let world = World::new();
    let outside = world.stage.path("outside");
    std::fs::create_dir(&outside).unwrap();
    let target = outside.to_str().unwrap().as_bytes();
    let said = [
        frames::directory(0, b""),
        frames::entries_beneath_link(1, target),
        frames::honest_small(5, b"good", b"good"),
        frames::end(6),
    ];
    let output = pull(&world, &said, &["-r"], &["tree"], "here/");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(found(&outside), Vec::<String>::new());
    assert_eq!(
        std::fs::read(world.stage.path("here/tree/good")).unwrap(),
        b"good"
    );
    for name in [&b"../evil"[..], b"/tmp/evil", b"a/../../evil", b".."] {
        let said = [
            frames::directory(0, b""),
            frames::honest_small(1, name, b"evil"),
        ];
        let output = pull(&world, &said, &["-r"], &["tree"], "here/climbing");
        assert_ne!(output.status.code(), Some(0));
        assert!(!world.stage.path("here/evil").exists() && !world.stage.path("evil").exists());
    }
}

#[test]
fn totals_beyond_all_bounds_panic_no_client() {
    let world = World::new();
    let said = [
        frames::totals(u64::MAX, u64::MAX, false),
        frames::totals(u64::MAX, u64::MAX, true),
        frames::honest_small(0, b"", b"x"),
        frames::end(1),
    ];
    for flags in [&["--json"][..], &[]] {
        let output = pull(&world, &said, flags, &["report"], "here/");
        let reported = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!reported.contains("panicked"), "{reported}");
        assert!(output.status.code().is_some(), "{reported}");
    }
}
