//! The frame around OPEN and STATUS: magic, two message-specific bytes, total length, CRC.
//!
//! ```text
//! 0      magic (4)
//! 4      two bytes that each message defines
//! 6      total length, header included (2)
//! 8      CRC-32 of the whole with this field zero (4)
//! 12     body
//! ```

use bytes::{BufMut, BytesMut};

/// Size of the frame header, in bytes.
pub(crate) const HEADER: usize = 12;

/// Reads one frame from a stream. Buffers at most `max` bytes, and never more than have arrived
/// (LH-OPEN-11).
#[derive(Debug, Clone)]
pub(crate) struct FrameReader {
    magic: [u8; 4],
    max: usize,
    accepts: fn([u8; 2]) -> bool,
    buffer: Vec<u8>,
}

/// Reason why bytes are not a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameError {
    Magic,
    /// The message-specific bytes are invalid. This takes precedence over later errors, because
    /// another version may have other bounds.
    Own([u8; 2]),
    Length(usize),
    Crc,
}

impl FrameReader {
    pub(crate) const fn new(magic: [u8; 4], max: usize, accepts: fn([u8; 2]) -> bool) -> Self {
        Self {
            magic,
            max,
            accepts,
            buffer: Vec::new(),
        }
    }

    /// Consumes the frame's bytes from `input`. Returns their number, and the whole frame once it
    /// is complete.
    pub(crate) fn feed(&mut self, input: &[u8]) -> Result<(usize, Option<Vec<u8>>), FrameError> {
        let mut used = 0;
        loop {
            let wanted = self.wanted()?;
            let missing = wanted.saturating_sub(self.buffer.len());
            if missing == 0 {
                return Ok((used, Some(self.finish()?)));
            }
            let rest = input.get(used..).unwrap_or_default();
            let part = rest.get(..missing.min(rest.len())).unwrap_or_default();
            if part.is_empty() {
                return Ok((used, None));
            }
            self.buffer.extend_from_slice(part);
            used += part.len();
            self.check_start()?;
        }
    }

    /// Returns the number of bytes buffered so far.
    pub(crate) fn held(&self) -> usize {
        self.buffer.len()
    }

    fn wanted(&self) -> Result<usize, FrameError> {
        let Some(&[high, low]) = self.buffer.get(6..8) else {
            return Ok(8);
        };
        let length = usize::from(u16::from_be_bytes([high, low]));
        if (HEADER..=self.max).contains(&length) {
            Ok(length)
        } else {
            Err(FrameError::Length(length))
        }
    }

    /// Checks the magic, then the message-specific bytes, each as soon as it has arrived. So the
    /// error does not depend on how the bytes were split.
    fn check_start(&self) -> Result<(), FrameError> {
        if self
            .buffer
            .iter()
            .zip(self.magic)
            .any(|(&byte, expected)| byte != expected)
        {
            return Err(FrameError::Magic);
        }
        match self.buffer.get(4..6) {
            Some(&[first, second]) if !(self.accepts)([first, second]) => {
                Err(FrameError::Own([first, second]))
            }
            _ => Ok(()),
        }
    }

    fn finish(&mut self) -> Result<Vec<u8>, FrameError> {
        let frame = std::mem::take(&mut self.buffer);
        let carried = frame
            .get(8..HEADER)
            .and_then(|field| field.try_into().ok())
            .map(u32::from_be_bytes);
        if carried == Some(checksum(&frame)) {
            Ok(frame)
        } else {
            Err(FrameError::Crc)
        }
    }
}

/// Appends a frame around `body`. Fails and leaves `out` unchanged if the frame would exceed `max`
/// bytes.
pub(crate) fn write(
    out: &mut BytesMut,
    magic: [u8; 4],
    own: [u8; 2],
    max: usize,
    body: &[u8],
) -> Result<(), usize> {
    let total = HEADER + body.len();
    let length = u16::try_from(total)
        .ok()
        .filter(|_| total <= max)
        .ok_or(total)?;
    let start = out.len();
    out.put_slice(&magic);
    out.put_slice(&own);
    out.put_u16(length);
    out.put_u32(0);
    out.put_slice(body);
    let crc = checksum(out.get(start..).unwrap_or_default());
    if let Some(field) = out.get_mut(start + 8..start + HEADER) {
        field.copy_from_slice(&crc.to_be_bytes());
    }
    Ok(())
}

/// Returns the CRC-32 (IEEE 802.3) of a frame, with its own field taken as zero (LH-OPEN-4).
fn checksum(frame: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(frame.get(..8).unwrap_or_default());
    hasher.update(&[0; 4]);
    hasher.update(frame.get(HEADER..).unwrap_or_default());
    hasher.finalize()
}
