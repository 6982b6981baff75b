//! A model of a path with one bottleneck and the flows on it, as fluids, in virtual time. Rates are
//! in bytes per second, times in seconds.

use std::{collections::VecDeque, time::Duration};

use crate::{FitSample, PacingLimit, RateFit, Siblings};

pub(super) const MSS: f64 = 8948.0;
/// Time step of the model.
const STEP: f64 = 1e-4;
/// Delay of a timer.
const TIMER_SLACK: f64 = 2e-4;
/// CoDel's target and interval (RFC 8289).
const CODEL_TARGET: f64 = 0.005;
const CODEL_INTERVAL: f64 = 0.1;
/// Interval, in deviations, at which a varying delay is drawn again, with straight lines between,
/// as
/// in wanbed.
const JITTER_CORRELATION: f64 = 12.0;
/// Delay of a segment that is overtaken.
const REORDERED_BY: f64 = 0.003;

/// The bottleneck and the flows that share it.
pub(super) struct Path {
    pub(super) capacity: f64,
    rtt: f64,
    pub(super) queue_limit: f64,
    /// Standard deviation of the delay in each direction; segments stay in order.
    pub(super) jitter: f64,
    /// Standard deviation of independent noise in single round-trip times.
    pub(super) rtt_noise: f64,
    /// Probability that a segment is overtaken.
    pub(super) reordering: f64,
    pub(super) codel: Option<CoDel>,
    /// Bytes of other traffic in the queue.
    pub(super) foreign: f64,
    pub(super) flows: Vec<Flow>,
    pub(super) now: f64,
    queue: VecDeque<(usize, f64, f64)>,
    queued: f64,
    noise: Noise,
    /// Jitter of each direction.
    delays: [InOrderJitter; 2],
}

/// Acknowledgements of one step: time of arrival, bytes that left the bottleneck, their round-trip
/// time, lost bytes, and whether a segment was overtaken.
#[derive(Default, Clone, Copy)]
struct Returning {
    at: f64,
    bytes: f64,
    rtt: f64,
    lost: f64,
    is_reordered: bool,
}

/// One sender.
pub(super) struct Flow {
    pub(super) fit: Option<RateFit>,
    /// Rate of its program; `None` if unlimited.
    pub(super) source: Option<f64>,
    pub(super) is_gone: bool,
    pub(super) lost: f64,
    /// Bytes lost in this step.
    lost_now: f64,
    pub(super) acked: f64,
    pub(super) window: f64,
    pub(super) begins: f64,
    threshold: f64,
    /// Window before the last loss, and its time.
    cut: (f64, f64),
    /// If true, Reno recovers from losses, else CUBIC.
    pub(super) is_reno: bool,
    /// Segments retransmitted although they were not lost.
    spurious: f64,
    /// If true, reordering has been seen, and late segments no longer count as lost. Before, the
    /// window is cut until the mistake shows.
    has_seen_reordering: bool,
    /// Time at which a cut is taken back, and the window and threshold before it.
    undo: Option<(f64, f64, f64)>,
    unsent: f64,
    sent: f64,
    limit: Option<f64>,
    paces: bool,
    line: f64,
    returning: VecDeque<Returning>,
    lately: VecDeque<f64>,
    lately_sum: f64,
    /// The kernel's delivery rate, which an idle program does not lower.
    delivery_rate: f64,
    srtt: f64,
    deviation: f64,
    min_rtt: f64,
    app_limited_until: f64,
    next_look: f64,
}

/// RFC 8289, as far as a fluid can follow it: it drops a segment when the queue has stood over the
/// target for an interval, and then more and more often.
#[derive(Default)]
pub(super) struct CoDel {
    above_since: Option<f64>,
    next_drop: f64,
    drops: f64,
}

impl Path {
    pub(super) fn new(capacity: f64, rtt: f64, queue_limit: f64) -> Self {
        Self {
            capacity,
            rtt,
            queue_limit,
            jitter: 0.0,
            rtt_noise: 0.0,
            reordering: 0.0,
            codel: None,
            foreign: 0.0,
            flows: vec![],
            now: 0.0,
            queue: VecDeque::new(),
            queued: 0.0,
            noise: Noise::default(),
            delays: [InOrderJitter::default(); 2],
        }
    }

    /// Seeds the noise.
    pub(super) fn seed(&mut self, seed: u64) {
        self.noise = Noise(Noise::default().0.wrapping_mul(2 * seed + 1));
    }

