//! A copy whose client is another host than the one that asks for it, over ssh or by the service
//! `fetch`: what is asked for ([`CopyAsk`]), and the reports of events, counters and the end, as
//! lines of JSON. The host that runs the copy sends them ([`EventReporter`]), and the one that
//! asked shows them as if it were the client itself.

mod ask;
mod reporter;

use std::sync::atomic::Ordering;
use std::time::Duration;

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Failure, FailureKind};
use crate::progress::{TransferEvent, TransferProgress};
use crate::route_info::RouteInfo;
use crate::tree_hash::Hash;

pub use ask::{CopyAsk, CopyDirection};
pub use reporter::EventReporter;

/// Interval between two reports of the counters.
pub const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);

/// An event of a copy whose client is another host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum CopyEvent {
    /// A stream is open.
    StreamOpened {
        /// Number of the stream.
        stream: u32,
    },
    /// A stream was lost.
    StreamLost {
        /// Number of the stream, if it ever opened.
        stream: Option<u32>,
        /// Reason.
        reason: String,
    },
    /// The copy waits, as nothing arrives: see [`TransferEvent::Waiting`].
    Waiting {
        /// Milliseconds since something arrived.
        silence_ms: u64,
        /// Milliseconds after which the copy is given up.
        patience_ms: u64,
    },
    /// Data arrives again.
    Back {
        /// Milliseconds for which nothing had arrived.
        after_ms: u64,
    },
    /// The copy was lost, and another one replaces it.
    BegunAgain {
        /// Reason.
        reason: String,
    },
    /// A file is resumed.
    Resumed {
        /// Path of the file.
        path: String,
        /// Bytes of it that have arrived.
        bytes: u64,
        /// Size of the whole file in bytes.
        size: u64,
    },
    /// An entry is complete.
    Done {
        /// Path of the entry.
        path: String,
        /// Size in bytes, if it is a file.
        bytes: Option<u64>,
        /// BLAKE3 hash in hexadecimal, if it is a file.
        blake3: Option<String>,
        /// True if it existed before.
        same: bool,
    },
    /// An entry failed.
    Failed {
        /// Path of the entry.
        path: String,
        /// Kind of failure.
        kind: FailureKind,
        /// Details.
        detail: String,
    },
}

/// Counters of such a copy, as in [`TransferProgress`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[allow(missing_docs, reason = "each is the counter of that name")]
pub struct CopyProgress {
    pub entries_found: u64,
    pub bytes_found: u64,
    pub walk_complete: bool,
    pub entries_done: u64,
    pub files_done: u64,
    pub bytes_done: u64,
    #[serde(default)]
    pub bytes_resumed: Option<u64>,
    #[serde(default)]
    pub files_unchanged: u64,
    #[serde(default)]
    pub bytes_unchanged: u64,
    #[serde(default)]
    pub files_linked: u64,
    #[serde(default)]
    pub bytes_linked: u64,
    pub failures: u64,
    #[serde(default)]
    pub bytes_clear: u64,
    #[serde(default)]
    pub bytes_saved: u64,
}

/// Result of such a copy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CopyEnd {
    /// Hash over all entries in hexadecimal, if the copy completed.
    pub manifest: Option<String>,
    /// Error that ended it early, in one line.
    pub error: Option<String>,
    /// Kind of that error.
    pub kind: Option<CopyErrorKind>,
}

/// Kinds of [`Error`], as far as exit codes distinguish them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CopyErrorKind {
    /// The other side could not be reached.
    Connect,
    /// The key is not permitted to do this.
    Unauthorised,
    /// Refused for another reason.
    Refused,
    /// The copy broke off.
    BrokeOff,
    /// The two sides disagree or do not understand each other.
    Disagreement,
    /// A path can't be used.
    Path,
}

