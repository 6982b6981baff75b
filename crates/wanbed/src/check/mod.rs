//! Measuring a link against what the scenario asked of it, with UDP probes that are sent and received from inside the nodes.
//!
//! One direction at a time: delay with single small packets, rate with a burst at 1.2 times the rate asked, loss with many
//! small packets at a rate the queue never feels. The probes are bound to the link's own device, so no route can lead them elsewhere.

mod judge;
mod probe;

use std::time::Duration;

use crate::daemon::Running;
use crate::error::{Error, Result};
use crate::spec::{BitRate, DirectionSpec, LossModel};
pub use judge::{Finding, LinkCheck, Verdict};
use probe::Probe;

/// A measurement takes about this long, so a traced link has to hold still that long.
const LONG_ENOUGH: Duration = Duration::from_secs(8);
/// Most that is waited for a traced link to begin its next step.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// How often delay and rate are measured before they are called off.
const ATTEMPTS: u32 = 3;

/// What a direction should do now.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Asked {
    delay: Duration,
    rate: Option<BitRate>,
    loss: LossModel,
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
    let findings = match hold_still(way, || lab.age()) {
        Err(reason) => vec![Finding::unmeasured("delay, rate and loss", reason)],
        Ok(asked) => {
            let probe = Probe::open(lab, spec, from, to)?;
            let slack = asked.delay
                + asked
                    .rate
                    .map_or(Duration::ZERO, |rate| drain_time(way.queue, rate));
            vec![
                until_as_asked(|| Ok(judge::delay(asked, &probe.delays(slack)?)))?,
                match asked.rate {
                    Some(rate) => {
                        until_as_asked(|| Ok(judge::rate(asked, rate, &probe.overload(rate, slack)?)))?
                    }
                    None => Finding::unmeasured("rate", "unlimited: there is nothing to measure".to_owned()),
                },
                judge::loss(asked, probe.losses(asked, slack)?),
            ]
        }
    };
    Ok(LinkCheck {
        link: spec.spec.name.clone(),
        from: name(from),
        to: name(to),
        findings,
    })
}

/// Measures again when the first answer is off: a disturbance of the machine's spoils one measurement, an emulator that is off spoils all.
fn until_as_asked(mut measure: impl FnMut() -> Result<Finding>) -> Result<Finding> {
    let mut found = measure()?;
    for _ in 1..ATTEMPTS {
        if found.verdict != Verdict::Off {
            break;
        }
        found = measure()?;
    }
    Ok(found)
}

fn drain_time(queue: u64, rate: BitRate) -> Duration {
    Duration::from_secs_f64(queue as f64 * 8.0 / rate.bits_per_second().max(1) as f64)
}

/// The values in force, after waiting for the next step of a trace when one is near.
fn hold_still(way: &DirectionSpec, age: impl Fn() -> Duration) -> Result<Asked, String> {
    let (asked, next) = in_force(way, age());
    match next {
        Some(wait) if wait < LONG_ENOUGH => {
            std::thread::sleep(wait.min(LONGEST_WAIT) + Duration::from_millis(50));
            let (asked, next) = in_force(way, age());
            match next {
                Some(wait) if wait < LONG_ENOUGH => {
                    Err("its trace changes faster than a measurement takes".to_owned())
                }
                _ => Ok(asked),
            }
        }
        _ => Ok(asked),
    }
}

/// What a direction should do at an age of the link, and how long that stays so.
fn in_force(way: &DirectionSpec, age: Duration) -> (Asked, Option<Duration>) {
    let mut asked = Asked {
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
                Duration::from_nanos(u64::try_from(age.as_nanos() % cycle.as_nanos()).unwrap_or(u64::MAX)),
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
