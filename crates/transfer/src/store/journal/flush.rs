//! Decides when written data is made durable: often enough that little is at risk, and seldom
//! enough that the copy does not wait for it.
//!
//! It does no I/O. Times are given by the caller, relative to any moment. Written data is first *at
//! risk*: it is handed to the operating system, and lost if the power fails. A flush makes durable
//! what was at risk when it began.

use std::time::Duration;

/// Maximum age of data at risk, as long as flushes take at most a quarter of this and are performed
/// when they are due.
pub const MAX_AGE_AT_RISK: Duration = Duration::from_secs(1);
/// Age at which the first flush of a file is due. Most files are complete by then, and never
/// flushed.
const FIRST_FLUSH_AGE: Duration = Duration::from_millis(250);
/// Minimum age at which later flushes are due.
const FLUSH_AGE: Duration = Duration::from_millis(125);
/// Multiple of the last flush's duration before which the next one is not due.
const FLUSH_AGE_FACTOR: u32 = 4;
/// Maximum age at which later flushes are due. With a flush of [`QUICK_FLUSH`], it leaves a third
/// of [`MAX_AGE_AT_RISK`] for other costs of a kill: data in transit, and the time to start again.
const MAX_FLUSH_AGE: Duration = Duration::from_millis(400);
/// Duration of a flush from which the next one must wait as long as it took. A slow disk thus
/// spends at most half of its time on flushes.
const QUICK_FLUSH: Duration = Duration::from_millis(250);
/// Maximum of this wait.
const MAX_REST: Duration = Duration::from_secs(30);
/// Wait after a failed flush that is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Data that would be lost in a power failure now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AtRisk {
    /// Bytes that were written and are not known to be durable.
    pub bytes: u64,
    /// Age of the oldest of these bytes.
    pub age: Duration,
}

/// Decides when to flush one file.
#[derive(Debug, Default)]
pub(super) struct FlushPolicy {
    /// Data written since the last flush began.
    waiting: Option<Part>,
    flushing: Option<Flushing>,
    /// Duration of the last flush.
    took: Option<Duration>,
    rest_until: Duration,
}

#[derive(Debug, Clone, Copy)]
struct Part {
    since: Duration,
    bytes: u64,
}

#[derive(Debug)]
struct Flushing {
    began: Duration,
    part: Part,
}

impl FlushPolicy {
    /// Notes that `bytes` were handed to the operating system at `now`.
    pub(super) fn written(&mut self, now: Duration, bytes: u64) {
        let waiting = self.waiting.get_or_insert(Part {
            since: now,
            bytes: 0,
        });
        waiting.bytes += bytes;
    }

    /// Returns when a flush is due, or `None` if there is nothing to flush, or one is in progress.
    pub(super) fn due(&self) -> Option<Duration> {
        let waiting = self.waiting.filter(|_| self.flushing.is_none())?;
        let age = match self.took {
            None => FIRST_FLUSH_AGE,
            Some(took) => took
                .saturating_mul(FLUSH_AGE_FACTOR)
                .clamp(FLUSH_AGE, MAX_FLUSH_AGE),
        };
        Some((waiting.since + age).max(self.rest_until))
    }

    /// Begins a flush of the data at risk, whether it is due or not. Returns false if there is
    /// none, or a flush is in progress.
    pub(super) fn begin(&mut self, now: Duration) -> bool {
        if self.flushing.is_some() {
            return false;
        }
        let Some(part) = self.waiting.take() else {
            return false;
        };
        self.flushing = Some(Flushing { began: now, part });
        true
    }

    /// Notes that the flush ended, and its data is durable.
    pub(super) fn flushed(&mut self, now: Duration) {
        let Some(flushing) = self.flushing.take() else {
            return;
        };
        let took = now.saturating_sub(flushing.began);
        self.took = Some(took);
        if took > QUICK_FLUSH {
            self.rest_until = now + took.min(MAX_REST);
        }
    }

    /// Notes that the flush failed. Its data is still at risk, and is tried again.
    pub(super) fn failed(&mut self, now: Duration) {
        let Some(Flushing { part, .. }) = self.flushing.take() else {
            return;
        };
        let waiting = self.waiting.get_or_insert(Part {
            since: part.since,
            bytes: 0,
        });
        waiting.since = waiting.since.min(part.since);
        waiting.bytes += part.bytes;
        self.rest_until = now + RETRY_INTERVAL;
    }

