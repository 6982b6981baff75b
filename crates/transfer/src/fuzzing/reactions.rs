//! Reactions of a receiver to any bytes of a sender, and of a sender to any bytes of a receiver.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use longhaul_proto::fuzzing::assert_short_line;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::account::Account;
use crate::compression::Compression;
use crate::error::{Error, Failure, FailureKind};
use crate::frame_io::{FrameReader, IncomingFrame};
use crate::path::RelPath;
use crate::progress::TransferProgress;
use crate::receive::{AfterDone, Receiver, RequestedEntries, StreamEnd, receive_stream};
use crate::route_info::RouteInfo;
use crate::send::{DataSetting, Presence, Sources, WorkQueue, send_stream};
use crate::store::{
    AnnouncedFile, Comparison, FileStore, MadeDir, OnCommit, ResumedFile, Resumption,
};
use crate::tree_hash::{BlockHash, Hash, Subtree};
use crate::wire::{
    Block, Compare, EntryHead, EntryOutcome, FileOffer, Frame, HardLink, Meta, NO_ENTRY,
};

/// Number of polls after which a finished stream ends, if nothing happens at its other end.
const MAX_QUIET_POLLS: usize = 16;
/// Number of polls for the first bytes of a sender, after which the answers are sent anyway.
const MAX_FIRST_POLLS: usize = 1 << 20;

fn run<T>(future: impl Future<Output = T>) -> T {
    thread_local! {
        static RUNTIME: RefCell<tokio::runtime::Runtime> = RefCell::new(
            tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap(),
        );
    }
    RUNTIME.with_borrow(|runtime| runtime.block_on(future))
}

/// A store that keeps nothing. It checks that a receiver's requests are valid.
struct NullStore;

impl NullStore {
    fn outcome(path: &RelPath) -> Result<EntryOutcome, Failure> {
        super::check_plain(path);
        match path.as_bytes().first() {
            Some(b'!') => Err(Failure::new(FailureKind::Exists)),
            Some(b'=') => Ok(EntryOutcome::Same),
            _ => Ok(EntryOutcome::New),
        }
    }
}

impl FileStore for NullStore {
    type File = (RelPath, u64);

    fn sources(&self) -> usize {
        2
    }

    fn name_bytes(&self) -> u64 {
        0
    }

    /// The first part of every file with an identity exists already.
    fn may_resume(&self, announced: &AnnouncedFile) -> Resumption<()> {
        match announced.identity {
            Some(_) => Resumption::Some(()),
            None => Resumption::Nothing,
        }
    }

    fn resume(
        &self,
        announced: &AnnouncedFile,
    ) -> Result<Resumption<ResumedFile<Self::File>>, Failure> {
        let first = Subtree {
            offset: 0,
            level: announced.block_log2,
            chaining_value: [1; 32],
        };
        Ok(Resumption::Some((self.create(announced)?, vec![first])))
    }

    fn compare(
        &self,
        offer: &FileOffer,
        is_waiting: &dyn Fn() -> bool,
    ) -> Result<Comparison, Failure> {
        is_waiting();
        Ok(match Self::outcome(&offer.head.path)? {
            EntryOutcome::Same => Comparison::InPlace,
            _ => Comparison::Wanted,
        })
    }

    fn link(&self, link: &HardLink) -> Result<Comparison, Failure> {
        super::check_plain(&link.first.1);
        Ok(match Self::outcome(&link.head.path)? {
            EntryOutcome::Same => Comparison::InPlace,
            _ => Comparison::Wanted,
        })
    }

    fn create(&self, announced: &AnnouncedFile) -> Result<Self::File, Failure> {
        let path = &announced.head.path;
        super::check_plain(path);
        Ok((path.clone(), announced.size))
    }

    fn write(
        &self,
        (path, size): &Self::File,
        block: &Block,
        data: &[u8],
        _: BlockHash,
    ) -> Result<(), Failure> {
        assert_eq!(data.len(), block.data_len());
        assert!(block.offset + u64::from(block.len) <= *size);
        match path.as_bytes().first() {
            Some(b'?') => Err(Failure::new(FailureKind::DiskFull)),
            _ => Ok(()),
        }
    }

    fn commit(&self, file: Self::File, _: &Meta, size: u64, _: &Hash, done: OnCommit) {
        assert_eq!(file.1, size);
        done(Self::outcome(&file.0));
    }

    fn write_small(&self, head: &EntryHead, _: &Meta, data: &[u8], hash: &Hash, done: OnCommit) {
        assert_eq!(blake3::hash(data), *hash);
        done(Self::outcome(&head.path));
    }

    fn write_symlink(
        &self,
        head: &EntryHead,
        _: &Meta,
        target: &[u8],
    ) -> Result<EntryOutcome, Failure> {
        assert!(!target.is_empty());
        Self::outcome(&head.path)
    }

    fn make_dir(&self, head: &EntryHead, _: &Meta) -> Result<MadeDir, Failure> {
        Self::outcome(&head.path).map(|_| MadeDir::New)
    }

    fn finishes(&self, _: MadeDir) -> bool {
        true
    }

    fn finish_dir(&self, head: &EntryHead, _: MadeDir, _: &Meta) -> Result<(), Failure> {
        match head.path.as_bytes().last() {
            Some(b'!') => Err(Failure::new(FailureKind::Metadata)),
            _ => Ok(()),
        }
    }

    fn leave_dir(&self, _: &EntryHead, _: MadeDir, _: &Meta) {}

    fn finish(&self) -> Vec<Failure> {
        Vec::new()
    }
}

