//! Copies with hosts that have nothing but an SFTP server.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use serde_json::Value;
use wanbed::Overrides;

use crate::hosts::{Copied, FORCES_SFTP, Hosts, OFFERS_SFTP, noise, same};

/// Writes a tree of files of many sizes, with links, modes and times.
fn tree(at: &Path) {
    fs::create_dir_all(at.join("a/b/empty")).unwrap();
    fs::create_dir(at.join("c")).unwrap();
    for (name, len) in [
        ("empty", 0),
        ("one", 1),
        ("a/page", 4096),
        ("a/b/request", 255 << 10),
        ("a/b/more", (255 << 10) + 1),
        ("c/ranges", 3_000_001),
    ] {
        noise(&at.join(name), len);
    }
    for number in 0..150 {
        noise(&at.join(format!("c/f{number}")), 100 + number);
    }
    noise(&at.join("c/n\u{e4}me with space\nand newline"), 10);
    fs::set_permissions(at.join("one"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::set_permissions(at.join("a/page"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink("a/page", at.join("link")).unwrap();
    symlink("/nowhere", at.join("c/dangling")).unwrap();
    let old = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    let file = fs::File::options()
        .write(true)
        .open(at.join("one"))
        .unwrap();
    file.set_modified(old).unwrap();
    fs::set_permissions(at.join("a"), fs::Permissions::from_mode(0o750)).unwrap();
    fs::File::open(at.join("a/b"))
        .unwrap()
        .set_modified(old)
        .unwrap();
}

/// Asserts that two trees have the same entries, content, permissions, links and seconds of their
/// times.
#[track_caller]
fn assert_equal(one: &Path, other: &Path) {
    let (left, right) = (described(one), described(other));
    assert_eq!(left, right);
    assert!(same(one, other));
}

fn described(root: &Path) -> Vec<(PathBuf, u32, i64, Option<PathBuf>)> {
    let mut found = Vec::new();
    let mut left = vec![root.to_path_buf()];
    while let Some(path) = left.pop() {
        let stat = fs::symlink_metadata(&path).unwrap();
        let link = fs::read_link(&path).ok();
        let below = path.strip_prefix(root).unwrap().to_path_buf();
        let mtime = if link.is_some() { 0 } else { stat.mtime() };
        found.push((below, stat.mode() & 0o777, mtime, link));
        if stat.is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|one| one.unwrap().path()));
        }
    }
    found.sort();
    found
}

/// Asserts that no unfinished file is left.
#[track_caller]
fn assert_clean(directory: &Path) {
    for (path, ..) in described(directory) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        assert!(!name.starts_with(".longhaul-"), "{}", path.display());
    }
}

#[test]
fn trees_go_both_ways_to_hosts_without_longhaul() {
    let Some(hosts) = Hosts::up_with(&[], OFFERS_SFTP) else {
        return;
    };
    tree(&hosts.path("here/tree"));
    let pushed = hosts.cp(&["-r", "here/tree", "alpha:copied"]);
    pushed.assert_done();
    assert_equal(
        &hosts.path("here/tree"),
        &hosts.home("alpha").join("copied"),
    );
    assert_clean(&hosts.home("alpha"));
    // It says so in one line, and claims nothing.
    assert_eq!(pushed.notices.len(), 1, "{:?}", pushed.notices);
    assert!(
        pushed.notices[0].contains("by sftp"),
        "{:?}",
        pushed.notices
    );
    assert_eq!(pushed.report["verification"]["verified"], false);
    assert_eq!(pushed.report["encrypted"], true);
    assert_eq!(pushed.report["files"], 157);
    assert_eq!(pushed.routes[0], "sftp");

    let pulled = hosts.cp(&["-r", "alpha:copied", "here/back"]);
    pulled.assert_done();
    assert_equal(&hosts.path("here/tree"), &hosts.path("here/back"));
    assert_eq!(pulled.report["verification"]["verified"], false);

    // What is there already does not travel.
    for arguments in [
        ["-r", "here/tree/.", "alpha:copied"],
        ["-r", "alpha:copied/.", "here/back"],
    ] {
        let again = hosts.cp(&arguments);
        again.assert_done();
        assert_eq!(again.report["unchanged_files"], 157, "{}", again.report);
        assert_eq!(again.report["goodput_bps"], 0.0, "{}", again.report);
    }

    // A URL asks for it.
    let absolute = "sftp://alpha/run/ana/copied/c/ranges";
    let one = hosts.cp(&[absolute, "sftp://alpha/~/copied/one", "here/"]);
    one.assert_done();
    assert!(same(
        &hosts.path("here/tree/c/ranges"),
        &hosts.path("here/ranges")
    ));
    assert_eq!(one.notices, Vec::<String>::new());
    hosts
        .cp(&["here/ranges", "sftp://ana@alpha:2222/~/new/"])
        .assert_done();
    assert!(hosts.home("alpha").join("new/ranges").is_file());
}

