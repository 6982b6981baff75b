//! Reads frames from a byte stream, and manages the buffers that blocks travel in. Every length is
//! checked before anything is allocated.

#![deny(clippy::indexing_slicing)] // what is read here comes from the network
#![cfg_attr(test, allow(clippy::indexing_slicing))]

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use longhaul_session::PlaintextRanges;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::error::Error;
use crate::packed::{
    EXISTING_PART, MAX_PATCH_PARTS, PART_HEAD_BYTES, Unpacker, max_packed_len, part_lengths,
    unpack_frames,
};
use crate::tree_hash::BlockHash;
use crate::wire::{
    BLOCK_FIXED, BLOCK_LOG2, Block, FRAME_HEAD_BYTES, Frame, FrameType, MAX_BODY_BYTES,
    MAX_HELLO_BYTES, WireError,
};
use crate::wire::{block_header_len, decode};

/// Silence after which a peer is considered gone (LH-COPY-28). A living peer sends KEEPALIVE every
/// [`KEEP_ALIVE_INTERVAL`].
pub(crate) const SILENCE_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum time between two frames of one side.
pub(crate) const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// Interval of a server's reports on its end of a stream.
pub(crate) const FLOW_REPORT_INTERVAL: Duration = Duration::from_millis(500);
/// Size of the read-ahead, in bytes.
const READ_AHEAD_BYTES: usize = 64 * 1024;
/// Number of bytes of a block that are read at once. They fit a core's second-level cache with room
/// to spare.
const READ_PART_BYTES: usize = 128 * 1024;
/// Unit of the parts that observers of arriving data receive, in bytes. BLAKE3 is fastest on whole
/// subtrees.
const ARRIVED_PART_BYTES: usize = 64 * 1024;

/// A frame, or the header of a block whose data follows.
#[derive(Debug)]
pub(crate) enum IncomingFrame {
    Frame(Frame),
    /// A block, whose data must be taken with [`FrameReader::read_data`].
    Block(Block, BlockForm),
}

/// Form in which the data of a block follows its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockForm {
    /// As it is, encrypted if the session is.
    Protected,
    /// In plaintext. It has this hash (LH-COPY-44).
    Plaintext(BlockHash),
    /// In compressed parts (LH-COPY-61).
    Packed,
    /// In parts, some of which are in the existing file. The block has this hash (LH-COPY-64).
    Patch(BlockHash),
}

/// Range of a block whose data is in the existing file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MissingRange {
    /// Position in the block's data, and length, in bytes.
    pub at: usize,
    pub len: usize,
    /// Offset in the existing file.
    pub offset: u64,
}

/// Reader of frames.
pub(crate) struct FrameReader<R> {
    inner: R,
    buf: BytesMut,
    /// Bytes of the announced block that are still unread.
    data_left: usize,
    /// Handle that announces plaintext bytes to the stream, if they are allowed.
    clear: Option<Arc<PlaintextRanges>>,
    /// Bytes of frames read so far, without the data of blocks.
    taken: u64,
    unpacker: Unpacker,
    pack: OpenPack,
}

/// Frames of a PACK that have not been taken yet.
#[derive(Default)]
struct OpenPack {
    frames: Bytes,
    /// Length of all frames of the pack, in bytes. They stay in memory until the last one is
    /// dropped.
    len: usize,
    /// Bytes that the pack has kept off the network and that are not counted yet.
    saved: usize,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub(crate) fn new(inner: R) -> Self {
        Self {
            inner,
            buf: BytesMut::new(),
            data_left: 0,
            clear: None,
            taken: 0,
            unpacker: Unpacker::default(),
            pack: OpenPack::default(),
        }
    }

    /// Allows the data of blocks to arrive in plaintext from now on (LH-COPY-43).
    pub(crate) fn allow_plaintext(&mut self, clear: Arc<PlaintextRanges>) {
        clear.expect_plaintext();
        self.clear = Some(clear);
    }

    /// Returns the number of bytes of frames read so far, without the data of blocks. All frames of
    /// a pack count when the first one is read.
    pub(crate) fn frame_bytes(&self) -> u64 {
        self.taken
    }

    /// Returns the number of bytes among [`Self::frame_bytes`] that frames to come keep in memory.
    pub(crate) fn open_pack_bytes(&self) -> u64 {
        match self.pack.frames.is_empty() {
            true => 0,
            false => self.pack.len as u64,
        }
    }

