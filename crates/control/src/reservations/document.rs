//! Signed reservation requests: JSON Web Signatures (RFC 7515), compact or flattened, by Ed25519
//! keys (`EdDSA`, RFC 8037). A document is a request of its signer, no matter who sends it. Pure:
//! the caller passes the time.
//!
//! The header identifies the key: by a chain of certificates (`x5c`, RFC 7515, section 4.1.6) that
//! leads to a root that the operator trusts, or by the key itself (`jwk`). The rights of that key
//! come from its roles, whatever the certificate says.

#[cfg(test)]
mod tests;

use data_encoding::{BASE64, BASE64URL_NOPAD};
use longhaul_control_api::reservations::ReservationRequest;
use longhaul_proto::PublicKey;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, TrustAnchor, UnixTime};
use serde::Deserialize;
use webpki::{ALL_VERIFICATION_ALGS, EndEntityCert, KeyUsage, anchor_from_trusted_cert};

use crate::store::REQUEST_KEY_LIFE_MS;

/// Maximum length of a document, in bytes: room for a request and a few certificates.
pub const MAX_DOCUMENT_BYTES: usize = 32 * 1024;
/// Maximum number of certificates in a chain.
const MAX_CERTIFICATES: usize = 8;
/// Maximum length of a document's ID (`jti`), in bytes.
const MAX_ID_BYTES: usize = 128;
/// Maximum time by which the signer's clock may be ahead, in seconds.
const CLOCK_TOLERANCE_S: i64 = 60;
/// Maximum remaining validity of a document, in seconds: the time for which its use is remembered.
const MAX_LIFE_S: i64 = REQUEST_KEY_LIFE_MS / 1_000;

/// The document is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DocumentFault {
    /// It is not a JWS. Signed requests are described in docs/reservations.md.
    #[error("the document is not a JWS, compact or flattened (RFC 7515): {0}")]
    Form(String),
    /// Its header is not supported. `alg` must be `EdDSA`, `x5c` or `jwk` must have an Ed25519 key,
    /// and there must be no `crit`.
    #[error("the document's header is not accepted: {0}")]
    Header(String),
    /// Its signature is not valid.
    #[error(
        "the document's signature is invalid: the document was altered, or another key signed it; \
         sign it again"
    )]
    Signature,
    /// Its certificates do not lead to a trusted root.
    #[error(
        "the document's certificates lead to no root that this controller trusts ({0}): its \
        operator names roots in control.toml"
    )]
    Chain(String),
    /// Its content is invalid.
    #[error("the document's content is not accepted: {0}")]
    Content(String),
    /// It is addressed to another controller. Use the key that `longhaul control` prints.
    #[error("the document is not addressed to this controller: sign one with \"aud\": \"{0}\"")]
    Audience(String),
    /// It has expired.
    #[error("the document expired {0} s ago: sign a new one")]
    Expired(i64),
    /// It was signed in the future. A difference of a minute is allowed.
    #[error("the document was signed {0} s in the future: check both clocks")]
    Early(i64),
    /// It is valid for too long.
    #[error(
        "the document is valid for {0} s more: sign one that is valid for at most {MAX_LIFE_S} s"
    )]
    Long(i64),
}

/// Root certificates.
#[derive(Debug, Clone, Default)]
pub struct Roots(Vec<TrustAnchor<'static>>);

/// The root certificates are invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot read the root certificates: {0}; name a file of certificates in PEM form")]
pub struct RootFault(String);

impl Roots {
    /// Reads root certificates in PEM form.
    ///
    /// # Errors
    /// [`RootFault`]: there are no certificates, or one is invalid.
    pub fn from_pem(pem: &[u8]) -> Result<Self, RootFault> {
        let fault = |why: String| RootFault(why);
        let mut roots = Vec::new();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|error| fault(error.to_string()))?;
            let anchor =
                anchor_from_trusted_cert(&certificate).map_err(|error| fault(error.to_string()))?;
            roots.push(anchor.to_owned());
        }
        match roots.is_empty() {
            true => Err(fault("the file holds none".to_owned())),
            false => Ok(Self(roots)),
        }
    }
}

/// Verified request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedRequest {
    /// Key of the signer.
    pub key: PublicKey,
    /// ID, unique among the signer's documents.
    pub id: String,
    /// The request.
    pub request: ReservationRequest,
}

/// Parts of a JWS, in base64url.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Flattened {
    protected: String,
    payload: String,
    signature: String,
}

/// Supported fields of the protected header. `crit` lists extensions that a reader must understand;
/// this one supports none.
#[derive(Debug, Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    x5c: Option<Vec<String>>,
    #[serde(default)]
    jwk: Option<Jwk>,
    #[serde(default)]
    crit: Option<serde_json::Value>,
}

/// Ed25519 key (RFC 8037, section 2).
#[derive(Debug, Deserialize)]
struct Jwk {
    kty: String,
    crv: String,
    x: String,
}

/// Signed claims, as in a JSON Web Token (RFC 7519). Other claims are ignored.
#[derive(Debug, Deserialize)]
struct Claims {
    aud: Audience,
    iat: i64,
    exp: i64,
    jti: String,
    reservation: ReservationRequest,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Several(Vec<String>),
}

