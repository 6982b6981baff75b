//! Messages between the two sides of an ssh connection: one JSON object per line.
//!
//! The far side begins with [`FarAnswer::Ready`]; then each [`FarQuestion`] gets its answer, in
//! order. Fields may be added within a [`VERSION`]; unknown ones are ignored. Public keys are
//! exchanged here, private ones never.

use std::net::IpAddr;

use longhaul_proto::{PortRange, PublicKey};
pub use longhaul_transfer::files::message::PathBytes;
use longhaul_transfer::files::message::{FilesRequest, FilesResponse};
pub use longhaul_transfer::remote_copy::{
    CopyAsk, CopyDirection, CopyEnd, CopyEvent, CopyProgress,
};
use serde::{Deserialize, Serialize};

use crate::ClientClock;

/// Version of these messages.
pub const VERSION: u32 = 2;
/// Maximum bytes of a line: far more than the HELLO of a copy takes.
pub const MAX_LINE_BYTES: usize = 4 << 20;

/// A question to the far side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum FarQuestion {
    /// Permit this key to access these paths. Answered by [`FarAnswer::Serving`].
    Serve(ServeAsk),
    /// Connect to the asking side, and accept a session over that connection. Answered by
    /// [`FarAnswer::Dialled`].
    Dial {
        /// Names and addresses of the asking side, the likeliest first.
        hosts: Vec<String>,
        /// Port of the asking side.
        port: u16,
        /// Time limit, in milliseconds.
        #[serde(default)]
        within_ms: Option<u32>,
    },
    /// Carry one session over standard input and output from the answer on. Answered by
    /// [`FarAnswer::Inside`].
    Inside,
    /// List files, or change names. Answered by [`FarAnswer::Files`].
    Files(FilesRequest),
    /// Be the client of a copy with another far side. Answered by [`FarAnswer::Event`]s and
    /// [`FarAnswer::Ended`], or by [`FarAnswer::NotReached`].
    Copy(Box<CopyAsk>),
    /// As [`FarQuestion::Copy`], with a filter or a restriction of what is replaced. A far side of
    /// an earlier release, which knows neither, refuses it.
    CopySelected(Box<CopyAsk>),
}

/// Content of [`FarQuestion::Serve`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServeAsk {
    /// Key of the client.
    pub client: PublicKey,
    /// Operations that it may do.
    pub access: Access,
    /// Paths as typed. For writing there is one path, the destination.
    pub paths: Vec<PathBytes>,
    /// If true, a source that is a symbolic link is followed.
    pub follow: bool,
    /// Ports to listen on; any free port if `None`.
    #[serde(default)]
    pub ports: Option<PortRange>,
    /// TCP congestion control.
    pub congestion: Option<String>,
    /// If true, the data of large files may be sent as plaintext.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_encrypt: bool,
    /// The client's clock, with which the far side checks what the client has signed. Earlier
    /// releases ignore it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClientClock>,
}

/// Operations of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Receive the files.
    Read,
    /// Create files, and replace none.
    Create,
    /// Create and replace files.
    Write,
}

/// Returns the question about a copy. Which one depends on what an earlier release has to know.
#[must_use]
pub fn copy_question(ask: CopyAsk) -> FarQuestion {
    let restricts = !ask.existing_policy().is_default();
    match restricts || !(ask.filter.is_empty() || ask.filter.is_only_ignore_files()) {
        true => FarQuestion::CopySelected(Box::new(ask)),
        false => FarQuestion::Copy(Box::new(ask)),
    }
}

/// A message of the far side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum FarAnswer {
    /// The first message, which is not an answer.
    Ready(Ready),
    /// It serves.
    Serving {
        /// The port it listens on; `None` if it can't listen.
        port: Option<u16>,
        /// Reason why it can't listen.
        why_not: Option<String>,
        /// The paths beneath its root, in the order of the question.
        paths: Vec<PathBytes>,
    },
    /// A session is established over a connection that the far side made, to this one of the named
    /// hosts.
    Dialled {
        /// The host that it reached.
        host: String,
    },
    /// The far side could not make such a connection.
    NotDialled {
        /// Attempts, in one line.
        reason: String,
    },
    /// The next bytes belong to a session.
    Inside,
    /// Listed files, or the result of a change.
    Files(FilesResponse),
    /// The other far side was not reached, so nothing was copied.
    NotReached {
        /// Attempts, in one line.
        reason: String,
    },
    /// An event of the copy whose client the far side is.
    Event(CopyEvent),
    /// Progress of that copy.
    Progress(CopyProgress),
    /// End of that copy.
    Ended(CopyEnd),
    /// The question cannot be answered.
    Refused {
        /// Reason, in one line.
        reason: String,
    },
}

/// Content of [`FarAnswer::Ready`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ready {
    /// Version of the messages: [`VERSION`].
    pub version: u32,
    /// Version of the copy protocol.
    pub copy_version: u16,
    /// Release of longhaul.
    pub release: String,
    /// The far side's key, made for this login alone.
    pub key: PublicKey,
    /// Source address of ssh's connection, as the host saw it.
    pub client: Option<IpAddr>,
    /// Destination address of ssh's connection.
    pub server: Option<IpAddr>,
    /// The host's own addresses.
    pub addresses: Vec<IpAddr>,
    /// The host's clock, in milliseconds since 1970-01-01 UTC. Earlier releases do not send it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unix_ms: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_keep_their_form() {
        let ask = FarQuestion::Serve(ServeAsk {
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
                "{{\"ask\":\"serve\",\"client\":\"{}\",\"access\":\"create\",\
                 \"paths\":[\"Yf8=\"],\"follow\":true,\"ports\":\"50000-50010\",\
                 \"congestion\":null}}",
                PublicKey::from_bytes([1; 32])
            )
        );
        assert_eq!(serde_json::from_str::<FarQuestion>(&line).unwrap(), ask);
        assert_eq!(
            serde_json::from_str::<FarQuestion>("{\"ask\":\"inside\",\"later\":1}").unwrap(),
            FarQuestion::Inside
        );
    }
}
