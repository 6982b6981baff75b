//! What right-sizing does to a socket, and why; and what it can only advise.

use std::fmt;
use std::time::Duration;

use quantities::{ByteCount, Rate, Time};

use crate::CongestionName;

/// One thing to set on a socket. Sizes of buffers are as `SO_RCVBUF` and `SO_SNDBUF` take them: the
/// kernel doubles what is asked and counts its bookkeeping in, so payload gets about what is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Gives the receive buffer back to the kernel's autotuning (`SO_BUF_LOCK`, Linux 5.15).
    UnlockReceive,
    /// Gives the send buffer back likewise.
    UnlockSend,
    /// Sets the receive buffer, in bytes (`SO_RCVBUF`). This switches autotuning of the receive
    /// window off.
    ReceiveBuffer(u32),
    /// Sets the send buffer, in bytes (`SO_SNDBUF`). This switches autotuning of it off.
    SendBuffer(u32),
    /// Limits the window that this side offers, in bytes (`TCP_WINDOW_CLAMP`). The kernel never
    /// takes back what it has offered.
    WindowClamp(u32),
    /// Limits what the program may write ahead of what has been sent, in bytes
    /// (`TCP_NOTSENT_LOWAT`).
    UnsentLimit(u32),
    /// Paces the flow, in bytes a second (`SO_MAX_PACING_RATE`).
    PacingRate(u64),
    /// Chooses the congestion control (`TCP_CONGESTION`).
    CongestionControl(CongestionName),
}

/// Why something was set or advised, with the numbers that decided. Windows and buffers in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The program set a small buffer itself, and that buffer limits the flow.
    ProgramsOwnBuffer {
        /// The buffer, as the kernel accounts it.
        buffer: u32,
    },
    /// The kernel's autotuning stands at its ceiling, and that limits the flow.
    AutotuneCeiling {
        /// The ceiling: the third value of `tcp_rmem` or `tcp_wmem`.
        ceiling: u32,
    },
    /// Autotuning could grow the buffer that limits the flow, and does not.
    AutotuneStalled {
        /// The buffer, as the kernel accounts it.
        buffer: u32,
    },
    /// Neither autotuning nor an explicit setting can go higher on this host.
    HostLimit {
        /// The largest buffer that this host gives, as the kernel accounts it.
        limit: u32,
    },
    /// The connection was made with window scaling that allows no larger window: the program set a
    /// small buffer before it connected or listened.
    WindowScale {
        /// The largest window.
        largest: u32,
    },
    /// The buffer allows far more than the path carries.
    Excess {
        /// The buffer, as the kernel accounts it.
        buffer: u32,
        /// Bytes that come in a round trip.
        per_round: u64,
    },
    /// The peer offers a small window, which only the peer can change.
    PeerWindow {
        /// The window it offers.
        window: u64,
    },
    /// The window was clamped below what the buffer can offer.
    ClampBelowBuffer {
        /// The window offered.
        window: u32,
    },
    /// More data waits to be sent for the first time than the path needs.
    UnsentBacklog {
        /// Bytes that wait.
        unsent: u64,
    },
    /// Losses without a standing queue hold the congestion window down.
    RandomLoss {
        /// Losses in a million segments.
        per_million: u32,
        /// What Reno can carry there, in bit/s (Mathis et al. 1997: sqrt(3/2) MSS / (RTT sqrt p)).
        mathis_bps: u64,
    },
    /// The flow is in a slow start that only losses end.
    BlindSlowStart,
    /// Slow start is over, and its first loss made good.
    SlowStartOver {
        /// The congestion window now.
        window: u64,
    },
    /// The caller holds a reservation of this rate.
    Reserved {
        /// Bytes a second.
        rate: u64,
    },
    /// Someone set a pacing rate, and it limits the flow.
    PacedElsewhere {
        /// Bit/s.
        bps: u64,
    },
    /// The paper's rule: twice the estimated window of the sender.
    TwiceTheWindow {
        /// Bytes that came in one round trip.
        window: u64,
        /// The round trip, in microseconds.
        rtt_us: u32,
    },
    /// Slow start has ended: what came in a round trip stopped growing.
    SlowStartEnded {
        /// Bytes that come in one round trip.
        window: u64,
    },
    /// The path's bandwidth-delay product has changed.
    PathChanged {
        /// Bytes that come in one round trip now.
        window: u64,
    },
    /// A shrink begun earlier is completed: what had been offered has arrived.
    OfferUsedUp {
        /// The window offered.
        window: u32,
    },
    /// The kernel lifted a clamp that a shrink still needs.
    ClampLifted {
        /// The window offered.
        window: u32,
    },
    /// The budget gives this connection so much.
    Budget {
        /// Its share, in bytes as the kernel accounts them.
        share: u64,
    },
}

