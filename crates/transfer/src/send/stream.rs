//! One stream of the sender. It takes work from the queue, which is read on a blocking thread while
//! the previous buffer is being written to the network. Answers go back to the queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use longhaul_session::PlaintextRanges;
use parking_lot::Mutex;

use crate::account::{Resource, ResourcePermit};
use crate::compression::Compression;
use crate::error::Error;
use crate::frame_io::{FLOW_REPORT_INTERVAL, FrameReader, IncomingFrame, KEEP_ALIVE_INTERVAL};
use crate::progress::{NotKeptCounts, StreamCounters};
use crate::receipt::ReceiptRole;
use crate::receive::{StreamEnd, refused};
use crate::send::packing::StreamPlanner;
use crate::send::queue::{TakeResult, WorkQueue};
use crate::send::read::{AnnouncedFiles, FrameBuffer, Reader, StreamPacking};
use crate::send::schedule::{StreamId, StreamWork};
use crate::wire::{Acceptance, Frame, NO_ENTRY};
use crate::workers::blocking;

/// Delay of the first report to the receiver on the walk's totals. The number of streams depends on
/// them, so the first one is early, and then the pauses double.
const FIRST_TOTALS_AFTER: Duration = Duration::from_millis(10);
const MAX_TOTALS_PAUSE: Duration = Duration::from_millis(200);

/// Form in which the data of blocks travels on a stream.
pub(crate) struct DataSetting {
    /// Handle that announces plaintext bytes to the stream. `None` if it does not support them.
    pub stream: Option<Arc<PlaintextRanges>>,
    /// True if this end wants plaintext.
    pub wanted: bool,
    /// True if the other end agrees (LH-COPY-43).
    pub agreed: AtomicBool,
    /// Method of compression that the client wants.
    pub compression: Compression,
    /// True if the other end understands it (LH-COPY-60).
    pub unpacks: AtomicBool,
    /// True if the other end understands PACK, too (LH-COPY-75).
    pub unpacks_frames: AtomicBool,
}

impl DataSetting {
    /// Returns the setting with neither plaintext nor compression.
    pub(crate) fn disabled() -> Self {
        Self {
            stream: None,
            wanted: false,
            agreed: AtomicBool::new(false),
            compression: Compression::None,
            unpacks: AtomicBool::new(false),
            unpacks_frames: AtomicBool::new(false),
        }
    }

    /// Takes the server's agreement.
    pub(crate) fn accept(&self, accepted: &Acceptance) {
        self.agreed.store(accepted.clear, Ordering::Relaxed);
        self.unpacks.store(accepted.compression, Ordering::Relaxed);
        self.unpacks_frames.store(accepted.packs, Ordering::Relaxed);
    }

    fn may_pack(&self) -> bool {
        self.unpacks.load(Ordering::Relaxed)
    }

    fn may_pack_frames(&self) -> bool {
        self.unpacks_frames.load(Ordering::Relaxed)
    }

    fn is_on(&self) -> bool {
        self.wanted && self.stream.is_some() && self.agreed.load(Ordering::Relaxed)
    }
}

/// Sends on one stream until the copy is over. `greeting` is sent first, in one flight with the
/// first data. However this ends, unanswered work of the stream returns to the queue.
pub(crate) async fn send_stream<R, W>(
    queue: &Arc<WorkQueue>,
    stream: StreamId,
    counters: &StreamCounters,
    reader: &mut FrameReader<R>,
    writer: &mut W,
    greeting: Vec<u8>,
    setting: &DataSetting,
) -> Result<StreamEnd, Error>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    queue.add_stream(stream);
    let _back = ReturnOnDrop(queue, stream);
    let (filled, ready) = mpsc::channel(1);
    let planner = Arc::new(Mutex::new(StreamPlanner::new(setting.compression)));
    let produce = produce(queue, stream, filled, setting, &planner);
    let write = write(queue, counters, writer, ready, greeting, setting, &planner);
    let read = read_answers(queue, stream, counters, reader, setting);
    tokio::select! {
        result = produce => result,
        result = write => result,
        result = read => result,
    }
}

/// Returns a stream's unanswered work to the queue on drop, even if the stream is cancelled.
struct ReturnOnDrop<'a>(&'a WorkQueue, StreamId);

impl Drop for ReturnOnDrop<'_> {
    fn drop(&mut self) {
        self.0.remove_stream(self.1);
    }
}

