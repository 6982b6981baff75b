//! The book after every entry of a journal.

use proptest::prelude::*;

use super::{
    BookChange, BookFault, DecisionTerms, JournalEntry, ReservationBook, WindowRefusal,
    plan_difference,
};
use crate::admit::{Admission, CounterOfferMode};
use crate::check::Checker;
use crate::ledger::ReservationId;
use crate::machine::{LifecyclePhase, ProvisionPhase, ReservationEvent, ReservePhase};
use crate::network::{CircuitNetwork, NodeId};
use crate::path::PathEnds;
use crate::policy::RequestLimits;
use crate::request::{CircuitRequest, Demand, VolumePace};
use crate::testing::{self, network, small_networks};
use crate::time::{BitsPerSecond, MomentMs, Volume, Window};

const TERMS: DecisionTerms = DecisionTerms {
    limits: NO_LIMITS,
    hold: 5,
    counter: CounterOfferMode::Offer,
};
const NO_LIMITS: RequestLimits = RequestLimits {
    rate: None,
    duration: None,
    ahead: None,
    paths: None,
    share: None,
};

fn request(network: &CircuitNetwork, window: Window, wish: Demand) -> CircuitRequest {
    testing::request(network, window, wish, 2)
}

/// A book, and the journal that made it.
struct Kept {
    book: ReservationBook,
    journal: Vec<JournalEntry>,
}

impl Kept {
    fn write(&mut self, change: BookChange, now: MomentMs) -> Result<(), BookFault> {
        let entry = self.book.entry(change, now);
        let before = self.book.clone();
        match self.book.apply(&entry) {
            Ok(_) => self.journal.push(entry),
            Err(fault) => {
                assert_eq!(self.book, before, "a fault changes nothing: {fault}");
                return Err(fault);
            }
        }
        Ok(())
    }

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
        let decision = self.book.decide(request, &TERMS, now);
        decision.change.is_some_and(|change| {
            self.write(change, now).unwrap();
            true
        })
    }
}

fn line() -> Kept {
    Kept {
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
            .reservation(ReservationId(0))
            .unwrap()
            .machine
            .reserve,
        ReservePhase::Timeout
    );
    assert!(
        kept.event(0, ReservationEvent::Commit, 6).is_err(),
        "too late"
    );
    assert!(kept.hold(&whole, 6));
    kept.event(1, ReservationEvent::Commit, 7).unwrap();
    assert_eq!(kept.book.next_due(), Some(20));
    assert_eq!(
        kept.book
            .reservation(ReservationId(1))
            .unwrap()
            .machine
            .provision,
        Some(ProvisionPhase::Released)
    );
}

#[test]
fn a_change_keeps_the_old_promise_until_it_is_committed() {
    let mut kept = line();
    assert!(kept.hold(
        &request(kept.book.network(), Window::new(10, 30), Demand::Rate(4)),
        0
    ));
    kept.event(0, ReservationEvent::Commit, 0).unwrap();
    let raised = request(kept.book.network(), Window::new(10, 30), Demand::Rate(9));
    let decision = kept
        .book
        .decide_change(ReservationId(0), &raised, &TERMS, 15)
        .unwrap();
    kept.write(decision.change.unwrap(), 15).unwrap();
    assert_eq!(
        (rate(&kept.book, 14), rate(&kept.book, 15)),
        (4, 9),
        "what is over stays, and both are held"
    );
    kept.event(0, ReservationEvent::Abort, 16).unwrap();
    assert_eq!(rate(&kept.book, 20), 4);
    let lowered = request(kept.book.network(), Window::new(10, 25), Demand::Rate(1));
    let decision = kept
        .book
        .decide_change(ReservationId(0), &lowered, &TERMS, 17)
        .unwrap();
    kept.write(decision.change.unwrap(), 17).unwrap();
    assert_eq!(
        (rate(&kept.book, 20), rate(&kept.book, 27)),
        (4, 4),
        "until it is committed, all of it is kept"
    );
    let fault = kept
        .write(
            BookChange::Returned {
                id: ReservationId(0),
                from: 18,
            },
            17,
        )
        .unwrap_err();
    assert_eq!(fault, BookFault::Changing(ReservationId(0)));
    kept.event(0, ReservationEvent::Commit, 18).unwrap();
    assert_eq!(
        [16, 17, 24, 25].map(|at| rate(&kept.book, at)),
        [4, 1, 1, 0]
    );
    kept.write(
        BookChange::Returned {
            id: ReservationId(0),
            from: 20,
        },
        20,
    )
    .unwrap();
    assert_eq!([19, 20].map(|at| rate(&kept.book, at)), [1, 0]);
    assert!(
        kept.book
            .decide_change(ReservationId(7), &raised, &TERMS, 15)
            .is_err()
    );
}

