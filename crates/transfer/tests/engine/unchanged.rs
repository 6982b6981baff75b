//! Existing files do not travel: they are offered before their data, and compared by size and time
//! or by content. In both directions.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use longhaul_transfer::*;
use tokio::time::Instant;

use crate::harness::Way::{Pull, Push};
use crate::harness::*;

const FILES: u64 = 600;
const FILE: u64 = 4096;
const LARGE: u64 = 5 << 20;
/// Maximum number of bytes that a pushing client sends before it learns that files exist, plus one
/// batch.
const BEFORE_ANSWER: u64 = (1 << 20) + (512 << 10) + FILE;

fn overwriting() -> WriteOptions {
    WriteOptions {
        overwrite: true,
        resume: true,
        ..Default::default()
    }
}

/// Creates small files in directories, and a large one.
fn tree(at: &Path) {
    for n in 0..FILES {
        let dir = at.join(format!("d{}", n / 100));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join(format!("f{n}")), noise(FILE as usize, n)).unwrap();
    }
    std::fs::write(at.join("d0/large"), noise(LARGE as usize, 77)).unwrap();
    std::fs::write(at.join("empty"), "").unwrap();
    std::os::unix::fs::symlink("d0", at.join("link")).unwrap();
}

/// Returns the bytes of file data that a copy carried.
fn carried(run: &Run) -> u64 {
    let streams = run.progress.streams();
    streams
        .iter()
        .map(|stream| stream.bytes.load(Ordering::Relaxed))
        .sum()
}

fn unchanged(run: &Run) -> (u64, u64) {
    let progress = &run.progress;
    (
        progress.files_unchanged.load(Ordering::Relaxed),
        progress.bytes_unchanged.load(Ordering::Relaxed),
    )
}

/// Returns the names of the files that travelled.
fn travelled(run: &Run) -> Vec<String> {
    let name = |event: &Event| match event {
        Event::Done {
            path,
            bytes: Some(_),
            same: false,
            ..
        } => path.rsplit('/').next().map(str::to_owned),
        _ => None,
    };
    let mut names: Vec<String> = run.events.iter().filter_map(name).collect();
    names.sort();
    names
}

/// Returns the maximum number of bytes that travel of an existing tree.
fn bound(way: Way) -> u64 {
    match way {
        Push => BEFORE_ANSWER,
        Pull => 0,
    }
}