#[test]
fn account_that_allows_sftp_only_is_enough() {
    let Some(hosts) = Hosts::up_with(&["alpha"], FORCES_SFTP) else {
        return;
    };
    noise(&hosts.path("here/big"), 3 << 20);
    let pushed = hosts.cp(&["here/big", "alpha:"]);
    pushed.assert_done();
    assert!(
        pushed.notices[0].contains("copying by sftp"),
        "{:?}",
        pushed.notices
    );
    hosts.cp(&["sftp://alpha/~/big", "here/back"]).assert_done();
    assert!(same(&hosts.path("here/big"), &hosts.path("here/back")));
}

#[test]
fn existing_files_are_treated_as_in_other_copies() {
    let Some(hosts) = Hosts::up_with(&[], OFFERS_SFTP) else {
        return;
    };
    let there = hosts.home("alpha");
    noise(&hosts.path("here/file"), 1000);
    fs::write(there.join("file"), "something else").unwrap();
    let refused = hosts.cp(&["here/file", "sftp://alpha/~/"]);
    assert_eq!(refused.code, Some(1), "{}", refused.report);
    assert_eq!(refused.report["failures"][0]["kind"], "exists");
    assert_eq!(fs::read(there.join("file")).unwrap(), b"something else");
    hosts
        .cp(&["--overwrite", "here/file", "sftp://alpha/~/"])
        .assert_done();
    assert!(same(&hosts.path("here/file"), &there.join("file")));

    // The same content at another time is found by reading it.
    let file = fs::File::options()
        .write(true)
        .open(there.join("file"))
        .unwrap();
    file.set_modified(std::time::UNIX_EPOCH).unwrap();
    let same_content = hosts.cp(&["--checksum", "here/file", "sftp://alpha/~/"]);
    same_content.assert_done();
    assert_eq!(same_content.report["unchanged_files"], 1);
    fs::write(there.join("file"), [0; 1000]).unwrap();
    let other_content = hosts.cp(&["--checksum", "here/file", "sftp://alpha/~/"]);
    assert_eq!(other_content.report["failures"][0]["kind"], "exists");

    // A directory is in the way of a file.
    fs::create_dir(there.join("dir")).unwrap();
    noise(&hosts.path("here/dir"), 10);
    fs::create_dir(hosts.path("here/into")).unwrap();
    fs::rename(hosts.path("here/dir"), hosts.path("here/into/dir")).unwrap();
    let wrong = hosts.cp(&["-r", "--overwrite", "here/into/.", "sftp://alpha/~/"]);
    assert_eq!(wrong.report["failures"][0]["kind"], "wrong_kind");

    let nowhere = hosts.cp(&["here/file", "sftp://alpha/no/such/place"]);
    assert_eq!(nowhere.code, Some(1), "{}", nowhere.report);
    assert!(nowhere.error().contains("make that directory first"));
    let missing = hosts.cp(&["sftp://alpha/~/missing", "here/"]);
    assert_eq!(missing.report["failures"][0]["kind"], "not_found");
    assert_eq!(missing.code, Some(2), "{}", missing.report);
    let not_recursive = hosts.cp(&["sftp://alpha/~/dir", "here/"]);
    assert_eq!(not_recursive.report["failures"][0]["kind"], "is_directory");
}

#[test]
fn filters_apply_to_trees_at_hosts() {
    let Some(hosts) = Hosts::up_with(&[], OFFERS_SFTP) else {
        return;
    };
    let there = hosts.home("alpha").join("tree");
    tree(&there);
    fs::write(there.join("c/.longhaulignore"), "f1*\n").unwrap();
    let options = ["-r", "--exclude", "a/b", "--max-size", "1000"];
    let arguments = [&options[..], &["sftp://alpha/~/tree", "here/back"]].concat();
    hosts.cp(&arguments).assert_done();
    let back = hosts.path("here/back");
    assert!(back.join("a/page").symlink_metadata().is_err());
    assert!(back.join("a/b").symlink_metadata().is_err());
    assert!(back.join("c/f1").symlink_metadata().is_err());
    assert!(back.join("c/f10").symlink_metadata().is_err());
    assert!(back.join("c/f2").is_file() && back.join("one").is_file());
    let refused = hosts.cp(&["-r", "-x", "sftp://alpha/~/tree", "here/other"]);
    assert_eq!(refused.code, Some(2), "{}", refused.report);
}

