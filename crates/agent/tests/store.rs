//! The store, kept by SQLite and by PostgreSQL: the same tests.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

#[allow(dead_code, reason = "shared with tests that use more of it")]
mod postgres;

use longhaul_agent::places::Place;
use longhaul_agent::store::{AttemptEnd, Gone, Holder, Listed};
use longhaul_agent::{CopyOptions, JobRequest, JobState, Store, StoreError};
use longhaul_jobs::{End, Event, Limits, Refused, State, Wish};
use postgres::Postgres;

const LEASE: i64 = 20_000;
const LIMITS: Limits = Limits {
    in_all: 100,
    per_place: 2,
    per_user: None,
};

fn request(destination: &str) -> JobRequest {
    JobRequest {
        sources: vec!["/data".into()],
        destination: destination.into(),
        options: CopyOptions::default(),
        label: None,
        priority: 0,
        not_before: None,
        on_end: None,
        split: None,
        on_end_url: None,
    }
}

fn holder(name: &str) -> Holder<'_> {
    Holder { name, instance: name }
}

async fn submit(store: &Store, user: &str, destination: &str) -> i64 {
    store
        .submit(user, &request(destination), None, None)
        .await
        .unwrap()
        .0
        .id
}

async fn claim(store: &Store, room: usize) -> Vec<i64> {
    let claimed = store.claim(holder("agent"), room, &LIMITS, LEASE).await.unwrap();
    claimed.iter().map(|kept| kept.job.id).collect()
}

async fn a_job_lives_and_ends(store: Store) {
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
    assert_eq!(life.wish, Wish::Run);
    assert_eq!(store.job(id).await.unwrap().job.progress.unwrap().bytes, 5);
    let with = AttemptEnd {
        report: Some("{\"ok\": true}".into()),
        exit_code: Some(0),
        travelled: 7,
        ..AttemptEnd::default()
    };
    let (job, _) = store.ended(id, 1, End::Done, &with).await.unwrap();
    assert_eq!((job.state, job.exit_code), (JobState::Done, Some(0)));
    assert!(job.ended.is_some());
    assert_eq!(store.report(id).await.unwrap().as_deref(), Some("{\"ok\": true}"));
    // Of an end that was said twice the second changes nothing.
    let again = store.ended(id, 1, End::Failed, &with).await.unwrap_err();
    assert!(matches!(again, StoreError::Refused(Refused::Stale)));
    store.forget(id).await.unwrap();
    assert!(matches!(store.job(id).await, Err(StoreError::Missing(missing)) if missing == id));
    store.close().await;
}

