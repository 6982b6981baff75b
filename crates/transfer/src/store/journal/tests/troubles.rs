//! A full disk, a failing disk, and two copies of the same file.

use std::ffi::OsStr;
use std::time::Duration;

use super::sim_disk::{SimDisk, Trouble};
use super::{BLOCK, BLOCK_LOG2, Random, block_of, content, identity, subtree_of};
use crate::error::FailureKind;
use crate::store::journal::format::MAX_SUBTREES;
use crate::store::journal::{Action, AtRisk, Flushed, Journal, ResumePoint};

const SIZE: usize = 20 * BLOCK;
const SECOND: Duration = Duration::from_secs(1);

fn open(disk: &SimDisk) -> (Journal<SimDisk>, ResumePoint) {
    Journal::open_or_create(
        disk.clone(),
        OsStr::new("target"),
        &identity(),
        BLOCK_LOG2,
        SIZE as u64,
    )
    .unwrap()
}

fn write(journal: &Journal<SimDisk>, now: Duration, blocks: impl IntoIterator<Item = usize>) {
    let content = content(SIZE, 1);
    for n in blocks {
        journal
            .write_at(block_of(&content, n), (n * BLOCK) as u64)
            .unwrap();
        journal.written(now, subtree_of(&content, n));
    }
}

fn flush(journal: &Journal<SimDisk>, now: Duration) -> Result<Flushed, crate::Failure> {
    assert_eq!(journal.poll(now), Action::Flush);
    assert_eq!(journal.poll(now), Action::Nothing);
    journal.flush(|| now)
}

fn bytes(blocks: usize) -> u64 {
    (blocks * BLOCK) as u64
}

#[test]
fn full_disk_costs_unrecorded_data_and_is_retried() {
    let disk = SimDisk::default();
    let (journal, _) = open(&disk);
    write(&journal, SECOND, 0..3);
    disk.set_trouble(Trouble::DiskFull);
    let Ok(Flushed::Unrecorded(failure)) = flush(&journal, SECOND * 2) else {
        panic!()
    };
    assert_eq!(failure.kind, FailureKind::DiskFull);
    assert_eq!(
        journal.at_risk(SECOND * 2),
        AtRisk {
            bytes: bytes(3),
            age: SECOND
        }
    );
    assert_eq!(journal.poll(SECOND * 2), Action::WaitUntil(SECOND * 3));
    disk.set_trouble(Trouble::None);
    assert_eq!(flush(&journal, SECOND * 3), Ok(Flushed::Recorded));
    write(&journal, SECOND * 3, 3..6);
    disk.set_trouble(Trouble::DiskFull);
    assert!(matches!(
        flush(&journal, SECOND * 4),
        Ok(Flushed::Unrecorded(_))
    ));
    // The file fails, but recorded data stays.
    drop(journal);
    assert_eq!(open_after(&disk).ranges(), [0..bytes(3)]);
}

fn open_after(disk: &SimDisk) -> ResumePoint {
    disk.set_trouble(Trouble::None);
    disk.fail_power(&mut Random(1));
    open(disk).1
}

#[test]
fn nothing_after_a_failed_sync_is_trusted() {
    let disk = SimDisk::default();
    let (journal, _) = open(&disk);
    write(&journal, SECOND, 0..3);
    assert_eq!(flush(&journal, SECOND * 2), Ok(Flushed::Recorded));
    write(&journal, SECOND * 2, 3..6);
    disk.set_trouble(Trouble::SyncFails);
    assert_eq!(
        flush(&journal, SECOND * 3).unwrap_err().kind,
        FailureKind::Io
    );
    // The next sync may succeed, as the kernel reported the error once.
    disk.set_trouble(Trouble::None);
    write(&journal, SECOND * 3, 6..20);
    assert_eq!(journal.poll(SECOND * 5), Action::Nothing);
    assert!(!journal.is_recording());
    assert_eq!(journal.finish(true).unwrap_err().kind, FailureKind::Io);
    assert_eq!(journal.leave(), Ok(Flushed::Nothing));
    drop(journal);
    assert_eq!(disk.content("target"), None);
    assert_eq!(open_after(&disk).ranges(), [0..bytes(3)]);
}

