//! The first hop as seen by TLS: the OPEN is sent before its first bytes, and the statuses are
//! consumed before its first reads.

use std::{
    future::poll_fn,
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes, BytesMut};
use longhaul_proto::{Chain, ChainProgress, Status};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::{SetupEvent, SetupObserver, tls::ServerKey};

/// Size of a read while statuses are expected, in bytes.
const READ_BYTES: usize = 4096;

/// A transport with bytes to write before the payload, and bytes to read before it.
#[derive(Debug)]
pub(crate) struct HopStream<S> {
    inner: S,
    /// Bytes sent before, and together with, the first bytes written (LH-CHAIN-3).
    write_prefix: Bytes,
    /// Payload that arrived together with the OPEN or the statuses.
    read_prefix: Bytes,
    chain: Option<Chain>,
    established: bool,
    observer: Option<SetupObserver>,
    /// Check of the server's key, which needs the voucher of the server's answer.
    server: Option<Arc<ServerKey>>,
}

impl<S> HopStream<S> {
    /// Creates the initiator's side. `open` is sent with the first bytes, and reads wait until the
    /// chain is established. Each answer is reported to `observer`, and the acceptor's to `server`.
    pub(crate) const fn initiating(
        inner: S,
        open: Bytes,
        chain: Chain,
        observer: Option<SetupObserver>,
        server: Option<Arc<ServerKey>>,
    ) -> Self {
        Self {
            inner,
            write_prefix: open,
            read_prefix: Bytes::new(),
            chain: Some(chain),
            established: false,
            observer,
            server,
        }
    }

    /// Creates the acceptor's side. `early` arrived together with the OPEN.
    pub(crate) const fn accepted(inner: S, early: Bytes) -> Self {
        Self {
            inner,
            write_prefix: Bytes::new(),
            read_prefix: early,
            chain: None,
            established: true,
            observer: None,
            server: None,
        }
    }

    pub(crate) const fn inner(&self) -> &S {
        &self.inner
    }

    pub(crate) const fn inner_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Returns the chain until it is established.
    pub(crate) fn pending_chain(&self) -> Option<&Chain> {
        self.chain.as_ref().filter(|_| !self.established)
    }

    /// Returns the statuses received.
    pub(crate) fn statuses(&self) -> &[Status] {
        self.chain.as_ref().map(Chain::statuses).unwrap_or_default()
    }
}

impl<S> HopStream<S> {
    /// Returns the connection, and the payload that was read together with the OPEN or the
    /// statuses.
    pub(crate) fn into_parts(self) -> (S, Bytes) {
        (self.inner, self.read_prefix)
    }

    /// Replaces the connection by what `replace` makes of it and of the payload read ahead. The
    /// chain must be established.
    pub(crate) fn replace(self, replace: impl FnOnce(S, Bytes) -> S) -> Self {
        Self {
            inner: replace(self.inner, self.read_prefix),
            read_prefix: Bytes::new(),
            write_prefix: self.write_prefix,
            chain: self.chain,
            established: self.established,
            observer: self.observer,
            server: self.server,
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> HopStream<S> {
    /// Sends what precedes the payload, and waits until the chain is established.
    pub(crate) async fn establish(&mut self) -> io::Result<()> {
        poll_fn(|cx| Pin::new(&mut *self).poll_flush(cx)).await?;
        poll_fn(|cx| self.poll_establish(cx)).await
    }
}

impl<S: AsyncRead + Unpin> HopStream<S> {
    /// Reads until the chain is established. Its failure becomes the source of the I/O error.
    fn poll_establish(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.established {
            let Some(chain) = &mut self.chain else { break };
            let mut received = BytesMut::zeroed(READ_BYTES);
            let mut buffer = ReadBuf::new(&mut received);
            let read = ready!(Pin::new(&mut self.inner).poll_read(cx, &mut buffer));
            let length = buffer.filled().len();
            if read.is_err() || length == 0 {
                return Poll::Ready(Err(io::Error::other(chain.closed())));
            }
            received.truncate(length);
            let answered = chain.statuses().len();
            let progress = chain.feed(&received);
            if let Some(observer) = &self.observer {
                for status in chain.statuses().iter().skip(answered) {
                    let signer = chain.signer(status);
                    observer.notify(SetupEvent::Answered { status, signer });
                }
            }
            match progress {
                Ok(ChainProgress::Waiting) => {}
                Ok(ChainProgress::Established { consumed }) => {
                    let voucher = chain.statuses().last().and_then(Status::server_voucher);
                    if let (Some(server), Some(voucher)) = (&self.server, voucher) {
                        server.show_voucher(voucher);
                    }
                    received.advance(consumed);
                    self.read_prefix = received.freeze();
                    self.established = true;
                }
                Err(failure) => return Poll::Ready(Err(io::Error::other(*failure))),
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for HopStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_establish(cx))?;
        if this.read_prefix.is_empty() {
            return Pin::new(&mut this.inner).poll_read(cx, buffer);
        }
        let part = this
            .read_prefix
            .split_to(this.read_prefix.len().min(buffer.remaining()));
        buffer.put_slice(&part);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> HopStream<S> {
    /// Writes the bytes in `ahead` together with `data`. Returns how many bytes of `data` were
    /// written.
    fn poll_write_prefix(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        while !self.write_prefix.is_empty() {
            let slices = [IoSlice::new(&self.write_prefix), IoSlice::new(data)];
            let written = ready!(Pin::new(&mut self.inner).poll_write_vectored(cx, &slices))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            let of_ahead = written.min(self.write_prefix.len());
            self.write_prefix.advance(of_ahead);
            if written > of_ahead {
                return Poll::Ready(Ok(written - of_ahead));
            }
        }
        Poll::Ready(Ok(0))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for HopStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        match ready!(this.poll_write_prefix(cx, data))? {
            0 => Pin::new(&mut this.inner).poll_write(cx, data),
            written => Poll::Ready(Ok(written)),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let first = data
            .iter()
            .find(|slice| !slice.is_empty())
            .map(|slice| &**slice)
            .unwrap_or_default();
        match ready!(this.poll_write_prefix(cx, first))? {
            0 => Pin::new(&mut this.inner).poll_write_vectored(cx, data),
            written => Poll::Ready(Ok(written)),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_write_prefix(cx, &[]))?;
        Pin::new(&mut this.inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_write_prefix(cx, &[]))?;
        Pin::new(&mut this.inner).poll_shutdown(cx)
    }
}
