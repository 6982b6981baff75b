//! The three state machines, event by event.

use proptest::prelude::*;

use super::{Action, Event, Life, Machine, Provision, Reserve};
use crate::time::Window;

fn after(events: &[Event]) -> Machine {
    events.iter().fold(Machine::default(), |machine, event| {
        machine.on(*event).unwrap().0
    })
}

const COMMITTED: [Event; 4] = [
    Event::Reserve,
    Event::ReserveConfirmed,
    Event::Commit,
    Event::CommitConfirmed,
];

#[test]
fn a_reservation_is_held_committed_provisioned_and_ended() {
    let committed = after(&COMMITTED);
    assert_eq!(
        (committed.reserve, committed.provision),
        (Reserve::Start, Some(Provision::Released))
    );
    let (up, actions) = committed.on(Event::Provision).unwrap();
    assert_eq!(actions, [Action::SetUp]);
    let (up, _) = up.on(Event::ProvisionConfirmed).unwrap();
    let window = Window::new(10, 20);
    assert!(up.carries(window, 10) && !up.carries(window, 20) && !committed.carries(window, 10));
    let (over, actions) = up.on(Event::EndTime).unwrap();
    assert_eq!(actions, [Action::TearDown]);
    let (over, _) = over.on(Event::Terminate).unwrap();
    let (over, actions) = over.on(Event::TerminateConfirmed).unwrap();
    assert_eq!(
        (over.life, actions),
        (Life::Terminated, vec![Action::GiveBackAll])
    );
}

#[test]
fn an_expired_hold_is_returned() {
    let held = after(&[Event::Reserve, Event::ReserveConfirmed]);
    let (late, actions) = held.on(Event::HoldTimeout).unwrap();
    assert_eq!(actions, [Action::GiveBackHeld, Action::ReportTimeout]);
    assert!(late.on(Event::Commit).is_err());
    let again = late
        .on(Event::Abort)
        .unwrap()
        .0
        .on(Event::AbortConfirmed)
        .unwrap()
        .0;
    assert!(again.on(Event::Reserve).is_ok());
}

#[test]
fn nothing_is_provisioned_before_it_is_committed() {
    let error = Machine::default().on(Event::Provision).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("Provision can't be while the reservation is Start"),
        "{error}"
    );
    assert!(
        after(&[Event::Reserve, Event::ReserveConfirmed])
            .on(Event::Provision)
            .is_err()
    );
}

fn event() -> impl Strategy<Value = Event> {
    prop::sample::select(vec![
        Event::Reserve,
        Event::ReserveConfirmed,
        Event::ReserveFailed,
        Event::HoldTimeout,
        Event::Commit,
        Event::CommitConfirmed,
        Event::CommitFailed,
        Event::Abort,
        Event::AbortConfirmed,
        Event::Provision,
        Event::ProvisionConfirmed,
        Event::Release,
        Event::ReleaseConfirmed,
        Event::ForcedEnd,
        Event::EndTime,
        Event::Terminate,
        Event::TerminateConfirmed,
    ])
}

proptest! {
    /// After any events, what was held is committed or returned once, and all is returned at the
    /// end.
    #[test]
    fn a_hold_ends_exactly_once(events in prop::collection::vec(event(), 0..200)) {
        let mut machine = Machine::default();
        let mut held = false;
        for event in events {
            let Ok((next, actions)) = machine.on(event) else { continue };
            machine = next;
            for action in actions {
                match action {
                    Action::Hold => { prop_assert!(!held); held = true; }
                    Action::GiveBackHeld => { prop_assert!(held); held = false; }
                    Action::GiveBackAll => prop_assert!(!held),
                    _ => {}
                }
            }
            if event == Event::CommitConfirmed {
                prop_assert!(held);
                held = false;
            }
            prop_assert_eq!(held, matches!(machine.reserve, Reserve::Held | Reserve::Committing));
            if machine.life == Life::Terminated {
                prop_assert!(
                    machine.on(Event::Reserve).is_err() && machine.on(Event::Provision).is_err()
                );
            }
        }
    }
}
