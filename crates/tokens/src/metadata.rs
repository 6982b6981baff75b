//! Metadata that an issuer publishes of itself (OpenID Connect Discovery 1.0, RFC 8414).

use serde::Deserialize;
use url::Url;

/// Fields of the metadata that are used.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct IssuerMetadata {
    pub issuer: String,
    pub jwks_uri: Option<Url>,
    pub token_endpoint: Option<Url>,
    /// RFC 8628, section 4.
    pub device_authorization_endpoint: Option<Url>,
    pub revocation_endpoint: Option<Url>,
    #[serde(default)]
    pub scopes_supported: Vec<String>,
}
