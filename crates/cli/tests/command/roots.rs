//! Roots of servers that are moved, replaced or mounted over while they are served.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::stage::*;

/// Rate of the depot that the copies pass, so that they last long enough.
const SLOW: Option<&str> = Some("16 Mbit/s");
/// Time limit for a line in a log: far more than anything takes.
const LOG_TIMEOUT: Duration = Duration::from_secs(120);

/// A file system of a directory of `stage`, mounted over its root. Unmounted on drop.
struct MountedOver<'a>(&'a Stage);

impl<'a> MountedOver<'a> {
    /// Returns `None`, and prints why, if nothing can be mounted here.
    fn new(stage: &'a Stage, dir: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("not tested: only root may mount");
            return None;
        }
        let mounted = Command::new("mount")
            .arg("--bind")
            .args([stage.path(dir), stage.path("root")])
            .output()
            .unwrap();
        if !mounted.status.success() {
            eprintln!("not tested: {}", errors(&mounted));
            return None;
        }
        Some(Self(stage))
    }
}

impl Drop for MountedOver<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount")
            .arg("--lazy")
            .arg(self.0.path("root"))
            .output();
    }
}

fn is_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).unwrap().next().is_none()
}

/// Copies the file `here/f` to `name` at the server.
fn push(stage: &Stage, server: &Service, name: &str) -> (Option<i32>, String) {
    let there = format!("lh://{}/{name}", server.address);
    let copy = stage.cp(server, &["here/f", &there]);
    (copy.status.code(), errors(&copy))
}

/// Waits until a server has logged these words.
fn wait_for_log(log: &Path, words: &str) {
    let deadline = Instant::now() + LOG_TIMEOUT;
    loop {
        let reported = std::fs::read_to_string(log).unwrap();
        if reported.contains(words) {
            return;
        }
        assert!(Instant::now() < deadline, "no {words:?} in {reported}");
        std::thread::yield_now();
    }
}

fn assert_refused((code, reported): (Option<i32>, String)) {
    assert_eq!(code, Some(1), "{reported}");
    assert!(
        reported.contains("was moved, replaced or mounted over"),
        "{reported}"
    );
}

#[test]
fn nothing_lands_beneath_a_mount_over_the_root() {
    let stage = Stage::new();
    stage.noise("here/f", 1000);
    std::fs::create_dir(stage.path("disk")).unwrap();
    let log = stage.path("log");
    let server = stage.serve_logging_to(&log, &[]);
    let Some(mounted) = MountedOver::new(&stage, "disk") else {
        return;
    };
    assert_refused(push(&stage, &server, "f"));
    let listed = stage
        .longhaul("me")
        .args([
            "ls",
            "--host-key",
            &server.key,
            &format!("lh://{}/", server.address),
        ])
        .output()
        .unwrap();
    assert_eq!(listed.status.code(), Some(1), "{}", errors(&listed));
    wait_for_log(&log, "the root was replaced or mounted over");
    // The same root is back.
    drop(mounted);
    assert!(is_empty(&stage.path("root")) && is_empty(&stage.path("disk")));
    assert_eq!(push(&stage, &server, "f").0, Some(0));
    assert!(stage.path("root/f").exists());
}

#[test]
fn a_recreated_root_is_served_once_confirmed() {
    let stage = Stage::new();
    stage.noise("here/f", 1000);
    let log = stage.path("log");
    let server = stage.serve_logging_to(&log, &[]);
    std::fs::rename(stage.path("root"), stage.path("former")).unwrap();
    assert_refused(push(&stage, &server, "f"));
    // There is nothing to confirm yet.
    server.hang_up();
    wait_for_log(&log, "cannot open the root");
    assert_refused(push(&stage, &server, "f"));
    std::fs::create_dir(stage.path("root")).unwrap();
    assert_refused(push(&stage, &server, "f"));
    server.hang_up();
    // A signal takes effect with a delay.
    wait_for_log(&log, "the directory at the root's path is another one");
    let (code, reported) = push(&stage, &server, "f");
    assert_eq!(code, Some(0), "{reported}");
    assert!(stage.path("root/f").exists());
    assert!(is_empty(&stage.path("former")));
}

#[test]
fn copy_under_way_ends_kept_or_continues_in_the_confirmed_root() {
    for is_confirmed in [false, true] {
        let stage = Stage::new();
        let server = stage.serve(&[]);
        let depot = stage.depot("d", SLOW);
        let data = stage.noise("here/f", 20_000_000);
        let there = format!("lh://{}/f", server.address);
        let mut copy = stage.start_cp(&server, &["--route", &depot.address, "here/f", &there]);
        copy.until_mid_copy();
        std::fs::rename(stage.path("root"), stage.path("former")).unwrap();
        std::fs::create_dir(stage.path("root")).unwrap();
        if is_confirmed {
            server.hang_up();
        }
        let (report, code, reported) = copy.report();
        let root = stage.path("root");
        if is_confirmed {
            assert_eq!(code, Some(0), "{report} {reported}");
            assert_eq!(std::fs::read(root.join("f")).unwrap(), data);
        } else {
            assert_eq!(code, Some(5), "{report} {reported}");
            let error = report["error"].as_str().unwrap();
            assert!(
                error.contains("was moved, replaced or mounted over"),
                "{error}"
            );
            assert!(is_empty(&root));
        }
        assert!(!stage.path("former/f").exists());
        assert!(no_temps(&root));
    }
}
