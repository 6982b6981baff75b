//! Records of copies and sessions. Text from other parties is made printable and bounded.

use std::fmt::Display;
use std::net::SocketAddr;
use std::time::Duration;

use jiff::Timestamp;
use longhaul_proto::Open;
use longhaul_proto::text::printable_within;
use serde::{Deserialize, Serialize};

/// Maximum names of files and directories in a record; the others are counted.
pub const MAX_NAMES: usize = 16;
/// Maximum addresses of a client, and routes, in a record.
pub const MAX_ROUTES: usize = 8;
/// Maximum bytes of a text in a record.
pub const MAX_TEXT_BYTES: usize = 256;
/// Maximum bytes of a line when it is read. Records are far shorter.
pub(crate) const MAX_LINE_BYTES: u64 = 64 * 1024;

/// Version of the format.
const VERSION: u32 = 1;

/// A copy of a server, or a session of a depot or off-ramp.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum AccountRecord {
    /// A copy that a server took part in.
    Copy(CopyRecord),
    /// A session that a depot relayed, or that an off-ramp ended at an ordinary server.
    Session(SessionRecord),
}

/// A copy that a server took part in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CopyRecord {
    /// When and how long it ran.
    #[serde(flatten)]
    pub time: RunTime,
    /// Identity of the copy. The client's streams share it.
    pub id: String,
    /// Key of the client, or of the principal in whose name another key acted.
    pub key: String,
    /// Key that acted for the principal: of the server that fetched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delegate: Option<String>,
    /// Owner of the token that allowed the copy, if the grants of the key did not:
    /// `SUBJECT@ISSUER`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Addresses from which its streams arrived: of the client, or of the last depots. Of a copy
    /// that this server fetched, addresses of the other server.
    pub from: Vec<String>,
    /// Routes of its streams: `direct`, or their depots.
    pub routes: Vec<String>,
    /// Number of streams that it had, over its whole life.
    pub streams: u32,
    /// Direction, as the server sees it.
    pub direction: CopyDirection,
    /// Paths that the client named, below the root: what it read, or where it wrote.
    pub names: Vec<String>,
    /// Number of further names.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_names: u64,
    /// Purpose, as the client stated it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purpose: Option<String>,
    /// Bytes of files in place, whether they travelled or were there already.
    pub bytes: u64,
    /// Bytes of them that travelled in this copy.
    pub bytes_travelled: u64,
    /// Files in place.
    pub files: u64,
    /// Files of them that were in place already.
    pub files_unchanged: u64,
    /// Entries that were not copied.
    pub failed: u64,
    /// Its result.
    pub result: CopyResult,
    /// More about a result other than `completed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Receipt: the BLAKE3 hash over all entries, on which both ends agreed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<String>,
}

/// A session that a depot relayed, or that an off-ramp ended at an ordinary server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionRecord {
    /// When and how long it ran.
    #[serde(flatten)]
    pub time: RunTime,
    /// Service that keeps the record: `depot` or `offramp`.
    pub service: String,
    /// Identity of the session, the same at every hop.
    pub id: String,
    /// Key of the initiator.
    pub key: String,
    /// Address from which it arrived.
    pub from: String,
    /// Address to which it was relayed.
    pub to: String,
    /// Destination of the session.
    pub destination: String,
    /// Ordinary server at which an off-ramp ends it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Service that the initiator asked for, such as `copy`.
    pub requested: String,
    /// Route of the session: `direct`, or its depots.
    pub route: String,
    /// Rule of the policy that admitted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Circuit whose grant it used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub circuit: Option<String>,
    /// Purpose, as the initiator stated it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purpose: Option<String>,
    /// Bytes from the initiator.
    pub forward_bytes: u64,
    /// Bytes to the initiator.
    pub backward_bytes: u64,
    /// Its result.
    pub result: SessionResult,
    /// More about a result other than `completed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// When something ran, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RunTime {
    /// Version of the format.
    #[serde(rename = "v")]
    version: u32,
    /// Time of its end.
    #[serde(with = "moment")]
    pub ended: Timestamp,
    /// Seconds from its beginning to its end.
    pub seconds: f64,
}

/// Direction of a copy, as the server sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CopyDirection {
    /// The client wrote.
    Received,
    /// The client read.
    Sent,
}

