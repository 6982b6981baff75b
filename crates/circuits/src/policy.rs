//! Per-user limits, modelled on the attributes of OSCARS users (resource, permission, constraint).

use serde::{Deserialize, Serialize};

use crate::network::LinkShare;
use crate::request::{CircuitRequest, Demand};
use crate::time::{BitsPerSecond, MomentMs};

/// Limits of a user. `None` means no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct RequestLimits {
    /// Maximum rate of one reservation, in bit/s. It also limits the rate of a volume.
    pub rate: Option<BitsPerSecond>,
    /// Maximum length of a window, in milliseconds.
    pub duration: Option<u64>,
    /// Maximum time from now to the end of a window, in milliseconds.
    pub ahead: Option<u64>,
    /// Maximum number of paths at once.
    pub paths: Option<usize>,
    /// Share of each link that all reservations together may use when this user's request is
    /// granted.
    pub share: Option<LinkShare>,
}

impl RequestLimits {
    /// No limits.
    pub const UNLIMITED: Self = Self {
        rate: None,
        duration: None,
        ahead: None,
        paths: None,
        share: None,
    };
}

/// A request that exceeds the user's limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicyRefusal {
    /// The rate is too high: request less, or ask for a higher limit.
    #[error(
        "{asked} bit/s exceed the {most} bit/s that this user may reserve: ask for less, or for a \
         higher limit"
    )]
    Rate {
        /// Requested rate, or rate that the volume needs, in bit/s.
        asked: BitsPerSecond,
        /// Limit, in bit/s.
        most: BitsPerSecond,
    },
    /// The window is too long: request a shorter one, or ask for a higher limit.
    #[error(
        "{asked} ms exceed the {most} ms that this user may reserve for: ask for less, or for a \
         higher limit"
    )]
    Duration {
        /// Requested length, in milliseconds.
        asked: u64,
        /// Limit, in milliseconds.
        most: u64,
    },
    /// The window ends too far in the future: end it earlier, or request it later.
    #[error(
        "the window ends {asked} ms from now, and this user may reserve at most {most} ms ahead: \
         end it earlier, or ask later"
    )]
    Ahead {
        /// Time until its end, in milliseconds.
        asked: u64,
        /// Limit, in milliseconds.
        most: u64,
    },
    /// Too many paths are requested: request fewer.
    #[error("{asked} paths exceed the {most} that this user may use at once: ask for fewer")]
    Paths {
        /// Requested number of paths.
        asked: usize,
        /// Limit.
        most: usize,
    },
}

impl RequestLimits {
    /// Checks that a well-formed request is within the limits. Admission enforces the share.
    ///
    /// # Errors
    /// [`PolicyRefusal`] names the first limit that it exceeds.
    pub fn check(&self, request: &CircuitRequest, now: MomentMs) -> Result<(), PolicyRefusal> {
        let length = request.window.length();
        let needed = match request.wish {
            Demand::Rate(rate) => rate,
            Demand::Volume { bytes, .. } => crate::time::Volume::from_bytes(bytes)
                .min_rate_within(length)
                .unwrap_or(BitsPerSecond::MAX),
        };
        if let Some(most) = self.rate.filter(|most| needed > *most) {
            return Err(PolicyRefusal::Rate {
                asked: needed,
                most,
            });
        }
        if let Some(most) = self.duration.filter(|most| length > *most) {
            return Err(PolicyRefusal::Duration {
                asked: length,
                most,
            });
        }
        let ahead = u64::try_from(request.window.end.saturating_sub(now)).unwrap_or(0);
        if let Some(most) = self.ahead.filter(|most| ahead > *most) {
            return Err(PolicyRefusal::Ahead { asked: ahead, most });
        }
        if let Some(most) = self.paths.filter(|most| request.paths > *most) {
            return Err(PolicyRefusal::Paths {
                asked: request.paths,
                most,
            });
        }
        Ok(())
    }
}
