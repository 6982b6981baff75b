//! Accounts of what each key holds of a server's resources. All keys share one ceiling in shares,
//! so a key that exhausts its share affects only itself.
//!
//! [`ResourceLedger`] does the bookkeeping. [`Account`] is one key's access to it: it waits where
//! waiting is right, and returns what it took when the [`ResourcePermit`] is dropped.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use longhaul_proto::{LogRate, PublicKey};
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, timeout};

use crate::error::Failure;
use crate::frame_io::BufferPool;
use crate::hole_hash::HoleHasher;
use crate::limits::ServerLimits;
use crate::process_limits::ProcessLimits;

mod ledger;

pub use ledger::ResourceUse;
use ledger::{RESOURCES, ResourceLedger};
pub(crate) use ledger::{Resource, ResourceExhausted};

/// Log lines that one key may cause in a burst, and per second.
const LOG_BURST: u32 = 50;
const LOG_PER_SECOND: u32 = 5;
/// Delay after which omitted log lines are reported, unless another line has reported them.
const MAX_LOG_SILENCE: Duration = Duration::from_secs(1);

/// Granularity of memory accounting, in bytes.
const BOOKKEEPING_STEP: u64 = 64 * 1024;

/// Number of accounts from which on idle ones are closed.
const MAX_IDLE_ACCOUNTS: usize = 4096;

/// The accounts of all keys. There is one for each authenticated key that holds anything. Others
/// are closed when there are many, as a server that takes tokens may meet any number of keys.
pub(crate) struct Accounts {
    shared: Arc<SharedAccounts>,
    of: Mutex<OpenAccounts>,
}

/// Open accounts.
#[derive(Default)]
struct OpenAccounts {
    by_key: HashMap<PublicKey, Arc<Account>>,
    /// Number of accounts that hold something, when idle ones were last closed.
    busy: usize,
}

struct SharedAccounts {
    ledger: Mutex<ResourceLedger>,
    /// Number of waiting requests for each resource.
    waiting: [AtomicUsize; RESOURCES],
    accounts: Mutex<Vec<Weak<Account>>>,
    buffers: Arc<BufferPool>,
    hole_hasher: HoleHasher,
    started: Instant,
    file_wait: Duration,
}

/// The account of one key.
pub(crate) struct Account {
    key: PublicKey,
    shared: Arc<SharedAccounts>,
    /// Notified when a unit of the resource may be available.
    freed: [Notify; RESOURCES],
    /// Permit to hash a block with holes: one block of this key at a time. `None` for a client,
    /// which chose its peer itself.
    pub holes: Option<Semaphore>,
    /// Lock for comparing files: one file is read for this key at a time. `None` for a client.
    pub comparing: Option<Mutex<()>>,
    /// Maximum number of files that a client's account may have open, as it shares with no other
    /// key.
    alone: Option<usize>,
    log: Mutex<LogRate>,
    /// True if a task will report the number of omitted log lines.
    log_pending: AtomicBool,
}

impl Accounts {
    pub(crate) fn new(limits: &ServerLimits) -> Self {
        let shared = SharedAccounts {
            ledger: Mutex::new(ResourceLedger::new(limits)),
            waiting: Default::default(),
            accounts: Mutex::default(),
            buffers: Arc::default(),
            hole_hasher: HoleHasher::default(),
            started: Instant::now(),
            file_wait: limits.file_timeout,
        };
        Self {
            shared: Arc::new(shared),
            of: Mutex::default(),
        }
    }

    /// Returns the account of `key`, and opens it if necessary.
    pub(crate) fn account_of(&self, key: PublicKey) -> Arc<Account> {
        let mut accounts = self.of.lock();
        if let Some(account) = accounts.by_key.get(&key) {
            return account.clone();
        }
        if accounts.by_key.len() >= 2 * accounts.busy + MAX_IDLE_ACCOUNTS {
            // Whatever is held holds its account.
            accounts
                .by_key
                .retain(|_, account| Arc::strong_count(account) > 1);
            accounts.busy = accounts.by_key.len();
            self.shared
                .accounts
                .lock()
                .retain(|account| account.strong_count() > 0);
        }
        let account = self.open(key, Some(Semaphore::new(1)), None);
        accounts.by_key.insert(key, account.clone());
        account
    }

    /// Returns the use of each resource by all keys.
    pub(crate) fn usage(&self) -> Vec<ResourceUse> {
        self.shared.ledger.lock().usage()
    }

    fn open(&self, key: PublicKey, holes: Option<Semaphore>, alone: Option<usize>) -> Arc<Account> {
        let account = Arc::new(Account {
            key,
            shared: self.shared.clone(),
            freed: Default::default(),
            comparing: holes.is_some().then(Mutex::default),
            holes,
            alone,
            log: Mutex::new(LogRate::new(LOG_BURST, LOG_PER_SECOND)),
            log_pending: AtomicBool::new(false),
        });
        self.shared.accounts.lock().push(Arc::downgrade(&account));
        account
    }
}

