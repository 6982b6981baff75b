//! What is said to the on-ramp: questions over the process's line, and what concerns one attempt
//! over a Unix socket of its own.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use longhaul_ramp::{Ask, Reply, Request};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with,
};

use super::line::{HeldLine, Line};

/// Within this the on-ramp answers a question, or it counts as gone. It does so at once.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// Longest reply that is understood, in bytes.
pub const MAX_REPLY: usize = 512;
/// Where a descriptor that is kept is put, out of the way of programs that count on getting low
/// numbers.
const MIN_DESCRIPTOR: i32 = 1000;

/// Where the on-ramp listens, and the line to it.
pub struct Ramp {
    address: Option<SocketAddrUnix>,
    pub line: Line,
}

/// What the on-ramp said of a destination.
pub enum Way {
    /// Connect as ever.
    Direct {
        /// Whether the on-ramp would know how long a round trip takes.
        measure: bool,
    },
    /// There is to be no connection: the error.
    Refused(i32),
    /// Connect there, and begin with the ticket over this socket.
    Via(SocketAddr, u64, OwnedFd),
}

/// What was answered, and the connection that it came over.
struct Answer<'a> {
    room: [u8; MAX_REPLY],
    length: usize,
    over: Over<'a>,
}

/// The connection that an answer came over.
enum Over<'a> {
    Line(HeldLine<'a>),
    Own(OwnedFd),
}

/// Why there is no answer.
enum NoAnswer {
    /// The on-ramp has closed the connection, or the program has.
    Closed,
    /// Nothing was said in time, or nothing that is a reply.
    Silent,
}

impl NoAnswer {
    fn by(error: Errno) -> Self {
        match error {
            Errno::AGAIN => Self::Silent,
            _ => Self::Closed,
        }
    }
}

/// How far an attempt has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Result {
    /// Nothing was said yet.
    Pending,
    /// The route stands.
    Stands,
    /// It has failed, with this error.
    Failed(i32),
    /// The on-ramp went, or said something else.
    Gone,
}

/// Calls again what a signal interrupted.
fn again<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

impl Ramp {
    /// Whose socket has this path, if there is one.
    pub fn at(path: Option<&Path>) -> Self {
        Self {
            address: path.and_then(|path| SocketAddrUnix::new(path).ok()),
            line: Line::new(),
        }
    }

    /// A connection, and whether its number is out of the way of programs that count on getting low
    /// ones. `None` when nobody answers there.
    fn call(&self) -> Option<(OwnedFd, bool)> {
        let address = self.address.as_ref()?;
        let socket = socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .ok()?;
        for timeout in [Timeout::Send, Timeout::Recv] {
            set_socket_timeout(&socket, timeout, Some(ANSWER_WITHIN)).ok()?;
        }
        again(|| connect(&socket, address)).ok()?;
        // High, and closed when another program is executed.
        Some(
            match rustix::io::fcntl_dupfd_cloexec(&socket, MIN_DESCRIPTOR) {
                Ok(high) => (high, true),
                Err(_) => (socket, false),
            },
        )
    }

    /// Whether the answer is remembered that this destination is connected to directly. The on-ramp
    /// is then not asked.
    fn recalls(&self, ask: &Ask<'_>) -> bool {
        let Some(mut line) = self.line.hold() else {
            return false;
        };
        if !line.remembered().knows(ask, now()) || !still_holds(&mut line) {
            return false;
        }
        line.remembered().unreported += 1;
        true
    }

    /// Reports connections to the on-ramp by remembered answers, where it does not know of them.
    pub fn account(&self) {
        if let Some(mut line) = self.line.hold() {
            report_unreported(&mut line);
        }
    }

