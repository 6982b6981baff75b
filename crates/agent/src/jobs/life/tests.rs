use proptest::prelude::*;
use serde::de::IntoDeserializer;
use serde::de::value::Error as ValueError;

use super::*;

const POLICY: RetryPolicy = RetryPolicy::DEFAULT;
const LEASE: Moment = 20_000;
const LOST: JobEvent = JobEvent::Lost { known: false };

fn after(life: JobLife, now: Moment, event: JobEvent) -> Result<JobLife, EventRefusal> {
    life.apply(event, now, &POLICY, 7)
}

fn running(now: Moment) -> JobLife {
    let life = after(
        JobLife::new(now),
        now,
        JobEvent::Claim { until: now + LEASE },
    )
    .unwrap();
    assert_eq!(life.state, State::Running);
    life
}

fn ended(life: JobLife, now: Moment, end: AttemptResult) -> JobLife {
    let fence = life.fence;
    after(life, now, JobEvent::Ended { fence, end }).unwrap()
}

#[test]
fn a_job_runs_when_due_at_one_agent() {
    let life = JobLife::new(100);
    let claim = |life: JobLife, now| after(life, now, JobEvent::Claim { until: now + LEASE });
    assert_eq!(claim(life, 99), Err(EventRefusal::NotDue));
    let life = claim(life, 100).unwrap();
    assert_eq!(
        (life.state, life.attempts, life.fence),
        (State::Running, 1, 1)
    );
    assert_eq!(claim(life, 200), Err(EventRefusal::State(State::Running)));
    assert_eq!(ended(life, 300, AttemptResult::Done).state, State::Done);
}

#[test]
fn a_lost_agents_job_moves_on_and_its_messages_are_stale() {
    let first = running(0);
    assert_eq!(after(first, LEASE - 1, LOST), Err(EventRefusal::Held));
    let known = after(first, 1, JobEvent::Lost { known: true }).unwrap();
    assert_eq!((known.state, known.due), (State::Queued, 1));
    let free = after(first, LEASE, LOST).unwrap();
    assert_eq!((free.state, free.due), (State::Queued, LEASE));
    let second = after(free, LEASE, JobEvent::Claim { until: 2 * LEASE }).unwrap();
    for event in [
        JobEvent::Ended {
            fence: first.fence,
            end: AttemptResult::Done,
        },
        JobEvent::Renew {
            fence: first.fence,
            until: 9 * LEASE,
        },
    ] {
        assert_eq!(after(second, LEASE, event), Err(EventRefusal::Stale));
    }
    assert_eq!(ended(second, LEASE, AttemptResult::Done).state, State::Done);
}

