//! Attempts of a key to exceed its grant at `longhaul serve`.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use longhaul_hostile::client::{Exchange, RawStream};
use longhaul_hostile::frames::{self, PushFlags};

use crate::stage::{Service, errors, no_temps};
use crate::world::*;

/// Maximum time for an answer.
const ANSWER: Duration = Duration::from_secs(20);

/// Starts a server with a directory `root/incoming` that `attacker` may write to, and nothing else.
fn serve(world: &World, directory: &str) -> Service {
    std::fs::create_dir_all(world.stage.path("root").join(directory)).unwrap();
    let grant = format!("{}={directory}", world.stage.key("attacker"));
    let me = world.stage.key("me");
    world.serve(&["--read", &me, "--write", &me, "--write", &grant])
}

/// Sends `bytes` as the attacker. Returns the stream, and the answers until it ends or a block is
/// acknowledged.
fn say(world: &World, server: &Service, bytes: &[Vec<u8>]) -> (Exchange, RawStream) {
    let target = world.target(server, "attacker");
    let ends = bytes.iter().any(|frame| frame.get(4) == Some(&frames::END));
    let enough = |received: &Exchange| {
        received.has(frames::DONE)
            || received.has(frames::REFUSE)
            || (!ends && (received.has(frames::ACK) || received.has(frames::RESULT)))
    };
    world.attackers.block_on(async {
        let mut stream = target.connect().await.unwrap();
        let received = stream.exchange(bytes.iter().cloned(), ANSWER, enough).await;
        (received, stream)
    })
}

fn push(to: &str, name: &[u8], overwrite: bool) -> Vec<u8> {
    let into = false;
    frames::push(
        frames::fresh_token(),
        to.as_bytes(),
        &[name],
        PushFlags { into, overwrite },
    )
}

fn temporaries(dir: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.file_name()
                .unwrap()
                .to_string_lossy()
                .starts_with(".longhaul-")
        })
        .collect()
}

#[test]
fn temporaries_stay_in_the_directory_that_is_granted() {
    let world = World::new();
    let server = serve(&world, "incoming/alice");
    for name in [&b""[..], b"s"] {
        // An endless file, as the destination itself.
        let said = [
            push("incoming/alice", name, true),
            frames::file_in_blocks(0, b"", 1 << 20, 16),
            frames::block(0, 0, 1 << 16, b"data"),
        ];
        let (_, stream) = say(&world, &server, &said);
        assert_eq!(
            temporaries(&world.stage.path("root/incoming")),
            Vec::<PathBuf>::new()
        );
        assert_eq!(
            temporaries(&world.stage.path("root")),
            Vec::<PathBuf>::new()
        );
        drop(stream);
    }
}

#[test]
fn a_directory_that_exists_keeps_its_mode() {
    let world = World::new();
    let server = serve(&world, "incoming");
    let dir = world.stage.path("root/incoming/shared");
    std::fs::create_dir(&dir).unwrap();
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o750)).unwrap();
    let beneath = [
        push("incoming", b"", false),
        frames::directory(0, b""),
        frames::directory_with_mode(1, b"shared", 0o777),
        frames::end(2),
    ];
    let itself = [
        push("incoming", b"shared", false),
        frames::directory_with_mode(0, b"", 0o777),
        frames::end(1),
    ];
    for said in [&beneath[..], &itself] {
        drop(say(&world, &server, said));
        let mode = std::fs::metadata(&dir).unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode, 0o750, "{mode:o}");
    }
}

#[test]
fn write_only_keys_cannot_probe_file_contents() {
    let world = World::new();
    let server = serve(&world, "incoming");
    std::fs::write(world.stage.path("root/incoming/secret"), "the password").unwrap();
    let guess = |guess: &[u8]| {
        let said = [
            push("incoming", b"secret", false),
            frames::honest_small(0, b"", guess),
            frames::end(1),
        ];
        frames::result_of(&say(&world, &server, &said).0.bytes, 0)
    };
    let in_blocks = |guess: &[u8]| {
        let said = [
            push("incoming", b"secret", false),
            frames::file(0, b"", guess.len() as u64),
            frames::block(0, 0, guess.len() as u32, guess),
            frames::file_end(0, *blake3::hash(guess).as_bytes()),
            frames::end(1),
        ];
        frames::result_of(&say(&world, &server, &said).0.bytes, 0)
    };
    assert_eq!(guess(b"the password"), guess(b"not the word"));
    assert_eq!(in_blocks(b"the password"), in_blocks(b"not the word"));
    assert!(!matches!(
        guess(b"the password"),
        None | Some(frames::RESULT_SAME)
    ));
    assert_eq!(
        std::fs::read(world.stage.path("root/incoming/secret")).unwrap(),
        b"the password"
    );
}

