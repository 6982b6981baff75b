//! Tests of jobs from submission to end, and of places.

use longhaul_agent::jobs::{AttemptResult, EventRefusal, JobEvent, State, StopWish};
use longhaul_agent::places::Place;
use longhaul_agent::store::{AttemptEnd, JobSelection, LostAgents};
use longhaul_agent::{JobState, JobStore, StoreError};

use crate::{LEASE, LIMITS, claim, holder, request, submit};

pub async fn a_job_lives_and_ends(store: JobStore) {
    let id = submit(&store, "ana", "dtn:/a").await;
    assert_eq!(claim(&store, 1).await, [id]);
    assert!(claim(&store, 1).await.is_empty());
    let kept = store.job(id).await.unwrap();
    assert_eq!((kept.job.state, kept.life.fence), (JobState::Running, 1));
    assert_eq!(kept.job.agent.as_deref(), Some("agent"));
    let life = store
        .renew(id, 1, LEASE, Some("{\"bytes\": 5}".into()))
        .await
        .unwrap();
    assert_eq!(life.wish, StopWish::Run);
    assert_eq!(store.job(id).await.unwrap().job.progress.unwrap().bytes, 5);
    let with = AttemptEnd {
        report: Some("{\"ok\": true}".into()),
        exit_code: Some(0),
        travelled: 7,
        ..AttemptEnd::default()
    };
    let (job, _) = store
        .end_attempt(id, 1, AttemptResult::Done, &with)
        .await
        .unwrap();
    assert_eq!((job.state, job.exit_code), (JobState::Done, Some(0)));
    assert!(job.ended.is_some());
    assert_eq!(
        store.report(id).await.unwrap().as_deref(),
        Some("{\"ok\": true}")
    );
    // An end that is reported twice takes effect once.
    let again = store
        .end_attempt(id, 1, AttemptResult::Failed, &with)
        .await
        .unwrap_err();
    assert!(matches!(again, StoreError::Refused(EventRefusal::Stale)));
    store.forget(id).await.unwrap();
    assert!(matches!(store.job(id).await, Err(StoreError::Missing(missing)) if missing == id));
    store.close().await;
}

pub async fn repeated_submission_creates_one_job(store: JobStore) {
    let first = store
        .submit("ana", &request("dtn:/a"), None, Some("key"))
        .await
        .unwrap();
    let second = store
        .submit("ana", &request("dtn:/a"), None, Some("key"))
        .await
        .unwrap();
    assert_eq!((first.0.id, first.1, second.1), (second.0.id, true, false));
    let other = store
        .submit("ana", &request("dtn:/b"), None, Some("key"))
        .await;
    assert!(matches!(other, Err(StoreError::KeyReused(_))));
    // Another user has other keys.
    assert!(
        store
            .submit("ben", &request("dtn:/b"), None, Some("key"))
            .await
            .unwrap()
            .1
    );
    let third = request("dtn:/c");
    let both = tokio::join!(
        store.submit("ana", &third, None, Some("at once")),
        store.submit("ana", &third, None, Some("at once")),
    );
    assert_eq!(both.0.unwrap().0.id, both.1.unwrap().0.id);
    store.close().await;
}

pub async fn users_take_turns_within_the_limits(store: JobStore) {
    let mut ana = Vec::new();
    for _ in 0..5 {
        ana.push(submit(&store, "ana", "dtn:/a").await);
    }
    let ben = submit(&store, "ben", "other:/b").await;
    assert_eq!(claim(&store, 10).await, [ana[0], ben, ana[1]]);
    assert!(claim(&store, 10).await.is_empty());
    store
        .end_attempt(ana[0], 1, AttemptResult::Done, &AttemptEnd::default())
        .await
        .unwrap();
    assert_eq!(claim(&store, 10).await, [ana[2]]);
    store.close().await;
}

pub async fn jobs_wait_until_they_are_due(store: JobStore) {
    let later = store
        .submit("ana", &request("dtn:/a"), Some(i64::MAX / 2), None)
        .await
        .unwrap()
        .0;
    assert!(claim(&store, 1).await.is_empty());
    assert!(store.next_due().await.unwrap().unwrap() > LEASE);
    assert!(later.due.is_some());
    let broke_off = submit(&store, "ana", "dtn:/a").await;
    assert_eq!(claim(&store, 1).await, [broke_off]);
    let end = AttemptResult::BrokeOff { advanced: false };
    let (job, _) = store
        .end_attempt(broke_off, 1, end, &AttemptEnd::default())
        .await
        .unwrap();
    assert_eq!(job.state, JobState::Waiting);
    assert!(claim(&store, 1).await.is_empty());
    let due = store.next_due().await.unwrap().unwrap();
    assert!((1..=10_000).contains(&due), "{due}");
    assert_eq!(
        store
            .apply_event(broke_off, JobEvent::Retry)
            .await
            .unwrap()
            .state,
        JobState::Queued
    );
    assert_eq!(claim(&store, 1).await, [broke_off]);
    store.close().await;
}

