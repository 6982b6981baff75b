//! `Mode::Auto`: acts only if a verdict says that an option helps.
//!
//! Linux autotunes both buffers by itself. An explicit size switches that off, and may be smaller
//! than what autotuning would have reached. So a size is set only if autotuning has reached its
//! ceiling and the explicit limit is higher. A buffer that the program set is given back to
//! autotuning if the kernel supports that.

use std::time::Duration;

use quantities::{
    Probability, Rate,
    path::{CongestionControl, Hop},
};

use crate::{
    Action, Advice, Cause, CongestionName, Host, Limit, Sample, Side, Verdict, options::Locks,
    orders::Orders,
};

/// Largest window without window scaling (RFC 7323).
const LARGEST_UNSCALED: u64 = 65_535;
/// Consecutive verdicts before an action: one interval may be an accident.
const VERDICTS: u32 = 2;
/// Consecutive verdicts before a buffer is assumed not to be autotuned, on kernels without
/// `SO_BUF_LOCK`.
const VERDICTS_WITHOUT_LOCK_INFO: u32 = 10;
/// Consecutive verdicts before stalled autotuning is given a push.
const VERDICTS_STALLED: u32 = 8;
/// Consecutive verdicts before an action on losses or a clamp: a flow recovers from one loss within
/// a few round trips.
const VERDICTS_SLOW: u32 = 5;
/// Verdicts of a full path, with no verdict of a binding window between them, before memory is
/// taken back. There is no hurry, and the rate right after a change says little.
const VERDICTS_EXCESS: u32 = 20;
/// Maximum number of streams; if more are needed, a depot is better.
const MOST_STREAMS: u64 = 16;
/// Minimum allowance for unsent data, in bytes: what a program writes in one wake-up.
const LEAST_UNSENT: u64 = 256 << 10;
/// Minimum window that trimming leaves, in bytes.
const LEAST_TRIMMED: u32 = 256 << 10;
/// Number of allowances at which an unsent backlog is worth cutting.
const BACKLOG: u64 = 4;

/// Decides on actions. Pure: samples and verdicts in, orders out.
#[derive(Debug, Clone)]
pub(crate) struct Auto {
    side: Side,
    host: Host,
    /// Rate that the caller wants to reach, in bit/s.
    pub aim_bps: Option<u64>,
    /// Rate that the caller has reserved, in bytes per second.
    pub reserved: Option<u64>,
    /// If true, the congestion control stays as the host or the program chose it.
    pub keeps_congestion: bool,
    paced: Option<u64>,
    last: Option<Limit>,
    in_a_row: u32,
    /// If true, a limit on unsent data was set, or is left to others.
    pub unsent_limited: bool,
    /// Window to which an excessive buffer is being cut, and the window on offer at the last
    /// sample.
    trimming: Option<(u32, u32)>,
    trimmed: bool,
    /// Verdicts of a full path since the window was last the limit, and the most bytes that arrived
    /// in a round trip meanwhile.
    full: (u32, u64),
    /// If true, right-sizing set the explicit buffer size, not the program.
    raised: bool,
}

impl Auto {
    pub(crate) fn new(side: Side, host: Host) -> Self {
        Self {
            side,
            host,
            aim_bps: None,
            reserved: None,
            keeps_congestion: false,
            paced: None,
            last: None,
            in_a_row: 0,
            unsent_limited: false,
            trimming: None,
            trimmed: false,
            full: (0, 0),
            raised: false,
        }
    }