impl CopyEvent {
    /// Returns the event as a client would report it. `route` is what streams are said to use.
    /// Counts what was resumed in `progress`.
    #[must_use]
    pub fn into_event(self, route: RouteInfo, progress: &TransferProgress) -> TransferEvent {
        match self {
            Self::StreamOpened { stream } => TransferEvent::StreamOpened { stream, route },
            Self::StreamLost { stream, reason } => TransferEvent::StreamLost {
                stream,
                route,
                reason,
                is_silent: false,
            },
            Self::Resumed { path, bytes, size } => {
                progress.bytes_resumed.fetch_add(bytes, Ordering::Relaxed);
                TransferEvent::Resumed { path, bytes, size }
            }
            Self::Done {
                path,
                bytes,
                blake3,
                same,
            } => TransferEvent::Done {
                path,
                bytes,
                hash: blake3.and_then(|text| parse_hash(&text)),
                same,
            },
            Self::Waiting {
                silence_ms,
                patience_ms,
            } => TransferEvent::Waiting {
                silence: Duration::from_millis(silence_ms),
                patience: Duration::from_millis(patience_ms),
            },
            Self::Back { after_ms } => TransferEvent::ArrivalResumed {
                after: Duration::from_millis(after_ms),
            },
            Self::BegunAgain { reason } => TransferEvent::CopyReplaced { reason },
            Self::Failed { path, kind, detail } => TransferEvent::Failed {
                path,
                failure: Failure::with_detail(kind, detail),
            },
        }
    }
}

impl CopyProgress {
    /// Reads the counters of a running copy.
    #[must_use]
    pub fn read(progress: &TransferProgress) -> Self {
        Self {
            entries_found: progress.entries_found.load(Ordering::Relaxed),
            bytes_found: progress.bytes_found.load(Ordering::Relaxed),
            walk_complete: progress.walk_complete.load(Ordering::Relaxed),
            entries_done: progress.entries_done.load(Ordering::Relaxed),
            files_done: progress.files_done.load(Ordering::Relaxed),
            bytes_done: progress.bytes_done.load(Ordering::Relaxed),
            bytes_resumed: Some(progress.bytes_resumed.load(Ordering::Relaxed)),
            bytes_saved: progress.bytes_saved.load(Ordering::Relaxed),
            bytes_clear: progress.bytes_plaintext.load(Ordering::Relaxed),
            files_unchanged: progress.files_unchanged.load(Ordering::Relaxed),
            bytes_unchanged: progress.bytes_unchanged.load(Ordering::Relaxed),
            files_linked: progress.files_linked.load(Ordering::Relaxed),
            bytes_linked: progress.bytes_linked.load(Ordering::Relaxed),
            failures: progress.failures.load(Ordering::Relaxed),
        }
    }

    /// Sets the counters of the host that asked for the copy.
    pub fn apply(&self, progress: &TransferProgress) {
        for (counter, value) in [
            (&progress.entries_found, self.entries_found),
            (&progress.bytes_found, self.bytes_found),
            (&progress.entries_done, self.entries_done),
            (&progress.files_done, self.files_done),
            (&progress.bytes_done, self.bytes_done),
            (&progress.files_unchanged, self.files_unchanged),
            (&progress.bytes_unchanged, self.bytes_unchanged),
            (&progress.files_linked, self.files_linked),
            (&progress.bytes_linked, self.bytes_linked),
            (&progress.failures, self.failures),
            (&progress.bytes_plaintext, self.bytes_clear),
            (&progress.bytes_saved, self.bytes_saved),
        ] {
            counter.store(value, Ordering::Relaxed);
        }
        if let Some(resumed) = self.bytes_resumed {
            progress.bytes_resumed.store(resumed, Ordering::Relaxed);
        }
        progress
            .walk_complete
            .store(self.walk_complete, Ordering::Relaxed);
    }
}

impl CopyEnd {
    /// Returns the report of a copy that ended with this hash over all entries, or early.
    #[must_use]
    pub fn new(ended: &Result<Hash, Error>) -> Self {
        match ended {
            Ok(manifest) => Self {
                manifest: Some(HEXLOWER.encode(manifest)),
                error: None,
                kind: None,
            },
            Err(error) => Self {
                manifest: None,
                error: Some(reason(error)),
                kind: Some(kind(error)),
            },
        }
    }

