//! Tests of split jobs and their parts.

use longhaul_agent::jobs::{AttemptResult, EventRefusal, JobEvent, JobLimits, State, StopWish};
use longhaul_agent::store::{AttemptEnd, JobSelection, LostAgents};
use longhaul_agent::{JobRequest, JobState, JobStore, StoreError};

use crate::{LEASE, LIMITS, holder, request, submit};

/// Submits a split job, and returns its number and those of its parts.
async fn submit_split(store: &JobStore, parts: u32) -> (i64, Vec<i64>) {
    let request = JobRequest {
        split: Some(parts),
        ..request("dtn:/a/")
    };
    let (job, _) = store
        .submit("ana", &request, None, Some("once"))
        .await
        .unwrap();
    let listed = store
        .list(JobSelection::PartsOf(job.id), None, None, 1000)
        .await
        .unwrap();
    let of = |part: &longhaul_agent::Job| part.part.map(|part| (part.job, part.number, part.of));
    assert!(
        (1..=parts)
            .rev()
            .map(|number| Some((job.id, number, parts)))
            .eq(listed.iter().map(of))
    );
    (job.id, listed.iter().rev().map(|part| part.id).collect())
}

async fn claim_as(store: &JobStore, agent: &str, limits: &JobLimits) -> Vec<i64> {
    let claimed = store.claim(holder(agent), 4, limits, LEASE).await.unwrap();
    claimed.iter().map(|kept| kept.job.id).collect()
}

async fn state(store: &JobStore, id: i64) -> JobState {
    store.job(id).await.unwrap().job.state
}

pub async fn agents_share_parts_and_the_job_runs_last(store: JobStore) {
    let (id, parts) = submit_split(&store, 4).await;
    assert_eq!(state(&store, id).await, JobState::Split);
    // One job was submitted, so one is listed and counted.
    assert_eq!(
        store
            .list(JobSelection::Jobs, None, None, 9)
            .await
            .unwrap()
            .len(),
        1
    );
    assert_eq!(
        store
            .list(JobSelection::All, None, None, 9)
            .await
            .unwrap()
            .len(),
        5
    );
    assert_eq!(
        store.counts().await.unwrap(),
        [("split".to_owned(), 1)].into()
    );
    // A repeated submission finds the same job.
    assert_eq!(submit_split(&store, 4).await, (id, parts.clone()));
    let tight = JobLimits {
        per_place: 1,
        per_user: Some(1),
        ..LIMITS
    };
    for (part, agent) in parts.iter().zip(["a", "b", "c"]) {
        assert_eq!(claim_as(&store, agent, &tight).await, [*part]);
        assert!(claim_as(&store, agent, &tight).await.is_empty());
    }
    // The place is full for other users.
    submit(&store, "ben", "dtn:/b").await;
    assert_eq!(claim_as(&store, "d", &tight).await, [parts[3]]);
    let kept = store.job(parts[0]).await.unwrap().job;
    assert_eq!(kept.arguments(), ["--part=1/4", "--", "/data", "dtn:/a/"]);
    let progress = |bytes: u64| {
        Some(format!(
            "{{\"bytes\": {bytes}, \"bytes_found\": 9, \"walk_complete\": true}}"
        ))
    };
    store.renew(parts[1], 1, LEASE, progress(5)).await.unwrap();
    let before = store.last_change().await.unwrap();
    let with = AttemptEnd {
        progress: progress(7),
        travelled: 7,
        ..AttemptEnd::default()
    };
    let (part, whole) = store
        .end_attempt(parts[0], 1, AttemptResult::Done, &with)
        .await
        .unwrap();
    assert_eq!((part.state, whole), (JobState::Done, None));
    // Subscribers to the job see the change.
    let changed = store.changed_since(before, 9).await.unwrap();
    assert!(changed.iter().map(|job| job.id).eq([parts[0], id]));
    store
        .end_attempt(parts[1], 1, AttemptResult::Failed, &AttemptEnd::default())
        .await
        .unwrap();
    let of = store.parts_of(&[id]).await.unwrap().remove(0);
    assert_eq!(
        (
            of.counts.of,
            of.counts.done,
            of.counts.failed,
            of.counts.running
        ),
        (4, 1, 1, 2)
    );
    assert!(of.started.is_some());
    let bytes: Vec<u64> = of
        .progress
        .iter()
        .map(|(_, progress)| progress.bytes)
        .collect();
    assert_eq!(bytes.iter().sum::<u64>(), 12);
    assert_eq!(store.split_jobs().await.unwrap(), [id]);
    for part in &parts[2..] {
        assert_eq!(state(&store, id).await, JobState::Split);
        store
            .end_attempt(*part, 1, AttemptResult::Done, &AttemptEnd::default())
            .await
            .unwrap();
    }
    assert_eq!(state(&store, id).await, JobState::Queued);
    assert!(claim_as(&store, "b", &LIMITS).await.contains(&id));
    let whole = store.job(id).await.unwrap().job;
    assert_eq!(whole.arguments(), ["--part=rest", "--", "/data", "dtn:/a/"]);
    let (job, _) = store
        .end_attempt(id, 1, AttemptResult::Done, &AttemptEnd::default())
        .await
        .unwrap();
    assert_eq!(job.state, JobState::Done);
    // Parts can only be removed with their job.
    let refused = store.forget(parts[0]).await.unwrap_err();
    assert!(matches!(refused, StoreError::IsPart { job, .. } if job == id));
    assert_eq!(store.forget_older(-1).await.unwrap(), 1);
    assert!(matches!(
        store.job(parts[0]).await,
        Err(StoreError::Missing(_))
    ));
    store.close().await;
}

