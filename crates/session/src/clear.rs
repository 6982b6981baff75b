//! Plaintext ranges of a session: bytes that travel unprotected between TLS records.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Marks the next bytes of a session as plaintext (LH-CLEAR-1). Both ends must mark the same bytes,
/// based on information that is itself protected.
///
/// Each direction has one user, which marks bytes and then reads or writes them.
#[derive(Debug, Default)]
pub struct PlaintextRanges {
    sending: AtomicUsize,
    receiving: AtomicUsize,
    may_receive: AtomicBool,
}

impl PlaintextRanges {
    /// Marks the next `len` bytes written as plaintext.
    pub fn mark_written(&self, len: usize) {
        self.sending.fetch_add(len, Ordering::Relaxed);
    }

    /// Announces that plaintext may arrive from now on. Each record is then returned to the reader
    /// before the next is read, as it may announce plaintext.
    pub fn expect_plaintext(&self) {
        self.may_receive.store(true, Ordering::Relaxed);
    }

    /// Marks the next `len` bytes read as plaintext. Requires an earlier
    /// [`Self::expect_plaintext`].
    pub fn mark_read(&self, len: usize) {
        self.receiving.fetch_add(len, Ordering::Relaxed);
    }

    pub(crate) fn is_expected(&self) -> bool {
        self.may_receive.load(Ordering::Relaxed)
    }

    pub(crate) fn unwritten_bytes(&self) -> usize {
        self.sending.load(Ordering::Relaxed)
    }

    pub(crate) fn unread_bytes(&self) -> usize {
        self.receiving.load(Ordering::Relaxed)
    }

    pub(crate) fn consume_written(&self, len: usize) {
        self.sending.fetch_sub(len, Ordering::Relaxed);
    }

    pub(crate) fn consume_read(&self, len: usize) {
        self.receiving.fetch_sub(len, Ordering::Relaxed);
    }
}
