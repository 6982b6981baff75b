//! Files that define trust, in places that others may write to.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

use crate::stage::errors;
use crate::world::*;

#[test]
fn files_writable_by_others_are_refused() {
    let world = World::new();
    let me = world.stage.key("me");
    std::fs::write(
        world.stage.path("policy.toml"),
        policy(std::slice::from_ref(&me), "127.0.0.0/8"),
    )
    .unwrap();
    let grant = format!("[[grant]]\nkey = \"{me}\"\nread = [\"/\"]\n");
    std::fs::write(world.stage.path("grants.toml"), grant).unwrap();
    for (name, text) in [
        ("control.toml", ""),
        ("me/known_hosts", ""),
        ("me/routes.toml", ""),
        ("me/controller.toml", "url = \"unix:/nowhere\"\n"),
    ] {
        std::fs::write(world.stage.path(name), text).unwrap();
    }
    world.stage.noise("here/f", 10);
    let loopback = ["--listen", "127.0.0.1:0"];
    for (file, arguments) in [
        (
            "policy.toml",
            [&["depot", "--policy", "policy.toml"][..], &loopback].concat(),
        ),
        (
            "policy.toml",
            [&["offramp", "--policy", "policy.toml"][..], &loopback].concat(),
        ),
        (
            "grants.toml",
            [
                &["serve", "--root", "root", "--grants", "grants.toml"][..],
                &loopback,
            ]
            .concat(),
        ),
        ("control.toml", vec!["control", "--config", "control.toml"]),
        ("me/known_hosts", vec!["cp", "here/f", "lh://127.0.0.1:1/f"]),
        (
            "me/routes.toml",
            vec!["onramp", "--socket", "onramp/socket"],
        ),
        ("me/controller.toml", vec!["controller", "routes"]),
    ] {
        for mode in [0o664, 0o646] {
            set_permissions(world.stage.path(file), Permissions::from_mode(mode)).unwrap();
            let mut command = world.stage.longhaul("me");
            command.args(&arguments);
            let output = world.within(HONEST, command);
            let output =
                output.unwrap_or_else(|| panic!("{arguments:?} took {file} with mode {mode:o}"));
            let reported = errors(&output);
            assert!(!output.status.success(), "{arguments:?}: {reported}");
            assert!(
                reported.contains("users other than its owner can write it"),
                "{arguments:?}: {reported}"
            );
            set_permissions(world.stage.path(file), Permissions::from_mode(0o644)).unwrap();
        }
    }
}

#[test]
fn reloading_a_file_writable_by_others_changes_nothing() {
    let world = World::new();
    let (me, attacker) = (world.stage.key("me"), world.stage.key("attacker"));
    let file = world.stage.path("grants.toml");
    let grant =
        |key: &str| format!("[[grant]]\nkey = \"{key}\"\nread = [\"/\"]\nwrite = [\"/\"]\n");
    std::fs::write(&file, grant(&me)).unwrap();
    let server = world.serve(&["--grants", file.to_str().unwrap()]);
    std::fs::write(&file, grant(&me) + &grant(&attacker)).unwrap();
    set_permissions(&file, Permissions::from_mode(0o666)).unwrap();
    server.hang_up();
    let deadline = Instant::now() + HONEST;
    while !std::fs::read_to_string(world.log("server"))
        .unwrap()
        .contains("can write it")
    {
        assert!(Instant::now() < deadline, "the reload is not reported");
    }
    world.assert_honest_copy(&server, "direct");
    let there = format!("lh://{}/taken", server.address);
    let refused = world.cp_within(
        HONEST,
        "attacker",
        &["--host-key", &server.key, "here/honest", &there],
    );
    let refused = refused.expect("a copy that is refused did not end");
    assert_eq!(refused.status.code(), Some(4), "{}", errors(&refused));
}