    /// Asks over the line, or over a connection of its own where the line is in use, or cannot be
    /// kept.
    fn ask(&self, request: &Request<'_>) -> Option<Answer<'_>> {
        let bytes = request.encode();
        let bytes = bytes.finished().ok()?;
        let mut room = [0; MAX_REPLY];
        let mut line = self.line.hold();
        if let Some(held) = &mut line {
            report_unreported(held);
            match exchange_over(held, bytes, &mut room) {
                Ok(length) => {
                    return line.map(|line| Answer {
                        room,
                        length,
                        over: Over::Line(line),
                    });
                }
                // There was none yet, the on-ramp was started anew, or the program has closed what
                // it does not know: once more.
                Err(NoAnswer::Closed) => drop(held.take()),
                Err(NoAnswer::Silent) => {
                    drop(held.take());
                    return None;
                }
            }
        }
        let (socket, is_high) = self.call()?;
        let length = exchange(|| Some(socket.as_fd()), bytes, &mut room).ok()?;
        let over = match line {
            Some(mut line) if is_high => {
                line.keep(socket);
                Over::Line(line)
            }
            _ => Over::Own(socket),
        };
        Some(Answer { room, length, over })
    }

    /// Asks how to reach a destination. `None` when nobody answers.
    pub fn way(&self, ask: Ask<'_>) -> Option<Way> {
        if self.recalls(&ask) {
            return Some(Way::Direct { measure: false });
        }
        let asked_at = now();
        let Answer { room, length, over } = self.ask(&Request::Ask(ask))?;
        match room.get(..length).map(Reply::decode) {
            Some(Ok(Reply::Direct {
                measure, remember, ..
            })) => {
                // From before it was asked, so that the on-ramp does not cease to report changes
                // before this ends.
                let until =
                    remember.map(|time| asked_at.saturating_add(time.saturating_mul(1_000_000)));
                if let (Some(until), Over::Line(mut line)) = (until, over) {
                    line.remembered().remember(&ask, until);
                }
                Some(Way::Direct { measure })
            }
            Some(Ok(Reply::Refuse { errno, .. })) => Some(Way::Refused(errno)),
            Some(Ok(Reply::Via {
                listener, ticket, ..
            })) if listener.ip().to_canonical().is_loopback() && listener.is_ipv6() == ask.v6 => {
                Some(Way::Via(listener, ticket, over.take()?))
            }
            _ => {
                drop(over.take());
                None
            }
        }
    }

    /// Says something over the line that is not answered, unless the line is in use, or there is
    /// none.
    pub fn report(&self, request: &Request<'_>) {
        if let Some(line) = self.line.hold()
            && let Some(socket) = line.socket()
            && let Ok(bytes) = request.encode().finished()
        {
            let _ = send(socket, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        }
    }

    /// Where the connection of a socket with this address leads, if it is one of the on-ramp's.
    pub fn peer(&self, local: SocketAddr) -> Option<SocketAddr> {
        let Answer { room, length, over } = self.ask(&Request::Peer { local })?;
        match room.get(..length).map(Reply::decode) {
            Some(Ok(Reply::Peer { address })) => Some(address),
            Some(Ok(Reply::Refuse { .. })) => None,
            _ => {
                drop(over.take());
                None
            }
        }
    }
}

impl Over<'_> {
    /// The connection, for something else than questions.
    fn take(self) -> Option<OwnedFd> {
        match self {
            Self::Line(mut line) => line.take(),
            Self::Own(socket) => Some(socket),
        }
    }
}

/// The time, in nanoseconds since the machine was started: what is remembered does not outlive a
/// night in which it was suspended.
fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let part = |number: i64, scale: u64| u64::try_from(number).unwrap_or(0).saturating_mul(scale);
    part(time.tv_sec, 1_000_000_000).saturating_add(part(time.tv_nsec, 1))
}

