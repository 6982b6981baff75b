//! Actions of right-sizing on a socket, their causes, and advice for what a socket cannot do.

use std::fmt;
use std::time::Duration;

use quantities::{ByteCount, Rate, Time};

use crate::CongestionName;

/// One setting of a socket. Buffer sizes are as `SO_RCVBUF` and `SO_SNDBUF` take them: the kernel
/// doubles the requested size and includes its bookkeeping, so payload gets about what is
/// requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Gives the receive buffer back to the kernel's autotuning (`SO_BUF_LOCK`, Linux 5.15).
    UnlockReceive,
    /// Gives the send buffer back to the kernel's autotuning (`SO_BUF_LOCK`, Linux 5.15).
    UnlockSend,
    /// Sets the receive buffer, in bytes (`SO_RCVBUF`). This switches off autotuning of the receive
    /// window.
    ReceiveBuffer(u32),
    /// Sets the send buffer, in bytes (`SO_SNDBUF`). This switches off its autotuning.
    SendBuffer(u32),
    /// Limits the window that this side offers, in bytes (`TCP_WINDOW_CLAMP`). The kernel never
    /// takes back an offer.
    WindowClamp(u32),
    /// Limits the unsent bytes that the program may write (`TCP_NOTSENT_LOWAT`).
    UnsentLimit(u32),
    /// Paces the flow, in bytes per second (`SO_MAX_PACING_RATE`).
    PacingRate(u64),
    /// Selects the congestion control (`TCP_CONGESTION`).
    CongestionControl(CongestionName),
}

/// Cause of an action or advice, with the numbers that decided. Windows and buffers are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The program set a small buffer itself, and that buffer limits the flow.
    ProgramsOwnBuffer {
        /// Buffer size, as the kernel accounts it.
        buffer: u32,
    },
    /// The kernel's autotuning has reached its ceiling, which limits the flow.
    AutotuneCeiling {
        /// Ceiling: the third value of `tcp_rmem` or `tcp_wmem`.
        ceiling: u32,
    },
    /// Autotuning could grow the buffer that limits the flow, but does not.
    AutotuneStalled {
        /// Buffer size, as the kernel accounts it.
        buffer: u32,
    },
    /// Neither autotuning nor an explicit setting can go higher on this host.
    HostLimit {
        /// Largest buffer that this host allows, as the kernel accounts it.
        limit: u32,
    },
    /// The connection's window scaling allows no larger window, because the program set a small
    /// buffer before it connected or listened.
    WindowScale {
        /// Largest possible window.
        largest: u32,
    },
    /// The buffer allows far more than the path carries.
    Excess {
        /// Buffer size, as the kernel accounts it.
        buffer: u32,
        /// Bytes that arrive per round trip.
        per_round: u64,
    },
    /// The peer offers a small window, which only the peer can change.
    PeerWindow {
        /// Window that the peer offers.
        window: u64,
    },
    /// The window was clamped below what the buffer can offer.
    ClampBelowBuffer {
        /// Window that this side offers.
        window: u32,
    },
    /// More unsent data is queued than the path needs.
    UnsentBacklog {
        /// Unsent bytes.
        unsent: u64,
    },
    /// Losses without a standing queue hold the congestion window down.
    RandomLoss {
        /// Losses per million segments.
        per_million: u32,
        /// Rate that Reno can reach under these losses, in bit/s (Mathis et al. 1997: sqrt(3/2) MSS
        /// / (RTT sqrt p)).
        mathis_bps: u64,
    },
    /// The flow is in a slow start that only losses end.
    BlindSlowStart,
    /// Slow start is over, and the flow has recovered from its first loss.
    SlowStartOver {
        /// Current congestion window.
        window: u64,
    },
    /// The caller holds a reservation of this rate.
    Reserved {
        /// Rate in bytes per second.
        rate: u64,
    },
    /// A pacing rate that someone set limits the flow.
    PacedElsewhere {
        /// Pacing rate in bit/s.
        bps: u64,
    },
    /// The paper's rule: twice the estimated window of the sender.
    TwiceTheWindow {
        /// Bytes that arrived in one round trip.
        window: u64,
        /// Round-trip time, in microseconds.
        rtt_us: u32,
    },
    /// Slow start has ended: the bytes per round trip stopped growing.
    SlowStartEnded {
        /// Bytes that arrive per round trip.
        window: u64,
    },
    /// The path's bandwidth-delay product has changed.
    PathChanged {
        /// Bytes that arrive per round trip now.
        window: u64,
    },
    /// A shrink begun earlier is completed: everything that had been offered has arrived.
    OfferUsedUp {
        /// Window that this side offers.
        window: u32,
    },
    /// The kernel lifted a clamp that a shrink still needs.
    ClampLifted {
        /// Window that this side offers.
        window: u32,
    },
    /// The budget grants this connection its share.
    Budget {
        /// Share, in bytes as the kernel accounts them.
        share: u64,
    },
}

/// An action with its cause and outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Applied {
    /// Setting that was applied.
    pub action: Action,
    /// Cause of the action.
    pub cause: Cause,
    /// Reaction of the kernel.
    pub outcome: ActionOutcome,
}

/// Reaction of the kernel to an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActionOutcome {
    /// The setting was applied. For buffers, the resulting size as the kernel accounts it.
    Set(u32),
    /// The kernel refused with this error number. The flow continues, and the action is not
    /// repeated.
    Refused(i32),
}

