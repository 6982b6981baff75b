//! Sessions that come and go at a bounded rate, and what the depot keeps of them.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use parking_lot::Mutex;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};

use super::ends::{exchange_block, write_all};
use super::relay::Relay;
use super::requests::{REFUSAL, Requests};
use super::slope::Slope;

/// Connections in a second, on average; they come at random.
const CONNECTIONS_PER_S: f64 = 200.0;
/// Most set-ups at a time.
const MAX_SETUPS: usize = 64;
/// Mean and greatest duration of a session, in seconds.
const MEAN_SESSION_S: f64 = 5.0;
const MAX_SESSION_S: f64 = 60.0;
/// Interval of samples.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(10);
/// Time after which the depot forgets the first sessions, and its memory must be flat.
const WARM_UP_S: f64 = 150.0;
/// Time limit of a set-up or an exchange.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for the depot to close what clients have left.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(30);
const CLOSE_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Descriptors of the 32 pipes that a depot keeps for its next sessions.
pub const SPARE_PIPE_DESCRIPTORS: u64 = 64;
/// A destination that no policy here allows (RFC 5737).
const FORBIDDEN: ([u8; 4], u16) = ([192, 0, 2, 1], 7511);

/// Result of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ChurnResult {
    /// Sessions that were established, carried a block and ended.
    pub sessions: u64,
    /// Connections that were left in the middle of their request.
    pub abandoned: u64,
    /// Requests that the policy refuses, and that were refused.
    pub refused: u64,
    /// Sessions that failed, or requests that were not refused, with the first reason.
    pub failed: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Processor time of the depot for each connection, in milliseconds.
    pub cpu_ms: f64,
    /// Samples in order of time.
    pub samples: Vec<DepotSample>,
    /// Descriptors at the end, when all clients had left, less those before the first.
    pub left_descriptors: i64,
}

/// Resources of the depot at one moment.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct DepotSample {
    /// Time since the first connection, in seconds.
    pub at_s: f64,
    /// Memory, in KiB.
    pub kib: u64,
    /// Open descriptors.
    pub descriptors: u64,
}

impl ChurnResult {
    /// Returns the trend of the memory in KiB, once the depot has begun to forget sessions.
    pub fn memory_slope(&self) -> Option<Slope> {
        self.slope(|sample| sample.kib as f64)
    }

    /// Returns the trend of the descriptors.
    pub fn descriptor_slope(&self) -> Option<Slope> {
        self.slope(|sample| sample.descriptors as f64)
    }

    /// Returns the memory at the last sample, in MiB.
    pub fn last_mib(&self) -> Option<f64> {
        Some(self.samples.last()?.kib as f64 / 1024.0)
    }

    fn slope(&self, value: impl Fn(&DepotSample) -> f64) -> Option<Slope> {
        let warm = self
            .samples
            .iter()
            .filter(|sample| sample.at_s >= WARM_UP_S);
        let points: Vec<(f64, f64)> = warm.map(|sample| (sample.at_s, value(sample))).collect();
        Slope::fit(&points)
    }

    /// Describes the result in one line.
    pub fn words(&self) -> String {
        let trend = |slope: Option<Slope>| slope.map_or("-".to_owned(), |slope| slope.words(0));
        format!(
            "{} sessions, {} failed, {:.3} ms of CPU each; KiB an hour {}, descriptors an hour \
             {}, {} descriptors left{}",
            self.sessions,
            self.failed,
            self.cpu_ms,
            trend(self.memory_slope()),
            trend(self.descriptor_slope()),
            self.left_descriptors,
            self.reason
                .as_ref()
                .map_or(String::new(), |reason| format!(" ({reason})"))
        )
    }
}

/// Behaviour of one client.
#[derive(Clone, Copy)]
enum Client {
    /// Opens a session, exchanges a block, waits, and ends it with a FIN or a reset.
    Session { lasts: Duration, resets: bool },
    /// Leaves in the middle of its request.
    Abandons,
    /// Asks for a destination that the policy refuses.
    IsRefused,
}

impl Client {
    fn draw(random: &mut Xoshiro256PlusPlus) -> Self {
        match random.random_range(0..10) {
            0 => Self::Abandons,
            1 => Self::IsRefused,
            _ => Self::Session {
                lasts: Duration::from_secs_f64(
                    exponential(random, MEAN_SESSION_S).min(MAX_SESSION_S),
                ),
                resets: random.random(),
            },
        }
    }
}

/// Outcomes of the clients so far.
#[derive(Default)]
struct Tally {
    sessions: AtomicU64,
    abandoned: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    reason: Mutex<Option<String>>,
}

