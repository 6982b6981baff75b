//! A request for a worker: a line with the account and the socket of the worker, and the answer.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use longhaul_platform::net::{RECEIVE_FLAGS, SEND_FLAGS};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, SendAncillaryBuffer, SendAncillaryMessage,
};
use serde::{Deserialize, Serialize};

/// Maximum length of a request or an answer, in bytes. A request fits into one message.
const MAX_LINE_BYTES: usize = 4096;
/// Time limit for the answer. A directory of users may have to be asked over the network.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Request for a worker. Its socket comes with it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkerRequest {
    account: String,
}

/// Answer to a request.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkerAnswer {
    /// The worker runs, and its process has this number.
    Started {
        /// Process number.
        process: u32,
    },
    /// There is none.
    Refused {
        /// Reason.
        reason: String,
    },
}

/// Reason why a server gets no worker.
#[derive(Debug, thiserror::Error)]
pub enum WorkerRequestError {
    /// The helper does not answer at its socket. Start `longhaul-accounts.service`, and let the
    /// user of the server connect to its socket.
    #[error(
        "longhaul serve-accounts does not answer at {socket}: {source}; start \
         longhaul-accounts.service"
    )]
    Helper {
        /// The socket.
        socket: String,
        /// Cause.
        source: io::Error,
    },
    /// The helper refused. Its reason says what to change.
    #[error("{0}")]
    Refused(String),
}

/// Asks the helper at `socket` for a worker of `account`, which gets `control`. Returns the number
/// of its process. Blocking.
///
/// # Errors
/// [`WorkerRequestError`].
pub fn request_worker(
    socket: &Path,
    account: &str,
    control: OwnedFd,
) -> Result<u32, WorkerRequestError> {
    let asked = || -> io::Result<WorkerAnswer> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
        let account = account.to_owned();
        let mut line = serde_json::to_vec(&WorkerRequest { account })?;
        line.push(b'\n');
        let sent = send_with(&stream, &line, &control);
        // This process must not keep the worker's end open.
        drop(control);
        let mut answer = Vec::new();
        let read = (&mut stream)
            .take(MAX_LINE_BYTES as u64)
            .read_to_end(&mut answer);
        // A helper that refuses without reading may have closed first.
        if answer.is_empty() {
            sent.and(read)?;
        }
        Ok(serde_json::from_slice(&answer)?)
    };
    match asked() {
        Ok(WorkerAnswer::Started { process }) => Ok(process),
        Ok(WorkerAnswer::Refused { reason }) => Err(WorkerRequestError::Refused(reason)),
        Err(source) => Err(WorkerRequestError::Helper {
            socket: crate::home::display_path(socket),
            source,
        }),
    }
}

/// Receives a request: the account, and the socket of the worker.
pub fn receive_request(stream: &UnixStream) -> io::Result<(String, OwnedFd)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut with = RecvAncillaryBuffer::new(&mut space);
    let mut line = [0; MAX_LINE_BYTES];
    let parts = &mut [IoSliceMut::new(&mut line)];
    let received = rustix::net::recvmsg(stream, parts, &mut with, RECEIVE_FLAGS)?;
    let sockets = with.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(sockets) => Some(sockets),
        _ => None,
    });
    let invalid = |what| io::Error::new(io::ErrorKind::InvalidData, what);
    let control = sockets.flatten().next();
    let control = control.ok_or_else(|| invalid("a request without a socket"))?;
    let line = line.get(..received.bytes).unwrap_or_default();
    let request: WorkerRequest =
        serde_json::from_slice(line).map_err(|_| invalid("not a request for a worker"))?;
    Ok((request.account, control))
}

/// Answers a request.
pub fn send_answer(mut stream: &UnixStream, answer: &WorkerAnswer) -> io::Result<()> {
    stream.write_all(&serde_json::to_vec(answer)?)
}

/// Sends a line together with a descriptor.
fn send_with(stream: &UnixStream, line: &[u8], descriptor: &OwnedFd) -> io::Result<()> {
    let sockets = [descriptor.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut with = SendAncillaryBuffer::new(&mut space);
    with.push(SendAncillaryMessage::ScmRights(&sockets));
    let parts = [IoSlice::new(line)];
    match rustix::net::sendmsg(stream, &parts, &mut with, SEND_FLAGS)? {
        sent if sent == line.len() => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};

    use super::*;

    #[test]
    fn request_brings_the_account_and_a_usable_socket() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (near, far) = UnixStream::pair().unwrap();
        send_with(&ours, b"{\"account\":\"ana\"}\n", &far.into()).unwrap();
        let (account, control) = receive_request(&theirs).unwrap();
        assert_eq!(account, "ana");
        UnixStream::from(control).write_all(b"hello\n").unwrap();
        let mut line = String::new();
        BufReader::new(near).read_line(&mut line).unwrap();
        assert_eq!(line, "hello\n");
    }

    #[test]
    fn other_messages_are_errors() {
        for wrong in [&b"{}"[..], b"x", b"{\"account\":\"ana\",\"uid\":0}"] {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let (_near, far) = UnixStream::pair().unwrap();
            send_with(&ours, wrong, &far.into()).unwrap();
            assert!(receive_request(&theirs).is_err());
        }
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        ours.write_all(b"{\"account\":\"ana\"}\n").unwrap();
        assert!(receive_request(&theirs).is_err(), "without a socket");
    }
}
