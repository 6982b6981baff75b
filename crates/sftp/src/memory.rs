//! Bound of the memory for content that was read and is not written yet.

use tokio::sync::{Semaphore, SemaphorePermit};

/// Maximum bytes of small files in memory.
const MAX_BYTES: u64 = 64 << 20;
/// Bytes of a permit.
const PERMIT_BYTES: u64 = 1024;

/// Memory of one copy.
#[derive(Debug)]
pub(crate) struct ContentMemory(Semaphore);

impl ContentMemory {
    pub(crate) fn new() -> Self {
        Self(Semaphore::new((MAX_BYTES / PERMIT_BYTES) as usize))
    }

    /// Waits for memory for `bytes`, or for all of it if that is less.
    pub(crate) async fn take(&self, bytes: u64) -> Option<SemaphorePermit<'_>> {
        let permits = bytes.min(MAX_BYTES).div_ceil(PERMIT_BYTES);
        // The semaphore is never closed.
        self.0.acquire_many(permits as u32).await.ok()
    }
}
