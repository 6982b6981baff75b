//! Hostile clients of the service `files`: escapes from the root, access beyond the grants, and use
//! of more than their share.

use std::os::unix::fs::symlink;
use std::time::Duration;

use longhaul_hostile::Usage;
use serde_json::{Value, json};

use crate::stage::*;
use crate::world::*;

/// Far longer than an answer takes.
const ANSWER: Duration = Duration::from_secs(60);
/// Time for which sessions that nobody may hold wait for an answer.
const HELD: Duration = Duration::from_secs(8);
const HELLO: &str = "{\"lowest\":1,\"highest\":1}\n";

/// Encodes in Base64 (RFC 4648).
fn base64(text: &str) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let group = |bytes: &[u8]| {
        let number = bytes
            .iter()
            .fold(0u32, |number, byte| number << 8 | u32::from(*byte))
            << (8 * (3 - bytes.len()));
        let letter = |at: usize| match at <= bytes.len() {
            true => LETTERS[(number >> (18 - 6 * at)) as usize & 63] as char,
            false => '=',
        };
        (0..4).map(letter).collect::<String>()
    };
    text.as_bytes().chunks(3).map(group).collect()
}

fn path(text: &str) -> Value {
    base64(text).into()
}

/// A root with a directory granted to the attacker and another that is not, and files beside the
/// root.
fn world() -> World {
    let world = World::new();
    for directory in ["root/in/d", "root/private", "outside"] {
        std::fs::create_dir_all(world.stage.path(directory)).unwrap();
    }
    for file in ["root/in/f", "root/private/secret", "outside/secret"] {
        std::fs::write(world.stage.path(file), "what it holds").unwrap();
    }
    symlink("../../outside", world.stage.path("root/in/out")).unwrap();
    symlink("../private", world.stage.path("root/in/across")).unwrap();
    world
}

fn serve(world: &World) -> Service {
    let (me, attacker) = (world.stage.key("me"), world.stage.key("attacker"));
    let grant = format!("{attacker}=in");
    world.serve(&[
        "--read", &me, "--write", &me, "--read", &grant, "--write", &grant,
    ])
}

