//! Tables and answers that are new, old, wrong and hostile.
#![allow(clippy::indexing_slicing)] // a test may panic

use longhaul_control_api::routes::{DirectTime, Passed, SizeClass};
use proptest::prelude::*;

use super::*;
use crate::routes::fuzzing;
use crate::routes::held::HeldRoutes;
use crate::routes::question::Urgency;

const NOW: u64 = 1_800_000_000_000;

fn spread(p50: f64) -> Spread {
    Spread {
        p10: p50 / 2.0,
        p50,
        p90: p50 * 2.0,
    }
}

fn option(route: &str, share: f64) -> RouteOption {
    let via = match route {
        "direct" => Vec::new(),
        route => route
            .split(',')
            .map(|address| Passed {
                depot: format!("depot {address}"),
                address: address.to_owned(),
                key: None,
            })
            .collect(),
    };
    RouteOption {
        via,
        route: route.to_owned(),
        seconds: Some(spread(10.0)),
        rate_bps: Some(spread(1e8)),
        bottleneck: None,
        share,
        explores: false,
    }
}

fn table(routes: Vec<RouteOption>) -> RouteTable {
    RouteTable {
        receives: false,
        from: "me".into(),
        map_version: 1,
        made_ms: NOW,
        valid_until_ms: NOW + 600_000,
        destinations: vec![Destination {
            to: "store.example".into(),
            addresses: vec!["192.0.2.0/24".into(), "*.store.example".into()],
            sizes: vec![
                SizeClass {
                    at_least_bytes: 0,
                    typical_bytes: 0,
                    routes: vec![option("direct", 1.0)],
                    fall_back: Vec::new(),
                    direct_seconds: None,
                },
                SizeClass {
                    at_least_bytes: 1 << 20,
                    typical_bytes: 1 << 30,
                    routes,
                    fall_back: vec![option("e:5", 0.0)],
                    direct_seconds: Some(spread(20.0)),
                },
            ],
            direct: Vec::new(),
        }],
        next: None,
    }
}

fn question(to: &str, bytes: Option<u64>) -> RouteQuery {
    RouteQuery {
        destination: to.parse().unwrap(),
        receives: false,
        bytes,
        streams: None,
        congestion: None,
        urgency: Urgency::Usual,
    }
}

fn chosen(
    table: &RouteTable,
    to: &str,
    bytes: Option<u64>,
    now: u64,
) -> Result<String, IgnoreReason> {
    choice_from_table(table, &question(to, bytes), now, &HeldRoutes::default())
        .map(|choice| choice.used_names())
}

#[test]
fn a_table_is_read_by_destination_and_size() {
    let table = table(vec![option("a:1,b:2", 0.25), option("c:3", 0.75)]);
    for to in [
        "store.example:7511",
        "192.0.2.9:1",
        "x.store.example:7511",
        "STORE.example:1",
    ] {
        let both = "depot c:3 and depot a:1,depot b:2";
        assert_eq!(
            chosen(&table, to, Some(1 << 20), NOW).as_deref(),
            Ok(both),
            "{to}"
        );
        assert_eq!(chosen(&table, to, None, NOW).as_deref(), Ok(both), "{to}");
        assert_eq!(
            chosen(&table, to, Some((1 << 20) - 1), NOW).as_deref(),
            Ok("direct")
        );
    }
    assert_eq!(
        chosen(&table, "other.example:7511", None, NOW),
        Err(IgnoreReason::Unlisted)
    );
}

#[test]
fn a_route_no_better_by_its_own_figures_is_ignored() {
    let mut table = table(vec![option("c:3", 1.0)]);
    let to = question("store.example:1", Some(1 << 30));
    let choice = choice_from_table(&table, &to, NOW, &HeldRoutes::default()).unwrap();
    assert_eq!(
        (choice.at_once, choice.routes.len()),
        (1, 2),
        "and one to fall back to"
    );
    for direct in [
        spread(10.0),
        spread(1.0),
        Spread {
            p10: f64::NAN,
            ..spread(20.0)
        },
    ] {
        table.destinations[0].sizes[1].direct_seconds = Some(direct);
        assert_eq!(
            choice_from_table(&table, &to, NOW, &HeldRoutes::default()),
            Err(IgnoreReason::Senseless)
        );
    }
    table.destinations[0].sizes[1].direct_seconds = None;
    assert!(choice_from_table(&table, &to, NOW, &HeldRoutes::default()).is_ok());
}