impl Account {
    /// Creates the account of a client, which shares with no other key. It may hold what one key
    /// may hold at a server, within the limits of the process.
    pub(crate) fn unshared() -> Arc<Self> {
        let limits = ServerLimits::for_client(ProcessLimits::current());
        // One key may hold half of each resource.
        let open_files = limits.open_files / 2;
        Accounts::new(&limits).open(PublicKey::from_bytes([0; 32]), None, Some(open_files))
    }

    /// Takes `units` immediately, or fails.
    pub(crate) fn take(
        self: &Arc<Self>,
        what: Resource,
        units: u64,
    ) -> Result<ResourcePermit, ResourceExhausted> {
        self.shared.ledger.lock().take(what, &self.key, units)?;
        Ok(ResourcePermit {
            account: self.clone(),
            what,
            units,
        })
    }

    /// Waits for one unit and takes it.
    pub(crate) async fn acquire(self: &Arc<Self>, what: Resource) -> ResourcePermit {
        let _waiting = WaitingCount::new(&self.shared.waiting[what as usize]);
        let freed = &self.freed[what as usize];
        loop {
            // Register before the attempt, so that units returned after it wake this task.
            let changed = freed.notified();
            if let Ok(held) = self.take(what, 1) {
                // Another unit may be free for another waiter of this key.
                freed.notify_one();
                return held;
            }
            changed.await;
        }
    }

    /// Waits for the permit for one open file, at most [`ServerLimits::file_timeout`].
    pub(crate) async fn open_file(self: &Arc<Self>) -> Result<ResourcePermit, Failure> {
        let waited = timeout(self.shared.file_wait, self.acquire(Resource::OpenFiles)).await;
        waited.map_err(|_| ResourceExhausted::Share(Resource::OpenFiles).into())
    }

    /// Calls `line` to write a log line that this key causes, unless the key exceeds its log rate.
    /// The number of omitted lines is reported shortly after.
    pub(crate) fn log(self: &Arc<Self>, line: impl FnOnce()) {
        if let Some(left_out) = self.admit_log() {
            self.report_left_out(left_out);
            return line();
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        if !self.log_pending.swap(true, Ordering::Relaxed) {
            let account = self.clone();
            runtime.spawn(async move {
                tokio::time::sleep(MAX_LOG_SILENCE).await;
                account.log_pending.store(false, Ordering::Relaxed);
                if let Some(left_out) = account.admit_log() {
                    account.report_left_out(left_out);
                }
            });
        }
    }

    fn admit_log(&self) -> Option<u64> {
        self.log.lock().admit(self.shared.started.elapsed())
    }

    fn report_left_out(&self, left_out: u64) {
        if left_out > 0 {
            tracing::info!(key = %self.key, "and {left_out} more lines of this key, left out");
        }
    }

    /// Returns the number of files that may be open at once, if no other key shares them.
    pub(crate) fn max_open_files(&self) -> Option<usize> {
        self.alone
    }

    /// Returns the idle buffers, which all accounts share.
    pub(crate) fn buffers(&self) -> &Arc<BufferPool> {
        &self.shared.buffers
    }

    pub(crate) fn hole_hasher(&self) -> &HoleHasher {
        &self.shared.hole_hasher
    }

    #[cfg(test)]
    pub(crate) fn held(&self, what: Resource) -> u64 {
        self.shared.ledger.lock().shares(what).units_of(&self.key)
    }
}

/// Units of a resource that an account holds. They are returned on drop.
pub(crate) struct ResourcePermit {
    account: Arc<Account>,
    what: Resource,
    units: u64,
}

impl ResourcePermit {
    /// Takes `units` more immediately, or fails.
    pub(crate) fn grow(&mut self, units: u64) -> Result<(), ResourceExhausted> {
        let shared = &self.account.shared;
        shared
            .ledger
            .lock()
            .take(self.what, &self.account.key, units)?;
        self.units += units;
        Ok(())
    }

    /// Returns `units` to the account.
    pub(crate) fn shrink(&mut self, units: u64) {
        let units = units.min(self.units);
        self.units -= units;
        let (account, shared) = (&self.account, &self.account.shared);
        let index = self.what as usize;
        shared
            .ledger
            .lock()
            .shares(self.what)
            .release(&account.key, units);
        // Any account may take what one returns: each has its own share of what is free.
        if shared.waiting[index].load(Ordering::SeqCst) > 0 {
            for account in shared.accounts.lock().iter().filter_map(Weak::upgrade) {
                account.freed[index].notify_one();
            }
        }
    }

    /// Takes or returns units so that `units` are held.
    pub(crate) fn set(&mut self, units: u64) -> Result<(), ResourceExhausted> {
        if units > self.units {
            self.grow(units - self.units)?;
        } else if units < self.units {
            self.shrink(self.units - units);
        }
        Ok(())
    }

