//! Carries one end's streams through a measurement, from START to the last byte.

use std::{
    collections::BTreeMap,
    os::fd::AsFd,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use longhaul_session::Session;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use crate::{
    Error, MeasuredInterval,
    cpu::CpuClock,
    pump::{BLOCK_BYTES, Goal, StreamPump},
    watch::{EndWatch, INTERVAL_CHECK_PERIOD, StreamObservations, WatchedStream},
    window,
    wire::{CpuShare, EndReport, Hello, Length, StreamReport},
};

/// Total initial receive window of an end's receivers, in bytes.
const INITIAL_WINDOW_BYTES: u32 = 32 << 20;

/// Maximum unsent data in a socket, in bytes: at 10 Gbit/s, 6 ms.
const MAX_UNSENT_BYTES: u32 = 8 << 20;

/// A session joined to a measurement.
pub(crate) struct MeasuredStream {
    pub(crate) number: u16,
    pub(crate) sends: bool,
    pub(crate) session: Session,
}

/// Counts of one end.
#[derive(Debug, Clone)]
pub struct EndCounts {
    /// Totals of its streams, by number.
    pub streams: Vec<StreamTotal>,
    /// Processor time.
    pub cpu: CpuShare,
    /// Congestion control of the first stream, by its kernel name.
    pub congestion: String,
}

/// Totals of one stream at this end. Times are since START.
#[derive(Debug, Clone)]
pub struct StreamTotal {
    /// Number of the stream.
    pub stream: u16,
    /// True if this end sends on it.
    pub sends: bool,
    /// Counted payload, in bytes.
    pub bytes: u64,
    /// Payload before counting began, in bytes.
    pub omitted: u64,
    /// Time at which counting began.
    pub from: Duration,
    /// Time at which the last byte was sent or received.
    pub until: Duration,
    /// Segments retransmitted on this end's hop while counting.
    pub retransmits: u64,
    /// Minimum, maximum and mean of the smoothed round-trip times at the ends of intervals.
    pub rtt: Option<[Duration; 3]>,
    /// Maximum congestion window, in bytes.
    pub max_congestion_window: u64,
    /// Maximum window that the peer offered, in bytes.
    pub max_send_window: u64,
}

/// Moves bytes on all `streams` until they are over. `reported` receives each interval of length
/// `every`.
pub(crate) async fn carry(
    streams: Vec<MeasuredStream>,
    hello: &Hello,
    every: Duration,
    reported: &mut (dyn FnMut(&MeasuredInterval) + Send),
) -> Result<EndCounts, Error> {
    let cpu = CpuClock::start();
    let congestion = streams
        .first()
        .map(|stream| congestion(&stream.session))
        .unwrap_or_default();
    let start = Instant::now();
    let (sending, receiving) = goals(hello, start);
    let block: Arc<[u8]> = incompressible_block().into();
    let mut watched = Vec::new();
    let mut over = BTreeMap::new();
    let mut moving = JoinSet::new();
    let share = INITIAL_WINDOW_BYTES / u32::from(hello.streams.max(1));
    for stream in streams {
        let tcp = stream.session.tcp();
        if let Some(tcp) = tcp.filter(|_| hello.right_size) {
            let fitted = match stream.sends {
                true => window::limit_unsent(tcp, MAX_UNSENT_BYTES),
                false => drs::open_receive_window(tcp, share),
            };
            if let Err(error) = fitted {
                tracing::warn!(%error, "cannot size socket buffers; leaving them to the kernel");
            }
        }
        let count = Arc::new(AtomicU64::new(0));
        let socket = tcp.map(|tcp| tcp.as_fd().try_clone_to_owned());
        watched.push(WatchedStream {
            stream: stream.number,
            sends: stream.sends,
            socket: socket.transpose().map_err(|source| Error::Socket {
                doing: "watch a socket",
                source,
            })?,
            count: count.clone(),
            // Parallel streams share the path by TCP's own rules.
            right_size: hello.right_size && hello.streams == 1,
        });
        over.insert(stream.number, (stream.sends, count.clone(), Duration::ZERO));
        let lane = StreamPump::new(stream.session, hello.protection);
        let (number, block) = (stream.number, block.clone());
        let goal = if stream.sends { &sending } else { &receiving }.clone();
        moving.spawn(async move {
            let end = match stream.sends {
                true => lane.send(&block, &goal, &count).await?,
                false => lane.receive(&goal, &count).await?,
            };
            Ok::<_, Error>((number, end))
        });
    }
    let mut watch = EndWatch::new(watched, every, hello.omit());
    loop {
        tokio::select! {
            ended = moving.join_next() => match ended {
                None => break,
                Some(Ok(Ok((number, end)))) => {
                    if let Some((_, _, at)) = over.get_mut(&number) {
                        *at = end.saturating_duration_since(start);
                    }
                }
                // Dropping the set aborts the others and resets their sessions.
                Some(Ok(Err(error))) => return Err(error),
                Some(Err(panic)) => return Err(Error::Protocol(panic.to_string())),
            },
            _ = sleep(INTERVAL_CHECK_PERIOD) => {
                if let Some(interval) = watch.sample(start.elapsed()) {
                    reported(&interval);
                }
            }
        }
    }
    if let Some(interval) = watch.finish(start.elapsed()) {
        reported(&interval);
    }
    let from = watch.counted_from();
    let streams = watch
        .observations()
        .into_iter()
        .filter_map(|(number, seen)| {
            let (sends, count, until) = over.remove(&number)?;
            Some(StreamTotal::from_observations(
                number,
                sends,
                count.load(Ordering::Relaxed),
                (from, until),
                &seen,
            ))
        })
        .collect();
    Ok(EndCounts {
        streams,
        cpu: cpu.read(),
        congestion,
    })
}

impl StreamTotal {
    fn from_observations(
        stream: u16,
        sends: bool,
        bytes: u64,
        (from, until): (Duration, Duration),
        seen: &StreamObservations,
    ) -> Self {
        Self {
            stream,
            sends,
            bytes: bytes.saturating_sub(seen.omitted),
            omitted: seen.omitted,
            from,
            until: until.max(from),
            retransmits: seen.retransmits.saturating_sub(seen.omitted_retransmits),
            rtt: seen
                .rtt
                .map(|(least, most, sum, number)| [least, most, sum / number.max(1)]),
            max_congestion_window: seen.max_congestion_window,
            max_send_window: seen.max_send_window,
        }
    }

    /// Returns the counted time, in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.until.saturating_sub(self.from).as_secs_f64()
    }
}