#[test]
fn a_key_that_may_only_create_replaces_nothing() {
    let world = World::new();
    std::fs::create_dir(world.stage.path("root/incoming")).unwrap();
    std::fs::write(world.stage.path("root/incoming/there"), "first").unwrap();
    let grant = format!("{}=incoming", world.stage.key("attacker"));
    let server = world.serve(&["--read", &world.stage.key("me"), "--create", &grant]);
    for entry in [
        frames::honest_small(0, b"", b"second"),
        frames::symlink(0, b"", b"/etc/passwd"),
        frames::directory(0, b""),
    ] {
        let said = [push("incoming", b"there", true), entry, frames::end(1)];
        let (received, _stream) = say(&world, &server, &said);
        assert_ne!(
            frames::result_of(&received.bytes, 0),
            Some(frames::RESULT_NEW)
        );
    }
    let said = [
        push("incoming", b"new", false),
        frames::honest_small(0, b"", b"new"),
        frames::end(1),
    ];
    drop(say(&world, &server, &said));
    assert_eq!(
        std::fs::read(world.stage.path("root/incoming/there")).unwrap(),
        b"first"
    );
    assert_eq!(
        std::fs::read(world.stage.path("root/incoming/new")).unwrap(),
        b"new"
    );
}

#[test]
fn nothing_is_written_or_read_outside_of_the_grant() {
    let world = World::new();
    let server = serve(&world, "incoming");
    let outside = world.stage.path("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(world.stage.path("root/secret"), "what it holds").unwrap();
    let target = outside.to_str().unwrap().as_bytes();
    let through_a_link = [
        push("incoming", b"s", true),
        frames::directory(0, b""),
        frames::entries_beneath_link(1, target),
        frames::end(5),
    ];
    drop(say(&world, &server, &through_a_link));
    for said in [
        vec![
            push("", b"s", true),
            frames::honest_small(0, b"evil", b"evil"),
        ],
        vec![push("incoming/../..", b"s", true)],
        vec![
            push("incoming/link", b"s", true),
            frames::honest_small(0, b"evil", b""),
        ],
        vec![push("incoming", b"../evil", true)],
        vec![
            push("incoming", b"s", true),
            frames::honest_small(0, b"../evil", b"evil"),
        ],
        vec![
            push("incoming", b"s", true),
            frames::honest_small(0, b"/tmp/evil", b"evil"),
        ],
        vec![frames::pull_hello(
            frames::fresh_token(),
            true,
            &[b"secret"],
        )],
        vec![frames::pull_hello(
            frames::fresh_token(),
            true,
            &[b"incoming"],
        )],
    ] {
        let (received, _stream) = say(&world, &server, &said);
        assert!(
            !received
                .bytes
                .windows(13)
                .any(|window| window == b"what it holds"),
            "{said:?}"
        );
    }
    assert!(std::fs::read_dir(&outside).unwrap().next().is_none());
    assert!(!world.stage.path("root/evil").exists() && !world.stage.path("evil").exists());
    world.assert_honest_copy(&server, "direct");
    drop(server);
    assert!(no_temps(&outside));
}

#[test]
fn a_hangup_reloads_the_grants_of_serve() {
    let world = World::new();
    let (me, friend) = (world.stage.key("me"), world.stage.key("friend"));
    let file = world.stage.path("grants.toml");
    let grant =
        |key: &str| format!("[[grant]]\nkey = \"{key}\"\nread = [\"/\"]\nwrite = [\"/\"]\n");
    std::fs::write(&file, grant(&me)).unwrap();
    let mut server = world.serve(&["--grants", file.to_str().unwrap()]);
    world.assert_honest_copy(&server, "direct");
    let there = format!("lh://{}/friends", server.address);
    let key = server.key.clone();
    let copy = || {
        world
            .cp_within(
                HONEST,
                "friend",
                &["--host-key", &key, "here/honest", &there],
            )
            .unwrap()
    };
    let refused = copy();
    assert_eq!(refused.status.code(), Some(4), "{}", errors(&refused));
    std::fs::write(&file, grant(&me) + &grant(&friend)).unwrap();
    server.hang_up();
    let deadline = Instant::now() + HONEST;
    while copy().status.code() != Some(0) {
        assert_eq!(server.ended(), None, "the signal ended it");
        assert!(Instant::now() < deadline, "the new grant does not hold");
    }
    // An invalid file leaves the grants in force.
    std::fs::write(&file, "[[grant]]\nkey = 7\n").unwrap();
    server.hang_up();
    world.assert_honest_copy(&server, "direct");
    assert_eq!(server.ended(), None);
}
