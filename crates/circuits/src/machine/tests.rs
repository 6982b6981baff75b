//! The three state machines, event by event.

use proptest::prelude::*;

use super::{
    LifeState, ProvisionState, ReservationAction, ReservationEvent, ReservationMachine,
    ReserveState,
};
use crate::time::Window;

fn after(events: &[ReservationEvent]) -> ReservationMachine {
    events
        .iter()
        .fold(ReservationMachine::default(), |machine, event| {
            machine.apply(*event).unwrap().0
        })
}

const COMMITTED: [ReservationEvent; 4] = [
    ReservationEvent::Reserve,
    ReservationEvent::ReserveConfirmed,
    ReservationEvent::Commit,
    ReservationEvent::CommitConfirmed,
];

#[test]
fn a_reservation_is_held_committed_provisioned_and_ended() {
    let committed = after(&COMMITTED);
    assert_eq!(
        (committed.reserve, committed.provision),
        (ReserveState::Start, Some(ProvisionState::Released))
    );
    let (up, actions) = committed.apply(ReservationEvent::Provision).unwrap();
    assert_eq!(actions, [ReservationAction::SetUp]);
    let (up, _) = up.apply(ReservationEvent::ProvisionConfirmed).unwrap();
    let window = Window::new(10, 20);
    assert!(
        up.carries_traffic(window, 10)
            && !up.carries_traffic(window, 20)
            && !committed.carries_traffic(window, 10)
    );
    let (over, actions) = up.apply(ReservationEvent::EndTime).unwrap();
    assert_eq!(actions, [ReservationAction::TearDown]);
    let (over, _) = over.apply(ReservationEvent::Terminate).unwrap();
    let (over, actions) = over.apply(ReservationEvent::TerminateConfirmed).unwrap();
    assert_eq!(
        (over.life, actions),
        (LifeState::Terminated, vec![ReservationAction::GiveBackAll])
    );
}

#[test]
fn an_expired_hold_is_returned() {
    let held = after(&[
        ReservationEvent::Reserve,
        ReservationEvent::ReserveConfirmed,
    ]);
    let (late, actions) = held.apply(ReservationEvent::HoldTimeout).unwrap();
    assert_eq!(
        actions,
        [
            ReservationAction::GiveBackHeld,
            ReservationAction::ReportTimeout
        ]
    );
    assert!(late.apply(ReservationEvent::Commit).is_err());
    let again = late
        .apply(ReservationEvent::Abort)
        .unwrap()
        .0
        .apply(ReservationEvent::AbortConfirmed)
        .unwrap()
        .0;
    assert!(again.apply(ReservationEvent::Reserve).is_ok());
}

#[test]
fn nothing_is_provisioned_before_it_is_committed() {
    let error = ReservationMachine::default()
        .apply(ReservationEvent::Provision)
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("Provision is not possible while the reservation is Start"),
        "{error}"
    );
    assert!(
        after(&[
            ReservationEvent::Reserve,
            ReservationEvent::ReserveConfirmed
        ])
        .apply(ReservationEvent::Provision)
        .is_err()
    );
}

fn event() -> impl Strategy<Value = ReservationEvent> {
    prop::sample::select(vec![
        ReservationEvent::Reserve,
        ReservationEvent::ReserveConfirmed,
        ReservationEvent::ReserveFailed,
        ReservationEvent::HoldTimeout,
        ReservationEvent::Commit,
        ReservationEvent::CommitConfirmed,
        ReservationEvent::CommitFailed,
        ReservationEvent::Abort,
        ReservationEvent::AbortConfirmed,
        ReservationEvent::Provision,
        ReservationEvent::ProvisionConfirmed,
        ReservationEvent::Release,
        ReservationEvent::ReleaseConfirmed,
        ReservationEvent::ForcedEnd,
        ReservationEvent::EndTime,
        ReservationEvent::Terminate,
        ReservationEvent::TerminateConfirmed,
    ])
}

proptest! {
    /// After any events, what was held is committed or returned once, and all is returned at the
    /// end.
    #[test]
    fn a_hold_ends_exactly_once(events in prop::collection::vec(event(), 0..200)) {
        let mut machine = ReservationMachine::default();
        let mut held = false;
        for event in events {
            let Ok((next, actions)) = machine.apply(event) else { continue };
            machine = next;
            for action in actions {
                match action {
                    ReservationAction::Hold => { prop_assert!(!held); held = true; }
                    ReservationAction::GiveBackHeld => { prop_assert!(held); held = false; }
                    ReservationAction::GiveBackAll => prop_assert!(!held),
                    _ => {}
                }
            }
            if event == ReservationEvent::CommitConfirmed {
                prop_assert!(held);
                held = false;
            }
            prop_assert_eq!(
                held,
                matches!(machine.reserve, ReserveState::Held | ReserveState::Committing)
            );
            if machine.life == LifeState::Terminated {
                prop_assert!(
                    machine.apply(ReservationEvent::Reserve).is_err()
                        && machine.apply(ReservationEvent::Provision).is_err()
                );
            }
        }
    }
}
