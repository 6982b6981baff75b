//! Input that has been read from the connection and not consumed.

#![deny(clippy::indexing_slicing)] // the input comes from the network
#![cfg_attr(test, allow(clippy::indexing_slicing))]

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

use super::record::{self, HEADER, RecordError};

/// Maximum read-ahead in bytes: several records of the maximum size, within a core's second-level
/// cache.
pub(super) const READ_AHEAD: usize = 128 * 1024;

/// Bytes in order of arrival.
#[derive(Default)]
pub(super) struct Incoming {
    /// [`READ_AHEAD`] bytes once something has been read.
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Incoming {
    /// Returns all unconsumed bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.get(self.start..self.end).unwrap_or_default()
    }

    /// Returns the first `len` unconsumed bytes.
    pub(super) fn front_mut(&mut self, len: usize) -> &mut [u8] {
        let end = self.start.saturating_add(len).min(self.end);
        self.bytes.get_mut(self.start..end).unwrap_or_default()
    }

    /// Returns the length of the first record, header included, if it is complete.
    pub(super) fn record_len(&self) -> Result<Option<usize>, RecordError> {
        let len = record::record_body_len(self.bytes())?.map(|body| HEADER + body);
        Ok(len.filter(|len| *len <= self.bytes().len()))
    }

    /// Removes the first `len` bytes.
    pub(super) fn consume(&mut self, len: usize) {
        self.start = self.start.saturating_add(len).min(self.end);
    }

    /// Reads available bytes, as far as there is room. Returns zero at the end of the stream, or if
    /// there is no room.
    pub(super) fn poll_fill<S: AsyncRead + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut S,
    ) -> Poll<io::Result<usize>> {
        if self.bytes.is_empty() {
            self.bytes = vec![0; READ_AHEAD];
        }
        if self.start > 0 {
            // Usually less than a record.
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let mut room = ReadBuf::new(self.bytes.get_mut(self.end..).unwrap_or_default());
        ready!(Pin::new(from).poll_read(cx, &mut room))?;
        let read = room.filled().len();
        self.end += read;
        Poll::Ready(Ok(read))
    }
}
