//! One byte there and back through a chain of relays, one at a time.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use longhaul_proto::OpenDecoder;
use serde::{Deserialize, Serialize};

use super::requests::Requests;

/// Measured pings of a run.
const PINGS: usize = 20_000;
/// Pings before them.
const WARM_UP_PINGS: usize = 1_000;
/// Time limit of a ping.
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// Result of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PingResult {
    /// Number of pings.
    pub pings: usize,
    /// Times of a ping, in microseconds.
    pub p50_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
}

impl PingResult {
    /// Describes the result in one line.
    pub fn words(&self) -> String {
        format!(
            "{:.0} us (p99 {:.0}, p99.9 {:.0})",
            self.p50_us, self.p99_us, self.p999_us
        )
    }
}

/// A server that sends every byte of one session back, in a thread of its own.
pub struct EchoServer {
    /// Address of its listener.
    pub address: SocketAddr,
}

impl EchoServer {
    /// Serves on loopback. If `reads_open`, the connection begins with an OPEN.
    ///
    /// # Errors
    /// There is no free port.
    pub fn start(reads_open: bool) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen")?;
        let address = listener.local_addr()?;
        // The thread ends with the session.
        thread::spawn(move || echo(&listener, reads_open));
        Ok(Self { address })
    }
}

fn echo(listener: &TcpListener, reads_open: bool) -> io::Result<()> {
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    let mut byte = [0];
    let mut decoder = reads_open.then(OpenDecoder::new);
    while let Some(open) = &mut decoder {
        stream.read_exact(&mut byte)?;
        if open.feed(&byte).map_err(io::Error::other)?.is_some() {
            decoder = None;
        }
    }
    loop {
        stream.read_exact(&mut byte)?;
        stream.write_all(&byte)?;
    }
}

/// Opens one session and sends pings.
///
/// # Errors
/// The session is refused or fails.
pub async fn run(requests: &Requests) -> Result<PingResult> {
    let request = requests.sign()?;
    let stream = requests.open(&request).await.context("no session")?;
    let stream = stream.into_std()?;
    // The thread waits in the kernel, so no scheduler of this program is measured.
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PING_TIMEOUT))?;
    let mut times = Vec::with_capacity(PINGS);
    for number in 0..WARM_UP_PINGS + PINGS {
        let time = ping(&stream).context("the session failed")?;
        if number >= WARM_UP_PINGS {
            times.push(time);
        }
    }
    let mut micros = |share| 1e6 * percentile(&mut times, share).as_secs_f64();
    Ok(PingResult {
        pings: PINGS,
        p50_us: micros(0.5),
        p99_us: micros(0.99),
        p999_us: micros(0.999),
    })
}

fn ping(mut stream: &TcpStream) -> io::Result<Duration> {
    let mut byte = [1];
    let began = Instant::now();
    stream.write_all(&byte)?;
    stream.read_exact(&mut byte)?;
    Ok(began.elapsed())
}

/// Returns the time below which this share of `times` lies (nearest rank). Sorts them.
pub fn percentile(times: &mut [Duration], share: f64) -> Duration {
    times.sort_unstable();
    let rank = (share * times.len() as f64).ceil() as usize;
    let time = times.get(rank.saturating_sub(1));
    time.copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let mut times: Vec<Duration> = (1..=1000).rev().map(Duration::from_millis).collect();
        for (share, millis) in [(0.5, 500), (0.99, 990), (0.999, 999), (1.0, 1000)] {
            assert_eq!(percentile(&mut times, share), Duration::from_millis(millis));
        }
        assert_eq!(percentile(&mut [], 0.5), Duration::ZERO);
        assert_eq!(
            percentile(&mut [Duration::from_secs(1)], 0.5),
            Duration::from_secs(1)
        );
    }
}
