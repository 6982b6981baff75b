//! Signed requests: HTTP Message Signatures (RFC 9421) with Ed25519, over a body's hash (RFC 9530).
//! Pure: no I/O, no clock.
//!
//! | room | what it does |
//! |---|---|
//! | [`message`] | what of a request can be covered, and the text that is signed |
//! | [`sign`] | signs a request |
//! | [`presented`] | reads the signature of a request, and says whether it is the key's |
//! | [`digest`] | `Content-Digest` |
//!
//! A key signs for one [`Purpose`] at a time, which stands in the parameter `tag`: what was signed
//! for one is worth nothing for another.

pub mod digest;
pub mod message;
pub mod presented;
pub mod sign;

pub use message::Message;
pub use presented::Presented;
pub use sign::sign;

/// What a request is signed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Asking a service of Longhaul's.
    Api,
    /// Reporting to somebody's service that something has happened.
    Notice,
}

impl Purpose {
    /// The signature's parameter `tag`.
    #[must_use]
    pub const fn tag(self) -> &'static str {
        match self {
            Self::Api => "longhaul-api",
            Self::Notice => "longhaul-notice",
        }
    }
}

/// A request's signature is none, or not good.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// There is none for this purpose.
    #[error("the request is not signed (RFC 9421, with the tag {0})")]
    Missing(&'static str),
    /// More than one for this purpose.
    #[error("the request has several signatures with the tag {0}")]
    Several(&'static str),
    /// The fields cannot be read.
    #[error("the request's signature cannot be read: {0}")]
    Malformed(&'static str),
    /// A part of a request that is not signed here.
    #[error("the signature covers {0}, which is not understood here")]
    Component(String),
    /// A field that is covered and not there.
    #[error("the signature covers {0}, which the request does not have")]
    Absent(String),
    /// What has to be covered is not.
    #[error("the signature does not cover {0}")]
    Uncovered(&'static str),
    /// It is another key's, or of another request.
    #[error("the signature is not that of the key {0} over this request")]
    Wrong(String),
    /// `Content-Digest` is not there, or has no hash that is known here.
    #[error("Content-Digest has no sha-256")]
    NoDigest,
    /// The body is another.
    #[error("the body is not the one that was signed")]
    Digest,
    /// The key cannot sign.
    #[error("the request cannot be signed: {0}")]
    CannotSign(String),
}

#[cfg(test)]
mod tests;
