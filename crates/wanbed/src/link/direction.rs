//! One direction of a link, without any socket or clock: packets go in with their arrival time, and
//! come out in pieces with the time at which they are due.

use std::collections::VecDeque;
use std::time::Duration;

use super::bottleneck::{Bottleneck, Fate, MAX_PIECE_TIME, Passed};
use super::cut::{Piece, piece};
use super::jitter;
use super::layout::{LONGEST_HEADERS, Layout};
use super::port::LONGEST_PACKET;
use super::report::DirectionSnapshot;
use super::ring::Ring;
use super::virtio::VirtioHeader;
use super::{LinkError, Nanos};
use crate::spec::{BitRate, DirectionSpec, LinkSpec};

/// Maximum memory for the packets of one direction, in bytes.
const MEMORY_LIMIT: u64 = 1 << 30;
/// Memory for packets that wait to be written while the engine is delayed, in bytes.
const WRITE_BACKLOG_BYTES: u64 = 8 << 20;
/// Maximum time by which deliveries are delayed to be made together, in nanoseconds.
const MAX_BATCHING_TIME: Nanos = 250_000;
/// Minimum ratio of the delay to that time.
const DELAY_OVER_BATCHING_TIME: Nanos = 100;
/// Minimum ratio of a full packet's line time to that time, if a packet takes as long as a piece
/// may. Packets at the bottleneck's rate then arrive one by one.
const LINE_TIME_OVER_BATCHING_TIME: Nanos = 2;
/// Rate for which memory is reserved if the rate is unlimited.
const RATE_WHERE_UNLIMITED: BitRate = BitRate(10_000_000_000);

/// One direction of a link.
#[derive(Debug)]
pub struct Direction {
    mtu: u32,
    ring: Ring,
    /// Buffer for reads while the ring is full: packets must still be read, to be dropped and
    /// counted.
    spill: Box<[u8]>,
    spilling: bool,
    bottleneck: Bottleneck,
    transit: Transit,
    headers: Box<[u8; LONGEST_HEADERS]>,
}

/// Data in flight: packets in the ring, and pieces of them with a due time.
#[derive(Debug)]
struct Transit {
    packets: VecDeque<Held>,
    /// Number of the first of `packets`.
    oldest: u64,
    /// Pieces on the line, in the order in which they are due.
    line: VecDeque<Passed>,
    most_pieces: usize,
    counters: DirectionSnapshot,
}

#[derive(Debug)]
struct Held {
    at: usize,
    layout: Layout,
    /// Number of segments whose fate is open.
    open: u32,
}

/// A piece that is due.
#[derive(Debug)]
pub struct Delivery<'a> {
    /// Piece to send.
    pub piece: Piece<'a>,
    /// Time at which it should have been sent.
    pub due: Nanos,
}

impl Direction {
    /// Returns the direction that `spec` describes, of the link `link`. `number` (0 or 1)
    /// distinguishes the link's directions.
    ///
    /// # Errors
    /// [`LinkError::TooMuchUnderWay`].
    pub fn new(link: &LinkSpec, spec: &DirectionSpec, number: u32) -> Result<Self, LinkError> {
        let needed = memory(spec);
        if needed > MEMORY_LIMIT {
            let link = link.name.clone();
            return Err(LinkError::TooMuchUnderWay {
                link,
                needed,
                limit: MEMORY_LIMIT,
            });
        }
        // A full queue may take one segment of a super-packet, which then occupies memory for all
        // of it. A sender that overshoots threefold, as in slow start, needs three times the
        // memory. Memory that is never used costs nothing, and without a rate there is no queue to
        // overshoot.
        let overshoot = if spec.rate.is_some() { 3 } else { 1 };
        let roomy = needed.saturating_mul(overshoot).min(MEMORY_LIMIT);
        let ring = Ring::new(roomy as usize);
        Ok(Self {
            mtu: link.mtu,
            transit: Transit {
                packets: VecDeque::new(),
                oldest: 0,
                line: VecDeque::new(),
                most_pieces: ring.most_packets(),
                counters: DirectionSnapshot::default(),
            },
            ring,
            spill: vec![0; LONGEST_PACKET].into_boxed_slice(),
            spilling: false,
            bottleneck: Bottleneck::new(spec, link.mtu, link.seed, number),
            headers: Box::new([0; LONGEST_HEADERS]),
        })
    }

    /// Returns the buffer for the next packet.
    #[must_use]
    pub fn room(&mut self) -> &mut [u8] {
        match self.ring.room() {
            Some(room) => {
                self.spilling = false;
                room
            }
            None => {
                self.spilling = true;
                &mut self.spill
            }
        }
    }

