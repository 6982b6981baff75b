//! Six sites whose links change, and transfers between them: routed, in comparison with the
//! policies that routing has to beat.
//!
//! The actual time of a transfer is the model's time for the state of the links at that moment,
//! times noise. The links are measured periodically, with noise, and forecast by smoothing. So the
//! policy sees the past, and imprecisely.
#![allow(clippy::unwrap_used)] // a simulation: every hop that it asks for is in its maps

use longhaul_routing::Quantiles;
use longhaul_routing::route::choice::{Choice, Chooser, Policy, RouteRequest, RoutesInUse};
use longhaul_routing::route::explore::ExplorationAccount;
use longhaul_routing::route::guard::{DirectEstimate, GuardVerdict, RouteGuard, slowdown};
use longhaul_routing::route::map::{HopForecast, Node, RouteMap};
use longhaul_routing::route::minimax::{
    HopCost, LSL_TOLERANCE, MinimaxTree, all_routes, best_actual_route,
};
use longhaul_routing::route::table::size_class;
use longhaul_routing::route::trust::{
    DeathScope, DepotFailures, TransferOutcome, TransferOutcomes,
};
use longhaul_routing::route::{NodeId, RouteDepots, Transfer};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

pub const SITES: u32 = 6;
/// Seconds between two transfers, and between two measurements of each hop.
const BETWEEN: f64 = 20.0;
const MEASURED_EVERY: f64 = 10.0;
/// Time of a failed dial before the next route is tried, in seconds.
const NOTICED: f64 = 3.0;
/// Waiting time if every route is dead, in seconds.
const OUTAGE: f64 = 60.0;
/// Standard deviations of the logarithms of a transfer's time and of a measurement.
const NOISE: f64 = 0.06;
const MEASURING: f64 = 0.10;
/// Number of streams of each transfer.
const STREAMS: u16 = 4;

/// Trouble that the links have in addition to their trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    None,
    /// A depot is dead from a third of the transfers on, for a sixth of them.
    Depot,
    /// A link is dead from half of them on, for a sixth.
    Link,
    /// From two thirds on, for a sixth, measurements of a link show ten times its rate, in both
    /// directions.
    Forecast,
    /// The same for all links of a site.
    Forecasts,
    /// A depot, a link and a forecast.
    All,
}

/// Total times of all policies, in seconds.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    pub routed: f64,
    pub direct: f64,
    pub best_depot: f64,
    pub by_bandwidth: f64,
    pub lsl: f64,
    pub oracle: f64,
    /// For each size class: number of transfers, and times of routed, direct, and the oracle.
    pub classes: Vec<(usize, f64, f64, f64)>,
    pub by_depots: usize,
    pub explored: u64,
    pub bulk: u64,
}

#[derive(Clone, Copy)]
struct Link {
    rtt: f64,
    loss: f64,
    rate: f64,
    /// Logarithms of random walks: of the free share of the rate, and of the loss.
    walk: f64,
    loss_walk: f64,
}

struct Smoothed {
    mean: [f64; 3],
    square: [f64; 3],
    samples: u32,
}

struct World {
    links: Vec<Link>,
    pairs: Vec<(NodeId, NodeId)>,
    truth: RouteMap,
    known: RouteMap,
    smoothed: Vec<Smoothed>,
}

/// Returns a draw from an approximate normal distribution: the sum of twelve uniform ones.
fn normal(random: &mut Xoshiro256PlusPlus) -> f64 {
    (0..12).map(|_| random.random_range(0.0..1.0)).sum::<f64>() - 6.0
}

fn exactly(link: &Link) -> HopForecast {
    HopForecast {
        rtt: Quantiles::exactly(link.rtt),
        loss: Quantiles::exactly((link.loss * link.loss_walk.exp()).min(0.05)),
        rate: Quantiles::exactly(link.rate * link.walk.exp().min(1.0)),
        at: 0.0,
        samples: u32::MAX,
    }
}

