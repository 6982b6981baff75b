//! Decodes frames from bytes. Any bytes yield a frame or an error.

use longhaul_proto::text::printable_within;

use super::options::{CLEAR, HARD_LINKS, INSTANCE, PLACEMENT, PRESENT, decode_options};
use super::*;

/// Decodes the body of a frame whose type and length are known. For BLOCK, `body` is only the
/// header.
pub(crate) fn decode(frame_type: FrameType, body: Bytes) -> Result<Frame, WireError> {
    let mut fields = Fields(body);
    let frame = match frame_type {
        FrameType::Hello => Frame::Hello(Hello::decode(&mut fields)?),
        FrameType::Accept => {
            let (version, max_streams) = (fields.u16()?, fields.u16()?);
            // LH-COPY-6: the version of this release was among those offered.
            if version != VERSION {
                return Err(WireError::Version(version, version));
            }
            let (mut instance, mut clear, mut present, mut hard_links) =
                (None, false, false, false);
            let mut placement = None;
            decode_options(&mut fields, |kind, value| {
                match kind {
                    INSTANCE => instance = Some(value.array()?),
                    PRESENT => present = true,
                    CLEAR => clear = true,
                    HARD_LINKS => hard_links = true,
                    PLACEMENT => placement = Some(Placement::from_byte(value.u8()?)?),
                    _ => return Ok(false),
                }
                Ok(true)
            })?;
            Frame::Accept {
                version,
                max_streams,
                instance,
                clear,
                present,
                hard_links,
                placement,
            }
        }
        FrameType::Refuse => Frame::Refuse {
            kind: RefusalKind::from_code(fields.u8()?).ok_or(WireError::Value("refusal"))?,
            detail: fields.text()?,
        },
        FrameType::File => {
            let (head, meta) = (fields.head()?, fields.meta()?);
            let (size, block_log2) = (fields.u64()?, u32::from(fields.u8()?));
            if size > MAX_FILE || !BLOCK_LOG2.contains(&block_log2) {
                return Err(WireError::Bound);
            }
            let identity = fields.if_any("identity")?;
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
            if data.len() as u64 > SMALL_MAX {
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
            if size > MAX_FILE {
                return Err(WireError::Bound);
            }
            Frame::Offer(Offer {
                head,
                meta,
                size,
                hash: fields.if_any("hash")?,
            })
        }
        FrameType::HardLink => {
            let (head, size) = (fields.head()?, fields.u64()?);
            if size > MAX_FILE {
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
            if target.is_empty() || target.len() > crate::path::MAX_PATH || target.contains(&0) {
                return Err(WireError::Value("link target"));
            }
            Frame::Symlink {
                head,
                meta,
                target: target.to_vec(),
            }
        }
        FrameType::Block => Frame::Block(fields.block()?),
        FrameType::ClearBlock => {
            Frame::ClearBlock(fields.block()?, BlockHash::from_bytes(fields.hash()?))
        }
        FrameType::FileEnd => Frame::FileEnd {
            id: fields.id()?,
            hash: fields.hash()?,
        },
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
            let outcome = match Written::from_code(code) {
                Some(written) => Ok(written),
                None => Err(fields.failure(code)?),
            };
            Frame::Result { id, outcome }
        }
        FrameType::Done => Frame::Done {
            manifest: fields.hash()?,
        },
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

/// Levels of subtrees in HAVE, from the smallest block up to the largest file.
const HAVE_LEVELS: std::ops::RangeInclusive<u32> = *BLOCK_LOG2.start()..=62;
/// Bytes of a BLOCK header before its extents.
pub(crate) const BLOCK_FIXED: usize = 8 + 8 + 4 + 2;

/// Decoder that takes fields off the front of a body.
pub(super) struct Fields(pub(super) Bytes);

impl Fields {
    fn need(&self, n: usize) -> Result<(), WireError> {
        if self.0.remaining() < n {
            Err(WireError::Short)
        } else {
            Ok(())
        }
    }

    pub(super) fn u8(&mut self) -> Result<u8, WireError> {
        self.need(1)?;
        Ok(self.0.get_u8())
    }

    pub(super) fn u16(&mut self) -> Result<u16, WireError> {
        self.need(2)?;
        Ok(self.0.get_u16_le())
    }

    pub(super) fn u32(&mut self) -> Result<u32, WireError> {
        self.need(4)?;
        Ok(self.0.get_u32_le())
    }

    fn u64(&mut self) -> Result<u64, WireError> {
        self.need(8)?;
        Ok(self.0.get_u64_le())
    }

    pub(super) fn flag(&mut self) -> Result<bool, WireError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(WireError::Value("flag")),
        }
    }

    /// Entries are counted from 0. Numbers near the maximum are excluded, so that counting never
    /// overflows (LH-COPY-3).
    fn id(&mut self) -> Result<u64, WireError> {
        let id = self.u64()?;
        if id > MAX_FILE {
            Err(WireError::Bound)
        } else {
            Ok(id)
        }
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        self.need(N)?;
        let mut out = [0; N];
        self.0.copy_to_slice(&mut out);
        Ok(out)
    }

    fn hash(&mut self) -> Result<Hash, WireError> {
        self.array()
    }

    pub(super) fn bytes(&mut self) -> Result<Bytes, WireError> {
        let len = usize::from(self.u16()?);
        self.need(len)?;
        Ok(self.0.split_to(len))
    }

    /// Decodes an optional 32-byte value.
    fn if_any(&mut self, what: &'static str) -> Result<Option<[u8; 32]>, WireError> {
        match &self.bytes()?[..] {
            [] => Ok(None),
            bytes => Ok(Some(bytes.try_into().map_err(|_| WireError::Value(what))?)),
        }
    }

    fn rest(&mut self) -> Bytes {
        self.0.split_off(0)
    }

    fn text(&mut self) -> Result<String, WireError> {
        let bytes = self.bytes()?;
        if bytes.len() > MAX_DETAIL {
            return Err(WireError::Bound);
        }
        // The peer's text is shown on a terminal, which it must not control.
        Ok(printable_within(&bytes, MAX_DETAIL))
    }

    pub(super) fn path(&mut self) -> Result<RelPath, WireError> {
        Ok(RelPath::from_bytes(&self.bytes()?)?)
    }

    fn head(&mut self) -> Result<Head, WireError> {
        Ok(Head {
            id: self.id()?,
            source: self.u32()?,
            path: self.path()?,
        })
    }

    fn head_or_none(&mut self) -> Result<Head, WireError> {
        let id = self.u64()?;
        if id > MAX_FILE && id != NO_ENTRY {
            return Err(WireError::Bound);
        }
        Ok(Head {
            id,
            source: self.u32()?,
            path: self.path()?,
        })
    }

    fn meta(&mut self) -> Result<Meta, WireError> {
        let mode = self.u32()?;
        let seconds = self.u64()? as i64;
        let nanos = self.u32()?;
        if mode > 0o777 {
            return Err(WireError::Value("mode"));
        }
        if nanos >= 1_000_000_000 {
            return Err(WireError::Value("time"));
        }
        Ok(Meta {
            mode,
            mtime: (seconds, nanos),
        })
    }

    fn failure(&mut self, code: u8) -> Result<Failure, WireError> {
        let kind = FailureKind::from_code(code).ok_or(WireError::Value("failure code"))?;
        Ok(Failure::with(kind, self.text()?))
    }

    /// Decodes subtrees: by offset, disjoint, each at a multiple of its size.
    fn subtrees(&mut self) -> Result<Vec<Subtree>, WireError> {
        let count = usize::from(self.u16()?);
        if count > MAX_HAVE_SUBTREES {
            return Err(WireError::Bound);
        }
        let mut subtrees = Vec::with_capacity(count);
        let mut free_from = 0u64;
        for _ in 0..count {
            let subtree = Subtree {
                offset: self.id()?,
                level: u32::from(self.u8()?),
                chaining_value: self.array()?,
            };
            if !HAVE_LEVELS.contains(&subtree.level)
                || subtree.offset < free_from
                || !subtree.offset.is_multiple_of(1 << subtree.level)
            {
                return Err(WireError::Value("subtree"));
            }
            free_from = subtree.offset + (1 << subtree.level);
            subtrees.push(subtree);
        }
        Ok(subtrees)
    }

    fn block(&mut self) -> Result<Block, WireError> {
        let (id, offset, len, count) = (
            self.id()?,
            self.id()?,
            self.u32()?,
            usize::from(self.u16()?),
        );
        if len == 0 || len > 1 << BLOCK_LOG2.end() || count > MAX_EXTENTS {
            return Err(WireError::Bound);
        }
        let mut extents = Vec::with_capacity(count);
        let mut free_from = 0u32;
        for _ in 0..count {
            let extent = Extent {
                offset: self.u32()?,
                len: self.u32()?,
            };
            let end = extent
                .offset
                .checked_add(extent.len)
                .ok_or(WireError::Bound)?;
            // LH-COPY-4.
            if extent.len == 0 || extent.offset < free_from || end > len {
                return Err(WireError::Value("extent"));
            }
            free_from = end;
            extents.push(extent);
        }
        Ok(Block {
            id,
            offset,
            len,
            extents,
        })
    }
}
