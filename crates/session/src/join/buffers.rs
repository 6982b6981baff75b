//! Buffer pool of joined sessions. A direction holds a buffer only while it contains bytes, so idle
//! sessions hold none.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

/// Size of a buffer, in bytes: as much as a session reads ahead and seals at once.
pub(super) const SIZE: usize = 128 * 1024;
/// Size of a buffer when the pool is exhausted, in bytes.
const SMALL: usize = 16 * 1024;
/// Maximum number of free buffers that are kept.
const MAX_SPARE_BUFFERS: usize = 32;

/// Pool of buffers with a limit on its total size.
#[derive(Debug)]
pub struct Buffers {
    total: usize,
    pool: Mutex<Pool>,
}

#[derive(Debug, Default)]
struct Pool {
    spare: Vec<Box<[u8]>>,
    /// Total bytes of full-size buffers, free ones included.
    allocated: usize,
}

/// A buffer that returns to the pool when dropped.
#[derive(Debug)]
pub(super) struct Buffer {
    pub(super) bytes: Box<[u8]>,
    of: Arc<Buffers>,
}

impl Buffers {
    /// Default total size in bytes; enough for hundreds of busy directions.
    pub const DEFAULT_TOTAL: usize = 64 << 20;

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
            Some(_) => SIZE,
            None if pool.allocated + SIZE <= self.total => {
                pool.allocated += SIZE;
                SIZE
            }
            None => SMALL,
        };
        drop(pool);
        Buffer {
            bytes: spare.unwrap_or_else(|| vec![0; size].into_boxed_slice()),
            of: Arc::clone(self),
        }
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.bytes.len() < SIZE {
            return;
        }
        let mut pool = self.of.pool();
        if pool.spare.len() < MAX_SPARE_BUFFERS {
            pool.spare.push(std::mem::take(&mut self.bytes));
        } else {
            pool.allocated = pool.allocated.saturating_sub(SIZE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returned_buffers_are_reused_within_the_bound() {
        let buffers = Buffers::new(2 * SIZE);
        let (first, second, third) = (buffers.take(), buffers.take(), buffers.take());
        assert_eq!(
            [first.bytes.len(), second.bytes.len(), third.bytes.len()],
            [SIZE, SIZE, SMALL]
        );
        drop((first, third));
        assert_eq!(buffers.take().bytes.len(), SIZE);
        drop(second);
        assert_eq!(buffers.allocated(), 2 * SIZE);
        let many = Buffers::new(1000 * SIZE);
        drop(
            (0..2 * MAX_SPARE_BUFFERS)
                .map(|_| many.take())
                .collect::<Vec<_>>(),
        );
        assert_eq!(
            many.allocated(),
            MAX_SPARE_BUFFERS * SIZE,
            "a burst is let go"
        );
    }
}