#[test]
fn retries_back_off_unless_the_job_advances() {
    let mut life = JobLife::new(0);
    let (mut now, mut pauses) = (0, Vec::new());
    loop {
        life = after(life, now, JobEvent::Claim { until: now + LEASE }).unwrap();
        life = ended(life, now, AttemptResult::BrokeOff { advanced: false });
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
    let mut life = JobLife::new(0);
    for _ in 0..10 * POLICY.max_in_vain {
        life = after(
            life,
            life.due,
            JobEvent::Claim {
                until: life.due + LEASE,
            },
        )
        .unwrap();
        let now = life.due;
        life = ended(life, now, AttemptResult::BrokeOff { advanced: true });
        assert!(life.due - now <= 2 * POLICY.first_pause);
    }
    // A user's retry skips the wait.
    let life = ended(running(0), 0, AttemptResult::BrokeOff { advanced: false });
    assert_eq!(after(life, 1, JobEvent::Retry).unwrap().due, 1);
}

#[test]
fn a_running_job_stops_before_pause_or_cancel() {
    for (event, state) in [
        (JobEvent::Pause, State::Paused),
        (JobEvent::Cancel, State::Cancelled),
    ] {
        let stopping = after(running(0), 1, event).unwrap();
        assert_eq!(stopping.state, State::Running);
        for end in [
            AttemptResult::Stopped,
            AttemptResult::BrokeOff { advanced: true },
        ] {
            assert_eq!(ended(stopping, 2, end).state, state);
        }
        assert_eq!(after(stopping, LEASE, LOST).unwrap().state, state);
        // It completed all the same.
        assert_eq!(ended(stopping, 2, AttemptResult::Done).state, State::Done);
        // Without an agent there is nothing to wait for.
        assert_eq!(after(JobLife::new(0), 0, event).unwrap().state, state);
    }
    let pausing = after(running(0), 1, JobEvent::Pause).unwrap();
    let going_on = after(pausing, 2, JobEvent::Resume).unwrap();
    assert_eq!(
        ended(going_on, 3, AttemptResult::Stopped).state,
        State::Queued
    );
    let cancelled = after(pausing, 2, JobEvent::Cancel).unwrap();
    assert_eq!(
        after(cancelled, 3, JobEvent::Pause),
        Err(EventRefusal::State(State::Cancelled))
    );
}

#[test]
fn end_states_last_until_a_retry() {
    let done = ended(running(0), 1, AttemptResult::Done);
    for event in [
        JobEvent::Pause,
        JobEvent::Resume,
        JobEvent::Cancel,
        JobEvent::Retry,
        LOST,
    ] {
        assert_eq!(after(done, 2, event), Err(EventRefusal::State(State::Done)));
    }
    let failed = ended(running(0), 1, AttemptResult::Failed);
    assert_eq!(
        after(failed, 2, JobEvent::Resume),
        Err(EventRefusal::State(State::Failed))
    );
    assert_eq!(
        after(failed, 2, JobEvent::Retry).unwrap().state,
        State::Queued
    );
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
    for wish in StopWish::ALL {
        assert_eq!(StopWish::from_word(wish.word()), Some(wish));
    }
    assert_eq!(State::from_word("lost"), None);
}

fn events() -> impl Strategy<Value = JobEvent> {
    let fence = 0i64..6;
    prop_oneof![
        (1i64..50_000).prop_map(|until| JobEvent::Claim { until }),
        (fence.clone(), 1i64..50_000).prop_map(|(fence, until)| JobEvent::Renew { fence, until }),
        (fence, 0u8..4, any::<bool>()).prop_map(|(fence, end, advanced)| JobEvent::Ended {
            fence,
            end: match end {
                0 => AttemptResult::Done,
                1 => AttemptResult::Failed,
                2 => AttemptResult::Stopped,
                _ => AttemptResult::BrokeOff { advanced },
            }
        }),
        any::<bool>().prop_map(|known| JobEvent::Lost { known }),
        Just(JobEvent::Pause),
        Just(JobEvent::Resume),
        Just(JobEvent::Cancel),
        Just(JobEvent::Retry),
    ]
}

proptest! {
    /// In every order of events, a lease exists exactly while the job runs, and fences only grow. A
    /// wish to stop lasts unless the job is resumed, and every state can reach an end state.
    #[test]
    fn job_life_stays_consistent_in_any_order(
        events in prop::collection::vec((events(), 0i64..5000), 1..60)
    ) {
        let (mut life, mut now) = (JobLife::new(0), 0);
        for (event, later) in events {
            now += later;
            let Ok(next) = after(life, now, event) else { continue };
            prop_assert_eq!(next.lease.is_some(), next.state == State::Running);
            prop_assert!(next.fence >= life.fence && next.fence <= life.fence + 1);
            prop_assert!(next.state == State::Running || next.wish == StopWish::Run);
            if life.wish == StopWish::Cancel && next.state != State::Running {
                prop_assert!(matches!(next.state, State::Cancelled | State::Done | State::Failed));
            }
            life = next;
        }
        if life.state == State::Paused {
            life = after(life, now, JobEvent::Resume).unwrap();
        }
        if matches!(life.state, State::Queued | State::Waiting) {
            now = now.max(life.due);
            life = after(life, now, JobEvent::Claim { until: now + LEASE }).unwrap();
        }
        if life.state == State::Running {
            life = ended(life, now, AttemptResult::Done);
        }
        prop_assert!(life.state.is_end());
    }
}
