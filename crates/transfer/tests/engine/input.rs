//! An input that can be read once, such as standard input, as the source of a copy.
//!
//! Threads read and write the input, so the clock of these tests is the real one.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use longhaul_transfer::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use crate::harness::*;
use crate::wire;

/// Size of a block of an input.
const BLOCK: usize = 256 * 1024;
/// Bytes of the inputs in memory.
const MAX_BYTES: usize = 8 * BLOCK;
/// Capacity of a pipe (pipe(7)), in bytes.
const PIPE_BYTES: u64 = 64 * 1024;

/// Returns an input of this content. What has been taken of it is counted.
fn input(content: Vec<u8>, taken: &Arc<AtomicU64>) -> File {
    let (read, mut write) = std::io::pipe().unwrap();
    let taken = taken.clone();
    std::thread::spawn(move || {
        for part in content.chunks(10_007) {
            if write.write_all(part).is_err() {
                return;
            }
            taken.fetch_add(part.len() as u64, Ordering::Relaxed);
        }
    });
    OwnedFd::from(read).into()
}

/// Returns the request to push an input.
fn request(to: &str, overwrite: bool) -> CopyRequest {
    CopyRequest::Push {
        destination: rel(to),
        into: to.ends_with('/'),
        overwrite,
        fsync: false,
        names: vec![b"stdin".to_vec()],
    }
}

/// Returns pipes that break after these numbers of bytes, which count from the first answer.
fn breaking_pipes(bench: &Bench, cuts: &[u64]) -> Pipes {
    let pipes = bench.pipes();
    *pipes.cuts.lock() = cuts.to_vec();
    Pipes {
        counts_from_answer: true,
        ..pipes
    }
}

/// Result of a push of an input.
struct Pushed {
    run: Run,
    /// True if the input was stored first.
    was_stored: bool,
    /// Maximum number of bytes that were taken of the input and not answered.
    most_held: u64,
}

async fn push(pipes: impl Connector, content: Vec<u8>, to: &str) -> Pushed {
    push_with(pipes, content, to, WriteOptions::default(), |_| ()).await
}

async fn push_with<C: Connector>(
    pipes: C,
    content: Vec<u8>,
    to: &str,
    options: WriteOptions,
    change: impl FnOnce(&mut Client<C>),
) -> Pushed {
    let taken = Arc::new(AtomicU64::new(0));
    let input = input(content, &taken);
    push_input(pipes, input, taken, to, options, change).await
}

/// Pushes `input`, of which `taken` bytes have been taken so far.
async fn push_input<C: Connector>(
    pipes: C,
    input: File,
    taken: Arc<AtomicU64>,
    to: &str,
    options: WriteOptions,
    change: impl FnOnce(&mut Client<C>),
) -> Pushed {
    let (was_stored, stored) = (Arc::new(AtomicBool::new(false)), AtomicBool::new(false));
    let on_store = {
        let was_stored = was_stored.clone();
        move || {
            assert!(!stored.swap(true, Ordering::Relaxed), "it is stored once");
            was_stored.store(true, Ordering::Relaxed);
        }
    };
    let found = Sources::input(input, Some(MAX_BYTES), on_store).unwrap();
    let request = request(to, options.overwrite);
    let (mut client, events, progress) = client(pipes, request, None, true, Compare::default());
    change(&mut client);
    let mut copy = Box::pin(client.push(found, vec!["-".into()]));
    let mut most_held = 0;
    let result = std::future::poll_fn(|context| {
        let done = progress.bytes_done.load(Ordering::Relaxed);
        let held = taken.load(Ordering::Relaxed).saturating_sub(done);
        most_held = most_held.max(held);
        copy.as_mut().poll(context)
    })
    .await;
    Pushed {
        run: finish(result, events, progress).await,
        was_stored: was_stored.load(Ordering::Relaxed),
        most_held,
    }
}

#[tokio::test]
async fn lh_copy_79_input_of_any_size_is_sent_while_it_is_read() {
    let bench = Bench::new();
    let sizes = [
        0,
        1,
        5000,
        BLOCK,
        BLOCK + 1,
        2 * BLOCK,
        2 * BLOCK + 1,
        3 * BLOCK,
        11_000_003,
    ];
    for (n, size) in sizes.into_iter().enumerate() {
        let content = noise(size, n as u64);
        let (to, place) = (format!("/f{n}"), bench.root(&format!("f{n}")));
        let pushed = push(bench.pipes(), content.clone(), &to).await;
        pushed.run.ok();
        assert!(!pushed.was_stored);
        assert!(std::fs::read(&place).unwrap() == content, "{size}");
        let progress = &pushed.run.progress;
        assert_eq!(progress.bytes_done.load(Ordering::Relaxed), size as u64);
        assert_eq!(progress.bytes_found.load(Ordering::Relaxed), size as u64);
        let done = pushed.run.events.iter().any(|event| {
            matches!(event, TransferEvent::Done { bytes: Some(bytes), hash: Some(hash), .. }
                if *bytes == size as u64 && hash == blake3::hash(&content).as_bytes())
        });
        assert!(done, "{:?}", pushed.run.events);
    }
    assert_no_temps(&bench.root(""));
}

