//! The way from the transmitter to the far end: the propagation delay, how it varies, and which
//! segments are overtaken.

use super::Nanos;
use super::jitter::Jitter;
use super::reorder::Reorder;

/// When segments that have left the transmitter arrive.
///
/// When the delay falls, what follows does not overtake what is under way, and does not arrive with
/// it in one instant either: segments arrive at least as far apart as the transmitter needed to
/// send the later one. So a path behaves whose old and new course join before a last link of the
/// bottleneck's rate. A sender that goes on filling the bottleneck sees no fall at all, for the
/// queue that the fall takes from the path then stands at its end; the delay comes down as the rate
/// leaves room.
#[derive(Debug)]
pub struct Propagation {
    jitter: Option<Jitter>,
    reorder: Option<Reorder>,
    /// When the last segment arrived, but for jitter and reordering.
    last: Nanos,
}

/// What left the transmitter together.
#[derive(Debug, Clone, Copy)]
pub struct Departure {
    /// When the last bit left.
    pub at: Nanos,
    /// How long sending took.
    pub took: Nanos,
    /// Present propagation delay.
    pub delay: Nanos,
    /// Segments.
    pub count: u32,
}

/// Segments of a departure that arrive together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// The first one, counted in the departure.
    pub first: u32,
    /// How many.
    pub count: u32,
    /// When.
    pub due: Nanos,
    /// It was held up, to be overtaken.
    pub held: bool,
}

impl Propagation {
    /// A way with these disturbances.
    #[must_use]
    pub fn new(jitter: Option<Jitter>, reorder: Option<Reorder>) -> Self {
        Self {
            jitter,
            reorder,
            last: 0,
        }
    }

    /// Whether segments may overtake each other.
    #[must_use]
    pub fn overtakes(&self) -> bool {
        self.reorder.is_some() || self.jitter.as_ref().is_some_and(Jitter::overtakes)
    }

    /// Returns when the segments of a departure arrive.
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

    /// A moment before which nothing arrives that leaves at `at` or later.
    #[must_use]
    pub fn earliest(&self, at: Nanos, delay: Nanos) -> Nanos {
        let mean = at.saturating_add(delay).max(self.last);
        self.jitter
            .as_ref()
            .map_or(mean, |jitter| jitter.earliest(mean))
    }
}
