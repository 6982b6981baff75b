//! Plaintext ranges of a session: bytes that travel unprotected between TLS records.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Marks the next bytes of a session as plaintext (LH-CLEAR-1). Both ends must mark the same bytes,
/// based on information that is itself protected.
///
/// Each direction has one user, which marks bytes and then reads or writes them.
#[derive(Debug, Default)]
pub struct Clear {
    sending: AtomicUsize,
    receiving: AtomicUsize,
    may_receive: AtomicBool,
}

impl Clear {
    /// Marks the next `len` bytes written as plaintext.
    pub fn send(&self, len: usize) {
        self.sending.fetch_add(len, Ordering::Relaxed);
    }

    /// Announces that plaintext may arrive from now on. Each record is then returned to the reader
    /// before the next is read, as it may announce plaintext.
    pub fn may_receive(&self) {
        self.may_receive.store(true, Ordering::Relaxed);
    }

    /// Marks the next `len` bytes read as plaintext. Requires an earlier [`Self::may_receive`].
    pub fn receive(&self, len: usize) {
        self.receiving.fetch_add(len, Ordering::Relaxed);
    }

    pub(crate) fn is_expected(&self) -> bool {
        self.may_receive.load(Ordering::Relaxed)
    }

    pub(crate) fn sending(&self) -> usize {
        self.sending.load(Ordering::Relaxed)
    }

    pub(crate) fn receiving(&self) -> usize {
        self.receiving.load(Ordering::Relaxed)
    }

    pub(crate) fn sent(&self, len: usize) {
        self.sending.fetch_sub(len, Ordering::Relaxed);
    }

    pub(crate) fn received(&self, len: usize) {
        self.receiving.fetch_sub(len, Ordering::Relaxed);
    }
}
