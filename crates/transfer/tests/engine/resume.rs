//! A copy that ended early, at any frame, is resumed by the next one with the right bytes, and few
//! of them travel twice.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use longhaul_transfer::*;
use tokio::sync::oneshot;

use crate::harness::*;

const BLOCK: u64 = 256 * 1024;
/// 13 blocks, the last one short.
const SIZE: u64 = 12 * BLOCK + 1000;
/// Bytes of small files, which travel again.
const SMALL: u64 = 10 * 300;
/// Maximum number of bytes that a sender has in flight before it learns what exists. They are a
/// block being read, one that waits and one being written, the content of the pipe, and the
/// receiver's read-ahead. The same amount may have been written and not acknowledged when the first
/// copy ended.
const UNDER_WAY: u64 = 7 * BLOCK;

fn options() -> WriteOptions {
    WriteOptions {
        resume: true,
        ..Default::default()
    }
}

/// Creates a large file after some small ones.
fn tree(at: &Path) {
    std::fs::create_dir_all(at.join("d")).unwrap();
    for n in 0..10 {
        std::fs::write(at.join(format!("{n}")), noise(300, n)).unwrap();
    }
    std::os::unix::fs::symlink("../1", at.join("d/link")).unwrap();
    std::fs::write(at.join("d/large"), noise(SIZE as usize, 77)).unwrap();
}

/// Returns everything that a copy keeps, except times of directories, as a directory that an
/// earlier copy created keeps its own.
fn content(root: &Path) -> Vec<(Vec<u8>, String)> {
    let mut list = describe(root);
    for (_, what) in &mut list {
        if what.starts_with("dir") {
            what.truncate(3);
        }
    }
    list
}

/// Returns cuts after each of the first frames, and in and after each block.
fn cuts() -> Vec<u64> {
    let mut list: Vec<u64> = (1..5000).step_by(450).collect();
    for block in 0..SIZE / BLOCK {
        list.extend([4000, 5500, 150_000].map(|within| block * (BLOCK + 27) + within));
    }
    list
}

/// Returns the bytes of file data that a copy carried.
fn carried(run: &Run) -> u64 {
    carried_by(&run.progress)
}

fn carried_by(progress: &TransferProgress) -> u64 {
    let streams = progress.streams();
    streams
        .iter()
        .map(|stream| stream.bytes.load(Ordering::Relaxed))
        .sum()
}

fn resumed(run: &Run) -> u64 {
    let bytes = |event: &TransferEvent| match event {
        TransferEvent::Resumed { bytes, size, .. } => {
            assert_eq!(*size, SIZE);
            *bytes
        }
        _ => 0,
    };
    run.events.iter().map(bytes).sum()
}

/// Returns the maximum number of bytes that the next copy may carry. A committed file travels
/// again, and is then found to be the same.
fn bound(first: &Run, target: &Path) -> u64 {
    let acknowledged = first.progress.bytes_done.load(Ordering::Relaxed);
    let is_whole = target.join("d/large").exists();
    let there = if is_whole { 0 } else { acknowledged };
    SIZE + 2 * SMALL + UNDER_WAY - there.min(SIZE)
}

/// Returns connections of a copy whose network fails permanently after `at` bytes.
fn cut_for_good(bench: &Bench, at: u64) -> Pipes {
    let pipes = bench.pipes();
    let mut cuts = vec![0; 100];
    cuts[0] = at;
    *pipes.cuts.lock() = cuts;
    pipes
}

// LH-COPY-35, LH-COPY-36.
#[tokio::test(start_paused = true)]
async fn push_cut_anywhere_is_resumed_by_the_next_copy() {
    let bench = Bench::new();
    tree(&bench.local("s"));
    let whole = content(&bench.local("s"));
    let from = [bench.local("s")];
    let (mut all, mut most) = (0, 0);
    for (n, cut) in cuts().into_iter().enumerate() {
        let (to, target) = (format!("/{n}/"), bench.root(&format!("{n}/s")));
        let first = bench
            .push(cut_for_good(&bench, cut), &from, &to, options())
            .await;
        assert!(first.result.is_err(), "cut at {cut}");
        if n % 2 == 0 {
            // No client came back in time, so the server has released the file.
            tokio::time::sleep(ServerLimits::default().stream_grace * 2).await;
        }
        let bound = bound(&first, &target);
        let next = bench.push(bench.pipes(), &from, &to, options()).await;
        next.ok();
        assert!(
            carried(&next) <= bound,
            "cut at {cut}: {} over {bound}",
            carried(&next)
        );
        (all, most) = (all + resumed(&next), most.max(resumed(&next)));
        assert_eq!(content(&target), whole, "cut at {cut}");
        assert_no_temps(&target);
        std::fs::remove_dir_all(&target).unwrap();
    }
    assert!(most >= 10 * BLOCK && all > 100 * BLOCK, "{most} {all}");
}

