//! The routes of at most three depots that could be quicker than the direct one.
//!
//! Routes grow hop by hop from the sender's end. One is given up when its round trips, or its bytes
//! at the rate of one of its hops alone, already take as long as the direct route: that depends on
//! its own hops only, so no depot can push out another one's routes by what it reports. Only beyond
//! [`Bounds`] the roughly best are kept.

use super::expected::{HOST_SECONDS, ROUND_TRIPS_AROUND};
use super::map::{HopId, Map};
use super::{MAX_DEPOTS, NodeId, Transfer, Via};

/// How many routes are looked at. Where there are no more than the first two figures say, none is
/// left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Beginnings of routes of one length that are all grown further.
    pub all_beginnings: usize,
    /// Whole routes that are all evaluated.
    pub all_routes: usize,
    /// Where there are more beginnings: how many of them, the roughly best.
    pub beginnings: usize,
    /// Where there are more whole routes: how many of them.
    pub routes: usize,
}

impl Default for Bounds {
    /// With up to six depots nothing is left out: 30 beginnings of two depots, and 156 routes.
    fn default() -> Self {
        Self {
            all_beginnings: 30,
            all_routes: 156,
            beginnings: 12,
            routes: 24,
        }
    }
}

/// A route, and about what it takes at the medians, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// Its depots.
    pub via: Via,
    /// About how long it takes.
    pub about: f64,
}

#[derive(Clone, Copy)]
struct Beginning {
    via: Via,
    at: NodeId,
    rtt: f64,
    /// Of its slowest hop, for the data: no less than that, and about that.
    least: f64,
    about: f64,
}

impl Beginning {
    /// With one more hop, which takes at least, and about, so many seconds.
    fn grown(&self, rtt: f32, (least, about): (f64, f64), at: NodeId, via: Via) -> Self {
        Self {
            via,
            at,
            rtt: self.rtt + f64::from(rtt),
            least: self.least.max(least),
            about: self.about.max(about),
        }
    }

    fn least_time(&self) -> f64 {
        HOST_SECONDS + ROUND_TRIPS_AROUND * self.rtt + self.least
    }

    fn about_time(&self) -> f64 {
        HOST_SECONDS + ROUND_TRIPS_AROUND * self.rtt + self.about
    }
}

/// Room for finding candidates, to be used again.
#[derive(Debug, Clone, Default)]
pub struct Scratch {
    /// For each node the hop from it to the end sought, plus one; 0 where there is none.
    last: Vec<u32>,
    hops: Vec<(NodeId, HopId)>,
}

impl Scratch {
    fn aim(&mut self, map: &Map, to: NodeId) {
        for (node, _) in self.hops.drain(..) {
            if let Some(place) = self.last.get_mut(node.index()) {
                *place = 0;
            }
        }
        self.last.resize(map.nodes(), 0);
        for (hop, from) in map.entering(to) {
            if map.is_usable(hop) {
                self.last[from.index()] = self.hops.len() as u32 + 1;
                self.hops.push((from, hop));
            }
        }
    }

    fn hop_from(&self, node: NodeId) -> Option<HopId> {
        let place = *self.last.get(node.index())?;
        Some(self.hops.get(place.checked_sub(1)? as usize)?.1)
    }
}

/// The routes with depots, none of which passes a dead or unknown hop, that could take less than
/// `below` seconds: the roughly quickest first.
#[must_use]
pub fn candidates(
    map: &Map,
    scratch: &mut Scratch,
    from: NodeId,
    to: NodeId,
    transfer: &Transfer,
    below: f64,
    bounds: &Bounds,
) -> Vec<Candidate> {
    scratch.aim(map, to);
    let (bytes, streams) = (transfer.bytes as f64, f64::from(transfer.streams.max(1)));
    let relay = |node: NodeId| map.relayed(node, streams);
    let mut found: Vec<Candidate> = Vec::new();
    let start = Beginning {
        via: Via::DIRECT,
        at: from,
        rtt: 0.0,
        least: 0.0,
        about: 0.0,
    };
    let mut beginnings = vec![start];
    for depots in 1..=MAX_DEPOTS {
        let is_last = depots == MAX_DEPOTS;
        let mut grown = Vec::new();
        for beginning in &beginnings {
            for (hop, depot) in map.leaving(beginning.at) {
                if depot == to || depot == from || !map.is_usable(hop) {
                    continue;
                }
                // The last depot must lead to the end.
                if is_last && scratch.hop_from(depot).is_none() {
                    continue;
                }
                let Some(cap) = relay(depot) else { continue };
                let Some(via) = beginning.via.and_then(depot) else {
                    continue;
                };
                let rough = map.rough(hop);
                let next =
                    beginning.grown(rough.rtt, rough.seconds(bytes, streams, cap), depot, via);
                if next.least_time() < below {
                    grown.push(next);
                }
            }
        }
        for beginning in &grown {
            let Some(hop) = scratch.hop_from(beginning.at) else {
                continue;
            };
            let cap = relay(beginning.at).unwrap_or(f64::INFINITY);
            let rough = map.rough(hop);
            let whole = beginning.grown(
                rough.rtt,
                rough.seconds(bytes, streams, cap),
                to,
                beginning.via,
            );
            if whole.least_time() < below {
                found.push(Candidate {
                    via: whole.via,
                    about: whole.about_time(),
                });
            }
        }
        if is_last {
            break;
        }
        keep(
            &mut grown,
            bounds.all_beginnings,
            bounds.beginnings,
            Beginning::about_time,
        );
        beginnings = grown;
    }
    keep(&mut found, bounds.all_routes, bounds.routes, |route| {
        route.about
    });
    found
}

/// All of them, or the best where there are too many; in order.
fn keep<T: Copy>(found: &mut Vec<T>, all: usize, best: usize, rank: impl Fn(&T) -> f64) {
    if found.len() > all && best > 0 {
        found.select_nth_unstable_by(best - 1, |one, other| rank(one).total_cmp(&rank(other)));
        found.truncate(best);
    }
    found.sort_by(|one, other| rank(one).total_cmp(&rank(other)));
}

#[cfg(test)]
mod tests;
