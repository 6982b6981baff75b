//! Requests for plain `http:` in absolute form, each relayed over a separate connection (RFC 9110,
//! section 7.6).

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{
    CONNECTION, HOST, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION,
    TE, TRAILER, TRANSFER_ENCODING, UPGRADE, VIA,
};
use hyper::{StatusCode, Uri};
use hyper_util::rt::TokioIo;
use longhaul_hop::DuplexEnding;
use longhaul_service::Phase;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::{ENTRY, HttpAnswer, HttpClient, PSEUDONYM, failure_answer, text_answer};
use crate::destination::{OnrampDestination, SessionWish};
use crate::engine::ConnectionRequest;
use crate::exit::Exit;

/// Header fields that apply to one connection only, besides those that `Connection` names.
const HOP_BY_HOP: [HeaderName; 6] = [
    CONNECTION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    PROXY_AUTHORIZATION,
];
const OTHER_HOP_BY_HOP: [&str; 2] = ["keep-alive", "proxy-connection"];

/// Forwards a request, and returns its answer.
pub(super) async fn relay(
    client: Arc<HttpClient>,
    request: hyper::Request<Incoming>,
    destination: OnrampDestination,
) -> HttpAnswer {
    let wanted = ConnectionRequest::new(ENTRY, client.asker, destination, SessionWish::default());
    let opened = match client.open(&wanted).await {
        Ok(opened) => opened,
        Err(failed) => return failure_answer(&failed),
    };
    let moved = Arc::new(MovedBytes::default());
    let counted = TokioIo::new(CountingStream {
        exit: opened.exit,
        moved: Arc::clone(&moved),
    });
    let asked_by = Arc::clone(&client);
    let broken = |error: hyper::Error| {
        asked_by
            .engine
            .events
            .log(Some(asked_by.asker.payer()), |left_out| {
                tracing::info!(entry = ENTRY, %error, left_out, "no answer from the destination");
            });
        text_answer(StatusCode::BAD_GATEWAY, "the destination gave no answer\n")
    };
    let (mut sender, connection) = match hyper::client::conn::http1::handshake(counted).await {
        Ok(made) => made,
        Err(error) => return broken(error),
    };
    let mut phases = client.held.phases();
    tokio::spawn(async move {
        let began = Instant::now();
        let ending = tokio::select! {
            ended = connection => match ended {
                Ok(()) => DuplexEnding::Finished,
                Err(error) => DuplexEnding::FirstDied(io::Error::other(error)),
            },
            () = phases.wait_until(Phase::Aborting) => DuplexEnding::Aborted,
        };
        let (sent, received) = (
            moved.sent.load(Ordering::Relaxed),
            moved.received.load(Ordering::Relaxed),
        );
        client
            .engine
            .record_ending(&wanted, began, sent, received, &ending);
    });
    match sender.send_request(rewrite_request(request)).await {
        Ok(answer) => {
            let (mut head, body) = answer.into_parts();
            strip_hop_by_hop(&mut head.headers);
            head.headers.remove(PROXY_AUTHENTICATE);
            add_via(&mut head.headers);
            HttpAnswer::from_parts(head, body.boxed())
        }
        Err(error) => broken(error),
    }
}

/// Returns the request as the destination receives it.
fn rewrite_request(request: hyper::Request<Incoming>) -> hyper::Request<Incoming> {
    let (mut head, body) = request.into_parts();
    strip_hop_by_hop(&mut head.headers);
    add_via(&mut head.headers);
    // The authority of the target replaces any Host field (RFC 9112, section 3.2.2).
    let host = head.uri.authority().map(|authority| {
        let text = authority.as_str();
        text.rsplit_once('@')
            .map_or(text, |(_, host)| host)
            .to_owned()
    });
    if let Some(Ok(host)) = host.map(|host| HeaderValue::from_str(&host)) {
        head.headers.insert(HOST, host);
    }
    // One connection per request makes its size and its ending known.
    head.headers
        .insert(CONNECTION, HeaderValue::from_static("close"));
    let target = head.uri.path_and_query().cloned();
    head.uri = target.map_or_else(|| Uri::from_static("/"), Uri::from);
    head.version = hyper::Version::HTTP_11;
    hyper::Request::from_parts(head, body)
}

fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
    for name in OTHER_HOP_BY_HOP {
        headers.remove(name);
    }
}

fn add_via(headers: &mut HeaderMap) {
    if let Ok(value) = HeaderValue::from_str(&format!("1.1 {PSEUDONYM}")) {
        headers.append(VIA, value);
    }
}

/// Numbers of bytes that a connection has moved.
#[derive(Debug, Default)]
struct MovedBytes {
    sent: AtomicU64,
    received: AtomicU64,
}

/// Stream that counts its bytes.
#[derive(Debug)]
struct CountingStream {
    exit: Exit,
    moved: Arc<MovedBytes>,
}

impl AsyncRead for CountingStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.exit).poll_read(cx, buffer))?;
        let read = buffer.filled().len().saturating_sub(before);
        self.moved
            .received
            .fetch_add(read as u64, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for CountingStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.exit).poll_write(cx, data))?;
        self.moved.sent.fetch_add(written as u64, Ordering::Relaxed);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.exit).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.exit).poll_shutdown(cx)
    }
}
