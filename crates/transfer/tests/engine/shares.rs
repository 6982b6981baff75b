//! One key takes everything that it can get, and another key still gets what it needs.

use std::path::Path;
use std::time::Duration;

use longhaul_transfer::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use crate::harness::*;
use crate::wire;

/// Opens a stream of key `who` to the server.
fn open(bench: &Bench, who: u8) -> DuplexStream {
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let server = bench.server.clone();
    tokio::spawn(async move { server.serve(theirs, key(who)).await });
    ours
}

/// Returns the type of the server's first frame in answer to `bytes`: 2 is ACCEPT, 3 REFUSE.
async fn answer(stream: &mut DuplexStream, bytes: &[u8]) -> u8 {
    stream.write_all(bytes).await.unwrap();
    let mut head = [0; 5];
    stream.read_exact(&mut head).await.unwrap();
    head[4]
}

/// Copies as key `who`, to the server and back if it may read. The copies must succeed.
async fn honest(bench: &Bench, who: u8, to: &str) {
    let data = noise(3 << 20, who.into());
    std::fs::write(bench.local("honest"), &data).unwrap();
    bench
        .push(
            bench.pipes_of(who),
            &[bench.local("honest")],
            to,
            WriteOptions::default(),
        )
        .await
        .ok();
    assert_eq!(
        std::fs::read(bench.root(to.trim_start_matches('/'))).unwrap(),
        data
    );
}

fn temporaries(dir: &Path) -> usize {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(TEMP_PREFIX))
        .count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_only_key_does_not_hold_all_copies() {
    let bench = Bench::with(ServerLimits {
        copies: 8,
        ..ServerLimits::default()
    });
    std::fs::write(bench.root("f"), noise(2 << 20, 1)).unwrap();
    let mut held = Vec::new();
    for _ in 0..8 {
        let mut stream = open(&bench, 4);
        let accepted = answer(&mut stream, &wire::pull_hello(b"f")).await == 2;
        held.push((stream, accepted));
    }
    assert_eq!(held.iter().filter(|(_, accepted)| *accepted).count(), 4);
    honest(&bench, 1, "/g").await;
}

