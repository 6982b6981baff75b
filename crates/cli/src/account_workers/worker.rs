//! A worker: a process that serves the streams of one local account, as its user.
//!
//! `longhaul serve-accounts` starts it, with a socket that leads to the server as standard input.
//! It has no key, no listener and no network. It ends when it is idle, and with the server.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use longhaul_accounts::CopyRecord;
use longhaul_platform::fs::mode_bits;
use longhaul_transfer::path::RelPath;
use longhaul_transfer::store::confine::Dir;
use longhaul_transfer::store::quota::{Quota, count_owned};
use longhaul_transfer::{
    AccountSetting, MIN_OPEN_FILES, RunningCopies, ServedRoot, Server, ServerLimits, serve_stream,
};
use rustix::process::{geteuid, umask};
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::channel::{self, ChannelPeer, MessageReceiver, MessageSender};
use super::local_stream::{LocalStream, WorkerEnd};
use super::message::{FrontMessage, StartMessage, StreamMessage, WorkerMessage, read_grants};
use super::receipts::FrontKey;
use crate::{descriptors, failure, home};

/// Interval between two reports to the server.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// Descriptors besides those of copies: the socket to the server, the runtime.
const OTHER_DESCRIPTORS: usize = 64;

/// Serves until the server lets go.
pub async fn run() -> Result<()> {
    if geteuid().is_root() {
        bail!("a worker never runs as root: longhaul serve-accounts starts it as a user");
    }
    let input = std::io::stdin().as_fd().try_clone_to_owned()?;
    let started = async {
        let (sender, mut receiver) = channel::open(StdUnixStream::from(input), ChannelPeer::Front)?;
        let first = receiver.receive::<FrontMessage>().await?;
        Ok::<_, std::io::Error>((sender, receiver, first))
    };
    let (sender, mut receiver, first) = started.await.context(
        "standard input is not the socket of a server: longhaul serve-accounts starts workers",
    )?;
    let Some(FrontMessage::Start(start)) = first else {
        // The server was gone again.
        return Ok(());
    };
    let signing = receiver.take_descriptor();
    match Worker::begin(*start, signing, sender.clone()).await {
        Ok(worker) => {
            sender.send(&WorkerMessage::Ready, vec![]).await?;
            worker.serve(receiver).await;
            Ok(())
        }
        Err(error) => {
            let reason = failure::format_line(&error);
            sender
                .send(&WorkerMessage::Failed { reason }, vec![])
                .await?;
            Err(error)
        }
    }
}

struct Worker {
    server: Arc<Server>,
    quota: Option<Arc<Quota>>,
    records: UnboundedReceiver<CopyRecord>,
    sender: MessageSender,
    idle: Duration,
    streams: JoinSet<()>,
    /// Number of streams that were passed to it.
    passed: u64,
    reported: RunningCopies,
    last_busy: Instant,
    /// True once the server has stopped.
    is_stopped: bool,
}

impl Worker {
    async fn begin(
        start: StartMessage,
        signing: Option<OwnedFd>,
        sender: MessageSender,
    ) -> Result<Self> {
        let own = env!("CARGO_PKG_VERSION");
        if start.release != own {
            bail!(
                "the server is release {}, and its workers are {own}: restart \
                 longhaul-accounts.service",
                start.release
            );
        }
        umask(mode_bits(start.umask));
        let signing = signing.context("the server sent no socket for receipts")?;
        let key = FrontKey::new(start.receipt_key.parse()?, signing)?;
        let root = open_root(&start).await?;
        let quota = start
            .quota
            .is_some()
            .then(|| open_quota(&start, root.dir()));
        let server = Server::new(root, read_grants(&start.grants), limits(&start));
        server.sign_receipts(key);
        let (ended, records) = mpsc::unbounded_channel();
        server.work_as_account(AccountSetting {
            umask: start.umask,
            quota: quota.clone(),
            records: Box::new(move |record| {
                // Nobody receives the record of a copy that ends with the process.
                let _ = ended.send(record);
            }),
        });
        let watched = server.clone();
        tokio::spawn(async move { watched.watch_root().await });
        Ok(Self {
            server,
            quota,
            records,
            sender,
            idle: Duration::from_secs(start.idle_seconds),
            streams: JoinSet::new(),
            passed: 0,
            reported: RunningCopies::default(),
            last_busy: Instant::now(),
            is_stopped: false,
        })
    }