#[test]
fn a_change_to_other_ends_leaves_past_pieces_as_they_were() {
    let mut kept = Kept {
        book: ReservationBook::new(network(3, &[(0, 1, 10), (1, 2, 10)])),
        journal: Vec::new(),
    };
    let window = Window::new(10, 30);
    let mut asked = request(kept.book.network(), window, Demand::Rate(4));
    assert!(kept.hold(&asked, 0));
    kept.event(0, ReservationEvent::Commit, 0).unwrap();
    for (now, ends) in [(15, (1, 2)), (20, (2, 0))] {
        (asked.ends.from, asked.ends.to) = (NodeId(ends.0), NodeId(ends.1));
        let decision = kept
            .book
            .decide_change(ReservationId(0), &asked, &TERMS, now);
        kept.write(decision.unwrap().change.unwrap(), now).unwrap();
        kept.event(0, ReservationEvent::Commit, now).unwrap();
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
        .decide_change(ReservationId(0), &asked, &TERMS, 25);
    let Some(BookChange::Changing { mut hold, until }) = decision.unwrap().change else {
        panic!()
    };
    hold.request.ends.to = NodeId(1);
    assert_eq!(
        kept.write(BookChange::Changing { hold, until }, 25)
            .unwrap_err(),
        BookFault::Plan(ReservationId(0))
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
    let WindowRefusal { place, answer, .. } =
        kept.book.decide_all(&asked, &days, &TERMS, 0).unwrap_err();
    assert!(matches!(answer, Admission::Refused(_)));
    assert_eq!(place, 2);
    // Overlapping windows each count in full.
    let WindowRefusal { place, .. } = kept
        .book
        .decide_all(&asked, &[days[0], days[0], days[0]], &TERMS, 0)
        .unwrap_err();
    assert_eq!(place, 2);
    let (plans, change) = kept.book.decide_all(&asked, &days[..2], &TERMS, 0).unwrap();
    kept.write(change, 0).unwrap();
    assert_eq!((plans.len(), rate(&kept.book, 25)), (2, 5));
    assert!(kept.book.reservation(ReservationId(2)).is_some());
}

#[test]
fn out_of_order_and_overbooking_entries_are_refused() {
    let mut kept = line();
    let whole = request(kept.book.network(), Window::new(10, 20), Demand::Rate(10));
    let change = kept.book.decide(&whole, &TERMS, 0).change.unwrap();
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
        BookFault::NotNext(ReservationId(0))
    );
    holds[0].id = ReservationId(1);
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
        BookFault::Plan(ReservationId(1))
    );
    assert!(matches!(
        kept.event(0, ReservationEvent::Reserve, 1).unwrap_err(),
        BookFault::NotNow { .. }
    ));
    assert_eq!(
        kept.write(
            BookChange::Forgotten {
                id: ReservationId(0)
            },
            1
        )
        .unwrap_err(),
        BookFault::Alive(ReservationId(0))
    );
}

