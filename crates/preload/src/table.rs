//! Table of the process's descriptors and their sockets. The program's threads, which open and
//! close descriptors, share it with the helper, which samples the sockets.
//!
//! Nothing is allocated, and no wait is unbounded: the program may close a descriptor in a signal
//! handler. A slot is one socket; several descriptors may lead to it (`dup`). They lead to it by a
//! [`Key`] with a number that no other key ever has. So a late caller, whose slot belongs to
//! another socket by now, is turned away.

use std::cell::UnsafeCell;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use crate::claim::Claim;

/// Number of descriptors that are tracked; higher ones are left alone.
pub const DESCRIPTORS: usize = 65_536;
/// Maximum number of sockets at the same time; others are left alone.
pub const SLOTS: usize = 4096;
/// Number of a key's lowest bits that are its slot's number plus one. The others are the key's own
/// number.
const SLOT_BITS: u32 = 16;

/// State of a slot without socket. Zero, as fresh memory is.
const FREE: u64 = 0;
/// State of a slot with a socket.
const LIVE: u64 = 1;

/// State of a socket that a slot may keep. A fork may copy it while it is written, so any bytes
/// must be a valid value.
///
/// # Safety
/// Zero bytes and any others are a valid value of the type, which refers to nothing.
pub unsafe trait Kept: Copy + Send + 'static {}

/// Identity of a filled slot; it is never the same twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key(u64);

impl Key {
    fn of(entry: u64) -> Option<Self> {
        (entry != 0).then_some(Self(entry))
    }

    /// Returns it as a number, which is never zero.
    pub fn number(self) -> u64 {
        self.0
    }

    /// Returns the key of [`Self::number`], or `None` for zero.
    pub fn from_number(number: u64) -> Option<Self> {
        Self::of(number)
    }

    fn slot(self) -> usize {
        let number = self.0 & ((1 << SLOT_BITS) - 1);
        usize::try_from(number.wrapping_sub(1)).unwrap_or(usize::MAX)
    }
}

/// The whole table. The library has one for each use; tests make their own.
pub struct Table<T> {
    /// Key of each descriptor; zero if there is none.
    by_descriptor: Box<[AtomicU64]>,
    slots: Box<[Slot<T>]>,
    /// Number of slots that were ever used.
    used: AtomicU32,
    live: AtomicU32,
    number: AtomicU64,
}

/// One socket.
struct Slot<T> {
    state: Claim,
    /// Key of the current socket; zero if there is none.
    key: AtomicU64,
    /// Number of descriptors that lead here.
    references: AtomicU32,
    /// Descriptor for access to the socket, or -1 if it was closed and another has to be found.
    descriptor: AtomicI32,
    kept: UnsafeCell<T>,
}

// SAFETY: only the holder of `state` touches `kept`; everything else is atomic.
unsafe impl<T: Kept> Sync for Slot<T> {}

/// A slot that is held. Dropping it releases the slot.
pub struct Held<'a, T: Kept> {
    table: &'a Table<T>,
    key: Key,
    slot: &'a Slot<T>,
}

impl<T: Kept> Table<T> {
    /// Returns an empty table. Its memory is committed only when used, so a process without
    /// connections needs hardly any.
    pub fn new() -> Self {
        // SAFETY: an atomic number of zero bytes is zero.
        let by_descriptor = unsafe { Box::new_zeroed_slice(DESCRIPTORS).assume_init() };
        // SAFETY: with zero bytes the atomics are zero, which is FREE for `state`, and the kept
        // value is valid (`Kept`).
        let slots = unsafe { Box::new_zeroed_slice(SLOTS).assume_init() };
        Self {
            by_descriptor,
            slots,
            used: AtomicU32::new(0),
            live: AtomicU32::new(0),
            number: AtomicU64::new(1),
        }
    }

    /// Returns the number of sockets.
    pub fn live(&self) -> u32 {
        self.live.load(Ordering::SeqCst)
    }

