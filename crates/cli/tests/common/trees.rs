//! Random trees that an ordinary user copies while random programs are ended at random moments.
//! Once the same command has succeeded, the result equals that of `rsync -a` from the same source.
//!
//! One generator serves every kind of copy; each kind defines how to start an attempt and which
//! programs can be ended ([`Kind`]).

#![allow(dead_code, reason = "each program of tests uses some of it")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Debug;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};

use super::{noise, signal};

/// Environment variable with the number of cases for each kind of copy.
const CASES_VARIABLE: &str = "LONGHAUL_TREE_CASES";
const DEFAULT_CASES: u32 = 20;
/// Minimum attempts after the last interruption, and the time for more of them. An attempt may find
/// that parts of an earlier one still run.
const MIN_QUIET_ATTEMPTS: usize = 8;
const QUIET_TIME: Duration = Duration::from_secs(60);
/// Time within which an attempt ends, interrupted or not.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(600);
/// Offset behind the hole of a sparse file.
const HOLE_END: u64 = 1 << 20;
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Prefix of the temporary names of copies.
const TEMP_PREFIX: &str = ".longhaul-";

/// A kind of copy: its participants and its command.
pub trait Kind {
    /// Returns the directory that sources are made in.
    fn sources(&self) -> PathBuf;
    /// Returns the directory that targets are made in.
    fn targets(&self) -> PathBuf;
    /// Starts the command that copies the directory `name` of the sources into the directory `name`
    /// of the targets. It is always the same command for the same name.
    fn attempt(&mut self, name: &str) -> Child;
    /// Returns the number of programs that take part besides the command itself.
    fn others(&self) -> usize;
    /// Sends a signal to one of these programs.
    fn end_other(&mut self, other: usize, signal: &str);
    /// Starts ended programs again.
    fn repair(&mut self);
}

/// Returns a command that runs a program without root's rights, even if root runs the test.
pub fn unprivileged(program: &str) -> Command {
    if !rustix::process::geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("unshare");
    command
        .args(["--user", "--map-user=1000", "--map-group=1000", "--"])
        .arg(program);
    command
}

/// An entry of a tree; `parent` chooses among the directories before it.
#[derive(Debug, Clone)]
struct Entry {
    parent: prop::sample::Index,
    /// End of its name, of any bytes.
    name: Vec<u8>,
    mode: u32,
    mtime: (i64, i64),
    content: Content,
}

#[derive(Debug, Clone)]
enum Content {
    Directory,
    File(usize),
    /// A file with as much data, a hole, and data again.
    Sparse(usize),
    Link(String),
}

/// A moment in an attempt, and the programs to end then.
#[derive(Debug, Clone)]
struct Interruption {
    /// Share of the tree's entries that have arrived.
    progress: f64,
    /// Additional time.
    delay: Duration,
    signal: &'static str,
    /// Bits for the command and the other programs. If no bit of theirs is set, the command is
    /// ended.
    victims: u8,
}

#[derive(Debug, Clone)]
struct Case {
    entries: Vec<Entry>,
    root_mode: u32,
    interruptions: Vec<Interruption>,
}

fn entry() -> impl Strategy<Value = Entry> {
    let content = prop_oneof![
        4 => Just(Content::Directory),
        8 => (0usize..9000).prop_map(Content::File),
        2 => (262_144usize..1_500_000).prop_map(Content::File),
        1 => (0usize..400_000).prop_map(Content::Sparse),
        1 => "[a-z/.]{1,40}".prop_map(Content::Link),
    ];
    let mtime = (-1_000_000i64..2_000_000_000, 0i64..1_000_000_000);
    let name = vec(any::<u8>(), 0..4).prop_map(|mut name| {
        name.retain(|byte| !matches!(byte, 0 | b'/'));
        name
    });
    let parent = any::<prop::sample::Index>();
    (parent, name, 0u32..0o1000, mtime, content).prop_map(|(parent, name, mode, mtime, content)| {
        Entry {
            parent,
            name,
            mode,
            mtime,
            content,
        }
    })
}

/// Writes data, and the same again behind a hole.
fn write_sparse(path: &Path, data: &[u8]) {
    let file = fs::File::create(path).unwrap();
    for offset in [0, HOLE_END] {
        file.write_all_at(data, offset).unwrap();
    }
}

