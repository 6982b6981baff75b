//! Links to the program with the names of other programs.

use std::fs;
use std::process::{Command, Output};

use crate::stage::*;

/// Runs the program under another name, in the local directory.
fn run(stage: &Stage, name: &str, arguments: &[&str]) -> Output {
    let link = stage.path(name);
    if !link.exists() {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_longhaul"), &link).unwrap();
    }
    let mut command = Command::new(link);
    command.env("LONGHAUL_HOME", stage.path("me"));
    command.env("RUST_LOG", "error");
    command.current_dir(stage.path("here"));
    command.args(arguments).output().unwrap()
}

#[test]
fn scp_replaces_files() {
    let stage = Stage::new();
    fs::create_dir_all(stage.path("here/a/b")).unwrap();
    fs::write(stage.path("here/a/b/f"), "new content").unwrap();
    fs::create_dir_all(stage.path("here/to/a/b")).unwrap();
    fs::write(stage.path("here/to/a/b/f"), "old").unwrap();
    let copied = run(&stage, "scp", &["-rpC", "a", "to"]);
    assert_eq!(copied.status.code(), Some(0), "{}", errors(&copied));
    let reported = errors(&copied);
    assert!(
        reported.contains("scp: -C: data is compressed only while that makes the copy faster\n"),
        "{reported}"
    );
    let content = fs::read_to_string(stage.path("here/to/a/b/f")).unwrap();
    assert_eq!(content, "new content");
    let refused = run(&stage, "scp", &["-l", "800", "a", "to"]);
    assert_eq!(refused.status.code(), Some(2));
    let reported = errors(&refused);
    assert!(reported.starts_with("scp: -l 800: ") && reported.lines().count() == 1);
}

#[test]
fn bbcp_replaces_files_only_with_f() {
    let stage = Stage::new();
    fs::write(stage.path("here/f"), "new content").unwrap();
    fs::write(stage.path("here/g"), "old").unwrap();
    let kept = run(
        &stage,
        "bbcp",
        &["-P", "2", "-w", "8M", "-s", "4", "f", "g"],
    );
    assert_eq!(kept.status.code(), Some(1), "{}", errors(&kept));
    let reported = errors(&kept);
    let window = "bbcp: -w 8M: windows are set automatically\n";
    assert!(reported.contains(window), "{reported}");
    assert_eq!(fs::read_to_string(stage.path("here/g")).unwrap(), "old");
    let replaced = run(&stage, "bbcp", &["-f", "f", "g"]);
    assert_eq!(replaced.status.code(), Some(0), "{}", errors(&replaced));
    assert_eq!(
        fs::read_to_string(stage.path("here/g")).unwrap(),
        "new content"
    );
}

#[test]
fn lget_fetches_to_the_current_directory() {
    let stage = Stage::new();
    let server = stage.serve(&[]);
    fs::write(stage.path("root/f"), "content").unwrap();
    let source = format!("lh://{}/f", server.address);
    let fetched = run(&stage, "lget", &["-q", "--host-key", &server.key, &source]);
    assert_eq!(fetched.status.code(), Some(0), "{}", errors(&fetched));
    assert_eq!(fs::read_to_string(stage.path("here/f")).unwrap(), "content");
    let too_many = run(&stage, "lget", &[&source, "a", "b"]);
    assert_eq!(too_many.status.code(), Some(2));
}
