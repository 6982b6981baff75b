//! Keys with write access, and attempts to exceed it.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use longhaul_transfer::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::task::JoinHandle;

use crate::attacks::attack_as;
use crate::harness::*;
use crate::wire;

/// Sends `bytes` as key `who`, and receives answers until the RESULT of entry `id` reports `code`.
/// The stream stays open until `Client::leave`.
async fn say_until(bench: &Bench, who: u8, bytes: &[u8], id: u64, code: u8) -> Client {
    let (mut ours, theirs) = tokio::io::duplex(1 << 20);
    let server = bench.server.clone();
    let served = tokio::spawn(async move { server.serve(theirs, key(who)).await });
    ours.write_all(bytes).await.unwrap();
    let mut received = Vec::new();
    while wire::result_of(&received, id) != Some(code) {
        assert!(
            ours.read_buf(&mut received).await.unwrap() > 0,
            "{received:?}"
        );
    }
    Client {
        ours,
        served,
        received,
    }
}

struct Client {
    ours: DuplexStream,
    served: JoinHandle<Result<(), Error>>,
    received: Vec<u8>,
}

impl Client {
    async fn leave(self) {
        drop(self.ours);
        let _ = self.served.await;
    }
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn nothing_is_ever_created_outside_the_granted_directory() {
    let bench = Bench::new();
    for exists in [true, false] {
        if exists {
            std::fs::create_dir(bench.root("in")).unwrap();
        }
        let before = describe(&bench.root(""));
        // Whatever the sender says, its single source is the granted directory itself.
        let bytes = [
            wire::push_hello(b"in", &[b""]),
            wire::honest_small(0, b"", b"evil"),
            wire::symlink(1, b"", b"/"),
            wire::file(2, b"", 300_000),
            wire::block(2, 0, 1 << 18, b"x"),
        ]
        .concat();
        let client = say_until(&bench, 2, &bytes, 2, 5).await;
        assert_eq!(
            [0, 1].map(|id| wire::result_of(&client.received, id)),
            [Some(5); 2]
        );
        assert_eq!(describe(&bench.root("")), before);
        client.leave().await;
        if exists {
            std::fs::remove_dir(bench.root("in")).unwrap();
        }
    }
}

#[tokio::test]
async fn existing_directories_keep_modes_and_new_ones_get_them() {
    let bench = Bench::new();
    std::fs::create_dir_all(bench.root("in/d/old")).unwrap();
    for dir in ["in", "in/d", "in/d/old"] {
        std::fs::set_permissions(bench.root(dir), PermissionsExt::from_mode(0o711)).unwrap();
    }
    let time = |dir: &str| {
        std::fs::metadata(bench.root(dir))
            .unwrap()
            .modified()
            .unwrap()
    };
    let before = time("in/d/old");
    let frames = [
        // An entry of a directory may arrive before the directory, over another stream.
        wire::honest_small(3, b"new/er/file", b"x"),
        wire::directory(0, b""),
        wire::directory(1, b"old"),
        wire::directory(2, b"new"),
        wire::directory(4, b"new/er"),
        wire::end(5),
    ]
    .concat();
    let creating = [wire::create_hello(b"in", &[b"d"]), frames.clone()].concat();
    attack_as(&bench, 2, &creating).await.0.unwrap();
    // Mode that `wire::directory` requests.
    let asked = 0o644;
    for (dir, expected) in [
        ("in", 0o711),
        ("in/d", 0o711),
        ("in/d/old", 0o711),
        ("in/d/new", asked),
        ("in/d/new/er", asked),
    ] {
        assert_eq!(mode(&bench.root(dir)), expected, "{dir}");
    }
    assert_eq!(time("in/d/old"), before);
    // With permission to overwrite, all described directories are changed. Their parent is not
    // described.
    let overwriting = [wire::push_hello(b"in", &[b"d"]), frames].concat();
    attack_as(&bench, 2, &overwriting).await.0.unwrap();
    let modes = ["in", "in/d", "in/d/old"].map(|dir| mode(&bench.root(dir)));
    assert_eq!(modes, [0o711, asked, asked]);
}

#[tokio::test]
async fn directories_of_an_interrupted_copy_are_marked() {
    let bench = Bench::new();
    let bytes = [
        wire::push_hello(b"d", &[b"s"]),
        wire::directory(0, b""),
        wire::directory(1, b"sub"),
    ]
    .concat();
    say_until(&bench, 1, &bytes, 1, 0).await.leave().await;
    // For the next copy to finish (LH-COPY-51).
    let marks = ["d", "d/sub"].map(|dir| {
        std::fs::metadata(bench.root(dir))
            .unwrap()
            .permissions()
            .mode()
            & 0o7777
    });
    assert_eq!(marks, [0o1700, 0o1700]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn create_only_key_replaces_nothing() {
    let bench = Bench::new();
    std::fs::create_dir(bench.root("in")).unwrap();
    std::fs::write(bench.root("in/there"), "old").unwrap();
    symlink("there", bench.root("in/link")).unwrap();
    std::fs::create_dir(bench.local("s")).unwrap();
    std::fs::write(bench.local("s/there"), "new").unwrap();
    std::fs::write(bench.local("s/fresh"), "new").unwrap();
    symlink("elsewhere", bench.local("s/link")).unwrap();
    let overwrite = WriteOptions {
        overwrite: true,
        ..Default::default()
    };
    let from = [bench.local("s/.")];
    let run = bench.push(bench.pipes_of(3), &from, "/in", overwrite).await;
    let reported = run.result.unwrap_err();
    assert!(
        matches!(&reported, Error::Unauthorised(text) if text.contains("replace what is in /in")),
        "{reported}"
    );
    assert!(!bench.root("in/fresh").exists());
    let run = bench
        .push(bench.pipes_of(3), &from, "/in", WriteOptions::default())
        .await;
    assert!(run.result.is_ok());
    let exists = |name: &str| (name.to_owned(), FailureKind::Exists);
    assert_eq!(run.failures(), [exists("link"), exists("there")]);
    assert_eq!(std::fs::read(bench.root("in/there")).unwrap(), b"old");
    assert_eq!(std::fs::read(bench.root("in/fresh")).unwrap(), b"new");
    for elsewhere in ["/", "/f"] {
        let run = bench
            .push(bench.pipes_of(3), &from, elsewhere, WriteOptions::default())
            .await;
        assert!(matches!(run.result, Err(Error::Unauthorised(_))));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn write_only_key_learns_only_that_something_exists() {
    let bench = Bench::new();
    std::fs::create_dir(bench.root("in")).unwrap();
    std::fs::create_dir(bench.local("s")).unwrap();
    for dir in [bench.root("in"), bench.local("s")] {
        std::fs::write(dir.join("small"), "secret").unwrap();
        std::fs::write(dir.join("large"), noise(400_000, 1)).unwrap();
        symlink("secret", dir.join("link")).unwrap();
    }
    let from = [bench.local("s/.")];
    for blind in [2, 3] {
        let run = bench
            .push(bench.pipes_of(blind), &from, "/in", WriteOptions::default())
            .await;
        let exists = |name: &str| (name.to_owned(), FailureKind::Exists);
        assert_eq!(
            run.failures(),
            [exists("large"), exists("link"), exists("small")],
            "{blind}"
        );
    }
    // A file of a different size is answered as quickly as one of the same size.
    for (id, size) in [(0, 400_000), (1, 400_001)] {
        let bytes = [
            wire::create_hello(b"in", &[b""]),
            wire::file(id, b"large", size),
            wire::block(id, 0, 1 << 18, b"x"),
        ]
        .concat();
        say_until(&bench, 2, &bytes, id, 6).await.leave().await;
    }
    // A key with read access is told that the file is the same.
    bench
        .push(bench.pipes(), &from, "/in", WriteOptions::default())
        .await
        .ok();
}
