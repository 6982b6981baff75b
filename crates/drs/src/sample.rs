//! One sample of a connection: the kernel's TCP information, and the state of the socket's queues.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::TcpInfo;

/// State of a connection at one moment. The estimator takes only these samples, so a recorded trace
/// of them replays exactly.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Sample {
    /// Time of the sample, from any fixed start, on a monotonic clock.
    #[serde(with = "crate::trace::micros")]
    pub at: Duration,
    /// The kernel's information about the connection.
    pub info: TcpInfo,
    /// Data that waits in the socket.
    pub queues: SocketQueues,
    /// Sizes of the socket's buffers.
    pub buffers: SocketBuffers,
    /// State of the congestion control, if it reports any.
    pub congestion: CongestionState,
    /// Rate, in bytes per second, to which this flow is limited because its path carries no more
    /// ([`crate::RateFit`]). The kernel does not know it, so the caller that fits the rate sets it.
    pub fitted_rate: Option<u64>,
}

/// Bytes that wait in a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SocketQueues {
    /// Bytes received in order and not yet read by the program (`SIOCINQ`).
    pub unread: u32,
    /// Bytes written by the program and not yet acknowledged by the peer (`SIOCOUTQ`).
    pub unacknowledged: u32,
    /// Part of these that has not been sent yet (`SIOCOUTQNSD`).
    pub unsent: u32,
}

/// Sizes of a socket's buffers, in bytes as the kernel accounts them. They include payload and
/// bookkeeping; an explicit setting counts twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SocketBuffers {
    /// Send buffer (`SO_SNDBUF`).
    pub send: u32,
    /// Memory used by data to be sent (`SK_MEMINFO_WMEM_QUEUED`).
    pub send_used: u32,
    /// Receive buffer (`SO_RCVBUF`).
    pub receive: u32,
    /// Memory used by unread data (`SK_MEMINFO_RMEM_ALLOC`).
    pub receive_used: u32,
    /// If true, someone set the send buffer, so that the kernel no longer sizes it (`SO_BUF_LOCK`);
    /// `None` before Linux 5.14.
    pub send_locked: Option<bool>,
    /// If true, someone set the receive buffer; `None` before Linux 5.14.
    pub receive_locked: Option<bool>,
}

/// Congestion control of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CongestionState {
    /// Name, as in `net.ipv4.tcp_congestion_control`; empty if unknown.
    pub name: CongestionName,
    /// BBR's model of the path, if BBR is in use (`TCP_CC_INFO`).
    pub bbr: Option<Bbr>,
}

/// BBR's model of the path (`struct tcp_bbr_info`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Bbr {
    /// Bandwidth of the bottleneck, in bytes per second.
    pub bandwidth: u64,
    /// Round-trip time of the path without queues.
    #[serde(with = "crate::trace::micros")]
    pub min_rtt: Duration,
    /// Factor from bandwidth to pacing rate, in 256ths: 739 during startup, 88 while it drains the
    /// resulting queue, later 320, 192 and 256.
    pub pacing_gain: u32,
    /// Factor from bandwidth-delay product to congestion window, in 256ths.
    pub window_gain: u32,
}

impl Bbr {
    /// Returns true if it is still searching for the bandwidth (the state STARTUP), and has not
    /// seen it level off yet.
    #[must_use]
    pub const fn is_starting_up(&self) -> bool {
        self.pacing_gain >= 512
    }
}

impl CongestionState {
    /// Returns true if it follows a model of the path rather than losses: some version of BBR.
    #[must_use]
    pub fn is_model_based(&self) -> bool {
        self.name.as_str().starts_with("bbr")
    }
}

/// Name of a congestion control: at most 16 bytes (`TCP_CA_NAME_MAX`), kept without allocating.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct CongestionName([u8; 16]);

impl CongestionName {
    /// Returns the name in the kernel's NUL-terminated form. A name that is too long or not ASCII
    /// becomes the unknown name.
    #[must_use]
    pub fn from_kernel(bytes: &[u8]) -> Self {
        let name = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        let mut kept = [0; 16];
        match kept.get_mut(..name.len()) {
            Some(room) if name.is_ascii() => room.copy_from_slice(name),
            _ => return Self::default(),
        }
        Self(kept)
    }

    /// Returns the name as text; empty if unknown.
    #[must_use]
    pub fn as_str(&self) -> &str {
        let end = self
            .0
            .iter()
            .position(|byte| *byte == 0)
            .unwrap_or(self.0.len());
        std::str::from_utf8(self.0.get(..end).unwrap_or_default()).unwrap_or_default()
    }
}

impl Sample {
    /// Returns the bytes sent and not acknowledged.
    #[must_use]
    pub const fn in_flight(&self) -> u64 {
        self.queues
            .unacknowledged
            .saturating_sub(self.queues.unsent) as u64
    }

    /// Returns the congestion window, in bytes.
    #[must_use]
    pub const fn congestion_window(&self) -> u64 {
        self.info.congestion_window as u64 * self.info.send_mss as u64
    }
}

impl Serialize for CongestionName {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.as_str())
    }
}

impl<'a> Deserialize<'a> for CongestionName {
    fn deserialize<D: Deserializer<'a>>(from: D) -> Result<Self, D::Error> {
        Ok(Self::from_kernel(String::deserialize(from)?.as_bytes()))
    }
}

impl std::fmt::Debug for CongestionName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_str().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_at_the_first_zero() {
        assert_eq!(
            CongestionName::from_kernel(b"cubic\0\0junk").as_str(),
            "cubic"
        );
        assert_eq!(CongestionName::from_kernel(b"").as_str(), "");
        assert_eq!(
            CongestionName::from_kernel(b"0123456789abcdef").as_str(),
            "0123456789abcdef"
        );
        assert_eq!(
            CongestionName::from_kernel(b"0123456789abcdefg").as_str(),
            ""
        );
        assert_eq!(CongestionName::from_kernel(b"\xff\xfe").as_str(), "");
    }
}
