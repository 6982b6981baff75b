//! Serving a router within the bounds of [`longhaul_service::http`], and with a time limit for the
//! body of each request.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::response::Response;
use hyper::Request;
use hyper::body::{Body as HttpBody, Bytes, Frame, Incoming, SizeHint};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use longhaul_hop::GateLimits;
use longhaul_service::http::{
    self, Acceptor, HttpLimits, PeerIdentity, RequestHandler, SharedPermit,
};
use tokio::sync::watch;
use tokio::time::{Sleep, sleep};

/// Maximum numbers of pending and of admitted connections, and bounds of each.
const LIMITS: HttpLimits = HttpLimits {
    gate: GateLimits {
        newcomers: 128,
        verified: 512,
        reserves_for_keys: false,
        // For the TLS handshake, and again for the head of each request.
        header: Duration::from_secs(10),
        least_header: Duration::from_secs(2),
    },
    max_head_bytes: 64 << 10,
    single_request: false,
};
/// Maximum time to receive a request's body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Serves `router` until `stop` is true. Each request carries its [`PeerIdentity`] and the
/// [`SharedPermit`] of its connection.
///
/// # Errors
/// None; it returns once `stop` is true.
pub async fn serve<A: Acceptor>(
    listener: A,
    router: Router,
    stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let handler = RouterHandler(TowerToHyperService::new(router));
    http::serve(listener, handler, LIMITS, stop).await;
    Ok(())
}

struct RouterHandler(TowerToHyperService<Router>);

impl RequestHandler for RouterHandler {
    type Body = Body;

    async fn answer(
        &self,
        mut request: Request<Incoming>,
        peer: PeerIdentity,
        permit: &SharedPermit,
    ) -> Result<Response, Infallible> {
        request.extensions_mut().insert(Arc::clone(permit));
        request.extensions_mut().insert(ConnectInfo(peer));
        self.0.call(request.map(with_body_timeout)).await
    }
}

fn with_body_timeout(body: Incoming) -> Body {
    match body.is_end_stream() {
        true => Body::empty(),
        false => Body::new(TimedBody {
            body,
            deadline: Box::pin(sleep(BODY_TIMEOUT)),
        }),
    }
}

/// Body of a request, which fails if it is not complete in time.
struct TimedBody {
    body: Incoming,
    deadline: Pin<Box<Sleep>>,
}

impl HttpBody for TimedBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| frame.map_err(io::Error::other)));
        }
        ready!(self.deadline.as_mut().poll(cx));
        let late = io::Error::new(io::ErrorKind::TimedOut, "the body did not arrive in time");
        Poll::Ready(Some(Err(late)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