    /// Returns the record's path: 2.4 Gbit/s over 180 ms with a queue of 4 MB.
    pub(super) fn of_the_record() -> Self {
        Self::new(298.3e6, 0.18, 4.0 * 1024.0 * 1024.0)
    }

    /// Adds a fitted flow that begins now.
    pub(super) fn fitted(&mut self, ceiling: Option<u64>) -> usize {
        self.flow(Some(RateFit::new(ceiling)))
    }

    /// Adds a flow that begins now.
    pub(super) fn flow(&mut self, fit: Option<RateFit>) -> usize {
        let steps = (self.rtt / STEP) as usize;
        self.flows.push(Flow {
            fit,
            source: None,
            is_gone: false,
            lost: 0.0,
            lost_now: 0.0,
            acked: 0.0,
            window: 10.0 * MSS,
            begins: self.now,
            threshold: f64::INFINITY,
            cut: (0.0, -1.0),
            is_reno: false,
            spurious: 0.0,
            has_seen_reordering: false,
            undo: None,
            unsent: 0.0,
            sent: 0.0,
            limit: None,
            paces: false,
            line: self.capacity * 4.0,
            returning: VecDeque::new(),
            lately: VecDeque::from(vec![0.0; steps]),
            lately_sum: 0.0,
            delivery_rate: 0.0,
            srtt: self.rtt,
            deviation: self.rtt / 2.0,
            min_rtt: f64::INFINITY,
            app_limited_until: 0.0,
            next_look: self.now,
        });
        self.flows.len() - 1
    }

    /// Makes a flow pace from its start.
    pub(super) fn pace(&mut self, flow: usize) {
        self.flows[flow].paces = true;
    }

    pub(super) fn lost(&self) -> f64 {
        self.flows.iter().map(|flow| flow.lost).sum()
    }

    /// Runs for `seconds`, and returns the rate of each flow over that time.
    pub(super) fn run(&mut self, seconds: f64) -> Vec<f64> {
        let before: Vec<f64> = self.flows.iter().map(|flow| flow.acked).collect();
        let end = self.now + seconds;
        while self.now < end {
            self.step();
            self.look();
        }
        let rates = self.flows.iter().zip(before);
        rates
            .map(|(flow, before)| (flow.acked - before) / seconds)
            .collect()
    }

    fn step(&mut self) {
        self.now += STEP;
        let (now, count) = (self.now, self.flows.len());
        let first = (now / STEP) as usize;
        for turn in 0..count {
            let index = (first + turn) % count;
            let rtt_noise = match self.rtt_noise {
                0.0 => 0.0,
                deviation => (deviation * (3.0 + self.noise.normal())).max(0.0),
            };
            let sent = self.flows[index].send(now, rtt_noise);
            if sent > 0.0 {
                let room = (self.queue_limit + self.capacity * STEP - self.queued).max(0.0);
                let fits = sent.min(room);
                self.queue.push_back((index, fits, now));
                self.queued += fits;
                self.flows[index].lose(sent - fits);
            }
        }
        self.serve();
    }

    fn serve(&mut self) {
        let mut left = self.capacity * STEP;
        let mut out = vec![(0.0, 0.0); self.flows.len()];
        while left > 0.0
            && let Some((flow, bytes, came)) = self.queue.front_mut()
        {
            let part = bytes.min(left);
            out[*flow].0 += part;
            out[*flow].1 = self.now - *came;
            let sojourn = self.now - *came;
            let flow = *flow;
            *bytes -= part;
            left -= part;
            self.queued -= part;
            let is_over = *bytes <= 1e-9;
            if is_over {
                self.queue.pop_front();
            }
            if self
                .codel
                .as_mut()
                .is_some_and(|codel| codel.drops(self.now, sojourn))
            {
                let drop = out[flow].0.min(MSS);
                out[flow].0 -= drop;
                self.flows[flow].lose(drop);
            }
        }
        let jitter = self.jitter;
        let delay: f64 = self
            .delays
            .iter_mut()
            .map(|delay| delay.next(self.now, jitter, &mut self.noise))
            .sum();
        for (flow, (bytes, waited)) in self.flows.iter_mut().zip(out) {
            let rtt = self.rtt + delay + waited + self.foreign / self.capacity;
            let last = flow.returning.back().map_or(0.0, |last| last.at);
            let may_reorder = self.reordering > 0.0 && bytes > 0.0;
            flow.returning.push_back(Returning {
                at: (self.now + self.rtt + delay).max(last),
                bytes,
                rtt,
                lost: std::mem::take(&mut flow.lost_now),
                is_reordered: may_reorder && self.noise.uniform() < self.reordering * bytes / MSS,
            });
        }
    }