pub async fn changes_of_a_split_job_apply_to_its_parts(store: JobStore) {
    let (id, parts) = submit_split(&store, 3).await;
    let refused = store
        .apply_event(parts[0], JobEvent::Cancel)
        .await
        .unwrap_err();
    assert!(matches!(refused, StoreError::IsPart { job, .. } if job == id));
    assert_eq!(claim_as(&store, "a", &LIMITS).await, [parts[0]]);
    let asked = store.apply_event(id, JobEvent::Pause).await.unwrap();
    assert_eq!(
        (asked.state, asked.stopping.is_some()),
        (JobState::Split, true)
    );
    assert!(claim_as(&store, "b", &LIMITS).await.is_empty());
    assert_eq!(
        store.renew(parts[0], 1, LEASE, None).await.unwrap().wish,
        StopWish::Pause
    );
    store
        .end_attempt(parts[0], 1, AttemptResult::Stopped, &AttemptEnd::default())
        .await
        .unwrap();
    assert_eq!(state(&store, id).await, JobState::Paused);
    store.apply_event(id, JobEvent::Resume).await.unwrap();
    assert_eq!(claim_as(&store, "a", &LIMITS).await.len(), 1);
    // The agent dies while the job is cancelled.
    let lost = store.claim(holder("dead"), 4, &LIMITS, -1).await.unwrap();
    assert_eq!(lost.len(), 1);
    store.apply_event(id, JobEvent::Cancel).await.unwrap();
    assert_eq!(store.recover_lost(&LostAgents::Silent).await.unwrap(), 1);
    assert_eq!(state(&store, id).await, JobState::Split);
    let running = store
        .list(JobSelection::PartsOf(id), Some(JobState::Running), None, 9)
        .await
        .unwrap();
    assert_eq!(running.len(), 1);
    let fence = store.job(running[0].id).await.unwrap().life.fence;
    let (part, whole) = store
        .end_attempt(
            running[0].id,
            fence,
            AttemptResult::Stopped,
            &AttemptEnd::default(),
        )
        .await
        .unwrap();
    // The end of the job is returned with that of its last part.
    let whole = whole.unwrap();
    assert_eq!(
        (part.state, whole.id, whole.state),
        (JobState::Cancelled, id, JobState::Cancelled)
    );
    assert!(whole.ended.is_some());
    store.apply_event(id, JobEvent::Retry).await.unwrap();
    assert_eq!(state(&store, id).await, JobState::Split);
    assert!(matches!(
        store.forget(id).await,
        Err(StoreError::Refused(EventRefusal::State(State::Split)))
    ));
    store.apply_event(id, JobEvent::Cancel).await.unwrap();
    store.forget(id).await.unwrap();
    assert!(
        store
            .list(JobSelection::All, None, None, 9)
            .await
            .unwrap()
            .is_empty()
    );
    store.close().await;
}

/// Agents claim and end parts while a user pauses, resumes and retries. Nothing deadlocks, and each
/// part is done once.
pub async fn concurrent_changes_of_parts_are_consistent(store: JobStore) {
    let (id, parts) = submit_split(&store, 24).await;
    let work = async |agent: &str| {
        let mut done = Vec::new();
        let mut turn = 0;
        while !state(&store, id).await.is_end() {
            for kept in store.claim(holder(agent), 2, &LIMITS, LEASE).await.unwrap() {
                let (of, fence) = (kept.job.id, kept.life.fence);
                turn += 1;
                let life = store.renew(of, fence, LEASE, None).await.unwrap();
                let end = match (life.wish, turn % 3) {
                    (StopWish::Run, 1 | 2) => AttemptResult::Done,
                    _ => AttemptResult::Stopped,
                };
                store
                    .end_attempt(of, fence, end, &AttemptEnd::default())
                    .await
                    .unwrap();
                done.extend(Some(of).filter(|_| end == AttemptResult::Done));
            }
        }
        done
    };
    let meddle = async || {
        while !state(&store, id).await.is_end() {
            for event in [JobEvent::Pause, JobEvent::Resume, JobEvent::Retry] {
                match store.apply_event(id, event).await {
                    Ok(_) | Err(StoreError::Refused(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
    };
    let (a, b, c, ()) = tokio::join!(work("a"), work("b"), work("c"), meddle());
    let mut all = [a, b, c].concat();
    all.sort_unstable();
    let expected: Vec<i64> = std::iter::once(id).chain(parts).collect();
    assert_eq!(all, expected);
    store.close().await;
}