    /// Counts how many bytes compression has kept off the network, of `data` bytes of a file that
    /// arrived in a frame.
    pub(crate) fn take_saved(&mut self, data: usize) -> u64 {
        let saved = self.pack.saved.min(data);
        self.pack.saved -= saved;
        saved as u64
    }

    /// Returns the number of bytes of the announced block on the wire.
    pub(crate) fn block_wire_bytes(&self) -> usize {
        self.data_left
    }

    /// Returns the stream and the bytes read ahead of it.
    pub(crate) fn into_inner(self) -> R {
        self.inner
    }

    /// Returns the next frame, or `None` at a clean end of the stream.
    pub(crate) async fn next(&mut self) -> Result<Option<IncomingFrame>, Error> {
        debug_assert_eq!(self.data_left, 0);
        if self.pack.frames.is_empty() {
            if !self.fill(FRAME_HEAD_BYTES).await? {
                return Ok(None);
            }
            let (len, frame_type) = parse_head(&self.buf).map_err(broken)?;
            if is_block(frame_type) {
                return self.block(frame_type, len).await.map(Some);
            }
            self.fill(FRAME_HEAD_BYTES + len).await?;
            self.buf.advance(FRAME_HEAD_BYTES);
            let body = self.buf.split_to(len).freeze();
            match decode(frame_type, body).map_err(broken)? {
                Frame::Pack { len, parts } => self.open_pack(len as usize, parts)?,
                frame => {
                    self.taken += (FRAME_HEAD_BYTES + len) as u64;
                    return Ok(Some(IncomingFrame::Frame(frame)));
                }
            }
        }
        let frame = self.next_of_pack().map_err(broken)?;
        Ok(Some(IncomingFrame::Frame(frame)))
    }

    /// Decompresses a PACK.
    fn open_pack(&mut self, len: usize, parts: Bytes) -> Result<(), Error> {
        let saved = len.saturating_sub(FRAME_HEAD_BYTES + size_of::<u32>() + parts.len());
        let frames = unpack_frames(&mut self.unpacker, len, parts).map_err(broken)?;
        self.taken += len as u64;
        self.pack = OpenPack { frames, len, saved };
        Ok(())
    }

    /// Takes the next frame of the pack.
    fn next_of_pack(&mut self) -> Result<Frame, WireError> {
        let frames = &mut self.pack.frames;
        let (len, frame_type) = parse_head(frames)?;
        if !is_packed(frame_type) {
            return Err(WireError::Value("frame in a pack"));
        }
        frames.advance(FRAME_HEAD_BYTES);
        if frames.len() < len {
            return Err(WireError::Short);
        }
        decode(frame_type, frames.split_to(len))
    }

    /// Returns true if [`Self::next`] would return a frame other than a block without waiting.
    pub(crate) fn has_small_frame(&self) -> bool {
        !self.pack.frames.is_empty()
            || matches!(
                parse_head(&self.buf),
                Ok((len, t)) if !is_block(t) && self.buf.len() >= FRAME_HEAD_BYTES + len
            )
    }

    async fn block(&mut self, frame_type: FrameType, len: usize) -> Result<IncomingFrame, Error> {
        self.fill(FRAME_HEAD_BYTES + BLOCK_FIXED).await?;
        let fixed = self
            .buf
            .get(FRAME_HEAD_BYTES..)
            .and_then(<[u8]>::first_chunk);
        let header = fixed
            .ok_or(WireError::Short)
            .and_then(block_header_len)
            .map_err(broken)?;
        let header = match frame_type {
            FrameType::ClearBlock | FrameType::PatchBlock => header + size_of::<BlockHash>(),
            _ => header,
        };
        if header > len {
            return Err(broken(WireError::Short));
        }
        self.fill(FRAME_HEAD_BYTES + header).await?;
        self.buf.advance(FRAME_HEAD_BYTES);
        let frame = decode(frame_type, self.buf.split_to(header).freeze()).map_err(broken)?;
        let (block, form) = match frame {
            Frame::PackedBlock(block) => {
                self.data_left = len - header;
                return match self.data_left > max_packed_len(&block) {
                    true => Err(broken(WireError::Value("block length"))),
                    false => Ok(IncomingFrame::Block(block, BlockForm::Packed)),
                };
            }
            Frame::PatchBlock(block, hash) => {
                // LH-COPY-64.
                if !block.is_all_data() {
                    return Err(broken(WireError::Value("patch of a block with holes")));
                }
                self.data_left = len - header;
                return Ok(IncomingFrame::Block(block, BlockForm::Patch(hash)));
            }
            Frame::Block(block) => (block, BlockForm::Protected),
            Frame::ClearBlock(block, hash) => (block, BlockForm::Plaintext(hash)),
            _ => return Err(broken(WireError::Value("block"))),
        };
        if block.data_len() != len - header {
            return Err(broken(WireError::Value("block length")));
        }
        self.data_left = block.data_len();
        if matches!(form, BlockForm::Plaintext(_)) {
            // LH-COPY-43.
            let clear = self.clear.as_ref();
            let clear = clear.ok_or_else(|| {
                Error::Protocol("it sent plaintext data, which was not agreed on".into())
            })?;
            clear.mark_read(self.data_left.saturating_sub(self.buf.len()));
        }
        Ok(IncomingFrame::Block(block, form))
    }

