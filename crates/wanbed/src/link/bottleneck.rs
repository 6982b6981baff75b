//! The bottleneck of a direction: a queue with a limit in bytes, with or without active management,
//! before a transmitter of a given rate. It lives in a time of its own: what happens depends only
//! on when packets were offered, not on when it is asked.

use super::Nanos;
use super::codel::Codel;
use super::cross::Cross;
use super::jitter::Jitter;
use super::layout::Sizes;
use super::loss::{Loss, Run};
use super::propagation::{Departure, Propagation};
use super::queue::{Managed, Owner, Queue, Span};
use super::random::{Process, sequence};
use super::reorder::Reorder;
use super::schedule::Schedule;
use crate::spec::DirectionSpec;

/// A super-packet leaves in pieces of at most this much line time, so that bursts stay those of a
/// real link.
pub const MAX_PIECE_TIME: Nanos = 100_000;

/// A second in nanoseconds: a bit at a rate of 1 bit/s takes so much work of the transmitter.
const SECOND: u128 = 1_000_000_000;
/// How far cross traffic may lag behind on a link that carries nothing else: bounds the work of
/// catching up.
const MAX_CATCH_UP: Nanos = 50_000_000;

/// Segments of one packet that left the bottleneck together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Passed {
    /// Which packet, by the number it was offered under.
    pub packet: u64,
    /// The first segment.
    pub first: u32,
    /// How many.
    pub count: u32,
    /// What became of them.
    pub fate: Fate,
    /// When the last bit of the last one arrives at the far end; when it was dropped.
    pub due: Nanos,
}

/// What becomes of segments that the queue took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// They arrive.
    Arrives {
        /// With the mark of congestion (RFC 3168).
        marked: bool,
        /// Later than others, to be overtaken.
        held: bool,
    },
    /// They got lost on the wire.
    Lost,
    /// The active queue management dropped them.
    Dropped,
}

/// A queue and its transmitter.
#[derive(Debug)]
pub struct Bottleneck {
    schedule: Schedule,
    loss: Loss,
    codel: Option<Codel>,
    ecn: bool,
    cross: Option<Cross>,
    propagation: Propagation,
    /// Bytes that may wait.
    limit: u64,
    queue: Queue,
    service: Option<Service>,
    /// Everything up to this moment has happened.
    clock: Nanos,
    /// Work done in excess by the end of the last service, since ends are rounded up to whole
    /// nanoseconds.
    credit: u128,
    peak: u64,
    crossed: Crossed,
}

/// What became of cross traffic.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Crossed {
    /// Bytes that the transmitter sent.
    pub bytes: u64,
    /// Packets that the queue had no room for or the active queue management dropped.
    pub drops: u64,
}

#[derive(Debug, Clone, Copy)]
struct Service {
    span: Span,
    lost: bool,
    begun: Nanos,
    /// What is left to do, in bits times a second.
    work: u128,
}

impl Bottleneck {
    /// The bottleneck of a direction, whose random processes draw from the sequences of `seed` for
    /// `direction` (0 or 1). Packets have up to `mtu` bytes.
    #[must_use]
    pub fn new(spec: &DirectionSpec, mtu: u32, seed: u64, direction: u32) -> Self {
        let random = |process| sequence(seed, process, direction);
        let least = super::schedule::least_delay(spec);
        let jitter = spec
            .jitter
            .as_ref()
            .map(|jitter| Jitter::new(jitter, least, random(Process::Jitter)));
        let reorder = spec
            .reorder
            .as_ref()
            .map(|reorder| Reorder::new(reorder, random(Process::Reorder)));
        let cross = spec
            .cross
            .as_ref()
            .map(|cross| Cross::new(cross, mtu, random(Process::Cross)));
        Self {
            schedule: Schedule::new(spec),
            loss: Loss::new(spec.loss, random(Process::Loss)),
            codel: spec.aqm.as_ref().map(|aqm| Codel::new(aqm, mtu)),
            ecn: spec.ecn,
            cross,
            propagation: Propagation::new(jitter, reorder),
            limit: spec.queue,
            queue: Queue::default(),
            service: None,
            clock: 0,
            credit: 0,
            peak: 0,
            crossed: Crossed::default(),
        }
    }

    /// Offers a packet at the moment last [advanced](Self::advance) to, and returns how many of its
    /// segments the queue took. Segments stand in line one by one: what doesn't fit is dropped,
    /// though a short last one may still fit. `markable` says that the packet's ends know the mark
    /// of congestion.
    pub fn offer(&mut self, packet: u64, sizes: Sizes, markable: bool) -> u32 {
        self.put(Owner::Packet(packet), sizes, markable)
    }