#[test]
fn a_shrunk_network_keeps_promises_and_makes_no_more() {
    let mut kept = line();
    let whole = request(kept.book.network(), Window::new(10, 20), Demand::Rate(8));
    assert!(kept.hold(&whole, 0));
    kept.event(0, ReservationEvent::Commit, 0).unwrap();
    let plan = kept
        .book
        .reservation(ReservationId(0))
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

#[derive(Debug, Clone)]
enum Step {
    Ask(i64, i64, u64, bool),
    Change(u64, i64, i64, u64, bool),
    Event(u64, ReservationEvent),
    Return(u64, i64),
    Wait(i64),
    Forget(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let event = prop::sample::select(vec![
        ReservationEvent::Commit,
        ReservationEvent::Commit,
        ReservationEvent::Abort,
        ReservationEvent::Provision,
        ReservationEvent::ProvisionConfirmed,
        ReservationEvent::Release,
        ReservationEvent::ReleaseConfirmed,
        ReservationEvent::ForcedEnd,
        ReservationEvent::Terminate,
        ReservationEvent::TerminateConfirmed,
    ]);
    prop_oneof![
        4 => (0..40_i64, 1..30_i64, 1..12_u64, any::<bool>())
            .prop_map(|(a, b, c, d)| Step::Ask(a, b, c, d)),
        2 => (0..8_u64, 0..40_i64, 1..30_i64, 1..12_u64, any::<bool>())
            .prop_map(
                |(id, ahead, length, rate, back)| Step::Change(id, ahead, length, rate, back),
            ),
        6 => (0..8_u64, event).prop_map(|(id, event)| Step::Event(id, event)),
        1 => (0..8_u64, 0..60_i64).prop_map(|(id, from)| Step::Return(id, from)),
        2 => (0..9_i64).prop_map(Step::Wait),
        1 => (0..8_u64).prop_map(Step::Forget),
    ]
}

/// Checks that the sum over all reservations matches the ledger.
fn consistent(book: &ReservationBook) {
    let mut checker = Checker::new(book.network());
    for (id, reservation) in book.reservations() {
        checker.promise(id, &reservation.plan);
        let held = reservation.held.iter();
        assert_eq!(
            held.len() == 1,
            reservation.machine.reserve == ReservePhase::Held
        );
        for held in held {
            for (link, claims) in plan_difference(&held.plan, &reservation.plan) {
                for (window, rate) in claims {
                    let path = crate::path::LinkPath(vec![link]);
                    let route = crate::split::RatedPath { path, rate };
                    checker.promise(
                        id,
                        &crate::request::ReservationPlan::constant(window, vec![route]),
                    );
                }
            }
        }
        assert!(
            reservation.machine.life != LifecyclePhase::Terminated || reservation.plan.0.is_empty()
        );
    }
    assert_eq!(checker.overbooked(), None);
    assert!(
        checker.matches(book.ledger()),
        "the ledger is not the sum of what is promised"
    );
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
    let held = book.reservation(ReservationId(0)).unwrap();
    assert!(held.request.bounds.is_empty());
    // Without constraints, entries are written as before.
    let compact: String = OLD_ENTRY.split_whitespace().collect();
    assert_eq!(serde_json::to_string(&read).unwrap(), compact);
}

proptest! {
    #[test]
    fn the_same_journal_makes_the_same_book(
        network in small_networks(),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut kept = Kept { book: ReservationBook::new(network.clone()), journal: Vec::new() };
        let mut now = 0;
        for step in steps {
            match step {
                Step::Ask(ahead, length, amount, volume) => {
                    let window = Window::new(now + ahead, now + ahead + length);
                    let early = Demand::Volume {
                        bytes: Volume::carried(8_000, amount).bytes(),
                        most: None,
                        pace: VolumePace::Early,
                    };
                    kept.hold(
                        &request(
                            &network,
                            window,
                            if volume { early } else { Demand::Rate(amount) },
                        ),
                        now,
                    );
                }
                Step::Change(id, ahead, length, rate, back) => {
                    let window = Window::new(now + ahead - 20, now + ahead + length);
                    let mut asked = request(&network, window, Demand::Rate(rate));
                    if back {
                        asked.ends = PathEnds { from: asked.ends.to, to: asked.ends.from };
                    }
                    if let Ok(decision) = kept
                        .book
                        .decide_change(ReservationId(id), &asked, &TERMS, now)
                        && let Some(change) = decision.change
                    {
                        kept.write(change, now).unwrap();
                    }
                }
                Step::Event(id, event) => drop(kept.event(id, event, now)),
                Step::Return(id, ahead) => {
                    drop(kept.write(
                        BookChange::Returned { id: ReservationId(id), from: now + ahead },
                        now,
                    ));
                }
                Step::Wait(time) => {
                    now += time;
                    while let Some(change) = kept.book.due(now).into_iter().next() {
                        kept.write(change, now).unwrap();
                    }
                }
                Step::Forget(id) => drop(
                    kept.write(BookChange::Forgotten { id: ReservationId(id) }, now),
                ),
            }
        }
        let mut again = ReservationBook::new(network);
        for entry in &kept.journal {
            let text = serde_json::to_string(entry).unwrap();
            let read: JournalEntry = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(&read, entry);
            again.apply(&read).unwrap();
            consistent(&again);
        }
        prop_assert_eq!(again, kept.book);
    }
}
