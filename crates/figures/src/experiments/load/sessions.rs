//! Many sessions through one relay: what a set-up costs, what an idle session keeps, and what the
//! busy ones cost.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rand::SeedableRng;
use rand::seq::index;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, sleep_until, timeout};

use super::ends::{BLOCK_BYTES, BlockServer, exchange_block};
use super::ping::percentile;
use super::relay::Relay;
use super::requests::Requests;
use super::user;
use crate::usage::TreeUsage;

/// Approximate duration of all phases, in seconds.
pub const SECONDS: f64 = 60.0;

/// Set-ups and single exchanges at a time.
const CONCURRENCY: usize = 64;
/// Time limit of a set-up or an exchange.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval of checks that the server has all sessions.
const ACCEPT_POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Time before idle sessions are looked at.
const SETTLE_TIME: Duration = Duration::from_secs(2);
/// Time for which idle sessions are looked at.
const IDLE_TIME: Duration = Duration::from_secs(10);
/// Time for which a tenth of the sessions is busy.
const BUSY_TIME: Duration = Duration::from_secs(20);
/// Interval of the blocks of a busy session: 1.05 Mbit/s each.
const BLOCK_INTERVAL: Duration = Duration::from_millis(125);
/// Sessions for each busy one.
const SESSIONS_PER_BUSY: usize = 10;

/// Result of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SessionsResult {
    /// Established sessions.
    pub established: usize,
    /// Sessions that were refused, lost, or late in any phase.
    pub failed: usize,
    /// Reason of the first failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Set-ups in a second, 64 at a time, and their 99th percentile, in milliseconds.
    pub setups_per_s: f64,
    pub setup_p99_ms: f64,
    /// Processor time of the relay for a set-up, in milliseconds.
    pub setup_cpu_ms: f64,
    /// Memory of the relay for an idle session that has carried a block, in bytes.
    pub idle_bytes: f64,
    /// Processor time that the relay uses while all sessions are idle, as a share of one processor.
    pub idle_cpu: f64,
    /// Rate of the busy sessions together, in Gbit/s of payload.
    pub busy_gbps: f64,
    /// Processor time of the relay for a gigabit, in seconds.
    pub busy_cpu_s_per_gbit: f64,
    /// Time of a block there and its answer back, in milliseconds.
    pub block_p50_ms: f64,
    pub block_p99_ms: f64,
    /// Files that the relay might have open.
    pub max_open_files: u64,
    /// Memory of the relay halfway through the busy time, in MiB, and its descriptors.
    pub busy_mib: f64,
    pub descriptors: u64,
}

impl SessionsResult {
    /// Describes the result in one line.
    pub fn words(&self) -> String {
        format!(
            "{} sessions, {} failed; set-up {:.3} ms of CPU; idle {:.1} KiB each; {:.2} Gbit/s at \
             {:.2} CPU s a Gbit{}",
            self.established,
            self.failed,
            self.setup_cpu_ms,
            self.idle_bytes / 1024.0,
            self.busy_gbps,
            self.busy_cpu_s_per_gbit,
            self.reason
                .as_ref()
                .map_or(String::new(), |reason| format!(" ({reason})"))
        )
    }
}

/// Failures of one phase.
#[derive(Default)]
struct Failures {
    count: usize,
    first: Option<String>,
}

impl Failures {
    fn add(&mut self, reason: impl ToString) {
        self.count += 1;
        self.first.get_or_insert_with(|| reason.to_string());
    }

    fn merge(&mut self, other: Self) {
        self.count += other.count;
        self.first = self.first.take().or(other.first);
    }
}

/// Opens `count` sessions through `relay` and uses them.
///
/// # Errors
/// The relay ends, or admits no session at all.
pub async fn run(
    count: usize,
    relay: &Relay,
    requests: Requests,
    server: &BlockServer,
    seed: u64,
) -> Result<SessionsResult> {
    let mut seen = SessionsResult {
        max_open_files: user::max_open_files(),
        ..SessionsResult::default()
    };
    let before = relay.usage()?;
    let (streams, mut failures) = set_up(count, relay, requests, server, &mut seen).await?;
    let streams = Arc::new(streams);
    failures.merge(exchange_each(&streams).await);
    sleep(SETTLE_TIME).await;
    let idle = relay.usage()?;
    seen.idle_bytes = idle.memory.saturating_sub(before.memory) as f64 / streams.len() as f64;
    let (began, cpu) = (Instant::now(), relay.cpu_seconds()?);
    sleep(IDLE_TIME).await;
    seen.idle_cpu = (relay.cpu_seconds()? - cpu) / began.elapsed().as_secs_f64();
    failures.merge(keep_busy(&streams, relay, seed, &mut seen).await?);
    // Sessions that were idle all the time still work.
    failures.merge(exchange_each(&streams).await);
    seen.failed = failures.count;
    seen.reason = failures.first;
    Ok(seen)
}