    fn put(&mut self, of: Owner, sizes: Sizes, markable: bool) -> u32 {
        let Sizes {
            segments,
            full,
            last,
        } = sizes;
        let mut room = match self.schedule.rate {
            None => u64::MAX,
            Some(_) => self.limit.saturating_sub(self.queue_bytes()),
        };
        if self.service.is_none() && self.queue.is_empty() {
            room = room.saturating_add(u64::from(if segments > 1 { full } else { last }));
        }
        let whole = (room / u64::from(full.max(1))).min(u64::from(segments - 1)) as u32;
        let room = room - sizes.bytes(0, whole);
        let end = u64::from(last) <= room;
        let span = |first, count| Span {
            of,
            sizes,
            first,
            count,
            since: self.clock,
            markable,
            marked: false,
        };
        if end && whole == segments - 1 {
            self.push(span(0, segments));
        } else {
            let (begin, end) = (span(0, whole), span(segments - 1, u32::from(end)));
            self.push(begin);
            self.push(end);
        }
        whole + u32::from(end)
    }

    fn push(&mut self, span: Span) {
        if span.count > 0 {
            self.queue.push(span);
            if self.service.is_none() {
                // What has not waited is never dropped.
                self.service = self.start_next(&mut |_| {});
            }
            self.peak = self.peak.max(self.queue_bytes());
        }
    }

    /// Lets time pass until `now`, and hands over what left the bottleneck meanwhile.
    pub fn advance(&mut self, now: Nanos, passed: &mut impl FnMut(Passed)) {
        loop {
            let change = self.schedule.next_change();
            let cross = self.cross.as_ref().map(|cross| cross.next_arrival());
            let until = change.into_iter().chain(cross).fold(now, Nanos::min);
            self.serve(until, passed);
            if change.is_some_and(|change| change <= until) {
                self.schedule.change_by(until);
                self.credit = 0;
                self.loss.change(self.schedule.loss);
            } else if cross.is_some_and(|arrival| arrival <= until) {
                self.take_cross();
            } else {
                return;
            }
        }
    }

    fn take_cross(&mut self) {
        if let Some(cross) = &mut self.cross {
            cross.arrived();
            let bytes = cross.packet();
            let sizes = Sizes {
                segments: 1,
                full: bytes,
                last: bytes,
            };
            let taken = self.put(Owner::Cross, sizes, false);
            self.crossed.drops += u64::from(1 - taken);
        }
    }

    fn serve(&mut self, until: Nanos, passed: &mut impl FnMut(Passed)) {
        while self.clock <= until {
            let Some(service) = self.service.as_mut() else {
                self.clock = until;
                self.credit = 0;
                return;
            };
            if let Some(rate) = self.schedule.rate.map(u128::from) {
                let left = u128::from(until - self.clock);
                let Some(needed) = needed(service.work, rate).filter(|needed| *needed <= left)
                else {
                    service.work -= rate * left;
                    self.clock = until;
                    return;
                };
                self.credit = rate * needed - service.work;
                self.clock += needed as Nanos;
            }
            let service = *service;
            self.sent(&service, passed);
            self.service = self.start_next(passed);
        }
    }

    /// The last bit of a service has left.
    fn sent(&mut self, service: &Service, passed: &mut impl FnMut(Passed)) {
        let Service {
            span, lost, begun, ..
        } = *service;
        let Owner::Packet(packet) = span.of else {
            self.crossed.bytes += span.bytes();
            return;
        };
        let departure = Departure {
            at: self.clock,
            took: self.clock - begun,
            delay: self.schedule.delay,
            count: span.count,
        };
        self.propagation.depart(departure, &mut |arrival| {
            let fate = if lost {
                Fate::Lost
            } else {
                Fate::Arrives {
                    marked: span.marked,
                    held: arrival.held,
                }
            };
            passed(Passed {
                packet,
                first: span.first + arrival.first,
                count: arrival.count,
                fate,
                due: arrival.due,
            });
        });
    }