    /// Returns how the copy of `host` ended.
    ///
    /// # Errors
    /// The error that ended it early.
    pub fn into_result(self, host: &str) -> Result<Hash, Error> {
        if let Some(manifest) = self.manifest.as_deref().and_then(parse_hash) {
            return Ok(manifest);
        }
        let reported = self.error.unwrap_or("it did not report a result".into());
        let text = longhaul_proto::text::printable(format!("{host}: {reported}").as_bytes());
        Err(match self.kind {
            Some(CopyErrorKind::Connect) => Error::Connect(text),
            Some(CopyErrorKind::Unauthorised) => Error::Unauthorised(text),
            Some(CopyErrorKind::Disagreement) if reported == Error::Disagreement.to_string() => {
                Error::Disagreement
            }
            Some(CopyErrorKind::Disagreement) => Error::Protocol(text),
            Some(CopyErrorKind::BrokeOff) | None => Error::StreamsLost(text),
            Some(CopyErrorKind::Refused | CopyErrorKind::Path) => Error::Refused(text),
        })
    }
}

/// Returns the reason of an error, without the words that [`CopyEnd::into_result`] adds again.
fn reason(error: &Error) -> String {
    match error {
        Error::Refused(reason) | Error::StreamsLost(reason) | Error::Protocol(reason) => {
            reason.clone()
        }
        error => error.to_string(),
    }
}

fn kind(error: &Error) -> CopyErrorKind {
    match error {
        Error::Connect(_) => CopyErrorKind::Connect,
        Error::Unauthorised(_) | Error::Token(_) => CopyErrorKind::Unauthorised,
        Error::StreamsLost(_) | Error::Stream(_) | Error::CopyLost(_) => CopyErrorKind::BrokeOff,
        Error::Protocol(_) | Error::NotAsked(_) | Error::Disagreement => {
            CopyErrorKind::Disagreement
        }
        Error::Path { .. } => CopyErrorKind::Path,
        Error::Refused(_) | Error::Limit(_) => CopyErrorKind::Refused,
    }
}

fn parse_hash(text: &str) -> Option<Hash> {
    HEXLOWER.decode(text.as_bytes()).ok()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_keep_their_kind_and_say_nothing_twice() {
        let told = |error: Error| {
            let end = CopyEnd::new(&Err(error));
            let line = serde_json::to_string(&end).unwrap();
            let end: CopyEnd = serde_json::from_str(&line).unwrap();
            end.into_result("b.example").unwrap_err().to_string()
        };
        assert_eq!(
            told(Error::Refused("no room".into())),
            "the server refuses: b.example: no room"
        );
        assert_eq!(
            told(Error::StreamsLost("reset".into())),
            "the copy broke off: b.example: reset"
        );
        assert_eq!(told(Error::Disagreement), Error::Disagreement.to_string());
        assert!(told(Error::Protocol("odd".into())).contains("protocol: b.example: odd"));
        assert_eq!(
            CopyEnd::new(&Ok([7; 32])).into_result("b").unwrap(),
            [7; 32]
        );
        let odd = CopyEnd {
            manifest: None,
            error: Some("a\n\x1b[2J".into()),
            kind: Some(CopyErrorKind::Unauthorised),
        };
        let error = odd.into_result("b").unwrap_err();
        assert!(matches!(&error, Error::Unauthorised(text) if !text.contains(char::is_control)));
    }

    #[test]
    fn counters_arrive_as_they_were_read() {
        let (there, here) = (TransferProgress::default(), TransferProgress::default());
        there.bytes_done.store(7, Ordering::Relaxed);
        there.failures.store(2, Ordering::Relaxed);
        there.walk_complete.store(true, Ordering::Relaxed);
        CopyProgress::read(&there).apply(&here);
        assert_eq!(CopyProgress::read(&here), CopyProgress::read(&there));
    }
}