/// Returns the server's answers to these questions, after its first line.
fn ask(world: &World, server: &Service, questions: &[Value]) -> Vec<Value> {
    let target = world.target(server, "attacker");
    let mut said = HELLO.to_owned();
    for question in questions {
        said += &format!("{question}\n");
    }
    let lines = questions.len() + 1;
    let received = world.attackers.block_on(async {
        let mut stream = target.connect_for_files().await.unwrap();
        let enough = |received: &longhaul_hostile::client::Exchange| {
            received.bytes.iter().filter(|byte| **byte == b'\n').count() >= lines
        };
        stream
            .exchange([said.into_bytes()].into_iter(), ANSWER, enough)
            .await
    });
    let text = String::from_utf8(received.bytes).unwrap();
    text.lines()
        .skip(1)
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Returns every kind of question about a path.
fn all_about(place: &str) -> [Value; 7] {
    [
        json!({"files": "look", "path": path(place), "list": true, "after": null}),
        json!({"files": "look", "path": path(place), "list": false, "after": null}),
        json!({"files": "make_directory", "path": path(place), "parents": true}),
        json!({"files": "rename", "from": path(place), "to": path("in/taken"), "overwrite": true}),
        json!({"files": "rename", "from": path("in/f"), "to": path(place), "overwrite": true}),
        json!({"files": "remove", "path": path(place), "recursive": true}),
        json!({
            "files": "leftovers", "path": path(place), "after": null, "remove_older_than_seconds": 0
        }),
    ]
}

#[test]
fn nothing_escapes_the_root_or_a_grant() {
    let world = world();
    let server = serve(&world);
    for place in [
        "..",
        "in/..",
        "in/../private",
        "in/../../outside",
        "/etc",
        "in/out/secret",
        "in/out/new",
        "in/across/secret",
        "in/across/new",
        "",
        "private",
        "private/secret",
        "private/new",
        "in",
        "nothing/here",
    ] {
        // Looking at what is granted is no attack.
        let questions = all_about(place);
        let questions = if place == "in" {
            &questions[2..6]
        } else {
            &questions[..]
        };
        for (question, answer) in questions.iter().zip(ask(&world, &server, questions)) {
            assert_eq!(answer["files"], "failed", "{question}: {answer}");
            let kind = answer["kind"].as_str().unwrap();
            assert!(
                ["refused_path", "not_granted", "not_a_directory", "exists"].contains(&kind),
                "{question}: {answer}"
            );
        }
    }
    for file in ["root/in/f", "root/private/secret", "outside/secret"] {
        assert_eq!(
            std::fs::read(world.stage.path(file)).unwrap(),
            b"what it holds",
            "{file}"
        );
    }
    assert!(
        !world.stage.path("outside/new").exists() && !world.stage.path("root/private/new").exists()
    );
    // A link itself is removed, and in a tree only the links.
    let gone = ask(
        &world,
        &server,
        &[json!({"files": "remove", "path": path("in/out"), "recursive": true})],
    );
    assert_eq!(gone[0]["files"], "changed");
    std::fs::create_dir(world.stage.path("root/in/tree")).unwrap();
    symlink("../../../outside", world.stage.path("root/in/tree/out")).unwrap();
    let gone = ask(
        &world,
        &server,
        &[json!({"files": "remove", "path": path("in/tree"), "recursive": true})],
    );
    assert_eq!(gone[0]["files"], "changed");
    assert!(world.stage.path("outside/secret").exists());
    world.assert_honest_copy(&server, "direct");
}

#[test]
fn keys_without_read_grant_receive_nothing() {
    let world = world();
    let me = world.stage.key("me");
    let server = world.serve(&["--read", &me, "--write", &me]);
    let target = world.target(&server, "attacker");
    assert!(
        world
            .attackers
            .block_on(target.connect_for_files())
            .is_err()
    );
    drop(server);
    let grant = format!("{}=in", world.stage.key("attacker"));
    let server = world.serve(&["--read", &me, "--write", &me, "--write", &grant]);
    let questions = [
        json!({"files": "look", "path": path("in"), "list": true, "after": null}),
        json!({"files": "look", "path": path("in/f"), "list": false, "after": null}),
        json!({
            "files": "leftovers", "path": path("in"), "after": null,
            "remove_older_than_seconds": null
        }),
    ];
    for answer in ask(&world, &server, &questions) {
        assert_eq!(answer["kind"], "not_granted", "{answer}");
    }
}

#[test]
fn floods_of_file_questions_cost_only_their_sender() {
    let world = world();
    for n in 0..3000 {
        std::fs::write(
            world
                .stage
                .path(&format!("root/in/d/{n:04}{}", "x".repeat(200))),
            "",
        )
        .unwrap();
    }
    let server = serve(&world);
    let huge = json!({
        "files": "look", "path": path("in/d"), "list": true, "after": null, "limit": u32::MAX
    });
    let answers = ask(&world, &server, &vec![huge.clone(); 5]);
    assert_eq!(answers.len(), 5);
    for answer in &answers {
        // Few entries, as their names are long (LH-FILES-7, LH-FILES-3).
        assert!(answer["entries"].as_array().unwrap().len() < 2000);
        assert!(answer.to_string().len() <= 1 << 20);
        assert!(answer["next"].is_string());
    }
    let target = world.target(&server, "attacker");
    let before = Usage::read(server.process()).unwrap();
    // An endless line, many questions whose answers nobody reads, and many sessions.
    world.attackers.block_on(async {
        let mut stream = target.connect_for_files().await.unwrap();
        let endless = std::iter::once(HELLO.as_bytes().to_vec())
            .chain(std::iter::repeat_n(vec![b'x'; 1 << 16], 64));
        let received = stream.exchange(endless, ANSWER, |_| false).await;
        assert!(received.closed);
        let mut greedy = target.connect_for_files().await.unwrap();
        let questions = format!("{HELLO}{}", format!("{huge}\n").repeat(5000));
        let _ = tokio::time::timeout(
            Duration::from_secs(1),
            greedy.send_and_hold(questions.as_bytes()),
        )
        .await;
        let hellos = std::iter::repeat_n(HELLO.as_bytes().to_vec(), 600);
        let held = longhaul_hostile::client::open_held_file_sessions(&target, hellos, HELD).await;
        assert!(!held.is_empty());
        let after = Usage::read(server.process()).unwrap();
        let grown = after.resident.saturating_sub(before.resident);
        assert!(grown < 128 << 20, "{grown} bytes");
        // Other clients still work.
        tokio::task::block_in_place(|| {
            let place = format!("lh://{}/private", server.address);
            let mut command = world.stage.longhaul("me");
            command.args(["ls", "--host-key", &server.key, &place]);
            let listed = command.output().unwrap();
            assert_eq!(
                String::from_utf8_lossy(&listed.stdout),
                "secret\n",
                "{}",
                errors(&listed)
            );
        });
    });
    world.assert_honest_copy(&server, "direct");
}
