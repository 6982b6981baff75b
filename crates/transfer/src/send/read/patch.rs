//! Reads blocks that the receiver puts together from its existing file (LH-COPY-64).

use super::{READ_PART_BYTES, Reader};
use crate::delta::{PatchPart, Signature};
use crate::error::{Failure, FailureKind};
use crate::packed::{EXISTING_PART, MAX_PATCH_PARTS};
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
        let mut data = vec![0; block.len as usize];
        let mut hasher = BlockHasher::new(block.offset, u64::from(block.len), file.size());
        let mut at = block.offset;
        for part in data.chunks_mut(READ_PART_BYTES) {
            if file.read_at(part, at)? != part.len() {
                return Err(Failure::new(FailureKind::Changed));
            }
            hasher.update(part);
            at += part.len() as u64;
        }
        let hash = hasher.finish();
        let mut parts = signature.patch(&data);
        if parts.len() > MAX_PATCH_PARTS {
            parts = vec![PatchPart::Data(&data)];
        }
        let start = self.out.len();
        self.out.put(&Frame::PatchBlock(block.clone(), hash));
        let mut existing = 0;
        for part in parts {
            match part {
                PatchPart::Data(data) => {
                    self.out.append(&(data.len() as u32).to_le_bytes());
                    self.out.append(data);
                }
                PatchPart::Existing { offset, len } => {
                    self.out.append(&(len | EXISTING_PART).to_le_bytes());
                    self.out.append(&offset.to_le_bytes());
                    existing += u64::from(len);
                }
            }
        }
        self.out.finish_block_of_parts(start);
        self.reports.count_saved(existing);
        Ok(hash)
    }
}