    /// Samples all sockets of every sender at once, as the thread does, as often as one of them
    /// needs.
    fn look(&mut self) {
        let now = self.now;
        let due = |flow: &Flow| flow.fit.is_some() && !flow.is_gone && now >= flow.next_look;
        if !self.flows.iter().any(due) {
            return;
        }
        let looked = self.flows.iter().filter(|flow| !flow.is_gone);
        let looked = looked.filter_map(|flow| Some((flow.fit.as_ref()?, flow.sample(now))));
        let looked: Vec<_> = looked.collect();
        let siblings = Siblings::gather(looked.iter().map(|(fit, sample)| (*fit, sample)));
        for flow in self.flows.iter_mut().filter(|flow| !flow.is_gone) {
            let sample = flow.sample(now);
            let Some(fit) = &mut flow.fit else { continue };
            match fit.observe(&sample, &siblings) {
                None => {}
                Some(PacingLimit::Unlimited) => flow.limit = None,
                Some(PacingLimit::Rate(rate)) => {
                    (flow.limit, flow.paces) = (Some(rate as f64), true);
                }
            }
            flow.next_look = now + fit.sample_period().as_secs_f64() + TIMER_SLACK;
        }
    }
}

impl Flow {
    pub(super) fn fitted_rate(&self) -> Option<f64> {
        match self.fit.as_ref()?.state() {
            crate::FitState::Fitted(rate) => Some(rate as f64),
            _ => None,
        }
    }

    pub(super) fn limit(&self) -> Option<f64> {
        self.limit
    }

    /// Makes the program late for a moment, which the kernel notes with the delivery rate for a
    /// round trip.
    pub(super) fn hesitate(&mut self, now: f64) {
        self.app_limited_until = now + self.srtt;
    }

    fn lose(&mut self, bytes: f64) {
        self.lost_now += bytes;
    }

    /// Takes the acknowledgements of this step, and returns the bytes sent on them.
    fn send(&mut self, now: f64, rtt_noise: f64) -> f64 {
        self.receive(now, rtt_noise);
        if self.is_gone || now < self.begins {
            return 0.0;
        }
        match self.source {
            Some(source) => self.unsent = (self.unsent + source * STEP).min(64e6),
            None => self.unsent = 64e6,
        }
        let flight = self.sent - self.acked - self.lost;
        let mut rate = self.line;
        if self.paces {
            let gain = if self.window < self.threshold / 2.0 {
                2.0
            } else {
                1.2
            };
            rate = rate.min(gain * self.window / self.srtt);
        }
        rate = self.limit.map_or(rate, |limit| rate.min(limit));
        let may = (self.window - flight).max(0.0).min(rate * STEP);
        let sent = may.min(self.unsent);
        self.unsent -= sent;
        if self.unsent < MSS && flight + sent + MSS < self.window {
            self.app_limited_until = now + self.srtt;
        }
        self.sent += sent;
        sent
    }

    fn receive(&mut self, now: f64, rtt_noise: f64) {
        let (mut arrived, mut lost, mut rtt) = (0.0, 0.0, self.srtt);
        while let Some(back) = self.returning.front().filter(|back| back.at <= now) {
            (arrived, lost) = (arrived + back.bytes, lost + back.lost);
            rtt = if back.bytes > 0.0 { back.rtt } else { rtt };
            if back.is_reordered {
                self.reorder(now);
            }
            self.returning.pop_front();
        }
        self.undo(now);
        if arrived > 0.0 {
            let rtt = rtt + rtt_noise;
            self.min_rtt = self.min_rtt.min(rtt);
            let error = rtt - self.srtt;
            self.srtt += error / 8.0;
            let mut deviation = error.abs() - self.deviation;
            if error < 0.0 && deviation > 0.0 {
                deviation /= 8.0;
            }
            self.deviation += deviation / 4.0;
        }
        let was_limited = self.sent - self.acked - self.lost > self.window / 2.0;
        self.acked += arrived;
        self.lately_sum += arrived - self.lately.pop_front().unwrap_or_default();
        self.lately.push_back(arrived);
        let rate = self.lately_sum / (self.lately.len() as f64 * STEP);
        if now >= self.app_limited_until || rate > self.delivery_rate {
            self.delivery_rate = rate;
        }
        if lost > 0.0 {
            self.lost += lost;
            if now > self.cut.1 + self.srtt {
                self.cut = (self.window, now);
                self.window = (self.window * if self.is_reno { 0.5 } else { 0.7 }).max(2.0 * MSS);
                self.threshold = self.window;
            }
        } else if was_limited && self.window < self.threshold {
            self.window += arrived;
        } else if was_limited {
            // CUBIC (RFC 9438), never slower than Reno.
            let (before, at) = self.cut;
            let lasted = now - at;
            let k = (before * 0.3 / (0.4 * MSS)).cbrt();
            let cubic = before + 0.4 * MSS * (lasted - k).powi(3);
            let reno = self.window + MSS * arrived / self.window;
            self.window = if self.is_reno {
                reno
            } else {
                reno.max(cubic.min(self.window + arrived / 2.0))
            };
        }
    }

