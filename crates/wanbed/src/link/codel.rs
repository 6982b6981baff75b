//! CoDel: active queue management by the time that segments spend in the queue (RFC 8289). The
//! names are those of the RFC's pseudo-code in section 5. Time is the bottleneck's virtual time.

use super::Nanos;
use crate::spec::CodelSpec;

/// A queue as CoDel sees it.
pub trait Queue {
    /// Type of a queued segment.
    type Segment;
    /// Takes the segment at the head.
    fn take(&mut self) -> Option<Self::Segment>;
    /// Returns the bytes that are left.
    fn bytes(&self) -> u64;
    /// Returns the time at which the segment was queued.
    fn since(segment: &Self::Segment) -> Nanos;
    /// Marks the segment as having met congestion (RFC 3168), if it may be marked.
    fn mark(&mut self, segment: &mut Self::Segment) -> bool;
    /// Discards the segment.
    fn drop(&mut self, segment: Self::Segment);
}

/// Number of intervals after the last drop or mark within which the next one belongs to the same
/// congestion.
const RECENT_INTERVALS: u64 = 16;

/// State of the control law.
#[derive(Debug, Clone)]
pub struct Codel {
    target: Nanos,
    interval: Nanos,
    /// Size of the largest packet, in bytes: a queue of that size is never too long.
    max_packet: u64,
    /// Time at which the delay will have been above the target for an interval.
    first_above_time: Option<Nanos>,
    dropping: bool,
    drop_next: Nanos,
    /// Drops or marks since the dropping state was entered, and their number at its beginning.
    count: u32,
    last_count: u32,
}

impl Codel {
    /// Returns a control law for packets of up to `max_packet` bytes.
    #[must_use]
    pub fn new(spec: &CodelSpec, max_packet: u32) -> Self {
        Self {
            target: spec.target.as_nanos() as Nanos,
            interval: spec.interval.as_nanos() as Nanos,
            max_packet: u64::from(max_packet),
            first_above_time: None,
            dropping: false,
            drop_next: 0,
            count: 0,
            last_count: 0,
        }
    }

    /// Takes the next segment to send. As in Linux, a marked segment is sent, and the next mark or
    /// drop is scheduled as after a drop.
    pub fn dequeue<Q: Queue>(&mut self, now: Nanos, queue: &mut Q) -> Option<Q::Segment> {
        let (mut segment, mut ok_to_drop) = self.do_dequeue(now, queue);
        if self.dropping {
            if !ok_to_drop {
                self.dropping = false;
            }
            // At a high rate of drops the next one may already be due, hence the loop.
            while self.dropping && now >= self.drop_next {
                self.count = self.count.saturating_add(1);
                if Self::marked(queue, &mut segment) {
                    self.drop_next = self.control_law(self.drop_next);
                    break;
                }
                segment
                    .take()
                    .into_iter()
                    .for_each(|segment| queue.drop(segment));
                (segment, ok_to_drop) = self.do_dequeue(now, queue);
                if ok_to_drop {
                    self.drop_next = self.control_law(self.drop_next);
                } else {
                    self.dropping = false;
                }
            }
        } else if ok_to_drop {
            if !Self::marked(queue, &mut segment) {
                segment
                    .take()
                    .into_iter()
                    .for_each(|segment| queue.drop(segment));
                (segment, _) = self.do_dequeue(now, queue);
            }
            self.dropping = true;
            // If the last dropping state ended recently, its rate of drops is a good start.
            let delta = self.count - self.last_count;
            let recent = now.saturating_sub(self.drop_next) < RECENT_INTERVALS * self.interval;
            self.count = if delta > 1 && recent { delta } else { 1 };
            self.drop_next = self.control_law(now);
            self.last_count = self.count;
        }
        segment
    }

    /// Takes a segment. Also returns true if the delay has been above the target for long enough to
    /// drop it.
    fn do_dequeue<Q: Queue>(&mut self, now: Nanos, queue: &mut Q) -> (Option<Q::Segment>, bool) {
        let segment = queue.take();
        let above = segment.as_ref().is_some_and(|segment| {
            let sojourn_time = now.saturating_sub(Q::since(segment));
            sojourn_time >= self.target && queue.bytes() > self.max_packet
        });
        let mut ok_to_drop = false;
        if above {
            match self.first_above_time {
                None => self.first_above_time = Some(now + self.interval),
                Some(first) => ok_to_drop = now >= first,
            }
        } else {
            self.first_above_time = None;
        }
        (segment, ok_to_drop)
    }

    fn marked<Q: Queue>(queue: &mut Q, segment: &mut Option<Q::Segment>) -> bool {
        segment.as_mut().is_some_and(|segment| queue.mark(segment))
    }

    fn control_law(&self, time: Nanos) -> Nanos {
        time + (self.interval as f64 / f64::from(self.count).sqrt()) as Nanos
    }
}

#[cfg(test)]
mod tests;
