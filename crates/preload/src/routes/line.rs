//! The line: one connection to the on-ramp that the process keeps for its questions, so that a
//! question is one write and one read.
//!
//! One thread at a time uses it. A thread that finds it in use, even by the thread that its signal
//! handler has interrupted, asks over a connection of its own and does not wait. The line is never
//! shared: a child of a fork closes its copy and opens its own, and so does an executed program. A
//! connection that takes a route takes over the line as its control connection; the next question
//! opens another line.

use std::cell::UnsafeCell;
use std::os::fd::{BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use super::remembered::AnswerCache;
use crate::claim::ThreadClaim;
use crate::descriptor::{borrow, drop_kept};

/// State of a line that no thread uses.
const FREE: u64 = 0;

/// The connection, if there is one.
pub struct RampLine {
    state: ThreadClaim,
    descriptor: AtomicI32,
    /// Identity of the socket: a program may close descriptors that it does not know, and get their
    /// numbers for its own.
    device: AtomicU64,
    inode: AtomicU64,
    /// Answers that came over this connection; they are valid as long as it is.
    remembered: UnsafeCell<AnswerCache>,
}

// SAFETY: only the holder of `state` touches `remembered`.
unsafe impl Sync for RampLine {}

/// The line, held by this thread. Dropping it releases the line.
pub struct LineGuard<'a>(&'a RampLine);

impl RampLine {
    /// Returns a line without connection.
    pub fn new() -> Self {
        Self {
            state: ThreadClaim::new(FREE),
            descriptor: AtomicI32::new(-1),
            device: AtomicU64::new(0),
            inode: AtomicU64::new(0),
            remembered: UnsafeCell::new(AnswerCache::new()),
        }
    }

    /// Returns its descriptor, or -1.
    pub fn descriptor(&self) -> RawFd {
        self.descriptor.load(Ordering::Acquire)
    }

    /// Returns true if the descriptor is still the line.
    pub fn is_valid(&self) -> bool {
        self.socket().is_some()
    }

    /// Takes hold of the line, unless it is in use.
    pub fn hold(&self) -> Option<LineGuard<'_>> {
        self.state.take(FREE).then(|| LineGuard(self))
    }

    /// Moves the line to another descriptor if the program wants this number.
    pub fn vacate(&self, wanted: RawFd) {
        if wanted < 0 || self.descriptor() != wanted {
            return;
        }
        let moved = self
            .socket()
            .and_then(|socket| rustix::io::fcntl_dupfd_cloexec(socket, wanted + 1).ok());
        let moved = moved.map_or(-1, IntoRawFd::into_raw_fd);
        self.descriptor.store(moved, Ordering::Release);
        // A thread that began to ask before may be about to use the old number.
        if self.state.take_with_timeout(FREE) {
            self.state.release(FREE);
        }
    }

    /// Closes the inherited line of the parent in the child of a fork.
    pub fn after_fork(&self) {
        let stands = self.is_valid();
        let inherited = self.descriptor.swap(-1, Ordering::AcqRel);
        if stands {
            // SAFETY: it was the line's, and is removed from there.
            unsafe { drop_kept(inherited) };
        }
        if self.state.is_orphan() {
            self.state.release(FREE);
        }
        // If this thread itself holds the line, it finds no connection, and clears its answers.
        if let Some(mut held) = self.hold() {
            let remembered = held.remembered();
            remembered.forget();
            remembered.unreported = 0;
        }
    }

    fn socket(&self) -> Option<BorrowedFd<'_>> {
        let socket = borrow(self.descriptor())?;
        let stat = rustix::fs::fstat(socket).ok()?;
        let same = stat.st_dev == self.device.load(Ordering::Relaxed)
            && stat.st_ino == self.inode.load(Ordering::Relaxed);
        same.then_some(socket)
    }
}

impl LineGuard<'_> {
    /// Returns the connection, if there is one. Call it before each use, because the connection may
    /// have moved to another descriptor.
    pub fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.0.socket()
    }

    /// Returns the on-ramp's answers over this line. Without a connection none of them is valid.
    pub fn remembered(&mut self) -> &mut AnswerCache {
        // SAFETY: this thread holds the line, through this value alone.
        unsafe { &mut *self.0.remembered.get() }
    }

    /// Keeps a new connection; there must not be one already.
    pub fn keep(&mut self, socket: OwnedFd) {
        self.remembered().forget();
        if let Ok(stat) = rustix::fs::fstat(&socket) {
            self.0.device.store(stat.st_dev, Ordering::Relaxed);
            self.0.inode.store(stat.st_ino, Ordering::Relaxed);
            self.0
                .descriptor
                .store(socket.into_raw_fd(), Ordering::Release);
        }
    }

    /// Takes the connection out of the line.
    pub fn take(&mut self) -> Option<OwnedFd> {
        self.remembered().forget();
        let stands = self.0.is_valid();
        let descriptor = self.0.descriptor.swap(-1, Ordering::AcqRel);
        // SAFETY: the line's own socket, which it no longer refers to.
        (stands && descriptor >= 0).then(|| unsafe { OwnedFd::from_raw_fd(descriptor) })
    }
}

impl Drop for LineGuard<'_> {
    fn drop(&mut self) {
        self.0.state.release(FREE);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    fn socket() -> OwnedFd {
        std::os::unix::net::UnixStream::pair().unwrap().0.into()
    }

    #[test]
    fn one_asks_at_a_time_and_nobody_waits() {
        let line = RampLine::new();
        let mut held = line.hold().unwrap();
        for _ in 0..2 {
            assert!(
                line.hold().is_none(),
                "a handler that interrupted it asks elsewhere"
            );
        }
        assert!(held.socket().is_none() && held.take().is_none());
        held.keep(socket());
        drop(held);
        assert!(line.is_valid() && line.hold().unwrap().take().is_some());
        assert!(!line.is_valid() && line.descriptor() == -1);
    }

    #[test]
    fn a_number_that_stands_for_something_else_is_left_alone() {
        let line = RampLine::new();
        let (kept, other) = (socket(), socket());
        let number = kept.as_raw_fd();
        let mut held = line.hold().unwrap();
        held.keep(kept);
        // SAFETY: the test's own descriptor.
        let mut replaced = unsafe { OwnedFd::from_raw_fd(number) };
        rustix::io::dup2(&other, &mut replaced).unwrap();
        assert!(!line.is_valid() && held.take().is_none());
    }

    #[test]
    fn line_moves_when_its_number_is_wanted() {
        let line = RampLine::new();
        let mut held = line.hold().unwrap();
        held.keep(socket());
        drop(held);
        let before = line.descriptor();
        line.vacate(before + 1);
        assert_eq!(line.descriptor(), before);
        line.vacate(before);
        assert!(line.is_valid() && line.descriptor() > before);
        // SAFETY: the descriptor that the line gave up.
        drop(unsafe { OwnedFd::from_raw_fd(before) });
        drop(line.hold().unwrap().take());
    }

    #[test]
    fn child_has_no_connection_on_the_line() {
        let line = RampLine::new();
        let mut held = line.hold().unwrap();
        held.keep(socket());
        line.after_fork();
        assert!(held.socket().is_none() && line.hold().is_none());
        drop(held);
        std::thread::scope(|scope| {
            scope.spawn(|| std::mem::forget(line.hold()));
        });
        line.after_fork();
        assert!(
            line.hold().is_some(),
            "what another thread held is nobody's"
        );
    }
}
