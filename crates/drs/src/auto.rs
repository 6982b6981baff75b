//! `Mode::Auto`: acts where a verdict says that an option helps, and only there.
//!
//! Linux autotunes both buffers by itself. An explicit size switches that off, and may be smaller than what autotuning would have reached,
//! so a size is set only where autotuning stands at its ceiling and the explicit limit is higher. A buffer that the program
//! set is given back to autotuning where the kernel can do that.

use crate::{
    Action, Advice, Cause, CongestionName, Host, Limit, Sample, Side, Verdict, options::Locks, orders::Orders,
};

/// Without window scaling (RFC 7323) no window is larger.
const LARGEST_UNSCALED: u64 = 65_535;
/// Verdicts in a row before an action: one interval may be an accident.
const VERDICTS: u32 = 2;
/// Verdicts in a row before a buffer that may still be autotuned is taken for one that is not (kernels without `SO_BUF_LOCK`).
const VERDICTS_UNSURE: u32 = 10;
/// Verdicts in a row before autotuning that could grow and does not is given a push.
const VERDICTS_STALLED: u32 = 8;
/// Verdicts in a row before losses or a clamp are acted on: a flow recovers from one loss within some round trips.
const VERDICTS_SLOW: u32 = 5;
/// More streams than this are worse than a depot.
const MOST_STREAMS: u64 = 16;
/// The least allowance for unsent data; what one wake-up of a program writes.
const LEAST_UNSENT: u64 = 256 << 10;
/// No window is cut below this.
const LEAST_TRIMMED: u32 = 256 << 10;
/// An unsent backlog of this many allowances is worth cutting.
const BACKLOG: u64 = 4;

