//! Simulation of routing at scale: `cargo run --release -p longhaul-routing --example scale --
//! [SITES] [HOPS PER SITE] [REQUESTS]`. The defaults are 1,000, 100 and 10,000. Runs on one core;
//! prints rates and memory.

use std::time::Instant;

use longhaul_routing::Quantiles;
use longhaul_routing::route::candidates::SearchScratch;
use longhaul_routing::route::choice::{Chooser, Policy, RouteRequest};
use longhaul_routing::route::explore::ExplorationAccount;
use longhaul_routing::route::map::{HopForecast, Node, RouteMap};
use longhaul_routing::route::table::{all_direct, class_choices};
use longhaul_routing::route::trust::TransferOutcomes;
use longhaul_routing::route::{NodeId, Transfer};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

fn about(median: f64) -> Quantiles {
    Quantiles {
        p10: median * 0.8,
        p50: median,
        p90: median * 1.25,
    }
}

fn main() {
    let mut arguments = std::env::args()
        .skip(1)
        .filter_map(|text| text.parse::<u32>().ok());
    let sites = arguments.next().unwrap_or(1000);
    let degree = arguments.next().unwrap_or(100);
    let requests = arguments.next().unwrap_or(10_000);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let places: Vec<(f64, f64)> = (0..sites)
        .map(|_| {
            (
                random.random_range(0.0..0.1),
                random.random_range(0.0..0.05),
            )
        })
        .collect();
    let pairs: Vec<(NodeId, NodeId)> = (0..sites)
        .flat_map(|site| (1..=degree).map(move |step| (site, step)))
        .map(|(site, step)| {
            (
                NodeId(site),
                NodeId((site + 1 + (step * 7919) % (sites - 1).max(1)) % sites),
            )
        })
        .collect();
    let mut map = RouteMap::new(
        vec![
            Node {
                window: Some(4 << 20),
                ..Node::DEPOT
            };
            sites as usize
        ],
        &pairs,
    );
    let forecasts: Vec<_> = pairs
        .iter()
        .filter_map(|(from, to)| {
            let hop = map.hop(*from, *to)?;
            let ((x, y), (u, v)) = (places[from.0 as usize], places[to.0 as usize]);
            let known = HopForecast {
                rtt: about((0.002 + (x - u).hypot(y - v)) * random.random_range(1.0..2.5) * 2.0),
                loss: about(10f64.powf(random.random_range(-7.0..-3.0))),
                rate: about(10f64.powf(random.random_range(7.5..10.0))),
                at: 0.0,
                samples: 30,
            };
            Some((hop, known))
        })
        .collect();
    println!(
        "{sites} sites, {} directed hops, {} bytes each, {:.1} MB in all",
        map.hops(),
        RouteMap::BYTES_PER_HOP,
        map.memory_bytes() as f64 / 1e6
    );

    let start = Instant::now();
    for (hop, known) in &forecasts {
        map.update(*hop, known);
    }
    println!(
        "every hop updated one at a time: {:.3} s",
        start.elapsed().as_secs_f64()
    );
    let start = Instant::now();
    map.update_all_rankings();
    println!(
        "full recomputation of what routes are ranked by: {:.3} s",
        start.elapsed().as_secs_f64()
    );

    let (outcomes, policy) = (TransferOutcomes::default(), Policy::default());
    let mut chooser = Chooser::new(&map, &outcomes, &policy);
    chooser.scratch = SearchScratch::default();
    let asked: Vec<RouteRequest> = (0..requests)
        .map(|_| {
            let (from, to) = pairs[random.random_range(0..pairs.len())];
            let bytes = (65_536.0 * 65_536f64.powf(random.random_range(0.0..1.0))) as u64;
            let transfer = Transfer { bytes, streams: 16 };
            RouteRequest {
                from,
                to,
                transfer,
                urgent: false,
                now: 60.0,
                seed: random.random_range(0..u64::MAX),
            }
        })
        .collect();
    let start = Instant::now();
    let by_depots = asked
        .iter()
        .filter(|request| {
            !chooser
                .choose(request, None, &ExplorationAccount::default())
                .via
                .is_direct()
        })
        .count();
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{requests} requests in {seconds:.3} s: {:.0} a second; {by_depots} by depots",
        f64::from(requests) / seconds
    );

    let start = Instant::now();
    let destinations: Vec<NodeId> = map.hops_leaving(NodeId(0)).map(|(_, to)| to).collect();
    let made = destinations
        .iter()
        .filter(|to| !all_direct(&class_choices(&mut chooser, NodeId(0), **to, 16, 60.0)))
        .count();
    println!(
        "a client's table of {} destinations: {:.3} s, {made} by depots",
        destinations.len(),
        start.elapsed().as_secs_f64()
    );
}
