//! What somebody may ask for: caps, as OSCARS had them for its users' attributes (resource,
//! permission, constraint).

use serde::{Deserialize, Serialize};

use crate::network::Share;
use crate::request::{Request, Wish};
use crate::time::{Moment, Rate};

/// Caps; what is left out is not capped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// The highest rate of one reservation, in bit/s. A volume goes no faster.
    pub rate: Option<Rate>,
    /// The longest window, in milliseconds.
    pub duration: Option<u64>,
    /// How far ahead a window may end, in milliseconds.
    pub ahead: Option<u64>,
    /// How many paths at once.
    pub paths: Option<usize>,
    /// The part of a link that may be reserved by all when this is granted.
    pub share: Option<Share>,
}

/// What is asked for and may not be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicyRefusal {
    /// Too fast.
    #[error(
        "{asked} bit/s are more than the {most} that this user may reserve: ask for less, or for a higher limit"
    )]
    Rate {
        /// What is asked for, or what the volume needs, in bit/s.
        asked: Rate,
        /// The cap, in bit/s.
        most: Rate,
    },
    /// Too long.
    #[error(
        "{asked} ms are more than the {most} for which this user may reserve: ask for less, or for a higher limit"
    )]
    Duration {
        /// What is asked for, in milliseconds.
        asked: u64,
        /// The cap, in milliseconds.
        most: u64,
    },
    /// Too far ahead.
    #[error(
        "the window ends {asked} ms from now, and this user may reserve {most} ahead: end it earlier, or ask later"
    )]
    Ahead {
        /// How far ahead it ends, in milliseconds.
        asked: u64,
        /// The cap, in milliseconds.
        most: u64,
    },
    /// Over too many paths.
    #[error(
        "{asked} paths are more than the {most} that this user may have at once: ask for fewer"
    )]
    Paths {
        /// What is asked for.
        asked: usize,
        /// The cap.
        most: usize,
    },
}

impl Limits {
    /// Whether a request that was checked is within them. The share is admission's to see to.
    ///
    /// # Errors
    /// [`PolicyRefusal`]: the first cap that it is above.
    pub fn check(&self, request: &Request, now: Moment) -> Result<(), PolicyRefusal> {
        let length = request.window.length();
        let needed = match request.wish {
            Wish::Rate(rate) => rate,
            Wish::Volume { bytes, .. } => crate::time::Volume::of_bytes(bytes)
                .rate_within(length)
                .unwrap_or(Rate::MAX),
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
