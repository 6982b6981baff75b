//! One sample of the kernel's information about a TCP connection (`TCP_INFO`, Linux
//! `include/uapi/linux/tcp.h`).
//!
//! The kernel copies as much of its structure as it has, and reports the length. Fields are taken
//! by offset from the bytes that were copied, so on an older kernel they are `None`, never garbage.

use std::{os::fd::AsFd, time::Duration};

use longhaul_platform::tcp;
use serde::{Deserialize, Serialize};

/// Space for the structure of any future kernel; today it has 248 to 280 bytes.
const MAX_TCP_INFO_BYTES: usize = 512;
/// Minimum size, up to `total_retrans`, which every Linux since 2.6 reports.
const MIN_TCP_INFO_BYTES: usize = 104;

/// State of a connection at one moment. Counters run from the connection's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TcpInfo {
    /// State of the connection.
    pub state: TcpState,
    /// Smoothed round-trip time (RFC 6298).
    #[serde(with = "crate::trace::micros")]
    pub rtt: Duration,
    /// Mean deviation of the round-trip time (RFC 6298).
    #[serde(with = "crate::trace::micros")]
    pub rttvar: Duration,
    /// Least round-trip time within the kernel's window (some minutes).
    #[serde(with = "crate::trace::micros_or_none")]
    pub min_rtt: Option<Duration>,
    /// Round-trip time as the receiver estimates it; zero until it can.
    #[serde(with = "crate::trace::micros")]
    pub receive_rtt: Duration,
    /// Retransmission timeout.
    #[serde(with = "crate::trace::micros")]
    pub rto: Duration,
    /// Largest segment sent, in bytes of payload.
    pub send_mss: u32,
    /// Congestion window, in segments of `send_mss`.
    pub congestion_window: u32,
    /// Slow-start threshold, in segments; `None` before the first loss.
    pub slow_start_threshold: Option<u32>,
    /// Segments sent and not acknowledged.
    pub unacked: u32,
    /// Segments that arrived although an earlier one is missing (RFC 2018).
    pub sacked: u32,
    /// Segments assumed lost and not yet repaired.
    pub lost: u32,
    /// Segments retransmitted so far.
    pub retransmits: u32,
    /// Space that autotuning plans for the receiver, in bytes.
    pub receive_space: u32,
    /// Path MTU, in bytes.
    pub path_mtu: u32,
    /// Bytes that the peer has acknowledged.
    pub bytes_acked: Option<u64>,
    /// Bytes received in order.
    pub bytes_received: Option<u64>,
    /// Bytes sent, including retransmissions.
    pub bytes_sent: Option<u64>,
    /// Bytes retransmitted.
    pub bytes_retransmitted: Option<u64>,
    /// Delivered segments that were marked for congestion (ECN, RFC 3168).
    pub delivered_ce: Option<u32>,
    /// Bytes in the send buffer that have not been sent yet.
    pub bytes_not_sent: Option<u32>,
    /// Pacing rate, in bytes per second; `None` if the sender does not pace.
    pub pacing_rate: Option<u64>,
    /// Maximum pacing rate that someone set, in bytes per second (`SO_MAX_PACING_RATE`, or `bpf`);
    /// `None` if nobody did. The kernel updates [`Self::pacing_rate`], in contrast, whether it
    /// paces or not.
    pub max_pacing_rate: Option<u64>,
    /// Most recent delivery rate, in bytes per second.
    pub delivery_rate: Option<u64>,
    /// If true, that rate was low because the application had nothing to send.
    pub delivery_rate_app_limited: Option<bool>,
    /// Time spent with data to send.
    #[serde(with = "crate::trace::micros_or_none")]
    pub busy: Option<Duration>,
    /// Part of the busy time that was stalled on the peer's receive window.
    #[serde(with = "crate::trace::micros_or_none")]
    pub receive_window_limited: Option<Duration>,
    /// Part of the busy time that was stalled on the send buffer.
    #[serde(with = "crate::trace::micros_or_none")]
    pub send_buffer_limited: Option<Duration>,
    /// Current receive window of the peer, in bytes.
    pub send_window: Option<u32>,
    /// Window that this side offers now, in bytes.
    pub receive_window: Option<u32>,
    /// Segments that arrived out of order.
    pub out_of_order: Option<u32>,
    /// Segments with payload that arrived, in order or not.
    pub data_segments_received: Option<u32>,
    /// If true, both ends agreed on timestamps (RFC 7323).
    pub timestamps: bool,
    /// If true, both ends agreed on selective acknowledgement (RFC 2018).
    pub selective_acknowledgement: bool,
    /// If true, both ends agreed on window scaling (RFC 7323).
    pub window_scaling: bool,
    /// Shift of the windows that this side offers (RFC 7323), fixed when the connection was made.
    /// The largest window is 65,535 shifted by it. `None` without window scaling.
    pub receive_window_shift: Option<u8>,
}

