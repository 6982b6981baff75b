//! Streams to another server, which count as the principal's streams here.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use drs::FlowWatch;
use longhaul_session::PlaintextRanges;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::account::{Account, Resource, ResourcePermit};
use crate::client::{ConnectError, ConnectFailure, Connector, StreamOrigin, Transport};
use crate::route_info::RouteInfo;
use crate::server::copy::ServerCopy;

/// Permit of a stream that a copy always has, while no stream uses it. Without one, a busy account
/// would look like an outage of the other server.
#[derive(Clone)]
pub(super) struct SparePermit(Arc<Mutex<Option<ResourcePermit>>>);

impl SparePermit {
    pub(super) fn new(permit: ResourcePermit) -> Self {
        Self(Arc::new(Mutex::new(Some(permit))))
    }
}

/// Connector whose streams take permits of an account, at most `max_streams` at a time.
pub(super) struct CountedConnector<C> {
    pub inner: C,
    pub account: Arc<Account>,
    pub spare: SparePermit,
    pub copy: Weak<ServerCopy>,
    pub max_streams: usize,
}

impl<C: Connector> Connector for CountedConnector<C> {
    type Stream = CountedStream<C::Stream>;

    fn routes(&self) -> Vec<RouteInfo> {
        self.inner.routes()
    }

    fn max_streams(&self, route: usize) -> usize {
        self.inner.max_streams(route).min(self.max_streams)
    }

    async fn connect(&self, route: usize) -> Result<Self::Stream, ConnectError> {
        let permit = StreamPermit::take(&self.account, &self.spare)?;
        let inner = self.inner.connect(route).await?;
        if let Some(copy) = self.copy.upgrade() {
            copy.numbers.fetch_add(1, Ordering::Relaxed);
            if let Some(origin) = inner.origin() {
                copy.origins.lock().add(&origin);
            }
        }
        Ok(CountedStream {
            inner,
            copy: self.copy.clone(),
            _permit: permit,
        })
    }
}

/// Permit of one stream, which becomes the spare one of its copy if there is none.
struct StreamPermit {
    permit: Option<ResourcePermit>,
    spare: SparePermit,
}

impl StreamPermit {
    fn take(account: &Arc<Account>, spare: &SparePermit) -> Result<Self, ConnectError> {
        let kept = spare.0.lock().take();
        let permit = match kept {
            Some(permit) => permit,
            None => account
                .take(Resource::Streams, 1)
                .map_err(|exhausted| ConnectError {
                    message: exhausted.to_string(),
                    kind: ConnectFailure::NoRoute,
                    retry: true,
                    is_unknown_key: false,
                })?,
        };
        Ok(Self {
            permit: Some(permit),
            spare: spare.clone(),
        })
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        let mut spare = self.spare.0.lock();
        if spare.is_none() {
            *spare = self.permit.take();
        }
    }
}

/// A stream to another server.
pub(super) struct CountedStream<S> {
    inner: S,
    copy: Weak<ServerCopy>,
    _permit: StreamPermit,
}

impl<S: AsyncRead + Unpin> AsyncRead for CountedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.inner).poll_read(cx, buf);
        if read.is_ready()
            && let Some(copy) = self.copy.upgrade()
        {
            copy.received.note();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for CountedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

impl<S: Transport> Transport for CountedStream<S> {
    fn retransmits(&self) -> Option<u64> {
        self.inner.retransmits()
    }

    fn watch(&mut self, side: drs::Side) -> Option<Arc<FlowWatch>> {
        self.inner.watch(side)
    }

    fn addresses(&self) -> Option<(IpAddr, IpAddr)> {
        self.inner.addresses()
    }

    fn origin(&self) -> Option<StreamOrigin> {
        self.inner.origin()
    }

    fn plaintext(&self) -> Option<Arc<PlaintextRanges>> {
        self.inner.plaintext()
    }
}
