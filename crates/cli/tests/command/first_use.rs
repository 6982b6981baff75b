//! Servers that are met for the first time.

use crate::stage::{Stage, errors};

#[test]
fn a_server_that_proved_its_key_is_known_from_then_on() {
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
        // Whatever it finds of this machine.
        (&["doctor", &root], None),
    ];
    let known = stage.path("me/known_hosts");
    let line = format!("{} {}\n", server.address, server.key);
    for (command, expected) in commands {
        let run = |more: &[&str]| {
            let output = stage.longhaul("me").args(command).args(more).output().unwrap();
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
            assert_eq!(std::fs::read_to_string(&known).unwrap(), line, "{command:?}");
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