fn interruption() -> impl Strategy<Value = Interruption> {
    let signal = prop::sample::select(vec!["INT", "TERM", "HUP", "KILL", "KILL"]);
    (0.0..1.2, 0u64..20_000, signal, any::<u8>()).prop_map(|(progress, delay, signal, victims)| {
        Interruption {
            progress,
            delay: Duration::from_micros(delay),
            signal,
            victims,
        }
    })
}

fn case() -> impl Strategy<Value = Case> {
    (vec(entry(), 1..60), 0u32..0o1000, vec(interruption(), 1..3)).prop_map(
        |(entries, root_mode, interruptions)| Case {
            entries,
            root_mode,
            interruptions,
        },
    )
}

/// Adds the owner's right to read a file, or a directory and its entries.
fn readable(mode: u32, is_directory: bool) -> u32 {
    mode | if is_directory { 0o500 } else { 0o400 }
}

impl Case {
    /// Makes the tree at `root`, and sets permissions and times from the leaves up.
    fn make(&self, root: &Path) {
        fs::create_dir(root).unwrap();
        let mut directories = vec![root.to_owned()];
        let mut made = Vec::new();
        for (number, entry) in self.entries.iter().enumerate() {
            let name = [format!("e{number}-").as_bytes(), &entry.name].concat();
            let path = entry
                .parent
                .get(&directories)
                .join(OsStr::from_bytes(&name));
            match &entry.content {
                Content::Directory => {
                    fs::create_dir(&path).unwrap();
                    directories.push(path.clone());
                }
                Content::File(size) => fs::write(&path, noise(*size, number as u64)).unwrap(),
                Content::Sparse(size) => write_sparse(&path, &noise(*size, number as u64)),
                Content::Link(target) => symlink(target, &path).unwrap(),
            }
            made.push((path, entry));
        }
        for (path, entry) in made.into_iter().rev() {
            let is_directory = matches!(entry.content, Content::Directory);
            if !matches!(entry.content, Content::Link(_)) {
                let mode = readable(entry.mode, is_directory);
                fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            }
            set_mtime(&path, entry.mtime);
        }
        fs::set_permissions(root, Permissions::from_mode(readable(self.root_mode, true))).unwrap();
        set_mtime(root, (1_000_000_000, 7));
    }
}

fn set_mtime(path: &Path, (tv_sec, tv_nsec): (i64, i64)) {
    let time = Timespec { tv_sec, tv_nsec };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// Describes what is compared of a tree: by path, permissions, times, targets of links, content.
/// Leftovers of killed copies are left out.
fn describe(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut described = BTreeMap::new();
    let mut ahead = vec![root.to_owned()];
    while let Some(path) = ahead.pop() {
        let meta = fs::symlink_metadata(&path).unwrap();
        let (mode, time) = (meta.mode() & 0o7777, (meta.mtime(), meta.mtime_nsec()));
        let what = if meta.is_dir() {
            let below = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap());
            let kept =
                below.filter(|entry| !entry.file_name().to_string_lossy().starts_with(TEMP_PREFIX));
            ahead.extend(kept.map(|entry| entry.path()));
            format!("directory {mode:o} {time:?}")
        } else if meta.is_symlink() {
            format!("link {:?}", fs::read_link(&path).unwrap())
        } else {
            let hash = blake3::hash(&fs::read(&path).unwrap());
            format!("file {mode:o} {time:?} {} {hash}", meta.len())
        };
        described.insert(path.strip_prefix(root).unwrap().to_owned(), what);
    }
    described
}

fn count(root: &Path) -> usize {
    let mut found = 0;
    let mut ahead = vec![root.to_owned()];
    while let Some(path) = ahead.pop() {
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            found += 1;
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                ahead.push(entry.path());
            }
        }
    }
    found
}

/// Waits until an attempt has ended. Returns its exit code and output; the code is `None` if a
/// signal ended it.
fn wait(child: Child, what: &str) -> (Option<i32>, String) {
    let number = child.id();
    let (ended, is_over) = std::sync::mpsc::channel();
    let waiting = std::thread::spawn(move || ended.send(child.wait_with_output()));
    let output = is_over.recv_timeout(ATTEMPT_TIMEOUT);
    let Ok(output) = output else {
        let _ = Command::new("kill")
            .args(["-KILL", &number.to_string()])
            .status();
        panic!("{what}: no end");
    };
    waiting.join().unwrap().unwrap();
    let output = output.unwrap();
    let said = [output.stdout, output.stderr].concat();
    (
        output.status.code(),
        String::from_utf8_lossy(&said).into_owned(),
    )
}

