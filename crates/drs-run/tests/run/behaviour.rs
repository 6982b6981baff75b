//! Tests that programs behave as without the library.

use std::process::Command;

use crate::{OBJECT, compiled, drs_run, lines, reported};

#[test]
fn a_program_sees_no_difference() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), "behaviour", &[]);
    let plain = Command::new(&program).output().unwrap();
    assert_eq!(plain.status.code(), Some(5), "{}", reported(&plain));
    let expected = String::from_utf8(plain.stdout).unwrap();
    assert!(expected.contains("child ended with: 7"), "{expected}");

    for mode in ["observe", "auto", "classic", "paper+"] {
        let log = folder.path().join(format!("log-{mode}"));
        let output = drs_run(&["--mode", mode, "--log", log.to_str().unwrap()])
            .arg(&program)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(5), "{}", reported(&output));
        assert_eq!(
            String::from_utf8(output.stdout).unwrap(),
            expected,
            "mode {mode}"
        );
        assert_eq!(output.stderr, b"", "mode {mode}");
        let lines = lines(&log);
        // The kernel counts SYN and FIN as bytes.
        let moved = |name: &str, bytes: u64| {
            let ends = lines.iter().filter(|line| line["event"] == "end");
            ends.filter(|line| {
                line[name]
                    .as_u64()
                    .is_some_and(|moved| (bytes..bytes + 3).contains(&moved))
            })
            .count()
        };
        // The ends of the same connection in child and parent, in either process.
        assert!(moved("received", 4_000_000) >= 1, "mode {mode}: {lines:?}");
        assert!(moved("sent", 4_000_000) >= 1, "mode {mode}: {lines:?}");
        assert_eq!(moved("received", 20_000), 1, "mode {mode}: {lines:?}");
        let freed = lines.iter().any(|line| line["what"] == "unlock-receive");
        assert_eq!(
            freed,
            mode != "observe" && has_buffer_locks(),
            "mode {mode}: {lines:?}"
        );
    }
}

/// `SO_BUF_LOCK` came with Linux 5.15.
fn has_buffer_locks() -> bool {
    let release = rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned();
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|n| n.parse::<u32>().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(5), Some(15))
}

#[test]
fn invalid_settings_leave_the_program_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), "behaviour", &[]);
    let expected = Command::new(&program).output().unwrap();
    for (name, value) in [
        ("DRS_MODE", "nonsense"),
        ("DRS_LOG", "/no/such/folder/log"),
        ("DRS_LOG", "/dev/full"),
        ("DRS_LOG", ""),
    ] {
        let output = Command::new(&program)
            .env("LD_PRELOAD", &*OBJECT)
            .env(name, value)
            .output()
            .unwrap();
        assert_eq!(
            output.status.code(),
            Some(5),
            "{name}={value}: {}",
            reported(&output)
        );
        assert_eq!(output.stdout, expected.stdout, "{name}={value}");
        assert_eq!(output.stderr, b"", "{name}={value}");
    }
}

#[test]
fn the_summary_says_what_was_found() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), "behaviour", &[]);
    let log = folder.path().join("log");
    let output = drs_run(&["--summary", "--log", log.to_str().unwrap()])
        .arg(&program)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(5), "{}", reported(&output));
    let summary = String::from_utf8(output.stderr).unwrap();
    assert!(summary.starts_with("drs: "), "{summary}");
    assert!(summary.contains("sent 3.815 MiB"), "{summary}");
    assert!(summary.contains("nothing done: "), "{summary}");
    assert!(!lines(&log).is_empty());
}

#[test]
fn a_process_ends_with_its_last_thread() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), "leaves", &[]);
    let mut command = Command::new("timeout");
    let output = command
        .args(["60", env!("CARGO_BIN_EXE_drs"), "run", "--"])
        .arg(&program)
        .env("DRS_PRELOAD", &*OBJECT)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", reported(&output));
    assert_eq!(output.stdout, b"the last thread ends\n");
}
