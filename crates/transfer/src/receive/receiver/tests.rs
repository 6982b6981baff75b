//! The receiver with a store whose writes wait for the test.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use tokio::sync::Semaphore;

use super::*;
use crate::frame_io::MissingRange;
use crate::store::{MadeDir, OnCommit};
use crate::wire::{EntryOutcome, Meta};

/// Longer than any test takes that does not wait forever.
const DEADLINE: Duration = Duration::from_secs(120);

/// A store whose writes report their offset and wait until they are released.
struct Held {
    begun: mpsc::Sender<u64>,
    go: Mutex<mpsc::Receiver<()>>,
    writing: Arc<AtomicUsize>,
}

impl FileStore for Held {
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

    fn write(&self, _: &(), block: &Block, _: &[u8], _: BlockHash) -> Result<(), Failure> {
        assert_eq!(
            self.writing.fetch_add(1, Ordering::SeqCst),
            0,
            "two threads write one file"
        );
        self.begun.send(block.offset).unwrap();
        self.go.lock().recv_timeout(DEADLINE).unwrap();
        self.writing.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }

    fn commit(&self, _: (), _: &Meta, _: u64, _: &Hash, done: OnCommit) {
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

const BLOCK: u64 = 1 << 16;

#[tokio::test]
async fn one_thread_writes_a_file_and_no_other_waits() {
    let ((begun, writes), (go, may_go)) = (mpsc::channel(), mpsc::channel());
    let store = Held {
        begun,
        go: Mutex::new(may_go),
        writing: Arc::default(),
    };
    let account = Account::unshared();
    let receiver = Receiver::new(
        store,
        RequestedEntries::Anything,
        account.clone(),
        Arc::default(),
        Arc::new(()),
        Box::new(|_| String::new()),
    )
    .unwrap();
    let head = EntryHead {
        id: 0,
        source: 0,
        path: RelPath::root(),
    };
    let announced = AnnouncedFile {
        head,
        meta: Meta::default(),
        size: 4 * BLOCK,
        block_log2: 16,
        identity: None,
    };
    receiver.handle_file(announced).await.unwrap();
    let in_memory = Arc::new(Semaphore::new(4));
    let (answers, mut received) = tokio::sync::mpsc::channel::<AnswerFrames>(8);
    // Thread n brings block n; each reports when it is free again.
    let (free, freed) = mpsc::channel();
    let mut bring = Vec::new();
    for n in 0..4u64 {
        let block = Block {
            id: 0,
            offset: n * BLOCK,
            len: BLOCK as u32,
            extents: vec![],
        };
        assert_eq!(
            receiver.expected_size(&block).await.unwrap(),
            Some(4 * BLOCK)
        );
        let reply = answers.clone().try_reserve_owned().unwrap();
        assert!(receiver.needs_data(&block, reply));
        let data = BlockData {
            buffer: Vec::new(),
            len: 0,
            buffers: account.buffers().clone(),
            _in_memory: in_memory.clone().try_acquire_owned().unwrap(),
            _permit: account.take(Resource::Buffers, 1).unwrap(),
        };
        let (receiver, free) = (receiver.clone(), free.clone());
        bring.push(std::thread::spawn(move || {
            receiver.block(block, data, 4 * BLOCK, None, None);
            free.send(n).unwrap();
        }));
        if n == 0 {
            assert_eq!(
                writes.recv_timeout(DEADLINE),
                Ok(0),
                "the first is being written"
            );
        }
    }
    let mut others: Vec<u64> = (0..3)
        .map(|_| freed.recv_timeout(DEADLINE).unwrap())
        .collect();
    others.sort_unstable();
    assert_eq!(others, [1, 2, 3], "free while block 0 is being written");
    for _ in 0..4 {
        go.send(()).unwrap();
    }
    assert_eq!(freed.recv_timeout(DEADLINE), Ok(0));
    for thread in bring {
        thread.join().unwrap();
    }
    let mut acknowledged = Vec::new();
    while let Ok((Frame::Ack { offset, .. }, None)) = received.try_recv() {
        acknowledged.push(offset / BLOCK);
    }
    acknowledged.sort_unstable();
    assert_eq!(acknowledged, [0, 1, 2, 3]);
    assert_eq!(
        (
            in_memory.available_permits(),
            account.held(Resource::Buffers)
        ),
        (4, 0)
    );
}

/// A guessed hash must tell nothing about what other copies left in the buffer.
#[tokio::test]
async fn unreadable_part_of_a_patch_becomes_zeros() {
    let store = Held {
        begun: mpsc::channel().0,
        go: Mutex::new(mpsc::channel().1),
        writing: Arc::default(),
    };
    let account = Account::unshared();
    let receiver = Receiver::new(
        store,
        RequestedEntries::Anything,
        account.clone(),
        Arc::default(),
        Arc::new(()),
        Box::new(|_| String::new()),
    )
    .unwrap();
    let mut data = BlockData {
        buffer: vec![7; 10],
        len: 5,
        buffers: account.buffers().clone(),
        _in_memory: Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap(),
        _permit: account.take(Resource::Buffers, 1).unwrap(),
    };
    let missing = MissingRange {
        at: 1,
        len: 3,
        offset: 0,
    };
    receiver.fill_missing(0, &[missing], &mut data);
    assert_eq!(data.bytes(), [7, 0, 0, 0, 7]);
}
