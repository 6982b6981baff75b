//! The status page of a service: metrics in OpenMetrics text format, health and readiness. For
//! scrapers and supervisors only.

use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use longhaul_hop::{GateLimits, OfferedSocket, offer, take_inherited};
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::Error;
use crate::handover::subscribe;
use crate::http::{self, HttpLimits, PeerIdentity, RequestHandler, SharedPermit};

/// Limits on readers: their number, and the time to send a request and take the answer. One reader
/// too many resets the oldest one of the source that has most, so that idle readers keep no scraper
/// out.
const LIMITS: HttpLimits = HttpLimits {
    gate: GateLimits {
        newcomers: 32,
        verified: 0,
        reserves_for_keys: false,
        header: Duration::from_secs(5),
        least_header: Duration::from_secs(2),
    },
    max_head_bytes: 8 << 10,
    single_request: true,
};

/// The end of a page (OpenMetrics 1.0, section "Overall Structure").
const END_MARKER: &str = "# EOF\n";
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN_TEXT: &str = "text/plain; charset=utf-8";

/// Returns all metrics of a registry in OpenMetrics text format 1.0.
#[must_use]
pub fn encode(registry: &Registry) -> String {
    let mut page = String::new();
    if prometheus_client::encoding::text::encode(&mut page, registry).is_err() {
        // Writing to a String does not fail. If it ever does, an empty page is better than a
        // partial one.
        page.clear();
    }
    page
}

/// Source of the text of a page; it is called for every request.
#[derive(Clone)]
pub struct MetricsPage(Arc<dyn Fn() -> String + Send + Sync>);

impl MetricsPage {
    /// Returns a page whose whole text is what `text` returns.
    pub fn new(text: impl Fn() -> String + Send + Sync + 'static) -> Self {
        Self(Arc::new(text))
    }

    /// Returns the current text of the page.
    #[must_use]
    pub fn text(&self) -> String {
        (self.0)()
    }

    /// Returns this page followed by the metrics of `other`. No metric may be on both.
    #[must_use]
    pub fn joined_with(self, other: Self) -> Self {
        Self::new(move || {
            let first = self.text();
            let first = first.strip_suffix(END_MARKER).unwrap_or(&first);
            format!("{first}{}", other.text())
        })
    }
}

impl fmt::Debug for MetricsPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MetricsPage")
    }
}

/// Readiness of a service: whether new work should be sent to it.
#[derive(Clone)]
pub struct Readiness(Arc<dyn Fn() -> Result<(), String> + Send + Sync>);

impl Readiness {
    /// Returns a readiness that `check` decides. Its error says in a few words why the service is
    /// not ready.
    pub fn new(check: impl Fn() -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(check))
    }

    /// Returns the readiness of a service that takes work until `stop` is true.
    #[must_use]
    pub fn until(stop: watch::Receiver<bool>) -> Self {
        Self::new(move || match *stop.borrow() {
            false => Ok(()),
            true => Err("stopping".to_owned()),
        })
    }

    /// Checks if the service is ready.
    ///
    /// # Errors
    /// The reason why it is not.
    pub fn check(&self) -> Result<(), String> {
        (self.0)()
    }
}

impl fmt::Debug for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Readiness").field(&self.check()).finish()
    }
}

/// Status page of a service.
#[derive(Debug, Clone)]
pub struct StatusPage {
    metrics: MetricsPage,
    readiness: Readiness,
}

impl StatusPage {
    /// Creates the page with these metrics and this readiness.
    #[must_use]
    pub const fn new(metrics: MetricsPage, readiness: Readiness) -> Self {
        Self { metrics, readiness }
    }

    /// Returns status, media type and text of the answer to a request.
    fn page_at(&self, method: &Method, path: &str) -> (StatusCode, &'static str, String) {
        if method != Method::GET && method != Method::HEAD {
            let text = "only GET\n".to_owned();
            return (StatusCode::METHOD_NOT_ALLOWED, PLAIN_TEXT, text);
        }
        match path {
            "/metrics" | "/" => (StatusCode::OK, OPENMETRICS, self.metrics.text()),
            "/healthz" => (StatusCode::OK, PLAIN_TEXT, "ok\n".to_owned()),
            "/readyz" => match self.readiness.check() {
                Ok(()) => (StatusCode::OK, PLAIN_TEXT, "ready\n".to_owned()),
                Err(why) => (
                    StatusCode::SERVICE_UNAVAILABLE,
                    PLAIN_TEXT,
                    format!("{why}\n"),
                ),
            },
            _ => (
                StatusCode::NOT_FOUND,
                PLAIN_TEXT,
                "the pages are /metrics, /healthz and /readyz\n".to_owned(),
            ),
        }
    }
}

impl RequestHandler for StatusPage {
    type Body = Full<Bytes>;

