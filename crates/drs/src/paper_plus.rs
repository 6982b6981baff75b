//! `Mode::PaperPlus`: the paper's algorithm with solutions for the questions that it leaves open
//! (DRS paper, section 4).
//!
//! - *When does slow start end?* The receiver sees it: in slow start, the bytes per round trip
//!   double. Three rounds that bring less than a quarter more than the best before have ended it
//!   (the test that BBR uses at the sender). The window then goes from twice to five quarters of
//!   what a round trip carries. The extra quarter shows a later rise of the path's rate.
//! - *How can a buffer shrink safely?* In two steps. First the window is clamped: the kernel never
//!   takes back an offer, it only offers no more. When what is on offer and unread fits, the buffer
//!   itself shrinks. So there is always room for everything in flight.
//! - *Who gets how much?* A [`Budget`](crate::Budget) decides.
//!
//! Round trips are those of the kernel's receiver-side estimate if there is one, else the paper's
//! own.

use std::time::Duration;

use crate::{
    Action, Cause, Sample, Side,
    classic::{congestion_window, offered, read_by_program},
    orders::Orders,
    receiver_rate::{Rounds, WindowTimer},
};

/// Minimum window in slow start, in bytes. Up to here slow start is not slowed down.
const LEAST_STARTING: u64 = 64 << 10;
/// Minimum window after slow start, in bytes, so that the segments that reveal a loss always fit.
const LEAST_SETTLED: u64 = 16 << 10;
/// Minimum window at any time, in segments. Into a window below one segment, a sender puts data
/// only when its persist timer expires (RFC 9293, section 3.8.6.2).
const LEAST_SEGMENTS: u64 = 4;
/// Rounds without growth that end slow start.
const FLAT_ROUNDS: u32 = 3;
/// Number of rounds of which the largest is the need, so that a loss or a pause does not shrink it.
const MEMORY: usize = 8;
/// Rounds with a longer round trip before a change of the path is considered. By then the window
/// has been cut to what the old round trip needs.
const LONGER_ROUNDS: u32 = 8;
/// Half the time after which the least round trip is forgotten.
const RTT_MEMORY: Duration = Duration::from_secs(10);

#[derive(Debug, Clone)]
pub(crate) struct PaperPlus {
    side: Side,
    timer: WindowTimer,
    rounds: Rounds,
    base_rtt: LeastRtt,
    recent: Recent,
    slow_start: Option<SlowStart>,
    /// Window for which the buffer was last sized; zero before the first time.
    window: u64,
    /// Size to which the buffer will shrink when what is on offer fits, and the window on offer at
    /// the last sample.
    pending: Option<(u64, u64)>,
}

#[derive(Debug, Clone, Copy, Default)]
struct SlowStart {
    best: u64,
    flat: u32,
}

impl PaperPlus {
    pub(crate) fn new(side: Side) -> Self {
        Self {
            side,
            timer: WindowTimer::default(),
            rounds: Rounds::default(),
            base_rtt: LeastRtt::default(),
            recent: Recent::default(),
            slow_start: Some(SlowStart::default()),
            window: 0,
            pending: None,
        }
    }

    /// Returns the orders after a sample. `share` returns the window that the budget grants for a
    /// wanted one.
    pub(crate) fn observe(&mut self, sample: &Sample, share: impl FnOnce(u64) -> u64) -> Orders {
        let per_round = match self.side {
            Side::Receiving => self.received_per_round(sample),
            Side::Sending => self.in_flight(sample),
        };
        let Some(per_round) = per_round else {
            return self.finish_shrinking(sample);
        };
        self.recent.push(per_round);
        self.watch_slow_start(sample, per_round);
        let need = self.recent.most();
        let segments = LEAST_SEGMENTS * u64::from(sample.info.path_mtu);
        let wanted = match self.slow_start {
            Some(_) => need.saturating_mul(2).max(self.window).max(LEAST_STARTING),
            None => need.saturating_add(need / 4).max(LEAST_SETTLED),
        }
        .max(segments);
        let granted = share(wanted).max(crate::budget::LEAST_SHARE / 2);
        self.resize(sample, wanted.min(granted), per_round, granted < wanted)
    }

    /// Returns the bytes that arrived in one round trip. Returns `None` within a round, and if the
    /// program's reading was the limit.
    fn received_per_round(&mut self, sample: &Sample) -> Option<u64> {
        let read = read_by_program(sample)?;
        let timed = self.timer.observe(sample.at, read, offered(sample));
        let kernels = Some(sample.info.receive_rtt).filter(|rtt| !rtt.is_zero());
        let rtt = kernels.or(timed)?;
        let round = self.rounds.observe(sample.at, read, rtt)?;
        let base = self.base_rtt.observe(sample.at, rtt);
        let program_is_slow = u64::from(sample.queues.unread) > offered(sample) / 2;
        (!program_is_slow && round.bytes > 0).then(|| round.bytes_in(base))
    }

    /// Returns the bytes that the sender may have in flight, once per round trip.
    fn in_flight(&mut self, sample: &Sample) -> Option<u64> {
        self.rounds.observe(sample.at, 0, sample.info.rtt)?;
        let peer = sample.info.send_window.map_or(u64::MAX, u64::from);
        Some(congestion_window(sample).min(peer))
    }

