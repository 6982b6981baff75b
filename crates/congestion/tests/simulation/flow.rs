//! A sender: packets in flight, loss detection like that of RFC 9002, and a controller.

use std::{collections::VecDeque, time::Duration};

use longhaul_congestion::{Controller, PacketStamp, RoundTrip};

use crate::{cubic::Cubic, link::DATAGRAM_BYTES};

/// Packets with higher numbers that were acknowledged before a packet counts as lost.
const REORDERING_PACKETS: u64 = 3;

/// Congestion control of a flow.
#[derive(Debug)]
pub enum Control {
    Longhaul(Box<Controller>),
    Cubic(Cubic),
}

#[derive(Debug)]
struct Sent {
    at: Duration,
    stamp: Option<PacketStamp>,
    is_outstanding: bool,
}

/// One sender, and counts of its packets.
#[derive(Debug)]
pub struct Flow {
    pub control: Control,
    /// Packets that the application still has. `None` for an endless supply.
    pub supply: Option<u64>,
    pub sent: u64,
    pub delivered: u64,
    pub lost: u64,
    first: u64,
    packets: VecDeque<Sent>,
    outstanding: u64,
    largest_acked: Option<u64>,
    /// Number of the last lost packet, for bursts.
    last_lost: Option<u64>,
    smoothed: Option<Duration>,
    last_progress: Duration,
    timeouts: u32,
}

impl Flow {
    pub fn new(control: Control, began_at: Duration) -> Self {
        Self {
            control,
            supply: None,
            sent: 0,
            delivered: 0,
            lost: 0,
            first: 0,
            packets: VecDeque::new(),
            outstanding: 0,
            largest_acked: None,
            last_lost: None,
            smoothed: None,
            last_progress: began_at,
            timeouts: 0,
        }
    }

    /// Returns a flow of the controller under test.
    pub fn longhaul(seed: u64, began_at: Duration) -> Self {
        let controller = Box::new(Controller::new(DATAGRAM_BYTES, seed));
        Self::new(Control::Longhaul(controller), began_at)
    }

    pub fn cubic(began_at: Duration) -> Self {
        Self::new(Control::Cubic(Cubic::new()), began_at)
    }

    /// Returns the controller under test.
    pub fn controller(&self) -> &Controller {
        match &self.control {
            Control::Longhaul(controller) => controller,
            Control::Cubic(_) => panic!("a CUBIC flow has no such controller"),
        }
    }

    /// Returns the time at which the next packet may leave. `None` if the window is full or there
    /// is nothing to send.
    pub fn next_departure(&self, now: Duration) -> Option<Duration> {
        if self.supply == Some(0) {
            return None;
        }
        match &self.control {
            Control::Longhaul(controller) => {
                let flight = controller.bytes_in_flight() + DATAGRAM_BYTES;
                let departure = controller.earliest_departure().unwrap_or(now);
                (flight <= controller.window_bytes()).then_some(departure.max(now))
            }
            Control::Cubic(cubic) => ((self.outstanding as f64) < cubic.window()).then_some(now),
        }
    }

    /// Sends a packet, and returns its number.
    pub fn send(&mut self, now: Duration) -> u64 {
        if self.outstanding == 0 {
            self.last_progress = now;
        }
        if let Some(supply) = &mut self.supply {
            *supply -= 1;
        }
        let app_limited = Some(self.supply == Some(0));
        let stamp = match &mut self.control {
            Control::Longhaul(controller) => {
                Some(controller.on_packet_sent(now, DATAGRAM_BYTES, app_limited))
            }
            Control::Cubic(_) => None,
        };
        self.packets.push_back(Sent {
            at: now,
            stamp,
            is_outstanding: true,
        });
        self.outstanding += 1;
        self.sent += 1;
        self.first + self.packets.len() as u64 - 1
    }

    pub fn on_ack(&mut self, number: u64, now: Duration) {
        self.last_progress = now;
        self.timeouts = 0;
        let Some(sent) = number.checked_sub(self.first).and_then(|at| {
            self.packets
                .get_mut(at as usize)
                .filter(|sent| sent.is_outstanding)
        }) else {
            return;
        };
        sent.is_outstanding = false;
        self.outstanding -= 1;
        self.delivered += 1;
        let latest = now - sent.at;
        let smoothed = self
            .smoothed
            .map_or(latest, |smoothed| (smoothed * 7 + latest) / 8);
        self.smoothed = Some(smoothed);
        let (sent_at, stamp) = (sent.at, sent.stamp);
        match &mut self.control {
            Control::Longhaul(controller) => {
                let stamp = stamp.expect("packets of the controller have stamps");
                let round_trip = RoundTrip { latest, smoothed };
                controller.on_ack(sent_at, DATAGRAM_BYTES.into(), &stamp, round_trip, now);
            }
            Control::Cubic(cubic) => cubic.on_ack(sent_at, latest, now),
        }
        self.largest_acked = self.largest_acked.max(Some(number));
        self.detect_losses(latest.max(smoothed) * 9 / 8, now);
    }

    fn detect_losses(&mut self, time_threshold: Duration, now: Duration) {
        let largest = self.largest_acked.unwrap_or(0);
        while let Some(first) = self.packets.front() {
            if first.is_outstanding {
                let reordered = largest >= self.first + REORDERING_PACKETS;
                let late = largest > self.first && now - first.at > time_threshold;
                if !reordered && !late {
                    return;
                }
                self.lose_first(false, now);
            } else {
                self.packets.pop_front();
                self.first += 1;
            }
        }
    }

    fn lose_first(&mut self, persistent: bool, now: Duration) {
        let Some(sent) = self.packets.pop_front() else {
            return;
        };
        let number = self.first;
        self.first += 1;
        if !sent.is_outstanding {
            return;
        }
        self.outstanding -= 1;
        self.lost += 1;
        if let Some(supply) = &mut self.supply {
            *supply += 1;
        }
        let new_burst = number == 0 || self.last_lost != Some(number - 1);
        self.last_lost = Some(number);
        match &mut self.control {
            Control::Longhaul(controller) => {
                let stamp = sent.stamp.expect("packets of the controller have stamps");
                controller.on_loss(DATAGRAM_BYTES, &stamp, persistent, new_burst, now);
            }
            Control::Cubic(cubic) => cubic.on_loss(sent.at, now),
        }
    }

    /// Returns the time at which the outstanding packets count as lost.
    pub fn timeout(&self) -> Option<Duration> {
        let round_trip = self.smoothed.unwrap_or(Duration::from_millis(500));
        let wait =
            (round_trip * 2).max(Duration::from_millis(200)) * 2_u32.pow(self.timeouts.min(4));
        (self.outstanding > 0).then(|| self.last_progress + wait)
    }

    /// Declares everything lost. The second time without progress it is persistent congestion.
    pub fn on_timeout(&mut self, now: Duration) {
        self.timeouts += 1;
        self.last_progress = now;
        let persistent = self.timeouts > 1;
        while !self.packets.is_empty() {
            self.lose_first(persistent, now);
        }
        if let Control::Cubic(cubic) = &mut self.control {
            cubic.on_timeout(now);
        }
    }
}
