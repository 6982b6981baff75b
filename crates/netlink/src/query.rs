//! Netlink queries to the kernel: framing of queries and answers, and attributes by number.
//!
//! Only the few needed attributes are parsed, each by itself, so that a change in one by a newer
//! kernel does not affect the others.

use std::io;
use std::os::fd::AsFd;

use netlink_packet_core::{NLA_F_NESTED, NLMSG_DONE, NLMSG_ERROR, NetlinkBuffer, NlasIterator};
use netlink_sys::{Socket, SocketAddr};

/// Protocol of devices, addresses and routes.
pub const ROUTE: isize = 0;
/// Protocol of sockets.
pub const SOCK_DIAG: isize = 4;
/// Protocol of families that the kernel names.
pub const GENERIC: isize = 16;

const REQUEST: u16 = 0x1;
const DUMP: u16 = 0x300;
const HEADER: usize = 16;
/// Maximum bytes of all answers to one query: enough for some thousand devices.
const MAX_ANSWER_BYTES: usize = 8 << 20;

/// Socket to the kernel.
#[derive(Debug)]
pub struct NetlinkSocket {
    socket: Socket,
    sequence: u32,
}

/// An answer: its type, and the bytes after the netlink header.
pub type NetlinkAnswer = (u16, Vec<u8>);

impl NetlinkSocket {
    /// Opens a socket for a netlink protocol.
    ///
    /// # Errors
    /// The kernel has no such protocol, or allows no further socket.
    pub fn open(protocol: isize) -> io::Result<Self> {
        let mut socket = Socket::new(protocol)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self {
            socket,
            sequence: 0,
        })
    }

    /// Queries one object.
    ///
    /// # Errors
    /// The kernel refuses, gives no answer within two seconds, or a malformed one.
    pub fn get(&mut self, kind: u16, body: &[u8]) -> io::Result<NetlinkAnswer> {
        let answers = self.ask(kind, REQUEST, body)?;
        answers.into_iter().next().ok_or_else(|| {
            io::Error::new(io::ErrorKind::UnexpectedEof, "the kernel gave no answer")
        })
    }

    /// Queries all objects of a kind.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn dump(&mut self, kind: u16, body: &[u8]) -> io::Result<Vec<NetlinkAnswer>> {
        self.ask(kind, REQUEST | DUMP, body)
    }

    fn ask(&mut self, kind: u16, flags: u16, body: &[u8]) -> io::Result<Vec<NetlinkAnswer>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut message = Vec::with_capacity(HEADER + body.len());
        message.extend_from_slice(
            &u32::try_from(HEADER + body.len())
                .unwrap_or(0)
                .to_ne_bytes(),
        );
        message.extend_from_slice(&kind.to_ne_bytes());
        message.extend_from_slice(&flags.to_ne_bytes());
        message.extend_from_slice(&self.sequence.to_ne_bytes());
        message.extend_from_slice(&[0; 4]);
        message.extend_from_slice(body);
        self.socket.send(&message, 0)?;
        let (mut answers, mut bytes) = (Vec::new(), 0);
        loop {
            self.readable()?;
            let (datagram, _) = self.socket.recv_from_full()?;
            bytes += datagram.len();
            let end = read_datagram(&datagram, self.sequence, &mut answers)?;
            if end || (flags & DUMP == 0 && !answers.is_empty()) {
                return Ok(answers);
            }
            if bytes > MAX_ANSWER_BYTES {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "the kernel's answer has no end",
                ));
            }
        }
    }

    /// Waits for an answer, for at most two seconds: the kernel answers at once or not at all.
    fn readable(&self) -> io::Result<()> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let timeout = Timespec {
            tv_sec: 2,
            tv_nsec: 0,
        };
        let fd = self.socket.as_fd();
        let mut wait = [PollFd::new(&fd, PollFlags::IN)];
        match poll(&mut wait, Some(&timeout)) {
            Ok(0) => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the kernel gave no answer",
            )),
            Ok(_) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// Parses the answers in one datagram. Returns true if they are complete.
