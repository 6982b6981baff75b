//! Number of requests in flight at a store. It is pure.
//!
//! It begins at [`INITIAL_REQUESTS`] and doubles while the store then completes clearly more
//! requests in the same time. A store whose answers take long needs many requests in flight for
//! small objects; one that is limited by the network, or by itself, gains nothing from more. If the
//! store says that it is overloaded, the number is halved and then raised step by step.
//!
//! Nothing is concluded from times in which fewer requests were under way than allowed, nor from
//! the time after a change in which new connections are set up.

use std::time::Duration;

/// Requests in flight at first.
pub(crate) const INITIAL_REQUESTS: usize = 32;
/// Maximum number of requests in flight.
pub(crate) const MAX_REQUESTS: usize = 256;
/// Minimum number of requests in flight at an overloaded store.
const MIN_REQUESTS: usize = 4;
/// Ratio of the rates after and before a doubling that justifies it.
const MIN_GAIN: f64 = 1.25;
/// Share of the former rate below which the number is reconsidered.
const MIN_REMAINING_RATE: f64 = 0.5;
/// Time after a change that is not measured, in durations of the shortest request: those of a
/// connection with TCP and TLS, and the first answer on it.
const SETTLING_TIMES: u32 = 4;
/// Minimum duration of a measurement, in the same unit.
const MEASURING_TIMES: u32 = 4;
/// Minimum share of requests that end while others wait, in percent. With fewer, the number of
/// requests does not limit the rate.
const MIN_WAITING_PERCENT: usize = 80;
/// Pause before the next doubling after one without a gain. It doubles each time. The first is
/// short, as connections that are slow to be set up may hide a gain.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
const MAX_PAUSE: Duration = Duration::from_secs(480);
/// Time after an overload in which further ones do not count: they are of requests that were under
/// way.
const COOL_DOWN: Duration = Duration::from_secs(1);
/// Interval of the steps after an overload.
const STEP_INTERVAL: Duration = Duration::from_secs(2);
/// Size of a step, and distance to the number that was too high, as a fraction of the number.
const STEP_FRACTION: usize = 8;

/// Limit on the requests in flight, which follows what the store does. Times are those since any
/// fixed moment.
#[derive(Debug)]
pub(crate) struct AdaptiveLimit {
    limit: usize,
    max: usize,
    phase: Phase,
    /// Shortest request so far.
    shortest: Option<Duration>,
    measurement: Measurement,
    pause: Duration,
    cools_down_at: Duration,
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    /// The limit doubles. `before` is the limit before the last doubling, and its rate.
    Growing { before: Option<(usize, f64)> },
    /// The limit is halved while that costs nothing. `before` is the limit before the last halving,
    /// and its rate.
    Shrinking { before: (usize, f64) },
    /// The limit stays until something changes, or until it is tried again whether more helps.
    Steady { rate: Option<f64>, until: Duration },
    /// After an overload, the limit rises to `target`. The next step is due at `step_at`.
    Recovering { target: usize, step_at: Duration },
}

/// Requests that ended at one limit.
#[derive(Debug, Default)]
struct Measurement {
    settles_at: Duration,
    /// Moment of the first one that counts.
    since: Option<Duration>,
    ended: usize,
    /// Those that ended while others waited.
    ended_waiting: usize,
}

impl AdaptiveLimit {
    /// Creates a limit of at most `max`.
    pub(crate) fn new(max: usize) -> Self {
        let max = max.clamp(1, MAX_REQUESTS);
        Self {
            limit: INITIAL_REQUESTS.min(max),
            max,
            phase: Phase::Growing { before: None },
            shortest: None,
            measurement: Measurement::default(),
            pause: FIRST_PAUSE,
            cools_down_at: Duration::ZERO,
        }
    }

    /// Returns the maximum number of requests in flight now.
    pub(crate) const fn limit(&self) -> usize {
        self.limit
    }

