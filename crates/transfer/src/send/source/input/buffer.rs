//! The part of an input that has been read and that the receiver does not have yet.
//!
//! A thread of its own reads, as a read of a pipe cannot be cancelled. It pauses when enough waits
//! to be sent, and when all that waits for answers fills the buffer. Input thus arrives as fast as
//! the receiver writes it.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;

use crate::error::{Failure, FailureKind};
use crate::late_size::{LATE_BLOCK_LOG2, LATE_SIZE};

/// Size of a block of the input in bytes.
pub(super) const BLOCK_BYTES: usize = 1 << LATE_BLOCK_LOG2;
/// Maximum number of blocks that wait to be sent: 32 MiB. Streams take several at a time.
const MAX_BLOCKS_AHEAD: u64 = 128;
/// Minimum number of blocks in the buffer: the one that is held back, and some that are sent.
const MIN_BLOCKS: usize = 8;

/// Blocks of an input.
pub(super) struct InputBuffer {
    state: Mutex<InputState>,
    changed: Condvar,
    max_blocks: usize,
}

#[derive(Default)]
struct InputState {
    /// Blocks by offset. Each is full, except the last one of the input.
    blocks: BTreeMap<u64, Arc<Vec<u8>>>,
    /// Bytes that have been read.
    filled: u64,
    /// End of what has been read from the buffer to be sent.
    sent: u64,
    /// Size of the input, once it has ended.
    end: Option<u64>,
    /// Error that ended the input.
    failure: Option<Failure>,
    /// True once a block was released, so that the input cannot be sent from its beginning.
    has_lost_blocks: bool,
    /// True if nobody wants more.
    is_abandoned: bool,
}

impl InputState {
    /// Returns the bytes that can be sent. One full block is held back while the input may end
    /// behind it, so that the end always comes with a block.
    fn available(&self) -> u64 {
        let full = self.filled.saturating_sub(BLOCK_BYTES as u64);
        self.end.unwrap_or(full)
    }

    fn has_room(&self, max_blocks: usize) -> bool {
        let ahead = self.filled.saturating_sub(self.sent) >> LATE_BLOCK_LOG2;
        self.blocks.len() < max_blocks && ahead < MAX_BLOCKS_AHEAD
    }
}

/// Beginning of an input.
pub(super) enum InputBeginning {
    /// It has at most one block.
    Whole(Arc<Vec<u8>>),
    /// It has more than one block.
    Long,
    /// It cannot be read.
    Failed(Failure),
}