impl World {
    fn new(random: &mut Xoshiro256PlusPlus) -> Self {
        let places: Vec<(f64, f64)> = (0..SITES)
            .map(|_| {
                (
                    random.random_range(0.0..0.06),
                    random.random_range(0.0..0.04),
                )
            })
            .collect();
        let pairs: Vec<(NodeId, NodeId)> = (0..SITES)
            .flat_map(|a| (0..SITES).map(move |b| (NodeId(a), NodeId(b))))
            .filter(|(a, b)| a != b)
            .collect();
        // Half of the links make detours, and a third are lossy.
        let links = pairs.iter().map(|(a, b)| {
            let ((x, y), (u, v)) = (places[a.0 as usize], places[b.0 as usize]);
            let detour = if random.random_range(0.0..1.0) < 0.5 {
                random.random_range(1.0..2.0)
            } else {
                1.0
            };
            let lossy = random.random_range(0.0..1.0) < 0.34;
            Link {
                rtt: (0.002 + (x - u).hypot(y - v)) * detour * 2.0,
                loss: if lossy {
                    10f64.powf(random.random_range(-5.0..-3.0))
                } else {
                    1e-7
                },
                rate: [100e6, 300e6, 1e9][random.random_range(0..3usize)],
                walk: -0.3,
                loss_walk: 0.0,
            }
        });
        let links: Vec<Link> = links.collect();
        let node = Node {
            window: Some(4 << 20),
            ..Node::DEPOT
        };
        let map = RouteMap::new(vec![node; SITES as usize], &pairs);
        let smoothed = pairs.iter().map(|_| Smoothed {
            mean: [0.0; 3],
            square: [0.0; 3],
            samples: 0,
        });
        Self {
            smoothed: smoothed.collect(),
            links,
            pairs,
            truth: map.clone(),
            known: map,
        }
    }

    /// Advances all traces by one step: small changes that revert, and occasionally another level.
    fn change(&mut self, random: &mut Xoshiro256PlusPlus) {
        for (link, (from, to)) in self.links.iter_mut().zip(&self.pairs) {
            link.walk += 0.05 * (-0.3 - link.walk) + 0.06 * normal(random);
            link.loss_walk += -0.05 * link.loss_walk + 0.1 * normal(random);
            if random.random_range(0.0..1.0) < 0.01 {
                link.walk = random.random_range(-2.0..0.0);
            }
            let hop = self.truth.hop(*from, *to).unwrap();
            self.truth.update(hop, &exactly(link));
        }
    }

    fn measure(
        &mut self,
        now: f64,
        wrong: &dyn Fn(NodeId, NodeId) -> bool,
        random: &mut Xoshiro256PlusPlus,
    ) {
        for ((link, (from, to)), smoothed) in
            self.links.iter().zip(&self.pairs).zip(&mut self.smoothed)
        {
            let is = exactly(link);
            let wrong = if wrong(*from, *to) { 10.0 } else { 1.0 };
            let seen = [
                is.rtt.p50 * (0.02 * normal(random)).exp(),
                is.loss.p50 * (3.0 * MEASURING * normal(random)).exp(),
                is.rate.p50 * wrong * (MEASURING * normal(random)).exp(),
            ];
            smoothed.samples += 1;
            let gain = (1.0 / f64::from(smoothed.samples)).max(0.3);
            let quantiles: Vec<Quantiles> = (0..3)
                .map(|at| {
                    let off = seen[at].ln() - smoothed.mean[at];
                    smoothed.mean[at] += gain * off;
                    let off = if smoothed.samples == 1 { 0.0 } else { off };
                    smoothed.square[at] += 0.1 * (off * off - smoothed.square[at]);
                    let (median, spread) = (
                        smoothed.mean[at].exp(),
                        (1.28 * smoothed.square[at].sqrt()).exp(),
                    );
                    Quantiles {
                        p10: median / spread,
                        p50: median,
                        p90: median * spread,
                    }
                })
                .collect();
            let hop = self.known.hop(*from, *to).unwrap();
            let known = HopForecast {
                rtt: quantiles[0],
                loss: quantiles[1],
                rate: quantiles[2],
                at: now,
                samples: smoothed.samples,
            };
            self.known.update(hop, &known);
        }
    }

    /// Returns the actual time of a route without noise, or `None` if a part of it is dead.
    fn takes(
        &self,
        from: NodeId,
        via: &RouteDepots,
        to: NodeId,
        transfer: &Transfer,
    ) -> Option<f64> {
        self.truth
            .expected(from, via, to, transfer, 0.0)
            .map(|expected| expected.time.p50)
    }
}

