//! The queue of a path, from the round trips of several streams over it.

use std::time::Duration;

/// The round trips of the streams over one route.
///
/// All of them wait in the same queue. Acknowledgements that are held back, and news that is old, make the round trip of a stream longer,
/// and never shorter: the least of them is the nearest to what the queue is.
#[derive(Debug, Clone, Copy, Default)]
pub(in super::super) struct RouteRtt {
    now: Option<Duration>,
    /// The least ever.
    least: Option<Duration>,
}

impl RouteRtt {
    /// Takes in a stream's: the round trip as it is now, and the least that it knows of. Zero is an unknown one.
    pub(in super::super) fn add(&mut self, now: Duration, least: Duration) {
        let known = |rtt: Duration| Some(rtt).filter(|rtt| !rtt.is_zero());
        self.now = self.now.into_iter().chain(known(now)).min();
        self.least = self.least.into_iter().chain(known(least)).min();
    }

    fn queue(&self) -> Option<Duration> {
        Some(self.now?.saturating_sub(self.least?))
    }

    /// The least round trip over any route, and the queue that stands in them on average; zero where they are not known.
    pub(in super::super) fn of_all(routes: impl IntoIterator<Item = Self>) -> (Duration, Duration) {
        let (mut least, mut queues, mut count) = (None, Duration::ZERO, 0);
        for route in routes {
            least = least.into_iter().chain(route.least).min();
            if let Some(queue) = route.queue() {
                queues = queues.saturating_add(queue);
                count += 1;
            }
        }
        (least.unwrap_or_default(), queues / count.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn one_stream_whose_acknowledgements_come_late_is_no_queue() {
        let mut route = RouteRtt::default();
        for rtt in [91, 61, 70] {
            route.add(ms(rtt), ms(60));
        }
        assert_eq!(RouteRtt::of_all([route]), (ms(60), ms(1)));
    }

    #[test]
    fn each_route_is_held_against_its_own() {
        let (mut short, mut long) = (RouteRtt::default(), RouteRtt::default());
        short.add(ms(10), ms(10));
        long.add(ms(200), ms(200));
        assert_eq!(RouteRtt::of_all([short, long]), (ms(10), ms(0)));
        long.add(ms(260), ms(160));
        assert_eq!(RouteRtt::of_all([short, long]), (ms(10), ms(20)));
        assert_eq!(RouteRtt::of_all([RouteRtt::default()]), (ms(0), ms(0)));
    }
}
