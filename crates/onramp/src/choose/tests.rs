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

fn far(size: Option<u64>) -> ConnectionFacts {
    ConnectionFacts {
        size,
        ..ConnectionFacts::default()
    }
}

fn known(rtt_ms: Option<u64>, usually_below: Option<u64>) -> DestinationFacts {
    DestinationFacts {
        rtt: rtt_ms.map(Duration::from_millis),
        usually_below,
    }
}

#[test]
fn a_rule_routes_connections_that_gain() {
    let [direct, route, always, _] = rules();
    let action = |rule: Option<&RouteRule>, asked: &ConnectionFacts, known: &DestinationFacts| {
        choose(rule, asked, known).action
    };
    let nothing = DestinationFacts::default();
    assert_eq!(action(None, &far(None), &nothing), ConnectionAction::Direct);
    assert_eq!(
        action(Some(&direct), &far(None), &nothing),
        ConnectionAction::Direct
    );
    assert_eq!(
        action(Some(&route), &far(None), &nothing),
        ConnectionAction::Route
    );
    assert_eq!(
        action(Some(&route), &far(Some(MAX_SMALL_BYTES)), &nothing),
        ConnectionAction::Direct
    );
    assert_eq!(
        action(Some(&route), &far(Some(MAX_SMALL_BYTES + 1)), &nothing),
        ConnectionAction::Route
    );
    assert_eq!(
        action(Some(&route), &far(None), &known(Some(9), None)),
        ConnectionAction::Direct
    );
    assert_eq!(
        action(Some(&route), &far(None), &known(Some(10), None)),
        ConnectionAction::Route
    );
    assert_eq!(
        action(
            Some(&route),
            &far(None),
            &known(None, Some(MAX_SMALL_BYTES))
        ),
        ConnectionAction::Direct
    );
    assert_eq!(
        action(Some(&always), &far(Some(1)), &known(Some(1), Some(1))),
        ConnectionAction::Route
    );
    let home = ConnectionFacts {
        is_local: true,
        ..ConnectionFacts::default()
    };
    assert_eq!(
        action(Some(&route), &home, &nothing),
        ConnectionAction::Direct
    );
    assert_eq!(
        action(Some(&always), &home, &nothing),
        ConnectionAction::Route
    );
}

#[test]
fn a_stated_size_overrides_earlier_connections() {
    let [_, route, ..] = rules();
    let decision = choose(Some(&route), &far(Some(1 << 30)), &known(None, Some(1)));
    assert_eq!(
        decision,
        Reason::Rule { line: 1 }.with_action(ConnectionAction::Route)
    );
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

fn any_asked() -> impl Strategy<Value = (bool, Option<ProgramChoice>, Option<u64>, bool)> {
    let named = prop_oneof![
        Just(None),
        Just(Some(ProgramChoice::Direct)),
        Just(Some(ProgramChoice::Route))
    ];
    (any::<bool>(), named, any::<Option<u64>>(), any::<bool>())
}

#[test]
fn an_unknown_offramp_of_a_controller_is_not_used() {
    let rule = rules().get(1).cloned();
    let asked = ConnectionFacts {
        is_offramp_unknown: true,
        ..far(Some(1 << 30))
    };
    let action =
        |asked: &ConnectionFacts| choose(rule.as_ref(), asked, &known(Some(100), None)).action;
    assert_eq!(action(&far(Some(1 << 30))), ConnectionAction::Route);
    assert_eq!(action(&asked), ConnectionAction::Direct);
    let closed = ConnectionFacts {
        route_required: true,
        ..asked
    };
    assert_eq!(action(&closed), ConnectionAction::Refuse);
    // Sessions end at the destination: nobody between can read them.
    let acceptor = ConnectionFacts {
        acceptor: true,
        ..asked
    };
    assert_eq!(action(&acceptor), ConnectionAction::Route);
    let named = ConnectionFacts {
        program_choice: Some(ProgramChoice::Route),
        ..asked
    };
    assert_eq!(
        action(&named),
        ConnectionAction::Route,
        "the program's own choice"
    );
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
        let asked = ConnectionFacts {
            is_local,
            program_choice: asks,
            size,
            route_required: closed,
            acceptor,
            is_offramp_unknown: false,
        };
        let known = DestinationFacts { rtt: rtt.map(Duration::from_micros), usually_below };
        let Decision { action, reason } = choose(rule.as_ref(), &asked, &known);

        // A route is taken only if there is one.
        let named = asks == Some(ProgramChoice::Route);
        let ruled = rule.as_ref().is_some_and(|rule| rule.end != SessionEnd::None);
        prop_assert!(action != ConnectionAction::Route || named || ruled);
        // A route named by the program is taken.
        prop_assert!(!named || action == ConnectionAction::Route);
        // A program that requires a route gets it if there is one, and otherwise no connection. The
        // two protocols are never mixed up.
        let ends_there = |rule: &RouteRule| rule.end == SessionEnd::Destination;
        let speaks = acceptor || rule.as_ref().is_some_and(ends_there);
        let foreign = if speaks { ConnectionAction::Direct } else { ConnectionAction::Session };
        prop_assert_ne!(action, foreign);
        if closed && !is_local && !named && !speaks {
            prop_assert_eq!(
                action,
                if ruled { ConnectionAction::Route } else { ConnectionAction::Refuse }
            );
        }
        prop_assert!(closed && !speaks || action != ConnectionAction::Refuse);
        // `always` takes the route unless the program itself requests a direct connection.
        let always = rule.as_ref().is_some_and(|rule| rule.always);
        let wants_direct = asks == Some(ProgramChoice::Direct) && (speaks || !closed);
        prop_assert!(!always || wants_direct || action == ConnectionAction::Route);
        // A longer path or more bytes never turn a route into a direct connection.
        if action == ConnectionAction::Route {
            let longer = DestinationFacts {
                rtt: known.rtt.map(|rtt| rtt * 2),
                usually_below: usually_below.map(|below| below.saturating_mul(2)),
            };
            let more = ConnectionFacts { size: size.map(|size| size.saturating_mul(2)), ..asked };
            prop_assert_eq!(choose(rule.as_ref(), &more, &longer).action, ConnectionAction::Route);
        }
        prop_assert!(!reason.to_string().is_empty());
    }
}
