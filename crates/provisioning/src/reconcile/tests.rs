mod network;
mod properties;

use std::collections::BTreeMap;

use longhaul_circuits::time::Window;

use super::*;
use crate::ask::ListedPart;
use crate::circuit::{CircuitHop, CircuitPiece, CircuitRoute};
use crate::streams::StreamSelector;
use crate::testing::{name, part};
use network::{Answers, Network, SimulatedFault};

const START: MomentMs = 1_000_000;
const END: MomentMs = 2_000_000;
const EARLY: MomentMs = START - SETUP_LEAD_MS as MomentMs;

/// Returns a circuit over links of nodes `a` and `b`, in one window.
fn circuit(id: &str, rate: u64, start: MomentMs, end: MomentMs) -> CircuitSpec {
    let hop = |node: &str, link: &str| CircuitHop {
        node: name(node),
        link: name(link),
    };
    let route = CircuitRoute {
        hops: vec![hop("a", "ab"), hop("b", "bc")],
        rate,
        streams: StreamSelector::between([10, 0, 0, 1].into(), [10, 0, 0, 2].into()),
    };
    CircuitSpec {
        id: name(id),
        pieces: vec![CircuitPiece {
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

fn standing(reconciler: &Reconciler, now: MomentMs) -> CircuitStatus {
    reconciler.status(&name("c"), now).unwrap()
}

#[test]
fn a_circuit_is_set_up_before_and_torn_down_after_its_window() {
    let (mut reconciler, mut network) = (reconciler(), Network::default());
    reconciler.set_wanted([circuit("c", 5, START, END)]);
    network.run(&mut reconciler, 0, EARLY - 1, &mut Answers::good());
    assert_eq!(standing(&reconciler, EARLY - 1), CircuitStatus::Waiting);
    assert_eq!(network.count("us"), 0);
    network.run(&mut reconciler, EARLY, EARLY, &mut Answers::good());
    assert_eq!(standing(&reconciler, EARLY), CircuitStatus::Provisioned);
    assert_eq!(network.count("us"), 2);
    network.run(&mut reconciler, EARLY, END - 1, &mut Answers::good());
    assert_eq!(standing(&reconciler, END - 1), CircuitStatus::Provisioned);
    assert_eq!(reconciler.parts(&name("c"), END - 1).len(), 2);
    network.run(&mut reconciler, END, END, &mut Answers::good());
    assert_eq!(standing(&reconciler, END), CircuitStatus::Over { left: 0 });
    assert_eq!(network.count("us"), 0);
}

#[test]
fn a_driver_lists_its_parts_first() {
    let mut reconciler = reconciler();
    reconciler.set_wanted([circuit("c", 5, START, END)]);
    let asks = reconciler.next_requests(START);
    assert_eq!(asks.len(), 2);
    assert!(
        asks.iter()
            .all(|ask| matches!(ask.request, DriverRequest::List { .. }))
    );
    assert_eq!(
        reconciler.remaining_parts(&name("c")),
        2,
        "each driver may have something"
    );
    assert_eq!(reconciler.next_requests(START), [], "one thing at a time");
}

#[test]
fn after_a_crash_only_unwanted_own_parts_are_removed() {
    let mut network = Network::default();
    let mut before = reconciler();
    before.set_wanted([circuit("c", 5, START, END), circuit("d", 5, START, END)]);
    network.run(&mut before, START, START, &mut Answers::good());
    network.put("driver of a", part("others", "x", "a", "ab", 7));
    let kept = part("others", "c", "a", "ab", 9);
    network.put("driver of a", kept.clone());
    assert_eq!(network.count("us"), 4);

    let mut after = reconciler();
    after.set_wanted([circuit("c", 5, START, END)]);
    network.asked.clear();
    network.run(&mut after, START + 5, START + 5, &mut Answers::good());
    assert_eq!(network.count("us"), 2);
    assert_eq!(network.count("others"), 2);
    assert_eq!(standing(&after, START + 5), CircuitStatus::Provisioned);
    let set_up = |request: &DriverRequest| matches!(request, DriverRequest::SetUp { .. });
    let anothers = part("others", "x", "a", "ab", 7).id;
    let touches = |request: &DriverRequest| matches!(request, DriverRequest::TearDown { id, .. } if *id == anothers);
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
    reconciler.set_wanted([circuit("c", 5, START, END)]);
    let mut refusing = Answers::with_errors(|driver, request| {
        let refused = driver == "driver of b" && matches!(request, DriverRequest::SetUp { .. });
        refused.then(|| DriverError::refused("no link bc here"))
    });
    network.run(&mut reconciler, EARLY, EARLY, &mut refusing);
    assert_eq!(network.count("us"), 0);
    let CircuitStatus::Failed { why, left: 0 } = standing(&reconciler, EARLY) else {
        panic!("{:?}", standing(&reconciler, EARLY));
    };
    assert_eq!(
        why.to_string(),
        "b, link bc, by driver driver of b: no link bc here"
    );
    network.run(&mut reconciler, EARLY, END, &mut Answers::good());
    assert_eq!(network.count("us"), 0, "it stays failed");

    reconciler.retry(&name("c"));
    network.run(&mut reconciler, START, START, &mut Answers::good());
    assert_eq!(standing(&reconciler, START), CircuitStatus::Provisioned);
}

#[test]
fn failures_are_retried_with_backoff_until_the_grace_ends() {
    let (mut reconciler, mut network) = (reconciler(), Network::default());
    reconciler.set_wanted([circuit("c", 5, START, END)]);
    let mut failing = Answers::with_errors(|driver, request| {
        let fails = driver == "driver of b" && matches!(request, DriverRequest::SetUp { .. });
        fails.then(|| DriverError::failed("the line card is busy"))
    });
    let late = START + GRACE_MS as MomentMs;
    network.run(&mut reconciler, EARLY, late - 1, &mut failing);
    assert_eq!(standing(&reconciler, late - 1), CircuitStatus::SettingUp);
    let times = network.times_of(
        |request| matches!(request, DriverRequest::SetUp { part } if part.node == name("b")),
    );
    let waits: Vec<MomentMs> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(waits[..5], [1_000, 2_000, 4_000, 8_000, 16_000]);
    assert!(
        waits[5..]
            .iter()
            .all(|wait| *wait == MAX_BACKOFF_MS as MomentMs),
        "{waits:?}"
    );
    network.run(&mut reconciler, late, late, &mut failing);
    let CircuitStatus::Failed { why, .. } = standing(&reconciler, late) else {
        panic!("{:?}", standing(&reconciler, late));
    };
    assert!(why.to_string().contains("the line card is busy"), "{why}");
    network.run(&mut reconciler, late, late + 60_000, &mut failing);
    assert_eq!(network.count("us"), 0);
    assert_eq!(reconciler.remaining_parts(&name("c")), 0);
}

#[test]
fn a_silent_driver_fails_new_circuits_but_not_old_ones() {
    let silent = || {
        Answers::with_errors(|driver, _| {
            (driver == "driver of b").then(|| DriverError::failed("no route to host"))
        })
    };
    let late = START + GRACE_MS as MomentMs;
    let (mut new, mut network) = (reconciler(), Network::default());
    new.set_wanted([circuit("c", 5, START, END)]);
    network.run(&mut new, EARLY, late, &mut silent());
    assert!(matches!(standing(&new, late), CircuitStatus::Failed { .. }));
    assert!(
        new.remaining_parts(&name("c")) > 0,
        "nobody knows what the driver has"
    );

    let (mut old, mut network) = (reconciler(), Network::default());
    old.set_wanted([circuit("c", 5, START, END)]);
    old.mark_provisioned(&name("c"));
    network.run(&mut old, START, late + 1_000, &mut silent());
    assert_eq!(standing(&old, late + 1_000), CircuitStatus::SettingUp);
    network.run(&mut old, late + 60_000, late + 60_000, &mut Answers::good());
    assert_eq!(standing(&old, late + 60_000), CircuitStatus::Provisioned);
}

#[test]
fn lost_parts_are_set_up_again() {
    let (mut reconciler, mut network) = (reconciler(), Network::default());
    reconciler.set_wanted([circuit("c", 5, START, END)]);
    network.run(&mut reconciler, START, START, &mut Answers::good());
    network.lose("driver of a");
    assert_eq!(network.count("us"), 1);
    let seen = START + LIST_INTERVAL_MS as MomentMs;
    network.run(&mut reconciler, START + 1, seen, &mut Answers::good());
    assert_eq!(network.count("us"), 2);
    assert_eq!(standing(&reconciler, seen), CircuitStatus::Provisioned);
}

#[test]
fn a_circuit_that_waits_for_room_is_set_up_when_another_ends() {
    let (mut reconciler, mut network) = (reconciler(), Network::default());
    network.room = Some(5);
    reconciler.set_wanted([
        circuit("c", 5, START, END),
        circuit("d", 5, END, END + 500_000),
    ]);
    network.run(&mut reconciler, START, END - 1, &mut Answers::good());
    let d = name("d");
    assert_eq!(
        reconciler.status(&d, END - 1),
        Some(CircuitStatus::SettingUp),
        "it is early"
    );
    network.run(&mut reconciler, END, END, &mut Answers::good());
    assert_eq!(reconciler.status(&d, END), Some(CircuitStatus::Provisioned));
}

#[test]
fn another_rate_changes_the_part_in_place() {
    let (mut reconciler, mut network) = (reconciler(), Network::default());
    reconciler.set_wanted([circuit("c", 5, START, END)]);
    network.run(&mut reconciler, START, START, &mut Answers::good());
    network.asked.clear();
    reconciler.set_wanted([circuit("c", 3, START, END)]);
    network.run(&mut reconciler, START + 1, START + 1, &mut Answers::good());
    assert_eq!(network.rates("us"), [3, 3]);
    let torn = |request: &DriverRequest| matches!(request, DriverRequest::TearDown { .. });
    assert!(
        !network.asked.iter().any(torn),
        "its streams are not interrupted"
    );
}

#[test]
fn an_update_changes_only_the_named_circuits() {
    let (mut reconciler, mut network) = (reconciler(), Network::default());
    reconciler.set_wanted([circuit("c", 5, START, END), circuit("d", 2, START, END)]);
    network.run(&mut reconciler, START, START, &mut Answers::good());
    reconciler.update_wanted([
        (name("d"), None),
        (name("e"), Some(circuit("e", 1, START, END))),
    ]);
    reconciler.update_wanted([
        (name("c"), Some(circuit("c", 5, START, END))),
        (name("x"), None),
    ]);
    assert_eq!(
        standing(&reconciler, START),
        CircuitStatus::Provisioned,
        "it is what it was"
    );
    network.run(&mut reconciler, START + 1, START + 1, &mut Answers::good());
    assert_eq!(network.rates("us"), [5, 1, 5, 1]);
    assert_eq!(reconciler.status(&name("d"), START + 1), None);
}

#[test]
fn an_invalid_circuit_fails_without_requests() {
    let (mut reconciler, mut network) = (reconciler(), Network::default());
    reconciler.set_wanted([circuit("c", 0, START, END)]);
    network.run(&mut reconciler, START, START, &mut Answers::good());
    assert!(matches!(
        standing(&reconciler, START),
        CircuitStatus::Failed {
            why: CircuitFailure::Fault(_),
            left: 0
        }
    ));
}

#[test]
fn answers_of_another_kind_or_number_are_ignored() {
    let mut reconciler = reconciler();
    reconciler.set_wanted([circuit("c", 5, START, END)]);
    let asks = reconciler.next_requests(START);
    reconciler.take_answer(99, Ok(DriverReply::Done), START);
    assert_eq!(reconciler.next_requests(START), []);
    for ask in asks {
        reconciler.take_answer(ask.number, Ok(DriverReply::Done), START);
    }
    assert_eq!(
        reconciler.next_requests(START),
        [],
        "a list was asked for: later again"
    );
    let soon = START + FIRST_BACKOFF_MS as MomentMs;
    assert_eq!(reconciler.next_wake(START), Some(soon));
    assert_eq!(reconciler.next_requests(soon).len(), 2);
}

#[test]
fn a_half_set_up_part_is_torn_down_without_a_list() {
    let (mut reconciler, mut network) = (reconciler(), Network::default());
    reconciler.set_wanted([circuit("c", 5, START, END)]);
    let mut halves = Answers::wrong(|_, request| {
        matches!(request, DriverRequest::SetUp { .. }).then_some(SimulatedFault::Half)
    });
    network.run(&mut reconciler, START, START, &mut halves);
    assert_eq!(network.count("us"), 2);
    reconciler.set_wanted([]);
    let soon = START + FIRST_BACKOFF_MS as MomentMs;
    network.run(&mut reconciler, START, soon, &mut Answers::good());
    assert_eq!(network.count("us"), 0);
}

#[test]
fn a_refusal_of_old_parts_does_not_fail_a_changed_circuit() {
    let (mut reconciler, mut network) = (reconciler(), Network::default());
    reconciler.set_wanted([circuit("c", 9, START, END)]);
    for ask in reconciler.next_requests(START) {
        let parts = vec![];
        reconciler.take_answer(ask.number, Ok(DriverReply::Parts { parts }), START);
    }
    let asks = reconciler.next_requests(START);
    reconciler.set_wanted([circuit("c", 5, START, END)]);
    for ask in asks {
        reconciler.take_answer(
            ask.number,
            Err(DriverError::refused("9 is too much")),
            START,
        );
    }
    let soon = START + FIRST_BACKOFF_MS as MomentMs;
    network.run(&mut reconciler, START, soon, &mut Answers::good());
    assert_eq!(standing(&reconciler, soon), CircuitStatus::Provisioned);
}

#[test]
fn abandoned_requests_are_repeated() {
    let (mut reconciler, mut network) = (reconciler(), Network::default());
    reconciler.set_wanted([circuit("c", 5, START, END)]);
    assert_eq!(reconciler.next_requests(START).len(), 2);
    reconciler.abandon_requests(START);
    let soon = START + FIRST_BACKOFF_MS as MomentMs;
    network.run(&mut reconciler, soon, soon, &mut Answers::good());
    assert_eq!(standing(&reconciler, soon), CircuitStatus::Provisioned);
}

#[test]
fn a_description_of_a_foreign_part_is_not_believed() {
    let mut reconciler = reconciler();
    reconciler.set_wanted([circuit("c", 5, START, END)]);
    let asks = reconciler.next_requests(START);
    let (_, wanted) = reconciler.parts(&name("c"), START).remove(0);
    let other = part("others", "c", "a", "ab", 5);
    let lie = ListedPart {
        owner: name("us"),
        id: wanted.id.clone(),
        part: Some(other),
        whole: true,
    };
    let parts = vec![lie];
    reconciler.take_answer(asks[0].number, Ok(DriverReply::Parts { parts }), START);
    let asks = reconciler.next_requests(START);
    assert_eq!(asks[0].request, DriverRequest::SetUp { part: wanted });
}
