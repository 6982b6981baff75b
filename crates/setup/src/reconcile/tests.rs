mod network;
mod properties;

use std::collections::BTreeMap;

use longhaul_circuits::time::Window;

use super::*;
use crate::ask::Found;
use crate::circuit::{Hop, Piece, Route};
use crate::streams::Streams;
use crate::testing::{name, part};
use network::{Answers, Network, Wrong};

const START: Moment = 1_000_000;
const END: Moment = 2_000_000;
const EARLY: Moment = START - SETUP_LEAD_MS as Moment;

/// Returns a circuit over links of nodes `a` and `b`, in one window.
fn circuit(id: &str, rate: u64, start: Moment, end: Moment) -> Circuit {
    let hop = |node: &str, link: &str| Hop {
        node: name(node),
        link: name(link),
    };
    let route = Route {
        hops: vec![hop("a", "ab"), hop("b", "bc")],
        rate,
        streams: Streams::between([10, 0, 0, 1].into(), [10, 0, 0, 2].into()),
    };
    Circuit {
        id: name(id),
        pieces: vec![Piece {
            window: Window::new(start, end),
            routes: vec![route],
        }],
    }
}

/// Returns a reconciler of owner `us` for nodes `a` and `b`, each with its own driver.
fn reconciler() -> Reconciler {
    let nodes = [("a", "driver of a"), ("b", "driver of b")];
    let nodes = nodes.map(|(node, driver)| (name(node), name(driver)));
    Reconciler::new(name("us"), nodes.into())
}

fn standing(reconciler: &Reconciler, now: Moment) -> Standing {
    reconciler.standing(&name("c"), now).unwrap()
}

#[test]
fn a_circuit_is_set_up_before_and_torn_down_after_its_window() {
    let (mut reconciler, mut network) = (reconciler(), Network::default());
    reconciler.want([circuit("c", 5, START, END)]);
    network.run(&mut reconciler, 0, EARLY - 1, &mut Answers::good());
    assert_eq!(standing(&reconciler, EARLY - 1), Standing::Waiting);
    assert_eq!(network.count("us"), 0);
    network.run(&mut reconciler, EARLY, EARLY, &mut Answers::good());
    assert_eq!(standing(&reconciler, EARLY), Standing::Provisioned);
    assert_eq!(network.count("us"), 2);
    network.run(&mut reconciler, EARLY, END - 1, &mut Answers::good());
    assert_eq!(standing(&reconciler, END - 1), Standing::Provisioned);
    assert_eq!(reconciler.parts(&name("c"), END - 1).len(), 2);
    network.run(&mut reconciler, END, END, &mut Answers::good());
    assert_eq!(standing(&reconciler, END), Standing::Over { left: 0 });
    assert_eq!(network.count("us"), 0);
}

#[test]
fn a_driver_lists_its_parts_first() {
    let mut reconciler = reconciler();
    reconciler.want([circuit("c", 5, START, END)]);
    let asks = reconciler.next(START);
    assert_eq!(asks.len(), 2);
    assert!(
        asks.iter()
            .all(|ask| matches!(ask.request, Request::List { .. }))
    );
    assert_eq!(
        reconciler.left(&name("c")),
        2,
        "each driver may have something"
    );
    assert_eq!(reconciler.next(START), [], "one thing at a time");
}

#[test]
fn after_a_crash_only_unwanted_own_parts_are_removed() {
    let mut network = Network::default();
    let mut before = reconciler();
    before.want([circuit("c", 5, START, END), circuit("d", 5, START, END)]);
    network.run(&mut before, START, START, &mut Answers::good());
    network.put("driver of a", part("others", "x", "a", "ab", 7));
    let kept = part("others", "c", "a", "ab", 9);
    network.put("driver of a", kept.clone());
    assert_eq!(network.count("us"), 4);

    let mut after = reconciler();
    after.want([circuit("c", 5, START, END)]);
    network.asked.clear();
    network.run(&mut after, START + 5, START + 5, &mut Answers::good());
    assert_eq!(network.count("us"), 2);
    assert_eq!(network.count("others"), 2);
    assert_eq!(standing(&after, START + 5), Standing::Provisioned);
    let set_up = |request: &Request| matches!(request, Request::SetUp { .. });
    let anothers = part("others", "x", "a", "ab", 7).id;
    let touches =
        |request: &Request| matches!(request, Request::TearDown { id, .. } if *id == anothers);
    assert!(
        !network.asked.iter().any(touches),
        "it is not even asked for"
    );
    assert!(
        !network.asked.iter().any(set_up),
        "what is there is not set up again"
    );
}

