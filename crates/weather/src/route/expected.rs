//! The time of a transfer over a whole route, and what limits it.
//!
//! A chain sets up and ends with round trips of its whole length, and in between runs at its
//! slowest hop: hops work side by side, each in its own round trip.

use serde::{Deserialize, Serialize};

use super::combine::{about, greatest, spread_above, spread_below, sum};
use super::map::{HopForecast, HopId, Map};
use super::model::{Course, EARLY_FIRST_LOSS, LATE_FIRST_LOSS, MEDIAN_FIRST_LOSS};
use super::{MAX_DEPOTS, NodeId, Transfer, Via};
use crate::Quantiles;

/// Round trips of the whole chain around the data: one for the connections, one for OPEN, TLS and
/// their answers (`docs/protocol.md`: depots add none), and two halves for the data to arrive and
/// the receipt to come back.
pub const ROUND_TRIPS_AROUND: f64 = 3.0;
/// What both programs take to start and to end, in seconds: a file of one byte takes 5.6 ms more
/// than its round trips (`docs/results/first-byte.md`).
pub const HOST_SECONDS: f64 = 0.0056;
/// How far off the model is where all that goes into it is known and nothing is lost, as the
/// logarithm of p90 by the median: about the median error over all published runs
/// (`docs/routing.md`).
pub const MODEL_SPREAD: f64 = 0.05;
/// The spread of the time under loss after one loss; it falls with the root of their number.
/// (Windows between half and whole of their greatest, and distances between losses that vary as
/// much as they are long.)
const LOSS_SPREAD: f64 = 0.6;
/// A forecast of few samples is wider: its squared spread grows by this over their number.
const SAMPLES_SPREAD: f64 = 4.0;
/// How far a hop's quantities walk in [`WALK_SECONDS`], as the logarithm of p90 by the median: how
/// an old forecast widens.
const WALK_SPREAD: f64 = 0.15;
const WALK_SECONDS: f64 = 600.0;

/// What is expected of a transfer over a route.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Expected {
    /// From the start of the command to the receipt, in seconds.
    pub time: Quantiles,
    /// What of that goes around the data, at the median, in seconds.
    pub around: f64,
    /// What limits it most.
    pub limit: Limit,
    /// The age of the oldest forecast that it rests on, in seconds.
    pub age: f64,
    /// The fewest samples that one of them rests on.
    pub samples: u32,
}

/// What holds a transfer back more than all else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// What it is.
    pub kind: LimitKind,
    /// The hop where it is; the longest one, for set-up.
    pub hop: (NodeId, NodeId),
}

/// What can hold a transfer back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LimitKind {
    /// Round trips before and behind the data.
    SetUp,
    /// The data is sent before the window has grown.
    SlowStart,
    /// What others leave of the hop's rate.
    Rate,
    /// The hosts' largest window.
    Window,
    /// Losses cut the congestion window.
    Loss,
    /// What a depot relays.
    Relay,
    /// An end's disk or processors.
    Host,
}

/// What one hop does for a transfer.
struct Part {
    rtt: Quantiles,
    seconds: Quantiles,
    course: Course,
    kind: LimitKind,
}

