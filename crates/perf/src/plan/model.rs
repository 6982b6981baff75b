//! The two congestion controls whose behaviour under loss is known in closed form.

use std::{fmt, str::FromStr, time::Duration};

use serde::Serialize;

use super::seconds;
use crate::units::LossRate;

/// CUBIC's constants (RFC 9438, section 4.1): how steep its curve is, and what is left of a window after a loss.
const CUBIC_C: f64 = 0.4;
const CUBIC_BETA: f64 = 0.7;

/// A congestion control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Control {
    /// Half the window after a loss, one segment more each round trip (RFC 5681).
    Reno,
    /// A cubic function of the time since the loss (RFC 9438).
    Cubic,
}

/// A name that is none of the two.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} has no formula here: name reno or cubic")]
pub struct ControlError(String);

impl FromStr for Control {
    type Err = ControlError;

    fn from_str(text: &str) -> Result<Self, ControlError> {
        match text {
            "reno" => Ok(Self::Reno),
            "cubic" => Ok(Self::Cubic),
            _ => Err(ControlError(text.to_owned())),
        }
    }
}

impl fmt::Display for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reno => "reno",
            Self::Cubic => "cubic",
        })
    }
}

impl Control {
    /// From one loss at a window of `segments` back to it.
    ///
    /// Reno: half the window, a segment a round trip, which is `C * R^2 / (2 * MSS)`. CUBIC: `K` of RFC 9438, figure 2, which
    /// does not depend on the round trip; where a Reno flow (section 4.3) would be back sooner, CUBIC is as well.
    #[must_use]
    pub fn recovery(self, segments: f64, rtt: Duration) -> Duration {
        let rtt = rtt.as_secs_f64();
        seconds(match self {
            Self::Reno => segments / 2.0 * rtt,
            Self::Cubic => {
                let k = (segments * (1.0 - CUBIC_BETA) / CUBIC_C).cbrt();
                let reno_friendly = segments * (1.0 - CUBIC_BETA) / alpha() * rtt;
                k.min(reno_friendly)
            }
        })
    }

    /// The average window under independent losses, in segments.
    #[must_use]
    pub fn average_window(self, loss: LossRate, rtt: Duration) -> f64 {
        let p = loss.probability();
        let reno = (1.5 / p).sqrt();
        match self {
            Self::Reno => reno,
            Self::Cubic => reno.max(cubic_factor() * (rtt.as_secs_f64() / p).powf(0.75)),
        }
    }

    /// The loss rate at which the average window is `segments`.
    #[must_use]
    pub fn most_loss(self, segments: f64, rtt: Duration) -> f64 {
        let reno = 1.5 / (segments * segments);
        let most = match self {
            Self::Reno => reno,
            Self::Cubic => reno.max(rtt.as_secs_f64() * (cubic_factor() / segments).powf(4.0 / 3.0)),
        };
        // A window of a segment or two bears any loss by the formula, which does not hold there.
        most.min(1.0)
    }
}

/// The factor of RFC 9438, figure 8: the fourth root of `C * (3 + beta) / (4 * (1 - beta))`, about 1.054.
fn cubic_factor() -> f64 {
    (CUBIC_C * (3.0 + CUBIC_BETA) / (4.0 * (1.0 - CUBIC_BETA))).powf(0.25)
}

/// Segments a round trip by which CUBIC grows where it imitates Reno (RFC 9438, section 4.3).
fn alpha() -> f64 {
    3.0 * (1.0 - CUBIC_BETA) / (1.0 + CUBIC_BETA)
}
