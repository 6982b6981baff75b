//! Reads frames from a byte stream, and manages the buffers that blocks travel in. Every length is
//! checked before anything is allocated.

#![deny(clippy::indexing_slicing)] // what is read here comes from the network
#![cfg_attr(test, allow(clippy::indexing_slicing))]

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use longhaul_session::PlaintextRanges;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::error::Error;
use crate::packed::{EXISTING_PART, MAX_PATCH_PARTS, PART_HEAD_BYTES, Unpacker, max_packed_len, part_lengths};
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
        }
    }

    /// Allows the data of blocks to arrive in plaintext from now on (LH-COPY-43).
    pub(crate) fn allow_plaintext(&mut self, clear: Arc<PlaintextRanges>) {
        clear.expect_plaintext();
        self.clear = Some(clear);
    }

    /// Returns the number of bytes of frames read so far, without the data of blocks.
    pub(crate) fn frame_bytes(&self) -> u64 {
        self.taken
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
        self.taken += (FRAME_HEAD_BYTES + len) as u64;
        Ok(Some(IncomingFrame::Frame(
            decode(frame_type, body).map_err(broken)?,
        )))
    }

    /// Returns true if [`Self::next`] would return a frame other than a block without waiting.
    pub(crate) fn has_small_frame(&self) -> bool {
        matches!(
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
            self.fill_all(PART_HEAD_BYTES).await?;
            let packed = self.buf.get_u32_le() as usize;
            left = left
                .checked_sub(PART_HEAD_BYTES.saturating_add(packed))
                .ok_or_else(|| broken(WireError::Short))?;
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
        let mut take = |bytes: usize| {
            let rest = left.checked_sub(bytes);
            left = rest.ok_or_else(|| broken(WireError::Short))?;
            Ok::<_, Error>(left)
        };
        let (mut missing, mut at) = (Vec::new(), 0);
        while at < out.len() {
            take(PART_HEAD_BYTES)?;
            self.fill_all(PART_HEAD_BYTES).await?;
            let head = self.buf.get_u32_le();
            let len = (head & !EXISTING_PART) as usize;
            let end = at.saturating_add(len);
            let part = out.get_mut(at..end).filter(|part| !part.is_empty());
            let part = part.ok_or_else(|| broken(WireError::Value("part")))?;
            if head & EXISTING_PART != 0 {
                take(size_of::<u64>())?;
                self.fill_all(size_of::<u64>()).await?;
                let offset = self.buf.get_u64_le();
                if missing.len() == MAX_PATCH_PARTS {
                    return Err(broken(WireError::Bound));
                }
                missing.push(MissingRange { at, len, offset });
            } else {
                take(len)?;
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

/// Returns true if the frame has the data of a block behind its header.
fn is_block(frame_type: FrameType) -> bool {
    matches!(
        frame_type,
        FrameType::Block
            | FrameType::ClearBlock
            | FrameType::PackedBlock
            | FrameType::PatchBlock
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
    use crate::wire::Extent;

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
                .map(|c| Ok::<_, std::io::Error>(bytes::Bytes::copy_from_slice(c)))
                .collect();
            let mut reader = FrameReader::new(Chunks(chunks.into_iter().collect()));
            assert!(matches!(
                reader.next().await.unwrap(),
                Some(IncomingFrame::Frame(Frame::KeepAlive))
            ));
            let Some(IncomingFrame::Block(got, BlockForm::Protected)) = reader.next().await.unwrap() else {
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
        for kind in 1..=16u8 {
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
        let Some(IncomingFrame::Block(got, BlockForm::Plaintext(said))) = reader.next().await.unwrap() else {
            panic!("no block")
        };
        assert_eq!((got, said), (block, hash));
        let mut data = [0; 5];
        let form = BlockForm::Plaintext(said);
        let read = reader.read_data(&got, form, &mut data, |_| ());
        read.await.unwrap();
        assert_eq!(&data, b"12345");
    }

    struct Chunks(std::collections::VecDeque<std::io::Result<bytes::Bytes>>);

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
