//! Specification of an emulated link, with everything resolved to plain numbers: a scenario's "one
//! bandwidth-delay product" is a number of bytes here. It is the only input of the link engine.

mod noise;

use std::fmt;
use std::time::Duration;

use serde::Serialize;

pub use noise::{CodelSpec, CrossSpec, JitterSpec, ReorderSpec};

/// A bit rate in bit/s of IP bytes (headers of IP and above count, link-layer framing does not).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct BitRate(pub u64);

impl BitRate {
    /// Returns the rate in bit/s.
    #[must_use]
    pub const fn bits_per_second(self) -> u64 {
        self.0
    }

    /// Returns the bytes that fit into `time` at this rate, rounded down.
    #[must_use]
    pub fn bytes_in(self, time: Duration) -> u64 {
        let bytes = u128::from(self.0) * time.as_nanos() / 8_000_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bits if bits >= 1_000_000_000 => write!(f, "{} Gbit/s", bits as f64 / 1e9),
            bits if bits >= 1_000_000 => write!(f, "{} Mbit/s", bits as f64 / 1e6),
            bits if bits >= 1_000 => write!(f, "{} kbit/s", bits as f64 / 1e3),
            bits => write!(f, "{bits} bit/s"),
        }
    }
}

/// A link between two ends, a and b.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LinkSpec {
    /// Name in the scenario; used in errors and thread names.
    pub name: String,
    /// Largest IP packet that it carries, in bytes. Larger ones are dropped and counted.
    pub mtu: u32,
    /// Direction from a to b.
    pub forward: DirectionSpec,
    /// Direction from b to a.
    pub backward: DirectionSpec,
    /// Seed of every random process of the link. Each process of each direction has its own
    /// sequence. The same seed loses the same segments, counted in each direction, whatever else is
    /// set.
    pub seed: u64,
}

/// One direction of a link. The default is a link without delay, limit or noise.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct DirectionSpec {
    /// One-way propagation delay, in addition to the time for serializing a packet.
    pub delay: Duration,
    /// Serialization rate; `None` is unlimited, zero is an outage (only sensible before a trace
    /// step).
    pub rate: Option<BitRate>,
    /// Drop-tail limit of the packets that wait, in bytes, without the one being serialized.
    /// Without a rate nothing ever waits.
    pub queue: u64,
    /// Loss on the wire, after the queue.
    pub loss: LossModel,
    /// Variation of the delay.
    pub jitter: Option<JitterSpec>,
    /// Segments that are overtaken.
    pub reorder: Option<ReorderSpec>,
    /// Active queue management before the transmitter; the limit of `queue` still applies.
    pub aqm: Option<CodelSpec>,
    /// If true, active queue management marks packets that support it (RFC 3168) instead of
    /// dropping them.
    pub ecn: bool,
    /// Cross traffic at the bottleneck.
    pub cross: Option<CrossSpec>,
    /// Changes over time.
    pub changes: Option<Trace>,
    /// Times since the link started, in ascending order. The next segment that the transmitter
    /// takes from the queue after each of them is lost on the wire, besides those of `loss`.
    pub drop_at: Vec<Duration>,
}

/// Loss of segments on the wire. Probabilities are per segment (per packet on the wire, never per
/// super-packet of segmentation offload).
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LossModel {
    /// Segments are not lost.
    #[default]
    None,
    /// Each segment is lost independently of the others.
    Independent {
        /// Probability of loss.
        probability: f64,
    },
    /// Bursts by the two-state chain of Gilbert (1960) and Elliott (1963), which starts in the good
    /// state and may change state after each segment.
    GilbertElliott {
        /// Probability of going from good to bad after a segment.
        good_to_bad: f64,
        /// Probability of going from bad to good after a segment; its inverse is the mean stay in
        /// bad, in segments.
        bad_to_good: f64,
        /// Probability of loss in the good state.
        loss_in_good: f64,
        /// Probability of loss in the bad state.
        loss_in_bad: f64,
    },
}

/// Changes of a direction over time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Trace {
    /// Steps in order of time.
    pub steps: Vec<TraceStep>,
    /// Time after which the steps start over, counted from the start of the link. The values of the
    /// last step stay until the next one.
    pub repeat_after: Option<Duration>,
}

