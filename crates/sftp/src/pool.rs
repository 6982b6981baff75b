//! The connections of a copy: requests are spread over them, and lost ones are replaced.

pub(crate) mod balance;
pub(crate) mod recovery;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use longhaul_remote::Ssh;
use longhaul_transfer::StreamCounters;
use longhaul_transfer::local_end::EntryReporter;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep_until};

use crate::error::Error;
use crate::session::{AnswerClock, ServerAbilities, Session};

use balance::{Balance, SessionId};
use recovery::{Connections, Recovery, Step};

/// Bytes under way on one connection. ssh's own window is 2 MiB (`CHAN_SES_WINDOW_DEFAULT`), and
/// more fills the pipes on both sides of it.
const WINDOW_BYTES: u64 = 4 << 20;
/// Bytes for which a request without data counts. It limits the requests under way.
const SMALL_REQUEST_BYTES: u64 = 16 << 10;
/// Maximum logins at the same time. An sshd drops some from the tenth on (`MaxStartups`).
const MAX_LOGINS: usize = 7;
/// Options of further connections. They never ask for a password, and share no connection.
const EXTRA_OPTIONS: [&str; 3] = ["BatchMode=yes", "ControlMaster=no", "ControlPath=none"];
/// Interval at which answers are looked for.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Silence from which it is shown.
const SHOWN_SILENCE: Duration = Duration::from_secs(3);
/// Silence from which it is reported.
const REPORTED_SILENCE: Duration = Duration::from_secs(6);

/// Login to a host.
#[derive(Debug, Clone)]
pub(crate) struct SftpLogin {
    pub ssh: Ssh,
    /// Host as ssh takes it, and as the user wrote it.
    pub host: String,
    pub shown: String,
}

/// The connections of a copy. They end when it is dropped.
pub(crate) struct Pool {
    shared: Arc<PoolShared>,
    manager: AbortHandle,
}

struct PoolShared {
    login: SftpLogin,
    abilities: ServerAbilities,
    reporter: Arc<EntryReporter>,
    clock: Arc<AnswerClock>,
    began: Instant,
    patience: Duration,
    state: Mutex<PoolState>,
    /// Notified when the state changes in a way that the manager decides about.
    changed: Notify,
    /// Time without an answer, and the last reason, once the copy is given up.
    given_up: watch::Sender<Option<(Duration, String)>>,
}

struct PoolState {
    balance: Balance,
    recovery: Recovery,
    sessions: BTreeMap<SessionId, OpenSession>,
    waiting: HashMap<u64, oneshot::Sender<SessionId>>,
    next_session: SessionId,
    next_ticket: u64,
    last_reason: String,
}

#[derive(Clone)]
struct OpenSession {
    session: Arc<Session>,
    counters: Arc<StreamCounters>,
}

/// A connection, and room for a request on it.
pub(crate) struct Lease {
    shared: Arc<PoolShared>,
    cost: u64,
    open: OpenSession,
    /// Number of the connection.
    pub id: SessionId,
}

impl std::ops::Deref for Lease {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.open.session
    }
}

impl Lease {
    /// Counts bytes of files that the connection carried.
    pub(crate) fn carried(&self, bytes: u64) {
        let carried = &self.open.counters.bytes;
        carried.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        let served = state.balance.release(self.id, self.cost);
        state.hand_over(served);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.manager.abort();
    }
}

impl Pool {
    /// Logs in for the first time. Up to `max_sessions` connections are opened when they carry
    /// something.
    ///
    /// # Errors
    /// ssh cannot log in, or there is no SFTP server.
    pub(crate) async fn open(
        login: SftpLogin,
        max_sessions: usize,
        patience: Duration,
        reporter: Arc<EntryReporter>,
    ) -> Result<Self, Error> {
        let began = Instant::now();
        let clock = Arc::<AnswerClock>::default();
        let SftpLogin { ssh, host, shown } = &login;
        let first = Session::start(ssh, host, shown, &[], clock.clone()).await?;
        let state = PoolState {
            balance: Balance::new(WINDOW_BYTES),
            recovery: Recovery::new(patience, max_sessions, began.elapsed()),
            sessions: BTreeMap::new(),
            waiting: HashMap::new(),
            next_session: 0,
            next_ticket: 0,
            last_reason: String::new(),
        };
        let shared = Arc::new(PoolShared {
            login,
            abilities: first.abilities(),
            reporter,
            clock,
            began,
            patience,
            state: Mutex::new(state),
            changed: Notify::new(),
            given_up: watch::Sender::new(None),
        });
        let mut manager = Manager {
            shared: shared.clone(),
            logins: JoinSet::new(),
            endings: JoinSet::new(),
            answers: 0,
            is_reported: false,
        };
        manager.add(first);
        let manager = tokio::spawn(manager.run()).abort_handle();
        Ok(Self { shared, manager })
    }

