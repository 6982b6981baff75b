//! Measures how many measurements per second are stored on disk and acknowledged: in SQLite, and in
//! the given PostgreSQL.
//!
//! `cargo run --release -p longhaul-control --example ingest_rate -- [SECONDS] [POSTGRESQL-URL]`;
//! the file is created in the working directory and removed.

#![allow(
    clippy::unwrap_used,
    reason = "a measurement that cannot go on has failed"
)]

use std::path::Path;
use std::time::{Duration, Instant};

use longhaul_control::Store;
use longhaul_control::store::measurements::{Ingest, Kept, ingest};
use longhaul_control_api::measurements::{Conditions, Limit, Measurement, Quantity, Source};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

/// Number of concurrent reporters, each of which waits for its answer.
const REPORTERS: u64 = 32;
/// Number of measurements in a batch.
const BATCH: u64 = 100;
/// Number of paths that a reporter measures.
const PATHS: u64 = 50;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let seconds = arguments.next().map_or(10, |text| text.parse().unwrap());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let dir = Path::new("ingest-rate.tmp");
        std::fs::create_dir_all(dir).unwrap();
        let sqlite = Store::sqlite(&dir.join("control.sqlite")).await.unwrap();
        measure("SQLite", sqlite, seconds).await;
        std::fs::remove_dir_all(dir).unwrap();
        if let Some(url) = arguments.next() {
            measure("PostgreSQL", Store::postgres(&url).await.unwrap(), seconds).await;
        }
    });
}

async fn measure(name: &str, store: Store, seconds: u64) {
    let (sender, _hears) = mpsc::unbounded_channel();
    let (ingest, writer) = ingest(store.clone(), sender);
    let (end, ends) = watch::channel(false);
    let writer = tokio::spawn(writer.run(ends));
    let began = Instant::now();
    let until = began + Duration::from_secs(seconds);
    let mut reporters = JoinSet::new();
    for reporter in 0..REPORTERS {
        reporters.spawn(report(ingest.clone(), reporter, until));
    }
    let waits: Vec<Duration> = reporters.join_all().await.into_iter().flatten().collect();
    let took = began.elapsed().as_secs_f64();
    let acknowledged = u64::try_from(waits.len()).unwrap() * BATCH;
    let mut sorted = waits;
    sorted.sort();
    let quantile = |share: usize| {
        sorted
            .get(sorted.len() * share / 100)
            .copied()
            .unwrap_or_default()
    };
    println!(
        "{name}: {:.0} measurements/s acknowledged; a batch of {BATCH} waits {:.1} ms (median), \
        {:.1} ms (p99)",
        acknowledged as f64 / took,
        quantile(50).as_secs_f64() * 1e3,
        quantile(99).as_secs_f64() * 1e3,
    );
    let kept = store.count_measurements().await.unwrap();
    assert!(
        u64::try_from(kept).unwrap() >= acknowledged,
        "{kept} kept of {acknowledged}"
    );
    end.send_replace(true);
    writer.await.unwrap();
    store.close().await;
}

/// Reports batches until `until`, and returns the wait of each.
async fn report(ingest: Ingest, reporter: u64, until: Instant) -> Vec<Duration> {
    let mut waits = Vec::new();
    let mut at_ms = 1_800_000_000_000;
    while Instant::now() < until {
        let measurements = (0..BATCH).map(|next| {
            at_ms += 1;
            Measurement {
                from: format!("depot-{reporter}"),
                to: format!("depot-{}", next % PATHS),
                quantity: Quantity::Rate,
                at_ms,
                value: 1e9 + next as f64,
                source: Source::Relay,
                conditions: Conditions {
                    bytes: Some(1 << 30),
                    streams: Some(4),
                    limit: Some(Limit::Path),
                    ..Conditions::default()
                },
            }
        });
        let kept = Kept {
            reporter: format!("reporter-{reporter}"),
            measurements: measurements.collect(),
        };
        let began = Instant::now();
        let answer = ingest.keep(kept, None).await.unwrap();
        assert_eq!(answer.duplicates, 0);
        waits.push(began.elapsed());
    }
    waits
}
