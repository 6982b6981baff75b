//! First contact with servers.

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use crate::stage::{Stage, errors};

#[test]
fn a_server_is_remembered_once_its_key_is_proved() {
    let stage = Stage::new();
    let server = stage.serve(&["--perf"]);
    std::fs::write(stage.path("here/f"), "content").unwrap();
    let (there, root) = (
        format!("lh://{}/f", server.address),
        format!("lh://{}", server.address),
    );
    let commands: [(&[&str], Option<i32>); 3] = [
        (&["cp", "here/f", &there], Some(0)),
        (&["perf", "-n", "1M", &server.address], Some(0)),
        // Whatever it finds on this machine.
        (&["doctor", &root], None),
    ];
    let known = stage.path("me/known_hosts");
    let line = format!("{} {}\n", server.address, server.key);
    for (command, expected) in commands {
        let run = |more: &[&str]| {
            let output = stage
                .longhaul("me")
                .args(command)
                .args(more)
                .output()
                .unwrap();
            (output.status.code().unwrap(), errors(&output))
        };
        let (code, said) = run(&[]);
        assert_eq!(code, 4, "{command:?}: {said}");
        assert!(
            said.contains(&server.key) && !known.exists(),
            "{command:?}: {said}"
        );
        for more in [&["--accept-new"][..], &[]] {
            let (code, said) = run(more);
            assert!(
                expected.map_or(code <= 1, |expected| code == expected),
                "{command:?}: {said}"
            );
            assert_eq!(
                std::fs::read_to_string(&known).unwrap(),
                line,
                "{command:?}"
            );
        }
        std::fs::remove_file(&known).unwrap();
    }
}

#[test]
fn a_server_that_refuses_has_proved_nothing() {
    let stage = Stage::new();
    let server = stage.serve(&[]);
    stage.key("stranger");
    std::fs::write(stage.path("here/f"), "content").unwrap();
    let output = stage
        .longhaul("stranger")
        .args([
            "cp",
            "--accept-new",
            "here/f",
            &format!("lh://{}/f", server.address),
        ])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(4), "{}", errors(&output));
    assert!(!stage.path("stranger/known_hosts").exists());
}

#[test]
fn an_interrupt_ends_the_question_whether_a_server_is_trusted() {
    let stage = Stage::new();
    let server = stage.serve(&[]);
    std::fs::write(stage.path("here/f"), "content").unwrap();
    let line = format!(
        "{} cp here/f lh://{}/f",
        env!("CARGO_BIN_EXE_longhaul"),
        server.address
    );
    // util-linux's `script` provides a terminal, and coreutils' `timeout` ends it if the interrupt
    // is not received.
    let mut command = Command::new("timeout");
    command
        .args(["120", "script", "-qec", &line, "/dev/null"])
        .env("LONGHAUL_HOME", stage.path("me"))
        .current_dir(stage.path(""))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return eprintln!("not tested: no `timeout` here ({error})"),
    };
    let (mut input, mut out) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let (mut said, mut byte) = (Vec::new(), [0]);
    while !said.ends_with(b"[y/N] ") && out.read(&mut byte).unwrap() > 0 {
        said.extend(byte);
    }
    if said.is_empty() {
        return eprintln!("not tested: no `script` to make a terminal with");
    }
    // The character of Ctrl-C.
    input.write_all(b"\x03").unwrap();
    out.read_to_end(&mut said).unwrap();
    let said = String::from_utf8_lossy(&said);
    assert_eq!(child.wait().unwrap().code(), Some(130), "{said}");
    assert!(said.contains("interrupted"), "{said}");
    assert!(!stage.path("root/f").exists());
}

#[test]
fn the_default_key_is_made_when_it_is_first_shown() {
    let stage = Stage::new();
    let show = |more: &[&str]| {
        let output = stage
            .longhaul("new")
            .args(["keys", "show"])
            .args(more)
            .output()
            .unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stdout.clone()).unwrap(),
            errors(&output),
        )
    };
    let (code, key, said) = show(&[]);
    assert!(
        code == Some(0) && key.starts_with("lhk1:") && said.contains("made a new key"),
        "{said}"
    );
    assert_eq!(show(&[]), (Some(0), key, String::new()));
    let (code, _, said) = show(&["other"]);
    assert!(
        code == Some(2) && said.contains("longhaul keys new other"),
        "{said}"
    );
}
