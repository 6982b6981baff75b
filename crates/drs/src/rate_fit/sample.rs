//! Input of the fitting of a rate.

use std::time::Duration;

use crate::TcpInfo;

/// One sample of a flow that is to be fitted. Counters run from any start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FitSample {
    /// Time since the flow's start, on a monotonic clock.
    pub at: Duration,
    /// Bytes that have arrived so far, in order or not.
    pub delivered: u64,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Mean deviation of single round-trip times from the smoothed one.
    pub rtt_deviation: Duration,
    /// Least round-trip time of the path.
    pub min_rtt: Duration,
    /// Payload of a segment, in bytes.
    pub mss: u64,
    /// Congestion window, in bytes.
    pub congestion_window: u64,
    /// Delivery rate as the kernel measures it, in bytes per second.
    pub in_flight: u64,
    /// Bytes that have not been sent yet.
    pub unsent: u64,
    /// Delivery rate as the kernel measures it, in bytes a second.
    pub delivery_rate: u64,
    /// If true, that rate was low because the program had nothing to send.
    pub app_limited: bool,
    /// Time with data to send so far; `None` if the kernel does not count it.
    pub busy: Option<Duration>,
    /// Part of the busy time that was stalled on the peer's window.
    pub receive_window_limited: Option<Duration>,
    /// Part of the busy time that was stalled on the send buffer.
    pub send_buffer_limited: Option<Duration>,
    /// Segments retransmitted so far, without those of the connection's setup.
    pub retransmits: u64,
}

impl FitSample {
    /// Returns the sample in the kernel's report, or `None` if the report is insufficient.
    /// `earlier_retransmits` are not counted.
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

    /// Returns true if no data waits to be sent, although the congestion window has room.
    pub(super) fn is_starved(&self) -> bool {
        self.unsent < self.mss.max(1) && self.in_flight + 2 * self.mss <= self.congestion_window
    }
}
