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

use longhaul_agent::jobs::JobLimits;
use longhaul_agent::store::{Holder, LostAgents};
use longhaul_agent::{JobRequest, JobStore};
use longhaul_copy_api::CopyOptions;

use jobs::*;
use notices::*;
use parts::*;

const LEASE: i64 = 20_000;
const LIMITS: JobLimits = JobLimits {
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

async fn submit(store: &JobStore, user: &str, destination: &str) -> i64 {
    store
        .submit(user, &request(destination), None, None)
        .await
        .unwrap()
        .0
        .id
}

async fn claim(store: &JobStore, room: usize) -> Vec<i64> {
    let claimed = store
        .claim(holder("agent"), room, &LIMITS, LEASE)
        .await
        .unwrap();
    claimed.iter().map(|kept| kept.job.id).collect()
}

on_both!(
    JobStore: a_job_lives_and_ends,
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
    let store = JobStore::sqlite(&file).await.unwrap();
    let id = submit(&store, "ana", "dtn:/a").await;
    claim(&store, 1).await;
    // The store is not closed, as after a crash.
    let again = JobStore::sqlite(&file).await.unwrap();
    assert_eq!(again.recover_lost(&LostAgents::All).await.unwrap(), 1);
    assert_eq!(claim(&again, 1).await, [id]);
}

/// The request of a job, as earlier releases stored it.
const EARLIER_REQUEST: &str = r#"{"sources":["/data"],"destination":"dtn:/a","options":{
    "recursive":true,"overwrite":false,"fsync":false,"no_resume":false,"no_encrypt":false,
    "checksum":false,"hard_links":true,"fall_back":false,"accept_new":false,"bootstrap":true,
    "routes":["direct","one.example:7510,~two.example:7510"],"source_addresses":["192.0.2.1"],
    "by":"2100-01-01T00:00:00Z","reserve":"2000000000","streams":3,"congestion":"bbr",
    "host_key":null,"identity":"/key","port_range":"5000-5010","ssh_port":2222,"ssh_key":"/id",
    "ssh_config":null,"ssh_jump":"jump","ssh_options":["User=x"],"ssh_program":null,"ipv4":true,
    "ipv6":false},"label":null,"priority":0,"not_before":null,"on_end":null}"#;

#[tokio::test]
async fn jobs_of_earlier_releases_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("jobs.sqlite");
    let store = JobStore::sqlite(&file).await.unwrap();
    let request: JobRequest = serde_json::from_str(EARLIER_REQUEST).unwrap();
    let (job, _) = store
        .submit("ana", &request, None, Some("key"))
        .await
        .unwrap();
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(&file);
    let raw = sqlx::SqlitePool::connect_with(options).await.unwrap();
    for update in [
        "UPDATE jobs SET request = ?",
        "UPDATE request_keys SET request = ?",
    ] {
        sqlx::query(update)
            .bind(EARLIER_REQUEST)
            .execute(&raw)
            .await
            .unwrap();
    }
    let kept = store.job(job.id).await.unwrap().job;
    assert_eq!(kept.request, request);
    assert_eq!(
        kept.arguments().join(" "),
        "--recursive --hard-links --route=direct --route=one.example:7510,~two.example:7510 \
         --source=192.0.2.1 --streams=3 --congestion=bbr --identity=/key \
         --by=2100-01-01T00:00:00Z --reserve=2000000000 --bootstrap --port-range=5000-5010 -P2222 \
         -i/id -Jjump -oUser=x -4 -- /data dtn:/a"
    );
    let again = store
        .submit("ana", &request, None, Some("key"))
        .await
        .unwrap();
    assert_eq!((again.0.id, again.1), (job.id, false));
}

#[tokio::test]
async fn file_that_is_no_store_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("jobs.sqlite");
    std::fs::write(&file, "not a database, but long enough to be taken for one").unwrap();
    assert!(JobStore::sqlite(&file).await.is_err());
    assert!(JobStore::postgres("mysql://host/name").await.is_err());
}
