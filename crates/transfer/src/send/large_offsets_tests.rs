//! A file of terabytes: offsets beyond 2^42 from a source to a store, neither of which holds more
//! than it is asked for.
//!
//! The file has 4 TiB and some blocks. The store has the first 4 TiB from an earlier copy, as one
//! subtree whose hash was never computed. What follows is read, sent, acknowledged and hashed at
//! its true offset.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::account::Account;
use crate::error::{Failure, FailureKind};
use crate::frame_io::FrameReader;
use crate::path::RelPath;
use crate::progress::TransferProgress;
use crate::receive::{AfterDone, Receiver, RequestedEntries, receive_stream};
use crate::send::schedule::FoundEntry;
use crate::send::source::{Source, SourceFile};
use crate::send::walk::WalkSink;
use crate::send::{DataSetting, Sources, WorkQueue, send_stream};
use crate::store::{AnnouncedFile, FileStore, MadeDir, OnCommit, ResumedFile, Resumption};
use crate::tree_hash::{BlockHash, BlockHasher, Hash, Subtree, TreeHash};
use crate::wire::{Block, EntryHead, EntryOutcome, Meta, SourceIdentity};

/// Offset of the missing part: 4 TiB.
const THERE: u64 = 1 << 42;
const BLOCK_LOG2: u32 = 20;
const BLOCK: u64 = 1 << BLOCK_LOG2;
/// Size of the missing part: four blocks and a fraction of one.
const MISSING: u64 = 4 * BLOCK + 12_345;
const SIZE: u64 = THERE + MISSING;

/// Returns what the earlier copy has left.
fn there() -> Subtree {
    Subtree {
        offset: 0,
        level: 42,
        chaining_value: [7; 32],
    }
}

/// Returns the byte at `offset`.
fn byte_at(offset: u64) -> u8 {
    offset.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes()[5]
}

struct Huge;

impl Source for Huge {
    fn walk(&self, sink: &dyn WalkSink) -> bool {
        sink.found(
            0,
            RelPath::root(),
            Meta::default(),
            FoundEntry::File { size: SIZE },
        )
    }

    fn open(&self, _: &EntryHead) -> Result<Box<dyn SourceFile>, Failure> {
        Ok(Box::new(Self))
    }
}

impl SourceFile for Huge {
    fn size(&self) -> u64 {
        SIZE
    }

    fn meta(&self) -> Meta {
        Meta::default()
    }

    fn identity(&self) -> Option<SourceIdentity> {
        Some([3; 32])
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, Failure> {
        for (byte, at) in buffer.iter_mut().zip(offset..) {
            *byte = byte_at(at);
        }
        Ok(buffer.len())
    }

    fn is_unchanged(&self) -> Result<bool, Failure> {
        Ok(true)
    }
}

/// The written offsets, and the hash with which the file was committed.
#[derive(Default)]
struct Kept {
    blocks: Mutex<BTreeMap<u64, Vec<u8>>>,
    placed: Mutex<Option<(u64, Hash)>>,
}

struct Keeper(Arc<Kept>);

impl FileStore for Keeper {
    type File = ();

    fn sources(&self) -> usize {
        1
    }

    fn name_bytes(&self) -> u64 {
        0
    }

    fn may_resume(&self, _: &AnnouncedFile) -> Resumption<()> {
        Resumption::Some(())
    }

    fn resume(&self, announced: &AnnouncedFile) -> Result<Resumption<ResumedFile<()>>, Failure> {
        assert_eq!((announced.size, announced.block_log2), (SIZE, BLOCK_LOG2));
        Ok(Resumption::Some(((), vec![there()])))
    }

    fn create(&self, _: &AnnouncedFile) -> Result<(), Failure> {
        Ok(())
    }

    fn write(&self, (): &(), block: &Block, data: &[u8], _: BlockHash) -> Result<(), Failure> {
        self.0.blocks.lock().insert(block.offset, data.to_vec());
        Ok(())
    }

