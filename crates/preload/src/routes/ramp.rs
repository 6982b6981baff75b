//! Messages to the on-ramp: questions over the process's line, and messages about one attempt over
//! a Unix socket of its own.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use longhaul_ramp_protocol::{RampReply, RampRequest, RouteQuery};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with,
};

use super::line::{LineGuard, RampLine};

/// Time for an answer, after which the on-ramp counts as gone. It answers immediately.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum length of a reply, in bytes.
pub const MAX_REPLY_BYTES: usize = 512;
/// Lowest descriptor for connections that are kept, above the low numbers that programs expect.
const MIN_DESCRIPTOR: i32 = 1000;

/// Address of the on-ramp, and the line to it.
pub struct RampClient {
    address: Option<SocketAddrUnix>,
    pub line: RampLine,
}

/// The on-ramp's answer for a destination.
pub enum RampAnswer {
    /// Connect directly.
    Direct {
        /// If true, the on-ramp wants to know the round-trip time.
        measure: bool,
    },
    /// Connect directly, from this local address.
    DirectFrom(SocketAddr),
    /// Refuse the connection with this error.
    Refused(i32),
    /// Connect to this address, and begin with the ticket over this socket.
    Via(SocketAddr, u64, OwnedFd),
}

/// An answer, and the connection over which it came.
struct ReceivedReply<'a> {
    room: [u8; MAX_REPLY_BYTES],
    length: usize,
    over: ReplyConnection<'a>,
}

/// Connection over which an answer came.
enum ReplyConnection<'a> {
    Line(LineGuard<'a>),
    Own(OwnedFd),
}

/// Reason why there is no answer.
enum NoReplyError {
    /// The on-ramp or the program has closed the connection.
    Closed,
    /// The answer came too late, or is not a reply.
    Silent,
}

impl NoReplyError {
    fn from_errno(error: Errno) -> Self {
        match error {
            Errno::AGAIN => Self::Silent,
            _ => Self::Closed,
        }
    }
}

/// Progress of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptProgress {
    /// There is no result yet.
    Pending,
    /// The route stands.
    Stands,
    /// The attempt failed with this error.
    Failed(i32),
    /// The on-ramp ended, or sent something else.
    Gone,
}

/// Repeats a call that a signal interrupted.
fn retry_interrupted<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

impl RampClient {
    /// Returns the on-ramp with the socket at this path.
    pub fn new(path: Option<&Path>) -> Self {
        Self {
            address: path.and_then(|path| SocketAddrUnix::new(path).ok()),
            line: RampLine::new(),
        }
    }

    /// Opens a connection. Also returns true if its descriptor is above the low numbers that
    /// programs expect. Returns `None` if the on-ramp does not answer.
    fn open_connection(&self) -> Option<(OwnedFd, bool)> {
        let address = self.address.as_ref()?;
        let socket = socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .ok()?;
        for timeout in [Timeout::Send, Timeout::Recv] {
            set_socket_timeout(&socket, timeout, Some(ANSWER_TIMEOUT)).ok()?;
        }
        retry_interrupted(|| connect(&socket, address)).ok()?;
        // A high number that is closed on exec.
        Some(
            match rustix::io::fcntl_dupfd_cloexec(&socket, MIN_DESCRIPTOR) {
                Ok(high) => (high, true),
                Err(_) => (socket, false),
            },
        )
    }

    /// Returns true if a remembered answer says that this destination is connected directly. The
    /// on-ramp is then not asked.
    fn is_remembered(&self, ask: &RouteQuery<'_>) -> bool {
        let Some(mut line) = self.line.hold() else {
            return false;
        };
        if !line.remembered().knows(ask, now()) || !still_holds(&mut line) {
            return false;
        }
        line.remembered().unreported += 1;
        true
    }

    /// Reports connections by remembered answers that the on-ramp does not know of.
    pub fn report_remembered(&self) {
        if let Some(mut line) = self.line.hold() {
            report_unreported(&mut line);
        }
    }

