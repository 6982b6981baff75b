//! Messages to and from the on-ramp.

use std::ffi::{OsStr, OsString, c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use longhaul_ramp_protocol::{MAX_MESSAGE_BYTES, RampReply, RampRequest, SOCKET_VARIABLE};

use crate::environment::variable;
use crate::start;
use crate::system::{Errno, check_result, errno, set_option};

/// Maximum wait, in seconds, for requests that the on-ramp answers immediately.
const ANSWER_TIMEOUT_SECONDS: i64 = 10;

/// Lowest descriptor for the library's own use, so that programs get the low numbers they expect.
const LOWEST_DESCRIPTOR: c_int = 500;

/// A received packet.
pub struct Packet {
    bytes: [u8; MAX_MESSAGE_BYTES],
    length: usize,
}

impl Packet {
    /// Decodes the packet. One that cannot be decoded is a failure of the on-ramp.
    pub fn reply(&self) -> Result<RampReply<'_>, Errno> {
        RampReply::decode(self.bytes.get(..self.length).unwrap_or_default())
            .map_err(|_| libc::EPROTO)
    }
}

/// Returns the default path of the on-ramp's socket, used unless `$LONGHAUL_ONRAMP` is set. It is
/// in the state directory, found by the same rules as by `longhaul` itself.
pub fn default_path() -> Option<PathBuf> {
    let below = |name, path| Some(PathBuf::from(variable(name)?).join(path));
    let state = variable("LONGHAUL_STATE")
        .map(PathBuf::from)
        .or_else(|| below("LONGHAUL_HOME", "state"))
        .or_else(|| below("XDG_STATE_HOME", "longhaul"))
        .or_else(|| below("HOME", ".local/state/longhaul"))?;
    Some(state.join(longhaul_ramp_protocol::SOCKET_IN_STATE))
}

/// Connects to an on-ramp: the one at `path`, else at `$LONGHAUL_ONRAMP`, else at the default path.
/// The default one is started if it does not run and `may_start` is true.
pub fn dial(path: Option<&OsStr>, may_start: bool) -> Result<OwnedFd, Errno> {
    if let Some(path) = path {
        return dial_at(path);
    }
    if let Some(path) = variable(SOCKET_VARIABLE) {
        return dial_at(&path);
    }
    let path = default_path().ok_or(libc::ENOENT)?;
    match dial_at(path.as_os_str()) {
        Err(libc::ENOENT | libc::ECONNREFUSED) if may_start => {
            start::start(|| dial_at(path.as_os_str()))
        }
        answered => answered,
    }
}

fn dial_at(path: &OsStr) -> Result<OwnedFd, Errno> {
    // SAFETY: zeros are an address without a path.
    let mut address: libc::sockaddr_un = unsafe { MaybeUninit::zeroed().assume_init() };
    address.sun_family = libc::AF_UNIX as u16;
    let path = path.as_bytes();
    if path.is_empty() || path.len() >= address.sun_path.len() || path.contains(&0) {
        return Err(libc::ENAMETOOLONG);
    }
    for (place, byte) in address.sun_path.iter_mut().zip(path) {
        *place = byte.cast_signed();
    }
    // SAFETY: takes no pointer.
    let low = check_result(unsafe {
        libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0)
    })?;
    // SAFETY: a descriptor that was just made.
    let low = unsafe { OwnedFd::from_raw_fd(low) };
    // SAFETY: takes no pointer.
    let high = unsafe { libc::fcntl(low.as_raw_fd(), libc::F_DUPFD_CLOEXEC, LOWEST_DESCRIPTOR) };
    let socket = match check_result(high) {
        // SAFETY: a descriptor that was just made.
        Ok(high) => unsafe { OwnedFd::from_raw_fd(high) },
        // With a low limit on descriptors, low numbers have to do.
        Err(_) => low,
    };
    let soon = libc::timeval {
        tv_sec: ANSWER_TIMEOUT_SECONDS,
        tv_usec: 0,
    };
    set_option(
        socket.as_raw_fd(),
        libc::SOL_SOCKET,
        libc::SO_SNDTIMEO,
        &soon,
    )?;
    loop {
        // SAFETY: the address has the length that is given.
        let connected = unsafe {
            libc::connect(
                socket.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_un>() as libc::socklen_t,
            )
        };
        match check_result(connected) {
            Ok(_) => return Ok(socket),
            Err(libc::EINTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Sends a request.
pub fn send(ramp: c_int, request: &RampRequest<'_>) -> Result<(), Errno> {
    let message = request.encode();
    let bytes = message.finish().map_err(|_| libc::ENAMETOOLONG)?;
    loop {
        // SAFETY: the pointer and the length are those of the bytes.
        let sent =
            unsafe { libc::send(ramp, bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) };
        if sent >= 0 {
            return Ok(());
        }
        if errno() != libc::EINTR {
            return Err(errno());
        }
    }
}

/// Receives a packet, with these flags of `recv`. The end of the connection is `ECONNRESET`.
pub fn receive(ramp: c_int, flags: c_int) -> Result<Packet, Errno> {
    let mut packet = Packet {
        bytes: [0; MAX_MESSAGE_BYTES],
        length: 0,
    };
    let place: *mut c_void = packet.bytes.as_mut_ptr().cast();
    // SAFETY: the buffer has that many bytes.
    match unsafe { libc::recv(ramp, place, MAX_MESSAGE_BYTES, flags) } {
        0 => Err(libc::ECONNRESET),
        length => {
            packet.length = usize::try_from(length).map_err(|_| errno())?;
            Ok(packet)
        }
    }
}

/// Sends a request that is answered immediately, and receives the answer.
pub fn ask(ramp: c_int, request: &RampRequest<'_>) -> Result<Packet, Errno> {
    send(ramp, request)?;
    set_receive_timeout(ramp, ANSWER_TIMEOUT_SECONDS * 1000);
    loop {
        match receive(ramp, 0) {
            Err(libc::EINTR) => {}
            Err(libc::EAGAIN) => return Err(libc::ETIMEDOUT),
            other => return other,
        }
    }
}

/// Limits each wait for the on-ramp to `milliseconds`; 0 means no limit.
pub fn set_receive_timeout(ramp: c_int, milliseconds: i64) {
    let limit = libc::timeval {
        tv_sec: milliseconds / 1000,
        tv_usec: milliseconds % 1000 * 1000,
    };
    let _ = set_option(ramp, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &limit);
}

/// Returns a path from C bytes.
pub fn path_from_bytes(bytes: &[u8]) -> OsString {
    OsString::from_vec(bytes.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_onramp_is_looked_for_where_it_listens() {
        let state = longhaul_config::home::state_dir();
        assert_eq!(
            default_path(),
            state.map(|state| state.join("onramp/socket"))
        );
    }
}