/// One change. A field that is `None` keeps its value.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TraceStep {
    /// Time since the link started (or since the trace started over).
    pub at: Duration,
    /// New rate; zero is an outage.
    pub rate: Option<BitRate>,
    /// New one-way delay. Packets never overtake: after a cut in delay the next ones queue up
    /// behind those in flight, and arrive no faster than the bottleneck sends.
    pub delay: Option<Duration>,
    /// New loss model.
    pub loss: Option<LossModel>,
}

/// An invalid field of a [`LinkSpec`], and its valid values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {wanted}")]
pub struct SpecError {
    /// Path of the field, such as `forward.loss.probability`.
    pub field: String,
    /// Description of the valid values.
    pub wanted: &'static str,
}

impl LinkSpec {
    /// Checks everything on which the engine relies.
    ///
    /// # Errors
    /// The first field that is out of range.
    pub fn check(&self) -> Result<(), SpecError> {
        if !(68..=65_535).contains(&self.mtu) {
            return Err(wrong("mtu", "must be 68 to 65535 bytes"));
        }
        self.forward
            .check(self.mtu)
            .map_err(|e| e.under("forward"))?;
        self.backward
            .check(self.mtu)
            .map_err(|e| e.under("backward"))
    }
}

/// Maximum delay, length of a trace and time of a drop; it keeps nanoseconds since the start far
/// from overflow.
pub(crate) const MAX_TIME: Duration = Duration::from_secs(86_400);
/// Minimum cycle of a trace; shorter ones would make the engine chase its own trace.
const MIN_TRACE_CYCLE: Duration = Duration::from_millis(1);
/// Maximum rate, 1 Tbit/s: far beyond any lab, and it keeps bit-nanoseconds within 128 bits.
const MAX_RATE: u64 = 1_000_000_000_000;

impl DirectionSpec {
    fn check(&self, mtu: u32) -> Result<(), SpecError> {
        check_delay(self.delay)?;
        check_rate(self.rate)?;
        self.loss.check().map_err(|e| e.under("loss"))?;
        self.check_noise()?;
        if self.drop_at.iter().any(|at| *at > MAX_TIME) {
            return Err(wrong("drop_at", "must lie within a day"));
        }
        if !self.drop_at.is_sorted() {
            return Err(wrong("drop_at", "must be in ascending order"));
        }
        let limited = self.rate.is_some()
            || self
                .changes
                .iter()
                .flat_map(|trace| &trace.steps)
                .any(|step| step.rate.is_some());
        if limited && self.queue < u64::from(mtu) {
            return Err(wrong(
                "queue",
                "must hold at least one packet of the link's MTU",
            ));
        }
        match &self.changes {
            Some(trace) => trace.check().map_err(|e| e.under("changes")),
            None => Ok(()),
        }
    }
}

impl DirectionSpec {
    fn check_noise(&self) -> Result<(), SpecError> {
        let Self {
            jitter,
            reorder,
            aqm,
            cross,
            ..
        } = self;
        jitter.map_or(Ok(()), |jitter| {
            jitter.check().map_err(|e| e.under("jitter"))
        })?;
        reorder.map_or(Ok(()), |reorder| {
            reorder.check().map_err(|e| e.under("reorder"))
        })?;
        aqm.map_or(Ok(()), |aqm| aqm.check().map_err(|e| e.under("aqm")))?;
        cross.map_or(Ok(()), |cross| cross.check().map_err(|e| e.under("cross")))?;
        if self.rate.is_none() && (aqm.is_some() || cross.is_some()) {
            return Err(wrong(
                "rate",
                "must be limited: without a rate there is no queue",
            ));
        }
        if self.ecn && aqm.is_none() {
            return Err(wrong("ecn", "needs an aqm, which decides what is marked"));
        }
        Ok(())
    }
}

impl LossModel {
    fn check(&self) -> Result<(), SpecError> {
        let probabilities: &[(&str, f64)] = match *self {
            Self::None => &[],
            Self::Independent { probability } => &[("probability", probability)],
            Self::GilbertElliott {
                good_to_bad,
                bad_to_good,
                loss_in_good,
                loss_in_bad,
            } => &[
                ("good_to_bad", good_to_bad),
                ("bad_to_good", bad_to_good),
                ("loss_in_good", loss_in_good),
                ("loss_in_bad", loss_in_bad),
            ],
        };
        match probabilities.iter().find(|(_, p)| !(0.0..=1.0).contains(p)) {
            Some((field, _)) => Err(wrong(field, "must be a probability from 0 to 1")),
            None => Ok(()),
        }
    }
}

