//! Attributes, special files and links: kept in both directions, corrected without a transfer, and
//! withheld where the server does not allow them (LH-COPY-65 to LH-COPY-70).

use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use longhaul_transfer::*;
use rustix::fs::{CWD, FileType, Mode, XattrFlags};

use crate::harness::*;

/// Returns what every user may keep, and what only some file systems have.
fn keep() -> Preservation {
    Preservation {
        owner: true,
        group: true,
        acls: true,
        xattrs: true,
        special_bits: true,
        special_files: true,
        ..Preservation::default()
    }
}

fn set(path: &Path, name: &str, value: &[u8]) -> bool {
    rustix::fs::setxattr(path, name, value, XattrFlags::empty()).is_ok()
}

fn get(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = [0; 64];
    let len = rustix::fs::lgetxattr(path, name, &mut value[..]).ok()?;
    Some(value[..len].to_vec())
}

/// Returns mode, owner and time of every entry below `root`, with an attribute of each.
fn describe(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut described = BTreeMap::new();
    let mut ahead = vec![root.to_owned()];
    while let Some(path) = ahead.pop() {
        let meta = std::fs::symlink_metadata(&path).unwrap();
        if meta.is_dir() {
            let each = std::fs::read_dir(&path).unwrap();
            ahead.extend(each.map(|entry| entry.unwrap().path()));
        }
        let time = (meta.mtime(), meta.mtime_nsec());
        let line = format!(
            "{:o} {}:{} {time:?} {:?}",
            meta.mode(),
            meta.uid(),
            meta.gid(),
            get(&path, "user.a")
        );
        described.insert(path.strip_prefix(root).unwrap().to_owned(), line);
    }
    described
}

/// Makes a tree with all that `keep` selects. Returns false if the file system has no attributes.
fn make(root: &Path) -> bool {
    std::fs::create_dir_all(root.join("d/e")).unwrap();
    let mode = |path: &str, mode| {
        std::fs::set_permissions(root.join(path), PermissionsExt::from_mode(mode)).unwrap();
    };
    for (path, size) in [("small", 100), ("d/large", 900_000)] {
        std::fs::write(root.join(path), vec![7; size]).unwrap();
    }
    let fifo = root.join("d/fifo");
    rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    symlink("small", root.join("link")).unwrap();
    let has_attributes = ["small", "d", "d/large"]
        .iter()
        .all(|path| set(&root.join(path), "user.a", path.as_bytes()));
    mode("small", 0o4444);
    mode("d/large", 0o640);
    mode("d/fifo", 0o622);
    mode("d/e", 0o1777);
    mode("d", 0o2755);
    // Before 1970, and with fractions of a second.
    let before = std::time::UNIX_EPOCH - std::time::Duration::from_nanos(1_500_000_001);
    let file = std::fs::File::open(root.join("small")).unwrap();
    file.set_modified(before).unwrap();
    has_attributes
}

#[tokio::test]
async fn trees_keep_their_attributes_in_both_directions() {
    let mut bench = Bench::new();
    bench.keep = keep();
    bench.server.allow_owners();
    if !make(&bench.local("t")) {
        eprintln!("left out: no extended attributes here");
        return;
    }
    let sources = [bench.local("t")];
    let options = WriteOptions::default();
    let run = bench.push(bench.pipes(), &sources, "up", options).await;
    run.ok();
    assert_eq!(describe(&bench.root("up")), describe(&bench.local("t")));
    let run = bench.pull(bench.pipes(), &["up"], "back", options).await;
    run.ok();
    assert_eq!(describe(&bench.local("back")), describe(&bench.local("t")));
    let fifo = std::fs::symlink_metadata(bench.local("back/d/fifo")).unwrap();
    assert!(fifo.file_type().is_fifo());
    assert_eq!(run.progress.not_kept.counts(), NotKeptCounts::default());
}

#[tokio::test]
async fn changed_attributes_are_corrected_without_a_transfer() {
    let mut bench = Bench::new();
    bench.keep = keep();
    if !make(&bench.root("t")) {
        eprintln!("left out: no extended attributes here");
        return;
    }
    for overwrite in [false, true] {
        let options = WriteOptions {
            overwrite,
            ..WriteOptions::default()
        };
        bench.pull(bench.pipes(), &["t"], "", options).await.ok();
        // Neither size nor time of the files changes.
        let value = format!("changed {overwrite}");
        let files = ["t/small", "t/d/large", "t/d"];
        for path in files {
            set(&bench.root(path), "user.a", value.as_bytes());
        }
        let run = bench.pull(bench.pipes(), &["t"], "", options).await;
        run.ok();
        assert_eq!(run.progress.bytes_travelled(), 0);
        assert_eq!(describe(&bench.local("t")), describe(&bench.root("t")));
    }
    // A copy that keeps nothing more leaves what is there.
    bench.keep = Preservation::default();
    set(&bench.root("t/d/large"), "user.a", b"later");
    let run = bench
        .pull(bench.pipes(), &["t"], "", WriteOptions::default())
        .await;
    assert_eq!(
        run.failures(),
        [("fifo".to_owned(), FailureKind::NotRegular)]
    );
    assert_eq!(
        get(&bench.local("t/d/large"), "user.a").unwrap(),
        b"changed true"
    );
}

