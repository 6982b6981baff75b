//! Single drops at stated times, for experiments on the effect of one loss.

use std::collections::VecDeque;

use super::Nanos;
use crate::spec::DirectionSpec;

/// Times at which a direction loses one segment each.
#[derive(Debug)]
pub struct TimedDrops {
    /// Times that are still to come, in ascending order.
    times: VecDeque<Nanos>,
}

impl TimedDrops {
    /// Returns the drops of a direction.
    #[must_use]
    pub fn new(spec: &DirectionSpec) -> Self {
        Self {
            times: spec
                .drop_at
                .iter()
                .map(|at| at.as_nanos() as Nanos)
                .collect(),
        }
    }

    /// Returns true if the segment that the transmitter takes at the time `now` is lost. Each time
    /// applies to one segment.
    pub fn take(&mut self, now: Nanos) -> bool {
        let due = self.times.front().is_some_and(|at| *at <= now);
        if due {
            self.times.pop_front();
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_time_loses_one_segment() {
        let mut drops = TimedDrops::new(&DirectionSpec {
            drop_at: vec![Duration::from_nanos(5), Duration::from_nanos(6)],
            ..DirectionSpec::default()
        });
        let lost = [4, 5, 5, 7, 8].map(|now| drops.take(now));
        assert_eq!(lost, [false, true, false, true, false]);
    }
}
