//! Signing of requests.

use data_encoding::{BASE64, BASE64URL_NOPAD};
use http::request::Parts;
use http::{HeaderName, HeaderValue};
use longhaul_proto::SigningKey;
use sfv::{BareItem, InnerList, Integer, Item, Key, String as Text};

use super::digest::{self, CONTENT_DIGEST};
use super::message::Scheme;
use super::presented::parameters;
use super::{Message, Purpose, SignatureError};

/// Lifetime of a signature, in seconds.
const LIFE_S: u64 = 60;
/// Label of a request's only signature.
const LABEL: &str = "longhaul";
/// Length of a nonce, in bytes, before it is encoded as text.
const NONCE_BYTES: usize = 16;

const SIGNATURE_INPUT: HeaderName = HeaderName::from_static("signature-input");
const SIGNATURE: HeaderName = HeaderName::from_static("signature");
/// Fields that are covered if present, as they change a request's effect.
const FIELDS: [&str; 2] = ["content-digest", "idempotency-key"];

/// Creates a random nonce.
///
/// # Errors
/// The system has no random numbers.
pub fn random_nonce() -> Result<String, SignatureError> {
    let mut bytes = [0; NONCE_BYTES];
    aws_lc_rs::rand::fill(&mut bytes)
        .map_err(|_| SignatureError::CannotSign("the system's random generator failed".into()))?;
    Ok(BASE64URL_NOPAD.encode(&bytes))
}

/// Signs a request with that body, sent at `now` (seconds since 1970). Adds `Content-Digest`,
/// `Signature-Input` and `Signature`. The request must have its `Host`, and covered components must
/// not change afterwards.
///
/// # Errors
/// The request has no `Host`, or the key cannot sign.
pub fn sign(
    parts: &mut Parts,
    scheme: Scheme,
    body: &[u8],
    key: &SigningKey,
    purpose: Purpose,
    now: u64,
    nonce: &str,
) -> Result<(), SignatureError> {
    if !body.is_empty() {
        parts
            .headers
            .insert(CONTENT_DIGEST, digest::content_digest(body)?);
    }
    let mut covered: Vec<String> = ["@method", "@authority", "@path", "@query"]
        .map(str::to_owned)
        .into();
    let there = FIELDS
        .iter()
        .filter(|field| parts.headers.contains_key(**field));
    covered.extend(there.map(|field| (*field).to_owned()));
    let list = list(&covered, key, purpose, now, nonce)?;
    let parameters = parameters(&list)?;
    let base = Message::from_parts(parts, scheme)?.signature_base(&covered, &parameters)?;
    let signature = key.sign(base.as_bytes());
    let signature = signature.map_err(|error| SignatureError::CannotSign(error.to_string()))?;
    let value = |text: String| {
        HeaderValue::try_from(text).map_err(|error| SignatureError::CannotSign(error.to_string()))
    };
    let input = value(format!("{LABEL}={parameters}"))?;
    let signature = value(format!("{LABEL}=:{}:", BASE64.encode(&signature)))?;
    parts.headers.insert(SIGNATURE_INPUT, input);
    parts.headers.insert(SIGNATURE, signature);
    Ok(())
}

fn list(
    covered: &[String],
    key: &SigningKey,
    purpose: Purpose,
    now: u64,
    nonce: &str,
) -> Result<InnerList, SignatureError> {
    let text = |text: &str| {
        let text = Text::from_string(text.to_owned());
        text.map_err(|(error, _)| SignatureError::CannotSign(error.to_string()))
    };
    let moment = |at: u64| {
        let at = i64::try_from(at)
            .ok()
            .and_then(|at| Integer::try_from(at).ok());
        at.map(BareItem::from)
            .ok_or_else(|| SignatureError::CannotSign("this machine's clock is wrong".into()))
    };
    // Verifiers that do not preserve the received order serialize the parameters in this one.
    let parameters = [
        ("created", moment(now)?),
        ("expires", moment(now.saturating_add(LIFE_S))?),
        ("nonce", text(nonce)?.into()),
        ("alg", text("ed25519")?.into()),
        ("keyid", text(&key.public().to_string())?.into()),
        ("tag", text(purpose.tag())?.into()),
    ];
    let mut list = InnerList::default();
    for name in covered {
        list.items.push(Item::new(text(name)?));
    }
    for (name, value) in parameters {
        let name = Key::from_string(name.to_owned());
        let name = name.map_err(|(error, _)| SignatureError::CannotSign(error.to_string()))?;
        list.params.insert(name, value);
    }
    Ok(list)
}