impl Trace {
    fn check(&self) -> Result<(), SpecError> {
        if self.steps.is_empty() {
            return Err(wrong("steps", "must name at least one change"));
        }
        for (index, step) in self.steps.iter().enumerate() {
            let here = |e: SpecError| e.under(&format!("steps[{index}]"));
            if step.at > MAX_TIME {
                return Err(here(wrong("at", "must lie within a day")));
            }
            if index > 0 && step.at <= self.steps[index - 1].at {
                return Err(here(wrong("at", "must come after the step before it")));
            }
            check_rate(step.rate).map_err(here)?;
            step.delay.map_or(Ok(()), check_delay).map_err(here)?;
            step.loss
                .map_or(Ok(()), |loss| loss.check())
                .map_err(|e| here(e.under("loss")))?;
        }
        let last = self.steps.last().map_or(Duration::ZERO, |step| step.at);
        match self.repeat_after {
            Some(cycle) if cycle <= last || cycle < MIN_TRACE_CYCLE || cycle > MAX_TIME => {
                Err(wrong(
                    "repeat_after",
                    "must come after the last step, and be between 1 ms and a day",
                ))
            }
            _ => Ok(()),
        }
    }
}

fn check_delay(delay: Duration) -> Result<(), SpecError> {
    if delay > MAX_TIME {
        Err(wrong("delay", "must be at most a day"))
    } else {
        Ok(())
    }
}

fn check_rate(rate: Option<BitRate>) -> Result<(), SpecError> {
    match rate {
        Some(BitRate(bits)) if bits > MAX_RATE => Err(wrong("rate", "must be at most 1 Tbit/s")),
        _ => Ok(()),
    }
}

fn wrong(field: &str, wanted: &'static str) -> SpecError {
    SpecError {
        field: field.to_owned(),
        wanted,
    }
}

impl SpecError {
    fn under(mut self, parent: &str) -> Self {
        self.field = format!("{parent}.{}", self.field);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> LinkSpec {
        let direction = DirectionSpec {
            delay: Duration::from_millis(10),
            rate: Some(BitRate(1_000_000_000)),
            queue: 1_500,
            loss: LossModel::Independent { probability: 1.0 },
            jitter: Some(JitterSpec {
                deviation: Duration::from_millis(1),
                reorder: false,
            }),
            reorder: Some(ReorderSpec {
                probability: 1e-3,
                by: Duration::from_millis(3),
            }),
            aqm: Some(CodelSpec::RFC_8289),
            ecn: true,
            cross: Some(CrossSpec {
                rate: BitRate(1_000_000),
                on: Duration::from_millis(200),
                off: Duration::ZERO,
            }),
            changes: Some(Trace {
                steps: vec![
                    TraceStep {
                        at: Duration::ZERO,
                        rate: None,
                        delay: None,
                        loss: None,
                    },
                    TraceStep {
                        at: Duration::from_secs(1),
                        rate: None,
                        delay: None,
                        loss: None,
                    },
                ],
                repeat_after: Some(Duration::from_secs(2)),
            }),
            drop_at: vec![Duration::ZERO, Duration::from_secs(9)],
        };
        LinkSpec {
            name: "ab".into(),
            mtu: 1_500,
            forward: direction.clone(),
            backward: direction,
            seed: 1,
        }
    }

    fn field(change: impl FnOnce(&mut LinkSpec)) -> String {
        let mut spec = spec();
        change(&mut spec);
        spec.check().expect_err("out of range").field
    }

    fn steps(direction: &mut DirectionSpec) -> &mut Trace {
        direction.changes.as_mut().expect("has changes")
    }

    #[test]
    fn valid_specification_passes() {
        assert_eq!(spec().check(), Ok(()));
    }

    #[test]
    fn out_of_range_field_is_named() {
        assert_eq!(field(|s| s.mtu = 67), "mtu");
        assert_eq!(field(|s| s.mtu = 65_536), "mtu");
        assert_eq!(
            field(|s| s.backward.delay = Duration::MAX),
            "backward.delay"
        );
        assert_eq!(
            field(|s| s.forward.rate = Some(BitRate(u64::MAX))),
            "forward.rate"
        );
        assert_eq!(field(|s| s.forward.queue = 1_499), "forward.queue");
        for drop_at in [
            vec![Duration::MAX],
            vec![Duration::from_secs(1), Duration::ZERO],
        ] {
            assert_eq!(field(|s| s.forward.drop_at = drop_at), "forward.drop_at");
        }
        for probability in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            let loss = LossModel::Independent { probability };
            assert_eq!(field(|s| s.forward.loss = loss), "forward.loss.probability");
        }
        let loss = LossModel::GilbertElliott {
            good_to_bad: 0.0,
            bad_to_good: 1.0,
            loss_in_good: 0.0,
            loss_in_bad: 2.0,
        };
        assert_eq!(
            field(|s| steps(&mut s.forward).steps[1].loss = Some(loss)),
            "forward.changes.steps[1].loss.loss_in_bad"
        );
    }

