//! TLS 1.3 with raw Ed25519 public keys instead of certificates (RFC 7250): the form in which
//! rustls presents a key, and the checks that every verifier of such keys shares.

use longhaul_proto::{KeyError, PublicKey, SigningKey};
use rustls::CertificateError;
use rustls::DigitallySignedStruct;
use rustls::SignatureScheme;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{WebPkiSupportedAlgorithms, aws_lc_rs, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, SubjectPublicKeyInfoDer};
use rustls::sign::CertifiedKey;

/// Signature schemes of raw keys, for `supported_verify_schemes`.
pub const SCHEMES: [SignatureScheme; 1] = [SignatureScheme::ED25519];

/// Converts the key to the form that rustls presents.
///
/// # Errors
/// [`KeyError::NotPkcs8`] if the library does not accept the key.
pub fn certified_key(key: &SigningKey) -> Result<CertifiedKey, KeyError> {
    let document = key.to_pkcs8()?;
    let document = PrivatePkcs8KeyDer::from(document.as_slice());
    let signing = aws_lc_rs::sign::any_eddsa_type(&document).map_err(|_| KeyError::NotPkcs8)?;
    let spki = key.public().to_spki();
    Ok(CertifiedKey::new(vec![CertificateDer::from(spki)], signing))
}

/// Returns the key that the peer presents.
///
/// # Errors
/// The peer presents something other than an Ed25519 key.
pub fn presented_key(spki: &CertificateDer<'_>) -> Result<PublicKey, rustls::Error> {
    PublicKey::from_spki(spki).ok_or_else(|| CertificateError::BadEncoding.into())
}

/// Checks the peer's signature of the handshake, which proves that it has the key.
///
/// # Errors
/// The signature is wrong.
pub fn verify_handshake(
    message: &[u8],
    spki: &CertificateDer<'_>,
    signature: &DigitallySignedStruct,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<HandshakeSignatureValid, rustls::Error> {
    verify_tls13_signature_with_raw_key(
        message,
        &SubjectPublicKeyInfoDer::from(spki.as_ref()),
        signature,
        algorithms,
    )
}

/// Returns the error of a verifier that is asked about TLS 1.2.
#[must_use]
pub fn only_tls13() -> rustls::Error {
    rustls::Error::General("TLS 1.3 only".into())
}
