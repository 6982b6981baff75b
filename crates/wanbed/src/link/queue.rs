//! What waits at a bottleneck: spans of segments, first come, first served.

use std::collections::VecDeque;

use super::Nanos;
use super::codel;
use super::layout::Sizes;

/// Segments in a row that came together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Whose they are.
    pub of: Owner,
    /// The sizes of all segments of the packet.
    pub sizes: Sizes,
    /// The first segment.
    pub first: u32,
    /// How many.
    pub count: u32,
    /// When they came.
    pub since: Nanos,
    /// They may be marked instead of dropped.
    pub markable: bool,
    /// They were.
    pub marked: bool,
}

/// Whose segments they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// A packet of a node, by the number it was offered under.
    Packet(u64),
    /// Cross traffic, which only takes room and time.
    Cross,
}

impl Span {
    /// Bytes on the wire.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.sizes.bytes(self.first, self.count)
    }
}

/// The queue itself; its limit is kept by whoever puts something in.
#[derive(Debug, Default)]
pub struct Queue {
    spans: VecDeque<Span>,
    bytes: u64,
    /// Spans of nodes' packets.
    packets: usize,
}

impl Queue {
    /// Bytes that wait.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Whether a node's packet waits.
    #[must_use]
    pub fn holds_packets(&self) -> bool {
        self.packets > 0
    }

    /// Puts a span at the end.
    pub fn push(&mut self, span: Span) {
        self.bytes += span.bytes();
        self.packets += usize::from(span.of != Owner::Cross);
        self.spans.push_back(span);
    }

    /// The span at the head.
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

/// A queue whose segments CoDel takes one by one.
#[derive(Debug)]
pub struct Managed<'a, F> {
    /// The queue.
    pub queue: &'a mut Queue,
    /// Whether segments that may be marked are.
    pub ecn: bool,
    /// Learns of each segment that is dropped.
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
