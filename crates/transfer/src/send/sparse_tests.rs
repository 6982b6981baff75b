//! A hole of many blocks from a source to a store, in virtual time, with a stream whose blocks are
//! not answered for a while.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::DuplexStream;

use crate::account::{Account, Resource};
use crate::error::{Error, Failure};
use crate::frame_io::FrameReader;
use crate::path::RelPath;
use crate::progress::TransferProgress;
use crate::receive::{AfterDone, Receiver, RequestedEntries, receive_stream};
use crate::send::schedule::{FoundEntry, StreamId};
use crate::send::source::{Source, SourceFile};
use crate::send::walk::WalkSink;
use crate::send::{DataSetting, Sources, WorkQueue, send_stream};
use crate::store::{AnnouncedFile, FileStore, MadeDir, OnCommit};
use crate::tree_hash::{BlockHash, BlockHasher, Hash};
use crate::wire::{Block, EntryHead, EntryOutcome, Extent, Meta};

/// 512 blocks of 256 KiB.
const SIZE: u64 = 128 << 20;
/// Number of blocks that the sender may be ahead of the first unanswered one.
const AHEAD: u64 = 32;
/// Bytes in transit on a stream: a few blocks of a hole.
const ON_THE_WAY: usize = 64;
/// Time in which everything is done that does not wait for the stalled stream, and nothing is
/// repeated.
const STALL: Duration = Duration::from_millis(100);

struct Hole;

impl Source for Hole {
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

impl SourceFile for Hole {
    fn size(&self) -> u64 {
        SIZE
    }

    fn meta(&self) -> Meta {
        Meta::default()
    }

    fn extents(&self, _: u64, _: u32) -> Result<Vec<Extent>, Failure> {
        Ok(Vec::new())
    }

    fn read_at(&self, _: &mut [u8], _: u64) -> Result<usize, Failure> {
        Ok(0)
    }

    fn is_unchanged(&self) -> Result<bool, Failure> {
        Ok(true)
    }
}

/// Offsets of the written blocks, and the hash with which the file was committed.
#[derive(Default)]
struct Kept {
    blocks: Mutex<BTreeSet<u64>>,
    placed: Mutex<Option<Hash>>,
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

    fn create(&self, _: &AnnouncedFile) -> Result<(), Failure> {
        Ok(())
    }

    fn write(&self, (): &(), block: &Block, _: &[u8], _: BlockHash) -> Result<(), Failure> {
        self.0.blocks.lock().insert(block.offset);
        Ok(())
    }

    fn commit(&self, (): (), _: &Meta, _: u64, hash: &Hash, done: OnCommit) {
        *self.0.placed.lock() = Some(*hash);
        done(Ok(EntryOutcome::New));
    }

    fn write_small(&self, _: &EntryHead, _: &Meta, _: &[u8], _: &Hash, done: OnCommit) {
        done(Ok(EntryOutcome::New));
    }

    fn write_symlink(&self, _: &EntryHead, _: &Meta, _: &[u8]) -> Result<EntryOutcome, Failure> {
        Ok(EntryOutcome::New)
    }

    fn make_dir(&self, _: &EntryHead, _: &Meta) -> Result<MadeDir, Failure> {
        Ok(MadeDir::New)
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

/// Takes a stream that the other end has left as ended: an end that knows that everything arrived
/// leaves. The test looks at what arrived.
fn ended<T>(stream: Result<T, Error>) -> Result<(), Error> {
    match stream {
        Err(Error::Stream(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        stream => stream.map(drop),
    }
}

async fn send(queue: &Arc<WorkQueue>, stream: StreamId, near: DuplexStream) -> Result<(), Error> {
    let (read, mut write) = tokio::io::split(near);
    let counters = queue
        .reporter
        .progress
        .add_stream(&crate::RouteInfo::direct(), None, false);
    let (mut read, clear) = (FrameReader::new(read), DataSetting::disabled());
    let sent = send_stream(
        queue,
        stream,
        &counters,
        &mut read,
        &mut write,
        Vec::new(),
        &clear,
    );
    ended(sent.await)
}

async fn receive(receiver: &Arc<Receiver<Keeper>>, far: DuplexStream) -> Result<(), Error> {
    let (read, mut write) = tokio::io::split(far);
    let counters = receiver
        .reporter
        .progress
        .add_stream(&crate::RouteInfo::direct(), None, false);
    let mut read = FrameReader::new(read);
    let received = receive_stream(
        receiver,
        &counters,
        &mut read,
        &mut write,
        &[],
        AfterDone::Leave,
    );
    ended(received.await)
}

#[tokio::test(start_paused = true)]
async fn lh_copy_30_hole_waits_for_the_delayed_stream() {
    let kept = Arc::new(Kept::default());
    let labels = || Sources::labels(vec!["hole".into()]);
    let (sender, account) = (Account::unshared(), Account::unshared());
    let sources = Sources::from_source(Hole);
    let queue = WorkQueue::new(
        sources,
        false,
        sender,
        Arc::default(),
        Arc::new(()),
        labels(),
    )
    .unwrap();
    queue.set_blocks_ahead(AHEAD);
    let receiver = Receiver::new(
        Keeper(kept.clone()),
        RequestedEntries::Anything,
        account.clone(),
        Arc::new(TransferProgress::default()),
        Arc::new(()),
        labels(),
    )
    .unwrap();
    let begun_with = account.held(Resource::Bookkeeping);
    let walk = queue.clone();
    tokio::task::spawn_blocking(move || walk.walk());
    let [first, second] = [0, 1].map(|_| tokio::io::duplex(ON_THE_WAY));
    let stalled = async {
        // Only what does not wait for a block of this stream can be done meanwhile.
        tokio::time::sleep(STALL).await;
        let written = kept.blocks.lock().len() as u64;
        assert!(
            0 < written && written < 2 * AHEAD,
            "{written} blocks ahead of the first"
        );
        let more = account.held(Resource::Bookkeeping) - begun_with;
        assert!(more <= 64 << 10, "{more} bytes");
        receive(&receiver, first.1).await
    };
    tokio::try_join!(
        send(&queue, 0, first.0),
        send(&queue, 1, second.0),
        stalled,
        receive(&receiver, second.1),
    )
    .unwrap();
    assert_eq!(queue.conclusion(), Some(true));
    let mut whole = BlockHasher::new(0, SIZE, SIZE);
    whole.update_zeros(SIZE);
    let placed = kept.placed.lock().unwrap();
    assert_eq!(placed, *whole.finish().as_bytes());
}
