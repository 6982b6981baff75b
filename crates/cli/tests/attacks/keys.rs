//! Keys and the list of known servers.

use std::os::unix::fs::{chown, symlink};
use std::time::Duration;

use longhaul_hostile::Impostor;

use crate::stage::errors;
use crate::world::*;

#[test]
fn an_unproved_key_is_not_remembered() {
    let world = World::new();
    let victim = world.stage.key("victim");
    let impostor = world
        .attackers
        .block_on(Impostor::start(ANY, victim.parse().unwrap()))
        .unwrap();
    world.stage.noise("here/f", 1000);
    let there = format!("lh://{}/f", impostor.address);
    let output = world.cp_within(
        Duration::from_secs(60),
        "me",
        &["--accept-new", "here/f", &there],
    );
    let output = output.expect("a copy to an impostor did not end");
    assert_ne!(output.status.code(), Some(0));
    let known = std::fs::read_to_string(world.stage.path("me/known_hosts")).unwrap_or_default();
    assert!(!known.contains("lhk1:"), "{known}");
}

#[test]
fn the_list_of_known_servers_is_not_written_through_a_link() {
    let world = World::new();
    let key = world.stage.key("me");
    let server = world.serve(&["--read", &key, "--write", &key]);
    world.stage.noise("here/f", 1000);
    let home = world.stage.path("me");
    let precious = world.stage.path("precious");
    std::fs::write(&precious, "precious").unwrap();
    // The command inherits the shell's process number: guessable names exist already, as links.
    let script = format!(
        "for n in known_hosts.$$.new .known_hosts.$$.new known_hosts.new known_hosts.tmp; do ln -s \
         {} \"$LONGHAUL_HOME/$n\"; done; \
         exec {} cp --accept-new here/f lh://{}/f",
        precious.display(),
        env!("CARGO_BIN_EXE_longhaul"),
        server.address
    );
    let mut command = std::process::Command::new("sh");
    command
        .args(["-c", &script])
        .env("LONGHAUL_HOME", &home)
        .current_dir(world.stage.tmp.path());
    world.within(HONEST, command).expect("a copy did not end");
    assert_eq!(std::fs::read(&precious).unwrap(), b"precious");
}

#[test]
fn a_key_file_of_another_user_is_refused() {
    let world = World::new();
    world.stage.key("me");
    let file = world.stage.path("me/identity");
    // Only root can change a file's owner.
    if let Err(error) = chown(&file, Some(65534), None) {
        return eprintln!("not tested: no file can be given to somebody else here ({error})");
    }
    let output = world
        .stage
        .longhaul("me")
        .args(["keys", "show"])
        .output()
        .unwrap();
    let (shown, reported) = (String::from_utf8_lossy(&output.stdout), errors(&output));
    assert!(!output.status.success(), "{shown}");
    assert!(reported.contains("identity"), "{reported}");
    // Also through a link to it.
    let own = world.stage.path("own");
    std::fs::create_dir(&own).unwrap();
    symlink(&file, own.join("identity")).unwrap();
    let output = world
        .stage
        .longhaul("own")
        .args(["keys", "show"])
        .output()
        .unwrap();
    assert!(!output.status.success());
}