impl Map {
    /// What is expected of a transfer over a route; `None` where a hop of it is not in the map,
    /// unknown or dead, or a place on the way is no depot, or a dead one.
    #[must_use]
    pub fn expected(
        &self,
        from: NodeId,
        via: &Via,
        to: NodeId,
        transfer: &Transfer,
        now: f64,
    ) -> Option<Expected> {
        let mut parts = [const { None::<Part> }; MAX_DEPOTS + 1];
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
            let cap = self.cap(from, via, to, (start, end), transfer)?;
            *part = Some(self.part(hop, &widened(&forecast, now), cap, transfer));
        }
        let parts = || parts.iter().flatten();
        let mut seconds = [Quantiles::exactly(0.0); MAX_DEPOTS + 1];
        for (place, part) in seconds.iter_mut().zip(parts()) {
            *place = part.seconds;
        }
        let moving = greatest(seconds.get(..count)?);
        let rtt = sum(parts().map(|part| part.rtt));
        let around = |rtt: f64| HOST_SECONDS + ROUND_TRIPS_AROUND * rtt;
        // What lengthens a round trip lengthens what is done in it: these two vary together.
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
            Limit {
                kind: LimitKind::SetUp,
                hop: hops[longest],
            }
        } else if part.course.slow_start > part.course.seconds / 2.0 {
            Limit {
                kind: LimitKind::SlowStart,
                hop: hops[slowest],
            }
        } else {
            Limit {
                kind: part.kind,
                hop: hops[slowest],
            }
        };
        Some(Expected {
            time: about(
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

    /// The same at the medians of all hops, in seconds: no more than the median of
    /// [`Self::expected`], and had for a fifth of its cost.
    pub(super) fn at_medians(
        &self,
        from: NodeId,
        via: &Via,
        to: NodeId,
        transfer: &Transfer,
    ) -> Option<f64> {
        let streams = f64::from(transfer.streams.max(1));
        let bytes = transfer.bytes as f64 / streams;
        let (mut rtt, mut slowest) = (0.0, 0.0f64);
        for (start, end) in via.hops(from, to) {
            let hop = self.hop(start, end).filter(|hop| self.is_usable(*hop))?;
            let (cap, _) = self.cap(from, via, to, (start, end), transfer)?;
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

    /// The most that the nodes of a hop let a transfer have, and whose limit that is. `None` where
    /// a place on the way is no depot.
    fn cap(
        &self,
        from: NodeId,
        via: &Via,
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
            Some((self.relayed(id, streams)?, LimitKind::Relay))
        };
        let (one, other) = (of(hop.0)?, of(hop.1)?);
        Some(if one.0 <= other.0 { one } else { other })
    }

    fn part(
        &self,
        hop: HopId,
        forecast: &HopForecast,
        cap: (f64, LimitKind),
        transfer: &Transfer,
    ) -> Part {
        let streams = f64::from(transfer.streams.max(1));
        let bytes = transfer.bytes as f64 / streams;
        let one = |rtt: f64, loss: f64, rate: f64| {
            self.connection(hop, rtt, loss, rate.min(cap.0) / streams)
        };
        let (rtt, loss, rate) = (&forecast.rtt, &forecast.loss, &forecast.rate);
        let middle = one(rtt.p50, loss.p50, rate.p50);
        let course = middle.course(bytes, MEDIAN_FIRST_LOSS);
        let (mut below, mut above) = (0.0f64, 0.0f64);
        // Within a hop, what is forecast worsens together: a fuller queue is longer, loses more and
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
        // By chance: when the first loss comes, and how the others are spaced. Streams share out
        // the work, and so their luck.
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
        Part {
            rtt: *rtt,
            seconds: about(course.seconds, below, above),
            course,
            kind,
        }
    }
}

/// How wide the rate of a forecast is as it stands now, from p10 to p90, as a logarithm: of two
/// forecasts of one hop, the one with less says more.
#[must_use]
pub fn doubt(forecast: &HopForecast, now: f64) -> f64 {
    let rate = widened(forecast, now).rate;
    spread_below(&rate) + spread_above(&rate)
}

/// A forecast as it stands now: wider where it rests on few samples, and the older it is.
#[must_use]
pub fn widened(forecast: &HopForecast, now: f64) -> HopForecast {
    let few = (1.0 + SAMPLES_SPREAD / f64::from(forecast.samples.max(1))).sqrt();
    let walked = WALK_SPREAD * ((now - forecast.at).max(0.0) / WALK_SECONDS).sqrt();
    let wider = |q: &Quantiles, walked: f64| {
        about(
            q.p50,
            (spread_below(q) * few).hypot(walked),
            (spread_above(q) * few).hypot(walked),
        )
    };
    let loss = wider(&forecast.loss, walked);
    HopForecast {
        rtt: wider(&forecast.rtt, 0.0), // distances do not walk
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
