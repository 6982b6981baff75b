//! Errors of issuers and of logins.

use std::io;
use std::path::PathBuf;

use longhaul_proto::text::printable;

use crate::issuer_url::IssuerUrlError;

/// Reason why a file of issuers cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IssuersError {
    /// The file can't be read, or others may write it.
    #[error("{file}: {source}")]
    Read {
        /// The file.
        file: String,
        /// Cause.
        source: io::Error,
    },
    /// The file is not TOML of the expected form. The message has the line.
    #[error("{file}: {detail}")]
    Form {
        /// The file, and the line.
        file: String,
        /// Error.
        detail: String,
    },
    /// The HTTPS client cannot be set up. The system's root certificates may be missing.
    #[error("cannot ask issuers: {0}")]
    Client(#[from] FetchError),
}

/// Reason why something could not be fetched from an issuer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// The issuer does not answer, or TLS failed. Check the network, the name, and the root
    /// certificates of this machine.
    #[error("{url} cannot be reached: {detail}")]
    Unreachable {
        /// What was fetched.
        url: String,
        /// Cause.
        detail: String,
    },
    /// The issuer answers with an error. Check its URL.
    #[error("{url} answers with status {status}")]
    Status {
        /// What was fetched.
        url: String,
        /// Status of HTTP.
        status: u16,
    },
    /// The answer is not what the standards say, or is too long. Check the URL of the issuer.
    #[error("{url} does not answer as an issuer should: {detail}")]
    Answer {
        /// What was fetched.
        url: String,
        /// Difference.
        detail: String,
    },
}

/// Reason why a login failed, or cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// The URL is not one of an issuer.
    #[error(transparent)]
    Url(#[from] IssuerUrlError),
    /// The issuer cannot be asked.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// The issuer does not offer device codes (RFC 8628). Get a token by its own means, and name
    /// the file: `longhaul login --from FILE --for HOST`.
    #[error(
        "{issuer} offers no login by device code: get a token by its own means, and use longhaul \
         login --from FILE --for HOST"
    )]
    NoDeviceCodes {
        /// The issuer.
        issuer: String,
    },
    /// The issuer refuses the client, its scopes or its audience. The text is the issuer's.
    #[error("{issuer} refuses the login: {detail}")]
    Refused {
        /// The issuer.
        issuer: String,
        /// Reason, from the issuer.
        detail: String,
    },
    /// The user refused, or did not confirm the code in time. Try again.
    #[error("the login at {issuer} was not confirmed: {detail}; try again")]
    NotConfirmed {
        /// The issuer.
        issuer: String,
        /// Reason, from the issuer.
        detail: String,
    },
    /// The login has ended at the issuer, or had no refresh token. Log in again.
    #[error("the login at {issuer} is not valid any more: {detail}; run longhaul login {issuer}")]
    Ended {
        /// The issuer.
        issuer: String,
        /// Reason.
        detail: String,
    },
    /// The token has expired, and the issuer gave no new one a moment ago. Wait a minute, or log in
    /// again.
    #[error("the token of {issuer} has expired and cannot be renewed now: {detail}")]
    NotRenewed {
        /// The issuer.
        issuer: String,
        /// Reason.
        detail: String,
    },
    /// A file of logins or tokens cannot be read or written.
    #[error("{}: {source}", printable(file.as_os_str().as_encoded_bytes()))]
    File {
        /// The file.
        file: PathBuf,
        /// Cause.
        source: io::Error,
    },
}

impl LoginError {
    /// Returns the error of a file.
    pub(crate) fn file(file: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::File {
            file: file.into(),
            source,
        }
    }
}
