//! What limits a flow, and the numbers that say so.

use std::{fmt, time::Duration};

/// What holds a flow to its present rate. Exactly one of these at a time; [`Evidence`] says why it
/// was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Limit {
    /// The sending program: it gives the socket less than the flow could carry.
    SendingApplication,
    /// The receiving program: it reads slower than data arrives, so the window that it offers
    /// closes.
    ReceivingApplication,
    /// The send buffer: it is full of data that waits for its acknowledgement, and smaller than the
    /// path's bandwidth-delay product.
    SendBuffer,
    /// The receive window, at its ceiling: the receiving program reads all there is.
    ReceiveWindow,
    /// A pacing rate that someone set (`SO_MAX_PACING_RATE`, or a rate-limiting queue discipline
    /// that TCP obeys).
    Pacing,
    /// The congestion window, which still grows and has met no limit yet.
    Growing,
    /// The congestion window, cut by losses that no standing queue explains.
    Loss,
    /// The path: its bottleneck is full, shown by a standing queue or a delivery rate that more
    /// data in flight does not raise.
    Path,
    /// Something at the sending end. Only the receiving side says so, which can't tell the sending
    /// program, its send buffer, its pacing and a congestion window that still grows apart.
    Sender,
}

impl Limit {
    /// All of them, in the order in which tables show them.
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

    /// A short stable word, for JSON, metrics and tables.
    #[must_use]
    pub const fn word(self) -> &'static str {
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
        f.write_str(self.word())
    }
}

/// The verdict over one interval of a flow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Verdict {
    /// What limits the flow.
    pub limit: Limit,
    /// The numbers that say so.
    pub evidence: Evidence,
}

/// What was measured over one interval, seen from the side that sends unless a field says
/// otherwise. Shares are parts of the interval, 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Evidence {
    /// Length of the interval.
    pub interval: Duration,
    /// Payload that got through, in bit/s: acknowledged on the sending side, received in order on
    /// the receiving side.
    pub goodput_bps: f64,
    /// Smoothed round-trip time at the interval's end.
    pub rtt: Duration,
    /// The least round-trip time known of the path.
    pub min_rtt: Duration,
    /// The congestion window, in bytes.
    pub congestion_window: u64,
    /// Bytes in flight: sent and not acknowledged.
    pub in_flight: u64,
    /// The window that the peer offers, in bytes.
    pub peer_window: u64,
    /// The send buffer, in bytes as the kernel accounts them.
    pub send_buffer: u64,
    /// The receive buffer, likewise.
    pub receive_buffer: u64,
    /// Bytes written by the program that were not yet sent once.
    pub unsent: u64,
    /// Bytes received that the program has not read (receiving side).
    pub unread: u64,
    /// Pacing rate, in bit/s; `None` where nothing paces.
    pub pacing_bps: Option<f64>,
    /// The rate that the flow is held to because its path carries no more, in bit/s; `None` where
    /// none was fitted.
    pub fitted_bps: Option<f64>,
    /// The kernel's own estimate of the delivery rate, in bit/s.
    pub delivery_bps: Option<f64>,
    /// Segments sent again in the interval.
    pub retransmits: u32,
    /// Share of the interval with data to send.
    pub busy: f64,
    /// Share stalled on the peer's window.
    pub receive_window_limited: f64,
    /// Share stalled on the send buffer.
    pub send_buffer_limited: f64,
}
