//! HTTP proxy: CONNECT (RFC 9110, section 9.3.6), requests in absolute form for plain `http:`, and
//! the proxy auto-configuration file for browsers.

mod pac;
mod relay;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use data_encoding::BASE64;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HOST, HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION};
use hyper::service::service_fn;
use hyper::{Method, Response, StatusCode, Uri};
use hyper_util::rt::{TokioIo, TokioTimer};
use longhaul_hop::Conn;
use longhaul_proto::{Endpoint, Host};
use longhaul_service::Phase;
use rustix::io::Errno;

use crate::asker::OnrampClient;
use crate::config::GuestPolicy;
use crate::destination::{OnrampDestination, SessionWish};
use crate::door::{AcceptedConnection, ClientPermit, local_address};
use crate::engine::{ConnectionRequest, Engine, OpenedConnection};
use crate::failure::ConnectFailure;

/// Name of this entry in the log.
pub(crate) const ENTRY: &str = "http";
/// Time limit for the head of a request, and its maximum size in bytes.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_HEAD_BYTES: usize = 64 * 1024;
/// Name of this proxy in header fields (RFC 9110, section 7.6.3; RFC 9209).
const PSEUDONYM: &str = "longhaul";
const DEFAULT_HTTP_PORT: u16 = 80;

/// Body of an answer.
type Body = BoxBody<Bytes, hyper::Error>;
type HttpAnswer = Response<Body>;

/// State shared by all requests of one client.
struct HttpClient {
    engine: Arc<Engine>,
    guests: Arc<GuestPolicy>,
    asker: OnrampClient,
    /// Address at which the client found the proxy.
    at: std::net::SocketAddr,
    held: ClientPermit,
}

/// Serves one client, request after request.
pub(crate) async fn serve(guest: AcceptedConnection) {
    let AcceptedConnection {
        conn,
        listener,
        asker,
        engine,
        guests,
        permit: held,
    } = guest;
    let mut phases = held.phases();
    let client = Arc::new(HttpClient {
        at: local_address(&conn).unwrap_or(listener),
        asker,
        engine,
        guests,
        held,
    });
    let service = service_fn(move |request| {
        let client = Arc::clone(&client);
        async move { Ok::<_, Infallible>(answer(client, request).await) }
    });
    let serving = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(conn), service)
        .with_upgrades();
    let mut serving = std::pin::pin!(serving);
    // A client that violates the protocol or disconnects is not reported further.
    tokio::select! {
        _ = &mut serving => return,
        () = phases.wait_until(Phase::Draining) => serving.as_mut().graceful_shutdown(),
    }
    tokio::select! {
        _ = serving => {}
        () = phases.wait_until(Phase::Aborting) => {}
    }
}

async fn answer(client: Arc<HttpClient>, request: hyper::Request<Incoming>) -> HttpAnswer {
    if request.method() == Method::GET
        && request.uri().authority().is_none()
        && request.uri().path() == pac::PATH
    {
        let host = request.headers().get(HOST).map(HeaderValue::as_bytes);
        return match client.guests.login.is_none() && pac::names_an_address(host) {
            true => pac::answer(client.engine.table().current().rules(), client.at),
            false => pac::answer_without_rules(client.at),
        };
    }
    if !client.is_authorised(&request) {
        let mut answer = text_answer(
            StatusCode::PROXY_AUTHENTICATION_REQUIRED,
            "proxy authentication required\n",
        );
        let challenge = HeaderValue::from_static("Basic realm=\"longhaul\", charset=\"UTF-8\"");
        answer.headers_mut().insert(PROXY_AUTHENTICATE, challenge);
        return answer;
    }
    match (
        request.method() == Method::CONNECT,
        request.uri().scheme_str(),
    ) {
        (true, _) => connect(client, request).await,
        (false, Some("http")) => match destination(request.uri(), Some(DEFAULT_HTTP_PORT)) {
            Some(destination) => relay::relay(client, request, destination).await,
            None => text_answer(StatusCode::BAD_REQUEST, "the URL names no host\n"),
        },
        (false, Some(_)) => text_answer(
            StatusCode::NOT_IMPLEMENTED,
            "only http: URLs are relayed; use CONNECT for everything else\n",
        ),
        (false, None) => text_answer(
            StatusCode::NOT_FOUND,
            "this is a proxy: use CONNECT or an absolute URL; browsers take their settings from \
             /proxy.pac\n",
        ),
    }
}

impl HttpClient {
    fn is_authorised(&self, request: &hyper::Request<Incoming>) -> bool {
        let Some(_) = &self.guests.login else {
            return true;
        };
        let credentials = request
            .headers()
            .get(PROXY_AUTHORIZATION)
            .map(HeaderValue::as_bytes);
        let right = credentials
            .and_then(decode_basic)
            .is_some_and(|(user, password)| self.guests.check_login(&user, &password));
        if credentials.is_some() && !right {
            let payer = Some(self.asker.payer());
            self.engine.events.log(payer, |left_out| {
                tracing::warn!(
                    entry = ENTRY,
                    left_out,
                    "connection refused: wrong user or password"
                );
            });
        }
        right
    }
}

