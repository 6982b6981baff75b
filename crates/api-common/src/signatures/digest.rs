//! `Content-Digest` with SHA-256 (RFC 9530).

use aws_lc_rs::digest::{SHA256, digest};
use data_encoding::BASE64;
use http::{HeaderMap, HeaderName, HeaderValue};
use sfv::{BareItem, Dictionary, ListEntry, Parser};

use super::SignatureError;
use super::message::combined_field;

/// Name of the field.
pub const CONTENT_DIGEST: HeaderName = HeaderName::from_static("content-digest");

/// Returns the field's value for a body.
///
/// # Errors
/// Never in practice: base64 consists of valid header characters.
pub fn content_digest(body: &[u8]) -> Result<HeaderValue, SignatureError> {
    let value = format!(
        "sha-256=:{}:",
        BASE64.encode(digest(&SHA256, body).as_ref())
    );
    HeaderValue::try_from(value).map_err(|_| SignatureError::NoDigest)
}

/// Checks that the field is present and matches `body`. Hashes other than SHA-256 are ignored, as
/// the RFC allows.
///
/// # Errors
/// The body does not match, or the field has no SHA-256.
pub fn check(headers: &HeaderMap, body: &[u8]) -> Result<(), SignatureError> {
    let text = combined_field(headers, CONTENT_DIGEST.as_str())?.ok_or(SignatureError::NoDigest)?;
    let hashes: Dictionary = Parser::new(&text)
        .parse()
        .map_err(|_| SignatureError::NoDigest)?;
    let Some(ListEntry::Item(item)) = hashes.get("sha-256") else {
        return Err(SignatureError::NoDigest);
    };
    let BareItem::ByteSequence(reported) = &item.bare_item else {
        return Err(SignatureError::NoDigest);
    };
    match reported.as_slice() == digest(&SHA256, body).as_ref() {
        true => Ok(()),
        false => Err(SignatureError::Digest),
    }
}
