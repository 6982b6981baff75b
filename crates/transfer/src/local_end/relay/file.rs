//! A file at another end that is read in ranges, a few of them ahead.

use std::collections::BTreeMap;
use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};

use crate::error::{Failure, FailureKind};
use crate::send::SourceFile;
use crate::tree_hash::{BlockHasher, Hash, TreeHash};
use crate::wire::{Meta, SourceIdentity};

/// Binary logarithm of the size of the ranges.
const RANGE_LOG2: u32 = 22;
/// Maximum size of a range that is requested from a [`RelayFile`], in bytes.
pub const RELAY_RANGE_BYTES: u64 = 1 << RANGE_LOG2;
/// Ranges of one file that are read ahead.
const AHEAD: u64 = 4;
/// Ranges of one file that are kept: those read ahead, and those of the blocks that streams send.
/// The oldest ones are dropped first, as a receiver may never want the rest of them.
const MAX_KEPT: usize = 24;
/// Maximum number of ranges of a copy that are read ahead, or were and are not sent yet: 128 MiB.
pub(super) const MAX_RANGES_AHEAD: usize = 32;

/// An open file at another end.
pub trait RelayFile: Send + Sync + 'static {
    /// Returns the size in bytes when it was opened.
    fn size(&self) -> u64;

    /// Returns the permissions and modification time when it was opened.
    fn meta(&self) -> Meta;

    /// Returns a value that distinguishes this state of the file from every other, if there is one.
    fn identity(&self) -> Option<SourceIdentity>;

    /// Reads a range within the file, of at most [`RELAY_RANGE_BYTES`].
    ///
    /// # Errors
    /// [`FailureKind::Changed`] if the file is not the same any more.
    fn read(&self, range: Range<u64>) -> impl Future<Output = Result<Bytes, Failure>> + Send;

    /// Checks that the file has not changed since it was opened. `hash` is the hash of all content
    /// that was sent, in this copy or an earlier one, if it is known.
    ///
    /// # Errors
    /// [`FailureKind::Changed`] if it has changed, or has another hash where it is.
    fn check(&self, hash: Option<Hash>) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// A [`RelayFile`] as a file of a source.
pub(super) struct RelayedFile<F> {
    shared: Arc<SharedFile<F>>,
    runtime: Handle,
    /// Permits of ranges that are read ahead.
    ahead: Arc<Semaphore>,
}

/// The file, for the tasks that read ahead.
pub(super) struct SharedFile<F> {
    file: F,
    ranges: Mutex<Ranges>,
    /// Hashes of the ranges that were read.
    tree: Mutex<TreeHash>,
    /// Result of a check after the last range was read.
    checked: Mutex<Option<Result<(), Failure>>>,
}

#[derive(Default)]
struct Ranges {
    /// Ranges that are read, or are not sent completely, by offset.
    open: BTreeMap<u64, KeptRange>,
    /// Offset up to which ranges were read ahead.
    ahead_until: u64,
    /// Number of uses of all ranges.
    uses: u64,
}

struct KeptRange {
    range: Arc<OpenRange>,
    /// Number of uses of all ranges at its last use.
    last_use: u64,
}

#[derive(Default)]
struct OpenRange {
    content: OnceCell<Result<Bytes, Failure>>,
    /// Number of bytes that were taken. After the last one, the content is dropped.
    taken: AtomicU64,
    _permit: Option<OwnedSemaphorePermit>,
}

impl<F: RelayFile> RelayedFile<F> {
    pub(super) fn new(shared: Arc<SharedFile<F>>, runtime: Handle, ahead: Arc<Semaphore>) -> Self {
        Self {
            shared,
            runtime,
            ahead,
        }
    }

    /// Returns the range at `start`, and begins to read those behind it.
    fn range(&self, start: u64) -> Arc<OpenRange> {
        let mut ranges = self.shared.ranges.lock();
        let range = ranges.keep(start, OpenRange::default());
        for number in 1..=AHEAD {
            let next = start.saturating_add(number << RANGE_LOG2);
            if next < ranges.ahead_until {
                continue;
            }
            if next >= self.shared.file.size() {
                break;
            }
            let Ok(permit) = self.ahead.clone().try_acquire_owned() else {
                break;
            };
            ranges.ahead_until = next + RELAY_RANGE_BYTES;
            let ahead = OpenRange {
                _permit: Some(permit),
                ..OpenRange::default()
            };
            let ahead = ranges.keep(next, ahead);
            let shared = self.shared.clone();
            self.runtime.spawn(async move {
                let _ = shared.content(next, &ahead).await;
            });
        }
        range
    }

    fn check(&self, hash: Option<Hash>) -> Result<bool, Failure> {
        is_unchanged(self.runtime.block_on(self.shared.file.check(hash)))
    }
}

fn is_unchanged(checked: Result<(), Failure>) -> Result<bool, Failure> {
    match checked {
        Ok(()) => Ok(true),
        Err(failure) if failure.kind == FailureKind::Changed => Ok(false),
        Err(failure) => Err(failure),
    }
}

