//! Events of a copy: the lines of `longhaul cp --json`.

use longhaul_transfer::{FailureKind, RouteStanding};
use serde::{Deserialize, Serialize};

use crate::{CopyReport, Progress};

/// Line of `longhaul cp --json`. `docs/json.md` describes the fields.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum CopyEvent {
    /// Something that is no failure, but that the user may want to change.
    Notice {
        /// Text for people.
        message: String,
    },
    /// A stream is open.
    StreamOpened {
        /// Number of the stream.
        stream: u32,
        /// Route of the stream.
        route: String,
    },
    /// A stream was lost.
    StreamLost {
        /// Number of the stream, if it ever opened.
        stream: Option<u32>,
        /// Route of the stream.
        route: String,
        /// Reason, for people.
        reason: String,
    },
    /// Nothing arrives.
    Waiting {
        /// The server.
        #[serde(rename = "for")]
        server: String,
        /// Seconds since the last arrival.
        seconds: u64,
        /// Seconds after which the copy is given up.
        patience_seconds: u64,
    },
    /// Data arrives again.
    Back {
        /// The server.
        #[serde(rename = "for")]
        server: String,
        /// Seconds of silence.
        seconds: u64,
    },
    /// The server lost the copy, and another one replaces it.
    BegunAgain {
        /// Reason, for people.
        reason: String,
    },
    /// The share of a chosen route in the streams changed.
    Route(RouteVerdict),
    /// The state of the copy's deadline or of its reservations changed.
    Deadline(DeadlineEvent),
    /// A file is resumed from what an earlier copy left.
    Resumed {
        /// Path of the file.
        path: String,
        /// Bytes that exist.
        bytes: u64,
        /// Size of the file, in bytes.
        size: u64,
    },
    /// Sample of the copy's progress.
    Progress {
        /// Counters and rates.
        #[serde(flatten)]
        progress: Progress,
        /// Seconds for which nothing has arrived; `None` while that is short.
        waiting_seconds: Option<u64>,
    },
    /// An entry is in place and verified.
    Done {
        /// Path of the entry.
        path: String,
        /// Size in bytes; `None` for directories and links.
        bytes: Option<u64>,
        /// Hash in hexadecimal, if it is known.
        blake3: Option<String>,
        /// True if the entry existed already.
        same: bool,
    },
    /// An entry was not copied.
    Failed(FailedEntry),
    /// The copy ended. The line has more fields than these, for people and other programs.
    Report(CopyReport),
}

/// A change in a route's share of the streams.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RouteVerdict {
    /// The route, as `--route` takes it.
    pub route: String,
    /// Its standing from then on.
    pub standing: RouteStanding,
    /// Reason, for people.
    pub reason: String,
}

/// An entry that was not copied.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FailedEntry {
    /// Path of the entry.
    pub path: String,
    /// Reason, for programs.
    pub kind: FailureKind,
    /// Reason, for people.
    pub message: String,
}

/// A change of a deadline or of its reservations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeadlineEvent {
    /// The state from then on.
    pub state: DeadlineStatus,
    /// Text for people.
    pub message: Option<String>,
    /// Fields that depend on the state.
    #[serde(flatten)]
    pub details: DeadlineDetails,
}

/// State of a deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeadlineStatus {
    /// Bandwidth is reserved.
    Reserved,
    /// The reservation changed.
    Changed,
    /// The controller refused a reservation.
    Refused,
    /// A request to the controller failed.
    Failed,
    /// The reservation was returned.
    Returned,
    /// A reserved route has lost its streams.
    WayFailed,
    /// A reserved route has a stream again.
    WayBack,
    /// The deadline may be missed.
    AtRisk,
}

/// Fields of a [`DeadlineEvent`] that depend on its state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum DeadlineDetails {
    /// In the state `at-risk`.
    Outlook {
        /// If false, the deadline may still be met.
        is_missed: bool,
        /// Expected end by best effort, in milliseconds since the Unix epoch.
        expected_end_ms: Option<u64>,
        /// Time by which the needed bandwidth could be reserved.
        later_ms: Option<u64>,
        /// Bytes for which bandwidth could be reserved by the deadline.
        volume_bytes: Option<u64>,
    },
    /// In all other states.
    Reservation {
        /// Number of the reservation.
        reservation: Option<u64>,
        /// Reason of a failure, for people.
        error: Option<String>,
    },
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Lines as `docs/json.md` describes them.
    #[test]
    fn events_keep_their_form() {
        let lines = [
            json!({"event": "notice", "message": "m"}),
            json!({"event": "stream_opened", "stream": 1, "route": "direct"}),
            json!({"event": "stream_lost", "stream": null, "route": "direct", "reason": "r"}),
            json!({"event": "waiting", "for": "s", "seconds": 3, "patience_seconds": 300}),
            json!({"event": "back", "for": "s", "seconds": 3}),
            json!({"event": "begun_again", "reason": "r"}),
            json!({"event": "route", "route": "a:1", "standing": "late", "reason": "r"}),
            json!({
                "event": "deadline", "state": "way-failed", "reservation": 7, "message": "m",
                "error": null
            }),
            json!({
                "event": "deadline", "state": "at-risk", "is_missed": false, "message": "m",
                "expected_end_ms": 5, "later_ms": null, "volume_bytes": 6
            }),
            json!({"event": "resumed", "path": "p", "bytes": 1, "size": 2}),
            json!({
                "event": "progress", "seconds": 0.5, "bytes": 1, "bytes_found": 2,
                "walk_complete": true, "files": 3, "entries_found": 4, "bps": 5.0,
                "routes_bps": {"direct": 5.0}, "waiting_seconds": null
            }),
            json!({"event": "done", "path": "p", "bytes": null, "blake3": null, "same": true}),
            json!({"event": "failed", "path": "p", "kind": "not_found", "message": "m"}),
            json!({
                "event": "report", "ok": false, "exit_code": 130, "error": null,
                "worth_retrying": false, "kept": true, "bytes": 1, "resumed_bytes": 2,
                "unchanged_files": 3, "unchanged_bytes": 4, "linked_files": 5, "linked_bytes": 6,
                "files": 7, "entries": 8, "seconds": 9.0, "goodput_bps": 10.0, "failed": 11
            }),
        ];
        for line in lines {
            let event: CopyEvent = serde_json::from_value(line.clone()).unwrap();
            assert_eq!(serde_json::to_value(event).unwrap(), line);
        }
    }

    #[test]
    fn fields_of_later_releases_are_ignored() {
        for line in [
            r#"{"event": "progress", "bytes": 7, "later": 1}"#,
            r#"{"event": "report", "bytes": 7, "later": {"more": [1]}}"#,
        ] {
            assert!(serde_json::from_str::<CopyEvent>(line).is_ok(), "{line}");
        }
    }
}