    /// Returns the host as ssh takes it.
    pub(crate) fn host(&self) -> &str {
        &self.shared.login.host
    }

    /// Returns the server's limits and extensions.
    pub(crate) fn abilities(&self) -> ServerAbilities {
        self.shared.abilities
    }

    /// Waits for room for a request that carries `bytes`. Waits forever once the copy is given up.
    pub(crate) async fn lease(&self, bytes: u64) -> Lease {
        let shared = &self.shared;
        let cost = bytes.max(SMALL_REQUEST_BYTES);
        loop {
            let (ticket, taken, answer) = {
                let mut state = shared.state.lock();
                if !state.balance.is_busy() {
                    // The time of the rest before does not count as silence.
                    state.recovery.answered(shared.began.elapsed());
                }
                let ticket = state.next_ticket;
                state.next_ticket += 1;
                let taken = state.balance.request(ticket, cost);
                let answer = taken.is_none().then(|| {
                    let (sender, answer) = oneshot::channel();
                    state.waiting.insert(ticket, sender);
                    answer
                });
                if state.balance.is_loaded() {
                    shared.changed.notify_one();
                }
                (ticket, taken, answer)
            };
            let id = match (taken, answer) {
                (Some(id), _) => id,
                (None, Some(answer)) => {
                    let mut waits = WaitingTicket {
                        shared,
                        ticket,
                        cost,
                        answer,
                    };
                    match (&mut waits.answer).await {
                        Ok(id) => id,
                        Err(_) => std::future::pending().await,
                    }
                }
                (None, None) => continue,
            };
            let open = shared.state.lock().sessions.get(&id).cloned();
            // It may have been lost meanwhile.
            if let Some(open) = open {
                return Lease {
                    shared: shared.clone(),
                    cost,
                    open,
                    id,
                };
            }
        }
    }

    /// Returns a connection, if it still works.
    pub(crate) fn session(&self, id: SessionId) -> Option<Arc<Session>> {
        let state = self.shared.state.lock();
        state.sessions.get(&id).map(|open| open.session.clone())
    }

    /// Waits until the copy is given up. Returns the reason.
    pub(crate) async fn given_up(&self) -> Error {
        let mut given_up = self.shared.given_up.subscribe();
        let reason = match given_up.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone(),
            Err(_) => None,
        };
        let (silence, reason) = reason.unwrap_or_default();
        Error::BrokeOff {
            host: self.shared.login.shown.clone(),
            silence,
            reason,
        }
    }

    /// Returns true if the copy is given up.
    pub(crate) fn is_given_up(&self) -> bool {
        self.shared.given_up.borrow().is_some()
    }

    /// Ends all connections.
    pub(crate) async fn end(&self) {
        self.manager.abort();
        let sessions = std::mem::take(&mut self.shared.state.lock().sessions);
        let mut endings = JoinSet::new();
        for open in sessions.into_values() {
            endings.spawn(async move { open.session.end().await });
        }
        while endings.join_next().await.is_some() {}
    }
}

/// A request that waits. It is withdrawn if it is cancelled, even in the moment when it is served.
struct WaitingTicket<'a> {
    shared: &'a Arc<PoolShared>,
    ticket: u64,
    cost: u64,
    answer: oneshot::Receiver<SessionId>,
}

impl Drop for WaitingTicket<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        if state.waiting.remove(&self.ticket).is_some() {
            state.balance.cancel(self.ticket);
        } else if let Ok(session) = self.answer.try_recv() {
            // It was served, and nobody took the answer.
            let served = state.balance.release(session, self.cost);
            state.hand_over(served);
        }
    }
}

impl PoolState {
    /// Tells waiting requests their connections.
    fn hand_over(&mut self, served: Vec<(u64, SessionId)>) {
        for (ticket, session) in served {
            if let Some(sender) = self.waiting.remove(&ticket) {
                // The ticket of a receiver that is gone has been withdrawn.
                let _ = sender.send(session);
            }
        }
    }
}

