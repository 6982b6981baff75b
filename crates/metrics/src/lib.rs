//! The metrics page of a service, in OpenMetrics text format. It serves HTTP/1.1 with one request
//! per connection, for scrapers only.

#![forbid(unsafe_code)]

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use longhaul_hop::{Entered, Gate, GateLimits};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// Maximum size of a request head, in bytes.
const MAX_REQUEST: usize = 4096;
/// Limits on readers: their number, and the time to send a request and take the answer. One reader
/// too many resets the oldest one of the source that has most, so that idle readers keep no scraper
/// out.
const LIMITS: GateLimits = GateLimits {
    newcomers: 32,
    verified: 0,
    header: Duration::from_secs(5),
    least_header: Duration::from_secs(2),
};
const RETRY: Duration = Duration::from_millis(200);

/// The end of a page (OpenMetrics 1.0, section "Overall Structure").
const END: &str = "# EOF\n";

/// Source of the text of a page; it is called for every request.
#[derive(Clone)]
pub struct Page(Arc<dyn Fn() -> String + Send + Sync>);

impl Page {
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
    pub fn and(self, other: Self) -> Self {
        Self::new(move || {
            let first = self.text();
            let first = first.strip_suffix(END).unwrap_or(&first);
            format!("{first}{}", other.text())
        })
    }
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Page")
    }
}

/// Opens the listener of the page.
///
/// # Errors
/// The system's error if the address cannot be bound.
pub fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// Serves `page` forever.
pub async fn serve(listener: TcpListener, page: Page) {
    let gate = Gate::new(LIMITS);
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            // Most likely out of file descriptors; sessions matter more than this page.
            tokio::time::sleep(RETRY).await;
            continue;
        };
        let page = page.clone();
        let Entered {
            place,
            mut eviction,
            header,
        } = gate.enter(peer.ip());
        tokio::spawn(async move {
            let _place = place;
            // Errors and timeouts of a reader are not reported.
            tokio::select! {
                _ = timeout(header, answer(stream, &page)) => {}
                () = eviction.wait() => {}
            }
        });
    }
}

async fn answer(mut stream: TcpStream, page: &Page) -> std::io::Result<()> {
    let mut request = Vec::with_capacity(512);
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        if request.len() >= MAX_REQUEST || stream.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    }
    let line = request
        .split(|byte| *byte == b'\r')
        .next()
        .unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ');
    let (status, kind, body) = match (words.next(), words.next()) {
        (Some(b"GET" | b"HEAD"), Some(b"/metrics" | b"/")) => (
            "200 OK",
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
            page.text(),
        ),
        (Some(b"GET" | b"HEAD"), _) => (
            "404 Not Found",
            "text/plain",
            "the page is /metrics\n".to_owned(),
        ),
        _ => (
            "405 Method Not Allowed",
            "text/plain",
            "only GET\n".to_owned(),
        ),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\
         \r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    if !line.starts_with(b"HEAD") {
        stream.write_all(body.as_bytes()).await?;
    }
    stream.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn ask(request: &str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let address = listener.local_addr().expect("address");
        tokio::spawn(serve(listener, Page::new(|| "# EOF\n".to_owned())));
        let mut stream = TcpStream::connect(address).await.expect("connect");
        stream.write_all(request.as_bytes()).await.expect("ask");
        stream.shutdown().await.expect("shutdown");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("read");
        answer
    }

    #[test]
    fn joined_pages_have_one_end_marker() {
        let page = |text: &'static str| Page::new(move || text.to_owned());
        assert_eq!(
            page("a 1\n# EOF\n").and(page("b 2\n# EOF\n")).text(),
            "a 1\nb 2\n# EOF\n"
        );
    }

    #[tokio::test]
    async fn only_the_metrics_page_is_served() {
        let page = ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").await;
        assert!(
            page.starts_with("HTTP/1.1 200 OK\r\n") && page.ends_with("\r\n\r\n# EOF\n"),
            "{page}"
        );
        assert!(
            page.contains("Content-Type: application/openmetrics-text; version=1.0.0"),
            "{page}"
        );
        assert!(
            ask("HEAD /metrics HTTP/1.1\r\n\r\n")
                .await
                .ends_with("close\r\n\r\n")
        );
        assert!(
            ask("GET /etc/passwd HTTP/1.1\r\n\r\n")
                .await
                .starts_with("HTTP/1.1 404 ")
        );
        assert!(
            ask("POST /metrics HTTP/1.1\r\n\r\n")
                .await
                .starts_with("HTTP/1.1 405 ")
        );
        assert_eq!(ask(&"x".repeat(MAX_REQUEST)).await, "");
        assert_eq!(ask("GET /metrics").await, "");
    }
}