fn interrupt(kind: &mut dyn Kind, case: &Case, name: &str, interruption: &Interruption) {
    let mut child = kind.attempt(name);
    let target = kind.targets().join(name);
    let wanted = (interruption.progress * (case.entries.len() + 1) as f64) as usize;
    let began = Instant::now();
    while count(&target) < wanted.min(case.entries.len() + 1)
        && child.try_wait().unwrap().is_none()
        && began.elapsed() < ATTEMPT_TIMEOUT
    {
        std::thread::sleep(POLL_INTERVAL);
    }
    std::thread::sleep(interruption.delay);
    let others = kind.others();
    let chosen = usize::from(interruption.victims) % (1 << (others + 1));
    for other in (0..others).filter(|other| chosen >> (other + 1) & 1 == 1) {
        kind.end_other(other, interruption.signal);
    }
    if (chosen & 1 == 1 || chosen == 0) && child.try_wait().unwrap().is_none() {
        signal(&child, interruption.signal);
    }
    kind.repair();
    wait(child, "an interrupted attempt");
}

/// Removes a tree with read-only directories.
fn remove(root: &Path) {
    let mut ahead = vec![root.to_owned()];
    while let Some(path) = ahead.pop() {
        let _ = fs::set_permissions(&path, Permissions::from_mode(0o700));
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                ahead.push(entry.path());
            }
        }
    }
    let _ = fs::remove_dir_all(root);
}

fn run(kind: &mut dyn Kind, case: &Case, name: &str) {
    let (source, target) = (kind.sources().join(name), kind.targets().join(name));
    let expected = kind.sources().join(format!("{name}-expected"));
    case.make(&source);
    for directory in [&target, &expected] {
        fs::create_dir(directory).unwrap();
    }
    let rsync = unprivileged("rsync")
        .arg("-a")
        .args([&source, &expected])
        .status();
    assert!(rsync.unwrap().success(), "rsync fails");
    for interruption in &case.interruptions {
        interrupt(kind, case, name, interruption);
    }
    let mut said = String::new();
    let began = Instant::now();
    let mut attempts =
        (0..).take_while(|made| *made < MIN_QUIET_ATTEMPTS || began.elapsed() < QUIET_TIME);
    let succeeds = attempts.any(|_| {
        let (code, text) = wait(kind.attempt(name), "an attempt");
        said += &format!("exit {code:?}: {text}\n");
        code == Some(0)
    });
    assert!(succeeds, "the copy does not succeed: {said}");
    // The second time nothing changes, as the tree is complete.
    for again in [false, true] {
        if again {
            let (code, said) = wait(kind.attempt(name), "a copy of what is there");
            assert_eq!(code, Some(0), "{said}");
        }
        assert_same(&describe(&target), &describe(&expected), again);
    }
    for directory in [&source, &target, &expected] {
        remove(directory);
    }
}

fn assert_same<V: PartialEq + Debug>(
    found: &BTreeMap<PathBuf, V>,
    expected: &BTreeMap<PathBuf, V>,
    again: bool,
) {
    let of_both = found.keys().chain(expected.keys());
    let differing: BTreeMap<_, _> = of_both
        .map(|path| (path, (found.get(path), expected.get(path))))
        // The directory around the tree is the test's own.
        .filter(|(path, (found, expected))| !path.as_os_str().is_empty() && found != expected)
        .collect();
    assert!(
        differing.is_empty(),
        "found and expected differ, copied again: {again}: {differing:#?}"
    );
}

/// Returns the number of cases for each kind of copy.
fn cases() -> u32 {
    let wanted = std::env::var(CASES_VARIABLE)
        .ok()
        .filter(|text| !text.is_empty());
    wanted.map_or(DEFAULT_CASES, |text| text.parse().unwrap())
}

/// Tries random trees and interruptions with one kind of copy.
pub fn interrupted_copies_equal_rsync(kind: &mut dyn Kind) {
    let config = Config {
        cases: cases(),
        failure_persistence: None,
        // A smaller case fails at other moments or not at all.
        max_shrink_iters: 0,
        ..Config::default()
    };
    let number = std::cell::Cell::new(0);
    let kind = std::cell::RefCell::new(kind);
    let result = TestRunner::new(config).run(&case(), |case| {
        number.set(number.get() + 1);
        run(*kind.borrow_mut(), &case, &format!("t{}", number.get()));
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

/// The output of an attempt is read when it has ended.
pub fn start(command: &mut Command) -> Child {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}
