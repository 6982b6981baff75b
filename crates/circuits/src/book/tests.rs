//! The book after every entry of a journal.

use super::{BookChange, BookFault, JournalEntry, ReservationBook};
use crate::ledger::ReservationId;
use crate::machine::{ProvisionState, ReservationEvent, ReserveState};
use crate::network::{CircuitNetwork, NodeId};
use crate::request::{CircuitRequest, Demand};
use crate::testing::{self, DECISION_TERMS, JournaledBook, network};
use crate::time::{BitsPerSecond, MomentMs, Window};

fn request(network: &CircuitNetwork, window: Window, wish: Demand) -> CircuitRequest {
    testing::request(network, window, wish, 2)
}

impl JournaledBook {
    fn event(&mut self, id: u64, event: ReservationEvent, now: MomentMs) -> Result<(), BookFault> {
        self.write(
            BookChange::Event {
                id: ReservationId(id),
                event,
            },
            now,
        )
    }

    /// Decides a request, and holds what is granted.
    fn hold(&mut self, request: &CircuitRequest, now: MomentMs) -> bool {
        let decision = self.book.decide(request, &DECISION_TERMS, now);
        decision.is_ok_and(|change| {
            self.write(change, now).unwrap();
            true
        })
    }
}

fn line() -> JournaledBook {
    JournaledBook {
        book: ReservationBook::new(network(2, &[(0, 1, 10)])),
        journal: Vec::new(),
    }
}

fn rate(book: &ReservationBook, at: MomentMs) -> BitsPerSecond {
    book.ledger()
        .steps(crate::network::LinkId(0))
        .unwrap()
        .rate_at(at)
}

#[test]
fn a_hold_excludes_others_until_it_times_out() {
    let mut kept = line();
    let whole = request(kept.book.network(), Window::new(10, 20), Demand::Rate(10));
    assert!(kept.hold(&whole, 0));
    assert!(!kept.hold(&whole, 1));
    assert_eq!((kept.book.next_due(), kept.book.due(4)), (Some(5), vec![]));
    for change in kept.book.due(5) {
        kept.write(change, 5).unwrap();
    }
    assert_eq!(
        kept.book
            .reservation(ReservationId(1))
            .unwrap()
            .machine
            .reserve,
        ReserveState::Timeout
    );
    assert!(
        kept.event(1, ReservationEvent::Commit, 6).is_err(),
        "too late"
    );
    assert!(kept.hold(&whole, 6));
    kept.event(2, ReservationEvent::Commit, 7).unwrap();
    assert_eq!(kept.book.next_due(), Some(20));
    assert_eq!(
        kept.book
            .reservation(ReservationId(2))
            .unwrap()
            .machine
            .provision,
        Some(ProvisionState::Released)
    );
}

#[test]
fn a_change_keeps_the_old_promise_until_it_is_committed() {
    let mut kept = line();
    assert!(kept.hold(
        &request(kept.book.network(), Window::new(10, 30), Demand::Rate(4)),
        0
    ));
    kept.event(1, ReservationEvent::Commit, 0).unwrap();
    let raised = request(kept.book.network(), Window::new(10, 30), Demand::Rate(9));
    let decision = kept
        .book
        .decide_change(ReservationId(1), &raised, &DECISION_TERMS, 15)
        .unwrap();
    kept.write(decision.unwrap(), 15).unwrap();
    assert_eq!(
        (rate(&kept.book, 14), rate(&kept.book, 15)),
        (4, 9),
        "what is over stays, and both are held"
    );
    kept.event(1, ReservationEvent::Abort, 16).unwrap();
    assert_eq!(rate(&kept.book, 20), 4);
    let lowered = request(kept.book.network(), Window::new(10, 25), Demand::Rate(1));
    let decision = kept
        .book
        .decide_change(ReservationId(1), &lowered, &DECISION_TERMS, 17)
        .unwrap();
    kept.write(decision.unwrap(), 17).unwrap();
    assert_eq!(
        (rate(&kept.book, 20), rate(&kept.book, 27)),
        (4, 4),
        "until it is committed, all of it is kept"
    );
    let fault = kept
        .write(
            BookChange::Returned {
                id: ReservationId(1),
                from: 18,
            },
            17,
        )
        .unwrap_err();
    assert_eq!(fault, BookFault::Changing(ReservationId(1)));
    kept.event(1, ReservationEvent::Commit, 18).unwrap();
    assert_eq!(
        [16, 17, 24, 25].map(|at| rate(&kept.book, at)),
        [4, 1, 1, 0]
    );
    kept.write(
        BookChange::Returned {
            id: ReservationId(1),
            from: 20,
        },
        20,
    )
    .unwrap();
    assert_eq!([19, 20].map(|at| rate(&kept.book, at)), [1, 0]);
    assert!(
        kept.book
            .decide_change(ReservationId(8), &raised, &DECISION_TERMS, 15)
            .is_err()
    );
}

