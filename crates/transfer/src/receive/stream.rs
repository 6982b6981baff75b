//! One stream of the receiver: reads frames, hands the work to blocking threads, and writes
//! answers.

#![deny(clippy::indexing_slicing)] // what is read here comes from the network
#![cfg_attr(test, allow(clippy::indexing_slicing))]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use longhaul_session::SESSION_BYTES;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::account::{Resource, ResourcePermit};
use crate::delta::SignedChunk;
use crate::error::Error;
use crate::frame_io::{
    BlockForm, FLOW_REPORT_INTERVAL, FrameReader, IncomingFrame, KEEP_ALIVE_INTERVAL,
};
use crate::hole_hash::is_mostly_hole;
use crate::late_size::is_late;
use crate::limits::STREAM_BYTES;
use crate::packed::UNPACKER_BYTES;
use crate::progress::StreamCounters;
use crate::receipt::ReceiptRole;
use crate::receive::ledger::AnswerFrames;
use crate::receive::receiver::{AnswerLane, AnswerPermit, BlockData, Receiver};
use crate::store::{AnnouncedFile, FileStore};
use crate::tree_hash::{BlockHasher, Subtree};
use crate::wire::{
    BLOCK_LOG2, Block, Frame, MAX_BODY_BYTES, MAX_DETAIL_BYTES, MAX_HAVE_SUBTREES,
    MAX_SIGNED_CHUNKS, RefusalKind,
};
use crate::workers::Workers;

/// Maximum number of answers that wait to be written.
const MAX_WAITING_ANSWERS: usize = 1024;
/// Memory for HAVE and SIGNATURE frames, in bytes: one that waits, one being encoded, and one being
/// written.
const HAVE_BYTES: usize = 3 * if MAX_HAVE_SUBTREES * size_of::<Subtree>() > SIGNATURE_BYTES {
    MAX_HAVE_SUBTREES * size_of::<Subtree>()
} else {
    SIGNATURE_BYTES
};
const SIGNATURE_BYTES: usize = MAX_SIGNED_CHUNKS * size_of::<SignedChunk>();
const ANSWER_BYTES: usize =
    MAX_WAITING_ANSWERS * (size_of::<AnswerFrames>() + 2 * MAX_DETAIL_BYTES / 3);
// One body is being read, the other one is of the frames of a pack.
const _: () = assert!(
    ANSWER_BYTES + HAVE_BYTES + 2 * MAX_BODY_BYTES + SESSION_BYTES + UNPACKER_BYTES <= STREAM_BYTES
);
/// Maximum number of blocks of one stream in memory: one being read, the others being written.
const MAX_BLOCKS_IN_MEMORY: usize = 4;
/// Maximum number of entries in one frame that go to a blocking thread together, and of their
/// bytes.
const MAX_BATCH_ENTRIES: usize = 256;
const MAX_BATCH_BYTES: u64 = 512 * 1024;

/// End of a stream without an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamEnd {
    /// The copy is over.
    Finished,
    /// The peer closed it in an orderly manner before the copy was over.
    Closed,
}

/// Behaviour of a receiver after it has sent DONE (LH-COPY-31).
#[derive(Clone, Copy)]
pub(crate) enum AfterDone<'a> {
    /// A client leaves.
    Leave,
    /// A server answers until the client closes, as answers lost with other streams may be
    /// requested again here. If this is the only stream there ever was (the counter tells), none
    /// can be lost. The server then closes its half in the same flight as DONE, so that the client
    /// need not wait for it.
    Stay(&'a AtomicU32),
}

/// Receives on one stream until the copy is over. `greeting` is sent first.
pub(crate) async fn receive_stream<S, R, W>(
    receiver: &Arc<Receiver<S>>,
    counters: &StreamCounters,
    reader: &mut FrameReader<R>,
    writer: &mut W,
    greeting: &[u8],
    after_done: AfterDone<'_>,
) -> Result<StreamEnd, Error>
where
    S: FileStore,
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let (answers, waiting) = mpsc::channel::<AnswerFrames>(MAX_WAITING_ANSWERS);
    let (haves, in_place) = mpsc::channel::<Frame>(1);
    let workers = Workers::default();
    let input = StreamInput {
        receiver,
        counters,
        answers: answers.clone(),
        haves,
        workers: &workers,
        in_memory: Arc::new(Semaphore::new(MAX_BLOCKS_IN_MEMORY)),
        batch: Vec::new(),
        batch_from: 0,
    };
    let read = input.read(reader);
    let waiting = QueuedFrames {
        answers: &answers,
        waiting,
        in_place,
    };
    let write = write_answers(receiver, counters, writer, waiting, greeting, after_done);
    tokio::select! {
        result = read => result,
        result = write => result,
        error = workers.failed() => Err(error),
    }
}