/// Stream that yields its bytes once it may begin, and ends when nothing happens any more.
struct ScriptedStream<'a, B, Q> {
    data: &'a [u8],
    may_begin: B,
    is_quiet: Q,
    looks: usize,
}

impl<B: FnMut() -> bool + Unpin, Q: FnMut() -> bool + Unpin> AsyncRead
    for ScriptedStream<'_, B, Q>
{
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let this = &mut *self;
        if !this.data.is_empty() && ((this.may_begin)() || this.looks > MAX_FIRST_POLLS) {
            let (now, rest) = this.data.split_at(this.data.len().min(buf.remaining()));
            buf.put_slice(now);
            (this.data, this.looks) = (rest, 0);
            return Poll::Ready(Ok(()));
        }
        let over = this.data.is_empty() && (this.is_quiet)() && this.looks > MAX_QUIET_POLLS;
        if over {
            return Poll::Ready(Ok(()));
        }
        this.looks += usize::from(!this.data.is_empty() || (this.is_quiet)());
        std::thread::yield_now();
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Feeds a receiver what a sender says after HELLO, over one stream and again over another. It must
/// not panic, must only answer, and must repeat each outcome unchanged (LH-COPY-19).
pub(super) fn receiver(data: &[u8]) {
    let receiver = Receiver::new(
        NullStore,
        RequestedEntries::Anything,
        Account::unshared(),
        Arc::default(),
        Arc::new(()),
        Box::new(|head| head.path.to_string()),
    )
    .unwrap();
    receiver.take_late_sizes();
    let mut received = Vec::new();
    let reported = run(async {
        for _ in 0..2 {
            let counters = receiver
                .reporter
                .progress
                .add_stream(&RouteInfo::direct(), None, false);
            let idle = Arc::strong_count(&receiver);
            let said = ScriptedStream {
                data,
                may_begin: || true,
                is_quiet: || Arc::strong_count(&receiver) == idle,
                looks: 0,
            };
            let mut reader = FrameReader::new(said);
            reader.allow_plaintext(Arc::default());
            let after_done = AfterDone::Leave;
            let ended = receive_stream(
                &receiver,
                &counters,
                &mut reader,
                &mut received,
                b"",
                after_done,
            )
            .await;
            if let Err(error) = ended {
                assert_short_line(&error);
            }
            // Wait for work that the stream has left behind.
            while Arc::strong_count(&receiver) > idle {
                tokio::task::yield_now().await;
            }
        }
        reported_in(&received).await
    });
    let mut outcomes: HashMap<u64, Result<EntryOutcome, FailureKind>> = HashMap::new();
    for (id, outcome) in reported {
        let kind = outcome.map_err(|failure| failure.kind);
        let first = *outcomes.entry(id).or_insert(kind);
        assert_eq!(first, kind, "entry {id}");
    }
}

/// Returns the outcomes that a receiver has reported. A stream that ended early may be cut in the
/// middle of a frame.
async fn reported_in(bytes: &[u8]) -> Vec<(u64, Result<EntryOutcome, Failure>)> {
    let mut reported = Vec::new();
    let mut reader = FrameReader::new(bytes);
    while let Ok(Some(IncomingFrame::Frame(frame))) = reader.next().await {
        match frame {
            Frame::Result { id, outcome } => reported.push((id, outcome)),
            Frame::Failed { head, .. } => assert_eq!(head.id, NO_ENTRY),
            other => assert!(
                matches!(
                    other,
                    Frame::Ack { .. }
                        | Frame::Have { .. }
                        | Frame::Want { .. }
                        | Frame::Done { .. }
                        | Frame::KeepAlive
                ),
                "a receiver says {other:?}"
            ),
        }
    }
    reported
}

/// Writer that counts bytes and discards them.
struct CountingSink(Arc<AtomicUsize>);

impl AsyncWrite for CountingSink {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        self.0.fetch_add(data.len(), Ordering::SeqCst);
        Poll::Ready(Ok(data.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Feeds a sender of a small tree and a large file what a receiver answers. It must not panic. It
/// must not consider a copy complete if the receiver cannot know its hash (LH-COPY-26).
pub(super) fn sender(data: &[u8]) {
    let tree = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src/wire"));
    let large = std::env::current_exe().unwrap();
    let (sources, _) = Sources::local(&[tree, large], true).unwrap();
    let queue = WorkQueue::new(
        sources,
        true,
        Account::unshared(),
        Arc::new(TransferProgress::default()),
        Arc::new(()),
        Box::new(|head: &EntryHead| head.path.to_string()),
    )
    .unwrap();
    queue.set_presence(Presence::Unknown, Compare::SizeAndTime);
    queue.walk();
    let written = Arc::new(AtomicUsize::new(0));
    let ended = run(async {
        let counters = queue
            .reporter
            .progress
            .add_stream(&RouteInfo::direct(), None, false);
        let begun = written.clone();
        let said = ScriptedStream {
            data,
            may_begin: move || begun.load(Ordering::SeqCst) > 0,
            is_quiet: || true,
            looks: 0,
        };
        let mut reader = FrameReader::new(said);
        let mut writer = CountingSink(written.clone());
        // Data travels in plaintext as soon as ACCEPT allows it.
        let clear = DataSetting {
            stream: Some(Arc::default()),
            wanted: true,
            compression: Compression::Zstd(1),
            ..DataSetting::disabled()
        };
        send_stream(
            &queue,
            counters.number,
            &counters,
            &mut reader,
            &mut writer,
            Vec::new(),
            &clear,
        )
        .await
    });
    queue.close();
    match ended {
        Ok(end) => assert_eq!(end, StreamEnd::Closed),
        Err(Error::Disagreement) => {}
        Err(error) => assert_short_line(&error),
    }
}