#[tokio::test]
async fn input_larger_than_the_bound_is_read_as_it_is_written() {
    let bench = Bench::new();
    let content = noise(30 * MAX_BYTES, 7);
    let pushed = push(bench.pipes(), content.clone(), "/f").await;
    pushed.run.ok();
    // The buffer, a block that is being read, and the pipe.
    let most = (MAX_BYTES + BLOCK) as u64 + PIPE_BYTES;
    assert!(pushed.most_held <= most, "{}", pushed.most_held);
    assert!(std::fs::read(bench.root("f")).unwrap() == content);
}

/// The server would drop any other copy as soon as it has no stream.
#[tokio::test]
async fn lh_copy_27_streams_that_break_lose_nothing_of_an_input() {
    for streams in [1, 3] {
        let bench = Bench::with(ServerLimits {
            stream_grace: Duration::ZERO,
            ..ServerLimits::default()
        });
        let content = noise(9_000_000, 7);
        // The first one breaks after more than is kept in memory, so some of it was answered.
        let pipes = breaking_pipes(&bench, &[2_500_000, 1_500_000, 400_000, 2_000_000]);
        let options = WriteOptions::default();
        let fixed = |client: &mut Client<Pipes>| client.streams = Some(streams);
        let pushed = push_with(pipes, content.clone(), "/f", options, fixed).await;
        pushed.run.ok();
        assert!(pushed.run.streams_lost() >= 1);
        let is_replaced =
            |event: &TransferEvent| matches!(event, TransferEvent::CopyReplaced { .. });
        assert!(!pushed.run.events.iter().any(is_replaced));
        assert!(std::fs::read(bench.root("f")).unwrap() == content);
        assert_no_temps(&bench.root(""));
    }
}

#[tokio::test]
async fn lost_copy_of_an_input_is_reported() {
    let bench = Bench::with(ServerLimits {
        late_stream_grace: Duration::ZERO,
        ..ServerLimits::default()
    });
    let pipes = breaking_pipes(&bench, &[4_000_000]);
    let (options, content) = (WriteOptions::default(), noise(9_000_000, 7));
    let one = |client: &mut Client<Pipes>| client.streams = Some(1);
    let pushed = push_with(pipes, content, "/f", options, one).await;
    assert_eq!(
        pushed.run.failures(),
        [("-".to_owned(), FailureKind::Changed)]
    );
    assert!(!bench.root("f").exists());
}

#[tokio::test]
async fn several_streams_carry_an_input_over_a_long_path() {
    let bench = Bench::new();
    let content = noise(9_000_000, 7);
    let pipes = Pipes {
        one_way: Duration::from_millis(20),
        ..bench.pipes()
    };
    let four = |client: &mut Client<Pipes>| client.streams = Some(4);
    let options = WriteOptions::default();
    let pushed = push_with(pipes, content.clone(), "/f", options, four).await;
    pushed.run.ok();
    assert_eq!(pushed.run.streams_opened(), 4);
    let streams = pushed.run.progress.streams();
    let carried = |stream: &Arc<StreamCounters>| stream.bytes.load(Ordering::Relaxed);
    assert!(streams.iter().all(|stream| carried(stream) > 0));
    assert!(std::fs::read(bench.root("f")).unwrap() == content);
}

