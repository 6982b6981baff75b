//! `routes.toml`, read by the crate that uses it.

use std::path::Path;

use longhaul_config::routes::{RouteTable, SessionEnd as End};
use longhaul_proto::{OFFRAMP_PORT, Route};
use proptest::prelude::*;

use super::everything;
use crate::routes::{ChosenRoute, ChosenRouteError, routes_toml};
use crate::{DepotState, SessionEnd};

fn read(text: &str) -> RouteTable {
    RouteTable::parse(text, Path::new("routes.toml"))
        .unwrap_or_else(|error| panic!("{error}\n{text}"))
}

#[test]
fn routes_through_a_map_are_read_back_unchanged() {
    let map = everything();
    let mut archive = ChosenRoute::through_depots(&map, "archive", &["starlight"]).unwrap();
    archive.ports = vec![2811..=2811, 50_000..=51_000];
    archive.reason = Some("4.1 times faster than direct\n[[route]] = \u{1b}".to_owned());
    let laptop = ChosenRoute {
        always: true,
        fall_back: false,
        ..ChosenRoute::through_depots(&map, "laptop", &[]).unwrap()
    };
    let text = routes_toml("made by a test\nin two lines", &[archive, laptop]).unwrap();
    assert!(
        text.starts_with("# made by a test\n# in two lines\n\n# 4.1 times faster"),
        "{text}"
    );
    let table = read(&text);
    let [archive, laptop] = table.rules() else {
        panic!("two rules: {text}")
    };
    assert_eq!(
        archive.via.to_string(),
        format!("{}@depot.starlight.example:7510", map.depots[0].key)
    );
    assert_eq!(archive.ports(), [2811..=2811, 50_000..=51_000]);
    assert!(archive.fall_back && !archive.always);
    let End::Offramp { at, key } = &archive.end else {
        panic!("{:?}", archive.end)
    };
    assert_eq!((at.port, *key), (OFFRAMP_PORT, Some(map.depots[0].key)));
    assert!(
        table
            .rule(None, Some("dtn.archive.example"), 2811)
            .is_some()
    );
    assert_eq!(laptop.end, End::Destination);
    assert!(laptop.via.is_direct() && laptop.always && !laptop.fall_back);
}

#[test]
fn impossible_rules_are_reported() {
    let mut map = everything();
    let through = ChosenRoute::through_depots;
    assert_eq!(
        through(&map, "nobody", &[]),
        Err(ChosenRouteError::NoHost("nobody".to_owned()))
    );
    assert_eq!(
        through(&map, "archive", &["x"]),
        Err(ChosenRouteError::NoDepot("x".to_owned()))
    );
    let good = through(&map, "archive", &["starlight"]).unwrap();
    map.depots[0].state = DepotState::Stale {
        heard: 0.0,
        until: 1.0,
    };
    assert_eq!(
        through(&map, "archive", &["starlight"]),
        Err(ChosenRouteError::StaleDepot("starlight".to_owned()))
    );
    let error = |change: fn(&mut ChosenRoute)| {
        let mut route = good.clone();
        change(&mut route);
        routes_toml("", &[route]).unwrap_err()
    };
    assert!(matches!(error(|of| of.to.clear()), ChosenRouteError::To(_)));
    assert!(matches!(
        error(|of| of.to = vec!["a b".to_owned()]),
        ChosenRouteError::To(_)
    ));
    assert_eq!(error(|of| of.ports = vec![0..=5]), ChosenRouteError::Ports);
    #[expect(clippy::reversed_empty_ranges, reason = "what is refused")]
    let backwards = error(|of| of.ports = vec![9..=5]);
    assert_eq!(backwards, ChosenRouteError::Ports);
    assert_eq!(error(|of| of.end = None), ChosenRouteError::NoEnd);
}

proptest! {
    #[test]
    fn any_rule_round_trips(
        to in prop::collection::vec("(\\*\\.)?[a-z]{1,9}\\.example|192\\.0\\.2\\.[0-9]|\\*", 1..4),
        ports in prop::collection::vec((1u16.., 0u16..9), 0..3),
        hops in 0usize..4,
        end in 0..3,
        always: bool,
        fall_back: bool,
        reason in prop::option::of("(\\PC|[\n\r\u{1b}]){0,30}"),
    ) {
        let via: Route = match hops {
            0 => Route::direct(),
            hops => vec!["depot.example:7510"; hops].join(",").parse().unwrap(),
        };
        let ports = ports
            .into_iter()
            .map(|(first, more)| first..=first.saturating_add(more))
            .collect();
        let end = match end {
            0 if hops == 0 => None,
            0 | 1 => Some(SessionEnd::Acceptor),
            _ => Some(SessionEnd::Offramp {
                endpoint: "gateway.example:1".parse().unwrap(),
                key: None
            }),
        };
        let route = ChosenRoute { to, ports, via, end, always, fall_back, reason };
        let table = read(&routes_toml("", std::slice::from_ref(&route)).unwrap());
        prop_assert_eq!(table.rules().len(), 1);
        let rule = &table.rules()[0];
        prop_assert_eq!(rule.destinations().len(), route.to.len());
        prop_assert_eq!(rule.ports(), route.ports.as_slice());
        prop_assert_eq!(&rule.via, &route.via);
        prop_assert_eq!((rule.always, rule.fall_back), (always, fall_back));
    }
}