/// The decider. Pure: samples and verdicts in, orders out.
#[derive(Debug, Clone)]
pub(crate) struct Auto {
    side: Side,
    host: Host,
    /// What the caller wants to reach, in bit/s.
    pub aim_bps: Option<u64>,
    /// A reservation of the caller's, in bytes a second.
    pub reserved: Option<u64>,
    /// The congestion control stays as the host or the program chose it.
    pub keeps_congestion: bool,
    paced: Option<u64>,
    last: Option<Limit>,
    in_a_row: u32,
    unsent_limited: bool,
    /// The window to which an excessive buffer is being cut, and what was on offer at the last look.
    trimming: Option<(u32, u32)>,
    trimmed: bool,
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
        }
    }

    /// Whether this verdict needs the state of the buffer locks.
    pub(crate) fn wants_locks(verdict: &Verdict) -> bool {
        matches!(
            verdict.limit,
            Limit::ReceiveWindow | Limit::SendBuffer | Limit::Path
        )
    }

    /// What to do about a verdict. `locks` is `None` where the kernel does not tell which buffers the program set.
    pub(crate) fn decide(&mut self, sample: &Sample, verdict: &Verdict, locks: Option<Locks>) -> Orders {
        self.in_a_row = if self.last == Some(verdict.limit) {
            self.in_a_row.saturating_add(1)
        } else {
            1
        };
        self.last = Some(verdict.limit);
        if verdict.limit == Limit::ReceiveWindow {
            self.trimming = None;
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
            (Side::Receiving, Limit::Path) => self.excess(sample, verdict, locks),
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

    /// The window that this side offers binds.
    fn own_window(&self, sample: &Sample, verdict: &Verdict, locks: Option<Locks>) -> Orders {
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
        // A clamp of the program's own, or one left from before the buffer grew.
        if let Some(window) = window
            && u64::from(window) < u64::from(buffer) / 4
            && sample.buffers.receive_used < buffer / 4
            && self.in_a_row >= VERDICTS_SLOW
        {
            return Orders::one(Action::WindowClamp(buffer), Cause::ClampBelowBuffer { window });
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
                Orders::one(Action::ReceiveBuffer(bytes), cause)
                    // The clamp does not follow an explicit buffer on every kernel.
                    .and(Action::WindowClamp(bytes.saturating_mul(2)), cause)
            }
            Room::Wait => Orders::default(),
            Room::None(cause) => self.raise("net.ipv4.tcp_rmem", buffer, verdict, cause),
        }
    }

    /// Autotuning took far more than the path carries, as it does when losses are repaired: the excess is promised to the sender and
    /// invites it to overflow the path's queue. First the window is held to twice what comes in a round trip, then, when
    /// no more than that is on offer, the buffer follows, and autotuning goes on from there.
    fn excess(&mut self, sample: &Sample, verdict: &Verdict, locks: Option<Locks>) -> Orders {
        let buffer = sample.buffers.receive;
        let unlocked = locks.is_some_and(|locks| !locks.receive);
        let Some(window) = sample.info.receive_window.filter(|_| unlocked) else {
            return Orders::default();
        };
        let evidence = &verdict.evidence;
        let carried = (evidence.goodput_bps / 8.0 * evidence.rtt.as_secs_f64()) as u64;
        let cause = Cause::Excess { buffer, carried };
        let on_offer = window.saturating_add(sample.queues.unread);
        if let Some((target, before)) = self.trimming {
            if on_offer > target.saturating_add(target / 8) {
                self.trimming = Some((target, on_offer));
                return if on_offer < before {
                    Orders::default()
                } else {
                    // The kernel lifts a clamp when it learns how much bookkeeping a segment takes.
                    Orders::one(Action::WindowClamp(target), cause)
                };
            }
            (self.trimming, self.trimmed) = (None, true);
            return Orders::one(Action::ReceiveBuffer(target), cause).and(Action::UnlockReceive, cause);
        }
        let target = u32::try_from(carried.saturating_mul(2))
            .unwrap_or(u32::MAX)
            .max(LEAST_TRIMMED);
        // The kernel doubles the target; less than four times too much is left alone.
        if self.in_a_row < VERDICTS_SLOW || buffer / 8 < target {
            return Orders::default();
        }
        self.trimming = Some((target, on_offer));
        Orders::one(Action::WindowClamp(target), cause)
    }

    fn send_buffer(&self, sample: &Sample, verdict: &Verdict, locks: Option<Locks>) -> Orders {
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
            Room::Set(bytes, cause) => Orders::one(Action::SendBuffer(bytes), cause),
            Room::Wait => Orders::default(),
            Room::None(cause) => self.raise("net.ipv4.tcp_wmem", buffer, verdict, cause),
        }
    }

    /// Where more room for a buffer can come from. All sizes as the kernel accounts them.
    fn room(&self, buffer: u32, autotune: u32, explicit: u32, locked: Option<bool>) -> Room {
        let grown = buffer.saturating_mul(2).min(explicit);
        // Autotuning grows only when more than it expects comes in a round trip, and while a small buffer was locked it may have
        // come to expect more than that buffer lets in. One step by hand sets it going.
        let nudge = (grown > buffer).then_some(grown.min(autotune) / 2);
        match locked {
            Some(true) if autotune > buffer => Room::Unlock(nudge, Cause::ProgramsOwnBuffer { buffer }),
            Some(true) if explicit > buffer => Room::Set(grown / 2, Cause::ProgramsOwnBuffer { buffer }),
            // Autotuning has not ended: its next step comes without us, or else needs a push. Its last step may fall a little
            // short of the ceiling.
            Some(false) if buffer < autotune - autotune / 8 => match nudge {
                // What was cut does not come back by itself: autotuning still expects what it had.
                Some(_) if self.trimmed || self.in_a_row >= VERDICTS_STALLED => {
                    Room::Unlock(nudge, Cause::AutotuneStalled { buffer })
                }
                _ => Room::Wait,
            },
            None if buffer < autotune - autotune / 8 && self.in_a_row < VERDICTS_UNSURE => Room::Wait,
            // An eighth more is not worth switching autotuning off.
            Some(false) | None if explicit > buffer.saturating_add(buffer / 8) => Room::Set(
                grown / 2,
                Cause::AutotuneCeiling {
                    ceiling: autotune.min(buffer),
                },
            ),
            _ => Room::None(Cause::HostLimit { limit: buffer }),
        }
    }

    /// A human may raise a limit of the host; a program gets by with streams meanwhile.
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

    /// How many times the present rate is wanted: 2 when nobody said.
    fn factor(&self, verdict: &Verdict) -> u64 {
        let now = verdict.evidence.goodput_bps.max(1.0) as u64;
        self.aim_bps.map_or(2, |aim| aim.div_ceil(now.max(1)).max(2))
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
        let rtt = verdict
            .evidence
            .min_rtt
            .max(verdict.evidence.rtt)
            .as_secs_f64()
            .max(1e-6);
        let cause = Cause::RandomLoss {
            per_million: (share * 1e6) as u32,
            mathis_bps: (1.22 * 8.0 * mss as f64 / (rtt * share.sqrt())) as u64,
        };
        let name = sample.congestion.name.as_str();
        if !self.keeps_congestion && self.host.may_use_bbr && matches!(name, "reno" | "cubic" | "bic") {
            let bbr = CongestionName::from_kernel(b"bbr");
            return Orders::one(Action::CongestionControl(bbr), cause);
        }
        Orders::advise(Advice::Depot { cause })
    }

    /// More lies unsent than a wake-up of the program needs: memory, and delay for whatever is written next.
    fn backlog(&mut self, verdict: &Verdict) -> Orders {
        let evidence = &verdict.evidence;
        // Half of what is in flight: a program that is late by half a round trip does not starve the flow.
        let allowance = (evidence.in_flight / 2).max(LEAST_UNSENT);
        if self.unsent_limited || evidence.unsent < allowance.saturating_mul(BACKLOG) {
            return Orders::default();
        }
        self.unsent_limited = true;
        let unsent = evidence.unsent;
        Orders::one(
            Action::UnsentLimit(u32::try_from(allowance).unwrap_or(u32::MAX)),
            Cause::UnsentBacklog { unsent },
        )
    }
}

