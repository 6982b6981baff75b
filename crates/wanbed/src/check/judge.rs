//! Comparison of measurements with what the scenario asks. Tolerances allow for the clock and for
//! chance, not for a wrong emulator.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::TargetValues;
use super::loss::mean_loss;
use super::probe::{LossCount, OverloadResult};
use crate::spec::{BitRate, LossModel};

/// Measurements of one direction of a link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkCheck {
    /// The link.
    pub link: String,
    /// Node from which the probes were sent.
    pub from: String,
    /// Node that received them.
    pub to: String,
    /// Findings on delay, rate and loss, and on each kind of noise that was asked for.
    pub findings: Vec<Finding>,
}

impl LinkCheck {
    /// Returns true if any measurement differs from what was asked.
    pub fn is_off(&self) -> bool {
        self.findings
            .iter()
            .any(|finding| finding.verdict == LinkVerdict::Off)
    }
}

/// One measured property.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// "delay", "rate", "loss", "jitter", "reorder", "codel", "ecn", "cross" or "fall".
    pub what: String,
    /// Value asked, in seconds, in bit/s or as a probability (ECN: in marks); `None` if not
    /// measured.
    pub asked: Option<f64>,
    /// Measured value, in the same unit.
    pub measured: Option<f64>,
    /// Verdict: as asked, off, or not measured.
    pub verdict: LinkVerdict,
    /// The figures as text.
    pub text: String,
}

/// Verdict of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkVerdict {
    /// The value is as asked.
    AsAsked,
    /// The value is not as asked.
    Off,
    /// The value could not be measured; `text` says why.
    NotMeasured,
}

impl Finding {
    pub(super) fn unmeasured(what: &str, why: String) -> Self {
        Finding {
            what: what.to_owned(),
            asked: None,
            measured: None,
            verdict: LinkVerdict::NotMeasured,
            text: why,
        }
    }

    pub(super) fn new(what: &str, asked: f64, measured: f64, good: bool, text: String) -> Self {
        let verdict = if good {
            LinkVerdict::AsAsked
        } else {
            LinkVerdict::Off
        };
        Finding {
            what: what.to_owned(),
            asked: Some(asked),
            measured: Some(measured),
            verdict,
            text,
        }
    }
}

/// Minimum number of answers for a median.
const MIN_DELAYS: usize = 10;
/// Maximum delay of a median by waking up two processes, or 2 % of a long delay. A median is never
/// early by more than the clock's error.
pub(super) const DELAY_SLACK: Duration = Duration::from_micros(700);
/// Maximum clock error. Sender and receiver have the same clock, but read it in different ways.
pub(super) const CLOCK_SLACK: f64 = 50e-6;
const RATE_TOLERANCE: f64 = 0.02;
/// Maximum deviation of a count of losses that is attributed to chance, in standard deviations.
pub(super) const MAX_DEVIATIONS: f64 = 4.0;

/// Judges the median delay, or with cross traffic, which makes most probes wait, the least.
pub(super) fn delay(asked: TargetValues, delays: &[f64], crossed: bool) -> Finding {
    let mut sorted = delays.to_vec();
    sorted.sort_by(f64::total_cmp);
    if sorted.len() < MIN_DELAYS {
        let off = Finding::unmeasured("delay", format!("only {} probes arrived", sorted.len()));
        return Finding {
            verdict: LinkVerdict::Off,
            ..off
        };
    }
    let asked = asked.delay.as_secs_f64() + line_time(asked, super::probe::DELAY_BYTES);
    let median = sorted[sorted.len() / 2];
    let measured = if crossed { sorted[0] } else { median };
    let good = measured >= asked - CLOCK_SLACK
        && measured <= asked + DELAY_SLACK.as_secs_f64().max(0.02 * asked);
    let text = format!(
        "asked {:.3} ms, median {:.3} ms, fastest {:.3} ms",
        1e3 * asked,
        1e3 * median,
        1e3 * sorted[0]
    );
    Finding::new("delay", asked, measured, good, text)
}

/// Returns the time in seconds that a packet takes on the wire.
pub(super) fn line_time(asked: TargetValues, bytes: usize) -> f64 {
    asked.rate.map_or(0.0, |rate| {
        bytes as f64 * 8.0 / rate.bits_per_second().max(1) as f64
    })
}

/// Judges the rate. `crossed` is the rate of cross traffic at the same time.
pub(super) fn rate(
    asked: TargetValues,
    rate: BitRate,
    overload: &OverloadResult,
    crossed: f64,
) -> Finding {
    let wanted = rate.bits_per_second() as f64;
    if overload.offered < 1.05 * wanted {
        let why = format!(
            "could offer only {:.1} of {:.1} Mbit/s from here",
            overload.offered / 1e6,
            1.05 * wanted / 1e6
        );
        return Finding::unmeasured("rate", why);
    }
    let measured = overload.received / (1.0 - mean_loss(asked.loss)) + crossed;
    let good = (measured / wanted - 1.0).abs() <= RATE_TOLERANCE;
    let mut text = format!(
        "asked {:.3} Mbit/s, measured {:.3} Mbit/s",
        wanted / 1e6,
        measured / 1e6
    );
    if crossed > 0.0 {
        text.push_str(&format!(
            ", of which cross traffic {:.3} Mbit/s",
            crossed / 1e6
        ));
    }
    Finding::new("rate", wanted, measured, good, text)
}