#[test]
fn an_expired_table_is_first_doubted_then_ignored() {
    let table = table(vec![option("a:1", 0.5), option("c:3", 0.5)]);
    let at = |now| {
        choice_from_table(
            &table,
            &question("store.example:1", Some(1 << 30)),
            now,
            &HeldRoutes::default(),
        )
    };
    let fresh = at(NOW + 600_000).unwrap();
    assert_eq!(fresh.at_once, 2);
    assert!(matches!(fresh.origin, Origin::Cache { is_old: false, .. }));
    let old = at(NOW + 600_001).unwrap();
    assert_eq!((old.at_once, old.seconds), (1, None));
    assert!(matches!(old.origin, Origin::Cache { is_old: true, .. }));
    let end = NOW + 600_000 + MAX_DOUBTED_AGE.as_millis() as u64;
    assert!(at(end).is_ok());
    assert_eq!(at(end + 1), Err(IgnoreReason::Stale));
    assert_eq!(
        at(NOW + 7 * 86_400_000),
        Err(IgnoreReason::Stale),
        "last week's"
    );
    assert_eq!(at(NOW - 300_001), Err(IgnoreReason::FromTheFuture));
    assert!(at(NOW - 300_000).is_ok());
    // A table is valid only for a limited time, whatever it states.
    let mut endless = table.clone();
    endless.valid_until_ms = u64::MAX;
    assert!(matches!(
        choice_from_table(
            &endless,
            &question("store.example:1", None),
            NOW + 3_600_001,
            &HeldRoutes::default()
        )
        .unwrap()
        .origin,
        Origin::Cache { is_old: true, .. }
    ));
}

#[test]
fn invalid_options_are_left_out() {
    let good = option("c:3", 0.5);
    let mut senseless = vec![
        option("store.example:7511", 0.5),
        option("a:1,a:1", 0.5),
        option("a,b,c,d", 0.5),
        option("a b", 0.5),
        option("", 0.5),
        option(&"x".repeat(2000), 0.5),
        option("a:1", 0.0),
        option("a:1", -1.0),
        option("a:1", 2.0),
        option("a:1", f64::NAN),
    ];
    for seconds in [
        Spread {
            p10: 2.0,
            p50: 1.0,
            p90: 3.0,
        },
        Spread {
            p10: 0.0,
            p50: 1.0,
            p90: 3.0,
        },
        Spread {
            p10: 1.0,
            p50: 1.0,
            p90: f64::INFINITY,
        },
        Spread {
            p10: f64::NAN,
            p50: 1.0,
            p90: 3.0,
        },
    ] {
        senseless.push(RouteOption {
            seconds: Some(seconds),
            ..option("a:1", 0.5)
        });
        senseless.push(RouteOption {
            rate_bps: Some(seconds),
            ..option("a:1", 0.5)
        });
    }
    for bad in senseless {
        let alone = table(vec![bad.clone()]);
        assert_eq!(
            chosen(&alone, "store.example:7511", None, NOW),
            Err(IgnoreReason::Senseless),
            "{bad:?}"
        );
        let both = table(vec![bad.clone(), good.clone()]);
        assert_eq!(
            chosen(&both, "store.example:7511", None, NOW).as_deref(),
            Ok("depot c:3"),
            "{bad:?}"
        );
    }
    let many = table(
        (0..100)
            .map(|depot| option(&format!("d{depot}:1"), 0.01))
            .collect(),
    );
    let choice = choice_from_table(
        &many,
        &question("store.example:1", None),
        NOW,
        &HeldRoutes::default(),
    )
    .unwrap();
    assert_eq!(choice.at_once, MAX_AT_ONCE);
}

#[test]
fn a_route_that_failed_here_is_held_back_from_any_source() {
    let to = question("store.example:1", Some(1 << 30));
    let mut held = HeldRoutes::default();
    held.hold_back(&to.destination, &"c:3".parse().unwrap(), NOW);
    let both = table(vec![option("c:3", 0.9), option("a:1", 0.1)]);
    assert_eq!(
        choice_from_table(&both, &to, NOW, &held)
            .unwrap()
            .used_names(),
        "depot a:1"
    );
    let one = table(vec![option("c:3", 1.0)]);
    assert_eq!(
        choice_from_table(&one, &to, NOW, &held),
        Err(IgnoreReason::Failed)
    );
    let mut answer = RouteAnswer {
        routes: vec![option("c:3", 1.0)],
        others: Vec::new(),
        fall_back: vec![option("a:1", 0.0), option("c:3", 0.0)],
        seconds: Some(spread(3.0)),
        why: vec!["because\u{1b}[2J".into(); 9],
        map_version: 1,
        made_ms: NOW,
        valid_until_ms: NOW,
    };
    assert_eq!(
        choice_from_answer(&answer, &to, &held),
        Err(IgnoreReason::Failed)
    );
    answer.routes.push(option("direct", 0.5));
    let choice = choice_from_answer(&answer, &to, &held).unwrap();
    assert_eq!(choice.used_names(), "direct");
    assert_eq!(choice.routes.len(), 2, "{choice:?}");
    assert_eq!((choice.why.len(), choice.origin), (5, Origin::Controller));
    assert!(choice.why.iter().all(|line| !line.contains('\u{1b}')));
}

#[test]
fn small_copies_go_direct_whatever_the_source() {
    let mut lies = table(vec![option("c:3", 1.0)]);
    lies.destinations[0].sizes[0].routes = vec![option("c:3", 1.0)];
    assert_eq!(
        chosen(&lies, "store.example:1", Some(SMALL_BYTES), NOW).as_deref(),
        Ok("direct")
    );
    assert_eq!(
        chosen(&lies, "store.example:1", Some(SMALL_BYTES + 1), NOW).as_deref(),
        Ok("depot c:3")
    );
}