    #[test]
    fn noise_out_of_range_is_named() {
        let jitter = |deviation| JitterSpec {
            deviation,
            reorder: true,
        };
        for deviation in [Duration::ZERO, Duration::MAX] {
            assert_eq!(
                field(|s| s.forward.jitter = Some(jitter(deviation))),
                "forward.jitter.deviation"
            );
        }
        let reorder = |probability, by| {
            move |s: &mut LinkSpec| s.backward.reorder = Some(ReorderSpec { probability, by })
        };
        assert_eq!(
            field(reorder(f64::NAN, Duration::MAX)),
            "backward.reorder.probability"
        );
        assert_eq!(field(reorder(0.1, Duration::ZERO)), "backward.reorder.by");
        let codel = |target, interval| {
            move |s: &mut LinkSpec| s.forward.aqm = Some(CodelSpec { target, interval })
        };
        assert_eq!(
            field(codel(Duration::ZERO, Duration::MAX)),
            "forward.aqm.target"
        );
        assert_eq!(
            field(codel(Duration::from_secs(1), Duration::MAX)),
            "forward.aqm.interval"
        );
        assert_eq!(field(|s| s.forward.aqm = None), "forward.ecn");
        assert_eq!(field(|s| s.forward.rate = None), "forward.rate");
        let cross = |rate, on, off| {
            let rate = BitRate(rate);
            move |s: &mut LinkSpec| s.forward.cross = Some(CrossSpec { rate, on, off })
        };
        let second = Duration::from_secs(1);
        assert_eq!(field(cross(0, second, second)), "forward.cross.rate");
        assert_eq!(field(cross(1, Duration::ZERO, second)), "forward.cross.on");
        assert_eq!(field(cross(1, second, Duration::MAX)), "forward.cross.off");
    }

    #[test]
    fn a_trace_has_steps_in_order_within_its_cycle() {
        let cycle = |at| move |s: &mut LinkSpec| steps(&mut s.forward).repeat_after = Some(at);
        assert_eq!(
            field(cycle(Duration::from_secs(1))),
            "forward.changes.repeat_after"
        );
        assert_eq!(field(cycle(Duration::MAX)), "forward.changes.repeat_after");
        assert_eq!(
            field(|s| steps(&mut s.forward).steps.clear()),
            "forward.changes.steps"
        );
        assert_eq!(
            field(|s| steps(&mut s.forward).steps.reverse()),
            "forward.changes.steps[1].at"
        );
        assert_eq!(
            field(|s| steps(&mut s.forward).steps[1].at = Duration::MAX),
            "forward.changes.steps[1].at"
        );
    }

    #[test]
    fn rates_and_bytes() {
        assert_eq!(
            BitRate(155_000_000).bytes_in(Duration::from_millis(20)),
            387_500
        );
        assert_eq!(BitRate(155_520_000).to_string(), "155.52 Mbit/s");
        assert_eq!(BitRate(2_500_000_000).to_string(), "2.5 Gbit/s");
        assert_eq!(BitRate(64_000).to_string(), "64 kbit/s");
        assert_eq!(BitRate(0).to_string(), "0 bit/s");
    }
}