#[test]
fn a_change_to_other_ends_leaves_past_pieces_as_they_were() {
    let mut kept = JournaledBook {
        book: ReservationBook::new(network(3, &[(0, 1, 10), (1, 2, 10)])),
        journal: Vec::new(),
    };
    let window = Window::new(10, 30);
    let mut asked = request(kept.book.network(), window, Demand::Rate(4));
    assert!(kept.hold(&asked, 0));
    kept.event(1, ReservationEvent::Commit, 0).unwrap();
    for (now, ends) in [(15, (1, 2)), (20, (2, 0))] {
        (asked.ends.from, asked.ends.to) = (NodeId(ends.0), NodeId(ends.1));
        let decision = kept
            .book
            .decide_change(ReservationId(1), &asked, &DECISION_TERMS, now);
        kept.write(decision.unwrap().unwrap(), now).unwrap();
        kept.event(1, ReservationEvent::Commit, now).unwrap();
    }
    assert_eq!(
        [14, 15, 19, 20].map(|at| rate(&kept.book, at)),
        [4, 0, 0, 0]
    );
    let back = kept.book.ledger().steps(crate::network::LinkId(1)).unwrap();
    assert_eq!([19, 20, 29, 30].map(|at| back.rate_at(at)), [0, 4, 4, 0]);
    let mut again = ReservationBook::new(kept.book.network().clone());
    for entry in &kept.journal {
        again.apply(entry).unwrap();
    }
    assert_eq!(again, kept.book);
    // New pieces have to connect the requested ends.
    let decision = kept
        .book
        .decide_change(ReservationId(1), &asked, &DECISION_TERMS, 25);
    let Ok(BookChange::Changing { mut hold, until }) = decision.unwrap() else {
        panic!()
    };
    hold.request.ends.to = NodeId(1);
    assert_eq!(
        kept.write(BookChange::Changing { hold, until }, 25)
            .unwrap_err(),
        BookFault::Plan(ReservationId(1))
    );
}

#[test]
fn all_windows_are_granted_or_the_first_refused_is_named() {
    let mut kept = line();
    assert!(kept.hold(
        &request(kept.book.network(), Window::new(40, 50), Demand::Rate(6)),
        0
    ));
    let asked = request(kept.book.network(), Window::new(0, 1), Demand::Rate(5));
    let days = [
        Window::new(0, 10),
        Window::new(20, 30),
        Window::new(45, 55),
        Window::new(60, 70),
    ];
    let (place, _) = kept
        .book
        .decide_all(&asked, &days, &DECISION_TERMS, 0)
        .unwrap_err();
    assert_eq!(place, 2);
    // Overlapping windows each count in full.
    let (place, _) = kept
        .book
        .decide_all(&asked, &[days[0], days[0], days[0]], &DECISION_TERMS, 0)
        .unwrap_err();
    assert_eq!(place, 2);
    let change = kept
        .book
        .decide_all(&asked, &days[..2], &DECISION_TERMS, 0)
        .unwrap();
    let BookChange::Held { holds, .. } = &change else {
        panic!()
    };
    assert_eq!(holds.len(), 2);
    kept.write(change, 0).unwrap();
    assert_eq!(rate(&kept.book, 25), 5);
    assert!(kept.book.reservation(ReservationId(3)).is_some());
}

