//! Makes a voucher: the private key of a certificate signs an Ed25519 key.

use std::time::Duration;

use longhaul_proto::{
    InvalidVoucher, MAX_VOUCHER_CERTIFICATES, MAX_VOUCHER_LIFETIME, PublicKey, Voucher,
    VoucherFault,
};
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::anchors::{SCHEMES, read_leaf, verify_signature};
use crate::certificate::{CertificateFacts, read_chain};

/// Time before now at which a voucher begins, so that clocks need not agree.
const START_MARGIN: Duration = Duration::from_secs(300);

/// Input of [`vouch`].
#[derive(Clone, Copy)]
pub struct VouchRequest<'a> {
    /// Key to vouch for.
    pub key: PublicKey,
    /// Certificates in PEM: the user's first, then those that issued it. Other sections are
    /// ignored.
    pub certificates: &'a [u8],
    /// Private key of the first certificate in PEM, not encrypted.
    pub private_key: &'a [u8],
    /// Current time, in milliseconds since 1970-01-01 UTC.
    pub now_unix_ms: u64,
    /// Maximum time that the voucher is valid; the certificate may end earlier.
    pub lifetime: Duration,
}

/// Reason why no voucher can be made.
#[derive(Debug, thiserror::Error)]
pub enum VouchError {
    /// The file of the certificate has none. Name the file that begins with `BEGIN CERTIFICATE`.
    #[error("the file of certificates has no certificate in PEM form")]
    NoCertificate,
    /// The private key cannot be read. Keys are RSA of 2048 bits or more, ECDSA (P-256, P-384,
    /// P-521) or Ed25519.
    #[error("the private key cannot be used: it must be RSA, ECDSA or Ed25519, in PEM form")]
    PrivateKey,
    /// The private key is encrypted. Decrypt it in a pipe, so that it never reaches a disk:
    /// `openssl pkey -in userkey.pem | longhaul keys vouch --private-key /dev/stdin`.
    #[error(
        "the private key is encrypted: pipe it, with: openssl pkey -in FILE | longhaul keys vouch \
         --private-key /dev/stdin"
    )]
    Encrypted,
    /// The private key belongs to another certificate: name the files of one pair.
    #[error("the private key is not that of the certificate")]
    OtherKey,
    /// The certificate has expired: get a new one from its authority.
    #[error("the certificate has expired: get a new one from its authority")]
    Expired,
    /// The certificate cannot be read.
    #[error(transparent)]
    Certificate(#[from] VoucherFault),
    /// The chain is too long for a voucher.
    #[error(transparent)]
    Invalid(#[from] InvalidVoucher),
}

/// Makes a voucher.
///
/// # Errors
/// [`VouchError`], if a file is not what it should be, or the certificate has expired.
pub fn vouch(request: &VouchRequest<'_>) -> Result<Voucher, VouchError> {
    let chain: Vec<CertificateDer<'_>> = CertificateDer::pem_slice_iter(request.certificates)
        .collect::<Result<_, _>>()
        .map_err(|_| VouchError::NoCertificate)?;
    let (leaf, issuers) = chain.split_first().ok_or(VouchError::NoCertificate)?;
    let end = CertificateFacts::read(leaf)?.end_unix_ms;
    if end <= request.now_unix_ms {
        return Err(VouchError::Expired);
    }
    let mut certificates = vec![leaf.to_vec()];
    for issuer in issuers {
        // Receivers have the root, or do not trust it.
        if !CertificateFacts::read(issuer)?.is_self_issued() {
            certificates.push(issuer.to_vec());
        }
    }
    certificates.truncate(MAX_VOUCHER_CERTIFICATES);
    read_chain(&certificates)?;
    let signer = any_supported_type(&read_key(request.private_key)?)
        .ok()
        .and_then(|key| key.choose_scheme(&SCHEMES))
        .ok_or(VouchError::PrivateKey)?;
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let start = request.now_unix_ms.saturating_sub(millis(START_MARGIN));
    let wanted = request.now_unix_ms.saturating_add(millis(request.lifetime));
    let longest = start.saturating_add(millis(MAX_VOUCHER_LIFETIME));
    let mut voucher = Voucher {
        key: request.key,
        start_unix_ms: start,
        end_unix_ms: end.min(wanted).min(longest),
        certificates,
        scheme: signer.scheme().into(),
        signature: Vec::new(),
    };
    voucher.signature = signer
        .sign(&voucher.signed_bytes())
        .map_err(|_| VouchError::PrivateKey)?;
    verify_signature(&voucher, &read_leaf(leaf)?).map_err(|_| VouchError::OtherKey)?;
    voucher.check_time(request.now_unix_ms)?;
    voucher.to_bytes()?;
    Ok(voucher)
}

fn read_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, VouchError> {
    // PEM is ASCII; a label or header says whether the key is encrypted.
    let is_encrypted = |label: &[u8]| pem.windows(label.len()).any(|window| window == label);
    if is_encrypted(b"ENCRYPTED PRIVATE KEY") || is_encrypted(b"Proc-Type: 4,ENCRYPTED") {
        return Err(VouchError::Encrypted);
    }
    PrivateKeyDer::from_pem_slice(pem).map_err(|_| VouchError::PrivateKey)
}