    /// Delays a segment. The first time it is retransmitted, and the window is cut.
    fn reorder(&mut self, now: f64) {
        if !self.has_seen_reordering {
            self.has_seen_reordering = true;
            self.spurious += 1.0;
            self.undo = Some((now + REORDERED_BY, self.window, self.threshold));
            self.window /= 2.0;
            self.threshold = self.window;
        }
    }

    /// Takes a cut back: the segment arrived, and its timestamp shows that it was not lost (RFC
    /// 3522).
    fn undo(&mut self, now: f64) {
        if let Some((_, window, threshold)) = self.undo.take_if(|(at, ..)| now >= *at) {
            (self.window, self.threshold) = (self.window.max(window), threshold);
        }
    }

    pub(super) fn sample(&self, now: f64) -> FitSample {
        let time = |seconds: f64| Duration::from_secs_f64(seconds.clamp(0.0, 1e6));
        FitSample {
            at: time(now - self.begins),
            delivered: self.acked as u64,
            rtt: time(self.srtt),
            rtt_deviation: time(self.deviation),
            min_rtt: time(self.min_rtt),
            mss: MSS as u64,
            congestion_window: self.window as u64,
            in_flight: (self.sent - self.acked - self.lost).max(0.0) as u64,
            unsent: self.unsent as u64,
            delivery_rate: self.delivery_rate as u64,
            app_limited: now < self.app_limited_until,
            busy: None,
            receive_window_limited: None,
            send_buffer_limited: None,
            retransmits: (self.lost / MSS + self.spurious) as u64,
        }
    }
}

impl CoDel {
    fn drops(&mut self, now: f64, sojourn: f64) -> bool {
        if sojourn < CODEL_TARGET {
            (self.above_since, self.drops) = (None, 0.0);
            return false;
        }
        let since = *self.above_since.get_or_insert(now);
        if now < since + CODEL_INTERVAL || now < self.next_drop {
            return false;
        }
        self.drops += 1.0;
        self.next_drop = now + CODEL_INTERVAL / self.drops.sqrt();
        true
    }
}

/// A varying delay that keeps the order: points drawn from a normal distribution that is truncated
/// at two deviations, with straight lines between.
#[derive(Clone, Copy, Default)]
struct InOrderJitter {
    from: f64,
    to: f64,
    /// Time of the point `to`.
    until: f64,
}

impl InOrderJitter {
    fn next(&mut self, now: f64, deviation: f64, noise: &mut Noise) -> f64 {
        if deviation == 0.0 {
            return 0.0;
        }
        let span = JITTER_CORRELATION * deviation;
        while self.until <= now {
            let drawn = std::iter::repeat_with(|| noise.normal()).find(|drawn| drawn.abs() <= 2.0);
            // Compensates for the deviation that truncation and the lines take off.
            self.from = std::mem::replace(&mut self.to, 1.392 * deviation * drawn.unwrap_or(0.0));
            self.until = self.until.max(now - span) + span;
        }
        self.to + (self.from - self.to) * (self.until - now) / span
    }
}

/// Noise that is the same in every run: xorshift64 (Marsaglia, 2003).
struct Noise(u64);

impl Default for Noise {
    fn default() -> Self {
        Self(0x9e37_79b9_7f4a_7c15)
    }
}

impl Noise {
    /// Returns a nearly normally distributed number: the sum of twelve uniform ones, minus six.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }

    fn uniform(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}
