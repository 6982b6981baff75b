//! One connection to an SFTP server: an `ssh` process, and requests that wait for their answers.
//!
//! Any number of requests may be under way. A task writes them, another one reads the answers. When
//! the connection ends, every request that waits gets [`RequestError::Lost`].

use std::collections::HashSet;
use std::future::Future;
use std::num::NonZeroUsize;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use longhaul_remote::{Ssh, StderrLines};
use openssh_sftp_client_lowlevel::{
    self as lowlevel, Error as LibraryError, Extensions, HandleOwned, Id, ReadEnd, SftpErrorKind,
    WriteEnd,
};
use parking_lot::Mutex;
use tokio::io::BufReader;
use tokio::process::{Child, ChildStdout};
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use crate::entries::Attributes;
use crate::error::{Error, RequestError, Status};
use crate::packets::{AnsweredRequests, BoundedPackets, RequestQueue};

mod requests;
mod tasks;

use tasks::{AnswerReader, end_with, write_requests};

/// Bytes of the buffer of answers.
const READ_BUFFER_BYTES: usize = 256 << 10;
/// Largest read or write that every server accepts, in bytes (draft-ietf-secsh-filexfer-02,
/// section 3).
const DEFAULT_REQUEST_BYTES: u32 = 32 << 10;
/// Largest read or write of this program, in bytes.
const MAX_REQUEST_BYTES: u64 = 255 << 10;
/// Time for ssh to end by itself.
const END_TIMEOUT: Duration = Duration::from_secs(2);

type Buffer = Vec<u8>;
type Requests = WriteEnd<Buffer, RequestQueue>;
type Answers = ReadEnd<BoundedPackets<BufReader<ChildStdout>>, Buffer, RequestQueue>;

/// Handle of an open file or directory at one server process.
pub(crate) type Handle = Arc<HandleOwned>;

/// One name of a directory.
#[derive(Debug, Clone)]
pub(crate) struct Name {
    pub name: Vec<u8>,
    pub attributes: Attributes,
}

/// Limits and extensions of a server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ServerAbilities {
    /// Largest read and write, in bytes.
    pub read_bytes: u32,
    pub write_bytes: u32,
    /// If true, files can be made durable.
    pub fsync: bool,
    /// If true, a file can be replaced in one step.
    pub posix_rename: bool,
}

/// A connection. It ends when it is dropped.
pub(crate) struct Session {
    requests: Mutex<Requests>,
    ended: watch::Receiver<Option<String>>,
    unreadable: Arc<UnreadableAnswers>,
    abilities: ServerAbilities,
    child: tokio::sync::Mutex<Child>,
}

/// Number of answers on all connections of a copy.
#[derive(Debug, Default)]
pub(crate) struct AnswerClock {
    answers: AtomicU32,
}

impl AnswerClock {
    /// Returns the number of answers, which wraps.
    pub(crate) fn answers(&self) -> u32 {
        self.answers.load(Ordering::Relaxed)
    }
}

/// Requests whose answers could not be decoded.
#[derive(Default)]
struct UnreadableAnswers {
    requests: Mutex<HashSet<u32>>,
    added: Notify,
}