    fn commit(&self, (): (), _: &Meta, size: u64, hash: &Hash, done: OnCommit) {
        *self.0.placed.lock() = Some((size, *hash));
        done(Ok(EntryOutcome::New));
    }

    fn write_small(&self, _: &EntryHead, _: &Meta, _: &[u8], _: &Hash, done: OnCommit) {
        done(Err(Failure::new(FailureKind::Io)));
    }

    fn write_symlink(&self, _: &EntryHead, _: &Meta, _: &[u8]) -> Result<EntryOutcome, Failure> {
        Err(Failure::new(FailureKind::Io))
    }

    fn make_dir(&self, _: &EntryHead, _: &Meta) -> Result<MadeDir, Failure> {
        Err(Failure::new(FailureKind::Io))
    }

    fn finishes(&self, _: MadeDir) -> bool {
        false
    }

    fn finish_dir(&self, _: &EntryHead, _: MadeDir, _: &Meta) -> Result<(), Failure> {
        Ok(())
    }

    fn leave_dir(&self, _: &EntryHead, _: MadeDir, _: &Meta) {}

    fn finish(&self) -> Vec<Failure> {
        Vec::new()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_beyond_four_tebibytes_arrives_at_its_offset() {
    let kept = Arc::new(Kept::default());
    let labels = || Sources::labels(vec!["huge".into()]);
    let progress = Arc::new(TransferProgress::default());
    let queue = WorkQueue::new(
        Sources::from_source(Huge),
        true,
        Account::unshared(),
        Arc::default(),
        Arc::new(()),
        labels(),
    )
    .unwrap();
    let receiver = Receiver::new(
        Keeper(kept.clone()),
        RequestedEntries::Anything,
        Account::unshared(),
        progress.clone(),
        Arc::new(()),
        labels(),
    )
    .unwrap();
    let walk = queue.clone();
    tokio::task::spawn_blocking(move || walk.walk());
    // The pipe is small, so that the sender learns what exists before it has sent much from the
    // file's start.
    let (near, far) = tokio::io::duplex(4096);
    let (near_read, mut near_write) = tokio::io::split(near);
    let (far_read, mut far_write) = tokio::io::split(far);
    let (mut near_read, mut far_read) = (FrameReader::new(near_read), FrameReader::new(far_read));
    let counters = progress.add_stream(&crate::RouteInfo::direct(), None, false);
    let unwatched = queue
        .reporter
        .progress
        .add_stream(&crate::RouteInfo::direct(), None, false);
    let clear = DataSetting::disabled();
    let send = send_stream(
        &queue,
        0,
        &unwatched,
        &mut near_read,
        &mut near_write,
        Vec::new(),
        &clear,
    );
    let receive = receive_stream(
        &receiver,
        &counters,
        &mut far_read,
        &mut far_write,
        &[],
        AfterDone::Leave,
    );
    tokio::try_join!(send, receive).unwrap();
    assert_eq!(queue.conclusion(), Some(true));

    let mut tree = TreeHash::new(SIZE, BLOCK_LOG2);
    assert!(tree.insert_subtree(there()));
    let blocks = kept.blocks.lock();
    let mut offset = THERE;
    while offset < SIZE {
        let len = BLOCK.min(SIZE - offset);
        let expected: Vec<u8> = (offset..offset + len).map(byte_at).collect();
        assert!(blocks.get(&offset) == Some(&expected), "{offset}");
        let mut hasher = BlockHasher::new(offset, len, SIZE);
        hasher.update(&expected);
        tree.insert(offset, hasher.finish());
        offset += len;
    }
    // Nothing else was written, as the start of the file existed.
    assert_eq!(blocks.len(), 5);
    assert_eq!(*kept.placed.lock(), Some((SIZE, tree.root().unwrap())));
    assert_eq!(
        progress
            .bytes_resumed
            .load(std::sync::atomic::Ordering::Relaxed),
        THERE
    );
}
