//! Measurement of the noise of a direction.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::judge::{self, Finding};
use super::noise::{self, DelayFall};
use super::train::MIN_PROBE_BYTES;
use super::{DirectionBench, TargetValues, in_force};
use crate::error::Result;
use crate::link::{jitter_amplitude, jitter_correlation_time, least_delay};
use crate::spec::{CodelSpec, CrossSpec, JitterSpec, ReorderSpec};

/// Number of independent delays that determine the deviation of jitter well enough.
const JITTER_DRAWS: u32 = 200;
const JITTER_TIME: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(2)..=Duration::from_secs(10);
const JITTER_SPACING: Duration = Duration::from_millis(1);
/// Maximum rate of probes that may be held up; the next constant limits their share of the link's
/// rate.
const REORDER_PROBES_PER_SECOND: f64 = 15_000.0;
const REORDER_RATE_SHARE: f64 = 0.3;
/// Number of held probes that determine their share well enough.
const SUFFICIENT_HELD_PROBES: f64 = 60.0;
const MIN_REORDER_PROBES: f64 = 2_000.0;
const MAX_REORDER_SECONDS: f64 = 6.0;
/// Duration of a rate measurement, in deviations of the jitter or delays of a held packet.
const RATE_TIME_PER_DEVIATION: u32 = 450;
/// Interval at which the counters of cross traffic are read.
const CROSS_POLL: Duration = Duration::from_millis(5);
/// Number of bursts after which the mean rate of cross traffic is judged, at the latest after the
/// time below. Both count from the start of the lab.
const SUFFICIENT_BURSTS: u32 = 200;
const MAX_CROSS_TIME: Duration = Duration::from_secs(20);
/// Maximum wait for a fall of the delay; the measurement begins before it by the time below.
const MAX_WAIT_FOR_FALL: Duration = Duration::from_secs(30);
const FALL_LEAD: Duration = Duration::from_millis(300);
const FALL_TAIL: Duration = Duration::from_millis(500);
/// Minimum fall of the delay that causes a burst.
const MIN_FALL: Duration = Duration::from_millis(5);
const FALL_RATE_SHARE: f64 = 0.9;
const FALL_PROBES_PER_SECOND: f64 = 10_000.0;

