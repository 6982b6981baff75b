//! The two congestion controls whose behaviour under loss is known in closed form.

use std::{error::Error, fmt, str::FromStr, time::Duration};

use crate::{Probability, Time};

/// Squared constant of the average window of a flow that loses one segment in `1 / p`. The window
/// is the square root of this over `p` if each segment is acknowledged (Mathis, Semke, Mahdavi and
/// Ott, "The macroscopic behavior of the TCP congestion avoidance algorithm", 1997). Its square
/// root is the 1.22 of the literature.
const MATHIS_SQUARED: f64 = 1.5;
/// Steepness of CUBIC's curve (RFC 9438, section 5), in segments per second cubed.
const CUBIC_C: f64 = 0.4;
/// Share of the window that CUBIC keeps after a loss (RFC 9438, section 4.6).
const CUBIC_BETA: f64 = 0.7;

/// A congestion control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CongestionControl {
    /// Halves the window after a loss and adds one segment each round trip (RFC 5681).
    Reno,
    /// Grows the window by a cubic function of the time since the loss (RFC 9438).
    Cubic,
}

/// A name that is neither `reno` nor `cubic`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CongestionControlError(String);

impl CongestionControl {
    /// Returns the kernel's name for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reno => "reno",
            Self::Cubic => "cubic",
        }
    }

    /// Returns the average window under `loss`, in segments. It is infinite without loss.
    ///
    /// Reno: Mathis et al. 1997. CUBIC: RFC 9438, section 5.1 (figure 6 with its constants), but at
    /// least Reno's window, which CUBIC keeps where that is larger (section 4.3).
    #[must_use]
    pub fn average_window(self, loss: Probability, rtt: Duration) -> f64 {
        let p = loss.value();
        if p == 0.0 {
            return f64::INFINITY;
        }
        let reno = (MATHIS_SQUARED / p).sqrt();
        match self {
            Self::Reno => reno,
            Self::Cubic => reno.max(cubic_factor() * (rtt.as_secs_f64() / p).powf(0.75)),
        }
    }

    /// Returns the loss at which the average window is `segments`.
    #[must_use]
    pub fn loss_at_window(self, segments: f64, rtt: Duration) -> Probability {
        let reno = MATHIS_SQUARED / (segments * segments);
        // By the formula, a window of a segment or two survives any loss. The formula does not hold
        // there.
        Probability::nearest(match self {
            Self::Reno => reno,
            Self::Cubic => {
                reno.max(rtt.as_secs_f64() * (cubic_factor() / segments).powf(4.0 / 3.0))
            }
        })
    }

    /// Returns the time from a loss at a window of `segments` until the window is back.
    ///
    /// Reno: half the window at one segment per round trip, which is `C * R^2 / (2 * MSS)` at a
    /// full window. CUBIC: `K` of RFC 9438, section 4.2, which does not depend on the round trip,
    /// or less if its Reno-friendly region (section 4.3) recovers sooner.
    #[must_use]
    pub fn recovery(self, segments: f64, rtt: Duration) -> Duration {
        let rtt = rtt.as_secs_f64();
        let seconds = match self {
            Self::Reno => segments / 2.0 * rtt,
            Self::Cubic => {
                let k = (segments * (1.0 - CUBIC_BETA) / CUBIC_C).cbrt();
                let reno_friendly = segments * (1.0 - CUBIC_BETA) / cubic_alpha() * rtt;
                k.min(reno_friendly)
            }
        };
        Time::from_seconds(seconds).0
    }
}

/// Returns the fourth root of `C * (3 + beta) / (4 * (1 - beta))` (RFC 9438, section 5.1), about
/// 1.054.
fn cubic_factor() -> f64 {
    (CUBIC_C * (3.0 + CUBIC_BETA) / (4.0 * (1.0 - CUBIC_BETA))).powf(0.25)
}

/// Returns the growth of CUBIC in its Reno-friendly region, in segments per round trip (RFC 9438,
/// section 4.3).
fn cubic_alpha() -> f64 {
    3.0 * (1.0 - CUBIC_BETA) / (1.0 + CUBIC_BETA)
}

impl FromStr for CongestionControl {
    type Err = CongestionControlError;

    fn from_str(text: &str) -> Result<Self, CongestionControlError> {
        [Self::Reno, Self::Cubic]
            .into_iter()
            .find(|control| control.name() == text)
            .ok_or_else(|| CongestionControlError(text.to_owned()))
    }
}

impl fmt::Display for CongestionControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for CongestionControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not supported here: name reno or cubic", self.0)
    }
}

impl Error for CongestionControlError {}
