//! Which bytes of a session travel as they are, between the records of TLS.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Says of the next bytes of a session that they travel as they are (LH-CLEAR-1). Both ends must
/// say the same of the same bytes; what shows them that must itself be protected.
///
/// For each direction there is one who says so, and who then writes or reads.
#[derive(Debug, Default)]
pub struct Clear {
    sending: AtomicUsize,
    receiving: AtomicUsize,
    may_receive: AtomicBool,
}

impl Clear {
    /// The next `len` bytes written are not protected.
    pub fn send(&self, len: usize) {
        self.sending.fetch_add(len, Ordering::Relaxed);
    }

    /// Bytes may come in the clear from now on: no record is read before its predecessor has been
    /// taken, as it may say that what follows is none.
    pub fn may_receive(&self) {
        self.may_receive.store(true, Ordering::Relaxed);
    }

    /// The next `len` bytes read are not protected. After [`Self::may_receive`].
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
