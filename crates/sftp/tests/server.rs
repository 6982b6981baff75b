//! Copies with OpenSSH's SFTP server, which stands behind a program in place of ssh.

#![allow(clippy::unwrap_used, clippy::panic)] // A test that can't go on has failed.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use longhaul_filter::{Filter, FilterRules};
use longhaul_remote::Ssh;
use longhaul_sftp::{CopySettings, Error, PullRequest, PushRequest, SftpCopy, SftpPath};
use longhaul_transfer::local_end::LocalTarget;
use longhaul_transfer::{
    CopyDestination, CopyToken, ExistingPolicy, FailureKind, Observer, Sources, TransferEvent,
    TransferProgress, WriteOptions,
};
use parking_lot::Mutex;

/// Places where systems keep OpenSSH's server.
const SERVERS: [&str; 3] = [
    "/usr/lib/openssh/sftp-server",
    "/usr/libexec/openssh/sftp-server",
    "/usr/lib/ssh/sftp-server",
];

/// A folder with a `here` and a `there`, and a program that starts the server in `there`.
struct Host {
    dir: tempfile::TempDir,
    server: &'static str,
}

impl Host {
    /// Returns `None`, with a line, if this machine has no server. `options` are its options.
    fn new(options: &str) -> Option<Self> {
        let Some(server) = SERVERS.into_iter().find(|path| Path::new(path).exists()) else {
            eprintln!("not tested: no sftp-server here (apt-get install openssh-sftp-server)");
            return None;
        };
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("here")).unwrap();
        fs::create_dir(dir.path().join("there")).unwrap();
        let host = Self { dir, server };
        let there = host.there("");
        host.program(&format!(
            "cd '{}' && exec {} {options}",
            there.display(),
            host.server
        ));
        Some(host)
    }

    /// Writes the program. Another process does so: a program that another test starts at this
    /// moment would also hold a file that this one writes, and such a file cannot be executed.
    fn program(&self, script: &str) {
        let mut install = Command::new("install")
            .args(["-m", "755", "/dev/stdin"])
            .arg(self.dir.path().join("ssh"))
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let text = format!("#!/bin/sh\n{script}\n");
        let mut input = install.stdin.take().unwrap();
        input.write_all(text.as_bytes()).unwrap();
        drop(input);
        assert!(install.wait().unwrap().success());
    }

    fn here(&self, name: &str) -> PathBuf {
        self.dir.path().join("here").join(name)
    }

    fn there(&self, name: &str) -> PathBuf {
        self.dir.path().join("there").join(name)
    }

    async fn open(&self, run: &Run) -> Result<SftpCopy, Error> {
        let path = SftpPath::parse(b"sftp://host/~/").unwrap().unwrap();
        let settings = CopySettings {
            ssh: Ssh {
                program: self.dir.path().join("ssh").into(),
                options: vec![],
            },
            sessions: Some(4),
            // Longer than any pause of a busy machine.
            patience: Duration::from_secs(300),
            progress: run.progress.clone(),
            observer: run.events.clone(),
            token: CopyToken::random().unwrap(),
        };
        SftpCopy::open(&path, settings, vec!["source".into()]).await
    }

    /// Copies `name` to the host.
    async fn push(&self, name: &str, options: WriteOptions) -> Run {
        let run = Run::default();
        let copy = self.open(&run).await.unwrap();
        let (sources, names) = Sources::local(&[self.here(name)], true).unwrap();
        let destination = SftpPath::parse(b"sftp://host/~/").unwrap().unwrap();
        let pushed = copy.push(PushRequest {
            sources,
            names,
            destination: &destination,
            options,
            existing: ExistingPolicy::default(),
            checksum: false,
        });
        pushed.await.unwrap();
        copy.end().await;
        run
    }

    /// Copies `name` from the host.
    async fn pull(&self, name: &str) -> Run {
        let run = Run::default();
        let copy = self.open(&run).await.unwrap();
        let source = format!("sftp://host/~/{name}");
        let sources = [SftpPath::parse(source.as_bytes()).unwrap().unwrap()];
        let options = WriteOptions {
            resume: true,
            ..WriteOptions::default()
        };
        let token = CopyToken::random().unwrap();
        let names = vec![name.as_bytes().to_vec()];
        let destination = CopyDestination::local(&self.here(""), names, options, token).unwrap();
        let pulled = copy.pull(PullRequest {
            sources: &sources,
            recursive: true,
            filter: Arc::new(Filter::new(FilterRules::default()).unwrap()),
            target: LocalTarget::new(destination),
            checksum: false,
            resume: true,
        });
        pulled.await.unwrap();
        copy.end().await;
        run
    }
}

/// Counters and failures of a copy.
#[derive(Default)]
struct Run {
    progress: Arc<TransferProgress>,
    events: Arc<Events>,
}

#[derive(Default)]
struct Events(Mutex<Vec<(String, FailureKind)>>);

impl Observer for Events {
    fn event(&self, event: TransferEvent) {
        if let TransferEvent::Failed { path, failure } = event {
            self.0.lock().push((path, failure.kind));
        }
    }
}

