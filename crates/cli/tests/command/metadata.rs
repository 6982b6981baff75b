//! `longhaul cp -a` and `sync -a` against `rsync -aAXH`: owners, ACLs, extended attributes, special
//! files, set-ID bits and links. Most of it needs root.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use rustix::fs::{CWD, FileType, Mode};
use serde_json::Value;

use crate::common::archive::listing::{attributes, describe};
use crate::common::program;
use crate::stage::*;

/// Returns true if this user and machine can make everything that `-a` keeps. Otherwise prints what
/// is missing.
fn has_all(stage: &Stage) -> bool {
    if !rustix::process::geteuid().is_root() {
        eprintln!("left out: only root can give files away");
        return false;
    }
    for name in ["rsync", "setfacl", "setfattr"] {
        if program(name).is_none() {
            eprintln!("left out: {name} is not installed");
            return false;
        }
    }
    let probe = stage.path("probe");
    fs::write(&probe, "").unwrap();
    let acl = ["setfacl", "-m", "u:1234:r"];
    let attribute = ["setfattr", "-n", "user.a", "-v", "x"];
    let has = try_run(&acl, &probe) && try_run(&attribute, &probe);
    if !has {
        eprintln!("left out: the file system has no ACLs or no extended attributes");
    }
    has
}

fn try_run(words: &[&str], path: &Path) -> bool {
    let (name, arguments) = words.split_first().unwrap();
    let output = Command::new(program(name).unwrap())
        .args(arguments)
        .arg(path)
        .output()
        .unwrap();
    output.status.success()
}

fn run(words: &[&str], path: &Path) {
    assert!(try_run(words, path), "{words:?} {}", path.display());
}

/// Makes a tree with one of everything.
fn make(root: &Path) {
    fs::create_dir_all(root.join("d/empty")).unwrap();
    for (path, size) in [
        ("plain", 10),
        ("d/acl", 2000),
        ("d/large", 700_000),
        ("set-id", 5),
    ] {
        fs::write(root.join(path), vec![3; size]).unwrap();
    }
    fs::hard_link(root.join("plain"), root.join("d/same")).unwrap();
    symlink("../plain", root.join("d/link")).unwrap();
    let node = |path: &str, kind, mode, device: (u32, u32)| {
        let device = rustix::fs::makedev(device.0, device.1);
        let mode = Mode::from_raw_mode(mode);
        rustix::fs::mknodat(CWD, root.join(path), kind, mode, device).unwrap();
    };
    node("fifo", FileType::Fifo, 0o620, (0, 0));
    node("socket", FileType::Socket, 0o600, (0, 0));
    node("d/null", FileType::CharacterDevice, 0o666, (1, 3));
    node("d/loop", FileType::BlockDevice, 0o660, (7, 200));
    for (path, user, group) in [
        ("plain", 1001, 1002),
        ("d", 1003, 1003),
        ("d/link", 1004, 1005),
        ("d/large", 54_321, 54_322),
        ("set-id", 1001, 1001),
        ("fifo", 1001, 0),
    ] {
        lchown(root.join(path), Some(user), Some(group)).unwrap();
    }
    for (path, mode) in [
        ("set-id", 0o6755),
        ("d", 0o2770),
        ("d/empty", 0o1777),
        ("d/large", 0o400),
    ] {
        fs::set_permissions(root.join(path), Permissions::from_mode(mode)).unwrap();
    }
    run(
        &["setfacl", "-m", "u:1234:rw,g:4321:r"],
        &root.join("d/acl"),
    );
    run(&["setfacl", "-d", "-m", "u:1234:rwx"], &root.join("d"));
    for (path, name) in [("d/acl", "user.note"), ("d", "user.of-directory")] {
        run(&["setfattr", "-n", name, "-v", "text"], &root.join(path));
    }
    // A container may forbid these.
    let capability = "0x0100000200040000000000000000000000000000";
    for (path, name, value) in [
        ("d/large", "trusted.note", "text"),
        ("plain", "security.capability", capability),
    ] {
        try_run(&["setfattr", "-n", name, "-v", value], &root.join(path));
    }
    // Before 1970, and with fractions of a second.
    for (path, nanoseconds) in [("plain", 1_500_000_001u64), ("d/acl", 86_400_000_000_007)] {
        let time = SystemTime::UNIX_EPOCH - Duration::from_nanos(nanoseconds);
        let file = fs::File::open(root.join(path)).unwrap();
        file.set_modified(time).unwrap();
    }
}