    /// Takes the next segments that share a fate and fit a piece.
    fn start_next(&mut self, passed: &mut impl FnMut(Passed)) -> Option<Service> {
        let (span, lost) = match &mut self.codel {
            Some(codel) => {
                let now = self.clock;
                let crossed = &mut self.crossed;
                let dropped = |span: Span| match span.of {
                    Owner::Cross => crossed.drops += u64::from(span.count),
                    Owner::Packet(packet) => passed(Passed {
                        packet,
                        first: span.first,
                        count: span.count,
                        fate: Fate::Dropped,
                        due: now,
                    }),
                };
                let mut managed = Managed {
                    queue: &mut self.queue,
                    ecn: self.ecn,
                    dropped,
                };
                let span = codel.dequeue(now, &mut managed)?;
                let lost = span.of != Owner::Cross && self.loss.next_run(1) == Run::Lost;
                (span, lost)
            }
            None => {
                let head = self.queue.head()?;
                let (count, lost) = match (head.of, most_at_once(head, self.schedule.rate)) {
                    (Owner::Cross, most) => (most, false),
                    (Owner::Packet(_), most) => match self.loss.next_run(most) {
                        Run::Kept(count) => (count, false),
                        Run::Lost => (1, true),
                    },
                };
                (self.queue.take(count)?, lost)
            }
        };
        let work = u128::from(span.bytes()) * 8 * SECOND;
        Some(Service {
            span,
            lost,
            begun: self.clock,
            work: work.saturating_sub(std::mem::take(&mut self.credit)),
        })
    }

    /// A moment before which nothing more arrives at the far end, or at which a change may make it
    /// come sooner or the bottleneck wants to be [advanced](Self::advance); `None` when nothing
    /// will.
    #[must_use]
    pub fn next_event(&self) -> Option<Nanos> {
        let catch_up = self
            .cross
            .as_ref()
            .map(|_| self.clock.saturating_add(MAX_CATCH_UP));
        [self.next_arrival(), catch_up].into_iter().flatten().min()
    }

    fn next_arrival(&self) -> Option<Nanos> {
        let service = self.service.as_ref()?;
        if service.span.of == Owner::Cross && !self.queue.holds_packets() {
            return None;
        }
        let end = match self.schedule.rate {
            None => Some(self.clock),
            Some(rate) => needed(service.work, u128::from(rate)).map(|needed| {
                self.clock
                    .saturating_add(Nanos::try_from(needed).unwrap_or(Nanos::MAX))
            }),
        };
        let change = self.schedule.next_change();
        match end {
            Some(end) if change.is_none_or(|change| end <= change) => {
                Some(self.propagation.earliest(end, self.schedule.delay))
            }
            _ => change,
        }
    }

    /// The present one-way propagation delay.
    #[must_use]
    pub fn delay(&self) -> Nanos {
        self.schedule.delay
    }

    /// The time that `bytes` take on the wire at the present rate; `None` where the rate is
    /// unlimited.
    #[must_use]
    pub fn line_time(&self, bytes: u32) -> Option<Nanos> {
        let work = u128::from(bytes) * 8 * SECOND;
        let time = needed(work, u128::from(self.schedule.rate?)).unwrap_or(u128::MAX);
        Some(Nanos::try_from(time).unwrap_or(Nanos::MAX))
    }

    /// Whether segments may overtake each other.
    #[must_use]
    pub fn overtakes(&self) -> bool {
        self.propagation.overtakes()
    }

    /// Bytes that wait now: all that is here but the one segment on the wire.
    #[must_use]
    pub fn queue_bytes(&self) -> u64 {
        self.queue.bytes() + self.service.as_ref().map_or(0, Service::waiting_bytes)
    }

    /// The most bytes that ever waited.
    #[must_use]
    pub fn queue_peak(&self) -> u64 {
        self.peak
    }

    /// What became of cross traffic.
    #[must_use]
    pub fn crossed(&self) -> Crossed {
        self.crossed
    }
}

/// How many segments of a span may leave in one piece.
fn most_at_once(span: &Span, rate: Option<u64>) -> u32 {
    let Some(rate) = rate else {
        return span.count;
    };
    let bytes = u128::from(rate) * u128::from(MAX_PIECE_TIME) / (8 * SECOND);
    let segments = bytes / u128::from(span.sizes.full.max(1));
    u32::try_from(segments)
        .unwrap_or(u32::MAX)
        .clamp(1, span.count)
}

/// Nanoseconds that `work` takes, rounded up; `None` is for ever.
fn needed(work: u128, rate: u128) -> Option<u128> {
    (rate > 0).then(|| work.div_ceil(rate))
}

impl Service {
    /// Bytes of the segments that are taken up already but not yet on the wire.
    fn waiting_bytes(&self) -> u64 {
        if self.span.count == 1 {
            return 0;
        }
        let all = self.span.bytes();
        let left = u64::try_from(self.work.div_ceil(8 * SECOND)).unwrap_or(all);
        let full = u64::from(self.span.sizes.full.max(1));
        let begun = all.saturating_sub(left) / full + 1;
        all.saturating_sub(begun * full)
    }
}

#[cfg(test)]
mod tests;
