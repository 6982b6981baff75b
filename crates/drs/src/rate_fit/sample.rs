//! What the fitting of a rate needs to know of a flow.

use std::time::Duration;

use crate::TcpInfo;

/// One look at a flow that is to be fitted. Counters run from any start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FitSample {
    /// When, from the flow's start, on a clock that never goes back.
    pub at: Duration,
    /// Bytes that have arrived so far, in order or not.
    pub delivered: u64,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Mean deviation of single round-trip times from it.
    pub rtt_deviation: Duration,
    /// The least round-trip time of the path.
    pub min_rtt: Duration,
    /// Bytes in a segment.
    pub mss: u64,
    /// Congestion window, in bytes.
    pub congestion_window: u64,
    /// Bytes in flight.
    pub in_flight: u64,
    /// Bytes that wait to be sent for the first time.
    pub unsent: u64,
    /// Delivery rate as the kernel measures it, in bytes a second.
    pub delivery_rate: u64,
    /// Whether that rate was held down by the program having nothing to send.
    pub app_limited: bool,
    /// Time with data to send, so far; `None` where the kernel does not count it.
    pub busy: Option<Duration>,
    /// Of that, time stalled on the peer's window.
    pub receive_window_limited: Option<Duration>,
    /// Of that, time stalled on the send buffer.
    pub send_buffer_limited: Option<Duration>,
    /// Segments retransmitted so far, those of the connection's set-up left out.
    pub retransmits: u64,
}

impl FitSample {
    /// The sample in what the kernel says of a socket; `None` where it does not say enough.
    /// `earlier_retransmits` are left out.
    #[must_use]
    pub fn from_tcp_info(at: Duration, info: &TcpInfo, earlier_retransmits: u32) -> Option<Self> {
        let mss = u64::from(info.send_mss);
        Some(Self {
            at,
            delivered: info.bytes_acked? + u64::from(info.sacked) * mss,
            rtt: info.rtt,
            rtt_deviation: info.rttvar,
            min_rtt: info.min_rtt?,
            mss,
            congestion_window: u64::from(info.congestion_window) * mss,
            in_flight: u64::from(info.unacked) * mss,
            unsent: info.bytes_not_sent?.into(),
            delivery_rate: info.delivery_rate?,
            app_limited: info.delivery_rate_app_limited?,
            busy: info.busy,
            receive_window_limited: info.receive_window_limited,
            send_buffer_limited: info.send_buffer_limited,
            retransmits: info.retransmits.saturating_sub(earlier_retransmits).into(),
        })
    }

    /// Nothing waits to be sent, and the congestion window has room for it.
    pub(super) fn is_starved(&self) -> bool {
        self.unsent < self.mss.max(1) && self.in_flight + 2 * self.mss <= self.congestion_window
    }
}
