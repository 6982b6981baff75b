//! Client of one service: sends a request and receives the answer. Each request has its own
//! connection.

use std::path::PathBuf;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use longhaul_proto::text::printable;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use crate::error::ClientError;
use crate::https::Https;

/// Default maximum size of an answer, in bytes. A job's report can list a thousand failures.
pub const MAX_ANSWER_BYTES: usize = 64 << 20;
/// Maximum number of bytes shown of an answer that is not a problem document.
const MAX_SHOWN_BYTES: usize = 200;

/// Transport to a service.
#[derive(Debug)]
enum Way {
    Socket(PathBuf),
    Https(Box<Https>),
}

/// Client of a service.
#[derive(Debug)]
pub struct ServiceClient {
    service: &'static str,
    way: Way,
    max_answer: usize,
}

impl ServiceClient {
    /// Creates a client for a service at a Unix socket, where the kernel identifies the caller.
    #[must_use]
    pub const fn at_socket(service: &'static str, socket: PathBuf) -> Self {
        Self {
            service,
            way: Way::Socket(socket),
            max_answer: MAX_ANSWER_BYTES,
        }
    }

    /// Creates a client for a service on another machine.
    #[must_use]
    pub fn elsewhere(service: &'static str, https: Https) -> Self {
        Self {
            service,
            way: Way::Https(Box::new(https)),
            max_answer: MAX_ANSWER_BYTES,
        }
    }

    /// Sets the maximum size of an answer, in bytes.
    #[must_use]
    pub fn taking_at_most(self, max_answer: usize) -> Self {
        Self { max_answer, ..self }
    }

    /// Returns the kind of service, in one word for messages.
    #[must_use]
    pub const fn service(&self) -> &'static str {
        self.service
    }

    /// Returns the path of the socket, if the service is at one.
    #[must_use]
    pub fn socket(&self) -> Option<&std::path::Path> {
        match &self.way {
            Way::Socket(socket) => Some(socket),
            Way::Https(_) => None,
        }
    }

    /// Connects without a request, to check that the service answers and is the right one.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn reach(&self) -> Result<(), ClientError> {
        match &self.way {
            Way::Socket(path) => self.at(path).await.map(drop),
            Way::Https(https) => https.connect().await.map(drop),
        }
    }

    /// Sends a request and parses the answer. An answer without content is `null`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn ask<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        body: Option<&impl Serialize>,
        idempotency_key: Option<&str>,
    ) -> Result<T, ClientError> {
        let response = self.send(method, path, body, idempotency_key).await?;
        let bytes = self.content(response).await?;
        let text: &[u8] = if bytes.is_empty() { b"null" } else { &bytes };
        serde_json::from_slice(text).map_err(|error| self.not_understood(error.to_string()))
    }

    /// Sends a request and returns the response without reading its body.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn send(
        &self,
        method: &str,
        path: &str,
        body: Option<&impl Serialize>,
        idempotency_key: Option<&str>,
    ) -> Result<Response<Incoming>, ClientError> {
        let host = match &self.way {
            Way::Socket(_) => "localhost".to_owned(),
            Way::Https(https) => https.authority(),
        };
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", longhaul_control_api::BASE))
            .header("host", host);
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        if let Some(key) = idempotency_key {
            request = request.header("idempotency-key", key);
        }
        let cannot = |why: String| ClientError::Request {
            service: self.service,
            why,
        };
        let body = body.map(serde_json::to_vec).transpose();
        let body = body
            .map_err(|error| cannot(error.to_string()))?
            .unwrap_or_default();
        let request = request.body(Bytes::from(body));
        let request = request.map_err(|error| cannot(error.to_string()))?;
        match &self.way {
            Way::Socket(path) => {
                let stream = self.at(path).await?;
                self.exchange(TokioIo::new(stream), request).await
            }
            Way::Https(https) => {
                let stream = https.connect().await?;
                self.exchange(stream, https.signed(request)?).await
            }
        }
    }

    /// Reads a successful answer; turns a problem document into an error.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn content(&self, response: Response<Incoming>) -> Result<Bytes, ClientError> {
        let (status, bytes) = self.whole(response).await?;
        match status.is_success() {
            true => Ok(bytes),
            false => Err(self.problem(status, &bytes)),
        }
    }

    /// Reads the whole answer, whatever its status.
    ///
    /// # Errors
    /// The connection failed, or the answer is too long.
    pub async fn whole(
        &self,
        response: Response<Incoming>,
    ) -> Result<(StatusCode, Bytes), ClientError> {
        let status = response.status();
        let body = Limited::new(response.into_body(), self.max_answer);
        let body = body
            .collect()
            .await
            .map_err(|error| self.broke_off(error))?;
        Ok((status, body.to_bytes()))
    }

    /// Creates the error of a connection that ended within an answer.
    pub fn broke_off(&self, error: impl ToString) -> ClientError {
        ClientError::BrokeOff {
            service: self.service,
            why: printable(error.to_string().as_bytes()),
        }
    }

    /// Creates the error of a malformed answer.
    #[must_use]
    pub fn not_understood(&self, why: String) -> ClientError {
        ClientError::Answer {
            service: self.service,
            why,
        }
    }

    async fn at(&self, path: &std::path::Path) -> Result<UnixStream, ClientError> {
        let stream = UnixStream::connect(path).await;
        stream.map_err(|source| ClientError::NoSocket {
            path: path.to_owned(),
            source,
        })
    }

    async fn exchange<S>(
        &self,
        stream: S,
        request: Request<Bytes>,
    ) -> Result<Response<Incoming>, ClientError>
    where
        S: hyper::rt::Read + hyper::rt::Write + Send + Unpin + 'static,
    {
        let (mut sender, connection) = http1::handshake(stream)
            .await
            .map_err(|error| self.broke_off(error))?;
        tokio::spawn(connection);
        let sent = sender.send_request(request.map(Full::new)).await;
        sent.map_err(|error| self.broke_off(error))
    }

    /// Creates the error of an answer without success.
    pub(crate) fn problem(&self, status: StatusCode, bytes: &[u8]) -> ClientError {
        match serde_json::from_slice(bytes) {
            Ok(problem) => ClientError::Refused(problem),
            Err(_) => self.not_understood(format!(
                "{status} {}",
                printable(bytes.get(..MAX_SHOWN_BYTES).unwrap_or(bytes))
            )),
        }
    }
}
