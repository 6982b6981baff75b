//! Tests of notices of ended jobs.

use longhaul_agent::jobs::JobEvent;
use longhaul_agent::{JobRequest, JobStore};

use crate::{request, submit};

/// Creates an ended job whose end is reported to that URL.
async fn end_of_one_reported(store: &JobStore, url: &str) -> i64 {
    let request = JobRequest {
        on_end_url: Some(url.into()),
        ..request("dtn:/told")
    };
    let id = store
        .submit("ana", &request, None, None)
        .await
        .unwrap()
        .0
        .id;
    store.apply_event(id, JobEvent::Cancel).await.unwrap();
    id
}

pub async fn notice_is_sent_until_it_is_accepted(store: JobStore) {
    let take = async |room| store.take_notices(room, 2, 60_000).await.unwrap();
    // Jobs without an end or without a URL have no notice.
    let unreported = submit(&store, "ana", "dtn:/a").await;
    store
        .apply_event(unreported, JobEvent::Cancel)
        .await
        .unwrap();
    assert!(take(10).await.is_empty());
    assert_eq!(store.next_notice().await.unwrap(), None);
    let id = end_of_one_reported(&store, "https://one.example/hook").await;
    // The notice outlives the job, and has its final state.
    store.forget(id).await.unwrap();
    let first = take(10).await.remove(0);
    let reported: serde_json::Value = serde_json::from_str(&first.body).unwrap();
    assert_eq!(
        (reported["id"].as_i64(), reported["state"].as_str()),
        (Some(id), Some("cancelled"))
    );
    assert_eq!(
        (first.job, first.attempts, first.url.as_str()),
        (id, 1, "https://one.example/hook")
    );
    // The notice is being sent.
    assert!(take(10).await.is_empty());
    assert!(store.next_notice().await.unwrap().unwrap() > 0);
    store.retry_notice(&first, 0).await.unwrap();
    let second = take(10).await.remove(0);
    assert_eq!(
        (second.id.as_str(), second.attempts),
        (first.id.as_str(), 2)
    );
    // An agent that uses the store alone knows that no other one is sending it.
    store.requeue_notices().await.unwrap();
    let second = take(10).await.remove(0);
    assert_eq!(second.attempts, 3);
    // A sender that was considered lost can no longer postpone it.
    store.retry_notice(&first, -1).await.unwrap();
    assert!(take(10).await.is_empty());
    store.remove_notice(&second.id).await.unwrap();
    assert_eq!(store.next_notice().await.unwrap(), None);
    // One receiver does not block the others, and each end is reported separately.
    for _ in 0..4 {
        end_of_one_reported(&store, "https://one.example/hook").await;
    }
    let other = end_of_one_reported(&store, "http://other.example/").await;
    let (taken, more) = (take(10).await, take(10).await);
    let jobs: Vec<i64> = taken.iter().map(|notice| notice.job).collect();
    assert!(jobs.len() == 3 && jobs.contains(&other), "{jobs:?}");
    assert_eq!(more.len(), 2);
    let mut ids: Vec<String> = taken
        .into_iter()
        .chain(more)
        .map(|notice| notice.id)
        .collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 5);
    // A split job has one notice: its own.
    let split = JobRequest {
        on_end_url: Some("http://third.example/".into()),
        split: Some(3),
        ..request("dtn:/told/")
    };
    let whole = store.submit("ana", &split, None, None).await.unwrap().0.id;
    store.apply_event(whole, JobEvent::Cancel).await.unwrap();
    let reported = take(10).await;
    assert_eq!(
        reported.iter().map(|notice| notice.job).collect::<Vec<_>>(),
        [whole]
    );
    store.close().await;
}