/// Opens connections, and notices when they end.
struct Manager {
    shared: Arc<PoolShared>,
    logins: JoinSet<Result<Session, Error>>,
    endings: JoinSet<(SessionId, String)>,
    /// Number of answers at the last look.
    answers: u32,
    /// True if silence has been reported.
    is_reported: bool,
}

impl Manager {
    async fn run(mut self) {
        let mut look = tokio::time::interval(LOOK_INTERVAL);
        loop {
            let until = match self.step() {
                Step::Login => {
                    self.log_in();
                    continue;
                }
                Step::GiveUp(silence) => {
                    let mut state = self.shared.state.lock();
                    let reason = std::mem::take(&mut state.last_reason);
                    drop(state);
                    self.shared.given_up.send_replace(Some((silence, reason)));
                    return;
                }
                Step::Until(then) => Some(self.shared.began + then),
                Step::Rest => None,
            };
            let time = async {
                match until {
                    Some(until) => sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.shared.changed.notified() => {}
                () = time => {}
                _ = look.tick() => self.look(),
                Some(login) = self.logins.join_next(), if !self.logins.is_empty() => match login {
                    Ok(Ok(session)) => self.add(session),
                    Ok(Err(error)) => self.login_failed(&error.to_string()),
                    Err(error) => self.login_failed(&error.to_string()),
                },
                Some(ended) = self.endings.join_next(), if !self.endings.is_empty() => {
                    if let Ok((session, reason)) = ended {
                        self.lost(session, &reason);
                    }
                }
            }
        }
    }

    fn step(&self) -> Step {
        let state = self.shared.state.lock();
        let pending = self.logins.len();
        let connections = Connections {
            alive: state.balance.sessions(),
            pending,
            is_loaded: state.balance.is_loaded() && pending < MAX_LOGINS,
            is_busy: state.balance.is_busy(),
        };
        state
            .recovery
            .step(self.shared.began.elapsed(), connections)
    }

    fn log_in(&mut self) {
        let (login, clock) = (self.shared.login.clone(), self.shared.clock.clone());
        self.logins.spawn(async move {
            let SftpLogin { ssh, host, shown } = &login;
            Session::start(ssh, host, shown, &EXTRA_OPTIONS, clock).await
        });
    }

    fn add(&mut self, session: Session) {
        let open = OpenSession {
            session: Arc::new(session),
            counters: self.shared.reporter.add_stream("sftp"),
        };
        let mut state = self.shared.state.lock();
        let now = self.shared.began.elapsed();
        state.recovery.opened(now);
        if state.sessions.is_empty() {
            state.recovery.answered(now);
        }
        let id = state.next_session;
        state.next_session += 1;
        state.sessions.insert(id, open.clone());
        let served = state.balance.add(id);
        state.hand_over(served);
        drop(state);
        let session = open.session;
        self.endings
            .spawn(async move { (id, session.ended().await) });
    }

    fn login_failed(&self, reason: &str) {
        let mut state = self.shared.state.lock();
        reason.clone_into(&mut state.last_reason);
        state.recovery.login_failed(self.shared.began.elapsed());
    }

    fn lost(&self, id: SessionId, reason: &str) {
        let reason = match reason {
            "" => "an sftp connection ended",
            reason => reason,
        };
        let mut state = self.shared.state.lock();
        state.balance.remove(id);
        let open = state.sessions.remove(&id);
        reason.clone_into(&mut state.last_reason);
        drop(state);
        if let Some(open) = open {
            self.shared.reporter.lost_stream(&open.counters, reason);
        }
    }

    /// Looks for answers, and reports silence.
    fn look(&mut self) {
        let answers = self.shared.clock.answers();
        let now = self.shared.began.elapsed();
        let mut state = self.shared.state.lock();
        let before = state.recovery.silence(now);
        let is_busy = state.balance.is_busy();
        let has_answers = answers != self.answers;
        self.answers = answers;
        if has_answers || (!is_busy && state.balance.sessions() > 0) {
            state.recovery.answered(now);
        }
        let silence = state.recovery.silence(now);
        drop(state);
        let reporter = &self.shared.reporter;
        reporter.set_silence(Some(silence).filter(|silence| *silence >= SHOWN_SILENCE));
        if silence >= REPORTED_SILENCE && !self.is_reported {
            self.is_reported = true;
            reporter.waiting(silence, self.shared.patience);
        } else if self.is_reported && has_answers {
            self.is_reported = false;
            reporter.arrival_resumed(before);
        }
    }
}
