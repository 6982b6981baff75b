//! What WebDAV and plain web servers have beyond an object store: uploads as a stream, directories
//! and renaming.

use longhaul_transfer::{Failure, FailureKind};
use object_store::path::Path as Key;
use reqwest::header::{CONTENT_LENGTH, HeaderMap, HeaderValue, IF_NONE_MATCH};
use reqwest::{Body, Client, Method, RequestBuilder, StatusCode};
use url::Url;

use crate::connect::{base_url, invalid_url, web_client};
use crate::error::Error;
use crate::location::EndpointPath;
use crate::overload::OverloadCount;
use crate::reason::{Reason, shorten};

/// Maximum bytes of an answer that are read for its reason.
const MAX_ANSWER_BYTES: usize = 64 << 10;

/// A client of one web server.
#[derive(Debug)]
pub(crate) struct WebClient {
    client: Client,
    base: Url,
    overloads: OverloadCount,
}

/// An upload by one request.
pub(crate) struct WebUpload {
    pub body: Body,
    pub len: u64,
    /// Modification time in seconds since 1970. ownCloud, Nextcloud and rclone keep it.
    pub mtime: i64,
    /// If true, an existing file is not replaced.
    pub is_new: bool,
}

impl WebClient {
    /// Creates a client, whose answers `overloads` counts.
    ///
    /// # Errors
    /// [`Error::Settings`].
    pub(crate) fn new(path: &EndpointPath, overloads: OverloadCount) -> Result<Self, Error> {
        let client = web_client(path)?.build();
        let client = client.map_err(|error| invalid_url(path, &error))?;
        let base = Url::parse(&base_url(path)).map_err(|error| invalid_url(path, &error))?;
        Ok(Self {
            client,
            base,
            overloads,
        })
    }

    /// Stores a file. A server may refuse the method for one that it has no room for.
    pub(crate) async fn put(&self, key: &Key, upload: WebUpload) -> Result<(), Reason> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_LENGTH, upload.len.into());
        headers.insert("x-oc-mtime", upload.mtime.into());
        if upload.is_new {
            headers.insert(IF_NONE_MATCH, HeaderValue::from_static("*"));
        }
        let request = self.client.request(Method::PUT, self.url(key)?);
        let sent = self.send(request.headers(headers).body(upload.body)).await;
        sent.map_err(|reason| match reason {
            Reason::Unsupported => {
                let why = "the server does not store this file: it knows no PUT, or has no room";
                Reason::Other(why.to_owned())
            }
            other => other,
        })
    }

    /// Creates a directory. One that exists is no error.
    pub(crate) async fn make_dir(&self, key: &Key) -> Result<(), Reason> {
        let request = self.client.request(method(b"MKCOL")?, self.dir_url(key)?);
        match self.send(request).await {
            Err(Reason::Unsupported) => Ok(()),
            made => made,
        }
    }

    /// Removes a directory with all it holds.
    pub(crate) async fn remove_dir(&self, key: &Key) -> Result<(), Reason> {
        let request = self.client.request(Method::DELETE, self.dir_url(key)?);
        self.send(request).await
    }

    /// Renames a file.
    pub(crate) async fn rename(&self, from: &Key, to: &Key, replace: bool) -> Result<(), Reason> {
        let destination = HeaderValue::from_str(self.url(to)?.as_str());
        let destination = destination.map_err(|error| Reason::Other(error.to_string()))?;
        let request = self.client.request(method(b"MOVE")?, self.url(from)?);
        let overwrite = if replace { "T" } else { "F" };
        let request = request.header("destination", destination);
        self.send(request.header("overwrite", overwrite)).await
    }

    fn url(&self, key: &Key) -> Result<Url, Reason> {
        let mut url = self.base.clone();
        match url.path_segments_mut() {
            Ok(mut segments) => {
                segments.pop_if_empty().extend(key.as_ref().split('/'));
            }
            Err(()) => return Err(Reason::Other("not the URL of a server".to_owned())),
        };
        Ok(url)
    }

    /// Returns the URL of a directory. Some servers know directories by the slash at the end.
    fn dir_url(&self, key: &Key) -> Result<Url, Reason> {
        let mut url = self.url(key)?;
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.push("");
        }
        Ok(url)
    }

    async fn send(&self, request: RequestBuilder) -> Result<(), Reason> {
        let answered = request.send().await.map_err(|error| {
            if error.is_timeout() || error.is_connect() {
                self.overloads.note_timeout();
            }
            transport(&error)
        })?;
        let status = answered.status();
        self.overloads.note_status(status.as_u16());
        if status.is_success() {
            return Ok(());
        }
        let answer = answered.bytes().await.unwrap_or_default();
        let answer = answer.get(..MAX_ANSWER_BYTES).unwrap_or(&answer);
        let words = || shorten(&format!("{status}: {}", String::from_utf8_lossy(answer)));
        Err(match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Reason::Denied(words()),
            StatusCode::NOT_FOUND | StatusCode::CONFLICT => Reason::NotFound,
            StatusCode::PRECONDITION_FAILED => Reason::Exists,
            StatusCode::PAYLOAD_TOO_LARGE => Reason::TooLarge,
            StatusCode::INSUFFICIENT_STORAGE => Reason::Full,
            StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => Reason::Unsupported,
            StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
            | StatusCode::TOO_MANY_REQUESTS => Reason::Unreachable(words()),
            _ => Reason::Other(words()),
        })
    }
}

fn method(name: &[u8]) -> Result<Method, Reason> {
    Method::from_bytes(name).map_err(|error| Reason::Other(error.to_string()))
}

/// Returns the reason of a request without an answer. The URL may hold a signature: it is left out.
fn transport(error: &reqwest::Error) -> Reason {
    let mut innermost: &dyn std::error::Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    match innermost.downcast_ref::<ReadFailure>() {
        // The file that was being sent cannot be read.
        Some(ReadFailure(failure)) if failure.kind == FailureKind::Changed => Reason::Changed,
        Some(ReadFailure(failure)) => Reason::Other(failure.to_string()),
        None => Reason::Unreachable(shorten(&innermost.to_string())),
    }
}

/// A source that failed while it was being sent.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct ReadFailure(pub Failure);