    fn rtt(&self, sample: &Sample) -> Duration {
        match self.side {
            Side::Receiving => self.base_rtt.now(),
            Side::Sending => sample.info.rtt,
        }
    }

    fn watch_slow_start(&mut self, sample: &Sample, per_round: u64) {
        let Some(state) = &mut self.slow_start else {
            return;
        };
        if self.side == Side::Sending {
            // The sender knows when slow start has ended.
            if sample.info.slow_start_threshold.is_some() {
                self.slow_start = None;
                self.recent = Recent::of(per_round);
            }
            return;
        }
        if per_round.saturating_mul(4) >= state.best.saturating_mul(5) {
            *state = SlowStart {
                best: per_round,
                flat: 0,
            };
        } else {
            state.flat += 1;
        }
        if state.flat >= FLAT_ROUNDS {
            self.slow_start = None;
            self.recent = Recent::of(per_round);
        }
    }

    fn resize(&mut self, sample: &Sample, target: u64, per_round: u64, by_budget: bool) -> Orders {
        let before = self.window;
        let grows = target > before.saturating_add(before / 16);
        let shrinks = target < before - before / 8;
        if !grows && !shrinks {
            return self.finish_shrinking(sample);
        }
        let cause = if by_budget {
            Cause::Budget {
                share: target.saturating_mul(2),
            }
        } else if self.slow_start.is_some() {
            Cause::TwiceTheWindow {
                window: per_round,
                rtt_us: u32::try_from(self.rtt(sample).as_micros()).unwrap_or(u32::MAX),
            }
        } else if before > per_round.saturating_mul(3) / 2 && shrinks {
            Cause::SlowStartEnded { window: per_round }
        } else {
            Cause::PathChanged { window: per_round }
        };
        self.window = target;
        let bytes = u32::try_from(target).unwrap_or(u32::MAX);
        match self.side {
            Side::Sending => Orders::one(Action::SendBuffer(bytes), cause),
            Side::Receiving if grows => {
                self.pending = None;
                Orders::one(Action::ReceiveBuffer(bytes), cause)
                    .and(Action::WindowClamp(bytes), cause)
            }
            Side::Receiving => {
                self.pending = Some((target, offered(sample)));
                Orders::one(Action::WindowClamp(bytes), cause)
            }
        }
    }

    /// Completes a shrink when it is safe.
    fn finish_shrinking(&mut self, sample: &Sample) -> Orders {
        let Some((target, before)) = self.pending else {
            return Orders::default();
        };
        let (Some(window), unread) = (sample.info.receive_window, u64::from(sample.queues.unread))
        else {
            // The kernel does not report what it offered: the clamp alone has to do.
            self.pending = None;
            return Orders::default();
        };
        // The buffer is twice the window; a quarter of that is left for the bookkeeping of data in
        // flight.
        let fits = u64::from(window) + unread <= target.saturating_add(target / 8)
            && u64::from(sample.buffers.receive_used) <= target;
        let bytes = u32::try_from(target).unwrap_or(u32::MAX);
        if !fits {
            // Some kernels raise the clamp again when they learn how much bookkeeping a segment
            // needs.
            self.pending = Some((target, window.into()));
            return if u64::from(window) > before {
                Orders::one(Action::WindowClamp(bytes), Cause::ClampLifted { window })
            } else {
                Orders::default()
            };
        }
        self.pending = None;
        Orders::one(Action::ReceiveBuffer(bytes), Cause::OfferUsedUp { window })
            .and(Action::WindowClamp(bytes), Cause::OfferUsedUp { window })
    }
}

/// Largest of the last rounds.
#[derive(Debug, Clone, Default)]
struct Recent {
    bytes: [u64; MEMORY],
    next: usize,
}

impl Recent {
    fn of(bytes: u64) -> Self {
        let mut recent = Self::default();
        recent.push(bytes);
        recent
    }

    fn push(&mut self, bytes: u64) {
        if let Some(slot) = self.bytes.get_mut(self.next) {
            *slot = bytes;
        }
        self.next = (self.next + 1) % MEMORY;
    }

    fn most(&self) -> u64 {
        self.bytes.iter().copied().max().unwrap_or(0)
    }
}

/// Least round trip of the last 10 to 20 seconds; forgotten sooner if the path proves to have
/// become longer.
#[derive(Debug, Clone, Default)]
struct LeastRtt {
    before: Option<Duration>,
    current: Option<Duration>,
    since: Duration,
    /// Consecutive rounds that took over half as long again, followed by the least of them.
    longer: u32,
    least_longer: Option<Duration>,
    /// Least of the rounds before these, if they were longer as well.
    tried: Option<Duration>,
}

impl LeastRtt {
    fn now(&self) -> Duration {
        [self.before, self.current]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or_default()
    }

