//! Messages between a server, the front, and a worker: lines of JSON over a Unix socket, some with
//! a socket attached.

use longhaul_accounts::CopyRecord;
use longhaul_proto::PublicKey;
use longhaul_transfer::files::message::PathBytes;
use longhaul_transfer::path::RelPath;
use longhaul_transfer::store::quota::{QuotaLimits, QuotaUse};
use longhaul_transfer::{Access, Grants, RunningCopies, ServerLimits, StreamKind, StreamOrigin};
use serde::{Deserialize, Serialize};

/// Message of the front.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum FrontMessage {
    /// The first message. With it comes the socket at which receipts are signed.
    Start(Box<StartMessage>),
    /// A stream of a client. With it come the socket that carries its plaintext, and a pipe for
    /// the byte that announces its end.
    Stream(StreamMessage),
    /// Grants and limits that are in force from now on.
    Grants {
        grants: Vec<GrantMessage>,
        quota: QuotaLimits,
        /// If true, the operator confirms the directory that is at the root's path now.
        reopens_root: bool,
    },
    /// The worker must refuse new copies.
    RefuseCopies,
    /// The server stops.
    Stop,
}

/// Message of a worker.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum WorkerMessage {
    /// It serves.
    Ready,
    /// It cannot serve, and ends.
    Failed { reason: String },
    /// Copies that run now.
    Running {
        copies: usize,
        received: u64,
        sent: u64,
    },
    /// Bytes and files that the account uses now. The count is final if nothing runs that changes
    /// it.
    Usage { used: QuotaUse, is_final: bool },
    /// A copy has ended.
    Ended(Box<CopyRecord>),
    /// It has been idle, and ends unless more streams were passed than it has counted.
    Idle { streams: u64 },
}

/// Settings with which a worker begins.
#[derive(Serialize, Deserialize)]
pub(super) struct StartMessage {
    /// Release of the front. The worker must be of the same.
    pub release: String,
    /// Name of the account.
    pub account: String,
    /// Root of the server: an absolute path.
    pub server_root: PathBytes,
    /// Root of the account beneath it.
    pub root: PathBytes,
    pub umask: u32,
    pub quota: QuotaLimits,
    /// Bytes and files that the account uses; `None` if that has to be counted.
    pub used: Option<QuotaUse>,
    pub grants: Vec<GrantMessage>,
    pub limits: LimitsMessage,
    /// Key that signs receipts.
    pub receipt_key: String,
    /// Seconds without a stream after which the worker ends.
    pub idle_seconds: u64,
}

/// A stream of a client.
#[derive(Serialize, Deserialize)]
pub(super) struct StreamMessage {
    is_copy: bool,
    key: String,
    from: Option<std::net::SocketAddr>,
    local: Option<std::net::SocketAddr>,
    is_tcp: bool,
    route: String,
    purpose: Option<String>,
}

/// A grant.
#[derive(Serialize, Deserialize)]
pub(super) struct GrantMessage {
    key: String,
    access: Access,
    directory: PathBytes,
}

/// Limits of a worker, which are a part of the server's.
#[derive(Serialize, Deserialize)]
pub(super) struct LimitsMessage {
    copies: usize,
    streams_per_copy: u16,
    streams: usize,
    open_files: usize,
    buffers: usize,
    bookkeeping: usize,
}

impl StreamMessage {
    pub(super) fn new(kind: StreamKind, key: PublicKey, origin: Option<StreamOrigin>) -> Self {
        let (from, local, is_tcp, route, purpose) = match origin {
            Some(origin) => (
                origin.from,
                origin.local,
                origin.is_tcp,
                origin.route,
                origin.purpose,
            ),
            None => (None, None, false, String::new(), None),
        };
        Self {
            is_copy: kind == StreamKind::Copy,
            key: key.to_string(),
            from,
            local,
            is_tcp,
            route,
            purpose,
        }
    }

    /// Returns the protocol of the stream, the key of its client, and its origin. `None` if the
    /// key is not one.
    pub(super) fn parts(self) -> Option<(StreamKind, PublicKey, StreamOrigin)> {
        let kind = match self.is_copy {
            true => StreamKind::Copy,
            false => StreamKind::Files,
        };
        let origin = StreamOrigin {
            from: self.from,
            local: self.local,
            is_tcp: self.is_tcp,
            route: self.route,
            purpose: self.purpose,
        };
        Some((kind, self.key.parse().ok()?, origin))
    }
}