/// Frames that wait to be written, and their permit.
struct FilledBuffer {
    frames: FrameBuffer,
    /// Bytes of file data in the frames.
    data: u64,
    /// Bytes among them that compression and existing files have kept off the network.
    saved: u64,
    _permit: ResourcePermit,
    /// Told once the frames have been written and flushed.
    written: Option<oneshot::Sender<()>>,
}

async fn produce(
    queue: &Arc<WorkQueue>,
    stream: StreamId,
    filled: mpsc::Sender<FilledBuffer>,
    setting: &DataSetting,
    planner: &Arc<Mutex<StreamPlanner>>,
) -> Result<StreamEnd, Error> {
    let mut announced = AnnouncedFiles::default();
    let mut packing = StreamPacking::new(setting.compression, planner.clone());
    loop {
        if let Some(packing) = &packing {
            packing.share_processors(queue.streams());
        }
        let changed = queue.changed();
        let work = match queue.take(stream) {
            TakeResult::Work(work) => work,
            TakeResult::Nothing(wait) => {
                let _ = tokio::time::timeout(wait, changed).await;
                continue;
            }
            TakeResult::Over => {
                let end = stream_end(queue)?;
                if let (StreamEnd::Finished, Some(frame)) = (end, queue.closing_frame()) {
                    write_last(queue, &filled, &frame).await;
                }
                return Ok(end);
            }
        };
        // The wait is unlimited, as the party that waits is the one that requested the files.
        let file_place = match work.last() {
            Some(StreamWork::Open { .. }) => Some(queue.account.acquire(Resource::OpenFiles).await),
            _ => None,
        };
        let place = queue.account.acquire(Resource::Buffers).await;
        let (queue, clear) = (queue.clone(), setting.is_on());
        let (may_pack, packs) = (setting.may_pack(), setting.may_pack_frames());
        let reading = blocking(move || {
            let mut frames = FrameBuffer::new(queue.account.buffers().take());
            let mut reader = Reader {
                source: queue.sources.source(),
                reports: &*queue,
                stream,
                resume: queue.resume,
                clear,
                packing: packing.as_mut().filter(|_| may_pack),
                packs,
                announced: &mut announced,
                out: &mut frames,
                saved: 0,
            };
            let data = reader.fill(work, file_place);
            let saved = reader.saved;
            let filled = FilledBuffer {
                frames,
                data,
                saved,
                _permit: place,
                written: None,
            };
            (filled, announced, packing)
        });
        let out;
        (out, announced, packing) = reading.await?;
        if filled.send(out).await.is_err() {
            // The writer has failed and reports the reason.
            std::future::pending::<()>().await;
        }
    }
}

/// Has the last frame of a stream written, and waits for it.
async fn write_last(queue: &WorkQueue, filled: &mpsc::Sender<FilledBuffer>, frame: &Frame) {
    let mut frames = FrameBuffer::new(queue.account.buffers().take());
    frames.put(frame);
    let (written, done) = oneshot::channel();
    let last = FilledBuffer {
        frames,
        data: 0,
        saved: 0,
        _permit: queue.account.acquire(Resource::Buffers).await,
        written: Some(written),
    };
    // The writer ends the stream if it fails.
    if filled.send(last).await.is_ok() {
        let _ = done.await;
    }
}

/// Returns how the copy ended, once there is nothing more to take.
fn stream_end(queue: &WorkQueue) -> Result<StreamEnd, Error> {
    match queue.conclusion() {
        Some(true) => Ok(StreamEnd::Finished),
        Some(false) => Err(Error::Disagreement),
        None => Ok(StreamEnd::Closed),
    }
}

