//! Tests of the store, with SQLite and with PostgreSQL.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod jobs;
mod notices;
mod parts;
#[allow(dead_code, reason = "shared with tests that use more of it")]
#[path = "../../../api/tests/support/postgres.rs"]
mod postgres;
#[macro_use]
#[path = "../../../api/tests/support/stores.rs"]
mod stores;

use longhaul_agent::store::{Gone, Holder};
use longhaul_agent::{CopyOptions, JobRequest, Store};
use longhaul_jobs::Limits;

use jobs::*;
use notices::*;
use parts::*;

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
    Holder {
        name,
        instance: name,
    }
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
    let claimed = store
        .claim(holder("agent"), room, &LIMITS, LEASE)
        .await
        .unwrap();
    claimed.iter().map(|kept| kept.job.id).collect()
}

on_both!(
    a_job_lives_and_ends,
    repeated_submission_creates_one_job,
    users_take_turns_within_the_limits,
    jobs_wait_until_they_are_due,
    jobs_of_a_lost_agent_are_requeued,
    running_job_is_paused_by_its_agent,
    changes_are_ordered_and_pages_end,
    places_belong_to_their_owner,
    notice_is_sent_until_it_is_accepted,
    no_job_is_claimed_twice,
    agents_share_parts_and_the_job_runs_last,
    changes_of_a_split_job_apply_to_its_parts,
    concurrent_changes_of_parts_are_consistent,
);

#[tokio::test]
async fn stored_data_survives_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("jobs.sqlite");
    let store = Store::sqlite(&file).await.unwrap();
    let id = submit(&store, "ana", "dtn:/a").await;
    claim(&store, 1).await;
    // The store is not closed, as after a crash.
    let again = Store::sqlite(&file).await.unwrap();
    assert_eq!(again.take_lost(&Gone::All).await.unwrap(), 1);
    assert_eq!(claim(&again, 1).await, [id]);
}

#[tokio::test]
async fn file_that_is_no_store_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("jobs.sqlite");
    std::fs::write(&file, "not a database, but long enough to be taken for one").unwrap();
    assert!(Store::sqlite(&file).await.is_err());
    assert!(Store::postgres("mysql://host/name").await.is_err());
}