/// Lets clients come and go for `minutes`, and samples the depot.
///
/// # Errors
/// The depot ends.
pub async fn run(
    minutes: u64,
    depot: &Relay,
    requests: Requests,
    seed: u64,
) -> Result<ChurnResult> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let (requests, tally) = (Arc::new(requests), Arc::new(Tally::default()));
    let setups = Arc::new(Semaphore::new(MAX_SETUPS));
    let before = depot.usage()?;
    let began = Instant::now();
    let end = began + Duration::from_secs(60 * minutes);
    let mut clients = JoinSet::new();
    let mut connections = 0_u64;
    let mut samples = Vec::new();
    let mut ticks = interval(SAMPLE_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut next = began;
    while next < end {
        tokio::select! {
            _ = ticks.tick() => samples.push(sample(depot, began)?),
            () = sleep_until(next) => {
                connections += 1;
                let client = Client::draw(&mut random);
                let setup = Arc::clone(&setups).acquire_owned().await?;
                let (requests, tally) = (Arc::clone(&requests), Arc::clone(&tally));
                clients.spawn(be_client(client, requests, setup, tally));
                // Connections that a busy machine delays are not made up for: a burst of them would
                // fill the room for pending connections.
                let pause = exponential(&mut random, 1.0 / CONNECTIONS_PER_S);
                next = next.max(Instant::now()) + Duration::from_secs_f64(pause);
                // Results are in the tally.
                while clients.try_join_next().is_some() {}
            }
        }
    }
    let cpu = depot.cpu_seconds()? - before.cpu_seconds;
    samples.push(sample(depot, began)?);
    while clients.join_next().await.is_some() {}
    let left_descriptors = wait_for_close(depot, before.descriptors).await?;
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let reason = tally.reason.lock().take();
    Ok(ChurnResult {
        sessions: count(&tally.sessions),
        abandoned: count(&tally.abandoned),
        refused: count(&tally.refused),
        failed: count(&tally.failed),
        reason,
        cpu_ms: 1e3 * cpu / connections as f64,
        samples,
        left_descriptors,
    })
}

fn sample(depot: &Relay, began: Instant) -> Result<DepotSample> {
    let usage = depot.usage()?;
    Ok(DepotSample {
        at_s: began.elapsed().as_secs_f64().round(),
        kib: usage.memory / 1024,
        descriptors: usage.descriptors,
    })
}

/// Waits until the depot has no more descriptors than before, besides those of its spare pipes.
/// Returns how many more it keeps.
async fn wait_for_close(depot: &Relay, before: u64) -> Result<i64> {
    let deadline = Instant::now() + CLOSE_TIMEOUT;
    loop {
        let now = depot.usage()?.descriptors;
        if now <= before + SPARE_PIPE_DESCRIPTORS || Instant::now() > deadline {
            return Ok(i64::try_from(now)? - i64::try_from(before)?);
        }
        sleep(CLOSE_POLL_INTERVAL).await;
    }
}

async fn be_client(
    client: Client,
    requests: Arc<Requests>,
    setup: OwnedSemaphorePermit,
    tally: Arc<Tally>,
) {
    let outcome = match client {
        Client::Session { lasts, resets } => session(&requests, setup, lasts, resets).await,
        Client::Abandons => abandon(&requests).await,
        Client::IsRefused => be_refused(&requests).await,
    };
    let counter = match (&outcome, client) {
        (Err(_), _) => &tally.failed,
        (Ok(()), Client::Session { .. }) => &tally.sessions,
        (Ok(()), Client::Abandons) => &tally.abandoned,
        (Ok(()), Client::IsRefused) => &tally.refused,
    };
    counter.fetch_add(1, Ordering::Relaxed);
    if let Err(error) = outcome {
        tally
            .reason
            .lock()
            .get_or_insert_with(|| format!("{error:#}"));
    }
}

async fn session(
    requests: &Requests,
    setup: OwnedSemaphorePermit,
    lasts: Duration,
    resets: bool,
) -> Result<()> {
    let request = requests.sign()?;
    let stream = in_time(requests.open(&request)).await.context("set-up")?;
    drop(setup);
    in_time(exchange_block(&stream)).await.context("a block")?;
    sleep(lasts).await;
    if resets {
        SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
    }
    Ok(())
}

async fn abandon(requests: &Requests) -> Result<()> {
    let request = requests.sign()?;
    let stream = in_time(TcpStream::connect(requests.first_hop())).await?;
    let half = request.get(..request.len() / 2).unwrap_or_default();
    Ok(in_time(write_all(&stream, half)).await?)
}

async fn be_refused(requests: &Requests) -> Result<()> {
    let request = requests.sign_for(SocketAddr::from(FORBIDDEN).into())?;
    match in_time(requests.open(&request)).await {
        Ok(_) => bail!("a session that the policy forbids was established"),
        Err(error) if error.to_string().starts_with(REFUSAL) => Ok(()),
        Err(error) => Err(error).context("a refusal"),
    }
}

async fn in_time<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let late = || io::Error::from(io::ErrorKind::TimedOut);
    timeout(STEP_TIMEOUT, work).await.map_err(|_| late())?
}

/// Draws from the exponential distribution with this mean.
fn exponential(random: &mut Xoshiro256PlusPlus, mean: f64) -> f64 {
    -mean * (1.0 - random.random::<f64>()).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(minutes: u64, kib: impl Fn(f64) -> f64) -> ChurnResult {
        let at = |number: u64| 10.0 * number as f64;
        let samples = (0..=6 * minutes).map(|number| DepotSample {
            at_s: at(number),
            kib: kib(at(number)) as u64,
            descriptors: 100,
        });
        ChurnResult {
            samples: samples.collect(),
            ..ChurnResult::default()
        }
    }

    #[test]
    fn growth_before_the_first_are_forgotten_is_no_trend() {
        let warming = result(10, |at| 20_000.0 + 30.0 * at.min(130.0));
        let slope = warming.memory_slope().unwrap();
        assert!(slope.per_hour.abs() < 1.0, "{slope:?}");
        assert_eq!(warming.descriptor_slope().unwrap().words(1), "0.0 ± 0.0");
        let leaking = result(10, |at| 20_000.0 + at);
        assert!((leaking.memory_slope().unwrap().per_hour - 3600.0).abs() < 1.0);
        assert!(result(1, |_| 1.0).memory_slope().is_none());
    }

    #[test]
    fn intervals_have_their_mean() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let sum: f64 = (0..10_000).map(|_| exponential(&mut random, 5.0)).sum();
        assert!((sum / 10_000.0 - 5.0).abs() < 0.2, "{sum}");
    }
}
