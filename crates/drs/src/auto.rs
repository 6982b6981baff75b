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
    Action, Advice, Cause, CongestionName, HostLimits, Limit, Sample, Side, Verdict,
    options::BufferLocks, orders::Orders,
};

/// Largest window without window scaling (RFC 7323).
const MAX_UNSCALED_WINDOW: u64 = 65_535;
/// Consecutive verdicts before an action: one interval may be an accident.
const MIN_VERDICTS: u32 = 2;
/// Consecutive verdicts before a buffer is assumed not to be autotuned, on kernels without
/// `SO_BUF_LOCK`.
const MIN_VERDICTS_WITHOUT_LOCK_INFO: u32 = 10;
/// Consecutive verdicts before stalled autotuning is given a push.
const MIN_VERDICTS_STALLED: u32 = 8;
/// Consecutive verdicts before an action on losses or a clamp: a flow recovers from one loss within
/// a few round trips.
const MIN_VERDICTS_SLOW: u32 = 5;
/// Verdicts of a full path, with no verdict of a binding window between them, before memory is
/// taken back. There is no hurry, and the rate right after a change says little.
const MIN_VERDICTS_EXCESS: u32 = 20;
/// Maximum number of streams; if more are needed, a depot is better.
const MAX_STREAMS: u64 = 16;
/// Minimum allowance for unsent data, in bytes: what a program writes in one wake-up.
const MIN_UNSENT_BYTES: u64 = 256 << 10;
/// Minimum window that trimming leaves, in bytes.
const MIN_TRIMMED_WINDOW_BYTES: u32 = 256 << 10;
/// Number of allowances at which an unsent backlog is worth cutting.
const MIN_BACKLOG_ALLOWANCES: u64 = 4;

/// Decides on actions. Pure: samples and verdicts in, orders out.
#[derive(Debug, Clone)]
pub(crate) struct AutoMode {
    side: Side,
    host: HostLimits,
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

impl AutoMode {
    pub(crate) fn new(side: Side, host: HostLimits) -> Self {
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
        let locks = BufferLocks::from_buffers(&sample.buffers);
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
        if self.in_a_row < MIN_VERDICTS {
            return Orders::default();
        }
        match (self.side, verdict.limit) {
            (Side::Receiving, Limit::Path) => self.trim_excess(sample, locks),
            (Side::Receiving, Limit::ReceiveWindow) => self.grow_own_window(sample, verdict, locks),
            (Side::Sending, Limit::ReceiveWindow) => {
                let window = verdict.evidence.peer_window;
                self.advise_more_capacity(verdict, Cause::PeerWindow { window })
            }
            (Side::Sending, Limit::SendBuffer) => self.grow_send_buffer(sample, verdict, locks),
            (Side::Sending, Limit::Loss) => self.act_on_loss(sample, verdict),
            (Side::Sending, Limit::Pacing) if self.reserved.is_none() => {
                let bps = verdict
                    .evidence
                    .pacing_bps
                    .unwrap_or(verdict.evidence.goodput_bps) as u64;
                Orders::advise(Advice::LiftPacing {
                    cause: Cause::PacedElsewhere { bps },
                })
            }
            (Side::Sending, Limit::Path | Limit::SendingApplication) => self.cut_backlog(verdict),
            _ => Orders::default(),
        }
    }

