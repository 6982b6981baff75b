//! Filters, and restrictions of what a copy may create and replace. In both directions.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use longhaul_filter::{NameRule, PathText};
use longhaul_transfer::*;

use crate::harness::Direction::{Pull, Push};
use crate::harness::*;

/// Returns the paths beneath a directory, in order. Those of directories end in a slash.
fn paths(at: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut ahead = vec![at.to_path_buf()];
    while let Some(directory) = ahead.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(at).unwrap().display().to_string();
            match path.is_dir() && !path.is_symlink() {
                true => {
                    found.push(format!("{name}/"));
                    ahead.push(path);
                }
                false => found.push(name),
            }
        }
    }
    found.sort();
    found
}

fn write(at: &Path, path: &str, content: &str) {
    let file = at.join(path);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, content).unwrap();
}

fn tree(at: &Path) {
    for path in [
        "a.c",
        "a.o",
        "keep.o",
        "src/b.c",
        "src/b.o",
        "tmp/x",
        "logs/today.log",
    ] {
        write(at, path, path);
    }
}

fn rules(names: Vec<NameRule>) -> FilterRules {
    FilterRules {
        names,
        ..FilterRules::default()
    }
}

// LH-COPY-55.
#[tokio::test(start_paused = true)]
async fn filter_decides_what_the_source_sends() {
    for way in [Push, Pull] {
        let mut bench = Bench::new();
        bench.filter = rules(vec![
            NameRule::include("keep.o"),
            NameRule::exclude("*.o"),
            NameRule::exclude("/tmp/"),
        ]);
        let (from, to) = way.endpoints(&bench);
        tree(&from);
        way.copy(&bench, bench.pipes(), WriteOptions::default())
            .await
            .ok();
        let expected = [
            "a.c",
            "keep.o",
            "logs/",
            "logs/today.log",
            "src/",
            "src/b.c",
        ];
        assert_eq!(paths(&to), expected, "{way:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn ignore_files_of_the_source_apply() {
    for way in [Push, Pull] {
        let mut bench = Bench::new();
        bench.filter.ignore_files = true;
        let (from, to) = way.endpoints(&bench);
        tree(&from);
        write(&from, ".longhaulignore", "*.o\n/tmp/\n");
        write(&from, "src/.longhaulignore", "!b.o\n");
        way.copy(&bench, bench.pipes(), WriteOptions::default())
            .await
            .ok();
        let expected = [
            ".longhaulignore",
            "a.c",
            "logs/",
            "logs/today.log",
            "src/",
            "src/.longhaulignore",
            "src/b.c",
            "src/b.o",
        ];
        assert_eq!(paths(&to), expected, "{way:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn listed_paths_are_copied_and_missing_ones_fail() {
    for way in [Push, Pull] {
        let mut bench = Bench::new();
        let listed = ["src", "a.c", "none"].map(|path| PathText(path.into()));
        bench.filter.listed = Some(listed.to_vec());
        let (from, to) = way.endpoints(&bench);
        tree(&from);
        let run = way
            .copy(&bench, bench.pipes(), WriteOptions::default())
            .await;
        assert_eq!(run.failures(), [("none".to_owned(), FailureKind::NotFound)]);
        assert_eq!(paths(&to), ["a.c", "src/", "src/b.c", "src/b.o"], "{way:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn sizes_and_times_select_files() {
    for way in [Push, Pull] {
        let mut bench = Bench::new();
        bench.filter.min_bytes = Some(2);
        bench.filter.older_ms = Some(2_000_000_000_000);
        let (from, to) = way.endpoints(&bench);
        write(&from, "small", "1");
        write(&from, "large", "22");
        write(&from, "late", "22");
        let late = std::fs::File::options()
            .write(true)
            .open(from.join("late"))
            .unwrap();
        late.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(2_000_000_001))
            .unwrap();
        way.copy(&bench, bench.pipes(), WriteOptions::default())
            .await
            .ok();
        assert_eq!(paths(&to), ["large"], "{way:?}");
    }
}

/// Copies a tree in which each file differs from its counterpart: `older` and `newer` name the age
/// of the source's file, `new` has no counterpart. Returns the names whose content was copied.
async fn copied_with(way: Direction, existing: ExistingPolicy) -> Vec<String> {
    let mut bench = Bench::new();
    bench.existing = existing;
    let (from, to) = way.endpoints(&bench);
    let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    for (tree, content, [older, newer]) in [(&from, "source", [1, 3]), (&to, "target!", [2, 2])] {
        for (name, seconds) in [("older", older), ("newer", newer)] {
            write(tree, name, content);
            let file = std::fs::File::options()
                .write(true)
                .open(tree.join(name))
                .unwrap();
            file.set_modified(at(seconds)).unwrap();
        }
    }
    write(&from, "new", "source");
    write(&from, "dir/new", "source");
    std::os::unix::fs::symlink("new", from.join("link")).unwrap();
    let options = WriteOptions {
        overwrite: true,
        ..WriteOptions::default()
    };
    way.copy(&bench, bench.pipes(), options).await.ok();
    let found = paths(&to).into_iter();
    found
        .filter(|path| {
            std::fs::symlink_metadata(to.join(path)).unwrap().size() != "target!".len() as u64
        })
        .collect()
}

// LH-COPY-56.
#[tokio::test(start_paused = true)]
async fn restrictions_leave_entries_alone() {
    let policy = ExistingPolicy::default();
    for way in [Push, Pull] {
        let update = ExistingPolicy {
            update: true,
            ..policy
        };
        let expected = ["dir/", "dir/new", "link", "new", "newer"];
        assert_eq!(copied_with(way, update).await, expected, "{way:?}");
        let existing = ExistingPolicy {
            existing: true,
            ..policy
        };
        assert_eq!(
            copied_with(way, existing).await,
            ["newer", "older"],
            "{way:?}"
        );
        let ignore_existing = ExistingPolicy {
            ignore_existing: true,
            ..policy
        };
        let expected = ["dir/", "dir/new", "link", "new"];
        assert_eq!(copied_with(way, ignore_existing).await, expected, "{way:?}");
    }
}
