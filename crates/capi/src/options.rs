//! `lsl_getsockopt` and `lsl_setsockopt`: the system's options, and the level `SOL_LSL`.

use std::ffi::{c_int, c_void};
use std::os::fd::AsRawFd;

use data_encoding::BASE32_NOPAD;
use libc::socklen_t;
use longhaul_ramp_protocol::{MAX_PURPOSE_BYTES, MAX_ROUTE_BYTES};
use strum::FromRepr;

use crate::address::SockaddrLsl;
use crate::guard::{catching_panics, guarded};
use crate::settle::{take_failure, with_known_entry};
use crate::system::{Errno, cookie, errno, fail, set_errno, tcp_family, write_address};
use crate::table::{self, SocketState};
use crate::wish::SocketWishes;
use crate::{fill, listen, ramp};

/// `SOL_LSL`: the level of the options below.
pub const SOL_LSL: c_int = 0x4c53;

/// Prefix of keys in text form.
const KEY_PREFIX: &str = "lhk1:";
/// Maximum length of a key's text, in bytes.
const MAX_KEY_TEXT_BYTES: usize = 57;

/// The options of `SOL_LSL`, with the numbers of `enum lsl_option`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromRepr)]
#[repr(i32)]
enum LslOption {
    Purpose = 1,
    Size = 2,
    Rate = 3,
    Duration = 4,
    Route = 5,
    ConnectTimeout = 6,
    Closed = 7,
    Acceptor = 8,
    Onramp = 9,
    PeerKey = 10,
    Reason = 11,
    Routed = 12,
    Peer = 13,
}

/// `setsockopt(2)`.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lsl_setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    length: socklen_t,
) -> c_int {
    if level == SOL_LSL {
        return guarded(|| {
            let name = LslOption::from_repr(name).ok_or(libc::ENOPROTOOPT)?;
            if value.is_null() {
                return Err(libc::EFAULT);
            }
            // SAFETY: the caller says that `value` has that many bytes.
            let bytes = unsafe { std::slice::from_raw_parts(value.cast::<u8>(), length as usize) };
            set_wish(fd, name, bytes)?;
            Ok(0)
        });
    }
    let before = errno();
    if level == libc::SOL_SOCKET
        && name == libc::SO_SNDBUF
        && length as usize >= size_of::<c_int>()
        && !value.is_null()
    {
        // SAFETY: the caller says that `value` has that many bytes.
        let size = unsafe { value.cast::<c_int>().read_unaligned() };
        if catching_panics(None, || set_small_buffer(fd, size)).is_some() {
            return 0;
        }
        catching_panics((), || {
            if is_routed(fd) {
                fill::drain_below(fd, size);
            }
        });
    }
    let place = catching_panics(None, || listen::options_socket(fd))
        .filter(|_| !applies_to_listener_socket(level, name));
    set_errno(before);
    let target = place.as_ref().map_or(fd, |place| place.as_raw_fd());
    // SAFETY: the caller's promise is the system call's.
    unsafe { libc::setsockopt(target, level, name, value, length) }
}

/// Returns true for options that work on a listener's own descriptor: its timeout and its error.
fn applies_to_listener_socket(level: c_int, name: c_int) -> bool {
    let own = [
        libc::SO_RCVTIMEO,
        libc::SO_SNDTIMEO,
        libc::SO_ERROR,
        libc::SO_COOKIE,
    ];
    level == libc::SOL_SOCKET && own.contains(&name)
}

/// Records a send buffer size that the program sets while its route is being made. Until then the
/// buffer is kept small.
fn set_small_buffer(fd: c_int, size: c_int) -> Option<()> {
    table::has_pending().then_some(())?;
    let cookie = cookie(fd)?;
    table::with_table(|table| {
        let SocketState::Connecting(mut pending) = table.set_state(cookie, SocketState::Idle)
        else {
            return None;
        };
        let kept = pending.buffer.as_mut().map(|buffer| {
            buffer.size = size.clamp(1, c_int::MAX / 2).saturating_mul(2);
            buffer.locked = true;
        });
        table.set_state(cookie, SocketState::Connecting(pending));
        kept
    })
}

/// Returns true if a route stands that begins or ends with this socket.
fn is_routed(fd: c_int) -> bool {
    with_known_entry(fd, |entry| {
        matches!(entry.state(), SocketState::Connected { .. }).then_some(())
    })
    .is_some()
}

fn number<const N: usize>(bytes: &[u8]) -> Result<[u8; N], Errno> {
    let bytes = bytes.get(..N).ok_or(libc::EINVAL)?;
    bytes.try_into().map_err(|_| libc::EINVAL)
}