#[test]
fn scattered_blocks_are_recorded_once_they_merge() {
    const BLOCKS: usize = 4 * MAX_SUBTREES;
    let (disk, content) = (SimDisk::default(), content(BLOCKS * BLOCK, 1));
    let open = || {
        let target = OsStr::new("target");
        Journal::open_or_create(disk.clone(), target, &identity(), BLOCK_LOG2, bytes(BLOCKS))
            .unwrap()
    };
    let (journal, _) = open();
    let write = |now, blocks: &mut dyn Iterator<Item = usize>| {
        for n in blocks {
            let block = block_of(&content, n);
            journal.write_at(block, (n * BLOCK) as u64).unwrap();
            journal.written(now, subtree_of(&content, n));
        }
    };
    write(SECOND, &mut (0..BLOCKS / 4).step_by(2));
    assert_eq!(flush(&journal, SECOND * 2), Ok(Flushed::Recorded));
    write(SECOND * 2, &mut (BLOCKS / 4..BLOCKS).step_by(2));
    let Ok(Flushed::Unrecorded(failure)) = flush(&journal, SECOND * 3) else {
        panic!("more subtrees than a journal may hold")
    };
    assert_eq!(failure.kind, FailureKind::Limit);
    assert!(journal.is_recording());
    write(SECOND * 3, &mut (1..BLOCKS).step_by(2));
    assert_eq!(flush(&journal, SECOND * 5), Ok(Flushed::Recorded));
    drop(journal);
    disk.fail_power(&mut Random(1));
    assert_eq!(open().1.ranges(), [0..bytes(BLOCKS)]);
}

#[test]
fn two_copies_of_one_file_never_share_data() {
    let disk = SimDisk::default();
    let (first, _) = open(&disk);
    // Begun before the first has a journal. Whichever is faster gets it.
    let (second, _) = open(&disk);
    write(&first, SECOND, 0..3);
    write(&second, SECOND, 3..5);
    assert_eq!(flush(&first, SECOND * 2), Ok(Flushed::Recorded));
    assert_eq!(flush(&second, SECOND * 2), Ok(Flushed::Nothing));
    assert!(first.is_recording() && !second.is_recording());
    // Begun while the first has one.
    let (third, resume) = open(&disk);
    assert_eq!((resume.bytes(), third.is_recording()), (0, false));
    write(&second, SECOND, (0..3).chain(5..20));
    second.finish(true).unwrap();
    assert_eq!(disk.content("target"), Some(content(SIZE, 1)));
    drop(third);
    // The file exists, and this copy has less of it.
    drop(first);
    assert_eq!(disk.names(), ["target"]);
}

#[test]
fn finished_file_removes_leftovers_of_another_copy() {
    let disk = SimDisk::default();
    let (first, _) = open(&disk);
    write(&first, SECOND, 0..3);
    assert_eq!(flush(&first, SECOND * 2), Ok(Flushed::Recorded));
    let (second, _) = open(&disk);
    assert!(second.is_contested());
    write(&second, SECOND, 0..20);
    drop(first);
    assert_eq!(disk.names().len(), 3);
    second.finish(true).unwrap();
    assert_eq!(disk.names(), ["target"]);
    // It was synced before the other's was removed.
    drop(second);
    disk.fail_power(&mut Random(1));
    assert_eq!(disk.content("target"), Some(content(SIZE, 1)));
}

