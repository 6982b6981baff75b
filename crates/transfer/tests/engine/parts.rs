//! Copies that bring one tree together: parts, in parallel or one after the other, and the rest
//! (LH-COPY-49 to LH-COPY-52), in both directions.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use longhaul_transfer::*;

use crate::harness::*;

const PARTS: u32 = 5;
const FILES: u64 = 150;
const SMALL: u64 = 3000;
const LARGE: u64 = 2 << 20;
/// Bytes that travel: each file once, however many names it has.
const BYTES: u64 = FILES * SMALL + LARGE;

/// Creates files, some with several names. Some of the directories are empty, some are not
/// writable, and all have old times.
fn tree(at: &Path) {
    for dir in ["a/b/c", "empty/within", "links", "closed"] {
        std::fs::create_dir_all(at.join(dir)).unwrap();
    }
    for n in 0..FILES {
        let dir = ["", "a", "a/b", "a/b/c", "closed"][n as usize % 5];
        std::fs::write(at.join(dir).join(format!("f{n}")), noise(SMALL as usize, n)).unwrap();
    }
    std::fs::write(at.join("a/large"), noise(LARGE as usize, 1)).unwrap();
    for n in 0..7 {
        std::fs::hard_link(at.join("a/large"), at.join(format!("links/large{n}"))).unwrap();
        std::fs::hard_link(
            at.join(format!("f{}", 5 * n)),
            at.join(format!("links/f{n}")),
        )
        .unwrap();
        std::os::unix::fs::symlink("nowhere", at.join(format!("links/to{n}"))).unwrap();
    }
    std::fs::set_permissions(at.join("closed"), PermissionsExt::from_mode(0o555)).unwrap();
    for (n, dir) in [
        "a/b/c",
        "a/b",
        "a",
        "empty/within",
        "empty",
        "links",
        "closed",
        "",
    ]
    .iter()
    .enumerate()
    {
        set_mtime(&at.join(dir), 1_000_000_000 + n as i64, 7);
    }
}

fn parts() -> impl Iterator<Item = Portion> {
    (1..=PARTS).map(|number| Portion::Part(Part::new(number, PARTS).unwrap()))
}

/// Time after which a copy that lost its last stream gives up. Runs in real time.
const PATIENCE: Duration = Duration::from_millis(100);

/// Runs one of the copies that bring the tree together.
async fn bring(bench: &Bench, way: Way, pipes: Pipes, portion: Portion) -> Run {
    let options = WriteOptions {
        resume: true,
        ..Default::default()
    };
    match way {
        Way::Push => {
            let source = bench.local("s");
            let (found, names) = Sources::local(std::slice::from_ref(&source), true).unwrap();
            let request = Request::Push {
                destination: rel("d"),
                into: true,
                overwrite: false,
                fsync: false,
                names,
            };
            let (mut client, events, progress) = client(pipes, request, None, true, bench.compare);
            client.hello.hard_links = bench.hard_links;
            client.hello.portion = portion;
            client.patience = PATIENCE;
            let result = client.push(found, vec!["s".into()]).await;
            finish(result, events, progress).await
        }
        Way::Pull => {
            let request = Request::Pull {
                recursive: true,
                sources: vec![rel("s")],
            };
            let (mut client, events, progress) = client(pipes, request, None, true, bench.compare);
            client.hello.hard_links = bench.hard_links;
            client.hello.portion = portion;
            client.patience = PATIENCE;
            let (to, token) = (bench.local("d/"), client.hello.token);
            let destination = Destination::local(&to, vec![b"s".to_vec()], options, token).unwrap();
            let result = client.pull(destination, vec!["s".into()]).await;
            finish(result, events, progress).await
        }
    }
}

fn bench(hard_links: bool) -> Bench {
    Bench {
        hard_links,
        ..Bench::new()
    }
}

