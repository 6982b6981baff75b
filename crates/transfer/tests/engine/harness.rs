//! A server and a client, connected by in-memory pipes that can be cut after a number of bytes.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use longhaul_proto::PublicKey;
use longhaul_transfer::path::RelPath;
use longhaul_transfer::store::confine::Dir;
use longhaul_transfer::*;
use parking_lot::Mutex;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};
use tokio::sync::Notify;
use tokio::time::Instant;

pub fn key(n: u8) -> PublicKey {
    PublicKey::from_bytes([n; 32])
}

pub fn rel(path: &str) -> RelPath {
    RelPath::from_typed(path.as_bytes()).unwrap()
}

/// Both directories of a copy, and the server of one of them.
pub struct Bench {
    pub tmp: tempfile::TempDir,
    pub server: Arc<Server>,
    pub compare: Compare,
    /// True for `cp --hard-links`.
    pub hard_links: bool,
    pub filter: FilterRules,
    pub existing: ExistingPolicy,
    pub receipt: Option<Arc<receipt::ReceiptRecorder>>,
    /// Selection of what is kept.
    pub keep: Preservation,
    /// Changes of metadata at the client's end.
    pub changes: MetadataChanges,
}

impl Bench {
    pub fn new() -> Self {
        Self::with(ServerLimits::default())
    }

    pub fn with(limits: ServerLimits) -> Self {
        let tmp = tempfile::tempdir().unwrap();
        std::fs::create_dir(tmp.path().join("root")).unwrap();
        std::fs::create_dir(tmp.path().join("local")).unwrap();
        let mut grants = Grants::default();
        grants.add(Access::Read, &key(1).to_string()).unwrap();
        grants.add(Access::Write, &key(1).to_string()).unwrap();
        grants
            .add(Access::Write, &format!("{}=in", key(2)))
            .unwrap();
        grants
            .add(Access::Create, &format!("{}=in", key(3)))
            .unwrap();
        grants.add(Access::Read, &key(4).to_string()).unwrap();
        let server = Server::new(Dir::open(&tmp.path().join("root")).unwrap(), grants, limits);
        let compare = Compare::default();
        Self {
            tmp,
            server,
            compare,
            hard_links: false,
            filter: FilterRules::default(),
            existing: ExistingPolicy::default(),
            receipt: None,
            keep: Preservation::default(),
            changes: MetadataChanges::default(),
        }
    }

    pub fn root(&self, path: &str) -> PathBuf {
        self.tmp.path().join("root").join(path)
    }

    pub fn local(&self, path: &str) -> PathBuf {
        self.tmp.path().join("local").join(path)
    }

    pub fn pipes(&self) -> Pipes {
        self.pipes_of(1)
    }

    pub fn pipes_of(&self, who: u8) -> Pipes {
        Pipes {
            server: self.server.clone(),
            principal: key(who),
            routes: vec![RouteInfo::direct()],
            cuts: Mutex::new(Vec::new()),
            stalls: false,
            counts_from_answer: false,
            one_way: Duration::ZERO,
            hook: Mutex::new(None),
            opened: Arc::default(),
            carried: Arc::default(),
            exhausted: Arc::default(),
        }
    }

    pub async fn push(
        &self,
        pipes: Pipes,
        sources: &[PathBuf],
        to: &str,
        options: WriteOptions,
    ) -> Run {
        self.push_with(pipes, sources, to, options, None).await
    }

    pub async fn push_with(
        &self,
        pipes: impl Connector,
        sources: &[PathBuf],
        to: &str,
        options: WriteOptions,
        streams: Option<u32>,
    ) -> Run {
        let (found, names) = Sources::local(sources, true).unwrap();
        let request = CopyRequest::Push {
            destination: rel(to),
            into: to.ends_with('/'),
            overwrite: options.overwrite,
            fsync: options.fsync,
            names,
        };
        let labels = sources.iter().map(|s| s.display().to_string()).collect();
        let (mut client, events, progress) =
            client(pipes, request, streams, options.resume, self.compare);
        client.hello.hard_links = self.hard_links;
        client.hello.existing = self.existing;
        client.receipt = self.receipt.clone();
        let filter = Filter::new(self.filter.clone()).unwrap();
        client.hello.keep = self.keep.for_receiver();
        let found = found
            .filtered(Some(Arc::new(filter)))
            .keeping(self.keep, self.changes.clone());
        let result = client.push(found, labels).await;
        finish(result, events, progress).await
    }