    /// Sets the number of bytes of memory, rounded up to [`BOOKKEEPING_STEP`], so that not every
    /// entry of a copy locks the ledger.
    pub(crate) fn set_in_steps(&mut self, bytes: u64) -> Result<(), ResourceExhausted> {
        let rounded = bytes.max(1).checked_next_multiple_of(BOOKKEEPING_STEP);
        self.set(rounded.unwrap_or(bytes))
    }
}

impl Drop for ResourcePermit {
    fn drop(&mut self) {
        if self.units > 0 {
            self.shrink(self.units);
        }
    }
}

struct WaitingCount<'a>(&'a AtomicUsize);

impl<'a> WaitingCount<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for WaitingCount<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::FailureKind;

    fn key(n: u8) -> PublicKey {
        PublicKey::from_bytes([n; 32])
    }

    fn accounts() -> Accounts {
        Accounts::new(&ServerLimits {
            open_files: 8,
            ..ServerLimits::default()
        })
    }

    #[test]
    fn idle_accounts_are_closed_when_there_are_many() {
        let accounts = accounts();
        let busy = accounts.account_of(key(1));
        let _held = busy.take(Resource::Copies, 1).unwrap();
        drop(busy);
        for number in 0..2 * MAX_IDLE_ACCOUNTS as u64 {
            let mut bytes = [9; 32];
            bytes[..8].copy_from_slice(&number.to_le_bytes());
            accounts.account_of(PublicKey::from_bytes(bytes));
        }
        assert!(accounts.of.lock().by_key.len() <= MAX_IDLE_ACCOUNTS + 2);
        assert!(accounts.shared.accounts.lock().len() <= MAX_IDLE_ACCOUNTS + 2);
        assert_eq!(accounts.account_of(key(1)).held(Resource::Copies), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn exhausted_key_fails_and_other_keys_do_not() {
        let accounts = accounts();
        let (greedy, honest) = (accounts.account_of(key(1)), accounts.account_of(key(2)));
        let mut held = Vec::new();
        while let Ok(one) = greedy.take(Resource::OpenFiles, 1) {
            held.push(one);
        }
        assert_eq!(held.len(), 4);
        assert_eq!(
            greedy.open_file().await.err().map(|f| f.kind),
            Some(FailureKind::Limit)
        );
        assert!(honest.take(Resource::OpenFiles, 1).is_ok());
        // Each resource has its own share.
        assert!(greedy.take(Resource::Copies, 1).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn waiter_gets_units_that_any_key_returns() {
        let accounts = accounts();
        let (one, other) = (accounts.account_of(key(1)), accounts.account_of(key(2)));
        let mut held: Vec<ResourcePermit> = Vec::new();
        for account in [&one, &other, &one, &other, &one] {
            held.extend(account.take(Resource::OpenFiles, 1).ok());
        }
        while let Ok(more) = other.take(Resource::OpenFiles, 1) {
            held.push(more);
        }
        let waiters: Vec<_> = (0..2)
            .map(|_| {
                let one = one.clone();
                tokio::spawn(async move { one.acquire(Resource::OpenFiles).await })
            })
            .collect();
        tokio::task::yield_now().await;
        assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
        held.clear();
        for waiter in waiters {
            waiter.await.unwrap();
        }
        assert_eq!(
            (
                one.held(Resource::OpenFiles),
                other.held(Resource::OpenFiles)
            ),
            (0, 0)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn log_rate_is_limited_and_omissions_are_reported() {
        let account = accounts().account_of(key(1));
        let mut lines = 0;
        for _ in 0..100_000 {
            account.log(|| lines += 1);
        }
        assert_eq!(lines, LOG_BURST);
        assert!(account.log_pending.load(Ordering::Relaxed));
        tokio::time::sleep(2 * MAX_LOG_SILENCE).await;
        assert_eq!(
            account.log.lock().take_suppressed(),
            0,
            "reported without another line"
        );
        account.log(|| lines += 1);
        assert_eq!(lines, LOG_BURST + 1);
        // Each key has its own log rate.
        accounts().account_of(key(2)).log(|| lines += 1);
        assert_eq!(lines, LOG_BURST + 2);
    }

    #[test]
    fn held_units_can_grow_and_shrink() {
        let accounts = Accounts::new(&ServerLimits {
            bookkeeping: 100,
            ..ServerLimits::default()
        });
        let account = accounts.account_of(key(1));
        let mut held = account.take(Resource::Bookkeeping, 10).unwrap();
        assert_eq!(
            held.grow(50),
            Err(ResourceExhausted::Share(Resource::Bookkeeping))
        );
        held.set(50).unwrap();
        assert_eq!(
            held.set(51),
            Err(ResourceExhausted::Share(Resource::Bookkeeping))
        );
        held.set(7).unwrap();
        assert_eq!(account.held(Resource::Bookkeeping), 7);
        drop(held);
        assert_eq!(account.held(Resource::Bookkeeping), 0);
    }
}