/// A copy that runs.
pub struct Running {
    pub child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Running {
    pub fn start(hosts: &Hosts, arguments: &[&str]) -> Self {
        let mut command = hosts.longhaul();
        command
            .args(["cp", "-F", "config", "--json"])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    /// Waits until so many bytes are in place.
    pub fn wait_for(&mut self, bytes: u64) {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.lines.read_line(&mut line).unwrap() > 0);
            let event: Value = serde_json::from_str(&line).unwrap();
            assert_ne!(event["event"], "report", "over already: {event}");
            if event["event"] == "progress" && event["bytes"].as_u64() >= Some(bytes) {
                return;
            }
        }
    }

    /// Waits for the end.
    pub fn result(mut self) -> Copied {
        let mut stdout = Vec::new();
        self.lines.read_to_end(&mut stdout).unwrap();
        let mut output = self.child.wait_with_output().unwrap();
        output.stdout = stdout;
        Copied::from_output(output)
    }
}

#[test]
fn lost_connections_are_replaced_in_both_directions() {
    let Some(hosts) = Hosts::up_with(&[], OFFERS_SFTP) else {
        return;
    };
    noise(&hosts.path("here/big"), 60 << 20);
    noise(&hosts.home("beta").join("big"), 60 << 20);
    // The link to beta takes some ten seconds for this.
    for paths in [
        ["here/big", "sftp://beta/~/one"],
        ["sftp://beta/~/big", "here/two"],
    ] {
        let mut copy = Running::start(&hosts, &paths);
        copy.wait_for(2 << 20);
        // First some, once there are several, then all.
        while hosts.kill_sftp(1) == 0 {
            copy.wait_for(2 << 20);
        }
        copy.wait_for(6 << 20);
        assert!(hosts.kill_sftp(0) > 0);
        let copied = copy.result();
        copied.assert_done();
    }
    assert!(same(
        &hosts.path("here/big"),
        &hosts.home("beta").join("one")
    ));
    assert!(same(
        &hosts.home("beta").join("big"),
        &hosts.path("here/two")
    ));
    assert_clean(&hosts.home("beta"));
}

#[test]
fn interrupted_copies_resume_large_files() {
    // A copy takes some seven seconds, so that it is killed in time.
    let slow = Overrides::default().set("links.b.rate", "\"100 Mbit/s\"");
    let Some(hosts) = Hosts::up_on(&slow, &[], OFFERS_SFTP) else {
        return;
    };
    noise(&hosts.path("here/big"), 80 << 20);
    let there = hosts.home("alpha");
    let paths = ["here/big", "sftp://alpha/~/"];
    let mut copy = Running::start(&hosts, &paths);
    copy.wait_for(48 << 20);
    copy.child.kill().unwrap();
    copy.child.wait().unwrap();
    assert!(!there.join("big").exists());
    let left = fs::read_dir(&there).unwrap().count();
    assert_eq!(left, 1);
    let resumed = hosts.cp(&paths);
    resumed.assert_done();
    let bytes = resumed.report["resumed_bytes"].as_u64().unwrap();
    assert!(bytes > 1 << 20, "{}", resumed.report);
    assert!(same(&hosts.path("here/big"), &there.join("big")));
    assert_clean(&there);

    // From there, the journal says what is in place.
    let paths = ["sftp://alpha/~/big", "here/back"];
    let mut copy = Running::start(&hosts, &paths);
    copy.wait_for(40 << 20);
    copy.child.kill().unwrap();
    copy.child.wait().unwrap();
    let resumed = hosts.cp(&paths);
    resumed.assert_done();
    let bytes = resumed.report["resumed_bytes"].as_u64().unwrap();
    assert!(bytes > 1 << 20, "{}", resumed.report);
    assert!(same(&hosts.path("here/big"), &hosts.path("here/back")));

    // Another state of the file is not mixed with what is there.
    let mut copy = Running::start(&hosts, &["here/big", "sftp://alpha/~/other"]);
    copy.wait_for(48 << 20);
    copy.child.kill().unwrap();
    copy.child.wait().unwrap();
    fs::write(hosts.path("here/big"), crate::common::noise(80 << 20, 5)).unwrap();
    let begun = hosts.cp(&["here/big", "sftp://alpha/~/other"]);
    begun.assert_done();
    assert_eq!(begun.report["resumed_bytes"], 0);
    assert!(same(&hosts.path("here/big"), &there.join("other")));
}