#[tokio::test(start_paused = true)]
async fn copy_without_streams_counts_until_it_is_dropped() {
    let bench = Bench::with(ServerLimits {
        copies: 4,
        ..ServerLimits::default()
    });
    for n in 0..3 {
        let mut stream = open(&bench, 1);
        let hello = wire::push_hello(b"d", &[b"s"]);
        let accepted = answer(&mut stream, &hello).await == 2;
        assert_eq!(accepted, n < 2, "{n}");
        // Cut in the middle of a frame.
        let _ = stream.write_all(&[1, 0]).await;
        drop(stream);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(bench.server.copies(), 2, "they wait for their streams");
    assert_eq!(
        answer(&mut open(&bench, 1), &wire::push_hello(b"d", &[b"s"])).await,
        3
    );
    assert_eq!(
        answer(&mut open(&bench, 2), &wire::push_hello(b"in", &[b"s"])).await,
        2
    );
    tokio::time::sleep(ServerLimits::default().stream_grace).await;
    assert_eq!(
        answer(&mut open(&bench, 1), &wire::push_hello(b"d", &[b"s"])).await,
        2
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_streams_count_for_their_key() {
    let bench = Bench::with(ServerLimits {
        streams: 8,
        ..ServerLimits::default()
    });
    let mut idle: Vec<_> = (0..8).map(|_| open(&bench, 4)).collect();
    let said: Vec<u8> = {
        let mut said = Vec::new();
        for stream in &mut idle {
            said.push(answer(stream, &wire::pull_hello(b"nothing")).await);
        }
        said
    };
    assert_eq!(
        said.iter().filter(|&&answer| answer == 2).count(),
        4,
        "{said:?}"
    );
    honest(&bench, 1, "/g").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_files_are_shared_and_exhaustion_is_reported() {
    let bench = Bench::with(ServerLimits {
        open_files: 16,
        file_timeout: Duration::from_millis(20),
        ..ServerLimits::default()
    });
    std::fs::create_dir(bench.root("in")).unwrap();
    std::fs::create_dir(bench.root("d")).unwrap();
    let files: Vec<u8> = (0..40)
        .flat_map(|id| {
            let name = format!("f{id}");
            [
                wire::file(id, name.as_bytes(), 300_000),
                wire::block(id, 0, 1 << 18, b"x"),
            ]
            .concat()
        })
        .collect();
    let mut stream = open(&bench, 1);
    stream
        .write_all(&wire::push_hello(b"d", &[b""]))
        .await
        .unwrap();
    stream.write_all(&files).await.unwrap();
    // The last file has failed with `limit`.
    let limit = [&[14u8][..], &39u64.to_le_bytes(), &[13]].concat();
    let mut received = Vec::new();
    while !received.windows(limit.len()).any(|w| w == limit) {
        assert!(stream.read_buf(&mut received).await.unwrap() > 0);
    }
    // Other threads create them.
    while temporaries(&bench.root("d")) < 8 {
        tokio::task::yield_now().await;
    }
    assert_eq!(temporaries(&bench.root("d")), 8);
    honest(&bench, 2, "/in/g").await;
    drop(stream);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_of_copies_is_shared() {
    let bench = Bench::with(ServerLimits {
        bookkeeping: 2 << 20,
        ..ServerLimits::default()
    });
    std::fs::create_dir(bench.root("in")).unwrap();
    let name = |id: u64| [b"n".repeat(200), id.to_string().into_bytes()].concat();
    // Files that are described and never arrive, numbers with gaps, directories, and blocks with
    // gaps between them.
    let described: Vec<u8> = (0..4000)
        .flat_map(|id| wire::file(id, &name(id), 1 << 40))
        .collect();
    let gaps: Vec<u8> = (1..40_000).flat_map(|id| wire::failed(id, b"x")).collect();
    let directories: Vec<u8> = (0..6000)
        .flat_map(|id| wire::directory(id, &name(id)))
        .collect();
    let scattered: Vec<u8> = (0..40_000u64)
        .flat_map(|n| wire::block(0, n << 17, 1 << 16, b""))
        .collect();
    let small_blocks = wire::file_in_blocks(0, b"big", 1 << 40, 16);
    for (what, bytes) in [
        ("described", described),
        ("gaps", gaps),
        ("directories", directories),
        ("scattered", [small_blocks, scattered].concat()),
    ] {
        let mut stream = open(&bench, 1);
        let (mut reader, mut writer) = tokio::io::split(&mut stream);
        let say = async {
            let _ = writer.write_all(&wire::push_hello(b"d", &[b"s"])).await;
            // The server may close once it has received enough.
            let _ = writer.write_all(&bytes).await;
            std::future::pending().await
        };
        // REFUSE, or RESULT of the file, with the word `memory`.
        let receive = async {
            let (mut received, mut from) = (Vec::new(), 0);
            while !received[from..].windows(6).any(|w| w == b"memory") {
                from = received.len().saturating_sub(6);
                assert!(reader.read_buf(&mut received).await.unwrap() > 0, "{what}");
            }
        };
        tokio::select! {
            () = receive => {}
            () = say => {}
        }
        honest(&bench, 2, &format!("/in/{what}")).await;
        drop(stream);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reported_failures_take_no_memory() {
    let bench = Bench::with(ServerLimits {
        bookkeeping: 5 << 18,
        ..ServerLimits::default()
    });
    let count = 100_000;
    let frames: Vec<u8> = (0..count)
        .flat_map(|id| wire::failed(id, &id.to_le_bytes().map(|b| b | 0x80)))
        .collect();
    let bytes = [wire::push_hello(b"d", &[b"s"]), frames, wire::end(count)].concat();
    let mut stream = open(&bench, 1);
    let (mut reader, mut writer) = tokio::io::split(&mut stream);
    let mut received = Vec::new();
    // The server closes its half with DONE.
    let (said, all) = tokio::join!(writer.write_all(&bytes), reader.read_to_end(&mut received));
    said.unwrap();
    all.unwrap();
    // LH-COPY-21: the end is DONE, 33 bytes with its type.
    assert_eq!(received[received.len() - 33], 15);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flood_of_holes_delays_no_other_key() {
    let bench = Bench::new();
    std::fs::create_dir(bench.root("in")).unwrap();
    // More holes than can be hashed during this test, in 27 bytes for each MiB.
    let holes: Vec<u8> = (0..50_000u64)
        .flat_map(|n| wire::block(0, n << 20, 1 << 20, b""))
        .collect();
    let file = wire::file_in_blocks(0, b"", 1 << 42, 20);
    let mut streams = Vec::new();
    for n in 0..8 {
        let (mut reader, mut writer) = tokio::io::split(open(&bench, 1));
        let hello = wire::push_hello(format!("holes{n}").as_bytes(), &[b"s"]);
        let bytes = [hello, file.clone(), holes.clone()].concat();
        let (begins, begun) = tokio::sync::oneshot::channel();
        streams.push(tokio::spawn(async move { writer.write_all(&bytes).await }));
        tokio::spawn(async move {
            let mut answer = [0; 64];
            let mut begins = Some(begins);
            while reader.read(&mut answer).await.is_ok_and(|n| n > 0) {
                begins.take().map(|begins| begins.send(()));
            }
        });
        begun.await.unwrap();
    }
    honest(&bench, 2, "/in/g").await;
    for stream in streams {
        assert!(!stream.is_finished(), "holes are still waited for");
        stream.abort();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_that_does_not_read_holds_only_its_own_buffers() {
    let bench = Bench::with(ServerLimits {
        buffers: 8,
        ..ServerLimits::default()
    });
    std::fs::write(bench.root("big"), noise(8 << 20, 1)).unwrap();
    let mut deaf = Vec::new();
    for _ in 0..8 {
        let mut stream = open(&bench, 4);
        assert_eq!(answer(&mut stream, &wire::pull_hello(b"big")).await, 2);
        deaf.push(stream);
    }
    honest(&bench, 1, "/g").await;
    let run = bench
        .pull(bench.pipes(), &["big"], "big", WriteOptions::default())
        .await;
    run.ok();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn withdrawn_grant_ends_only_its_copies() {
    let bench = Bench::new();
    std::fs::write(bench.root("f"), noise(2 << 20, 1)).unwrap();
    let (ours, theirs) = tokio::io::duplex(1024);
    let server = bench.server.clone();
    let served = tokio::spawn(async move { server.serve(theirs, key(4)).await });
    let mut revoked = ours;
    assert_eq!(answer(&mut revoked, &wire::pull_hello(b"f")).await, 2);
    let mut kept = open(&bench, 1);
    assert_eq!(answer(&mut kept, &wire::pull_hello(b"f")).await, 2);
    let mut grants = Grants::default();
    grants.add(Access::Read, &key(1).to_string()).unwrap();
    bench.server.replace_grants(grants);
    let mut rest = Vec::new();
    let _ = revoked.read_to_end(&mut rest).await;
    assert!(matches!(served.await.unwrap(), Err(Error::Unauthorised(_))));
    assert_eq!(bench.server.copies(), 1);
    assert_eq!(
        answer(&mut open(&bench, 4), &wire::pull_hello(b"f")).await,
        3
    );
    assert_eq!(
        answer(&mut open(&bench, 1), &wire::pull_hello(b"f")).await,
        2
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lh_copy_9_client_respects_the_servers_stream_limit() {
    let bench = Bench::with(ServerLimits {
        streams_per_copy: 20,
        ..ServerLimits::default()
    });
    let data = noise(24 << 20, 5);
    std::fs::write(bench.local("f"), &data).unwrap();
    let sources = [bench.local("f")];
    let options = WriteOptions::default();
    let run = bench
        .push_with(bench.pipes(), &sources, "/g", options, Some(32))
        .await;
    run.ok();
    // A refused stream would have been opened and lost.
    assert!(run.streams_opened() <= 20, "{}", run.streams_opened());
    assert_eq!(run.streams_lost(), 0);
    assert_eq!(std::fs::read(bench.root("g")).unwrap(), data);
}

// LH-COPY-9.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closed_stream_frees_its_slot_and_surplus_is_temporary() {
    let bench = Bench::with(ServerLimits {
        streams_per_copy: 2,
        ..ServerLimits::default()
    });
    std::fs::write(bench.root("f"), noise(8 << 20, 1)).unwrap();
    let hello = wire::pull_hello(b"f");
    let mut stays = open(&bench, 1);
    assert_eq!(answer(&mut stays, &hello).await, 2);
    for _ in 0..20 {
        let mut closes = open(&bench, 1);
        assert_eq!(answer(&mut closes, &hello).await, 2);
        let mut surplus = open(&bench, 1);
        assert_eq!(answer(&mut surplus, &hello).await, 3);
        // The refusal is one of *when*.
        assert_eq!(surplus.read_u8().await.unwrap(), 2);
        closes.shutdown().await.unwrap();
        // The server has closed it too, so another stream may replace it.
        closes.read_to_end(&mut Vec::new()).await.unwrap();
    }
}