    /// Returns the number of slots to search for every socket.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Acquire) as usize
    }

    /// Returns the key of a descriptor. Costs one load.
    pub fn find(&self, descriptor: RawFd) -> Option<Key> {
        Key::of(self.entry(descriptor)?.load(Ordering::Acquire))
    }

    /// Returns the key of a slot by its number, which is below [`Self::used`].
    pub fn at(&self, slot: usize) -> Option<Key> {
        Key::of(self.slots.get(slot)?.key.load(Ordering::Acquire))
    }

    /// Adds a new socket. Returns `None` if there is no space, or the descriptor is already known.
    pub fn open(&self, descriptor: RawFd, kept: T) -> Option<Key> {
        let entry = self.entry(descriptor)?;
        if entry.load(Ordering::Acquire) != 0 {
            return None;
        }
        let (index, slot) = self
            .slots
            .iter()
            .enumerate()
            .find(|(_, slot)| slot.state.state() == FREE && slot.state.take(FREE))?;
        let number = u64::try_from(index).unwrap_or(0) + 1;
        let key = Key(self.number.fetch_add(1, Ordering::Relaxed) << SLOT_BITS | number);
        // SAFETY: this thread holds the slot.
        unsafe { *slot.kept.get() = kept };
        slot.references.store(1, Ordering::Relaxed);
        slot.descriptor.store(descriptor, Ordering::Relaxed);
        slot.key.store(key.0, Ordering::Release);
        self.used
            .fetch_max(u32::try_from(number).unwrap_or(0), Ordering::AcqRel);
        self.live.fetch_add(1, Ordering::SeqCst);
        let known = entry.compare_exchange(0, key.0, Ordering::AcqRel, Ordering::Relaxed);
        let held = Held {
            table: self,
            key,
            slot,
        };
        match known {
            Ok(_) => Some(key),
            Err(_) => {
                held.free();
                None
            }
        }
    }

    /// Adds a second descriptor of the same socket. Returns false if `new` is already known, or
    /// `old` is not.
    pub fn alias(&self, old: RawFd, new: RawFd) -> bool {
        let (Some(key), Some(entry)) = (self.find(old), self.entry(new)) else {
            return false;
        };
        let Some(held) = self.hold(key) else {
            return false;
        };
        let led = entry.compare_exchange(0, key.0, Ordering::AcqRel, Ordering::Relaxed);
        if led.is_ok() {
            held.slot.references.fetch_add(1, Ordering::Relaxed);
        }
        led.is_ok()
    }

    /// Removes a descriptor that is about to be closed. If it was the last one of its socket, `end`
    /// gets the kept state.
    pub fn close(&self, descriptor: RawFd, end: impl FnOnce(RawFd, &mut T)) {
        let (Some(key), Some(entry)) = (self.find(descriptor), self.entry(descriptor)) else {
            return;
        };
        let held = self.hold(key);
        // The first of several threads closes it.
        if entry
            .compare_exchange(key.0, 0, Ordering::AcqRel, Ordering::Relaxed)
            .is_err()
        {
            return;
        }
        // The slot stayed busy: the helper will notice that the descriptor leads elsewhere.
        let Some(mut held) = held else { return };
        if held.slot.references.fetch_sub(1, Ordering::Relaxed) > 1 {
            if held.slot.descriptor.load(Ordering::Relaxed) == descriptor {
                held.slot.descriptor.store(-1, Ordering::Relaxed);
            }
            return;
        }
        end(descriptor, held.kept());
        held.free();
    }

    /// Takes hold of a key's slot, if it still has that socket and becomes free soon.
    pub fn hold(&self, key: Key) -> Option<Held<'_, T>> {
        let slot = self.slots.get(key.slot())?;
        if slot.key.load(Ordering::Acquire) != key.0 || !slot.state.take_soon(LIVE) {
            return None;
        }
        let held = Held {
            table: self,
            key,
            slot,
        };
        // The socket may have gone meanwhile. Dropping `held` then leaves the slot as it was.
        (slot.key.load(Ordering::Acquire) == key.0).then_some(held)
    }

    /// Releases the slots of other threads in the child of a fork, where only the forking thread
    /// continues.
    pub fn after_fork(&self) {
        let mut live = 0;
        for slot in self.slots.iter().take(self.used()) {
            let stands = slot.key.load(Ordering::Acquire) != 0;
            if slot.state.is_orphan() {
                slot.state.put(if stands { LIVE } else { FREE });
            }
            live += u32::from(stands);
        }
        self.live.store(live, Ordering::SeqCst);
    }

    fn entry(&self, descriptor: RawFd) -> Option<&AtomicU64> {
        self.by_descriptor.get(usize::try_from(descriptor).ok()?)
    }
}

