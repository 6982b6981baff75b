//! The two programs of a measured transfer: one sends a file's bytes over one or several TCP
//! connections, the other reads them.
//!
//! Both print their observations as one line of JSON. Times are of the machine's monotonic clock,
//! which both nodes share.

use super::column::Column;
use anyhow::{Context, Result, bail};
use drs::{Action, Budget, Flow, SAMPLE_PERIOD, Side, apply};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Port of the receiver, which is alone in its node of a lab.
pub const PORT: u16 = 7520;
/// Maximum number of bytes per read or write.
const CHUNK: usize = 256 << 10;
/// Ratio of all samples to kept ones, which are about two per second.
const KEEP: u32 = 20;

/// The receiving program.
#[derive(clap::Args, Clone)]
pub struct Receive {
    /// Settings of the sockets.
    #[arg(long, value_enum)]
    column: Column,
    /// Port to listen on.
    #[arg(long, default_value_t = PORT)]
    port: u16,
    /// A receive buffer for each connection instead of the column's own, in bytes as `SO_RCVBUF`
    /// takes them (0: the column's).
    #[arg(long, default_value_t = 0)]
    buffer: u32,
    /// Connections to take.
    #[arg(long, default_value_t = 1)]
    connections: usize,
    /// Buffer memory that all connections share, in bytes (0: no budget).
    #[arg(long, default_value_t = 0)]
    budget: u64,
    /// Reading ends this many seconds after the last connection came (0: at the end of the stream).
    #[arg(long, default_value_t = 0.0)]
    seconds: f64,
    /// Counting begins this many seconds after the last connection came.
    #[arg(long, default_value_t = 0.0)]
    settle: f64,
    /// Keep the series of buffer sizes.
    #[arg(long)]
    series: bool,
}

/// The sending program.
#[derive(clap::Args, Clone)]
pub struct Send {
    /// The receiver.
    #[arg(long)]
    to: SocketAddr,
    /// Settings of the sockets.
    #[arg(long, value_enum)]
    column: Column,
    /// Connections to make.
    #[arg(long, default_value_t = 1)]
    connections: usize,
    /// The file whose bytes are sent, over and over if need be.
    #[arg(long)]
    file: PathBuf,
    /// Bytes for each connection (0: until the receiver closes).
    #[arg(long, default_value_t = 0)]
    bytes: u64,
    /// Congestion control, where it is not the node's.
    #[arg(long)]
    congestion: Option<String>,
    /// Keep the series of buffer sizes.
    #[arg(long)]
    series: bool,
}

/// Observation of one connection at one end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EndObservation {
    /// The peer's address.
    pub peer: String,
    /// Time before connecting or after accepting, in seconds of the monotonic clock.
    pub start: f64,
    /// Time at which the last byte was read or written.
    pub end: f64,
    /// Counted bytes: those after settling.
    pub bytes: u64,
    /// Times at which each power of two of megabytes had been read.
    pub marks: Vec<(u64, f64)>,
    /// Mean over time of the buffer, as the kernel accounts it, in bytes.
    pub buffer_mean: f64,
    /// Maximum of the buffer, in bytes.
    pub buffer_max: u64,
    /// Mean over time of the memory that queued data used, in bytes.
    pub used_mean: f64,
    /// Maximum of that memory, in bytes.
    pub used_max: u64,
    /// Retransmitted segments.
    pub retransmits: u32,
    /// Actions with their causes, each with its time.
    pub actions: Vec<(f64, String)>,
    /// Advice, once for each kind.
    pub advice: Vec<String>,
    /// Time, buffer, used memory, and offered window (or congestion window). About two entries a
    /// second, if requested.
    pub series: Vec<(f64, u64, u64, u64)>,
}

/// Returns the time of the machine's monotonic clock.
fn clock() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::new(
        u64::try_from(now.tv_sec).unwrap_or(0),
        u32::try_from(now.tv_nsec).unwrap_or(0),
    )
}

/// Returns the sampling interval. It grows with the connections, because the same machine also
/// emulates the links.
fn period(connections: usize) -> Duration {
    SAMPLE_PERIOD * u32::try_from(1 + connections / 40).unwrap_or(1)
}

