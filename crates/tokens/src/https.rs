//! Requests to issuers: by HTTPS, within bounds of time and size.

use std::pin::Pin;
use std::time::Duration;

use longhaul_proto::text::printable_within;
use oauth2::AsyncHttpClient;
use reqwest::header::{CONTENT_TYPE, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, Method, Request, Response};
use serde::de::DeserializeOwned;
use url::Url;

use crate::error::FetchError;
use crate::issuer_url::IssuerUrl;
use crate::metadata::IssuerMetadata;

/// Time limit of a request, from its start to the last byte of the answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum size of an answer, in bytes.
const MAX_ANSWER_BYTES: usize = 256 << 10;
/// Maximum length of a quoted cause, in bytes.
const MAX_QUOTED_BYTES: usize = 200;

/// Answer to a request of the library for OAuth 2.0.
type HttpFuture<'c> =
    Pin<Box<dyn Future<Output = Result<oauth2::HttpResponse, FetchError>> + Send + 'c>>;

/// Client of one issuer.
#[derive(Debug, Clone)]
pub(crate) struct IssuerClient {
    issuer: IssuerUrl,
    http: Client,
}

impl IssuerClient {
    /// Creates a client. It follows no redirects, as nothing that an issuer publishes needs any.
    pub(crate) fn new(issuer: &IssuerUrl) -> Result<Self, FetchError> {
        let builder = Client::builder()
            .redirect(Policy::none())
            .https_only(!issuer.is_local())
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(REQUEST_TIMEOUT)
            .user_agent(concat!("longhaul/", env!("CARGO_PKG_VERSION")));
        // A proxy does not lead to this machine.
        let builder = match issuer.is_local() {
            true => builder.no_proxy(),
            false => builder,
        };
        let http = builder
            .build()
            .map_err(|error| unreachable(issuer.as_str(), &error))?;
        Ok(Self {
            issuer: issuer.clone(),
            http,
        })
    }

    /// Fetches the metadata of the issuer.
    pub(crate) async fn metadata(&self) -> Result<IssuerMetadata, FetchError> {
        let mut failed = None;
        for url in self.issuer.metadata_urls() {
            match self.fetch_json::<IssuerMetadata>(&url).await {
                Ok(metadata) if metadata.issuer == self.issuer.as_str() => return Ok(metadata),
                Ok(metadata) => {
                    let other = printable_within(metadata.issuer.as_bytes(), MAX_QUOTED_BYTES);
                    let detail = format!("it names the issuer {other}");
                    return Err(answer(&url, detail));
                }
                // The error of the first place says most.
                Err(error @ FetchError::Status { .. }) => failed = failed.or(Some(error)),
                Err(error) => return Err(error),
            }
        }
        Err(failed.unwrap_or_else(|| FetchError::Answer {
            url: self.issuer.to_string(),
            detail: "it publishes nothing about itself".into(),
        }))
    }

    /// Fetches a document that the issuer names.
    pub(crate) async fn fetch(&self, url: &Url) -> Result<Vec<u8>, FetchError> {
        let request = Request::new(Method::GET, url.clone());
        let response = self.execute_successfully(request).await?;
        self.body(url, response).await
    }

    /// Posts a form, and ignores the answer.
    pub(crate) async fn post_form(&self, url: &Url, form: String) -> Result<(), FetchError> {
        let mut request = Request::new(Method::POST, url.clone());
        let kind = HeaderValue::from_static("application/x-www-form-urlencoded");
        request.headers_mut().insert(CONTENT_TYPE, kind);
        *request.body_mut() = Some(form.into());
        self.execute_successfully(request).await.map(drop)
    }

    async fn fetch_json<T: DeserializeOwned>(&self, url: &Url) -> Result<T, FetchError> {
        let body = self.fetch(url).await?;
        // The error would quote the answer.
        serde_json::from_slice(&body).map_err(|_| answer(url, "not the expected JSON".into()))
    }

    async fn send(&self, request: oauth2::HttpRequest) -> Result<oauth2::HttpResponse, FetchError> {
        let request = Request::try_from(request)
            .map_err(|error| unreachable(self.issuer.as_str(), &error))?;
        let url = request.url().clone();
        let response = self.execute(request).await?;
        let mut answered = http::Response::new(Vec::new());
        *answered.status_mut() = response.status();
        answered.headers_mut().clone_from(response.headers());
        *answered.body_mut() = self.body(&url, response).await?;
        Ok(answered)
    }

    async fn execute(&self, request: Request) -> Result<Response, FetchError> {
        let url = request.url().clone();
        if !self.issuer.may_name(&url) {
            return Err(answer(&url, "it is not protected by TLS".into()));
        }
        let sent = self.http.execute(request).await;
        sent.map_err(|error| unreachable(&shown(&url), &error))
    }

    /// Executes a request. An answer with another status than success is an error.
    async fn execute_successfully(&self, request: Request) -> Result<Response, FetchError> {
        let url = request.url().clone();
        let response = self.execute(request).await?;
        match response.status() {
            status if status.is_success() => Ok(response),
            status => Err(FetchError::Status {
                url: shown(&url),
                status: status.as_u16(),
            }),
        }
    }

    async fn body(&self, url: &Url, mut response: Response) -> Result<Vec<u8>, FetchError> {
        let mut body = Vec::new();
        loop {
            let chunk = response.chunk().await;
            match chunk.map_err(|error| unreachable(&shown(url), &error))? {
                Some(chunk) if body.len() + chunk.len() <= MAX_ANSWER_BYTES => {
                    body.extend_from_slice(&chunk);
                }
                Some(_) => {
                    let detail = format!("longer than {MAX_ANSWER_BYTES} bytes");
                    return Err(answer(url, detail));
                }
                None => return Ok(body),
            }
        }
    }
}

/// Sends the requests of the library for OAuth 2.0.
impl<'c> AsyncHttpClient<'c> for IssuerClient {
    type Error = FetchError;
    type Future = HttpFuture<'c>;

    fn call(&'c self, request: oauth2::HttpRequest) -> HttpFuture<'c> {
        Box::pin(self.send(request))
    }
}

/// Returns a URL without what may be secret.
fn shown(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    printable_within(url.as_str().as_bytes(), MAX_QUOTED_BYTES)
}

fn answer(url: &Url, detail: String) -> FetchError {
    FetchError::Answer {
        url: shown(url),
        detail,
    }
}

/// Returns the error of a request that got no answer. The last cause says most.
fn unreachable(url: &str, error: &reqwest::Error) -> FetchError {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    let detail = match error.is_timeout() {
        true => format!("no answer within {} s", REQUEST_TIMEOUT.as_secs()),
        false => printable_within(cause.to_string().as_bytes(), MAX_QUOTED_BYTES),
    };
    FetchError::Unreachable {
        url: printable_within(url.as_bytes(), MAX_QUOTED_BYTES),
        detail,
    }
}
