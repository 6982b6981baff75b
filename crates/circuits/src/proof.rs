//! Evidence that a request does not fit.

use crate::network::LinkId;
use crate::time::{BitsPerSecond, MomentMs, Volume};

/// Evidence that a request does not fit. Searches name the links of a cut; a refusal describes
/// them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proof<Link = LinkId> {
    /// Every path between the ends crosses these links, and too little is left on them.
    Cut {
        /// Links of the cut.
        links: Vec<Link>,
        /// Most that the allowed number of paths carries across the cut, in bit/s. It is less than
        /// the requested rate.
        rate: BitsPerSecond,
        /// Start before which the cut is always too full. `None` if the links are too narrow even
        /// when nothing is reserved, and during a search, which does not need it.
        until: Option<MomentMs>,
    },
    /// Within the window, these links carry less than the requested volume.
    Volume {
        /// Links of the cut.
        links: Vec<Link>,
        /// Most that crosses the cut within the window.
        volume: Volume,
    },
    /// In each stretch of the window without changes, some cut is too full. This is the most that
    /// all stretches carry together.
    Stretches {
        /// Upper bound of what fits.
        volume: Volume,
    },
    /// Every choice of that many paths was tried. More paths would carry the rate.
    Searched {
        /// Rate of all paths together, in bit/s.
        all: BitsPerSecond,
    },
    /// No choice of paths within the constraints of the request carries the rate.
    Constrained {
        /// Most that was found, in bit/s.
        found: BitsPerSecond,
        /// If true, every choice was tried.
        complete: bool,
    },
    /// Missing evidence: no choice was found, but there are too many to try them all. More paths,
    /// or a choice that was not tried, would carry the rate.
    Unknown,
}

impl Proof {
    /// Describes the links of a cut, and adds the moment until which a cut of a rate is too full.
    pub(crate) fn complete<Link>(
        self,
        describe: impl Fn(LinkId) -> Link,
        until: impl FnOnce(&[LinkId]) -> Option<MomentMs>,
    ) -> Proof<Link> {
        let describe_all = |links: Vec<LinkId>| links.into_iter().map(&describe).collect();
        match self {
            Self::Cut { links, rate, .. } => Proof::Cut {
                until: until(&links),
                links: describe_all(links),
                rate,
            },
            Self::Volume { links, volume } => Proof::Volume {
                links: describe_all(links),
                volume,
            },
            Self::Stretches { volume } => Proof::Stretches { volume },
            Self::Searched { all } => Proof::Searched { all },
            Self::Constrained { found, complete } => Proof::Constrained { found, complete },
            Self::Unknown => Proof::Unknown,
        }
    }
}

/// The best that was found for a request that does not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartialFit<T> {
    /// Best that was found.
    pub found: T,
    /// Evidence that no more fits.
    pub proof: Proof,
}

impl<T> PartialFit<T> {
    /// Converts what was found.
    pub(crate) fn map<Other>(self, convert: impl FnOnce(T) -> Other) -> PartialFit<Other> {
        PartialFit {
            found: convert(self.found),
            proof: self.proof,
        }
    }
}
