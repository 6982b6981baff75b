//! Route tables that clients store.

use longhaul_control_api::routes::{Destination, DirectTime, RouteTable, SizeClass};
use longhaul_routing::route::choice::{Choice, Chooser, RouteRequest};
use longhaul_routing::route::table::{
    CLASS_COUNT, CLASS_ENDS, MAX_VALIDITY_SECONDS, TYPICAL_BYTES, all_direct, class_choices,
    class_request,
};
use longhaul_routing::route::{NodeId, RouteDepots};

use super::{DEFAULT_STREAMS, RoutingState};
use crate::places::seconds;

impl RoutingState {
    /// Returns the table from one end to at most `limit` hosts after the first `skip`, or to a
    /// single end. It is for sending or, with `receives`, for fetching. All destinations are
    /// included; those without sizes go direct.
    pub fn table(
        &mut self,
        from: &str,
        to: Option<&str>,
        receives: bool,
        (skip, limit): (usize, usize),
        now_ms: u64,
    ) -> RouteTable {
        let start = self.id(from);
        let ends: Vec<(String, Vec<String>)> = match to {
            Some(to) => vec![(
                to.to_owned(),
                self.depots.hosts.get(to).cloned().unwrap_or_default(),
            )],
            None => {
                let hosts = self.depots.hosts.iter().filter(|(host, _)| *host != from);
                let hosts = hosts.map(|(host, addresses)| (host.clone(), addresses.clone()));
                hosts.skip(skip).take(limit).collect()
            }
        };
        let ids: Vec<NodeId> = ends.iter().map(|(end, _)| self.id(end)).collect();
        let now = seconds(now_ms);
        match receives {
            true => self.infer(&ids, &[start], now),
            false => self.infer(&[start], &ids, now),
        }
        let mut chooser = Chooser::new(&self.hops, &self.outcomes, &self.policy);
        let destinations = ends.into_iter().zip(ids).map(|((end, addresses), id)| {
            let (source, sink) = match receives {
                true => (id, start),
                false => (start, id),
            };
            let made = class_choices(&mut chooser, source, sink, DEFAULT_STREAMS, now);
            let direct = made
                .iter()
                .zip(TYPICAL_BYTES)
                .filter_map(|(choice, bytes)| {
                    let seconds = super::spread(&choice.direct?.time);
                    Some(DirectTime { bytes, seconds })
                });
            let direct = direct.collect();
            let classes = made.iter().enumerate().filter(|_| !all_direct(&made));
            let sizes = classes.map(|(class, choice)| {
                let asked = class_request(source, sink, class, DEFAULT_STREAMS, now);
                self.size(&chooser, &asked, receives, class, choice)
            });
            Destination {
                to: end,
                addresses,
                sizes: sizes.collect(),
                direct,
            }
        });
        let destinations: Vec<Destination> = destinations.collect();
        let is_full = to.is_none() && destinations.len() == limit;
        RouteTable {
            from: from.to_owned(),
            receives,
            map_version: self.map_version,
            made_ms: now_ms,
            valid_until_ms: now_ms.saturating_add((MAX_VALIDITY_SECONDS * 1000.0) as u64),
            next: is_full.then(|| (skip + limit).to_string()),
            destinations,
        }
    }

    fn size(
        &self,
        chooser: &Chooser<'_>,
        asked: &RouteRequest,
        receives: bool,
        class: usize,
        choice: &Choice,
    ) -> SizeClass {
        let below = class.checked_sub(1).and_then(|below| CLASS_ENDS.get(below));
        // Both the model and the outcomes of transfers decide.
        let option = |via: &RouteDepots, share| {
            let expected = chooser.rate(asked, via).map(|rated| rated.expected);
            // Routes are given in the direction in which the caller opens them.
            let opened = match receives {
                true => via.reversed(),
                false => *via,
            };
            self.option(&opened, expected.as_ref(), asked.transfer.bytes, share)
        };
        let share = 1.0 / choice.at_once.len().max(1) as f64;
        let at_once = choice.at_once.iter();
        SizeClass {
            at_least_bytes: below.map_or(0, |below| below + 1),
            typical_bytes: asked.transfer.bytes,
            routes: at_once.map(|(via, _)| option(via, share)).collect(),
            fall_back: choice
                .fall_back
                .iter()
                .map(|via| option(via, 0.0))
                .collect(),
            direct_seconds: choice.direct.map(|direct| super::spread(&direct.time)),
        }
    }

    /// Returns the depots of the route for large transfers between two ends, by name; empty for the
    /// direct route.
    pub fn bulk_route(&mut self, from: &str, to: &str, now_ms: u64) -> Vec<String> {
        let (from, to) = (self.id(from), self.id(to));
        self.infer(&[from], &[to], seconds(now_ms));
        let mut chooser = Chooser::new(&self.hops, &self.outcomes, &self.policy);
        let asked = class_request(from, to, CLASS_COUNT - 1, DEFAULT_STREAMS, seconds(now_ms));
        let choice = chooser.choose(&asked, None, &self.account);
        choice.via.depots().map(|depot| self.name(depot)).collect()
    }
}
