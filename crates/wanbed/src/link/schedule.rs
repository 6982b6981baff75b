//! Current values of a direction, and the next change by its trace.

use super::Nanos;
use crate::spec::{BitRate, DirectionSpec, LossModel, Trace, TraceStep};

/// A direction's current rate, delay and loss model.
#[derive(Debug, Clone)]
pub struct Schedule {
    /// Rate in bit/s; `None` is unlimited, zero an outage.
    pub rate: Option<u64>,
    /// One-way propagation delay.
    pub delay: Nanos,
    /// Loss on the wire.
    pub loss: LossModel,
    trace: Option<Trace>,
    /// Index of the next step, and the beginning of its cycle.
    next: usize,
    cycle: Nanos,
}

impl Schedule {
    /// Returns the values of `spec` at time 0.
    #[must_use]
    pub fn new(spec: &DirectionSpec) -> Self {
        Self {
            rate: spec.rate.map(BitRate::bits_per_second),
            delay: spec.delay.as_nanos() as Nanos,
            loss: spec.loss,
            trace: spec.changes.clone(),
            next: 0,
            cycle: 0,
        }
    }

    /// Returns the time of the next change.
    #[must_use]
    pub fn next_change(&self) -> Option<Nanos> {
        self.next_step().map(|(at, _)| at)
    }

    /// Makes the next change if it is due by `now`. Returns true if it was.
    pub fn change_by(&mut self, now: Nanos) -> bool {
        let Some((_, step)) = self.next_step().filter(|(at, _)| *at <= now) else {
            return false;
        };
        let TraceStep {
            rate, delay, loss, ..
        } = *step;
        self.rate = rate.map(BitRate::bits_per_second).or(self.rate);
        self.delay = delay.map_or(self.delay, |delay| delay.as_nanos() as Nanos);
        self.loss = loss.unwrap_or(self.loss);
        self.next += 1;
        if let Some(Trace {
            steps,
            repeat_after: Some(cycle),
        }) = &self.trace
            && self.next == steps.len()
        {
            self.next = 0;
            self.cycle += cycle.as_nanos() as Nanos;
        }
        true
    }

    fn next_step(&self) -> Option<(Nanos, &TraceStep)> {
        let step = self.trace.as_ref()?.steps.get(self.next)?;
        Some((self.cycle + step.at.as_nanos() as Nanos, step))
    }
}

/// Returns the shortest delay that a direction ever has.
#[must_use]
pub fn least_delay(spec: &DirectionSpec) -> Nanos {
    let steps = spec.changes.iter().flat_map(|trace| &trace.steps);
    let delays = steps.filter_map(|step| step.delay).chain([spec.delay]);
    delays.min().unwrap_or_default().as_nanos() as Nanos
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn step(ms: u64, rate: Option<u64>, delay_ms: Option<u64>) -> TraceStep {
        TraceStep {
            at: Duration::from_millis(ms),
            rate: rate.map(BitRate),
            delay: delay_ms.map(Duration::from_millis),
            loss: None,
        }
    }

    #[test]
    fn steps_change_what_they_name_and_start_over() {
        let spec = DirectionSpec {
            delay: Duration::from_millis(5),
            rate: Some(BitRate(100)),
            queue: 1500,
            loss: LossModel::None,
            changes: Some(Trace {
                steps: vec![step(0, Some(200), None), step(10, None, Some(7))],
                repeat_after: Some(Duration::from_millis(30)),
            }),
            ..DirectionSpec::default()
        };
        let mut schedule = Schedule::new(&spec);
        assert!(schedule.change_by(0));
        assert_eq!((schedule.rate, schedule.delay), (Some(200), 5_000_000));
        assert!(!schedule.change_by(9_999_999));
        assert!(schedule.change_by(10_000_000));
        assert_eq!((schedule.rate, schedule.delay), (Some(200), 7_000_000));
        assert_eq!(schedule.next_change(), Some(30_000_000));
        assert!(schedule.change_by(50_000_000) && schedule.change_by(50_000_000));
        assert_eq!(schedule.next_change(), Some(60_000_000));
    }

    #[test]
    fn without_repeat_the_last_step_stays() {
        let spec = DirectionSpec {
            delay: Duration::ZERO,
            rate: None,
            queue: 0,
            loss: LossModel::None,
            changes: Some(Trace {
                steps: vec![step(1, Some(9), None)],
                repeat_after: None,
            }),
            ..DirectionSpec::default()
        };
        let mut schedule = Schedule::new(&spec);
        assert!(schedule.change_by(Nanos::MAX));
        assert_eq!((schedule.next_change(), schedule.rate), (None, Some(9)));
    }
}
