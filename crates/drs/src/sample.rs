//! One look at a connection: what the kernel's TCP says, and what lies in the socket's queues.

use std::time::Duration;

use crate::TcpInfo;

/// What is known of a connection at one moment. The estimator takes these and nothing else, so a
/// recorded trace of them replays exactly.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "trace", serde(default))]
pub struct Sample {
    /// When it was taken, from any fixed start, on a clock that never goes back.
    #[cfg_attr(feature = "trace", serde(with = "crate::trace::micros"))]
    pub at: Duration,
    /// The kernel's own account of the connection.
    pub info: TcpInfo,
    /// What waits in the socket.
    pub queues: Queues,
    /// How much may wait there.
    pub buffers: Buffers,
    /// What the congestion control reports of itself, where it reports anything.
    pub congestion: Congestion,
    /// The rate, in bytes a second, that this flow is held to because its path carries no more
    /// ([`crate::RateFit`]). The kernel does not know it: whoever fits the rate says it.
    pub fitted_rate: Option<u64>,
}

/// Bytes that wait in a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "trace", serde(default))]
pub struct Queues {
    /// Received in order and not yet read by the program (`SIOCINQ`).
    pub unread: u32,
    /// Written by the program and not yet acknowledged by the peer (`SIOCOUTQ`).
    pub unacknowledged: u32,
    /// Of these, not yet sent once (`SIOCOUTQNSD`).
    pub unsent: u32,
}

/// Sizes of a socket's buffers, in bytes as the kernel accounts them: payload and its bookkeeping
/// together, which for an explicit setting is twice what was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "trace", serde(default))]
pub struct Buffers {
    /// The send buffer (`SO_SNDBUF`).
    pub send: u32,
    /// Memory that data to be sent takes up now (`SK_MEMINFO_WMEM_QUEUED`).
    pub send_used: u32,
    /// The receive buffer (`SO_RCVBUF`).
    pub receive: u32,
    /// Memory that unread data takes up now (`SK_MEMINFO_RMEM_ALLOC`).
    pub receive_used: u32,
    /// Whether someone set the send buffer, so that the kernel does not size it any more
    /// (`SO_BUF_LOCK`); `None` before Linux 5.14.
    pub send_locked: Option<bool>,
    /// The same for the receive buffer.
    pub receive_locked: Option<bool>,
}

/// The congestion control of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "trace", serde(default))]
pub struct Congestion {
    /// Its name, as in `net.ipv4.tcp_congestion_control`; empty where unknown.
    pub name: CongestionName,
    /// BBR's model of the path, when BBR is what runs (`TCP_CC_INFO`).
    pub bbr: Option<Bbr>,
}

/// What BBR believes of the path (`struct tcp_bbr_info`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "trace", serde(default))]
pub struct Bbr {
    /// Bandwidth of the bottleneck, in bytes a second.
    pub bandwidth: u64,
    /// The path's round trip without queues.
    #[cfg_attr(feature = "trace", serde(with = "crate::trace::micros"))]
    pub min_rtt: Duration,
    /// What it multiplies the bandwidth by to get the pacing rate, in 256ths: 739 while it starts
    /// up, 88 while it drains what that queued, later 320, 192 and 256.
    pub pacing_gain: u32,
    /// What it multiplies the bandwidth-delay product by to get the congestion window, in 256ths.
    pub window_gain: u32,
}

impl Bbr {
    /// Whether it is still looking for the bandwidth (the state STARTUP), and has not seen it level
    /// off yet.
    #[must_use]
    pub const fn starts_up(&self) -> bool {
        self.pacing_gain >= 512
    }
}

impl Congestion {
    /// Whether it follows a model of the path rather than losses: some version of BBR.
    #[must_use]
    pub fn is_model_based(&self) -> bool {
        self.name.as_str().starts_with("bbr")
    }
}

/// The name of a congestion control: at most 16 bytes (`TCP_CA_NAME_MAX`), kept without allocating.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct CongestionName([u8; 16]);

impl CongestionName {
    /// The name in the kernel's zero-ended form. What is too long or no ASCII becomes the unknown
    /// name.
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

    /// The name as text; empty when it is not known.
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
    /// Bytes sent and not acknowledged.
    #[must_use]
    pub const fn in_flight(&self) -> u64 {
        self.queues
            .unacknowledged
            .saturating_sub(self.queues.unsent) as u64
    }

    /// The congestion window, in bytes.
    #[must_use]
    pub const fn congestion_window(&self) -> u64 {
        self.info.congestion_window as u64 * self.info.send_mss as u64
    }
}

#[cfg(feature = "trace")]
impl serde::Serialize for CongestionName {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.as_str())
    }
}

#[cfg(feature = "trace")]
impl<'a> serde::Deserialize<'a> for CongestionName {
    fn deserialize<D: serde::Deserializer<'a>>(from: D) -> Result<Self, D::Error> {
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