/// Returns the directories that are marked as unfinished.
fn marked(root: &Path) -> Vec<String> {
    let mut marked = Vec::new();
    let mut ahead = vec![root.to_owned()];
    while let Some(dir) = ahead.pop() {
        if std::fs::metadata(&dir).unwrap().mode() & 0o1000 != 0 {
            marked.push(dir.strip_prefix(root).unwrap().display().to_string());
        }
        let below = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap());
        ahead.extend(
            below
                .filter(|entry| entry.file_type().unwrap().is_dir())
                .map(|entry| entry.path()),
        );
    }
    marked.sort();
    marked
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lh_copy_49_and_lh_copy_52_parallel_parts_make_up_the_tree() {
    for way in [Way::Push, Way::Pull] {
        for hard_links in [false, true] {
            let bench = bench(hard_links);
            let (from, to) = way.places(&bench);
            tree(&from);
            let at_once = parts().map(|part| bring(&bench, way, bench.pipes(), part));
            let runs = all_of(at_once).await;
            let (mut files, mut travelled) = (0, 0);
            for run in &runs {
                run.ok();
                files += run.progress.files_done.load(Ordering::Relaxed);
                travelled += run.progress.bytes_travelled();
            }
            let names = FILES + 1 + 14;
            assert_eq!(files, names, "{way:?}: every name in exactly one part");
            let as_files = if hard_links { 0 } else { 7 * (LARGE + SMALL) };
            assert_eq!(travelled, BYTES + as_files, "{way:?}");
            // LH-COPY-51: directories that were created for files are marked. Those with only links
            // or nothing in them do not exist yet.
            let filled = ["", "a", "a/b", "a/b/c", "closed", "links"];
            assert_eq!(marked(&to), filled, "{way:?}");
            let rest = bring(&bench, way, bench.pipes(), Portion::Rest).await;
            rest.ok();
            // LH-COPY-52: not even before the receiver has reported anything.
            assert_eq!(rest.progress.bytes_travelled(), 0, "{way:?}");
            assert!(describe(&to) == describe(&from), "{way:?} {hard_links}");
            assert_eq!(marked(&to), [""; 0], "{way:?}");
            let inode = |name: &str| std::fs::metadata(to.join(name)).unwrap().ino();
            assert_eq!(
                inode("a/large") == inode("links/large3"),
                hard_links,
                "{way:?}"
            );
            assert_no_temps(&to);
        }
    }
}

/// Runs all of them in parallel.
async fn all_of<F: Future<Output = Run>>(runs: impl Iterator<Item = F>) -> Vec<Run> {
    let mut runs: Vec<_> = runs.map(Box::pin).collect();
    let mut ended = Vec::new();
    std::future::poll_fn(|cx| {
        runs.retain_mut(|run| match run.as_mut().poll(cx) {
            std::task::Poll::Ready(run) => {
                ended.push(run);
                false
            }
            std::task::Poll::Pending => true,
        });
        match runs.is_empty() {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }
    })
    .await;
    ended
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lh_copy_51_rest_repairs_interrupted_parts() {
    for way in [Way::Push, Way::Pull] {
        for cut in [100, 30_000, 60_000] {
            let bench = bench(true);
            let (from, to) = way.places(&bench);
            tree(&from);
            // Two parts never run, and one is interrupted permanently.
            for (part, cut) in parts().zip([u64::MAX, cut, u64::MAX]) {
                let pipes = bench.pipes();
                *pipes.cuts.lock() = [&[cut][..], &[0; 100]].concat();
                let run = bring(&bench, way, pipes, part).await;
                assert_eq!(run.result.is_err(), cut != u64::MAX, "{way:?} {cut}");
            }
            let pipes = bench.pipes();
            *pipes.cuts.lock() = [&[cut][..], &[0; 100]].concat();
            let broken = bring(&bench, way, pipes, Portion::Rest).await;
            assert!(broken.result.is_err(), "{way:?} {cut}");
            bring(&bench, way, bench.pipes(), Portion::Rest).await.ok();
            assert!(describe(&to) == describe(&from), "{way:?} {cut}");
            assert_eq!(marked(&to), [""; 0], "{way:?} {cut}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lh_copy_51_existing_directory_keeps_mode_and_time() {
    for way in [Way::Push, Way::Pull] {
        let bench = bench(false);
        let (from, to) = way.places(&bench);
        tree(&from);
        std::fs::create_dir_all(to.join("empty")).unwrap();
        std::fs::set_permissions(to.join("empty"), PermissionsExt::from_mode(0o1777)).unwrap();
        for portion in parts().chain([Portion::Rest]) {
            bring(&bench, way, bench.pipes(), portion).await.ok();
        }
        let mode = |name: &str| std::fs::metadata(to.join(name)).unwrap().mode() & 0o7777;
        assert_eq!((mode("empty"), mode("closed")), (0o1777, 0o555), "{way:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn empty_and_single_file_parts_work() {
    for way in [Way::Push, Way::Pull] {
        let bench = bench(false);
        let (from, to) = way.places(&bench);
        std::fs::create_dir_all(from.parent().unwrap()).unwrap();
        std::fs::write(&from, noise(100, 1)).unwrap();
        let mut files = Vec::new();
        for part in parts() {
            let run = bring(&bench, way, bench.pipes(), part).await;
            run.ok();
            files.push(run.progress.files_done.load(Ordering::Relaxed));
        }
        assert_eq!(files.iter().sum::<u64>(), 1, "{way:?} {files:?}");
        assert!(describe(&to) == describe(&from), "{way:?}");
    }
}