    /// Notes that a request ended after `took`. `is_waiting` is true if another one waits for the
    /// limit.
    pub(crate) fn request_ended(&mut self, now: Duration, took: Duration, is_waiting: bool) {
        let shortest = self.shortest.map_or(took, |shortest| shortest.min(took));
        self.shortest = Some(shortest);
        if let Phase::Recovering { target, step_at } = self.phase {
            return self.recover(now, target, step_at);
        }
        if now < self.measurement.settles_at {
            return;
        }
        let Some(since) = self.measurement.since else {
            self.measurement.since = Some(now);
            return;
        };
        self.measurement.ended += 1;
        self.measurement.ended_waiting += usize::from(is_waiting);
        let elapsed = now.saturating_sub(since);
        let Measurement {
            ended,
            ended_waiting,
            ..
        } = self.measurement;
        if elapsed.is_zero() || elapsed < shortest * MEASURING_TIMES || ended < self.limit {
            return;
        }
        if ended_waiting * 100 < ended * MIN_WAITING_PERCENT {
            self.measure_from(now);
            return;
        }
        self.measured(now, ended as f64 / elapsed.as_secs_f64());
    }

    /// Notes that the store refused a request because of its load, or did not answer in time.
    pub(crate) fn overloaded(&mut self, now: Duration) {
        if now < self.cools_down_at {
            return;
        }
        let target = self.limit - self.limit / STEP_FRACTION;
        let least = MIN_REQUESTS.min(self.max);
        self.set(now, (self.limit / 2).max(least));
        let settling = self.shortest.unwrap_or_default() * SETTLING_TIMES;
        self.cools_down_at = now + settling.max(COOL_DOWN);
        self.phase = Phase::Recovering {
            target: target.max(least),
            step_at: now + STEP_INTERVAL,
        };
    }

    /// Takes a step after an overload, if it is due.
    fn recover(&mut self, now: Duration, target: usize, step_at: Duration) {
        if now < step_at {
            return;
        }
        let step = (self.limit / STEP_FRACTION).max(1);
        self.set(now, (self.limit + step).min(target));
        self.phase = match self.limit < target {
            true => Phase::Recovering {
                target,
                step_at: now + STEP_INTERVAL,
            },
            false => self.steady(now, None),
        };
    }

    /// Decides what follows from a rate in requests per second.
    fn measured(&mut self, now: Duration, rate: f64) {
        match self.phase {
            Phase::Growing {
                before: Some((limit, former)),
            } if rate < MIN_GAIN * former => {
                self.set(now, limit);
                self.phase = self.steady(now, Some(former));
            }
            Phase::Growing { .. } => self.grow(now, rate),
            Phase::Steady {
                rate: Some(former), ..
            } if rate < MIN_REMAINING_RATE * former => self.shrink(now, rate),
            Phase::Shrinking {
                before: (limit, former),
            } if rate * MIN_GAIN < former => {
                self.set(now, limit);
                self.phase = self.steady(now, Some(former));
            }
            Phase::Shrinking { .. } => self.shrink(now, rate),
            Phase::Steady { until, .. } if now >= until => self.grow(now, rate),
            Phase::Steady {
                until,
                rate: former,
            } => {
                let rate = former.map_or(rate, |former| (3.0 * former + rate) / 4.0);
                let rate = Some(rate);
                self.phase = Phase::Steady { rate, until };
                self.measure_from(now);
            }
            Phase::Recovering { .. } => {}
        }
    }

    /// Doubles the limit, if it is not at its maximum.
    fn grow(&mut self, now: Duration, rate: f64) {
        let limit = self.limit;
        if limit == self.max {
            self.phase = self.steady(now, Some(rate));
            self.measure_from(now);
            return;
        }
        self.set(now, limit.saturating_mul(2).min(self.max));
        self.phase = Phase::Growing {
            before: Some((limit, rate)),
        };
    }

    /// Halves the limit, if it is above the first one.
    fn shrink(&mut self, now: Duration, rate: f64) {
        let limit = self.limit;
        if limit <= INITIAL_REQUESTS {
            self.phase = self.steady(now, Some(rate));
            self.measure_from(now);
            return;
        }
        self.set(now, (limit / 2).max(INITIAL_REQUESTS));
        self.phase = Phase::Shrinking {
            before: (limit, rate),
        };
    }

