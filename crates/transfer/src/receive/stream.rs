//! One stream of the receiver: reads frames, hands the work to blocking threads, and writes
//! answers.

#![deny(clippy::indexing_slicing)] // what is read here comes from the network
#![cfg_attr(test, allow(clippy::indexing_slicing))]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use longhaul_session::SESSION_BYTES;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Semaphore, mpsc};

use crate::account::Resource;
use crate::error::Error;
use crate::frame_io::{FLOW_EVERY, FrameReader, Incoming, KEEP_ALIVE};
use crate::hole_hash::is_mostly_hole;
use crate::limits::STREAM_BYTES;
use crate::progress::StreamCounters;
use crate::receive::ledger::Answer;
use crate::receive::receiver::{BlockData, Receiver, Reply};
use crate::store::{Announced, Store};
use crate::tree_hash::{BlockHasher, Subtree};
use crate::wire::{BLOCK_LOG2, Frame, MAX_BODY, MAX_DETAIL, MAX_HAVE_SUBTREES, RefusalKind};
use crate::workers::Workers;

/// Maximum number of answers that wait to be written.
const MAX_WAITING_ANSWERS: usize = 1024;
/// Memory for HAVE frames, in bytes: one that waits, one being encoded, and one being written.
const HAVE_BYTES: usize = 3 * MAX_HAVE_SUBTREES * size_of::<Subtree>();
const ANSWER_BYTES: usize = MAX_WAITING_ANSWERS * (size_of::<Answer>() + 2 * MAX_DETAIL / 3);
const _: () = assert!(ANSWER_BYTES + HAVE_BYTES + 2 * MAX_BODY + SESSION_BYTES <= STREAM_BYTES);
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
    S: Store,
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let (answers, waiting) = mpsc::channel::<Answer>(MAX_WAITING_ANSWERS);
    let (haves, in_place) = mpsc::channel::<Frame>(1);
    let workers = Workers::default();
    let read = read_frames(
        receiver,
        counters,
        reader,
        (answers.clone(), haves),
        &workers,
    );
    let waiting = Waiting {
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
struct Waiting<'a> {
    answers: &'a mpsc::Sender<Answer>,
    waiting: mpsc::Receiver<Answer>,
    /// HAVE frames, which answer no question.
    in_place: mpsc::Receiver<Frame>,
}

async fn write_answers<S: Store, W: AsyncWrite + Unpin>(
    receiver: &Receiver<S>,
    counters: &StreamCounters,
    writer: &mut W,
    waiting: Waiting<'_>,
    greeting: &[u8],
    after_done: AfterDone<'_>,
) -> Result<StreamEnd, Error> {
    let Waiting {
        answers,
        mut waiting,
        mut in_place,
    } = waiting;
    writer.write_all(greeting).await?;
    writer.flush().await?;
    let mut out = Vec::new();
    let (mut concluded, mut said_done) = (false, false);
    let mut said_retire = false;
    let quiet = if counters.reports() {
        FLOW_EVERY
    } else {
        KEEP_ALIVE
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
            () = receiver.concluded(), if !concluded => concluded = true,
            () = counters.retirement(), if !said_retire => {
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
            AfterDone::Leave if done => return Ok(StreamEnd::Finished),
            AfterDone::Stay(streams) if done && streams.load(Ordering::Relaxed) == 1 => {
                writer.shutdown().await?;
                std::future::pending::<()>().await;
            }
            _ => {}
        }
    }
}

fn put((first, second): Answer, out: &mut Vec<u8>) {
    first.encode(out);
    if let Some(second) = second {
        second.encode(out);
    }
}