/// Whether what was said over the line holds: the on-ramp has said nothing since, and is still
/// there.
fn still_holds(line: &mut HeldLine<'_>) -> bool {
    let mut room = [0; MAX_REPLY];
    let received = again(|| {
        let socket = line.socket().ok_or(Errno::BADF)?;
        recv(socket, &mut room, RecvFlags::DONTWAIT)
    });
    match received {
        Err(Errno::AGAIN) => true,
        // Nothing else is said without a question.
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

/// Reports connections to the on-ramp by remembered answers, if there are such that it does not
/// know of.
#[inline(never)] // so that its room on the stack is free again for what follows
fn report_unreported(line: &mut HeldLine<'_>) {
    let connections = std::mem::take(&mut line.remembered().unreported);
    if connections > 0
        && let Some(socket) = line.socket()
        && let Ok(bytes) = (Request::Remembered { connections }).encode().finished()
    {
        let _ = send(socket, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }
}

/// Sends something over the line, and receives the answer, before which an order to forget may
/// come.
fn exchange_over(
    line: &mut HeldLine<'_>,
    bytes: &[u8],
    room: &mut [u8; MAX_REPLY],
) -> core::result::Result<usize, NoAnswer> {
    let mut length = exchange(|| line.socket(), bytes, room)?;
    while let Some(Ok(Reply::Forget)) = room.get(..length).map(Reply::decode) {
        line.remembered().forget();
        length = receive(&|| line.socket().ok_or(Errno::BADF), room)?;
    }
    Ok(length)
}

/// Sends something, and receives the answer; its length in bytes. The socket is looked up before
/// each use.
fn exchange<'a>(
    socket: impl Fn() -> Option<BorrowedFd<'a>>,
    bytes: &[u8],
    room: &mut [u8; MAX_REPLY],
) -> core::result::Result<usize, NoAnswer> {
    let socket = || socket().ok_or(Errno::BADF);
    again(|| send(socket()?, bytes, SendFlags::NOSIGNAL)).map_err(NoAnswer::by)?;
    receive(&socket, room)
}

/// Receives an answer; its length in bytes.
fn receive<'a>(
    socket: &impl Fn() -> rustix::io::Result<BorrowedFd<'a>>,
    room: &mut [u8; MAX_REPLY],
) -> core::result::Result<usize, NoAnswer> {
    let (_, length) =
        again(|| recv(socket()?, &mut *room, RecvFlags::TRUNC)).map_err(NoAnswer::by)?;
    match length {
        0 => Err(NoAnswer::Closed),
        1..=MAX_REPLY => Ok(length),
        _ => Err(NoAnswer::Silent),
    }
}

/// Sends something. `None` when nobody receives it.
pub fn say(socket: BorrowedFd<'_>, request: &Request<'_>) -> Option<()> {
    let bytes = request.encode();
    let bytes = bytes.finished().ok()?;
    again(|| send(socket, bytes, SendFlags::NOSIGNAL)).ok()?;
    Some(())
}

/// Looks how far an attempt has come, without waiting. What was said stays to be read, for other
/// processes that have the socket too.
pub fn result(socket: BorrowedFd<'_>) -> Result {
    let mut room = [0; MAX_REPLY];
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT | RecvFlags::TRUNC;
    match again(|| recv(socket, &mut room, flags)) {
        Ok((_, length)) => match room.get(..length).map(Reply::decode) {
            Some(Ok(Reply::Done { errno: 0, .. })) => Result::Stands,
            Some(Ok(Reply::Done { errno, .. })) => Result::Failed(errno),
            _ => Result::Gone,
        },
        Err(Errno::AGAIN) => Result::Pending,
        Err(_) => Result::Gone,
    }
}

/// How long it is waited for the result: as long as the program's own socket says for `connect`.
pub fn set_result_timeout(socket: BorrowedFd<'_>, connect_timeout: Option<Duration>) {
    let _ = set_socket_timeout(socket, Timeout::Recv, connect_timeout);
}

/// A descriptor that the table keeps.
pub fn keep(socket: OwnedFd) -> i32 {
    socket.into_raw_fd()
}

/// Closes a descriptor that the table kept.
///
/// # Safety
/// It is the table's, and goes from there.
pub unsafe fn drop_kept(descriptor: i32) {
    if descriptor >= 0 {
        // SAFETY: the caller's promise. (An `OwnedFd` would be closed by the C library's function,
        // and so by the hook.)
        unsafe { rustix::io::close(descriptor) };
    }
}
