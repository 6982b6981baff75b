use std::cell::Cell;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path as FilePath, PathBuf};

use super::*;
use crate::store::destination::tests::outcome;
use crate::store::{AnnouncedFile, FileStore, WriteOptions};
use crate::tree_hash::BlockHasher;
use crate::wire::{Block, CopyToken, EntryHead, EntryOutcome, Extent};

/// A test directory, and the number of the last copy of the tree `d` into it.
struct Bench(tempfile::TempDir, Cell<u8>);

impl Bench {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap(), Cell::new(0))
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn copy(&self, overwrite: bool) -> CopyDestination {
        let options = WriteOptions {
            overwrite,
            ..Default::default()
        };
        // Temporary names of two copies differ.
        self.1.set(self.1.get() + 1);
        let token = CopyToken([self.1.get(); 16]);
        CopyDestination::local(self.0.path(), vec![b"d".to_vec()], options, token).unwrap()
    }

    /// Creates directory `d`, puts the files into it, and finishes it.
    fn complete(
        &self,
        copy: &CopyDestination,
        meta: &Meta,
        files: &[&str],
    ) -> Vec<Result<EntryOutcome, Failure>> {
        let made = copy.make_dir(&head(""), meta).unwrap();
        let written = files.iter().map(|file| small(copy, file)).collect();
        copy.finish_dir(&head(""), made, meta).unwrap();
        written
    }

    fn mode_and_time(&self, path: &str) -> (u32, i64) {
        let meta = std::fs::metadata(self.path(path)).unwrap();
        (meta.mode() & 0o7777, meta.mtime())
    }
}

fn head(path: &str) -> EntryHead {
    EntryHead {
        id: 1,
        source: 0,
        path: RelPath::from_typed(path.as_bytes()).unwrap(),
    }
}

fn meta(mode: u32, seconds: i64) -> Meta {
    Meta::new(mode, (seconds, 5))
}

fn small(copy: &CopyDestination, path: &str) -> Result<EntryOutcome, Failure> {
    let hash = *blake3::hash(b"x").as_bytes();
    let head = head(path);
    outcome(|done| copy.write_small(&head, &meta(0o644, 3), b"x", &hash, done))
}

