//! What happens in a copy, and who receives it.

use std::fmt;
use std::time::Duration;

use crate::error::Failure;
use crate::tree_hash::Hash;

/// Something that happened. Paths are ready for a person to read, destination-side names as the
/// user would give them.
#[derive(Debug, Clone)]
pub enum Event {
    /// A stream is open.
    StreamOpened {
        /// Its number.
        stream: u32,
        /// Its route.
        route: String,
    },
    /// A stream was lost; its unanswered blocks go to others.
    StreamLost {
        /// Its number, if it ever opened.
        stream: Option<u32>,
        /// Its route.
        route: String,
        /// What happened, naming the hop if that is known.
        reason: String,
        /// If true, a user need not hear of it: it was one more than the server allows beside
        /// others, or the copy ends by it, and its report says why.
        is_silent: bool,
    },
    /// Nothing has arrived for a while: the copy waits for its server.
    Waiting {
        /// Time since something arrived.
        silence: Duration,
        /// Time after which the copy is given up.
        patience: Duration,
    },
    /// Something arrives again after [`Event::Waiting`].
    Back {
        /// How long nothing had arrived.
        after: Duration,
    },
    /// The server has lost the copy. Another one takes its place, and every entry is reported
    /// again.
    BegunAgain {
        /// What the server said, or did.
        reason: String,
    },
    /// A route has another share of the streams from now on; only of routes that somebody else than
    /// the user chose.
    RouteJudged {
        /// Which.
        route: String,
        /// How it stands.
        standing: RouteStanding,
        /// Why, for people.
        reason: String,
    },
    /// A file is gone on with that an earlier copy has left some of.
    Resumed {
        /// Which.
        path: String,
        /// Bytes of it that are there, and need not be sent.
        bytes: u64,
        /// Bytes of all of it.
        size: u64,
    },
    /// An entry is in place and verified.
    Done {
        /// Which.
        path: String,
        /// Its size; none for directories and links.
        bytes: Option<u64>,
        /// Its BLAKE3 hash; none for directories and links, and for a file that was known by its
        /// size and time.
        hash: Option<Hash>,
        /// It was there before, identical, and was left alone.
        same: bool,
    },
    /// An entry failed.
    Failed {
        /// Which.
        path: String,
        /// Why.
        failure: Failure,
    },
}

/// That a copy stands still: it opens a stream over each other route that was chosen for it,
/// however small it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standstill {
    /// No stream has ever been open.
    Unopened,
    /// None has, and an attempt over the direct route has failed for good.
    Failed,
    /// One has, and nothing moves.
    Silent,
}

impl Standstill {
    /// How long that must have been so.
    #[must_use]
    pub const fn after(self) -> Duration {
        match self {
            // By then the first connection's SYN was lost, which is sent again after a second (RFC
            // 6298, section 2), or the path is a very long one.
            Self::Unopened => Duration::from_secs(1),
            // There is nothing to wait for.
            Self::Failed => Duration::ZERO,
            // A connection that has lost packets sends again before that, several times.
            Self::Silent => Duration::from_secs(3),
        }
    }
}

impl fmt::Display for Standstill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let after = quantities::Time(self.after());
        match self {
            Self::Unopened => write!(f, "the direct route was not open after {after}"),
            Self::Failed => f.write_str("the direct route could not be opened"),
            Self::Silent => write!(f, "nothing had moved for {after}"),
        }
    }
}

/// How a route stands beside the direct one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RouteStanding {
    /// It joined the copy.
    Joined,
    /// It left the copy: whoever chose it no longer does.
    Left,
    /// It has as many streams as each other.
    Even,
    /// Its streams carry more: it has all but one of them.
    Better,
    /// Its streams carry less: it has one.
    Slower,
    /// It is not open when it should be: one stream is tried.
    Late,
    /// It moved nothing: what its streams carried goes elsewhere.
    Stalled,
    /// No attempt can succeed.
    Gone,
}

impl RouteStanding {
    /// In one word, as reports have it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Joined => "joined",
            Self::Left => "left",
            Self::Even => "even",
            Self::Better => "better",
            Self::Slower => "slower",
            Self::Late => "late",
            Self::Stalled => "stalled",
            Self::Gone => "gone",
        }
    }

    /// Whether whoever chose it was wrong.
    #[must_use]
    pub const fn is_bad(self) -> bool {
        matches!(self, Self::Slower | Self::Late | Self::Stalled | Self::Gone)
    }
}

/// Receives events. Called from several threads; must not block.
pub trait Observer: Send + Sync + 'static {
    /// Something happened.
    fn event(&self, event: Event);
}

/// Receives events and does nothing with them.
impl Observer for () {
    fn event(&self, _: Event) {}
}
