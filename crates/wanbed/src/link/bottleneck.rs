//! The bottleneck of a direction: a drop-tail queue in bytes before a transmitter of a given rate. It lives in a
//! time of its own: what happens depends only on when packets were offered, not on when it is asked.

use std::collections::VecDeque;

use super::Nanos;
use super::layout::Sizes;
use super::loss::{Loss, Run};
use super::schedule::Schedule;

/// A super-packet leaves in pieces of at most this much line time, so that bursts stay those of a real link.
const QUANTUM: Nanos = 100_000;

/// A second in nanoseconds: a bit at a rate of 1 bit/s takes so much work of the transmitter.
const SECOND: u128 = 1_000_000_000;

/// Segments of one packet that left the transmitter together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Passed {
    /// Which packet, by the number it was offered under.
    pub packet: u64,
    /// The first segment.
    pub first: u32,
    /// How many.
    pub count: u32,
    /// They got lost on the wire.
    pub lost: bool,
    /// When the last bit of the last one arrives at the far end.
    pub due: Nanos,
}

/// A queue and its transmitter.
#[derive(Debug)]
pub struct Bottleneck {
    schedule: Schedule,
    loss: Loss,
    /// Bytes that may wait.
    limit: u64,
    waiting: VecDeque<Span>,
    waiting_bytes: u64,
    service: Option<Service>,
    /// Everything up to this moment has happened.
    clock: Nanos,
    /// Work done in excess by the end of the last service, since ends are rounded up to whole nanoseconds.
    credit: u128,
    /// No later piece arrives before this: delays may shrink, but packets don't overtake.
    last_due: Nanos,
    peak: u64,
}

#[derive(Debug, Clone, Copy)]
struct Span {
    packet: u64,
    sizes: Sizes,
    first: u32,
    count: u32,
}

#[derive(Debug, Clone, Copy)]
struct Service {
    span: Span,
    lost: bool,
    /// What is left to do, in bits times a second.
    work: u128,
}

impl Span {
    fn bytes(&self) -> u64 {
        self.sizes.bytes(self.first, self.count)
    }
}

impl Bottleneck {
    /// A bottleneck whose queue takes `limit` bytes.
    #[must_use]
    pub fn new(schedule: Schedule, limit: u64, loss: Loss) -> Self {
        Self {
            schedule,
            loss,
            limit,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            service: None,
            clock: 0,
            credit: 0,
            last_due: 0,
            peak: 0,
        }
    }

    /// Offers a packet at the moment last [advanced](Self::advance) to, and tells how many of its segments the
    /// queue took. Segments stand in line one by one: what doesn't fit is dropped, though a short last one may
    /// still fit.
    pub fn offer(&mut self, packet: u64, sizes: Sizes) -> u32 {
        let Sizes { segments, full, last } = sizes;
        let mut room = match self.schedule.rate {
            None => u64::MAX,
            Some(_) => self.limit.saturating_sub(self.queue_bytes()),
        };
        if self.service.is_none() && self.waiting.is_empty() {
            room = room.saturating_add(u64::from(if segments > 1 { full } else { last }));
        }
        let whole = (room / u64::from(full.max(1))).min(u64::from(segments - 1)) as u32;
        let room = room - sizes.bytes(0, whole);
        let end = u64::from(last) <= room;
        if end && whole == segments - 1 {
            self.push(Span {
                packet,
                sizes,
                first: 0,
                count: segments,
            });
        } else {
            self.push(Span {
                packet,
                sizes,
                first: 0,
                count: whole,
            });
            self.push(Span {
                packet,
                sizes,
                first: segments - 1,
                count: u32::from(end),
            });
        }
        whole + u32::from(end)
    }

    fn push(&mut self, span: Span) {
        if span.count > 0 {
            self.waiting_bytes += span.bytes();
            self.waiting.push_back(span);
            if self.service.is_none() {
                self.service = self.start_next();
            }
            self.peak = self.peak.max(self.queue_bytes());
        }
    }

    /// Lets time pass until `now`, and hands over what left the transmitter meanwhile.
    pub fn advance(&mut self, now: Nanos, passed: &mut impl FnMut(Passed)) {
        loop {
            let until = self.schedule.next_change().map_or(now, |change| change.min(now));
            self.serve(until, passed);
            if !self.schedule.change_by(until) {
                return;
            }
            self.credit = 0;
            self.loss.change(self.schedule.loss);
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
                let Some(needed) = needed(service.work, rate).filter(|needed| *needed <= left) else {
                    service.work -= rate * left;
                    self.clock = until;
                    return;
                };
                self.credit = rate * needed - service.work;
                self.clock += needed as Nanos;
            }
            let Service { span, lost, .. } = *service;
            self.last_due = self.last_due.max(self.clock + self.schedule.delay);
            passed(Passed {
                packet: span.packet,
                first: span.first,
                count: span.count,
                lost,
                due: self.last_due,
            });
            self.service = self.start_next();
        }
    }

    /// Takes the next segments that share a fate and fit a quantum.
    fn start_next(&mut self) -> Option<Service> {
        let head = self.waiting.front_mut()?;
        let most = match self.schedule.rate {
            None => head.count,
            Some(rate) => {
                let quantum = u128::from(rate) * u128::from(QUANTUM) / (8 * SECOND);
                let segments = quantum / u128::from(head.sizes.full.max(1));
                u32::try_from(segments).unwrap_or(u32::MAX).clamp(1, head.count)
            }
        };
        let (count, lost) = match self.loss.next_run(most) {
            Run::Kept(count) => (count, false),
            Run::Lost => (1, true),
        };
        let span = Span { count, ..*head };
        head.first += count;
        head.count -= count;
        if head.count == 0 {
            self.waiting.pop_front();
        }
        self.waiting_bytes -= span.bytes();
        let work = u128::from(span.bytes()) * 8 * SECOND;
        Some(Service {
            span,
            lost,
            work: work.saturating_sub(std::mem::take(&mut self.credit)),
        })
    }

    /// When the next thing arrives at the far end, or a change may make it come sooner; `None` when nothing will.
    #[must_use]
    pub fn next_event(&self) -> Option<Nanos> {
        let service = self.service.as_ref()?;
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
                Some(end.saturating_add(self.schedule.delay).max(self.last_due))
            }
            _ => change,
        }
    }

    /// The present one-way propagation delay.
    #[must_use]
    pub fn delay(&self) -> Nanos {
        self.schedule.delay
    }

    /// Bytes that wait now: all that is here but the one segment on the wire.
    #[must_use]
    pub fn queue_bytes(&self) -> u64 {
        self.waiting_bytes + self.service.as_ref().map_or(0, Service::waiting_bytes)
    }

    /// The most bytes that ever waited.
    #[must_use]
    pub fn queue_peak(&self) -> u64 {
        self.peak
    }
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