    /// Pulls with `-r`.
    pub async fn pull(
        &self,
        pipes: Pipes,
        sources: &[&str],
        to: &str,
        options: WriteOptions,
    ) -> Run {
        self.pull_with(pipes, sources, to, options, true).await
    }

    pub async fn pull_with(
        &self,
        pipes: Pipes,
        sources: &[&str],
        to: &str,
        options: WriteOptions,
        recursive: bool,
    ) -> Run {
        let sources: Vec<RelPath> = sources.iter().map(|s| rel(s)).collect();
        let names: Vec<Vec<u8>> = sources
            .iter()
            .map(|s| s.split_last().map_or(vec![], |(_, n)| n.to_vec()))
            .collect();
        let labels = sources.iter().map(|s| s.to_string()).collect();
        let (mut client, events, progress) = client(
            pipes,
            CopyRequest::Pull { recursive, sources },
            None,
            options.resume,
            self.compare,
        );
        client.hello.hard_links = self.hard_links;
        client.hello.filter = self.filter.clone();
        client.hello.keep = self.keep;
        client.receipt = self.receipt.clone();
        let destination =
            CopyDestination::local(&self.local(to), names, options, client.hello.token).unwrap();
        let destination =
            destination
                .with_existing(self.existing)
                .with_attributes(AttributeSettings {
                    keep: self.keep.for_receiver(),
                    changes: self.changes.clone(),
                    is_privileged: true,
                    corrects_existing: self.keep.has_attributes(),
                });
        let result = client.pull(destination, labels).await;
        finish(result, events, progress).await
    }
}

pub fn client<C: Connector>(
    connector: C,
    request: CopyRequest,
    streams: Option<u32>,
    resume: bool,
    compare: Compare,
) -> (Client<C>, Arc<Events>, Arc<TransferProgress>) {
    let (events, progress) = (
        Arc::new(Events::default()),
        Arc::new(TransferProgress::default()),
    );
    let hello = Hello {
        token: CopyToken::random().unwrap(),
        request,
        resume,
        clear: false,
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
    };
    let client = Client {
        connector: Arc::new(connector),
        hello,
        compare,
        streams,
        memory: None,
        patience: DEFAULT_PATIENCE,
        progress: progress.clone(),
        observer: events.clone(),
        receipt: None,
        tokens: None,
    };
    (client, events, progress)
}

pub async fn finish(
    result: Result<CopyOutcome, Error>,
    events: Arc<Events>,
    progress: Arc<TransferProgress>,
) -> Run {
    let ended = Instant::now();
    let result = match result {
        Ok(outcome) => {
            outcome.closing.join_all().await;
            Ok(outcome.manifest)
        }
        Err(error) => Err(error),
    };
    let events = std::mem::take(&mut *events.0.lock());
    Run {
        result,
        ended,
        events,
        progress,
    }
}

#[derive(Default)]
pub struct Events(Mutex<Vec<TransferEvent>>);

impl Events {
    /// Returns the number of streams lost so far.
    pub fn streams_lost(&self) -> usize {
        let events = self.0.lock();
        let lost = |event: &&TransferEvent| matches!(event, TransferEvent::StreamLost { .. });
        events.iter().filter(lost).count()
    }

    /// Returns the bytes of files that were resumed.
    pub fn resumed(&self) -> u64 {
        let bytes = |event: &TransferEvent| match event {
            TransferEvent::Resumed { bytes, .. } => *bytes,
            _ => 0,
        };
        self.0.lock().iter().map(bytes).sum()
    }

    /// Returns the failures so far.
    pub fn failures(&self) -> Vec<Failure> {
        let failure = |event: &TransferEvent| match event {
            TransferEvent::Failed { failure, .. } => Some(failure.clone()),
            _ => None,
        };
        self.0.lock().iter().filter_map(failure).collect()
    }
}

impl Observer for Events {
    fn event(&self, event: TransferEvent) {
        self.0.lock().push(event);
    }
}

/// Result of one copy.
pub struct Run {
    pub result: Result<Hash, Error>,
    /// Time when the outcome was known. Streams may have closed after that.
    pub ended: Instant,
    pub events: Vec<TransferEvent>,
    pub progress: Arc<TransferProgress>,
}

impl Run {
    /// Asserts that everything was copied.
    pub fn ok(&self) -> &Self {
        if let Err(error) = &self.result {
            panic!("{error}: {:?}", self.events);
        }
        assert_eq!(self.failures(), []);
        self
    }