// LH-COPY-39, LH-COPY-41.
#[tokio::test(start_paused = true)]
async fn existing_tree_costs_round_trips_and_no_data() {
    let one_way = Duration::from_millis(60);
    for way in [Push, Pull] {
        let bench = Bench::new();
        let (from, to) = way.places(&bench);
        tree(&from);
        let pipes = || Pipes {
            one_way,
            ..bench.pipes()
        };
        let first = way.copy(&bench, pipes(), WriteOptions::default()).await;
        assert_eq!(unchanged(first.ok()), (0, 0));
        assert_eq!(describe(&to), describe(&from));
        let again = pipes();
        let passed = again.carried.clone();
        let started = Instant::now();
        let run = way.copy(&bench, again, WriteOptions::default()).await;
        let took = run.ended - started;
        run.ok();
        assert!(
            took <= one_way * 4 + Duration::from_millis(30),
            "{way:?}: {took:?}"
        );
        assert!(carried(&run) <= bound(way), "{way:?}: {}", carried(&run));
        let passed = passed.load(Ordering::SeqCst);
        assert!(
            passed <= bound(way) + 300 * FILES,
            "{way:?}: {passed} passed"
        );
        let (count, bytes) = unchanged(&run);
        let whole = FILES * FILE + LARGE;
        assert!(bytes + carried(&run) >= whole, "{way:?}: {bytes}");
        assert!(count <= FILES + 2 && bytes <= whole);
        if way == Pull {
            assert_eq!((count, bytes), (FILES + 2, whole));
        }
        assert_eq!(run.progress.bytes_done.load(Ordering::Relaxed), whole);
        assert_eq!(travelled(&run), [""; 0], "all of it is the same");
        assert_eq!(files(&to), files(&from));
        if way == Pull {
            assert_eq!(describe(&to), describe(&from), "no directory was touched");
        }
        assert_no_temps(bench.tmp.path());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn existing_large_file_stops_at_the_first_answer() {
    for way in [Push, Pull] {
        let bench = Bench::new();
        let (from, to) = way.places(&bench);
        std::fs::write(&from, noise(24 << 20, 1)).unwrap();
        std::fs::create_dir(to.parent().unwrap()).unwrap();
        way.copy(&bench, bench.pipes(), overwriting()).await.ok();
        let inode = std::fs::metadata(&to).unwrap().ino();
        let run = way.copy(&bench, bench.pipes(), overwriting()).await;
        run.ok();
        assert!(carried(&run) <= bound(way), "{way:?}: {}", carried(&run));
        assert_eq!(unchanged(&run), (1, 24 << 20));
        assert_eq!(run.progress.bytes_done.load(Ordering::Relaxed), 24 << 20);
        let now = std::fs::metadata(&to).unwrap().ino();
        assert_eq!(now, inode, "left alone");
        assert_no_temps(bench.tmp.path());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_differ_in_size_or_time_travel() {
    for way in [Push, Pull] {
        let bench = Bench::new();
        let (from, to) = way.places(&bench);
        tree(&from);
        way.copy(&bench, bench.pipes(), WriteOptions::default())
            .await
            .ok();
        // A touched file, one that grew and has its old time, one replaced with the same size and
        // another time, one that is one nanosecond newer, and a new one.
        set_mtime(&from.join("d0/f1"), 1_000_000_000, 5);
        let before = std::fs::metadata(from.join("d0/f2")).unwrap();
        std::fs::write(from.join("d0/f2"), noise(FILE as usize + 1, 2)).unwrap();
        set_mtime(&from.join("d0/f2"), before.mtime(), before.mtime_nsec());
        std::fs::write(from.join("d5/f599"), noise(FILE as usize, 9)).unwrap();
        set_mtime(&from.join("d5/f599"), 1_000_000_000, 5);
        let f100 = std::fs::metadata(from.join("d1/f100")).unwrap();
        let nanos = (f100.mtime_nsec() + 1) % 1_000_000_000;
        set_mtime(&from.join("d1/f100"), f100.mtime(), nanos);
        std::fs::write(from.join("d1/new"), "new").unwrap();
        std::fs::write(from.join("d0/large"), noise(LARGE as usize, 78)).unwrap();
        set_mtime(&from.join("d0/large"), 1_000_000_001, 0);
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(from.join("d3/f300"), permissions).unwrap();
        let run = way.copy(&bench, bench.pipes(), overwriting()).await;
        run.ok();
        let names = travelled(&run);
        for name in ["f1", "f2", "f100", "f599", "new", "large"] {
            assert!(
                names.iter().any(|one| one == name),
                "{way:?}: {name} in {names:?}"
            );
        }
        if way == Pull {
            assert_eq!(names, ["f1", "f100", "f2", "f599", "large", "new"]);
            assert_eq!(carried(&run), 4 * FILE + 1 + 3 + LARGE);
        }
        assert_eq!(files(&to), files(&from), "{way:?}");
    }
}

// LH-COPY-42: here both ends know the content, so the record is that of a copy that moved it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn content_is_compared_on_request() {
    for way in [Push, Pull] {
        let mut bench = Bench::new();
        let (from, to) = way.places(&bench);
        tree(&from);
        let first = way
            .copy(&bench, bench.pipes(), WriteOptions::default())
            .await;
        // Different content with the same size and time, and the same content at another time.
        for (n, path) in (0..).zip(["d0/f7", "d0/large"]) {
            let meta = std::fs::metadata(to.join(path)).unwrap();
            std::fs::write(to.join(path), noise(meta.len() as usize, 1000 + n)).unwrap();
            set_mtime(&to.join(path), meta.mtime(), meta.mtime_nsec());
        }
        set_mtime(&from.join("d2/f200"), 1_000_000_000, 5);
        if way == Pull {
            let run = way.copy(&bench, bench.pipes(), overwriting()).await;
            assert_eq!(travelled(run.ok()), ["f200"], "nothing is read");
            set_mtime(&from.join("d2/f200"), 1_000_000_002, 5);
        }
        bench.compare = Compare::Content;
        let refused = way
            .copy(&bench, bench.pipes(), WriteOptions::default())
            .await;
        let exists = |name: &str| (name.to_owned(), FailureKind::Exists);
        assert_eq!(
            refused.failures(),
            [exists("f7"), exists("large")],
            "{way:?}"
        );
        assert_eq!(carried(&refused), 0);
        let run = way.copy(&bench, bench.pipes(), overwriting()).await;
        assert_eq!(travelled(run.ok()), ["f7", "large"], "{way:?}");
        assert_eq!(carried(&run), FILE + LARGE);
        assert_eq!(unchanged(&run), (FILES, (FILES - 1) * FILE));
        assert_eq!(run.result.as_ref().unwrap(), first.result.as_ref().unwrap());
        assert_eq!(files(&to), files(&from), "{way:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn irreplaceable_entries_are_reported_without_data() {
    for way in [Push, Pull] {
        let bench = Bench::new();
        let (from, to) = way.places(&bench);
        std::fs::create_dir_all(&from).unwrap();
        std::fs::create_dir_all(to.join("dir")).unwrap();
        for name in ["dir", "large", "link"] {
            std::fs::write(from.join(name), noise(3 << 20, 5)).unwrap();
        }
        std::fs::write(to.join("large"), "short").unwrap();
        std::os::unix::fs::symlink("large", to.join("link")).unwrap();
        let run = way
            .copy(&bench, bench.pipes(), WriteOptions::default())
            .await;
        assert!(run.result.is_ok());
        let failed = |name: &str, kind| (name.to_owned(), kind);
        assert_eq!(
            run.failures(),
            [
                failed("dir", FailureKind::WrongKind),
                failed("large", FailureKind::Exists),
                failed("link", FailureKind::Exists)
            ]
        );
        assert!(carried(&run) <= bound(way), "{way:?}: {}", carried(&run));
        assert_eq!(std::fs::read(to.join("large")).unwrap(), b"short");
    }
}

// LH-COPY-39: a key without read access is told that nothing exists.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn write_only_key_does_not_learn_what_exists() {
    let bench = Bench::new();
    std::fs::create_dir(bench.root("in")).unwrap();
    std::fs::write(bench.local("s"), noise(LARGE as usize, 1)).unwrap();
    let from = [bench.local("s")];
    let push = || bench.push(bench.pipes_of(2), &from, "/in/", overwriting());
    let first = push().await;
    let again = push().await;
    assert_eq!(carried(again.ok()), carried(first.ok()));
    assert_eq!(unchanged(&again), (0, 0));
    assert_eq!(travelled(&again), ["s"]);
}

#[tokio::test(start_paused = true)]
async fn stream_lost_between_offer_and_answer_loses_nothing() {
    for (way, compare) in [
        (Push, Compare::SizeAndTime),
        (Pull, Compare::SizeAndTime),
        (Push, Compare::Content),
        (Pull, Compare::Content),
    ] {
        let mut bench = Bench::new();
        bench.compare = compare;
        let (from, to) = way.places(&bench);
        std::fs::create_dir_all(from.join("sub")).unwrap();
        for n in 0..12 {
            std::fs::write(from.join(format!("f{n}")), noise(200, n)).unwrap();
        }
        std::fs::write(from.join("sub/large"), noise(700_000, 3)).unwrap();
        way.copy(&bench, bench.pipes(), overwriting()).await.ok();
        let mut lost = 0;
        for (n, cut) in (30..4000).step_by(61).enumerate() {
            // One of each kind must travel.
            std::fs::write(from.join("f3"), noise(200, 100 + n as u64)).unwrap();
            std::fs::write(from.join("sub/large"), noise(700_000, 100 + n as u64)).unwrap();
            set_mtime(&from.join("f3"), 1_000_000_000 + n as i64, 0);
            set_mtime(&from.join("sub/large"), 1_000_000_000 + n as i64, 0);
            let pipes = bench.pipes();
            *pipes.cuts.lock() = vec![cut, cut + 800];
            let run = way.copy(&bench, pipes, overwriting()).await;
            run.ok();
            lost += run.streams_lost();
            assert_eq!(files(&to), files(&from), "{way:?} {compare:?} cut at {cut}");
            assert_no_temps(&to);
        }
        assert!(lost > 60, "{way:?} {compare:?}: {lost}");
    }
}

#[tokio::test(start_paused = true)]
async fn interrupted_copy_skips_what_it_completed() {
    for way in [Push, Pull] {
        let bench = Bench::new();
        let (from, to) = way.places(&bench);
        tree(&from);
        for cut in [500_000, 2_000_000, 6_000_000] {
            let pipes = bench.pipes();
            *pipes.cuts.lock() = [vec![cut], vec![0; 100]].concat();
            let first = way.copy(&bench, pipes, overwriting()).await;
            assert!(first.result.is_err());
            tokio::time::sleep(Limits::default().grace * 2).await;
            // Entries that have their final names.
            let named = describe(&to).into_iter();
            let named =
                named.filter(|(name, _)| !String::from_utf8_lossy(name).contains(TEMP_PREFIX));
            let size = |what: &str| {
                what.strip_prefix("file ")?
                    .split(' ')
                    .next()?
                    .parse::<u64>()
                    .ok()
            };
            let there: u64 = named.filter_map(|(_, what)| size(&what)).sum();
            let run = way.copy(&bench, bench.pipes(), overwriting()).await;
            run.ok();
            let bound = FILES * FILE + LARGE + bound(way) - there;
            assert!(
                carried(&run) <= bound,
                "{way:?} {cut}: {} over {bound}",
                carried(&run)
            );
            // A push begins with existing files.
            let skipped = unchanged(&run).0;
            assert!(
                way == Push || cut < 1_000_000 || skipped > 50,
                "{way:?} {cut}: {skipped}"
            );
            assert_eq!(files(&to), files(&from));
            std::fs::remove_dir_all(&to).unwrap();
        }
    }
}
