//! Bound of the memory for content that was read and is not written yet.

use tokio::sync::{Semaphore, SemaphorePermit};

/// Bytes of a permit.
const PERMIT_BYTES: u64 = 1024;

/// Memory of one copy.
#[derive(Debug)]
pub struct ContentMemory {
    permits: Semaphore,
    max_bytes: u64,
}

impl ContentMemory {
    /// Creates a bound of this many bytes, at most 1 TiB.
    pub fn new(max_bytes: u64) -> Self {
        Self {
            permits: Semaphore::new((max_bytes / PERMIT_BYTES) as usize),
            max_bytes,
        }
    }

    /// Waits for memory for `bytes`, or for all of it if that is less.
    pub async fn take(&self, bytes: u64) -> Option<SemaphorePermit<'_>> {
        let permits = bytes.min(self.max_bytes).div_ceil(PERMIT_BYTES);
        // The semaphore is never closed.
        self.permits.acquire_many(permits as u32).await.ok()
    }
}
