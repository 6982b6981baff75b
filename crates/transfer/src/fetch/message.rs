//! Messages between a client and the server that fetches for it: one line of JSON each
//! (LH-FETCH-1).
//!
//! Fields may be added within a version; unknown ones are ignored.

use serde::{Deserialize, Serialize};

use crate::remote_copy::{CopyAsk, CopyEnd, CopyEvent, CopyProgress};

/// Maximum length of a line to the server, in bytes. The request of a copy takes less
/// (LH-FETCH-1).
pub const MAX_ASK_BYTES: usize = 1 << 20;
/// Maximum length of a line to the client, in bytes (LH-FETCH-1).
pub const MAX_REPORT_BYTES: usize = 256 << 10;

/// The first line of a client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FetchAsk {
    /// Lowest version that the client speaks.
    pub lowest: u16,
    /// Highest version that the client speaks.
    pub highest: u16,
    /// Permission to read, as text (LH-DELEGATION-6).
    pub delegation: String,
    /// The copy: a pull from the server that it names. Labels and congestion control have no
    /// meaning.
    pub copy: CopyAsk,
}

/// A later line of a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "fetch", rename_all = "snake_case")]
pub enum FetchMessage {
    /// Use this delegation from now on (LH-FETCH-4).
    Renew {
        /// The delegation, as text.
        delegation: String,
    },
}

/// A line of the server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "snake_case")]
pub enum FetchReport {
    /// An event of the copy.
    Event(CopyEvent),
    /// Counters of the copy. Every quarter of a second, so that silence means a lost server
    /// (LH-FETCH-5).
    Progress(CopyProgress),
    /// Number of events that are not reported, as the client took them too slowly (LH-FETCH-5).
    LeftOut {
        /// Number of events.
        events: u64,
    },
    /// The end of the copy, or the reason why there is none. The last line.
    Ended(CopyEnd),
}
