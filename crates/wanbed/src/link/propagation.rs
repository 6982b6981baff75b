//! Propagation from the transmitter to the far end: the delay, its variation, and the segments that
//! are overtaken.

use super::Nanos;
use super::jitter::Jitter;
use super::reorder::Reorder;

/// Arrival of segments that have left the transmitter.
///
/// When the delay falls, later segments neither overtake those in flight, nor arrive together with
/// them. Segments arrive at least as far apart as the transmitter needed to send the later one.
/// This models a path whose old and new course join before a last link of the bottleneck's rate. A
/// sender that keeps the bottleneck full sees no fall at all: the fall takes a queue from the path
/// that then stands at its end. The delay falls as the rate leaves capacity free.
#[derive(Debug)]
pub struct Propagation {
    jitter: Option<Jitter>,
    reorder: Option<Reorder>,
    /// Arrival time of the last segment, without jitter and reordering.
    last: Nanos,
}

/// Segments that left the transmitter together.
#[derive(Debug, Clone, Copy)]
pub struct Departure {
    /// Time at which the last bit left.
    pub at: Nanos,
    /// Time that sending took.
    pub took: Nanos,
    /// Current propagation delay.
    pub delay: Nanos,
    /// Number of segments.
    pub count: u32,
}

/// Segments of a departure that arrive together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// First segment, as a number within the departure.
    pub first: u32,
    /// Number of segments.
    pub count: u32,
    /// Arrival time.
    pub due: Nanos,
    /// If true, it was held up to be overtaken.
    pub held: bool,
}

impl Propagation {
    /// Returns a propagation with these disturbances.
    #[must_use]
    pub fn new(jitter: Option<Jitter>, reorder: Option<Reorder>) -> Self {
        Self {
            jitter,
            reorder,
            last: 0,
        }
    }

    /// Returns true if segments may overtake each other.
    #[must_use]
    pub fn overtakes(&self) -> bool {
        self.reorder.is_some() || self.jitter.as_ref().is_some_and(Jitter::overtakes)
    }

    /// Computes the arrivals of a departure's segments.
    pub fn depart(&mut self, departure: Departure, arrived: &mut impl FnMut(Arrival)) {
        let Departure {
            at,
            took,
            delay,
            count,
        } = departure;
        self.last = (at + delay).max(self.last + took);
        let by_segment = self.jitter.as_ref().is_some_and(Jitter::overtakes);
        let mut first = 0;
        while first < count {
            let most = if by_segment { 1 } else { count - first };
            let (run, by) = match &mut self.reorder {
                Some(reorder) => reorder.next_run(most),
                None => (most, 0),
            };
            let due = match &mut self.jitter {
                Some(jitter) => jitter.arrival(self.last),
                None => self.last,
            };
            arrived(Arrival {
                first,
                count: run,
                due: due + by,
                held: by > 0,
            });
            first += run;
        }
    }

    /// Returns a time before which nothing arrives that leaves at `at` or later.
    #[must_use]
    pub fn earliest(&self, at: Nanos, delay: Nanos) -> Nanos {
        let mean = at.saturating_add(delay).max(self.last);
        self.jitter
            .as_ref()
            .map_or(mean, |jitter| jitter.earliest(mean))
    }
}