/// Advice for limits that no socket option of this side can change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// Use this many parallel connections.
    Streams {
        /// Total number of connections.
        streams: u32,
        /// Reason why one connection is not enough.
        cause: Cause,
    },
    /// Relay through a depot, so that each hop has its own shorter round trip.
    Depot {
        /// Reason for the advice.
        cause: Cause,
    },
    /// The administrator of this host may raise a limit.
    Raise {
        /// Name of the sysctl.
        sysctl: &'static str,
        /// Recommended minimum, in bytes.
        bytes: u64,
        /// Reason for the advice.
        cause: Cause,
    },
    /// The pacing rate that limits the flow may be lifted by those who set it.
    LiftPacing {
        /// Reason for the advice.
        cause: Cause,
    },
}

impl Action {
    /// Returns true if the kernel's refusal of one action also counts as a refusal of the other:
    /// both are of the same kind. Congestion controls must also have the same name.
    pub(crate) fn shares_refusal_with(self, other: Self) -> bool {
        match (self, other) {
            (Self::CongestionControl(one), Self::CongestionControl(another)) => one == another,
            _ => std::mem::discriminant(&self) == std::mem::discriminant(&other),
        }
    }
}

/// Converts a size as the kernel's options take it.
fn size(bytes: u32) -> ByteCount {
    ByteCount(u64::from(bytes))
}

/// Converts a rate in bytes per second.
fn from_bytes_per_second(bytes_per_second: u64) -> Rate {
    Rate::nearest(bytes_per_second as f64 * 8.0)
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnlockReceive => f.write_str("receive buffer back to autotuning"),
            Self::UnlockSend => f.write_str("send buffer back to autotuning"),
            Self::ReceiveBuffer(bytes) => write!(f, "receive buffer {}", size(*bytes)),
            Self::SendBuffer(bytes) => write!(f, "send buffer {}", size(*bytes)),
            Self::WindowClamp(bytes) => write!(f, "window at most {}", size(*bytes)),
            Self::UnsentLimit(bytes) => write!(f, "at most {} unsent", size(*bytes)),
            Self::PacingRate(rate) => write!(f, "pace at {}", from_bytes_per_second(*rate)),
            Self::CongestionControl(name) => write!(f, "congestion control {}", name.as_str()),
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ProgramsOwnBuffer { buffer } => {
                write!(
                    f,
                    "the program's own buffer of {} limits the flow",
                    size(*buffer)
                )
            }
            Self::AutotuneCeiling { ceiling } => {
                write!(
                    f,
                    "autotuning has reached its ceiling of {}",
                    size(*ceiling)
                )
            }
            Self::AutotuneStalled { buffer } => write!(
                f,
                "autotuning does not grow a buffer of {} that limits the flow",
                size(*buffer)
            ),
            Self::HostLimit { limit } => {
                write!(f, "this host allows no buffer over {}", size(*limit))
            }
            Self::WindowScale { largest } => {
                write!(
                    f,
                    "the connection's window scaling allows {}",
                    size(*largest)
                )
            }
            Self::Excess { buffer, per_round } => write!(
                f,
                "a buffer of {} where {} arrive in a round trip",
                size(*buffer),
                ByteCount(*per_round)
            ),
            Self::PeerWindow { window } => {
                write!(f, "the peer offers a window of {}", ByteCount(*window))
            }
            Self::ClampBelowBuffer { window } => {
                write!(f, "the window was held to {}", size(*window))
            }
            Self::UnsentBacklog { unsent } => write!(f, "{} wait to be sent", ByteCount(*unsent)),
            Self::RandomLoss {
                per_million,
                mathis_bps,
            } => {
                write!(
                    f,
                    "{per_million} in a million segments are lost, which holds Reno to {}",
                    Rate::nearest(*mathis_bps as f64)
                )
            }
            Self::BlindSlowStart => f.write_str("only losses end the slow start of reno"),
            Self::SlowStartOver { window } => {
                write!(
                    f,
                    "slow start is over, at a congestion window of {}",
                    ByteCount(*window)
                )
            }
            Self::Reserved { rate } => write!(f, "{} are reserved", from_bytes_per_second(*rate)),
            Self::PacedElsewhere { bps } => {
                write!(
                    f,
                    "the flow is already paced at {}",
                    Rate::nearest(*bps as f64)
                )
            }
            Self::TwiceTheWindow { window, rtt_us } => {
                write!(
                    f,
                    "{} arrived in a round trip of {}",
                    ByteCount(*window),
                    Time(Duration::from_micros(u64::from(*rtt_us)))
                )
            }
            Self::SlowStartEnded { window } => {
                write!(f, "slow start ended at {} a round trip", ByteCount(*window))
            }
            Self::PathChanged { window } => {
                write!(
                    f,
                    "the path now carries {} a round trip",
                    ByteCount(*window)
                )
            }
            Self::OfferUsedUp { window } => {
                write!(f, "at most {} are offered", size(*window))
            }
            Self::ClampLifted { window } => write!(f, "{} are still offered", size(*window)),
            Self::Budget { share } => write!(f, "the budget grants {}", ByteCount(*share)),
        }
    }
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Streams { streams, cause } => write!(f, "use {streams} streams: {cause}"),
            Self::Depot { cause } => write!(f, "use a depot: {cause}"),
            Self::Raise {
                sysctl,
                bytes,
                cause,
            } => write!(f, "raise {sysctl} to {bytes}: {cause}"),
            Self::LiftPacing { cause } => write!(f, "lift the pacing rate: {cause}"),
        }
    }
}

impl fmt::Display for Applied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.outcome {
            ActionOutcome::Set(_) => write!(f, "{}: {}", self.action, self.cause),
            ActionOutcome::Refused(number) => write!(
                f,
                "{} refused (error {number}): {}",
                self.action, self.cause
            ),
        }
    }
}
