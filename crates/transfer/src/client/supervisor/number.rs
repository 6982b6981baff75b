//! Adjusts the number of streams: observes the copy, opens streams and retires surplus ones.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use quantities::path::CongestionControl;
use tokio::time::Instant;

use super::Supervisor;
use super::slot::{Slot, SlotState};
use crate::client::Connector;
use crate::client::joining::JoinObservation;
use crate::client::steering::DIRECT_ROUTE;
use crate::client::stream_count::{CopyObservation, RoundTrips, RouteRtt};
use crate::client::transport_trial::unseen_losses_are_worth_a_trial;
use crate::half::Half;
use crate::progress::Standstill;

/// Maximum number of streams that a client opens before the server has reported its limit
/// (LH-COPY-9), or one for each route if there are more. A server with a lower limit refuses the
/// rest, and the copy continues without them.
const MAX_STREAMS_BEFORE_ACCEPT: usize = 16;
/// Total bytes from which every route that the user gave gets a stream.
const ALL_ROUTES_FROM_BYTES: u64 = 1 << 20;
/// Total bytes from which routes that were chosen for a copy are opened at once. In a smaller copy
/// they open when it shows that it lasts ([`joining`](crate::client::joining)).
const CHOSEN_ROUTES_FROM_BYTES: u64 = 16 << 20;
/// Pauses between observations of a copy whose bytes move, and of one at a standstill.
const MIN_OBSERVE_PAUSE: Duration = Duration::from_millis(25);
const MAX_OBSERVE_PAUSE: Duration = Duration::from_secs(1);
/// The pause between observations at a standstill is its duration divided by this.
const OBSERVE_PAUSE_DIVISOR: u32 = 4;
/// When a stream is to be retired, the streams' bytes are compared over once to twice this time.
const SHARE_SPAN: Duration = Duration::from_secs(1);

