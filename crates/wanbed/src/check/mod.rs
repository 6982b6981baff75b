//! Measurement of a link against what the scenario asks of it, with UDP probes that are sent and
//! received inside the nodes.
//!
//! One direction is measured at a time. Delay is measured with single small packets, rate with a
//! burst at 1.25 times the rate asked, and loss with many small packets at a rate that never fills
//! the queue. Then follows each kind of noise that was asked for. The probes are bound to the
//! link's own device, so no route can lead them elsewhere.

mod disturbed;
mod judge;
mod loss;
mod noise;
mod probe;
mod receive;
mod socket;
mod train;

use std::time::Duration;

use crate::daemon::build::Running;
use crate::error::{Error, Result};
use crate::link::DirectionSnapshot;
use crate::spec::{BitRate, DirectionSpec, LossModel};
pub use judge::{Finding, LinkCheck, LinkVerdict};
use probe::Probe;

/// Maximum duration of a measurement, for which a traced link has to stay unchanged.
const MAX_MEASUREMENT_TIME: Duration = Duration::from_secs(11);
/// Maximum wait for the next step of a traced link.
const MAX_WAIT_FOR_STEP: Duration = Duration::from_secs(30);

/// Number of attempts to measure a property before it is judged as off.
const MAX_ATTEMPTS: u32 = 3;

/// Values that a direction should have now.
#[derive(Debug, Clone, Copy, PartialEq)]
struct TargetValues {
    delay: Duration,
    rate: Option<BitRate>,
    loss: LossModel,
}

/// One direction of a link of a running lab, with probes at its ends.
struct DirectionBench<'a> {
    lab: &'a Running,
    link: usize,
    forward: bool,
    way: &'a DirectionSpec,
    mtu: u32,
    probe: Probe,
}

/// Measures one direction of a link of a running lab.
pub(crate) fn measure(lab: &Running, link: usize, forward: bool) -> Result<LinkCheck> {
    let Some(spec) = lab.network.links.get(link) else {
        return Err(Error::Refused(format!(
            "there is no link number {link}: there are {}",
            lab.network.links.len()
        )));
    };
    let (way, from, to) = if forward {
        (&spec.spec.forward, spec.a, spec.b)
    } else {
        (&spec.spec.backward, spec.b, spec.a)
    };
    let name = |node: usize| lab.network.nodes[node].name.clone();
    let bench = DirectionBench {
        lab,
        link,
        forward,
        way,
        mtu: spec.spec.mtu,
        probe: Probe::open(lab, spec, from, to)?,
    };
    Ok(LinkCheck {
        link: spec.spec.name.clone(),
        from: name(from),
        to: name(to),
        findings: bench.findings()?,
    })
}

impl DirectionBench<'_> {
    fn findings(&self) -> Result<Vec<Finding>> {
        let mut all = match (self.way.jitter, self.way.cross) {
            (Some(jitter), None) => self.check_jitter(jitter)?,
            (Some(_), Some(_)) => {
                let why = || "jitter and cross traffic both move the delay".to_owned();
                vec![
                    Finding::unmeasured("delay", why()),
                    Finding::unmeasured("jitter", why()),
                ]
            }
            (None, _) => vec![self.delay()?],
        };
        all.push(self.rate()?);
        all.push(self.loss()?);
        if let Some(reorder) = self.way.reorder {
            all.push(self.check_reorder(reorder)?);
        }
        if let Some(aqm) = self.way.aqm {
            all.extend(self.check_queue(aqm)?);
        }
        if let Some(cross) = self.way.cross {
            all.push(self.check_cross(cross)?);
        }
        all.extend(self.check_fall()?);
        Ok(all)
    }

    fn delay(&self) -> Result<Finding> {
        self.while_still("delay", |asked| {
            let delays = self.probe.delays(self.slack(asked))?;
            Ok(judge::delay(asked, &delays, self.way.cross.is_some()))
        })
    }

    fn loss(&self) -> Result<Finding> {
        self.while_still("loss", |asked| {
            let before = self.counters()?;
            let mut losses = self.probe.losses(asked, self.slack(asked))?;
            if self.way.cross.is_some() {
                // Segments for which the queue had no space, because of other traffic, were not
                // lost on the wire.
                let after = self.counters()?;
                let queue =
                    |counters: &DirectionSnapshot| counters.drops_queue + counters.drops_aqm;
                losses.sent = losses.sent.saturating_sub(queue(&after) - queue(&before));
            }
            Ok(judge::loss(asked, losses))
        })
    }

    /// Measures a property while the trace of the direction, if it has one, changes nothing.
    fn while_still(
        &self,
        what: &str,
        mut measure: impl FnMut(TargetValues) -> Result<Finding>,
    ) -> Result<Finding> {
        until_as_asked(|| match hold_still(self.way, || self.lab.age()) {
            Ok(asked) => measure(asked),
            Err(why) => Ok(Finding::unmeasured(what, why)),
        })
    }

    fn counters(&self) -> Result<DirectionSnapshot> {
        self.lab.direction(self.link, self.forward)
    }

    /// Returns the maximum time from sending the last probe to its arrival.
    fn slack(&self, asked: TargetValues) -> Duration {
        let queue = asked
            .rate
            .map_or(Duration::ZERO, |rate| drain_time(self.way.queue, rate));
        let held = self
            .way
            .reorder
            .map_or(Duration::ZERO, |reorder| reorder.by);
        let jitter = self
            .way
            .jitter
            .map_or(0, |jitter| crate::link::jitter_amplitude(&jitter));
        asked.delay + queue + held + Duration::from_nanos(2 * jitter)
    }
}

