//! Copies whose data travels in plaintext: the agreement of both ends, and attacks on the path.

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use longhaul_transfer::*;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};

use crate::harness::*;

/// A pipe that changes the byte at this offset of what the client reads.
struct TamperedPipe {
    inner: DuplexStream,
    read: u64,
    at: u64,
}

impl Transport for TamperedPipe {
    fn plaintext(&self) -> Option<Arc<longhaul_session::PlaintextRanges>> {
        Some(Arc::default())
    }
}

impl AsyncRead for TamperedPipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let poll = Pin::new(&mut self.inner).poll_read(cx, buf);
        let (first, place) = (self.read, self.at);
        let new = &mut buf.filled_mut()[before..];
        self.read += new.len() as u64;
        if let Some(byte) = place
            .checked_sub(first)
            .and_then(|at| new.get_mut(at as usize))
        {
            *byte ^= 1;
        }
        poll
    }
}

impl AsyncWrite for TamperedPipe {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// Streams of which the first is [`TamperedPipe`]; later ones are unchanged.
struct TamperingConnector {
    server: Arc<Server>,
    at: u64,
}

impl Connector for TamperingConnector {
    type Stream = TamperedPipe;

    fn routes(&self) -> Vec<RouteInfo> {
        vec![RouteInfo::direct()]
    }