    /// Takes the packet of `len` bytes that was read to [`room`](Self::room) at the time `now`.
    pub fn take(&mut self, now: Nanos, virtio: &VirtioHeader, len: usize) {
        self.advance(now);
        let counters = &mut self.transit.counters;
        let buffer = if self.spilling {
            Some(&*self.spill)
        } else {
            self.ring.room().map(|room| &*room)
        };
        let bytes = buffer.and_then(|buffer| buffer.get(..len)).unwrap_or(&[]);
        let Ok(layout) = Layout::of(virtio, bytes) else {
            counters.malformed += 1;
            return;
        };
        let sizes = layout.sizes();
        counters.offered += u64::from(sizes.segments);
        counters.super_packets += u64::from(sizes.segments > 1);
        if sizes.full > self.mtu {
            counters.drops_mtu += u64::from(sizes.segments);
        } else if self.spilling {
            counters.ring_overflow += u64::from(sizes.segments);
        } else {
            let number = self.transit.oldest + self.transit.packets.len() as u64;
            let taken = self.bottleneck.offer(number, sizes, layout.markable);
            counters.drops_queue += u64::from(sizes.segments - taken);
            if taken > 0 {
                let at = self.ring.keep(len);
                self.transit.packets.push_back(Held {
                    at,
                    layout,
                    open: taken,
                });
                self.advance(now);
            }
        }
    }

    /// Counts input that is not a packet.
    pub fn take_noise(&mut self) {
        self.transit.counters.malformed += 1;
    }

    /// Advances time to `now`.
    pub fn advance(&mut self, now: Nanos) {
        let (transit, ring) = (&mut self.transit, &mut self.ring);
        self.bottleneck
            .advance(now, &mut |passed| transit.on_wire(passed, ring));
    }

    /// Sends the next piece that is due by `now`, if there is one, together with due pieces of the
    /// same packet that follow it, as a receiver's network card would coalesce them. `send` returns
    /// true if the port took it.
    pub fn deliver(&mut self, now: Nanos, send: impl FnOnce(&Delivery<'_>) -> bool) -> bool {
        let transit = &mut self.transit;
        let Some(passed) = transit.next_due(now) else {
            return false;
        };
        if let Some(held) = transit.held(passed.packet) {
            let (at, layout) = (held.at, held.layout);
            let bytes = self.ring.get(at, layout.len as usize);
            let (marked, held) = match passed.fate {
                Fate::Arrives { marked, held } => (marked, held),
                Fate::Lost | Fate::Dropped => (false, false),
            };
            let piece = piece(
                &layout,
                bytes,
                passed.first,
                passed.count,
                marked,
                &mut self.headers,
            );
            if send(&Delivery {
                piece,
                due: passed.due,
            }) {
                transit.counters.bytes += layout.sizes().bytes(passed.first, passed.count);
                transit.counters.packets += u64::from(passed.count);
                transit.counters.marks_ecn += if marked { u64::from(passed.count) } else { 0 };
                transit.counters.reordered += if held { u64::from(passed.count) } else { 0 };
            } else {
                transit.counters.write_errors += u64::from(passed.count);
            }
        }
        transit.settle(&passed, &mut self.ring);
        true
    }

    /// Returns the time until which the next delivery may be delayed, so that one costly wake-up
    /// serves several pieces.
    #[must_use]
    pub fn deadline(&self) -> Option<Nanos> {
        self.next_event()
            .map(|next| next.saturating_add(self.batching()))
    }

    /// Returns the time by which a delivery may be delayed.
    fn batching(&self) -> Nanos {
        let most = (self.bottleneck.delay() / DELAY_OVER_BATCHING_TIME).min(MAX_BATCHING_TIME);
        match self.bottleneck.line_time(self.mtu) {
            Some(time) if time >= MAX_PIECE_TIME => most.min(time / LINE_TIME_OVER_BATCHING_TIME),
            _ => most,
        }
    }

    /// Returns the time of the last piece that is due by `deadline`, beyond which there is no point
    /// in waiting.
    #[must_use]
    pub fn last_due_by(&self, deadline: Nanos) -> Option<Nanos> {
        let due = self
            .transit
            .line
            .partition_point(|passed| passed.due <= deadline);
        match due.checked_sub(1) {
            Some(last) => self.transit.line.get(last).map(|last| last.due),
            None => self.next_event().filter(|next| *next <= deadline),
        }
    }

    /// Returns the time at which the next piece is due, or may be, or `None` if nothing is in
    /// flight.
    #[must_use]
    pub fn next_event(&self) -> Option<Nanos> {
        let on_line = self.transit.line.front().map(|passed| passed.due);
        if on_line.is_some() && !self.bottleneck.overtakes() {
            // Pieces in the bottleneck cannot arrive before those on the line.
            return on_line;
        }
        let coming = self.bottleneck.next_event();
        [on_line, coming].into_iter().flatten().min()
    }

    /// Returns the counters so far, without those of lag and devices, which are the engine's.
    #[must_use]
    pub fn counters(&self) -> DirectionSnapshot {
        DirectionSnapshot {
            queue_bytes: self.bottleneck.queue_bytes(),
            queue_peak: self.bottleneck.queue_peak(),
            cross_bytes: self.bottleneck.crossed().bytes,
            cross_drops: self.bottleneck.crossed().drops,
            batching_us: self.batching() / 1_000,
            ..self.transit.counters
        }
    }
}

impl Transit {
    /// Handles segments that have left the transmitter.
    fn on_wire(&mut self, passed: Passed, ring: &mut Ring) {
        let count = u64::from(passed.count);
        match passed.fate {
            Fate::Lost => self.counters.drops_loss += count,
            Fate::Dropped => self.counters.drops_aqm += count,
            Fate::Arrives { .. } if self.line.len() < self.most_pieces => {
                return self.stand_in_line(passed);
            }
            Fate::Arrives { .. } => self.counters.ring_overflow += count,
        }
        self.settle(&passed, ring);
    }

