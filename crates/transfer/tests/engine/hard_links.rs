//! Names of one file stay names of one file, and it travels once (LH-COPY-45 to LH-COPY-47), in
//! both directions.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use longhaul_transfer::*;

use crate::harness::*;

const LARGE: u64 = 3 << 20;
const SMALL: u64 = 5000;
/// Number of names of small files. Every third one is another name of the first.
const SMALL_NAMES: u64 = 300;

/// Creates a large file with four names, one of them elsewhere, a small one with very many, and
/// others with one.
fn tree(at: &Path) {
    std::fs::create_dir_all(at.join("a/deep")).unwrap();
    std::fs::create_dir_all(at.join("b")).unwrap();
    std::fs::write(at.join("a/large"), noise(LARGE as usize, 1)).unwrap();
    for name in ["a/deep/large", "b/again", "../elsewhere"] {
        std::fs::hard_link(at.join("a/large"), at.join(name)).unwrap();
    }
    for n in 0..SMALL_NAMES {
        let name = at.join(format!("b/f{n}"));
        match n % 3 {
            0 if n > 0 => std::fs::hard_link(at.join("b/f0"), name).unwrap(),
            _ => std::fs::write(name, noise(SMALL as usize, n)).unwrap(),
        }
    }
    std::os::unix::fs::symlink("large", at.join("a/link")).unwrap();
    std::fs::hard_link(at.join("a/link"), at.join("b/link")).unwrap();
}

/// Number of names that link to an earlier one.
const LINKS: u64 = 2 + SMALL_NAMES / 3 - 1;
/// Bytes of files, without further names.
const UNIQUE: u64 = LARGE + (SMALL_NAMES - SMALL_NAMES / 3 + 1) * SMALL;

/// Returns the names beneath a directory, grouped by file.
fn names(root: &Path) -> Vec<Vec<PathBuf>> {
    let mut files: BTreeMap<(u64, u64), Vec<PathBuf>> = BTreeMap::new();
    let mut ahead = vec![root.to_owned()];
    while let Some(dir) = ahead.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let (path, meta) = {
                let entry = entry.unwrap();
                (entry.path(), entry.metadata().unwrap())
            };
            if meta.is_dir() {
                ahead.push(path);
            } else if meta.is_file() {
                let name = path.strip_prefix(root).unwrap().to_owned();
                files
                    .entry((meta.dev(), meta.ino()))
                    .or_default()
                    .push(name);
            }
        }
    }
    let mut names: Vec<_> = files.into_values().collect();
    names.iter_mut().for_each(|names| names.sort());
    names.sort();
    names
}

/// Returns options that replace existing files, or do not.
fn options(overwrite: bool) -> WriteOptions {
    WriteOptions {
        overwrite,
        resume: true,
        ..Default::default()
    }
}

fn linked(run: &Run) -> (u64, u64) {
    let progress = &run.progress;
    (
        progress.files_linked.load(Ordering::Relaxed),
        progress.bytes_linked.load(Ordering::Relaxed),
    )
}

