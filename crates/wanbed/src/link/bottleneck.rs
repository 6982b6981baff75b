//! The bottleneck of a direction: a queue with a limit in bytes, with or without active management,
//! before a transmitter of a given rate. It has a virtual time of its own: the results depend only
//! on when packets were offered, not on when it is called.

use super::Nanos;
use super::codel::Codel;
use super::cross::Cross;
use super::drops::TimedDrops;
use super::jitter::Jitter;
use super::layout::SegmentSizes;
use super::loss::{FateRun, LossProcess};
use super::propagation::{Departure, Propagation};
use super::queue::{ManagedQueue, SegmentOwner, SegmentQueue, Span};
use super::random::{RandomProcess, sequence};
use super::reorder::ReorderProcess;
use super::schedule::DirectionSchedule;
use crate::spec::DirectionSpec;

/// Maximum line time of a piece of a super-packet, so that bursts are like those of a real link.
pub const MAX_PIECE_TIME: Nanos = 100_000;

/// Nanoseconds in a second: the transmitter's work for one bit at a rate of 1 bit/s.
const SECOND: u128 = 1_000_000_000;
/// Maximum lag of cross traffic on a link that carries nothing else; it limits the work of catching
/// up.
const MAX_CATCH_UP: Nanos = 50_000_000;

/// Segments of one packet that left the bottleneck together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PassedSegments {
    /// Number under which the packet was offered.
    pub packet: u64,
    /// First segment.
    pub first: u32,
    /// Number of segments.
    pub count: u32,
    /// Fate of the segments.
    pub fate: SegmentFate,
    /// Time at which the last bit of the last one arrives at the far end, or at which it was
    /// dropped.
    pub due: Nanos,
}

/// Fate of segments that the queue accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SegmentFate {
    /// They arrive.
    Arrives {
        /// If true, with the congestion mark (RFC 3168).
        marked: bool,
        /// If true, later than others, which overtake it.
        held: bool,
    },
    /// They are lost on the wire.
    Lost,
    /// Active queue management dropped them.
    Dropped,
}

/// A queue and its transmitter.
#[derive(Debug)]
pub struct Bottleneck {
    schedule: DirectionSchedule,
    loss: LossProcess,
    drops: TimedDrops,
    codel: Option<Codel>,
    ecn: bool,
    cross: Option<Cross>,
    propagation: Propagation,
    /// Maximum bytes that may wait.
    limit: u64,
    queue: SegmentQueue,
    service: Option<Transmission>,
    /// Time up to which everything has been simulated.
    clock: Nanos,
    /// Excess work by the end of the last service, because ends are rounded up to whole
    /// nanoseconds.
    credit: u128,
    peak: u64,
    crossed: CrossCounters,
}

/// Counters of cross traffic.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CrossCounters {
    /// Bytes that the transmitter sent.
    pub bytes: u64,
    /// Packets for which the queue had no space, or that active queue management dropped.
    pub drops: u64,
}

#[derive(Debug, Clone, Copy)]
struct Transmission {
    span: Span,
    lost: bool,
    begun: Nanos,
    /// Remaining work, in bits times nanoseconds per second.
    work: u128,
}

impl Bottleneck {
    /// Returns the bottleneck of a direction. Its random processes draw from the sequences of
    /// `seed` for `direction` (0 or 1). Packets have up to `mtu` bytes.
    #[must_use]
    pub fn new(spec: &DirectionSpec, mtu: u32, seed: u64, direction: u32) -> Self {
        let random = |process| sequence(seed, process, direction);
        let least = super::schedule::least_delay(spec);
        let jitter = spec
            .jitter
            .as_ref()
            .map(|jitter| Jitter::new(jitter, least, random(RandomProcess::Jitter)));
        let reorder = spec
            .reorder
            .as_ref()
            .map(|reorder| ReorderProcess::new(reorder, random(RandomProcess::Reorder)));
        let cross = spec
            .cross
            .as_ref()
            .map(|cross| Cross::new(cross, mtu, random(RandomProcess::Cross)));
        Self {
            schedule: DirectionSchedule::new(spec),
            loss: LossProcess::new(spec.loss, random(RandomProcess::Loss)),
            drops: TimedDrops::new(spec),
            codel: spec.aqm.as_ref().map(|aqm| Codel::new(aqm, mtu)),
            ecn: spec.ecn,
            cross,
            propagation: Propagation::new(jitter, reorder),
            limit: spec.queue,
            queue: SegmentQueue::default(),
            service: None,
            clock: 0,
            credit: 0,
            peak: 0,
            crossed: CrossCounters::default(),
        }
    }

    /// Offers a packet at the time last [advanced](Self::advance) to. Returns the number of its
    /// segments that the queue accepted. Segments queue one by one: those that do not fit are
    /// dropped, but a short last one may still fit. `markable` says that the packet's ends support
    /// the congestion mark.
    pub fn offer(&mut self, packet: u64, sizes: SegmentSizes, markable: bool) -> u32 {
        self.put(SegmentOwner::Packet(packet), sizes, markable)
    }

