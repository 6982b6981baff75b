//! Encodes frames as bytes.

use super::*;

impl Frame {
    /// Appends the frame. For BLOCK, the data must follow immediately. For PACKED_BLOCK and
    /// PATCH_BLOCK, the length does not count the parts yet: see [`finish_frame_of_parts`].
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        out.push(self.frame_type() as u8);
        let data_len = match self {
            Frame::Block(block) | Frame::ClearBlock(block, _) => block.data_len(),
            _ => 0,
        };
        self.encode_body(out);
        let len = (out.len() - start - 4 + data_len) as u32;
        put_at(out, start, &len.to_le_bytes());
    }

    fn frame_type(&self) -> FrameType {
        match self {
            Frame::Hello(_) => FrameType::Hello,
            Frame::Accept { .. } => FrameType::Accept,
            Frame::Refuse { .. } => FrameType::Refuse,
            Frame::File { .. } => FrameType::File,
            Frame::Small { .. } => FrameType::Small,
            Frame::Directory { .. } => FrameType::Directory,
            Frame::Symlink { .. } => FrameType::Symlink,
            Frame::Special { .. } => FrameType::Special,
            Frame::Block(_) => FrameType::Block,
            Frame::ClearBlock(..) => FrameType::ClearBlock,
            Frame::PackedBlock(_) => FrameType::PackedBlock,
            Frame::PatchBlock(..) => FrameType::PatchBlock,
            Frame::Pack { .. } => FrameType::Pack,
            Frame::Signature { .. } => FrameType::Signature,
            Frame::FileEnd { .. } => FrameType::FileEnd,
            Frame::LateEnd { .. } => FrameType::LateEnd,
            Frame::Failed { .. } => FrameType::Failed,
            Frame::End { .. } => FrameType::End,
            Frame::Totals { .. } => FrameType::Totals,
            Frame::NotKept(_) => FrameType::NotKept,
            Frame::Receipt(_) => FrameType::Receipt,
            Frame::Ack { .. } => FrameType::Ack,
            Frame::Result { .. } => FrameType::Result,
            Frame::Done { .. } => FrameType::Done,
            Frame::KeepAlive => FrameType::KeepAlive,
            Frame::Flow(_) => FrameType::Flow,
            Frame::Retire => FrameType::Retire,
            Frame::Have { .. } => FrameType::Have,
            Frame::Offer(_) => FrameType::Offer,
            Frame::HardLink(_) => FrameType::HardLink,
            Frame::Want { .. } => FrameType::Want,
        }
    }

    fn encode_body(&self, out: &mut Vec<u8>) {
        match self {
            Frame::Hello(hello) => hello.encode(out),
            Frame::Accept(accepted) => accepted.encode(out),
            Frame::Refuse { kind, detail } => {
                out.push(*kind as u8);
                put_text(out, detail);
            }
            Frame::File {
                head,
                meta,
                size,
                block_log2,
                identity,
            } => {
                put_head(out, head);
                put_meta(out, meta);
                out.extend_from_slice(&size.to_le_bytes());
                out.push(*block_log2 as u8);
                put_optional_hash(out, identity.as_ref());
            }
            Frame::Small {
                head,
                meta,
                hash,
                data,
            } => {
                put_small_head(out, head, meta, hash);
                out.extend_from_slice(data);
            }
            Frame::Offer(FileOffer {
                head,
                meta,
                size,
                hash,
            }) => {
                put_head(out, head);
                put_meta(out, meta);
                out.extend_from_slice(&size.to_le_bytes());
                put_optional_hash(out, hash.as_ref());
            }
            Frame::HardLink(HardLink {
                head,
                size,
                first: (source, path),
            }) => {
                put_head(out, head);
                out.extend_from_slice(&size.to_le_bytes());
                out.extend_from_slice(&source.to_le_bytes());
                put_bytes(out, path.as_bytes());
            }
            Frame::Want { id } => out.extend_from_slice(&id.to_le_bytes()),
            Frame::Directory { head, meta } => {
                put_head(out, head);
                put_meta(out, meta);
            }
            Frame::Symlink { head, meta, target } => {
                put_head(out, head);
                put_meta(out, meta);
                put_bytes(out, target);
            }
            Frame::Special {
                head,
                meta,
                special,
            } => {
                put_head(out, head);
                put_meta(out, meta);
                special.encode(out);
            }
            Frame::Block(block) | Frame::PackedBlock(block) => put_block(out, block),
            Frame::ClearBlock(block, hash) | Frame::PatchBlock(block, hash) => {
                put_block(out, block);
                out.extend_from_slice(hash.as_bytes());
            }
            Frame::Pack { len, parts } => {
                out.extend_from_slice(&len.to_le_bytes());
                out.extend_from_slice(parts);
            }
            Frame::FileEnd { id, hash } => {
                out.extend_from_slice(&id.to_le_bytes());
                out.extend_from_slice(hash);
            }
            Frame::LateEnd { id, size, hash } => {
                out.extend_from_slice(&id.to_le_bytes());
                out.extend_from_slice(&size.to_le_bytes());
                out.extend_from_slice(hash);
            }
            Frame::Failed { head, failure } => {
                put_head(out, head);
                put_failure(out, failure);
            }
            Frame::End { entries, bytes } => {
                out.extend_from_slice(&entries.to_le_bytes());
                out.extend_from_slice(&bytes.to_le_bytes());
            }
            Frame::Totals {
                entries,
                bytes,
                complete,
            } => {
                out.extend_from_slice(&entries.to_le_bytes());
                out.extend_from_slice(&bytes.to_le_bytes());
                out.push(u8::from(*complete));
            }
            Frame::NotKept(counts) => {
                for count in [
                    counts.owners,
                    counts.set_id_bits,
                    counts.acls,
                    counts.extended_attributes,
                ] {
                    out.extend_from_slice(&count.to_le_bytes());
                }
            }
            Frame::Ack { id, offset } => {
                out.extend_from_slice(&id.to_le_bytes());
                out.extend_from_slice(&offset.to_le_bytes());
            }
            Frame::Have { id, more, subtrees } => {
                out.extend_from_slice(&id.to_le_bytes());
                out.push(u8::from(*more));
                out.extend_from_slice(&(subtrees.len() as u16).to_le_bytes());
                for subtree in subtrees {
                    out.extend_from_slice(&subtree.offset.to_le_bytes());
                    out.push(subtree.level as u8);
                    out.extend_from_slice(&subtree.chaining_value);
                }
            }
            Frame::Signature {
                id,
                chunk_log2,
                more,
                offset,
                chunks,
            } => {
                out.extend_from_slice(&id.to_le_bytes());
                out.push(*chunk_log2 as u8);
                out.push(u8::from(*more));
                out.extend_from_slice(&offset.to_le_bytes());
                out.extend_from_slice(&(chunks.len() as u16).to_le_bytes());
                for chunk in chunks {
                    out.extend_from_slice(&chunk.len.to_le_bytes());
                    out.extend_from_slice(&chunk.hash);
                }
            }
            Frame::Result { id, outcome } => {
                out.extend_from_slice(&id.to_le_bytes());
                match outcome {
                    Ok(written) => out.push(*written as u8),
                    Err(failure) => put_failure(out, failure),
                }
            }
            Frame::Done { manifest } => out.extend_from_slice(manifest),
            Frame::Receipt(receipt) => {
                out.extend_from_slice(receipt.key.as_bytes());
                out.extend_from_slice(receipt.client.as_bytes());
                out.extend_from_slice(&receipt.time_ms.to_le_bytes());
                out.extend_from_slice(&receipt.signature);
            }
            Frame::KeepAlive | Frame::Retire => {}
            Frame::Flow(flow) => {
                for held in flow.held_ms {
                    out.extend_from_slice(&held.to_le_bytes());
                }
                out.extend_from_slice(&flow.retransmits.to_le_bytes());
                out.extend_from_slice(&flow.rtt_us.0.to_le_bytes());
                out.extend_from_slice(&flow.rtt_us.1.to_le_bytes());
                out.extend_from_slice(&flow.window.to_le_bytes());
                out.extend_from_slice(&flow.send_buffer.to_le_bytes());
                out.extend_from_slice(&flow.streams.to_le_bytes());
            }
        }
    }
}