/// Where more room comes from; sizes as `SO_RCVBUF` takes them.
enum Room {
    /// From autotuning, after a step by hand where one is possible.
    Unlock(Option<u32>, Cause),
    /// From an explicit size.
    Set(u32, Cause),
    /// From autotuning, by itself.
    Wait,
    /// From nowhere on this host.
    None(Cause),
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Buffers, Congestion, Evidence, Queues, TcpInfo};

    const MB: u32 = 1 << 20;
    const LOCKED: Option<Locks> = Some(Locks {
        send: true,
        receive: true,
    });
    const UNLOCKED: Option<Locks> = Some(Locks {
        send: false,
        receive: false,
    });

    fn host() -> Host {
        Host {
            receive_autotune: 6 * MB,
            receive_explicit: 32 * MB,
            send_autotune: 4 * MB,
            send_explicit: 32 * MB,
            ..Host::default()
        }
    }

    fn sample(buffer: u32) -> Sample {
        Sample {
            at: Duration::ZERO,
            info: TcpInfo {
                receive_window: Some(buffer / 2),
                send_mss: 1000,
                bytes_sent: Some(100_000_000),
                ..TcpInfo::default()
            },
            queues: Queues::default(),
            buffers: Buffers {
                send: buffer,
                receive: buffer,
                ..Buffers::default()
            },
            congestion: Congestion {
                name: CongestionName::from_kernel(b"reno"),
                bbr: None,
            },
        }
    }

    fn verdict(limit: Limit) -> Verdict {
        Verdict {
            limit,
            evidence: Evidence {
                interval: Duration::from_millis(100),
                rtt: Duration::from_millis(100),
                min_rtt: Duration::from_millis(100),
                goodput_bps: 5e6,
                in_flight: 1_000_000,
                peer_window: 65_535,
                ..Evidence::default()
            },
        }
    }

    /// The orders after the same verdict so many times.
    fn after(auto: &mut Auto, times: u32, sample: &Sample, limit: Limit, locks: Option<Locks>) -> Orders {
        let mut last = Orders::default();
        for _ in 0..times {
            last = auto.decide(sample, &verdict(limit), locks);
        }
        last
    }

    fn actions(orders: &Orders) -> Vec<Action> {
        orders.iter().map(|(action, _)| action).collect()
    }

    #[test]
    fn one_verdict_is_no_reason_and_other_limits_are_none() {
        let small = sample(64 << 10);
        let mut auto = Auto::new(Side::Receiving, host());
        assert_eq!(
            after(&mut auto, 1, &small, Limit::ReceiveWindow, LOCKED),
            Orders::default()
        );
        for limit in Limit::ALL
            .into_iter()
            .filter(|limit| *limit != Limit::ReceiveWindow)
        {
            let mut auto = Auto::new(Side::Receiving, host());
            assert_eq!(
                after(&mut auto, 20, &small, limit, LOCKED),
                Orders::default(),
                "{limit}"
            );
        }
    }

    #[test]
    fn a_programs_own_small_buffer_goes_back_to_autotuning() {
        let small = sample(64 << 10);
        let mut auto = Auto::new(Side::Receiving, host());
        let orders = after(&mut auto, 2, &small, Limit::ReceiveWindow, LOCKED);
        assert_eq!(
            actions(&orders),
            [
                Action::ReceiveBuffer(64 << 10),
                Action::UnlockReceive,
                Action::WindowClamp(128 << 10)
            ]
        );
        let mut auto = Auto::new(Side::Sending, host());
        let orders = after(&mut auto, 2, &small, Limit::SendBuffer, LOCKED);
        assert_eq!(
            actions(&orders),
            [Action::SendBuffer(64 << 10), Action::UnlockSend]
        );
    }

    #[test]
    fn autotuning_below_its_ceiling_is_left_alone_unless_it_stalls() {
        let growing = sample(MB);
        let mut auto = Auto::new(Side::Receiving, host());
        assert_eq!(
            after(&mut auto, 7, &growing, Limit::ReceiveWindow, UNLOCKED),
            Orders::default()
        );
        let orders = after(&mut auto, 1, &growing, Limit::ReceiveWindow, UNLOCKED);
        assert_eq!(
            actions(&orders),
            [
                Action::ReceiveBuffer(MB),
                Action::UnlockReceive,
                Action::WindowClamp(2 * MB)
            ]
        );
    }

    #[test]
    fn at_the_ceiling_an_explicit_buffer_is_set_only_where_it_may_be_larger() {
        let full = sample(6 * MB);
        let mut auto = Auto::new(Side::Receiving, host());
        let orders = after(&mut auto, 2, &full, Limit::ReceiveWindow, UNLOCKED);
        assert_eq!(
            actions(&orders),
            [Action::ReceiveBuffer(6 * MB), Action::WindowClamp(12 * MB)]
        );
        assert!(matches!(
            orders.iter().next(),
            Some((_, Cause::AutotuneCeiling { ceiling })) if ceiling == 6 * MB
        ));

        let untuned = Host {
            receive_explicit: 425_984,
            ..host()
        };
        let mut auto = Auto::new(Side::Receiving, untuned);
        let orders = after(&mut auto, 2, &full, Limit::ReceiveWindow, UNLOCKED);
        assert_eq!(actions(&orders), []);
        assert!(matches!(
            orders.advice,
            Some(Advice::Raise { sysctl: "net.ipv4.tcp_rmem", bytes, .. }) if bytes == 12 << 20
        ));
    }

    #[test]
    fn no_action_ever_asks_for_less_than_there_is() {
        for buffer in [1u32, 4096, 425_984, 6 * MB, 31 * MB, 32 * MB, u32::MAX] {
            for explicit in [425_984, 8 * MB, 32 * MB, u32::MAX] {
                for autotune in [0, 6 * MB, 64 * MB, u32::MAX] {
                    for locks in [None, LOCKED, UNLOCKED] {
                        let host = Host {
                            receive_autotune: autotune,
                            receive_explicit: explicit,
                            ..host()
                        };
                        let mut auto = Auto::new(Side::Receiving, host);
                        for _ in 0..12 {
                            let orders = auto.decide(&sample(buffer), &verdict(Limit::ReceiveWindow), locks);
                            for action in actions(&orders) {
                                if let Action::ReceiveBuffer(bytes) = action {
                                    assert!(bytes >= buffer / 2, "{bytes} for {buffer}");
                                    assert!(bytes <= explicit / 2 + 1);
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn without_window_scaling_it_takes_streams_and_beyond_16_a_depot() {
        let host = Host {
            scales_windows: false,
            ..host()
        };
        let mut auto = Auto::new(Side::Receiving, host);
        let advice = |auto: &mut Auto| after(auto, 2, &sample(64 << 10), Limit::ReceiveWindow, LOCKED).advice;
        assert!(matches!(
            advice(&mut auto),
            Some(Advice::Streams { streams: 2, .. })
        ));
        auto.aim_bps = Some(36_000_000);
        assert!(matches!(
            advice(&mut auto),
            Some(Advice::Streams { streams: 8, .. })
        ));
        auto.aim_bps = Some(1_000_000_000);
        assert!(matches!(advice(&mut auto), Some(Advice::Depot { .. })));
    }

    #[test]
    fn the_sender_can_only_advise_about_the_peers_window() {
        let mut auto = Auto::new(Side::Sending, host());
        let orders = after(&mut auto, 2, &sample(MB), Limit::ReceiveWindow, LOCKED);
        assert_eq!(actions(&orders), []);
        let cause = Cause::PeerWindow { window: 65_535 };
        assert_eq!(orders.advice, Some(Advice::Streams { streams: 2, cause }));
    }

    #[test]
    fn random_losses_want_bbr_or_else_a_depot() {
        let mut lossy = sample(MB);
        lossy.info.retransmits = 80; // of 100,000 segments: 8e-4
        let mut auto = Auto::new(Side::Sending, host());
        assert_eq!(after(&mut auto, 4, &lossy, Limit::Loss, None), Orders::default());
        let orders = after(&mut auto, 1, &lossy, Limit::Loss, None);
        // Mathis: 1.22 * 8000 bit / (0.1 s * sqrt(8e-4)) = 3.45 Mbit/s.
        let Some(Advice::Depot {
            cause: Cause::RandomLoss {
                per_million,
                mathis_bps,
            },
        }) = orders.advice
        else {
            panic!("{orders:?}")
        };
        assert_eq!(per_million, 800);
        assert!((3_400_000..3_500_000).contains(&mathis_bps), "{mathis_bps}");
        let host = Host {
            may_use_bbr: true,
            ..host()
        };
        let orders = after(&mut Auto::new(Side::Sending, host), 5, &lossy, Limit::Loss, None);
        assert_eq!(
            actions(&orders),
            [Action::CongestionControl(CongestionName::from_kernel(b"bbr"))]
        );
    }

    #[test]
    fn a_reservation_is_paced_to_once_and_anothers_pacing_only_told() {
        let mut auto = Auto::new(Side::Sending, host());
        auto.reserved = Some(125_000_000);
        let orders = after(&mut auto, 1, &sample(MB), Limit::Growing, None);
        assert_eq!(actions(&orders), [Action::PacingRate(125_000_000)]);
        assert_eq!(
            after(&mut auto, 9, &sample(MB), Limit::Pacing, None),
            Orders::default()
        );
        let orders = after(
            &mut Auto::new(Side::Sending, host()),
            2,
            &sample(MB),
            Limit::Pacing,
            None,
        );
        assert!(matches!(orders.advice, Some(Advice::LiftPacing { .. })));
    }

    #[test]
    fn a_large_unsent_backlog_is_cut_once() {
        let mut auto = Auto::new(Side::Sending, host());
        let mut path = verdict(Limit::Path);
        path.evidence.unsent = 3_000_000;
        let mut given = vec![];
        for _ in 0..9 {
            given.extend(actions(&auto.decide(&sample(MB), &path, None)));
        }
        assert_eq!(given, [Action::UnsentLimit(500_000)]);
        path.evidence.unsent = 1_000_000;
        let mut auto = Auto::new(Side::Sending, host());
        for _ in 0..9 {
            assert_eq!(auto.decide(&sample(MB), &path, None), Orders::default());
        }
    }

    #[test]
    fn a_window_at_the_end_of_its_scaling_takes_streams() {
        let mut capped = sample(4 * MB);
        capped.info.receive_window_shift = Some(1);
        capped.info.receive_window = Some(131_070);
        let mut auto = Auto::new(Side::Receiving, host());
        let orders = after(&mut auto, 9, &capped, Limit::ReceiveWindow, LOCKED);
        let cause = Cause::WindowScale { largest: 131_070 };
        assert_eq!(orders, Orders::advise(Advice::Streams { streams: 2, cause }));
    }

    #[test]
    fn an_excessive_buffer_is_cut_when_what_was_offered_fits() {
        let mut excessive = sample(14 * MB);
        let mut auto = Auto::new(Side::Receiving, host());
        let mut path = verdict(Limit::Path);
        path.evidence.goodput_bps = 36e6; // 450 KB in 100 ms
        let step = |auto: &mut Auto, sample: &Sample| actions(&auto.decide(sample, &path, UNLOCKED));
        for _ in 0..4 {
            assert_eq!(step(&mut auto, &excessive), []);
        }
        assert_eq!(step(&mut auto, &excessive), [Action::WindowClamp(900_000)]);
        // Nothing has become less: the clamp was lifted.
        assert_eq!(step(&mut auto, &excessive), [Action::WindowClamp(900_000)]);
        excessive.info.receive_window = Some(6 * MB);
        assert_eq!(step(&mut auto, &excessive), []);
        excessive.info.receive_window = Some(900_000);
        assert_eq!(
            step(&mut auto, &excessive),
            [Action::ReceiveBuffer(900_000), Action::UnlockReceive]
        );
        let cut = sample(1_800_000);
        for _ in 0..9 {
            assert_eq!(step(&mut auto, &cut), []);
        }
        // And when the path becomes faster, it comes back without delay.
        let orders = after(&mut auto, 2, &cut, Limit::ReceiveWindow, UNLOCKED);
        assert_eq!(actions(&orders).first(), Some(&Action::ReceiveBuffer(1_800_000)));
    }
}
