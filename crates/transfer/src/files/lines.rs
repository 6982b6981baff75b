//! Reads and writes lines of bounded length on a byte stream (LH-FILES-3).

#![deny(clippy::indexing_slicing)] // what is read here comes from the network
#![cfg_attr(test, allow(clippy::indexing_slicing))]

use std::io;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Silence after which a server that owes a response is considered gone (LH-FILES-5).
pub(crate) const SILENCE_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval at which a server reports that it is still working (LH-FILES-5).
pub(crate) const WORKING_INTERVAL: Duration = Duration::from_secs(5);
/// Number of bytes per read.
const READ_BYTES: usize = 16 << 10;

/// Reason why there is no line.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LineError {
    /// The peer sent something that is no line of the files protocol. Use the same release at both
    /// ends.
    #[error("a line is longer than {0} bytes")]
    TooLong(usize),
    /// The session was cut within a line. Run the command again.
    #[error("the stream ends within a line")]
    Cut,
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Reader of lines.
pub(crate) struct LineReader<R> {
    inner: R,
    read: BytesMut,
    max_bytes: usize,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    /// Creates a reader of lines of at most `max_bytes` each, not counting their ends.
    pub(crate) fn new(inner: R, max_bytes: usize) -> Self {
        Self {
            inner,
            read: BytesMut::new(),
            max_bytes,
        }
    }

    /// Bounds further lines by `max_bytes` each.
    pub(crate) fn limit(&mut self, max_bytes: usize) {
        self.max_bytes = max_bytes;
    }

    /// Returns the stream.
    pub(crate) fn into_inner(self) -> R {
        self.inner
    }

    /// Returns the next line without its end, or `None` at a clean end of the stream. Cancel safe:
    /// bytes that were read are kept if this is dropped.
    pub(crate) async fn next(&mut self) -> Result<Option<BytesMut>, LineError> {
        let mut searched = 0;
        loop {
            let fresh = self.read.get(searched..).unwrap_or_default();
            if let Some(at) = fresh.iter().position(|&byte| byte == b'\n') {
                let line = self.read.split_to(searched + at);
                self.read.advance(1);
                return match line.len() > self.max_bytes {
                    true => Err(LineError::TooLong(self.max_bytes)),
                    false => Ok(Some(line)),
                };
            }
            searched = self.read.len();
            if searched > self.max_bytes {
                return Err(LineError::TooLong(self.max_bytes));
            }
            self.read.reserve(READ_BYTES);
            if self.inner.read_buf(&mut self.read).await? == 0 {
                return match searched {
                    0 => Ok(None),
                    _ => Err(LineError::Cut),
                };
            }
        }
    }
}

/// Writes lines in one piece: `first`, if given, and then `others`.
pub(crate) async fn write_lines(
    writer: &mut (impl AsyncWrite + Unpin),
    first: Option<&impl Serialize>,
    others: &[impl Serialize],
) -> io::Result<()> {
    let mut lines = Vec::new();
    if let Some(first) = first {
        serde_json::to_writer(&mut lines, first)?;
        lines.push(b'\n');
    }
    for other in others {
        serde_json::to_writer(&mut lines, other)?;
        lines.push(b'\n');
    }
    writer.write_all(&lines).await?;
    writer.flush().await
}

/// Writes one line.
pub(crate) async fn write_line(
    writer: &mut (impl AsyncWrite + Unpin),
    said: &impl Serialize,
) -> io::Result<()> {
    let mut line = serde_json::to_vec(said)?;
    line.push(b'\n');
    writer.write_all(&line).await?;
    writer.flush().await
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns all lines, and whether they ended cleanly.
    fn lines(bytes: &[u8], max: usize) -> (Vec<Vec<u8>>, bool) {
        longhaul_proto::fuzzing::expect_ready(async {
            let mut reader = LineReader::new(bytes, max);
            let mut found = Vec::new();
            loop {
                match reader.next().await {
                    Ok(Some(line)) => found.push(line.to_vec()),
                    end => return (found, matches!(end, Ok(None))),
                }
            }
        })
    }

    #[test]
    fn lh_files_3_a_line_over_its_bound_is_refused() {
        assert_eq!(
            lines(b"abc\nd\n", 3),
            (vec![b"abc".to_vec(), b"d".to_vec()], true)
        );
        assert_eq!(lines(b"abcd\n", 3), (vec![], false));
        assert_eq!(lines(b"ab\ncd", 3), (vec![b"ab".to_vec()], false));
        assert_eq!(lines(&vec![b'x'; 1 << 20], 3), (vec![], false));
    }

    proptest! {
        #[test]
        fn lines_are_read_as_they_were_written(
            said in prop::collection::vec("[a-z]{0,20}", 0..20),
        ) {
            let bytes: String = said.iter().map(|line| format!("{line}\n")).collect();
            let (received, whole) = lines(bytes.as_bytes(), 20);
            let received: Vec<String> = received
                .into_iter()
                .map(|line| String::from_utf8(line).unwrap())
                .collect();
            prop_assert!(whole);
            prop_assert_eq!(received, said);
        }
    }
}