async fn read_frames<S: Store, R: AsyncRead + Unpin>(
    receiver: &Arc<Receiver<S>>,
    counters: &StreamCounters,
    reader: &mut FrameReader<R>,
    (answers, haves): (mpsc::Sender<Answer>, mpsc::Sender<Frame>),
    workers: &Workers,
) -> Result<StreamEnd, Error> {
    let in_memory = Arc::new(Semaphore::new(MAX_BLOCKS_IN_MEMORY));
    let mut batch: Vec<(Frame, Reply)> = Vec::new();
    // Frames of a batch keep the data read around them alive, so this is the memory that they take.
    let mut batch_from = 0;
    loop {
        let full =
            batch.len() >= MAX_BATCH_ENTRIES || reader.taken() - batch_from >= MAX_BATCH_BYTES;
        if !batch.is_empty() && (full || !reader.has_small_frame()) {
            // The number of batches is limited, so that a fast peer does not outrun the disk.
            let permit = in_memory
                .clone()
                .acquire_owned()
                .await
                .map_err(|_| closed())?;
            let place = receiver.account.wait(Resource::Buffers).await;
            let (receiver, batch, answers) = (
                receiver.clone(),
                std::mem::take(&mut batch),
                answers.clone(),
            );
            workers.spawn(move || {
                let (_permit, _place) = (permit, place);
                for (frame, reply) in batch {
                    receiver.entry(frame, reply, &|| !answers.is_closed());
                }
            });
        }
        let taken_before = reader.taken();
        let Some(incoming) = reader.next().await? else {
            return Ok(match receiver.conclusion() {
                Some(_) => StreamEnd::Finished,
                None => StreamEnd::Closed,
            });
        };
        match incoming {
            Incoming::Block(block, said) => {
                let size = receiver.expects(&block).await?;
                let holes = match &receiver.account.holes {
                    Some(one) if size.is_some() && is_mostly_hole(&block) => {
                        Some(one.acquire().await.map_err(|_| closed())?)
                    }
                    _ => None,
                };
                let permit = in_memory
                    .clone()
                    .acquire_owned()
                    .await
                    .map_err(|_| closed())?;
                let place = receiver.account.wait(Resource::Buffers).await;
                let mut buffer = receiver.account.buffers().take();
                let len = block.data_len();
                if buffer.len() < len {
                    buffer.resize(1 << BLOCK_LOG2.end(), 0);
                }
                // Blocks are hashed as they arrive, while in the cache. Those with holes are hashed
                // later.
                let mut hasher = size
                    .filter(|_| block.is_all_data())
                    .map(|size| BlockHasher::new(block.offset, u64::from(block.len), size));
                let data = buffer.get_mut(..len).unwrap_or_default();
                let arrived = |part: &[u8]| {
                    if let Some(hasher) = &mut hasher {
                        hasher.update(part);
                    }
                };
                reader.read_data(data, arrived).await?;
                let mut hash = hasher.map(BlockHasher::finish);
                if said.is_some() {
                    let clear = &receiver.progress.bytes_clear;
                    clear.fetch_add(len as u64, Ordering::Relaxed);
                }
                if let (Some(size), Some(_)) = (size, &holes) {
                    let (known, back) = receiver
                        .account
                        .hole_hasher()
                        .hash(&block, buffer, size)
                        .await?;
                    (hash, buffer) = (Some(known), back);
                }
                drop(holes);
                let data = BlockData {
                    buffer,
                    len,
                    buffers: receiver.account.buffers().clone(),
                    _in_memory: permit,
                    _place: place,
                };
                let reply = reserve(&answers).await?;
                if size.is_some() {
                    counters.bytes.fetch_add(len as u64, Ordering::Relaxed);
                }
                if receiver.wants(&block, reply)
                    && let Some(size) = size
                {
                    let receiver = receiver.clone();
                    workers.spawn(move || receiver.block(block, data, size, hash, said));
                }
            }
            Incoming::Frame(frame) => match receiver.check(frame)? {
                Frame::File {
                    head,
                    meta,
                    size,
                    block_log2,
                    identity,
                } => {
                    // The walk is ahead of this entry, and its totals may be reported much later.
                    receiver.progress.set_found(0, size, false);
                    let id = head.id;
                    let announced = Announced {
                        head,
                        meta,
                        size,
                        block_log2,
                        identity,
                    };
                    receiver.file(announced).await?;
                    let mut next = identity.map(|_| 0);
                    while let Some((have, behind)) = next.and_then(|from| receiver.have(id, from)) {
                        haves.send(have).await.map_err(|_| closed())?;
                        next = behind;
                    }
                }
                frame @ (Frame::Small { .. }
                | Frame::Directory { .. }
                | Frame::Symlink { .. }
                | Frame::Failed { .. }
                | Frame::Offer(_)
                | Frame::HardLink(_)
                | Frame::FileEnd { .. }) => {
                    if let Frame::Small { data, .. } = &frame {
                        counters
                            .bytes
                            .fetch_add(data.len() as u64, Ordering::Relaxed);
                    }
                    if batch.is_empty() {
                        batch_from = taken_before;
                    }
                    batch.push((frame, reserve(&answers).await?));
                }
                Frame::End { entries, bytes } => {
                    receiver.progress.set_found(entries, bytes, true);
                    if let Some(finish) = receiver.end(entries)? {
                        let receiver = receiver.clone();
                        workers.spawn(move || receiver.finish(finish));
                    }
                }
                Frame::Totals {
                    entries,
                    bytes,
                    complete,
                } => receiver.progress.set_found(entries, bytes, complete),
                Frame::NotKept(counts) => receiver.progress.not_kept.raise(counts),
                Frame::Accept {
                    max_streams,
                    instance,
                    ..
                } => {
                    counters.accepted(max_streams);
                    receiver.accepted(instance)?;
                }
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
                | Frame::ClearBlock(..) => {
                    return Err(Error::Protocol(
                        "it sends what only a receiver sends".into(),
                    ));
                }
            },
        }
    }
}

/// Converts a REFUSE to an error.
pub(crate) fn refused(kind: RefusalKind, detail: String) -> Error {
    match kind {
        RefusalKind::What => Error::Refused(detail),
        RefusalKind::WhoAsks => Error::Unauthorised(detail),
        RefusalKind::When => Error::Limit(detail),
    }
}

async fn reserve(answers: &mpsc::Sender<Answer>) -> Result<Reply, Error> {
    answers.clone().reserve_owned().await.map_err(|_| closed())
}

fn closed() -> Error {
    Error::StreamsLost("the stream was closed on this side".into())
}
