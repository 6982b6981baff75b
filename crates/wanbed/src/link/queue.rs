//! The queue of a bottleneck: spans of segments, first come, first served.

use std::collections::VecDeque;

use super::Nanos;
use super::codel;
use super::layout::Sizes;

/// Consecutive segments that arrived together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Owner of the segments.
    pub of: Owner,
    /// Sizes of all segments of the packet.
    pub sizes: Sizes,
    /// First segment.
    pub first: u32,
    /// Number of segments.
    pub count: u32,
    /// Arrival time.
    pub since: Nanos,
    /// If true, they may be marked instead of dropped.
    pub markable: bool,
    /// If true, they were marked.
    pub marked: bool,
}

/// Owner of segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// A packet of a node, by the number under which it was offered.
    Packet(u64),
    /// Cross traffic, which only takes space and time.
    Cross,
}

impl Span {
    /// Returns the bytes on the wire.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.sizes.bytes(self.first, self.count)
    }
}

/// The queue itself; its callers enforce the limit.
#[derive(Debug, Default)]
pub struct Queue {
    spans: VecDeque<Span>,
    bytes: u64,
    /// Number of spans of nodes' packets.
    packets: usize,
}

impl Queue {
    /// Returns the bytes that wait.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns true if nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Returns true if a node's packet waits.
    #[must_use]
    pub fn holds_packets(&self) -> bool {
        self.packets > 0
    }

    /// Appends a span.
    pub fn push(&mut self, span: Span) {
        self.bytes += span.bytes();
        self.packets += usize::from(span.of != Owner::Cross);
        self.spans.push_back(span);
    }

    /// Returns the span at the head.
    #[must_use]
    pub fn head(&self) -> Option<&Span> {
        self.spans.front()
    }

    /// Takes the first `count` segments of the span at the head.
    pub fn take(&mut self, count: u32) -> Option<Span> {
        let head = self.spans.front_mut()?;
        let span = Span {
            count: count.min(head.count),
            ..*head
        };
        head.first += span.count;
        head.count -= span.count;
        if head.count == 0 {
            self.spans.pop_front();
            self.packets -= usize::from(span.of != Owner::Cross);
        }
        self.bytes -= span.bytes();
        Some(span)
    }
}

/// A queue from which CoDel takes one segment at a time.
#[derive(Debug)]
pub struct Managed<'a, F> {
    /// The managed queue.
    pub queue: &'a mut Queue,
    /// If true, segments that may be marked are marked.
    pub ecn: bool,
    /// Called with each segment that is dropped.
    pub dropped: F,
}

impl<F: FnMut(Span)> codel::Queue for Managed<'_, F> {
    type Segment = Span;

    fn take(&mut self) -> Option<Span> {
        self.queue.take(1)
    }

    fn bytes(&self) -> u64 {
        self.queue.bytes
    }

    fn since(segment: &Span) -> Nanos {
        segment.since
    }

    fn mark(&mut self, segment: &mut Span) -> bool {
        segment.marked = self.ecn && segment.markable;
        segment.marked
    }

    fn drop(&mut self, segment: Span) {
        (self.dropped)(segment);
    }
}
