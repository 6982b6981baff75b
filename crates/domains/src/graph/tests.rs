#![allow(clippy::unwrap_used, clippy::panic)]

use longhaul_circuits::time::MAX_RATE;
use longhaul_control_api::domains::{Access, AvailableRate, Crossing, Edge};

use super::links::lowest_rate;
use super::*;

fn point(text: &str) -> TerminationPoint {
    text.parse().unwrap()
}

fn rates(rate_bps: u64) -> Vec<AvailableRate> {
    vec![AvailableRate {
        from_ms: 0,
        rate_bps,
    }]
}

/// A domain with one edge to each neighbour, named after it, and so much between them.
fn topology(name: &str, neighbours: &[&str], rate: u64) -> (DomainName, DomainTopology) {
    let edges = neighbours.iter().map(|neighbour| Edge {
        name: (*neighbour).to_owned(),
        peer: point(&format!("{neighbour}:{name}")),
        leads_to: None,
    });
    let pairs = neighbours
        .iter()
        .flat_map(|from| neighbours.iter().map(move |to| (from, to)));
    let crossings = pairs
        .filter(|(from, to)| from != to)
        .map(|(from, to)| Crossing {
            from: (*from).to_owned(),
            to: (*to).to_owned(),
            latency_us: 1_000,
            available: rates(rate),
        });
    let accesses = neighbours.iter().map(|edge| Access {
        edge: (*edge).to_owned(),
        inward: rates(rate),
        outward: rates(rate),
    });
    let topology = DomainTopology {
        domain: name.parse().unwrap(),
        made_ms: 0,
        peers: Vec::new(),
        edges: edges.collect(),
        crossings: crossings.collect(),
        accesses: accesses.collect(),
        forecasts: Vec::new(),
    };
    (name.parse().unwrap(), topology)
}

/// A square: `a` and `d` are joined by way of `b`, with 10 bit/s, and by way of `c`, with 5.
fn square(domain: &str, peers: &[&str]) -> GraphPlanner {
    GraphPlanner {
        domain: domain.parse().unwrap(),
        peers: peers.iter().map(|peer| peer.parse().unwrap()).collect(),
        topologies: [
            topology("a", &["b", "c"], 100),
            topology("b", &["a", "d"], 10),
            topology("c", &["a", "d"], 5),
            topology("d", &["b", "c"], 100),
        ]
        .into(),
        avoided: BTreeSet::new(),
    }
}

fn criteria(from: &str, to: &str, rate: u64, shape: Shape) -> Criteria {
    Criteria {
        source: point(from),
        destination: point(to),
        capacity_bps: rate,
        start_ms: 0,
        end_ms: 10,
        shape,
        source_address: None,
        destination_address: None,
    }
}

/// Returns the legs as text: the provider and both points of each.
fn legs(planner: &GraphPlanner, wanted: &Criteria, trace: &[&str]) -> Result<String, String> {
    let trace: Vec<DomainName> = trace.iter().map(|name| name.parse().unwrap()).collect();
    let legs = planner
        .plan(wanted, &trace)
        .map_err(|problem| problem.text)?;
    let legs = legs.iter().map(|leg| {
        let provider = match &leg.provider {
            Provider::Book => "book".to_owned(),
            Provider::Peer(domain) => domain.to_string(),
        };
        format!(
            "{provider} {}-{}",
            leg.criteria.source, leg.criteria.destination
        )
    });
    Ok(legs.collect::<Vec<_>>().join(", "))
}

#[test]
fn chain_asks_the_next_domain_for_the_rest() {
    let wanted = criteria("a:host", "d:store", 8, Shape::Chain);
    assert_eq!(
        legs(&square("a", &["b", "c"]), &wanted, &[]).unwrap(),
        "book a:host-a:b, b b:a-d:store"
    );
    // The next one does the same, and does not go back.
    let rest = criteria("b:a", "d:store", 8, Shape::Chain);
    assert_eq!(
        legs(&square("b", &["a", "d"]), &rest, &["a"]).unwrap(),
        "book b:a-b:d, d d:b-d:store"
    );
    let last = criteria("d:b", "d:store", 8, Shape::Chain);
    assert_eq!(
        legs(&square("d", &["b", "c"]), &last, &["a", "b"]).unwrap(),
        "book d:b-d:store"
    );
}

#[test]
fn chain_leads_backwards_from_the_receiving_domain() {
    let wanted = criteria("a:host", "d:store", 8, Shape::Chain);
    assert_eq!(
        legs(&square("d", &["b", "c"]), &wanted, &[]).unwrap(),
        "b a:host-b:d, book d:b-d:store"
    );
}

#[test]
fn tree_asks_all_domains() {
    let wanted = criteria("a:host", "d:store", 8, Shape::Tree);
    let planner = square("a", &["b", "c", "d"]);
    assert_eq!(
        legs(&planner, &wanted, &[]).unwrap(),
        "book a:host-a:b, b b:a-b:d, d d:b-d:store"
    );
    assert!(planner.knows_all_on_path(&wanted));
    let stranger = square("a", &["b", "c"]);
    assert!(!stranger.knows_all_on_path(&wanted));
    let refused = legs(&stranger, &wanted, &[]).unwrap_err();
    assert!(refused.contains("domain d is no peer"), "{refused}");
}

#[test]
fn paths_have_the_rate_and_avoid_domains() {
    let planner = square("a", &["b", "c"]);
    let wanted = |rate| criteria("a:host", "d:store", rate, Shape::Chain);
    let full = legs(&planner, &wanted(11), &[]).unwrap_err();
    assert!(full.contains("with 11 bit/s"), "{full}");
    let mut other = planner.clone();
    other.avoided.insert("b".parse().unwrap());
    assert!(
        legs(&other, &wanted(5), &[])
            .unwrap()
            .contains("c c:a-d:store")
    );
    assert!(legs(&other, &wanted(6), &[]).is_err());
    let unknown = criteria("a:host", "e:store", 1, Shape::Chain);
    assert!(
        legs(&planner, &unknown, &[])
            .unwrap_err()
            .contains("domain e")
    );
}

#[test]
fn rate_is_the_lowest_within_the_window() {
    let steps =
        [(0, 9), (10, 3), (20, 7)].map(|(from_ms, rate_bps)| AvailableRate { from_ms, rate_bps });
    let rate = |start_ms, end_ms| {
        let wanted = criteria("a:x", "b:y", 1, Shape::Chain);
        lowest_rate(
            &steps,
            &Criteria {
                start_ms,
                end_ms,
                ..wanted
            },
        )
    };
    assert_eq!(
        [rate(0, 10), rate(0, 11), rate(15, 30), rate(20, 30)],
        [9, 3, 3, 7]
    );
    let wanted = criteria("a:x", "b:y", 1, Shape::Chain);
    assert_eq!(lowest_rate(&[], &wanted), MAX_RATE);
}

#[test]
fn link_that_one_side_denies_is_not_used() {
    let mut planner = square("a", &["b", "c"]);
    let b = planner.topologies.get_mut(&"b".parse().unwrap()).unwrap();
    b.edges[1].peer = point("d:elsewhere");
    let wanted = criteria("a:host", "d:store", 5, Shape::Chain);
    assert!(
        legs(&planner, &wanted, &[])
            .unwrap()
            .contains("c c:a-d:store")
    );
}
