//! Mode *right-sizing*: which connections the program has is noted, and the helper looks at them
//! and does what helps them.

mod account;
mod ahead;
mod lines;
mod watcher;

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use drs::{Host, Mode};

pub use account::Account;

use crate::log::{Log, now};
use crate::process::{Process, borrow};
use crate::table::Table;

/// All that this mode keeps.
pub struct RightSizing {
    /// What may be done.
    pub mode: Mode,
    /// The process's connections.
    pub table: Table<Account>,
    host: HostLimits,
    numbers: AtomicU64,
}

impl RightSizing {
    /// Nothing is known yet.
    pub fn new(mode: Mode) -> Self {
        Self {
            mode,
            table: Table::new(),
            host: HostLimits::new(),
            numbers: AtomicU64::new(1),
        }
    }

    /// What this host allows.
    pub fn host(&self) -> Host {
        self.host.get()
    }

    /// In the child of a fork.
    pub fn after_fork(&self) {
        self.table.after_fork();
    }

    /// Looks at the connections, in the helper, until none is left.
    pub fn watch(&'static self, process: &'static Process) {
        watcher::Watcher::new(self, process).run();
    }

    /// Before a connection is opened, or a socket listens.
    pub fn before_connection(&self, descriptor: RawFd, log: &Log) {
        if self.mode == Mode::Observe {
            return;
        }
        if let Some(socket) = borrow(descriptor)
            && let Some(done) = ahead::free_the_window(socket, || self.host())
        {
            log.ahead(&done);
        }
    }

    /// A descriptor that may be a new connection. Whether it is.
    pub fn opened(&self, descriptor: RawFd, log: &Log) -> bool {
        let Some(inode) = borrow(descriptor).and_then(account::tcp_inode) else {
            return false;
        };
        if let Some(key) = self.table.find(descriptor) {
            if self
                .table
                .hold(key)
                .is_some_and(|mut held| held.kept().inode == inode)
            {
                return false;
            }
            // Its end was not seen, and the socket is gone.
            self.table
                .close(descriptor, |_, account| log.end(account, None));
        }
        let account = Account {
            inode,
            number: self.numbers.fetch_add(1, Ordering::Relaxed),
            since_us: u64::try_from(now().as_micros()).unwrap_or(u64::MAX),
            ..Account::default()
        };
        self.table.open(descriptor, account).is_some()
    }

    /// A descriptor is about to be closed.
    pub fn closing(&self, descriptor: RawFd, log: &Log) {
        if self.table.find(descriptor).is_some() {
            self.table.close(descriptor, |descriptor, account| {
                end(log, descriptor, account)
            });
        }
    }

    /// `new` has become a copy of `old`.
    pub fn duplicated(&self, old: RawFd, new: RawFd) {
        let Some(key) = self.table.find(old) else {
            return;
        };
        // Another thread may have closed it meanwhile, and its number may be another socket's.
        let inode = borrow(new).and_then(account::tcp_inode);
        if self
            .table
            .hold(key)
            .is_some_and(|mut held| Some(held.kept().inode) == inode)
        {
            self.table.alias(old, new);
        }
    }

    /// The process is about to end.
    pub fn ending(&self, log: &Log) {
        for slot in 0..self.table.used() {
            let Some(mut held) = self.table.at(slot).and_then(|key| self.table.hold(key)) else {
                continue;
            };
            let descriptor = held.descriptor().unwrap_or(-1);
            end(log, descriptor, held.kept());
            held.free();
        }
    }
}

/// The last line of a connection.
fn end(log: &Log, descriptor: RawFd, account: &mut Account) {
    let socket =
        borrow(descriptor).filter(|socket| account::tcp_inode(*socket) == Some(account.inode));
    log.end(account, socket);
}

/// The host's limits, read when they are first needed, since most processes open no connection.
/// Nobody waits for another who reads them: who finds them neither read nor being read keeps what
/// it read for all, who finds another at it has read them for itself.
struct HostLimits {
    state: AtomicU32,
    limits: UnsafeCell<MaybeUninit<Host>>,
}

/// Nobody has read them.
const UNREAD: u32 = 0;
/// Somebody writes down what it read. In the child of a fork that may be nobody for ever, who then
/// reads anew each time.
const WRITTEN: u32 = 1;
/// They can be had.
const READ: u32 = 2;

// SAFETY: written once, by who moved `state` to WRITTEN, and read only once it is READ.
unsafe impl Sync for HostLimits {}

impl HostLimits {
    const fn new() -> Self {
        Self {
            state: AtomicU32::new(UNREAD),
            limits: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    fn get(&self) -> Host {
        if self.state.load(Ordering::Acquire) == READ {
            // SAFETY: written before `state` was set to READ, and never again.
            return unsafe { (*self.limits.get()).assume_init() };
        }
        let host = Host::read();
        let first =
            self.state
                .compare_exchange(UNREAD, WRITTEN, Ordering::Acquire, Ordering::Relaxed);
        if first.is_ok() {
            // SAFETY: this thread moved `state` from UNREAD, which happens once; nobody reads
            // before it is READ.
            unsafe { (*self.limits.get()).write(host) };
            self.state.store(READ, Ordering::Release);
        }
        host
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_limits_are_had_while_another_writes_them_down() {
        let limits = HostLimits::new();
        limits.state.store(WRITTEN, Ordering::SeqCst);
        assert_eq!(limits.get(), Host::read());
        limits.state.store(UNREAD, Ordering::SeqCst);
        assert_eq!(limits.get(), Host::read());
        assert_eq!(limits.state.load(Ordering::SeqCst), READ);
        assert_eq!(limits.get(), Host::read());
    }
}
