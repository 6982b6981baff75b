//! Bytes of a stream by their offset, in chunks of equal size, so that neither growth nor release
//! moves any of them.

use std::collections::VecDeque;

/// Size of a chunk, in bytes.
const CHUNK_BYTES: usize = 64 * 1024;

/// The bytes of a stream from one offset to another.
#[derive(Debug, Default)]
pub(crate) struct ByteQueue {
    /// Offset of the first byte.
    start: u64,
    /// Number of bytes at the front of the first chunk that have been released.
    released: usize,
    /// All are full, except for the last.
    chunks: VecDeque<Vec<u8>>,
    len: usize,
    /// An empty chunk for the next bytes.
    spare: Option<Vec<u8>>,
}

impl ByteQueue {
    pub(crate) const fn start(&self) -> u64 {
        self.start
    }

    pub(crate) const fn end(&self) -> u64 {
        self.start.saturating_add(self.len as u64)
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends bytes.
    pub(crate) fn push(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            let room = self
                .chunks
                .back()
                .map_or(0, |chunk| CHUNK_BYTES.saturating_sub(chunk.len()));
            if room == 0 {
                let chunk = self
                    .spare
                    .take()
                    .unwrap_or_else(|| Vec::with_capacity(data.len().min(CHUNK_BYTES)));
                self.chunks.push_back(chunk);
                continue;
            }
            let (part, rest) = data.split_at(data.len().min(room));
            if let Some(chunk) = self.chunks.back_mut() {
                if chunk.capacity() < chunk.len().saturating_add(part.len()) {
                    // Grows once to the full size instead of by doubling.
                    chunk.reserve_exact(CHUNK_BYTES.saturating_sub(chunk.len()));
                }
                chunk.extend_from_slice(part);
            }
            self.len = self.len.saturating_add(part.len());
            data = rest;
        }
    }

    /// Returns the bytes from `offset` to the end of its chunk; none outside the queue.
    pub(crate) fn bytes_at(&self, offset: u64) -> &[u8] {
        let Some(skipped) = offset.checked_sub(self.start) else {
            return &[];
        };
        let Ok(skipped) = usize::try_from(skipped) else {
            return &[];
        };
        let at = skipped.saturating_add(self.released);
        let (Some(index), Some(within)) =
            (at.checked_div(CHUNK_BYTES), at.checked_rem(CHUNK_BYTES))
        else {
            return &[];
        };
        self.chunks
            .get(index)
            .and_then(|chunk| chunk.get(within..))
            .unwrap_or_default()
    }

    /// Releases the bytes before `offset`.
    pub(crate) fn release(&mut self, offset: u64) {
        let count = usize::try_from(offset.saturating_sub(self.start)).unwrap_or(usize::MAX);
        let mut left = count.min(self.len);
        self.start = self.start.saturating_add(left as u64);
        self.len = self.len.saturating_sub(left);
        if self.len == 0 {
            self.recycle_all();
            return;
        }
        while let Some(first) = self.chunks.front() {
            let unreleased = first.len().saturating_sub(self.released);
            if left < unreleased {
                self.released = self.released.saturating_add(left);
                return;
            }
            left = left.saturating_sub(unreleased);
            self.released = 0;
            let first = self.chunks.pop_front();
            self.recycle(first);
        }
    }

    /// Moves bytes from the front into `buffer`. Returns their number.
    pub(crate) fn pop(&mut self, buffer: &mut [u8]) -> usize {
        let mut moved = 0usize;
        while let Some(room) = buffer.get_mut(moved..).filter(|room| !room.is_empty()) {
            let bytes = self.bytes_at(self.start);
            let len = bytes.len().min(room.len());
            if len == 0 {
                break;
            }
            if let (Some(room), Some(bytes)) = (room.get_mut(..len), bytes.get(..len)) {
                room.copy_from_slice(bytes);
            }
            moved = moved.saturating_add(len);
            self.release(self.start.saturating_add(len as u64));
        }
        moved
    }

    /// Moves the start of an empty queue: these bytes passed it by.
    pub(crate) const fn skip(&mut self, count: u64) {
        if self.len == 0 {
            self.start = self.start.saturating_add(count);
        }
    }

    /// Frees the spare chunk of an empty queue.
    pub(crate) fn shrink(&mut self) {
        if self.is_empty() {
            self.spare = None;
        }
    }

    fn recycle_all(&mut self) {
        self.released = 0;
        let first = self.chunks.pop_front();
        self.chunks.clear();
        self.recycle(first);
    }

    fn recycle(&mut self, chunk: Option<Vec<u8>>) {
        if let Some(mut chunk) = chunk.filter(|chunk| chunk.capacity() >= CHUNK_BYTES) {
            chunk.clear();
            self.spare = Some(chunk);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// For any pushes and releases: the bytes at each offset are those of a plain vector.
        #[test]
        fn a_queue_matches_a_vector(
            steps in prop::collection::vec((0usize..200_000, 0usize..200_000, any::<bool>()), 1..30),
        ) {
            let mut queue = ByteQueue::default();
            let mut all: Vec<u8> = Vec::new();
            let mut start = 0usize;
            for (pushed, gone, pops) in steps {
                let data: Vec<u8> =
                    (0..pushed).map(|at| ((all.len() + at) % 251) as u8).collect();
                queue.push(&data);
                all.extend_from_slice(&data);
                let gone = gone.min(all.len() - start);
                if pops {
                    let mut buffer = vec![0; gone];
                    prop_assert_eq!(queue.pop(&mut buffer), gone);
                    prop_assert_eq!(&buffer, &all[start..start + gone]);
                } else {
                    queue.release((start + gone) as u64);
                }
                start += gone;
                prop_assert_eq!(queue.start(), start as u64);
                prop_assert_eq!(queue.end(), all.len() as u64);
                let mut at = start;
                while at < all.len() {
                    let part = queue.bytes_at(at as u64);
                    prop_assert!(!part.is_empty());
                    prop_assert_eq!(part, &all[at..at + part.len()]);
                    at += part.len();
                }
                prop_assert!(queue.bytes_at(all.len() as u64).is_empty());
                if let Some(before) = queue.start().checked_sub(1) {
                    prop_assert!(queue.bytes_at(before).is_empty());
                }
            }
        }
    }
}
