//! Number of round trips of a copy over a long path, in virtual time: from the open stream to the
//! verified end.

use std::path::Path;
use std::time::Duration;

use longhaul_transfer::*;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::harness::*;

const ONE_WAY: Duration = Duration::from_millis(60);
/// Tolerance for timers, which tick in milliseconds. It is far less than another round trip.
const SLACK: Duration = Duration::from_millis(20);

fn tree(at: &Path) {
    std::fs::create_dir_all(at.join("a/b/c/d")).unwrap();
    std::fs::write(at.join("a/b/c/d/deep"), "deep").unwrap();
    std::fs::write(at.join("16k"), noise(16 * 1024, 1)).unwrap();
    std::fs::write(at.join("900k"), noise(900_000, 2)).unwrap();
}

// LH-COPY-9: the client does not wait for ACCEPT. LH-COPY-31: nor for the server to close.
#[tokio::test(start_paused = true)]
async fn copy_costs_one_round_trip_beyond_the_session() {
    let bench = Bench::new();
    tree(&bench.local("s"));
    tree(&bench.root("s"));
    for what in ["s/16k", "s/900k", "s"] {
        let pipes = || Pipes {
            one_way: ONE_WAY,
            ..bench.pipes()
        };
        let started = Instant::now();
        let to = format!("/pushed-{}", what.len());
        let run = bench
            .push(pipes(), &[bench.local(what)], &to, WriteOptions::default())
            .await;
        let elapsed = run.ended - started;
        run.ok();
        assert!(
            elapsed >= ONE_WAY * 2 && elapsed < ONE_WAY * 2 + SLACK,
            "push of {what}: {elapsed:?}"
        );
        let started = Instant::now();
        let to = format!("pulled-{}", what.len());
        let run = bench
            .pull(pipes(), &[what], &to, WriteOptions::default())
            .await;
        let elapsed = run.ended - started;
        run.ok();
        assert!(
            elapsed >= ONE_WAY * 2 && elapsed < ONE_WAY * 2 + SLACK,
            "pull of {what}: {elapsed:?}"
        );
    }
}

// LH-COPY-31: the last message of a pull is sent on several streams, so the copy does not wait for
// a stream that ends late.
#[tokio::test(start_paused = true)]
async fn late_stream_costs_a_pull_no_round_trip() {
    let bench = Bench::new();
    std::fs::write(bench.root("large"), noise(3 << 20, 3)).unwrap();
    // Nothing passes over the last of three pipes.
    let pipes = Pipes {
        one_way: ONE_WAY,
        cuts: Mutex::new(vec![u64::MAX, u64::MAX, 1]),
        stalls: true,
        ..bench.pipes()
    };
    let request = Request::Pull {
        recursive: false,
        sources: vec![rel("large")],
    };
    let (client, events, _) = client(pipes, request, Some(3), false, bench.compare);
    let options = WriteOptions::default();
    let destination = Destination::local(
        &bench.local("large"),
        vec![b"large".to_vec()],
        options,
        client.hello.token,
    )
    .unwrap();
    let outcome = client
        .pull(destination, vec!["large".into()])
        .await
        .unwrap();
    let reported = Instant::now();
    outcome.closing.join_all().await;
    assert!(reported.elapsed() < ONE_WAY, "{:?}", reported.elapsed());
    assert_eq!(events.streams_lost(), 0);
    assert_eq!(
        std::fs::read(bench.local("large")).unwrap(),
        noise(3 << 20, 3)
    );
}
