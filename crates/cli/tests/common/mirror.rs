//! Random pairs of trees and filters. A mirror must leave what `rsync -aH --delete --exclude-from`
//! leaves.

#![allow(dead_code, reason = "each program of tests uses some of it")]

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use longhaul_filter::{Filter, FilterRules, NameRule};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};

/// Environment variable with the number of cases for each direction.
const CASES_VARIABLE: &str = "LONGHAUL_SYNC_CASES";
const DEFAULT_CASES: u32 = 25;

/// An entry of a tree. Its path is made of few names, so that both trees have many in common.
#[derive(Debug, Clone)]
struct Entry {
    path: String,
    content: Content,
    mode: u32,
    /// Modification time in whole seconds: rsync compares no smaller ones. Files of one size and
    /// time have one content, as a push may send a small file before it learns that the target has
    /// one of this size and time.
    seconds: i64,
}

#[derive(Debug, Clone)]
enum Content {
    Directory,
    File(String),
    Link(String),
}

/// A source, the target before the mirror, and patterns to leave out.
#[derive(Debug, Clone)]
pub struct Case {
    source: Vec<Entry>,
    target: Vec<Entry>,
    rules: Vec<String>,
}

fn entry() -> impl Strategy<Value = Entry> {
    let content = prop_oneof![
        3 => Just(Content::Directory),
        6 => "[xy]{0,3}".prop_map(Content::File),
        1 => "[a-c]{1,2}".prop_map(Content::Link),
    ];
    let modes = prop::sample::select(vec![0o600, 0o644, 0o640, 0o755, 0o700]);
    (
        "[a-d](\\.o)?(/[a-d](\\.o)?){0,3}",
        content,
        modes,
        1_000_000_000i64..1_000_000_004,
    )
        .prop_map(|(path, content, mode, seconds)| {
            let distinct = match &content {
                Content::File(content) => content
                    .bytes()
                    .fold(0, |sum, byte| 2 * sum + i64::from(byte == b'y')),
                Content::Directory | Content::Link(_) => 0,
            };
            Entry {
                path,
                content,
                mode,
                seconds: seconds + 10 * distinct,
            }
        })
}

/// Returns a pattern that is left out, or taken.
pub fn rule() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "*.o", "/a", "b/", "c/d", "- /b/*", "+ a.o", "**/c", "/d/**", "[cd]", "a/***", "?.o",
        "/*/b",
    ])
    .prop_map(str::to_owned)
}

fn case() -> impl Strategy<Value = Case> {
    (vec(entry(), 0..16), vec(entry(), 0..16), vec(rule(), 0..4)).prop_map(
        |(source, target, rules)| Case {
            source,
            target,
            rules,
        },
    )
}

fn make(root: &Path, entries: &[Entry]) {
    fs::create_dir(root).unwrap();
    let mut made = Vec::new();
    for entry in entries {
        let path = root.join(&entry.path);
        // An entry that does not fit the ones before is left out.
        if fs::create_dir_all(path.parent().unwrap()).is_err() || path.symlink_metadata().is_ok() {
            continue;
        }
        match &entry.content {
            Content::Directory => fs::create_dir(&path).unwrap(),
            Content::File(content) => fs::write(&path, content).unwrap(),
            Content::Link(to) => symlink(to, &path).unwrap(),
        }
        made.push((path, entry));
    }
    for directory in directories(root) {
        set_time(&directory, 1_000_000_000);
    }
    for (path, entry) in made.iter().rev() {
        if !path.is_symlink() {
            let mode = match path.is_dir() {
                true => entry.mode | 0o700,
                false => entry.mode,
            };
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        }
        set_time(path, entry.seconds);
    }
    set_time(root, 1_000_000_000);
}

fn directories(root: &Path) -> Vec<PathBuf> {
    let mut found = vec![root.to_owned()];
    let mut at = 0;
    while let Some(directory) = found.get(at).cloned() {
        for entry in fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                found.push(entry.path());
            }
        }
        at += 1;
    }
    found
}

