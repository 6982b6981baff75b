//! A flood of OPENs at a given rate, from many addresses, and the answers to them.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use longhaul_proto::StatusCode;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Interval, MissedTickBehavior, interval, timeout};

use crate::opens;

/// Maximum wait for one answer.
const ANSWER: Duration = Duration::from_secs(15);

/// A rate limit that is shared by its clones.
#[derive(Clone, Debug)]
pub struct Pace(Arc<tokio::sync::Mutex<Interval>>);

impl Pace {
    /// Returns a limit of `per_second`, in bursts if the clock is too coarse for less.
    #[must_use]
    pub fn new(per_second: u32) -> Self {
        let mut tick = interval(Duration::from_secs(1) / per_second.max(1));
        tick.set_missed_tick_behavior(MissedTickBehavior::Burst);
        Self(Arc::new(tokio::sync::Mutex::new(tick)))
    }

    /// Waits until the limit permits one more.
    pub async fn wait(&self) {
        self.0.lock().await.tick().await;
    }
}

/// OPENs that are sent until this value is dropped.
#[derive(Debug)]
pub struct Flood {
    counts: Arc<Mutex<Counts>>,
    members: JoinSet<()>,
}

#[derive(Debug, Default)]
struct Counts {
    sent: u64,
    answers: HashMap<StatusCode, u64>,
    without_answer: u64,
}

impl Flood {
    /// Sends what `make` returns until it returns `None`: `at_once` parallel connections from
    /// `sources` in turn, up to the given rate. Must be called within a tokio runtime.
    #[must_use]
    pub fn start(
        target: SocketAddr,
        sources: &[IpAddr],
        at_once: usize,
        per_second: u32,
        make: impl Fn() -> Option<Vec<u8>> + Send + Sync + 'static,
    ) -> Self {
        let counts = Arc::new(Mutex::new(Counts::default()));
        let (make, pace) = (Arc::new(make), Pace::new(per_second));
        let mut members = JoinSet::new();
        for number in 0..at_once {
            let source = (!sources.is_empty()).then(|| sources[number % sources.len()]);
            let (make, pace, counts) = (Arc::clone(&make), pace.clone(), Arc::clone(&counts));
            members.spawn(async move {
                loop {
                    pace.wait().await;
                    let Some(bytes) = make() else { return };
                    counts.lock().sent += 1;
                    let reported = opens::ask(target, source, &bytes, ANSWER).await;
                    let mut counts = counts.lock();
                    match reported {
                        Ok(reported) => *counts.answers.entry(reported.code).or_default() += 1,
                        Err(_) => counts.without_answer += 1,
                    }
                }
            });
        }
        Self { counts, members }
    }

    /// Returns the number of OPENs that were sent or are being sent.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.counts.lock().sent
    }

    /// Returns how often `code` was the answer.
    #[must_use]
    pub fn answered(&self, code: StatusCode) -> u64 {
        let counts = self.counts.lock();
        counts.answers.get(&code).copied().unwrap_or_default()
    }

    /// Returns the number of each answer so far, and of OPENs without an answer.
    #[must_use]
    pub fn tally(&self) -> (HashMap<StatusCode, u64>, u64) {
        let counts = self.counts.lock();
        (counts.answers.clone(), counts.without_answer)
    }

    /// Waits up to `limit` until there is nothing more to send. Returns true if everything was
    /// sent.
    pub async fn finish(&mut self, limit: Duration) -> bool {
        let all = async { while self.members.join_next().await.is_some() {} };
        timeout(limit, all).await.is_ok()
    }
}
