//! A record as single values.

use drs::Limit;

use crate::Moment;
use crate::record::{Kind, Record};

/// What of a path is measured, and in which unit. The controller's API has a type of its own, for
/// those of them that a controller takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Quantity {
    /// What it carries, in bit/s.
    Rate,
    /// The round-trip time, in seconds.
    Rtt,
    /// The delay one way, in seconds.
    Delay,
    /// The share of segments or packets that are lost, 0 to 1.
    Loss,
    /// The mean difference of delays that follow each other, in seconds.
    Jitter,
}

/// What a value says of its quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Bound {
    /// It had this value.
    Exact,
    /// It had this value or a greater one: the measurement is censored, by something other than the
    /// path.
    AtLeast,
}

/// One value of one quantity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// Of what.
    pub quantity: Quantity,
    /// The middle of the measurement, in milliseconds since the Unix epoch.
    pub at_ms: Moment,
    /// How much, in the quantity's unit.
    pub value: f64,
    /// What it says.
    pub bound: Bound,
}

impl Record {
    /// The middle of the time that it took.
    #[must_use]
    pub fn at_ms(&self) -> Moment {
        let half = (self.duration_s * 500.0).clamp(0.0, 1e15);
        self.start_ms.saturating_add(half as Moment)
    }

    /// Whether its rate is what the path had to offer, or only a lower bound of that.
    ///
    /// The path and losses on it are the path's own doing. All else that limits a flow is not:
    /// programs, buffers, windows, pacing, and a congestion window that still grows. Where the
    /// limit is not known, a program that was made to fill the path is taken to have done so, a
    /// copy or a relayed session is not.
    #[must_use]
    pub const fn rate_bound(&self) -> Bound {
        match self.conditions.limit {
            Some(Limit::Path | Limit::Loss) => Bound::Exact,
            Some(_) => Bound::AtLeast,
            None if self.method.is_active() => Bound::Exact,
            None => Bound::AtLeast,
        }
    }

    /// Its values, one by one. Of round trips it is the median (the mean, where that is not known):
    /// for a path that is what comes next; of a transfer it is the least, since the rest is the
    /// queue that the transfer itself made.
    pub fn samples(&self) -> impl Iterator<Item = Sample> {
        let at_ms = self.at_ms();
        let values = &self.values;
        let own_queue = self.kind == Kind::Throughput;
        let middle = move |times: crate::Distribution| match own_queue {
            true => times.min_s,
            false => times.p50_s.unwrap_or(times.mean_s),
        };
        [
            (Quantity::Rate, values.rate_bps, self.rate_bound()),
            (Quantity::Rtt, values.rtt.map(middle), Bound::Exact),
            (Quantity::Delay, values.delay.map(middle), Bound::Exact),
            (Quantity::Loss, values.loss, Bound::Exact),
            (Quantity::Jitter, values.jitter_s, Bound::Exact),
        ]
        .into_iter()
        .filter_map(move |(quantity, value, bound)| {
            Some(Sample {
                quantity,
                at_ms,
                value: value?,
                bound,
            })
        })
    }
}