/// Verifies a document, and returns its signer and request.
///
/// # Errors
/// [`DocumentFault`]: the document is malformed or altered, is addressed to another than
/// `audience`, or is not valid at `now_ms` (milliseconds since the Unix epoch).
pub fn verify(
    text: &str,
    roots: &Roots,
    audience: &PublicKey,
    now_ms: i64,
) -> Result<SignedRequest, DocumentFault> {
    let form = |why: &dyn std::fmt::Display| DocumentFault::Form(why.to_string());
    let Flattened {
        protected,
        payload,
        signature,
    } = parts(text)?;
    let decoded = |part: &str| {
        let decoded = BASE64URL_NOPAD.decode(part.as_bytes());
        decoded.map_err(|error| form(&error))
    };
    let header: Header = serde_json::from_slice(&decoded(&protected)?)
        .map_err(|error| DocumentFault::Header(error.to_string()))?;
    let now_s = now_ms.div_euclid(1_000);
    let key = signer(&header, roots, now_s)?;
    let signature: [u8; 64] = decoded(&signature)?
        .try_into()
        .map_err(|_| DocumentFault::Signature)?;
    let signed = format!("{protected}.{payload}");
    if !key.verify(signed.as_bytes(), &signature) {
        return Err(DocumentFault::Signature);
    }
    let claims: Claims = serde_json::from_slice(&decoded(&payload)?)
        .map_err(|error| DocumentFault::Content(error.to_string()))?;
    check_claims(&claims, audience, now_s)?;
    Ok(SignedRequest {
        key,
        id: claims.jti,
        request: claims.reservation,
    })
}

fn parts(text: &str) -> Result<Flattened, DocumentFault> {
    let form = |why: &str| DocumentFault::Form(why.to_owned());
    if text.len() > MAX_DOCUMENT_BYTES {
        return Err(form("it is too long"));
    }
    let text = text.trim_ascii();
    if text.starts_with('{') {
        return serde_json::from_str(text).map_err(|error| form(&error.to_string()));
    }
    let mut parts = text.split('.').map(str::to_owned);
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(protected), Some(payload), Some(signature), None) => Ok(Flattened {
            protected,
            payload,
            signature,
        }),
        _ => Err(form("three parts are expected")),
    }
}

/// Returns the key that signed, according to the header.
fn signer(header: &Header, roots: &Roots, now_s: i64) -> Result<PublicKey, DocumentFault> {
    let fault = |why: &str| DocumentFault::Header(why.to_owned());
    if header.alg != "EdDSA" {
        return Err(fault("alg must be EdDSA"));
    }
    if header.crit.is_some() {
        return Err(fault("crit names an unknown extension"));
    }
    match (&header.x5c, &header.jwk) {
        (Some(chain), None) => key_of_chain(chain, roots, now_s),
        (None, Some(jwk)) => {
            let bytes = BASE64URL_NOPAD.decode(jwk.x.as_bytes()).ok();
            let key = bytes.and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
            key.filter(|_| jwk.kty == "OKP" && jwk.crv == "Ed25519")
                .map(PublicKey::from_bytes)
                .ok_or_else(|| fault("jwk must be an Ed25519 key (RFC 8037)"))
        }
        _ => Err(fault("one of x5c and jwk must name the key that signed it")),
    }
}

/// Returns the key of the first certificate in a chain that leads to one of the roots.
fn key_of_chain(chain: &[String], roots: &Roots, now_s: i64) -> Result<PublicKey, DocumentFault> {
    let fault = |why: &dyn std::fmt::Display| DocumentFault::Chain(why.to_string());
    if chain.len() > MAX_CERTIFICATES {
        return Err(fault(&"there are too many"));
    }
    let decoded = |text: &String| {
        let der = BASE64.decode(text.as_bytes());
        der.map(CertificateDer::from).map_err(|error| fault(&error))
    };
    let chain: Vec<CertificateDer<'_>> = chain.iter().map(decoded).collect::<Result<_, _>>()?;
    let Some((first, between)) = chain.split_first() else {
        return Err(fault(&"there is none"));
    };
    let certificate = EndEntityCert::try_from(first).map_err(|error| fault(&error))?;
    let seconds = u64::try_from(now_s).unwrap_or_default();
    let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
    certificate
        .verify_for_usage(
            ALL_VERIFICATION_ALGS,
            &roots.0,
            between,
            now,
            KeyUsage::client_auth(),
            None,
            None,
        )
        .map_err(|error| fault(&error))?;
    PublicKey::from_spki(&certificate.subject_public_key_info()).ok_or_else(|| {
        DocumentFault::Header("the certificate's key must be an Ed25519 key".to_owned())
    })
}

/// Checks that the claims are addressed to this controller and valid now.
fn check_claims(claims: &Claims, audience: &PublicKey, now_s: i64) -> Result<(), DocumentFault> {
    let wanted = audience.to_string();
    let is_for = match &claims.aud {
        Audience::One(one) => *one == wanted,
        Audience::Several(several) => several.contains(&wanted),
    };
    if !is_for {
        return Err(DocumentFault::Audience(wanted));
    }
    if claims.exp <= now_s {
        return Err(DocumentFault::Expired(now_s.saturating_sub(claims.exp)));
    }
    if claims.iat > now_s.saturating_add(CLOCK_TOLERANCE_S) {
        return Err(DocumentFault::Early(claims.iat.saturating_sub(now_s)));
    }
    let left = claims.exp.saturating_sub(now_s);
    if left > MAX_LIFE_S {
        return Err(DocumentFault::Long(left));
    }
    if !(1..=MAX_ID_BYTES).contains(&claims.jti.len()) {
        return Err(DocumentFault::Content(format!(
            "jti has 1 to {MAX_ID_BYTES} bytes"
        )));
    }
    Ok(())
}