    /// Asks over the line, or over a separate connection if the line is in use or cannot be kept.
    fn ask(&self, request: &RampRequest<'_>) -> Option<ReceivedReply<'_>> {
        let bytes = request.encode();
        let bytes = bytes.finish().ok()?;
        let mut room = [0; MAX_REPLY_BYTES];
        let mut line = self.line.hold();
        if let Some(held) = &mut line {
            report_unreported(held);
            match exchange_over(held, bytes, &mut room) {
                Ok(length) => {
                    return line.map(|line| ReceivedReply {
                        room,
                        length,
                        over: ReplyConnection::Line(line),
                    });
                }
                // There was no line yet, the on-ramp was restarted, or the program closed the
                // unknown descriptor. Asks once more.
                Err(NoReplyError::Closed) => drop(held.take()),
                Err(NoReplyError::Silent) => {
                    drop(held.take());
                    return None;
                }
            }
        }
        let (socket, is_high) = self.open_connection()?;
        let length = exchange(|| Some(socket.as_fd()), bytes, &mut room).ok()?;
        let over = match line {
            Some(mut line) if is_high => {
                line.keep(socket);
                ReplyConnection::Line(line)
            }
            _ => ReplyConnection::Own(socket),
        };
        Some(ReceivedReply { room, length, over })
    }

    /// Asks how to reach a destination. Returns `None` if the on-ramp does not answer.
    pub fn ask_route(&self, ask: RouteQuery<'_>) -> Option<RampAnswer> {
        if self.is_remembered(&ask) {
            return Some(RampAnswer::Direct { measure: false });
        }
        let asked_at = now();
        let ReceivedReply { room, length, over } = self.ask(&RampRequest::Ask(ask))?;
        match room.get(..length).map(RampReply::decode) {
            Some(Ok(RampReply::Direct {
                measure, remember, ..
            })) => {
                // Counted from before the question, so that this ends before the on-ramp stops
                // reporting changes.
                let until =
                    remember.map(|time| asked_at.saturating_add(time.saturating_mul(1_000_000)));
                if let (Some(until), ReplyConnection::Line(mut line)) = (until, over) {
                    line.remembered().remember(&ask, until);
                }
                Some(RampAnswer::Direct { measure })
            }
            Some(Ok(RampReply::DirectFrom { source, .. })) => Some(RampAnswer::DirectFrom(source)),
            Some(Ok(RampReply::Refuse { errno, .. })) => Some(RampAnswer::Refused(errno)),
            Some(Ok(RampReply::Via {
                listener, ticket, ..
            })) if listener.ip().to_canonical().is_loopback() && listener.is_ipv6() == ask.v6 => {
                Some(RampAnswer::Via(listener, ticket, over.take()?))
            }
            _ => {
                drop(over.take());
                None
            }
        }
    }

    /// Sends a message over the line that is not answered, unless the line is in use or missing.
    pub fn report(&self, request: &RampRequest<'_>) {
        if let Some(line) = self.line.hold()
            && let Some(socket) = line.socket()
            && let Ok(bytes) = request.encode().finish()
        {
            let _ = send(socket, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        }
    }

    /// Returns the destination of a connection with this local address, if it is one of the
    /// on-ramp's.
    pub fn peer(&self, local: SocketAddr) -> Option<SocketAddr> {
        let ReceivedReply { room, length, over } = self.ask(&RampRequest::Peer { local })?;
        match room.get(..length).map(RampReply::decode) {
            Some(Ok(RampReply::Peer { address })) => Some(address),
            Some(Ok(RampReply::Refuse { .. })) => None,
            _ => {
                drop(over.take());
                None
            }
        }
    }
}

impl ReplyConnection<'_> {
    /// Takes the connection, for other messages than questions.
    fn take(self) -> Option<OwnedFd> {
        match self {
            Self::Line(mut line) => line.take(),
            Self::Own(socket) => Some(socket),
        }
    }
}

/// Returns the time in nanoseconds since the machine was started, including suspension, so that
/// answers do not outlive a night in which the machine was suspended.
fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let part = |number: i64, scale: u64| u64::try_from(number).unwrap_or(0).saturating_mul(scale);
    part(time.tv_sec, 1_000_000_000).saturating_add(part(time.tv_nsec, 1))
}

