//! The journal on a real directory, and with files that others may have put there.

use std::ffi::OsStr;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;

use super::{BLOCK, BLOCK_LOG2, TICK, block_of, content, identity, is_true, subtree_of};
use crate::store::confine::Dir;
use crate::store::journal::names::JournalNames;
use crate::store::journal::{DirStorage, FlushResult, Journal, JournalAction, ResumePoint};
use crate::tree_hash::BlockHasher;

const SIZE: usize = 50 * BLOCK + 7;

pub(in crate::store::journal) fn open(dir: &Path) -> (Journal, ResumePoint) {
    open_in_blocks(dir, BLOCK_LOG2)
}

fn open_in_blocks(dir: &Path, block_log2: u8) -> (Journal, ResumePoint) {
    let storage = DirStorage(Arc::new(Dir::open(dir).unwrap()));
    Journal::open_or_create(
        storage,
        OsStr::new("target"),
        &identity(),
        block_log2,
        SIZE as u64,
    )
    .unwrap()
}

/// Writes and records the first blocks, and leaves them.
pub(in crate::store::journal) fn leave(dir: &Path, blocks: usize) {
    let (journal, _) = open(dir);
    let content = content(SIZE, 1);
    for n in 0..blocks {
        journal
            .write_at(block_of(&content, n), (n * BLOCK) as u64)
            .unwrap();
        journal.written(TICK, subtree_of(&content, n));
    }
    assert_eq!(journal.leave(), Ok(FlushResult::Recorded));
}

