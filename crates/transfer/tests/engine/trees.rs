//! Real trees arrive unchanged, in both directions.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use longhaul_transfer::*;

use crate::harness::*;

/// Creates a tree with one entry of every kind.
pub fn make_tree(at: &Path) {
    let file = |name: &str, data: &[u8]| {
        std::fs::create_dir_all(at.join(name).parent().unwrap()).unwrap();
        std::fs::write(at.join(name), data).unwrap();
    };
    file("empty", b"");
    file("small", b"hello");
    file("deep/er/and/deeper/file", b"down here");
    for n in 0..300 {
        file(&format!("many/{n:03}"), format!("file {n}").as_bytes());
    }
    file("block-edge", &noise(256 * 1024, 1));
    file("block-edge-1", &noise(256 * 1024 + 1, 2));
    file("large", &noise(3_000_001, 3));
    file("larger", &noise(17 << 20, 4));
    std::fs::create_dir_all(at.join("empty-dir/in/side")).unwrap();
    file(&"n".repeat(255), b"long name");
    file("spaced name\twith tab", b"x");
    std::fs::write(at.join(OsStr::from_bytes(b"\xff\xfe not utf-8")), b"bytes").unwrap();
    symlink("small", at.join("link")).unwrap();
    symlink("/etc/passwd", at.join("link-out")).unwrap();
    symlink("../../../..", at.join("deep/link-up")).unwrap();
    symlink(OsStr::from_bytes(b"dangling\xff"), at.join("link-nowhere")).unwrap();
    // A hole, data, a hole: 64 MiB with 8 KiB of data.
    let sparse = std::fs::File::create(at.join("sparse")).unwrap();
    sparse.set_len(64 << 20).unwrap();
    sparse.write_all_at(&noise(4096, 5), 20 << 20).unwrap();
    sparse
        .write_all_at(&noise(4096, 6), (40 << 20) + 12288)
        .unwrap();
    for (name, mode) in [
        ("small", 0o400),
        ("large", 0o755),
        ("empty", 0o000),
        ("deep/er", 0o500),
        ("empty-dir", 0o711),
    ] {
        std::fs::set_permissions(at.join(name), std::fs::Permissions::from_mode(mode)).unwrap();
    }
    for (name, seconds) in [
        ("small", 1),
        ("many/000", 1_000_000_000),
        ("many", 5),
        ("deep", 77),
        ("deep/er/and", 78),
    ] {
        let time = std::time::UNIX_EPOCH + Duration::new(seconds, 123_456_789);
        std::fs::File::open(at.join(name))
            .unwrap()
            .set_modified(time)
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tree_of_all_kinds_round_trips() {
    let bench = Bench::new();
    make_tree(&bench.local("src"));
    let pushed = bench
        .push(
            bench.pipes(),
            &[bench.local("src")],
            "/there",
            WriteOptions::default(),
        )
        .await;
    pushed.ok();
    assert_eq!(
        describe(&bench.local("src")),
        describe(&bench.root("there"))
    );
    let pulled = bench
        .pull(bench.pipes(), &["there"], "back", WriteOptions::default())
        .await;
    pulled.ok();
    assert_eq!(
        describe(&bench.local("src")),
        describe(&bench.local("back"))
    );
    assert_eq!(
        pushed.result.as_ref().unwrap(),
        pulled.result.as_ref().unwrap(),
        "one tree, one hash"
    );
    for copy in [bench.root("there/sparse"), bench.local("back/sparse")] {
        let meta = std::fs::metadata(copy).unwrap();
        assert!(
            meta.blocks() * 512 < 1 << 20,
            "holes stay holes: {} blocks",
            meta.blocks()
        );
    }
    let progress = &pulled.progress;
    assert_eq!(
        progress.bytes_done.load(Ordering::Relaxed),
        progress.bytes_found.load(Ordering::Relaxed)
    );
    assert_eq!(
        progress.entries_done.load(Ordering::Relaxed),
        progress.entries_found.load(Ordering::Relaxed)
    );
    assert_no_temps(bench.tmp.path());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hashes_are_those_of_b3sum() {
    let bench = Bench::new();
    let data = noise(5 << 20, 9);
    std::fs::write(bench.local("f"), &data).unwrap();
    let run = bench
        .push_with(
            bench.pipes(),
            &[bench.local("f")],
            "/g",
            WriteOptions::default(),
            Some(3),
        )
        .await;
    let hashes: Vec<_> = run
        .ok()
        .events
        .iter()
        .filter_map(|e| {
            if let TransferEvent::Done { hash, .. } = e {
                *hash
            } else {
                None
            }
        })
        .collect();
    assert_eq!(hashes, [*blake3::hash(&data).as_bytes()]);
    assert_eq!(std::fs::read(bench.root("g")).unwrap(), data);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_follow_cp() {
    let bench = Bench::new();
    std::fs::create_dir(bench.local("d")).unwrap();
    std::fs::write(bench.local("d/f"), "1").unwrap();
    std::fs::write(bench.local("e"), "2").unwrap();
    std::fs::create_dir(bench.root("there")).unwrap();
    let options = WriteOptions::default;
    // Into an existing directory, into one that a trailing slash denotes, under a new name, and the
    // content alone.
    bench
        .push(bench.pipes(), &[bench.local("d")], "/there", options())
        .await
        .ok();
    assert!(bench.root("there/d/f").exists());
    bench
        .push(
            bench.pipes(),
            &[bench.local("e"), bench.local("d")],
            "/both",
            options(),
        )
        .await
        .ok();
    assert!(bench.root("both/e").exists() && bench.root("both/d/f").exists());
    bench
        .push(bench.pipes(), &[bench.local("e")], "/slash/", options())
        .await
        .ok();
    assert!(bench.root("slash/e").exists());
    bench
        .push(bench.pipes(), &[bench.local("e")], "/renamed", options())
        .await
        .ok();
    assert_eq!(std::fs::read(bench.root("renamed")).unwrap(), b"2");
    bench
        .push(bench.pipes(), &[bench.local("d/.")], "/there", options())
        .await
        .ok();
    bench
        .push(bench.pipes(), &[bench.local("d/..")], "/all", options())
        .await
        .ok();
    assert!(bench.root("all/d/f").exists());
    // Missing parents of the destination are not created.
    let run = bench
        .push(bench.pipes(), &[bench.local("e")], "/no/such/e", options())
        .await;
    let error = run.result.unwrap_err().to_string();
    assert!(
        error.contains("no such file or directory") && error.contains("no/such"),
        "{error}"
    );
    bench
        .pull(bench.pipes(), &["/"], "whole", options())
        .await
        .ok();
    assert_eq!(describe(&bench.root("")), describe(&bench.local("whole")));
}

// LH-COPY-24.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn existing_files_stay_and_identical_ones_are_no_error() {
    let bench = Bench::new();
    std::fs::create_dir_all(bench.local("s")).unwrap();
    let big = noise(600_000, 1);
    for (name, data) in [("same", &b"same"[..]), ("differs", b"new"), ("large", &big)] {
        std::fs::write(bench.local("s").join(name), data).unwrap();
    }
    symlink("x", bench.local("s/link")).unwrap();
    std::fs::create_dir_all(bench.root("d")).unwrap();
    std::fs::write(bench.root("d/same"), "same").unwrap();
    std::fs::write(bench.root("d/differs"), "old").unwrap();
    let mut other = big.clone();
    other[500_000] ^= 1;
    std::fs::write(bench.root("d/large"), &other).unwrap();
    for name in ["d/differs", "d/large"] {
        set_mtime(&bench.root(name), 1_000_000_000, 0);
    }
    symlink("y", bench.root("d/link")).unwrap();
    let from = [bench.local("s/.")];
    let run = bench
        .push(bench.pipes(), &from, "/d", WriteOptions::default())
        .await;
    assert!(run.result.is_ok());
    let exists = |name: &str| (name.to_owned(), FailureKind::Exists);
    assert_eq!(
        run.failures(),
        [exists("differs"), exists("large"), exists("link")]
    );
    assert!(run.events.iter().any(
        |e| matches!(e, TransferEvent::Done { path, same: true, .. } if path.ends_with("same"))
    ));
    assert_eq!(std::fs::read(bench.root("d/differs")).unwrap(), b"old");
    assert_eq!(std::fs::read(bench.root("d/large")).unwrap(), other);
    let overwrite = WriteOptions {
        overwrite: true,
        ..Default::default()
    };
    bench.push(bench.pipes(), &from, "/d", overwrite).await.ok();
    // The existing directory keeps its own permissions and time.
    assert_eq!(
        describe(&bench.local("s"))[1..],
        describe(&bench.root("d"))[1..]
    );
    let again = bench
        .push(bench.pipes(), &from, "/d", WriteOptions::default())
        .await;
    again.ok();
    let same = again
        .events
        .iter()
        .filter(|e| {
            matches!(
                e,
                TransferEvent::Done {
                    bytes: Some(_),
                    same: true,
                    ..
                }
            )
        })
        .count();
    assert_eq!(same, 3);
    assert_no_temps(bench.tmp.path());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conflicting_kinds_are_reported() {
    let bench = Bench::new();
    std::fs::create_dir_all(bench.local("s/dir")).unwrap();
    std::fs::write(bench.local("s/dir/in"), "x").unwrap();
    std::fs::write(bench.local("s/file"), "x").unwrap();
    std::fs::create_dir_all(bench.root("d/file")).unwrap();
    std::fs::write(bench.root("d/dir"), "in the way").unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        bench.local("s/pipe"),
        rustix::fs::FileType::Fifo,
        0o600.into(),
        0,
    )
    .unwrap();
    let overwrite = WriteOptions {
        overwrite: true,
        ..Default::default()
    };
    let run = bench
        .push(bench.pipes(), &[bench.local("s/.")], "/d", overwrite)
        .await;
    assert!(run.result.is_ok());
    let wrong = |name: &str| (name.to_owned(), FailureKind::WrongKind);
    assert_eq!(
        run.failures(),
        [
            wrong("dir"),
            wrong("file"),
            wrong("in"),
            ("pipe".into(), FailureKind::NotRegular)
        ]
    );
    assert_eq!(std::fs::read(bench.root("d/dir")).unwrap(), b"in the way");
}

/// In virtual time, as a copy that takes long to begin opens further streams.
#[tokio::test(start_paused = true)]
async fn streams_and_routes_share_the_work_of_large_copies() {
    let bench = Bench::new();
    std::fs::write(bench.local("big"), noise(24 << 20, 1)).unwrap();
    std::fs::write(bench.local("tiny"), "t").unwrap();
    let mut pipes = bench.pipes();
    // The copy lasts until the routes are opened.
    pipes.one_way = Duration::from_millis(60);
    pipes.routes = ["a", "b"].map(RouteInfo::without_depots).into();
    let run = bench
        .push(
            pipes,
            &[bench.local("big")],
            "/big",
            WriteOptions::default(),
        )
        .await;
    assert_eq!(run.ok().streams_opened(), 2, "each route has a stream");
    let carried: u64 = run
        .progress
        .streams()
        .iter()
        .map(|s| s.bytes.load(Ordering::Relaxed))
        .sum();
    assert!(carried >= 24 << 20);
    let mut pipes = bench.pipes();
    pipes.routes = ["a", "b"].map(RouteInfo::without_depots).into();
    let run = bench
        .push(
            pipes,
            &[bench.local("tiny")],
            "/tiny",
            WriteOptions::default(),
        )
        .await;
    assert_eq!(run.ok().streams_opened(), 1);
    let run = bench
        .push_with(
            bench.pipes(),
            &[bench.local("big")],
            "/big4",
            WriteOptions::default(),
            Some(4),
        )
        .await;
    assert!(run.ok().streams_opened() <= 4);
    assert_eq!(
        std::fs::read(bench.root("big4")).unwrap(),
        noise(24 << 20, 1)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_source_is_reported_and_the_others_arrive() {
    let bench = Bench::new();
    std::fs::write(bench.local("a"), "a").unwrap();
    std::fs::write(bench.local("c"), "c").unwrap();
    let sources = [bench.local("a"), bench.local("b"), bench.local("c")];
    let run = bench
        .push(bench.pipes(), &sources, "/d/", WriteOptions::default())
        .await;
    assert!(run.result.is_ok());
    assert_eq!(run.failures(), [("b".to_owned(), FailureKind::NotFound)]);
    assert!(bench.root("d/a").exists() && bench.root("d/c").exists());
    let run = bench
        .pull(
            bench.pipes(),
            &["d/a", "d/b", "d/c"],
            "e/",
            WriteOptions::default(),
        )
        .await;
    assert!(run.result.is_ok());
    assert_eq!(run.failures(), [("b".to_owned(), FailureKind::NotFound)]);
    assert!(bench.local("e/a").exists() && bench.local("e/c").exists());
    assert!(
        Sources::local(&[bench.local("b")], true).is_err(),
        "none is there: nothing to connect for"
    );
}
