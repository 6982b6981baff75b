//! Table of the program's known sockets.
//!
//! A socket is identified by the kernel's cookie, not by its descriptor. So the library need not
//! follow what `dup`, `fork`, `fcntl` and `close` do to descriptors. Entries of closed sockets are
//! swept when the table has grown large.
//!
//! Functions of this library may be called from signal handlers. So signals are blocked while the
//! lock is held, and it is never held for longer than a few system calls. It is taken around
//! `fork`, so a child finds the table consistent.

use std::cell::UnsafeCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::names::ResolvedNames;
use crate::system::{self, Errno};
use crate::wish::SocketWishes;

/// Minimum number of connecting sockets before entries of closed ones are swept.
const MIN_SWEEP_PENDING: usize = 32;

/// Minimum number of known sockets before entries of closed ones are swept.
const MIN_SWEEP_ENTRIES: usize = 256;

/// Known properties of one socket.
#[derive(Default)]
pub struct SocketEntry {
    state: SocketState,
    /// Made by `lsl_socket(AF_LSL)`: its addresses are reported as `sockaddr_lsl`.
    pub native: bool,
    /// If true, its bytes go through the on-ramp.
    pub carried: bool,
    /// Destination address, as the program asked for it.
    pub peer: Option<SocketAddr>,
    /// Name of the destination.
    pub peer_name: Option<String>,
    /// Address that `getsockname` reports, if it differs from the kernel's.
    pub local: Option<SocketAddr>,
    /// Key that the peer has shown.
    pub key: Option<[u8; 32]>,
    /// Options that the program has set.
    pub wishes: SocketWishes,
    /// Reason why it uses a route, connects directly, or fails.
    pub reason: String,
}

impl SocketEntry {
    /// Returns the state of the socket.
    pub fn state(&self) -> &SocketState {
        &self.state
    }
}

/// State of a socket.
#[derive(Default)]
pub enum SocketState {
    /// Not used yet, or left to the kernel.
    #[default]
    Idle,
    /// The on-ramp is making its route.
    Connecting(PendingRoute),
    /// The route stands.
    Connected {
        /// If true, `connect` has reported it to the program.
        reported: bool,
    },
    /// The route failed; the program has not been told yet.
    Failed(Errno),
    /// The route failed; the program has been told.
    Spent,
    /// It accepts sessions.
    Listening(ListenerState),
}

/// A route that is being made.
pub struct PendingRoute {
    /// Socket on which the on-ramp reports the result.
    pub ramp: Arc<OwnedFd>,
    /// Previous state of the send buffer, which is kept small meanwhile.
    pub buffer: Option<crate::fill::SendBuffer>,
}

/// A listener. The program's descriptor leads to the Unix socket from which sessions come.
pub struct ListenerState {
    /// Address at which sessions are accepted.
    pub at: SocketAddr,
    /// A TCP socket that keeps the options for accepted sockets.
    pub options: Arc<OwnedFd>,
}

/// All known sockets and names.
pub struct SocketTable {
    entries: BTreeMap<u64, SocketEntry>,
    /// Number of entries that are [`SocketState::Connecting`].
    pending: usize,
    /// Names, and the addresses that they resolved to.
    pub names: ResolvedNames,
    /// Number of entries at which closed sockets are swept.
    sweep_at: usize,
    /// Number of connecting entries at which closed sockets are swept.
    sweep_pending_at: usize,
}

static ENTRIES: AtomicUsize = AtomicUsize::new(0);
static PENDING: AtomicUsize = AtomicUsize::new(0);

/// Returns true if any socket is known.
pub fn is_used() -> bool {
    ENTRIES.load(Ordering::Relaxed) > 0
}

/// Returns true if any connection is being made.
pub fn has_pending() -> bool {
    PENDING.load(Ordering::Relaxed) > 0
}

impl SocketTable {
    const fn new() -> Self {
        Self {
            entries: BTreeMap::new(),
            pending: 0,
            names: ResolvedNames::new(),
            sweep_at: MIN_SWEEP_ENTRIES,
            sweep_pending_at: MIN_SWEEP_PENDING,
        }
    }

    /// Returns the entry of the socket with this cookie.
    pub fn get(&mut self, cookie: u64) -> Option<&mut SocketEntry> {
        self.entries.get_mut(&cookie)
    }

    /// Returns the entry of the socket with this cookie, and creates it if needed.
    pub fn entry(&mut self, cookie: u64) -> &mut SocketEntry {
        if !self.entries.contains_key(&cookie) {
            self.sweep_if_many();
        }
        self.entries.entry(cookie).or_default()
    }

