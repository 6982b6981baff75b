use proptest::prelude::*;
use serde::de::IntoDeserializer;
use serde::de::value::Error as ValueError;

use super::*;

const POLICY: RetryPolicy = RetryPolicy::DEFAULT;
const LEASE: Moment = 20_000;
const LOST: Event = Event::Lost { known: false };

fn after(life: Life, now: Moment, event: Event) -> Result<Life, Refused> {
    life.after(event, now, &POLICY, 7)
}

fn running(now: Moment) -> Life {
    let life = after(Life::new(now), now, Event::Claim { until: now + LEASE }).unwrap();
    assert_eq!(life.state, State::Running);
    life
}

fn ended(life: Life, now: Moment, end: End) -> Life {
    let fence = life.fence;
    after(life, now, Event::Ended { fence, end }).unwrap()
}

#[test]
fn a_job_runs_when_due_at_one_agent() {
    let life = Life::new(100);
    let claim = |life: Life, now| after(life, now, Event::Claim { until: now + LEASE });
    assert_eq!(claim(life, 99), Err(Refused::NotDue));
    let life = claim(life, 100).unwrap();
    assert_eq!(
        (life.state, life.attempts, life.fence),
        (State::Running, 1, 1)
    );
    assert_eq!(claim(life, 200), Err(Refused::State(State::Running)));
    assert_eq!(ended(life, 300, End::Done).state, State::Done);
}

#[test]
fn a_lost_agents_job_moves_on_and_its_messages_are_stale() {
    let first = running(0);
    assert_eq!(after(first, LEASE - 1, LOST), Err(Refused::Held));
    let known = after(first, 1, Event::Lost { known: true }).unwrap();
    assert_eq!((known.state, known.due), (State::Queued, 1));
    let free = after(first, LEASE, LOST).unwrap();
    assert_eq!((free.state, free.due), (State::Queued, LEASE));
    let second = after(free, LEASE, Event::Claim { until: 2 * LEASE }).unwrap();
    for event in [
        Event::Ended {
            fence: first.fence,
            end: End::Done,
        },
        Event::Renew {
            fence: first.fence,
            until: 9 * LEASE,
        },
    ] {
        assert_eq!(after(second, LEASE, event), Err(Refused::Stale));
    }
    assert_eq!(ended(second, LEASE, End::Done).state, State::Done);
}

#[test]
fn retries_back_off_unless_the_job_advances() {
    let mut life = Life::new(0);
    let (mut now, mut pauses) = (0, Vec::new());
    loop {
        life = after(life, now, Event::Claim { until: now + LEASE }).unwrap();
        life = ended(life, now, End::BrokeOff { advanced: false });
        if life.state == State::Failed {
            break;
        }
        assert_eq!(life.state, State::Waiting);
        pauses.push(life.due - now);
        now = life.due;
    }
    assert_eq!(pauses.len() as u32, POLICY.max_in_vain);
    assert!(pauses[5] > 10 * pauses[0]);
    // Each attempt copies a little, so the job never gives up, and does not wait long.
    let mut life = Life::new(0);
    for _ in 0..10 * POLICY.max_in_vain {
        life = after(
            life,
            life.due,
            Event::Claim {
                until: life.due + LEASE,
            },
        )
        .unwrap();
        let now = life.due;
        life = ended(life, now, End::BrokeOff { advanced: true });
        assert!(life.due - now <= 2 * POLICY.first_pause);
    }
    // A user's retry skips the wait.
    let life = ended(running(0), 0, End::BrokeOff { advanced: false });
    assert_eq!(after(life, 1, Event::Retry).unwrap().due, 1);
}