    /// Returns the failures: the end of the path, and the kind.
    pub fn failures(&self) -> Vec<(String, FailureKind)> {
        let failed = |event: &TransferEvent| match event {
            TransferEvent::Failed { path, failure } => Some((
                path.rsplit('/').next().unwrap_or(path).to_owned(),
                failure.kind,
            )),
            _ => None,
        };
        let mut list: Vec<_> = self.events.iter().filter_map(failed).collect();
        list.sort_by(|a, b| a.0.cmp(&b.0));
        list
    }

    pub fn streams_opened(&self) -> usize {
        self.events
            .iter()
            .filter(|e| matches!(e, TransferEvent::StreamOpened { .. }))
            .count()
    }

    pub fn streams_lost(&self) -> usize {
        self.events
            .iter()
            .filter(|e| matches!(e, TransferEvent::StreamLost { .. }))
            .count()
    }
}

/// Opens pipes to the server. Pipe n is cut after `cuts[n]` bytes have passed in both directions
/// together.
pub struct Pipes {
    pub server: Arc<Server>,
    pub principal: PublicKey,
    pub routes: Vec<RouteInfo>,
    pub cuts: Mutex<Vec<u64>>,
    /// If true, an exhausted budget does not break the pipe. Nothing passes any more, without an
    /// error.
    pub stalls: bool,
    /// If true, nothing counts towards a cut before the client has read something.
    pub counts_from_answer: bool,
    /// Delay of every byte in each direction.
    pub one_way: Duration,
    /// Function that is called once this many bytes have passed over the first pipe.
    pub hook: Mutex<Option<Hook>>,
    pub opened: Arc<AtomicUsize>,
    /// Number of bytes that passed over all pipes.
    pub carried: Arc<AtomicU64>,
    /// Notified when the budget of a pipe is exhausted.
    pub exhausted: Arc<Notify>,
}

/// Returns the two ends of a path. A long path holds everything that is sent into it.
fn path(one_way: Duration) -> (DuplexStream, DuplexStream) {
    if one_way.is_zero() {
        return tokio::io::duplex(256 * 1024);
    }
    let (ours, near) = tokio::io::duplex(64 << 20);
    let (theirs, far) = tokio::io::duplex(64 << 20);
    let (near_read, near_write) = tokio::io::split(near);
    let (far_read, far_write) = tokio::io::split(far);
    tokio::spawn(delay(near_read, far_write, one_way));
    tokio::spawn(delay(far_read, near_write, one_way));
    (ours, theirs)
}

/// Forwards bytes with a delay, at unlimited rate.
async fn delay(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin + Send + 'static,
    one_way: Duration,
) {
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    tokio::spawn(async move {
        while let Some((at, bytes)) = receiver.recv().await {
            tokio::time::sleep_until(at).await;
            let done = if bytes.is_empty() {
                to.shutdown().await
            } else {
                to.write_all(&bytes).await
            };
            if done.is_err() || bytes.is_empty() {
                return;
            }
        }
    });
    let mut buffer = vec![0; 256 * 1024];
    loop {
        let n = from.read(&mut buffer).await.unwrap_or(0);
        let _ = sender.send((Instant::now() + one_way, buffer[..n].to_vec()));
        if n == 0 {
            return;
        }
    }
}

type Hook = (u64, Box<dyn FnOnce() + Send>);

impl Connector for Pipes {
    type Stream = CutPipe;

    fn routes(&self) -> Vec<RouteInfo> {
        self.routes.clone()
    }

    async fn connect(&self, _: usize) -> Result<CutPipe, ConnectError> {
        let (ours, theirs) = self.open()?;
        let (server, principal) = (self.server.clone(), self.principal);
        tokio::spawn(async move { server.serve(theirs, principal).await });
        Ok(ours)
    }
}

impl Pipes {
    /// Opens a pipe, and returns the client's end and the server's, which nothing serves yet.
    fn open(&self) -> Result<(CutPipe, CutPipe), ConnectError> {
        let number = self.opened.fetch_add(1, Ordering::SeqCst);
        let left = self.cuts.lock().get(number).copied().unwrap_or(u64::MAX);
        if left == 0 {
            return Err(ConnectError {
                message: "depot d:1 does not answer".into(),
                kind: ConnectFailure::NoRoute,
                is_unknown_key: false,
                retry: true,
            });
        }
        let (ours, theirs) = path(self.one_way);
        let budget = Arc::new(AtomicU64::new(left));
        let stalls = self.stalls;
        let counts = Arc::new(AtomicBool::new(!self.counts_from_answer));
        let theirs = CutPipe {
            inner: theirs,
            budget: budget.clone(),
            counts: counts.clone(),
            is_server: true,
            stalls,
            hook: None,
            carried: Arc::default(),
            exhausted: self.exhausted.clone(),
        };
        let ours = CutPipe {
            inner: ours,
            budget,
            counts,
            is_server: false,
            stalls,
            hook: self.hook.lock().take(),
            carried: self.carried.clone(),
            exhausted: self.exhausted.clone(),
        };
        Ok((ours, theirs))
    }
}

