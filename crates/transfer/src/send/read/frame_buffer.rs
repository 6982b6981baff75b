//! The buffer in which frames wait for their stream.
//!
//! With the first data it grows to its maximum size, and it keeps its old content. File data is
//! read over that, so no byte is set to zero first. The frames of a hole take a few bytes, and so
//! does their buffer.

use std::ops::Range;

use crate::limits::BUFFER_BYTES;
use crate::tree_hash::{BlockHash, Hash};
use crate::wire::{
    EntryHead, Frame, Meta, begin_small, finish_clear_block, finish_frame_of_parts, finish_small,
};

/// Size of a buffer for frames without data, in bytes.
const SMALL_BUFFER_BYTES: usize = 4096;

/// A buffer of frames.
pub(crate) struct FrameBuffer {
    /// All of it is initialised. Frames are in the first `filled` bytes.
    bytes: Vec<u8>,
    filled: usize,
    /// Ranges of block data that travels in plaintext, in order.
    clear: Vec<Range<usize>>,
    frame: Vec<u8>,
}

/// A SMALL frame whose data is still missing.
pub(super) struct OpenSmallFrame {
    start: usize,
    data: usize,
}

impl FrameBuffer {
    /// Creates an empty buffer that reuses the memory of `bytes`.
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        Self {
            bytes,
            filled: 0,
            clear: Vec::new(),
            frame: Vec::new(),
        }
    }

    /// Returns the frames in the buffer.
    #[cfg(test)]
    pub(crate) fn filled(&self) -> &[u8] {
        self.bytes.get(..self.filled).unwrap_or_default()
    }

    /// Returns its parts in order: frames, and the number of bytes at their end that travel in
    /// plaintext.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (&[u8], usize)> {
        let starts = std::iter::once(0).chain(self.clear.iter().map(|clear| clear.end));
        let ends = self
            .clear
            .iter()
            .cloned()
            .chain(std::iter::once(self.filled..self.filled));
        let parts = starts.zip(ends);
        parts.map(|(start, end)| {
            (
                self.bytes.get(start..end.end).unwrap_or_default(),
                end.len(),
            )
        })
    }

    /// Returns its memory for reuse.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Returns the number of bytes in it.
    pub(super) fn len(&self) -> usize {
        self.filled
    }

    /// Drops everything after the first `len` bytes.
    pub(super) fn truncate(&mut self, len: usize) {
        self.filled = self.filled.min(len);
        self.clear.retain(|clear| clear.end <= len);
    }

    /// Returns true if `len` more bytes fit.
    pub(super) fn fits(&self, len: usize) -> bool {
        self.filled.saturating_add(len) <= self.bytes.len().max(BUFFER_BYTES)
    }

    /// Appends a frame.
    pub(crate) fn put(&mut self, frame: &Frame) {
        self.frame.clear();
        frame.encode(&mut self.frame);
        self.append_frame();
    }

    /// Begins a SMALL frame. Its data must be read into [`Self::spare`] and counted by
    /// [`Self::advance`].
    pub(super) fn begin_small(&mut self, head: &EntryHead, meta: &Meta) -> OpenSmallFrame {
        let start = self.filled;
        self.frame.clear();
        begin_small(&mut self.frame, head, meta);
        self.append_frame();
        OpenSmallFrame {
            start,
            data: self.filled,
        }
    }

    /// Returns the data of a SMALL frame so far.
    pub(super) fn data(&self, small: &OpenSmallFrame) -> &[u8] {
        self.bytes.get(small.data..self.filled).unwrap_or_default()
    }

    /// Ends a SMALL frame whose data has this hash.
    pub(super) fn finish_small(&mut self, small: &OpenSmallFrame, hash: &Hash) {
        if let Some(filled) = self.bytes.get_mut(..self.filled) {
            finish_small(filled, small.start, small.data, hash);
        }
    }

    /// Sets the hash of a CLEAR_BLOCK frame that ends at `data` and whose data follows it.
    pub(super) fn finish_clear_block(&mut self, data: usize, hash: BlockHash) {
        self.set_block_hash(data, hash);
        if data < self.filled {
            self.clear.push(data..self.filled);
        }
    }

    /// Sets the hash of a CLEAR_BLOCK or PATCH_BLOCK frame whose header ends at `data`.
    pub(super) fn set_block_hash(&mut self, data: usize, hash: BlockHash) {
        if let Some(frame) = self.bytes.get_mut(..data) {
            finish_clear_block(frame, hash);
        }
    }

    /// Ends a PACKED_BLOCK, PATCH_BLOCK or PACK frame that begins at `start`, with its parts.
    pub(super) fn finish_frame_of_parts(&mut self, start: usize) {
        if let Some(frame) = self.bytes.get_mut(start..self.filled) {
            finish_frame_of_parts(frame);
        }
    }

    /// Returns what was appended after the first `begin` bytes.
    pub(super) fn since(&self, begin: usize) -> &[u8] {
        self.bytes.get(begin..self.filled).unwrap_or_default()
    }

    /// Replaces what is between `start` and `end` by what follows it.
    pub(super) fn replace(&mut self, start: usize, end: usize) {
        if start <= end && end <= self.filled {
            self.bytes.copy_within(end..self.filled, start);
            self.truncate(start + (self.filled - end));
        }
    }

    /// Returns the next `len` bytes to be filled, with arbitrary content.
    pub(super) fn spare(&mut self, len: usize) -> &mut [u8] {
        let end = self.filled + len;
        if self.bytes.len() < end {
            self.grow(end);
        }
        self.bytes.get_mut(self.filled..end).unwrap_or_default()
    }

    /// Grows the buffer to at least `len` bytes.
    fn grow(&mut self, len: usize) {
        let len = match len {
            0..=SMALL_BUFFER_BYTES => SMALL_BUFFER_BYTES,
            _ => len.max(BUFFER_BYTES),
        };
        // Newly allocated memory is zero without being written. The growth of a vector is not.
        let mut bytes = vec![0; len];
        let filled = self.bytes.get(..self.filled).unwrap_or_default();
        if let Some(start) = bytes.get_mut(..self.filled) {
            start.copy_from_slice(filled);
        }
        self.bytes = bytes;
    }

    /// Counts `len` bytes that have been filled.
    pub(super) fn advance(&mut self, len: usize) {
        self.filled = self.filled.saturating_add(len).min(self.bytes.len());
    }

    /// Appends bytes.
    pub(super) fn append(&mut self, bytes: &[u8]) {
        self.spare(bytes.len()).copy_from_slice(bytes);
        self.advance(bytes.len());
    }

    fn append_frame(&mut self) {
        let frame = std::mem::take(&mut self.frame);
        self.append(&frame);
        self.frame = frame;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Block, Extent};

    #[test]
    fn buffer_is_not_zeroed_before_reading() {
        let mut buffer = FrameBuffer::new(vec![7; BUFFER_BYTES]);
        buffer.put(&Frame::KeepAlive);
        assert_eq!(buffer.len(), 5);
        let room = buffer.spare(1 << 20);
        assert!(
            room.iter().all(|byte| *byte == 7),
            "touched before it is read into"
        );
        assert_eq!(
            FrameBuffer::new(buffer.into_bytes()).spare(8),
            [1, 0, 0, 0, 16, 7, 7, 7]
        );
    }

    #[test]
    fn frames_of_holes_take_no_memory_for_data() {
        let mut buffer = FrameBuffer::new(Vec::new());
        let hole = |id| {
            Frame::Block(Block {
                id,
                offset: 0,
                len: 1 << 20,
                extents: vec![],
            })
        };
        let mut expected = Vec::new();
        for id in 0..4 {
            buffer.put(&hole(id));
            hole(id).encode(&mut expected);
        }
        assert!(buffer.fits(1 << 20), "there is room for data all the same");
        assert_eq!(buffer.filled(), expected);
        buffer.spare(1 << 20).fill(7);
        assert_eq!(buffer.filled(), expected, "kept as it grows");
        let mut empty = FrameBuffer::new(Vec::new());
        empty.put(&hole(1));
        assert_eq!(empty.into_bytes().len(), SMALL_BUFFER_BYTES);
    }

    #[test]
    fn all_blocks_of_a_buffer_travel_in_plaintext() {
        let mut buffer = FrameBuffer::new(Vec::new());
        let mut put = |id: u64, len: u32| {
            let block = Block {
                id,
                offset: 0,
                len: 8,
                extents: vec![Extent { offset: 0, len }],
            };
            let start = buffer.len();
            buffer.put(&Frame::ClearBlock(block, BlockHash::from_bytes([0; 32])));
            let data = buffer.len();
            buffer.spare(len as usize).fill(id as u8);
            buffer.advance(len as usize);
            buffer.finish_clear_block(data, BlockHash::from_bytes([id as u8; 32]));
            (start, data)
        };
        let (first, second) = (put(1, 5), put(2, 8));
        let third = put(3, 7);
        buffer.put(&Frame::KeepAlive);
        let lens = |buffer: &FrameBuffer| -> Vec<(usize, usize)> {
            buffer
                .parts()
                .map(|(part, clear)| (part.len(), clear))
                .collect()
        };
        let header = first.1;
        assert_eq!(
            lens(&buffer),
            [(header + 5, 5), (header + 8, 8), (header + 7, 7), (5, 0)]
        );
        let whole: Vec<u8> = buffer.parts().flat_map(|(part, _)| part.to_vec()).collect();
        assert_eq!(whole, buffer.filled());
        for (id, (_, data)) in [(1, first), (2, second), (3, third)] {
            assert_eq!(whole[data - 32..data], [id; 32], "the hash of its own data");
            assert_eq!(whole[data], id);
        }
        // The last frame could not be read to its end.
        buffer.truncate(third.0);
        assert_eq!(lens(&buffer), [(header + 5, 5), (header + 8, 8), (0, 0)]);
    }

    #[test]
    fn frames_equal_those_encoded_into_a_vector() {
        let head = EntryHead {
            id: 3,
            source: 1,
            path: crate::path::RelPath::from_bytes(b"d/f").unwrap(),
        };
        let (meta, hash, data) = (
            Meta::default(),
            [9; 32],
            bytes::Bytes::from_static(b"content"),
        );
        let mut buffer = FrameBuffer::new(Vec::new());
        let small = buffer.begin_small(&head, &meta);
        buffer.spare(data.len() + 1)[..data.len()].copy_from_slice(&data);
        buffer.advance(data.len());
        assert_eq!(buffer.data(&small), &data[..]);
        buffer.finish_small(&small, &hash);
        buffer.put(&Frame::KeepAlive);
        let mut expected = Vec::new();
        Frame::Small {
            head,
            meta,
            hash,
            data,
        }
        .encode(&mut expected);
        Frame::KeepAlive.encode(&mut expected);
        assert_eq!(buffer.filled(), expected);
        let end = buffer.len();
        buffer.put(&Frame::Retire);
        buffer.replace(3, end);
        assert_eq!(
            buffer.filled(),
            [&expected[..3], &[1, 0, 0, 0, 18]].concat()
        );
        buffer.truncate(3);
        assert_eq!(buffer.filled(), &expected[..3]);
    }
}