    fn observe(&mut self, at: Duration, rtt: Duration) -> Duration {
        if at.saturating_sub(self.since) >= RTT_MEMORY {
            (self.before, self.current, self.since) = (self.current, None, at);
        }
        self.current = Some(self.current.map_or(rtt, |least| least.min(rtt)));
        if rtt <= self.now() + self.now() / 2 {
            (self.longer, self.least_longer, self.tried) = (0, None, None);
            return self.now();
        }
        self.longer += 1;
        self.least_longer = Some(self.least_longer.map_or(rtt, |least| least.min(rtt)));
        if self.longer < LONGER_ROUNDS {
            return self.now();
        }
        // A slower path and a longer one look the same: as much is in flight, and it takes longer.
        // The need computed with the old round trip cuts the window meanwhile. Then a queue of this
        // flow drains, while a longer path stays as long.
        let least = self.least_longer.take().unwrap_or(rtt);
        self.longer = 0;
        match self.tried {
            Some(before) if least * 5 >= before * 4 => {
                (self.before, self.current, self.tried) = (None, Some(least), None);
            }
            _ => self.tried = Some(least),
        }
        self.now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Model;

    const KB: u64 = 1024;
    const RATE: u64 = 4_500_000; // 36 Mbit/s; 459,000 bytes in 102 ms

    fn settled() -> (Model, PaperPlus) {
        let (mut model, mut plus) = (
            Model::new(102, RATE, 64 * KB),
            PaperPlus::new(Side::Receiving),
        );
        model.run(20_000, |sample| plus.observe(sample, |window| window));
        (model, plus)
    }

    fn causes(given: &[Orders]) -> Vec<Cause> {
        given
            .iter()
            .flat_map(Orders::iter)
            .map(|(_, cause)| cause)
            .collect()
    }

    #[test]
    fn the_buffer_is_halved_when_slow_start_has_ended() {
        let (mut model, mut plus) = (
            Model::new(102, RATE, 64 * KB),
            PaperPlus::new(Side::Receiving),
        );
        let mut most = 0;
        let given = model.run(20_000, |sample| {
            most = most.max(u64::from(sample.buffers.receive / 2));
            plus.observe(sample, |window| window)
        });
        assert!(
            causes(&given)
                .iter()
                .any(|cause| matches!(cause, Cause::SlowStartEnded { .. }))
        );
        assert!(most > 800 * KB, "{most}");
        assert!(
            (459_000..700 * KB).contains(&model.buffer),
            "{}",
            model.buffer
        );
        let before = model.arrived;
        model.run(10_000, |sample| plus.observe(sample, |window| window));
        assert!(
            model.arrived - before > 10 * RATE * 95 / 100,
            "the path stays full"
        );
    }

    #[test]
    fn buffer_follows_a_slower_and_a_faster_path() {
        let (mut model, mut plus) = settled();
        model.rate = RATE / 4;
        model.run(30_000, |sample| plus.observe(sample, |window| window));
        assert!(model.buffer < 300 * KB, "{}", model.buffer);
        assert_eq!(model.dropped_at_receiver, 0);
        model.rate = RATE;
        // After slow start a flow grows by one segment per round trip: 35 s for what was lost.
        model.run(60_000, |sample| plus.observe(sample, |window| window));
        assert!(model.buffer > 459_000, "{}", model.buffer);
        let before = model.arrived;
        model.run(10_000, |sample| plus.observe(sample, |window| window));
        assert!(model.arrived - before > 10 * RATE * 95 / 100);
    }

    #[test]
    fn a_longer_path_is_distinguished_from_a_queue() {
        let (mut model, mut plus) = settled();
        model.rtt *= 3;
        model.run(60_000, |sample| plus.observe(sample, |window| window));
        assert!(model.buffer > 3 * 459_000, "{}", model.buffer);
        let before = model.arrived;
        model.run(10_000, |sample| plus.observe(sample, |window| window));
        assert!(
            model.arrived - before > 10 * RATE * 90 / 100,
            "{}",
            model.arrived - before
        );
    }

    #[test]
    fn a_buffer_shrinks_only_when_what_was_offered_fits() {
        let (mut model, mut plus) = settled();
        model.rate = RATE / 4;
        let mut window = 0;
        let mut shrunk = 0;
        model.run(30_000, |sample| {
            window = offered(sample);
            let orders = plus.observe(sample, |window| window);
            for (action, cause) in orders.iter() {
                if let (Action::ReceiveBuffer(bytes), Cause::OfferUsedUp { .. }) = (action, cause) {
                    assert!(
                        window <= u64::from(bytes) * 2,
                        "{window} on offer, {bytes} left"
                    );
                    shrunk += 1;
                }
            }
            orders
        });
        assert!(shrunk > 0);
    }

    #[test]
    fn a_share_is_never_exceeded_and_a_larger_one_is_used() {
        let (mut model, mut plus) = (
            Model::new(102, RATE, 64 * KB),
            PaperPlus::new(Side::Receiving),
        );
        model.run(20_000, |sample| {
            plus.observe(sample, |window| window.min(200 * KB))
        });
        assert!(model.buffer <= 200 * KB, "{}", model.buffer);
        model.run(20_000, |sample| plus.observe(sample, |window| window));
        assert!(model.buffer > 459_000, "{}", model.buffer);
    }
}
