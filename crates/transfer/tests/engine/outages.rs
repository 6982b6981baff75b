//! Outages. A copy waits for its server. If the server has lost the copy meanwhile, another one
//! replaces it in the same run.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use longhaul_transfer::store::confine::Dir;
use longhaul_transfer::*;

use crate::harness::*;

const SMALL_FILES: u64 = 30;
const LARGE: usize = 3_000_000;

fn options() -> WriteOptions {
    WriteOptions {
        resume: true,
        ..Default::default()
    }
}

fn tree(at: &Path) {
    std::fs::create_dir_all(at.join("d")).unwrap();
    for n in 0..SMALL_FILES {
        std::fs::write(at.join(format!("{n}")), noise(300, n)).unwrap();
    }
    std::fs::write(at.join("d/large"), noise(LARGE, 77)).unwrap();
}

/// Number of bytes in the tree's files.
const BYTES: u64 = SMALL_FILES * 300 + LARGE as u64;

/// Returns a bench whose server drops a copy immediately when its last stream is lost.
fn impatient_server() -> Bench {
    Bench::with(Limits {
        grace: Duration::from_secs(1),
        ..Limits::default()
    })
}

/// Returns pipes of which the first breaks `cut` bytes after the server's first answer, and the
/// next `attempts` do not open.
fn with_outage(bench: &Bench, cut: u64, attempts: usize) -> Pipes {
    let pipes = Pipes {
        counts_from_answer: true,
        ..bench.pipes()
    };
    let mut cuts = vec![0; attempts + 1];
    cuts[0] = cut;
    *pipes.cuts.lock() = cuts;
    pipes
}

fn count(run: &Run, is_it: impl Fn(&Event) -> bool) -> usize {
    run.events.iter().filter(|event| is_it(event)).count()
}

/// Checks the counts in the report of a copy.
fn check_counts(run: &Run) {
    let number = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let progress = &run.progress;
    assert_eq!(number(&progress.files_done), SMALL_FILES + 1);
    assert_eq!(number(&progress.bytes_done), BYTES);
    assert_eq!(number(&progress.bytes_found), BYTES);
    assert_eq!(number(&progress.failures), 0);
    assert_eq!(
        number(&progress.entries_done),
        number(&progress.entries_found)
    );
    // At most what had arrived without being answered counts as existing before.
    let there = number(&progress.bytes_unchanged) + number(&progress.bytes_resumed);
    assert!(there <= 8 * 256 * 1024, "{there}");
}

// LH-COPY-10, LH-COPY-27, LH-COPY-53.
#[tokio::test(start_paused = true)]
async fn copy_dropped_in_an_outage_is_replaced_in_the_same_run() {
    for way in [Way::Push, Way::Pull] {
        for cut in [1_000, 30_000, 1_500_000, 2_500_000] {
            let bench = impatient_server();
            let (from, _) = way.places(&bench);
            tree(&from);
            std::fs::create_dir(bench.root("d")).ok();
            let pipes = with_outage(&bench, cut, 20);
            // The first copy creates `d`. The second must not go beneath it.
            let (run, arrived) = match way {
                Way::Push => {
                    std::fs::remove_dir(bench.root("d")).unwrap();
                    let run = bench
                        .push(pipes, std::slice::from_ref(&from), "/d", options())
                        .await;
                    (run, bench.root("d"))
                }
                Way::Pull => (
                    bench.pull(pipes, &["s"], "d", options()).await,
                    bench.local("d"),
                ),
            };
            run.ok();
            let begun_again = count(&run, |event| matches!(event, Event::BegunAgain { .. }));
            assert_eq!(begun_again, 1, "{way:?} cut at {cut}: {:?}", run.events);
            assert_eq!(files(&arrived), files(&from), "{way:?} cut at {cut}");
            assert_no_temps(&arrived);
            check_counts(&run);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn outage_is_waited_out_and_reported_once() {
    let bench = Bench::new();
    tree(&bench.local("s"));
    // About fifteen seconds, which is less than the server keeps a copy.
    let run = bench
        .push(
            with_outage(&bench, 1_500_000, 6),
            &[bench.local("s")],
            "/d/",
            options(),
        )
        .await;
    run.ok();
    let waits = count(&run, |event| matches!(event, Event::Waiting { .. }));
    let backs = count(&run, |event| matches!(event, Event::Back { .. }));
    let begun_again = count(&run, |event| matches!(event, Event::BegunAgain { .. }));
    assert_eq!((waits, backs, begun_again), (1, 1, 0), "{:?}", run.events);
    assert_eq!(run.progress.silence(), None);
    check_counts(&run);
}

/// The server is restarted, and numbers the entries of its tree differently.
#[tokio::test(start_paused = true)]
async fn pull_detects_changes_during_an_outage() {
    let bench = Bench::new();
    tree(&bench.root("s"));
    let mut grants = Grants::default();
    grants.add(Access::Read, &key(1).to_string()).unwrap();
    let root = Dir::open(&bench.root("")).unwrap();
    let first = Pipes {
        server: Server::new(root, grants, Limits::default()),
        ..with_outage(&bench, 1_500_000, 0)
    };
    let new = bench.root("s/!first");
    let (tx, rx) = std::sync::mpsc::channel();
    *first.hook.lock() = Some((
        // Some of the bytes before the cut are read after it, or not at all.
        1_000_000,
        Box::new(move || {
            std::fs::write(new, "found by nobody yet").unwrap();
            tx.send(()).unwrap();
        }),
    ));
    let connector = Restarting::of(first, bench.pipes());
    let request = Request::Pull {
        recursive: true,
        sources: vec![rel("s")],
    };
    let (client, events, progress) = client(connector, request, Some(1), true, Compare::default());
    let names = vec![b"s".to_vec()];
    let target = bench.local("d");
    let destination = Destination::local(&target, names, options(), client.hello.token).unwrap();
    let result = client.pull(destination, vec!["s".into()]).await;
    let run = finish(result, events, progress).await;
    run.ok();
    rx.try_recv().unwrap();
    assert_eq!(files(&target), files(&bench.root("s")));
}

#[tokio::test(start_paused = true)]
async fn server_that_loses_every_copy_is_given_up() {
    let bench = impatient_server();
    std::fs::write(bench.local("f"), noise(LARGE, 7)).unwrap();
    let pipes = bench.pipes();
    // Each stream breaks at the same point, and the next one comes after the server has dropped the
    // copy.
    *pipes.cuts.lock() = (0..4000)
        .map(|n| if n % 8 == 0 { 200_000 } else { 0 })
        .collect();
    let from = [bench.local("f")];
    let copy = bench.push(pipes, &from, "/f", WriteOptions::default());
    let run = tokio::time::timeout(Duration::from_secs(3600), copy)
        .await
        .unwrap();
    assert!(
        matches!(run.result, Err(Error::CopyLost(_) | Error::StreamsLost(_))),
        "{:?}",
        run.result
    );
}
