//! Flows that share one bottleneck, in virtual time.

use std::{cmp::Reverse, collections::BinaryHeap, time::Duration};

use crate::{
    flow::Flow,
    link::{Link, PAYLOAD_BYTES, Packet, Queue, Random},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The bottleneck has sent a packet.
    Sent,
    Acked {
        flow: usize,
        number: u64,
    },
    /// A flow may send.
    Departure {
        flow: usize,
    },
    Timeout {
        flow: usize,
    },
}

pub struct Network {
    pub link: Link,
    pub flows: Vec<Flow>,
    pub now: Duration,
    queue: Queue,
    random: Random,
    events: BinaryHeap<Reverse<(Duration, u64, Event)>>,
    event_number: u64,
    /// Time of the next departure event of each flow.
    departures: Vec<Option<Duration>>,
    last_ack_at: Duration,
}

impl Network {
    pub fn new(link: Link, seed: u64) -> Self {
        Self {
            link,
            flows: Vec::new(),
            now: Duration::ZERO,
            queue: Queue::default(),
            random: Random(seed),
            events: BinaryHeap::new(),
            event_number: 0,
            departures: Vec::new(),
            last_ack_at: Duration::ZERO,
        }
    }

    /// Returns a network with one flow of the controller under test.
    pub fn with_one_flow(link: Link, seed: u64) -> Self {
        let mut network = Self::new(link, seed);
        network.add(Flow::longhaul(seed, Duration::ZERO));
        network
    }

    pub fn add(&mut self, flow: Flow) {
        let index = self.flows.len();
        self.flows.push(flow);
        self.departures.push(None);
        self.schedule(self.now, Event::Timeout { flow: index });
        self.wake(index);
    }

    /// Lets a flow send after its supply changed.
    pub fn wake(&mut self, flow: usize) {
        let due = self.flows[flow].next_departure(self.now);
        if let Some(due) = due
            && self.departures[flow].is_none_or(|next| due < next)
        {
            self.departures[flow] = Some(due);
            self.schedule(due, Event::Departure { flow });
        }
    }

    /// Runs until a time.
    pub fn run_until(&mut self, end: Duration) {
        while self
            .events
            .peek()
            .is_some_and(|Reverse((at, ..))| *at <= end)
        {
            self.step();
        }
        self.now = end;
    }

    /// Runs until a flow has delivered some payload. Returns the time that took, in seconds.
    pub fn run_until_delivered(&mut self, flow: usize, payload_bytes: u64) -> f64 {
        let began_at = self.now;
        let packets = self.flows[flow].delivered + payload_bytes.div_ceil(PAYLOAD_BYTES);
        while self.flows[flow].delivered < packets {
            self.step();
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

    fn schedule(&mut self, at: Duration, event: Event) {
        self.event_number += 1;
        self.events.push(Reverse((at, self.event_number, event)));
    }

    fn step(&mut self) {
        let Reverse((at, _, event)) = self.events.pop().expect("flows have timers");
        self.now = at;
        match event {
            Event::Sent => self.on_sent(),
            Event::Acked { flow, number } => {
                self.flows[flow].on_ack(number, at);
                self.wake(flow);
            }
            Event::Departure { flow } => {
                if self.departures[flow] == Some(at) {
                    self.departures[flow] = None;
                    self.depart(flow);
                }
            }
            Event::Timeout { flow } => {
                if self.flows[flow]
                    .timeout()
                    .is_some_and(|timeout| timeout <= at)
                {
                    self.flows[flow].on_timeout(at);
                    self.wake(flow);
                }
                self.schedule(at + Duration::from_millis(50), event);
            }
        }
    }

    fn depart(&mut self, flow: usize) {
        while self.flows[flow].next_departure(self.now) == Some(self.now) {
            let number = self.flows[flow].send(self.now);
            let is_lost = self.link.loss > 0.0 && self.random.next() < self.link.loss;
            if !is_lost && self.queue.push(Packet { flow, number }, &self.link) {
                self.schedule(self.now + self.link.packet_time(), Event::Sent);
            }
        }
        self.wake(flow);
    }

    fn on_sent(&mut self) {
        let Some((packet, more)) = self.queue.pop() else {
            return;
        };
        let jitter = self.link.jitter.mul_f64(self.random.next());
        let at = (self.now + self.link.round_trip + jitter).max(self.last_ack_at);
        self.last_ack_at = at;
        self.schedule(
            at,
            Event::Acked {
                flow: packet.flow,
                number: packet.number,
            },
        );
        if more {
            self.schedule(self.now + self.link.packet_time(), Event::Sent);
        }
    }
}