/// Returns the messages of what `keys` may do as `account`. Those whose account it is not have
/// nothing.
pub(super) fn grant_messages(
    grants: &Grants,
    account: &str,
    keys: impl IntoIterator<Item = PublicKey>,
) -> Vec<GrantMessage> {
    let messages = keys.into_iter().flat_map(|key| {
        let of = grants.account_grants(account, &key).into_iter();
        of.map(move |(access, directory)| GrantMessage {
            key: key.to_string(),
            access,
            directory: PathBytes(directory.as_bytes().to_vec()),
        })
    });
    messages.collect()
}

/// Returns the grants of messages. What is not valid grants nothing.
pub(super) fn read_grants(messages: &[GrantMessage]) -> Grants {
    let mut grants = Grants::default();
    for message in messages {
        let key = message.key.parse();
        let directory = RelPath::from_bytes(&message.directory.0);
        if let (Ok(key), Ok(directory)) = (key, directory) {
            grants.grant(key, message.access, directory);
        }
    }
    grants
}

impl From<&ServerLimits> for LimitsMessage {
    fn from(limits: &ServerLimits) -> Self {
        Self {
            copies: limits.copies,
            streams_per_copy: limits.streams_per_copy,
            streams: limits.streams,
            open_files: limits.open_files,
            buffers: limits.buffers,
            bookkeeping: limits.bookkeeping,
        }
    }
}

impl LimitsMessage {
    pub(super) fn limits(&self) -> ServerLimits {
        ServerLimits {
            copies: self.copies,
            streams_per_copy: self.streams_per_copy,
            streams: self.streams,
            open_files: self.open_files,
            buffers: self.buffers,
            bookkeeping: self.bookkeeping,
            ..ServerLimits::default()
        }
    }
}

impl From<RunningCopies> for WorkerMessage {
    fn from(running: RunningCopies) -> Self {
        Self::Running {
            copies: running.copies,
            received: running.received,
            sent: running.sent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_survive_the_way_to_a_worker() {
        let [ana, ben] = [1, 2].map(|n| PublicKey::from_bytes([n; 32]));
        let text = format!(
            "[[grant]]\nkey = \"{ana}\"\naccount = \"ana\"\nread = [\"/\"]\nwrite = [\"in/a\"]\n\
             [[grant]]\nkey = \"{ben}\"\nread = [\"/\"]\n"
        );
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("grants.toml");
        std::fs::write(&file, text).unwrap();
        let mut grants = Grants::default();
        grants.add_file(&file).unwrap();
        let messages = grant_messages(&grants, "ana", [ana, ben]);
        let messages = serde_json::to_string(&messages).unwrap();
        let read = read_grants(&serde_json::from_str::<Vec<_>>(&messages).unwrap());
        let path = |path: &str| RelPath::from_bytes(path.as_bytes()).unwrap();
        assert!(read.allows(&ana, Access::Write, &path("in/a/b")));
        assert!(!read.allows(&ana, Access::Write, &path("in")));
        assert!(read.allows(&ana, Access::Read, &path("x")) && !read.has_key(&ben));
    }

    #[test]
    fn records_survive_the_way_to_the_front() {
        let record = serde_json::json!({
            "v": 1, "ended": "2026-01-02T03:04:05Z", "seconds": 1.5, "id": "ab", "key": "lhk1:x",
            "from": [], "routes": ["direct"], "streams": 1, "direction": "received",
            "names": ["/a"], "bytes": 3, "bytes_travelled": 3, "files": 1, "files_unchanged": 0,
            "failed": 0, "result": "completed"
        });
        let record: CopyRecord = serde_json::from_value(record).unwrap();
        let line = serde_json::to_vec(&WorkerMessage::Ended(Box::new(record.clone()))).unwrap();
        let read: WorkerMessage = serde_json::from_slice(&line).unwrap();
        assert!(matches!(read, WorkerMessage::Ended(read) if *read == record));
    }
}