/// Sampler of one connection while its program moves bytes.
struct Watch {
    flow: Flow,
    column: Column,
    side: Side,
    last: Duration,
    looks: u32,
    sums: (f64, f64),
    period: Duration,
    keep_series: bool,
    end: EndObservation,
}

impl Watch {
    fn new(flow: Flow, column: Column, side: Side, keep_series: bool, connections: usize) -> Self {
        let now = clock();
        Self {
            period: period(connections),
            flow,
            column,
            side,
            last: Duration::ZERO,
            looks: 0,
            sums: (0.0, 0.0),
            keep_series,
            end: EndObservation {
                start: now.as_secs_f64(),
                ..EndObservation::default()
            },
        }
    }

    fn look(&mut self, socket: &TcpStream, now: Duration) {
        if now.saturating_sub(self.last) < self.period {
            return;
        }
        self.last = now;
        // The kernel lifts a clamp when it learns the overhead of a segment.
        if let (Side::Receiving, Some(window)) = (self.side, self.column.held_window()) {
            apply(socket, Action::WindowClamp(window));
        }
        // A connection that the peer has just closed yields no sample.
        let Ok(step) = self.flow.step(socket, now) else {
            return;
        };
        let seconds = now.as_secs_f64();
        let buffers = step.sample.buffers;
        let (buffer, used, window) = match self.side {
            Side::Receiving => (
                buffers.receive,
                buffers.receive_used,
                u64::from(step.sample.info.receive_window.unwrap_or(0)),
            ),
            Side::Sending => (
                buffers.send,
                buffers.send_used,
                u64::from(step.sample.info.congestion_window)
                    * u64::from(step.sample.info.send_mss),
            ),
        };
        self.end.retransmits = step.sample.info.retransmits;
        self.looks += 1;
        self.sums.0 += f64::from(buffer);
        self.sums.1 += f64::from(used);
        self.end.buffer_max = self.end.buffer_max.max(buffer.into());
        self.end.used_max = self.end.used_max.max(used.into());
        for applied in step.actions {
            self.end.actions.push((seconds, applied.to_string()));
        }
        if let Some(advice) = step.advice.map(|advice| advice.to_string())
            && self.end.advice.len() < 4
        {
            let kind = |text: &str| text.split(':').next().unwrap_or_default().to_owned();
            if !self.end.advice.iter().any(|old| kind(old) == kind(&advice)) {
                self.end.advice.push(advice);
            }
        }
        if self.keep_series && self.looks.is_multiple_of(KEEP) {
            self.end
                .series
                .push((seconds, buffer.into(), used.into(), window));
        }
    }

    fn finish(mut self, bytes: u64) -> EndObservation {
        let looks = f64::from(self.looks.max(1));
        self.end.end = clock().as_secs_f64();
        self.end.bytes = bytes;
        self.end.buffer_mean = self.sums.0 / looks;
        self.end.used_mean = self.sums.1 / looks;
        self.end
    }
}

/// Receives, and prints one JSON list of [`End`]s.
pub fn receive(what: &Receive) -> Result<()> {
    let listener = TcpListener::bind(("0.0.0.0", what.port)).context("cannot listen")?;
    match what.buffer {
        0 => what.column.prepare_listener(&listener),
        bytes => {
            apply(&listener, Action::ReceiveBuffer(bytes));
        }
    }
    println!("listening");
    let budget = (what.budget > 0).then(|| Budget::new(what.budget));
    let mut sockets = Vec::new();
    for _ in 0..what.connections {
        let socket = listener.accept().context("no connection came")?.0;
        what.column.prepare_connection(&socket);
        sockets.push(socket);
    }
    let start = clock();
    let threads: Vec<_> = sockets
        .into_iter()
        .map(|socket| {
            let (what, budget) = (what.clone(), budget.clone());
            std::thread::spawn(move || receive_one(socket, &what, budget.as_ref(), start))
        })
        .collect();
    finish(threads)
}

