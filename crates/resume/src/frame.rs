//! Frames on a connection of a stream (LH-RESUME-6), and their decoder.

/// Maximum length of the data of one frame, in bytes.
pub const MAX_FRAME_DATA_BYTES: usize = 256 * 1024;
/// Size of the longest frame without its data, in bytes.
const MAX_HEADER_BYTES: usize = 17;

const DATA: u8 = 1;
const ACK: u8 = 2;
const FIN: u8 = 3;
const RESET: u8 = 4;
const PING: u8 = 5;
const PONG: u8 = 6;

/// A frame without its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Frame {
    /// `len` bytes follow: those of the stream from `offset` on.
    Data { offset: u64, len: u32 },
    /// Everything before `received` has arrived, and bytes before `limit` may be sent. Both count
    /// the end of a direction as one byte.
    Ack { received: u64, limit: u64 },
    /// This direction ends at `offset`.
    Fin { offset: u64 },
    /// The stream is given up.
    Reset,
    /// Request for a [`Frame::Pong`] with the same number.
    Ping { number: u32 },
    /// Answer to a [`Frame::Ping`].
    Pong { number: u32 },
}

impl Frame {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Data { offset, len } => {
                out.push(DATA);
                out.extend_from_slice(&offset.to_be_bytes());
                out.extend_from_slice(&len.to_be_bytes());
            }
            Self::Ack { received, limit } => {
                out.push(ACK);
                out.extend_from_slice(&received.to_be_bytes());
                out.extend_from_slice(&limit.to_be_bytes());
            }
            Self::Fin { offset } => {
                out.push(FIN);
                out.extend_from_slice(&offset.to_be_bytes());
            }
            Self::Reset => out.push(RESET),
            Self::Ping { number } => {
                out.push(PING);
                out.extend_from_slice(&number.to_be_bytes());
            }
            Self::Pong { number } => {
                out.push(PONG);
                out.extend_from_slice(&number.to_be_bytes());
            }
        }
    }

    /// Returns the frame in a complete header.
    fn parse(header: &[u8]) -> Result<Self, FrameFault> {
        let (&kind, mut rest) = header.split_first().ok_or(FrameFault::Kind)?;
        let frame = match kind {
            DATA => Self::Data {
                offset: take_u64(&mut rest)?,
                len: take_u32(&mut rest)?,
            },
            ACK => Self::Ack {
                received: take_u64(&mut rest)?,
                limit: take_u64(&mut rest)?,
            },
            FIN => Self::Fin {
                offset: take_u64(&mut rest)?,
            },
            RESET => Self::Reset,
            PING => Self::Ping {
                number: take_u32(&mut rest)?,
            },
            PONG => Self::Pong {
                number: take_u32(&mut rest)?,
            },
            _ => return Err(FrameFault::Kind),
        };
        match frame {
            Self::Data { len, .. } if len == 0 || len as usize > MAX_FRAME_DATA_BYTES => {
                Err(FrameFault::Length)
            }
            frame => Ok(frame),
        }
    }
}

/// Returns the size of the header of a frame of this kind, in bytes.
const fn header_bytes(kind: u8) -> Result<usize, FrameFault> {
    match kind {
        DATA => Ok(13),
        ACK => Ok(MAX_HEADER_BYTES),
        FIN => Ok(9),
        RESET => Ok(1),
        PING | PONG => Ok(5),
        _ => Err(FrameFault::Kind),
    }
}

fn take_u64(bytes: &mut &[u8]) -> Result<u64, FrameFault> {
    let (value, rest) = bytes.split_first_chunk().ok_or(FrameFault::Length)?;
    *bytes = rest;
    Ok(u64::from_be_bytes(*value))
}

fn take_u32(bytes: &mut &[u8]) -> Result<u32, FrameFault> {
    let (value, rest) = bytes.split_first_chunk().ok_or(FrameFault::Length)?;
    *bytes = rest;
    Ok(u32::from_be_bytes(*value))
}

/// Reason why bytes are not frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameFault {
    /// The kind is unknown.
    #[error("a frame of an unknown kind")]
    Kind,
    /// The length is zero or too large.
    #[error("a frame with an invalid length")]
    Length,
}

/// Piece of a connection's input.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    /// A complete header.
    Frame(Frame),
    /// Data of the last [`Frame::Data`].
    Data(&'a [u8]),
}

/// Incremental decoder. Buffers one incomplete header and no data.
#[derive(Debug, Default)]
pub(crate) struct FrameDecoder {
    header: [u8; MAX_HEADER_BYTES],
    filled: usize,
    /// Bytes of the current frame's data that have not arrived.
    data_left: usize,
}

impl FrameDecoder {
    /// Takes one piece off the front of `input`. Returns `None` if all of it was consumed.
    pub(crate) fn next<'a>(
        &mut self,
        input: &mut &'a [u8],
    ) -> Result<Option<Piece<'a>>, FrameFault> {
        if self.data_left > 0 {
            let (data, rest) = input.split_at(input.len().min(self.data_left));
            *input = rest;
            self.data_left = self.data_left.saturating_sub(data.len());
            return Ok((!data.is_empty()).then_some(Piece::Data(data)));
        }
        while let Some((&byte, rest)) = input.split_first() {
            if let Some(slot) = self.header.get_mut(self.filled) {
                *slot = byte;
            }
            self.filled = self.filled.saturating_add(1);
            *input = rest;
            let needed = header_bytes(self.header.first().copied().unwrap_or_default())?;
            if self.filled >= needed {
                let frame = Frame::parse(self.header.get(..needed).unwrap_or_default())?;
                self.filled = 0;
                if let Frame::Data { len, .. } = frame {
                    self.data_left = len as usize;
                }
                return Ok(Some(Piece::Frame(frame)));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_survive_any_split() {
        let frames = [
            Frame::Data { offset: 7, len: 3 },
            Frame::Ack {
                received: u64::MAX,
                limit: 9,
            },
            Frame::Fin { offset: 10 },
            Frame::Ping { number: 1 },
            Frame::Pong { number: u32::MAX },
            Frame::Reset,
        ];
        let mut wire = Vec::new();
        for frame in &frames {
            frame.encode(&mut wire);
            if let Frame::Data { .. } = frame {
                wire.extend_from_slice(b"abc");
            }
        }
        for size in 1..=wire.len() {
            let mut decoder = FrameDecoder::default();
            let (mut found, mut data) = (Vec::new(), Vec::new());
            for mut part in wire.chunks(size) {
                while let Some(piece) = decoder.next(&mut part).unwrap() {
                    match piece {
                        Piece::Frame(frame) => found.push(frame),
                        Piece::Data(bytes) => data.extend_from_slice(bytes),
                    }
                }
            }
            assert_eq!(
                (found.as_slice(), data.as_slice()),
                (&frames[..], &b"abc"[..])
            );
        }
    }

    #[test]
    fn malformed_frames_are_refused() {
        let too_long = (MAX_FRAME_DATA_BYTES as u32 + 1).to_be_bytes();
        let data = |len: [u8; 4]| [&[DATA][..], &[0; 8], &len].concat();
        for (wire, fault) in [
            (vec![0], FrameFault::Kind),
            (vec![7], FrameFault::Kind),
            (data([0; 4]), FrameFault::Length),
            (data(too_long), FrameFault::Length),
        ] {
            let mut input = wire.as_slice();
            assert_eq!(FrameDecoder::default().next(&mut input), Err(fault));
        }
    }
}