    /// Reads the data of the announced block into `out`, which must have its exact length.
    /// `arrived` receives all of it in order, in parts that are still in the processor's cache.
    /// Returns what is missing in a patch, of which `arrived` receives nothing.
    pub(crate) async fn read_data(
        &mut self,
        block: &Block,
        form: BlockForm,
        out: &mut [u8],
        arrived: impl FnMut(&[u8]),
    ) -> Result<Vec<MissingRange>, Error> {
        match form {
            BlockForm::Packed => self.read_packed(block, out, arrived).await?,
            BlockForm::Protected | BlockForm::Plaintext(_) => self.read_plain(out, arrived).await?,
            BlockForm::Patch(_) => return self.read_patch(out).await,
        }
        Ok(Vec::new())
    }

    async fn read_plain(
        &mut self,
        out: &mut [u8],
        mut arrived: impl FnMut(&[u8]),
    ) -> Result<(), Error> {
        self.data_left = 0;
        let mut filled = self.buf.len().min(out.len());
        let mut given = 0;
        self.buf
            .copy_to_slice(out.get_mut(..filled).unwrap_or_default());
        loop {
            let whole_parts = match filled == out.len() {
                true => filled,
                false => filled - filled % ARRIVED_PART_BYTES,
            };
            if whole_parts > given {
                arrived(out.get(given..whole_parts).unwrap_or_default());
                given = whole_parts;
            }
            if filled == out.len() {
                return Ok(());
            }
            let until = out.len().min(filled + READ_PART_BYTES);
            let n = read_with_timeout(
                self.inner
                    .read(out.get_mut(filled..until).unwrap_or_default()),
            )
            .await?;
            if n == 0 {
                return Err(truncated());
            }
            filled += n;
        }
    }

    /// Reads compressed parts (LH-COPY-61).
    async fn read_packed(
        &mut self,
        block: &Block,
        out: &mut [u8],
        mut arrived: impl FnMut(&[u8]),
    ) -> Result<(), Error> {
        let mut left = std::mem::take(&mut self.data_left);
        let mut out = out;
        for len in part_lengths(block) {
            let (part, rest) = out.split_at_mut_checked(len).ok_or_else(truncated)?;
            out = rest;
            take_bytes(&mut left, PART_HEAD_BYTES)?;
            self.fill_all(PART_HEAD_BYTES).await?;
            let packed = self.buf.get_u32_le() as usize;
            take_bytes(&mut left, packed)?;
            if packed > len {
                return Err(broken(WireError::Bound));
            }
            self.fill_all(packed).await?;
            self.unpacker
                .unpack(self.buf.get(..packed).unwrap_or_default(), part)
                .map_err(broken)?;
            self.buf.advance(packed);
            arrived(part);
        }
        match left {
            0 => Ok(()),
            _ => Err(broken(WireError::Long)),
        }
    }

    /// Reads the parts of a patch (LH-COPY-64). Returns those that are in the existing file.
    async fn read_patch(&mut self, out: &mut [u8]) -> Result<Vec<MissingRange>, Error> {
        let mut left = std::mem::take(&mut self.data_left);
        let (mut missing, mut at) = (Vec::new(), 0);
        while at < out.len() {
            take_bytes(&mut left, PART_HEAD_BYTES)?;
            self.fill_all(PART_HEAD_BYTES).await?;
            let head = self.buf.get_u32_le();
            let len = (head & !EXISTING_PART) as usize;
            let end = at.saturating_add(len);
            let part = out.get_mut(at..end).filter(|part| !part.is_empty());
            let part = part.ok_or_else(|| broken(WireError::Value("part")))?;
            if head & EXISTING_PART != 0 {
                take_bytes(&mut left, size_of::<u64>())?;
                self.fill_all(size_of::<u64>()).await?;
                let offset = self.buf.get_u64_le();
                if missing.len() == MAX_PATCH_PARTS {
                    return Err(broken(WireError::Bound));
                }
                missing.push(MissingRange { at, len, offset });
            } else {
                take_bytes(&mut left, len)?;
                self.read_exact(part).await?;
            }
            at = end;
        }
        match left {
            0 => Ok(missing),
            _ => Err(broken(WireError::Long)),
        }
    }