fn set_time(path: &Path, seconds: i64) {
    let time = Timespec {
        tv_sec: seconds,
        tv_nsec: 0,
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// Describes a tree by what both programs keep. Times of links are left out.
pub fn describe(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut described = BTreeMap::new();
    let mut ahead = vec![root.to_owned()];
    while let Some(path) = ahead.pop() {
        let meta = fs::symlink_metadata(&path).unwrap();
        let (mode, time) = (meta.mode() & 0o7777, meta.mtime());
        let what = if meta.is_dir() {
            ahead.extend(
                fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
            format!("directory {mode:o} {time}")
        } else if meta.is_symlink() {
            format!("link {:?}", fs::read_link(&path).unwrap())
        } else {
            format!("file {mode:o} {time} {:?}", fs::read(&path).unwrap())
        };
        described.insert(path.strip_prefix(root).unwrap().to_owned(), what);
    }
    described
}

/// Returns true if the target has a directory that the rules leave out, where the source has
/// something else.
fn has_obstacle(source: &Path, target: &Path, rules: &[String]) -> bool {
    let filter = Filter::new(FilterRules {
        names: rules
            .iter()
            .map(|rule| NameRule::exclude(&**rule))
            .collect(),
        ..FilterRules::default()
    })
    .unwrap();
    let source = describe(source);
    let is_directory = |what: &String| what.starts_with("directory");
    describe(target).iter().any(|(path, what)| {
        is_directory(what)
            && !filter.takes_name(path.as_os_str().as_bytes(), true)
            && source.get(path).is_some_and(|what| !is_directory(what))
    })
}

/// Returns the number of cases for each direction, and how they are tried.
pub fn config() -> Config {
    let cases = std::env::var(CASES_VARIABLE)
        .ok()
        .and_then(|cases| cases.parse().ok());
    Config {
        cases: cases.unwrap_or(DEFAULT_CASES),
        failure_persistence: None,
        max_shrink_iters: 60,
        ..Config::default()
    }
}

/// Mirrors random trees with `mirror`, which gets the source, the target and a file of rules, and
/// compares the results with rsync. The source is made below `sources`, the target below `targets`.
pub fn mirrors_equal_rsync(sources: &Path, targets: &Path, mirror: impl Fn(&Path, &Path, &Path)) {
    if Command::new("rsync").arg("--version").output().is_err() {
        eprintln!("not tested: rsync is not installed");
        return;
    }
    let last = Cell::new(0);
    TestRunner::new(config())
        .run(&case(), |case| {
            let number = last.get() + 1;
            last.set(number);
            let source = sources.join(format!("source{number}"));
            let [target, expected] =
                ["target", "expected"].map(|name| targets.join(format!("{name}{number}")));
            make(&source, &case.source);
            make(&target, &case.target);
            make(&expected, &case.target);
            let rules = sources.join(format!("rules{number}"));
            fs::write(&rules, case.rules.join("\n")).unwrap();
            let rsync = Command::new("rsync")
                .args(["-aH", "--delete", "--exclude-from"])
                .arg(&rules)
                .arg(source.join(""))
                .arg(expected.join(""))
                .output()
                .unwrap();
            // Something that is left out is in the way. rsync removes empty directories.
            prop_assume!(rsync.status.success());
            prop_assume!(!has_obstacle(&source, &target, &case.rules));
            mirror(&source, &target, &rules);
            let kept = describe(&source);
            // rsync changes the times of directories in which it removes something.
            let comparable = |tree: &Path| {
                let mut described = describe(tree);
                for (path, what) in &mut described {
                    if !kept.contains_key(path) && what.starts_with("directory") {
                        what.truncate(what.rfind(' ').unwrap());
                    }
                }
                described
            };
            prop_assert_eq!(comparable(&target), comparable(&expected));
            for tree in [&source, &target, &expected] {
                fs::remove_dir_all(tree).unwrap();
            }
            Ok(())
        })
        .unwrap();
}