/// State of a connection, as Linux numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum TcpState {
    /// Data may flow in both directions.
    Established,
    /// This side is connecting.
    SynSent,
    /// The peer is connecting.
    SynReceived,
    /// This side closed its half; not acknowledged yet.
    FinWait1,
    /// This side closed its half.
    FinWait2,
    /// Both sides closed; waiting for stray segments.
    TimeWait,
    /// Closed.
    #[default]
    Close,
    /// The peer closed its half.
    CloseWait,
    /// The peer closed first, then this side; not acknowledged yet.
    LastAck,
    /// Accepting connections.
    Listen,
    /// Both sides closed at once.
    Closing,
    /// An unknown number.
    Other(u8),
}

impl TcpInfo {
    /// Reads the information of a TCP socket.
    ///
    /// # Errors
    /// [`TcpInfoError`] if it is not a TCP socket, or the kernel is not supported.
    pub fn read(socket: impl AsFd) -> Result<Self, TcpInfoError> {
        let mut bytes = [0; MAX_TCP_INFO_BYTES];
        let length = tcp::info(socket.as_fd(), &mut bytes)?;
        Self::parse(bytes.get(..length).unwrap_or(&bytes)).ok_or(TcpInfoError::Short(length))
    }

    /// Parses the structure's bytes, however many there are. Returns `None` if there are fewer than
    /// every supported kernel reports.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < MIN_TCP_INFO_BYTES {
            return None;
        }
        let octet = |at: usize| bytes.get(at).copied();
        let u32_at = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let u64_at = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let micros = |at: usize| u32_at(at).map(|us| Duration::from_micros(us.into()));
        let long_micros = |at: usize| u64_at(at).map(Duration::from_micros);
        Some(Self {
            state: TcpState::from_number(octet(0)?),
            rto: micros(8)?,
            send_mss: u32_at(16)?,
            unacked: u32_at(24)?,
            sacked: u32_at(28)?,
            lost: u32_at(32)?,
            path_mtu: u32_at(60)?,
            rtt: micros(68)?,
            rttvar: micros(72)?,
            // TCP_INFINITE_SSTHRESH.
            slow_start_threshold: u32_at(76).filter(|&segments| segments < 0x7fff_ffff),
            congestion_window: u32_at(80)?,
            receive_rtt: micros(92)?,
            receive_space: u32_at(96)?,
            retransmits: u32_at(100)?,
            pacing_rate: u64_at(104).filter(|&rate| rate != u64::MAX),
            max_pacing_rate: u64_at(112).filter(|&rate| !UNLIMITED.contains(&rate)),
            bytes_acked: u64_at(120),
            bytes_received: u64_at(128),
            bytes_not_sent: u32_at(144),
            // All ones until there is a measurement.
            min_rtt: u32_at(148)
                .filter(|&us| us != u32::MAX)
                .map(|us| Duration::from_micros(us.into())),
            delivery_rate: u64_at(160),
            // A one-bit field in byte 7, present if the delivery rate is.
            delivery_rate_app_limited: u64_at(160)
                .and(octet(7))
                .map(|bits| bits & APP_LIMITED != 0),
            busy: long_micros(168),
            receive_window_limited: long_micros(176),
            send_buffer_limited: long_micros(184),
            delivered_ce: u32_at(196),
            bytes_sent: u64_at(200),
            bytes_retransmitted: u64_at(208),
            out_of_order: u32_at(224),
            data_segments_received: u32_at(152),
            send_window: u32_at(228),
            receive_window: u32_at(232),
            timestamps: octet(5)? & TIMESTAMPS != 0,
            selective_acknowledgement: octet(5)? & SACK != 0,
            window_scaling: octet(5)? & WINDOW_SCALING != 0,
            receive_window_shift: octet(5)
                .filter(|options| options & WINDOW_SCALING != 0)
                .and(octet(6))
                .map(|shifts| {
                    if cfg!(target_endian = "little") {
                        shifts >> 4
                    } else {
                        shifts & 15
                    }
                }),
        })
    }
}

