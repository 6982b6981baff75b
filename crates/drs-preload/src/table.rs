//! Which descriptors of the process are TCP connections: shared between the program's own threads, which open and close
//! them, and the watcher, which looks at them.
//!
//! No lock is ever waited for without a bound, and nothing is allocated: the program may close a descriptor in a signal handler. A
//! slot is one connection; several descriptors may lead to it (`dup`). Whoever moves a slot from [`LIVE`] to [`HELD`] has it
//! to itself until it puts it back.

use std::cell::UnsafeCell;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use crate::account::Account;

/// Descriptors from here on are left alone.
pub const DESCRIPTORS: usize = 65_536;
/// Connections at once; those beyond are left alone.
pub const SLOTS: usize = 4096;
/// How often a slot that is held is asked for again before its connection is given up. The watcher holds one for some tens of
/// microseconds.
const MAX_HOLD_ATTEMPTS: u32 = 2000;

/// The slot has no connection. Zero, as fresh memory is.
const FREE: u32 = 0;
/// Somebody has the slot to himself.
const HELD: u32 = 1;
/// The slot has a connection.
const LIVE: u32 = 2;

/// Everything there is. One of these lives in the library; tests make their own.
pub struct Table {
    /// For each descriptor, its slot's number plus one; zero for none.
    by_descriptor: Box<[AtomicU32]>,
    slots: Box<[Slot]>,
    /// Slots from here on were never used.
    used: AtomicU32,
    live: AtomicU32,
    serial: AtomicU64,
}

/// One connection.
struct Slot {
    state: AtomicU32,
    /// How many descriptors lead here.
    references: AtomicU32,
    /// The descriptor to look through, or -1 when that one was closed and another is to be found.
    descriptor: AtomicI32,
    /// Tells this connection from an earlier one in the same slot.
    serial: AtomicU64,
    account: UnsafeCell<Account>,
}

// SAFETY: `account` is touched only by who moved `state` to HELD, and everything else is atomic.
unsafe impl Sync for Table {}

/// A slot that is held. It goes back when this is dropped.
pub struct Held<'a> {
    table: &'a Table,
    index: usize,
    slot: &'a Slot,
}

/// A socket's identity: the number of its inode, which no other socket has while this one lives.
pub type Inode = u64;

impl Table {
    /// An empty table. Its memory is taken up only where it is used, so a process without connections has next to none.
    pub fn new() -> Self {
        // SAFETY: an atomic number of zero bytes is zero.
        let by_descriptor = unsafe { Box::new_zeroed_slice(DESCRIPTORS).assume_init() };
        // SAFETY: of zero bytes, the atomics are zero, which is FREE for `state`, and the account is its default: numbers and
        // truth values only.
        let slots = unsafe { Box::new_zeroed_slice(SLOTS).assume_init() };
        Self {
            by_descriptor,
            slots,
            used: AtomicU32::new(0),
            live: AtomicU32::new(0),
            serial: AtomicU64::new(1),
        }
    }

    /// How many connections there are.
    pub fn live(&self) -> u32 {
        self.live.load(Ordering::SeqCst)
    }