#[tokio::test(start_paused = true)]
async fn pull_cut_anywhere_is_resumed_by_the_next_copy() {
    let bench = Bench::new();
    tree(&bench.root("s"));
    let whole = content(&bench.root("s"));
    let (mut all, mut most) = (0, 0);
    for (n, cut) in cuts().into_iter().enumerate() {
        let (to, target) = (format!("{n}/"), bench.local(&format!("{n}/s")));
        let first = bench
            .pull(cut_for_good(&bench, cut), &["s"], &to, options())
            .await;
        assert!(first.result.is_err(), "cut at {cut}");
        let bound = bound(&first, &target);
        let next = bench.pull(bench.pipes(), &["s"], &to, options()).await;
        next.ok();
        assert!(
            carried(&next) <= bound,
            "cut at {cut}: {} over {bound}",
            carried(&next)
        );
        (all, most) = (all + resumed(&next), most.max(resumed(&next)));
        assert_eq!(content(&target), whole, "cut at {cut}");
        assert_no_temps(&target);
        std::fs::remove_dir_all(&target).unwrap();
    }
    assert!(most >= 10 * BLOCK && all > 100 * BLOCK, "{most} {all}");
}

/// Resolves once this many bytes have passed over the first pipe.
fn once_carried(pipes: &Pipes, bytes: u64) -> oneshot::Receiver<()> {
    let (carried, is_carried) = oneshot::channel();
    let hook = move || {
        let _ = carried.send(());
    };
    *pipes.hook.lock() = Some((bytes, Box::new(hook)));
    is_carried
}

#[tokio::test(start_paused = true)]
async fn push_of_a_dropped_client_is_resumed() {
    let bench = Bench::new();
    std::fs::write(bench.local("f"), noise(SIZE as usize, 7)).unwrap();
    for part in 1..12 {
        let pipes = bench.pipes();
        let stopped = once_carried(&pipes, part * BLOCK);
        let to = format!("/{part}");
        let from = [bench.local("f")];
        tokio::select! {
            biased;
            // The last blocks may arrive before this client is dropped.
            _ = stopped => {}
            run = bench.push(pipes, &from, &to, options()) => panic!("{part}: {:?}", run.result),
        }
        let next = bench.push(bench.pipes(), &from, &to, options()).await;
        next.ok();
        assert!(
            std::fs::read(bench.root(&to[1..])).unwrap() == noise(SIZE as usize, 7),
            "{part}"
        );
        // Data in flight may have completed the file. It then travels again, and is found to be the
        // same.
        let same = |event: &TransferEvent| matches!(event, TransferEvent::Done { same: true, .. });
        let expected = match next.events.iter().any(same) {
            true => SIZE,
            false => SIZE + UNDER_WAY - (part - 1).min(SIZE / BLOCK) * BLOCK,
        };
        assert!(carried(&next) <= expected, "{part}: {}", carried(&next));
    }
    assert_no_temps(bench.tmp.path());
}

/// Returns the file that two keys copy, and the options of both.
fn of_two_keys(bench: &Bench) -> ([PathBuf; 1], WriteOptions) {
    std::fs::create_dir(bench.root("in")).unwrap();
    std::fs::write(bench.local("f"), noise(SIZE as usize, 7)).unwrap();
    let options = WriteOptions {
        overwrite: true,
        ..options()
    };
    ([bench.local("f")], options)
}

fn assert_whole(bench: &Bench) {
    assert_eq!(
        std::fs::read(bench.root("in/f")).unwrap(),
        noise(SIZE as usize, 7)
    );
    assert_no_temps(bench.tmp.path());
}