/// Frames that wait to be sent.
struct QueuedFrames<'a> {
    answers: &'a mpsc::Sender<AnswerFrames>,
    waiting: mpsc::Receiver<AnswerFrames>,
    /// HAVE frames, which answer no question.
    in_place: mpsc::Receiver<Frame>,
}

async fn write_answers<S: FileStore, W: AsyncWrite + Unpin>(
    receiver: &Receiver<S>,
    counters: &StreamCounters,
    writer: &mut W,
    waiting: QueuedFrames<'_>,
    greeting: &[u8],
    after_done: AfterDone<'_>,
) -> Result<StreamEnd, Error> {
    let QueuedFrames {
        answers,
        mut waiting,
        mut in_place,
    } = waiting;
    writer.write_all(greeting).await?;
    writer.flush().await?;
    let mut out = Vec::new();
    let (mut concluded, mut said_done) = (false, false);
    let mut said_retire = false;
    let leaves = matches!(after_done, AfterDone::Leave);
    let quiet = if counters.reports() {
        FLOW_REPORT_INTERVAL
    } else {
        KEEP_ALIVE_INTERVAL
    };
    loop {
        out.clear();
        tokio::select! {
            biased;
            // HAVE goes before the answers, which may never run out, as each HAVE saves its sender
            // blocks.
            Some(have) = in_place.recv() => have.encode(&mut out),
            answer = waiting.recv() => match answer {
                Some(answer) => {
                    put(answer, &mut out);
                    while out.len() < 32 * 1024 && let Ok(answer) = waiting.try_recv() {
                        put(answer, &mut out);
                    }
                }
                None => std::future::pending().await,
            },
            () = receiver.wait_concluded(), if !concluded => concluded = true,
            // LH-COPY-59: the client of a pull leaves once it has the signature.
            () = receiver.wait_finished(), if said_done && leaves => {
                return Ok(StreamEnd::Finished);
            }
            () = counters.wait_retired(), if !said_retire => {
                said_retire = true;
                Frame::Retire.encode(&mut out);
            }
            () = tokio::time::sleep(quiet) => Frame::KeepAlive.encode(&mut out),
        }
        // LH-COPY-21: DONE comes after every answer that is owed on this stream.
        let done = concluded && !said_done && answers.capacity() == answers.max_capacity();
        let report = if done {
            counters.report()
        } else {
            counters.due_report()
        };
        if let Some(report) = report {
            Frame::Flow(report).encode(&mut out);
        }
        if done {
            said_done = true;
            for frame in receiver.closing_frames() {
                frame.encode(&mut out);
            }
        }
        writer.write_all(&out).await?;
        writer.flush().await?;
        match after_done {
            AfterDone::Leave if done && receiver.is_finished() => {
                return Ok(StreamEnd::Finished);
            }
            AfterDone::Stay(streams) if done && streams.load(Ordering::Relaxed) == 1 => {
                writer.shutdown().await?;
                std::future::pending::<()>().await;
            }
            _ => {}
        }
    }
}

fn put((first, second): AnswerFrames, out: &mut Vec<u8>) {
    first.encode(out);
    if let Some(second) = second {
        second.encode(out);
    }
}

/// Input of one stream, on its way to the receiver.
struct StreamInput<'a, S: FileStore> {
    receiver: &'a Arc<Receiver<S>>,
    counters: &'a StreamCounters,
    answers: mpsc::Sender<AnswerFrames>,
    /// HAVE and SIGNATURE frames, which answer no question.
    haves: mpsc::Sender<Frame>,
    workers: &'a Workers,
    /// Permits of the blocks and batches in memory.
    in_memory: Arc<Semaphore>,
    batch: Vec<(Frame, AnswerPermit)>,
    /// Bytes of frames read before the batch. Its frames keep the data read around them alive, so
    /// the difference is the memory that they take.
    batch_from: u64,
}