impl Run {
    #[track_caller]
    fn assert_done(&self, files: u64) {
        assert_eq!(*self.events.0.lock(), []);
        assert_eq!(self.progress.files_done.load(Ordering::Relaxed), files);
        let found = self.progress.bytes_found.load(Ordering::Relaxed);
        assert_eq!(self.progress.bytes_done.load(Ordering::Relaxed), found);
        assert!(self.progress.walk_complete.load(Ordering::Relaxed));
    }
}

/// Writes a tree of 103 files.
fn tree(at: &Path) {
    fs::create_dir_all(at.join("a/b")).unwrap();
    for (name, len) in [("empty", 0), ("a/one", 300 << 10), ("a/b/large", 5_000_000)] {
        let content: Vec<u8> = (0..len).map(|byte: u32| (byte / 7) as u8).collect();
        fs::write(at.join(name), content).unwrap();
    }
    for number in 0..100 {
        fs::write(at.join(format!("a/b/{number}")), number.to_string()).unwrap();
    }
    fs::set_permissions(at.join("a/one"), fs::Permissions::from_mode(0o751)).unwrap();
    fs::set_permissions(at.join("a"), fs::Permissions::from_mode(0o555)).unwrap();
}

#[track_caller]
fn assert_equal(one: &Path, other: &Path) {
    let diff = Command::new("diff").arg("-r").args([one, other]).status();
    assert!(diff.unwrap().success());
    for name in ["a", "a/one", "a/b/7"] {
        let [left, right] = [one, other].map(|root| fs::metadata(root.join(name)).unwrap());
        assert_eq!((left.mode(), left.mtime()), (right.mode(), right.mtime()));
    }
}

/// Makes a tree of [`tree`] removable.
fn unlock(at: &Path) {
    fs::set_permissions(at.join("a"), fs::Permissions::from_mode(0o755)).unwrap();
}

#[tokio::test]
async fn trees_are_equal_with_any_extensions() {
    for options in ["", "-P posix-rename,fsync,limits"] {
        let Some(host) = Host::new(options) else {
            return;
        };
        tree(&host.here("tree"));
        host.push("tree", WriteOptions::default())
            .await
            .assert_done(103);
        assert_equal(&host.here("tree"), &host.there("tree"));
        let again = host.push("tree", WriteOptions::default()).await;
        again.assert_done(103);
        assert_eq!(again.progress.bytes_travelled(), 0);
        fs::rename(host.there("tree"), host.there("back")).unwrap();
        host.pull("back").await.assert_done(103);
        assert_equal(&host.here("tree"), &host.here("back"));
        let again = host.pull("back").await;
        again.assert_done(103);
        assert_eq!(again.progress.bytes_travelled(), 0);
        // What differs is replaced, if requested.
        fs::write(host.here("one"), "new").unwrap();
        fs::write(host.there("one"), "older").unwrap();
        let kept = host.push("one", WriteOptions::default()).await;
        assert_eq!(kept.events.0.lock()[0].1, FailureKind::Exists);
        let overwrite = WriteOptions {
            overwrite: true,
            ..WriteOptions::default()
        };
        host.push("one", overwrite).await.assert_done(1);
        assert_eq!(fs::read(host.there("one")).unwrap(), b"new");
        for at in [host.here("tree"), host.here("back"), host.there("back")] {
            unlock(&at);
        }
    }
}

#[tokio::test]
async fn failures_of_a_server_are_those_of_entries() {
    let Some(host) = Host::new("-R") else { return };
    tree(&host.here("tree"));
    let refused = host.push("tree", WriteOptions::default()).await;
    unlock(&host.here("tree"));
    // Three directories, 103 files: none of them arrived, and each says why.
    let failures = refused.events.0.lock();
    assert_eq!(failures.len(), 106);
    assert_eq!(refused.progress.bytes_done.load(Ordering::Relaxed), 0);
    assert_eq!(fs::read_dir(host.there("")).unwrap().count(), 0);
}

#[tokio::test]
async fn what_is_no_server_is_named() {
    let Some(host) = Host::new("") else { return };
    let open = async || host.open(&Run::default()).await.unwrap_err();
    host.program("echo Welcome to this host; cat");
    assert!(matches!(open().await, Error::NotSftp { .. }));
    host.program("echo 'subsystem request failed on channel 0' >&2; exit 255");
    assert!(matches!(open().await, Error::NoSftp { .. }));
    host.program("echo 'This account is not available.'; exit 1");
    assert!(matches!(open().await, Error::NotSftp { .. }));
    host.program("echo 'Permission denied (publickey).' >&2; exit 255");
    let denied = open().await;
    assert!(matches!(denied, Error::Login(_)), "{denied}");
    assert!(denied.to_string().contains("Permission denied (publickey)"));
}

#[tokio::test]
async fn connections_that_end_early_are_replaced() {
    let Some(host) = Host::new("") else { return };
    // Every connection ends after some packets, in the middle of one. The shell ends with it, as it
    // would wait for a server that has nothing more to write.
    host.program(&format!(
        "cd '{}' && {} | {{ dd bs=1 count=9000 status=none; kill $$; }}",
        host.there("").display(),
        host.server
    ));
    tree(&host.here("tree"));
    host.push("tree", WriteOptions::default())
        .await
        .assert_done(103);
    assert_equal(&host.here("tree"), &host.there("tree"));
    for at in [host.here("tree"), host.there("tree")] {
        unlock(&at);
    }
}