    /// Sets the state of a socket. Returns the previous one.
    pub fn set_state(&mut self, cookie: u64, state: SocketState) -> SocketState {
        let begins = usize::from(matches!(state, SocketState::Connecting(_)));
        let before = std::mem::replace(&mut self.entry(cookie).state, state);
        let ends = usize::from(matches!(before, SocketState::Connecting(_)));
        self.pending = (self.pending + begins).saturating_sub(ends);
        before
    }

    /// Removes the entry of a socket.
    pub fn forget(&mut self, cookie: u64) {
        if let Some(entry) = self.entries.remove(&cookie) {
            self.pending -= usize::from(matches!(entry.state, SocketState::Connecting(_)));
        }
    }

    fn sweep_if_many(&mut self) {
        if self.entries.len() < self.sweep_at && self.pending < self.sweep_pending_at {
            return;
        }
        let open = open_sockets();
        if let Some(open) = open {
            self.entries.retain(|cookie, _| open.contains(cookie));
            let is_pending =
                |entry: &&SocketEntry| matches!(entry.state, SocketState::Connecting(_));
            self.pending = self.entries.values().filter(is_pending).count();
        }
        self.sweep_at = MIN_SWEEP_ENTRIES.max(2 * self.entries.len());
        self.sweep_pending_at = MIN_SWEEP_PENDING.max(2 * self.pending);
    }
}

/// Returns the cookies of all sockets of this process, or `None` if they cannot be determined.
fn open_sockets() -> Option<BTreeSet<u64>> {
    let folder = std::fs::read_dir("/proc/self/fd").ok()?;
    let numbers =
        folder.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<c_int>().ok());
    Some(numbers.filter_map(system::cookie).collect())
}

/// Returns true if a descriptor of this process leads to the socket.
pub fn is_open(cookie: u64) -> bool {
    open_sockets().is_none_or(|open| open.contains(&cookie))
}

struct SharedTable {
    lock: UnsafeCell<libc::pthread_mutex_t>,
    table: UnsafeCell<SocketTable>,
    /// Signal mask of the thread that is forking.
    forking: UnsafeCell<MaybeUninit<libc::sigset_t>>,
}

// SAFETY: all fields are used only while the lock is held.
unsafe impl Sync for SharedTable {}

static SHARED: SharedTable = SharedTable {
    lock: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
    table: UnsafeCell::new(SocketTable::new()),
    forking: UnsafeCell::new(MaybeUninit::uninit()),
};

/// Holds the lock, with all signals blocked.
struct TableGuard {
    signals: libc::sigset_t,
}

fn hold() -> TableGuard {
    let mut signals = MaybeUninit::uninit();
    let mut all = MaybeUninit::uninit();
    // SAFETY: both pointers are valid for a signal set; the mutex is initialised.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), signals.as_mut_ptr());
        libc::pthread_mutex_lock(SHARED.lock.get());
        TableGuard {
            signals: signals.assume_init(),
        }
    }
}

impl Drop for TableGuard {
    fn drop(&mut self) {
        // SAFETY: this thread holds the lock, and had this signal mask before.
        unsafe {
            libc::pthread_mutex_unlock(SHARED.lock.get());
            libc::pthread_sigmask(
                libc::SIG_SETMASK,
                &raw const self.signals,
                std::ptr::null_mut(),
            );
        }
    }
}

extern "C" fn before_fork() {
    let held = hold();
    // SAFETY: this thread holds the lock from here until after the fork.
    unsafe { (*SHARED.forking.get()).write(held.signals) };
    std::mem::forget(held);
}

extern "C" fn after_fork() {
    // SAFETY: written by `before_fork` in this thread, which holds the lock (in a child, its copy).
    drop(unsafe {
        TableGuard {
            signals: (*SHARED.forking.get()).assume_init_read(),
        }
    });
}

static FORKS_SEEN: AtomicUsize = AtomicUsize::new(0);

/// Calls `body` with the table locked. `errno` stays as it is.
pub fn with_table<R>(body: impl FnOnce(&mut SocketTable) -> R) -> R {
    let errno = system::errno();
    let held = hold();
    if FORKS_SEEN.swap(1, Ordering::Relaxed) == 0 {
        // SAFETY: functions of this library, which stays loaded.
        unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(after_fork)) };
    }
    // SAFETY: this thread holds the lock, and `body` has the only reference.
    let table = unsafe { &mut *SHARED.table.get() };
    let result = body(table);
    ENTRIES.store(table.entries.len(), Ordering::Relaxed);
    PENDING.store(table.pending, Ordering::Relaxed);
    drop(held);
    system::set_errno(errno);
    result
}
