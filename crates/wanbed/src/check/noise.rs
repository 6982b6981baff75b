//! Comparison of measured noise with what was asked. Each tolerance says for what it allows.

use std::time::Duration;

use super::judge::{CLOCK_SLACK, DELAY_SLACK, Finding, LinkVerdict, MAX_DEVIATIONS};
use super::receive::ReceivedProbe;
use super::train::LoadResult;
use crate::link::DirectionSnapshot;
use crate::spec::{BitRate, CodelSpec, CrossSpec, ReorderSpec};

/// Minimum number of probes for a distribution.
const MIN_PROBES: usize = 100;
/// Maximum share of probes that the machine delayed, not the link.
const MAX_STRAGGLERS: f64 = 0.02;
/// Deviation that waking up processes adds, in seconds.
const DEVIATION_SLACK: f64 = 150e-6;
/// Tolerance of a held packet's delay, in seconds and as a share.
const HELD_SLACK: f64 = 0.5e-3;
const HELD_SHARE: f64 = 0.1;
/// Range of the median standing delay under CoDel, in multiples of the target, if the load responds
/// to CoDel.
const STANDING_TARGETS: std::ops::RangeInclusive<f64> = 0.25..=3.0;
/// Time over which arrivals after a fall of the delay are counted, in seconds. The emulator may be
/// late by a part of it.
const FALL_WINDOW: f64 = 10e-3;
const FALL_SLACK: f64 = 3e-3;

/// Expected values of jitter.
#[derive(Debug, Clone, Copy)]
pub(super) struct JitterTarget {
    /// Mean delay in seconds.
    pub(super) mean: f64,
    pub(super) deviation: f64,
    /// Maximum difference of a delay from the mean.
    pub(super) amplitude: f64,
    /// If true, each packet has an independent delay.
    pub(super) reorder: bool,
    /// If true, packets may overtake each other, by jitter or otherwise.
    pub(super) overtakes: bool,
    /// Number of independent delays in the sample.
    pub(super) draws: f64,
}

/// Judges the mean delay and its deviation.
pub(super) fn jitter(wanted: &JitterTarget, received: &[ReceivedProbe]) -> [Finding; 2] {
    let JitterTarget {
        mean,
        deviation,
        amplitude,
        ..
    } = *wanted;
    let overtaken = overtaken(received);
    let all: Vec<f64> = received
        .iter()
        .zip(&overtaken)
        .filter(|(_, overtaken)| wanted.reorder || !**overtaken)
        .map(|(probe, _)| probe.delay())
        .collect();
    let within = |delay: &&f64| {
        **delay >= mean - amplitude - CLOCK_SLACK
            && **delay <= mean + amplitude + DELAY_SLACK.as_secs_f64()
    };
    let kept: Vec<f64> = all.iter().filter(within).copied().collect();
    let outside = all.len() - kept.len();
    if kept.len() < MIN_PROBES || outside as f64 > MAX_STRAGGLERS * all.len() as f64 {
        let why = format!(
            "{outside} of {} probes outside {:.3} ms +- {:.3} ms",
            all.len(),
            1e3 * mean,
            1e3 * amplitude
        );
        return ["delay", "jitter"].map(|what| Finding {
            verdict: LinkVerdict::Off,
            ..Finding::unmeasured(what, why.clone())
        });
    }
    let (measured_mean, measured) = moments(&kept);
    // Between independent points the delay moves in straight lines. So the variance of its mean
    // over time is one and a half times that of the points' mean.
    let luck = MAX_DEVIATIONS * deviation * (1.5 / wanted.draws.max(1.0)).sqrt();
    let good = (measured_mean - mean).abs() <= luck + DELAY_SLACK.as_secs_f64().max(0.02 * mean);
    let text = format!(
        "asked {:.3} ms, mean {:.3} ms, +- {:.3} ms by luck",
        1e3 * mean,
        1e3 * measured_mean,
        1e3 * luck
    );
    let of_delay = Finding::new("delay", mean, measured_mean, good, text);

    let tolerance =
        MAX_DEVIATIONS / (2.0 * wanted.draws.max(2.0)).sqrt() * deviation + DEVIATION_SLACK;
    let ordered = wanted.overtakes || !overtaken.contains(&true);
    let good = (measured - deviation).abs() <= tolerance && ordered;
    let text = format!(
        "asked a deviation of {:.3} ms, measured {:.3} ms, +- {:.3} ms by luck; {} of {} overtaken",
        1e3 * deviation,
        1e3 * measured,
        1e3 * tolerance,
        overtaken.iter().filter(|overtaken| **overtaken).count(),
        received.len()
    );
    [
        of_delay,
        Finding::new("jitter", deviation, measured, good, text),
    ]
}

