//! Time of a transfer over a whole route, and its dominant limit.
//!
//! A chain needs round trips of its whole length at the start and the end. In between it runs at
//! the rate of its slowest hop: hops work concurrently, each with its own round trip.

use serde::{Deserialize, Serialize};

use super::combine::{around_median, maximum, spread_above, spread_below, sum};
use super::map::{HopForecast, HopId, RouteMap};
use super::model::{EARLY_FIRST_LOSS, LATE_FIRST_LOSS, MEDIAN_FIRST_LOSS, TransferCourse};
use super::{MAX_DEPOTS, NodeId, RouteDepots, Transfer};
use crate::Quantiles;

/// Round trips of the whole chain besides the data: one for the connections, one for OPEN, TLS and
/// their answers (`docs/protocol.md`: depots add none), and two halves for the data's arrival and
/// the receipt's return.
pub const ROUND_TRIPS_AROUND: f64 = 3.0;
/// Time in seconds that both programs take to start and end. A file of one byte takes 5.6 ms more
/// than its round trips (`docs/results/first-byte.md`).
pub const HOST_SECONDS: f64 = 0.0056;
/// Error of the model with known inputs and no loss, as the logarithm of p90 relative to the
/// median: about the median error over all published runs (`docs/routing.md`).
pub const MODEL_SPREAD: f64 = 0.05;
/// Spread of the time under loss after one loss. It falls with the root of the number of losses.
/// (Windows lie between half and all of their maximum, and the distances between losses vary by as
/// much as their length.)
const LOSS_SPREAD: f64 = 0.6;
/// Growth of a forecast's squared spread for few samples: this over their number.
const SAMPLES_SPREAD: f64 = 4.0;
/// Drift of a hop's quantities in [`DRIFT_SECONDS`], as the logarithm of p90 relative to the
/// median. Forecasts widen by it as they age.
const DRIFT_SPREAD: f64 = 0.15;
const DRIFT_SECONDS: f64 = 600.0;

/// Expected time of a transfer over a route.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ExpectedTime {
    /// Time from the start of the command to the receipt, in seconds.
    pub time: Quantiles,
    /// Share of that besides the data, at the median, in seconds.
    pub around: f64,
    /// Dominant limit.
    pub limit: DominantLimit,
    /// Age of the oldest forecast that it rests on, in seconds.
    pub age: f64,
    /// Least number of samples of those forecasts.
    pub samples: u32,
}

/// Dominant limit of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DominantLimit {
    /// Kind of limit.
    pub kind: LimitKind,
    /// Hop of the limit; for setup, the longest one.
    pub hop: (NodeId, NodeId),
}

/// Kind of limit of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LimitKind {
    /// Round trips before and after the data.
    SetUp,
    /// The window is still growing when all data is sent.
    SlowStart,
    /// Rate that other traffic leaves on the hop.
    Rate,
    /// Maximum window of the hosts.
    Window,
    /// Losses reduce the congestion window.
    Loss,
    /// Relay rate of a depot.
    Relay,
    /// Disk or processors of an end.
    Host,
}

/// One hop's part in a transfer.
struct HopPart {
    rtt: Quantiles,
    seconds: Quantiles,
    course: TransferCourse,
    kind: LimitKind,
}