impl<T: Kept> Held<'_, T> {
    /// Returns the kept state of the socket.
    pub fn kept(&mut self) -> &mut T {
        // SAFETY: this value holds the slot, and `&mut self` permits one reference at a time.
        unsafe { &mut *self.slot.kept.get() }
    }

    /// Returns the key of the socket.
    pub fn key(&self) -> Key {
        self.key
    }

    /// Returns true if a descriptor still leads here, until the program begins to close it.
    pub fn is_behind(&self, descriptor: RawFd) -> bool {
        self.table.find(descriptor) == Some(self.key)
    }

    /// Returns a descriptor of the socket. If the last one used was closed, another one is
    /// searched.
    pub fn descriptor(&self) -> Option<RawFd> {
        let descriptor = self.slot.descriptor.load(Ordering::Relaxed);
        if descriptor >= 0 {
            return Some(descriptor);
        }
        let found = self
            .table
            .by_descriptor
            .iter()
            .position(|entry| entry.load(Ordering::Acquire) == self.key.0)?;
        let found = RawFd::try_from(found).ok()?;
        self.slot.descriptor.store(found, Ordering::Relaxed);
        Some(found)
    }

    /// Removes a descriptor that leads elsewhere, because it was closed in a way that the hooks do
    /// not see. Returns false if no other one leads here.
    pub fn lost(&self, descriptor: RawFd) -> bool {
        if let Some(entry) = self.table.entry(descriptor) {
            let _ = entry.compare_exchange(self.key.0, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
        self.slot.descriptor.store(-1, Ordering::Relaxed);
        self.slot.references.fetch_sub(1, Ordering::Relaxed) > 1
    }

    /// Removes the socket.
    pub fn free(self) {
        self.slot.key.store(0, Ordering::Release);
        self.slot.descriptor.store(-1, Ordering::Relaxed);
        self.table.live.fetch_sub(1, Ordering::AcqRel);
        self.slot.state.put(FREE);
        std::mem::forget(self);
    }
}

impl<T: Kept> Drop for Held<'_, T> {
    fn drop(&mut self) {
        // A slot that was freed and now has another socket is LIVE as well.
        self.slot.state.put(LIVE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // SAFETY: a number.
    unsafe impl Kept for u64 {}

    fn table() -> Table<u64> {
        Table::new()
    }

    #[test]
    fn a_connection_lives_as_long_as_its_last_descriptor() {
        let table = table();
        let key = table.open(5, 77).unwrap();
        assert!(table.open(5, 78).is_none(), "known already");
        assert!(table.alias(5, 9));
        let mut ended = Vec::new();
        table.close(5, |fd, kept| ended.push((fd, *kept)));
        assert!(ended.is_empty() && table.find(5).is_none() && table.find(9) == Some(key));
        assert_eq!(table.hold(key).unwrap().descriptor(), Some(9));
        table.close(9, |fd, kept| ended.push((fd, *kept)));
        assert_eq!((ended, table.live()), (vec![(9, 77)], 0));
        assert!(table.hold(key).is_none());
    }

    #[test]
    fn stale_key_does_not_reach_the_next_socket() {
        let table = table();
        let late = table.open(5, 77).unwrap();
        table.close(5, |_, _| ());
        let next = table.open(5, 78).unwrap();
        assert_eq!(
            late.slot(),
            next.slot(),
            "the number and the slot are used again"
        );
        assert!(table.hold(late).is_none());
        assert_eq!(*table.hold(next).unwrap().kept(), 78);
        assert!(
            !table.alias(5, 5),
            "a number that stands for something is not taken over"
        );
    }

    #[test]
    fn what_is_unknown_is_left_alone() {
        let table = table();
        for descriptor in [-1, 0, 65_535, 65_536, i32::MAX] {
            table.close(descriptor, |_, _| panic!("nothing was open"));
            assert!(table.find(descriptor).is_none());
            assert!(!table.alias(descriptor, 4));
        }
        assert!(table.open(-1, 1).is_none() && table.open(65_536, 1).is_none());
        assert_eq!(table.live(), 0);
    }

    #[test]
    fn a_slot_that_stays_held_is_given_up() {
        let table = table();
        let key = table.open(3, 1).unwrap();
        let held = table.hold(key).unwrap();
        // As from a signal handler that interrupted the holder: it must return.
        table.close(3, |_, _| panic!("it is held"));
        assert!(table.find(3).is_none() && !held.is_behind(3));
        assert!(!held.lost(3));
        held.free();
        assert_eq!(table.live(), 0);
    }

    #[test]
    fn a_fork_frees_what_other_threads_held() {
        let table = table();
        let [other, own] = [3, 4].map(|descriptor| table.open(descriptor, 1).unwrap());
        std::thread::scope(|scope| {
            // One thread holds a socket, another is about to add one.
            scope.spawn(|| std::mem::forget(table.hold(other).unwrap()));
            scope.spawn(|| assert!(table.slots[2].state.take(FREE)));
        });
        table.used.store(3, Ordering::Release);
        let held = table.hold(own).unwrap();
        table.after_fork();
        assert!(table.hold(other).is_some());
        assert_eq!(table.slots[2].state.state(), FREE);
        assert!(
            table.hold(own).is_none(),
            "the forking thread goes on with it"
        );
        drop(held);
        assert!(table.hold(own).is_some());
        assert_eq!(table.live(), 2);
    }

    #[test]
    fn full_table_refuses_another_socket() {
        let table = table();
        for descriptor in 0..i32::try_from(SLOTS).unwrap() {
            assert!(table.open(descriptor, 1).is_some());
        }
        assert!(table.open(5000, 1).is_none() && table.find(5000).is_none());
        table.close(0, |_, _| ());
        assert!(table.open(5000, 1).is_some());
    }

    #[test]
    fn threads_that_open_and_close_keep_the_count() {
        let table = table();
        std::thread::scope(|scope| {
            for thread in 0..4_i32 {
                let table = &table;
                scope.spawn(move || {
                    for round in 0..500 {
                        let descriptor = 100 * thread + round % 100;
                        let own = u64::from(descriptor.unsigned_abs());
                        let key = table.open(descriptor, own).unwrap();
                        if let Some(first) = table.at(0)
                            && let Some(mut held) = table.hold(first)
                        {
                            let _ = held.kept();
                        }
                        assert_eq!(*table.hold(key).unwrap().kept(), own);
                        table.close(descriptor, |_, kept| assert_eq!(*kept, own));
                    }
                });
            }
        });
        assert_eq!(table.live(), 0);
    }
}