pub async fn jobs_of_a_lost_agent_are_requeued(store: JobStore) {
    let id = submit(&store, "ana", "dtn:/a").await;
    // A lease that has expired already.
    let claimed = store.claim(holder("dead"), 1, &LIMITS, -1).await.unwrap();
    assert_eq!(claimed.len(), 1);
    assert_eq!(store.recover_lost(&LostAgents::Silent).await.unwrap(), 1);
    assert_eq!(claim(&store, 1).await, [id]);
    assert!(matches!(
        store.renew(id, 1, LEASE, None).await,
        Err(StoreError::Refused(EventRefusal::Stale))
    ));
    assert_eq!(store.recover_lost(&LostAgents::Silent).await.unwrap(), 0);
    assert_eq!(
        store
            .recover_lost(&LostAgents::Instance("dead"))
            .await
            .unwrap(),
        0
    );
    assert_eq!(
        store
            .recover_lost(&LostAgents::Instance("agent"))
            .await
            .unwrap(),
        1
    );
    assert_eq!(claim(&store, 1).await, [id]);
    // Its agent is known to be lost.
    assert_eq!(store.recover_lost(&LostAgents::All).await.unwrap(), 1);
    let kept = store.job(id).await.unwrap();
    assert_eq!(
        (kept.job.state, kept.life.state, kept.job.attempts),
        (JobState::Queued, State::Queued, 3)
    );
    store.close().await;
}

pub async fn running_job_is_paused_by_its_agent(store: JobStore) {
    let id = submit(&store, "ana", "dtn:/a").await;
    claim(&store, 1).await;
    let asked = store.apply_event(id, JobEvent::Pause).await.unwrap();
    assert_eq!(asked.state, JobState::Running);
    assert!(asked.stopping.is_some());
    assert_eq!(
        store.renew(id, 1, LEASE, None).await.unwrap().wish,
        StopWish::Pause
    );
    let (job, _) = store
        .end_attempt(id, 1, AttemptResult::Stopped, &AttemptEnd::default())
        .await
        .unwrap();
    assert_eq!((job.state, job.stopping), (JobState::Paused, None));
    assert!(claim(&store, 1).await.is_empty());
    assert!(matches!(
        store.forget(id).await,
        Err(StoreError::Refused(EventRefusal::State(State::Paused)))
    ));
    store.apply_event(id, JobEvent::Resume).await.unwrap();
    assert_eq!(claim(&store, 1).await, [id]);
    store.close().await;
}

pub async fn changes_are_ordered_and_pages_end(store: JobStore) {
    let start = store.last_change().await.unwrap();
    let mut ids = Vec::new();
    for _ in 0..7 {
        ids.push(submit(&store, "ana", "dtn:/a").await);
    }
    store.apply_event(ids[0], JobEvent::Cancel).await.unwrap();
    let changed = store.changed_since(start, 100).await.unwrap();
    let seen: Vec<i64> = changed.iter().map(|job| job.id).collect();
    assert_eq!(seen, [&ids[1..], &ids[..1]].concat());
    assert!(changed.is_sorted_by_key(|job| job.change));
    assert!(
        store
            .changed_since(store.last_change().await.unwrap(), 100)
            .await
            .unwrap()
            .is_empty()
    );
    let (mut before, mut listed) = (None, Vec::new());
    loop {
        let page = store
            .list(JobSelection::Jobs, None, before, 3)
            .await
            .unwrap();
        let Some(last) = page.last() else { break };
        before = Some(last.id);
        listed.extend(page.iter().map(|job| job.id));
    }
    assert!(listed.iter().rev().eq(ids.iter()));
    assert_eq!(
        store
            .list(JobSelection::Jobs, Some(JobState::Cancelled), None, 9)
            .await
            .unwrap()
            .len(),
        1
    );
    assert_eq!(
        store.counts().await.unwrap(),
        [("cancelled".to_owned(), 1), ("queued".to_owned(), 6)].into()
    );
    assert_eq!(store.forget_older(3_600_000).await.unwrap(), 0);
    assert_eq!(store.forget_older(-1).await.unwrap(), 1);
    store.close().await;
}

pub async fn places_belong_to_their_owner(store: JobStore) {
    let place = |root: &str| Place::new("store", root).unwrap();
    store.put_place("ana", &place("dtn:")).await.unwrap();
    store.put_place("ana", &place("other:")).await.unwrap();
    assert_eq!(store.places("ana").await.unwrap(), [place("other:")]);
    assert!(store.places("ben").await.unwrap().is_empty());
    assert!(!store.remove_place("ben", "store").await.unwrap());
    assert!(store.remove_place("ana", "store").await.unwrap());
    store.close().await;
}

/// Four agents claim concurrently what one of them can have.
pub async fn no_job_is_claimed_twice(store: JobStore) {
    for number in 0..40 {
        submit(&store, "ana", &format!("dtn{number}:/a")).await;
    }
    let take = async || {
        let mut mine = Vec::new();
        loop {
            let some = claim(&store, 3).await;
            if some.is_empty() {
                break mine;
            }
            mine.extend(some);
        }
    };
    let (a, b, c, d) = tokio::join!(take(), take(), take(), take());
    let mut all = [a, b, c, d].concat();
    assert_eq!(all.len(), 40);
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 40);
    store.close().await;
}
