//! When something of a copy last arrived: a client whose host or network went away without a word leaves connections that stand for a while.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, ReadBuf};

/// When any stream of a copy last brought anything.
pub(super) struct LastReceived {
    begun: Instant,
    /// Milliseconds since then.
    at: AtomicU64,
}

impl LastReceived {
    pub(super) fn new() -> Self {
        Self {
            begun: Instant::now(),
            at: AtomicU64::new(0),
        }
    }

    /// Something arrived just now.
    pub(super) fn note(&self) {
        let millis = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.at.fetch_max(millis, Ordering::Relaxed);
    }

    /// How long nothing has arrived.
    pub(super) fn silence(&self) -> Duration {
        let at = Duration::from_millis(self.at.load(Ordering::Relaxed));
        self.begun.elapsed().saturating_sub(at)
    }
}

/// A stream that notes when it brings something, once it is known of which copy it is.
pub(super) struct Listening<R> {
    inner: R,
    copy: Arc<OnceLock<Arc<LastReceived>>>,
}

impl<R> Listening<R> {
    pub(super) fn new(inner: R, copy: Arc<OnceLock<Arc<LastReceived>>>) -> Self {
        Self { inner, copy }
    }

    pub(super) fn into_inner(self) -> R {
        self.inner
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Listening<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let read = Pin::new(&mut self.inner).poll_read(cx, buf);
        if read.is_ready()
            && let Some(copy) = self.copy.get()
        {
            copy.note();
        }
        read
    }
}