/// Returns a text, with or without a terminating NUL, or `None` if it is empty.
fn parse_text(bytes: &[u8], longest: usize) -> Result<Option<String>, Errno> {
    let end = bytes
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(bytes.len());
    let text = bytes
        .get(..end)
        .and_then(|bytes| std::str::from_utf8(bytes).ok());
    let text = text
        .filter(|text| text.len() <= longest)
        .ok_or(libc::EINVAL)?;
    Ok((!text.is_empty()).then(|| text.to_owned()))
}

fn set_wish(fd: c_int, name: LslOption, bytes: &[u8]) -> Result<(), Errno> {
    let cookie = cookie(fd).ok_or_else(errno)?;
    tcp_family(fd).ok_or(libc::ENOPROTOOPT)?;
    let flag = || number(bytes).map(|bytes| c_int::from_ne_bytes(bytes) != 0);
    let long =
        || number(bytes).map(|bytes| Some(u64::from_ne_bytes(bytes)).filter(|number| *number != 0));
    let change: Box<dyn FnOnce(&mut SocketWishes)> = match name {
        LslOption::Purpose => {
            let purpose = parse_text(bytes, MAX_PURPOSE_BYTES)?;
            Box::new(|wishes| wishes.purpose = purpose)
        }
        LslOption::Size => {
            let size = long()?;
            Box::new(move |wishes| wishes.size = size)
        }
        LslOption::Rate => {
            let rate = long()?;
            Box::new(move |wishes| wishes.rate = rate)
        }
        LslOption::Duration => {
            let duration = long()?;
            Box::new(move |wishes| wishes.duration = duration)
        }
        LslOption::Route => {
            let route = parse_text(bytes, MAX_ROUTE_BYTES)?;
            Box::new(|wishes| wishes.route = route)
        }
        LslOption::ConnectTimeout => {
            let limit = number(bytes).map(u32::from_ne_bytes)?;
            Box::new(move |wishes| wishes.connect_timeout = Some(limit).filter(|limit| *limit != 0))
        }
        LslOption::Closed => {
            let closed = flag()?;
            Box::new(move |wishes| wishes.closed = closed)
        }
        LslOption::Acceptor => {
            let acceptor = flag()?;
            Box::new(move |wishes| wishes.acceptor = acceptor)
        }
        LslOption::Onramp => {
            let end = bytes
                .iter()
                .position(|byte| *byte == 0)
                .unwrap_or(bytes.len());
            let path = ramp::path_from_bytes(bytes.get(..end).unwrap_or_default());
            Box::new(|wishes| wishes.onramp = Some(path).filter(|path| !path.is_empty()))
        }
        LslOption::PeerKey => {
            let text = parse_text(bytes, MAX_KEY_TEXT_BYTES)?;
            let key = text
                .map(|text| parse_key(&text).ok_or(libc::EINVAL))
                .transpose()?;
            Box::new(move |wishes| wishes.key = key)
        }
        LslOption::Reason | LslOption::Routed | LslOption::Peer => return Err(libc::ENOPROTOOPT),
    };
    table::with_table(|table| change(&mut table.entry(cookie).wishes));
    Ok(())
}