impl<S: FileStore> StreamInput<'_, S> {
    async fn read<R: AsyncRead + Unpin>(
        mut self,
        reader: &mut FrameReader<R>,
    ) -> Result<StreamEnd, Error> {
        loop {
            let is_full = self.batch.len() >= MAX_BATCH_ENTRIES
                || reader.frame_bytes() - self.batch_from >= MAX_BATCH_BYTES;
            if !self.batch.is_empty() && (is_full || !reader.has_small_frame()) {
                self.hand_over_batch().await?;
            }
            if self.batch.is_empty() {
                self.batch_from = reader.frame_bytes() - reader.open_pack_bytes();
            }
            match reader.next().await? {
                Some(IncomingFrame::Block(block, form)) => {
                    self.take_block(reader, block, form).await?;
                }
                Some(IncomingFrame::Frame(frame)) => {
                    if let Frame::Small { data, .. } = &frame {
                        self.count_saved(reader.take_saved(data.len()));
                    }
                    self.take_frame(frame).await?;
                }
                None if self.receiver.conclusion().is_some() => return Ok(StreamEnd::Finished),
                None => return Ok(StreamEnd::Closed),
            }
        }
    }

    /// Counts bytes of data that compression and existing files have kept off the network.
    fn count_saved(&self, bytes: u64) {
        let all = &self.receiver.reporter.progress.bytes_saved;
        all.fetch_add(bytes, Ordering::Relaxed);
        self.counters.saved.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Waits for a permit among the blocks and batches in memory. Their number is limited, so that
    /// a fast peer does not outrun the disk.
    async fn memory_permits(&self) -> Result<(OwnedSemaphorePermit, ResourcePermit), Error> {
        let in_memory = self.in_memory.clone().acquire_owned().await;
        let in_memory = in_memory.map_err(|_| closed())?;
        let buffer = self.receiver.account.acquire(Resource::Buffers).await;
        Ok((in_memory, buffer))
    }

    /// Hands the batch to a blocking thread.
    async fn hand_over_batch(&mut self) -> Result<(), Error> {
        let permits = self.memory_permits().await?;
        let batch = std::mem::take(&mut self.batch);
        let (receiver, answers) = (self.receiver.clone(), self.answers.clone());
        let haves = self.haves.clone();
        self.workers.spawn(move || {
            let _permits = permits;
            let lane = AnswerLane {
                is_waiting: &|| !answers.is_closed(),
                send_before: &|frame| haves.blocking_send(frame).is_ok(),
            };
            for (frame, reply) in batch {
                receiver.entry(frame, reply, &lane);
            }
        });
        Ok(())
    }

    /// Reads and hashes the data of a block, and hands it to a blocking thread if it is needed.
    async fn take_block<R: AsyncRead + Unpin>(
        &self,
        reader: &mut FrameReader<R>,
        block: Block,
        form: BlockForm,
    ) -> Result<(), Error> {
        let receiver = self.receiver;
        let size = receiver.expected_size(&block).await?;
        let holes = match &receiver.account.holes {
            Some(one) if size.is_some() && is_mostly_hole(&block) => {
                Some(one.acquire().await.map_err(|_| closed())?)
            }
            _ => None,
        };
        let (in_memory, permit) = self.memory_permits().await?;
        let mut buffer = receiver.account.buffers().take();
        let len = block.data_len();
        if buffer.len() < len {
            buffer.resize(1 << BLOCK_LOG2.end(), 0);
        }
        // Blocks are hashed as they arrive, while in the cache. Those with holes are hashed later.
        let mut hasher = size
            .filter(|_| block.is_all_data() && !matches!(form, BlockForm::Patch(_)))
            .map(|size| BlockHasher::new(block.offset, u64::from(block.len), size));
        let data = buffer.get_mut(..len).unwrap_or_default();
        let arrived = |part: &[u8]| {
            if let Some(hasher) = &mut hasher {
                hasher.update(part);
            }
        };
        let on_wire = reader.block_wire_bytes();
        let missing = reader.read_data(&block, form, data, arrived).await?;
        let mut hash = hasher.map(BlockHasher::finish);
        self.count_saved(len.saturating_sub(on_wire) as u64);
        let said = match form {
            BlockForm::Plaintext(said) => {
                let plaintext = &receiver.reporter.progress.bytes_plaintext;
                plaintext.fetch_add(len as u64, Ordering::Relaxed);
                Some(said)
            }
            BlockForm::Patch(said) => Some(said),
            BlockForm::Packed | BlockForm::Protected => None,
        };
        if let (Some(size), Some(_)) = (size, &holes) {
            let hashed = receiver.account.hole_hasher().hash(&block, buffer, size);
            let (known, back) = hashed.await?;
            (hash, buffer) = (Some(known), back);
        }
        drop(holes);
        let mut data = BlockData {
            buffer,
            len,
            buffers: receiver.account.buffers().clone(),
            _in_memory: in_memory,
            _permit: permit,
        };
        let reply = self.reserve_answer().await?;
        if size.is_some() {
            self.counters.bytes.fetch_add(len as u64, Ordering::Relaxed);
        }
        if receiver.needs_data(&block, reply)
            && let Some(size) = size
        {
            let receiver = receiver.clone();
            self.workers.spawn(move || {
                receiver.fill_missing(block.id, &missing, &mut data);
                receiver.block(block, data, size, hash, said);
            });
        }
        Ok(())
    }

    async fn take_frame(&mut self, frame: Frame) -> Result<(), Error> {
        let (receiver, counters) = (self.receiver, self.counters);
        match receiver.check(frame)? {
            Frame::File {
                head,
                meta,
                size,
                block_log2,
                identity,
            } => {
                let announced = AnnouncedFile {
                    head,
                    meta,
                    size,
                    block_log2,
                    identity,
                };
                return self.take_file(announced).await;
            }
            frame @ (Frame::Small { .. }
            | Frame::Directory { .. }
            | Frame::Symlink { .. }
            | Frame::Special { .. }
            | Frame::Failed { .. }
            | Frame::Offer(_)
            | Frame::HardLink(_)
            | Frame::FileEnd { .. }
            | Frame::LateEnd { .. }) => {
                if let Frame::Small { data, .. } = &frame {
                    let carried = &counters.bytes;
                    carried.fetch_add(data.len() as u64, Ordering::Relaxed);
                }
                let reply = self.reserve_answer().await?;
                self.batch.push((frame, reply));
            }
            Frame::End { entries, bytes } => {
                receiver.reporter.progress.set_found(entries, bytes, true);
                if let Some(finish) = receiver.handle_end(entries)? {
                    let receiver = receiver.clone();
                    self.workers.spawn(move || receiver.finish(finish));
                }
            }
            Frame::Totals {
                entries,
                bytes,
                complete,
            } => receiver
                .reporter
                .progress
                .set_found(entries, bytes, complete),
            Frame::NotKept(counts) => receiver.reporter.progress.not_kept.raise(counts),
            Frame::Accept(accepted) => {
                counters.record_accepted(accepted.max_streams, accepted.member);
                ReceiptRole::check(&receiver.receipt, accepted.receipt)?;
                receiver.accepted(&accepted)?;
            }
            Frame::Receipt(receipt) => receiver.receive_receipt(receipt)?,
            Frame::KeepAlive => {}
            Frame::Flow(report) => counters.receive(report),
            Frame::Refuse { kind, detail } => return Err(refused(kind, detail)),
            Frame::Hello(_)
            | Frame::Ack { .. }
            | Frame::Result { .. }
            | Frame::Have { .. }
            | Frame::Want { .. }
            | Frame::Done { .. }
            | Frame::Retire
            | Frame::Block(_)
            | Frame::ClearBlock(..)
            | Frame::PackedBlock(_)
            | Frame::PatchBlock(..)
            | Frame::Pack { .. }
            | Frame::Signature { .. } => {
                return Err(Error::Protocol(
                    "it sends what only a receiver sends".into(),
                ));
            }
        }
        Ok(())
    }

    /// Handles FILE, and answers with HAVE if parts of the file exist.
    async fn take_file(&self, announced: AnnouncedFile) -> Result<(), Error> {
        let (id, identity) = (announced.head.id, announced.identity);
        // The walk is ahead of this entry, and its totals may be reported much later.
        if !is_late(announced.size) {
            let progress = &self.receiver.reporter.progress;
            progress.set_found(0, announced.size, false);
        }
        self.receiver.handle_file(announced).await?;
        let mut next = identity.map(|_| 0);
        while let Some((have, behind)) = next.and_then(|from| self.receiver.have(id, from)) {
            self.haves.send(have).await.map_err(|_| closed())?;
            next = behind;
        }
        Ok(())
    }

    /// Waits for a permit to answer.
    async fn reserve_answer(&self) -> Result<AnswerPermit, Error> {
        let reserved = self.answers.clone().reserve_owned().await;
        reserved.map_err(|_| closed())
    }
}

/// Converts a REFUSE to an error.
pub(crate) fn refused(kind: RefusalKind, detail: String) -> Error {
    match kind {
        RefusalKind::Request => Error::Refused(detail),
        RefusalKind::Key => Error::Unauthorised(detail),
        RefusalKind::Limit => Error::Limit(detail),
        RefusalKind::Token => Error::Token(detail),
    }
}

fn closed() -> Error {
    Error::StreamsLost("the stream was closed on this side".into())
}