    fn put(&mut self, of: SegmentOwner, sizes: SegmentSizes, markable: bool) -> u32 {
        let SegmentSizes {
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
                // A segment that has not waited is never dropped.
                self.service = self.start_next(&mut |_| {});
            }
            self.peak = self.peak.max(self.queue_bytes());
        }
    }

    /// Advances time to `now`, and passes on what left the bottleneck meanwhile.
    pub fn advance(&mut self, now: Nanos, passed: &mut impl FnMut(PassedSegments)) {
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
            let sizes = SegmentSizes {
                segments: 1,
                full: bytes,
                last: bytes,
            };
            let taken = self.put(SegmentOwner::Cross, sizes, false);
            self.crossed.drops += u64::from(1 - taken);
        }
    }

    fn serve(&mut self, until: Nanos, passed: &mut impl FnMut(PassedSegments)) {
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
            self.finish_service(&service, passed);
            self.service = self.start_next(passed);
        }
    }

    /// Completes a service whose last bit has left.
    fn finish_service(&mut self, service: &Transmission, passed: &mut impl FnMut(PassedSegments)) {
        let Transmission {
            span, lost, begun, ..
        } = *service;
        let SegmentOwner::Packet(packet) = span.of else {
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
                SegmentFate::Lost
            } else {
                SegmentFate::Arrives {
                    marked: span.marked,
                    held: arrival.held,
                }
            };
            passed(PassedSegments {
                packet,
                first: span.first + arrival.first,
                count: arrival.count,
                fate,
                due: arrival.due,
            });
        });
    }

    /// Takes the next segments that share a fate and fit one piece.
    fn start_next(&mut self, passed: &mut impl FnMut(PassedSegments)) -> Option<Transmission> {
        let (span, lost) = match &mut self.codel {
            Some(codel) => {
                let now = self.clock;
                let crossed = &mut self.crossed;
                let dropped = |span: Span| match span.of {
                    SegmentOwner::Cross => crossed.drops += u64::from(span.count),
                    SegmentOwner::Packet(packet) => passed(PassedSegments {
                        packet,
                        first: span.first,
                        count: span.count,
                        fate: SegmentFate::Dropped,
                        due: now,
                    }),
                };
                let mut managed = ManagedQueue {
                    queue: &mut self.queue,
                    ecn: self.ecn,
                    dropped,
                };
                let span = codel.dequeue(now, &mut managed)?;
                let lost = match span.of {
                    SegmentOwner::Cross => false,
                    // Both are asked, so that a timed drop does not shift the random losses.
                    SegmentOwner::Packet(_) => {
                        self.drops.take(now) | (self.loss.next_run(1) == FateRun::Lost)
                    }
                };
                (span, lost)
            }
            None => {
                let head = self.queue.head()?;
                let (count, lost) = match (head.of, most_at_once(head, self.schedule.rate)) {
                    (SegmentOwner::Cross, most) => (most, false),
                    (SegmentOwner::Packet(_), most) => {
                        let timed = self.drops.take(self.clock);
                        match self.loss.next_run(if timed { 1 } else { most }) {
                            FateRun::Kept(count) => (count, timed),
                            FateRun::Lost => (1, true),
                        }
                    }
                };
                (self.queue.take(count)?, lost)
            }
        };
        let work = u128::from(span.bytes()) * 8 * SECOND;
        Some(Transmission {
            span,
            lost,
            begun: self.clock,
            work: work.saturating_sub(std::mem::take(&mut self.credit)),
        })
    }

    /// Returns a time before which nothing more arrives at the far end. At this time a change may
    /// make something arrive sooner, or the bottleneck needs to be [advanced](Self::advance).
    /// Returns `None` if there is no such time.
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
        if service.span.of == SegmentOwner::Cross && !self.queue.holds_packets() {
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

    /// Returns the current one-way propagation delay.
    #[must_use]
    pub fn delay(&self) -> Nanos {
        self.schedule.delay
    }

    /// Returns the time that `bytes` take on the wire at the current rate, or `None` if the rate is
    /// unlimited.
    #[must_use]
    pub fn line_time(&self, bytes: u32) -> Option<Nanos> {
        let work = u128::from(bytes) * 8 * SECOND;
        let time = needed(work, u128::from(self.schedule.rate?)).unwrap_or(u128::MAX);
        Some(Nanos::try_from(time).unwrap_or(Nanos::MAX))
    }

    /// Returns true if segments may overtake each other.
    #[must_use]
    pub fn overtakes(&self) -> bool {
        self.propagation.overtakes()
    }

    /// Returns the bytes that wait now: all except the one segment on the wire.
    #[must_use]
    pub fn queue_bytes(&self) -> u64 {
        self.queue.bytes() + self.service.as_ref().map_or(0, Transmission::waiting_bytes)
    }

    /// Returns the most bytes that ever waited.
    #[must_use]
    pub fn queue_peak(&self) -> u64 {
        self.peak
    }

    /// Returns the counters of cross traffic.
    #[must_use]
    pub fn crossed(&self) -> CrossCounters {
        self.crossed
    }
}

/// Returns the number of segments of a span that may leave in one piece.
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

/// Returns the nanoseconds that `work` takes, rounded up; `None` means forever.
fn needed(work: u128, rate: u128) -> Option<u128> {
    (rate > 0).then(|| work.div_ceil(rate))
}

impl Transmission {
    /// Returns the bytes of the segments that are in service, but not yet on the wire.
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