    async fn answer(
        &self,
        request: Request<Incoming>,
        _peer: PeerIdentity,
        _permit: &SharedPermit,
    ) -> Result<Response<Self::Body>, Infallible> {
        let (status, kind, text) = self.page_at(request.method(), request.uri().path());
        let mut response = Response::new(Full::new(Bytes::from(text)));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        Ok(response)
    }
}

/// Listener of a status page.
#[derive(Debug)]
pub struct StatusListener {
    socket: TcpListener,
    address: SocketAddr,
    offered: OfferedSocket,
}

impl StatusListener {
    /// Opens the listener, or takes it over from this process's predecessor.
    ///
    /// # Errors
    /// [`Error::Metrics`] if the address cannot be bound.
    pub fn open(address: SocketAddr) -> Result<Self, Error> {
        let failed = |source| Error::Metrics { address, source };
        let listener = match take_inherited(address) {
            Some(socket) => socket.into(),
            None => std::net::TcpListener::bind(address).map_err(failed)?,
        };
        listener.set_nonblocking(true).map_err(failed)?;
        let socket = TcpListener::from_std(listener).map_err(failed)?;
        Ok(Self {
            address: socket.local_addr().map_err(failed)?,
            offered: offer(&socket).map_err(failed)?,
            socket,
        })
    }

    /// Returns its address, with the actual port if port 0 was requested.
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Serves `page` until it is dropped, or until a successor does. Never completes.
    pub async fn serve(self, page: StatusPage) {
        http::serve(self.socket, page, LIMITS, subscribe()).await;
        drop(self.offered);
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;

    async fn ask(readiness: Readiness, request: &str) -> String {
        let listener = StatusListener::open(([127, 0, 0, 1], 0).into()).expect("bind");
        let address = listener.local_addr();
        let metrics = MetricsPage::new(|| "# EOF\n".to_owned());
        tokio::spawn(listener.serve(StatusPage::new(metrics, readiness)));
        let mut stream = TcpStream::connect(address).await.expect("connect");
        stream.write_all(request.as_bytes()).await.expect("ask");
        let mut answer = String::new();
        // A silent reader may be reset.
        let _ = stream.read_to_string(&mut answer).await;
        answer
    }

    fn ready() -> Readiness {
        Readiness::new(|| Ok(()))
    }

    #[test]
    fn joined_pages_have_one_end_marker() {
        let page = |text: &'static str| MetricsPage::new(move || text.to_owned());
        assert_eq!(
            page("a 1\n# EOF\n")
                .joined_with(page("b 2\n# EOF\n"))
                .text(),
            "a 1\nb 2\n# EOF\n"
        );
    }

    #[tokio::test]
    async fn a_page_has_metrics_and_nothing_else() {
        let page = ask(ready(), "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").await;
        assert!(
            page.starts_with("HTTP/1.1 200 OK\r\n") && page.ends_with("\r\n\r\n# EOF\n"),
            "{page}"
        );
        let page = page.to_ascii_lowercase();
        for header in [
            "content-type: application/openmetrics-text; version=1.0.0",
            "content-length: 6\r\n",
            "connection: close\r\n",
        ] {
            assert!(page.contains(header), "{header} in {page}");
        }
        for (request, begin, end) in [
            ("HEAD /metrics", "HTTP/1.1 200 ", "\r\n\r\n"),
            ("GET /etc/passwd", "HTTP/1.1 404 ", "/readyz\n"),
            ("POST /metrics", "HTTP/1.1 405 ", "only GET\n"),
        ] {
            let answer = ask(ready(), &format!("{request} HTTP/1.1\r\n\r\n")).await;
            assert!(
                answer.starts_with(begin) && answer.ends_with(end),
                "{request}: {answer}"
            );
        }
        let long = ask(ready(), &"x".repeat(2 * LIMITS.max_head_bytes)).await;
        assert!(long.starts_with("HTTP/1.1 431 "), "{long}");
    }

    #[tokio::test]
    async fn readiness_follows_the_service_and_health_does_not() {
        let draining = || Readiness::new(|| Err("draining".to_owned()));
        for (readiness, path, begin, end) in [
            (ready(), "/readyz", "HTTP/1.1 200 ", "\r\n\r\nready\n"),
            (draining(), "/readyz", "HTTP/1.1 503 ", "\r\n\r\ndraining\n"),
            (draining(), "/healthz", "HTTP/1.1 200 ", "\r\n\r\nok\n"),
        ] {
            let answer = ask(readiness, &format!("GET {path} HTTP/1.1\r\n\r\n")).await;
            assert!(
                answer.starts_with(begin) && answer.ends_with(end),
                "{path}: {answer}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_reader_is_dropped_in_time() {
        assert_eq!(ask(ready(), "GET /metrics").await, "");
    }
}