/// Runs `transfers` transfers of 64 KB to 256 MB between pairs of six sites.
pub fn run(seed: u64, transfers: usize, trouble: Trouble) -> Totals {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut world = World::new(&mut random);
    let policy = Policy::default();
    let (mut outcomes, mut account, mut in_use) = (
        TransferOutcomes::default(),
        ExplorationAccount::default(),
        RoutesInUse::new(),
    );
    let mut deaths = DepotFailures::default();
    let mut totals = Totals {
        classes: vec![(0, 0.0, 0.0, 0.0); 8],
        ..Totals::default()
    };
    let mut by_depot = vec![0.0; SITES as usize];
    let (mut measured, mut now) = (0.0, 0.0);
    for _ in 0..30 {
        world.change(&mut random);
        world.measure(now, &|_, _| false, &mut random);
        now += MEASURED_EVERY;
    }
    for number in 0..transfers {
        let part = number * 6 / transfers;
        let comes =
            |which: Trouble, at: usize| part == at && (trouble == which || trouble == Trouble::All);
        let dead_link = comes(Trouble::Link, 3).then_some((NodeId(0), NodeId(2)));
        let dead_depot = comes(Trouble::Depot, 2).then_some(NodeId(1));
        let wrong = |from: NodeId, to: NodeId| {
            let (one, other) = (NodeId(3), NodeId(4));
            let link = (from, to) == (one, other) || (from, to) == (other, one);
            let site = trouble == Trouble::Forecasts && part == 4 && (from == one || to == one);
            site || (link && comes(Trouble::Forecast, 4))
        };
        while measured < now {
            world.change(&mut random);
            world.measure(measured, &wrong, &mut random);
            measured += MEASURED_EVERY;
        }
        for (from, to) in &world.pairs {
            let hop = world.truth.hop(*from, *to).unwrap();
            world.truth.mark_alive(hop);
            if dead_link == Some((*from, *to)) {
                world.truth.mark_dead(hop, now);
            }
        }
        let from = NodeId(random.random_range(0..SITES));
        let to = NodeId((from.0 + random.random_range(1..SITES)) % SITES);
        let bytes = (65_536.0 * 4096f64.powf(random.random_range(0.0..1.0))) as u64;
        let transfer = Transfer {
            bytes,
            streams: STREAMS,
        };
        let noise = (NOISE * normal(&mut random)).exp();
        let takes = |via: &RouteDepots| {
            let relays = dead_depot.is_none_or(|depot| !via.passes(depot));
            world
                .takes(from, via, to, &transfer)
                .filter(|_| relays)
                .map(|time| time * noise)
        };
        // A policy that always takes one route, and direct if it fails.
        let stubborn = |via: &RouteDepots| {
            let direct = || takes(&RouteDepots::DIRECT).unwrap_or(OUTAGE);
            takes(via).unwrap_or_else(|| {
                if via.is_direct() {
                    OUTAGE
                } else {
                    NOTICED + direct()
                }
            })
        };
        let direct = stubborn(&RouteDepots::DIRECT);
        totals.direct += direct;
        for depot in 0..SITES {
            let via = RouteDepots::new(&[NodeId(depot)])
                .filter(|via| !via.passes(from) && !via.passes(to));
            by_depot[depot as usize] += stubborn(&via.unwrap_or(RouteDepots::DIRECT));
        }
        let tree = |cost, tolerance| {
            MinimaxTree::new(&world.known, from, cost, tolerance, now)
                .path(to)
                .unwrap_or(RouteDepots::DIRECT)
        };
        totals.by_bandwidth += stubborn(&tree(HopCost::Bandwidth, 0.0));
        totals.lsl += stubborn(&tree(HopCost::Throughput, LSL_TOLERANCE));
        let best = best_actual_route(all_routes(&world.truth, from, to), takes)
            .map_or(OUTAGE, |(_, time)| time);
        totals.oracle += best;

        let request = RouteRequest {
            from,
            to,
            transfer,
            urgent: false,
            now,
            seed: random.random_range(0..u64::MAX),
        };
        let key = (from, to, size_class(bytes) as u8);
        let choice = Chooser::new(&world.known, &outcomes, &policy).choose(
            &request,
            in_use.get(&key),
            &account,
        );
        in_use.insert(key, choice.via);
        // The typed status of an attempt names what failed.
        let fails = |(a, b): &(NodeId, NodeId)| {
            dead_link == Some((*a, *b)) || (dead_depot == Some(*b) && *b != to)
        };
        let mut routed = carried_out(&choice, &request, &takes, &fails);
        // A copy that falls far behind its expectation is rerouted once, for the rest of it.
        if let Some((at, left, factor)) = found_slow(&choice, &transfer, &takes) {
            let mut anew = Chooser::new(&world.known, &outcomes, &policy);
            anew.slowed = Some((choice.via, factor));
            let rest = Transfer {
                bytes: left,
                ..transfer
            };
            let again = anew.choose(
                &RouteRequest {
                    transfer: rest,
                    ..request
                },
                None,
                &account,
            );
            let rest_takes = |via: &RouteDepots| {
                let relays = dead_depot.is_none_or(|depot| !via.passes(depot));
                world
                    .takes(from, via, to, &rest)
                    .filter(|_| relays)
                    .map(|time| time * noise)
            };
            if again.via != choice.via {
                routed.took = at
                    + carried_out(
                        &again,
                        &RouteRequest {
                            transfer: rest,
                            ..request
                        },
                        &rest_takes,
                        &fails,
                    )
                    .took;
            }
        }
        totals.routed += routed.took;
        totals.by_depots += usize::from(!choice.via.is_direct());
        for (via, took) in &routed.ended {
            let Some(expected) = world.known.expected(from, via, to, &transfer, now) else {
                continue;
            };
            let direct = choice
                .direct
                .map_or(f64::INFINITY, |direct| direct.time.p90);
            let outcome = TransferOutcome {
                expected: expected.time.p50,
                direct,
                took: *took,
            };
            let _ = outcomes.take(from, from, to, via, &outcome, now);
        }
        let came_through = choice.explore.is_some_and(|(via, _)| takes(&via).is_some());
        for via in &routed.failed {
            // The node that failed to dial over the hop reports it.
            let Some((a, b)) = via.hops(from, to).find(|hop| fails(hop)) else {
                continue;
            };
            if deaths.take(a, a, b, now) == Ok(DeathScope::Depot) {
                world.known.mark_depot_dead(b, now);
            }
            let hop = world.known.hop(a, b).unwrap();
            world.known.mark_dead(hop, now);
        }
        if let Some((via, _)) = choice.explore.filter(|_| came_through) {
            for (a, b) in via.hops(from, to) {
                let hop = world.known.hop(a, b).unwrap();
                world.known.mark_alive(hop);
            }
            for depot in via.depots() {
                world.known.mark_depot_alive(depot);
            }
        }
        account.record(
            bytes,
            policy.bulk,
            choice.explore.map_or(0, |(_, bytes)| bytes),
        );
        let class = &mut totals.classes[size_class(bytes)];
        *class = (
            class.0 + 1,
            class.1 + routed.took,
            class.2 + direct,
            class.3 + best,
        );
        now += BETWEEN;
    }
    totals.best_depot = by_depot.into_iter().fold(f64::INFINITY, f64::min);
    (totals.bulk, totals.explored) = (account.bulk, account.explored);
    totals
}

