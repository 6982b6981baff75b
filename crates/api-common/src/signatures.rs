//! Signed requests: HTTP Message Signatures (RFC 9421) with Ed25519, over a body's hash (RFC 9530).
//! Pure: no I/O, no clock.
//!
//! | module | purpose |
//! |---|---|
//! | [`message`] | components of a request that can be covered, and the text that is signed |
//! | [`sign`] | signs a request |
//! | [`presented`] | parses the signature of a request and verifies it |
//! | [`digest`] | `Content-Digest` |
//!
//! A key signs for one [`Purpose`] at a time, given by the parameter `tag`. A signature for one
//! purpose is not valid for another.

pub mod digest;
pub mod message;
pub mod presented;
pub mod sign;

pub use message::Message;
pub use presented::Presented;
pub use sign::sign;

/// Header with the voucher of the key that signs a request, as text (LH-VOUCHER-7). The signature
/// need not cover it, as it is signed itself and names the key.
pub const VOUCHER_HEADER: &str = "longhaul-voucher";

/// Purpose of a signed request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Request to a Longhaul service.
    Api,
    /// Event notice to a user's own service.
    Notice,
}

impl Purpose {
    /// Returns the signature's parameter `tag`.
    #[must_use]
    pub const fn tag(self) -> &'static str {
        match self {
            Self::Api => "longhaul-api",
            Self::Notice => "longhaul-notice",
        }
    }
}

/// The request has no valid signature.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// The request has no signature for this purpose. Ask with `longhaul`, or sign requests as
    /// docs/api.md describes.
    #[error("the request is not signed (RFC 9421, with the tag {0})")]
    Missing(&'static str),
    /// The request has several signatures for this purpose. Send one.
    #[error("the request has several signatures with the tag {0}")]
    Several(&'static str),
    /// The signature fields are malformed.
    #[error("the request's signature cannot be read: {0}")]
    Malformed(&'static str),
    /// The signature covers a component that is not supported.
    #[error("the signature covers {0}, which is not understood here")]
    Component(String),
    /// The signature covers a field that the request does not have.
    #[error("the signature covers {0}, which the request does not have")]
    Absent(String),
    /// The signature does not cover a required component. Sign the method, the target, the body and
    /// the idempotency key.
    #[error("the signature does not cover {0}")]
    Uncovered(&'static str),
    /// The signature is by another key, or for another request.
    #[error("the signature is not that of the key {0} over this request")]
    Wrong(String),
    /// `Content-Digest` is missing, or has no supported hash.
    #[error("Content-Digest has no sha-256")]
    NoDigest,
    /// The body does not match its hash.
    #[error("the body is not the one that was signed")]
    Digest,
    /// The request cannot be signed. The key or the system's random number generator failed.
    #[error("the request cannot be signed: {0}")]
    CannotSign(String),
}

#[cfg(test)]
mod tests;
