//! Data of PACKED_BLOCK (LH-COPY-61) and PACK (LH-COPY-75). Each extent of a block, and the frames
//! of a pack, are cut into parts of at most 128 KiB. A part is its length on the wire (u32), and
//! that many bytes: a Zstandard frame (RFC 8878), or the data itself if it is not longer than that.
//!
//! Parts are compressed by themselves, so neither end needs memory for more than one, and data is
//! hashed while it is still in the processor's cache.

#![deny(clippy::indexing_slicing)] // what is read here comes from the network
#![cfg_attr(test, allow(clippy::indexing_slicing))]

use bytes::{Buf, Bytes};
use longhaul_session::SESSION_BYTES;
use zstd::bulk::{Compressor, Decompressor};

use crate::limits::STREAM_BYTES;
use crate::wire::{Block, MAX_BODY_BYTES, WireError};

/// Maximum length of a part, in bytes.
pub(crate) const MAX_PART_BYTES: usize = 128 * 1024;
/// Bytes of a part's length on the wire.
pub(crate) const PART_HEAD_BYTES: usize = 4;
/// Flag in the head of a part of PATCH_BLOCK: its data is in the existing file (LH-COPY-64).
pub(crate) const EXISTING_PART: u32 = 1 << 31;
/// Maximum number of parts of a PATCH_BLOCK that are in the existing file.
pub(crate) const MAX_PATCH_PARTS: usize = 1024;
/// Memory of a [`Packer`] at a server's highest level, in bytes.
const PACKER_BYTES: usize = 5 << 18;
const _: () = assert!(PACKER_BYTES + SESSION_BYTES + MAX_BODY_BYTES <= STREAM_BYTES);
/// Memory that Zstandard needs to decompress one part, in bytes.
pub(crate) const UNPACKER_BYTES: usize = 160 * 1024;

/// Returns the lengths of the parts of a block's data, in order.
pub(crate) fn part_lengths(block: &Block) -> impl Iterator<Item = usize> {
    let extents = block.extents.iter();
    extents.flat_map(|extent| lengths(extent.len as usize))
}

/// Returns the lengths of the parts of `len` bytes, in order.
pub(crate) fn lengths(len: usize) -> impl Iterator<Item = usize> {
    let starts = (0..len).step_by(MAX_PART_BYTES);
    starts.map(move |start| MAX_PART_BYTES.min(len.saturating_sub(start)))
}

/// Returns the maximum number of bytes that follow the header of this block.
pub(crate) fn max_packed_len(block: &Block) -> usize {
    let parts = part_lengths(block).map(|len| PART_HEAD_BYTES.saturating_add(len));
    parts.fold(0, usize::saturating_add)
}

/// Compresses parts of one stream.
pub(crate) struct Packer {
    level: u8,
    /// Created with the first part. `None` if Zstandard has no memory; parts then stay as they are.
    compressor: Option<Option<Compressor<'static>>>,
    /// Part that is being read.
    part: Vec<u8>,
}

impl Packer {
    pub(crate) fn new(level: u8) -> Self {
        Self {
            level,
            compressor: None,
            part: Vec::new(),
        }
    }

    /// Returns room for the next part of `len` bytes, with arbitrary content.
    pub(crate) fn part(&mut self, len: usize) -> &mut [u8] {
        if self.part.len() < len {
            self.part.resize(MAX_PART_BYTES.max(len), 0);
        }
        self.part.get_mut(..len).unwrap_or_default()
    }

    /// Writes the first `len` bytes of [`Self::part`] to `out`, which has room for them and their
    /// head. Returns the number of bytes written.
    pub(crate) fn pack(&mut self, len: usize, out: &mut [u8]) -> usize {
        let level = i32::from(self.level);
        let compressor = self
            .compressor
            .get_or_insert_with(|| Compressor::new(level).ok());
        let part = self.part.get(..len).unwrap_or_default();
        let Some((head, data)) = out.split_at_mut_checked(PART_HEAD_BYTES) else {
            return 0;
        };
        // A frame that is not shorter than the part has no room, which is an error.
        let room = data.get_mut(..len.saturating_sub(1)).unwrap_or_default();
        let packed = compressor
            .as_mut()
            .and_then(|compressor| compressor.compress_to_buffer(part, room).ok());
        let packed = packed.unwrap_or_else(|| {
            if let Some(data) = data.get_mut(..len) {
                data.copy_from_slice(part);
            }
            len
        });
        head.copy_from_slice(&(packed as u32).to_le_bytes());
        PART_HEAD_BYTES + packed
    }
}

