//! Decides which routes streams may use, and how many on each, if the user did not choose the
//! routes.

use std::time::Duration;

use tokio::time::Instant;

use super::Supervisor;
use super::slot::{Slot, SlotState};
use crate::client::Connector;
use crate::client::route_observation::RouteObservation;
use crate::client::steering::DIRECT_ROUTE;
use crate::half::Half;
use crate::progress::{RouteStanding, TransferEvent};

/// Round trip that the comparison of transports assumes at least on a route with depots. The ends
/// measure only that to the next depot.
const MIN_UNSEEN_RTT: Duration = Duration::from_millis(250);

impl<C: Connector> Supervisor<'_, C> {
    /// Returns the numbers of the routes that streams may use.
    pub(super) fn used_routes(&self) -> Vec<usize> {
        match &self.steering {
            Some(steering) => steering.used_routes().collect(),
            None => (0..self.routes.len().max(1)).collect(),
        }
    }

    /// Returns the maximum number of streams of `route`.
    pub(super) fn max_streams_on(&self, route: usize) -> usize {
        let steered = self.steering.as_ref().map_or(usize::MAX, |steering| {
            steering.max_streams(route, self.count.target())
        });
        steered.min(self.client.connector.max_streams(route))
    }

    /// Returns true if the number of streams on `route` does not depend on the needs of the copy.
    pub(super) fn is_separate(&self, route: usize) -> bool {
        self.steering
            .as_ref()
            .is_some_and(|steering| steering.is_separate(route))
    }

    /// Returns true if another transport is tried or used, or will be once there are random losses.
    pub(super) fn has_other_transport(&self) -> bool {
        match (&self.steering, self.told_of_losses) {
            (Some(_), false) => self.client.connector.has_other_transport(),
            (Some(steering), true) => steering.has_other_transport(),
            (None, _) => false,
        }
    }

    /// Lets routes join and leave when the plan has changed.
    pub(super) fn follow_plan(&mut self) {
        let (Some(plan), Some(steering)) = (&mut self.plan, &mut self.steering) else {
            return;
        };
        let before: Vec<usize> = steering.used_routes().collect();
        let plan = plan.borrow_and_update().clone();
        steering.set_used(&plan);
        let after: Vec<usize> = steering.used_routes().collect();
        if before == after {
            return;
        }
        self.routes = self.client.connector.routes();
        for (routes, others, standing) in [
            (&after, &before, RouteStanding::Joined),
            (&before, &after, RouteStanding::Left),
        ] {
            for route in routes
                .iter()
                .filter(|route| **route != DIRECT_ROUTE && !others.contains(route))
            {
                self.report(*route, standing, "the chosen routes changed".to_owned());
            }
        }
        self.next_look = Instant::now();
    }

    fn report(&self, route: usize, standing: RouteStanding, reason: String) {
        self.client.observer.event(TransferEvent::RouteJudged {
            route: self.routes.get(route).cloned().unwrap_or_default(),
            standing,
            reason,
        });
    }

    /// Compares the routes, and gives up streams of those that have too many.
    pub(super) fn steer(&mut self) {
        let Some(mut steering) = self.steering.take() else {
            return;
        };
        let (mut looks, mut rtt) = (
            vec![RouteObservation::default(); self.routes.len()],
            Duration::ZERO,
        );
        for slot in &self.slots {
            let Some(look) = looks.get_mut(slot.route) else {
                continue;
            };
            let counters = slot.counters.get();
            look.tried |= slot.attempts > 0;
            look.opened |= counters.is_some();
            if let Some(open) = slot.open() {
                look.open += 1;
                // This end does not know what work a server has for a stream. The server's own
                // reports show it.
                look.busy |= match &self.half {
                    Half::Sending(queue) => queue.carries(open.number),
                    Half::Receiving(_) => true,
                };
            }
            look.moved = look.moved.saturating_add(slot.moved());
            rtt = rtt.max(counters.map_or(Duration::ZERO, |counters| counters.ends().here.rtt));
        }
        for (route, look) in looks.iter_mut().enumerate() {
            let mut slots = self
                .slots
                .iter()
                .filter(|slot| slot.route == route)
                .peekable();
            look.gone =
                slots.peek().is_some() && slots.all(|slot| slot.stream == SlotState::Failed);
        }
        if self.client.connector.hides_losses() {
            rtt = rtt.max(MIN_UNSEEN_RTT);
        }
        let judged = steering.observe(self.begun.elapsed(), rtt, &looks);
        self.steering = Some(steering);
        for judged in judged {
            if judged.standing == RouteStanding::Stalled {
                let slots = self
                    .slots
                    .iter_mut()
                    .filter(|slot| slot.route == judged.route);
                slots
                    .filter(|slot| slot.is_running())
                    .for_each(Slot::give_up);
            }
            self.report(judged.route, judged.standing, judged.reason);
        }
        for route in 0..self.routes.len() {
            self.limit_route(route, self.max_streams_on(route));
        }
    }

    /// Reduces a route to `most` streams. Open streams take no more work, others are given up.
    fn limit_route(&mut self, route: usize, most: usize) {
        let mut counting = self
            .slots
            .iter()
            .filter(|slot| slot.route == route && slot.counts() && slot.stream != SlotState::Failed)
            .count();
        for slot in self
            .slots
            .iter_mut()
            .filter(|slot| slot.route == route)
            .rev()
        {
            if counting <= most {
                return;
            }
            if slot.open().is_none() && slot.counts() && slot.stream != SlotState::Failed {
                slot.give_up();
                counting -= 1;
            }
        }
        while counting > most && self.retire_smallest(|slot| slot.route == route) {
            counting -= 1;
        }
    }
}
