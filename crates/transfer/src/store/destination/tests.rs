//! Files kept for a later copy, and directories forced to disk. A power loss removes every name
//! whose directory was not synced after it.

use std::sync::mpsc;

use super::open_dirs::DirectoryEvent;
use super::*;
use crate::store::{AnnouncedFile, FileStore, MadeDir, OnCommit, Resumption};
use crate::tree_hash::BlockHasher;
use crate::wire::{Block, EntryOutcome, Extent, Meta};

struct Copy {
    destination: CopyDestination,
    next: u64,
}

impl Copy {
    fn head(&mut self, path: &str) -> EntryHead {
        self.next += 1;
        EntryHead {
            id: self.next,
            source: 0,
            path: RelPath::from_typed(path.as_bytes()).unwrap(),
        }
    }

    fn small(&mut self, path: &str) {
        let head = self.head(path);
        let hash = *blake3::hash(b"x").as_bytes();
        let committed = |done| {
            self.destination
                .write_small(&head, &meta(), b"x", &hash, done)
        };
        outcome(committed).unwrap();
    }

    /// Returns the inodes of directories in which a name would be lost.
    fn lost(&self) -> Vec<u64> {
        let log = self.destination.open_dirs.log.lock().clone();
        let lost = log.iter().enumerate().filter(|(at, (event, inode))| {
            *event == DirectoryEvent::Changed
                && !log[*at..].contains(&(DirectoryEvent::Synced, *inode))
        });
        lost.map(|(_, (_, inode))| *inode).collect()
    }
}

/// Waits for the outcome of a commit.
pub(super) fn outcome(commit: impl FnOnce(OnCommit)) -> Result<EntryOutcome, Failure> {
    let (sender, outcome) = mpsc::channel();
    commit(Box::new(move |committed| sender.send(committed).unwrap()));
    outcome.recv().unwrap()
}

fn meta() -> Meta {
    Meta::new(0o755, (1, 0))
}

fn copy_into(dir: &Path, fsync: bool) -> Copy {
    let options = WriteOptions {
        overwrite: true,
        fsync,
        ..Default::default()
    };
    let destination =
        CopyDestination::local(dir, vec![vec![]], options, CopyToken([1; 16])).unwrap();
    Copy {
        destination,
        next: 0,
    }
}

#[test]
fn fsync_keeps_names_in_existing_directories() {
    let tmp = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(tmp.path().join("there/deep")).unwrap();
    let mut copy = copy_into(tmp.path(), true);
    copy.small("file");
    copy.small("there/deep/file");
    let link = copy.head("there/link");
    copy.destination
        .write_symlink(&link, &meta(), b"file")
        .unwrap();
    // Parents that no entry describes.
    copy.small("made/on/the/way/file");
    // A described directory in one that is not described.
    let new = copy.head("there/new");
    assert_eq!(copy.destination.make_dir(&new, &meta()), Ok(MadeDir::New));
    copy.small("there/new/file");
    copy.destination
        .finish_dir(&new, MadeDir::New, &meta())
        .unwrap();
    assert!(!copy.lost().is_empty(), "this test sees changes");
    assert_eq!(copy.destination.finish(), []);
    assert_eq!(copy.lost(), [] as [u64; 0]);
}

#[test]
fn fsync_keeps_names_beyond_the_open_directories() {
    let tmp = tempfile::tempdir().unwrap();
    for n in 0..60 {
        std::fs::create_dir(tmp.path().join(n.to_string())).unwrap();
    }
    let mut copy = copy_into(tmp.path(), true);
    for n in (0..60).chain((0..60).rev()) {
        copy.small(&format!("{n}/{}", copy.next));
    }
    assert_eq!(copy.destination.finish(), []);
    assert_eq!(copy.lost(), [] as [u64; 0]);
    // A file whose directory is closed to make room for others before the file is committed.
    let head = copy.head("0/late");
    let announced = AnnouncedFile {
        head,
        meta: meta(),
        size: 0,
        block_log2: 16,
        identity: None,
    };
    let file = copy.destination.create(&announced).unwrap();
    for n in 1..60 {
        copy.small(&format!("{n}/more"));
    }
    let empty = *blake3::hash(b"").as_bytes();
    outcome(|done| copy.destination.commit(file, &meta(), 0, &empty, done)).unwrap();
    assert_eq!(copy.destination.finish(), []);
    assert_eq!(copy.lost(), [] as [u64; 0]);
}

#[test]
fn without_fsync_nothing_is_forced_to_disk() {
    let tmp = tempfile::tempdir().unwrap();
    let mut copy = copy_into(tmp.path(), false);
    copy.small("made/file");
    assert_eq!(copy.destination.finish(), []);
    let log = copy.destination.open_dirs.log.lock().clone();
    assert!(
        log.iter()
            .all(|(event, _)| *event == DirectoryEvent::Changed)
    );
}

const BLOCK: usize = 1 << 16;

/// Returns a file of three blocks, as a sender describes it.
fn kept(identity: u8) -> AnnouncedFile {
    AnnouncedFile {
        head: EntryHead {
            id: 1,
            source: 0,
            path: RelPath::from_bytes(b"large").unwrap(),
        },
        meta: meta(),
        size: 2 * BLOCK as u64 + 5,
        block_log2: 16,
        identity: Some([identity; 32]),
    }
}

fn resuming(dir: &Path) -> CopyDestination {
    let options = WriteOptions {
        resume: true,
        ..Default::default()
    };
    CopyDestination::local(dir, vec![vec![]], options, CopyToken([1; 16])).unwrap()
}