/// Returns true if the answers over the line are still valid: the on-ramp has sent nothing since,
/// and is still there.
fn still_holds(line: &mut LineGuard<'_>) -> bool {
    let mut room = [0; MAX_REPLY_BYTES];
    let received = retry_interrupted(|| {
        let socket = line.socket().ok_or(Errno::BADF)?;
        recv(socket, &mut room, RecvFlags::DONTWAIT)
    });
    match received {
        Err(Errno::AGAIN) => true,
        // Only one message comes without a question: the order to forget.
        Ok((1.., _)) => {
            line.remembered().forget();
            false
        }
        _ => {
            drop(line.take());
            false
        }
    }
}

/// Reports connections by remembered answers, if there are any that the on-ramp does not know of.
#[inline(never)] // so that its room on the stack is free again for what follows
fn report_unreported(line: &mut LineGuard<'_>) {
    let connections = std::mem::take(&mut line.remembered().unreported);
    if connections > 0
        && let Some(socket) = line.socket()
        && let Ok(bytes) = (RampRequest::Remembered { connections }).encode().finish()
    {
        let _ = send(socket, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }
}

/// Sends a request over the line, and receives the answer. An order to forget may come before it.
fn exchange_over(
    line: &mut LineGuard<'_>,
    bytes: &[u8],
    room: &mut [u8; MAX_REPLY_BYTES],
) -> Result<usize, NoReplyError> {
    let mut length = exchange(|| line.socket(), bytes, room)?;
    while let Some(Ok(RampReply::Forget)) = room.get(..length).map(RampReply::decode) {
        line.remembered().forget();
        length = receive(&|| line.socket().ok_or(Errno::BADF), room)?;
    }
    Ok(length)
}

/// Sends a request, and receives the answer. Returns its length in bytes. The socket is looked up
/// before each use.
fn exchange<'a>(
    socket: impl Fn() -> Option<BorrowedFd<'a>>,
    bytes: &[u8],
    room: &mut [u8; MAX_REPLY_BYTES],
) -> Result<usize, NoReplyError> {
    let socket = || socket().ok_or(Errno::BADF);
    retry_interrupted(|| send(socket()?, bytes, SendFlags::NOSIGNAL))
        .map_err(NoReplyError::from_errno)?;
    receive(&socket, room)
}

/// Receives an answer. Returns its length in bytes.
fn receive<'a>(
    socket: &impl Fn() -> rustix::io::Result<BorrowedFd<'a>>,
    room: &mut [u8; MAX_REPLY_BYTES],
) -> Result<usize, NoReplyError> {
    let (_, length) = retry_interrupted(|| recv(socket()?, &mut *room, RecvFlags::TRUNC))
        .map_err(NoReplyError::from_errno)?;
    match length {
        0 => Err(NoReplyError::Closed),
        1..=MAX_REPLY_BYTES => Ok(length),
        _ => Err(NoReplyError::Silent),
    }
}

/// Sends a request. Returns `None` if nobody receives it.
pub fn send_request(socket: BorrowedFd<'_>, request: &RampRequest<'_>) -> Option<()> {
    let bytes = request.encode();
    let bytes = bytes.finish().ok()?;
    retry_interrupted(|| send(socket, bytes, SendFlags::NOSIGNAL)).ok()?;
    Some(())
}

/// Returns the progress of an attempt without waiting. The message stays in the queue for other
/// processes that have the socket, too.
pub fn result(socket: BorrowedFd<'_>) -> AttemptProgress {
    let mut room = [0; MAX_REPLY_BYTES];
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT | RecvFlags::TRUNC;
    match retry_interrupted(|| recv(socket, &mut room, flags)) {
        Ok((_, length)) => match room.get(..length).map(RampReply::decode) {
            Some(Ok(RampReply::Done { errno: 0, .. })) => AttemptProgress::Stands,
            Some(Ok(RampReply::Done { errno, .. })) => AttemptProgress::Failed(errno),
            _ => AttemptProgress::Gone,
        },
        Err(Errno::AGAIN) => AttemptProgress::Pending,
        Err(_) => AttemptProgress::Gone,
    }
}

/// Limits the wait for the result to the time that the program's own socket allows for `connect`.
pub fn set_result_timeout(socket: BorrowedFd<'_>, connect_timeout: Option<Duration>) {
    let _ = set_socket_timeout(socket, Timeout::Recv, connect_timeout);
}
