//! The book after every entry of a random journal, with the sum of all promises verified by the
//! independent checker.

#![allow(clippy::unwrap_used)] // A test that can't go on has failed.

use longhaul_circuit_trials::check::Checker;
use longhaul_circuits::book::{BookChange, JournalEntry, ReservationBook, plan_difference};
use longhaul_circuits::ledger::ReservationId;
use longhaul_circuits::machine::{LifeState, ReservationEvent, ReserveState};
use longhaul_circuits::path::{LinkPath, PathEnds};
use longhaul_circuits::request::{Demand, Pace, ReservationPlan};
use longhaul_circuits::split::RatedPath;
use longhaul_circuits::testing::{DECISION_TERMS, JournaledBook, request, small_networks};
use longhaul_circuits::time::{Volume, Window};
use proptest::prelude::*;

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
        2 => (1..9_u64, 0..40_i64, 1..30_i64, 1..12_u64, any::<bool>())
            .prop_map(
                |(id, ahead, length, rate, back)| Step::Change(id, ahead, length, rate, back),
            ),
        6 => (1..9_u64, event).prop_map(|(id, event)| Step::Event(id, event)),
        1 => (1..9_u64, 0..60_i64).prop_map(|(id, from)| Step::Return(id, from)),
        2 => (0..9_i64).prop_map(Step::Wait),
        1 => (1..9_u64).prop_map(Step::Forget),
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
            reservation.machine.reserve == ReserveState::Held
        );
        for held in held {
            for (link, claims) in plan_difference(&held.plan, &reservation.plan) {
                for (window, rate) in claims {
                    let path = LinkPath(vec![link]);
                    let route = RatedPath { path, rate };
                    checker.promise(id, &ReservationPlan::constant(window, vec![route]));
                }
            }
        }
        assert!(reservation.machine.life != LifeState::Terminated || reservation.plan.0.is_empty());
    }
    assert_eq!(checker.overbooked(), None);
    assert!(
        checker.matches(book.ledger()),
        "the ledger is not the sum of what is promised"
    );
}

proptest! {
    #[test]
    fn the_same_journal_makes_the_same_book(
        network in small_networks(),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut kept = JournaledBook { book: ReservationBook::new(network.clone()), journal: Vec::new() };
        let mut now = 0;
        for step in steps {
            match step {
                Step::Ask(ahead, length, amount, volume) => {
                    let window = Window::new(now + ahead, now + ahead + length);
                    let early = Demand::Volume {
                        bytes: Volume::carried(8_000, amount).bytes(),
                        most: None,
                        pace: Pace::Early,
                    };
                    let wish = if volume { early } else { Demand::Rate(amount) };
                    let asked = request(&network, window, wish, 2);
                    if let Ok(change) = kept.book.decide(&asked, &DECISION_TERMS, now) {
                        kept.write(change, now).unwrap();
                    }
                }
                Step::Change(id, ahead, length, rate, back) => {
                    let window = Window::new(now + ahead - 20, now + ahead + length);
                    let mut asked = request(&network, window, Demand::Rate(rate), 2);
                    if back {
                        asked.ends = PathEnds { from: asked.ends.to, to: asked.ends.from };
                    }
                    if let Ok(Ok(change)) = kept
                        .book
                        .decide_change(ReservationId(id), &asked, &DECISION_TERMS, now)
                    {
                        kept.write(change, now).unwrap();
                    }
                }
                Step::Event(id, event) => {
                    let id = ReservationId(id);
                    drop(kept.write(BookChange::Event { id, event }, now));
                }
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