/// Begins a SMALL frame in place, and returns its position for [`finish_small`]. The data must be
/// appended in between.
pub(crate) fn begin_small(out: &mut Vec<u8>, head: &EntryHead, meta: &Meta) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.push(FrameType::Small as u8);
    put_small_head(out, head, meta, &[0; 32]);
    start
}

/// Ends a SMALL frame that begins at `start` and whose data begins at `data`: sets its length and
/// hash.
pub(crate) fn finish_small(out: &mut [u8], start: usize, data: usize, hash: &Hash) {
    let len = (out.len() - start - 4) as u32;
    put_at(out, start, &len.to_le_bytes());
    put_at(out, data - hash.len(), hash);
}

/// Sets the hash of a CLEAR_BLOCK frame that ends with `frame`.
pub(crate) fn finish_clear_block(frame: &mut [u8], hash: BlockHash) {
    let at = frame.len().saturating_sub(hash.as_bytes().len());
    put_at(frame, at, hash.as_bytes());
}

/// Counts the parts of a PACKED_BLOCK, PATCH_BLOCK or PACK frame, which is all of `frame`, in its
/// length.
pub(crate) fn finish_frame_of_parts(frame: &mut [u8]) {
    let len = frame.len().saturating_sub(4) as u32;
    put_at(frame, 0, &len.to_le_bytes());
}