#[test]
fn leftovers_stay_if_the_file_differs_or_cannot_sync() {
    let disk = SimDisk::default();
    let (older, _) = open(&disk);
    write(&older, SECOND, 0..20);
    older.finish(true).unwrap();
    drop(older);
    // The existing file, which is to be replaced, has the same size.
    let (journal, _) = open(&disk);
    write(&journal, SECOND, 0..3);
    assert_eq!(flush(&journal, SECOND * 2), Ok(Flushed::Recorded));
    drop(journal);
    let (journal, resume) = open(&disk);
    assert_eq!(resume.ranges(), [0..bytes(3)]);
    // Meanwhile, a copy that synced nothing has replaced its target.
    let (rival, _) = open(&disk);
    write(&rival, SECOND, 0..20);
    rival.finish(true).unwrap();
    disk.set_trouble(Trouble::SyncFails);
    drop((rival, journal));
    disk.set_trouble(Trouble::None);
    assert_eq!(open(&disk).1.ranges(), [0..bytes(3)]);
}

#[test]
fn changed_source_is_not_resumed() {
    let disk = SimDisk::default();
    let (journal, _) = open(&disk);
    write(&journal, SECOND, 0..3);
    journal.leave().unwrap();
    drop(journal);
    let open = |identity: &[u8], log2, size| {
        let identity = crate::store::journal::Identity::opaque(identity).unwrap();
        Journal::open_or_create(disk.clone(), OsStr::new("target"), &identity, log2, size)
            .unwrap()
            .1
            .bytes()
    };
    assert_eq!(open(b"another", BLOCK_LOG2, bytes(20)), 0);
    assert_eq!(open(b"the source", BLOCK_LOG2, bytes(20)), bytes(3));
    // In other blocks, those that make up whole ones count.
    assert_eq!(open(b"the source", BLOCK_LOG2 + 1, bytes(20)), bytes(2));
    // With another size, the file is begun from scratch, and the old data is removed.
    assert_eq!(open(b"the source", BLOCK_LOG2, bytes(21)), 0);
    assert_eq!(disk.names(), Vec::<String>::new());
}

#[test]
fn existing_file_is_replaced_only_on_request() {
    let disk = SimDisk::default();
    for replace in [false, true] {
        let (journal, _) = open(&disk);
        write(&journal, SECOND, 0..20);
        journal.finish(replace).unwrap();
    }
    let (journal, _) = open(&disk);
    write(&journal, SECOND, 0..20);
    assert_eq!(flush(&journal, SECOND * 2), Ok(Flushed::Recorded));
    assert_eq!(journal.finish(false).unwrap_err().kind, FailureKind::Exists);
    journal.discard();
    drop(journal);
    assert_eq!(disk.names(), ["target"]);
}

#[test]
fn single_block_or_unflushed_file_has_no_journal() {
    let disk = SimDisk::default();
    let (journal, _) = Journal::open_or_create(
        disk.clone(),
        OsStr::new("small"),
        &identity(),
        BLOCK_LOG2,
        bytes(1),
    )
    .unwrap();
    assert!(!journal.is_recording());
    assert_eq!(journal.poll(SECOND), Action::Nothing);
    journal.finish(false).unwrap();
    let (journal, _) = open(&disk);
    write(&journal, SECOND, 0..20);
    assert_eq!(
        journal.poll(SECOND),
        Action::WaitUntil(SECOND + Duration::from_millis(250))
    );
    disk.end_at(None);
    journal.finish(false).unwrap();
    assert_eq!(disk.steps(), 1);
    let (journal, _) = open(&disk);
    write(&journal, SECOND, 0..2);
    drop(journal);
    assert_eq!(disk.names(), ["small", "target"]);
    for target in ["", ".", "..", "a/b"] {
        let target = OsStr::new(target);
        let opened =
            Journal::open_or_create(disk.clone(), target, &identity(), BLOCK_LOG2, bytes(9));
        assert_eq!(opened.err().unwrap().kind, FailureKind::RefusedPath);
    }
}

#[test]
fn flush_after_the_end_leaves_no_journal() {
    let disk = SimDisk::default();
    let (journal, _) = open(&disk);
    write(&journal, SECOND, 0..20);
    assert_eq!(journal.poll(SECOND * 2), Action::Flush);
    journal.finish(false).unwrap();
    assert_eq!(journal.flush(|| SECOND * 2), Ok(Flushed::Nothing));
    drop(journal);
    assert!(!Journal::is_there(&disk, OsStr::new("target"), &identity()));
}
