//! What the two sides of an ssh connection say to each other: one JSON object a line.
//!
//! The far side begins with [`Answer::Ready`]; then each [`Ask`] gets its answer, in order. Fields
//! may be added within a [`VERSION`]; unknown ones are passed over. Public keys travel here,
//! private ones never.

use std::fmt::Display;
use std::net::IpAddr;
use std::str::FromStr;

use longhaul_proto::PublicKey;
use longhaul_transfer::FailureKind;
pub use longhaul_transfer::files::message::PathBytes;
use longhaul_transfer::files::message::{FilesAnswer, FilesAsk};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{ClientClock, PortRange};

/// Version of these messages.
pub const VERSION: u32 = 2;
/// Longest line, in bytes: far more than the HELLO of a copy takes.
pub const MAX_LINE: usize = 4 << 20;

/// What the near side asks of the far side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum Ask {
    /// Let this key do that with these paths. Answered by [`Answer::Serving`].
    Serve(ServeAsk),
    /// Connect to the near side and take a session over that connection. Answered by
    /// [`Answer::Dialled`].
    Dial {
        /// Names and addresses of the near side, the likeliest first.
        hosts: Vec<String>,
        /// Its port.
        port: u16,
        /// How long that may take, in milliseconds.
        #[serde(default)]
        within_ms: Option<u32>,
    },
    /// From the answer on, standard input and output carry one session. Answered by
    /// [`Answer::Inside`].
    Inside,
    /// Look at files, or change names. Answered by [`Answer::Files`].
    Files(FilesAsk),
    /// Be the copy's client, of another far side. Answered by [`Answer::Event`]s and
    /// [`Answer::Ended`], or by [`Answer::NotReached`].
    Copy(Box<CopyAsk>),
}

/// See [`Ask::Serve`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServeAsk {
    /// Whom.
    #[serde(with = "as_text")]
    pub client: PublicKey,
    /// What it may do.
    pub access: Access,
    /// With what, as typed; for writing there is one path, the destination.
    pub paths: Vec<PathBytes>,
    /// A source that is a symbolic link is followed.
    pub follow: bool,
    /// Where to listen; any free port if none.
    #[serde(default, with = "as_optional_text")]
    pub ports: Option<PortRange>,
    /// TCP congestion control.
    pub congestion: Option<String>,
    /// The data of large files may travel in the clear.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_encrypt: bool,
    /// The client's clock, by which the far side judges what the client has signed. Earlier
    /// releases pass over it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClientClock>,
}

/// What the client may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Receive the files.
    Read,
    /// Put files where none are.
    Create,
    /// Put files and replace what is there.
    Write,
}

/// See [`Ask::Copy`]. The paths of this host are as typed, those of the other are beneath its root,
/// as it reported.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CopyAsk {
    /// The other far side's key.
    #[serde(with = "as_text")]
    pub server: PublicKey,
    /// Its names and addresses, the likeliest first.
    pub hosts: Vec<String>,
    /// Its port.
    pub port: u16,
    /// Which way.
    pub direction: Direction,
    /// The sources.
    pub sources: Vec<PathBytes>,
    /// The names that they take in a directory.
    pub names: Vec<PathBytes>,
    /// What they are called in messages.
    pub labels: Vec<String>,
    /// Where they go.
    pub destination: PathBytes,
    /// A directory is meant.
    pub into: bool,
    /// With all they hold.
    pub recursive: bool,
    /// Replace files that exist.
    pub overwrite: bool,
    /// Force files to disk.
    pub fsync: bool,
    /// Keep what is there of large files when the copy ends early, and go on with what is kept.
    pub resume: bool,
    /// Compare the content of files that are there already, in place of their sizes and times.
    #[serde(default)]
    pub checksum: bool,
    /// Names of one file become names of one file.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hard_links: bool,
    /// Number of streams, if it is to be fixed.
    pub streams: Option<u32>,
    /// How long an outage is waited out, in milliseconds; `None` from a near side that knows no
    /// event of waiting.
    #[serde(default)]
    pub patience_ms: Option<u64>,
    /// TCP congestion control.
    pub congestion: Option<String>,
    /// The data of large files travels in the clear, if the other side allows it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_encrypt: bool,
    /// Every entry that is done is reported, not only counted.
    pub report_done: bool,
}

/// Which way a copy goes, from its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// The client sends.
    Push,
    /// The client receives.
    Pull,
}

/// What the far side says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// Said first, unasked.
    Ready(Ready),
    /// It serves.
    Serving {
        /// The port it listens on; none if it can't listen.
        port: Option<u16>,
        /// Why it can't.
        why_not: Option<String>,
        /// The paths beneath its root, in the order of the question.
        paths: Vec<PathBytes>,
    },
    /// A session stands over a connection that the far side made, to this host of those that were
    /// named to it.
    Dialled {
        /// Whom it reached.
        host: String,
    },
    /// No such connection came about.
    NotDialled {
        /// What was tried, in one line.
        reason: String,
    },
    /// The next bytes are a session's.
    Inside,
    /// What is there, or what became of it.
    Files(FilesAnswer),
    /// The other far side was not reached, so nothing was copied.
    NotReached {
        /// What was tried, in one line.
        reason: String,
    },
    /// Something happened in the copy that the far side is the client of.
    Event(CopyEvent),
    /// How that copy stands.
    Progress(CopyProgress),
    /// That copy is over.
    Ended(CopyEnd),
    /// The question can't be answered.
    Refused {
        /// Why, in one line.
        reason: String,
    },
}