/// A server that is slow to serve the first pipes. Once there are `first`, it serves the last of
/// them first, and each of the others when the one before has been answered.
pub struct LateServer {
    pub pipes: Pipes,
    pub first: usize,
    pub waiting: Mutex<Vec<CutPipe>>,
}

impl Connector for LateServer {
    type Stream = CutPipe;

    fn routes(&self) -> Vec<RouteInfo> {
        self.pipes.routes()
    }

    async fn connect(&self, route: usize) -> Result<CutPipe, ConnectError> {
        if self.pipes.opened.load(Ordering::SeqCst) >= self.first {
            return self.pipes.connect(route).await;
        }
        let (ours, theirs) = self.pipes.open()?;
        let mut waiting = self.waiting.lock();
        waiting.push(theirs);
        if waiting.len() == self.first {
            let waiting = std::mem::take(&mut *waiting);
            let (server, principal) = (self.pipes.server.clone(), self.pipes.principal);
            tokio::spawn(async move {
                for theirs in waiting.into_iter().rev() {
                    let (server, answered) = (server.clone(), theirs.counts.clone());
                    let serving =
                        tokio::spawn(async move { server.serve(theirs, principal).await });
                    while !answered.load(Ordering::SeqCst) && !serving.is_finished() {
                        tokio::task::yield_now().await;
                    }
                }
            });
        }
        Ok(ours)
    }
}

/// A server that is restarted. The first connection ends at the first process, the others reach the
/// second.
pub struct RestartingServer {
    first: Mutex<Option<Pipes>>,
    pub second: Pipes,
}

impl RestartingServer {
    pub fn from_pipes(first: Pipes, second: Pipes) -> Self {
        Self {
            first: Mutex::new(Some(first)),
            second,
        }
    }

    /// Creates a server whose first process ends after `cut` bytes.
    pub fn new(bench: &Bench, access: Access, cut: u64) -> Self {
        let mut grants = Grants::default();
        grants.add(access, &key(1).to_string()).unwrap();
        let root = Dir::open(&bench.root("")).unwrap();
        let first = bench.pipes();
        *first.cuts.lock() = vec![cut];
        let first = Pipes {
            server: Server::new(root, grants, ServerLimits::default()),
            ..first
        };
        Self::from_pipes(first, bench.pipes())
    }
}

impl Connector for RestartingServer {
    type Stream = CutPipe;

    fn routes(&self) -> Vec<RouteInfo> {
        self.second.routes()
    }

    async fn connect(&self, route: usize) -> Result<CutPipe, ConnectError> {
        let first = self.first.lock().take();
        match first {
            Some(first) => first.connect(route).await,
            None => self.second.connect(route).await,
        }
    }
}

/// A pipe that breaks for both sides when its budget of written bytes is exhausted.
pub struct CutPipe {
    inner: DuplexStream,
    budget: Arc<AtomicU64>,
    /// True if written bytes count towards the budget.
    counts: Arc<AtomicBool>,
    is_server: bool,
    stalls: bool,
    hook: Option<Hook>,
    carried: Arc<AtomicU64>,
    exhausted: Arc<Notify>,
}

impl CutPipe {
    fn count(&mut self, n: usize) {
        let passed = self.carried.fetch_add(n as u64, Ordering::SeqCst) + n as u64;
        if self.hook.as_ref().is_some_and(|(at, _)| passed >= *at)
            && let Some((_, hook)) = self.hook.take()
        {
            hook();
        }
    }
}

impl Transport for CutPipe {
    fn plaintext(&self) -> Option<Arc<longhaul_session::PlaintextRanges>> {
        Some(Arc::default())
    }
}

fn broken() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the depot died")
}

