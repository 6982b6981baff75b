//! Receiving probes with the kernel's information about them: arrival times and congestion marks.
#![allow(unsafe_code)] // No crate reads these control messages.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Congestion mark (RFC 3168).
const CE: u8 = 0b11;

/// One datagram, or several of the same length that the kernel joined.
#[derive(Debug, Clone, Copy)]
pub(super) struct Datagram {
    pub(super) length: usize,
    /// Time at which the kernel received it.
    pub(super) at: Instant,
    pub(super) marked: bool,
}

/// Asks the kernel for arrival times and congestion marks.
pub(super) fn prepare(socket: &UdpSocket) -> io::Result<()> {
    let on = 1_i32.to_ne_bytes();
    super::socket::set_option(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &on)?;
    super::socket::set_option(socket, libc::IPPROTO_IP, libc::IP_RECVTOS, &on)
}

/// Receives into `buffer`.
pub(super) fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<Datagram> {
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    let mut control = [MaybeUninit::<u64>::uninit(); 32];
    // SAFETY: `msghdr` is plain data, for which all zeroes is a value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    // SAFETY: `message` refers to memory of this function and of `buffer`, with its lengths.
    let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) };
    let length = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
    let mut datagram = Datagram {
        length,
        at: Instant::now(),
        marked: false,
    };
    // SAFETY: the kernel filled in the control messages of `message`.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    while !header.is_null() {
        // SAFETY: `header` points to a complete control message, as CMSG_FIRSTHDR and CMSG_NXTHDR
        // promise.
        let (kind, data, bytes) = unsafe {
            let bytes = (*header).cmsg_len as usize - (libc::CMSG_LEN(0) as usize);
            (
                ((*header).cmsg_level, (*header).cmsg_type),
                libc::CMSG_DATA(header),
                bytes,
            )
        };
        if kind == (libc::IPPROTO_IP, libc::IP_TOS) && bytes >= 1 {
            // SAFETY: the message has a byte.
            datagram.marked = unsafe { *data } & CE == CE;
        }
        if kind == (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) && bytes >= size_of::<libc::timespec>()
        {
            // SAFETY: the message holds a `timespec`, perhaps not aligned.
            let time = unsafe { data.cast::<libc::timespec>().read_unaligned() };
            let since_epoch = Duration::new(
                u64::try_from(time.tv_sec).unwrap_or(0),
                u32::try_from(time.tv_nsec).unwrap_or(0),
            );
            let age = SystemTime::now().duration_since(UNIX_EPOCH + since_epoch);
            datagram.at = Instant::now()
                .checked_sub(age.unwrap_or_default())
                .unwrap_or(datagram.at);
        }
        // SAFETY: as for CMSG_FIRSTHDR; the result is checked above.
        header = unsafe { libc::CMSG_NXTHDR(&raw const message, header) };
    }
    Ok(datagram)
}

/// A probe that arrived.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReceivedProbe {
    /// Number in the order of sending, from 0.
    pub(super) number: u32,
    /// Sending time since the probe's sockets were opened.
    pub(super) sent: Duration,
    pub(super) at: Duration,
}

impl ReceivedProbe {
    /// Returns the one-way delay in seconds.
    pub(super) fn delay(&self) -> f64 {
        self.at.saturating_sub(self.sent).as_secs_f64()
    }
}
