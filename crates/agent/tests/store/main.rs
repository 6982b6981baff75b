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
    a_request_that_is_sent_twice_makes_one_job,
    users_take_turns_within_the_limits,
    what_is_not_due_waits,
    whoever_is_gone_loses_what_it_had,
    one_that_runs_is_paused_by_its_agent,
    changes_come_in_their_order_and_pages_end,
    places_are_their_owners,
    an_end_is_sent_until_it_is_taken,
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
    // The store is not closed, as after a crash.
    let again = Store::sqlite(&file).await.unwrap();
    assert_eq!(again.take_lost(&Gone::All).await.unwrap(), 1);
    assert_eq!(claim(&again, 1).await, [id]);
}

#[tokio::test]
async fn what_is_no_store_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("jobs.sqlite");
    std::fs::write(&file, "not a database, but long enough to be taken for one").unwrap();
    assert!(Store::sqlite(&file).await.is_err());
    assert!(Store::postgres("mysql://host/name").await.is_err());
}
