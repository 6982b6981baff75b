//! Decodes frames from bytes. Any bytes yield a frame or an error.

use longhaul_proto::PublicKey;

use super::field_reader::FieldReader;
use super::*;

/// Decodes the body of a frame whose type and length are known. For a block of any form, `body` is
/// only the header.
pub(crate) fn decode(frame_type: FrameType, body: Bytes) -> Result<Frame, WireError> {
    let mut fields = FieldReader(body);
    let frame = match frame_type {
        FrameType::Hello => Frame::Hello(Hello::decode(&mut fields)?),
        FrameType::Accept => Frame::Accept(Acceptance::decode(&mut fields)?),
        FrameType::Refuse => Frame::Refuse {
            kind: fields.code(RefusalKind::from_repr, "refusal")?,
            detail: fields.text()?,
        },
        FrameType::File => {
            let (head, meta) = (fields.head()?, fields.meta()?);
            let (size, block_log2) = (fields.u64()?, u32::from(fields.u8()?));
            if size > MAX_FILE_BYTES || !BLOCK_LOG2.contains(&block_log2) {
                return Err(WireError::Bound);
            }
            let identity = fields.optional_hash("identity")?;
            Frame::File {
                head,
                meta,
                size,
                block_log2,
                identity,
            }
        }
        FrameType::Small => {
            let (head, meta, hash) = (fields.head()?, fields.meta()?, fields.hash()?);
            let data = fields.rest();
            if data.len() as u64 > MAX_SMALL_BYTES {
                return Err(WireError::Bound);
            }
            Frame::Small {
                head,
                meta,
                hash,
                data,
            }
        }
        FrameType::Offer => {
            let (head, meta, size) = (fields.head()?, fields.meta()?, fields.u64()?);
            if size > MAX_FILE_BYTES {
                return Err(WireError::Bound);
            }
            Frame::Offer(FileOffer {
                head,
                meta,
                size,
                hash: fields.optional_hash("hash")?,
            })
        }
        FrameType::HardLink => {
            let (head, size) = (fields.head()?, fields.u64()?);
            if size > MAX_FILE_BYTES {
                return Err(WireError::Bound);
            }
            Frame::HardLink(HardLink {
                head,
                size,
                first: (fields.u32()?, fields.path()?),
            })
        }
        FrameType::Want => Frame::Want { id: fields.id()? },
        FrameType::Directory => Frame::Directory {
            head: fields.head()?,
            meta: fields.meta()?,
        },
        FrameType::Symlink => {
            let (head, meta, target) = (fields.head()?, fields.meta()?, fields.bytes()?);
            if target.is_empty()
                || target.len() > crate::path::MAX_PATH_BYTES
                || target.contains(&0)
            {
                return Err(WireError::Value("link target"));
            }
            Frame::Symlink {
                head,
                meta,
                target: target.to_vec(),
            }
        }
        FrameType::Special => Frame::Special {
            head: fields.head()?,
            meta: fields.meta()?,
            special: fields.special()?,
        },
        FrameType::Block => Frame::Block(fields.block()?),
        FrameType::ClearBlock => {
            Frame::ClearBlock(fields.block()?, BlockHash::from_bytes(fields.hash()?))
        }
        FrameType::PackedBlock => Frame::PackedBlock(fields.block()?),
        FrameType::PatchBlock => {
            Frame::PatchBlock(fields.block()?, BlockHash::from_bytes(fields.hash()?))
        }
        FrameType::Pack => {
            let len = fields.u32()?;
            if len == 0 || len as usize > MAX_PACK_BYTES {
                return Err(WireError::Bound);
            }
            let parts = fields.rest();
            Frame::Pack { len, parts }
        }
        FrameType::Signature => Frame::Signature {
            id: fields.id()?,
            chunk_log2: {
                let log2 = u32::from(fields.u8()?);
                match CHUNK_LOG2.contains(&log2) {
                    true => log2,
                    false => return Err(WireError::Value("length of chunks")),
                }
            },
            more: fields.flag()?,
            offset: fields.id()?,
            chunks: fields.signed_chunks()?,
        },
        FrameType::FileEnd => Frame::FileEnd {
            id: fields.id()?,
            hash: fields.hash()?,
        },
        FrameType::LateEnd => {
            let (id, size) = (fields.id()?, fields.u64()?);
            if size >= MAX_FILE_BYTES {
                return Err(WireError::Bound);
            }
            let hash = fields.hash()?;
            Frame::LateEnd { id, size, hash }
        }
        FrameType::Failed => {
            let head = fields.head_or_none()?;
            let code = fields.u8()?;
            Frame::Failed {
                head,
                failure: fields.failure(code)?,
            }
        }
        FrameType::End => Frame::End {
            entries: fields.id()?,
            bytes: fields.u64()?,
        },
        FrameType::Totals => Frame::Totals {
            entries: fields.u64()?,
            bytes: fields.u64()?,
            complete: fields.flag()?,
        },
        FrameType::NotKept => Frame::NotKept(NotKeptCounts {
            owners: fields.u64()?,
            set_id_bits: fields.u64()?,
            acls: fields.u64()?,
            extended_attributes: fields.u64()?,
        }),
        FrameType::Ack => Frame::Ack {
            id: fields.id()?,
            offset: fields.id()?,
        },
        FrameType::Have => Frame::Have {
            id: fields.id()?,
            more: fields.flag()?,
            subtrees: fields.subtrees()?,
        },
        FrameType::Result => {
            let id = fields.id()?;
            let code = fields.u8()?;
            let outcome = match EntryOutcome::from_repr(code) {
                Some(written) => Ok(written),
                None => Err(fields.failure(code)?),
            };
            Frame::Result { id, outcome }
        }
        FrameType::Done => Frame::Done {
            manifest: fields.hash()?,
        },
        FrameType::Receipt => Frame::Receipt(ServerReceipt {
            key: PublicKey::from_bytes(fields.array()?),
            client: PublicKey::from_bytes(fields.array()?),
            time_ms: fields.u64()?,
            signature: fields.array()?,
        }),
        FrameType::KeepAlive => Frame::KeepAlive,
        FrameType::Retire => Frame::Retire,
        FrameType::Flow => {
            let mut flow = FlowReport::default();
            for held in &mut flow.held_ms {
                *held = fields.u32()?;
            }
            flow.retransmits = fields.u64()?;
            flow.rtt_us = (fields.u32()?, fields.u32()?);
            (flow.window, flow.send_buffer) = (fields.u64()?, fields.u64()?);
            flow.streams = fields.u16()?;
            Frame::Flow(flow)
        }
    };
    // LH-COPY-2.
    if fields.0.has_remaining() {
        Err(WireError::Long)
    } else {
        Ok(frame)
    }
}

/// Returns the number of header bytes in a BLOCK frame's body, given its first [`BLOCK_FIXED`]
/// bytes.
pub(crate) fn block_header_len(fixed: &[u8; BLOCK_FIXED]) -> Result<usize, WireError> {
    let [.., low, high] = *fixed;
    let extents = usize::from(u16::from_le_bytes([low, high]));
    if extents > MAX_EXTENTS {
        Err(WireError::Bound)
    } else {
        Ok(BLOCK_FIXED + 8 * extents)
    }
}

/// Bytes of a BLOCK header before its extents.
pub(crate) const BLOCK_FIXED: usize = 8 + 8 + 4 + 2;