    /// Returns the orders that follow from a verdict.
    pub(crate) fn decide(&mut self, sample: &Sample, verdict: &Verdict) -> Orders {
        // `None` if the kernel does not report which buffers the program set.
        let locks = Locks::of(&sample.buffers);
        self.in_a_row = if self.last == Some(verdict.limit) {
            self.in_a_row.saturating_add(1)
        } else {
            1
        };
        self.last = Some(verdict.limit);
        self.full = match verdict.limit {
            Limit::ReceiveWindow => (0, 0),
            Limit::Path => {
                let per_round =
                    verdict.evidence.goodput_bps / 8.0 * verdict.evidence.rtt.as_secs_f64();
                (
                    self.full.0.saturating_add(1),
                    self.full.1.max(per_round as u64),
                )
            }
            _ => self.full,
        };
        if verdict.limit == Limit::ReceiveWindow
            && let Some((window, _)) = self.trimming.take()
        {
            // The path became wider than the window to which it was held.
            let cause = Cause::ClampBelowBuffer { window };
            return Orders::one(Action::WindowClamp(sample.buffers.receive), cause);
        }
        if self.side == Side::Sending
            && let Some(rate) = self.reserved.filter(|rate| self.paced != Some(*rate))
        {
            self.paced = Some(rate);
            return Orders::one(Action::PacingRate(rate), Cause::Reserved { rate });
        }
        if self.in_a_row < VERDICTS {
            return Orders::default();
        }
        match (self.side, verdict.limit) {
            (Side::Receiving, Limit::Path) => self.excess(sample, locks),
            (Side::Receiving, Limit::ReceiveWindow) => self.own_window(sample, verdict, locks),
            (Side::Sending, Limit::ReceiveWindow) => {
                let window = verdict.evidence.peer_window;
                self.relieve(verdict, Cause::PeerWindow { window })
            }
            (Side::Sending, Limit::SendBuffer) => self.send_buffer(sample, verdict, locks),
            (Side::Sending, Limit::Loss) => self.loss(sample, verdict),
            (Side::Sending, Limit::Pacing) if self.reserved.is_none() => {
                let bps = verdict
                    .evidence
                    .pacing_bps
                    .unwrap_or(verdict.evidence.goodput_bps) as u64;
                Orders::advise(Advice::LiftPacing {
                    cause: Cause::PacedElsewhere { bps },
                })
            }
            (Side::Sending, Limit::Path | Limit::SendingApplication) => self.backlog(verdict),
            _ => Orders::default(),
        }
    }

    /// Acts on a window of this side that limits the flow.
    fn own_window(&mut self, sample: &Sample, verdict: &Verdict, locks: Option<Locks>) -> Orders {
        let buffer = sample.buffers.receive;
        let window = sample.info.receive_window;
        if !self.host.scales_windows {
            return self.relieve(
                verdict,
                Cause::HostLimit {
                    limit: LARGEST_UNSCALED as u32,
                },
            );
        }
        let largest = sample
            .info
            .receive_window_shift
            .map(|shift| 65_535u32 << shift.min(14));
        if let (Some(largest), Some(window)) = (largest, window)
            && window >= largest - largest / 16
        {
            return self.relieve(verdict, Cause::WindowScale { largest });
        }
        // A clamp by the program, or one left from before the buffer grew.
        if let Some(window) = window
            && u64::from(window) < u64::from(buffer) / 4
            && sample.buffers.receive_used < buffer / 4
            && self.in_a_row >= VERDICTS_SLOW
        {
            return Orders::one(
                Action::WindowClamp(buffer),
                Cause::ClampBelowBuffer { window },
            );
        }
        let autotune = if self.host.autotunes {
            self.host.receive_autotune
        } else {
            0
        };
        match self.room(
            buffer,
            autotune,
            self.host.receive_explicit,
            locks.map(|locks| locks.receive),
        ) {
            Room::Unlock(nudge, cause) => nudge
                .map_or_else(Orders::default, |bytes| {
                    Orders::one(Action::ReceiveBuffer(bytes), cause)
                })
                .and(Action::UnlockReceive, cause)
                .and(
                    Action::WindowClamp(nudge.unwrap_or(buffer).saturating_mul(2)),
                    cause,
                ),
            Room::Set(bytes, cause) => {
                self.raised = true;
                Orders::one(Action::ReceiveBuffer(bytes), cause)
                    // On some kernels the clamp does not follow an explicit buffer.
                    .and(Action::WindowClamp(bytes.saturating_mul(2)), cause)
            }
            Room::Wait => Orders::default(),
            Room::None(cause) => self.raise("net.ipv4.tcp_rmem", buffer, verdict, cause),
        }
    }