#[tokio::test(start_paused = true)]
async fn another_key_resumes_a_killed_clients_file_at_once() {
    let bench = Bench::new();
    let (from, options) = of_two_keys(&bench);
    let pipes = bench.pipes_of(2);
    let killed = once_carried(&pipes, 6 * BLOCK);
    tokio::select! {
        run = bench.push(pipes, &from, "/in/f", options) => panic!("{:?}", run.result),
        _ = killed => {}
    }
    let next = bench.push(bench.pipes(), &from, "/in/f", options).await;
    next.ok();
    assert!(resumed(&next) >= BLOCK, "{}", resumed(&next));
    assert_whole(&bench);
}

#[tokio::test(start_paused = true)]
async fn request_of_another_key_does_not_end_a_carried_copy() {
    let bench = Bench::new();
    let (from, options) = of_two_keys(&bench);
    let pipes = Pipes {
        one_way: Duration::from_millis(10),
        ..bench.pipes_of(2)
    };
    let begun = once_carried(&pipes, 6 * BLOCK);
    let first = bench.push(pipes, &from, "/in/f", options);
    let next = async {
        begun.await.unwrap();
        bench.push(bench.pipes(), &from, "/in/f", options).await
    };
    let (first, next) = tokio::join!(first, next);
    next.ok();
    first.ok();
    assert_whole(&bench);
}

// LH-COPY-33.
#[tokio::test(start_paused = true)]
async fn changed_source_is_copied_from_the_start() {
    let bench = Bench::new();
    std::fs::write(bench.local("f"), noise(SIZE as usize, 7)).unwrap();
    let from = [bench.local("f")];
    let cut = cut_for_good(&bench, 8 * BLOCK);
    let first = bench.push(cut, &from, "/f", options()).await;
    assert!(first.result.is_err());
    let other = noise(SIZE as usize, 8);
    std::fs::write(bench.local("f"), &other).unwrap();
    set_mtime(&bench.local("f"), 1_000_000_000, 0);
    let next = bench.push(bench.pipes(), &from, "/f", options()).await;
    next.ok();
    assert_eq!((resumed(&next), carried(&next)), (0, SIZE));
    assert!(std::fs::read(bench.root("f")).unwrap() == other);
}

// LH-COPY-34.
#[tokio::test(start_paused = true)]
async fn without_resume_nothing_is_kept_or_resumed() {
    let bench = Bench::new();
    std::fs::write(bench.local("f"), noise(SIZE as usize, 7)).unwrap();
    let from = [bench.local("f")];
    for (first, second) in [(false, true), (true, false)] {
        let with = |resume| WriteOptions {
            resume,
            ..Default::default()
        };
        let cut = cut_for_good(&bench, 8 * BLOCK);
        assert!(
            bench
                .push(cut, &from, "/f", with(first))
                .await
                .result
                .is_err()
        );
        tokio::time::sleep(ServerLimits::default().stream_grace * 2).await;
        if !first {
            assert_no_temps(bench.tmp.path());
        }
        let next = bench.push(bench.pipes(), &from, "/f", with(second)).await;
        next.ok();
        assert_eq!((resumed(&next), carried(&next)), (0, SIZE));
        std::fs::remove_file(bench.root("f")).unwrap();
    }
}

// LH-COPY-38.
#[tokio::test(start_paused = true)]
async fn push_to_a_restarted_server_resumes_in_the_same_run() {
    let bench = Bench::new();
    tree(&bench.local("s"));
    let whole = content(&bench.local("s"));
    let from = [bench.local("s")];
    let (mut began_again, mut went_on) = (0, 0);
    for (n, cut) in cuts().into_iter().enumerate().step_by(3) {
        let connector = RestartingServer::new(&bench, Access::Write, cut);
        let (sources, names) = Sources::local(&from, true).unwrap();
        let request = CopyRequest::Push {
            destination: rel(&format!("/{n}")),
            into: true,
            overwrite: false,
            fsync: false,
            names,
        };
        let (client, events, progress) =
            client(connector, request, Some(1), true, Compare::default());
        let copy = client.push(sources, vec!["s".into()]);
        let ended = tokio::time::timeout(Duration::from_secs(20), copy).await;
        let ended = ended.unwrap_or_else(|_| panic!("it hangs: cut at {cut}"));
        let run = finish(ended, events, progress).await;
        run.ok();
        let is_again = |event: &&TransferEvent| matches!(event, TransferEvent::CopyReplaced { .. });
        began_again += run.events.iter().filter(is_again).count();
        went_on += u64::from(resumed(&run) > 0);
        let carried = carried(&run);
        let bound = SIZE + 2 * SMALL + UNDER_WAY;
        assert!(carried <= bound, "cut at {cut}: {carried} over {bound}");
        let target = bench.root(&format!("{n}/s"));
        assert_eq!(content(&target), whole, "cut at {cut}");
        assert_no_temps(&target);
        std::fs::remove_dir_all(&target).unwrap();
    }
    assert!(went_on >= 8 && began_again >= 8, "{went_on} {began_again}");
}

