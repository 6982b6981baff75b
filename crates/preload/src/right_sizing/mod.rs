//! Mode *right-sizing*: the program's connections are noted, and the helper samples and right-sizes
//! them.

mod account;
mod ahead;
mod lines;
mod watcher;

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use drs::{HostLimits, Mode};

pub use account::ConnectionAccount;

use crate::descriptor::borrow;
use crate::helper::Helper;
use crate::log::{Log, now};
use crate::table::DescriptorTable;

/// State of this mode.
pub struct RightSizing {
    /// Mode of the flows.
    pub mode: Mode,
    /// Connections of the process.
    pub table: DescriptorTable<ConnectionAccount>,
    host: CachedHostLimits,
    numbers: AtomicU64,
}

impl RightSizing {
    /// Returns a state without connections.
    pub fn new(mode: Mode) -> Self {
        Self {
            mode,
            table: DescriptorTable::new(),
            host: CachedHostLimits::new(),
            numbers: AtomicU64::new(1),
        }
    }

    /// Returns the limits of this host.
    pub fn host(&self) -> HostLimits {
        self.host.get()
    }

    /// Adapts the state in the child of a fork.
    pub fn after_fork(&self) {
        self.table.after_fork();
    }

    /// Watches the connections, in the helper, until none is left.
    pub fn watch(&'static self, helper: &'static Helper, log: &'static Log) {
        watcher::Watcher::new(self, helper, log).run();
    }

    /// Prepares a descriptor before a connection is opened, or the socket listens.
    pub fn before_connection(&self, descriptor: RawFd, log: &Log) {
        if self.mode == Mode::Observe {
            return;
        }
        if let Some(socket) = borrow(descriptor)
            && let Some(done) = ahead::unlock_receive_buffer(socket, || self.host())
        {
            log.unlocked(&done);
        }
    }

    /// Notes a descriptor that may be a new connection. Returns true if it is one.
    pub fn opened(&self, descriptor: RawFd, log: &Log) -> bool {
        let Some(inode) = borrow(descriptor).and_then(account::tcp_inode) else {
            return false;
        };
        if let Some(key) = self.table.find(descriptor) {
            if self
                .table
                .hold(key)
                .is_some_and(|mut held| held.value().inode == inode)
            {
                return false;
            }
            // Its end was missed, and the socket is gone.
            self.table
                .close(descriptor, |_, account| log.end(account, None));
        }
        let account = ConnectionAccount {
            inode,
            number: self.numbers.fetch_add(1, Ordering::Relaxed),
            since_us: u64::try_from(now().as_micros()).unwrap_or(u64::MAX),
            ..ConnectionAccount::default()
        };
        self.table.open(descriptor, account).is_some()
    }

    /// Notes that a descriptor is about to be closed.
    pub fn closing(&self, descriptor: RawFd, log: &Log) {
        if self.table.find(descriptor).is_some() {
            self.table.close(descriptor, |descriptor, account| {
                log_end(log, descriptor, account)
            });
        }
    }

    /// Notes that `new` has become a copy of `old`.
    pub fn duplicated(&self, old: RawFd, new: RawFd) {
        let Some(key) = self.table.find(old) else {
            return;
        };
        // Another thread may have closed it meanwhile, and its number may now be another socket's.
        let inode = borrow(new).and_then(account::tcp_inode);
        if self
            .table
            .hold(key)
            .is_some_and(|mut held| Some(held.value().inode) == inode)
        {
            self.table.alias(old, new);
        }
    }

    /// Notes that the process is about to end.
    pub fn ending(&self, log: &Log) {
        for slot in 0..self.table.used() {
            let Some(mut held) = self.table.key_at(slot).and_then(|key| self.table.hold(key))
            else {
                continue;
            };
            let descriptor = held.descriptor().unwrap_or(-1);
            log_end(log, descriptor, held.value());
            held.free();
        }
    }
}

/// Logs the last line of a connection.
fn log_end(log: &Log, descriptor: RawFd, account: &mut ConnectionAccount) {
    let socket =
        borrow(descriptor).filter(|socket| account::tcp_inode(*socket) == Some(account.inode));
    log.end(account, socket);
}

/// Limits of the host, read when first needed, because most processes open no connection. No thread
/// waits for another one that reads them. The first reader stores its result for all; a thread that
/// comes meanwhile reads them for itself.
struct CachedHostLimits {
    state: AtomicU32,
    limits: UnsafeCell<MaybeUninit<HostLimits>>,
}

/// State before the limits were stored.
const UNREAD: u32 = 0;
/// State while a thread stores the limits. In the child of a fork that thread may be missing; the
/// child then reads them each time.
const STORING: u32 = 1;
/// State with stored limits.
const STORED: u32 = 2;

// SAFETY: written once, by the thread that moved `state` to WRITTEN, and read only once it is READ.
unsafe impl Sync for CachedHostLimits {}

impl CachedHostLimits {
    const fn new() -> Self {
        Self {
            state: AtomicU32::new(UNREAD),
            limits: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    fn get(&self) -> HostLimits {
        if self.state.load(Ordering::Acquire) == STORED {
            // SAFETY: written before `state` was set to READ, and never again.
            return unsafe { (*self.limits.get()).assume_init() };
        }
        let host = HostLimits::read();
        let first =
            self.state
                .compare_exchange(UNREAD, STORING, Ordering::Acquire, Ordering::Relaxed);
        if first.is_ok() {
            // SAFETY: this thread moved `state` from UNREAD, which happens once; nobody reads
            // before it is READ.
            unsafe { (*self.limits.get()).write(host) };
            self.state.store(STORED, Ordering::Release);
        }
        host
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_limits_are_had_while_another_writes_them_down() {
        let limits = CachedHostLimits::new();
        limits.state.store(STORING, Ordering::SeqCst);
        assert_eq!(limits.get(), HostLimits::read());
        limits.state.store(UNREAD, Ordering::SeqCst);
        assert_eq!(limits.get(), HostLimits::read());
        assert_eq!(limits.state.load(Ordering::SeqCst), STORED);
        assert_eq!(limits.get(), HostLimits::read());
    }
}