impl RouteMap {
    /// Returns the expected time of a transfer over a route. Returns `None` if one of its hops is
    /// not in the map, unknown or dead, or a node in between is not a depot or is dead.
    #[must_use]
    pub fn expected(
        &self,
        from: NodeId,
        via: &RouteDepots,
        to: NodeId,
        transfer: &Transfer,
        now: f64,
    ) -> Option<ExpectedTime> {
        let mut parts = [const { None::<HopPart> }; MAX_DEPOTS + 1];
        let mut hops = [(NodeId(0), NodeId(0)); MAX_DEPOTS + 1];
        let (mut age, mut samples) = (0.0f64, u32::MAX);
        let mut count = 0;
        for (part, (start, end)) in parts.iter_mut().zip(via.hops(from, to)) {
            let hop = self.hop(start, end).filter(|hop| self.is_usable(*hop))?;
            let forecast = self.forecast(hop)?;
            age = age.max(now - forecast.at);
            samples = samples.min(forecast.samples);
            hops[count] = (start, end);
            count += 1;
            let cap = self.rate_cap(from, via, to, (start, end), transfer)?;
            *part = Some(self.hop_part(hop, &widen(&forecast, now), cap, transfer));
        }
        let parts = || parts.iter().flatten();
        let mut seconds = [Quantiles::exactly(0.0); MAX_DEPOTS + 1];
        for (place, part) in seconds.iter_mut().zip(parts()) {
            *place = part.seconds;
        }
        let moving = maximum(seconds.get(..count)?);
        let rtt = sum(parts().map(|part| part.rtt));
        let around = |rtt: f64| HOST_SECONDS + ROUND_TRIPS_AROUND * rtt;
        // A longer round trip also lengthens what is done in it, so these two vary together.
        let time = Quantiles {
            p10: around(rtt.p10) + moving.p10,
            p50: around(rtt.p50) + moving.p50,
            p90: around(rtt.p90) + moving.p90,
        };
        let (slowest, part) = parts()
            .enumerate()
            .max_by(|one, other| one.1.seconds.p50.total_cmp(&other.1.seconds.p50))?;
        let longest = parts()
            .enumerate()
            .max_by(|one, other| one.1.rtt.p50.total_cmp(&other.1.rtt.p50))?
            .0;
        let limit = if around(rtt.p50) > moving.p50 {
            DominantLimit {
                kind: LimitKind::SetUp,
                hop: hops[longest],
            }
        } else if part.course.slow_start > part.course.seconds / 2.0 {
            DominantLimit {
                kind: LimitKind::SlowStart,
                hop: hops[slowest],
            }
        } else {
            DominantLimit {
                kind: part.kind,
                hop: hops[slowest],
            }
        };
        Some(ExpectedTime {
            time: around_median(
                time.p50,
                spread_below(&time).hypot(MODEL_SPREAD),
                spread_above(&time).hypot(MODEL_SPREAD),
            ),
            around: around(rtt.p50),
            limit,
            age,
            samples,
        })
    }

    /// Returns the time at the medians of all hops, in seconds. It is at most the median of
    /// [`Self::expected`], at a fifth of the cost.
    pub(super) fn time_at_medians(
        &self,
        from: NodeId,
        via: &RouteDepots,
        to: NodeId,
        transfer: &Transfer,
    ) -> Option<f64> {
        let streams = f64::from(transfer.streams.max(1));
        let bytes = transfer.bytes as f64 / streams;
        let (mut rtt, mut slowest) = (0.0, 0.0f64);
        for (start, end) in via.hops(from, to) {
            let hop = self.hop(start, end).filter(|hop| self.is_usable(*hop))?;
            let (cap, _) = self.rate_cap(from, via, to, (start, end), transfer)?;
            let known = self.forecast(hop)?;
            let one = self.connection(
                hop,
                known.rtt.p50,
                known.loss.p50,
                known.rate.p50.min(cap) / streams,
            );
            rtt += known.rtt.p50;
            slowest = slowest.max(one.course(bytes, MEDIAN_FIRST_LOSS).seconds);
        }
        Some(HOST_SECONDS + ROUND_TRIPS_AROUND * rtt + slowest)
    }

    /// Returns the rate limit of a hop's nodes for a transfer, and its kind. Returns `None` if a
    /// node in between is not a depot.
    fn rate_cap(
        &self,
        from: NodeId,
        via: &RouteDepots,
        to: NodeId,
        hop: (NodeId, NodeId),
        transfer: &Transfer,
    ) -> Option<(f64, LimitKind)> {
        let streams = f64::from(transfer.streams.max(1));
        let of = |id: NodeId| {
            if id == from || id == to {
                return Some((
                    self.node(id)?.host_rate.unwrap_or(f64::INFINITY),
                    LimitKind::Host,
                ));
            }
            debug_assert!(via.passes(id));
            Some((self.relay_rate(id, streams)?, LimitKind::Relay))
        };
        let (one, other) = (of(hop.0)?, of(hop.1)?);
        Some(if one.0 <= other.0 { one } else { other })
    }

