//! Sending of one notice: a signed POST.

use std::time::Duration;

use axum::http::{HeaderValue, Request, StatusCode, header};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use longhaul_api::database::system_now;
use longhaul_api::signatures::message::Scheme;
use longhaul_api::signatures::sign::random_nonce;
use longhaul_api::signatures::{Purpose, SignatureError, sign};
use longhaul_api::tls::{self, ServerVerification, TlsError};
use longhaul_proto::SigningKey;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{Notice, Receiver};

/// Maximum size of an answer's head, in bytes; the rest is not read.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// The receiver did not accept a notice.
#[derive(Debug, thiserror::Error)]
pub(super) enum PostError {
    /// The URL is invalid, although it was valid at submission. Another program wrote into the
    /// store.
    #[error("{0}: not an http or https URL")]
    Url(String),
    /// The receiver took too long. The agent sends the notice of the job's end again.
    #[error("the receiver did not answer in time")]
    Slow,
    /// The connection to the receiver failed. Nothing listens there, or the system does not trust
    /// its certificate. The agent tries again.
    #[error("cannot connect to the receiver {0}: {1}")]
    Connect(String, std::io::Error),
    /// TLS is not available on this machine.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The notice cannot be signed.
    #[error(transparent)]
    Signature(#[from] SignatureError),
    /// The connection broke off. It did not answer in HTTP, or not completely. The agent tries
    /// again.
    #[error("the connection to the receiver {0} broke: {1}")]
    BrokeOff(String, hyper::Error),
    /// The answer is not a success. A redirect counts as such an answer. The agent tries again.
    #[error("the receiver {0} answered {1}")]
    Refused(String, StatusCode),
    /// The request cannot be built.
    #[error("cannot build a request from the notice: {0}")]
    Request(axum::http::Error),
}

/// Sends a notice once.
pub(super) async fn post(
    key: &SigningKey,
    notice: &Notice,
    limit: Duration,
) -> Result<(), PostError> {
    let receiver =
        Receiver::parse(&notice.url).ok_or_else(|| PostError::Url(notice.url.clone()))?;
    let reported = timeout(limit, post_to(key, notice, &receiver)).await;
    reported.unwrap_or(Err(PostError::Slow))
}

async fn post_to(key: &SigningKey, notice: &Notice, receiver: &Receiver) -> Result<(), PostError> {
    let unreachable = |error| PostError::Connect(receiver.authority.clone(), error);
    let connect = TcpStream::connect((receiver.host.as_str(), receiver.port));
    let stream = connect.await.map_err(unreachable)?;
    let status = match receiver.scheme {
        Scheme::Http => post_over(key, notice, receiver, TokioIo::new(stream)).await?,
        Scheme::Https => {
            let config = tls::client_config(ServerVerification::BySystem)?;
            let secured = tls::connect(&config, &receiver.host, stream).await;
            post_over(
                key,
                notice,
                receiver,
                TokioIo::new(secured.map_err(unreachable)?),
            )
            .await?
        }
    };
    match status.is_success() {
        true => Ok(()),
        false => Err(PostError::Refused(receiver.authority.clone(), status)),
    }
}

async fn post_over<S>(
    key: &SigningKey,
    notice: &Notice,
    receiver: &Receiver,
    stream: S,
) -> Result<StatusCode, PostError>
where
    S: hyper::rt::Read + hyper::rt::Write + Send + Unpin + 'static,
{
    let broke_off = |error| PostError::BrokeOff(receiver.authority.clone(), error);
    let mut builder = http1::Builder::new();
    builder.max_buf_size(MAX_HEAD_BYTES);
    let (mut sender, connection) = builder.handshake(stream).await.map_err(broke_off)?;
    // Ends the connection's task when this function returns.
    let connection = ConnectionTask(tokio::spawn(connection));
    let request = signed(key, notice, receiver)?;
    let response = sender.send_request(request).await.map_err(broke_off)?;
    drop(connection);
    Ok(response.status())
}

/// Connection task that is aborted when dropped.
struct ConnectionTask(tokio::task::JoinHandle<hyper::Result<()>>);

impl Drop for ConnectionTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn signed(
    key: &SigningKey,
    notice: &Notice,
    receiver: &Receiver,
) -> Result<Request<Full<Bytes>>, PostError> {
    let request = Request::builder()
        .method("POST")
        .uri(&receiver.target)
        .header(header::HOST, &receiver.authority)
        .header(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        )
        .header(
            header::USER_AGENT,
            HeaderValue::from_static(concat!("longhaul/", env!("CARGO_PKG_VERSION"))),
        )
        .header("idempotency-key", &notice.id)
        .body(Bytes::from(notice.body.clone()))
        .map_err(PostError::Request)?;
    let (mut parts, body) = request.into_parts();
    let now = u64::try_from(system_now() / 1000).unwrap_or_default();
    let nonce = random_nonce()?;
    sign(
        &mut parts,
        receiver.scheme,
        &body,
        key,
        Purpose::Notice,
        now,
        &nonce,
    )?;
    Ok(Request::from_parts(parts, Full::new(body)))
}
