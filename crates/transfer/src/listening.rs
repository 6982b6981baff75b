//! Streams that note when they bring something.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, ReadBuf};

use crate::progress::StreamCounters;

/// Receives the note that something arrived.
pub(crate) trait NoteArrival: Unpin {
    /// Something has arrived, or the stream has ended.
    fn note_arrival(&self);
    /// Nothing has, and somebody waits for it.
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

/// A stream that notes each read that brings something.
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