    async fn connect(&self, _: usize) -> Result<TamperedPipe, ConnectError> {
        let (inner, theirs) = tokio::io::duplex(1 << 16);
        let server = self.server.clone();
        tokio::spawn(async move { server.serve(theirs, key(1)).await });
        Ok(TamperedPipe {
            inner,
            read: 0,
            at: self.at,
        })
    }
}

pub fn hello(request: CopyRequest) -> Hello {
    Hello {
        token: CopyToken::random().unwrap(),
        request,
        resume: true,
        clear: true,
        offer: None,
        hard_links: false,
        single: false,
        portion: Portion::Whole,
        placement: None,
        reports_not_kept: false,
        filter: FilterRules::default(),
        existing: ExistingPolicy::default(),
        receipt: false,
        compression: Compression::None,
        packs: false,
        delta: false,
        in_place: false,
        late_sizes: false,
        keep: Preservation::default(),
        bearer: None,
    }
}

/// Returns a client of the bench's server with this HELLO.
pub fn client(
    pipes: Pipes,
    hello: Hello,
    streams: u32,
    progress: &Arc<TransferProgress>,
) -> Client<Pipes> {
    Client {
        connector: Arc::new(pipes),
        hello,
        compare: Compare::default(),
        streams: Some(streams),
        memory: None,
        patience: DEFAULT_PATIENCE,
        progress: progress.clone(),
        observer: Arc::new(Events::default()),
        receipt: None,
        tokens: None,
    }
}

/// Copies the tree of [`tree_and_copy`]. `finish` completes the HELLO. The copy
/// must be complete.
pub async fn copy_tree(
    bench: &Bench,
    pull: bool,
    streams: u32,
    finish: impl FnOnce(Hello) -> Hello,
) -> Arc<TransferProgress> {
    let progress = Arc::new(TransferProgress::default());
    let client = |request| client(bench.pipes(), finish(hello(request)), streams, &progress);
    let (from, to) = tree_and_copy(bench, pull);
    if pull {
        let client = client(CopyRequest::Pull {
            recursive: true,
            sources: vec![rel("tree")],
        });
        let options = WriteOptions {
            resume: true,
            ..Default::default()
        };
        let names = vec![b"tree".to_vec()];
        let destination = CopyDestination::local(&to, names, options, client.hello.token).unwrap();
        client.pull(destination, vec!["tree".into()]).await.unwrap();
    } else {
        let (found, names) = Sources::local(std::slice::from_ref(&from), true).unwrap();
        let client = client(CopyRequest::Push {
            destination: rel("copy"),
            into: false,
            overwrite: false,
            fsync: false,
            names,
        });
        client.push(found, vec!["tree".into()]).await.unwrap();
    }
    assert_eq!(describe(&to), describe(&from));
    progress
}

/// Returns where the tree is, and where its copy goes.
pub fn tree_and_copy(bench: &Bench, pull: bool) -> (PathBuf, PathBuf) {
    match pull {
        true => (bench.root("tree"), bench.local("copy")),
        false => (bench.local("tree"), bench.root("copy")),
    }
}

/// Returns the plaintext bytes when a client pulls, or pushes, a file of 3 MB and a small one. The
/// copy must be complete.
async fn copied(bench: &Bench, pull: bool) -> u64 {
    let (from, _) = tree_and_copy(bench, pull);
    std::fs::create_dir(&from).unwrap();
    std::fs::write(from.join("large"), noise(3_000_000, 1)).unwrap();
    std::fs::write(from.join("small"), noise(3000, 2)).unwrap();
    let progress = copy_tree(bench, pull, 1, |hello| hello).await;
    progress.bytes_plaintext.load(Ordering::SeqCst)
}

/// LH-COPY-43.
#[tokio::test(start_paused = true)]
async fn data_travels_in_plaintext_if_both_ends_agree() {
    let bench = Bench::new();
    assert_eq!(
        copied(&bench, true).await,
        0,
        "the server was not told to allow it"
    );
    let bench = Bench::new();
    assert_eq!(copied(&bench, false).await, 0);
    let bench = Bench::new();
    bench.server.allow_plaintext();
    // A server knows from the first byte what both sides want.
    assert_eq!(copied(&bench, true).await, 3_000_000);
    let bench = Bench::new();
    bench.server.allow_plaintext();
    let clear = copied(&bench, false).await;
    assert!(clear <= 3_000_000, "{clear}");
}

/// LH-COPY-43: ACCEPT applies to its stream. On a stream that replaces a lost one, it applies from
/// the first block.
#[tokio::test(start_paused = true)]
async fn replacement_stream_sends_plaintext_too() {
    let bench = Bench::new();
    bench.server.allow_plaintext();
    let pipes = bench.pipes();
    // Two blocks of the file do not fit.
    *pipes.cuts.lock() = vec![100_000];
    let from = bench.local("f");
    std::fs::write(&from, noise(3_000_000, 1)).unwrap();
    let (found, names) = Sources::local(std::slice::from_ref(&from), true).unwrap();
    let (events, progress) = (
        Arc::new(Events::default()),
        Arc::new(TransferProgress::default()),
    );
    let client = Client {
        connector: Arc::new(pipes),
        hello: hello(CopyRequest::Push {
            destination: rel("f"),
            into: false,
            overwrite: false,
            fsync: false,
            names,
        }),
        compare: Compare::default(),
        streams: Some(1),
        memory: None,
        patience: DEFAULT_PATIENCE,
        progress: progress.clone(),
        observer: events.clone(),
        receipt: None,
        tokens: None,
    };
    client.push(found, vec!["f".into()]).await.unwrap();
    assert_eq!(events.streams_lost(), 1);
    assert!(std::fs::read(bench.root("f")).unwrap() == std::fs::read(&from).unwrap());
    let clear = progress.bytes_plaintext.load(Ordering::SeqCst);
    assert!(clear >= 2_800_000, "{clear}");
}

/// LH-COPY-44: a block that was changed in transit is not written. Its file fails, and nothing of
/// it is kept to be resumed.
#[tokio::test(start_paused = true)]
async fn block_changed_in_transit_fails_its_file() {
    let bench = Bench::new();
    bench.server.allow_plaintext();
    std::fs::write(bench.root("f"), noise(3_000_000, 1)).unwrap();
    for at in [200_000, 1_500_000, 2_900_000] {
        let (events, progress) = (
            Arc::new(Events::default()),
            Arc::new(TransferProgress::default()),
        );
        let client = Client {
            connector: Arc::new(TamperingConnector {
                server: bench.server.clone(),
                at,
            }),
            hello: hello(CopyRequest::Pull {
                recursive: false,
                sources: vec![rel("f")],
            }),
            compare: Compare::default(),
            streams: Some(1),
            memory: None,
            patience: DEFAULT_PATIENCE,
            progress: progress.clone(),
            observer: events.clone(),
            receipt: None,
            tokens: None,
        };
        let options = WriteOptions {
            resume: true,
            ..Default::default()
        };
        let to = bench.local("got");
        let destination =
            CopyDestination::local(&to, vec![b"f".to_vec()], options, client.hello.token).unwrap();
        client.pull(destination, vec!["f".into()]).await.unwrap();
        assert!(!to.exists());
        assert_no_temps(&bench.local(""));
        assert_eq!(progress.failures.load(Ordering::SeqCst), 1);
        let failure = events.failures().pop().unwrap();
        assert_eq!(failure.kind, FailureKind::Verification);
        assert!(
            failure.to_string().contains("changed on the way"),
            "{failure}"
        );
    }
}