    /// Fills `out` with the next bytes.
    async fn read_exact(&mut self, out: &mut [u8]) -> Result<(), Error> {
        let buffered = self.buf.len().min(out.len());
        let (first, rest) = out.split_at_mut(buffered);
        self.buf.copy_to_slice(first);
        let mut rest = rest;
        while !rest.is_empty() {
            let n = read_with_timeout(self.inner.read(rest)).await?;
            if n == 0 {
                return Err(truncated());
            }
            rest = rest.get_mut(n..).unwrap_or_default();
        }
        Ok(())
    }

    /// Reads until at least `want` bytes are buffered.
    async fn fill_all(&mut self, want: usize) -> Result<(), Error> {
        match self.fill(want).await? {
            true => Ok(()),
            false => Err(truncated()),
        }
    }

    /// Reads until at least `want` bytes are buffered. Returns false at a clean end.
    async fn fill(&mut self, want: usize) -> Result<bool, Error> {
        while self.buf.len() < want {
            self.buf
                .reserve((want - self.buf.len()).max(READ_AHEAD_BYTES));
            // `reserve` may make more room than requested, so this may read more than `want`.
            let n = read_with_timeout(self.inner.read_buf(&mut self.buf)).await?;
            if n == 0 {
                return if self.buf.is_empty() && want == FRAME_HEAD_BYTES {
                    Ok(false)
                } else {
                    Err(truncated())
                };
            }
        }
        Ok(true)
    }
}

/// Takes `bytes` from what is left of a frame.
fn take_bytes(left: &mut usize, bytes: usize) -> Result<(), Error> {
    let rest = left.checked_sub(bytes);
    *left = rest.ok_or_else(|| broken(WireError::Short))?;
    Ok(())
}

/// Returns true if the frame has the data of a block behind its header.
fn is_block(frame_type: FrameType) -> bool {
    matches!(
        frame_type,
        FrameType::Block | FrameType::ClearBlock | FrameType::PackedBlock | FrameType::PatchBlock
    )
}

/// Returns true if the frame may be in a pack (LH-COPY-75).
fn is_packed(frame_type: FrameType) -> bool {
    matches!(
        frame_type,
        FrameType::File
            | FrameType::Small
            | FrameType::Directory
            | FrameType::Symlink
            | FrameType::Special
            | FrameType::FileEnd
            | FrameType::LateEnd
            | FrameType::Failed
            | FrameType::End
            | FrameType::Offer
            | FrameType::HardLink
    )
}

/// Returns the body length and the type of the frame at the start of `buf` (LH-COPY-1).
fn parse_head(buf: &[u8]) -> Result<(usize, FrameType), WireError> {
    let Some((&[a, b, c, d, kind], _)) = buf.split_first_chunk::<FRAME_HEAD_BYTES>() else {
        return Err(WireError::Short);
    };
    let len = u32::from_le_bytes([a, b, c, d]) as usize;
    let len = len.checked_sub(1).ok_or(WireError::Short)?;
    let frame_type = FrameType::from_repr(kind).ok_or(WireError::Type(kind))?;
    let bound = match frame_type {
        _ if is_block(frame_type) => (1 << BLOCK_LOG2.end()) + 4096,
        FrameType::Hello => MAX_HELLO_BYTES,
        _ => MAX_BODY_BYTES,
    };
    if len > bound {
        Err(WireError::Bound)
    } else {
        Ok((len, frame_type))
    }
}

/// Waits for a read, at most [`SILENCE_TIMEOUT`].
async fn read_with_timeout<T>(read: impl Future<Output = std::io::Result<T>>) -> Result<T, Error> {
    match tokio::time::timeout(SILENCE_TIMEOUT, read).await {
        Ok(result) => Ok(result?),
        Err(_) => Err(Error::Stream(std::io::Error::new(
            std::io::ErrorKind::TimedOut,
            format!("received nothing for {} s", SILENCE_TIMEOUT.as_secs()),
        ))),
    }
}

fn truncated() -> Error {
    Error::Stream(std::io::Error::new(
        std::io::ErrorKind::UnexpectedEof,
        "the stream ends in the middle of a frame",
    ))
}