/// Result of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CopyResult {
    /// Everything is in place, and both ends agree on it.
    Completed,
    /// Both ends agree on what is in place, and some entries were not copied.
    SomeFailed,
    /// The client left in an orderly manner before the end.
    Abandoned,
    /// The client vanished, and did not return in time.
    ClientLost,
    /// It could not begin.
    Refused,
    /// The server that it was fetched from was lost or out of reach.
    SourceLost,
    /// Its grant was withdrawn.
    Revoked,
    /// Another copy of the same client took over its files.
    Superseded,
    /// The served directory was moved, replaced or mounted over.
    RootDisplaced,
    /// The client broke the protocol.
    ProtocolError,
    /// The client exceeded a limit.
    Limit,
    /// The ends disagree on what is in place.
    Disagreement,
    /// The server stopped.
    Stopped,
}

/// Result of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SessionResult {
    /// Each end closed it after its last byte.
    Completed,
    /// The initiator left before it had sent more than its request.
    Abandoned,
    /// The initiator's side was reset or became unreachable.
    InitiatorDied,
    /// The next hop, or the server of an off-ramp, was reset or became unreachable.
    NextHopDied,
    /// Silence: the time without a byte became too long.
    Idle,
    /// One direction had ended, and no byte moved in the other for too long.
    HalfClosed,
    /// More bytes than stated.
    BeyondSize,
    /// The service stopped.
    Drained,
    /// The rule no longer applied to its principal: a certificate ended or was revoked, or the file
    /// of principals changed.
    Revoked,
}

impl RunTime {
    /// Returns the time of something that took `lasted` and ends now.
    #[must_use]
    pub fn ending_now(lasted: Duration) -> Self {
        Self::new(Timestamp::now(), lasted)
    }

    /// Returns the time of something that took `lasted` and ended at `ended`.
    #[must_use]
    pub fn new(ended: Timestamp, lasted: Duration) -> Self {
        Self {
            version: VERSION,
            ended,
            // Microseconds: more digits would be noise.
            seconds: lasted.as_micros() as f64 / 1e6,
        }
    }
}

impl SessionRecord {
    /// Returns the record of the session that `open` asked for, with `service` as its keeper. It
    /// came from `from`, and went to `to` until now.
    #[must_use]
    pub fn new(
        service: &'static str,
        open: &Open,
        (from, to): (SocketAddr, SocketAddr),
        lasted: Duration,
    ) -> Self {
        Self {
            time: RunTime::ending_now(lasted),
            service: service.to_owned(),
            id: open.session_id.to_string(),
            key: open.principal.to_string(),
            from: from.to_string(),
            to: to.to_string(),
            destination: bounded(&open.destination),
            server: open.onward.as_ref().map(bounded),
            requested: bounded(&open.service),
            route: bounded(&open.route),
            rule: None,
            circuit: None,
            purpose: open.purpose.as_ref().map(bounded),
            forward_bytes: 0,
            backward_bytes: 0,
            result: SessionResult::Completed,
            reason: None,
        }
    }
}

impl CopyResult {
    /// Returns the word of the records, for logs and metrics.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::SomeFailed => "some-failed",
            Self::Abandoned => "abandoned",
            Self::ClientLost => "client-lost",
            Self::Refused => "refused",
            Self::SourceLost => "source-lost",
            Self::Revoked => "revoked",
            Self::Superseded => "superseded",
            Self::RootDisplaced => "root-displaced",
            Self::ProtocolError => "protocol-error",
            Self::Limit => "limit",
            Self::Disagreement => "disagreement",
            Self::Stopped => "stopped",
        }
    }
}

impl SessionResult {
    /// Returns the word of the records.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Abandoned => "abandoned",
            Self::InitiatorDied => "initiator-died",
            Self::NextHopDied => "next-hop-died",
            Self::Idle => "idle",
            Self::HalfClosed => "half-closed",
            Self::BeyondSize => "beyond-size",
            Self::Drained => "drained",
            Self::Revoked => "revoked",
        }
    }
}

impl AccountRecord {
    /// Returns the time of the record.
    #[must_use]
    pub const fn time(&self) -> &RunTime {
        match self {
            Self::Copy(copy) => &copy.time,
            Self::Session(session) => &session.time,
        }
    }

