//! Streams that report when data arrives.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, ReadBuf};

use crate::progress::StreamCounters;

/// Receiver of arrival notes.
pub(crate) trait NoteArrival: Unpin {
    /// Notes that data arrived or the stream ended.
    fn note_arrival(&self);
    /// Notes that a reader waits and no data has arrived.
    fn note_wait(&self) {}
}

impl NoteArrival for Arc<StreamCounters> {
    fn note_arrival(&self) {
        self.arrived();
    }

    fn note_wait(&self) {
        self.waits();
    }
}

/// A stream that notes each read that returns data.
pub(crate) struct Listening<R, N> {
    inner: R,
    noted: N,
}

impl<R, N> Listening<R, N> {
    pub(crate) fn new(inner: R, noted: N) -> Self {
        Self { inner, noted }
    }

    pub(crate) fn into_inner(self) -> R {
        self.inner
    }
}

impl<R: AsyncRead + Unpin, N: NoteArrival> AsyncRead for Listening<R, N> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let read = Pin::new(&mut self.inner).poll_read(cx, buf);
        match read.is_ready() {
            true => self.noted.note_arrival(),
            false => self.noted.note_wait(),
        }
        read
    }
}