#[test]
fn a_part_that_is_refused_releases_all_others() {
    let (mut reconciler, mut network) = (reconciler(), Network::default());
    reconciler.want([circuit("c", 5, START, END)]);
    let mut refusing = Answers::by(|driver, request| {
        let refused = driver == "driver of b" && matches!(request, Request::SetUp { .. });
        refused.then(|| DriverError::refused("no link bc here"))
    });
    network.run(&mut reconciler, EARLY, EARLY, &mut refusing);
    assert_eq!(network.count("us"), 0);
    let Standing::Failed { why, left: 0 } = standing(&reconciler, EARLY) else {
        panic!("{:?}", standing(&reconciler, EARLY));
    };
    assert_eq!(
        why.to_string(),
        "b, link bc, by driver driver of b: no link bc here"
    );
    network.run(&mut reconciler, EARLY, END, &mut Answers::good());
    assert_eq!(network.count("us"), 0, "it stays failed");

    reconciler.again(&name("c"));
    network.run(&mut reconciler, START, START, &mut Answers::good());
    assert_eq!(standing(&reconciler, START), Standing::Provisioned);
}

#[test]
fn failures_are_retried_with_backoff_until_the_grace_ends() {
    let (mut reconciler, mut network) = (reconciler(), Network::default());
    reconciler.want([circuit("c", 5, START, END)]);
    let mut failing = Answers::by(|driver, request| {
        let fails = driver == "driver of b" && matches!(request, Request::SetUp { .. });
        fails.then(|| DriverError::failed("the line card is busy"))
    });
    let late = START + GRACE_MS as Moment;
    network.run(&mut reconciler, EARLY, late - 1, &mut failing);
    assert_eq!(standing(&reconciler, late - 1), Standing::SettingUp);
    let times = network
        .times_of(|request| matches!(request, Request::SetUp { part } if part.node == name("b")));
    let waits: Vec<Moment> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(waits[..5], [1_000, 2_000, 4_000, 8_000, 16_000]);
    assert!(
        waits[5..]
            .iter()
            .all(|wait| *wait == MAX_BACK_OFF as Moment),
        "{waits:?}"
    );
    network.run(&mut reconciler, late, late, &mut failing);
    let Standing::Failed { why, .. } = standing(&reconciler, late) else {
        panic!("{:?}", standing(&reconciler, late));
    };
    assert!(why.to_string().contains("the line card is busy"), "{why}");
    network.run(&mut reconciler, late, late + 60_000, &mut failing);
    assert_eq!(network.count("us"), 0);
    assert_eq!(reconciler.left(&name("c")), 0);
}

#[test]
fn a_silent_driver_fails_new_circuits_but_not_old_ones() {
    let silent = || {
        Answers::by(|driver, _| {
            (driver == "driver of b").then(|| DriverError::failed("no route to host"))
        })
    };
    let late = START + GRACE_MS as Moment;
    let (mut new, mut network) = (reconciler(), Network::default());
    new.want([circuit("c", 5, START, END)]);
    network.run(&mut new, EARLY, late, &mut silent());
    assert!(matches!(standing(&new, late), Standing::Failed { .. }));
    assert!(new.left(&name("c")) > 0, "nobody knows what the driver has");

    let (mut old, mut network) = (reconciler(), Network::default());
    old.want([circuit("c", 5, START, END)]);
    old.was_provisioned(&name("c"));
    network.run(&mut old, START, late + 1_000, &mut silent());
    assert_eq!(standing(&old, late + 1_000), Standing::SettingUp);
    network.run(&mut old, late + 60_000, late + 60_000, &mut Answers::good());
    assert_eq!(standing(&old, late + 60_000), Standing::Provisioned);
}

#[test]
fn lost_parts_are_set_up_again() {
    let (mut reconciler, mut network) = (reconciler(), Network::default());
    reconciler.want([circuit("c", 5, START, END)]);
    network.run(&mut reconciler, START, START, &mut Answers::good());
    network.lose("driver of a");
    assert_eq!(network.count("us"), 1);
    let seen = START + LIST_EVERY as Moment;
    network.run(&mut reconciler, START + 1, seen, &mut Answers::good());
    assert_eq!(network.count("us"), 2);
    assert_eq!(standing(&reconciler, seen), Standing::Provisioned);
}

#[test]
fn a_circuit_that_waits_for_room_is_set_up_when_another_ends() {
    let (mut reconciler, mut network) = (reconciler(), Network::default());
    network.room = Some(5);
    reconciler.want([
        circuit("c", 5, START, END),
        circuit("d", 5, END, END + 500_000),
    ]);
    network.run(&mut reconciler, START, END - 1, &mut Answers::good());
    let d = name("d");
    assert_eq!(
        reconciler.standing(&d, END - 1),
        Some(Standing::SettingUp),
        "it is early"
    );
    network.run(&mut reconciler, END, END, &mut Answers::good());
    assert_eq!(reconciler.standing(&d, END), Some(Standing::Provisioned));
}

#[test]
fn another_rate_changes_the_part_in_place() {
    let (mut reconciler, mut network) = (reconciler(), Network::default());
    reconciler.want([circuit("c", 5, START, END)]);
    network.run(&mut reconciler, START, START, &mut Answers::good());
    network.asked.clear();
    reconciler.want([circuit("c", 3, START, END)]);
    network.run(&mut reconciler, START + 1, START + 1, &mut Answers::good());
    assert_eq!(network.rates("us"), [3, 3]);
    let torn = |request: &Request| matches!(request, Request::TearDown { .. });
    assert!(
        !network.asked.iter().any(torn),
        "its streams are not interrupted"
    );
}