async fn a_request_that_is_sent_twice_makes_one_job(store: Store) {
    let first = store
        .submit("ana", &request("dtn:/a"), None, Some("key"))
        .await
        .unwrap();
    let second = store
        .submit("ana", &request("dtn:/a"), None, Some("key"))
        .await
        .unwrap();
    assert_eq!((first.0.id, first.1, second.1), (second.0.id, true, false));
    let other = store.submit("ana", &request("dtn:/b"), None, Some("key")).await;
    assert!(matches!(other, Err(StoreError::KeyReused(_))));
    // Another user's keys are another user's.
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

async fn users_take_turns_within_the_limits(store: Store) {
    let mut ana = Vec::new();
    for _ in 0..5 {
        ana.push(submit(&store, "ana", "dtn:/a").await);
    }
    let ben = submit(&store, "ben", "other:/b").await;
    assert_eq!(claim(&store, 10).await, [ana[0], ben, ana[1]]);
    assert!(claim(&store, 10).await.is_empty());
    store
        .ended(ana[0], 1, End::Done, &AttemptEnd::default())
        .await
        .unwrap();
    assert_eq!(claim(&store, 10).await, [ana[2]]);
    store.close().await;
}

async fn what_is_not_due_waits(store: Store) {
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
    let end = End::BrokeOff { advanced: false };
    let (job, _) = store
        .ended(broke_off, 1, end, &AttemptEnd::default())
        .await
        .unwrap();
    assert_eq!(job.state, JobState::Waiting);
    assert!(claim(&store, 1).await.is_empty());
    let due = store.next_due().await.unwrap().unwrap();
    assert!((1..=10_000).contains(&due), "{due}");
    assert_eq!(
        store.ask(broke_off, Event::Retry).await.unwrap().state,
        JobState::Queued
    );
    assert_eq!(claim(&store, 1).await, [broke_off]);
    store.close().await;
}

async fn whoever_is_gone_loses_what_it_had(store: Store) {
    let id = submit(&store, "ana", "dtn:/a").await;
    // A lease that has run out already.
    let claimed = store.claim(holder("dead"), 1, &LIMITS, -1).await.unwrap();
    assert_eq!(claimed.len(), 1);
    assert_eq!(store.take_lost(&Gone::Silent).await.unwrap(), 1);
    assert_eq!(claim(&store, 1).await, [id]);
    assert!(matches!(
        store.renew(id, 1, LEASE, None).await,
        Err(StoreError::Refused(Refused::Stale))
    ));
    assert_eq!(store.take_lost(&Gone::Silent).await.unwrap(), 0);
    assert_eq!(store.take_lost(&Gone::Instance("dead")).await.unwrap(), 0);
    assert_eq!(store.take_lost(&Gone::Instance("agent")).await.unwrap(), 1);
    assert_eq!(claim(&store, 1).await, [id]);
    // Whoever had it is known to be gone.
    assert_eq!(store.take_lost(&Gone::All).await.unwrap(), 1);
    let kept = store.job(id).await.unwrap();
    assert_eq!(
        (kept.job.state, kept.life.state, kept.job.attempts),
        (JobState::Queued, State::Queued, 3)
    );
    store.close().await;
}

async fn one_that_runs_is_paused_by_its_agent(store: Store) {
    let id = submit(&store, "ana", "dtn:/a").await;
    claim(&store, 1).await;
    let asked = store.ask(id, Event::Pause).await.unwrap();
    assert_eq!(asked.state, JobState::Running);
    assert!(asked.stopping.is_some());
    assert_eq!(store.renew(id, 1, LEASE, None).await.unwrap().wish, Wish::Pause);
    let (job, _) = store
        .ended(id, 1, End::Stopped, &AttemptEnd::default())
        .await
        .unwrap();
    assert_eq!((job.state, job.stopping), (JobState::Paused, None));
    assert!(claim(&store, 1).await.is_empty());
    assert!(matches!(
        store.forget(id).await,
        Err(StoreError::Refused(Refused::State(State::Paused)))
    ));
    store.ask(id, Event::Resume).await.unwrap();
    assert_eq!(claim(&store, 1).await, [id]);
    store.close().await;
}

async fn changes_come_in_their_order_and_pages_end(store: Store) {
    let start = store.last_change().await.unwrap();
    let mut ids = Vec::new();
    for _ in 0..7 {
        ids.push(submit(&store, "ana", "dtn:/a").await);
    }
    store.ask(ids[0], Event::Cancel).await.unwrap();
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
        let page = store.list(Listed::Jobs, None, before, 3).await.unwrap();
        let Some(last) = page.last() else { break };
        before = Some(last.id);
        listed.extend(page.iter().map(|job| job.id));
    }
    assert!(listed.iter().rev().eq(ids.iter()));
    assert_eq!(
        store
            .list(Listed::Jobs, Some(JobState::Cancelled), None, 9)
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

async fn places_are_their_owners(store: Store) {
    let place = |root: &str| Place::new("store", root).unwrap();
    store.put_place("ana", &place("dtn:")).await.unwrap();
    store.put_place("ana", &place("other:")).await.unwrap();
    assert_eq!(store.places("ana").await.unwrap(), [place("other:")]);
    assert!(store.places("ben").await.unwrap().is_empty());
    assert!(!store.remove_place("ben", "store").await.unwrap());
    assert!(store.remove_place("ana", "store").await.unwrap());
    store.close().await;
}

/// Four that take at once what one of them can have.
/// Of those whose end is told to that URL.
async fn end_of_one_told(store: &Store, url: &str) -> i64 {
    let request = JobRequest {
        on_end_url: Some(url.into()),
        ..request("dtn:/told")
    };
    let id = store.submit("ana", &request, None, None).await.unwrap().0.id;
    store.ask(id, Event::Cancel).await.unwrap();
    id
}

async fn an_end_is_told_until_it_is_taken(store: Store) {
    let take = async |room| store.take_notices(room, 2, 60_000).await.unwrap();
    // No end, or nobody to tell.
    let untold = submit(&store, "ana", "dtn:/a").await;
    store.ask(untold, Event::Cancel).await.unwrap();
    assert!(take(10).await.is_empty());
    assert_eq!(store.next_notice().await.unwrap(), None);
    let id = end_of_one_told(&store, "https://one.example/hook").await;
    // It outlives the job, and says what that was.
    store.forget(id).await.unwrap();
    let first = take(10).await.remove(0);
    let told: serde_json::Value = serde_json::from_str(&first.body).unwrap();
    assert_eq!(
        (told["id"].as_i64(), told["state"].as_str()),
        (Some(id), Some("cancelled"))
    );
    assert_eq!(
        (first.job, first.attempts, first.url.as_str()),
        (id, 1, "https://one.example/hook")
    );
    // It is under way.
    assert!(take(10).await.is_empty());
    assert!(store.next_notice().await.unwrap().unwrap() > 0);
    store.notice_later(&first, 0).await.unwrap();
    let second = take(10).await.remove(0);
    assert_eq!((second.id.as_str(), second.attempts), (first.id.as_str(), 2));
    // An agent that has the store for itself knows that nobody else is telling it.
    store.notices_lost().await.unwrap();
    let second = take(10).await.remove(0);
    assert_eq!(second.attempts, 3);
    // Who was taken to be gone puts nothing off any more.
    store.notice_later(&first, -1).await.unwrap();
    assert!(take(10).await.is_empty());
    store.notice_taken(&second.id).await.unwrap();
    assert_eq!(store.next_notice().await.unwrap(), None);
    // One receiver does not keep the others waiting, and each end is one of its own.
    for _ in 0..4 {
        end_of_one_told(&store, "https://one.example/hook").await;
    }
    let other = end_of_one_told(&store, "http://other.example/").await;
    let (taken, more) = (take(10).await, take(10).await);
    let jobs: Vec<i64> = taken.iter().map(|notice| notice.job).collect();
    assert!(jobs.len() == 3 && jobs.contains(&other), "{jobs:?}");
    assert_eq!(more.len(), 2);
    let mut ids: Vec<String> = taken.into_iter().chain(more).map(|notice| notice.id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 5);
    // Of a job in parts one end is told: its own.
    let split = JobRequest {
        on_end_url: Some("http://third.example/".into()),
        split: Some(3),
        ..request("dtn:/told/")
    };
    let whole = store.submit("ana", &split, None, None).await.unwrap().0.id;
    store.ask(whole, Event::Cancel).await.unwrap();
    let told = take(10).await;
    assert_eq!(told.iter().map(|notice| notice.job).collect::<Vec<_>>(), [whole]);
    store.close().await;
}

async fn no_two_take_the_same(store: Store) {
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

/// A job that is split, and the numbers of its parts.
async fn submit_split(store: &Store, parts: u32) -> (i64, Vec<i64>) {
    let request = JobRequest {
        split: Some(parts),
        ..request("dtn:/a/")
    };
    let (job, _) = store.submit("ana", &request, None, Some("once")).await.unwrap();
    let listed = store
        .list(Listed::PartsOf(job.id), None, None, 1000)
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

async fn claim_as(store: &Store, agent: &str, limits: &Limits) -> Vec<i64> {
    let claimed = store.claim(holder(agent), 4, limits, LEASE).await.unwrap();
    claimed.iter().map(|kept| kept.job.id).collect()
}

async fn state(store: &Store, id: i64) -> JobState {
    store.job(id).await.unwrap().job.state
}

async fn agents_share_the_parts_of_a_job_and_it_ends_by_its_own_run(store: Store) {
    let (id, parts) = submit_split(&store, 4).await;
    assert_eq!(state(&store, id).await, JobState::Split);
    // One submitted it, so one is listed, and one is counted.
    assert_eq!(store.list(Listed::Jobs, None, None, 9).await.unwrap().len(), 1);
    assert_eq!(store.list(Listed::All, None, None, 9).await.unwrap().len(), 5);
    assert_eq!(store.counts().await.unwrap(), [("split".to_owned(), 1)].into());
    // Sent again it is the same.
    assert_eq!(submit_split(&store, 4).await, (id, parts.clone()));
    let tight = Limits {
        per_place: 1,
        per_user: Some(1),
        ..LIMITS
    };
    for (part, agent) in parts.iter().zip(["a", "b", "c"]) {
        assert_eq!(claim_as(&store, agent, &tight).await, [*part]);
        assert!(claim_as(&store, agent, &tight).await.is_empty());
    }
    // To others the place is full.
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
    let (part, whole) = store.ended(parts[0], 1, End::Done, &with).await.unwrap();
    assert_eq!((part.state, whole), (JobState::Done, None));
    // Who follows the job hears of it.
    let changed = store.changed_since(before, 9).await.unwrap();
    assert!(changed.iter().map(|job| job.id).eq([parts[0], id]));
    store
        .ended(parts[1], 1, End::Failed, &AttemptEnd::default())
        .await
        .unwrap();
    let of = store.parts_of(&[id]).await.unwrap().remove(0);
    assert_eq!(
        (of.counts.of, of.counts.done, of.counts.failed, of.counts.running),
        (4, 1, 1, 2)
    );
    assert!(of.started.is_some());
    let bytes: Vec<u64> = of.progress.iter().map(|(_, progress)| progress.bytes).collect();
    assert_eq!(bytes.iter().sum::<u64>(), 12);
    assert_eq!(store.split_jobs().await.unwrap(), [id]);
    for part in &parts[2..] {
        assert_eq!(state(&store, id).await, JobState::Split);
        store
            .ended(*part, 1, End::Done, &AttemptEnd::default())
            .await
            .unwrap();
    }
    assert_eq!(state(&store, id).await, JobState::Queued);
    assert!(claim_as(&store, "b", &LIMITS).await.contains(&id));
    let whole = store.job(id).await.unwrap().job;
    assert_eq!(whole.arguments(), ["--part=rest", "--", "/data", "dtn:/a/"]);
    let (job, _) = store
        .ended(id, 1, End::Done, &AttemptEnd::default())
        .await
        .unwrap();
    assert_eq!(job.state, JobState::Done);
    // History holds them together.
    let refused = store.forget(parts[0]).await.unwrap_err();
    assert!(matches!(refused, StoreError::IsPart { job, .. } if job == id));
    assert_eq!(store.forget_older(-1).await.unwrap(), 1);
    assert!(matches!(store.job(parts[0]).await, Err(StoreError::Missing(_))));
    store.close().await;
}

async fn what_is_asked_of_a_job_is_asked_of_its_parts(store: Store) {
    let (id, parts) = submit_split(&store, 3).await;
    let refused = store.ask(parts[0], Event::Cancel).await.unwrap_err();
    assert!(matches!(refused, StoreError::IsPart { job, .. } if job == id));
    assert_eq!(claim_as(&store, "a", &LIMITS).await, [parts[0]]);
    let asked = store.ask(id, Event::Pause).await.unwrap();
    assert_eq!((asked.state, asked.stopping.is_some()), (JobState::Split, true));
    assert!(claim_as(&store, "b", &LIMITS).await.is_empty());
    assert_eq!(
        store.renew(parts[0], 1, LEASE, None).await.unwrap().wish,
        Wish::Pause
    );
    store
        .ended(parts[0], 1, End::Stopped, &AttemptEnd::default())
        .await
        .unwrap();
    assert_eq!(state(&store, id).await, JobState::Paused);
    store.ask(id, Event::Resume).await.unwrap();
    assert_eq!(claim_as(&store, "a", &LIMITS).await.len(), 1);
    // Its agent dies while the job is cancelled.
    let lost = store.claim(holder("dead"), 4, &LIMITS, -1).await.unwrap();
    assert_eq!(lost.len(), 1);
    store.ask(id, Event::Cancel).await.unwrap();
    assert_eq!(store.take_lost(&Gone::Silent).await.unwrap(), 1);
    assert_eq!(state(&store, id).await, JobState::Split);
    let running = store
        .list(Listed::PartsOf(id), Some(JobState::Running), None, 9)
        .await
        .unwrap();
    assert_eq!(running.len(), 1);
    let fence = store.job(running[0].id).await.unwrap().life.fence;
    let (part, whole) = store
        .ended(running[0].id, fence, End::Stopped, &AttemptEnd::default())
        .await
        .unwrap();
    // Whoever ended it hears that the job has, too.
    let whole = whole.unwrap();
    assert_eq!(
        (part.state, whole.id, whole.state),
        (JobState::Cancelled, id, JobState::Cancelled)
    );
    assert!(whole.ended.is_some());
    store.ask(id, Event::Retry).await.unwrap();
    assert_eq!(state(&store, id).await, JobState::Split);
    assert!(matches!(
        store.forget(id).await,
        Err(StoreError::Refused(Refused::State(State::Split)))
    ));
    store.ask(id, Event::Cancel).await.unwrap();
    store.forget(id).await.unwrap();
    assert!(store.list(Listed::All, None, None, 9).await.unwrap().is_empty());
    store.close().await;
}

/// Agents that take parts and end them, while somebody pauses, resumes and retries: nobody waits for ever, and each part is done once.
async fn parts_bear_everything_at_once(store: Store) {
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
                    (Wish::Run, 1 | 2) => End::Done,
                    _ => End::Stopped,
                };
                store.ended(of, fence, end, &AttemptEnd::default()).await.unwrap();
                done.extend(Some(of).filter(|_| end == End::Done));
            }
        }
        done
    };
    let meddle = async || {
        while !state(&store, id).await.is_end() {
            for event in [Event::Pause, Event::Resume, Event::Retry] {
                match store.ask(id, event).await {
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

async fn on_sqlite() -> (Store, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    // A name that a URL could not have.
    let file = dir.path().join("jobs ?#%41.sqlite");
    (Store::sqlite(&file).await.unwrap(), dir)
}

macro_rules! on_both {
    ($($name:ident),+ $(,)?) => {
        mod sqlite {
            $(#[tokio::test]
            async fn $name() {
                let (store, _dir) = super::on_sqlite().await;
                super::$name(store).await;
            })+
        }

        /// One server for all of them: making one takes a second.
        #[tokio::test]
        async fn the_same_holds_with_postgresql() {
            let server = Postgres::start();
            $({
                println!("{}", stringify!($name));
                server.create_database(stringify!($name));
                $name(Store::postgres(&server.url_of(stringify!($name))).await.unwrap()).await;
            })+
        }
    };
}

on_both!(
    a_job_lives_and_ends,
    a_request_that_is_sent_twice_makes_one_job,
    users_take_turns_within_the_limits,
    what_is_not_due_waits,
    whoever_is_gone_loses_what_it_had,
    one_that_runs_is_paused_by_its_agent,
    changes_come_in_their_order_and_pages_end,
    places_are_their_owners,
    an_end_is_told_until_it_is_taken,
    no_two_take_the_same,
    agents_share_the_parts_of_a_job_and_it_ends_by_its_own_run,
    what_is_asked_of_a_job_is_asked_of_its_parts,
    parts_bear_everything_at_once,
);

#[tokio::test]
async fn what_is_kept_is_there_when_the_file_is_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("jobs.sqlite");
    let store = Store::sqlite(&file).await.unwrap();
    let id = submit(&store, "ana", "dtn:/a").await;
    claim(&store, 1).await;
    // No close: as if it had been killed.
    let again = Store::sqlite(&file).await.unwrap();
    assert_eq!(again.take_lost(&Gone::All).await.unwrap(), 1);
    assert_eq!(claim(&again, 1).await, [id]);
}

#[tokio::test]
async fn what_is_no_store_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("jobs.sqlite");
    std::fs::write(&file, "not a database, but long enough to be taken for one").unwrap();
    assert!(Store::sqlite(&file).await.is_err());
    assert!(Store::postgres("mysql://host/name").await.is_err());
}
