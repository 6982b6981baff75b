//! What is said to the on-ramp, over a Unix socket for each attempt.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use longhaul_ramp::{Ask, Reply, Request};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv, send,
    socket_with,
};

/// Within this the on-ramp answers a question, or it counts as gone. It does so at once.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// Longest reply that is understood, in bytes.
pub const MAX_REPLY: usize = 512;
/// Where a descriptor that is kept is put, out of the way of programs that count on getting low numbers.
const HIGH: i32 = 1000;

/// Where the on-ramp listens.
pub struct Ramp(Option<SocketAddrUnix>);

/// What the on-ramp said of a destination.
pub enum Way {
    /// Connect as ever.
    Direct,
    /// There is to be no connection: the error.
    Refused(i32),
    /// Connect there, and begin with the ticket.
    Via(SocketAddr, u64),
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
        Self(path.and_then(|path| SocketAddrUnix::new(path).ok()))
    }

    /// A conversation. `None` when nobody answers there.
    fn call(&self) -> Option<OwnedFd> {
        let address = self.0.as_ref()?;
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
        let high = rustix::io::fcntl_dupfd_cloexec(&socket, HIGH);
        Some(high.unwrap_or(socket))
    }

    fn ask(&self, request: &Request<'_>) -> Option<(OwnedFd, [u8; MAX_REPLY], usize)> {
        let socket = self.call()?;
        say(socket.as_fd(), request)?;
        let mut room = [0; MAX_REPLY];
        let (_, length) = again(|| recv(&socket, &mut room, RecvFlags::TRUNC)).ok()?;
        (length > 0 && length <= MAX_REPLY).then_some((socket, room, length))
    }

    /// Asks how to reach a destination. `None` when nobody answers.
    pub fn way(&self, ask: Ask<'_>) -> Option<(Way, OwnedFd)> {
        let (socket, room, length) = self.ask(&Request::Ask(ask))?;
        let way = match Reply::decode(room.get(..length)?).ok()? {
            Reply::Direct { .. } => Way::Direct,
            Reply::Refuse { errno, .. } => Way::Refused(errno),
            Reply::Via { listener, ticket, .. }
                if listener.ip().to_canonical().is_loopback() && listener.is_ipv6() == ask.v6 =>
            {
                Way::Via(listener, ticket)
            }
            _ => return None,
        };
        Some((way, socket))
    }

    /// Where the connection of a socket with this address leads, if it is one of the on-ramp's.
    pub fn peer(&self, local: SocketAddr) -> Option<SocketAddr> {
        let (_, room, length) = self.ask(&Request::Peer { local })?;
        match Reply::decode(room.get(..length)?).ok()? {
            Reply::Peer { address } => Some(address),
            _ => None,
        }
    }
}

/// Says something. `None` when nobody hears it.
pub fn say(socket: BorrowedFd<'_>, request: &Request<'_>) -> Option<()> {
    let bytes = request.encode();
    let bytes = bytes.finished().ok()?;
    again(|| send(socket, bytes, SendFlags::NOSIGNAL)).ok()?;
    Some(())
}

/// Looks how far an attempt has come, without waiting. What was said stays to be read, for other processes that have the socket too.
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
pub fn set_patience(socket: BorrowedFd<'_>, patience: Option<Duration>) {
    let _ = set_socket_timeout(socket, Timeout::Recv, patience);
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
        // SAFETY: the caller's promise. (An `OwnedFd` would be closed by the C library's function, and so by the hook.)
        unsafe { rustix::io::close(descriptor) };
    }
}
