//! Tests of the store, with SQLite and with PostgreSQL.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

#[allow(dead_code, reason = "shared with tests that use more of it")]
#[path = "../../api/tests/support/postgres.rs"]
mod postgres;
#[macro_use]
#[path = "../../api/tests/support/stores.rs"]
mod stores;

use longhaul_api::database::system_now;
use longhaul_control::store::measurements::{Ingest, StoredBatch, ingest};
use longhaul_control::store::retention::{LONG_SPAN, Retention, SHORT_SPAN};
use longhaul_control::store::{IdempotencyKey, StoreError};
use longhaul_control::{ControllerStore, authority};
use longhaul_control_api::map::Map;
use longhaul_control_api::measurements::{
    Conditions, Measurement, MeasurementQuery, Quantity, Source,
};
use longhaul_control_api::principals::{Constraint, Permission, Resource, Right};
use longhaul_control_api::transfers::{Outcome, TransferReport};
use longhaul_identity::PrincipalPattern::Key;
use longhaul_proto::PublicKey;
use tokio::sync::{mpsc, watch};

fn key(number: u8) -> PublicKey {
    PublicKey::from_bytes([number; 32])
}

fn measurement(from: &str, at_ms: u64, value: f64) -> Measurement {
    Measurement {
        from: from.to_owned(),
        to: "z".to_owned(),
        quantity: Quantity::Rate,
        at_ms,
        value,
        source: Source::Relay,
        conditions: Conditions::default(),
    }
}

fn kept(reporter: &str, measurements: &[Measurement]) -> StoredBatch {
    StoredBatch {
        reporter: reporter.to_owned(),
        measurements: measurements.to_vec(),
    }
}

/// Writer that runs until this is dropped.
struct Writing {
    ingest: Ingest,
    kept: mpsc::UnboundedReceiver<StoredBatch>,
    _end: watch::Sender<bool>,
}

fn writing(store: &ControllerStore) -> Writing {
    let (sender, kept) = mpsc::unbounded_channel();
    let (ingest, writer) = ingest(store.clone(), sender);
    let (end, ends) = watch::channel(false);
    tokio::spawn(writer.run(ends));
    Writing {
        ingest,
        kept,
        _end: end,
    }
}

async fn all(store: &ControllerStore) -> Vec<(i64, Measurement)> {
    let found = store
        .measurements(&MeasurementQuery::default(), None, 0, 100_000)
        .await
        .unwrap();
    found
        .into_iter()
        .map(|(number, kept)| (number, kept.measurement))
        .collect()
}

async fn principals_have_roles_and_lose_them(store: ControllerStore) {
    let (ana, ben) = (key(1), key(2));
    let before = store.changes().await.unwrap().by_operator;
    store.grant(&Key(ana), "depot", Some("a")).await.unwrap();
    store.grant(&Key(ana), "client", None).await.unwrap();
    store.grant(&Key(ana), "client", None).await.unwrap();
    store.grant(&Key(ben), "reader", None).await.unwrap();
    assert!(store.changes().await.unwrap().by_operator > before);
    let missing = store.grant(&Key(ben), "king", None).await.unwrap_err();
    assert!(matches!(missing, StoreError::Missing { .. }), "{missing}");
    let found = store.principals().await.unwrap();
    let of = |key: PublicKey| {
        let found = found
            .iter()
            .find(|principal| principal.key == key.to_string());
        found.map(|principal| (principal.name.clone(), principal.roles.join(" ")))
    };
    assert_eq!(of(ana), Some(("a".into(), "client depot".into())));
    // A principal without a name is named by the end of its key.
    let (name, roles) = of(ben).unwrap();
    assert!(ben.to_string().ends_with(&name) && roles == "reader");
    store.revoke(&Key(ana), Some("depot")).await.unwrap();
    assert!(store.revoke(&Key(ana), Some("depot")).await.is_err());
    store.revoke(&Key(ben), None).await.unwrap();
    let left = store.principals().await.unwrap();
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].roles, ["client"]);
}