impl InputBuffer {
    /// Creates a buffer of `max_bytes` in memory.
    pub(super) fn new(max_bytes: usize) -> Self {
        Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            max_blocks: (max_bytes / BLOCK_BYTES).max(MIN_BLOCKS),
        }
    }

    /// Reads all of `input`. Blocking; returns early if the buffer is abandoned.
    pub(super) fn fill(&self, mut input: impl Read) {
        loop {
            let mut state = self.state.lock();
            while !state.is_abandoned && !state.has_room(self.max_blocks) {
                self.changed.wait(&mut state);
            }
            if state.is_abandoned {
                return;
            }
            drop(state);
            let read = read_block(&mut input);
            let mut state = self.state.lock();
            match read {
                Ok(block) => {
                    let is_last = block.len() < BLOCK_BYTES;
                    let offset = state.filled;
                    state.filled += block.len() as u64;
                    state.end = is_last.then_some(state.filled);
                    if !block.is_empty() {
                        state.blocks.insert(offset, Arc::new(block));
                    }
                }
                Err(failure) => {
                    // The read of the last byte returns the error.
                    state.end = Some(state.filled + 1);
                    state.failure = Some(failure);
                }
            }
            let has_ended = state.end.is_some();
            drop(state);
            self.changed.notify_all();
            if has_ended {
                return;
            }
        }
    }

    /// Waits until it is known whether the input has more than one block. Returns `None` if
    /// `is_over` returns true, which is asked every `pause`.
    pub(super) fn wait_beginning(
        &self,
        pause: Duration,
        is_over: &dyn Fn() -> bool,
    ) -> Option<InputBeginning> {
        let block = BLOCK_BYTES as u64;
        let mut state = self.state.lock();
        while state.end.is_none() && state.filled <= block {
            if is_over() {
                return None;
            }
            self.changed.wait_for(&mut state, pause);
        }
        Some(match (&state.failure, state.end) {
            (Some(failure), Some(end)) if end <= block + 1 => {
                InputBeginning::Failed(failure.clone())
            }
            (None, Some(end)) if end <= block => {
                let content = state.blocks.get(&0).cloned();
                InputBeginning::Whole(content.unwrap_or_default())
            }
            _ => InputBeginning::Long,
        })
    }

    /// Waits until more than `known` bytes can be sent, for `pause` at most. Returns the number,
    /// and whether that is all of the input.
    pub(super) fn wait_beyond(&self, known: u64, pause: Duration) -> (u64, bool) {
        let mut state = self.state.lock();
        if state.end.is_none() && state.available() <= known {
            self.changed.wait_for(&mut state, pause);
        }
        (state.available(), state.end.is_some())
    }

    /// Returns the size of the input, or the late size while it is not known.
    pub(super) fn size(&self) -> u64 {
        self.state.lock().end.unwrap_or(LATE_SIZE)
    }

    /// Copies what the buffer has of the block that contains `offset`, from there. Returns the
    /// number of bytes, 0 if the block is not in the buffer.
    pub(super) fn read_at(&self, out: &mut [u8], offset: u64) -> Result<usize, Failure> {
        let mut state = self.state.lock();
        if let Some(failure) = state.failure.as_ref().filter(|_| offset >= state.filled) {
            return Err(failure.clone());
        }
        let found = state.blocks.range(..=offset).next_back();
        let Some((start, block)) = found.map(|(start, block)| (*start, block.clone())) else {
            return Ok(0);
        };
        let was_ahead = state.sent;
        let from = usize::try_from(offset - start).unwrap_or(usize::MAX);
        let rest = block.get(from..).unwrap_or_default();
        let len = rest.len().min(out.len());
        state.sent = was_ahead.max(offset + len as u64);
        drop(state);
        self.changed.notify_all();
        if let (Some(to), Some(from)) = (out.get_mut(..len), rest.get(..len)) {
            to.copy_from_slice(from);
        }
        Ok(len)
    }

    /// Drops the block at `offset`, which the receiver has.
    pub(super) fn release(&self, offset: u64) {
        let mut state = self.state.lock();
        if state.blocks.remove(&offset).is_some() {
            state.has_lost_blocks = true;
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Returns true if the block at `offset` was read and is not in the buffer any more.
    pub(super) fn is_released(&self, offset: u64) -> bool {
        let state = self.state.lock();
        let start = offset - offset % BLOCK_BYTES as u64;
        offset < state.filled && !state.blocks.contains_key(&start)
    }

    /// Returns true if the input can be sent from its beginning.
    pub(super) fn is_complete(&self) -> bool {
        !self.state.lock().has_lost_blocks
    }

    /// Stops reading.
    pub(super) fn abandon(&self) {
        self.state.lock().is_abandoned = true;
        self.changed.notify_all();
    }
}

/// Reads a block, which is shorter at the end of the input.
fn read_block(input: &mut impl Read) -> Result<Vec<u8>, Failure> {
    let mut block = Vec::new();
    block
        .try_reserve_exact(BLOCK_BYTES)
        .map_err(|_| Failure::with_detail(FailureKind::Limit, "there is no memory to read it"))?;
    let mut limited = input.take(BLOCK_BYTES as u64);
    match limited.read_to_end(&mut block) {
        Ok(_) => Ok(block),
        Err(error) => Err(input_failure(&error)),
    }
}

fn input_failure(error: &io::Error) -> Failure {
    match error.raw_os_error() {
        Some(code) => Errno::from_raw_os_error(code).into(),
        None => Failure::with_detail(FailureKind::Io, error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = BLOCK_BYTES as u64;

    /// An input of this many bytes, and then an error if there is one.
    struct Bytes(u64, Option<Errno>);

    impl Read for Bytes {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let len = usize::try_from(self.0).unwrap().min(out.len());
            out[..len].fill(7);
            self.0 -= len as u64;
            match self.1 {
                Some(errno) if len == 0 => Err(errno.into()),
                _ => Ok(len),
            }
        }
    }

    fn filled(size: u64) -> InputBuffer {
        let buffer = InputBuffer::new(1 << 30);
        buffer.fill(Bytes(size, None));
        buffer
    }

    fn is_whole(buffer: &InputBuffer) -> bool {
        let beginning = buffer.wait_beginning(Duration::ZERO, &|| true);
        matches!(beginning, Some(InputBeginning::Whole(_)))
    }

    #[test]
    fn end_comes_with_a_block() {
        for size in [BLOCK + 1, 2 * BLOCK, 2 * BLOCK + 1] {
            let buffer = filled(size);
            assert!(!is_whole(&buffer), "{size}");
            assert_eq!(buffer.wait_beyond(0, Duration::ZERO), (size, true));
        }
        for size in [0, 1, BLOCK] {
            assert!(is_whole(&filled(size)), "{size}");
        }
        let unended = InputState {
            filled: 3 * BLOCK,
            ..InputState::default()
        };
        assert_eq!(unended.available(), 2 * BLOCK, "the third may be the last");
    }

    #[test]
    fn reading_pauses_until_blocks_are_sent_and_released() {
        let buffer = Arc::new(InputBuffer::new(10 * BLOCK_BYTES));
        let filling = buffer.clone();
        let thread = std::thread::spawn(move || filling.fill(Bytes(40 * BLOCK, None)));
        let mut most = 0;
        let mut out = vec![0; BLOCK_BYTES];
        for n in 0..40 {
            while buffer.wait_beyond(n * BLOCK, Duration::from_secs(9)).0 <= n * BLOCK {}
            most = most.max(buffer.state.lock().blocks.len());
            assert_eq!(buffer.read_at(&mut out, n * BLOCK), Ok(BLOCK_BYTES));
            assert!(!buffer.is_released(n * BLOCK));
            buffer.release(n * BLOCK);
            assert!(buffer.is_released(n * BLOCK) && !buffer.is_complete());
            assert_eq!(buffer.read_at(&mut out, n * BLOCK), Ok(0));
        }
        thread.join().unwrap();
        assert!((2..=10).contains(&most), "{most}");
        assert_eq!(buffer.size(), 40 * BLOCK);
    }

    #[test]
    fn error_fails_the_read_of_the_end() {
        let buffer = InputBuffer::new(1 << 30);
        buffer.fill(Bytes(2 * BLOCK, Some(Errno::IO)));
        assert_eq!(buffer.wait_beyond(0, Duration::ZERO), (2 * BLOCK + 1, true));
        let mut out = [0; 1];
        assert_eq!(buffer.read_at(&mut out, BLOCK), Ok(1));
        assert!(buffer.read_at(&mut out, 2 * BLOCK).is_err());
        let short = InputBuffer::new(1 << 30);
        short.fill(Bytes(3, Some(Errno::IO)));
        let beginning = short.wait_beginning(Duration::ZERO, &|| true);
        assert!(matches!(beginning, Some(InputBeginning::Failed(_))));
    }

    #[test]
    fn abandoned_buffer_reads_no_more() {
        let buffer = InputBuffer::new(0);
        buffer.abandon();
        buffer.fill(Bytes(u64::MAX, None));
        assert!(buffer.wait_beginning(Duration::ZERO, &|| true).is_none());
    }
}
