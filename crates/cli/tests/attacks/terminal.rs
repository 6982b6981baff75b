//! Effects of a hostile server's text and numbers on a client's terminal.

use std::process::Stdio;
use std::time::Duration;

use longhaul_hostile::{HostileServer, ServerAnswer, frames};

use crate::world::*;

const STEERING: &[u8] =
    "all is well\u{202e}\u{2066}\u{200b}\u{2028}\u{2029}\u{feff}\u{1b}[2J\u{9b}0m".as_bytes();

fn server(world: &World, answer: ServerAnswer) -> HostileServer {
    world
        .attackers
        .block_on(HostileServer::start(ANY, answer))
        .unwrap()
}

#[test]
fn text_of_a_server_cannot_control_the_terminal() {
    let world = World::new();
    let name = [b"evil", STEERING].concat();
    for said in [
        vec![frames::refuse(STEERING)],
        vec![
            frames::directory(0, b""),
            frames::failed(1, &name, 8, STEERING),
            frames::end(2),
        ],
        vec![
            frames::directory(0, b""),
            frames::small(1, 0, &name, b"x", [0; 32]),
            frames::end(2),
        ],
    ] {
        let server = server(
            &world,
            ServerAnswer {
                frames: said.concat(),
                later: None,
            },
        );
        for more in [&[][..], &["--json"]] {
            let (key, from) = (server.key.to_string(), format!("lh://{}/t", server.address));
            let arguments = [&["-r", "--host-key", &key], more, &[&from, "here/got"]].concat();
            let output = world
                .cp_within(Duration::from_secs(60), "me", &arguments)
                .unwrap();
            assert_ne!(output.status.code(), Some(0));
            let shown = [&output.stderr[..], &output.stdout].concat();
            let shown = String::from_utf8_lossy(&shown);
            assert_eq!(steering(&shown), Vec::<char>::new(), "{shown:?}");
            let _ = std::fs::remove_dir_all(world.stage.path("here/got"));
        }
    }
}

#[test]
fn totals_beyond_all_bounds_panic_no_progress_on_a_terminal() {
    let world = World::new();
    // The rate of one byte falls until the time left cannot be represented; then the copy ends.
    let said = [
        frames::directory(0, b""),
        frames::honest_small(1, b"one", b"x"),
        frames::totals(u64::MAX, u64::MAX, true),
    ];
    let server = server(
        &world,
        ServerAnswer {
            frames: said.concat(),
            later: Some((Duration::from_secs(7), frames::end(2))),
        },
    );
    let line = format!(
        "{} cp -r --host-key {} lh://{}/t here/got",
        env!("CARGO_BIN_EXE_longhaul"),
        server.key,
        server.address
    );
    let mut command = world.stage.longhaul("me");
    let environment: Vec<_> = command
        .get_envs()
        .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())))
        .collect();
    // util-linux's `script` provides a terminal.
    command = std::process::Command::new("script");
    command
        .args(["-qec", &line, "/dev/null"])
        .envs(environment)
        .current_dir(world.stage.tmp.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut command = tokio::process::Command::from(command);
    command.kill_on_drop(true);
    let limit = Duration::from_secs(60);
    let output = world
        .attackers
        .block_on(async { tokio::time::timeout(limit, command.output()).await });
    let output = match output.expect("a copy from a hostile server did not end") {
        Ok(output) => output,
        Err(error) => {
            return eprintln!("not tested: no `script` to make a terminal with ({error})");
        }
    };
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(!shown.contains("panicked"), "{shown}");
    assert!(
        shown.contains("one") || output.status.code().is_some(),
        "{shown}"
    );
}