    /// How many slots have to be looked through to see every connection.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Acquire) as usize
    }

    /// Whether a descriptor is known to be a connection. Costs one load.
    pub fn knows(&self, descriptor: RawFd) -> bool {
        self.index_of(descriptor).is_some()
    }

    /// The identity of the socket that a known descriptor stood for.
    pub fn inode(&self, descriptor: RawFd) -> Option<Inode> {
        self.hold(self.index_of(descriptor)?)
            .map(|mut held| held.account().inode)
    }

    /// Takes note of a new connection. `false` when there is no room, or the descriptor is known already.
    pub fn open(&self, descriptor: RawFd, account: Account) -> bool {
        let Some(entry) = self.entry(descriptor) else {
            return false;
        };
        if entry.load(Ordering::Acquire) != 0 {
            return false;
        }
        for (index, slot) in self.slots.iter().enumerate() {
            if slot
                .state
                .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
                .is_err()
            {
                continue;
            }
            // SAFETY: this thread moved the slot to HELD.
            unsafe { *slot.account.get() = account };
            slot.references.store(1, Ordering::Relaxed);
            slot.descriptor.store(descriptor, Ordering::Relaxed);
            slot.serial
                .store(self.serial.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
            let number = u32::try_from(index).unwrap_or(0) + 1;
            self.used.fetch_max(number, Ordering::AcqRel);
            self.live.fetch_add(1, Ordering::SeqCst);
            entry.store(number, Ordering::Release);
            slot.state.store(LIVE, Ordering::Release);
            return true;
        }
        false
    }

    /// A second descriptor for the same connection.
    pub fn alias(&self, old: RawFd, new: RawFd) {
        let (Some(index), Some(entry)) = (self.index_of(old), self.entry(new)) else {
            return;
        };
        let Some(held) = self.hold(index) else { return };
        if entry.swap(u32::try_from(index).unwrap_or(0) + 1, Ordering::AcqRel) == 0 {
            held.slot.references.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A descriptor is about to be closed. When it was the last of its connection, `end` gets the account.
    pub fn close(&self, descriptor: RawFd, end: impl FnOnce(RawFd, &mut Account)) {
        let Some(index) = self.index_of(descriptor) else {
            return;
        };
        let held = self.hold(index);
        if let Some(entry) = self.entry(descriptor) {
            entry.store(0, Ordering::Release);
        }
        // Not to be had for long: the watcher will see that the descriptor leads somewhere else.
        let Some(mut held) = held else { return };
        if held.slot.references.fetch_sub(1, Ordering::Relaxed) > 1 {
            if held.slot.descriptor.load(Ordering::Relaxed) == descriptor {
                held.slot.descriptor.store(-1, Ordering::Relaxed);
            }
            return;
        }
        end(descriptor, held.account());
        held.free();
    }

    /// Holds a slot, if it has a connection and can be had soon.
    pub fn hold(&self, index: usize) -> Option<Held<'_>> {
        let slot = self.slots.get(index)?;
        for _ in 0..MAX_HOLD_ATTEMPTS {
            match slot
                .state
                .compare_exchange(LIVE, HELD, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => {
                    return Some(Held {
                        table: self,
                        index,
                        slot,
                    });
                }
                Err(HELD) => rustix::thread::sched_yield(),
                Err(_) => return None,
            }
        }
        None
    }

    /// In the child of a fork, where only the forking thread goes on: nobody holds anything.
    pub fn after_fork(&self) {
        for slot in self.slots.iter().take(self.used()) {
            let _ = slot
                .state
                .compare_exchange(HELD, LIVE, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    fn entry(&self, descriptor: RawFd) -> Option<&AtomicU32> {
        self.by_descriptor.get(usize::try_from(descriptor).ok()?)
    }

    fn index_of(&self, descriptor: RawFd) -> Option<usize> {
        let number = self.entry(descriptor)?.load(Ordering::Acquire);
        usize::try_from(number.checked_sub(1)?).ok()
    }
}

impl Held<'_> {
    /// The connection's account.
    pub fn account(&mut self) -> &mut Account {
        // SAFETY: the slot is HELD by this, and `&mut self` admits one reference at a time.
        unsafe { &mut *self.slot.account.get() }
    }

    /// Tells this connection from others that had the slot before.
    pub fn serial(&self) -> u64 {
        self.slot.serial.load(Ordering::Relaxed)
    }

    /// A descriptor of the connection. When the one used so far was closed, another one is looked for.
    pub fn descriptor(&self) -> Option<RawFd> {
        let descriptor = self.slot.descriptor.load(Ordering::Relaxed);
        if descriptor >= 0 {
            return Some(descriptor);
        }
        let number = u32::try_from(self.index).ok()? + 1;
        let found = self
            .table
            .by_descriptor
            .iter()
            .position(|entry| entry.load(Ordering::Acquire) == number)?;
        let found = RawFd::try_from(found).ok()?;
        self.slot.descriptor.store(found, Ordering::Relaxed);
        Some(found)
    }

    /// The descriptor turned out to lead somewhere else: it was closed in a way that the hooks do not see. `false` when no
    /// other leads here.
    pub fn lost(&self, descriptor: RawFd) -> bool {
        if let Some(entry) = self.table.entry(descriptor)
            && entry.load(Ordering::Acquire) == u32::try_from(self.index).unwrap_or(0) + 1
        {
            entry.store(0, Ordering::Release);
        }
        self.slot.descriptor.store(-1, Ordering::Relaxed);
        self.slot.references.fetch_sub(1, Ordering::Relaxed) > 1
    }

    /// The connection is over.
    pub fn free(self) {
        self.table.live.fetch_sub(1, Ordering::AcqRel);
        self.slot.descriptor.store(-1, Ordering::Relaxed);
        self.slot.state.store(FREE, Ordering::Release);
        std::mem::forget(self);
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.slot.state.store(LIVE, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(inode: Inode) -> Account {
        Account {
            inode,
            ..Account::default()
        }
    }

    #[test]
    fn a_connection_lives_as_long_as_its_last_descriptor() {
        let table = Table::new();
        assert!(table.open(5, account(77)));
        assert!(!table.open(5, account(78)), "known already");
        table.alias(5, 9);
        let mut ended = Vec::new();
        table.close(5, |fd, account| ended.push((fd, account.inode)));
        assert!(ended.is_empty() && !table.knows(5) && table.knows(9));
        assert_eq!(table.hold(0).unwrap().descriptor(), Some(9));
        table.close(9, |fd, account| ended.push((fd, account.inode)));
        assert_eq!((ended, table.live()), (vec![(9, 77)], 0));
        assert!(table.hold(0).is_none());
    }

    #[test]
    fn what_is_unknown_is_left_alone() {
        let table = Table::new();
        for descriptor in [-1, 0, 65_535, 65_536, i32::MAX] {
            table.close(descriptor, |_, _| panic!("nothing was open"));
            assert!(!table.knows(descriptor));
            table.alias(descriptor, 4);
        }
        assert!(!table.open(-1, account(1)) && !table.open(65_536, account(1)));
        assert_eq!(table.live(), 0);
    }

    #[test]
    fn a_slot_that_stays_held_is_given_up() {
        let table = Table::new();
        table.open(3, account(1));
        let held = table.hold(0).unwrap();
        // As from a signal handler that interrupted the holder: it must come back.
        table.close(3, |_, _| panic!("it is held"));
        assert!(!table.knows(3));
        assert!(!held.lost(3));
        held.free();
        assert_eq!(table.live(), 0);
    }

    #[test]
    fn a_fork_frees_what_the_watcher_held() {
        let table = Table::new();
        table.open(3, account(1));
        std::mem::forget(table.hold(0).unwrap());
        table.after_fork();
        assert!(table.hold(0).is_some());
    }

    #[test]
    fn no_room_is_no_harm() {
        let table = Table::new();
        for descriptor in 0..i32::try_from(SLOTS).unwrap() {
            assert!(table.open(descriptor, account(1)));
        }
        assert!(!table.open(5000, account(1)) && !table.knows(5000));
        table.close(0, |_, _| ());
        assert!(table.open(5000, account(1)));
    }

    #[test]
    fn threads_that_open_and_close_keep_the_count() {
        let table = Table::new();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let table = &table;
                scope.spawn(move || {
                    for round in 0..500 {
                        let descriptor = 100 * thread + round % 100;
                        assert!(table.open(descriptor, account(1)));
                        if let Some(mut held) = table.hold(0) {
                            held.account().actions += 1;
                        }
                        table.close(descriptor, |_, _| ());
                    }
                });
            }
        });
        // Some may have been given up while another thread held them; none is counted twice or lost.
        let mut left = 0;
        for index in 0..table.used() {
            left += u32::from(table.hold(index).is_some());
        }
        assert_eq!(table.live(), left);
    }
}
