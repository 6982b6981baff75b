//! Order and times of the attempts to continue a stream (LH-RESUME-8).

use std::collections::VecDeque;
use std::time::Duration;

/// Delay after the first round of attempts. It doubles after each further round.
const FIRST_DELAY: Duration = Duration::from_millis(250);
/// Maximum delay between two rounds.
const MAX_DELAY: Duration = Duration::from_secs(5);
/// Minimum lifetime of a connection after which the next attempts start without delay.
const STABLE_TIME: Duration = Duration::from_secs(5);

/// Plan of attempts: every route in turn, the one that failed last, then again after a delay.
#[derive(Debug)]
pub struct AttemptPlan<R> {
    /// Routes left in this round.
    round: VecDeque<R>,
    /// Number of rounds since a connection was stable.
    rounds: u32,
    attached_at: Option<Duration>,
}

impl<R: PartialEq> AttemptPlan<R> {
    /// Creates a plan for a stream that got its first connection at `now`.
    #[must_use]
    pub const fn new(now: Duration) -> Self {
        Self {
            round: VecDeque::new(),
            rounds: 0,
            attached_at: Some(now),
        }
    }

    /// Records a new connection.
    pub fn attached(&mut self, now: Duration) {
        self.attached_at = Some(now);
        self.round.clear();
    }

    /// Returns the delay before the next attempt; none within a round.
    ///
    /// `spread` in 0..=255 shortens a delay by up to a quarter, so that the streams of a dead depot
    /// do not all return at once.
    pub fn delay(&mut self, now: Duration, spread: u8) -> Duration {
        if let Some(since) = self.attached_at.take()
            && now.saturating_sub(since) >= STABLE_TIME
        {
            self.rounds = 0;
        }
        if self.rounds == 0 || !self.round.is_empty() {
            return Duration::ZERO;
        }
        let doublings = self.rounds.saturating_sub(1).min(8);
        let delay = FIRST_DELAY
            .saturating_mul(1u32.checked_shl(doublings).unwrap_or(u32::MAX))
            .min(MAX_DELAY);
        let cut = delay
            .checked_div(4 * 255)
            .unwrap_or_default()
            .saturating_mul(spread.into());
        delay.saturating_sub(cut)
    }

    /// Returns the route of the next attempt. `failed` is the route that the stream used last;
    /// `routes` returns all routes, best first, and is called once for each round.
    pub fn next_route(&mut self, failed: &R, routes: impl FnOnce() -> Vec<R>) -> Option<R> {
        if self.round.is_empty() {
            self.rounds = self.rounds.saturating_add(1);
            let (same, others): (Vec<_>, Vec<_>) =
                routes().into_iter().partition(|route| route == failed);
            for route in others.into_iter().chain(same) {
                if !self.round.contains(&route) {
                    self.round.push_back(route);
                }
            }
        }
        self.round.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_routes_come_first_and_rounds_slow_down() {
        let second = Duration::from_secs(1);
        let mut plan = AttemptPlan::new(Duration::ZERO);
        let routes = || vec!["a", "b", "a", "c"];
        let mut tried = Vec::new();
        let mut delays = Vec::new();
        for _ in 0..9 {
            delays.push(plan.delay(100 * second, 0));
            tried.push(plan.next_route(&"a", routes).unwrap());
        }
        assert_eq!(tried, ["b", "c", "a", "b", "c", "a", "b", "c", "a"]);
        let ms = Duration::from_millis;
        assert_eq!(delays[0..3], [ms(0); 3]);
        assert_eq!(delays[3..6], [ms(250), ms(0), ms(0)]);
        assert_eq!(delays[6..9], [ms(500), ms(0), ms(0)]);
        for _ in 0..100 {
            assert!(plan.delay(100 * second, 255) <= MAX_DELAY);
            plan.next_route(&"a", routes);
        }
        // A connection that is lost at once does not start over.
        plan.attached(200 * second);
        assert!(plan.delay(201 * second, 255) >= MAX_DELAY / 2);
        plan.attached(300 * second);
        assert_eq!(plan.delay(306 * second, 0), Duration::ZERO);
        assert_eq!(plan.next_route(&"a", Vec::new), None);
    }
}