pub(super) fn names_in(dir: &Path) -> Vec<String> {
    let names = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

fn journal_in(dir: &Path) -> std::path::PathBuf {
    dir.join(JournalNames::new(OsStr::new("target"), &identity()).journal())
}

#[test]
fn copy_resumes_where_it_was_left() {
    let tmp = tempfile::tempdir().unwrap();
    leave(tmp.path(), 20);
    // Of a life that ended differently: written, and not recorded.
    let part = names_in(tmp.path())
        .into_iter()
        .find(|name| name.ends_with(".part"))
        .unwrap();
    let part = tmp.path().join(part);
    assert_eq!(part.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let mut bytes = std::fs::read(&part).unwrap();
    bytes[40 * BLOCK..41 * BLOCK].fill(0xEE);
    std::fs::write(&part, &bytes).unwrap();
    // An incomplete record.
    let mut journal = std::fs::read(journal_in(tmp.path())).unwrap();
    let whole = journal.len();
    journal.extend_from_slice(&[1, 0, 99]);
    std::fs::write(journal_in(tmp.path()), &journal).unwrap();

    let (journal, resume) = open(tmp.path());
    assert_eq!(resume.ranges(), [0..20 * BLOCK as u64]);
    assert_eq!(
        journal_in(tmp.path()).metadata().unwrap().len(),
        whole as u64
    );
    let bytes = std::fs::read(&part).unwrap();
    assert!(bytes[20 * BLOCK..].iter().all(|&byte| byte == 0) && bytes.len() == SIZE);
    let content = content(SIZE, 1);
    for n in 20..51 {
        journal
            .write_at(block_of(&content, n), (n * BLOCK) as u64)
            .unwrap();
        journal.written(TICK, subtree_of(&content, n));
    }
    assert_eq!(journal.poll(TICK * 10), JournalAction::Flush);
    assert_eq!(journal.flush(|| TICK * 10), Ok(FlushResult::Recorded));
    journal.finish(false).unwrap();
    assert_eq!(names_in(tmp.path()), ["target"]);
    assert_eq!(std::fs::read(tmp.path().join("target")).unwrap(), content);
}

#[test]
fn copy_with_other_block_size_resumes_complete_blocks() {
    let tmp = tempfile::tempdir().unwrap();
    leave(tmp.path(), 22);
    let content = content(SIZE, 1);
    // Larger blocks: 22 blocks are five of four, and two that no longer count.
    let (journal, resume) = open_in_blocks(tmp.path(), BLOCK_LOG2 + 2);
    assert_eq!(resume.ranges(), [0..20 * BLOCK as u64]);
    assert!(
        resume
            .subtrees
            .iter()
            .all(|subtree| is_true(&content, subtree))
    );
    let (start, end) = (20 * BLOCK, 24 * BLOCK);
    journal
        .write_at(&content[start..end], start as u64)
        .unwrap();
    let mut hasher = BlockHasher::new(start as u64, (end - start) as u64, SIZE as u64);
    hasher.update(&content[start..end]);
    journal.written(
        TICK,
        hasher
            .finish()
            .subtree(start as u64, u32::from(BLOCK_LOG2) + 2),
    );
    assert_eq!(journal.leave(), Ok(FlushResult::Recorded));
    drop(journal);
    // Smaller blocks again: all count, and the next copy finds what is recorded now.
    let (journal, resume) = open(tmp.path());
    assert_eq!(resume.ranges(), [0..24 * BLOCK as u64]);
    for n in 24..51 {
        journal
            .write_at(block_of(&content, n), (n * BLOCK) as u64)
            .unwrap();
        journal.written(TICK, subtree_of(&content, n));
    }
    journal.finish(false).unwrap();
    assert_eq!(names_in(tmp.path()), ["target"]);
    assert_eq!(std::fs::read(tmp.path().join("target")).unwrap(), content);
}

#[test]
fn truncated_or_missing_data_file_restarts() {
    for cut in [true, false] {
        let tmp = tempfile::tempdir().unwrap();
        leave(tmp.path(), 20);
        let part = names_in(tmp.path())
            .into_iter()
            .find(|name| name.ends_with(".part"))
            .unwrap();
        match cut {
            true => std::fs::write(tmp.path().join(&part), b"short").unwrap(),
            false => std::fs::remove_file(tmp.path().join(&part)).unwrap(),
        }
        let (journal, resume) = open(tmp.path());
        assert_eq!((resume.bytes(), journal.is_recording()), (0, true));
        drop(journal);
        assert_eq!(names_in(tmp.path()), Vec::<String>::new());
        leave(tmp.path(), 5);
        assert_eq!(open(tmp.path()).1.bytes(), 5 * BLOCK as u64);
    }
}

#[test]
fn foreign_file_under_the_journal_name_is_never_opened() {
    let tmp = tempfile::tempdir().unwrap();
    leave(tmp.path(), 20);
    let saved = tmp.path().join("saved");
    std::fs::rename(journal_in(tmp.path()), &saved).unwrap();
    let before = std::fs::read(&saved).unwrap();
    let place = journal_in(tmp.path());
    let tricks: [(&str, &dyn Fn()); 5] = [
        ("a link to a journal", &|| symlink("saved", &place).unwrap()),
        ("another name of a file", &|| {
            std::fs::hard_link(&saved, &place).unwrap()
        }),
        ("a pipe nobody writes to", &|| {
            longhaul_platform::fs::mknodat(
                longhaul_platform::fs::CWD,
                &place,
                longhaul_platform::fs::FileType::Fifo,
                longhaul_platform::fs::Mode::RWXU,
                0,
            )
            .unwrap();
        }),
        ("a directory", &|| std::fs::create_dir(&place).unwrap()),
        ("a file that others may write to", &|| {
            std::fs::copy(&saved, &place).unwrap();
            std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o666)).unwrap();
        }),
    ];
    for (what, make) in tricks {
        make();
        let there = place.symlink_metadata().unwrap();
        let (journal, resume) = open(tmp.path());
        assert_eq!(
            (resume.bytes(), journal.is_recording()),
            (0, false),
            "{what}"
        );
        journal.finish(true).unwrap();
        drop(journal);
        // It is unchanged.
        let after = place.symlink_metadata().unwrap();
        assert_eq!(
            (there.ino(), there.len()),
            (after.ino(), after.len()),
            "{what}"
        );
        assert_eq!(std::fs::read(&saved).unwrap(), before, "{what}");
        match after.is_dir() {
            true => std::fs::remove_dir(&place).unwrap(),
            false => std::fs::remove_file(&place).unwrap(),
        }
    }
    // Put there while the copy runs.
    let (journal, _) = open(tmp.path());
    symlink("elsewhere", &place).unwrap();
    let content = content(SIZE, 1);
    journal.write_at(block_of(&content, 0), 0).unwrap();
    journal.written(TICK, subtree_of(&content, 0));
    assert_eq!(journal.poll(TICK * 10), JournalAction::Flush);
    assert_eq!(journal.flush(|| TICK * 10), Ok(FlushResult::Nothing));
    assert!(!journal.is_recording() && !tmp.path().join("elsewhere").exists());
}

#[test]
fn huge_journal_file_is_not_read_completely() {
    let tmp = tempfile::tempdir().unwrap();
    let huge = std::fs::File::create(journal_in(tmp.path())).unwrap();
    huge.set_len(1 << 40).unwrap();
    drop(huge);
    let (journal, resume) = open(tmp.path());
    assert_eq!(resume.bytes(), 0);
    drop(journal);
    leave(tmp.path(), 3);
    assert!(journal_in(tmp.path()).metadata().unwrap().len() < 1000);
    assert_eq!(open(tmp.path()).1.bytes(), 3 * BLOCK as u64);
}