fn read_datagram(
    mut bytes: &[u8],
    sequence: u32,
    answers: &mut Vec<NetlinkAnswer>,
) -> io::Result<bool> {
    let malformed = |_| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            "the kernel's answer is malformed",
        )
    };
    while bytes.len() >= HEADER {
        let buffer = NetlinkBuffer::new_checked(bytes).map_err(malformed)?;
        let (kind, length, payload) = (
            buffer.message_type(),
            buffer.length() as usize,
            buffer.payload(),
        );
        if buffer.sequence_number() == sequence {
            match kind {
                NLMSG_DONE => return Ok(true),
                NLMSG_ERROR => return acknowledged(payload).map(|()| true),
                _ => answers.push((kind, payload.to_vec())),
            }
        }
        let next = length.max(HEADER).next_multiple_of(4);
        bytes = bytes.get(next..).unwrap_or_default();
    }
    Ok(false)
}

/// Checks an error message; number 0 is an acknowledgement.
fn acknowledged(payload: &[u8]) -> io::Result<()> {
    match payload.first_chunk().copied().map(i32::from_ne_bytes) {
        Some(0) => Ok(()),
        Some(number) => Err(io::Error::from_raw_os_error(number.wrapping_neg())),
        None => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the kernel's answer is malformed",
        )),
    }
}

/// Returns the attributes after a fixed header of `skip` bytes, as number and value. Ends at the
/// first malformed one.
#[must_use]
pub fn attributes(payload: &[u8], skip: usize) -> Vec<(u16, Vec<u8>)> {
    let rest = payload.get(skip..).unwrap_or_default();
    NlasIterator::new(rest)
        .map_while(Result::ok)
        .map(|nla| (nla.kind(), nla.value().to_vec()))
        .collect()
}

/// Returns the attribute of that number.
#[must_use]
pub fn find(attributes: &[(u16, Vec<u8>)], kind: u16) -> Option<&[u8]> {
    attributes
        .iter()
        .find(|(k, _)| *k == kind)
        .map(|(_, value)| value.as_slice())
}

/// Parses a number in the machine's byte order.
#[must_use]
pub fn parse_u32(value: &[u8]) -> Option<u32> {
    value.first_chunk().copied().map(u32::from_ne_bytes)
}

/// Parses zero-terminated text.
#[must_use]
pub fn parse_text(value: &[u8]) -> Option<&str> {
    let end = value.iter().position(|&b| b == 0).unwrap_or(value.len());
    std::str::from_utf8(value.get(..end)?).ok()
}

/// Appends an attribute.
pub fn put(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = u16::try_from(4 + value.len()).unwrap_or(4);
    out.extend_from_slice(&length.to_ne_bytes());
    out.extend_from_slice(&(kind & !NLA_F_NESTED).to_ne_bytes());
    out.extend_from_slice(value);
    out.resize(out.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(kind: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&((HEADER + body.len()) as u32).to_ne_bytes());
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(&[0; 2]);
        bytes.extend_from_slice(&sequence.to_ne_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(body);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn answers_to_others_are_left_out_and_errors_are_errors() {
        let mut bytes = message(16, 7, b"mine");
        bytes.extend(message(16, 6, b"not mine"));
        bytes.extend(message(NLMSG_DONE, 7, &[0; 4]));
        let mut answers = Vec::new();
        assert!(read_datagram(&bytes, 7, &mut answers).unwrap());
        assert_eq!(answers, [(16, b"mine".to_vec())]);
        let refused = message(NLMSG_ERROR, 7, &(-1i32).to_ne_bytes());
        let error = read_datagram(&refused, 7, &mut answers).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn attributes_are_found_by_number() {
        let mut bytes = vec![9; 4];
        put(&mut bytes, 3, b"eth0\0");
        put(&mut bytes, 4, &1500u32.to_ne_bytes());
        let found = attributes(&bytes, 4);
        assert_eq!(find(&found, 3).and_then(parse_text), Some("eth0"));
        assert_eq!(find(&found, 4).and_then(parse_u32), Some(1500));
        assert_eq!(find(&found, 5), None);
    }

    proptest! {
        #[test]
        fn garbage_never_panics(
            bytes in prop::collection::vec(any::<u8>(), 0..300), skip in 0usize..40
        ) {
            let _ = read_datagram(&bytes, 0, &mut Vec::new());
            for (_, value) in attributes(&bytes, skip) {
                let _ = (parse_text(&value), parse_u32(&value), attributes(&value, 0));
            }
        }
    }
}
