//! Reads blocks that the receiver puts together from its existing file (LH-COPY-64).

use super::{READ_PART_BYTES, Reader, read_and_hash};
use crate::delta::{PatchPart, Signature};
use crate::error::Failure;
use crate::packed::{EXISTING_PART, MAX_PATCH_PARTS, PART_HEAD_BYTES};
use crate::send::source::SourceFile;
use crate::tree_hash::{BlockHash, BlockHasher};
use crate::wire::{Block, Frame};

impl Reader<'_> {
    /// Reads, hashes and frames a block without holes: as data what the existing file lacks.
    pub(super) fn read_patch_block(
        &mut self,
        file: &dyn SourceFile,
        block: &Block,
        signature: &Signature,
    ) -> Result<BlockHash, Failure> {
        let start = self.out.len();
        let unknown = BlockHash::from_bytes([0; 32]);
        self.out.put(&Frame::PatchBlock(block.clone(), unknown));
        let header_end = self.out.len();
        let len = block.len as usize;
        let room = self.out.spare(PART_HEAD_BYTES + len);
        let data = room.get_mut(PART_HEAD_BYTES..).unwrap_or_default();
        let mut hasher = BlockHasher::new(block.offset, u64::from(block.len), file.size());
        let mut at = block.offset;
        for part in data.chunks_mut(READ_PART_BYTES) {
            read_and_hash(file, part, at, &mut hasher)?;
            at += part.len() as u64;
        }
        let hash = hasher.finish();
        let mut parts = signature.patch(block.offset, data);
        if parts.len() > MAX_PATCH_PARTS {
            parts = vec![PatchPart::Data { len: block.len }];
        }
        let written = write_parts(room, &parts);
        self.out.advance(written);
        self.out.set_block_hash(header_end, hash);
        self.out.finish_frame_of_parts(start);
        self.saved += len.saturating_sub(written) as u64;
        Ok(hash)
    }
}

/// Writes the parts of a block over its data, which is in `room` behind space for one head. Returns
/// their length.
///
/// Data only moves forward: what precedes it is shorter than what it replaces, as a reference is
/// shorter than its chunk and no two parts of data follow each other.
fn write_parts(room: &mut [u8], parts: &[PatchPart]) -> usize {
    let (mut from, mut to) = (PART_HEAD_BYTES, 0);
    let put = |room: &mut [u8], at: usize, bytes: &[u8]| {
        if let Some(out) = room.get_mut(at..at + bytes.len()) {
            out.copy_from_slice(bytes);
        }
        at + bytes.len()
    };
    for part in parts {
        match *part {
            PatchPart::Data { len } => {
                to = put(room, to, &len.to_le_bytes());
                room.copy_within(from..from + len as usize, to);
                to += len as usize;
                from += len as usize;
            }
            PatchPart::Existing { offset, len } => {
                to = put(room, to, &(len | EXISTING_PART).to_le_bytes());
                to = put(room, to, &offset.to_le_bytes());
                from += len as usize;
            }
        }
    }
    to
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_written_over_their_data() {
        let block: Vec<u8> = (0..=255).collect();
        let data = |len| PatchPart::Data { len };
        let existing = |len| PatchPart::Existing { offset: 7, len };
        for parts in [
            vec![data(256)],
            vec![existing(256)],
            vec![data(1), existing(64), existing(64), data(127)],
            vec![existing(64), data(1), existing(64), data(63), existing(64)],
        ] {
            let mut room = [&[0u8; PART_HEAD_BYTES][..], &block].concat();
            let len = write_parts(&mut room, &parts);
            let (mut expected, mut at) = (Vec::new(), 0);
            for part in parts {
                let len = match part {
                    PatchPart::Data { len } => {
                        expected.extend_from_slice(&len.to_le_bytes());
                        expected.extend_from_slice(&block[at..at + len as usize]);
                        len
                    }
                    PatchPart::Existing { offset, len } => {
                        expected.extend_from_slice(&(len | EXISTING_PART).to_le_bytes());
                        expected.extend_from_slice(&offset.to_le_bytes());
                        len
                    }
                };
                at += len as usize;
            }
            assert_eq!(room[..len], expected);
        }
    }
}