fn moments(values: &[f64]) -> (f64, f64) {
    let count = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values
        .iter()
        .map(|value| (value - mean).powi(2))
        .sum::<f64>()
        / count;
    (mean, variance.sqrt())
}

/// Returns for each probe, in order of arrival, whether a later one arrived before it.
fn overtaken(received: &[ReceivedProbe]) -> Vec<bool> {
    let mut latest = None;
    received
        .iter()
        .map(|probe| {
            let overtaken = latest.is_some_and(|latest| probe.number < latest);
            latest = latest.max(Some(probe.number));
            overtaken
        })
        .collect()
}

/// Judges the share and the delay of packets that were overtaken.
pub(super) fn reorder(spec: &ReorderSpec, received: &[ReceivedProbe]) -> Finding {
    let overtaken = overtaken(received);
    let (held, mut others): (Vec<(&ReceivedProbe, &bool)>, Vec<_>) = received
        .iter()
        .zip(&overtaken)
        .partition(|(_, overtaken)| **overtaken);
    if others.len() < MIN_PROBES {
        let off = Finding::unmeasured("reorder", format!("only {} probes arrived", received.len()));
        return Finding {
            verdict: LinkVerdict::Off,
            ..off
        };
    }
    others.sort_by_key(|(probe, _)| probe.number);
    // Compared with the delay of the neighbour that was not held, which jitter and the machine
    // moved by the same amount.
    let late = |probe: &ReceivedProbe| {
        let at = others.partition_point(|(other, _)| other.number < probe.number);
        let neighbour = others
            .get(at)
            .or(others.last())
            .map_or(0.0, |(other, _)| other.delay());
        probe.delay() - neighbour
    };
    let mut late: Vec<f64> = held.iter().map(|(probe, _)| late(probe)).collect();
    late.sort_by(f64::total_cmp);
    let (count, by) = (received.len() as f64, spec.by.as_secs_f64());
    let expected = spec.probability * count;
    let luck = MAX_DEVIATIONS * (expected * (1.0 - spec.probability)).sqrt() + 3.0;
    let share_good = (held.len() as f64 - expected).abs() <= luck;
    let median = late.get(late.len() / 2).copied();
    let late_good =
        median.is_none_or(|median| (median - by).abs() <= HELD_SLACK.max(HELD_SHARE * by));
    let text = format!(
        "asked {:.3e} by {:.3} ms, {} of {count} overtaken, {:.3e}, by {:.3} ms; {expected:.1} \
         expected",
        spec.probability,
        1e3 * by,
        held.len(),
        held.len() as f64 / count,
        1e3 * median.unwrap_or(0.0)
    );
    let share = held.len() as f64 / count;
    Finding::new(
        "reorder",
        spec.probability,
        share,
        share_good && late_good,
        text,
    )
}

/// Judges the standing delay of the queue under a load that responds to CoDel.
pub(super) fn codel(
    aqm: &CodelSpec,
    base: Duration,
    amplitude: Duration,
    before: &DirectionSnapshot,
    after: &DirectionSnapshot,
    load: &LoadResult,
) -> Finding {
    let mut delays = load.delays.clone();
    delays.sort_by(f64::total_cmp);
    let (target, base) = (aqm.target.as_secs_f64(), base.as_secs_f64());
    let standing = delays
        .get(delays.len() / 2)
        .map_or(0.0, |median| median - base);
    let (drops, marks) = (
        after.drops_aqm - before.drops_aqm,
        after.marks_ecn - before.marks_ecn,
    );
    if drops + marks == 0 && standing < target {
        let why = format!(
            "could not keep the queue above the target from here: {:.3} ms",
            1e3 * standing
        );
        return Finding::unmeasured("codel", why);
    }
    let most =
        STANDING_TARGETS.end() * target + amplitude.as_secs_f64() + DELAY_SLACK.as_secs_f64();
    let least = STANDING_TARGETS.start() * target - amplitude.as_secs_f64();
    let good = drops + marks > 0 && (least..=most).contains(&standing);
    let text = format!(
        "target {:.3} ms, standing delay {:.3} ms under load, {drops} drops and {marks} marks in \
         {} packets",
        1e3 * target,
        1e3 * standing,
        load.sent
    );
    Finding::new("codel", target, standing, good, text)
}

