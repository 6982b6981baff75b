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
    Error, Interval,
    cpu::CpuClock,
    pump::{BLOCK, Goal, Lane},
    watch::{INTERVAL_CHECK_PERIOD, Seen, Watch, Watched},
    window,
    wire::{Cpu, Hello, Length, Report, StreamReport},
};

/// Total initial receive window of an end's receivers, in bytes.
const FIRST_WINDOW: u32 = 32 << 20;

/// Maximum unsent data in a socket, in bytes: at 10 Gbit/s, 6 ms.
const MOST_UNSENT: u32 = 8 << 20;

/// A session joined to a measurement.
pub(crate) struct Stream {
    pub(crate) number: u16,
    pub(crate) sends: bool,
    pub(crate) session: Session,
}

/// Counts of one end.
#[derive(Debug, Clone)]
pub struct Carried {
    /// Totals of its streams, by number.
    pub streams: Vec<StreamTotal>,
    /// Processor time.
    pub cpu: Cpu,
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
    streams: Vec<Stream>,
    hello: &Hello,
    every: Duration,
    reported: &mut (dyn FnMut(&Interval) + Send),
) -> Result<Carried, Error> {
    let cpu = CpuClock::start();
    let congestion = streams
        .first()
        .map(|stream| congestion(&stream.session))
        .unwrap_or_default();
    let start = Instant::now();
    let (sending, receiving) = goals(hello, start);
    let block: Arc<[u8]> = noise().into();
    let mut watched = Vec::new();
    let mut over = BTreeMap::new();
    let mut moving = JoinSet::new();
    let share = FIRST_WINDOW / u32::from(hello.streams.max(1));
    for stream in streams {
        if hello.right_size {
            let fitted = match stream.sends {
                true => window::limit_unsent(&stream.session, MOST_UNSENT),
                false => drs::open_receive_window(&stream.session, share),
            };
            if let Err(error) = fitted {
                tracing::warn!(%error, "a socket's buffers are left to the kernel alone");
            }
        }
        let count = Arc::new(AtomicU64::new(0));
        let socket = stream.session.as_fd().try_clone_to_owned();
        watched.push(Watched {
            stream: stream.number,
            sends: stream.sends,
            socket: socket.map_err(|source| Error::Socket {
                doing: "watch a socket",
                source,
            })?,
            count: count.clone(),
            // Parallel streams share the path by TCP's own rules.
            right_size: hello.right_size && hello.streams == 1,
        });
        over.insert(stream.number, (stream.sends, count.clone(), Duration::ZERO));
        let lane = Lane::new(stream.session, hello.protection);
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
    let mut watch = Watch::new(watched, every, hello.omit());
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
                if let Some(interval) = watch.look(start.elapsed()) {
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
        .seen()
        .into_iter()
        .filter_map(|(number, seen)| {
            let (sends, count, until) = over.remove(&number)?;
            Some(StreamTotal::of(
                number,
                sends,
                count.load(Ordering::Relaxed),
                (from, until),
                &seen,
            ))
        })
        .collect();
    Ok(Carried {
        streams,
        cpu: cpu.read(),
        congestion,
    })
}

impl StreamTotal {
    fn of(
        stream: u16,
        sends: bool,
        bytes: u64,
        (from, until): (Duration, Duration),
        seen: &Seen,
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

impl Carried {
    /// Returns the report for the other end.
    pub(crate) fn report(&self) -> Report {
        let report = |total: &StreamTotal| StreamReport {
            stream: total.stream,
            bytes: total.bytes,
            omitted: total.omitted,
            seconds: total.seconds(),
            retransmits: total.sends.then_some(total.retransmits),
        };
        Report {
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
fn noise() -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut block = Vec::with_capacity(BLOCK);
    while block.len() < BLOCK {
        // xorshift64 (Marsaglia, 2003)
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        block.extend_from_slice(&state.to_le_bytes());
    }
    block
}

fn congestion(session: &Session) -> String {
    rustix::net::sockopt::tcp_congestion(session).unwrap_or_default()
}