fn put_block(out: &mut Vec<u8>, block: &Block) {
    out.extend_from_slice(&block.id.to_le_bytes());
    out.extend_from_slice(&block.offset.to_le_bytes());
    out.extend_from_slice(&block.len.to_le_bytes());
    out.extend_from_slice(&(block.extents.len() as u16).to_le_bytes());
    for extent in &block.extents {
        out.extend_from_slice(&extent.offset.to_le_bytes());
        out.extend_from_slice(&extent.len.to_le_bytes());
    }
}

fn put_small_head(out: &mut Vec<u8>, head: &EntryHead, meta: &Meta, hash: &Hash) {
    put_head(out, head);
    put_meta(out, meta);
    out.extend_from_slice(hash);
}

/// Fills in a placeholder at offset `at`.
fn put_at(out: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = out.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let bytes = bytes.get(..usize::from(u16::MAX)).unwrap_or(bytes);
    out.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// Appends an optional 32-byte value.
fn put_optional_hash(out: &mut Vec<u8>, bytes: Option<&[u8; 32]>) {
    put_bytes(out, bytes.map_or(&[], |bytes| bytes.as_slice()));
}

/// Appends an option: its kind and its value.
pub(super) fn put_option(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    out.extend_from_slice(&kind.to_le_bytes());
    put_bytes(out, value);
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    let end = text.floor_char_boundary(MAX_DETAIL_BYTES);
    put_bytes(out, text.get(..end).unwrap_or_default().as_bytes());
}

fn put_head(out: &mut Vec<u8>, head: &EntryHead) {
    out.extend_from_slice(&head.id.to_le_bytes());
    out.extend_from_slice(&head.source.to_le_bytes());
    put_bytes(out, head.path.as_bytes());
}

fn put_meta(out: &mut Vec<u8>, meta: &Meta) {
    let flag = match meta.attributes {
        Some(_) => ATTRIBUTES_FLAG,
        None => 0,
    };
    out.extend_from_slice(&(meta.mode | flag).to_le_bytes());
    out.extend_from_slice(&meta.mtime.0.to_le_bytes());
    out.extend_from_slice(&meta.mtime.1.to_le_bytes());
    if let Some(attributes) = &meta.attributes {
        attributes.encode(out);
    }
}

fn put_failure(out: &mut Vec<u8>, failure: &Failure) {
    out.push(failure.kind as u8);
    put_text(out, &failure.detail);
}
