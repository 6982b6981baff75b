//! Flows that share one bottleneck, in virtual time.

use std::{collections::VecDeque, time::Duration};

use crate::{
    flow::Flow,
    link::{Link, PAYLOAD_BYTES, Packet, Queue, Random},
};

/// Time between two checks of the timeouts.
const TIMER: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug)]
enum Event {
    /// The bottleneck has sent a packet.
    Sent,
    /// An acknowledgement arrives.
    Acked,
    /// A flow may send.
    Departure(usize),
    /// Timeouts are checked.
    Timer,
}

pub struct Network {
    pub link: Link,
    pub flows: Vec<Flow>,
    pub now: Duration,
    queue: Queue,
    random: Random,
    /// Time at which the bottleneck has sent its packet. `None` if it is idle.
    sent_at: Option<Duration>,
    /// Acknowledgements on their way, in order.
    acks: VecDeque<(Duration, Packet)>,
    /// Time at which each flow sends next.
    departures: Vec<Option<Duration>>,
    timer_at: Duration,
}

impl Network {
    pub fn new(link: Link, seed: u64) -> Self {
        Self {
            link,
            flows: Vec::new(),
            now: Duration::ZERO,
            queue: Queue::default(),
            random: Random(seed),
            sent_at: None,
            acks: VecDeque::new(),
            departures: Vec::new(),
            timer_at: Duration::ZERO,
        }
    }

    /// Returns a network with one flow of the controller under test.
    pub fn with_one_flow(link: Link, seed: u64) -> Self {
        let mut network = Self::new(link, seed);
        network.add(Flow::longhaul(seed, Duration::ZERO));
        network
    }

    pub fn add(&mut self, flow: Flow) {
        self.flows.push(flow);
        self.departures.push(None);
        self.wake(self.flows.len() - 1);
    }

    /// Lets a flow send after its supply or its window changed.
    pub fn wake(&mut self, flow: usize) {
        self.departures[flow] = self.flows[flow].next_departure(self.now);
    }

    /// Runs until a time.
    pub fn run_until(&mut self, end: Duration) {
        loop {
            let next = self.next_event();
            if next.0 > end {
                break;
            }
            self.step(next);
        }
        self.now = end;
    }

    /// Runs until a flow has delivered some payload. Returns the time that took, in seconds.
    pub fn run_until_delivered(&mut self, flow: usize, payload_bytes: u64) -> f64 {
        let began_at = self.now;
        let packets = self.flows[flow].delivered + payload_bytes.div_ceil(PAYLOAD_BYTES);
        while self.flows[flow].delivered < packets {
            self.step(self.next_event());
            assert!(
                self.now - began_at < Duration::from_secs(3600),
                "the flow stalls"
            );
        }
        (self.now - began_at).as_secs_f64()
    }

    /// Runs for a time, and returns the payload rate of each flow in bits per second.
    pub fn measure(&mut self, time: Duration) -> Vec<f64> {
        let before: Vec<u64> = self.flows.iter().map(|flow| flow.delivered).collect();
        self.run_until(self.now + time);
        let seconds = time.as_secs_f64();
        let flows = self.flows.iter().zip(before);
        flows
            .map(|(flow, before)| ((flow.delivered - before) * PAYLOAD_BYTES * 8) as f64 / seconds)
            .collect()
    }

    fn next_event(&self) -> (Duration, Event) {
        let mut next = (self.timer_at, Event::Timer);
        if let Some(at) = self.sent_at.filter(|at| *at < next.0) {
            next = (at, Event::Sent);
        }
        if let Some((at, _)) = self.acks.front().filter(|(at, _)| *at < next.0) {
            next = (*at, Event::Acked);
        }
        for (flow, at) in self.departures.iter().enumerate() {
            if let Some(at) = at.filter(|at| *at < next.0) {
                next = (at, Event::Departure(flow));
            }
        }
        next
    }

    fn step(&mut self, (at, event): (Duration, Event)) {
        self.now = at;
        match event {
            Event::Sent => self.on_sent(),
            Event::Acked => {
                if let Some((_, packet)) = self.acks.pop_front() {
                    self.flows[packet.flow].on_ack(packet.number, at);
                    self.wake(packet.flow);
                }
            }
            Event::Departure(flow) => self.depart(flow),
            Event::Timer => {
                self.timer_at = at + TIMER;
                for flow in 0..self.flows.len() {
                    if self.flows[flow]
                        .timeout()
                        .is_some_and(|timeout| timeout <= at)
                    {
                        self.flows[flow].on_timeout(at);
                        self.wake(flow);
                    }
                }
            }
        }
    }

    fn depart(&mut self, flow: usize) {
        while self.flows[flow].next_departure(self.now) == Some(self.now) {
            let number = self.flows[flow].send(self.now);
            let is_lost = self.link.loss > 0.0 && self.random.next() < self.link.loss;
            if !is_lost && self.queue.push(Packet { flow, number }, &self.link) {
                self.sent_at = Some(self.now + self.link.packet_time());
            }
        }
        self.wake(flow);
    }

    fn on_sent(&mut self) {
        let Some((packet, more)) = self.queue.pop() else {
            return;
        };
        self.sent_at = more.then(|| self.now + self.link.packet_time());
        if self.link.late_loss > 0.0 && self.random.next() < self.link.late_loss {
            return;
        }
        let jitter = self.link.jitter.mul_f64(self.random.next());
        let last = self.acks.back().map_or(Duration::ZERO, |(at, _)| *at);
        let mut at = (self.now + self.link.round_trip + jitter).max(last);
        if !self.link.ack_interval.is_zero() {
            let bursts = at.as_nanos().div_ceil(self.link.ack_interval.as_nanos());
            at = self.link.ack_interval * bursts as u32;
        }
        self.acks.push_back((at, packet));
    }
}
