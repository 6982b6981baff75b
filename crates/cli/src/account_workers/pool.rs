//! The front's side of workers: starts one for each local account that is needed, passes streams
//! to it, and keeps what it reports.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use drs::FlowWatch;
use longhaul_hop::{Duplex, DuplexObserver, DuplexOptions, EndPolicy, IdleLimits};
use longhaul_proto::{PublicKey, SigningKey};
use longhaul_session::Session;
use longhaul_transfer::files::message::PathBytes;
use longhaul_transfer::{LocalAccount, RunningCopies, Server, StreamKind, Transport};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::timeout;

use super::channel::{self, MessageReceiver, MessageSender};
use super::local_stream::LocalStream;
use super::message::{FrontMessage, StartMessage, StreamMessage, WorkerMessage, grant_messages};
use super::quota_book::QuotaBook;
use super::receipts::sign_for;
use crate::account_helper::request::{WorkerRequestError, request_worker};

/// Time for a worker to begin.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// Time for a worker that was told to end.
const END_TIMEOUT: Duration = Duration::from_secs(8);
/// Idle time after which a stream between a client and a worker is broken. The protocols of copies
/// and files have shorter limits of their own.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30 * 86_400);

/// Reason why a stream reaches no worker.
#[derive(Debug, thiserror::Error)]
enum WorkerError {
    /// There is no worker: the helper does not answer, or refuses. The operator of the server finds
    /// the remedy in the reason.
    #[error("{0}")]
    Request(#[from] WorkerRequestError),
    /// The worker cannot serve the account, as its reason says. Mostly its user may not enter the
    /// root.
    #[error("{0}")]
    Failed(String),
    /// The worker ended before it served. The journal of `longhaul-accounts.service` says why.
    #[error("its worker ended; see the journal of longhaul-accounts.service")]
    Ended,
    /// The system has no sockets for it. Raise the limit on open files (`ulimit -n`).
    #[error("no socket for its worker: {0}")]
    Socket(#[from] io::Error),
}

/// The workers of a server. Clones share them.
#[derive(Clone)]
pub struct WorkerPool(Arc<PoolState>);

/// What a pool needs to start workers.
pub struct PoolOptions {
    /// Socket of the helper.
    pub helper: PathBuf,
    /// Root of the server, as an absolute path.
    pub root: PathBuf,
    /// Time without a stream after which a worker ends.
    pub idle: Duration,
    /// Key that signs receipts.
    pub key: SigningKey,
    /// Server that has the grants, the limits and the accounts.
    pub server: Arc<Server>,
}

struct PoolState {
    options: PoolOptions,
    book: QuotaBook,
    relays: DuplexOptions,
    refuses_copies: AtomicBool,
    /// The worker of each account that gets new streams. Held while a stream is passed.
    slots: Mutex<HashMap<String, Arc<Slot>>>,
    /// All workers that have not ended.
    live: Mutex<Vec<Arc<Worker>>>,
    /// Notified when a worker has reported or ended.
    changed: Notify,
}

type Slot = tokio::sync::Mutex<Option<Arc<Worker>>>;
type ReadySender = oneshot::Sender<Result<(), String>>;

struct Worker {
    account: Arc<LocalAccount>,
    sender: MessageSender,
    /// Number of streams that were passed to it.
    streams: AtomicU64,
    /// Keys of these streams. It may report copies of no others.
    keys: Mutex<HashSet<PublicKey>>,
    running: Mutex<RunningCopies>,
    has_ended: watch::Sender<bool>,
}

/// Right-sizes the connections of relayed sessions.
#[derive(Default)]
struct FlowObserver(Option<Arc<FlowWatch>>);

impl DuplexObserver<Session, LocalStream> for FlowObserver {
    fn watch(&mut self, session: &mut Session, _: &mut LocalStream, to_worker: bool) {
        let side = match to_worker {
            true => drs::Side::Receiving,
            false => drs::Side::Sending,
        };
        self.0
            .get_or_insert_with(|| session.watch(drs::Mode::Auto, side));
    }
}

impl WorkerPool {
    /// Creates a pool without workers.
    pub fn new(options: PoolOptions) -> Self {
        Self(Arc::new(PoolState {
            options,
            book: QuotaBook::open(),
            relays: DuplexOptions {
                idle_limits: IdleLimits {
                    open: IDLE_TIMEOUT,
                    half_closed: IDLE_TIMEOUT,
                },
                ends: EndPolicy::Revocable,
                ..DuplexOptions::default()
            },
            refuses_copies: AtomicBool::new(false),
            slots: Mutex::default(),
            live: Mutex::default(),
            changed: Notify::new(),
        }))
    }

    /// Serves a session by the worker of `account`, to its end.
    pub async fn serve(&self, account: Arc<LocalAccount>, kind: StreamKind, session: Session) {
        let (server, key) = (&self.0.options.server, session.info().peer);
        let permit = match server.permit_stream(key) {
            Ok(permit) => permit,
            Err(error) => return server.turn_away(session, kind, error.to_string()).await,
        };
        let message = StreamMessage::new(kind, key, session.origin());
        match self.pass(&account, key, message).await {
            Ok(stream) => {
                let options = self.0.relays.clone();
                Duplex::new(session, stream, options, FlowObserver::default()).await;
            }
            Err(error) => {
                let name = &account.name;
                server.log(key, || {
                    tracing::warn!(account = name, %key, %error, "no worker for a session");
                });
                let reason = format!(
                    "the server cannot work as its local account {name}: {error}; ask its operator"
                );
                server.turn_away(session, kind, reason).await;
            }
        }
        drop(permit);
    }

    /// Passes a new stream to the worker of `account`. Returns its other end.
    async fn pass(
        &self,
        account: &Arc<LocalAccount>,
        key: PublicKey,
        message: StreamMessage,
    ) -> Result<LocalStream, WorkerError> {
        let (ours, theirs) = StdUnixStream::pair()?;
        let slot = self.slot(&account.name);
        let mut slot = slot.lock().await;
        let current = slot.as_ref().filter(|worker| !worker.has_ended());
        let worker = match current.cloned() {
            Some(worker) => worker,
            None => slot.insert(self.start(account).await?).clone(),
        };
        worker.streams.fetch_add(1, Ordering::Relaxed);
        worker.keys.lock().insert(key);
        let message = FrontMessage::Stream(message);
        if worker
            .sender
            .send(&message, Some(theirs.into()))
            .await
            .is_err()
        {
            *slot = None;
            return Err(WorkerError::Ended);
        }
        drop(slot);
        Ok(LocalStream::new(ours.into(), None)?)
    }

    fn slot(&self, account: &str) -> Arc<Slot> {
        let mut slots = self.0.slots.lock();
        slots.entry(account.to_owned()).or_default().clone()
    }

    /// Starts the worker of `account`, and waits until it serves.
    async fn start(&self, account: &Arc<LocalAccount>) -> Result<Arc<Worker>, WorkerError> {
        self.await_earlier(&account.name).await;
        let options = &self.0.options;
        let (control, theirs) = StdUnixStream::pair()?;
        let (signing, signing_theirs) = StdUnixStream::pair()?;
        let (helper, name) = (options.helper.clone(), account.name.clone());
        let asked = move || request_worker(&helper, &name, theirs.into());
        let asked = tokio::task::spawn_blocking(asked).await;
        let process = asked.map_err(|_| WorkerError::Ended)??;
        tracing::info!(account = account.name, process, "worker started");
        let (sender, receiver) = channel::open(control)?;
        let worker = Arc::new(Worker {
            account: account.clone(),
            sender,
            streams: AtomicU64::new(0),
            keys: Mutex::default(),
            running: Mutex::default(),
            has_ended: watch::Sender::new(false),
        });
        self.0.live.lock().push(worker.clone());
        let (ready, is_ready) = oneshot::channel();
        tokio::spawn(self.clone().receive(worker.clone(), receiver, ready));
        let (key, grants) = (options.key.clone(), options.server.grants().clone());
        let signed = sign_for(signing, account.name.clone(), key, grants);
        tokio::spawn(async move {
            if let Err(error) = signed.await {
                tracing::debug!(%error, "the receipts of a worker are not signed any more");
            }
        });
        let start = FrontMessage::Start(Box::new(self.start_message(account).await));
        let sent = worker
            .sender
            .send(&start, Some(signing_theirs.into()))
            .await;
        if sent.is_ok() && self.0.refuses_copies.load(Ordering::Relaxed) {
            let _ = worker.sender.send(&FrontMessage::RefuseCopies, None).await;
        }
        match timeout(READY_TIMEOUT, is_ready).await {
            Ok(Ok(Ok(()))) => Ok(worker),
            Ok(Ok(Err(reason))) => Err(WorkerError::Failed(reason)),
            Ok(Err(_)) | Err(_) => {
                worker.sender.close();
                Err(WorkerError::Ended)
            }
        }
    }

    async fn start_message(&self, account: &LocalAccount) -> StartMessage {
        let options = &self.0.options;
        let grants = options.server.grants().current();
        let root = match account.root.is_root() {
            true => options.root.clone(),
            false => options
                .root
                .join(std::ffi::OsStr::from_bytes(account.root.as_bytes())),
        };
        let used = match account.quota.is_some() {
            true => self.0.book.begin(&account.name).await,
            false => None,
        };
        let limits = options.server.limits().divided(grants.accounts());
        StartMessage {
            account: account.name.clone(),
            root: PathBytes(root.as_os_str().as_bytes().to_vec()),
            umask: account.umask,
            quota: account.quota,
            used,
            grants: grant_messages(&grants, account),
            limits: (&limits).into(),
            receipt_key: options.key.public().to_string(),
            idle_seconds: options.idle.as_secs(),
        }
    }

    /// Waits for workers of the account that are about to end, as only one counts its quota.
    async fn await_earlier(&self, account: &str) {
        let earlier: Vec<_> = {
            let live = self.0.live.lock();
            let of = live.iter().filter(|worker| worker.account.name == account);
            of.cloned().collect()
        };
        for worker in earlier {
            worker.await_end().await;
        }
    }

    /// Receives what a worker reports, until it ends.
    async fn receive(self, worker: Arc<Worker>, mut receiver: MessageReceiver, ready: ReadySender) {
        let mut ready = Some(ready);
        loop {
            match receiver.receive().await {
                Ok(Some(message)) => self.handle(&worker, message, &mut ready).await,
                Ok(None) => break,
                Err(error) => {
                    let account = &worker.account.name;
                    tracing::warn!(account, %error, "a worker broke off");
                    break;
                }
            }
        }
        worker.sender.close();
        self.0
            .live
            .lock()
            .retain(|live| !Arc::ptr_eq(live, &worker));
        *worker.running.lock() = RunningCopies::default();
        worker.has_ended.send_replace(true);
        self.0.changed.notify_waiters();
    }

    async fn handle(
        &self,
        worker: &Arc<Worker>,
        message: WorkerMessage,
        ready: &mut Option<ReadySender>,
    ) {
        let tell = |ready: &mut Option<ReadySender>, outcome| {
            if let Some(ready) = ready.take() {
                // Nobody waits after the time limit.
                let _ = ready.send(outcome);
            }
        };
        match message {
            WorkerMessage::Ready => tell(ready, Ok(())),
            WorkerMessage::Failed { reason } => tell(ready, Err(reason)),
            WorkerMessage::Running {
                copies,
                received,
                sent,
            } => {
                *worker.running.lock() = RunningCopies {
                    copies,
                    received,
                    sent,
                };
                self.0.changed.notify_waiters();
            }
            WorkerMessage::Usage { used, is_final } if worker.account.quota.is_some() => {
                let account = &worker.account.name;
                self.0.book.record(account, used, is_final).await;
            }
            WorkerMessage::Usage { .. } => {}
            WorkerMessage::Ended(record) => match record.key.parse::<PublicKey>() {
                Ok(key) if worker.keys.lock().contains(&key) => {
                    self.0.options.server.add_record(key, *record);
                }
                _ => {
                    let account = &worker.account.name;
                    tracing::warn!(account, "a worker reported a copy of another account");
                }
            },
            WorkerMessage::Idle { streams } => self.let_go(worker, streams).await,
        }
    }

    /// Lets an idle worker end, unless a stream was passed to it meanwhile.
    async fn let_go(&self, worker: &Arc<Worker>, streams: u64) {
        let slot = self.slot(&worker.account.name);
        let mut slot = slot.lock().await;
        if worker.streams.load(Ordering::Relaxed) == streams {
            slot.take_if(|current| Arc::ptr_eq(current, worker));
            worker.sender.close();
        }
    }

    /// Puts the grants and accounts in force that the server has now.
    pub async fn reload(&self) {
        let grants = self.0.options.server.grants().current();
        let live = self.0.live.lock().clone();
        for worker in live {
            let now = grants.account(&worker.account.name);
            let has_changed = now.is_some_and(|now| !worker.fits(now));
            let message = match has_changed {
                // Its copies continue with the next worker.
                true => {
                    let slot = self.slot(&worker.account.name);
                    let mut slot = slot.lock().await;
                    slot.take_if(|current| Arc::ptr_eq(current, &worker));
                    FrontMessage::Stop
                }
                false => FrontMessage::Grants {
                    grants: grant_messages(&grants, &worker.account),
                    quota: now.map_or(worker.account.quota, |now| now.quota),
                },
            };
            // A worker that cannot be told has ended.
            let _ = worker.sender.send(&message, None).await;
        }
    }

    /// Refuses copies that have not begun, from now on.
    pub async fn refuse_copies(&self) {
        self.0.refuses_copies.store(true, Ordering::Relaxed);
        self.tell_all(&FrontMessage::RefuseCopies).await;
    }

    /// Ends all workers, and waits for their last reports.
    pub async fn stop(&self) {
        self.tell_all(&FrontMessage::Stop).await;
        let live = self.0.live.lock().clone();
        for worker in live {
            worker.await_end().await;
        }
    }

    async fn tell_all(&self, message: &FrontMessage) {
        let live = self.0.live.lock().clone();
        for worker in live {
            let _ = worker.sender.send(message, None).await;
        }
    }

    /// Returns the running copies of all workers.
    pub fn running(&self) -> RunningCopies {
        let live = self.0.live.lock();
        let mut sum = RunningCopies::default();
        for worker in live.iter() {
            let running = *worker.running.lock();
            sum.copies = sum.copies.saturating_add(running.copies);
            sum.received = sum.received.saturating_add(running.received);
            sum.sent = sum.sent.saturating_add(running.sent);
        }
        sum
    }

    /// Waits until no worker has a copy.
    pub async fn idle(&self) {
        loop {
            // Registered first, so that no report is missed.
            let changed = self.0.changed.notified();
            if self.running().copies == 0 {
                return;
            }
            changed.await;
        }
    }
}

impl Worker {
    fn has_ended(&self) -> bool {
        *self.has_ended.borrow()
    }

    /// Waits for its end, at most [`END_TIMEOUT`].
    async fn await_end(&self) {
        let mut has_ended = self.has_ended.subscribe();
        let _ = timeout(END_TIMEOUT, has_ended.wait_for(|ended| *ended)).await;
    }

    /// Returns true if the worker can go on with these settings.
    fn fits(&self, now: &LocalAccount) -> bool {
        let before = &self.account;
        (before.umask, &before.root) == (now.umask, &now.root)
            && before.quota.is_some() == now.quota.is_some()
    }
}