    /// Returns what is at risk at `now`.
    pub(super) fn at_risk(&self, now: Duration) -> AtRisk {
        let flushing = self.flushing.as_ref().map(|flushing| flushing.part);
        let mut risk = AtRisk::default();
        for part in [flushing, self.waiting].into_iter().flatten() {
            risk.bytes += part.bytes;
            risk.age = risk.age.max(now.saturating_sub(part.since));
        }
        risk
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: Duration = Duration::from_millis(1);

    struct Run {
        oldest: Duration,
        flushing: Duration,
        flushes: u32,
        unwritten: u64,
    }

    /// Writes a byte in each millisecond for which `writes` is true. The flushes take the times in
    /// `costs` in milliseconds, one after the other.
    fn run(writes: impl Fn(u32) -> bool, costs: &[u32], milliseconds: u32) -> Run {
        let (mut policy, mut ends) = (FlushPolicy::default(), None);
        let mut run = Run {
            oldest: Duration::ZERO,
            flushing: Duration::ZERO,
            flushes: 0,
            unwritten: 0,
        };
        for at in 0..milliseconds {
            let now = MS * at;
            if ends == Some(now) {
                policy.flushed(now);
                ends = None;
            }
            if writes(at) {
                policy.written(now, 1);
            }
            if policy.due().is_some_and(|due| due <= now) {
                assert!(ends.is_none() && policy.begin(now));
                let cost = costs[run.flushes as usize % costs.len()];
                run.flushes += 1;
                ends = Some(now + MS * cost.max(1));
            }
            run.flushing += MS * u32::from(ends.is_some());
            run.oldest = run.oldest.max(policy.at_risk(now).age);
        }
        run.unwritten = policy.at_risk(MS * milliseconds).bytes;
        run
    }

    proptest! {
        #[test]
        fn quick_disk_leaves_nothing_at_risk_beyond_a_second(
            costs in prop::collection::vec(0u32..=250, 1..20),
            gap in 1u32..3000,
        ) {
            let run = run(|at| at.is_multiple_of(gap), &costs, 10_000);
            prop_assert!(run.oldest <= MAX_FLUSH_AGE + QUICK_FLUSH, "{:?}", run.oldest);
        }

        #[test]
        fn slow_disk_rests_half_of_the_time(costs in prop::collection::vec(251u32..5000, 1..20)) {
            let run = run(|_| true, &costs, 60_000);
            let longest = MS * *costs.iter().max().unwrap();
            prop_assert!(run.flushing <= MS * 30_000 + longest, "{:?}", run.flushing);
            prop_assert!(run.oldest <= longest * 3 + MAX_AGE_AT_RISK);
        }

        #[test]
        fn everything_becomes_durable_after_the_last_write(
            costs in prop::collection::vec(0u32..2000, 1..9),
            until in 1u32..3000,
        ) {
            prop_assert_eq!(run(|at| at < until, &costs, 20_000).unwritten, 0);
        }
    }

    #[test]
    fn slower_disk_is_flushed_less_often() {
        let flushes = |cost| run(|_| true, &[cost], 60_000).flushes;
        assert!((470..=480).contains(&flushes(5)), "{}", flushes(5));
        assert!((295..=300).contains(&flushes(50)), "{}", flushes(50));
        assert!((145..=150).contains(&flushes(100)), "{}", flushes(100));
    }

    #[test]
    fn file_written_within_250_ms_is_never_flushed() {
        assert_eq!(run(|_| true, &[5], 250).flushes, 0);
        assert_eq!(run(|_| true, &[5], 251).flushes, 1);
    }

    #[test]
    fn failed_flush_stays_at_risk_and_is_retried() {
        let mut policy = FlushPolicy::default();
        policy.written(MS, 10);
        assert!(policy.begin(MS * 500));
        policy.written(MS * 501, 5);
        assert!(!policy.begin(MS * 502));
        assert_eq!(policy.due(), None);
        policy.failed(MS * 600);
        assert_eq!(
            policy.at_risk(MS * 600),
            AtRisk {
                bytes: 15,
                age: MS * 599
            }
        );
        assert_eq!(policy.due(), Some(MS * 1600));
        assert!(policy.begin(MS * 1600));
        policy.flushed(MS * 1610);
        assert_eq!(policy.at_risk(MS * 1700), AtRisk::default());
    }
}
