use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::testing::{any_streams, name};

const SETUP_LEAD_MS: u64 = 10;

fn route(links: &[(&str, &str)], rate: BitsPerSecond) -> CircuitRoute {
    CircuitRoute {
        hops: links
            .iter()
            .map(|(node, link)| CircuitHop {
                node: name(node),
                link: name(link),
            })
            .collect(),
        rate,
        streams: StreamSelector::between([10, 0, 0, 1].into(), [10, 0, 0, 2].into()),
    }
}

fn circuit(pieces: Vec<(i64, i64, Vec<CircuitRoute>)>) -> CircuitSpec {
    CircuitSpec {
        id: name("c"),
        pieces: pieces
            .into_iter()
            .map(|(start, end, routes)| CircuitPiece {
                window: Window::new(start, end),
                routes,
            })
            .collect(),
    }
}

#[test]
fn a_part_is_held_from_the_lead_to_the_end() {
    let circuit = circuit(vec![(
        100,
        200,
        vec![route(&[("a", "ab"), ("b", "bc")], 5)],
    )]);
    let count = |now| circuit.parts_at(&name("o"), now, SETUP_LEAD_MS).len();
    assert_eq!([89, 90, 199, 200].map(count), [0, 2, 2, 0]);
    assert_eq!(circuit.window(), Window::new(100, 200));
}

#[test]
fn a_piece_that_follows_another_waits_for_its_end() {
    let circuit = circuit(vec![
        (100, 200, vec![route(&[("a", "ab")], 5)]),
        (200, 300, vec![route(&[("a", "ab")], 7)]),
    ]);
    let rate = |now| {
        let parts = circuit.parts_at(&name("o"), now, SETUP_LEAD_MS);
        parts
            .into_values()
            .map(|part| part.rate)
            .collect::<Vec<_>>()
    };
    assert_eq!(rate(195), [5]);
    assert_eq!(rate(200), [7]);
    let ids = |now| {
        circuit
            .parts_at(&name("o"), now, SETUP_LEAD_MS)
            .into_keys()
            .next()
    };
    assert_eq!(ids(199), ids(200), "the part is changed, and not another");
}

#[test]
fn routes_with_the_same_streams_over_the_same_link_are_one_part() {
    let both = vec![route(&[("a", "ab")], 5), route(&[("a", "ab")], 6)];
    let parts = circuit(vec![(0, 9, both)]).parts_at(&name("o"), 0, SETUP_LEAD_MS);
    assert_eq!(
        parts
            .into_values()
            .map(|part| part.rate)
            .collect::<Vec<_>>(),
        [11]
    );
}

#[test]
fn invalid_circuits_are_refused() {
    let good = route(&[("a", "ab")], 5);
    assert_eq!(circuit(vec![(0, 9, vec![good.clone()])]).check(), Ok(()));
    let overlap = circuit(vec![(0, 9, vec![]), (8, 10, vec![])]);
    assert_eq!(
        overlap.check(),
        Err(CircuitFault::Window(Window::new(8, 10)))
    );
    let none = circuit(vec![(0, 9, vec![route(&[("a", "ab")], 0)])]);
    assert_eq!(none.check(), Err(CircuitFault::Rate(0)));
    let two = circuit(vec![(0, 9, vec![good.clone(), route(&[("a", "ac")], 5)])]);
    assert!(matches!(two.check(), Err(CircuitFault::TwoLinks { .. })));
    let many = circuit(vec![(0, 9, vec![good; MAX_PARTS + 1])]);
    assert_eq!(many.check(), Err(CircuitFault::TooMany(MAX_PARTS + 1)));
}

#[test]
fn names_are_one_line() {
    for text in [
        "",
        " a",
        "a\nb",
        "a\u{2028}b",
        "a\u{7f}",
        &"a".repeat(MAX_NAME_BYTES + 1),
    ] {
        assert!(text.parse::<EntityName>().is_err(), "{text:?}");
    }
    assert_eq!(name("Salt Lake City").as_str(), "Salt Lake City");
    assert_eq!(PartId::from_unknown_slot(7).unknown_slot(), Some(7));
    assert_eq!("?x".parse::<PartId>().unwrap().unknown_slot(), None);
}

fn any_name() -> impl Strategy<Value = EntityName> {
    "[ab/%?]{1,4}".prop_map(|text| name(&text))
}

proptest! {
    #[test]
    fn different_parts_have_different_ids(
        all in proptest::collection::vec(
            (any_name(), any_name(), any_name(), any_streams()),
            1..20
        ),
    ) {
        let different: BTreeSet<_> = all.iter().collect();
        let ids: BTreeSet<_> =
            all.iter().map(|(a, b, c, s)| PartId::for_streams(a, b, c, s)).collect();
        prop_assert_eq!(different.len(), ids.len());
        for id in ids {
            prop_assert_eq!(id.as_str().parse::<PartId>(), Ok(id.clone()));
        }
    }

    #[test]
    fn at_most_one_piece_is_held_at_any_moment(
        cuts in proptest::collection::btree_set(0..1_000_i64, 2..10),
        now in -50..1_050_i64,
    ) {
        let cuts: Vec<i64> = cuts.into_iter().collect();
        let pieces = cuts.windows(2).map(|pair| (pair[0], pair[1], vec![])).collect();
        let circuit = circuit(pieces);
        prop_assert_eq!(circuit.check(), Ok(()));
        let there = circuit
            .provisioning_windows(SETUP_LEAD_MS)
            .filter(|(held, _)| held.contains(now))
            .count();
        prop_assert!(there <= 1);
        let within = circuit.window().contains(now);
        prop_assert!(!within || there == 1);
    }
}