/// Decodes user and password (RFC 7617).
fn decode_basic(credentials: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let (scheme, rest) = credentials.split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"basic ") {
        return None;
    }
    let plain = BASE64.decode(rest.trim_ascii()).ok()?;
    let colon = plain.iter().position(|&byte| byte == b':')?;
    let (user, password) = plain.split_at(colon);
    Some((user.to_vec(), password.get(1..)?.to_vec()))
}

/// Opens a tunnel. The answer states the result, and the tunnel's bytes follow it.
async fn connect(client: Arc<HttpClient>, mut request: hyper::Request<Incoming>) -> HttpAnswer {
    let Some(destination) = destination(request.uri(), None) else {
        return text_answer(
            StatusCode::BAD_REQUEST,
            "invalid destination: use CONNECT host:port\n",
        );
    };
    let wanted = ConnectionRequest::new(ENTRY, client.asker, destination, SessionWish::default());
    // This future is dropped when the client disconnects.
    let opened = match client.open(&wanted).await {
        Ok(opened) => opened,
        Err(failed) => return failure_answer(&failed),
    };
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let Ok(upgraded) = upgrade.await else { return };
        if let Ok(parts) = upgraded.downcast::<TokioIo<Conn>>() {
            let program = parts.io.into_inner();
            client
                .engine
                .carry(&wanted, program, opened, &parts.read_buf)
                .await;
        }
        drop(client);
    });
    Response::new(empty_body())
}

impl HttpClient {
    /// Connects to the destination of a request.
    async fn open(&self, request: &ConnectionRequest) -> Result<OpenedConnection, ConnectFailure> {
        if let Err(failed) = self.held.admit() {
            self.engine.log_turned_away(request, &failed);
            return Err(failed);
        }
        let plan = self.engine.plan(request);
        let opened = self
            .engine
            .open_planned(request, &plan, std::future::pending::<()>())
            .await;
        opened.unwrap_or_else(|| {
            Err(ConnectFailure::new(
                Errno::CANCELED,
                "the client disconnected",
            ))
        })
    }
}

/// Returns the destination of a request.
fn destination(uri: &Uri, port: Option<u16>) -> Option<OnrampDestination> {
    let authority = uri.authority()?;
    // CONNECT requires a port (RFC 9110, section 9.3.6).
    let port = match authority.port() {
        Some(port) => port.as_str().parse().ok().filter(|&port| port != 0)?,
        None => port?,
    };
    Some(OnrampDestination::from_endpoint(Endpoint::new(
        Host::parse(authority.host()).ok()?,
        port,
    )))
}

/// Returns the answer for a failed connection: a status, and the reason as an RFC 9209 error.
fn failure_answer(failed: &ConnectFailure) -> HttpAnswer {
    let (status, error) = match failed.errno {
        Errno::ACCESS | Errno::PERM => (StatusCode::FORBIDDEN, "destination_ip_prohibited"),
        Errno::CONNREFUSED => (StatusCode::BAD_GATEWAY, "connection_refused"),
        Errno::TIMEDOUT => (StatusCode::GATEWAY_TIMEOUT, "connection_timeout"),
        Errno::HOSTUNREACH => (StatusCode::BAD_GATEWAY, "destination_ip_unroutable"),
        Errno::NETUNREACH => (StatusCode::BAD_GATEWAY, "destination_unavailable"),
        Errno::AGAIN => (StatusCode::SERVICE_UNAVAILABLE, "connection_limit_reached"),
        _ => (StatusCode::BAD_GATEWAY, "proxy_internal_error"),
    };
    let mut answer = text_answer(status, format!("{failed}\n"));
    if let Ok(value) = HeaderValue::from_str(&format!("{PSEUDONYM}; error={error}")) {
        answer.headers_mut().insert("proxy-status", value);
    }
    answer
}

fn text_answer(status: StatusCode, text: impl Into<Bytes>) -> HttpAnswer {
    let mut answer = Response::new(
        Full::new(text.into())
            .map_err(|never| match never {})
            .boxed(),
    );
    *answer.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}

fn empty_body() -> Body {
    Full::new(Bytes::new())
        .map_err(|never| match never {})
        .boxed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_their_destination() {
        let to =
            |uri: &str, port| destination(&uri.parse().unwrap(), port).map(|to| to.to_string());
        assert_eq!(to("h.example:443", None).as_deref(), Some("h.example:443"));
        assert_eq!(
            to("[2001:db8::1]:443", None).as_deref(),
            Some("[2001:db8::1]:443")
        );
        assert_eq!(
            to("http://h.example/a", Some(DEFAULT_HTTP_PORT)).as_deref(),
            Some("h.example:80")
        );
        assert_eq!(
            to("http://u:p@h.example:8080/", Some(DEFAULT_HTTP_PORT)).as_deref(),
            Some("h.example:8080")
        );
        for none in ["h.example", "/a", "h.example:0", "h.example:99999"] {
            assert_eq!(to(none, None), None, "{none}");
        }
    }

    #[test]
    fn credentials() {
        let read = |text: &str| decode_basic(text.as_bytes());
        assert_eq!(
            read("Basic bWU6d29yZA=="),
            Some((b"me".to_vec(), b"word".to_vec()))
        );
        assert_eq!(
            read("basic bWU6d286cmQ="),
            Some((b"me".to_vec(), b"wo:rd".to_vec()))
        );
        for wrong in ["", "Basic", "Basic ?", "Basic bWU=", "Bearer bWU6d29yZA=="] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