/// An action, why it was taken, and what came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Applied {
    /// What was set.
    pub action: Action,
    /// Why.
    pub cause: Cause,
    /// Whether the kernel took it.
    pub outcome: Outcome,
}

/// What the kernel did with an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was set; for buffers, what the kernel made of it, as it accounts them.
    Set(u32),
    /// The kernel refused, with this error number. The flow goes on and this action is not tried
    /// again.
    Refused(i32),
}

/// What no socket option of this side can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// Use this many connections side by side.
    Streams {
        /// How many in all.
        streams: u32,
        /// Why one is not enough.
        cause: Cause,
    },
    /// Relay through a depot, so that each hop has its own shorter round trip.
    Depot {
        /// Why.
        cause: Cause,
    },
    /// Whoever administers this host may raise a limit.
    Raise {
        /// The sysctl.
        sysctl: &'static str,
        /// What it should at least be, in bytes.
        bytes: u64,
        /// Why.
        cause: Cause,
    },
    /// Whoever set a pacing rate may lift it.
    LiftPacing {
        /// Why.
        cause: Cause,
    },
}

impl Action {
    /// Whether a kernel that refuses one refuses the other: they set the same option, or choose the
    /// same congestion control.
    pub(crate) fn is_like(self, other: Self) -> bool {
        match (self, other) {
            (Self::CongestionControl(one), Self::CongestionControl(another)) => one == another,
            _ => std::mem::discriminant(&self) == std::mem::discriminant(&other),
        }
    }
}

/// A size as the kernel's options take it.
fn size(bytes: u32) -> ByteCount {
    ByteCount(u64::from(bytes))
}

/// A rate that is given in bytes a second.
fn rate_of(bytes_per_second: u64) -> Rate {
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
            Self::PacingRate(rate) => write!(f, "pace at {}", rate_of(*rate)),
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
                write!(f, "autotuning stands at its ceiling of {}", size(*ceiling))
            }
            Self::AutotuneStalled { buffer } => write!(
                f,
                "autotuning does not grow a buffer of {} that limits the flow",
                size(*buffer)
            ),
            Self::HostLimit { limit } => {
                write!(f, "this host gives no buffer over {}", size(*limit))
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
                "a buffer of {} where {} come in a round trip",
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
            Self::Reserved { rate } => write!(f, "{} are reserved", rate_of(*rate)),
            Self::PacedElsewhere { bps } => {
                write!(
                    f,
                    "someone paces the flow at {}",
                    Rate::nearest(*bps as f64)
                )
            }
            Self::TwiceTheWindow { window, rtt_us } => {
                write!(
                    f,
                    "{} came in a round trip of {}",
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
                write!(f, "no more than {} are on offer", size(*window))
            }
            Self::ClampLifted { window } => write!(f, "still {} are on offer", size(*window)),
            Self::Budget { share } => write!(f, "the budget gives {}", ByteCount(*share)),
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
            Outcome::Set(_) => write!(f, "{}: {}", self.action, self.cause),
            Outcome::Refused(number) => write!(
                f,
                "{} refused (error {number}): {}",
                self.action, self.cause
            ),
        }
    }
}
