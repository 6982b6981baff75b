//! Pool of the buffers for bytes that are not spliced. A direction holds a buffer only while it
//! contains bytes, so an idle session holds none.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

/// Size of a buffer, in bytes: as much as a session reads ahead and seals at once.
const BUFFER_BYTES: usize = 128 * 1024;
/// Size of a buffer when the pool is exhausted, in bytes.
const SMALL_BUFFER_BYTES: usize = 16 * 1024;
/// Maximum number of free buffers that are kept.
const MAX_SPARE_BUFFERS: usize = 32;

/// Pool of buffers with a limit on its total size.
#[derive(Debug)]
pub struct BufferPool {
    total: usize,
    pool: Mutex<PoolState>,
}

#[derive(Debug, Default)]
struct PoolState {
    spare: Vec<Box<[u8]>>,
    /// Total bytes of full-size buffers, free ones included.
    allocated: usize,
}

/// A buffer that returns to the pool when dropped.
#[derive(Debug)]
pub(super) struct Buffer {
    pub(super) bytes: Box<[u8]>,
    of: Arc<BufferPool>,
}

impl BufferPool {
    /// Default total size in bytes; enough for hundreds of busy directions.
    pub const DEFAULT_TOTAL_BYTES: usize = 64 << 20;

    /// Creates a pool of at most `total` bytes. When it is exhausted, callers get buffers of 16 KiB
    /// instead.
    #[must_use]
    pub fn new(total: usize) -> Arc<Self> {
        Arc::new(Self {
            total,
            pool: Mutex::default(),
        })
    }

    /// Returns the total bytes of buffers, in use or free.
    #[must_use]
    pub fn allocated(&self) -> usize {
        self.pool().allocated
    }

    pub(super) fn take(self: &Arc<Self>) -> Buffer {
        let mut pool = self.pool();
        let spare = pool.spare.pop();
        let size = match &spare {
            Some(_) => BUFFER_BYTES,
            None if pool.allocated + BUFFER_BYTES <= self.total => {
                pool.allocated += BUFFER_BYTES;
                BUFFER_BYTES
            }
            None => SMALL_BUFFER_BYTES,
        };
        drop(pool);
        Buffer {
            bytes: spare.unwrap_or_else(|| vec![0; size].into_boxed_slice()),
            of: Arc::clone(self),
        }
    }

    /// Returns a small buffer, which does not count towards the limit.
    pub(super) fn take_small(self: &Arc<Self>) -> Buffer {
        Buffer {
            bytes: vec![0; SMALL_BUFFER_BYTES].into_boxed_slice(),
            of: Arc::clone(self),
        }
    }

    fn pool(&self) -> MutexGuard<'_, PoolState> {
        self.pool.lock()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.bytes.len() < BUFFER_BYTES {
            return;
        }
        let mut pool = self.of.pool();
        if pool.spare.len() < MAX_SPARE_BUFFERS {
            pool.spare.push(std::mem::take(&mut self.bytes));
        } else {
            pool.allocated = pool.allocated.saturating_sub(BUFFER_BYTES);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returned_buffers_are_reused_within_the_bound() {
        let buffers = BufferPool::new(2 * BUFFER_BYTES);
        let (first, second, third) = (buffers.take(), buffers.take(), buffers.take());
        assert_eq!(
            [first.bytes.len(), second.bytes.len(), third.bytes.len()],
            [BUFFER_BYTES, BUFFER_BYTES, SMALL_BUFFER_BYTES]
        );
        drop((first, third));
        assert_eq!(buffers.take().bytes.len(), BUFFER_BYTES);
        drop(second);
        assert_eq!(buffers.allocated(), 2 * BUFFER_BYTES);
        let many = BufferPool::new(1000 * BUFFER_BYTES);
        drop(
            (0..2 * MAX_SPARE_BUFFERS)
                .map(|_| many.take())
                .collect::<Vec<_>>(),
        );
        assert_eq!(
            many.allocated(),
            MAX_SPARE_BUFFERS * BUFFER_BYTES,
            "a burst is let go"
        );
    }
}
