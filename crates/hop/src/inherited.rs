//! Listening sockets that were open before this program: systemd's (sd_listen_fds(3)), or those of
//! the process that this one replaces. They outlive a process, so no connection is refused while
//! it is restarted or replaced.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::sync::{Arc, OnceLock, Weak};

use longhaul_platform::net::{self, RECEIVE_FLAGS, SEND_FLAGS};
use parking_lot::Mutex;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, SendAncillaryBuffer,
    SendAncillaryMessage,
};
use rustix::process::getpid;

/// Environment variable of a process that replaces another. Its standard input is a socket that
/// leads to its predecessor.
pub const SUCCESSOR_VARIABLE: &str = "LONGHAUL_SUCCESSOR";
/// First descriptor that systemd passes.
const FIRST_DESCRIPTOR: RawFd = 3;
/// Maximum number of descriptors that are examined or handed over.
const MAX_SOCKETS: usize = 64;
/// The byte with which the sockets are sent.
const SOCKETS_MESSAGE: u8 = b'L';

/// Sockets that nobody has taken yet.
static INHERITED: OnceLock<Mutex<Vec<(SocketAddr, OwnedFd)>>> = OnceLock::new();
/// Sockets that a successor gets.
static OFFERED: Mutex<Vec<Weak<OwnedFd>>> = Mutex::new(Vec::new());
/// True if this process replaces another.
static IS_SUCCESSOR: OnceLock<bool> = OnceLock::new();

/// A listening socket that is handed to a successor, as long as this lives.
#[derive(Debug)]
pub struct OfferedSocket {
    /// A duplicate, so that its owner may be of any type.
    _socket: Arc<OwnedFd>,
}

/// Returns the inherited socket that listens at `address`, if there is one. Each is returned once.
/// Port 0 means the port that the system chose for this process's predecessor.
#[must_use]
pub fn take_inherited(address: SocketAddr) -> Option<OwnedFd> {
    let mut sockets = INHERITED.get_or_init(|| Mutex::new(inherited())).lock();
    let any_port = address.port() == 0 && is_successor();
    let is_wanted = |local: SocketAddr| local == address || any_port && local.ip() == address.ip();
    let at = sockets.iter().position(|(local, _)| is_wanted(*local))?;
    // Both processes open their listeners in the same order.
    Some(sockets.remove(at).1)
}

/// Returns true if this process replaces another, whose sockets it takes over.
#[must_use]
pub fn is_successor() -> bool {
    *IS_SUCCESSOR.get_or_init(|| {
        let stdin = io::stdin();
        let is_local = || {
            let name = rustix::net::getsockname(&stdin);
            name.is_ok_and(|name| name.address_family() == AddressFamily::UNIX)
        };
        std::env::var_os(SUCCESSOR_VARIABLE).is_some() && is_local()
    })
}

/// Offers a listening socket to a process that may replace this one.
///
/// # Errors
/// There is no free descriptor for a duplicate of the socket.
pub fn offer(socket: impl AsFd) -> io::Result<OfferedSocket> {
    let socket = Arc::new(rustix::io::fcntl_dupfd_cloexec(socket, FIRST_DESCRIPTOR)?);
    let mut offered = OFFERED.lock();
    offered.retain(|socket| socket.strong_count() > 0);
    offered.push(Arc::downgrade(&socket));
    Ok(OfferedSocket { _socket: socket })
}

/// Sends all offered sockets to the successor at the other end of `to`.
///
/// # Errors
/// Errors of the system call, and more than 64 sockets.
pub fn send_offered(to: impl AsFd) -> io::Result<()> {
    let offered: Vec<Arc<OwnedFd>> = OFFERED.lock().iter().filter_map(Weak::upgrade).collect();
    let sockets: Vec<_> = offered.iter().map(|socket| socket.as_fd()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_SOCKETS))];
    let mut with = SendAncillaryBuffer::new(&mut space);
    if !sockets.is_empty() && !with.push(SendAncillaryMessage::ScmRights(&sockets)) {
        return Err(io::Error::other(format!(
            "{} listeners are too many to hand over: at most {MAX_SOCKETS}",
            sockets.len()
        )));
    }
    let message = [IoSlice::new(&[SOCKETS_MESSAGE])];
    rustix::net::sendmsg(to, &message, &mut with, SEND_FLAGS)?;
    Ok(())
}

/// Returns the inherited TCP listeners with their addresses.
fn inherited() -> Vec<(SocketAddr, OwnedFd)> {
    let sockets = match is_successor() {
        true => from_predecessor().unwrap_or_default(),
        false => from_systemd(),
    };
    let listener = |socket: OwnedFd| {
        if !net::is_listening(&socket) {
            return None;
        }
        let address = rustix::net::getsockname(&socket).ok()?;
        Some((SocketAddr::try_from(address).ok()?, socket))
    };
    sockets.into_iter().filter_map(listener).collect()
}

/// Receives the sockets of the predecessor from standard input.
fn from_predecessor() -> io::Result<Vec<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_SOCKETS))];
    let mut with = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let message = &mut [IoSliceMut::new(&mut byte)];
    rustix::net::recvmsg(io::stdin(), message, &mut with, RECEIVE_FLAGS)?;
    let sockets = with.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(sockets) => Some(sockets),
        _ => None,
    });
    Ok(sockets.flatten().collect())
}

/// Returns duplicates of the descriptors that systemd passed to this process.
fn from_systemd() -> Vec<OwnedFd> {
    let number = |name| std::env::var(name).ok()?.parse::<i32>().ok();
    let pid = getpid();
    if number("LISTEN_PID") != Some(pid.as_raw_nonzero().get()) {
        return Vec::new();
    }
    let count = number("LISTEN_FDS").map_or(0, |count| usize::try_from(count).unwrap_or(0));
    net::duplicate_descriptors(FIRST_DESCRIPTOR, count.min(MAX_SOCKETS))
}
