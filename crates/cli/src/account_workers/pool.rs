//! The front's side of workers: starts one for each local account that is needed, passes streams
//! to it, and keeps what it reports.

use std::collections::HashMap;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use longhaul_hop::{Duplex, DuplexOptions};
use longhaul_proto::{PublicKey, SigningKey};
use longhaul_session::{JoinObserver, Session};
use longhaul_transfer::files::message::PathBytes;
use longhaul_transfer::{Grants, LocalAccount, RunningCopies, Server, StreamKind, Transport};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::channel::{self, ChannelPeer, MessageReceiver};
use super::local_stream::LocalStream;
use super::message::{FrontMessage, StartMessage, StreamMessage, WorkerMessage, grant_messages};
use super::quota_book::QuotaBook;
use super::receipts::sign_for;
use super::reported_record::checked_record;
use super::request::{WorkerRequestError, request_worker};
use super::worker_handle::{Worker, WorkerState};

/// Time for a worker to begin.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// Time for a worker to accept a message. Its user may have stopped it; it is given up then.
const TELL_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for a worker to end the streams of a key that has lost its account, and to say why. Then
/// the front breaks them.
const REVOCATION_GRACE: Duration = Duration::from_secs(5);
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
    /// The key has lost its account, or the account has other settings since it was admitted. The
    /// next session finds what is in force.
    #[error("the grants have just changed; retry")]
    Changed,
    /// The system has no sockets for it. Raise the limit on open files (`ulimit -n`).
    #[error("no socket for its worker: {0}")]
    Socket(#[from] io::Error),
}

/// The workers of a server. Clones share them.
#[derive(Clone)]
pub struct WorkerPool(Arc<PoolState>);

/// Settings of a pool and of its workers.
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
    /// Number of streams of copies. A worker reports a copy a moment after its first stream.
    copy_streams: AtomicUsize,
    /// The worker of each account that gets new streams. Held while a stream is passed.
    slots: Mutex<HashMap<String, Arc<Slot>>>,
    /// All workers that have not ended.
    live: Mutex<Vec<Arc<Worker>>>,
    /// Notified when a worker has reported or ended.
    changed: Notify,
    /// Notified when keys may have lost their accounts.
    reloads: watch::Sender<()>,
}

/// A stream of a copy, counted until it is dropped.
struct CopyStream(Arc<PoolState>);

impl CopyStream {
    fn count(pool: &Arc<PoolState>) -> Self {
        pool.copy_streams.fetch_add(1, Ordering::Relaxed);
        Self(pool.clone())
    }
}

impl Drop for CopyStream {
    fn drop(&mut self) {
        self.0.copy_streams.fetch_sub(1, Ordering::Relaxed);
        self.0.changed.notify_waiters();
    }
}

type Slot = tokio::sync::Mutex<Option<Arc<Worker>>>;
type ReadySender = oneshot::Sender<Result<(), String>>;

impl WorkerPool {
    /// Creates a pool without workers.
    pub fn new(options: PoolOptions) -> Self {
        Self(Arc::new(PoolState {
            options,
            book: QuotaBook::open(),
            relays: DuplexOptions::revocable(IDLE_TIMEOUT),
            refuses_copies: AtomicBool::new(false),
            copy_streams: AtomicUsize::new(0),
            slots: Mutex::default(),
            live: Mutex::default(),
            changed: Notify::new(),
            reloads: watch::Sender::new(()),
        }))
    }

    fn grants(&self) -> Arc<Grants> {
        self.0.options.server.grants().current()
    }

