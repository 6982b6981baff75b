//! A server that sends something other than what was requested.

use std::sync::Arc;

use longhaul_transfer::*;
use parking_lot::Mutex;

use crate::attacks::pull_hostile;
use crate::harness::*;
use crate::wire;

#[derive(Default)]
struct Failures(Mutex<Vec<FailureKind>>);

impl Observer for Failures {
    fn event(&self, event: Event) {
        if let Event::Failed { failure, .. } = event {
            self.0.lock().push(failure.kind);
        }
    }
}

/// Returns everything in the directory of the client.
fn here(bench: &Bench) -> Vec<(Vec<u8>, String)> {
    describe(&bench.local(""))
}

// LH-COPY-18.
#[tokio::test(start_paused = true)]
async fn pull_without_recursion_writes_only_one_file() {
    let bench = Bench::new();
    std::fs::create_dir(bench.local("d")).unwrap();
    let before = here(&bench);
    let good = *blake3::hash(b"abc").as_bytes();
    for bytes in [
        wire::honest_small(0, b".bashrc", b"evil"),
        wire::honest_small(0, b".ssh/authorized_keys", b"evil"),
        wire::directory(0, b""),
        wire::directory(0, b".ssh"),
        wire::symlink(0, b"x", b"/etc/passwd"),
        [
            wire::file(0, b".bashrc", 3),
            wire::block(0, 0, 3, b"abc"),
            wire::file_end(0, good),
        ]
        .concat(),
        // A valid file comes first, then further data of it.
        [
            wire::file(0, b"", 1 << 20),
            wire::honest_small(1, b"", b"twice"),
        ]
        .concat(),
        [
            wire::file(0, b"", 1 << 20),
            wire::honest_small(1, b".bashrc", b"evil"),
        ]
        .concat(),
        wire::end(0),
    ] {
        for to in ["d/", "d/name", "new"] {
            let bytes = [bytes.clone(), wire::end(1)].concat();
            let result = pull_hostile(&bench.local(to), false, bytes, Arc::new(())).await;
            assert!(
                matches!(result, Err(Error::NotAsked(_))),
                "{to}: {:?}",
                result.err()
            );
            assert_eq!(here(&bench), before, "{to}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn pull_without_recursion_accepts_no_link() {
    let bench = Bench::new();
    let before = here(&bench);
    let bytes = [wire::symlink(0, b"", b"/etc/passwd"), wire::end(1)].concat();
    let failures = Arc::new(Failures::default());
    pull_hostile(&bench.local("data.csv"), false, bytes, failures.clone())
        .await
        .unwrap();
    assert_eq!(*failures.0.lock(), [FailureKind::IsLink]);
    assert_eq!(here(&bench), before);
}

#[tokio::test(start_paused = true)]
async fn recursive_pull_requires_a_consistent_tree() {
    let bench = Bench::new();
    for bytes in [
        [
            wire::symlink(0, b"", b"/tmp"),
            wire::honest_small(1, b"x", b"evil"),
            wire::end(2),
        ]
        .concat(),
        [
            wire::honest_small(0, b"", b"file"),
            wire::directory(1, b"x"),
            wire::end(2),
        ]
        .concat(),
        wire::end(0),
    ] {
        let result = pull_hostile(&bench.local("new"), true, bytes, Arc::new(())).await;
        assert!(
            matches!(result, Err(Error::NotAsked(_))),
            "{:?}",
            result.err()
        );
        let _ = std::fs::remove_file(bench.local("new"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn honest_server_sends_files_and_reports_others() {
    let bench = Bench::new();
    std::fs::create_dir_all(bench.root("d/in")).unwrap();
    std::fs::write(bench.root("f"), "file").unwrap();
    std::fs::write(bench.root("large"), noise(1 << 20, 1)).unwrap();
    std::os::unix::fs::symlink("f", bench.root("link")).unwrap();
    let sources = ["d", "f", "large", "link"];
    let options = WriteOptions::default();
    let run = bench
        .pull_with(bench.pipes(), &sources, "got/", options, false)
        .await;
    assert!(run.result.is_ok(), "{:?}", run.result);
    assert_eq!(
        run.failures(),
        [
            ("d".to_owned(), FailureKind::IsDirectory),
            ("link".to_owned(), FailureKind::IsLink)
        ]
    );
    assert_eq!(std::fs::read(bench.local("got/f")).unwrap(), b"file");
    assert_eq!(
        std::fs::read(bench.local("got/large")).unwrap(),
        noise(1 << 20, 1)
    );
    assert_eq!(std::fs::read_dir(bench.local("got")).unwrap().count(), 2);
}

#[tokio::test(start_paused = true)]
async fn any_reported_number_is_accepted() {
    let bench = Bench::new();
    let bytes = [
        wire::totals(u64::MAX, u64::MAX),
        // FLOW with the maximum of every number.
        wire::frame(17, &[0xff; 9 * 4 + 8 + 8 + 8 + 8 + 2]),
        wire::honest_small(0, b"", b"abc"),
        wire::frame(11, &[1u64.to_le_bytes(), u64::MAX.to_le_bytes()].concat()),
    ]
    .concat();
    pull_hostile(&bench.local("f"), false, bytes, Arc::new(()))
        .await
        .unwrap();
    assert_eq!(std::fs::read(bench.local("f")).unwrap(), b"abc");
}
