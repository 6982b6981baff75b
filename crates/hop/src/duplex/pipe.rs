//! Pool of the pipes through which splice(2) moves bytes. A direction holds a pipe only while it
//! contains bytes. So an idle session holds none, and a busy relay creates few.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use longhaul_platform::net::{SplicePipe, splice_pipe};
use parking_lot::Mutex;

/// Capacity of a pipe that cannot be enlarged, in bytes: 16 pages.
const DEFAULT_PIPE_BYTES: usize = 64 * 1024;

/// Bounds of a [`PipePool`].
#[derive(Debug, Clone, Copy)]
pub struct PipeBounds {
    /// Requested size of a pipe, in bytes.
    pub size: usize,
    /// Maximum total size of all pipes, in bytes. Beyond it, directions copy through small buffers
    /// instead.
    pub total: usize,
    /// Maximum number of empty pipes kept for reuse.
    pub spare: usize,
}

/// All pipes of a process, with a limit on their total size.
#[derive(Debug)]
pub struct PipePool {
    bounds: PipeBounds,
    /// Total size of existing pipes, in use or free, in bytes.
    allocated: AtomicUsize,
    spare: Mutex<Vec<SplicePipe>>,
}

/// A pipe from the pool. It returns to the pool when dropped, unless bytes are left in it.
#[derive(Debug)]
pub(super) struct Pipe {
    raw: Option<SplicePipe>,
    pool: Arc<PipePool>,
    /// Bytes currently in the pipe, maintained by the code that splices.
    pub(super) held: usize,
}

impl PipePool {
    /// Creates an empty pool.
    #[must_use]
    pub fn new(bounds: PipeBounds) -> Arc<Self> {
        Arc::new(Self {
            bounds,
            allocated: AtomicUsize::new(0),
            spare: Mutex::new(Vec::new()),
        })
    }

    /// Returns an empty pipe, or `None` if the bound or the system's limits allow no more. Callers
    /// then copy.
    pub(super) fn take(self: &Arc<Self>) -> Option<Pipe> {
        let spare = self.spare.lock().pop();
        let raw = match spare {
            Some(raw) => raw,
            None => self.create()?,
        };
        Some(Pipe {
            raw: Some(raw),
            pool: Arc::clone(self),
            held: 0,
        })
    }

    /// Returns the total size of existing pipes, in bytes.
    #[must_use]
    pub fn allocated(&self) -> usize {
        self.allocated.load(Ordering::Relaxed)
    }

    fn create(&self) -> Option<SplicePipe> {
        // Reserved before the pipe is created, so that two threads cannot exceed the bound
        // together.
        let claim = self.bounds.size.max(DEFAULT_PIPE_BYTES);
        self.reserve(claim)?;
        let made = splice_pipe(self.bounds.size);
        match made {
            Ok(raw) => {
                self.allocated
                    .fetch_sub(claim.saturating_sub(raw.capacity), Ordering::Relaxed);
                Some(raw)
            }
            Err(error) => {
                self.allocated.fetch_sub(claim, Ordering::Relaxed);
                tracing::debug!(%error, "no pipe to splice through; copying instead");
                None
            }
        }
    }

    fn reserve(&self, bytes: usize) -> Option<()> {
        self.allocated
            .try_update(Ordering::Relaxed, Ordering::Relaxed, |now| {
                now.checked_add(bytes)
                    .filter(|sum| *sum <= self.bounds.total)
            })
            .ok()
            .map(|_| ())
    }

    fn release(&self, raw: SplicePipe) {
        let mut spare = self.spare.lock();
        if spare.len() < self.bounds.spare {
            spare.push(raw);
        } else {
            drop(spare);
            self.discard(raw);
        }
    }

    fn discard(&self, raw: SplicePipe) {
        self.allocated.fetch_sub(raw.capacity, Ordering::Relaxed);
    }
}

impl Pipe {
    /// Returns its capacity in bytes if every page is full; small packets fill it sooner.
    pub(super) fn capacity(&self) -> usize {
        self.raw.as_ref().map_or(0, |raw| raw.capacity)
    }

    /// Returns the two ends, the reading end first. It is never `None` while the pipe lives.
    pub(super) fn ends(&self) -> Option<(&OwnedFd, &OwnedFd)> {
        self.raw.as_ref().map(|raw| (&raw.read, &raw.write))
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        if let Some(raw) = self.raw.take() {
            // A pipe that still holds one session's bytes must never carry another's.
            if self.held == 0 {
                self.pool.release(raw)
            } else {
                self.pool.discard(raw)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(total: usize, spare: usize) -> Arc<PipePool> {
        PipePool::new(PipeBounds {
            size: DEFAULT_PIPE_BYTES,
            total,
            spare,
        })
    }

    #[test]
    fn the_bound_holds_and_returned_pipes_are_used_again() {
        let pool = pool(2 * DEFAULT_PIPE_BYTES, 8);
        let first = pool.take().expect("first");
        let second = pool.take().expect("second");
        assert!(pool.take().is_none(), "a third pipe would pass the bound");
        assert_eq!(pool.allocated(), 2 * DEFAULT_PIPE_BYTES);
        drop(first);
        assert!(pool.take().is_some());
        drop(second);
        assert_eq!(
            pool.allocated(),
            2 * DEFAULT_PIPE_BYTES,
            "spare pipes count"
        );
    }

    #[test]
    fn a_pipe_with_bytes_left_in_it_is_closed() {
        let pool = pool(4 * DEFAULT_PIPE_BYTES, 8);
        let mut pipe = pool.take().expect("pipe");
        pipe.held = 1;
        drop(pipe);
        assert_eq!(pool.allocated(), 0);
    }

    #[test]
    fn spares_are_bounded() {
        let pool = pool(4 * DEFAULT_PIPE_BYTES, 1);
        let pipes = [pool.take(), pool.take(), pool.take()];
        drop(pipes);
        assert_eq!(pool.allocated(), DEFAULT_PIPE_BYTES);
    }
}