struct CarriedOut {
    took: f64,
    /// Routes that carried everything or were left, with the time that they took, or would have
    /// taken.
    ended: Vec<(RouteDepots, f64)>,
    failed: Vec<RouteDepots>,
}

/// Carries out a choice: dead routes cost time, and a guard watches slow ones.
fn carried_out(
    choice: &Choice,
    request: &RouteRequest,
    takes: &impl Fn(&RouteDepots) -> Option<f64>,
    fails: &impl Fn(&(NodeId, NodeId)) -> bool,
) -> CarriedOut {
    let RouteRequest {
        from, to, transfer, ..
    } = request;
    let (from, to) = (*from, *to);
    let mut done = CarriedOut {
        took: 0.0,
        ended: Vec::new(),
        failed: Vec::new(),
    };
    let mut failing = Vec::new();
    for via in std::iter::once(&choice.via).chain(&choice.fall_back) {
        if via.hops(from, to).any(|hop| failing.contains(&hop)) {
            continue;
        }
        let Some(alone) = takes(via) else {
            done.failed.push(*via);
            done.took += NOTICED;
            failing.extend(via.hops(from, to).filter(fails));
            continue;
        };
        let guarded = guarded(choice, via, alone, transfer, takes);
        done.took += guarded;
        done.ended.push((*via, alone));
        return done;
    }
    done.took += OUTAGE;
    done
}

fn guarded(
    choice: &Choice,
    via: &RouteDepots,
    alone: f64,
    transfer: &Transfer,
    takes: &impl Fn(&RouteDepots) -> Option<f64>,
) -> f64 {
    const LOOK: f64 = 0.05;
    let (false, Some(direct)) = (via.is_direct(), &choice.direct) else {
        return alone;
    };
    let known = DirectEstimate {
        whole: direct.time.p50,
        restart: direct.around,
    };
    let (Some(guard), Some(by_direct)) = (
        RouteGuard::new(&known, LOOK, transfer.bytes),
        takes(&RouteDepots::DIRECT),
    ) else {
        return alone;
    };
    let mut at = LOOK;
    while at < alone {
        let arrived = transfer.bytes as f64 * at / alone;
        if guard.check(at, arrived as u64) == GuardVerdict::Leave {
            return (at + known.restart + (1.0 - at / alone) * by_direct).min(alone);
        }
        at += LOOK;
    }
    alone
}

/// Returns when a copy on the chosen route was found far behind, the bytes left then, and its
/// slowdown.
fn found_slow(
    choice: &Choice,
    transfer: &Transfer,
    takes: &impl Fn(&RouteDepots) -> Option<f64>,
) -> Option<(f64, u64, f64)> {
    const LOOK: f64 = 0.25;
    let (alone, expected) = (takes(&choice.via)?, choice.expected.as_ref()?);
    let mut at = LOOK;
    while at < alone {
        let part = ((at - expected.around) / (alone - expected.around)).clamp(0.0, 1.0);
        let arrived = (transfer.bytes as f64 * part) as u64;
        if let Some(factor) = slowdown(expected, transfer.bytes, at, arrived) {
            return Some((at, transfer.bytes - arrived, factor));
        }
        at += LOOK;
    }
    None
}