    /// Cuts a buffer for which autotuning took far more than the path carries, as it does when
    /// losses are repaired. The excess is offered to the sender and invites it to overflow the
    /// path's queue. First the window is clamped to twice the bytes per round trip. When no more
    /// than that is on offer, the buffer follows, and autotuning continues from there.
    fn excess(&mut self, sample: &Sample, locks: Option<Locks>) -> Orders {
        let buffer = sample.buffers.receive;
        let unlocked = locks.is_some_and(|locks| !locks.receive);
        let Some(window) = sample.info.receive_window.filter(|_| unlocked) else {
            return Orders::default();
        };
        let (times, per_round) = self.full;
        let cause = Cause::Excess { buffer, per_round };
        let on_offer = window.saturating_add(sample.queues.unread);
        if let Some((target, before)) = self.trimming {
            if on_offer > target.saturating_add(target / 8) {
                self.trimming = Some((target, on_offer));
                return if on_offer < before {
                    Orders::default()
                } else {
                    // The kernel lifts a clamp when it learns how much bookkeeping a segment needs.
                    Orders::one(Action::WindowClamp(target), cause)
                };
            }
            (self.trimming, self.trimmed) = (None, true);
            return Orders::one(Action::ReceiveBuffer(target), cause)
                .and(Action::UnlockReceive, cause);
        }
        let target = u32::try_from(per_round.saturating_mul(2))
            .unwrap_or(u32::MAX)
            .max(LEAST_TRIMMED);
        // The kernel doubles the target; an excess of less than four times is left alone.
        if times < VERDICTS_EXCESS || buffer / 8 < target {
            return Orders::default();
        }
        self.trimming = Some((target, on_offer));
        Orders::one(Action::WindowClamp(target), cause)
    }

    fn send_buffer(&mut self, sample: &Sample, verdict: &Verdict, locks: Option<Locks>) -> Orders {
        let buffer = sample.buffers.send;
        match self.room(
            buffer,
            self.host.send_autotune,
            self.host.send_explicit,
            locks.map(|locks| locks.send),
        ) {
            Room::Unlock(nudge, cause) => nudge
                .map_or_else(Orders::default, |bytes| {
                    Orders::one(Action::SendBuffer(bytes), cause)
                })
                .and(Action::UnlockSend, cause),
            Room::Set(bytes, cause) => {
                self.raised = true;
                Orders::one(Action::SendBuffer(bytes), cause)
            }
            Room::Wait => Orders::default(),
            Room::None(cause) => self.raise("net.ipv4.tcp_wmem", buffer, verdict, cause),
        }
    }

    /// Returns a way to enlarge a buffer. All sizes are as the kernel accounts them.
    fn room(&self, buffer: u32, autotune: u32, explicit: u32, locked: Option<bool>) -> Room {
        let grown = buffer.saturating_mul(2).min(explicit);
        // Autotuning grows only if more than it expects arrives in a round trip. While a small
        // buffer was locked, it may have come to expect more than that buffer lets in. One manual
        // step sets it going.
        let nudge = (grown > buffer).then_some(grown.min(autotune) / 2);
        match locked {
            Some(true) if autotune > buffer => {
                Room::Unlock(nudge, Cause::ProgramsOwnBuffer { buffer })
            }
            Some(true) if explicit > buffer && self.raised => {
                Room::Set(grown / 2, Cause::AutotuneCeiling { ceiling: autotune })
            }
            Some(true) if explicit > buffer => {
                Room::Set(grown / 2, Cause::ProgramsOwnBuffer { buffer })
            }
            // Autotuning has not finished: its next step comes by itself, or else needs a push. Its
            // last step may end a little below the ceiling.
            Some(false) if buffer < autotune - autotune / 8 => match nudge {
                // A trimmed buffer does not grow back by itself: autotuning still expects its
                // former size.
                Some(_) if self.trimmed || self.in_a_row >= VERDICTS_STALLED => {
                    Room::Unlock(nudge, Cause::AutotuneStalled { buffer })
                }
                _ => Room::Wait,
            },
            None if buffer < autotune - autotune / 8
                && self.in_a_row < VERDICTS_WITHOUT_LOCK_INFO =>
            {
                Room::Wait
            }
            // A gain of an eighth does not justify switching autotuning off.
            Some(false) | None if explicit > buffer.saturating_add(buffer / 8) => Room::Set(
                grown / 2,
                Cause::AutotuneCeiling {
                    ceiling: autotune.min(buffer),
                },
            ),
            _ => Room::None(Cause::HostLimit { limit: buffer }),
        }
    }