impl<C: Connector> Supervisor<'_, C> {
    /// Observes the copy, if that is due.
    pub(super) fn observe(&mut self) {
        let now = Instant::now();
        if (self.count.is_fixed() && self.steering.is_none()) || now < self.next_look {
            return;
        }
        let found = self.client.progress.bytes_found.load(Ordering::Relaxed);
        if self.steering.is_none() && found >= ALL_ROUTES_FROM_BYTES {
            self.count.raise_minimum(self.routes.len());
        }
        let view = self.observation();
        if view.moved != self.moved.0 {
            self.moved = (view.moved, now);
        }
        let standstill = match self.ever_open {
            true => Standstill::Silent,
            false if self.has_direct_failed() => Standstill::Failed,
            false => Standstill::Unopened,
        };
        let stands_still = now.duration_since(self.moved.1) >= standstill.min_duration();
        self.client
            .progress
            .set_standstill(stands_still.then_some(standstill));
        let before = self.count.target();
        self.count.ignore_losses(self.has_other_transport());
        self.count.observe(&view);
        let may_lose_unseen = self.client.connector.hides_losses()
            && unseen_losses_are_worth_a_trial(view.now, view.moved, view.left);
        if !self.told_of_losses && (self.count.has_random_losses() || may_lose_unseen) {
            self.told_of_losses = true;
            self.client.connector.on_random_loss();
        }
        if self.steering.is_some() && !self.spreads {
            let lasts = self.joining.observe(&JoinObservation {
                now: view.now,
                rtt: view.rtt,
                moved: view.moved,
                left: view.left,
                streams: self.count.target(),
                mss: view.mss,
            });
            // A number that the user fixed is spread over all routes, without additional streams.
            self.spreads =
                lasts || stands_still || found >= CHOSEN_ROUTES_FROM_BYTES || self.count.is_fixed();
        }
        if now.duration_since(self.shares_marked) >= SHARE_SPAN {
            self.shares_marked = now;
            for slot in &mut self.slots {
                slot.share.mark(slot.moved());
            }
        }
        let streams = self.count.target();
        if streams != before {
            tracing::debug!(
                streams,
                before,
                moved = view.moved,
                left = view.left,
                rtt = ?view.rtt,
                min_rtt = ?view.min_rtt,
                limit = ?view.sending.dominant_limit(),
                "an unexpected number of streams"
            );
        }
        let still = now.duration_since(self.moved.1) / OBSERVE_PAUSE_DIVISOR;
        self.next_look = now + still.clamp(MIN_OBSERVE_PAUSE, MAX_OBSERVE_PAUSE);
    }

    /// Returns true if the direct route of a copy that may use others was refused. Its other
    /// attempts may hang, as refused connections are seldom all reported.
    fn has_direct_failed(&self) -> bool {
        let mut direct = self.slots.iter().filter(|slot| slot.route == DIRECT_ROUTE);
        self.steering.is_some() && direct.any(|slot| slot.stream == SlotState::Failed)
    }

    /// Returns the observation on which the number of streams is based.
    fn observation(&self) -> CopyObservation {
        let progress = &self.client.progress;
        let done = progress.bytes_done.load(Ordering::Relaxed);
        let found = progress.bytes_found.load(Ordering::Relaxed);
        let expected = match &self.half {
            Half::Sending(queue) => queue.expected_bytes(),
            Half::Receiving(_) => 0,
        };
        let is_reported = found > 0 || progress.walk_complete.load(Ordering::Relaxed);
        let mut view = CopyObservation {
            now: self.begun.elapsed(),
            left: found.saturating_sub(done).saturating_add(expected),
            is_unopened: !self.ever_open && *self.open.borrow() == 0,
            is_size_unknown: !is_reported && matches!(self.half, Half::Receiving(_)),
            ..CopyObservation::default()
        };
        let streams = progress.streams();
        let mut on_routes = BTreeMap::<&str, RouteRtt>::new();
        for stream in &streams {
            let ends = stream.ends();
            let here = &ends.here;
            view.moved = view.moved.saturating_add(here.moved);
            view.mss = view.mss.max(here.mss);
            let mut round_trips = (here.rtt, here.min_rtt);
            match self.half {
                Half::Sending(_) => {
                    view.sending.merge(&here.tally);
                    view.lost = view.lost.saturating_add(here.retransmits.into());
                    view.loss_signs = view.lost;
                    view.congestion = here.congestion.as_str().parse::<CongestionControl>().ok();
                }
                Half::Receiving(_) => {
                    view.sending.merge(&ends.there);
                    view.receiving.merge(&here.tally);
                    view.lost = view
                        .lost
                        .saturating_add(ends.retransmits_there.unwrap_or(0));
                    view.loss_signs = view.loss_signs.saturating_add(here.out_of_order.into());
                    // This end's own packets do not pass the queue of the data, but the
                    // acknowledgements of the data share their path. They give later information
                    // than the sending end has, and less of it.
                    if let Some(reported) = ends.there.evidence() {
                        round_trips = (
                            reported.rtt.max(here.rtt),
                            reported.min_rtt.min(here.min_rtt),
                        );
                    }
                }
            }
            // A transport other than TCP has no segments, and its streams share one window. They
            // do not show how many streams TCP needs.
            let is_tcp = here.mss > 0;
            if !stream.open.load(Ordering::Relaxed) || here.rtt.is_zero() || !is_tcp {
                continue;
            }
            view.open += 1;
            view.addresses = view.addresses.or(stream.addresses());
            let route = on_routes.entry(stream.route.name()).or_default();
            route.add(round_trips.0, round_trips.1);
            view.largest_window = [view.largest_window, here.largest_window]
                .into_iter()
                .flatten()
                .min();
        }
        let RoundTrips { mean, least, queue } = RouteRtt::combine(on_routes.into_values());
        CopyObservation {
            rtt: mean,
            min_rtt: least,
            queue,
            least_share: self.least_share(),
            ..view
        }
    }

    /// Returns the share of the smallest stream in the recent bytes of all open streams.
    fn least_share(&self) -> Option<f64> {
        let open = self.slots.iter().filter(|slot| slot.open().is_some());
        let shares: Vec<u64> = open
            .map(|slot| slot.share.recent_bytes(slot.moved()))
            .collect();
        let all = shares
            .iter()
            .fold(0_u64, |all, share| all.saturating_add(*share));
        let least = shares.iter().min()?;
        (all > 0).then(|| *least as f64 / all as f64)
    }

    /// Adds slots, or retires streams, until the number is right.
    pub(super) fn resize(&mut self) {
        let routes = self.used_routes().len().max(1);
        let most = match self.accepted {
            true => usize::MAX,
            false => routes.max(MAX_STREAMS_BEFORE_ACCEPT),
        };
        let wanted = match &self.steering {
            Some(steering) if self.spreads && !self.count.is_fixed() => {
                steering.total_streams(self.count.target())
            }
            _ => self.count.target(),
        };
        let wanted = wanted.min(most).min(self.count.maximum());
        if self.client.progress.standstill().borrow().is_some() {
            self.open_on_others();
        }
        let mut counting = self.slots.iter().filter(|slot| self.counts(slot)).count();
        let may_add = Instant::now() >= self.no_more_before || self.has_no_stream_left();
        while may_add
            && counting < wanted
            && self.counted_by_server() < self.count.maximum()
            && let Some(route) = self.next_route()
        {
            self.open_on(route);
            counting += 1;
        }
        while counting > wanted && self.retire_one() {
            counting -= 1;
        }
        // Before anything is open, a route that fails is replaced by the next untried one.
        if !self.ever_open && !self.slots.is_empty() && self.has_no_stream_left() {
            let mut used = self.used_routes().into_iter();
            let untried = used.find(|route| self.slots.iter().all(|slot| slot.route != *route));
            if let Some(route) = untried {
                self.open_on(route);
            }
        }
    }

    /// Returns the number of streams that the server counts, or will count. This includes retired
    /// streams and those that it has not closed yet (LH-COPY-9).
    fn counted_by_server(&self) -> usize {
        let slots = self.slots.iter();
        let live = slots.filter(|slot| slot.is_running() || slot.due().is_some());
        live.count().saturating_add(*self.leaving.borrow() as usize)
    }

    /// Opens a stream on each route that has none, regardless of the number on other routes, which
    /// are of no use.
    fn open_on_others(&mut self) {
        for route in self.used_routes() {
            let may_open =
                self.max_streams_on(route) > 0 && self.counted_by_server() < self.count.maximum();
            if self.count_on(route) == 0 && may_open {
                self.open_on(route);
            }
        }
    }

    /// Returns the route of the next stream: of those that may have more, one with the fewest.
    fn next_route(&self) -> Option<usize> {
        let routes = match self.steering.is_some() && !self.spreads {
            true => vec![DIRECT_ROUTE],
            false => self.used_routes(),
        };
        let open = routes
            .into_iter()
            .filter(|route| self.count_on(*route) < self.max_streams_on(*route));
        open.min_by_key(|route| self.count_on(*route))
    }

    /// Returns the number of streams that a route has or will have.
    fn count_on(&self, route: usize) -> usize {
        let slots = self.slots.iter().filter(|slot| slot.route == route);
        slots.filter(|slot| slot.counts()).count()
    }

    /// Returns true if a slot counts towards the number of streams.
    fn counts(&self, slot: &Slot) -> bool {
        // There is nothing to wait for on a route that is gone.
        let is_gone = slot.stream == SlotState::Failed && self.max_streams_on(slot.route) == 0;
        slot.counts() && !is_gone
    }

    /// Opens a stream over `route`.
    fn open_on(&mut self, route: usize) {
        let is_free = |slot: &&mut Slot| slot.route == route && slot.stream == SlotState::Free;
        match self.slots.iter_mut().find(is_free) {
            Some(free) => free.stream = SlotState::Due(Instant::now()),
            None => self.slots.push(Slot::new(route)),
        }
    }

    /// Retires the stream that carries least, among those that their route can spare. The others
    /// take over its work soonest. Streams that are still opening are left alone until they are
    /// open.
    fn retire_one(&mut self) -> bool {
        let mut open = BTreeMap::<usize, usize>::new();
        for slot in self.slots.iter().filter(|slot| slot.open().is_some()) {
            *open.entry(slot.route).or_default() += 1;
        }
        let separate: Vec<bool> = (0..self.routes.len())
            .map(|route| self.is_separate(route))
            .collect();
        let is_separate = |slot: &Slot| separate.get(slot.route).is_some_and(|separate| *separate);
        self.retire_smallest(|slot| {
            !is_separate(slot) && open.get(&slot.route).is_some_and(|open| *open > 1)
        })
    }

    /// Retires the stream that carries least, among those for which `may_go` is true. Streams that
    /// the server has not accepted go first, as it may refuse them anyway.
    pub(super) fn retire_smallest(&mut self, may_go: impl Fn(&Slot) -> bool) -> bool {
        let slots = self.slots.iter().enumerate();
        let least = slots
            .filter(|(_, slot)| may_go(slot))
            .filter_map(|(number, slot)| {
                let is_accepted = slot.open()?.is_accepted();
                let moved = slot.share.recent_bytes(slot.moved());
                Some((is_accepted, moved, Reverse(number)))
            })
            .min()
            .map(|(_, _, Reverse(number))| number);
        let Some(slot) = least.and_then(|number| self.slots.get_mut(number)) else {
            return false;
        };
        if let Some(counters) = slot.open() {
            match &self.half {
                Half::Sending(queue) => queue.retire(counters.number),
                Half::Receiving(_) => counters.retire(),
            }
        }
        slot.stream = SlotState::Retiring;
        true
    }
}