// LH-COPY-38.
#[tokio::test(start_paused = true)]
async fn pull_from_a_restarted_server_repeats_little() {
    let bench = Bench::new();
    tree(&bench.root("s"));
    let whole = content(&bench.root("s"));
    for (n, cut) in cuts().into_iter().enumerate().step_by(3) {
        let connector = RestartingServer::new(&bench, Access::Read, cut);
        let request = CopyRequest::Pull {
            recursive: true,
            sources: vec![rel("s")],
        };
        let (client, _, progress) = client(connector, request, Some(1), true, Compare::default());
        let target = bench.local(&format!("{n}"));
        std::fs::create_dir_all(&target).unwrap();
        let names = vec![b"s".to_vec()];
        let destination =
            CopyDestination::local(&target, names, options(), client.hello.token).unwrap();
        let copy = client.pull(destination, vec!["s".into()]);
        let ended = tokio::time::timeout(Duration::from_secs(20), copy).await;
        let ended = ended.unwrap_or_else(|_| panic!("it hangs: cut at {cut}"));
        assert!(ended.is_ok(), "cut at {cut}: {:?}", ended.err());
        assert_eq!(content(&target.join("s")), whole, "cut at {cut}");
        let carried = carried_by(&progress);
        let bound = SIZE + 2 * SMALL + UNDER_WAY;
        assert!(carried <= bound, "cut at {cut}: {carried} over {bound}");
    }
}

// LH-COPY-37.
#[tokio::test(start_paused = true)]
async fn temporary_names_are_neither_accepted_nor_sent() {
    let bench = Bench::new();
    std::fs::create_dir(bench.local("s")).unwrap();
    let stem = "0".repeat(32);
    for name in [".longhaul-mine", ".longhaul-0011aaff-3", "plain"] {
        std::fs::write(bench.local("s").join(name), "x").unwrap();
    }
    std::fs::write(
        bench.local("s").join(format!(".longhaul-{stem}.journal")),
        "x",
    )
    .unwrap();
    let run = bench
        .push(bench.pipes(), &[bench.local("s")], "/s", options())
        .await;
    assert!(run.result.is_ok());
    let refused = (".longhaul-mine".to_owned(), FailureKind::RefusedPath);
    assert_eq!(run.failures(), [refused]);
    let there = std::fs::read_dir(bench.root("s")).unwrap();
    let there: Vec<_> = there.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(there, ["plain"]);
}

/// The client's host vanished: its connection stays open, and nothing arrives any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_of_a_silent_client_releases_its_files() {
    let bench = Bench::new();
    std::fs::write(bench.local("f"), noise(SIZE as usize, 7)).unwrap();
    let from = [bench.local("f")];
    let mut pipes = bench.pipes();
    pipes.stalls = true;
    *pipes.cuts.lock() = vec![8 * BLOCK];
    let silent = pipes.exhausted.clone();
    tokio::select! {
        run = bench.push(pipes, &from, "/f", options()) => panic!("{:?}", run.result),
        () = silent.notified() => {}
    }
    assert_eq!(bench.server.copies(), 1);
    let next = bench.push(bench.pipes(), &from, "/f", options()).await;
    next.ok();
    assert!(resumed(&next) >= 5 * BLOCK, "{}", resumed(&next));
    assert!(std::fs::read(bench.root("f")).unwrap() == noise(SIZE as usize, 7));
    assert_no_temps(bench.tmp.path());
}
