//! The two congestion controls whose behaviour under loss is known in closed form.

use std::{error::Error, fmt, str::FromStr, time::Duration};

use crate::{Probability, Time};

/// Mathis, Semke, Mahdavi and Ott, "The macroscopic behavior of the TCP congestion avoidance
/// algorithm", 1997: the average window of a flow that loses a segment in `1 / p` is the square
/// root of this over `p`, where each segment is acknowledged. (The square root is the 1.22 of the
/// literature.)
const MATHIS_SQUARED: f64 = 1.5;
/// How steep CUBIC's curve is (RFC 9438, section 5), in segments per second cubed.
const CUBIC_C: f64 = 0.4;
/// What CUBIC leaves of a window after a loss (RFC 9438, section 4.6).
const CUBIC_BETA: f64 = 0.7;

/// A congestion control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CongestionControl {
    /// Half the window after a loss, one segment more each round trip (RFC 5681).
    Reno,
    /// A cubic function of the time since the loss (RFC 9438).
    Cubic,
}

/// A name that is none of the two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CongestionControlError(String);

impl CongestionControl {
    /// As the kernel calls it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reno => "reno",
            Self::Cubic => "cubic",
        }
    }

    /// The average window under such a loss, in segments; infinite where nothing is lost.
    ///
    /// Reno: Mathis et al. 1997. CUBIC: RFC 9438, section 5.1 (figure 6 with its constants), and
    /// never less than Reno, whose window it keeps where that is larger (section 4.3).
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

    /// The loss at which the average window is so many segments.
    #[must_use]
    pub fn most_loss(self, segments: f64, rtt: Duration) -> Probability {
        let reno = MATHIS_SQUARED / (segments * segments);
        // A window of a segment or two bears any loss by the formula, which does not hold there.
        Probability::nearest(match self {
            Self::Reno => reno,
            Self::Cubic => {
                reno.max(rtt.as_secs_f64() * (cubic_factor() / segments).powf(4.0 / 3.0))
            }
        })
    }

    /// From one loss at a window of so many segments back to it.
    ///
    /// Reno: half the window, a segment a round trip, which is `C * R^2 / (2 * MSS)` at a full
    /// window. CUBIC: `K` of RFC 9438, section 4.2, which does not depend on the round trip; where
    /// its Reno-friendly region (section 4.3) has it back sooner, that.
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

/// The fourth root of `C * (3 + beta) / (4 * (1 - beta))` (RFC 9438, section 5.1), about 1.054.
fn cubic_factor() -> f64 {
    (CUBIC_C * (3.0 + CUBIC_BETA) / (4.0 * (1.0 - CUBIC_BETA))).powf(0.25)
}

/// Segments a round trip by which CUBIC grows in its Reno-friendly region (RFC 9438, section 4.3).
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
        write!(f, "{:?} has no formula here: name reno or cubic", self.0)
    }
}

impl Error for CongestionControlError {}
