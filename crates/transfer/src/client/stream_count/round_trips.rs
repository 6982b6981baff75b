//! Estimates the queue of a path from the round-trip times of several streams.

use std::time::Duration;

/// Queueing delay of a path, as far as the round-trip times of several streams show it.
///
/// All streams over a route wait in the same queue. Delayed acknowledgements, and outdated
/// measurements of a longer queue, make a stream's round trip longer than the path's. Outdated
/// measurements of a shorter queue make it shorter. The minimum is therefore about the least that
/// the queue can be, and a queue longer than the mean is unlikely.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in super::super) struct Queue {
    /// Delay by the minimum of the streams' round-trip times.
    pub at_least: Duration,
    /// Delay by their mean.
    pub at_most: Duration,
}

/// Round-trip times of all streams of a copy. Zero means unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in super::super) struct RoundTrips {
    /// Mean of the streams' current round-trip times.
    pub mean: Duration,
    /// Minimum ever measured, over any route.
    pub least: Duration,
    /// Mean of the queueing delays of the routes.
    pub queue: Queue,
}

/// Round-trip times of the streams over one route.
#[derive(Debug, Clone, Copy, Default)]
pub(in super::super) struct RouteRtt {
    /// Minimum of the streams' current round-trip times.
    now: Option<Duration>,
    /// Sum of the current round-trip times, for their mean.
    sum: Duration,
    count: u32,
    /// Minimum ever measured.
    least: Option<Duration>,
}

impl RouteRtt {
    /// Adds a stream's current and minimum round-trip times. Zero means unknown.
    pub(in super::super) fn add(&mut self, now: Duration, least: Duration) {
        let known = |rtt: Duration| Some(rtt).filter(|rtt| !rtt.is_zero());
        if let Some(now) = known(now) {
            self.now = self.now.into_iter().chain([now]).min();
            self.sum = self.sum.saturating_add(now);
            self.count += 1;
        }
        self.least = self.least.into_iter().chain(known(least)).min();
    }

    fn queue(&self) -> Option<Queue> {
        let (now, least) = (self.now?, self.least?);
        Some(Queue {
            at_least: now.saturating_sub(least),
            at_most: self.mean().saturating_sub(least),
        })
    }

    /// Returns the mean of the streams' current round-trip times, or zero if there are none.
    fn mean(&self) -> Duration {
        self.sum / self.count.max(1)
    }

    /// Combines the streams over all routes.
    pub(in super::super) fn of_all(routes: impl IntoIterator<Item = Self>) -> RoundTrips {
        let (mut all, mut queues, mut count) = (Self::default(), Queue::default(), 0);
        for route in routes {
            all.sum = all.sum.saturating_add(route.sum);
            all.count += route.count;
            all.least = all.least.into_iter().chain(route.least).min();
            if let Some(queue) = route.queue() {
                queues.at_least = queues.at_least.saturating_add(queue.at_least);
                queues.at_most = queues.at_most.saturating_add(queue.at_most);
                count += 1;
            }
        }
        RoundTrips {
            mean: all.mean(),
            least: all.least.unwrap_or_default(),
            queue: Queue {
                at_least: queues.at_least / count.max(1),
                at_most: queues.at_most / count.max(1),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn round_trips(mean: u64, least: u64, (at_least, at_most): (u64, u64)) -> RoundTrips {
        RoundTrips {
            mean: ms(mean),
            least: ms(least),
            queue: Queue {
                at_least: ms(at_least),
                at_most: ms(at_most),
            },
        }
    }

    #[test]
    fn late_acknowledgements_of_one_stream_are_not_a_queue() {
        let mut route = RouteRtt::default();
        for rtt in [91, 61, 70] {
            route.add(ms(rtt), ms(60));
        }
        assert_eq!(RouteRtt::of_all([route]), round_trips(74, 60, (1, 14)));
    }

    #[test]
    fn each_route_is_compared_with_its_own_minimum() {
        let (mut short, mut long) = (RouteRtt::default(), RouteRtt::default());
        short.add(ms(10), ms(10));
        long.add(ms(200), ms(200));
        assert_eq!(
            RouteRtt::of_all([short, long]),
            round_trips(105, 10, (0, 0))
        );
        long.add(ms(260), ms(160));
        let all = RouteRtt::of_all([short, long]);
        assert_eq!(
            (all.least, all.queue),
            (ms(10), round_trips(0, 0, (20, 35)).queue)
        );
        assert_eq!(all.mean, ms(470) / 3);
        assert_eq!(
            RouteRtt::of_all([RouteRtt::default()]),
            RoundTrips::default()
        );
    }
}