impl Ranges {
    /// Returns the range at `start`, which is `new` unless there is one. Older ones are dropped, to
    /// be read again if they are asked for.
    fn keep(&mut self, start: u64, new: OpenRange) -> Arc<OpenRange> {
        self.uses += 1;
        let last_use = self.uses;
        let kept = self.open.entry(start).or_insert_with(|| KeptRange {
            range: Arc::new(new),
            last_use,
        });
        kept.last_use = last_use;
        let range = kept.range.clone();
        if self.open.len() > MAX_KEPT {
            let complete = self.open.iter();
            let complete = complete.filter(|(_, kept)| kept.range.content.initialized());
            let oldest = complete.min_by_key(|(_, kept)| kept.last_use);
            if let Some((&oldest, _)) = oldest {
                self.open.remove(&oldest);
            }
        }
        range
    }
}

impl<F: RelayFile> SharedFile<F> {
    pub(super) fn new(file: F) -> Arc<Self> {
        let tree = Mutex::new(TreeHash::new(file.size(), RANGE_LOG2));
        Arc::new(Self {
            file,
            ranges: Mutex::default(),
            tree,
            checked: Mutex::default(),
        })
    }

    /// Reads and checks a file of one range. A failure is met again by those who ask for the
    /// content.
    pub(super) async fn read_small(&self) {
        if (1..=RELAY_RANGE_BYTES).contains(&self.file.size()) {
            let range = self.ranges.lock().keep(0, OpenRange::default());
            if self.content(0, &range).await.is_ok() {
                let hash = self.tree.lock().root();
                let checked = self.file.check(hash).await;
                *self.checked.lock() = Some(checked);
            }
        }
    }

    /// Returns the content of a range, and reads it if nobody has.
    async fn content(&self, start: u64, range: &Arc<OpenRange>) -> Result<Bytes, Failure> {
        let content = range.content.get_or_init(|| self.read(start)).await;
        if content.is_err() {
            // It is read again if it is asked for again.
            self.close(start, range);
        }
        content.clone()
    }

    async fn read(&self, start: u64) -> Result<Bytes, Failure> {
        *self.checked.lock() = None;
        let size = self.file.size();
        let end = size.min(start.saturating_add(RELAY_RANGE_BYTES));
        let content = self.file.read(start..end).await?;
        let len = end.saturating_sub(start);
        if content.len() as u64 != len {
            return Err(Failure::new(FailureKind::Changed));
        }
        let mut hasher = BlockHasher::new(start, len, size);
        hasher.update(&content);
        self.tree.lock().insert(start, hasher.finish());
        Ok(content)
    }

    /// Notes that bytes of a range were taken, and drops it after the last one.
    fn took(&self, start: u64, range: &Arc<OpenRange>, bytes: u64, content: &Bytes) {
        let before = range.taken.fetch_add(bytes, Ordering::Relaxed);
        if before + bytes >= content.len() as u64 {
            self.close(start, range);
        }
    }

    fn close(&self, start: u64, range: &Arc<OpenRange>) {
        let mut ranges = self.ranges.lock();
        if ranges
            .open
            .get(&start)
            .is_some_and(|kept| Arc::ptr_eq(&kept.range, range))
        {
            ranges.open.remove(&start);
        }
    }
}

impl<F: RelayFile> SourceFile for RelayedFile<F> {
    fn size(&self) -> u64 {
        self.shared.file.size()
    }

    fn meta(&self) -> Meta {
        self.shared.file.meta()
    }

    fn identity(&self) -> Option<SourceIdentity> {
        self.shared.file.identity()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, Failure> {
        let (size, mut filled) = (self.size(), 0);
        loop {
            let at = offset.saturating_add(filled as u64);
            let rest = buffer.get_mut(filled..).unwrap_or_default();
            if rest.is_empty() || at >= size {
                return Ok(filled);
            }
            let start = at & !(RELAY_RANGE_BYTES - 1);
            let range = self.range(start);
            let content = self.runtime.block_on(self.shared.content(start, &range))?;
            let from = content.get((at - start) as usize..).unwrap_or_default();
            let len = from.len().min(rest.len());
            if let (Some(to), Some(from)) = (rest.get_mut(..len), from.get(..len)) {
                to.copy_from_slice(from);
            }
            if len == 0 {
                return Err(Failure::new(FailureKind::Changed));
            }
            self.shared.took(start, &range, len as u64, &content);
            filled += len;
        }
    }

    fn is_unchanged(&self) -> Result<bool, Failure> {
        let checked = self.shared.checked.lock().take();
        let hash = self.shared.tree.lock().root();
        checked.map_or_else(|| self.check(hash), is_unchanged)
    }

    fn is_unchanged_with(&self, hash: Hash) -> Result<bool, Failure> {
        self.check(Some(hash))
    }
}

#[cfg(test)]
mod tests;