/// `getsockopt(2)`.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lsl_getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    length: *mut socklen_t,
) -> c_int {
    let before = errno();
    let found = match (level, name) {
        (SOL_LSL, _) => catching_panics(Err(libc::EPROTO), || wish(fd, name).map(Some)),
        (libc::SOL_SOCKET, libc::SO_ERROR) => Ok(
            catching_panics(None, || take_failure(fd)).map(|errno| errno.to_ne_bytes().to_vec())
        ),
        (libc::SOL_SOCKET, libc::SO_SNDBUF) => {
            Ok(catching_panics(None, || small_buffer(fd)).map(|size| size.to_ne_bytes().to_vec()))
        }
        (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => {
            Ok(catching_panics(None, || listen::session_address(fd))
                .map(|_| c_int::from(true).to_ne_bytes().to_vec()))
        }
        _ => Ok(None),
    };
    set_errno(before);
    match found {
        Ok(Some(bytes)) => {
            // SAFETY: the caller's promise is the system call's.
            match unsafe { write_option(&bytes, value, length) } {
                Ok(()) => 0,
                Err(errno) => fail(errno),
            }
        }
        Ok(None) => {
            let place = catching_panics(None, || listen::options_socket(fd))
                .filter(|_| !applies_to_listener_socket(level, name));
            set_errno(before);
            let target = place.as_ref().map_or(fd, |place| place.as_raw_fd());
            // SAFETY: as above.
            unsafe { libc::getsockopt(target, level, name, value, length) }
        }
        Err(errno) => fail(errno),
    }
}

/// Like [`write_address`], but sets the length to what was written, as `getsockopt` does.
///
/// # Safety
/// As for [`write_address`].
unsafe fn write_option(
    bytes: &[u8],
    value: *mut c_void,
    length: *mut socklen_t,
) -> Result<(), Errno> {
    if length.is_null() {
        return Err(libc::EFAULT);
    }
    // SAFETY: not NULL; the caller says that it is valid.
    let room = unsafe { length.read() };
    // SAFETY: the caller's promise.
    unsafe {
        write_address(bytes, value, length)?;
        length.write(room.min(bytes.len() as socklen_t));
    }
    Ok(())
}

/// Returns the send buffer size that the program will have once its route stands.
fn small_buffer(fd: c_int) -> Option<c_int> {
    table::has_pending().then_some(())?;
    with_known_entry(fd, |entry| match entry.state() {
        SocketState::Connecting(pending) => pending.buffer.map(|buffer| buffer.size),
        _ => None,
    })
}

fn nul_terminated(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.push(0);
    bytes
}

fn wish(fd: c_int, name: c_int) -> Result<Vec<u8>, Errno> {
    let name = LslOption::from_repr(name).ok_or(libc::ENOPROTOOPT)?;
    cookie(fd).ok_or_else(errno)?;
    let value = with_known_entry(fd, |entry| {
        let wishes = &entry.wishes;
        let words = |text: &Option<String>| nul_terminated(text.as_deref().unwrap_or_default());
        let long = |number: Option<u64>| number.unwrap_or(0).to_ne_bytes().to_vec();
        let flag = |flag: bool| c_int::from(flag).to_ne_bytes().to_vec();
        Some(match name {
            LslOption::Purpose => words(&wishes.purpose),
            LslOption::Size => long(wishes.size),
            LslOption::Rate => long(wishes.rate),
            LslOption::Duration => long(wishes.duration),
            LslOption::Route => words(&wishes.route),
            LslOption::ConnectTimeout => wishes.connect_timeout.unwrap_or(0).to_ne_bytes().to_vec(),
            LslOption::Closed => flag(wishes.closed),
            LslOption::Acceptor => flag(wishes.acceptor),
            LslOption::Onramp => {
                let path = wishes.onramp.as_deref().unwrap_or_default();
                let mut bytes = path.as_encoded_bytes().to_vec();
                bytes.push(0);
                bytes
            }
            // An accepted peer has shown its key; a peer to connect to must show the requested one.
            LslOption::PeerKey => match entry.key.or(wishes.key) {
                Some(key) => nul_terminated(&key_text(&key)),
                None => nul_terminated(""),
            },
            LslOption::Reason => nul_terminated(&entry.reason),
            LslOption::Routed => flag(entry.carried),
            LslOption::Peer => SockaddrLsl::from_parts(entry.peer, entry.peer_name.as_deref())
                .bytes()
                .to_vec(),
        })
    });
    // Defaults for a socket without any options.
    value.map_or_else(
        || {
            Ok(match name {
                LslOption::Purpose
                | LslOption::Route
                | LslOption::Onramp
                | LslOption::PeerKey
                | LslOption::Reason => {
                    vec![0]
                }
                LslOption::Size | LslOption::Rate | LslOption::Duration => {
                    vec![0; size_of::<u64>()]
                }
                LslOption::ConnectTimeout
                | LslOption::Closed
                | LslOption::Acceptor
                | LslOption::Routed => {
                    vec![0; size_of::<c_int>()]
                }
                LslOption::Peer => return Err(libc::ENOTCONN),
            })
        },
        Ok,
    )
}

/// Parses a key in its text form.
fn parse_key(text: &str) -> Option<[u8; 32]> {
    let digits = text.strip_prefix(KEY_PREFIX)?.to_ascii_uppercase();
    BASE32_NOPAD.decode(digits.as_bytes()).ok()?.try_into().ok()
}

/// Returns the text form of a key.
fn key_text(key: &[u8; 32]) -> String {
    format!(
        "{KEY_PREFIX}{}",
        BASE32_NOPAD.encode(key).to_ascii_lowercase()
    )
}

#[cfg(test)]
mod tests {
    use longhaul_proto::PublicKey;

    use super::*;

    #[test]
    fn a_key_reads_as_elsewhere() {
        for key in [[0; 32], [7; 32], [255; 32]] {
            assert_eq!(key_text(&key), PublicKey::from_bytes(key).to_string());
            assert_eq!(parse_key(&key_text(&key)), Some(key));
        }
        for wrong in [
            "",
            "lhk1:",
            "lhk1:aa",
            "lhk2:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
            &format!("{}a", key_text(&[1; 32])),
        ] {
            assert_eq!(parse_key(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn texts_end_at_their_zero_or_with_their_bytes() {
        assert_eq!(parse_text(b"bulk\0rest", 64), Ok(Some("bulk".to_owned())));
        assert_eq!(parse_text(b"bulk", 4), Ok(Some("bulk".to_owned())));
        assert_eq!(parse_text(b"\0", 4), Ok(None));
        assert_eq!(parse_text(b"bulky", 4), Err(libc::EINVAL));
        assert_eq!(parse_text(b"\xff", 4), Err(libc::EINVAL));
    }
}
