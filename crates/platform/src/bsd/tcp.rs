//! Options of TCP sockets by which flows are measured and sized.
//!
//! Most of them do not exist here, and have a number that every system refuses. A flow is then not
//! sampled, and its limits are unknown.

use std::io;
use std::os::fd::BorrowedFd;

use crate::sockets::{Ioctl, option};

/// Limit on the bytes that wait to be sent for the first time.
#[cfg(target_os = "linux")]
pub const TCP_NOTSENT_LOWAT: i32 = libc::TCP_NOTSENT_LOWAT;
/// Limit on the bytes that wait to be sent for the first time (macOS `netinet/tcp.h`).
#[cfg(not(target_os = "linux"))]
pub const TCP_NOTSENT_LOWAT: i32 = 0x201;

/// Number of an option that does not exist.
const MISSING: i32 = -1;

/// Does not exist here.
pub const SO_BUF_LOCK: i32 = MISSING;
/// Does not exist here.
pub const SO_MAX_PACING_RATE: i32 = MISSING;
/// Does not exist here.
pub const SO_MEMINFO: i32 = MISSING;
/// Does not exist here.
pub const TCP_CC_INFO: i32 = MISSING;
/// Does not exist here.
pub const TCP_CONGESTION: i32 = MISSING;
/// Does not exist here.
pub const TCP_WINDOW_CLAMP: i32 = MISSING;

/// Request for the bytes to read.
pub const SIOCINQ: Ioctl = libc::FIONREAD;
/// Request that sockets do not have here.
pub const SIOCOUTQ: Ioctl = libc::TIOCOUTQ;
/// Request that sockets do not have here.
pub const SIOCOUTQNSD: Ioctl = libc::TIOCOUTQ;

/// Length of the part of Linux's `struct tcp_info` that is filled, up to `tcpi_total_retrans`.
const LINUX_BYTES: usize = 104;
/// Length of `struct tcp_connection_info` (macOS `netinet/tcp.h`).
const APPLE_BYTES: usize = 112;

/// Reads what the system knows of a connection, in the layout of Linux's `TCP_INFO`. Returns the
/// number of bytes of `room` that are filled. Numbers that macOS does not report are 0.
///
/// # Errors
/// Those of getsockopt(2), and `Unsupported` where there is no such option.
pub fn info(socket: BorrowedFd<'_>, room: &mut [u8]) -> io::Result<usize> {
    #[cfg(target_vendor = "apple")]
    const OPTION: i32 = libc::TCP_CONNECTION_INFO;
    #[cfg(not(target_vendor = "apple"))]
    const OPTION: i32 = MISSING;
    let mut report = [0; APPLE_BYTES];
    let length = option(socket, libc::IPPROTO_TCP, OPTION, &mut report)?;
    let info = linux_layout(report.get(..length).unwrap_or_default());
    let info = info.ok_or(io::ErrorKind::Unsupported)?;
    let room = room
        .get_mut(..LINUX_BYTES)
        .ok_or(io::ErrorKind::InvalidInput)?;
    room.copy_from_slice(&info);
    Ok(LINUX_BYTES)
}

/// Translates a `struct tcp_connection_info`. Returns `None` if it is too short.
fn linux_layout(report: &[u8]) -> Option<[u8; LINUX_BYTES]> {
    let number = |at: usize| {
        let bytes = report.get(at..at + 4)?;
        Some(u32::from_ne_bytes(bytes.try_into().ok()?))
    };
    let packets = |at: usize| {
        let bytes = report.get(at..at + 8)?;
        let count = u64::from_ne_bytes(bytes.try_into().ok()?);
        Some(u32::try_from(count).unwrap_or(u32::MAX))
    };
    let microseconds = |at: usize| Some(number(at)?.saturating_mul(1000));
    let segment = number(16)?;
    let segments = |at: usize| Some(number(at)? / segment.max(1));
    let mut info = [0; LINUX_BYTES];
    let mut put = |at: usize, value: u32| {
        if let Some(room) = info.get_mut(at..at + 4) {
            room.copy_from_slice(&value.to_ne_bytes());
        }
    };
    put(8, microseconds(12)?); // tcpi_rto
    put(16, segment); // tcpi_snd_mss
    put(68, microseconds(44)?); // tcpi_rtt
    put(72, microseconds(48)?); // tcpi_rttvar
    put(76, segments(20)?); // tcpi_snd_ssthresh
    put(80, segments(24)?); // tcpi_snd_cwnd
    put(100, packets(104)?); // tcpi_total_retrans
    if let (Some(state), Some(options)) = (report.first(), number(4)) {
        // The lowest bits are the same: timestamps, selective acknowledgement, window scaling.
        let head = [linux_state(*state), 0, 0, 0, 0, (options & 7) as u8];
        info.get_mut(..head.len())?.copy_from_slice(&head);
    }
    Some(info)
}

/// Translates the state of a connection (`TCPS_*` of macOS `netinet/tcp_fsm.h`).
const fn linux_state(state: u8) -> u8 {
    match state {
        1 => 10, // LISTEN
        2 => 2,  // SYN_SENT
        3 => 3,  // SYN_RECEIVED
        4 => 1,  // ESTABLISHED
        5 => 8,  // CLOSE_WAIT
        6 => 4,  // FIN_WAIT_1
        7 => 11, // CLOSING
        8 => 9,  // LAST_ACK
        9 => 5,  // FIN_WAIT_2
        10 => 6, // TIME_WAIT
        _ => 7,  // CLOSED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_of_macos_is_translated() {
        let mut report = [0; APPLE_BYTES];
        let mut put = |at: usize, value: u32| {
            report[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        };
        put(4, 0x17);
        put(12, 230);
        put(16, 1448);
        put(24, 14_480);
        put(44, 30);
        report[0] = 4;
        report[104..112].copy_from_slice(&5u64.to_ne_bytes());
        let info = linux_layout(&report).unwrap();
        let number = |at: usize| u32::from_ne_bytes(info[at..at + 4].try_into().unwrap());
        assert_eq!((info[0], info[5]), (1, 7));
        assert_eq!((number(8), number(16)), (230_000, 1448));
        assert_eq!((number(68), number(80), number(100)), (30_000, 10, 5));
        for length in 0..APPLE_BYTES {
            assert!(linux_layout(&report[..length]).is_none(), "{length}");
        }
    }
}