impl AsyncRead for CutPipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        if self.stalls && self.budget.load(Ordering::SeqCst) == 0 {
            return Poll::Pending;
        }
        match Pin::new(&mut self.inner).poll_read(cx, buf) {
            // What looks like a clean end after a cut is an error.
            Poll::Ready(Ok(()))
                if buf.filled().len() == before && self.budget.load(Ordering::SeqCst) == 0 =>
            {
                Poll::Ready(Err(broken()))
            }
            poll => {
                let read = buf.filled().len() - before;
                if !self.is_server && read > 0 {
                    self.counts.store(true, Ordering::SeqCst);
                }
                self.count(read);
                poll
            }
        }
    }
}

impl AsyncWrite for CutPipe {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let budget = self.budget.load(Ordering::SeqCst);
        if budget == 0 && self.stalls {
            return Poll::Pending;
        }
        if budget == 0 {
            let _ = Pin::new(&mut self.inner).poll_shutdown(cx);
            return Poll::Ready(Err(broken()));
        }
        let data = &data[..data
            .len()
            .min(usize::try_from(budget).unwrap_or(usize::MAX))];
        let poll = Pin::new(&mut self.inner).poll_write(cx, data);
        if let Poll::Ready(Ok(n)) = poll {
            if budget != u64::MAX && self.counts.load(Ordering::SeqCst) {
                let before = self
                    .budget
                    .fetch_sub((n as u64).min(budget), Ordering::SeqCst);
                if before <= n as u64 {
                    self.budget.store(0, Ordering::SeqCst);
                    self.exhausted.notify_one();
                }
                if before <= n as u64 && !self.stalls {
                    let _ = Pin::new(&mut self.inner).poll_shutdown(cx);
                }
            }
            self.count(n);
        }
        poll
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// Direction of a copy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Direction {
    Push,
    Pull,
}

impl Direction {
    /// Returns the tree that is copied, and its destination.
    pub fn endpoints(self, bench: &Bench) -> (PathBuf, PathBuf) {
        match self {
            Self::Push => (bench.local("s"), bench.root("d/s")),
            Self::Pull => (bench.root("s"), bench.local("d/s")),
        }
    }

    pub async fn copy(self, bench: &Bench, pipes: Pipes, options: WriteOptions) -> Run {
        match self {
            Self::Push => bench.push(pipes, &[bench.local("s")], "/d/", options).await,
            Self::Pull => bench.pull(pipes, &["s"], "d/", options).await,
        }
    }
}

/// Returns everything that a copy keeps of entries other than directories.
pub fn files(root: &Path) -> Vec<(Vec<u8>, String)> {
    let mut list = describe(root);
    list.retain(|(_, what)| !what.starts_with("dir"));
    list
}

/// Returns everything that a copy keeps of a tree, to compare two of them.
pub fn describe(root: &Path) -> Vec<(Vec<u8>, String)> {
    use std::os::unix::ffi::OsStrExt;
    let mut list = Vec::new();
    let mut ahead = vec![root.to_path_buf()];
    while let Some(path) = ahead.pop() {
        let meta = std::fs::symlink_metadata(&path).unwrap();
        let what = if meta.is_dir() {
            ahead.extend(std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
            "dir".to_owned()
        } else if meta.is_symlink() {
            format!("link {:?}", std::fs::read_link(&path).unwrap())
        } else {
            format!(
                "file {} {}",
                meta.len(),
                blake3::hash(&std::fs::read(&path).unwrap())
            )
        };
        let mode = if meta.is_symlink() {
            0
        } else {
            meta.mode() & 0o777
        };
        let name = path
            .strip_prefix(root)
            .unwrap()
            .as_os_str()
            .as_bytes()
            .to_vec();
        list.push((
            name,
            format!("{what} {mode:o} {}.{}", meta.mtime(), meta.mtime_nsec()),
        ));
    }
    list.sort();
    list
}

/// Asserts that no temporary file is left anywhere beneath `dir`.
pub fn assert_no_temps(dir: &Path) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        assert!(
            !entry.file_name().to_string_lossy().starts_with(TEMP_PREFIX),
            "left behind: {:?}",
            entry.path()
        );
        if entry.file_type().unwrap().is_dir() {
            assert_no_temps(&entry.path());
        }
    }
}

/// Returns bytes that resemble nothing else.
pub fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut out = vec![0; len];
    blake3::Hasher::new()
        .update(&seed.to_le_bytes())
        .finalize_xof()
        .fill(&mut out);
    out
}

/// Sets the modification time of a file. Files that are written within one tick of the kernel's
/// clock have the same one.
pub fn set_mtime(path: &Path, seconds: i64, nanos: i64) {
    let time = Timespec {
        tv_sec: seconds,
        tv_nsec: nanos,
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::empty()).unwrap();
}