    /// Returns the key of the client or initiator.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Self::Copy(copy) => &copy.key,
            Self::Session(session) => &session.key,
        }
    }

    /// Returns the word of the result.
    #[must_use]
    pub const fn result(&self) -> &'static str {
        match self {
            Self::Copy(copy) => copy.result.word(),
            Self::Session(session) => session.result.word(),
        }
    }

    /// Returns the record as a line, with its newline.
    #[must_use]
    pub fn line(&self) -> Vec<u8> {
        // Only maps with keys other than texts fail, and there are none.
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        line
    }
}

/// Returns printable text of at most [`MAX_TEXT_BYTES`] bytes.
#[must_use]
pub fn bounded(text: impl Display) -> String {
    bounded_bytes(text.to_string().as_bytes())
}

/// Returns printable text of at most [`MAX_TEXT_BYTES`] bytes.
#[must_use]
pub fn bounded_bytes(text: &[u8]) -> String {
    printable_within(text, MAX_TEXT_BYTES)
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Times as in RFC 3339, in UTC with milliseconds.
mod moment {
    use jiff::Timestamp;
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub fn serialize<S: Serializer>(moment: &Timestamp, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(&format_args!("{moment:.3}"))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(text: D) -> Result<Timestamp, D::Error> {
        let text = String::deserialize(text)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn copy(key: &str, ended: &str, bytes: u64) -> AccountRecord {
        AccountRecord::Copy(CopyRecord {
            time: RunTime::new(ended.parse().unwrap(), Duration::from_millis(1500)),
            id: "c0ffee".into(),
            key: key.into(),
            delegate: None,
            subject: None,
            from: vec!["192.0.2.30".into()],
            routes: vec!["direct".into()],
            streams: 4,
            direction: CopyDirection::Received,
            names: vec!["data/run 7".into()],
            more_names: 0,
            purpose: None,
            bytes,
            bytes_travelled: bytes,
            files: 3,
            files_unchanged: 0,
            failed: 0,
            result: CopyResult::Completed,
            reason: None,
            receipt: Some("af13".into()),
        })
    }

    pub(crate) fn session(key: &str, ended: &str, bytes: u64) -> AccountRecord {
        AccountRecord::Session(SessionRecord {
            time: RunTime::new(ended.parse().unwrap(), Duration::from_millis(1500)),
            service: "depot".into(),
            id: "5e55".into(),
            key: key.into(),
            from: "192.0.2.30:57400".into(),
            to: "192.0.2.10:7511".into(),
            destination: "store.example:7511".into(),
            server: None,
            requested: "copy".into(),
            route: "depot.example:7510".into(),
            rule: Some("laptop to store".into()),
            circuit: None,
            purpose: None,
            forward_bytes: bytes,
            backward_bytes: 1296,
            result: SessionResult::InitiatorDied,
            reason: Some("Connection reset by peer (os error 104)".into()),
        })
    }

    #[test]
    fn records_are_single_lines_that_parse_back() {
        for record in [
            copy("lhk1:A", "2026-11-30T03:38:57.123Z", 7),
            session("lhk1:B", "2026-12-01T00:00:00Z", 9),
        ] {
            let line = record.line();
            let text = std::str::from_utf8(&line).unwrap();
            assert_eq!(text.matches('\n').count(), 1, "{text}");
            assert_eq!(
                serde_json::from_slice::<AccountRecord>(&line).unwrap(),
                record
            );
        }
        let line = copy("lhk1:A", "2026-11-30T03:38:57.123Z", 7).line();
        let text = String::from_utf8(line).unwrap();
        let begins = "{\"kind\":\"copy\",\"v\":1,\"ended\":\"2026-11-30T03:38:57.123Z\",\
                      \"seconds\":1.5,";
        assert!(text.starts_with(begins), "{text}");
    }

    #[test]
    fn words_are_those_of_the_records() {
        let results = [CopyResult::Completed, CopyResult::SomeFailed];
        for result in results {
            assert_eq!(serde_json::to_value(result).unwrap(), result.word());
        }
        let results = [SessionResult::NextHopDied, SessionResult::BeyondSize];
        for result in results {
            assert_eq!(serde_json::to_value(result).unwrap(), result.word());
        }
    }

    #[test]
    fn text_of_others_is_printable_and_bounded() {
        assert_eq!(bounded("a\nb\u{202e}"), "a\\u{a}b\\u{202e}");
        assert_eq!(bounded("x".repeat(10_000)).len(), MAX_TEXT_BYTES);
    }
}