/// Measures again if the result is off: a disturbance of the machine spoils one measurement, a
/// wrong emulator all of them.
fn until_as_asked(mut measure: impl FnMut() -> Result<Finding>) -> Result<Finding> {
    let mut found = measure()?;
    for _ in 1..MAX_ATTEMPTS {
        if found.verdict != LinkVerdict::Off {
            break;
        }
        found = measure()?;
    }
    Ok(found)
}

fn drain_time(queue: u64, rate: BitRate) -> Duration {
    Duration::from_secs_f64(queue as f64 * 8.0 / rate.bits_per_second().max(1) as f64)
}

/// Returns the values in force, after waiting for the next step of a trace if it is near.
fn hold_still(way: &DirectionSpec, age: impl Fn() -> Duration) -> Result<TargetValues, String> {
    let (asked, next) = in_force(way, age());
    match next {
        Some(wait) if wait < MAX_MEASUREMENT_TIME => {
            std::thread::sleep(wait.min(MAX_WAIT_FOR_STEP) + Duration::from_millis(50));
            let (asked, next) = in_force(way, age());
            match next {
                Some(wait) if wait < MAX_MEASUREMENT_TIME => {
                    Err("its trace changes faster than a measurement takes".to_owned())
                }
                _ => Ok(asked),
            }
        }
        _ => Ok(asked),
    }
}

/// Returns the values of a direction at an age of the link, and for how long they stay in force.
fn in_force(way: &DirectionSpec, age: Duration) -> (TargetValues, Option<Duration>) {
    let mut asked = TargetValues {
        delay: way.delay,
        rate: way.rate,
        loss: way.loss,
    };
    let Some(trace) = &way.changes else {
        return (asked, None);
    };
    let mut apply = |step: &crate::spec::TraceStep| {
        asked.delay = step.delay.unwrap_or(asked.delay);
        asked.rate = step.rate.or(asked.rate);
        asked.loss = step.loss.unwrap_or(asked.loss);
    };
    let (round, at) = match trace.repeat_after {
        Some(cycle) if !cycle.is_zero() => {
            let rounds = age.as_nanos() / cycle.as_nanos();
            (
                rounds,
                Duration::from_nanos(
                    u64::try_from(age.as_nanos() % cycle.as_nanos()).unwrap_or(u64::MAX),
                ),
            )
        }
        _ => (0, age),
    };
    if round > 0 {
        trace.steps.iter().for_each(&mut apply);
    }
    trace
        .steps
        .iter()
        .take_while(|step| step.at <= at)
        .for_each(&mut apply);
    let later = trace
        .steps
        .iter()
        .find(|step| step.at > at)
        .map(|step| step.at - at);
    let around = || Some(trace.repeat_after? - at + trace.steps.first()?.at);
    (asked, later.or_else(around))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Trace, TraceStep};

    #[test]
    fn the_values_in_force_follow_the_trace_round_and_round() {
        let step = |at: u64, mbit: Option<u64>, ms: Option<u64>| TraceStep {
            at: Duration::from_secs(at),
            rate: mbit.map(|m| BitRate(m * 1_000_000)),
            delay: ms.map(Duration::from_millis),
            loss: None,
        };
        let way = DirectionSpec {
            delay: Duration::from_millis(50),
            rate: Some(BitRate(1_000_000)),
            queue: 100_000,
            loss: LossModel::None,
            changes: Some(Trace {
                steps: vec![step(10, Some(2), None), step(20, None, Some(70))],
                repeat_after: Some(Duration::from_secs(30)),
            }),
            ..DirectionSpec::default()
        };
        let at = |seconds: u64| {
            let (asked, next) = in_force(&way, Duration::from_secs(seconds));
            (
                asked.rate.map_or(0, |rate| rate.0 / 1_000_000),
                asked.delay.as_millis(),
                next.map(|next| next.as_secs()),
            )
        };
        assert_eq!(at(0), (1, 50, Some(10)));
        assert_eq!(at(10), (2, 50, Some(10)));
        assert_eq!(at(25), (2, 70, Some(15)));
        assert_eq!(
            at(35),
            (2, 70, Some(5)),
            "a new round begins with what the last one left"
        );
    }
}
