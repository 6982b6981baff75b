//! Properties of the choice for any facts.

use std::path::Path;

use longhaul_config::routes::RouteTable;
use proptest::prelude::*;

use super::*;

fn rule(end: &str) -> RouteRule {
    let text = format!("[[route]]\nto = [\"*\"]\n{end}\n");
    let table = RouteTable::parse(&text, Path::new("routes.toml")).unwrap();
    table.rules()[0].clone()
}

fn rules() -> [RouteRule; 4] {
    [
        rule(""),
        rule("offramp = \"gateway.example\"\nvia = \"depot.example\""),
        rule("acceptor = true\nalways = true"),
        rule("offramp = \"gateway.example\"\nfall_back = false"),
    ]
}

fn far(size: Option<u64>) -> Asked {
    Asked {
        size,
        ..Asked::default()
    }
}

fn known(rtt_ms: Option<u64>, usually_below: Option<u64>) -> Known {
    Known {
        rtt: rtt_ms.map(Duration::from_millis),
        usually_below,
    }
}

#[test]
fn a_rule_routes_connections_that_gain() {
    let [direct, route, always, _] = rules();
    let way =
        |rule: Option<&RouteRule>, asked: &Asked, known: &Known| choose(rule, asked, known).way;
    let nothing = Known::default();
    assert_eq!(way(None, &far(None), &nothing), Way::Direct);
    assert_eq!(way(Some(&direct), &far(None), &nothing), Way::Direct);
    assert_eq!(way(Some(&route), &far(None), &nothing), Way::Route);
    assert_eq!(way(Some(&route), &far(Some(SMALL)), &nothing), Way::Direct);
    assert_eq!(
        way(Some(&route), &far(Some(SMALL + 1)), &nothing),
        Way::Route
    );
    assert_eq!(
        way(Some(&route), &far(None), &known(Some(9), None)),
        Way::Direct
    );
    assert_eq!(
        way(Some(&route), &far(None), &known(Some(10), None)),
        Way::Route
    );
    assert_eq!(
        way(Some(&route), &far(None), &known(None, Some(SMALL))),
        Way::Direct
    );
    assert_eq!(
        way(Some(&always), &far(Some(1)), &known(Some(1), Some(1))),
        Way::Route
    );
    let home = Asked {
        is_local: true,
        ..Asked::default()
    };
    assert_eq!(way(Some(&route), &home, &nothing), Way::Direct);
    assert_eq!(way(Some(&always), &home, &nothing), Way::Route);
}

#[test]
fn a_stated_size_overrides_earlier_connections() {
    let [_, route, ..] = rules();
    let decision = choose(Some(&route), &far(Some(1 << 30)), &known(None, Some(1)));
    assert_eq!(decision, Reason::Rule { line: 1 }.go(Way::Route));
}

#[test]
fn reasons_have_display_text() {
    let said = |reason: Reason| reason.to_string();
    assert_eq!(
        said(Reason::Short {
            rtt: Duration::from_millis(3)
        }),
        "the path is short: a round trip takes 3 ms"
    );
    assert_eq!(
        said(Reason::SmallSize { size: 2048 }),
        "it will carry no more than 2 KiB"
    );
    assert_eq!(said(Reason::Rule { line: 7 }), "the rule of line 7");
}

fn any_asked() -> impl Strategy<Value = (bool, Option<Named>, Option<u64>, bool)> {
    let named = prop_oneof![
        Just(None),
        Just(Some(Named::Direct)),
        Just(Some(Named::Route))
    ];
    (any::<bool>(), named, any::<Option<u64>>(), any::<bool>())
}

#[test]
fn an_unknown_offramp_of_a_controller_is_not_used() {
    let rule = rules().get(1).cloned();
    let asked = Asked {
        is_offramp_unknown: true,
        ..far(Some(1 << 30))
    };
    let way = |asked: &Asked| choose(rule.as_ref(), asked, &known(Some(100), None)).way;
    assert_eq!(way(&far(Some(1 << 30))), Way::Route);
    assert_eq!(way(&asked), Way::Direct);
    let closed = Asked {
        closed: true,
        ..asked
    };
    assert_eq!(way(&closed), Way::Nothing);
    // Sessions end at the destination: nobody between can read them.
    let acceptor = Asked {
        acceptor: true,
        ..asked
    };
    assert_eq!(way(&acceptor), Way::Route);
    let named = Asked {
        named: Some(Named::Route),
        ..asked
    };
    assert_eq!(way(&named), Way::Route, "the program's own choice");
}

proptest! {
    #[test]
    fn choices_keep_their_invariants(
        (is_local, asks, size, closed) in any_asked(),
        (which, acceptor) in (0usize..5, any::<bool>()),
        rtt in proptest::option::of(0u64..300_000),
        usually_below in any::<Option<u64>>(),
    ) {
        let rule = rules().get(which).cloned();
        let asked = Asked {
            is_local, named: asks, size, closed, acceptor, is_offramp_unknown: false,
        };
        let known = Known { rtt: rtt.map(Duration::from_micros), usually_below };
        let Decision { way, reason } = choose(rule.as_ref(), &asked, &known);

        // A route is taken only if there is one.
        let named = asks == Some(Named::Route);
        let ruled = rule.as_ref().is_some_and(|rule| rule.end != SessionEnd::None);
        prop_assert!(way != Way::Route || named || ruled);
        // A route named by the program is taken.
        prop_assert!(!named || way == Way::Route);
        // A program that requires a route gets it if there is one, and otherwise no connection. The
        // two protocols are never mixed up.
        let ends_there = |rule: &RouteRule| rule.end == SessionEnd::Destination;
        let speaks = acceptor || rule.as_ref().is_some_and(ends_there);
        let foreign = if speaks { Way::Direct } else { Way::Session };
        prop_assert_ne!(way, foreign);
        if closed && !is_local && !named && !speaks {
            prop_assert_eq!(way, if ruled { Way::Route } else { Way::Nothing });
        }
        prop_assert!(closed && !speaks || way != Way::Nothing);
        // `always` takes the route unless the program itself requests a direct connection.
        let always = rule.as_ref().is_some_and(|rule| rule.always);
        let wants_direct = asks == Some(Named::Direct) && (speaks || !closed);
        prop_assert!(!always || wants_direct || way == Way::Route);
        // A longer path or more bytes never turn a route into a direct connection.
        if way == Way::Route {
            let longer = Known {
                rtt: known.rtt.map(|rtt| rtt * 2),
                usually_below: usually_below.map(|below| below.saturating_mul(2)),
            };
            let more = Asked { size: size.map(|size| size.saturating_mul(2)), ..asked };
            prop_assert_eq!(choose(rule.as_ref(), &more, &longer).way, Way::Route);
        }
        prop_assert!(!reason.to_string().is_empty());
    }
}