async fn custom_roles_coexist_with_builtin_ones(store: ControllerStore) {
    let right = |constraint| Right {
        resource: Resource::Measurements,
        permission: Permission::Read,
        constraint,
        limits: None,
    };
    let at_site = right(Constraint::Site("denver".into()));
    assert!(
        store
            .put_role("local", std::slice::from_ref(&at_site))
            .await
            .unwrap()
    );
    assert!(
        !store
            .put_role("local", &[at_site.clone(), right(Constraint::Own)])
            .await
            .unwrap()
    );
    store.grant(&Key(key(1)), "local", None).await.unwrap();
    let authorities = store.authorities().await.unwrap();
    assert_eq!(
        authorities[&key(1).to_string()].1,
        [at_site, right(Constraint::Own)]
    );
    let names: Vec<String> = store
        .roles()
        .await
        .unwrap()
        .into_iter()
        .map(|role| role.name)
        .collect();
    assert_eq!(
        names,
        [
            "client", "depot", "local", "operator", "peer", "reader", "reserver"
        ]
    );
    store.remove_role("local").await.unwrap();
    assert!(store.remove_role("local").await.is_err());
    // A key without another role is no principal any more.
    assert!(store.principals().await.unwrap().is_empty());
    assert_eq!(store.roles().await.unwrap(), authority::builtin_roles());
}

