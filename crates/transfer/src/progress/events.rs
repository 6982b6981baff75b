//! Events of a copy, and their observers.

use std::fmt;
use std::time::Duration;

use crate::error::Failure;
use crate::route_info::RouteInfo;
use crate::tree_hash::Hash;

/// An event. Paths are formatted for people; names at the destination are as the user would write
/// them.
#[derive(Debug, Clone)]
pub enum TransferEvent {
    /// A stream is open.
    StreamOpened {
        /// Number of the stream.
        stream: u32,
        /// Route of the stream.
        route: RouteInfo,
    },
    /// A stream was lost. Other streams take over its unanswered blocks.
    StreamLost {
        /// Number of the stream, if it ever opened.
        stream: Option<u32>,
        /// Route of the stream.
        route: RouteInfo,
        /// Reason, which names the hop if it is known.
        reason: String,
        /// If true, the user need not be told. Either the server allows no further stream, or the
        /// copy ends by this and its report gives the reason.
        is_silent: bool,
    },
    /// The copy waits for its server, as nothing has arrived for a while.
    Waiting {
        /// Time since the last arrival.
        silence: Duration,
        /// Time after which the copy is given up.
        patience: Duration,
    },
    /// Data arrives again after [`TransferEvent::Waiting`].
    ArrivalResumed {
        /// Time for which nothing had arrived.
        after: Duration,
    },
    /// The server has lost the copy. Another one replaces it, and every entry is reported again.
    CopyReplaced {
        /// Message or behaviour of the server that showed it.
        reason: String,
    },
    /// The share of a route in the streams changes. Only for routes that the user did not choose.
    RouteJudged {
        /// The route.
        route: RouteInfo,
        /// New standing of the route.
        standing: RouteStanding,
        /// Reason, formatted for people.
        reason: String,
    },
    /// A file is resumed from what an earlier copy has left.
    Resumed {
        /// Path of the file.
        path: String,
        /// Bytes that exist, and need not be sent.
        bytes: u64,
        /// Size of the whole file, in bytes.
        size: u64,
    },
    /// An entry is in place and verified.
    Done {
        /// Path of the entry.
        path: String,
        /// Size in bytes, or `None` for directories and links.
        bytes: Option<u64>,
        /// BLAKE3 hash. `None` for directories and links, and for a file that was recognised by its
        /// size and time.
        hash: Option<Hash>,
        /// True if the entry existed before, identical, and was left alone.
        same: bool,
    },
    /// An entry failed.
    Failed {
        /// Path of the entry.
        path: String,
        /// Reason.
        failure: Failure,
    },
}

/// Kind of a copy's standstill. In one, even a small copy opens a stream over each other route that
/// was chosen for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standstill {
    /// The first stream has not opened yet.
    Unopened,
    /// The first stream has not opened yet, and an attempt over the direct route has failed
    /// permanently.
    Failed,
    /// A stream has been open, and nothing moves.
    Silent,
}

impl Standstill {
    /// Returns the time after which the standstill counts.
    #[must_use]
    pub const fn min_duration(self) -> Duration {
        match self {
            // By then, either the first connection's SYN was lost, which is retransmitted after a
            // second (RFC 6298, section 2), or the path is very long.
            Self::Unopened => Duration::from_secs(1),
            // There is nothing to wait for.
            Self::Failed => Duration::ZERO,
            // By then, a connection that has lost packets has retransmitted several times.
            Self::Silent => Duration::from_secs(3),
        }
    }
}

impl fmt::Display for Standstill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let after = quantities::Time(self.min_duration());
        match self {
            Self::Unopened => write!(f, "the direct route was not open after {after}"),
            Self::Failed => f.write_str("the direct route could not be opened"),
            Self::Silent => write!(f, "nothing had moved for {after}"),
        }
    }
}

/// Standing of a route compared with the direct one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RouteStanding {
    /// It joined the copy.
    Joined,
    /// It left the copy, as it is no longer chosen.
    Left,
    /// It has as many streams as each other route.
    Even,
    /// Its streams carry more, so it has all streams but one.
    Better,
    /// Its streams carry less, so it has one stream.
    Slower,
    /// It takes too long to open, so only one stream is tried.
    Late,
    /// It moved nothing. Other routes take over what its streams carried.
    Stalled,
    /// All attempts are bound to fail.
    Gone,
}

impl RouteStanding {
    /// Returns the standing in one word, as reports show it.
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

    /// Returns true if the route was a bad choice.
    #[must_use]
    pub const fn is_bad(self) -> bool {
        matches!(self, Self::Slower | Self::Late | Self::Stalled | Self::Gone)
    }
}

/// Receiver of events. It is called from several threads, and must not block.
pub trait Observer: Send + Sync + 'static {
    /// Receives an event.
    fn event(&self, event: TransferEvent);
}

/// Ignores events.
impl Observer for () {
    fn event(&self, _: TransferEvent) {}
}