#[tokio::test]
async fn killed_client_leaves_nothing_of_an_input() {
    let bench = Bench::with(ServerLimits {
        late_stream_grace: Duration::ZERO,
        ..ServerLimits::default()
    });
    let (read, mut write) = std::io::pipe().unwrap();
    let found = Sources::input(OwnedFd::from(read).into(), Some(MAX_BYTES), || ()).unwrap();
    let request = request("f", false);
    let pipes = bench.pipes();
    let (client, _, progress) = client(pipes, request, None, true, Compare::default());
    let copy = tokio::spawn(client.push(found, vec!["-".into()]));
    // The input does not end.
    let content = noise(4 * BLOCK, 7);
    let write = tokio::task::spawn_blocking(move || {
        write.write_all(&content).unwrap();
        write
    });
    let write = write.await.unwrap();
    while progress.bytes_done.load(Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    let count = || std::fs::read_dir(bench.root("")).unwrap().count();
    assert_eq!(count(), 1, "a temporary file");
    copy.abort();
    assert!(copy.await.is_err());
    while count() > 0 {
        tokio::task::yield_now().await;
    }
    drop(write);
    assert!(!bench.root("f").exists());
}

/// The copy ends although the input does not.
#[tokio::test]
async fn lh_copy_80_existing_file_ends_the_copy_of_an_input() {
    let bench = Bench::new();
    let content = noise(30 * MAX_BYTES, 7);
    std::fs::write(bench.root("f"), &content).unwrap();
    let pushed = push(bench.pipes(), content.clone(), "/f").await;
    assert_eq!(
        pushed.run.failures(),
        [("-".to_owned(), FailureKind::Exists)]
    );
    std::fs::write(bench.root("f"), "other").unwrap();
    let options = WriteOptions {
        overwrite: true,
        ..WriteOptions::default()
    };
    let pushed = push_with(bench.pipes(), content.clone(), "/f", options, |_| ()).await;
    pushed.run.ok();
    assert!(std::fs::read(bench.root("f")).unwrap() == content);
}

#[tokio::test]
async fn input_that_cannot_be_read_fails() {
    let bench = Bench::new();
    let directory = File::open(bench.root("")).unwrap();
    let found = Sources::input(directory, Some(MAX_BYTES), || ()).unwrap();
    let request = request("f", false);
    let (client, events, progress) = client(bench.pipes(), request, None, true, Compare::default());
    let result = client.push(found, vec!["-".into()]).await;
    let run = finish(result, events, progress).await;
    assert_eq!(run.failures().len(), 1, "{:?}", run.events);
    assert!(!bench.root("f").exists());
}

#[tokio::test]
async fn server_that_needs_the_size_gets_a_stored_input() {
    let bench = Bench::new();
    let content = noise(9_000_000, 7);
    let update = |client: &mut Client<Pipes>| client.hello.existing.update = true;
    let options = WriteOptions::default();
    let pushed = push_with(bench.pipes(), content.clone(), "/f", options, update).await;
    pushed.run.ok();
    assert!(pushed.was_stored);
    assert!(std::fs::read(bench.root("f")).unwrap() == content);
}

#[tokio::test]
async fn stored_beginning_of_an_input_survives_a_lost_copy() {
    let bench = Bench::with(ServerLimits {
        stream_grace: Duration::ZERO,
        ..ServerLimits::default()
    });
    let pipes = breaking_pipes(&bench, &[1]);
    let content = noise(9_000_000, 7);
    let (read, mut write) = std::io::pipe().unwrap();
    let taken = Arc::new(AtomicU64::new(0));
    let (parts, count, opened) = (content.clone(), taken.clone(), pipes.opened.clone());
    std::thread::spawn(move || {
        let (first, second) = parts.split_at(4_500_000);
        write.write_all(first).unwrap();
        count.fetch_add(first.len() as u64, Ordering::Relaxed);
        // The first stream is lost, and with it the copy.
        while opened.load(Ordering::SeqCst) < 3 {
            std::thread::yield_now();
        }
        write.write_all(second).unwrap();
    });
    let read = OwnedFd::from(read).into();
    let change = |client: &mut Client<Pipes>| {
        client.streams = Some(1);
        client.hello.existing.update = true;
    };
    let options = WriteOptions::default();
    let pushed = push_input(pipes, read, taken, "/f", options, change).await;
    pushed.run.ok();
    assert!(pushed.was_stored);
    assert!(std::fs::read(bench.root("f")).unwrap() == content);
}

#[tokio::test]
async fn earlier_server_gets_a_stored_input() {
    let bench = Bench::new();
    let content = noise(9_000_000, 7);
    let pushed = push(EarlierServer(bench.pipes()), content.clone(), "/f").await;
    pushed.run.ok();
    assert!(pushed.was_stored);
    assert!(std::fs::read(bench.root("f")).unwrap() == content);
    // What has at most one block needs no other way.
    let pushed = push(
        EarlierServer(bench.pipes()),
        content[..BLOCK].to_vec(),
        "/g",
    )
    .await;
    pushed.run.ok();
    assert!(!pushed.was_stored);
}

// LH-COPY-79.
#[tokio::test(start_paused = true)]
async fn late_size_that_was_not_agreed_ends_the_copy() {
    let bench = Bench::new();
    let bytes = wire::file(0, b"", 1 << 62);
    let pulled = crate::attacks::pull_hostile(&bench.local("x"), true, bytes, Arc::new(())).await;
    let error = pulled.unwrap_err();
    assert!(matches!(error, Error::Protocol(_)), "{error}");
    assert!(!bench.local("x").exists());
}

/// A server that knows no late sizes. It ignores the last option of HELLO.
struct EarlierServer(Pipes);

impl Connector for EarlierServer {
    type Stream = DuplexStream;

    fn routes(&self) -> Vec<RouteInfo> {
        self.0.routes()
    }

    async fn connect(&self, route: usize) -> Result<DuplexStream, ConnectError> {
        let mut server = self.0.connect(route).await?;
        let (ours, mut client) = tokio::io::duplex(BLOCK);
        tokio::spawn(async move {
            let length = client.read_u32_le().await?;
            let mut hello = vec![0; length as usize];
            client.read_exact(&mut hello).await?;
            let option = hello.split_off(hello.len() - 4);
            assert_eq!(option, [26, 0, 0, 0]);
            server.write_u32_le(length - 4).await?;
            server.write_all(&hello).await?;
            tokio::io::copy_bidirectional(&mut client, &mut server).await
        });
        Ok(ours)
    }
}