/// See [`Answer::Ready`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ready {
    /// [`VERSION`].
    pub version: u32,
    /// The version of the copy protocol.
    pub copy_version: u16,
    /// The release of longhaul.
    pub release: String,
    /// The far side's key, made for this login alone.
    #[serde(with = "as_text")]
    pub key: PublicKey,
    /// Where ssh's connection came from, as the host saw it.
    pub client: Option<IpAddr>,
    /// Where it came to.
    pub server: Option<IpAddr>,
    /// The host's own addresses.
    pub addresses: Vec<IpAddr>,
    /// The host's clock, in milliseconds since 1970-01-01 UTC. Earlier releases do not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unix_ms: Option<u64>,
}

/// An event of a copy between two far sides.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum CopyEvent {
    /// A stream is open.
    StreamOpened {
        /// Its number.
        stream: u32,
    },
    /// A stream was lost.
    StreamLost {
        /// Its number, if it ever opened.
        stream: Option<u32>,
        /// Why.
        reason: String,
    },
    /// Nothing arrives: see [`longhaul_transfer::Event::Waiting`].
    Waiting {
        /// Milliseconds since something arrived.
        silence_ms: u64,
        /// Milliseconds after which the copy is given up.
        patience_ms: u64,
    },
    /// Something arrives again.
    Back {
        /// Milliseconds for which nothing had arrived.
        after_ms: u64,
    },
    /// The copy was lost, and another one takes its place.
    BegunAgain {
        /// Why.
        reason: String,
    },
    /// A file is gone on with.
    Resumed {
        /// Which.
        path: String,
        /// Bytes of it that are there.
        bytes: u64,
        /// Bytes of all of it.
        size: u64,
    },
    /// An entry is in place.
    Done {
        /// Which.
        path: String,
        /// Its size, if it is a file.
        bytes: Option<u64>,
        /// Its BLAKE3 hash in hexadecimal, if it is a file.
        blake3: Option<String>,
        /// It was there before.
        same: bool,
    },
    /// An entry failed.
    Failed {
        /// Which.
        path: String,
        /// Why.
        kind: FailureKind,
        /// More.
        detail: String,
    },
}

/// Counters of a copy between two far sides, as [`longhaul_transfer::Progress`] has them.
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
}

/// How a copy between two far sides ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CopyEnd {
    /// The hash over all entries in hexadecimal, if the copy came to its end.
    pub manifest: Option<String>,
    /// Why it did not, in one line.
    pub error: Option<String>,
    /// What kind of error that is.
    pub kind: Option<CopyErrorKind>,
}

/// Kinds of [`longhaul_transfer::Error`], as far as an exit code distinguishes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CopyErrorKind {
    /// No way led to the other side.
    Connect,
    /// Not allowed.
    Unauthorised,
    /// Refused for another reason.
    Refused,
    /// It broke off.
    BrokeOff,
    /// The two sides disagree or do not understand each other.
    Disagreement,
    /// A path can't be used.
    Path,
}

/// What has a text form of its own.
mod as_text {
    use super::*;

    pub fn serialize<T: Display, S: Serializer>(
        value: &T,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    pub fn deserialize<'de, T, D>(deserializer: D) -> Result<T, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// The same, where it may be missing.
mod as_optional_text {
    use super::*;

    pub fn serialize<T: Display, S: Serializer>(
        value: &Option<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => serializer.collect_str(value),
            None => serializer.serialize_none(),
        }
    }

    pub fn deserialize<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| text.parse().map_err(serde::de::Error::custom))
            .transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_keep_their_form() {
        let ask = Ask::Serve(ServeAsk {
            client: PublicKey::from_bytes([1; 32]),
            access: Access::Create,
            paths: vec![PathBytes(b"a\xff".to_vec())],
            follow: true,
            ports: Some("50000-50010".parse().unwrap()),
            congestion: None,
            no_encrypt: false,
            clock: None,
        });
        let line = serde_json::to_string(&ask).unwrap();
        assert_eq!(
            line,
            format!(
                "{{\"ask\":\"serve\",\"client\":\"{}\",\"access\":\"create\",\"paths\":[\"Yf8=\"],\"follow\":true,\"ports\":\"50000-50010\",\"congestion\":null}}",
                PublicKey::from_bytes([1; 32])
            )
        );
        assert_eq!(serde_json::from_str::<Ask>(&line).unwrap(), ask);
        assert_eq!(
            serde_json::from_str::<Ask>("{\"ask\":\"inside\",\"later\":1}").unwrap(),
            Ask::Inside
        );
    }
}
