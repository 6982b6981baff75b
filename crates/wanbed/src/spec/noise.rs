//! Disturbances of a direction besides loss: varying delay, packets that overtake, active queue
//! management, and cross traffic.

use std::time::Duration;

use serde::Serialize;

use super::{BitRate, SpecError, wrong};

/// Delay that varies about its mean, by packet or over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct JitterSpec {
    /// Standard deviation of the one-way delay.
    pub deviation: Duration,
    /// If true, packets may overtake each other: each has an independent delay. Otherwise the delay
    /// is a continuous function of time that never falls as fast as time passes, and the order is
    /// kept.
    pub reorder: bool,
}

/// Single segments that are held up, so that later ones overtake them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ReorderSpec {
    /// Probability for each segment.
    pub probability: f64,
    /// Additional delay of a held segment.
    pub by: Duration,
}

/// CoDel (RFC 8289) at the bottleneck's queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CodelSpec {
    /// Standing delay that the queue may have (TARGET in the RFC).
    pub target: Duration,
    /// Time for which the delay may stay above the target before CoDel acts (INTERVAL in the RFC):
    /// about the longest round trip of the connections that cross the link.
    pub interval: Duration,
}

impl CodelSpec {
    /// Values of RFC 8289, section 4.
    pub const RFC_8289: Self = Self {
        target: Duration::from_millis(5),
        interval: Duration::from_millis(100),
    };
}

/// Cross traffic. It reaches the bottleneck in bursts, takes space in its queue and time of its
/// transmitter, and is then discarded. The lengths of bursts and pauses are exponentially
/// distributed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CrossSpec {
    /// Rate at which packets of the link's MTU arrive during a burst.
    pub rate: BitRate,
    /// Mean length of a burst.
    pub on: Duration,
    /// Mean length of a pause; zero means traffic without pauses.
    pub off: Duration,
}

impl CrossSpec {
    /// Returns the long-run rate, in bit/s.
    #[must_use]
    pub fn mean_rate(&self) -> f64 {
        let (on, off) = (self.on.as_secs_f64(), self.off.as_secs_f64());
        self.rate.bits_per_second() as f64 * on / (on + off)
    }
}

const MAX_DEVIATION: Duration = Duration::from_secs(1);
/// Minimum deviation; finer jitter would be lost in the emulator's own lag.
const MIN_DEVIATION: Duration = Duration::from_micros(1);
const MAX_REORDER_DELAY: Duration = Duration::from_secs(10);
const MAX_TIME_SCALE: Duration = Duration::from_secs(3_600);
/// Minimum length of a burst; shorter ones are single packets.
const MIN_BURST: Duration = Duration::from_micros(100);

impl JitterSpec {
    pub(crate) fn check(&self) -> Result<(), SpecError> {
        if (MIN_DEVIATION..=MAX_DEVIATION).contains(&self.deviation) {
            Ok(())
        } else {
            Err(wrong("deviation", "must be from 1 us to 1 s"))
        }
    }
}

impl ReorderSpec {
    pub(crate) fn check(&self) -> Result<(), SpecError> {
        if !(0.0..=1.0).contains(&self.probability) {
            return Err(wrong("probability", "must be a probability from 0 to 1"));
        }
        if self.by.is_zero() || self.by > MAX_REORDER_DELAY {
            return Err(wrong("by", "must be more than 0 and at most 10 s"));
        }
        Ok(())
    }
}

impl CodelSpec {
    pub(crate) fn check(&self) -> Result<(), SpecError> {
        if self.target.is_zero() || self.target > self.interval {
            return Err(wrong(
                "target",
                "must be more than 0 and at most the interval",
            ));
        }
        if self.interval > MAX_TIME_SCALE {
            return Err(wrong("interval", "must be at most an hour"));
        }
        Ok(())
    }
}

impl CrossSpec {
    pub(crate) fn check(&self) -> Result<(), SpecError> {
        if self.rate.bits_per_second() == 0 {
            return Err(wrong("rate", "must be more than zero"));
        }
        super::check_rate(Some(self.rate))?;
        if !(MIN_BURST..=MAX_TIME_SCALE).contains(&self.on) {
            return Err(wrong("on", "must be from 100 us to an hour"));
        }
        if self.off > MAX_TIME_SCALE {
            return Err(wrong("off", "must be at most an hour"));
        }
        Ok(())
    }
}