fn write_block(
    destination: &CopyDestination,
    file: &<CopyDestination as FileStore>::File,
    number: usize,
    data: &[u8],
) {
    let offset = (number * BLOCK) as u64;
    let block = Block {
        id: 1,
        offset,
        len: data.len() as u32,
        extents: vec![Extent {
            offset: 0,
            len: data.len() as u32,
        }],
    };
    let mut hasher = BlockHasher::new(offset, data.len() as u64, kept(0).size);
    hasher.update(data);
    destination
        .write(file, &block, data, hasher.finish())
        .unwrap();
}

/// Returns what is resumed of a file whose source has this state, or `None` if the copy must wait
/// for another.
fn resume(
    destination: &CopyDestination,
    state: u8,
) -> Option<(
    <CopyDestination as FileStore>::File,
    Vec<crate::tree_hash::Subtree>,
)> {
    match destination.resume(&kept(state)).unwrap() {
        Resumption::Some(resumed) => Some(resumed),
        Resumption::AskAgain(_) => None,
        Resumption::Nothing => panic!("nothing is there"),
    }
}

// LH-COPY-35.
#[test]
fn partial_file_is_kept_for_the_next_copy() {
    let tmp = tempfile::tempdir().unwrap();
    let first = resuming(tmp.path());
    assert_eq!(first.may_resume(&kept(7)), Resumption::Nothing);
    let file = first.create(&kept(7)).unwrap();
    write_block(&first, &file, 1, &[3; BLOCK]);
    drop(file);
    let next = resuming(tmp.path());
    assert_eq!(
        next.may_resume(&kept(8)),
        Resumption::Nothing,
        "another source"
    );
    let keeps_nothing = copy_into(tmp.path(), false).destination;
    assert_eq!(keeps_nothing.may_resume(&kept(7)), Resumption::Nothing);
    assert_eq!(next.may_resume(&kept(7)), Resumption::Some(()));
    let (file, subtrees) = resume(&next, 7).unwrap();
    let there: Vec<_> = subtrees.iter().map(|one| (one.offset, one.level)).collect();
    assert_eq!(there, [(BLOCK as u64, 16)]);
    write_block(&next, &file, 0, &[2; BLOCK]);
    write_block(&next, &file, 2, &[4; 5]);
    let content = [&[2; BLOCK][..], &[3; BLOCK], &[4; 5]].concat();
    let hash = *blake3::hash(&content).as_bytes();
    outcome(|done| next.commit(file, &meta(), kept(7).size, &hash, done)).unwrap();
    assert!(std::fs::read(tmp.path().join("large")).unwrap() == content);
    assert_eq!(
        std::fs::read_dir(tmp.path()).unwrap().count(),
        1,
        "nothing else is left"
    );
}

#[test]
fn file_with_wrong_content_is_not_kept() {
    let tmp = tempfile::tempdir().unwrap();
    let first = resuming(tmp.path());
    let file = first.create(&kept(7)).unwrap();
    write_block(&first, &file, 1, &[3; BLOCK]);
    drop(file);
    let (file, _) = resume(&first, 7).unwrap();
    first.discard(file);
    assert_eq!(std::fs::read_dir(tmp.path()).unwrap().count(), 0);
}

// Without `O_PATH`, only a directory that can be read can be entered.
#[cfg(all(target_os = "linux", not(longhaul_portable)))]
#[test]
fn unreadable_directory_can_be_entered() {
    let tmp = tempfile::tempdir().unwrap();
    let passed = tmp.path().join("passed");
    std::fs::create_dir_all(passed.join("deep")).unwrap();
    let mut copy = copy_into(tmp.path(), false);
    let mode = |mode| {
        std::fs::set_permissions(&passed, std::os::unix::fs::PermissionsExt::from_mode(mode))
    };
    mode(0o111).unwrap();
    std::thread::scope(|threads| {
        // If this is root, permissions count only without these capabilities.
        let as_ordinary_user = || {
            use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
            let mut sets = capabilities(None).unwrap();
            sets.effective
                .remove(CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH);
            set_capabilities(None, sets).unwrap();
            copy.small("passed/deep/file");
        };
        threads.spawn(as_ordinary_user).join().unwrap();
    });
    mode(0o755).unwrap();
    assert!(passed.join("deep/file").exists());
}

#[test]
fn contested_file_is_awaited_or_written_without_journal() {
    let tmp = tempfile::tempdir().unwrap();
    let holder = resuming(tmp.path());
    drop({
        let file = holder.create(&kept(7)).unwrap();
        write_block(&holder, &file, 1, &[3; BLOCK]);
        file
    });
    let (held, _) = resume(&holder, 7).unwrap();
    let beside = |rival| resuming(tmp.path()).with_rivals(Arc::new(move |_| vec![rival]));
    let waiting = beside(Rival::Releasing);
    assert!(resume(&waiting, 7).is_none());
    assert!(matches!(
        waiting.may_resume(&kept(7)),
        Resumption::AskAgain(_)
    ));
    // A rival that continues is not waited for, neither before the file is opened nor while it is
    // created.
    let live = beside(Rival::Younger);
    let (own, in_place) = resume(&live, 7).unwrap();
    assert!(in_place.is_empty());
    drop(own);
    let own = live.create(&kept(7)).unwrap();
    for (number, data) in [&[2; BLOCK][..], &[3; BLOCK], &[4; 5]].iter().enumerate() {
        write_block(&live, &own, number, data);
    }
    let content = [&[2; BLOCK][..], &[3; BLOCK], &[4; 5]].concat();
    let hash = *blake3::hash(&content).as_bytes();
    outcome(|done| live.commit(own, &meta(), kept(7).size, &hash, done)).unwrap();
    drop(held);
    let left = std::fs::read_dir(tmp.path()).unwrap().count();
    assert_eq!(left, 1, "what the holder had is of no use");
}