#[test]
fn interrupted_copy_removes_its_small_files() {
    let Some(hosts) = Hosts::up_with(&[], OFFERS_SFTP) else {
        return;
    };
    noise(&hosts.path("here/big"), 60 << 20);
    let mut copy = Running::start(&hosts, &["here/big", "sftp://beta/~/"]);
    copy.wait_for(1 << 20);
    crate::common::signal(&copy.child, "INT");
    let copied = copy.result();
    assert_eq!(copied.code, Some(130), "{}", copied.report);
    let left = fs::read_dir(hosts.home("beta")).unwrap();
    assert_eq!(left.count(), 0);
}

#[test]
fn full_disk_and_wrong_login_are_named() {
    let Some(hosts) = Hosts::up_with(&[], OFFERS_SFTP) else {
        return;
    };
    noise(&hosts.path("here/big"), 3 << 20);
    let full = hosts.cp(&["here/big", "sftp://alpha/run/small/"]);
    assert_eq!(full.code, Some(1), "{}", full.report);
    let failure = full.report["failures"][0]["message"].to_string();
    assert!(failure.contains("a full disk or quota"), "{failure}");
    // What did not fit is not left there.
    noise(&hosts.path("here/fits"), 900 << 10);
    hosts
        .cp(&["here/fits", "sftp://alpha/run/small/"])
        .assert_done();
    let login = hosts.cp(&["here/big", "sftp://nobody@alpha/~/"]);
    assert_eq!(login.code, Some(3), "{}", login.report);
    assert!(
        login.error().contains("cannot log in to nobody@alpha"),
        "{}",
        login.error()
    );
    let by_name = hosts.cp(&["here/big", "nobody@alpha:"]);
    assert_eq!(by_name.code, Some(3), "{}", by_name.report);
    assert_eq!(by_name.notices, Vec::<String>::new());
    let denied = hosts.cp(&["here/big", "sftp://alpha/proc/"]);
    assert_eq!(denied.code, Some(1), "{}", denied.report);
}

#[test]
fn host_without_sftp_keeps_its_message() {
    let Some(hosts) = Hosts::up(&[]) else { return };
    noise(&hosts.path("here/file"), 100);
    let neither = hosts.cp(&["here/file", "alpha:"]);
    assert!(
        neither.error().contains("has no longhaul"),
        "{}",
        neither.error()
    );
    let asked = hosts.cp(&["here/file", "sftp://alpha/~/"]);
    assert_eq!(asked.code, Some(3), "{}", asked.report);
    assert!(asked.error().contains("has no sftp"), "{}", asked.error());
    assert_eq!(asked.report["worth_retrying"], false);
}

#[test]
fn names_that_are_not_utf8_are_reported() {
    use std::os::unix::ffi::OsStrExt;
    let Some(hosts) = Hosts::up_with(&[], OFFERS_SFTP) else {
        return;
    };
    let odd = std::ffi::OsStr::from_bytes(b"n\xffme");
    fs::create_dir(hosts.path("here/tree")).unwrap();
    fs::write(hosts.path("here/tree").join(odd), "odd").unwrap();
    noise(&hosts.path("here/tree/plain"), 100);
    let pushed = hosts.cp(&["-r", "here/tree", "sftp://alpha/~/"]);
    assert_eq!(pushed.code, Some(1), "{}", pushed.report);
    assert_eq!(pushed.report["failures"][0]["kind"], "refused_path");
    assert!(hosts.home("alpha").join("tree/plain").is_file());

    let there = hosts.home("alpha").join("tree");
    fs::create_dir(there.join("sub")).unwrap();
    fs::write(there.join("sub").join(odd), "odd").unwrap();
    let pulled = hosts.cp(&["-r", "sftp://alpha/~/tree", "here/back"]);
    assert_eq!(pulled.code, Some(1), "{}", pulled.report);
    let failure = &pulled.report["failures"][0];
    assert!(
        failure["path"].as_str().unwrap().ends_with("tree/sub"),
        "{failure}"
    );
    assert!(hosts.path("here/back/plain").is_file());
}