    /// Inserts a piece by its due time: almost always at the end; an overtaking one goes before
    /// later ones.
    fn stand_in_line(&mut self, passed: Passed) {
        if self.line.back().is_none_or(|last| last.due <= passed.due) {
            self.line.push_back(passed);
        } else {
            let at = self.line.partition_point(|other| other.due <= passed.due);
            self.line.insert(at, passed);
        }
    }

    fn next_due(&mut self, now: Nanos) -> Option<Passed> {
        let mut first = self.line.pop_front_if(|passed| passed.due <= now)?;
        while let Some(next) = self.line.pop_front_if(|next| {
            next.due <= now
                && next.packet == first.packet
                && next.first == first.first + first.count
                && next.fate == first.fate
        }) {
            first.count += next.count;
        }
        Some(first)
    }

    fn held(&mut self, packet: u64) -> Option<&mut Held> {
        self.packets
            .get_mut(packet.checked_sub(self.oldest)? as usize)
    }

    /// Records that the fate of these segments is decided. Packets without open segments leave the
    /// ring, oldest first.
    fn settle(&mut self, passed: &Passed, ring: &mut Ring) {
        if let Some(held) = self.held(passed.packet) {
            held.open = held.open.saturating_sub(passed.count);
        }
        let mut left = false;
        while self.packets.pop_front_if(|held| held.open == 0).is_some() {
            self.oldest += 1;
            left = true;
        }
        if left {
            ring.release(self.packets.front().map(|held| held.at));
        }
    }
}

/// Returns the bytes of memory for data in flight in a direction: on the line, in the queue, and
/// some slack. It includes a quarter more, because packets are rounded up to cache lines.
fn memory(spec: &DirectionSpec) -> u64 {
    let steps = || spec.changes.iter().flat_map(|trace| &trace.steps);
    let rates = steps().filter_map(|step| step.rate).chain(spec.rate);
    let rate = match spec.rate {
        None => RATE_WHERE_UNLIMITED,
        Some(_) => rates.max().unwrap_or(RATE_WHERE_UNLIMITED),
    };
    let delay = steps()
        .filter_map(|step| step.delay)
        .chain([spec.delay])
        .max()
        .unwrap_or(spec.delay);
    let late = spec.reorder.map_or(Duration::ZERO, |reorder| reorder.by)
        + Duration::from_nanos(
            spec.jitter
                .map_or(0, |jitter| 2 * jitter::amplitude(&jitter)),
        );
    let line = rate.bytes_in(delay + late);
    let packets = line.saturating_add(spec.queue);
    let all = packets
        .saturating_add(packets / 4)
        .saturating_add(WRITE_BACKLOG_BYTES);
    // If the rate is unlimited, reaching the memory limit is not a mistake.
    if spec.rate.is_none() {
        all.min(MEMORY_LIMIT)
    } else {
        all
    }
}

#[cfg(test)]
mod tests;