    async fn serve(mut self, mut receiver: MessageReceiver) {
        let mut reports = interval(REPORT_INTERVAL);
        reports.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                message = receiver.receive() => match message {
                    Ok(Some(message)) => {
                        if !self.take(message, &mut receiver) {
                            break;
                        }
                    }
                    Ok(None) | Err(_) => break,
                },
                Some(record) = self.records.recv() => self.report_end(record).await,
                Some(_) = self.streams.join_next() => {}
                _ = reports.tick() => self.report().await,
            }
        }
        self.end().await;
    }

    /// Acts on a message. Returns false if it is the last.
    fn take(&mut self, message: FrontMessage, receiver: &mut MessageReceiver) -> bool {
        match message {
            FrontMessage::Stream(stream) => self.take_stream(stream, receiver),
            FrontMessage::Grants {
                grants,
                quota,
                reopens_root,
            } => {
                self.server.replace_grants(read_grants(&grants));
                if let Some(own) = &self.quota {
                    own.set_limits(quota);
                }
                if reopens_root {
                    let server = self.server.clone();
                    drop(spawn_blocking(move || server.reopen_root()));
                }
            }
            FrontMessage::RefuseCopies => self.server.refuse_copies(),
            FrontMessage::Stop => {
                self.is_stopped = true;
                self.server.record_stop();
                return false;
            }
            // There is one only.
            FrontMessage::Start(_) => {}
        }
        true
    }

    fn take_stream(&mut self, message: StreamMessage, receiver: &mut MessageReceiver) {
        self.passed += 1;
        self.last_busy = Instant::now();
        let descriptors = (receiver.take_descriptor(), receiver.take_descriptor());
        let (Some(socket), Some(end_mark)) = descriptors else {
            return;
        };
        let end = WorkerEnd { socket, end_mark };
        let Some((kind, key, origin)) = message.parts() else {
            return;
        };
        // The client sees a broken stream if there is no descriptor left for it.
        if let Ok(stream) = LocalStream::at_worker(end, origin) {
            let server = self.server.clone();
            self.streams.spawn(serve_stream(server, stream, kind, key));
        }
    }

    async fn report_end(&mut self, record: CopyRecord) {
        // The copy must not count as running and as ended at the same time.
        self.report_running().await;
        let message = WorkerMessage::Ended(Box::new(record));
        // Without a server, nobody keeps records.
        let _ = self.sender.send(&message, vec![]).await;
    }

    /// Reports what has changed, and that the worker is idle.
    async fn report(&mut self) {
        let running = self.report_running().await;
        if !self.streams.is_empty() || running.copies > 0 {
            self.last_busy = Instant::now();
        } else if self.last_busy.elapsed() >= self.idle {
            self.last_busy = Instant::now();
            let streams = self.passed;
            let idle = WorkerMessage::Idle { streams };
            let _ = self.sender.send(&idle, vec![]).await;
        }
    }

    /// Reports the running copies, if they have changed.
    async fn report_running(&mut self) -> RunningCopies {
        // Copies that are recorded as stopped run until the process ends.
        let running = match self.is_stopped {
            true => RunningCopies::default(),
            false => self.server.running(),
        };
        if running != self.reported {
            self.reported = running;
            let _ = self
                .sender
                .send(&WorkerMessage::from(running), vec![])
                .await;
        }
        running
    }

    /// Reports the last records and the use of the quota. The channel stays open until the process
    /// ends, so that the next worker does not begin before.
    async fn end(mut self) {
        while let Ok(record) = self.records.try_recv() {
            self.report_end(record).await;
        }
        if let Some(used) = self.quota.as_ref().and_then(|quota| quota.used()) {
            let is_final = self.streams.is_empty() && self.server.running().copies == 0;
            let usage = WorkerMessage::Usage { used, is_final };
            let _ = self.sender.send(&usage, vec![]).await;
        }
    }
}

/// Opens the account's root. Members of its groups may be able to change the path beneath the
/// server's root, so no symbolic link there is followed.
async fn open_root(start: &StartMessage) -> Result<ServedRoot> {
    let path = PathBuf::from(OsStr::from_bytes(&start.server_root.0));
    let beneath = RelPath::from_bytes(&start.root.0)?;
    let shown = home::display_path(&path.join(OsStr::from_bytes(beneath.as_bytes())));
    let root = spawn_blocking(move || ServedRoot::open_beneath(&path, beneath)).await?;
    root.map_err(|errno| {
        let (why, account) = (std::io::Error::from(errno), &start.account);
        anyhow!("{shown}: {why}; it must be a directory that user {account} may read and enter")
    })
}

/// Returns the quota. Unless it is known what the account uses, its files are counted meanwhile.
fn open_quota(start: &StartMessage, root: Arc<Dir>) -> Arc<Quota> {
    let owner = geteuid().as_raw();
    let quota = Quota::new(start.account.clone(), owner, start.quota, start.used);
    if start.used.is_none() {
        let (quota, account) = (quota.clone(), start.account.clone());
        // Not awaited: a worker that ends does not wait for it.
        drop(spawn_blocking(move || {
            let used = count_owned(&root, owner);
            let (bytes, files) = (used.bytes, used.files);
            tracing::info!(account, bytes, files, "counted the files of the account");
            quota.set_used(used);
        }));
    }
    quota
}

/// Returns the limits, with as many open files as this process may have.
fn limits(start: &StartMessage) -> ServerLimits {
    let limits = start.limits.limits();
    let fitted = limits
        .clone()
        .within_descriptors(descriptors::raise(), OTHER_DESCRIPTORS);
    fitted.unwrap_or(ServerLimits {
        open_files: MIN_OPEN_FILES,
        ..limits
    })
}