    /// Serves a session by the worker of `account`, to its end.
    pub async fn serve(&self, account: Arc<LocalAccount>, kind: StreamKind, session: Session) {
        let (server, key) = (&self.0.options.server, session.info().peer);
        let counted = (kind == StreamKind::Copy).then(|| CopyStream::count(&self.0));
        let permit = match server.permit_stream(key) {
            Ok(permit) => permit,
            Err(error) => return server.turn_away(session, kind, error.to_string()).await,
        };
        let message = StreamMessage::new(kind, key, session.origin());
        match self.pass(&account.name, key, message).await {
            Ok((worker, stream)) => {
                let options = self.0.relays.clone();
                let relay = Duplex::new(session, stream, options, JoinObserver::default());
                // A relay that is dropped breaks both sides.
                tokio::select! {
                    _ = relay => {}
                    () = worker.reaches(WorkerState::GivenUp) => {}
                    () = self.loses_account(&key, &worker.account.name) => {}
                }
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
        drop((permit, counted));
    }

    /// Waits until `key` does not have this account any more, and for the worker to end its
    /// streams. What the worker does then has no effect.
    async fn loses_account(&self, key: &PublicKey, account: &str) {
        let mut reloads = self.0.reloads.subscribe();
        while self
            .grants()
            .account_of(key)
            .is_some_and(|now| now.name == account)
        {
            if reloads.changed().await.is_err() {
                break;
            }
        }
        sleep(REVOCATION_GRACE).await;
    }

    /// Passes a new stream of `key` to the worker of the account `name`. Returns its other end.
    async fn pass(
        &self,
        name: &str,
        key: PublicKey,
        message: StreamMessage,
    ) -> Result<(Arc<Worker>, LocalStream), WorkerError> {
        let (stream, end) = LocalStream::open()?;
        let slot = self.slot(name);
        let mut slot = slot.lock().await;
        // The grants may have changed since the session was admitted.
        let grants = self.grants();
        let account = grants.account_of(&key).filter(|now| now.name == name);
        let account = account.ok_or(WorkerError::Changed)?;
        let current = slot
            .as_ref()
            .filter(|worker| worker.is_serving() && worker.fits(account));
        let worker = match current.cloned() {
            Some(worker) => {
                if worker.add_key(key, &grants) {
                    self.tell_grants(&worker, false).await;
                }
                worker
            }
            None => slot.insert(self.start(name, key).await?).clone(),
        };
        worker.streams.fetch_add(1, Ordering::Relaxed);
        let message = FrontMessage::Stream(message);
        let descriptors = vec![end.socket, end.end_mark];
        let sent = worker.sender.send(&message, descriptors).await;
        if sent.is_err() {
            slot.take();
            worker.give_up();
            return Err(WorkerError::Ended);
        }
        drop(slot);
        Ok((worker, stream))
    }

    fn slot(&self, account: &str) -> Arc<Slot> {
        let mut slots = self.0.slots.lock();
        slots.entry(account.to_owned()).or_default().clone()
    }

    /// Starts the worker of the account `name` for its first stream, of `key`, and waits until it
    /// serves.
    async fn start(&self, name: &str, key: PublicKey) -> Result<Arc<Worker>, WorkerError> {
        self.await_earlier(name).await;
        let options = &self.0.options;
        let (control, theirs) = StdUnixStream::pair()?;
        let (signing, signing_theirs) = StdUnixStream::pair()?;
        let (helper, asked_for) = (options.helper.clone(), name.to_owned());
        let asked = move || request_worker(&helper, &asked_for, theirs.into());
        let asked = tokio::task::spawn_blocking(asked).await;
        let process = asked.map_err(|_| WorkerError::Ended)??;
        tracing::info!(account = name, process, "worker started");
        let (sender, receiver) = channel::open(control, ChannelPeer::Worker)?;
        // What has changed meanwhile is in force. Without its server, the worker ends.
        let grants = self.grants();
        let account = grants.account_of(&key).filter(|now| now.name == name);
        let account = account.ok_or(WorkerError::Changed)?;
        let limits = options.server.limits().divided(grants.accounts());
        let worker = Arc::new(Worker::new(account.clone(), sender, key, limits.copies));
        let (ready, is_ready) = oneshot::channel();
        tokio::spawn(self.clone().receive(worker.clone(), receiver, ready));
        let signed = sign_for(
            signing,
            account.name.clone(),
            options.key.clone(),
            options.server.grants().clone(),
        );
        tokio::spawn(async move {
            if let Err(error) = signed.await {
                tracing::debug!(%error, "the receipts of a worker are not signed any more");
            }
        });
        let start = StartMessage {
            limits: (&limits).into(),
            grants: grant_messages(&grants, &account.name, [key]),
            ..self.start_message(account).await
        };
        let start = FrontMessage::Start(Box::new(start));
        // If it fails, the worker is not ready either.
        let _ = worker
            .sender
            .send(&start, vec![signing_theirs.into()])
            .await;
        // From here on it is told what changes. What has changed before is made up for.
        self.add_live(&worker);
        if self.0.refuses_copies.load(Ordering::Relaxed) {
            self.tell(&worker, &FrontMessage::RefuseCopies).await;
        }
        if !Arc::ptr_eq(&grants, &self.grants()) {
            self.reload_worker(&worker).await;
        }
        match timeout(READY_TIMEOUT, is_ready).await {
            Ok(Ok(Ok(()))) => Ok(worker),
            Ok(Ok(Err(reason))) => Err(WorkerError::Failed(reason)),
            Ok(Err(_)) | Err(_) => {
                worker.give_up();
                Err(WorkerError::Ended)
            }
        }
    }

    fn add_live(&self, worker: &Arc<Worker>) {
        let mut live = self.0.live.lock();
        if !worker.has_ended() {
            live.push(worker.clone());
        }
    }

    /// Returns the first message without grants.
    async fn start_message(&self, account: &LocalAccount) -> StartMessage {
        let options = &self.0.options;
        let used = match account.quota.is_some() {
            true => self.0.book.begin(&account.name).await,
            false => None,
        };
        StartMessage {
            release: env!("CARGO_PKG_VERSION").to_owned(),
            account: account.name.clone(),
            server_root: PathBytes(options.root.as_os_str().as_bytes().to_vec()),
            root: PathBytes(account.root.as_bytes().to_vec()),
            umask: account.umask,
            quota: account.quota,
            used,
            grants: Vec::new(),
            limits: options.server.limits().into(),
            receipt_key: options.key.public().to_string(),
            idle_seconds: options.idle.as_secs(),
        }
    }

    /// Waits for workers of the account that are about to end, as only one counts its quota.
    async fn await_earlier(&self, account: &str) {
        let earlier: Vec<_> = {
            let live = self.0.live.lock();
            let of = live
                .iter()
                .filter(|worker| worker.account.name == account && !worker.is_given_up());
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
        worker.advance(WorkerState::Ended);
        self.0
            .live
            .lock()
            .retain(|live| !Arc::ptr_eq(live, &worker));
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
                    copies: copies.min(worker.max_copies),
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
                    let record = checked_record(key, *record);
                    self.0.options.server.add_record(key, record);
                }
                _ => {
                    let account = &worker.account.name;
                    tracing::warn!(account, "a worker reported a copy of another account");
                }
            },
            WorkerMessage::Idle { streams } => self.let_go(worker, streams),
        }
    }

