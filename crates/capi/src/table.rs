//! What is known of the program's sockets.
//!
//! A socket is known by the cookie that the kernel gives it, not by its descriptor: so what `dup`,
//! `fork`, `fcntl` and `close` do to descriptors need not be followed. Entries of sockets that are
//! gone are swept out when there have come to be many.
//!
//! Functions of this library may be called from signal handlers, so nothing that a handler can
//! interrupt holds the lock: signals wait while it is held, and it is never held for longer than a
//! few system calls. It is taken around `fork`, so a child finds the table whole.

use std::cell::UnsafeCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::names::Names;
use crate::system::{self, Errno};
use crate::wish::Wishes;

/// Sockets whose connection is being made, of which so many may be known before those that are gone
/// are looked for.
const MIN_PENDING_SWEPT: usize = 32;

/// The same of all sockets.
const MIN_SWEPT: usize = 256;

/// What is known of one socket.
#[derive(Default)]
pub struct Entry {
    state: State,
    /// Made by `lsl_socket(AF_LSL)`: its addresses are reported as `sockaddr_lsl`.
    pub native: bool,
    /// Whether its bytes go through the on-ramp.
    pub carried: bool,
    /// Where it leads, as the program asked for it.
    pub peer: Option<SocketAddr>,
    /// The name by which it was asked for.
    pub peer_name: Option<String>,
    /// What `getsockname` says, where the kernel would say something else.
    pub local: Option<SocketAddr>,
    /// The key that the other end has shown.
    pub key: Option<[u8; 32]>,
    /// What the program wishes.
    pub wishes: Wishes,
    /// Why it goes by a route, or directly, or not at all.
    pub reason: String,
}

impl Entry {
    /// What it is doing.
    pub fn state(&self) -> &State {
        &self.state
    }
}

/// What a socket is doing.
#[derive(Default)]
pub enum State {
    /// Nothing yet, or what the kernel says.
    #[default]
    Idle,
    /// The on-ramp is making its route.
    Connecting(Pending),
    /// It stands.
    Connected {
        /// Whether `connect` has said so.
        reported: bool,
    },
    /// It failed, which has not been reported to the program.
    Failed(Errno),
    /// It failed, which has been reported to the program.
    Spent,
    /// It takes sessions.
    Listening(Listening),
}

/// A route that is being made.
pub struct Pending {
    /// Where its result comes.
    pub ramp: Arc<OwnedFd>,
    /// The send buffer, which is kept small meanwhile.
    pub buffer: Option<crate::fill::SendBuffer>,
}

/// A listener. The program's descriptor leads to the Unix socket from which sessions come.
pub struct Listening {
    /// Where sessions are taken.
    pub at: SocketAddr,
    /// A TCP socket that keeps the options which accepted ones are to have.
    pub options: Arc<OwnedFd>,
}

/// Everything that is known.
pub struct Table {
    entries: BTreeMap<u64, Entry>,
    /// How many of them are [`State::Connecting`].
    pending: usize,
    /// Which names led to which addresses.
    pub names: Names,
    /// With so many entries those that are gone are looked for.
    sweep_at: usize,
    /// The same of those that are being connected.
    sweep_pending_at: usize,
}

static ENTRIES: AtomicUsize = AtomicUsize::new(0);
static PENDING: AtomicUsize = AtomicUsize::new(0);

/// Whether anything is known of any socket.
pub fn is_used() -> bool {
    ENTRIES.load(Ordering::Relaxed) > 0
}

/// Whether any connection is being made.
pub fn has_pending() -> bool {
    PENDING.load(Ordering::Relaxed) > 0
}

impl Table {
    const fn new() -> Self {
        Self {
            entries: BTreeMap::new(),
            pending: 0,
            names: Names::new(),
            sweep_at: MIN_SWEPT,
            sweep_pending_at: MIN_PENDING_SWEPT,
        }
    }

    /// What is known of the socket with this cookie.
    pub fn get(&mut self, cookie: u64) -> Option<&mut Entry> {
        self.entries.get_mut(&cookie)
    }

    /// The same; something is known from now on.
    pub fn entry(&mut self, cookie: u64) -> &mut Entry {
        if !self.entries.contains_key(&cookie) {
            self.sweep_if_many();
        }
        self.entries.entry(cookie).or_default()
    }

    /// The socket does something else from now on; gives what it did.
    pub fn set_state(&mut self, cookie: u64, state: State) -> State {
        let begins = usize::from(matches!(state, State::Connecting(_)));
        let before = std::mem::replace(&mut self.entry(cookie).state, state);
        let ends = usize::from(matches!(before, State::Connecting(_)));
        self.pending = (self.pending + begins).saturating_sub(ends);
        before
    }

    /// Nothing is known from now on.
    pub fn forget(&mut self, cookie: u64) {
        if let Some(entry) = self.entries.remove(&cookie) {
            self.pending -= usize::from(matches!(entry.state, State::Connecting(_)));
        }
    }

    fn sweep_if_many(&mut self) {
        if self.entries.len() < self.sweep_at && self.pending < self.sweep_pending_at {
            return;
        }
        let open = open_sockets();
        if let Some(open) = open {
            self.entries.retain(|cookie, _| open.contains(cookie));
            let is_pending = |entry: &&Entry| matches!(entry.state, State::Connecting(_));
            self.pending = self.entries.values().filter(is_pending).count();
        }
        self.sweep_at = MIN_SWEPT.max(2 * self.entries.len());
        self.sweep_pending_at = MIN_PENDING_SWEPT.max(2 * self.pending);
    }
}

/// The cookies of all sockets that this process has; `None` where they can't be known.
fn open_sockets() -> Option<BTreeSet<u64>> {
    let folder = std::fs::read_dir("/proc/self/fd").ok()?;
    let numbers =
        folder.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<c_int>().ok());
    Some(numbers.filter_map(system::cookie).collect())
}

/// Whether any descriptor of this process leads to the socket.
pub fn is_open(cookie: u64) -> bool {
    open_sockets().is_none_or(|open| open.contains(&cookie))
}

struct Shared {
    lock: UnsafeCell<libc::pthread_mutex_t>,
    table: UnsafeCell<Table>,
    /// Signals of the thread that forks, while it does.
    forking: UnsafeCell<MaybeUninit<libc::sigset_t>>,
}

// SAFETY: all of it is used by whoever holds the lock.
unsafe impl Sync for Shared {}

static SHARED: Shared = Shared {
    lock: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
    table: UnsafeCell::new(Table::new()),
    forking: UnsafeCell::new(MaybeUninit::uninit()),
};

/// Holds the lock, with all signals waiting.
struct Hold {
    signals: libc::sigset_t,
}

fn hold() -> Hold {
    let mut signals = MaybeUninit::uninit();
    let mut all = MaybeUninit::uninit();
    // SAFETY: both are places for a set of signals; the lock is a mutex that is initialised.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), signals.as_mut_ptr());
        libc::pthread_mutex_lock(SHARED.lock.get());
        Hold {
            signals: signals.assume_init(),
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // SAFETY: this thread holds the lock, and had these signals before.
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
        Hold {
            signals: (*SHARED.forking.get()).assume_init_read(),
        }
    });
}

static FORKS_SEEN: AtomicUsize = AtomicUsize::new(0);

/// Does something with the table. `errno` stays as it is.
pub fn with<R>(body: impl FnOnce(&mut Table) -> R) -> R {
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