fn bench() -> Bench {
    Bench {
        hard_links: true,
        ..Bench::new()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hard_links_are_kept_and_the_file_travels_once() {
    for way in [Way::Push, Way::Pull] {
        let bench = bench();
        let (from, to) = way.places(&bench);
        tree(&from);
        let run = way.copy(&bench, bench.pipes(), options(false)).await;
        run.ok();
        assert!(describe(&to) == describe(&from), "{way:?}");
        assert_eq!(names(&to), names(&from), "{way:?}");
        assert_eq!(
            linked(&run),
            (LINKS, 2 * LARGE + (LINKS - 2) * SMALL),
            "{way:?}"
        );
        assert_eq!(run.progress.bytes_travelled(), UNIQUE, "{way:?}");
        // A repeated copy moves nothing.
        let again = way.copy(&bench, bench.pipes(), options(false)).await;
        again.ok();
        assert_eq!(names(&to), names(&from), "{way:?}");
        assert_eq!(linked(&again), linked(&run), "{way:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_option_each_name_is_a_file() {
    let bench = Bench::new();
    let (from, to) = Way::Push.places(&bench);
    tree(&from);
    let run = Way::Push.copy(&bench, bench.pipes(), options(false)).await;
    run.ok();
    assert!(names(&to).iter().all(|names| names.len() == 1));
    assert!(describe(&to) == describe(&from));
    assert_eq!(linked(&run), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_streams_lose_no_link() {
    for way in [Way::Push, Way::Pull] {
        for cut in [20_000, 500_000, 1_500_000, 3_200_000, 4_000_000] {
            let bench = bench();
            let (from, to) = way.places(&bench);
            tree(&from);
            let pipes = bench.pipes();
            *pipes.cuts.lock() = vec![cut, cut / 2];
            let run = way.copy(&bench, pipes, options(false)).await;
            run.ok();
            assert!(describe(&to) == describe(&from), "{way:?} {cut}");
            assert_eq!(names(&to), names(&from), "{way:?} {cut}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn link_replaces_existing_entries_like_a_file() {
    for way in [Way::Push, Way::Pull] {
        let bench = bench();
        let (from, to) = way.places(&bench);
        tree(&from);
        std::fs::create_dir_all(to.join("b")).unwrap();
        std::fs::create_dir_all(to.join("a")).unwrap();
        std::fs::write(to.join("b/f3"), "something else").unwrap();
        // The same content is kept as a file of its own.
        std::fs::copy(from.join("b/f6"), to.join("b/f6")).unwrap();
        // A symbolic link at the first name is never followed.
        std::fs::write(bench.tmp.path().join("secret"), noise(LARGE as usize, 1)).unwrap();
        std::os::unix::fs::symlink(bench.tmp.path().join("secret"), to.join("a/large")).unwrap();
        let run = way.copy(&bench, bench.pipes(), options(false)).await;
        let exists = |name: &str| (name.to_owned(), FailureKind::Exists);
        // The first name of the large file that is found conflicts, so the next one replaces it.
        assert_eq!(run.failures(), [exists("f3"), exists("large")], "{way:?}");
        assert_eq!(std::fs::read(to.join("b/f3")).unwrap(), b"something else");
        let inode = |name: &str| std::fs::metadata(to.join(name)).unwrap().ino();
        assert_eq!(inode("a/deep/large"), inode("b/again"));
        assert_ne!(inode("b/f6"), inode("b/f0"));
        let run = way.copy(&bench, bench.pipes(), options(true)).await;
        run.ok();
        assert!(files(&to) == files(&from), "{way:?}");
        assert_eq!(names(&to), names(&from), "{way:?}");
        let secret = std::fs::metadata(bench.tmp.path().join("secret")).unwrap();
        assert_eq!(secret.nlink(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn write_only_key_learns_nothing_from_links() {
    let bench = bench();
    std::fs::create_dir(bench.root("in")).unwrap();
    std::fs::create_dir(bench.local("s")).unwrap();
    std::fs::write(bench.local("s/f"), "x").unwrap();
    std::fs::hard_link(bench.local("s/f"), bench.local("s/g")).unwrap();
    let options = WriteOptions::default();
    let run = bench
        .push(bench.pipes_of(3), &[bench.local("s")], "/in/", options)
        .await;
    run.ok();
    assert_eq!(linked(&run), (0, 0));
    assert_eq!(std::fs::metadata(bench.root("in/s/g")).unwrap().nlink(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn local_copy_keeps_hard_links() {
    let bench = bench();
    tree(&bench.local("s"));
    let (sources, names_of) = Sources::local(&[bench.local("s")], true).unwrap();
    let token = Token::random().unwrap();
    let options = WriteOptions::default();
    let destination = Destination::local(&bench.local("t"), names_of, options, token).unwrap();
    let progress = std::sync::Arc::new(Progress::default());
    let copied = copy_local(
        sources,
        vec!["s".into()],
        destination,
        Compare::default(),
        true,
        progress,
        std::sync::Arc::new(()),
    );
    copied.await.unwrap();
    assert_eq!(names(&bench.local("t")), names(&bench.local("s")));
}