/// Values that mean "no limit": all ones, with 32 bits before Linux 4.20.
const UNLIMITED: [u64; 2] = [u64::MAX, u32::MAX as u64];

/// `TCPI_OPT_TIMESTAMPS`, `TCPI_OPT_SACK`, `TCPI_OPT_WSCALE`.
const TIMESTAMPS: u8 = 1;
const SACK: u8 = 2;
const WINDOW_SCALING: u8 = 4;

/// Bit fields are laid out from the low bit on little-endian machines, from the high bit on
/// big-endian ones.
const APP_LIMITED: u8 = if cfg!(target_endian = "little") {
    1
} else {
    0x80
};

impl TcpState {
    /// Returns the state of this number.
    #[must_use]
    pub const fn from_number(number: u8) -> Self {
        match number {
            1 => Self::Established,
            2 => Self::SynSent,
            3 | 12 => Self::SynReceived,
            4 => Self::FinWait1,
            5 => Self::FinWait2,
            6 => Self::TimeWait,
            7 => Self::Close,
            8 => Self::CloseWait,
            9 => Self::LastAck,
            10 => Self::Listen,
            11 => Self::Closing,
            other => Self::Other(other),
        }
    }
}

/// Reason why there is no information.
#[derive(Debug, thiserror::Error)]
pub enum TcpInfoError {
    /// The kernel refused: most likely it is not a TCP socket.
    #[error("cannot read TCP_INFO: {0}")]
    Socket(#[from] std::io::Error),
    /// The kernel reports less than the minimum.
    #[error("the kernel reports {0} bytes of TCP_INFO, fewer than the {MIN_TCP_INFO_BYTES} needed")]
    Short(usize),
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream, UdpSocket},
    };

    use super::*;

    #[test]
    fn a_live_connection_is_measured() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut receiver, _) = listener.accept().unwrap();
        sender.write_all(&[7; 100_000]).unwrap();
        receiver.read_exact(&mut [0; 100_000]).unwrap();
        let (sent, received) = (
            TcpInfo::read(&sender).unwrap(),
            TcpInfo::read(&receiver).unwrap(),
        );
        assert_eq!(sent.state, TcpState::Established);
        assert!(sent.congestion_window >= 1 && sent.send_mss > 500);
        assert!(sent.rtt > Duration::ZERO);
        assert_eq!(received.bytes_received, Some(100_000));
        assert!(sent.bytes_sent >= Some(100_000));
        drop(sender);
        assert_eq!(receiver.read(&mut [0; 1]).unwrap(), 0);
        assert_eq!(TcpInfo::read(&receiver).unwrap().state, TcpState::CloseWait);
    }

    #[test]
    fn another_socket_is_an_error() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(matches!(
            TcpInfo::read(&socket),
            Err(TcpInfoError::Socket(_))
        ));
    }

    #[test]
    fn an_older_kernel_gives_less_and_never_garbage() {
        let mut bytes = [0xff; MAX_TCP_INFO_BYTES];
        bytes[5] = TIMESTAMPS | WINDOW_SCALING;
        bytes[68..72].copy_from_slice(&1234u32.to_ne_bytes());
        bytes[112..120].copy_from_slice(&1000u64.to_ne_bytes());
        bytes[120..128].copy_from_slice(&99u64.to_ne_bytes());
        for length in 0..MAX_TCP_INFO_BYTES {
            let info = TcpInfo::parse(&bytes[..length]);
            assert_eq!(info.is_some(), length >= MIN_TCP_INFO_BYTES);
            let Some(info) = info else { continue };
            assert_eq!(info.rtt, Duration::from_micros(1234));
            assert!(info.timestamps && info.window_scaling && !info.selective_acknowledgement);
            assert_eq!(info.max_pacing_rate, (length >= 120).then_some(1000));
            assert_eq!(info.delivered_ce.is_some(), length >= 200);
            assert_eq!(info.data_segments_received.is_some(), length >= 156);
            assert_eq!(info.bytes_acked, (length >= 128).then_some(99));
            assert_eq!(info.delivery_rate_app_limited.is_some(), length >= 168);
            assert_eq!(info.receive_window.is_some(), length >= 236);
        }
    }
}