pub(super) fn loss(asked: TargetValues, losses: LossCount) -> Finding {
    let probability = mean_loss(asked.loss);
    let sent = losses.sent as f64;
    let lost = losses.sent.saturating_sub(losses.received) as f64;
    let expected = probability * sent;
    // Losses in bursts vary more than independent ones, by about twice the length of a burst.
    let spread = match asked.loss {
        LossModel::GilbertElliott { bad_to_good, .. } => {
            (1.0 + 2.0 / bad_to_good.max(1e-9)).min(sent.max(1.0))
        }
        _ => 1.0,
    };
    let deviation = (expected * (1.0 - probability) * spread).sqrt();
    // If few losses are expected, a few more are chance; if none are asked for, none are allowed.
    let allowed = if probability > 0.0 {
        MAX_DEVIATIONS * deviation + 3.0 * spread
    } else {
        0.0
    };
    let good = (lost - expected).abs() <= allowed;
    let few = if probability > 0.0 && expected < 10.0 {
        " (too few expected to tell more)"
    } else {
        ""
    };
    let text = format!(
        "asked {probability:.3e}, lost {lost} of {sent}, {:.3e}; {expected:.1} expected{few}",
        lost / sent.max(1.0)
    );
    Finding::new("loss", probability, lost / sent.max(1.0), good, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(probability: f64) -> TargetValues {
        let loss = if probability > 0.0 {
            LossModel::Independent { probability }
        } else {
            LossModel::None
        };
        TargetValues {
            delay: Duration::from_millis(50),
            rate: Some(BitRate(100_000_000)),
            loss,
        }
    }

    #[test]
    fn delays_have_little_room() {
        let verdict = |ms: f64| delay(asked(0.0), &[ms / 1e3; 20], false).verdict;
        assert_eq!(verdict(50.1), LinkVerdict::AsAsked);
        assert_eq!(verdict(49.9), LinkVerdict::Off);
        assert_eq!(verdict(51.2), LinkVerdict::Off);
        assert_eq!(
            delay(asked(0.0), &[50e-3; 3], false).verdict,
            LinkVerdict::Off,
            "nearly all were lost"
        );
        let waited: Vec<f64> = (0..20).map(|n| 50.1e-3 + f64::from(n) * 1e-3).collect();
        assert_eq!(delay(asked(0.0), &waited, false).verdict, LinkVerdict::Off);
        assert_eq!(
            delay(asked(0.0), &waited, true).verdict,
            LinkVerdict::AsAsked
        );
    }

    #[test]
    fn rates_are_judged_only_when_the_link_was_full() {
        let verdict = |offered: f64, received: f64| {
            rate(
                asked(0.1),
                BitRate(100_000_000),
                &OverloadResult {
                    offered: offered * 1e6,
                    received: received * 1e6,
                    span: None,
                },
                0.0,
            )
            .verdict
        };
        assert_eq!(
            verdict(120.0, 90.0),
            LinkVerdict::AsAsked,
            "a tenth is lost behind the bottleneck"
        );
        assert_eq!(verdict(120.0, 100.0), LinkVerdict::Off);
        assert_eq!(verdict(100.0, 80.0), LinkVerdict::NotMeasured);
    }

    #[test]
    fn losses_are_judged_by_what_luck_allows() {
        let verdict = |probability, sent, received| {
            loss(asked(probability), LossCount { sent, received }).verdict
        };
        assert_eq!(verdict(0.0, 1000, 1000), LinkVerdict::AsAsked);
        assert_eq!(verdict(0.0, 1000, 999), LinkVerdict::Off);
        assert_eq!(verdict(0.01, 100_000, 99_100), LinkVerdict::AsAsked);
        assert_eq!(verdict(0.01, 100_000, 99_400), LinkVerdict::Off);
        assert_eq!(verdict(0.01, 100_000, 100_000), LinkVerdict::Off);
        assert_eq!(
            verdict(1e-5, 100_000, 100_000),
            LinkVerdict::AsAsked,
            "one expected, none seen"
        );
    }

    #[test]
    fn bursts_may_vary_more() {
        let model = LossModel::GilbertElliott {
            good_to_bad: 0.001,
            bad_to_good: 0.099,
            loss_in_good: 0.0,
            loss_in_bad: 1.0,
        };
        assert!((mean_loss(model) - 0.01).abs() < 1e-12);
        let found = loss(
            TargetValues {
                loss: model,
                ..asked(0.0)
            },
            LossCount {
                sent: 100_000,
                received: 99_400,
            },
        );
        assert_eq!(found.verdict, LinkVerdict::AsAsked, "{}", found.text);
    }
}