fn receive_one(
    mut socket: TcpStream,
    what: &Receive,
    budget: Option<&Arc<Budget>>,
    all_came: Duration,
) -> Result<EndObservation> {
    socket.set_read_timeout(Some(period(what.connections)))?;
    let mut flow = Flow::new(what.column.mode(), Side::Receiving);
    if let Some(budget) = budget {
        flow = flow.with_budget(budget);
    }
    let mut watch = Watch::new(
        flow,
        what.column,
        Side::Receiving,
        what.series,
        what.connections,
    );
    watch.end.peer = socket
        .peer_addr()
        .map_or_else(|_| String::new(), |peer| peer.ip().to_string());
    let settled = all_came + Duration::from_secs_f64(what.settle);
    let ends = (what.seconds > 0.0).then(|| all_came + Duration::from_secs_f64(what.seconds));
    let mut room = vec![0; CHUNK];
    let (mut read, mut counted, mut mark) = (0u64, 0u64, 1u64 << 20);
    loop {
        let count = match socket.read(&mut room) {
            Ok(0) => break,
            Ok(count) => count as u64,
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                0
            }
            Err(error) => return Err(error).context("the connection broke"),
        };
        let now = clock();
        read += count;
        while read >= mark {
            watch.end.marks.push((mark, now.as_secs_f64()));
            mark *= 2;
        }
        if now >= settled {
            counted += count;
        }
        watch.look(&socket, now);
        if ends.is_some_and(|end| now >= end) {
            break;
        }
    }
    Ok(watch.finish(counted))
}

/// Sends, and prints one JSON list of [`End`]s.
pub fn send(what: &Send) -> Result<()> {
    let threads: Vec<_> = (0..what.connections)
        .map(|_| {
            let what = what.clone();
            std::thread::spawn(move || send_one(&what))
        })
        .collect();
    finish(threads)
}

fn send_one(what: &Send) -> Result<EndObservation> {
    let mut watch = Watch::new(
        Flow::new(what.column.mode(), Side::Sending),
        what.column,
        Side::Sending,
        what.series,
        what.connections,
    );
    let mut socket = connect(what)?;
    socket.set_write_timeout(Some(period(what.connections)))?;
    let mut file =
        File::open(&what.file).with_context(|| format!("cannot read {}", what.file.display()))?;
    let mut room = vec![0; CHUNK];
    let mut sent = 0u64;
    let (mut filled, mut at) = (0, 0);
    while what.bytes == 0 || sent < what.bytes {
        if at == filled {
            (filled, at) = (file.read(&mut room)?, 0);
            if filled == 0 {
                file.rewind()?;
                continue;
            }
        }
        let most = if what.bytes == 0 {
            filled - at
        } else {
            (filled - at).min(usize::try_from(what.bytes - sent).unwrap_or(usize::MAX))
        };
        match socket.write(room.get(at..at + most).unwrap_or_default()) {
            Ok(count) => {
                at += count;
                sent += count as u64;
            }
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            // The receiver has closed, as it has enough.
            Err(_) if what.bytes == 0 => return Ok(watch.finish(sent)),
            Err(error) => return Err(error).context("the connection broke"),
        }
        watch.look(&socket, clock());
    }
    socket.shutdown(std::net::Shutdown::Write)?;
    socket.set_read_timeout(Some(SAMPLE_PERIOD))?;
    // The receiver closes when it has read everything.
    loop {
        match socket.read(&mut room) {
            Ok(0) => return Ok(watch.finish(sent)),
            Ok(_) => bail!("the receiver sent something"),
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                watch.look(&socket, clock());
            }
            Err(error) => return Err(error).context("the connection broke"),
        }
    }
}

fn connect(what: &Send) -> Result<TcpStream> {
    use rustix::net::{AddressFamily, SocketType, sockopt};
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)
        .context("cannot make a socket")?;
    what.column.prepare_sender(&socket);
    if let Some(name) = &what.congestion {
        sockopt::set_tcp_congestion(&socket, name).with_context(|| format!("cannot use {name}"))?;
    }
    rustix::net::connect(&socket, &what.to)
        .with_context(|| format!("cannot connect to {}", what.to))?;
    Ok(TcpStream::from(socket))
}

fn finish(threads: Vec<std::thread::JoinHandle<Result<EndObservation>>>) -> Result<()> {
    let ends: Result<Vec<EndObservation>> = threads
        .into_iter()
        .map(|thread| {
            thread
                .join()
                .unwrap_or_else(|_| bail!("a connection's thread ended badly"))
        })
        .collect();
    println!("{}", serde_json::to_string(&ends?)?);
    Ok(())
}
