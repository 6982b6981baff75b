//! Requests for reservations as documents that stay signed: JSON Web Signatures (RFC 7515), compact
//! or flattened, by Ed25519 keys (`EdDSA`, RFC 8037). Whoever brings one, it is asked for by
//! whoever signed it. Pure: the time is what the caller says.
//!
//! The header says which key signed: by a chain of certificates (`x5c`, RFC 7515, section 4.1.6)
//! that leads to a root that the operator trusts, or by the key itself (`jwk`). What that key may
//! do is what its roles say, whatever the certificate says.

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

/// The longest document, in bytes: a request and a few certificates.
pub const MAX_DOCUMENT_BYTES: usize = 32 * 1024;
/// Certificates of a chain, at most.
const MAX_CERTIFICATES: usize = 8;
/// Longest number of a document (`jti`), in bytes.
const MAX_ID_BYTES: usize = 128;
/// How far the clock of whoever signed may be ahead, in seconds.
const CLOCK_TOLERANCE_S: i64 = 60;
/// For how long a document may still hold when it is taken, in seconds: as long as it is remembered
/// that it was.
const MAX_LIFE_S: i64 = REQUEST_KEY_LIFE_MS / 1_000;

/// What is no document that is taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DocumentFault {
    /// It is not a JWS.
    #[error("the document is no JWS, compact or flattened (RFC 7515): {0}")]
    Form(String),
    /// Its header asks for something else.
    #[error("the document's header is not taken: {0}")]
    Header(String),
    /// It is not what was signed.
    #[error(
        "the document's signature does not fit: it was altered, or another key signed it; sign it again"
    )]
    Signature,
    /// Its certificates lead nowhere.
    #[error(
        "the document's certificates lead to no root that this controller trusts ({0}): its operator names roots in control.toml"
    )]
    Chain(String),
    /// Its content is none.
    #[error("the document's content is not taken: {0}")]
    Content(String),
    /// It is for another one.
    #[error("the document is not addressed to this controller: sign one with \"aud\": \"{0}\"")]
    Audience(String),
    /// It is too late.
    #[error("the document expired {0} s ago: sign a new one")]
    Expired(i64),
    /// It is too early.
    #[error("the document was signed {0} s from now: set the clocks right")]
    Early(i64),
    /// It holds for too long.
    #[error("the document would hold for {0} s more: sign one that holds for at most {MAX_LIFE_S}")]
    Long(i64),
}

/// Roots that certificates may lead to.
#[derive(Debug, Clone, Default)]
pub struct Roots(Vec<TrustAnchor<'static>>);

/// Roots that are none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no certificates of roots: {0}; name a file of certificates in PEM")]
pub struct RootFault(String);

impl Roots {
    /// Those of a file in PEM.
    ///
    /// # Errors
    /// [`RootFault`]: there are none, or one is not a certificate.
    pub fn of_pem(pem: &[u8]) -> Result<Self, RootFault> {
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

/// A request that was signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// Who signed it.
    pub key: PublicKey,
    /// What distinguishes it from others of that key.
    pub id: String,
    /// What is asked for.
    pub request: ReservationRequest,
}

/// The parts of a JWS, in base64url.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Flattened {
    protected: String,
    payload: String,
    signature: String,
}

/// What is read of the protected header. What a reader must understand, and this one does not, is
/// in `crit`.
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

/// An Ed25519 key (RFC 8037, section 2).
#[derive(Debug, Deserialize)]
struct Jwk {
    kty: String,
    crv: String,
    x: String,
}

/// What was signed: claims as those of a JSON Web Token (RFC 7519), of which others are passed
/// over.
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

/// Reads a document: who signed it, and what for.
///
/// # Errors
/// [`DocumentFault`]: it is none, was altered, is for another one than `audience`, or does not hold at `now_ms`, in milliseconds since the Unix epoch.
pub fn read(
    text: &str,
    roots: &Roots,
    audience: &PublicKey,
    now_ms: i64,
) -> Result<Document, DocumentFault> {
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
    holds(&claims, audience, now_s)?;
    Ok(Document {
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

/// The key that a header says signed it.
fn signer(header: &Header, roots: &Roots, now_s: i64) -> Result<PublicKey, DocumentFault> {
    let fault = |why: &str| DocumentFault::Header(why.to_owned());
    if header.alg != "EdDSA" {
        return Err(fault("alg is to be EdDSA"));
    }
    if header.crit.is_some() {
        return Err(fault("crit names what is not known here"));
    }
    match (&header.x5c, &header.jwk) {
        (Some(chain), None) => of_chain(chain, roots, now_s),
        (None, Some(jwk)) => {
            let bytes = BASE64URL_NOPAD.decode(jwk.x.as_bytes()).ok();
            let key = bytes.and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
            key.filter(|_| jwk.kty == "OKP" && jwk.crv == "Ed25519")
                .map(PublicKey::from_bytes)
                .ok_or_else(|| fault("jwk is to be an Ed25519 key (RFC 8037)"))
        }
        _ => Err(fault("one of x5c and jwk is to say which key signed it")),
    }
}

/// The key of the first certificate of a chain that leads to one of the roots.
fn of_chain(chain: &[String], roots: &Roots, now_s: i64) -> Result<PublicKey, DocumentFault> {
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
        DocumentFault::Header("the certificate's key is to be an Ed25519 key".to_owned())
    })
}

/// Whether what was signed is for whoever reads it, now.
fn holds(claims: &Claims, audience: &PublicKey, now_s: i64) -> Result<(), DocumentFault> {
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