#[test]
fn a_recent_table_promises_times_by_its_sizes() {
    let mut table = table(vec![option("c:3", 1.0)]);
    table.destinations[0].direct = [(128 << 10, 0.5), (1 << 30, 20.0)]
        .map(|(bytes, p50)| DirectTime {
            bytes,
            seconds: spread(p50),
        })
        .into();
    let promised = |table: &RouteTable, bytes, now| {
        let to = question("store.example:1", bytes);
        choice_from_table(table, &to, now, &HeldRoutes::default())
            .unwrap()
            .seconds
    };
    assert_eq!(
        promised(&table, Some(100 << 10), NOW),
        Some(spread(0.5)),
        "a small one"
    );
    let large = promised(&table, Some(1 << 30), NOW).unwrap();
    // The route takes 10 s, half as long as the direct one. Both together take at least a third of
    // that.
    assert_eq!((large.p50, large.p90), (10.0, 20.0));
    assert!((large.p10 - 10.0 / 3.0).abs() < 1e-9, "{large:?}");
    let twice = promised(&table, Some(2 << 30), NOW).unwrap();
    assert!((twice.p50 - 20.0).abs() < 1e-9, "{twice:?}");
    // Nothing is promised for an unknown size, or by an old table.
    assert_eq!(promised(&table, None, NOW), None);
    let later = NOW + MAX_PROMISE_AGE.as_millis() as u64;
    assert!(promised(&table, Some(1 << 30), later).is_some());
    assert_eq!(promised(&table, Some(1 << 30), later + 1), None);
    // If all sizes go direct, there are no classes.
    table.destinations[0].sizes.clear();
    assert_eq!(promised(&table, Some(1 << 30), NOW), Some(spread(20.0)));
    assert_eq!(
        chosen(&table, "store.example:1", Some(1 << 30), NOW).as_deref(),
        Ok("direct")
    );
}

#[test]
fn an_answer_promises_the_time_alongside_direct() {
    let direct = RouteOption {
        seconds: Some(spread(30.0)),
        ..option("direct", 0.0)
    };
    let answer = RouteAnswer {
        routes: vec![option("c:3", 1.0)],
        others: vec![direct],
        fall_back: Vec::new(),
        seconds: Some(spread(10.0)),
        why: Vec::new(),
        map_version: 1,
        made_ms: NOW,
        valid_until_ms: NOW,
    };
    let promised = |bytes| {
        let to = question("store.example:1", Some(bytes));
        choice_from_answer(&answer, &to, &HeldRoutes::default())
            .unwrap()
            .seconds
            .unwrap()
    };
    assert_eq!(
        promised(SMALL_BYTES),
        spread(30.0),
        "a small one goes direct"
    );
    assert_eq!(
        promised(4 << 20),
        Spread {
            p10: 5.0,
            p50: 20.0,
            p90: 60.0
        }
    );
    assert_eq!(
        promised(1 << 30),
        Spread {
            p10: 3.75,
            p50: 10.0,
            p90: 20.0
        }
    );
}

fn numbers() -> impl Strategy<Value = f64> {
    prop_oneof![
        Just(0.5),
        Just(1.0),
        Just(0.0),
        Just(-1.0),
        Just(1e300),
        0.0..100.0f64
    ]
}

prop_compose! {
    fn any_option()(
        route in prop_oneof![
            Just("direct".to_owned()),
            "[a-c](:[1-9])?(,[a-c]:[1-9]){0,4}",
            ".{0,20}",
            Just("h.example:7511".to_owned())
        ],
        names in prop::collection::vec(".{0,10}", 0..4),
        three in [numbers(), numbers(), numbers()],
        share in numbers(),
    ) -> RouteOption {
        let spread = Spread { p10: three[0], p50: three[1], p90: three[2] };
        RouteOption {
            via: names
                .into_iter()
                .map(|depot| Passed { depot, address: "a:1".into(), key: None })
                .collect(),
            route,
            seconds: Some(spread),
            rate_bps: Some(spread),
            bottleneck: None,
            share,
            explores: false,
        }
    }
}

proptest! {
    #[test]
    fn any_table_yields_only_valid_choices(
        options in prop::collection::vec(any_option(), 0..6),
        made in prop_oneof![Just(NOW), any::<u64>()],
        least in prop_oneof![Just(0), any::<u64>()],
    ) {
        let mut table = table(options.clone());
        table.made_ms = made;
        table.destinations[0].to = "h.example".into();
        table.destinations[0].sizes[1].at_least_bytes = least;
        fuzzing::table(&serde_json::to_vec(&table).unwrap());
        let answer = RouteAnswer {
            routes: options.clone(),
            others: Vec::new(),
            fall_back: options,
            seconds: None,
            why: vec![],
            map_version: 0,
            made_ms: made,
            valid_until_ms: made,
        };
        fuzzing::table(&serde_json::to_vec(&answer).unwrap());
    }
}