/// Compares the marks that arrived with those that were made.
pub(super) fn marks(
    before: &DirectionSnapshot,
    after: &DirectionSnapshot,
    load: &LoadResult,
) -> Finding {
    let (drops, marks) = (
        after.drops_aqm - before.drops_aqm,
        after.marks_ecn - before.marks_ecn,
    );
    let text = format!(
        "{marks} packets marked, {} arrived marked, {drops} dropped instead",
        load.marked
    );
    if marks == 0 && drops == 0 {
        return Finding::unmeasured("ecn", text);
    }
    let good = load.marked == marks && drops == 0;
    Finding::new("ecn", marks as f64, load.marked as f64, good, text)
}

/// Judges the mean rate of cross traffic since the link started, at `age`.
pub(super) fn cross(
    spec: &CrossSpec,
    mtu: u32,
    age: Duration,
    counters: &DirectionSnapshot,
) -> Finding {
    let time = age.as_secs_f64().max(1e-9);
    let bytes = counters.cross_bytes + counters.cross_drops * u64::from(mtu);
    let (asked, measured) = (spec.mean_rate(), bytes as f64 * 8.0 / time);
    // Variance of the time that an alternating process with exponential times is on.
    let (on, off) = (spec.on.as_secs_f64(), spec.off.as_secs_f64());
    let variance = time * 2.0 * on.powi(2) * off.powi(2) / (on + off).powi(3);
    let luck = MAX_DEVIATIONS * variance.sqrt() / time * spec.rate.bits_per_second() as f64;
    // Bytes that wait in the queue, and the time that the setup took.
    let tolerance = luck + 0.03 * asked + counters.queue_bytes as f64 * 8.0 / time;
    let text = format!(
        "asked {:.3} Mbit/s on average, came {:.3} Mbit/s in {time:.1} s, +- {:.3} by luck; sent \
         {:.3} Mbit/s",
        asked / 1e6,
        measured / 1e6,
        luck / 1e6,
        counters.cross_bytes as f64 * 8.0 / time / 1e6
    );
    Finding::new(
        "cross",
        asked,
        measured,
        (measured - asked).abs() <= tolerance,
        text,
    )
}

/// A fall of the delay, and the stream during it.
#[derive(Debug, Clone, Copy)]
pub(super) struct DelayFall {
    pub(super) from: Duration,
    pub(super) to: Duration,
    /// Rate of the bottleneck.
    pub(super) rate: BitRate,
    /// Size of each packet.
    pub(super) bytes: usize,
    /// Offered rate in bit/s.
    pub(super) offered: f64,
}

/// Judges if packets arrived no faster than the bottleneck sends.
pub(super) fn fall(fall: &DelayFall, received: &[ReceivedProbe]) -> Finding {
    let rate = fall.rate.bits_per_second() as f64;
    let bits = (fall.bytes * 8) as f64;
    let piled_up = (fall.from - fall.to).as_secs_f64() * fall.offered / rate;
    if piled_up < 2.0 * (FALL_WINDOW + FALL_SLACK) {
        let why = format!(
            "{:.1} ms less delay at {:.1} Mbit/s make no burst that could be told apart",
            1e3 * (fall.from - fall.to).as_secs_f64(),
            fall.offered / 1e6
        );
        return Finding::unmeasured("fall", why);
    }
    let mut times: Vec<f64> = received
        .iter()
        .map(|probe| probe.at.as_secs_f64())
        .collect();
    times.sort_by(f64::total_cmp);
    let mut most = 0;
    for (first, time) in times.iter().enumerate() {
        let end = times.partition_point(|other| *other <= time + FALL_WINDOW);
        most = most.max(end - first);
    }
    let measured = (most as f64 * bits / FALL_WINDOW).max(0.0);
    let allowed = rate * (FALL_WINDOW + FALL_SLACK) / FALL_WINDOW + 2.0 * bits / FALL_WINDOW;
    let delays = received.iter().map(ReceivedProbe::delay);
    let (least, greatest) = delays.fold((f64::INFINITY, 0.0_f64), |(least, greatest), delay| {
        (least.min(delay), greatest.max(delay))
    });
    let fell = least < fall.from.as_secs_f64() && greatest >= fall.from.as_secs_f64();
    let text = format!(
        "the delay fell from {:.1} to {:.1} ms; at most {:.3} Mbit/s came in any {:.0} ms, the \
         bottleneck sends {:.3} Mbit/s",
        1e3 * greatest,
        1e3 * least,
        measured / 1e6,
        1e3 * FALL_WINDOW,
        rate / 1e6
    );
    Finding::new("fall", rate, measured, fell && measured <= allowed, text)
}

#[cfg(test)]
mod tests;
