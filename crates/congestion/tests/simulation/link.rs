//! Bottleneck: a rate, a drop-tail queue, a delay, random loss and jitter.

use std::{collections::VecDeque, time::Duration};

/// Bytes of a packet on the wire.
pub const PACKET_BYTES: u64 = 1500;
/// Bytes of its UDP payload, which the controller counts.
pub const DATAGRAM_BYTES: u32 = 1472;
/// Bytes of stream data in it.
pub const PAYLOAD_BYTES: u64 = 1440;

/// Properties of a path.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// Bits per second on the wire.
    pub bps: f64,
    /// Round trip without a queue.
    pub round_trip: Duration,
    /// Probability of random loss, before the queue.
    pub loss: f64,
    /// Largest random delay of an acknowledgement. Packets stay in order.
    pub jitter: Duration,
    pub queue_bytes: u64,
    /// Probability of random loss after the queue.
    pub late_loss: f64,
    /// Time between two bursts of acknowledgements. Zero if each arrives on its own.
    pub ack_interval: Duration,
}

impl Link {
    /// Returns a path with a queue of one bandwidth-delay product.
    pub fn new(mbps: f64, round_trip_ms: u64, loss: f64) -> Self {
        let round_trip = Duration::from_millis(round_trip_ms);
        let link = Self {
            bps: mbps * 1e6,
            round_trip,
            loss,
            jitter: Duration::ZERO,
            queue_bytes: 0,
            late_loss: 0.0,
            ack_interval: Duration::ZERO,
        };
        link.with_queue(1.0)
    }

    /// Returns the path with a queue of some bandwidth-delay products.
    pub fn with_queue(self, products: f64) -> Self {
        let product = self.bps / 8.0 * self.round_trip.as_secs_f64();
        Self {
            queue_bytes: (product * products) as u64,
            ..self
        }
    }

    /// Returns the largest payload rate, in bits per second.
    pub fn goodput_bps(&self) -> f64 {
        self.bps * (1.0 - self.loss) * (1.0 - self.late_loss) * PAYLOAD_BYTES as f64
            / PACKET_BYTES as f64
    }

    pub fn packet_time(&self) -> Duration {
        Duration::from_secs_f64(PACKET_BYTES as f64 * 8.0 / self.bps)
    }
}

/// A packet of a flow.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    pub flow: usize,
    pub number: u64,
}

/// Packets that wait at the bottleneck.
#[derive(Debug, Default)]
pub struct Queue {
    packets: VecDeque<Packet>,
}

impl Queue {
    /// Adds a packet, unless the queue is full. Returns true if the link was idle.
    pub fn push(&mut self, packet: Packet, link: &Link) -> bool {
        // The first packet is being sent, and needs no room.
        let waiting = (self.packets.len() as u64).saturating_sub(1) * PACKET_BYTES;
        if !self.packets.is_empty() && waiting + PACKET_BYTES > link.queue_bytes {
            return false;
        }
        self.packets.push_back(packet);
        self.packets.len() == 1
    }

    /// Removes the packet that has been sent. Returns it, and whether another one follows.
    pub fn pop(&mut self) -> Option<(Packet, bool)> {
        let packet = self.packets.pop_front()?;
        Some((packet, !self.packets.is_empty()))
    }
}

/// SplitMix64 generator.
#[derive(Debug)]
pub struct Random(pub u64);

impl Random {
    /// Returns a number from 0 to 1.
    pub fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}
