//! Tests of measurements, forecasts and choices, in virtual time.

use longhaul_control_api::measurements::{Conditions, Limit, Measurement, Quantity, Source};
use longhaul_control_api::routes::RouteQuestion;
use longhaul_control_api::transfers::{Outcome as Ended, RouteUsed, TransferReport};
use longhaul_routing::forecast::SampleBound;
use proptest::prelude::*;

use super::intake::{MAX_SERIES_OF_REPORTER, measurement_bound};
use super::*;
use crate::places::Speaker;

fn speaker(name: &str) -> Speaker {
    Speaker {
        ends: vec![name.to_owned()],
    }
}

fn measured(from: &str, to: &str, quantity: Quantity, at_ms: u64, value: f64) -> Measurement {
    Measurement {
        from: from.to_owned(),
        to: to.to_owned(),
        quantity,
        at_ms,
        value,
        source: Source::Relay,
        conditions: Conditions::default(),
    }
}

fn with_depot(name: &str) -> RoutingState {
    let key = longhaul_proto::PublicKey::from_bytes([1; 32]);
    let text = format!(
        r#"{{"depots": [{{"name": "{name}", "key": "{key}", "addresses": [{{"endpoint": "{name}.example:7510"}}]}}]}}"#
    );
    let mut weather = RoutingState::default();
    weather.take_map(&serde_json::from_str(&text).unwrap(), 1);
    weather
}

fn hop(weather: &mut RoutingState, reporter: &str, from: &str, to: &str, rtt: f64, rate: f64) {
    for step in 0..60 {
        for (quantity, value) in [
            (Quantity::Rtt, rtt),
            (Quantity::Rate, rate),
            (Quantity::Loss, 0.0),
        ] {
            let one = measured(from, to, quantity, 960_000 + step * 1000, value);
            weather.record_measurement(reporter, &speaker(reporter), &one);
        }
    }
}

fn ask(weather: &mut RoutingState, bytes: u64) -> longhaul_control_api::routes::RouteAnswer {
    let question = RouteQuestion {
        to: "b".into(),
        bytes: Some(bytes),
        ..RouteQuestion::default()
    };
    weather.answer(&RouteQuery {
        from: "a",
        to: "b",
        question: &question,
        now_ms: 1_020_000,
        seed: 0,
    })
}

fn mesh() -> RoutingState {
    let mut weather = with_depot("m");
    // Both ends of each hop report, as a hop that only one end reports counts as little known.
    for (from, to, rtt, rate) in [
        ("a", "b", 0.1, 5e7),
        ("a", "m", 0.05, 5e8),
        ("m", "b", 0.05, 5e8),
    ] {
        hop(&mut weather, from, from, to, rtt, rate);
        hop(&mut weather, to, from, to, rtt, rate);
    }
    weather
}

#[test]
fn unknown_paths_are_direct_without_a_promise() {
    let mut weather = RoutingState::default();
    let answer = ask(&mut weather, 1 << 30);
    assert_eq!(answer.routes.len(), 1);
    assert_eq!(
        (answer.routes[0].route.as_str(), answer.routes[0].share),
        ("direct", 1.0)
    );
    assert_eq!(answer.seconds, None);
}

#[test]
fn failed_route_is_left_and_current_one_kept() {
    let mut weather = mesh();
    let first = ask(&mut weather, 10 << 30);
    assert!(
        first.routes.iter().any(|route| !route.via.is_empty()),
        "{first:?}"
    );
    let report = TransferReport {
        id: "1".into(),
        from: Some("a".into()),
        to: Some("b".into()),
        bytes: 1,
        began_ms: 1,
        seconds: 1.0,
        outcome: Ended::Failed,
        promised: first.seconds,
        routes: vec![RouteUsed {
            via: vec!["m.example:7510".into()],
            bytes: 0,
            streams: None,
            failed: true,
        }],
        error: None,
    };
    // Either end may report it.
    weather.take_report(&speaker("b"), &report, 1020.0);
    let answer = ask(&mut weather, 10 << 30);
    assert!(
        answer.routes.iter().all(|route| route.via.is_empty()),
        "{answer:?}"
    );
    assert_eq!((weather.score().failed, weather.score().undecided), (1, 1));
}

#[test]
fn limited_flow_gives_a_lower_bound() {
    let of = |limit| {
        measurement_bound(&Measurement {
            conditions: Conditions {
                limit: Some(limit),
                ..Conditions::default()
            },
            ..measured("a", "b", Quantity::Rate, 1, 1.0)
        })
    };
    assert_eq!(
        (of(Limit::Application), of(Limit::Path)),
        (SampleBound::AtLeast, SampleBound::Exact)
    );
}

