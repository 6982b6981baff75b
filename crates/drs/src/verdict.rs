//! Verdicts on the limit of a flow, with their evidence.

use std::{fmt, str::FromStr, time::Duration};

/// Limit of a flow's rate. Exactly one applies at a time; [`Evidence`] shows why it was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Limit {
    /// The sending program: it gives the socket less than the flow could carry.
    SendingApplication,
    /// The receiving program: it reads more slowly than data arrives, so the window that it offers
    /// closes.
    ReceivingApplication,
    /// The send buffer: it is full of unacknowledged data, and smaller than the path's
    /// bandwidth-delay product.
    SendBuffer,
    /// The receive window, at its ceiling: the receiving program reads everything that arrives.
    ReceiveWindow,
    /// A pacing rate that someone set (`SO_MAX_PACING_RATE`, or a rate-limiting queue discipline
    /// that TCP obeys).
    Pacing,
    /// The congestion window, which still grows and has not met a limit yet.
    Growing,
    /// The congestion window, cut by losses that no standing queue explains.
    Loss,
    /// The path: its bottleneck is full, shown by a standing queue, or by a delivery rate that does
    /// not rise with more data in flight.
    Path,
    /// Something at the sender. Only the receiver reports this. It cannot distinguish the sending
    /// program, its send buffer, its pacing and a congestion window that still grows.
    Sender,
}

impl Limit {
    /// All limits, in the order of tables.
    pub const ALL: [Self; 9] = [
        Self::SendingApplication,
        Self::ReceivingApplication,
        Self::SendBuffer,
        Self::ReceiveWindow,
        Self::Pacing,
        Self::Growing,
        Self::Loss,
        Self::Path,
        Self::Sender,
    ];

    /// Returns its short stable name, for JSON, metrics and tables.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SendingApplication => "sending-application",
            Self::ReceivingApplication => "receiving-application",
            Self::SendBuffer => "send-buffer",
            Self::ReceiveWindow => "receive-window",
            Self::Pacing => "pacing",
            Self::Growing => "growing",
            Self::Loss => "loss",
            Self::Path => "path",
            Self::Sender => "sender",
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Limit {
    type Err = UnknownLimit;

    fn from_str(text: &str) -> Result<Self, UnknownLimit> {
        Self::ALL
            .into_iter()
            .find(|limit| limit.as_str() == text)
            .ok_or(UnknownLimit)
    }
}

/// A word that is not the name of a [`Limit`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("unknown limit: write one that drs knows, such as path or loss")]
pub struct UnknownLimit;

/// The verdict over one interval of a flow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Verdict {
    /// Limit of the flow.
    pub limit: Limit,
    /// Numbers that support the verdict.
    pub evidence: Evidence,
}

/// Measurements over one interval, seen from the sender unless a field says otherwise. Shares are
/// parts of the interval, 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Evidence {
    /// Length of the interval.
    pub interval: Duration,
    /// Goodput in bit/s: payload acknowledged at the sender, or received in order at the receiver.
    pub goodput_bps: f64,
    /// Smoothed round-trip time at the interval's end.
    pub rtt: Duration,
    /// The least round-trip time known of the path.
    pub min_rtt: Duration,
    /// Congestion window, in bytes.
    pub congestion_window: u64,
    /// Bytes in flight: sent and not acknowledged.
    pub in_flight: u64,
    /// Window that the peer offers, in bytes.
    pub peer_window: u64,
    /// Send buffer, in bytes as the kernel accounts them.
    pub send_buffer: u64,
    /// Receive buffer, in bytes as the kernel accounts them.
    pub receive_buffer: u64,
    /// Bytes written by the program and not sent yet.
    pub unsent: u64,
    /// Bytes received that the program has not read (receiver only).
    pub unread: u64,
    /// Pacing rate, in bit/s; `None` if nothing paces.
    pub pacing_bps: Option<f64>,
    /// Rate to which the flow is limited because its path carries no more, in bit/s; `None` if no
    /// rate was fitted.
    pub fitted_bps: Option<f64>,
    /// The kernel's estimate of the delivery rate, in bit/s.
    pub delivery_bps: Option<f64>,
    /// Segments retransmitted in the interval.
    pub retransmits: u32,
    /// Share of the interval with data to send.
    pub busy: f64,
    /// Share of the interval stalled on the peer's window.
    pub receive_window_limited: f64,
    /// Share of the interval stalled on the send buffer.
    pub send_buffer_limited: f64,
}
