use std::collections::VecDeque;

use super::*;

const MSS: f64 = 8948.0;
/// Seconds of one step of the model.
const STEP: f64 = 1e-4;

/// A path with one bottleneck, and a sender in slow start, as a fluid. Rates in bytes a second.
struct Path {
    capacity: f64,
    line: f64,
    rtt: f64,
    queue_limit: f64,
    paces: bool,
    now: f64,
    queue: f64,
    /// What others keep in the queue.
    foreign: f64,
    window: f64,
    sent: f64,
    acked: f64,
    /// What left the bottleneck in each step, on its way back as acknowledgements.
    returning: VecDeque<f64>,
    /// The round-trip times that these carry.
    rtts: VecDeque<f64>,
    srtt: f64,
    lost: f64,
    delivered_lately: VecDeque<f64>,
}

impl Path {
    fn new(capacity: f64, rtt: f64, queue_limit: f64) -> Self {
        let steps = (rtt / STEP) as usize;
        Self {
            capacity,
            line: capacity * 4.0,
            rtt,
            queue_limit,
            paces: false,
            now: 0.0,
            queue: 0.0,
            foreign: 0.0,
            window: 10.0 * MSS,
            sent: 0.0,
            acked: 0.0,
            returning: VecDeque::from(vec![0.0; steps]),
            rtts: VecDeque::from(vec![rtt; steps]),
            srtt: rtt,
            lost: 0.0,
            delivered_lately: VecDeque::from(vec![0.0; steps]),
        }
    }

    fn step(&mut self, cap: Option<u64>) {
        let arrived = self.returning.pop_front().unwrap();
        let rtt = self.rtts.pop_front().unwrap();
        if arrived > 0.0 {
            self.srtt += (rtt - self.srtt) / 16.0;
        }
        self.acked += arrived;
        self.delivered_lately.pop_front();
        self.delivered_lately.push_back(arrived);
        let flight = self.sent - self.acked - self.lost;
        if flight * 2.0 > self.window {
            self.window += arrived;
        }
        let mut rate = self.line;
        if self.paces || cap.is_some() {
            rate = rate.min(2.0 * self.window / self.srtt);
        }
        if let Some(cap) = cap {
            rate = rate.min(cap as f64);
        }
        let send = (self.window - flight).max(0.0).min(rate * STEP);
        self.sent += send;
        let waiting = self.queue + send;
        let out = waiting.min(self.capacity * STEP);
        self.queue = waiting - out;
        if self.queue > self.queue_limit {
            self.lost += self.queue - self.queue_limit;
            self.queue = self.queue_limit;
        }
        self.returning.push_back(out);
        self.rtts
            .push_back(self.rtt + (self.queue + self.foreign) / self.capacity);
        self.now += STEP;
    }

    fn look(&self) -> Look {
        let lately: f64 = self.delivered_lately.iter().sum();
        Look {
            at: Duration::from_secs_f64(self.now),
            acked: self.acked as u64,
            rtt: Duration::from_secs_f64(self.srtt),
            min_rtt: Duration::from_secs_f64(self.rtt),
            mss: MSS as u64,
            window: self.window as u64,
            delivery: (lately / self.rtt) as u64,
            retransmits: (self.lost / MSS) as u64,
        }
    }

    /// Runs for `seconds`; bytes acknowledged in the last ten.
    fn run(&mut self, seconds: f64, mut cruise: Option<&mut Cruise>) -> f64 {
        let (mut cap, mut next, mut before) = (None, 0.0, 0.0);
        let end = self.now + seconds;
        while self.now < end {
            self.step(cap);
            if self.now < end - 10.0 {
                before = self.acked;
            }
            if let Some(cruise) = cruise.as_deref_mut().filter(|_| self.now >= next) {
                cap = cruise.observe(&self.look()).or(cap);
                // Timers are late.
                next = self.now + cruise.pause().as_secs_f64() + 2e-4;
            }
        }
        self.acked - before
    }
}

/// 2.4 Gbit/s over 180 ms with a queue of 4 MB.
fn record_path() -> Path {
    Path::new(298.3e6, 0.18, 4.0 * 1024.0 * 1024.0)
}

#[test]
fn left_to_itself_slow_start_overflows_the_queue() {
    let mut path = record_path();
    path.run(3.0, None);
    assert!(path.lost > 0.0);
}

#[test]
fn the_record_path_is_filled_without_a_loss() {
    let mut path = record_path();
    let mut cruise = Cruise::default();
    let lately = path.run(30.0, Some(&mut cruise));
    assert_eq!(path.lost, 0.0);
    assert!(
        lately > 0.98 * 10.0 * path.capacity,
        "{}",
        lately / 10.0 / path.capacity
    );
}

#[test]
fn paths_of_other_sizes_are_filled_without_a_loss() {
    for (capacity, rtt, queue) in [(20e6, 0.1, 0.2), (120e6, 0.06, 0.3), (120e6, 0.3, 0.1)] {
        let mut path = Path::new(capacity, rtt, queue * capacity * rtt);
        let lately = path.run(60.0, Some(&mut Cruise::default()));
        assert_eq!(path.lost, 0.0, "{capacity} {rtt} {queue}");
        assert!(lately > 0.97 * 10.0 * capacity, "{capacity} {rtt}: {lately}");
    }
}

#[test]
fn a_sender_that_paces_is_not_taken_for_the_path() {
    let mut path = record_path();
    path.paces = true;
    path.queue_limit = f64::INFINITY;
    let mut cruise = Cruise::default();
    path.run(1.2, Some(&mut cruise));
    assert!(path.window < 0.4 * path.capacity * path.rtt);
    assert_eq!(cruise.cap, None, "its slope is its own");
}

#[test]
fn a_short_path_is_left_alone() {
    let mut path = Path::new(120e6, 0.002, 1e5);
    let mut cruise = Cruise::default();
    path.run(11.0, Some(&mut cruise));
    assert_eq!(cruise.cap, None);
}

#[test]
fn a_queue_that_others_fill_ends_the_holding_back() {
    let mut path = record_path();
    let mut cruise = Cruise::default();
    path.run(10.0, Some(&mut cruise));
    assert!(!cruise.released);
    let cap = cruise.cap.unwrap();
    path.foreign = path.queue_limit / 2.0;
    path.run(10.0, Some(&mut cruise));
    assert!(cruise.released && cruise.cap == Some(f64::INFINITY), "{cap}");
}

#[test]
fn a_path_that_narrows_is_followed() {
    let mut path = record_path();
    let mut cruise = Cruise::default();
    path.run(20.0, Some(&mut cruise));
    path.capacity /= 2.0;
    path.queue_limit = f64::INFINITY;
    path.run(30.0, Some(&mut cruise));
    let cap = cruise.cap.unwrap();
    assert!(
        (0.9..1.05).contains(&(cap / path.capacity)),
        "{}",
        cap / path.capacity
    );
}