#[test]
fn series_per_reporter_are_bounded() {
    let mut weather = RoutingState::default();
    for path in 0..MAX_SERIES_OF_REPORTER + 10 {
        weather.record_measurement(
            "r",
            &speaker("r"),
            &measured("r", &path.to_string(), Quantity::Loss, 1, 0.0),
        );
    }
    assert_eq!(weather.len(), MAX_SERIES_OF_REPORTER);
    weather.record_measurement(
        "s",
        &speaker("s"),
        &measured("s", "x", Quantity::Loss, 1, 0.0),
    );
    assert_eq!(weather.len(), MAX_SERIES_OF_REPORTER + 1);
}

/// For hosts beside depots, only the path between the sites and the direct route must be measured.
#[test]
fn hops_in_a_site_are_assumed_until_measured() {
    let key = |number| longhaul_proto::PublicKey::from_bytes([number; 32]);
    let text = format!(
        r#"{{"sites": [{{"name": "w"}}, {{"name": "e"}}],
            "depots": [{{"name": "dw", "key": "{}", "site": "w", "addresses": [{{"endpoint": "dw:7510"}}]}},
                       {{"name": "de", "key": "{}", "site": "e", "addresses": [{{"endpoint": "de:7510"}}]}}],
            "hosts": [{{"name": "a", "site": "w", "addresses": ["a"]}}, {{"name": "b", "site": "e", "addresses": ["b"]}}]}}"#,
        key(1),
        key(2)
    );
    let mut weather = RoutingState::default();
    weather.take_map(&serde_json::from_str(&text).unwrap(), 1);
    for end in ["a", "b"] {
        hop(&mut weather, end, "a", "b", 0.1, 5e7);
    }
    for end in ["dw", "de"] {
        hop(&mut weather, end, "dw", "de", 0.1, 2e9);
    }
    let names = |weather: &mut RoutingState| -> Vec<String> {
        let answer = ask(weather, 100 << 30);
        let first = answer.routes.first().unwrap();
        first
            .via
            .iter()
            .map(|passed| passed.depot.clone())
            .collect()
    };
    // From the depot of one site to the host of the other, like between the depots.
    assert_eq!(names(&mut weather), ["dw"]);
    // The measurement replaces the assumption.
    for end in ["a", "dw"] {
        hop(&mut weather, end, "a", "dw", 0.1, 1e6);
    }
    assert_ne!(names(&mut weather).first().map(String::as_str), Some("dw"));
}

/// A depot's reports about its own hops change no route that does not pass it.
#[test]
fn liar_changes_no_routes_of_others() {
    let mut weather = mesh();
    let before = ask(&mut weather, 10 << 30);
    for (from, to) in [("x", "a"), ("x", "b"), ("a", "x"), ("m", "x")] {
        hop(&mut weather, "x", from, to, 1e-6, 1e15);
    }
    assert_eq!(ask(&mut weather, 10 << 30), before);
}

proptest! {
    #[test]
    fn any_question_is_answered(
        values in proptest::collection::vec(
            (0_usize..4, 0_usize..4, 0_usize..4, any::<u64>(), any::<f64>()),
            0..60
        ),
        bytes: u64,
    ) {
        let mut weather = with_depot("m");
        let ends = ["a", "b", "m", "x"];
        for (from, to, quantity, at, value) in values {
            let one = measured(ends[from], ends[to], Quantity::ALL[quantity], at, value);
            weather.record_measurement(ends[from], &speaker(ends[from]), &one);
        }
        let answer = ask(&mut weather, bytes);
        prop_assert!(!answer.routes.is_empty());
        let shares: f64 = answer.routes.iter().map(|route| route.share).sum();
        prop_assert!((shares - 1.0).abs() < 1e-6, "{:?}", answer);
        prop_assert!(serde_json::to_string(&answer).is_ok());
        let table = weather.table("a", Some("b"), false, (0, 1), 5);
        prop_assert_eq!(table.destinations.len(), 1);
    }
}

#[test]
fn key_reports_one_end_of_a_hop_only() {
    let mut weather = with_depot("m");
    let said = |weather: &mut RoutingState, key: &str, end: &str, rate: f64| {
        for step in 0..60 {
            for (quantity, value) in [(Quantity::Rtt, 0.1), (Quantity::Rate, rate)] {
                let one = measured("a", "m", quantity, 960_000 + step * 1000, value);
                weather.record_measurement(key, &speaker(end), &one);
            }
        }
    };
    let ends = |weather: &RoutingState| [weather.ids["a"], weather.ids["m"]];
    said(&mut weather, "liar", "m", 1e9);
    // The same key reports as the other end: its earlier reports no longer count.
    said(&mut weather, "liar", "a", 1e9);
    let [a, m] = ends(&weather);
    assert_eq!(weather.reports.both_reports(a, m), None);
    said(&mut weather, "honest", "m", 1e6);
    assert!(weather.reports.both_reports(a, m).is_some());
    // A key that no longer speaks for either end changes nothing.
    let before = weather.measured[&(a, m)];
    said(&mut weather, "gone", "x", 1.0);
    assert_eq!(weather.measured[&(a, m)], before);
}