impl Session {
    /// Logs in to `host`. `shown` is the host as the user wrote it, and `options` are options of
    /// ssh that precede the user's own.
    ///
    /// # Errors
    /// ssh cannot log in, or there is no SFTP server.
    pub(crate) async fn start(
        ssh: &Ssh,
        host: &str,
        shown: &str,
        options: &[&str],
        clock: Arc<AnswerClock>,
    ) -> Result<Self, Error> {
        let mut command = ssh.subsystem(host, "sftp", options);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| ssh.failed(error))?;
        let errors = StderrLines::show(child.stderr.take());
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(not_sftp(shown, "ssh has no output"));
        };
        let queue = RequestQueue::default();
        let mut requests: Requests = match lowlevel::connect(queue, ()) {
            Ok(requests) => requests,
            Err(error) => return Err(not_sftp(shown, &error.to_string())),
        };
        let shared = (*requests).clone();
        let (end, ended) = watch::channel(None);
        let end = Arc::new(end);
        let (writer_end, shared_by_writer) = (end.clone(), shared.clone());
        let mut is_ended = ended.clone();
        tokio::spawn(async move {
            let written = tokio::select! {
                written = write_requests(stdin, shared_by_writer.queue()) => written,
                _ = is_ended.wait_for(Option::is_some) => return,
            };
            let reason = written.err().map(|error| error.to_string());
            end_with(&writer_end, reason.unwrap_or_default());
        });
        let answered = Arc::<AnsweredRequests>::default();
        let output = BufReader::with_capacity(READ_BUFFER_BYTES, stdout);
        let packets = BoundedPackets::new(output, answered.clone());
        let buffer = NonZeroUsize::new(4096).unwrap_or(NonZeroUsize::MIN);
        let mut answers = ReadEnd::new(packets, buffer, shared);
        let extensions = match answers.receive_server_hello().await {
            Ok(extensions) => extensions,
            Err(error) => return Err(start_error(shown, error, &mut child, &errors).await),
        };
        errors.mark_started();
        let unreadable = Arc::<UnreadableAnswers>::default();
        let reader = AnswerReader {
            answers,
            answered,
            unreadable: unreadable.clone(),
            clock,
        };
        tokio::spawn(async move {
            let reason = reader.read().await;
            end_with(&end, reason);
        });
        let mut session = Self {
            requests: Mutex::new(requests.clone()),
            ended,
            unreadable,
            abilities: abilities(&extensions),
            child: tokio::sync::Mutex::new(child),
        };
        if extensions.contains(Extensions::LIMITS) {
            let id = requests.create_response_id();
            if let Ok(limits) = requests.send_limits_request(id)
                && let Ok(limits) = session.wait(limits.wait()).await
            {
                session.abilities.read_bytes = request_bytes(limits.read_len);
                session.abilities.write_bytes = request_bytes(limits.write_len);
            }
        }
        Ok(session)
    }

    /// Returns the server's limits and extensions.
    pub(crate) const fn abilities(&self) -> ServerAbilities {
        self.abilities
    }

    /// Waits until the connection has ended. Returns the reason, which may be empty.
    pub(crate) async fn ended(&self) -> String {
        let mut ended = self.ended.clone();
        match ended.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or_default(),
            Err(_) => String::new(),
        }
    }

    /// Ends the connection in good order.
    pub(crate) async fn end(&self) {
        let mut child = self.child.lock().await;
        let _ = child.start_kill();
        let _ = timeout(END_TIMEOUT, child.wait()).await;
    }

    /// Sends a request, and waits for its answer.
    async fn ask<T, F>(
        &self,
        send: impl FnOnce(&mut Requests, Id<Buffer>) -> Result<F, LibraryError>,
    ) -> Result<T, RequestError>
    where
        F: Future<Output = Result<(Id<Buffer>, T), LibraryError>>,
    {
        let (answer, number) = {
            let mut requests = self.requests.lock();
            let id = requests.create_response_id();
            let answer = send(&mut requests, id).map_err(|error| refusal(&error))?;
            (answer, requests.queue().last())
        };
        self.wait_for(answer, number).await
    }

    async fn wait<T>(
        &self,
        answer: impl Future<Output = Result<(Id<Buffer>, T), LibraryError>>,
    ) -> Result<T, RequestError> {
        let number = self.requests.lock().queue().last();
        self.wait_for(answer, number).await
    }

    async fn wait_for<T>(
        &self,
        answer: impl Future<Output = Result<(Id<Buffer>, T), LibraryError>>,
        number: u32,
    ) -> Result<T, RequestError> {
        let mut ended = self.ended.clone();
        let unreadable = async {
            loop {
                let added = self.unreadable.added.notified();
                if self.unreadable.requests.lock().remove(&number) {
                    return;
                }
                added.await;
            }
        };
        tokio::select! {
            biased;
            answer = answer => match answer {
                Ok((_, value)) => Ok(value),
                Err(error) => Err(refusal(&error)),
            },
            () = unreadable => Err(RequestError::Unreadable),
            _ = ended.wait_for(Option::is_some) => Err(RequestError::Lost),
        }
    }
}

fn abilities(extensions: &Extensions) -> ServerAbilities {
    ServerAbilities {
        read_bytes: DEFAULT_REQUEST_BYTES,
        write_bytes: DEFAULT_REQUEST_BYTES,
        fsync: extensions.contains(Extensions::FSYNC),
        posix_rename: extensions.contains(Extensions::POSIX_RENAME),
    }
}

/// Returns the size of requests under a server's limit, which is 0 if it has none.
fn request_bytes(limit: u64) -> u32 {
    let bytes = match limit {
        0 => u64::from(DEFAULT_REQUEST_BYTES),
        limit => limit.min(MAX_REQUEST_BYTES),
    };
    // Whole pages, unless the limit is less.
    let whole = bytes - bytes % 1024;
    u32::try_from(if whole == 0 { bytes } else { whole }).unwrap_or(DEFAULT_REQUEST_BYTES)
}

fn refusal(error: &LibraryError) -> RequestError {
    match error {
        LibraryError::SftpError(kind, message) => {
            let status = match kind {
                SftpErrorKind::NoSuchFile => Status::NotFound,
                SftpErrorKind::PermDenied => Status::Denied,
                SftpErrorKind::BadMessage => Status::Invalid,
                SftpErrorKind::OpUnsupported => Status::Unsupported,
                _ => Status::Failure,
            };
            RequestError::Refused(status, message.get().0.to_owned())
        }
        LibraryError::FormatError(_) => RequestError::Unreadable,
        error => RequestError::Refused(Status::Invalid, error.to_string()),
    }
}

fn not_sftp(host: &str, reason: &str) -> Error {
    Error::NotSftp {
        host: host.to_owned(),
        reason: longhaul_proto::text::printable(reason.as_bytes()),
    }
}

/// Returns the error for a server that did not greet.
async fn start_error(
    host: &str,
    error: LibraryError,
    child: &mut Child,
    errors: &StderrLines,
) -> Error {
    let is_end = matches!(
        &error,
        LibraryError::IOError(error) if error.kind() == std::io::ErrorKind::UnexpectedEof
    );
    if !is_end {
        return not_sftp(host, &error.to_string());
    }
    let status = timeout(END_TIMEOUT, child.wait()).await;
    let code = status
        .ok()
        .and_then(Result::ok)
        .and_then(|status| status.code());
    let reason = errors.last_line().await;
    let is_refused = |reason: &String| reason.contains("subsystem");
    match (code, reason) {
        // ssh(1): 255 is its own failure.
        (Some(255), reason) if !reason.as_ref().is_some_and(is_refused) => {
            Error::Login(longhaul_remote::Error::Login {
                host: host.to_owned(),
                reason: reason.unwrap_or("ssh gave no reason".into()),
            })
        }
        (code, reason) => Error::NoSftp {
            host: host.to_owned(),
            reason: reason.unwrap_or_else(|| match code {
                Some(code) => format!("exit status {code}"),
                None => "it ended without any output".to_owned(),
            }),
        },
    }
}
