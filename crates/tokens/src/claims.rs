//! Claims of a token (RFC 7519, RFC 9068, the WLCG profile and SciTokens).

use serde::Deserialize;

/// Claims that decide what a token permits. Others are ignored.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Claims {
    /// Issuer.
    pub iss: String,
    /// Subject, unique at the issuer.
    pub sub: String,
    /// Services that the token is for.
    pub aud: OneOrMany,
    /// Expiry, in seconds since 1970.
    pub exp: f64,
    /// Time before which the token is not valid, in seconds since 1970.
    pub nbf: Option<f64>,
    /// Scopes, separated by spaces (RFC 8693, section 4.2). Some issuers have a list.
    #[serde(default)]
    pub scope: OneOrMany,
    /// Groups of the subject.
    #[serde(rename = "wlcg.groups", default)]
    pub groups: Vec<String>,
}

/// A claim with one value or several.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(crate) enum OneOrMany {
    /// One value.
    One(String),
    /// Several values.
    Many(Vec<String>),
}

impl Default for OneOrMany {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

impl OneOrMany {
    /// Returns the values.
    pub(crate) fn values(&self) -> &[String] {
        match self {
            Self::One(value) => std::slice::from_ref(value),
            Self::Many(values) => values,
        }
    }

    /// Returns the words of all values.
    pub(crate) fn words(&self) -> impl Iterator<Item = &str> {
        self.values()
            .iter()
            .flat_map(|value| value.split_ascii_whitespace())
    }
}

/// The claim by which the issuer of a token is found, before its signature is verified.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct UnverifiedIssuer {
    pub iss: String,
}

/// What a client reads of its own token, which it does not verify.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct OwnClaims {
    #[serde(default)]
    pub aud: OneOrMany,
    pub exp: Option<f64>,
}