#[test]
fn out_of_order_and_overbooking_entries_are_refused() {
    let mut kept = line();
    let whole = request(kept.book.network(), Window::new(10, 20), Demand::Rate(10));
    let change = kept.book.decide(&whole, &DECISION_TERMS, 0).unwrap();
    let entry = kept.book.entry(change.clone(), 0);
    kept.write(change, 0).unwrap();
    assert_eq!(
        kept.book.apply(&entry).unwrap_err(),
        BookFault::Order {
            expected: 1,
            found: 0
        }
    );
    let BookChange::Held { mut holds, until } = entry.change else {
        panic!()
    };
    let again = |holds| BookChange::Held { holds, until };
    assert_eq!(
        kept.write(again(holds.clone()), 1).unwrap_err(),
        BookFault::NotNext(ReservationId(1))
    );
    holds[0].id = ReservationId(2);
    assert!(matches!(
        kept.write(again(holds.clone()), 1).unwrap_err(),
        BookFault::Overbooked { .. }
    ));
    holds[0].plan.0[0].routes[0].path.0.reverse();
    holds[0].plan.0[0].routes[0]
        .path
        .0
        .push(crate::network::LinkId(9));
    assert_eq!(
        kept.write(again(holds), 1).unwrap_err(),
        BookFault::Plan(ReservationId(2))
    );
    assert!(matches!(
        kept.event(1, ReservationEvent::Reserve, 1).unwrap_err(),
        BookFault::NotNow { .. }
    ));
    assert_eq!(
        kept.write(
            BookChange::Forgotten {
                id: ReservationId(1)
            },
            1
        )
        .unwrap_err(),
        BookFault::Alive(ReservationId(1))
    );
}

#[test]
fn a_shrunk_network_keeps_promises_and_makes_no_more() {
    let mut kept = line();
    let whole = request(kept.book.network(), Window::new(10, 20), Demand::Rate(8));
    assert!(kept.hold(&whole, 0));
    kept.event(1, ReservationEvent::Commit, 0).unwrap();
    let plan = kept
        .book
        .reservation(ReservationId(1))
        .unwrap()
        .plan
        .clone();
    let link = crate::network::LinkId(0);
    kept.book
        .replace_network(network(3, &[(0, 1, 6), (1, 2, 5)]))
        .unwrap();
    assert_eq!(kept.book.overbooked_links(&plan, 0), [link]);
    assert_eq!(
        kept.book.overbooked_links(&plan, 20),
        [],
        "what is over is over"
    );
    let little = request(
        &network(2, &[(0, 1, 1)]),
        Window::new(15, 25),
        Demand::Rate(1),
    );
    assert!(!kept.hold(&little, 0), "more is promised than there is");
    let new = request(kept.book.network(), Window::new(20, 25), Demand::Rate(5));
    assert!(kept.hold(&new, 0), "the new link is there");
    kept.book
        .replace_network(network(3, &[(0, 1, 10), (1, 2, 5)]))
        .unwrap();
    assert_eq!(
        kept.book.overbooked_links(&plan, 0),
        [],
        "as if nothing had been"
    );
    assert!(kept.hold(&little, 0));
    let before = kept.book.clone();
    assert!(matches!(
        kept.book.replace_network(network(2, &[(0, 1, 10)])),
        Err(super::NetworkMismatch::Nodes { known: 3, found: 2 })
    ));
    assert!(
        kept.book
            .replace_network(network(3, &[(0, 1, 10)]))
            .is_err()
    );
    assert!(
        kept.book
            .replace_network(network(3, &[(0, 1, 10), (0, 2, 5)]))
            .is_err()
    );
    assert_eq!(kept.book, before);
}

/// An entry as it was written before requests had constraints on each path.
const OLD_ENTRY: &str = r#"{"number":0,"at":5,"change":{"held":{"holds":[{"id":0,"request":{
    "ends":{"from":0,"to":2},"window":{"start":10,"end":20},"wish":{"rate":3},"paths":1,
    "diversity":"any","preference":"fewest_hops",
    "elements":{"only_nodes":null,"only_links":null,"no_nodes":[],"no_links":[0]}},
    "plan":[{"window":{"start":10,"end":20},"routes":[{"path":[2],"rate":3}]}]}],"until":60}}}"#;

#[test]
fn entries_from_before_path_constraints_are_replayed() {
    let read: JournalEntry = serde_json::from_str(OLD_ENTRY).unwrap();
    let mut book = ReservationBook::new(network(3, &[(0, 1, 9), (0, 2, 9)]));
    book.apply(&read).unwrap();
    let held = book.reservation(ReservationId(1)).unwrap();
    assert!(held.request.bounds.is_empty());
    // Without constraints, entries are written as before.
    let compact: String = OLD_ENTRY.split_whitespace().collect();
    assert_eq!(serde_json::to_string(&read).unwrap(), compact);
}
