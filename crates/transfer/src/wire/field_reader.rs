//! Reading the fields of a frame.

use longhaul_proto::text::printable_within;

use super::*;

/// Levels of subtrees in HAVE, from the smallest block up to the largest file.
const HAVE_LEVELS: std::ops::RangeInclusive<u32> = *BLOCK_LOG2.start()..=62;

/// Decoder that takes fields off the front of a body.
pub(super) struct FieldReader(pub(super) Bytes);

impl FieldReader {
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

    pub(super) fn u64(&mut self) -> Result<u64, WireError> {
        self.need(8)?;
        Ok(self.0.get_u64_le())
    }

    /// Decodes the code of `what`, which `from_repr` knows.
    pub(super) fn code<T>(
        &mut self,
        from_repr: impl FnOnce(u8) -> Option<T>,
        what: &'static str,
    ) -> Result<T, WireError> {
        from_repr(self.u8()?).ok_or(WireError::Value(what))
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
    pub(super) fn id(&mut self) -> Result<u64, WireError> {
        let id = self.u64()?;
        if id > MAX_FILE_BYTES {
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

    pub(super) fn hash(&mut self) -> Result<Hash, WireError> {
        self.array()
    }

    pub(super) fn bytes(&mut self) -> Result<Bytes, WireError> {
        let len = usize::from(self.u16()?);
        self.need(len)?;
        Ok(self.0.split_to(len))
    }

    /// Decodes an optional 32-byte value.
    pub(super) fn optional_hash(
        &mut self,
        what: &'static str,
    ) -> Result<Option<[u8; 32]>, WireError> {
        match &self.bytes()?[..] {
            [] => Ok(None),
            bytes => Ok(Some(bytes.try_into().map_err(|_| WireError::Value(what))?)),
        }
    }

    pub(super) fn rest(&mut self) -> Bytes {
        self.0.split_off(0)
    }

    pub(super) fn text(&mut self) -> Result<String, WireError> {
        let bytes = self.bytes()?;
        if bytes.len() > MAX_DETAIL_BYTES {
            return Err(WireError::Bound);
        }
        // The peer's text is shown on a terminal, which it must not control.
        Ok(printable_within(&bytes, MAX_DETAIL_BYTES))
    }

    pub(super) fn path(&mut self) -> Result<RelPath, WireError> {
        Ok(RelPath::from_bytes(&self.bytes()?)?)
    }

    pub(super) fn head(&mut self) -> Result<EntryHead, WireError> {
        Ok(EntryHead {
            id: self.id()?,
            source: self.u32()?,
            path: self.path()?,
        })
    }

    pub(super) fn head_or_none(&mut self) -> Result<EntryHead, WireError> {
        let id = self.u64()?;
        if id > MAX_FILE_BYTES && id != NO_ENTRY {
            return Err(WireError::Bound);
        }
        Ok(EntryHead {
            id,
            source: self.u32()?,
            path: self.path()?,
        })
    }

    pub(super) fn meta(&mut self) -> Result<Meta, WireError> {
        let bits = self.u32()?;
        let mode = bits & !ATTRIBUTES_FLAG;
        let seconds = self.u64()? as i64;
        let nanos = self.u32()?;
        if mode > 0o777 {
            return Err(WireError::Value("mode"));
        }
        if nanos >= 1_000_000_000 {
            return Err(WireError::Value("time"));
        }
        let attributes = match bits & ATTRIBUTES_FLAG != 0 {
            true => Some(Arc::new(self.attributes()?)),
            false => None,
        };
        Ok(Meta {
            mode,
            mtime: (seconds, nanos),
            attributes,
        })
    }

    pub(super) fn failure(&mut self, code: u8) -> Result<Failure, WireError> {
        let kind = FailureKind::from_repr(code).ok_or(WireError::Value("failure code"))?;
        Ok(Failure::with_detail(kind, self.text()?))
    }

    /// Decodes subtrees: by offset, disjoint, each at a multiple of its size.
    pub(super) fn subtrees(&mut self) -> Result<Vec<Subtree>, WireError> {
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

    pub(super) fn signed_chunks(&mut self) -> Result<Vec<SignedChunk>, WireError> {
        let count = usize::from(self.u16()?);
        if count > MAX_SIGNED_CHUNKS {
            return Err(WireError::Bound);
        }
        let mut chunks = Vec::with_capacity(count);
        for _ in 0..count {
            chunks.push(SignedChunk {
                len: self.u32()?,
                hash: self.array()?,
            });
        }
        Ok(chunks)
    }

    pub(super) fn block(&mut self) -> Result<Block, WireError> {
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