    /// Returns the phase in which the limit stays for a pause, and doubles the next pause.
    fn steady(&mut self, now: Duration, rate: Option<f64>) -> Phase {
        let until = now + self.pause;
        self.pause = (self.pause * 2).min(MAX_PAUSE);
        Phase::Steady { rate, until }
    }

    /// Sets the limit, and measures again once requests at it have settled.
    fn set(&mut self, now: Duration, limit: usize) {
        self.limit = limit;
        let settling = self.shortest.unwrap_or_default() * SETTLING_TIMES;
        self.measurement = Measurement {
            settles_at: now + settling,
            ..Measurement::default()
        };
    }

    fn measure_from(&mut self, now: Duration) {
        self.measurement = Measurement {
            since: Some(now),
            ..Measurement::default()
        };
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    use proptest::prelude::*;

    use super::*;

    /// A store, in virtual time.
    #[derive(Debug, Clone, Copy)]
    struct StoreModel {
        /// Time of an answer, and of a connection in addition, in microseconds.
        answer: u64,
        connecting: u64,
        /// Requests per second that it completes at most.
        capacity: u64,
        /// Requests in flight above which it refuses.
        most: usize,
    }

    const FAR: StoreModel = StoreModel {
        answer: 100_000,
        connecting: 300_000,
        capacity: 100_000,
        most: 1000,
    };

    /// A copy of small objects.
    struct Run {
        limit: AdaptiveLimit,
        now: u64,
        /// When a connection is free again, and when its request began.
        in_flight: BinaryHeap<Reverse<(u64, u64)>>,
        /// Connections that exist.
        connections: usize,
        /// Moment until which the store is busy with the requests so far, in nanoseconds.
        busy_until: u64,
        refused: u64,
    }

    impl Run {
        fn new(max: usize) -> Self {
            Self {
                limit: AdaptiveLimit::new(max),
                now: 0,
                in_flight: BinaryHeap::new(),
                connections: 0,
                busy_until: 0,
                refused: 0,
            }
        }

        fn begin(&mut self, store: StoreModel) {
            let is_new = self.in_flight.len() >= self.connections;
            self.connections += usize::from(is_new);
            let connected = self.now + if is_new { store.connecting } else { 0 };
            self.busy_until =
                self.busy_until.max(connected * 1000) + 1_000_000_000 / store.capacity;
            let mut end = (connected + store.answer).max(self.busy_until / 1000);
            if self.in_flight.len() >= store.most {
                self.refused += 1;
                self.limit.overloaded(Duration::from_micros(self.now));
                end += 500_000;
            }
            self.in_flight.push(Reverse((end, self.now)));
        }

        /// Copies `objects`. Returns the seconds that this takes.
        fn copy(&mut self, store: StoreModel, objects: u64) -> f64 {
            let (began, mut left) = (self.now, objects);
            while left > 0 || !self.in_flight.is_empty() {
                while left > 0 && self.in_flight.len() < self.limit.limit() {
                    self.begin(store);
                    left -= 1;
                }
                let Some(Reverse((end, start))) = self.in_flight.pop() else {
                    break;
                };
                self.now = self.now.max(end);
                let took = Duration::from_micros(self.now - start);
                let now = Duration::from_micros(self.now);
                self.limit.request_ended(now, took, left > 0);
            }
            (self.now - began) as f64 / 1e6
        }
    }

    #[test]
    fn far_store_gets_many_requests() {
        let mut run = Run::new(MAX_REQUESTS);
        let seconds = run.copy(FAR, 5000);
        assert_eq!(run.limit.limit(), MAX_REQUESTS);
        // 32 at a time would take 15.9 s, 256 from the start 2.3 s.
        assert!(seconds < 5.0, "{seconds}");
    }

    #[test]
    fn store_at_its_capacity_gets_few_requests() {
        let mut run = Run::new(MAX_REQUESTS);
        let store = StoreModel {
            capacity: 330,
            ..FAR
        };
        run.copy(store, 5000);
        assert!(run.limit.limit() <= 2 * INITIAL_REQUESTS, "{:?}", run.limit);
        let store = StoreModel {
            capacity: 800,
            ..FAR
        };
        run.copy(store, 100_000);
        assert!((64..=128).contains(&run.limit.limit()), "{:?}", run.limit);
    }

    #[test]
    fn overloaded_store_is_relieved() {
        let mut run = Run::new(MAX_REQUESTS);
        let store = StoreModel { most: 100, ..FAR };
        run.copy(store, 100_000);
        let limit = run.limit.limit();
        assert!((32..100).contains(&limit), "{limit}");
        let before = run.refused;
        run.copy(store, 100_000);
        assert!(run.refused - before < 100, "{}", run.refused);
    }

    #[test]
    fn one_overload_is_counted_once() {
        let mut limit = AdaptiveLimit::new(MAX_REQUESTS);
        let at = Duration::from_millis;
        for ms in 0..30 {
            limit.overloaded(at(ms));
        }
        assert_eq!(limit.limit(), 16);
        limit.overloaded(at(1500));
        assert_eq!(limit.limit(), 8);
        for seconds in 2..20 {
            limit.overloaded(at(seconds * 2000));
        }
        assert_eq!(limit.limit(), MIN_REQUESTS);
        // It recovers, but not up to what was too much.
        for seconds in 40..400 {
            limit.request_ended(at(seconds * 1000), at(100), true);
        }
        assert_eq!(limit.limit(), MIN_REQUESTS);
    }

    #[test]
    fn limit_recovers_after_an_overload() {
        let mut run = Run::new(MAX_REQUESTS);
        run.copy(FAR, 20_000);
        run.limit.overloaded(Duration::from_micros(run.now));
        assert_eq!(run.limit.limit(), MAX_REQUESTS / 2);
        run.copy(FAR, 100_000);
        assert!(run.limit.limit() >= MAX_REQUESTS - MAX_REQUESTS / STEP_FRACTION);
    }

    #[test]
    fn falling_rate_is_followed() {
        let mut run = Run::new(MAX_REQUESTS);
        run.copy(FAR, 20_000);
        assert_eq!(run.limit.limit(), MAX_REQUESTS);
        let slow = StoreModel {
            capacity: 100,
            ..FAR
        };
        run.copy(slow, 5000);
        assert!(run.limit.limit() <= 64, "{:?}", run.limit);
        run.copy(FAR, 200_000);
        assert_eq!(run.limit.limit(), MAX_REQUESTS);
    }

    #[test]
    fn nothing_grows_while_nothing_waits() {
        let mut limit = AdaptiveLimit::new(MAX_REQUESTS);
        for ms in 0..100_000 {
            limit.request_ended(Duration::from_millis(ms), Duration::from_millis(20), false);
        }
        assert_eq!(limit.limit(), INITIAL_REQUESTS);
    }

    proptest! {
        /// Whatever the store does, the limit stays within its bounds.
        #[test]
        fn limit_is_bounded(
            answer in 1_000_u64..300_000, connecting in 0_u64..900_000,
            capacity in 20_u64..20_000, most in 4_usize..400, max in 1_usize..300,
            objects in 1_u64..20_000,
        ) {
            let store = StoreModel { answer, connecting, capacity, most };
            let mut run = Run::new(max);
            run.copy(store, objects);
            prop_assert!((1..=MAX_REQUESTS.min(max)).contains(&run.limit.limit()));
        }

        /// A copy of which nothing is refused takes no longer than with the first number, besides
        /// the connections that it sets up.
        #[test]
        fn more_requests_cost_nothing(
            answer in 1_000_u64..300_000, setting_up in 0_u64..4,
            capacity in 20_u64..20_000, objects in 1_u64..20_000,
        ) {
            let connecting = setting_up * answer;
            let store = StoreModel { answer, connecting, capacity, most: MAX_REQUESTS };
            let fixed = Run::new(INITIAL_REQUESTS).copy(store, objects);
            let adaptive = Run::new(MAX_REQUESTS).copy(store, objects);
            let connections = 3.0 * (answer + connecting) as f64 / 1e6;
            prop_assert!(adaptive < 1.01 * fixed + connections, "{} {}", adaptive, fixed);
        }
    }
}