#[test]
fn an_update_changes_only_the_named_circuits() {
    let (mut reconciler, mut network) = (reconciler(), Network::default());
    reconciler.want([circuit("c", 5, START, END), circuit("d", 2, START, END)]);
    network.run(&mut reconciler, START, START, &mut Answers::good());
    reconciler.want_instead([
        (name("d"), None),
        (name("e"), Some(circuit("e", 1, START, END))),
    ]);
    reconciler.want_instead([
        (name("c"), Some(circuit("c", 5, START, END))),
        (name("x"), None),
    ]);
    assert_eq!(
        standing(&reconciler, START),
        Standing::Provisioned,
        "it is what it was"
    );
    network.run(&mut reconciler, START + 1, START + 1, &mut Answers::good());
    assert_eq!(network.rates("us"), [5, 1, 5, 1]);
    assert_eq!(reconciler.standing(&name("d"), START + 1), None);
}

#[test]
fn an_invalid_circuit_fails_without_requests() {
    let (mut reconciler, mut network) = (reconciler(), Network::default());
    reconciler.want([circuit("c", 0, START, END)]);
    network.run(&mut reconciler, START, START, &mut Answers::good());
    assert!(matches!(
        standing(&reconciler, START),
        Standing::Failed {
            why: Failure::Fault(_),
            left: 0
        }
    ));
}

#[test]
fn answers_of_another_kind_or_number_are_ignored() {
    let mut reconciler = reconciler();
    reconciler.want([circuit("c", 5, START, END)]);
    let asks = reconciler.next(START);
    reconciler.answered(99, Ok(Reply::Done), START);
    assert_eq!(reconciler.next(START), []);
    for ask in asks {
        reconciler.answered(ask.number, Ok(Reply::Done), START);
    }
    assert_eq!(
        reconciler.next(START),
        [],
        "a list was asked for: later again"
    );
    let soon = START + FIRST_BACK_OFF as Moment;
    assert_eq!(reconciler.wake(START), Some(soon));
    assert_eq!(reconciler.next(soon).len(), 2);
}

#[test]
fn a_half_set_up_part_is_torn_down_without_a_list() {
    let (mut reconciler, mut network) = (reconciler(), Network::default());
    reconciler.want([circuit("c", 5, START, END)]);
    let mut halves = Answers::wrong(|_, request| {
        matches!(request, Request::SetUp { .. }).then_some(Wrong::Half)
    });
    network.run(&mut reconciler, START, START, &mut halves);
    assert_eq!(network.count("us"), 2);
    reconciler.want([]);
    let soon = START + FIRST_BACK_OFF as Moment;
    network.run(&mut reconciler, START, soon, &mut Answers::good());
    assert_eq!(network.count("us"), 0);
}

#[test]
fn a_refusal_of_old_parts_does_not_fail_a_changed_circuit() {
    let (mut reconciler, mut network) = (reconciler(), Network::default());
    reconciler.want([circuit("c", 9, START, END)]);
    for ask in reconciler.next(START) {
        let parts = vec![];
        reconciler.answered(ask.number, Ok(Reply::Parts { parts }), START);
    }
    let asks = reconciler.next(START);
    reconciler.want([circuit("c", 5, START, END)]);
    for ask in asks {
        reconciler.answered(
            ask.number,
            Err(DriverError::refused("9 is too much")),
            START,
        );
    }
    let soon = START + FIRST_BACK_OFF as Moment;
    network.run(&mut reconciler, START, soon, &mut Answers::good());
    assert_eq!(standing(&reconciler, soon), Standing::Provisioned);
}

#[test]
fn abandoned_requests_are_repeated() {
    let (mut reconciler, mut network) = (reconciler(), Network::default());
    reconciler.want([circuit("c", 5, START, END)]);
    assert_eq!(reconciler.next(START).len(), 2);
    reconciler.give_up(START);
    let soon = START + FIRST_BACK_OFF as Moment;
    network.run(&mut reconciler, soon, soon, &mut Answers::good());
    assert_eq!(standing(&reconciler, soon), Standing::Provisioned);
}

#[test]
fn a_description_of_a_foreign_part_is_not_believed() {
    let mut reconciler = reconciler();
    reconciler.want([circuit("c", 5, START, END)]);
    let asks = reconciler.next(START);
    let (_, wanted) = reconciler.parts(&name("c"), START).remove(0);
    let other = part("others", "c", "a", "ab", 5);
    let lie = Found {
        owner: name("us"),
        id: wanted.id.clone(),
        part: Some(other),
        whole: true,
    };
    let parts = vec![lie];
    reconciler.answered(asks[0].number, Ok(Reply::Parts { parts }), START);
    let asks = reconciler.next(START);
    assert_eq!(asks[0].request, Request::SetUp { part: wanted });
}
