//! Memory of resumable sessions: bounded for each session, for each payer and in total.

use std::sync::Arc;

use longhaul_hop::Payer;
use longhaul_proto::Shares;
use longhaul_resume::{INITIAL_WINDOW_BYTES, MemoryAllowance};
use parking_lot::Mutex;

/// Memory that a session has from its beginning: a window for each direction.
const INITIAL_BYTES: u64 = 2 * INITIAL_WINDOW_BYTES;

/// Memory for bytes that may have to be sent again, and for bytes that have not been read.
///
/// Windows are charged when they are promised. One payer may have half of the memory, two a third
/// each, and so on.
#[derive(Debug)]
pub struct ResumeMemory {
    shares: Mutex<Shares<Payer>>,
    max_window: u64,
}

impl ResumeMemory {
    /// Default for all sessions of a program, in bytes.
    pub const DEFAULT_TOTAL_BYTES: u64 = 1 << 30;
    /// Default for one direction of a session, in bytes: enough for 2.7 Gbit/s at 100 ms.
    pub const DEFAULT_WINDOW_BYTES: u64 = 32 << 20;

    /// Creates `total` bytes, of which each direction of a session may have `max_window`.
    #[must_use]
    pub fn new(total: u64, max_window: u64) -> Arc<Self> {
        Arc::new(Self {
            shares: Mutex::new(Shares::new(total, 1)),
            max_window: max_window.max(INITIAL_WINDOW_BYTES),
        })
    }

    /// Takes the initial memory of a session. Returns `None` if `payer` or all of them have used up
    /// theirs.
    pub(crate) fn reserve(self: &Arc<Self>, payer: Payer) -> Option<SessionMemory> {
        self.shares.lock().take(&payer, INITIAL_BYTES).ok()?;
        Some(SessionMemory {
            memory: Arc::clone(self),
            payer,
            taken: INITIAL_BYTES,
        })
    }

    /// Returns the maximum window of one direction of a session, in bytes.
    pub(crate) const fn max_window(&self) -> u64 {
        self.max_window
    }

    /// Returns the bytes that sessions have taken.
    #[must_use]
    pub fn bytes_in_use(&self) -> u64 {
        self.shares.lock().units_in_use()
    }
}

/// Memory of one session; returned when dropped.
#[derive(Debug)]
pub(crate) struct SessionMemory {
    memory: Arc<ResumeMemory>,
    payer: Payer,
    taken: u64,
}

impl SessionMemory {
    pub(crate) fn max_window(&self) -> u64 {
        self.memory.max_window()
    }

    pub(crate) const fn payer(&self) -> Payer {
        self.payer
    }
}

impl MemoryAllowance for SessionMemory {
    fn try_take(&mut self, bytes: u64) -> bool {
        let is_taken = self.memory.shares.lock().take(&self.payer, bytes).is_ok();
        if is_taken {
            self.taken = self.taken.saturating_add(bytes);
        }
        is_taken
    }

    fn release(&mut self, bytes: u64) {
        let bytes = bytes.min(self.taken);
        self.taken = self.taken.saturating_sub(bytes);
        self.memory.shares.lock().release(&self.payer, bytes);
    }
}

impl Drop for SessionMemory {
    fn drop(&mut self) {
        self.release(self.taken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payer(number: u8) -> Payer {
        Payer::from_address([192, 0, 2, number].into())
    }

    #[test]
    fn memory_is_shared_and_returned() {
        let memory = ResumeMemory::new(16 * INITIAL_BYTES, 1 << 20);
        let mut first: Vec<_> = std::iter::from_fn(|| memory.reserve(payer(1))).collect();
        assert_eq!(first.len(), 8);
        let mut other = memory.reserve(payer(2)).unwrap();
        assert!(!first[0].try_take(INITIAL_BYTES), "a full share");
        assert!(other.try_take(INITIAL_BYTES));
        other.release(INITIAL_BYTES);
        // More than was taken is not returned.
        other.release(100 * INITIAL_BYTES);
        assert_eq!(memory.bytes_in_use(), 8 * INITIAL_BYTES);
        drop((first, other));
        assert_eq!(memory.bytes_in_use(), 0);
    }
}