    /// Advises to raise a limit of the host, and in turn to use streams meanwhile.
    fn raise(&self, sysctl: &'static str, buffer: u32, verdict: &Verdict, cause: Cause) -> Orders {
        if self.in_a_row.is_multiple_of(2) {
            let wanted = u64::from(buffer)
                .saturating_mul(self.factor(verdict))
                .min(1 << 30);
            return Orders::advise(Advice::Raise {
                sysctl,
                bytes: wanted,
                cause,
            });
        }
        self.relieve(verdict, cause)
    }

    /// Returns the factor by which the rate should grow: 2 without a goal of the caller.
    fn factor(&self, verdict: &Verdict) -> u64 {
        let now = verdict.evidence.goodput_bps.max(1.0) as u64;
        self.aim_bps
            .map_or(2, |aim| aim.div_ceil(now.max(1)).max(2))
    }

    fn relieve(&self, verdict: &Verdict, cause: Cause) -> Orders {
        Orders::advise(match self.factor(verdict) {
            many if many > MOST_STREAMS => Advice::Depot { cause },
            few => Advice::Streams {
                streams: few as u32,
                cause,
            },
        })
    }

    fn loss(&self, sample: &Sample, verdict: &Verdict) -> Orders {
        let mss = u64::from(sample.info.send_mss).max(1);
        let sent = sample.info.bytes_sent.unwrap_or(0) / mss;
        let lost = u64::from(sample.info.retransmits);
        if self.in_a_row < VERDICTS_SLOW || sent == 0 || lost == 0 {
            return Orders::default();
        }
        let share = (lost as f64 / sent as f64).min(1.0);
        let rtt = verdict.evidence.min_rtt.max(verdict.evidence.rtt);
        let reno = Hop {
            loss: Probability::nearest(share),
            mss: sample.info.send_mss,
            control: CongestionControl::Reno,
            ..Hop::new(rtt.max(Duration::from_micros(1)), Rate::ZERO)
        };
        let cause = Cause::RandomLoss {
            per_million: (share * 1e6) as u32,
            mathis_bps: reno.carried_under_loss() as u64,
        };
        let name = sample.congestion.name.as_str();
        if !self.keeps_congestion
            && self.host.may_use_bbr
            && matches!(name, "reno" | "cubic" | "bic")
        {
            let bbr = CongestionName::from_kernel(b"bbr");
            return Orders::one(Action::CongestionControl(bbr), cause);
        }
        Orders::advise(Advice::Depot { cause })
    }

    /// Cuts unsent data beyond what a wake-up of the program needs: it costs memory, and delays
    /// whatever is written next.
    fn backlog(&mut self, verdict: &Verdict) -> Orders {
        let evidence = &verdict.evidence;
        let allowance = unsent_allowance(evidence.in_flight);
        if self.unsent_limited || evidence.unsent < u64::from(allowance).saturating_mul(BACKLOG) {
            return Orders::default();
        }
        self.unsent_limited = true;
        let unsent = evidence.unsent;
        Orders::one(
            Action::UnsentLimit(allowance),
            Cause::UnsentBacklog { unsent },
        )
    }
}

/// Returns the allowance for unsent bytes: half of what is in flight, so that a program that is
/// late by half a round trip does not starve the flow.
pub(crate) fn unsent_allowance(in_flight: u64) -> u32 {
    u32::try_from((in_flight / 2).max(LEAST_UNSENT)).unwrap_or(u32::MAX)
}

/// A way to enlarge a buffer; sizes as `SO_RCVBUF` takes them.
enum Room {
    /// Give it to autotuning, after one manual step if that is possible.
    Unlock(Option<u32>, Cause),
    /// Set an explicit size.
    Set(u32, Cause),
    /// Wait for autotuning.
    Wait,
    /// The buffer cannot grow on this host.
    None(Cause),
}

#[cfg(test)]
mod tests;