impl EndCounts {
    /// Returns the report for the other end.
    pub(crate) fn report(&self) -> EndReport {
        let report = |total: &StreamTotal| StreamReport {
            stream: total.stream,
            bytes: total.bytes,
            omitted: total.omitted,
            seconds: total.seconds(),
            retransmits: total.sends.then_some(total.retransmits),
        };
        EndReport {
            streams: self.streams.iter().map(report).collect(),
            cpu: self.cpu,
            congestion: self.congestion.clone(),
        }
    }
}

/// Returns the goals of this end's senders and receivers.
fn goals(hello: &Hello, start: Instant) -> (Goal, Goal) {
    match hello.length {
        Length::Milliseconds(ms) => {
            let end = Goal::At(start + hello.omit() + Duration::from_millis(ms));
            (end.clone(), end)
        }
        Length::Bytes(bytes) => {
            let goal = || Goal::Bytes(Arc::new(AtomicU64::new(bytes)));
            (goal(), goal())
        }
    }
}

/// Returns the data to send, which a path cannot compress.
fn incompressible_block() -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut block = Vec::with_capacity(BLOCK_BYTES);
    while block.len() < BLOCK_BYTES {
        // xorshift64 (Marsaglia, 2003)
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        block.extend_from_slice(&state.to_le_bytes());
    }
    block
}

fn congestion(session: &Session) -> String {
    session
        .tcp()
        .and_then(longhaul_platform::net::congestion)
        .unwrap_or_default()
}