fn set(path: &FilePath, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn directory_of_an_ended_copy_is_finished_by_the_next() {
    let bench = Bench::new();
    let first = bench.copy(false);
    let made = first.make_dir(&head(""), &meta(0o555, 7)).unwrap();
    small(&first, "one").unwrap();
    first.leave_dir(&head(""), made, &meta(0o555, 7));
    drop(first);
    assert_eq!(bench.mode_and_time("d").0, MARKED_DIR_MODE);
    // Over another stream, a file may arrive before its directory.
    let second = bench.copy(false);
    small(&second, "two").unwrap();
    bench.complete(&second, &meta(0o555, 7), &["one"]);
    assert_eq!(bench.mode_and_time("d"), (0o555, 7));
}

#[test]
fn finished_directory_accepts_missing_files_and_is_restored() {
    let bench = Bench::new();
    bench.complete(&bench.copy(false), &meta(0o555, 7), &["one"]);
    let second = bench.copy(false);
    // Before it is described, and killed right after.
    small(&second, "two").unwrap();
    assert_eq!(bench.mode_and_time("d").0, 0o1755);
    drop(second);
    bench.complete(&bench.copy(false), &meta(0o555, 8), &["three"]);
    assert_eq!(bench.mode_and_time("d"), (0o555, 8));
    // Its permissions no longer belong to the copy.
    bench.complete(&bench.copy(false), &meta(0o700, 9), &["four"]);
    assert_eq!(bench.mode_and_time("d"), (0o555, 9));
}

#[test]
fn unchanged_tree_leaves_its_directories_alone() {
    let bench = Bench::new();
    bench.complete(&bench.copy(false), &meta(0o755, 7), &["one"]);
    let written = bench.complete(&bench.copy(false), &meta(0o700, 9), &["one"]);
    assert_eq!(
        (written, bench.mode_and_time("d")),
        (vec![Ok(EntryOutcome::Same)], (0o755, 7))
    );
}

#[test]
fn users_directory_keeps_its_permissions() {
    let bench = Bench::new();
    std::fs::create_dir(bench.path("d")).unwrap();
    set(&bench.path("d"), 0o1777);
    bench.complete(&bench.copy(false), &meta(0o755, 7), &["one"]);
    assert_eq!(bench.mode_and_time("d").0, 0o1777);
    // A directory that a copy finished becomes the user's as soon as the user changes it.
    let bench = Bench::new();
    bench.complete(&bench.copy(false), &meta(0o755, 7), &["one"]);
    set(&bench.path("d"), 0o750);
    bench.complete(&bench.copy(false), &meta(0o755, 7), &["two"]);
    assert_eq!(bench.mode_and_time("d").0, 0o750);
}

#[test]
fn overwriting_sets_mode_and_time_of_every_directory() {
    let bench = Bench::new();
    std::fs::create_dir(bench.path("d")).unwrap();
    set(&bench.path("d"), 0o1777);
    bench.complete(&bench.copy(true), &meta(0o755, 7), &["one"]);
    assert_eq!(bench.mode_and_time("d"), (0o1755, 7));
    // The target itself, when all of a directory goes into it.
    let options = WriteOptions {
        overwrite: true,
        ..Default::default()
    };
    let whole = CopyDestination::local(
        &bench.path("d"),
        vec![Vec::new()],
        options,
        CopyToken([1; 16]),
    )
    .unwrap();
    bench.complete(&whole, &meta(0o711, 8), &["two"]);
    assert_eq!(bench.mode_and_time("d"), (0o1711, 8));
}

#[test]
fn target_created_by_an_ended_copy_is_finished() {
    let bench = Bench::new();
    let copy = || {
        let target = bench.path("new/");
        CopyDestination::local(
            &target,
            vec![Vec::new()],
            WriteOptions::default(),
            CopyToken([1; 16]),
        )
        .unwrap()
    };
    drop(copy());
    assert_eq!(bench.mode_and_time("new").0, MARKED_DIR_MODE);
    bench.complete(&copy(), &meta(0o750, 7), &["one"]);
    assert_eq!(bench.mode_and_time("new"), (0o750, 7));
}

#[test]
fn inherited_set_group_id_is_kept() {
    let bench = Bench::new();
    set(bench.0.path(), 0o2775);
    bench.complete(&bench.copy(false), &meta(0o755, 7), &["one"]);
    assert_eq!(bench.mode_and_time("d"), (0o2755, 7));
    bench.complete(&bench.copy(false), &meta(0o755, 8), &["two"]);
    assert_eq!(bench.mode_and_time("d"), (0o2755, 8));
    bench.complete(&bench.copy(true), &meta(0o700, 9), &["three"]);
    assert_eq!(bench.mode_and_time("d"), (0o2700, 9));
}

#[test]
fn removing_a_temporary_name_restores_a_finished_directory() {
    let bench = Bench::new();
    let orphan = bench.copy(false);
    let large = AnnouncedFile {
        head: head("large"),
        meta: meta(0o644, 3),
        size: 2,
        block_log2: 0,
        identity: None,
    };
    orphan.make_dir(&head(""), &meta(0o755, 7)).unwrap();
    let file = orphan.create(&large).unwrap();
    bench.complete(&bench.copy(false), &meta(0o755, 7), &["one"]);
    drop(file);
    assert_eq!(bench.mode_and_time("d"), (0o755, 7));
    assert_eq!(std::fs::read_dir(bench.path("d")).unwrap().count(), 1);
}

#[test]
fn file_of_the_same_size_is_only_compared() {
    let bench = Bench::new();
    bench.complete(&bench.copy(false), &meta(0o555, 7), &[]);
    set(&bench.path("d"), 0o755);
    std::fs::write(bench.path("d/large"), "ab").unwrap();
    let copy = bench.copy(false);
    for (content, expected) in [
        (b"ab", Ok(EntryOutcome::Same)),
        (b"ac", Err(FailureKind::Exists)),
    ] {
        let large = AnnouncedFile {
            head: head("large"),
            meta: meta(0o644, 3),
            size: 2,
            block_log2: 1,
            identity: None,
        };
        let before = std::fs::metadata(bench.path("d"))
            .unwrap()
            .modified()
            .unwrap();
        let file = copy.create(&large).unwrap();
        let extents = vec![Extent { offset: 0, len: 2 }];
        let block = Block {
            id: 1,
            offset: 0,
            len: 2,
            extents,
        };
        let mut hasher = BlockHasher::new(0, 2, 2);
        hasher.update(content);
        copy.write(&file, &block, content, hasher.finish()).unwrap();
        let hash = *blake3::hash(content).as_bytes();
        let placed = outcome(|done| copy.commit(file, &meta(0o644, 3), 2, &hash, done));
        assert_eq!(placed.map_err(|failure| failure.kind), expected);
        assert_eq!(
            std::fs::metadata(bench.path("d"))
                .unwrap()
                .modified()
                .unwrap(),
            before
        );
        assert_eq!(std::fs::read(bench.path("d/large")).unwrap(), b"ab");
    }
}

#[test]
fn overwriting_replaces_no_device_fifo_or_socket() {
    let bench = Bench::new();
    let copy = bench.copy(true);
    copy.make_dir(&head(""), &meta(0o755, 7)).unwrap();
    small(&copy, "first").unwrap();
    fs::mknodat(
        fs::CWD,
        bench.path("d/fifo"),
        fs::FileType::Fifo,
        fs::mode_bits(0o600),
        0,
    )
    .unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(bench.path("d/socket")).unwrap();
    for (name, kind) in [("fifo", "a FIFO"), ("socket", "a socket")] {
        let refused = Failure::with_detail(FailureKind::WrongKind, kind);
        assert_eq!(small(&copy, name), Err(refused.clone()));
        assert_eq!(
            copy.write_symlink(&head(name), &meta(0o777, 3), b"x"),
            Err(refused.clone())
        );
        let link = crate::wire::HardLink {
            head: head(name),
            first: (0, RelPath::from_bytes(b"first").unwrap()),
            size: 1,
        };
        assert_eq!(copy.link(&link), Err(refused.clone()));
        let large = AnnouncedFile {
            head: head(name),
            meta: meta(0o644, 3),
            size: 2,
            block_log2: 0,
            identity: Some([3; 32]),
        };
        assert_eq!(copy.create(&large).err(), Some(refused));
        let there = std::fs::symlink_metadata(bench.path(&format!("d/{name}")))
            .unwrap()
            .file_type();
        assert!(there.is_fifo() || there.is_socket());
    }
    // A directory that appeared while the file arrived.
    let large = AnnouncedFile {
        head: head("late"),
        meta: meta(0o644, 3),
        size: 2,
        block_log2: 0,
        identity: None,
    };
    let file = copy.create(&large).unwrap();
    let _late = std::os::unix::net::UnixListener::bind(bench.path("d/late")).unwrap();
    let placed = outcome(|done| {
        copy.commit(
            file,
            &meta(0o644, 3),
            2,
            blake3::hash(&[0; 2]).as_bytes(),
            done,
        )
    });
    assert_eq!(
        placed,
        Err(Failure::with_detail(FailureKind::WrongKind, "a socket"))
    );
}