impl DirectionBench<'_> {
    /// Measures delay and jitter with one train of probes.
    pub(super) fn check_jitter(&self, jitter: JitterSpec) -> Result<Vec<Finding>> {
        let correlation = Duration::from_nanos(jitter_correlation_time(&jitter));
        let time = if jitter.reorder {
            *JITTER_TIME.start()
        } else {
            (correlation * JITTER_DRAWS).clamp(*JITTER_TIME.start(), *JITTER_TIME.end())
        };
        let shift = jitter_amplitude(&jitter).saturating_sub(least_delay(self.way));
        let mut delay = None;
        let found = self.while_still("jitter", |asked| {
            let line_time = judge::line_time(asked, MIN_PROBE_BYTES);
            let spacing = JITTER_SPACING.max(Duration::from_secs_f64(5.0 * line_time));
            let count = (time.as_secs_f64() / spacing.as_secs_f64()) as u32;
            let received = self
                .probe
                .train(MIN_PROBE_BYTES, spacing, count, self.slack(asked))?;
            let draws = if jitter.reorder {
                received.len() as f64
            } else {
                time.as_secs_f64() / correlation.as_secs_f64()
            };
            let wanted = noise::JitterTarget {
                mean: asked.delay.as_secs_f64() + line_time + shift as f64 / 1e9,
                deviation: jitter.deviation.as_secs_f64(),
                amplitude: jitter_amplitude(&jitter) as f64 / 1e9,
                reorder: jitter.reorder,
                overtakes: jitter.reorder || self.way.reorder.is_some(),
                draws,
            };
            let [of_delay, of_jitter] = noise::jitter(&wanted, &received);
            let off = of_delay.verdict == judge::LinkVerdict::Off;
            delay = Some(of_delay.clone());
            Ok(if off { of_delay } else { of_jitter })
        })?;
        // The last attempt gave both; a wrong mean represents them.
        Ok(match delay {
            Some(delay) if delay.verdict == judge::LinkVerdict::Off => vec![delay],
            Some(delay) => vec![delay, found],
            None => vec![Finding::unmeasured("delay", found.text.clone()), found],
        })
    }

    pub(super) fn rate(&self) -> Result<Finding> {
        let deviation = self
            .way
            .jitter
            .map_or(Duration::ZERO, |jitter| jitter.deviation);
        let held = self
            .way
            .reorder
            .map_or(Duration::ZERO, |reorder| reorder.by);
        let least = deviation.max(held / 2) * RATE_TIME_PER_DEVIATION;
        self.while_still("rate", |asked| {
            let Some(rate) = asked.rate else {
                let why = "unlimited: there is nothing to measure".to_owned();
                return Ok(Finding::unmeasured("rate", why));
            };
            let overload = || self.probe.overload(rate, least, self.slack(asked));
            if self.way.cross.is_none() {
                return Ok(judge::rate(asked, rate, &overload()?, 0.0));
            }
            let (overload, crossed) = self.with_cross_traffic(overload)?;
            // The counters count departures, which precede arrivals by the delay.
            let crossed = overload.span.map_or(0.0, |(first, last)| {
                let bytes = |at: Instant| {
                    let at = at.checked_sub(asked.delay).unwrap_or(at);
                    let after = crossed.partition_point(|(when, _)| *when <= at);
                    crossed
                        .get(after)
                        .or(crossed.last())
                        .map_or(0, |(_, bytes)| *bytes)
                };
                let span = last.duration_since(first).as_secs_f64();
                bytes(last).saturating_sub(bytes(first)) as f64 * 8.0 / span.max(1e-9)
            });
            Ok(judge::rate(asked, rate, &overload, crossed))
        })
    }

    /// Runs a measurement. Returns its result with the bytes of cross traffic that had been sent at
    /// several moments.
    fn with_cross_traffic<T>(
        &self,
        measure: impl FnOnce() -> Result<T>,
    ) -> Result<(T, Vec<(Instant, u64)>)> {
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                let mut seen = Vec::new();
                while !done.load(Ordering::Relaxed) {
                    if let Ok(counters) = self.counters() {
                        seen.push((Instant::now(), counters.cross_bytes));
                    }
                    thread::sleep(CROSS_POLL);
                }
                seen
            });
            let measured = measure();
            done.store(true, Ordering::Relaxed);
            Ok((measured?, watcher.join().unwrap_or_default()))
        })
    }

    pub(super) fn check_reorder(&self, reorder: ReorderSpec) -> Result<Finding> {
        if self.way.jitter.is_some_and(|jitter| jitter.reorder) {
            let why = "jitter makes packets overtake too".to_owned();
            return Ok(Finding::unmeasured("reorder", why));
        }
        self.while_still("reorder", |asked| {
            let rate = asked
                .rate
                .map_or(f64::INFINITY, |rate| rate.bits_per_second() as f64);
            let bits = (MIN_PROBE_BYTES * 8) as f64;
            let per_second = (REORDER_RATE_SHARE * rate / bits).min(REORDER_PROBES_PER_SECOND);
            if per_second * reorder.by.as_secs_f64() < 4.0 {
                let why = "too slow a link for a held packet to be overtaken".to_owned();
                return Ok(Finding::unmeasured("reorder", why));
            }
            let count = (SUFFICIENT_HELD_PROBES / reorder.probability)
                .max(MIN_REORDER_PROBES)
                .min(MAX_REORDER_SECONDS * per_second) as u32;
            let spacing = Duration::from_secs_f64(1.0 / per_second);
            let received = self
                .probe
                .train(MIN_PROBE_BYTES, spacing, count, self.slack(asked))?;
            Ok(noise::reorder(&reorder, &received))
        })
    }

    /// Measures the queue under load, and with ECN the marks that arrive.
    pub(super) fn check_queue(&self, aqm: CodelSpec) -> Result<Vec<Finding>> {
        if self.way.cross.is_some() {
            let why = "cross traffic does not answer to drops and marks".to_owned();
            return Ok(vec![Finding::unmeasured("codel", why)]);
        }
        let mut marks = None;
        let found = self.while_still("codel", |asked| {
            let Some(rate) = asked.rate else {
                return Ok(Finding::unmeasured(
                    "codel",
                    "unlimited: nothing ever waits".to_owned(),
                ));
            };
            let base =
                asked.delay + Duration::from_secs_f64(judge::line_time(asked, self.mtu as usize));
            let before = self.counters()?;
            let load = self
                .probe
                .load(rate, base, aqm, self.way.ecn, || self.counters())?;
            let after = self.counters()?;
            marks = self.way.ecn.then(|| noise::marks(&before, &after, &load));
            let amplitude = self
                .way
                .jitter
                .map_or(0, |jitter| jitter_amplitude(&jitter));
            Ok(noise::codel(
                &aqm,
                base,
                Duration::from_nanos(amplitude),
                &before,
                &after,
                &load,
            ))
        })?;
        Ok(std::iter::once(found).chain(marks).collect())
    }

    pub(super) fn check_cross(&self, cross: CrossSpec) -> Result<Finding> {
        // The long-run rate needs many bursts to show.
        let enough = ((cross.on + cross.off) * SUFFICIENT_BURSTS).min(MAX_CROSS_TIME);
        thread::sleep(enough.saturating_sub(self.lab.age()));
        Ok(noise::cross(
            &cross,
            self.mtu,
            self.lab.age(),
            &self.counters()?,
        ))
    }

    /// Measures how packets arrive when the trace makes the delay fall, if it does so soon.
    pub(super) fn check_fall(&self) -> Result<Option<Finding>> {
        let age = self.lab.age();
        let Some((at, before, after)) = next_fall(|at| in_force(self.way, at), age + FALL_LEAD)
        else {
            return Ok(None);
        };
        let (Some(rate), true) = (
            before.rate.min(after.rate).or(after.rate),
            at - age <= MAX_WAIT_FOR_FALL,
        ) else {
            let why = "the delay of a link with a rate does not fall soon".to_owned();
            return Ok(Some(Finding::unmeasured("fall", why)));
        };
        thread::sleep((at - age).saturating_sub(FALL_LEAD));
        let bytes = self.mtu as usize;
        let per_second = (FALL_RATE_SHARE * rate.bits_per_second() as f64 / (bytes * 8) as f64)
            .clamp(1.0, FALL_PROBES_PER_SECOND);
        let time = (FALL_LEAD + before.delay + FALL_TAIL).as_secs_f64();
        let count = (per_second * time) as u32;
        let spacing = Duration::from_secs_f64(1.0 / per_second);
        let received = self
            .probe
            .train(bytes, spacing, count, self.slack(before))?;
        let fall = DelayFall {
            from: before.delay,
            to: after.delay,
            rate: before.rate.max(after.rate).unwrap_or(rate),
            bytes,
            offered: per_second * (bytes * 8) as f64,
        };
        Ok(Some(noise::fall(&fall, &received)))
    }
}

/// Returns the time of the next fall of the delay after `from`, and the values before and after it.
fn next_fall(
    in_force: impl Fn(Duration) -> (TargetValues, Option<Duration>),
    from: Duration,
) -> Option<(Duration, TargetValues, TargetValues)> {
    let mut at = from;
    while at < from + 2 * MAX_WAIT_FOR_FALL {
        let (before, next) = in_force(at);
        at += next?;
        let (after, _) = in_force(at);
        if after.delay + MIN_FALL <= before.delay {
            return Some((at, before, after));
        }
    }
    None
}