/// Decompresses parts of one stream.
#[derive(Default)]
pub(crate) struct Unpacker(Option<Decompressor<'static>>);

impl Unpacker {
    /// Decompresses a part into `out`, which has its exact length.
    ///
    /// # Errors
    /// The bytes are no Zstandard frame, or one of another length.
    pub(crate) fn unpack(&mut self, packed: &[u8], out: &mut [u8]) -> Result<(), WireError> {
        let wrong = |_| WireError::Value("compressed part");
        if packed.len() == out.len() {
            out.copy_from_slice(packed);
            return Ok(());
        }
        let decompressor = match &mut self.0 {
            Some(decompressor) => decompressor,
            none => none.insert(Decompressor::new().map_err(wrong)?),
        };
        let len = decompressor
            .decompress_to_buffer(packed, out)
            .map_err(wrong)?;
        match len == out.len() {
            true => Ok(()),
            false => Err(WireError::Value("compressed part")),
        }
    }
}

/// Returns the frames of a PACK: `len` bytes, which the caller has limited.
///
/// # Errors
/// The parts yield another length, or are no parts.
pub(crate) fn unpack_frames(
    unpacker: &mut Unpacker,
    len: usize,
    mut parts: Bytes,
) -> Result<Bytes, WireError> {
    let mut frames = vec![0; len];
    for frames in frames.chunks_mut(MAX_PART_BYTES) {
        let packed = parts.try_get_u32_le().map_err(|_| WireError::Short)? as usize;
        if packed > frames.len() {
            return Err(WireError::Bound);
        }
        let part = parts.get(..packed).ok_or(WireError::Short)?;
        unpacker.unpack(part, frames)?;
        parts.advance(packed);
    }
    match parts.is_empty() {
        true => Ok(frames.into()),
        false => Err(WireError::Long),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Extent;

    fn block(lens: &[u32]) -> Block {
        let mut offset = 0;
        let extents = lens
            .iter()
            .map(|&len| {
                let extent = Extent { offset, len };
                offset += len + 1;
                extent
            })
            .collect();
        Block {
            id: 1,
            offset: 0,
            len: offset,
            extents,
        }
    }

    fn pack(data: &[u8], level: u8) -> Vec<u8> {
        let mut packer = Packer::new(level);
        packer.part(data.len()).copy_from_slice(data);
        let mut out = vec![0; PART_HEAD_BYTES + data.len()];
        let len = packer.pack(data.len(), &mut out);
        out.truncate(len);
        out
    }

    #[test]
    fn extents_are_cut_into_parts() {
        let lens = |block: &Block| part_lengths(block).collect::<Vec<_>>();
        let (kib, part) = (1024, MAX_PART_BYTES);
        assert!(lens(&block(&[])).is_empty());
        assert_eq!(lens(&block(&[5, 128 * kib])), [5, part]);
        assert_eq!(
            lens(&block(&[128 * kib + 1, 300 * kib])),
            [part, 1, part, part, 44 * 1024]
        );
        assert_eq!(max_packed_len(&block(&[5, 128 * kib])), 4 + 5 + 4 + part);
    }

    #[test]
    fn parts_are_never_longer_than_their_data() {
        let mut unpacker = Unpacker::default();
        let noise: Vec<u8> = (0..MAX_PART_BYTES as u64 / 32)
            .flat_map(|n| *blake3::hash(&n.to_le_bytes()).as_bytes())
            .collect();
        let text: Vec<u8> = b"a few words "
            .iter()
            .copied()
            .cycle()
            .take(70_000)
            .collect();
        for level in [1, 3, 19] {
            for (data, is_smaller) in [(&noise[..], false), (&text[..], true), (&text[..1], false)]
            {
                let packed = pack(data, level);
                let (head, body) = packed.split_at(PART_HEAD_BYTES);
                assert_eq!(head, (body.len() as u32).to_le_bytes());
                assert_eq!(body.len() < data.len(), is_smaller);
                let mut back = vec![0; data.len()];
                unpacker.unpack(body, &mut back).unwrap();
                assert!(back == data);
            }
        }
    }

    #[test]
    fn wrong_parts_are_refused() {
        let text = [7; 1000];
        let packed = pack(&text, 3)[PART_HEAD_BYTES..].to_vec();
        let mut unpacker = Unpacker::default();
        for wrong_len in [999, 1001] {
            let result = unpacker.unpack(&packed, &mut vec![0; wrong_len]);
            assert_eq!(result, Err(WireError::Value("compressed part")));
        }
        let mut changed = packed.clone();
        changed[0] ^= 1;
        assert!(unpacker.unpack(&changed, &mut [0; 1000]).is_err());
        assert!(unpacker.unpack(&packed[..5], &mut [0; 1000]).is_err());
        assert!(unpacker.unpack(&[], &mut [0; 1000]).is_err());
        let mut back = [0; 1000];
        unpacker.unpack(&packed, &mut back).unwrap();
        assert_eq!(back, text);
    }

    #[test]
    fn lh_copy_75_packs_of_another_length_are_refused() {
        let frames: Vec<u8> = b"frames ".repeat(30_000);
        let part = |data: &[u8]| pack(data, 1);
        let (first, last) = frames.split_at(MAX_PART_BYTES);
        let whole = [part(first), part(last)].concat();
        assert!(whole.len() < 10_000, "{}", whole.len());
        let mut unpacker = Unpacker::default();
        let mut unpack =
            |parts: &[u8], len| unpack_frames(&mut unpacker, len, Bytes::copy_from_slice(parts));
        assert_eq!(unpack(&whole, frames.len()).unwrap(), frames);
        for len in [1, first.len(), frames.len() - 1, frames.len() + 1] {
            assert!(unpack(&whole, len).is_err(), "{len}");
        }
        for cut in [0, 3, 4, part(first).len(), whole.len() - 1] {
            assert!(unpack(&whole[..cut], frames.len()).is_err(), "{cut}");
        }
        assert_eq!(
            unpack(&[&whole[..], b"x"].concat(), frames.len()),
            Err(WireError::Long)
        );
        // What does not shrink is sent as it is.
        assert_eq!(unpack(b"\x03\0\0\0abc", 3).unwrap(), b"abc"[..]);
        assert_eq!(unpack(b"\x04\0\0\0abcd", 3), Err(WireError::Bound));
    }
}