fn mirror_with_rsync(source: &Path, target: &Path) {
    let output = Command::new("rsync")
        // Without this, a time within the same second counts as equal.
        .args(["-aAXH", "--delete", "--modify-window=-1"])
        .arg(source.join(""))
        .arg(target.join(""))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn report_at(stage: &Stage, server: &Service, arguments: &[&str]) -> Value {
    let (name, rest) = arguments.split_first().unwrap();
    let there = format!("lh://{}/", server.address);
    let output = stage
        .longhaul("me")
        .args([name, "--json", "--host-key", &server.key])
        .args(rest.iter().map(|argument| argument.replace('@', &there)))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let lines = String::from_utf8(output.stdout).unwrap();
    let mut events = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    events
        .find(|event: &Value| event["event"] == "report")
        .unwrap()
}

#[test]
fn archives_equal_those_of_rsync() {
    let stage = Stage::new();
    if !has_all(&stage) {
        return;
    }
    let server = stage.serve(&["--allow-owners"]);
    make(&stage.path("here/t"));
    mirror_with_rsync(&stage.path("here/t"), &stage.path("expected"));
    let expected = describe(&stage.path("expected"));
    assert_eq!(expected, describe(&stage.path("here/t")));
    // Here, to a server, and back.
    fs::create_dir(stage.path("local")).unwrap();
    report_at(
        &stage,
        &server,
        &["sync", "-a", "--delete", "here/t", "local"],
    );
    report_at(&stage, &server, &["cp", "-a", "here/t", "@pushed"]);
    report_at(&stage, &server, &["cp", "-a", "@pushed", "back"]);
    for copy in ["local", "root/pushed", "back"] {
        assert_eq!(describe(&stage.path(copy)), expected, "{copy}");
    }
}

#[test]
fn changed_metadata_is_corrected_as_by_rsync() {
    let stage = Stage::new();
    if !has_all(&stage) {
        return;
    }
    let server = stage.serve(&["--allow-owners"]);
    make(&stage.path("here/t"));
    fs::create_dir(stage.path("expected")).unwrap();
    let both = || {
        mirror_with_rsync(&stage.path("here/t"), &stage.path("expected"));
        report_at(
            &stage,
            &server,
            &["sync", "-a", "--delete", "here/t", "@copy"],
        )
    };
    both();
    let t = stage.path("here/t");
    lchown(t.join("d/large"), Some(7), Some(8)).unwrap();
    lchown(t.join("d/link"), Some(9), Some(9)).unwrap();
    lchown(t.join("socket"), Some(9), Some(9)).unwrap();
    run(&["setfacl", "-b"], &t.join("d/acl"));
    run(&["setfacl", "-k"], &t.join("d"));
    run(&["setfacl", "-m", "u:1111:r"], &t.join("set-id"));
    run(&["setfattr", "-x", "user.note"], &t.join("d/acl"));
    run(
        &["setfattr", "-n", "user.new", "-v", "1"],
        &t.join("d/empty"),
    );
    fs::set_permissions(t.join("set-id"), Permissions::from_mode(0o2711)).unwrap();
    fs::remove_file(t.join("fifo")).unwrap();
    fs::write(t.join("fifo"), "a file now").unwrap();
    fs::remove_file(t.join("d/null")).unwrap();
    let report = both();
    let differs = describe(&stage.path("root/copy"));
    assert_eq!(differs, describe(&stage.path("expected")));
    // Of the unchanged files, nothing travelled.
    let sent = report["bytes"].as_u64().unwrap() - report["unchanged_bytes"].as_u64().unwrap();
    assert!(sent < 100_000, "{report}");
}

#[test]
fn server_without_permission_reports_what_is_not_kept() {
    let stage = Stage::new();
    if !has_all(&stage) {
        return;
    }
    let server = stage.serve(&[]);
    make(&stage.path("here/t"));
    for device in ["d/null", "d/loop"] {
        fs::remove_file(stage.path("here/t").join(device)).unwrap();
    }
    let report = report_at(&stage, &server, &["cp", "-a", "here/t", "@pushed"]);
    let counts = ["owners", "set_id_bits", "acls", "extended_attributes"]
        .map(|name| report["not_kept"][name].as_u64().unwrap());
    let is_withheld = |name: &String| name.starts_with("trusted.") || name.starts_with("security.");
    let withheld = ["plain", "d/large"].iter().filter(|path| {
        attributes(&stage.path("here/t").join(path))
            .keys()
            .any(is_withheld)
    });
    // The hard link is another name of a file that counts.
    assert_eq!(counts, [6, 2, 0, withheld.count() as u64], "{report}");
    let set_id = fs::metadata(stage.path("root/pushed/set-id")).unwrap();
    assert_eq!((set_id.mode() & 0o7777, set_id.uid()), (0o755, 0));
    let acl = attributes(&stage.path("root/pushed/d/acl"));
    assert!(acl.contains_key("system.posix_acl_access") && acl.contains_key("user.note"));
}

#[test]
fn owners_that_cannot_be_set_are_an_error_only_with_chown() {
    let stage = Stage::new();
    fs::create_dir(stage.path("here/t")).unwrap();
    fs::write(stage.path("here/t/f"), "x").unwrap();
    let server = stage.serve(&[]);
    let to = |path: &str| format!("lh://{}/{path}", server.address);
    let refused = stage.cp(&server, &["-r", "--chown", "12345", "here/t", &to("a")]);
    assert_eq!(refused.status.code(), Some(1), "{}", errors(&refused));
    assert!(
        errors(&refused).contains("--allow-owners"),
        "{}",
        errors(&refused)
    );
    let wrong = stage.cp(&server, &["--chown", ":", "here/t", &to("a")]);
    assert_eq!(wrong.status.code(), Some(2));
    let wrong = stage.cp(&server, &["--chmod", "rwx", "here/t", &to("a")]);
    assert_eq!(wrong.status.code(), Some(2));
    if !rustix::process::geteuid().is_root() {
        eprintln!("left out: only root can give files away");
        return;
    }
    let given = stage.cp(
        &server,
        &["-r", "--chown", "12345:0", "here/t", "here/given"],
    );
    assert_eq!(given.status.code(), Some(0), "{}", errors(&given));
    let meta = fs::metadata(stage.path("here/given/f")).unwrap();
    assert_eq!((meta.uid(), meta.gid()), (12345, 0));
}

#[test]
fn permissions_and_links_are_changed_on_request() {
    let stage = Stage::new();
    let server = stage.serve(&[]);
    fs::create_dir_all(stage.path("here/t/d")).unwrap();
    fs::write(stage.path("here/t/d/f"), "x").unwrap();
    fs::write(stage.path("here/outside"), "outside").unwrap();
    symlink("../outside", stage.path("here/t/out")).unwrap();
    symlink("d/f", stage.path("here/t/in")).unwrap();
    let there = format!("lh://{}/", server.address);
    let copy = |more: &[&str], to: &str| {
        let to = format!("{there}{to}");
        let output = stage.cp(&server, &[&["-r"], more, &["here/t", &to]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    };
    copy(&["-L", "--chmod", "D750,F640"], "followed");
    let root = stage.path("root/followed");
    assert_eq!(fs::read_to_string(root.join("out")).unwrap(), "outside");
    assert!(!root.join("in").is_symlink());
    let mode = |path: PathBuf| fs::metadata(path).unwrap().mode() & 0o7777;
    assert_eq!(
        (mode(root.join("d")), mode(root.join("d/f"))),
        (0o750, 0o640)
    );
    copy(&["--safe-links"], "safe");
    let root = stage.path("root/safe");
    assert!(root.join("in").is_symlink() && root.join("out").symlink_metadata().is_err());
    let refused = stage.cp(&server, &["-rL", &format!("{there}safe"), "here/back"]);
    assert!(
        errors(&refused).contains("follows no symbolic links"),
        "{}",
        errors(&refused)
    );
}