    /// Acts on a window of this side that limits the flow.
    fn grow_own_window(
        &mut self,
        sample: &Sample,
        verdict: &Verdict,
        locks: Option<BufferLocks>,
    ) -> Orders {
        let buffer = sample.buffers.receive;
        let window = sample.info.receive_window;
        if !self.host.scales_windows {
            return self.advise_more_capacity(
                verdict,
                Cause::HostLimit {
                    limit: MAX_UNSCALED_WINDOW as u32,
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
            return self.advise_more_capacity(verdict, Cause::WindowScale { largest });
        }
        // A clamp by the program, or one left from before the buffer grew.
        if let Some(window) = window
            && u64::from(window) < u64::from(buffer) / 4
            && sample.buffers.receive_used < buffer / 4
            && self.in_a_row >= MIN_VERDICTS_SLOW
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
        match self.find_growth(
            buffer,
            autotune,
            self.host.receive_explicit,
            locks.map(|locks| locks.receive),
        ) {
            BufferGrowth::Unlock(nudge, cause) => nudge
                .map_or_else(Orders::default, |bytes| {
                    Orders::one(Action::ReceiveBuffer(bytes), cause)
                })
                .with(Action::UnlockReceive, cause)
                .with(
                    Action::WindowClamp(nudge.unwrap_or(buffer).saturating_mul(2)),
                    cause,
                ),
            BufferGrowth::Set(bytes, cause) => {
                self.raised = true;
                Orders::one(Action::ReceiveBuffer(bytes), cause)
                    // On some kernels the clamp does not follow an explicit buffer.
                    .with(Action::WindowClamp(bytes.saturating_mul(2)), cause)
            }
            BufferGrowth::Wait => Orders::default(),
            BufferGrowth::None(cause) => {
                self.advise_raise("net.ipv4.tcp_rmem", buffer, verdict, cause)
            }
        }
    }

    /// Cuts a buffer for which autotuning took far more than the path carries, as it does when
    /// losses are repaired. The excess is offered to the sender and invites it to overflow the
    /// path's queue. First the window is clamped to twice the bytes per round trip. When no more
    /// than that is on offer, the buffer follows, and autotuning continues from there.
    fn trim_excess(&mut self, sample: &Sample, locks: Option<BufferLocks>) -> Orders {
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
                .with(Action::UnlockReceive, cause);
        }
        let target = u32::try_from(per_round.saturating_mul(2))
            .unwrap_or(u32::MAX)
            .max(MIN_TRIMMED_WINDOW_BYTES);
        // The kernel doubles the target; an excess of less than four times is left alone.
        if times < MIN_VERDICTS_EXCESS || buffer / 8 < target {
            return Orders::default();
        }
        self.trimming = Some((target, on_offer));
        Orders::one(Action::WindowClamp(target), cause)
    }

    fn grow_send_buffer(
        &mut self,
        sample: &Sample,
        verdict: &Verdict,
        locks: Option<BufferLocks>,
    ) -> Orders {
        let buffer = sample.buffers.send;
        match self.find_growth(
            buffer,
            self.host.send_autotune,
            self.host.send_explicit,
            locks.map(|locks| locks.send),
        ) {
            BufferGrowth::Unlock(nudge, cause) => nudge
                .map_or_else(Orders::default, |bytes| {
                    Orders::one(Action::SendBuffer(bytes), cause)
                })
                .with(Action::UnlockSend, cause),
            BufferGrowth::Set(bytes, cause) => {
                self.raised = true;
                Orders::one(Action::SendBuffer(bytes), cause)
            }
            BufferGrowth::Wait => Orders::default(),
            BufferGrowth::None(cause) => {
                self.advise_raise("net.ipv4.tcp_wmem", buffer, verdict, cause)
            }
        }
    }

    /// Returns a way to enlarge a buffer. All sizes are as the kernel accounts them.
    fn find_growth(
        &self,
        buffer: u32,
        autotune: u32,
        explicit: u32,
        locked: Option<bool>,
    ) -> BufferGrowth {
        let grown = buffer.saturating_mul(2).min(explicit);
        // Autotuning grows only if more than it expects arrives in a round trip. While a small
        // buffer was locked, it may have come to expect more than that buffer lets in. One manual
        // step sets it going.
        let nudge = (grown > buffer).then_some(grown.min(autotune) / 2);
        match locked {
            Some(true) if autotune > buffer => {
                BufferGrowth::Unlock(nudge, Cause::ProgramsOwnBuffer { buffer })
            }
            Some(true) if explicit > buffer && self.raised => {
                BufferGrowth::Set(grown / 2, Cause::AutotuneCeiling { ceiling: autotune })
            }
            Some(true) if explicit > buffer => {
                BufferGrowth::Set(grown / 2, Cause::ProgramsOwnBuffer { buffer })
            }
            // Autotuning has not finished: its next step comes by itself, or else needs a push. Its
            // last step may end a little below the ceiling.
            Some(false) if buffer < autotune - autotune / 8 => match nudge {
                // A trimmed buffer does not grow back by itself: autotuning still expects its
                // former size.
                Some(_) if self.trimmed || self.in_a_row >= MIN_VERDICTS_STALLED => {
                    BufferGrowth::Unlock(nudge, Cause::AutotuneStalled { buffer })
                }
                _ => BufferGrowth::Wait,
            },
            None if buffer < autotune - autotune / 8
                && self.in_a_row < MIN_VERDICTS_WITHOUT_LOCK_INFO =>
            {
                BufferGrowth::Wait
            }
            // A gain of an eighth does not justify switching autotuning off.
            Some(false) | None if explicit > buffer.saturating_add(buffer / 8) => {
                BufferGrowth::Set(
                    grown / 2,
                    Cause::AutotuneCeiling {
                        ceiling: autotune.min(buffer),
                    },
                )
            }
            _ => BufferGrowth::None(Cause::HostLimit { limit: buffer }),
        }
    }

    /// Advises to raise a limit of the host, and in turn to use streams meanwhile.
    fn advise_raise(
        &self,
        sysctl: &'static str,
        buffer: u32,
        verdict: &Verdict,
        cause: Cause,
    ) -> Orders {
        if self.in_a_row.is_multiple_of(2) {
            let wanted = u64::from(buffer)
                .saturating_mul(self.wanted_factor(verdict))
                .min(1 << 30);
            return Orders::advise(Advice::Raise {
                sysctl,
                bytes: wanted,
                cause,
            });
        }
        self.advise_more_capacity(verdict, cause)
    }

    /// Returns the factor by which the rate should grow: 2 without a goal of the caller.
    fn wanted_factor(&self, verdict: &Verdict) -> u64 {
        let now = verdict.evidence.goodput_bps.max(1.0) as u64;
        self.aim_bps
            .map_or(2, |aim| aim.div_ceil(now.max(1)).max(2))
    }

    fn advise_more_capacity(&self, verdict: &Verdict, cause: Cause) -> Orders {
        Orders::advise(match self.wanted_factor(verdict) {
            many if many > MAX_STREAMS => Advice::Depot { cause },
            few => Advice::Streams {
                streams: few as u32,
                cause,
            },
        })
    }

    fn act_on_loss(&self, sample: &Sample, verdict: &Verdict) -> Orders {
        let mss = u64::from(sample.info.send_mss).max(1);
        let sent = sample.info.bytes_sent.unwrap_or(0) / mss;
        let lost = u64::from(sample.info.retransmits);
        if self.in_a_row < MIN_VERDICTS_SLOW || sent == 0 || lost == 0 {
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
            mathis_bps: reno.loss_limited_rate() as u64,
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
    fn cut_backlog(&mut self, verdict: &Verdict) -> Orders {
        let evidence = &verdict.evidence;
        let allowance = unsent_allowance(evidence.in_flight);
        if self.unsent_limited
            || evidence.unsent < u64::from(allowance).saturating_mul(MIN_BACKLOG_ALLOWANCES)
        {
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
    u32::try_from((in_flight / 2).max(MIN_UNSENT_BYTES)).unwrap_or(u32::MAX)
}

/// A way to enlarge a buffer; sizes as `SO_RCVBUF` takes them.
enum BufferGrowth {
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