#[tokio::test]
async fn lh_copy_68_lh_copy_69_what_a_server_withholds_is_reported() {
    let mut bench = Bench::new();
    bench.keep = keep();
    make(&bench.local("t"));
    let sources = [bench.local("t")];
    let run = bench
        .push(bench.pipes(), &sources, "up", WriteOptions::default())
        .await;
    run.ok();
    let mode = |path: &str| std::fs::symlink_metadata(bench.root(path)).unwrap().mode() & 0o7777;
    assert_eq!(mode("up/small"), 0o444, "no set-user-ID bit");
    assert_eq!(mode("up/d"), 0o755, "no set-group-ID bit");
    assert_eq!(mode("up/d/e"), 0o1777);
    let counts = run.progress.not_kept.counts();
    assert_eq!(counts.set_id_bits, 2, "{counts:?}");
}

#[tokio::test]
async fn lh_copy_69_server_creates_no_device_unless_allowed() {
    let device = rustix::fs::makedev(1, 3);
    let mut bench = Bench::new();
    std::fs::create_dir(bench.local("t")).unwrap();
    let null = bench.local("t/null");
    let mode = Mode::from_raw_mode(0o666);
    if rustix::fs::mknodat(CWD, &null, FileType::CharacterDevice, mode, device).is_err() {
        eprintln!("left out: this user may not create devices");
        return;
    }
    bench.keep = keep();
    let sources = [bench.local("t")];
    let push = async || {
        bench
            .push(bench.pipes(), &sources, "up", WriteOptions::default())
            .await
    };
    let refused = push().await.failures();
    assert_eq!(refused, [("null".to_owned(), FailureKind::NotRegular)]);
    assert!(!bench.root("up/null").exists());
    bench.server.allow_owners();
    push().await.ok();
    let made = std::fs::symlink_metadata(bench.root("up/t/null"))
        .or_else(|_| std::fs::symlink_metadata(bench.root("up/null")))
        .unwrap();
    assert_eq!(
        (made.rdev(), made.file_type().is_char_device()),
        (device, true)
    );
}

#[tokio::test]
async fn lh_copy_70_links_are_followed_only_for_the_own_user() {
    let mut bench = Bench::new();
    std::fs::create_dir_all(bench.root("t/d")).unwrap();
    std::fs::write(bench.root("secret"), "secret").unwrap();
    std::fs::write(bench.root("t/d/f"), "f").unwrap();
    symlink("../secret", bench.root("t/out")).unwrap();
    symlink("d", bench.root("t/again")).unwrap();
    symlink("..", bench.root("t/d/up")).unwrap();
    let options = WriteOptions::default();
    bench.keep.safe_links = true;
    bench
        .pull(bench.pipes(), &["t"], "safe", options)
        .await
        .ok();
    assert!(bench.local("safe/out").symlink_metadata().is_err());
    assert!(bench.local("safe/again").is_symlink() && bench.local("safe/d/up").is_symlink());
    bench.keep = Preservation {
        copy_links: true,
        ..Preservation::default()
    };
    let refused = bench.pull(bench.pipes(), &["t"], "no", options).await;
    assert!(matches!(refused.result, Err(Error::Refused(_))));
    bench.server.follow_links();
    let run = bench.pull(bench.pipes(), &["t"], "all", options).await;
    // A link to a directory above it would never end.
    let failed = run.failures();
    assert_eq!(failed.len(), 2, "{failed:?}");
    assert!(
        failed
            .iter()
            .all(|(name, kind)| { name == "up" && *kind == FailureKind::RefusedPath })
    );
    assert_eq!(std::fs::read(bench.local("all/out")).unwrap(), b"secret");
    let again = bench.local("all/again");
    assert!(!again.is_symlink() && again.join("f").is_file());
}

#[tokio::test]
async fn changes_of_permissions_apply_at_the_clients_end() {
    let mut bench = Bench::new();
    std::fs::create_dir(bench.local("t")).unwrap();
    std::fs::write(bench.local("t/f"), "x").unwrap();
    let mode = ModeChanges::parse("D700,F600", 0).unwrap();
    bench.changes = MetadataChanges::new(mode, OwnerChange::default(), false);
    let options = WriteOptions::default();
    let sources = [bench.local("t")];
    bench
        .push(bench.pipes(), &sources, "up", options)
        .await
        .ok();
    bench
        .pull(bench.pipes(), &["up"], "back", options)
        .await
        .ok();
    let mode = |path: PathBuf| std::fs::metadata(path).unwrap().mode() & 0o7777;
    for root in [bench.root("up"), bench.local("back")] {
        assert_eq!((mode(root.clone()), mode(root.join("f"))), (0o700, 0o600));
    }
}
