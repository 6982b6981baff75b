//! Clients of WebDAV and web servers.

use std::sync::Arc;

use object_store::client::HttpClient;
use object_store::http::HttpBuilder;
use object_store::{ClientOptions, RetryConfig};
use reqwest::ClientBuilder;

use super::{CONNECT_TIMEOUT, Connection, Purpose, invalid, read_timeout};
use crate::error::Error;
use crate::location::{EndpointPath, Scheme};
use crate::login;
use crate::overload::CountingConnector;

/// Creates a client of a web server.
///
/// # Errors
/// [`Error::Settings`].
pub(super) fn connect(
    path: &EndpointPath,
    purpose: Purpose,
    retry: RetryConfig,
    connector: CountingConnector,
) -> Result<Connection, Error> {
    let client = web_client(path)?
        .read_timeout(read_timeout(purpose))
        .build()
        .map_err(|error| invalid_url(path, &error))?;
    let built = HttpBuilder::new()
        .with_url(base_url(path))
        .with_client_options(ClientOptions::new().with_allow_http(!has_tls(path)))
        .with_http_connector(CountingConnector {
            client: Some(HttpClient::new(client)),
            ..connector
        })
        .with_retry(retry)
        .build()
        .map_err(|error| invalid(path, "the URL", &error))?;
    Ok(Connection {
        objects: Arc::new(built),
        parts: None,
    })
}

/// Returns the settings of a client for a web server. Its headers are written as `Content-Length`,
/// because XRootD 5.5 ignores those in small letters, and would store empty files.
///
/// # Errors
/// [`Error::Settings`].
pub(crate) fn web_client(path: &EndpointPath) -> Result<ClientBuilder, Error> {
    Ok(ClientBuilder::new()
        .user_agent(concat!("longhaul/", env!("CARGO_PKG_VERSION")))
        .default_headers(login::headers(path)?)
        .connect_timeout(CONNECT_TIMEOUT)
        .https_only(has_tls(path))
        .http1_only()
        .http1_title_case_headers()
        .no_gzip()
        .no_brotli()
        .no_zstd()
        .no_deflate())
}

/// Returns the error for a client that cannot be made.
pub(crate) fn invalid_url(path: &EndpointPath, error: &dyn std::error::Error) -> Error {
    Error::Settings {
        place: path.place(),
        what: "the URL".to_owned(),
        reason: error.to_string(),
    }
}

/// Returns the URL of a web server, with the query of the path.
pub(crate) fn base_url(path: &EndpointPath) -> String {
    let scheme = if has_tls(path) { "https" } else { "http" };
    let query = path
        .query()
        .map_or(String::new(), |query| format!("?{query}"));
    format!("{scheme}://{}/{query}", path.authority())
}

const fn has_tls(path: &EndpointPath) -> bool {
    !matches!(path.scheme(), Scheme::Web(false) | Scheme::Dav(false))
}