#[test]
fn a_running_job_stops_before_pause_or_cancel() {
    for (event, state) in [
        (Event::Pause, State::Paused),
        (Event::Cancel, State::Cancelled),
    ] {
        let stopping = after(running(0), 1, event).unwrap();
        assert_eq!(stopping.state, State::Running);
        for end in [End::Stopped, End::BrokeOff { advanced: true }] {
            assert_eq!(ended(stopping, 2, end).state, state);
        }
        assert_eq!(after(stopping, LEASE, LOST).unwrap().state, state);
        // It completed all the same.
        assert_eq!(ended(stopping, 2, End::Done).state, State::Done);
        // Without an agent there is nothing to wait for.
        assert_eq!(after(Life::new(0), 0, event).unwrap().state, state);
    }
    let pausing = after(running(0), 1, Event::Pause).unwrap();
    let going_on = after(pausing, 2, Event::Resume).unwrap();
    assert_eq!(ended(going_on, 3, End::Stopped).state, State::Queued);
    let cancelled = after(pausing, 2, Event::Cancel).unwrap();
    assert_eq!(
        after(cancelled, 3, Event::Pause),
        Err(Refused::State(State::Cancelled))
    );
}

#[test]
fn end_states_last_until_a_retry() {
    let done = ended(running(0), 1, End::Done);
    for event in [
        Event::Pause,
        Event::Resume,
        Event::Cancel,
        Event::Retry,
        LOST,
    ] {
        assert_eq!(after(done, 2, event), Err(Refused::State(State::Done)));
    }
    let failed = ended(running(0), 1, End::Failed);
    assert_eq!(
        after(failed, 2, Event::Resume),
        Err(Refused::State(State::Failed))
    );
    assert_eq!(after(failed, 2, Event::Retry).unwrap().state, State::Queued);
}

#[test]
fn words_are_read_back() {
    for state in State::ALL {
        assert_eq!(State::from_word(state.word()), Some(state));
        // JSON uses the same words.
        assert_eq!(
            State::deserialize(IntoDeserializer::<ValueError>::into_deserializer(
                state.word()
            )),
            Ok(state)
        );
    }
    for wish in Wish::ALL {
        assert_eq!(Wish::from_word(wish.word()), Some(wish));
    }
    assert_eq!(State::from_word("lost"), None);
}

fn events() -> impl Strategy<Value = Event> {
    let fence = 0i64..6;
    prop_oneof![
        (1i64..50_000).prop_map(|until| Event::Claim { until }),
        (fence.clone(), 1i64..50_000).prop_map(|(fence, until)| Event::Renew { fence, until }),
        (fence, 0u8..4, any::<bool>()).prop_map(|(fence, end, advanced)| Event::Ended {
            fence,
            end: match end {
                0 => End::Done,
                1 => End::Failed,
                2 => End::Stopped,
                _ => End::BrokeOff { advanced },
            }
        }),
        any::<bool>().prop_map(|known| Event::Lost { known }),
        Just(Event::Pause),
        Just(Event::Resume),
        Just(Event::Cancel),
        Just(Event::Retry),
    ]
}

proptest! {
    /// In every order of events, a lease exists exactly while the job runs, and fences only grow. A
    /// wish to stop lasts unless the job is resumed, and every state can reach an end state.
    #[test]
    fn job_life_stays_consistent_in_any_order(
        events in prop::collection::vec((events(), 0i64..5000), 1..60)
    ) {
        let (mut life, mut now) = (Life::new(0), 0);
        for (event, later) in events {
            now += later;
            let Ok(next) = after(life, now, event) else { continue };
            prop_assert_eq!(next.lease.is_some(), next.state == State::Running);
            prop_assert!(next.fence >= life.fence && next.fence <= life.fence + 1);
            prop_assert!(next.state == State::Running || next.wish == Wish::Run);
            if life.wish == Wish::Cancel && next.state != State::Running {
                prop_assert!(matches!(next.state, State::Cancelled | State::Done | State::Failed));
            }
            life = next;
        }
        if life.state == State::Paused {
            life = after(life, now, Event::Resume).unwrap();
        }
        if matches!(life.state, State::Queued | State::Waiting) {
            now = now.max(life.due);
            life = after(life, now, Event::Claim { until: now + LEASE }).unwrap();
        }
        if life.state == State::Running {
            life = ended(life, now, End::Done);
        }
        prop_assert!(life.state.is_end());
    }
}
