//! Hosts benefit from measurements between the depots beside them. A depot that lies can make them
//! go directly, and no more.

use longhaul_control_api::map::Map;
use longhaul_control_api::measurements::{Conditions, Measurement, Quantity, Source};
use longhaul_control_api::routes::{RouteAnswer, RouteQuestion};
use longhaul_routing::route::trust::MAX_LONE_SAMPLES;
use proptest::prelude::*;

use super::super::RouteQuery;
use super::*;
use crate::places::Speaker;

const SITES: [&str; 3] = ["a", "b", "c"];

/// Three sites, each with a host and a depot.
fn weather() -> RoutingState {
    let listed = |entry: &dyn Fn(usize, &str) -> String| {
        let entries = SITES
            .iter()
            .enumerate()
            .map(|(number, site)| entry(number, site));
        entries.collect::<Vec<_>>().join(",")
    };
    let sites = listed(&|_, site| format!(r#"{{"name": "{site}"}}"#));
    let hosts = listed(&|_, site| {
        format!(r#"{{"name": "host-{site}", "site": "{site}", "addresses": ["host-{site}"]}}"#)
    });
    let depots = listed(&|number, site| {
        let key = longhaul_proto::PublicKey::from_bytes([number as u8 + 1; 32]);
        format!(
            r#"{{"name": "depot-{site}", "key": "{key}", "site": "{site}", "addresses": [{{"endpoint": "{site}.example:7510"}}]}}"#
        )
    });
    let text = format!(r#"{{"sites": [{sites}], "hosts": [{hosts}], "depots": [{depots}]}}"#);
    let map: Map = serde_json::from_str(&text).unwrap();
    let mut weather = RoutingState::default();
    weather.take_map(&map, 1);
    weather
}

fn report(
    weather: &mut RoutingState,
    reporter: &str,
    from: &str,
    to: &str,
    rtt: f64,
    rate: f64,
    samples: u32,
) {
    for sample in 0..samples {
        for (quantity, value) in [(Quantity::Rtt, rtt), (Quantity::Rate, rate)] {
            let one = Measurement {
                from: from.to_owned(),
                to: to.to_owned(),
                quantity,
                at_ms: 900_000 + u64::from(sample) * 1000,
                value,
                source: Source::Probe,
                conditions: Conditions::default(),
            };
            let speaker = Speaker {
                ends: vec![reporter.to_owned()],
            };
            weather.record_measurement(reporter, &speaker, &one);
        }
    }
}

/// The path from a to b is long and narrow, the one over c is not.
const PATHS: [(&str, &str, f64, f64); 3] = [
    ("a", "b", 0.1, 5e7),
    ("a", "c", 0.02, 1e9),
    ("c", "b", 0.02, 1e9),
];

fn measured(weather: &mut RoutingState, by: impl Fn(&str) -> bool) {
    for (from, to, rtt, rate) in PATHS {
        let (from, to) = (format!("depot-{from}"), format!("depot-{to}"));
        for end in [&from, &to] {
            if by(end) {
                report(weather, end, &from, &to, rtt, rate, 60);
            }
        }
    }
}

fn ask(weather: &mut RoutingState, receives: bool) -> RouteAnswer {
    let (from, to) = match receives {
        true => ("host-b", "host-a"),
        false => ("host-a", "host-b"),
    };
    let question = RouteQuestion {
        to: to.to_owned(),
        receives,
        bytes: Some(1 << 30),
        ..RouteQuestion::default()
    };
    weather.answer(&RouteQuery {
        from,
        to,
        question: &question,
        now_ms: 965_000,
        seed: 0,
    })
}

fn first(answer: &RouteAnswer) -> Vec<&str> {
    answer.routes[0]
        .via
        .iter()
        .map(|passed| passed.depot.as_str())
        .collect()
}

#[test]
fn first_transfer_uses_measurements_of_depots() {
    let mut weather = weather();
    measured(&mut weather, |_| true);
    let answer = ask(&mut weather, false);
    assert_eq!(first(&answer), ["depot-c"], "{answer:?}");
    assert!(
        answer
            .others
            .iter()
            .any(|other| other.via.is_empty() && other.seconds.is_some())
    );
    // For a fetch, the same bytes take the same route.
    let fetched = ask(&mut weather, true);
    assert_eq!(first(&fetched), ["depot-c"], "{fetched:?}");
    assert_eq!(fetched.seconds, answer.seconds);
}

#[test]
fn report_of_one_end_alone_is_not_used() {
    let mut weather = weather();
    measured(&mut weather, |end| end == "depot-a" || end == "depot-c");
    let answer = ask(&mut weather, false);
    assert!(first(&answer).is_empty(), "{answer:?}");
}

#[test]
fn multi_depot_routes_are_in_opening_order() {
    let mut weather = weather();
    // Nothing is known between hosts and remote depots, so the route leads over the depots beside
    // the hosts.
    measured(&mut weather, |_| true);
    let (from, to) = (weather.id("host-a"), weather.id("host-b"));
    weather.infer(&[from], &[to], 965.0);
    let via = weather
        .resolve_route(&["depot-a".to_owned(), "depot-c".to_owned()])
        .unwrap();
    let names = |via: &longhaul_routing::route::RouteDepots| {
        via.depots().map(|id| weather.name(id)).collect::<Vec<_>>()
    };
    assert_eq!(names(&via.reversed()), ["depot-c", "depot-a"]);
}

proptest! {
    #[test]
    fn lying_depot_only_makes_others_go_direct(
        liar in prop::sample::select(vec!["a", "b"]),
        lies in prop::collection::vec((0_usize..3, 1e-4_f64..10.0, 1e3_f64..1e12, 1_u32..80), 1..8),
    ) {
        let liar = format!("depot-{liar}");
        let mut honest = weather();
        measured(&mut honest, |_| true);
        let before = ask(&mut honest, false);
        let mut weather = weather();
        measured(&mut weather, |end| end != liar);
        for (path, rtt, rate, samples) in lies {
            let (from, to, ..) = PATHS[path];
            let (from, to) = (format!("depot-{from}"), format!("depot-{to}"));
            if from == liar || to == liar {
                report(&mut weather, &liar, &from, &to, rtt, rate, samples + MAX_LONE_SAMPLES);
            }
        }
        let answer = ask(&mut weather, false);
        let taken = first(&answer);
        prop_assert!(
            taken == first(&before) || taken.is_empty() || taken.contains(&liar.as_str()),
            "{taken:?} in place of {:?}", first(&before)
        );
    }
}