async fn latest_map_is_returned(store: ControllerStore) {
    assert_eq!(store.map().await.unwrap(), Map::default());
    let map = |name: &str| -> Map {
        let text = format!(r#"{{"sites": [{{"name": "{name}"}}]}}"#);
        serde_json::from_str(&text).unwrap()
    };
    store.put_map(&map("a")).await.unwrap();
    store.put_map(&map("b")).await.unwrap();
    assert_eq!(store.map().await.unwrap(), map("b"));
}

async fn registration_replaces_the_previous_one(store: ControllerStore) {
    let registration = |sent_at: f64| {
        let text = format!(
            r#"{{"key": "{}", "name": "d", "addresses": [{{"endpoint": "d:7510"}}], "version": "1", "sent_at": {sent_at}, "valid_for_seconds": 90}}"#,
            key(1)
        );
        serde_json::from_str(&text).unwrap()
    };
    store.register(&registration(1.0), Some("d")).await.unwrap();
    store.register(&registration(2.0), Some("d")).await.unwrap();
    assert_eq!(store.registrations().await.unwrap(), [registration(2.0)]);
    store.unregister(&key(1)).await.unwrap();
    assert!(store.unregister(&key(1)).await.is_err());
    assert!(store.registrations().await.unwrap().is_empty());
}

async fn measurements_survive_a_round_trip_once(store: ControllerStore) {
    let mut writing = writing(&store);
    let mut with_conditions = measurement("a", 3, 1e9 / 3.0);
    with_conditions.conditions = Conditions {
        bytes: Some(u64::MAX >> 1),
        congestion: Some("cubic".into()),
        ..Conditions::default()
    };
    let batch = [
        measurement("a", 1, 10.0),
        measurement("a", 2, 20.0),
        with_conditions,
    ];
    let answer = writing.ingest.keep(kept("r", &batch), None).await.unwrap();
    assert_eq!((answer.kept, answer.duplicates), (3, 0));
    // The same batch again, with one more measurement, and one that is contained twice.
    let again = [
        measurement("a", 2, 99.0),
        measurement("a", 4, 4.0),
        measurement("a", 4, 5.0),
    ];
    let answer = writing.ingest.keep(kept("r", &again), None).await.unwrap();
    assert_eq!((answer.kept, answer.duplicates), (1, 2));
    // Measurements of another reporter are different ones.
    let answer = writing.ingest.keep(kept("s", &batch), None).await.unwrap();
    assert_eq!((answer.kept, answer.duplicates), (3, 0));
    let found = all(&store).await;
    assert_eq!(found.len(), 7);
    let values: Vec<Measurement> = found
        .iter()
        .take(3)
        .map(|(_, found)| found.clone())
        .collect();
    assert_eq!(values, batch);
    assert!(found.is_sorted_by_key(|(number, _)| *number));
    assert_eq!(writing.kept.recv().await.unwrap().measurements, batch);
}

async fn measurements_are_returned_in_pages(store: ControllerStore) {
    let writing = writing(&store);
    for from in ["a", "b"] {
        let batch: Vec<Measurement> = (0..10)
            .map(|at| measurement(from, 1000 + at, 1.0))
            .collect();
        writing.ingest.keep(kept(from, &batch), None).await.unwrap();
    }
    let ask = async |query: &MeasurementQuery, reporter| {
        let (mut after, mut found) = (0, Vec::new());
        loop {
            let page = store.measurements(query, reporter, after, 3).await.unwrap();
            let Some((last, _)) = page.last() else {
                return found;
            };
            after = *last;
            found.extend(page.into_iter().map(|(_, kept)| kept.measurement.at_ms));
        }
    };
    let all = MeasurementQuery::default();
    assert_eq!(ask(&all, None).await.len(), 20);
    assert_eq!(ask(&all, Some("a")).await.len(), 10);
    let some = MeasurementQuery {
        from: Some("b".into()),
        since_ms: Some(1004),
        before_ms: Some(1007),
        quantity: Some(Quantity::Rate),
        ..all.clone()
    };
    assert_eq!(ask(&some, None).await, [1004, 1005, 1006]);
    let none = MeasurementQuery {
        quantity: Some(Quantity::Loss),
        ..all
    };
    assert!(ask(&none, None).await.is_empty());
}

async fn repeated_request_gets_the_first_answer(store: ControllerStore) {
    let writing = writing(&store);
    let batch = [measurement("a", 1, 1.0)];
    let once = IdempotencyKey::new("r", "first", b"content");
    let keep = |once: IdempotencyKey| writing.ingest.keep(kept("r", &batch), Some(once));
    let first = keep(once.clone()).await.unwrap();
    assert_eq!((first.kept, keep(once.clone()).await.unwrap()), (1, first));
    // With another idempotency key it is another request, but its measurements exist already.
    assert_eq!(
        keep(IdempotencyKey::new("r", "second", b"content"))
            .await
            .unwrap()
            .duplicates,
        1
    );
    let reused = keep(IdempotencyKey::new("r", "first", b"other"))
        .await
        .unwrap_err();
    assert!(matches!(reused, StoreError::KeyReused(_)), "{reused}");
    // Another principal has other keys.
    assert!(
        keep(IdempotencyKey::new("s", "first", b"other"))
            .await
            .is_ok()
    );
}

/// Many concurrent batches, some of them equal: each measurement is stored once, and the answers
/// add up.
async fn concurrent_batches_are_stored_once(store: ControllerStore) {
    let writing = writing(&store);
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..16_u64 {
        let ingest = writing.ingest.clone();
        tasks.spawn(async move {
            let mut new = 0;
            for round in 0..10 {
                let at = round * 1000 + (task % 8) * 100;
                let batch: Vec<Measurement> = (0..60)
                    .map(|next| measurement("a", at + next, 1.0))
                    .collect();
                new += ingest.keep(kept("r", &batch), None).await.unwrap().kept;
            }
            new
        });
    }
    let new: usize = tasks.join_all().await.into_iter().sum();
    assert_eq!(new, 8 * 10 * 60);
    assert_eq!(
        usize::try_from(store.count_measurements().await.unwrap()),
        Ok(new)
    );
}

async fn old_measurements_are_summarized_then_removed(store: ControllerStore) {
    let writing = writing(&store);
    let now = u64::try_from(system_now()).unwrap();
    // At the beginning of an hour, so that all values are in one span of each length.
    let hour = now / 3_600_000 * 3_600_000 - 48 * 3_600_000;
    let old: Vec<Measurement> = (0..100_u32)
        .map(|next| measurement("a", hour + u64::from(next) * 6_000, f64::from(next)))
        .collect();
    writing.ingest.keep(kept("r", &old), None).await.unwrap();
    let new = measurement("a", now, 7.0);
    writing
        .ingest
        .keep(kept("r", std::slice::from_ref(&new)), None)
        .await
        .unwrap();
    let keep = |single, short, long| Retention {
        single,
        short,
        long,
        reports: 1,
    };
    let run = async |retention: Retention| while store.forget(&retention).await.unwrap() {};
    let day = 86_400;
    run(keep(day, 100 * day, 100 * day)).await;
    assert_eq!(
        all(&store)
            .await
            .into_iter()
            .map(|(_, found)| found)
            .collect::<Vec<_>>(),
        [new]
    );
    let ask = async || {
        store
            .summaries(&MeasurementQuery::default(), None, 0, 100)
            .await
            .unwrap()
    };
    let shorts = ask().await;
    let spans: Vec<(u64, u64, f64, f64, f64)> = shorts
        .iter()
        .map(|found| {
            (
                found.at_ms - hour,
                found.count,
                found.least,
                found.mean,
                found.greatest,
            )
        })
        .collect();
    assert_eq!(
        spans,
        [(0, 50, 0.0, 24.5, 49.0), (300_000, 50, 50.0, 74.5, 99.0)]
    );
    assert!(
        shorts
            .iter()
            .all(|found| i64::try_from(found.span_s) == Ok(SHORT_SPAN))
    );
    run(keep(day, day, 100 * day)).await;
    let longs = ask().await;
    assert_eq!(longs.len(), 1);
    let long = &longs[0];
    assert_eq!(
        (long.at_ms, long.count, long.least, long.greatest),
        (hour, 100, 0.0, 99.0)
    );
    assert!((long.mean - 49.5).abs() < 1e-9 && i64::try_from(long.span_s) == Ok(LONG_SPAN));
    run(keep(day, day, day)).await;
    assert!(ask().await.is_empty());
    // A late value is added to an existing summary.
    run(keep(0, 100 * day, 100 * day)).await;
    writing
        .ingest
        .keep(kept("r", &[measurement("a", now + 1, 9.0)]), None)
        .await
        .unwrap();
    // With no retention, a measurement is old at once.
    while store.count_measurements().await.unwrap() > 0 {
        run(keep(0, 100 * day, 100 * day)).await;
    }
    assert_eq!(ask().await.iter().map(|found| found.count).sum::<u64>(), 2);
}

async fn a_report_counts_once(store: ControllerStore) {
    let report = |id: &str| TransferReport {
        id: id.to_owned(),
        from: Some("a".into()),
        to: Some("b".into()),
        bytes: 5,
        began_ms: 1,
        seconds: 2.5,
        outcome: Outcome::Done,
        promised: None,
        routes: Vec::new(),
        error: None,
    };
    assert!(store.keep_report("r", &report("1")).await.unwrap());
    assert!(!store.keep_report("r", &report("1")).await.unwrap());
    assert!(store.keep_report("s", &report("1")).await.unwrap());
    assert!(store.keep_report("r", &report("2")).await.unwrap());
    let ids = |found: Vec<(i64, longhaul_control_api::transfers::KeptReport)>| -> Vec<String> {
        found
            .into_iter()
            .map(|(_, kept)| format!("{}{}", kept.reporter, kept.report.id))
            .collect()
    };
    assert_eq!(
        ids(store.reports(None, 0, 10).await.unwrap()),
        ["r1", "s1", "r2"]
    );
    assert_eq!(
        ids(store.reports(Some("r"), 0, 10).await.unwrap()),
        ["r1", "r2"]
    );
    assert_eq!(ids(store.newest_reports(2).await.unwrap()), ["s1", "r2"]);
    let first = store.reports(None, 0, 1).await.unwrap()[0].0;
    assert_eq!(
        ids(store.reports(None, first, 10).await.unwrap()),
        ["s1", "r2"]
    );
    assert_eq!(store.forget_reports(system_now() + 1000).await.unwrap(), 3);
}

on_both!(
    ControllerStore: principals_have_roles_and_lose_them,
    custom_roles_coexist_with_builtin_ones,
    latest_map_is_returned,
    registration_replaces_the_previous_one,
    measurements_survive_a_round_trip_once,
    measurements_are_returned_in_pages,
    repeated_request_gets_the_first_answer,
    concurrent_batches_are_stored_once,
    old_measurements_are_summarized_then_removed,
    a_report_counts_once,
);

#[tokio::test]
async fn stored_data_survives_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("control.sqlite");
    let store = ControllerStore::sqlite(&file).await.unwrap();
    let first = writing(&store);
    first
        .ingest
        .keep(kept("r", &[measurement("a", 1, 1.0)]), None)
        .await
        .unwrap();
    // The store is not closed, as after a crash. New measurements continue the same series.
    let again = ControllerStore::sqlite(&file).await.unwrap();
    let second = writing(&again);
    let batch = [measurement("a", 1, 1.0), measurement("a", 2, 1.0)];
    let answer = second.ingest.keep(kept("r", &batch), None).await.unwrap();
    assert_eq!((answer.kept, answer.duplicates), (1, 1));
    assert_eq!(all(&again).await.len(), 2);
}