pub(crate) fn broken(error: WireError) -> Error {
    Error::Protocol(error.to_string())
}

/// Pool of buffers for blocks. New ones would cost a page fault for every 4 KiB.
#[derive(Default)]
pub(crate) struct BufferPool(Mutex<Vec<Vec<u8>>>);

/// Maximum number of idle buffers that are kept.
const MAX_IDLE_BUFFERS: usize = 16;
/// Size of the smallest buffer that is kept. A smaller one, for a hole, is cheap to allocate.
const MIN_IDLE_BUFFER_BYTES: usize = 64 * 1024;

impl BufferPool {
    /// Returns a buffer of arbitrary content and length.
    pub(crate) fn take(&self) -> Vec<u8> {
        self.0.lock().pop().unwrap_or_default()
    }

    /// Returns `buffer` to the pool.
    pub(crate) fn put_back(&self, buffer: Vec<u8>) {
        let mut idle = self.0.lock();
        if idle.len() < MAX_IDLE_BUFFERS && buffer.len() >= MIN_IDLE_BUFFER_BYTES {
            idle.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packed::Packer;
    use crate::wire::{Extent, finish_frame_of_parts};

    #[tokio::test]
    async fn frames_and_blocks_are_read_however_they_are_split() {
        let block = Block {
            id: 1,
            offset: 0,
            len: 100,
            extents: vec![Extent { offset: 10, len: 5 }],
        };
        let mut bytes = Vec::new();
        Frame::KeepAlive.encode(&mut bytes);
        Frame::Block(block.clone()).encode(&mut bytes);
        bytes.extend_from_slice(b"12345");
        Frame::Ack { id: 1, offset: 0 }.encode(&mut bytes);
        for step in 1..=bytes.len() {
            let chunks: Vec<_> = bytes
                .chunks(step)
                .map(|c| Ok::<_, std::io::Error>(Bytes::copy_from_slice(c)))
                .collect();
            let mut reader = FrameReader::new(Chunks(chunks.into_iter().collect()));
            assert!(matches!(
                reader.next().await.unwrap(),
                Some(IncomingFrame::Frame(Frame::KeepAlive))
            ));
            let Some(IncomingFrame::Block(got, BlockForm::Protected)) =
                reader.next().await.unwrap()
            else {
                panic!("no block")
            };
            assert_eq!(got, block);
            let mut data = [0; 5];
            let mut arrived = Vec::new();
            let looked = |part: &[u8]| arrived.extend_from_slice(part);
            let form = BlockForm::Protected;
            let read = reader.read_data(&got, form, &mut data, looked);
            read.await.unwrap();
            assert_eq!((&data, &arrived[..]), (b"12345", &b"12345"[..]));
            assert!(matches!(
                reader.next().await.unwrap(),
                Some(IncomingFrame::Frame(Frame::Ack { id: 1, offset: 0 }))
            ));
            assert!(reader.next().await.unwrap().is_none());
        }
        for cut in 1..bytes.len() {
            let mut reader = FrameReader::new(&bytes[..cut]);
            let result = async {
                while let Some(incoming) = reader.next().await? {
                    if let IncomingFrame::Block(block, form) = incoming {
                        reader
                            .read_data(&block, form, &mut vec![0; block.data_len()], |_| ())
                            .await?;
                    }
                }
                Ok::<_, Error>(())
            };
            let at_boundary = [5, bytes.len() - 21].contains(&cut);
            assert_eq!(result.await.is_ok(), at_boundary, "cut at {cut}");
        }
    }

    #[tokio::test]
    async fn lh_copy_1_excessive_length_is_refused_before_use() {
        for kind in (1..=16u8).chain([22, 30, 31, 32, 33]) {
            let bytes = [0xff, 0xff, 0xff, 0x7f, kind];
            assert!(matches!(
                FrameReader::new(&bytes[..]).next().await,
                Err(Error::Protocol(_))
            ));
        }
        assert!(matches!(
            FrameReader::new(&[1u8, 0, 0, 0, 99][..]).next().await,
            Err(Error::Protocol(_))
        ));
        assert!(matches!(
            FrameReader::new(&[0u8, 0, 0, 0, 1][..]).next().await,
            Err(Error::Protocol(_))
        ));
    }

    #[tokio::test]
    async fn lh_copy_43_plaintext_is_accepted_only_if_agreed() {
        let block = Block {
            id: 1,
            offset: 0,
            len: 5,
            extents: vec![Extent { offset: 0, len: 5 }],
        };
        let hash = BlockHash::from_bytes([9; 32]);
        let mut bytes = Vec::new();
        Frame::ClearBlock(block.clone(), hash).encode(&mut bytes);
        bytes.extend_from_slice(b"12345");
        let mut reader = FrameReader::new(&bytes[..]);
        assert!(matches!(reader.next().await, Err(Error::Protocol(_))));
        let mut reader = FrameReader::new(&bytes[..]);
        reader.allow_plaintext(Arc::default());
        let Some(IncomingFrame::Block(got, BlockForm::Plaintext(said))) =
            reader.next().await.unwrap()
        else {
            panic!("no block")
        };
        assert_eq!((&got, said), (&block, hash));
        let mut data = [0; 5];
        let form = BlockForm::Plaintext(said);
        let read = reader.read_data(&got, form, &mut data, |_| ());
        read.await.unwrap();
        assert_eq!(&data, b"12345");
    }

    /// Returns a frame that consists of a block's header and these parts.
    fn with_parts(header: &Frame, parts: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        header.encode(&mut bytes);
        bytes.extend_from_slice(parts);
        finish_frame_of_parts(&mut bytes);
        bytes
    }

    /// Data of a block, the part of it that the observer got, and the ranges that are missing.
    type BlockRead = (Vec<u8>, Vec<u8>, Vec<MissingRange>);

    /// Reads the frame of a block that arrives in chunks of `step` bytes, and a frame behind it.
    async fn read_frame(frame: &[u8], step: usize) -> Result<BlockRead, Error> {
        let mut bytes = frame.to_vec();
        Frame::KeepAlive.encode(&mut bytes);
        let chunks = bytes
            .chunks(step)
            .map(|chunk| Ok(Bytes::copy_from_slice(chunk)));
        let mut reader = FrameReader::new(Chunks(chunks.collect()));
        let Some(IncomingFrame::Block(block, form)) = reader.next().await? else {
            panic!("no block")
        };
        let (mut data, mut arrived) = (vec![0; block.data_len()], Vec::new());
        let observe = |part: &[u8]| arrived.extend_from_slice(part);
        let missing = reader.read_data(&block, form, &mut data, observe).await?;
        assert!(matches!(
            reader.next().await?,
            Some(IncomingFrame::Frame(Frame::KeepAlive))
        ));
        assert!(reader.next().await?.is_none());
        Ok((data, arrived, missing))
    }

    async fn assert_truncation_is_noticed(frame: &[u8]) {
        for cut in 1..frame.len() {
            let mut reader = FrameReader::new(&frame[..cut]);
            let read = async {
                if let Some(IncomingFrame::Block(block, form)) = reader.next().await? {
                    let mut data = vec![0; block.data_len()];
                    reader.read_data(&block, form, &mut data, |_| ()).await?;
                }
                Ok::<_, Error>(())
            };
            assert!(matches!(read.await, Err(Error::Stream(_))), "cut at {cut}");
        }
    }

    /// Packs a part, with its head.
    fn pack(part: &[u8]) -> Vec<u8> {
        let mut packer = Packer::new(1);
        packer.part(part.len()).copy_from_slice(part);
        let mut out = vec![0; PART_HEAD_BYTES + part.len()];
        let len = packer.pack(part.len(), &mut out);
        out.truncate(len);
        out
    }

    fn part_of(head: u32, data: &[u8]) -> Vec<u8> {
        [&head.to_le_bytes()[..], data].concat()
    }

    /// A block with parts of 1000 bytes and 5 bytes.
    fn packed_block() -> Frame {
        Frame::PackedBlock(Block {
            id: 1,
            offset: 0,
            len: 4096,
            extents: vec![
                Extent {
                    offset: 0,
                    len: 1000,
                },
                Extent {
                    offset: 2000,
                    len: 5,
                },
            ],
        })
    }

    #[tokio::test]
    async fn packed_blocks_are_read_however_they_are_split() {
        let parts = [pack(&[7; 1000]), pack(b"12345")].concat();
        assert!(parts.len() < 100, "{}", parts.len());
        let frame = with_parts(&packed_block(), &parts);
        let expected = [&[7; 1000][..], b"12345"].concat();
        for step in 1..=frame.len() {
            let (data, arrived, missing) = read_frame(&frame, step).await.unwrap();
            assert_eq!(data, expected);
            assert_eq!(arrived, expected);
            assert!(missing.is_empty());
        }
        assert_truncation_is_noticed(&frame).await;
    }

    #[tokio::test]
    async fn lh_copy_61_wrong_packed_blocks_are_refused() {
        let (long, short) = (pack(&[7; 1000]), pack(b"12345"));
        for parts in [
            vec![],
            long.clone(),
            [&long[..], &short, b"x"].concat(),
            // Longer than its data, alone and in a frame that is too long.
            part_of(1001, &[7; 1001]),
            [part_of(1001, &[7; 1001]), short.clone()].concat(),
            // Longer than the frame.
            part_of(900, &[7; 10]),
            part_of(u32::MAX, &[7; 10]),
            // No Zstandard, and Zstandard of other lengths.
            [part_of(10, &[7; 10]), short.clone()].concat(),
            [part_of(0, &[]), short.clone()].concat(),
            [pack(&[7; 999]), short.clone()].concat(),
            [pack(&[7; 1001]), short.clone()].concat(),
        ] {
            let frame = with_parts(&packed_block(), &parts);
            let read = read_frame(&frame, frame.len()).await;
            assert!(matches!(read, Err(Error::Protocol(_))), "{parts:?}");
        }
    }

    /// Returns a PACK of these frames.
    fn pack_of(frames: &[Frame]) -> Vec<u8> {
        let mut content = Vec::new();
        for frame in frames {
            frame.encode(&mut content);
        }
        pack_bytes(&content)
    }

    /// Returns a PACK of these bytes, which need not be frames.
    fn pack_bytes(content: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let parts = pack(content).into();
        let len = content.len() as u32;
        Frame::Pack { len, parts }.encode(&mut bytes);
        bytes
    }

    fn end(entries: u64) -> Frame {
        Frame::End { entries, bytes: 7 }
    }

    fn small(id: u64) -> Frame {
        Frame::Small {
            head: crate::wire::EntryHead {
                id,
                source: 0,
                path: crate::path::RelPath::root(),
            },
            meta: crate::wire::Meta::default(),
            hash: [0; 32],
            data: Bytes::from_static(&[7; 500]),
        }
    }

    /// Reads frames that arrive in chunks of `step` bytes.
    async fn read_frames(bytes: &[u8], step: usize) -> Result<Vec<Frame>, Error> {
        let chunks = bytes
            .chunks(step)
            .map(|chunk| Ok(Bytes::copy_from_slice(chunk)));
        let mut reader = FrameReader::new(Chunks(chunks.collect()));
        let mut frames = Vec::new();
        while let Some(incoming) = reader.next().await? {
            match incoming {
                IncomingFrame::Frame(frame) => frames.push(frame),
                IncomingFrame::Block(..) => panic!("a block"),
            }
        }
        Ok(frames)
    }

    #[tokio::test]
    async fn lh_copy_75_packs_are_read_however_they_are_split() {
        let mut bytes = Vec::new();
        Frame::KeepAlive.encode(&mut bytes);
        bytes.extend(pack_of(&[small(1), small(2), end(3)]));
        bytes.extend(pack_of(&[end(4)]));
        Frame::Retire.encode(&mut bytes);
        let expected = [
            Frame::KeepAlive,
            small(1),
            small(2),
            end(3),
            end(4),
            Frame::Retire,
        ];
        for step in 1..=bytes.len() {
            assert_eq!(read_frames(&bytes, step).await.unwrap(), expected);
        }
        let packs = bytes.len() - 5;
        let ends = [5, packs - pack_of(&[end(4)]).len(), packs];
        for cut in 1..bytes.len() {
            let read = read_frames(&bytes[..cut], cut).await;
            assert_eq!(read.is_ok(), ends.contains(&cut), "cut at {cut}");
        }
    }

    #[tokio::test]
    async fn lh_copy_75_packs_hold_whole_frames_of_a_sender_only() {
        let pack = |frame: Frame| pack_of(&[end(1), frame]);
        let block = Block {
            id: 1,
            offset: 0,
            len: 5,
            extents: vec![],
        };
        let mut cut = Vec::new();
        small(1).encode(&mut cut);
        cut.pop();
        let nested = Frame::Pack {
            len: 1,
            parts: Bytes::new(),
        };
        for bytes in [
            pack(Frame::KeepAlive),
            pack(Frame::Ack { id: 1, offset: 0 }),
            pack(Frame::Block(block.clone())),
            pack(Frame::PackedBlock(block)),
            pack(nested),
            pack_bytes(&cut),
            pack_bytes(&[7]),
        ] {
            let read = read_frames(&bytes, bytes.len()).await;
            assert!(matches!(read, Err(Error::Protocol(_))), "{bytes:?}");
        }
    }

    #[tokio::test]
    async fn memory_and_savings_of_a_pack_are_counted() {
        let bytes = pack_of(&[small(1), small(2)]);
        let mut reader = FrameReader::new(&bytes[..]);
        assert!(!reader.has_small_frame());
        reader.next().await.unwrap();
        let all = reader.frame_bytes();
        assert!(all > 1000 && reader.has_small_frame());
        assert_eq!(reader.open_pack_bytes(), all);
        let saved = reader.take_saved(500);
        assert_eq!(saved, 500, "no more than the data of one file");
        reader.next().await.unwrap();
        assert_eq!((reader.frame_bytes(), reader.open_pack_bytes()), (all, 0));
        let saved = saved + reader.take_saved(500);
        assert!(saved > 900 && !reader.has_small_frame());
        assert_eq!(reader.take_saved(0), 0);
    }

    /// A block of `len` bytes without holes.
    fn patch_block(len: u32) -> Frame {
        let block = Block {
            id: 1,
            offset: 0,
            len,
            extents: vec![Extent { offset: 0, len }],
        };
        Frame::PatchBlock(block, BlockHash::from_bytes([9; 32]))
    }

    /// A part of `len` bytes that is at `offset` of the existing file.
    fn reference(len: u32, offset: u64) -> Vec<u8> {
        part_of(len | EXISTING_PART, &offset.to_le_bytes())
    }

    #[tokio::test]
    async fn patch_blocks_are_read_however_they_are_split() {
        let parts = [
            part_of(100, &[1; 100]),
            reference(150, 1 << 40),
            part_of(50, &[2; 50]),
            reference(30, 7),
        ];
        let frame = with_parts(&patch_block(330), &parts.concat());
        for step in 1..=frame.len() {
            let (data, arrived, missing) = read_frame(&frame, step).await.unwrap();
            assert_eq!(data[..100], [1; 100]);
            assert_eq!(data[250..300], [2; 50]);
            assert!(arrived.is_empty());
            let range = |at, len, offset| MissingRange { at, len, offset };
            assert_eq!(missing, [range(100, 150, 1 << 40), range(300, 30, 7)]);
        }
        assert_truncation_is_noticed(&frame).await;
    }

    #[tokio::test]
    async fn lh_copy_64_wrong_patch_blocks_are_refused() {
        let references = |number: usize| reference(1, 0).repeat(number);
        let whole = part_of(300, &[1; 300]);
        for parts in [
            vec![],
            part_of(100, &[1; 100]),
            [&whole[..], b"x"].concat(),
            [whole.clone(), part_of(0, &[])].concat(),
            // Empty parts.
            [part_of(0, &[]), whole.clone()].concat(),
            [reference(0, 0), whole].concat(),
            // Longer than the block.
            part_of(301, &[1; 301]),
            reference(301, 0),
            reference(EXISTING_PART - 1, u64::MAX),
            // Longer than the frame.
            part_of(300, &[1; 10]),
            part_of(300 | EXISTING_PART, &[1; 4]),
        ] {
            let frame = with_parts(&patch_block(300), &parts);
            let read = read_frame(&frame, frame.len()).await;
            assert!(matches!(read, Err(Error::Protocol(_))), "{parts:?}");
        }
        for (number, is_read) in [(MAX_PATCH_PARTS, true), (MAX_PATCH_PARTS + 1, false)] {
            let frame = with_parts(&patch_block(number as u32), &references(number));
            assert_eq!(read_frame(&frame, frame.len()).await.is_ok(), is_read);
        }
        let Frame::PatchBlock(mut block, hash) = patch_block(300) else {
            panic!("another frame")
        };
        block.len = 400;
        let frame = with_parts(&Frame::PatchBlock(block, hash), &part_of(300, &[1; 300]));
        let read = read_frame(&frame, frame.len()).await;
        assert!(matches!(read, Err(Error::Protocol(_))), "holes");
    }

    struct Chunks(std::collections::VecDeque<std::io::Result<Bytes>>);

    impl AsyncRead for Chunks {
        fn poll_read(
            mut self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
            buf: &mut tokio::io::ReadBuf<'_>,
        ) -> std::task::Poll<std::io::Result<()>> {
            if let Some(chunk) = self.0.pop_front() {
                let mut chunk = chunk?;
                let n = chunk.len().min(buf.remaining());
                buf.put_slice(&chunk.split_to(n));
                if !chunk.is_empty() {
                    self.0.push_front(Ok(chunk));
                }
            }
            std::task::Poll::Ready(Ok(()))
        }
    }
}