async fn write<W: AsyncWrite + Unpin>(
    queue: &WorkQueue,
    counters: &StreamCounters,
    writer: &mut W,
    mut ready: mpsc::Receiver<FilledBuffer>,
    greeting: Vec<u8>,
    setting: &DataSetting,
    planner: &Mutex<StreamPlanner>,
) -> Result<StreamEnd, Error> {
    writer.write_all(&greeting).await?;
    // Not flushed if data follows at once, so that both share one flight.
    let mut flushed = false;
    let mut totals_due = Instant::now() + FIRST_TOTALS_AFTER;
    let mut totals_pause = FIRST_TOTALS_AFTER;
    let mut reported_complete = false;
    let mut not_kept = NotKeptCounts::default();
    let mut out = Vec::new();
    loop {
        let next = match ready.try_recv() {
            Ok(next) => Some(next),
            Err(_) => {
                if !flushed {
                    writer.flush().await?;
                    flushed = true;
                }
                let wait = match reported_complete {
                    false => totals_due.saturating_duration_since(Instant::now()),
                    true if counters.reports() => FLOW_REPORT_INTERVAL,
                    true => KEEP_ALIVE_INTERVAL,
                };
                match tokio::time::timeout(wait, ready.recv()).await {
                    Ok(Some(next)) => Some(next),
                    Ok(None) => std::future::pending().await,
                    Err(_) => None,
                }
            }
        };
        out.clear();
        match next {
            Some(filled) => {
                // LH-COPY-54: before the entries that the counts are about.
                if let Some(counts) = queue.not_kept_since(&mut not_kept) {
                    Frame::NotKept(counts).encode(&mut out);
                    writer.write_all(&out).await?;
                    out.clear();
                }
                let (started, mut written) = (Instant::now(), 0);
                for (part, in_clear) in filled.frames.parts() {
                    written += part.len() as u64;
                    let (frames, data) = part.split_at(part.len().saturating_sub(in_clear));
                    writer.write_all(frames).await?;
                    if let Some(stream) = setting.stream.as_ref().filter(|_| !data.is_empty()) {
                        stream.mark_written(data.len());
                        queue
                            .reporter
                            .progress
                            .bytes_plaintext
                            .fetch_add(data.len() as u64, Ordering::Relaxed);
                    }
                    writer.write_all(data).await?;
                }
                planner.lock().buffer_written(written, started.elapsed());
                counters.bytes.fetch_add(filled.data, Ordering::Relaxed);
                counters.saved.fetch_add(filled.saved, Ordering::Relaxed);
                let saved = &queue.reporter.progress.bytes_saved;
                saved.fetch_add(filled.saved, Ordering::Relaxed);
                queue.account.buffers().put_back(filled.frames.into_bytes());
                flushed = false;
                if let Some(written) = filled.written {
                    writer.flush().await?;
                    let _ = written.send(());
                }
            }
            None if reported_complete && !counters.reports() => Frame::KeepAlive.encode(&mut out),
            None => {}
        }
        if !reported_complete && Instant::now() >= totals_due {
            let totals = queue.totals();
            reported_complete = matches!(totals, Frame::Totals { complete: true, .. });
            totals_pause = totals_pause.saturating_mul(2).min(MAX_TOTALS_PAUSE);
            totals_due = Instant::now() + totals_pause;
            totals.encode(&mut out);
        }
        if let Some(report) = counters.due_report() {
            Frame::Flow(report).encode(&mut out);
        }
        if !out.is_empty() {
            writer.write_all(&out).await?;
            flushed = false;
        }
    }
}

async fn read_answers<R: AsyncRead + Unpin>(
    queue: &WorkQueue,
    stream: StreamId,
    counters: &StreamCounters,
    reader: &mut FrameReader<R>,
    setting: &DataSetting,
) -> Result<StreamEnd, Error> {
    loop {
        let frame = match reader.next().await? {
            Some(IncomingFrame::Frame(frame)) => frame,
            Some(IncomingFrame::Block(..)) => {
                return Err(Error::Protocol("it sends data where answers belong".into()));
            }
            None => return stream_end(queue),
        };
        match frame {
            Frame::Ack { id, offset } => queue.acknowledged(id, offset),
            Frame::Result { id, outcome } => queue.answered(id, outcome),
            Frame::Failed { head, failure } if head.id == NO_ENTRY => {
                queue.reporter.failed(&head, failure)
            }
            Frame::Have { id, more, subtrees } => queue.have(id, &subtrees, more)?,
            Frame::Receipt(receipt) => ReceiptRole::receive(&queue.receipt, receipt)?,
            Frame::Done { manifest } => queue.completed(manifest),
            Frame::Flow(report) => counters.receive(report),
            Frame::Retire => queue.retire(stream),
            Frame::Want { id } => queue.wanted(id),
            Frame::Signature {
                id,
                chunk_log2,
                more,
                offset,
                chunks,
            } => queue.signed(id, chunk_log2, offset, &chunks, more),
            Frame::Accept(accepted) => {
                setting.accept(&accepted);
                counters.record_accepted(accepted.max_streams, accepted.member);
                queue.accepted(&accepted)?;
            }
            // LH-COPY-68.
            Frame::NotKept(counts) => queue.reporter.progress.not_kept.raise(counts),
            Frame::KeepAlive => {}
            Frame::Refuse { kind, detail } => return Err(refused(kind, detail)),
            _ => return Err(Error::Protocol("it sends what only a sender sends".into())),
        }
    }
}
