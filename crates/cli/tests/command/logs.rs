//! Output of long-running commands on standard error.

use serde_json::Value;

use crate::stage::{Stage, errors};

#[test]
fn logs_in_a_file_hold_no_escape_codes() {
    let stage = Stage::new();
    let log = stage.path("log");
    let server = stage.serve_logging_to(&log, &[]);
    std::fs::write(stage.path("here/f"), "content").unwrap();
    let copied = stage.cp(&server, &["here/f", &format!("lh://{}/f", server.address)]);
    assert!(copied.status.success());
    assert_eq!(server.terminate(), Some(0));
    let written = std::fs::read(&log).unwrap();
    let text = String::from_utf8_lossy(&written);
    assert!(text.contains("INFO copy ended key=lhk1:"), "{text}");
    assert!(!written.contains(&0x1b), "{text:?}");
}

/// A copy is one line of a server's log, however many streams and files it has.
#[test]
fn a_copy_is_one_line_of_the_log() {
    let stage = Stage::new();
    let log = stage.path("log");
    let server = stage.serve_logging_to(&log, &[]);
    std::fs::create_dir(stage.path("here/tree")).unwrap();
    for file in 0..50 {
        stage.noise(&format!("here/tree/{file}"), 100_000);
    }
    const COPIES: usize = 3;
    // A stream that is still being set up when its copy ends has a line of its own.
    let lines = || {
        let text = std::fs::read_to_string(&log).unwrap();
        let lines = text.lines().filter(|line| !line.contains("no session"));
        lines.count()
    };
    let before = lines();
    for copy in 0..COPIES {
        let target = format!("lh://{}/{copy}", server.address);
        let copied = stage.cp(&server, &["-r", "--streams", "8", "here/tree", &target]);
        assert!(copied.status.success(), "{}", errors(&copied));
    }
    assert_eq!(server.terminate(), Some(0));
    let text = std::fs::read_to_string(&log).unwrap();
    assert_eq!(text.matches("copy ended").count(), COPIES, "{text}");
    assert_eq!(lines() - before, COPIES, "{text}");
    assert!(text.contains("files=50 bytes=5000000"), "{text}");
    assert!(text.contains("result=\"completed\""), "{text}");
}

#[test]
fn every_line_of_a_log_may_be_json() {
    let stage = Stage::new();
    let log = stage.path("log");
    let server = stage.serve_logging_to(&log, &["--log-format", "json"]);
    std::fs::write(stage.path("here/f"), "content").unwrap();
    let copied = stage.cp(&server, &["here/f", &format!("lh://{}/f", server.address)]);
    assert!(copied.status.success());
    assert_eq!(server.terminate(), Some(0));
    let text = std::fs::read_to_string(&log).unwrap();
    // Messages of the command itself are no events.
    let events = text.lines().filter(|line| !line.starts_with("longhaul: "));
    let lines = events.map(|line| {
        serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"))
    });
    let lines: Vec<Value> = lines.collect();
    for line in &lines {
        for field in ["time", "level", "message"] {
            assert!(line[field].is_string(), "{line}");
        }
    }
    let ended = lines.iter().find(|line| line["message"] == "copy ended");
    let ended = ended.unwrap_or_else(|| panic!("{text}"));
    assert_eq!((&ended["files"], &ended["bytes"]), (&1.into(), &7.into()));
}