    /// Lets an idle worker end, unless a stream was passed to it meanwhile.
    fn let_go(&self, worker: &Arc<Worker>, streams: u64) {
        let slot = self.slot(&worker.account.name);
        // If it is locked, a stream is being passed.
        if let Ok(mut slot) = slot.try_lock()
            && worker.streams.load(Ordering::Relaxed) == streams
        {
            slot.take_if(|current| Arc::ptr_eq(current, worker));
            worker.sender.close();
        }
    }

    /// Puts the grants and accounts in force that the server has now. A worker that does not accept
    /// them is given up.
    pub async fn reload(&self) {
        self.0.reloads.send_replace(());
        self.each_live(|pool, worker| async move { pool.reload_worker(&worker).await })
            .await;
    }

    /// Tells the workers what their keys may do now that names and groups have changed.
    pub async fn renew_grants(&self) {
        self.0.reloads.send_replace(());
        self.each_live(|pool, worker| async move { pool.tell_grants(&worker, false).await })
            .await;
    }

    async fn reload_worker(&self, worker: &Worker) {
        let grants = self.grants();
        let now = grants.account(&worker.account.name);
        match now.is_some_and(|now| !worker.fits(now)) {
            // Its copies continue with the next worker.
            true => self.tell(worker, &FrontMessage::Stop).await,
            false => self.tell_grants(worker, true).await,
        }
    }

    /// Tells a worker the grants that are in force now.
    async fn tell_grants(&self, worker: &Worker, reopens_root: bool) {
        let told = async {
            let _newest_last = worker.granting.lock().await;
            let grants = self.grants();
            let now = grants.account(&worker.account.name);
            let keys = worker.keys.lock().clone();
            let message = FrontMessage::Grants {
                grants: grant_messages(&grants, &worker.account.name, keys),
                quota: now.map_or(worker.account.quota, |now| now.quota),
                reopens_root,
            };
            self.tell(worker, &message).await;
        };
        if timeout(TELL_TIMEOUT, told).await.is_err() {
            worker.give_up();
        }
    }

    /// Sends a message to a worker, and gives the worker up if it does not accept it.
    async fn tell(&self, worker: &Worker, message: &FrontMessage) {
        let sent = timeout(TELL_TIMEOUT, worker.sender.send(message, vec![])).await;
        if !matches!(sent, Ok(Ok(()))) && worker.is_serving() {
            let account = &worker.account.name;
            tracing::warn!(
                account,
                "a worker accepts no messages: its streams are broken"
            );
            worker.give_up();
            self.0.changed.notify_waiters();
        }
    }

    /// Refuses copies that have not begun, from now on.
    pub async fn refuse_copies(&self) {
        self.0.refuses_copies.store(true, Ordering::Relaxed);
        self.each_live(|pool, worker| async move {
            pool.tell(&worker, &FrontMessage::RefuseCopies).await;
        })
        .await;
    }

    /// Ends all workers, and waits for their last reports.
    pub async fn stop(&self) {
        self.each_live(|pool, worker| async move {
            pool.tell(&worker, &FrontMessage::Stop).await;
            if !worker.is_given_up() {
                worker.await_end().await;
            }
        })
        .await;
    }

    /// Acts on all workers at once, so that none of them delays the others.
    async fn each_live<F>(&self, act: impl Fn(Self, Arc<Worker>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let live = self.0.live.lock().clone();
        let acts = live.into_iter().map(|worker| act(self.clone(), worker));
        let mut acts: JoinSet<()> = acts.collect();
        while acts.join_next().await.is_some() {}
    }

    /// Returns the running copies of all workers.
    pub fn running(&self) -> RunningCopies {
        let live = self.0.live.lock();
        let mut sum = RunningCopies::default();
        // What a stopped worker had is not waited for.
        for worker in live.iter().filter(|worker| worker.is_serving()) {
            let running = *worker.running.lock();
            sum.copies = sum.copies.saturating_add(running.copies);
            sum.received = sum.received.saturating_add(running.received);
            sum.sent = sum.sent.saturating_add(running.sent);
        }
        sum
    }

    /// Waits until no worker has a copy, or a stream of one.
    pub async fn idle(&self) {
        loop {
            // Registered first, so that no report is missed.
            let changed = self.0.changed.notified();
            let streams = self.0.copy_streams.load(Ordering::Relaxed);
            if streams == 0 && self.running().copies == 0 {
                return;
            }
            changed.await;
        }
    }
}