    fn hop_part(
        &self,
        hop: HopId,
        forecast: &HopForecast,
        cap: (f64, LimitKind),
        transfer: &Transfer,
    ) -> HopPart {
        let streams = f64::from(transfer.streams.max(1));
        let bytes = transfer.bytes as f64 / streams;
        let one = |rtt: f64, loss: f64, rate: f64| {
            self.connection(hop, rtt, loss, rate.min(cap.0) / streams)
        };
        let (rtt, loss, rate) = (&forecast.rtt, &forecast.loss, &forecast.rate);
        let middle = one(rtt.p50, loss.p50, rate.p50);
        let course = middle.course(bytes, MEDIAN_FIRST_LOSS);
        let (mut below, mut above) = (0.0f64, 0.0f64);
        // Within a hop, quantities worsen together: a fuller queue delays more, loses more and
        // leaves less.
        if spread_above(rtt) > 0.0
            || spread_above(rate) > 0.0
            || spread_below(rtt) > 0.0
            || loss.p10 < loss.p90
        {
            let better = one(rtt.p10, loss.p10, rate.p90)
                .course(bytes, MEDIAN_FIRST_LOSS)
                .seconds;
            let worse = one(rtt.p90, loss.p90, rate.p10)
                .course(bytes, MEDIAN_FIRST_LOSS)
                .seconds;
            below = (course.seconds / better).ln().max(0.0);
            above = (worse / course.seconds).ln().max(0.0);
        }
        // Chance decides when the first loss comes, and how far apart the others are. Streams share
        // the work, and so this luck.
        if loss.p50 > 0.0 && course.seconds > 0.0 {
            let luck = 1.0 / streams.sqrt();
            let towards =
                |extreme: f64| MEDIAN_FIRST_LOSS * (extreme / MEDIAN_FIRST_LOSS).powf(luck);
            let late = middle.course(bytes, towards(LATE_FIRST_LOSS)).seconds;
            let early = middle.course(bytes, towards(EARLY_FIRST_LOSS)).seconds;
            let spacing = LOSS_SPREAD * course.after_loss
                / course.seconds
                / (1.0 + course.losses * streams).sqrt();
            below = below
                .hypot((course.seconds / late).ln().max(0.0))
                .hypot(spacing);
            above = above
                .hypot((early / course.seconds).ln().max(0.0))
                .hypot(spacing);
        }
        let kind = if course.after_loss > course.seconds / 2.0
            && middle.under_loss() < middle.without_loss()
        {
            LimitKind::Loss
        } else if middle.without_loss() < middle.rate {
            LimitKind::Window
        } else if cap.0 < rate.p50 {
            cap.1
        } else {
            LimitKind::Rate
        };
        HopPart {
            rtt: *rtt,
            seconds: around_median(course.seconds, below, above),
            course,
            kind,
        }
    }
}

/// Returns the width of a forecast's rate at present, from p10 to p90, as a logarithm. Of two
/// forecasts of one hop, the one with less width is more precise.
#[must_use]
pub fn rate_uncertainty(forecast: &HopForecast, now: f64) -> f64 {
    let rate = widen(forecast, now).rate;
    spread_below(&rate) + spread_above(&rate)
}

/// Returns a forecast as of now: wider if it rests on few samples, and with age.
#[must_use]
pub fn widen(forecast: &HopForecast, now: f64) -> HopForecast {
    let few = (1.0 + SAMPLES_SPREAD / f64::from(forecast.samples.max(1))).sqrt();
    let walked = DRIFT_SPREAD * ((now - forecast.at).max(0.0) / DRIFT_SECONDS).sqrt();
    let wider = |q: &Quantiles, walked: f64| {
        around_median(
            q.p50,
            (spread_below(q) * few).hypot(walked),
            (spread_above(q) * few).hypot(walked),
        )
    };
    let loss = wider(&forecast.loss, walked);
    HopForecast {
        rtt: wider(&forecast.rtt, 0.0), // distances do not drift
        rate: wider(&forecast.rate, walked),
        loss: Quantiles {
            p10: loss.p10.min(forecast.loss.p10),
            p50: loss.p50,
            p90: loss.p90.max(forecast.loss.p90).min(1.0),
        },
        ..*forecast
    }
}

#[cfg(test)]
mod tests;