/// Opens the sessions, [`CONCURRENCY`] at a time.
async fn set_up(
    count: usize,
    relay: &Relay,
    requests: Requests,
    server: &BlockServer,
    seen: &mut SessionsResult,
) -> Result<(Vec<TcpStream>, Failures)> {
    // Signed before, so that the clients' work is not part of the time.
    let signed: Result<Vec<Vec<u8>>> = (0..count).map(|_| requests.sign()).collect();
    let (signed, requests) = (Arc::new(signed?), Arc::new(requests));
    let next = Arc::new(AtomicUsize::new(0));
    let cpu = relay.cpu_seconds()?;
    let began = Instant::now();
    let mut clients = JoinSet::new();
    for _ in 0..CONCURRENCY {
        let (signed, requests) = (Arc::clone(&signed), Arc::clone(&requests));
        let next = Arc::clone(&next);
        clients.spawn(async move {
            let (mut streams, mut times) = (Vec::new(), Vec::new());
            let mut failures = Failures::default();
            while let Some(request) = signed.get(next.fetch_add(1, Ordering::Relaxed)) {
                let began = Instant::now();
                match timeout(STEP_TIMEOUT, requests.open(request)).await {
                    Ok(Ok(stream)) => {
                        streams.push(stream);
                        times.push(began.elapsed());
                    }
                    Ok(Err(error)) => failures.add(error),
                    Err(_) => failures.add("a set-up took over 10 s"),
                }
            }
            (streams, times, failures)
        });
    }
    let (mut streams, mut times, mut failures) = (Vec::new(), Vec::new(), Failures::default());
    while let Some(client) = clients.join_next().await {
        let (some, took, failed) = client.context("a client ended early")?;
        streams.extend(some);
        times.extend(took);
        failures.merge(failed);
    }
    ensure!(
        !streams.is_empty(),
        "no session was established: {}",
        failures.first.unwrap_or_default()
    );
    // HAProxy accepts before it connects to the server.
    let deadline = Instant::now() + STEP_TIMEOUT;
    while server.accepted() < streams.len() && Instant::now() < deadline {
        sleep(ACCEPT_POLL_INTERVAL).await;
    }
    let seconds = began.elapsed().as_secs_f64();
    let established = streams.len() as f64;
    seen.established = streams.len();
    seen.setups_per_s = established / seconds;
    seen.setup_cpu_ms = 1e3 * (relay.cpu_seconds()? - cpu) / established;
    seen.setup_p99_ms = 1e3 * percentile(&mut times, 0.99).as_secs_f64();
    Ok((streams, failures))
}

/// Exchanges a block over every session, [`CONCURRENCY`] at a time.
async fn exchange_each(streams: &Arc<Vec<TcpStream>>) -> Failures {
    let next = Arc::new(AtomicUsize::new(0));
    let mut clients = JoinSet::new();
    for _ in 0..CONCURRENCY {
        let (streams, next) = (Arc::clone(streams), Arc::clone(&next));
        clients.spawn(async move {
            let mut failures = Failures::default();
            while let Some(stream) = streams.get(next.fetch_add(1, Ordering::Relaxed)) {
                if let Err(reason) = exchange_in_time(stream).await {
                    failures.add(reason);
                }
            }
            failures
        });
    }
    let mut failures = Failures::default();
    while let Some(client) = clients.join_next().await {
        match client {
            Ok(failed) => failures.merge(failed),
            Err(error) => failures.add(error),
        }
    }
    failures
}

async fn exchange_in_time(stream: &TcpStream) -> Result<(), String> {
    match timeout(STEP_TIMEOUT, exchange_block(stream)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(format!("an established session failed: {error}")),
        Err(_) => Err("a block took over 10 s".to_owned()),
    }
}

/// Sends blocks at [`BLOCK_INTERVAL`] over a random tenth of the sessions. A session sends its next
/// block only after the answer, so a relay that is late is not flooded.
async fn keep_busy(
    streams: &Arc<Vec<TcpStream>>,
    relay: &Relay,
    seed: u64,
    seen: &mut SessionsResult,
) -> Result<Failures> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let busy = (streams.len() / SESSIONS_PER_BUSY).max(1);
    let chosen = index::sample(&mut random, streams.len(), busy);
    let cpu = relay.cpu_seconds()?;
    let began = Instant::now();
    let end = began + BUSY_TIME;
    let mut clients = JoinSet::new();
    for (place, number) in chosen.into_iter().enumerate() {
        let streams = Arc::clone(streams);
        let first = began + BLOCK_INTERVAL.mul_f64(place as f64 / busy as f64);
        clients.spawn(async move {
            let (mut times, mut failures) = (Vec::new(), Failures::default());
            let Some(stream) = streams.get(number) else {
                return (times, failures);
            };
            let mut ticks = interval_at(first, BLOCK_INTERVAL);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            while ticks.tick().await < end {
                let began = Instant::now();
                if let Err(reason) = exchange_in_time(stream).await {
                    failures.add(reason);
                    break;
                }
                times.push(began.elapsed());
            }
            (times, failures)
        });
    }
    sleep(BUSY_TIME / 2).await;
    let process = relay.process();
    let usage = spawn_blocking(move || TreeUsage::read(process));
    let usage = usage.await.context("the relay was not looked at")??;
    sleep_until(end).await;
    let cpu = relay.cpu_seconds()? - cpu;
    let seconds = began.elapsed().as_secs_f64();
    let (mut times, mut failures) = (Vec::new(), Failures::default());
    while let Some(client) = clients.join_next().await {
        let (took, failed) = client.context("a client ended early")?;
        times.extend(took);
        failures.merge(failed);
    }
    let gigabits = (times.len() * BLOCK_BYTES) as f64 * 8.0 / 1e9;
    seen.busy_gbps = gigabits / seconds;
    seen.busy_cpu_s_per_gbit = cpu / gigabits;
    seen.block_p50_ms = 1e3 * percentile(&mut times, 0.5).as_secs_f64();
    seen.block_p99_ms = 1e3 * percentile(&mut times, 0.99).as_secs_f64();
    seen.busy_mib = usage.memory as f64 / f64::from(1 << 20);
    seen.descriptors = usage.descriptors;
    Ok(failures)
}
