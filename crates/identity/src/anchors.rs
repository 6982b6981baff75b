//! Certificates of authorities and their revocation lists, loaded from files or from a directory
//! as IGTF distributes it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use longhaul_hop::{read_trusted_bytes, unix_ms};
use longhaul_proto::{Voucher, VoucherFault};
use rustls::SignatureScheme;
use rustls::crypto::{WebPkiSupportedAlgorithms, aws_lc_rs};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, TrustAnchor, UnixTime};
use webpki::{
    CertRevocationList, EndEntityCert, ExpirationPolicy, KeyUsage, OwnedCertRevocationList,
    RevocationCheckDepth, RevocationOptionsBuilder, UnknownStatusPolicy, anchor_from_trusted_cert,
};

use crate::IdentityError;
use crate::certificate::CertificateFacts;

/// Signature schemes by which a leaf may sign a voucher, in the order of preference (LH-VOUCHER-2).
pub(crate) const SCHEMES: [SignatureScheme; 7] = [
    SignatureScheme::ED25519,
    SignatureScheme::ECDSA_NISTP256_SHA256,
    SignatureScheme::ECDSA_NISTP384_SHA384,
    SignatureScheme::ECDSA_NISTP521_SHA512,
    SignatureScheme::RSA_PSS_SHA256,
    SignatureScheme::RSA_PSS_SHA384,
    SignatureScheme::RSA_PSS_SHA512,
];

/// Trust anchors, and the revocation lists of their authorities.
#[derive(Debug, Default)]
pub struct TrustAnchors {
    anchors: Vec<TrustAnchor<'static>>,
    revoked: Vec<CertRevocationList<'static>>,
}

impl TrustAnchors {
    /// Loads the certificates of a PEM file, or of a directory: names that end in a number, as in
    /// `1a2b3c4d.0`, or in `.pem`, `.crt` or `.cer`. Expired ones are left out.
    ///
    /// Revocation lists are those in `crls`, a file or directory, or else in the directory of
    /// anchors: names that end in `.r` and a number, or in `.crl`. They are PEM or DER.
    ///
    /// # Errors
    /// [`IdentityError`], which names the file. A revocation list that cannot be used is an error,
    /// because its certificates would otherwise be accepted.
    pub fn load(anchors: &Path, crls: Option<&Path>) -> Result<Self, IdentityError> {
        let mut loaded = Self::default();
        loaded.load_anchors(anchors)?;
        if loaded.anchors.is_empty() {
            return Err(IdentityError::NoAnchors {
                file: anchors.to_owned(),
            });
        }
        match crls {
            Some(crls) => loaded.load_revoked(crls)?,
            None if anchors.is_dir() => loaded.load_revoked(anchors)?,
            None => {}
        }
        Ok(loaded)
    }

    fn load_anchors(&mut self, path: &Path) -> Result<(), IdentityError> {
        let is_dir = path.is_dir();
        let files = match is_dir {
            true => list_dir(path, is_anchor_name)?,
            false => vec![path.to_owned()],
        };
        // Directories have each certificate twice: by its name and by its hash.
        let mut seen = BTreeSet::new();
        for file in files {
            let text = read(&file)?;
            for der in CertificateDer::pem_slice_iter(&text) {
                let der = der.map_err(|error| invalid(&file, error));
                match der.and_then(|der| Ok((anchor(&der, &file)?, der))) {
                    Ok((Some(anchor), der)) if seen.insert(der.to_vec()) => {
                        self.anchors.push(anchor);
                    }
                    Ok(_) => {}
                    // A single odd authority does not disable the others.
                    Err(error) if is_dir => tracing::warn!("left out an authority: {error}"),
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    fn load_revoked(&mut self, path: &Path) -> Result<(), IdentityError> {
        let files = match path.is_dir() {
            true => list_dir(path, is_crl_name)?,
            false => vec![path.to_owned()],
        };
        for file in files {
            let bytes = read(&file)?;
            // A sequence in DER begins with this byte; no PEM file does.
            let lists: Vec<CertificateRevocationListDer<'_>> = match bytes.first() {
                Some(0x30) => vec![CertificateRevocationListDer::from(bytes.as_slice())],
                _ => CertificateRevocationListDer::pem_slice_iter(&bytes)
                    .collect::<Result<_, _>>()
                    .map_err(|error| invalid(&file, error))?,
            };
            if lists.is_empty() {
                return Err(invalid(&file, "it has no revocation list"));
            }
            for der in lists {
                let list = OwnedCertRevocationList::from_der(&der)
                    .map_err(|error| invalid(&file, format!("revocation list: {error}")))?;
                self.revoked.push(list.into());
            }
        }
        Ok(())
    }

    /// Verifies the chain of a voucher's leaf for `usage`, and returns the end of the first
    /// certificate of the chain that ends, in milliseconds since 1970-01-01 UTC.
    ///
    /// # Errors
    /// [`VoucherFault`]: no anchor has issued it, or it is expired, revoked or unusable.
    pub(crate) fn verify_chain(
        &self,
        leaf: &EndEntityCert<'_>,
        issuers: &[CertificateDer<'_>],
        usage: KeyUsage,
        now_unix_ms: u64,
    ) -> Result<u64, VoucherFault> {
        let revoked: Vec<&CertRevocationList<'_>> = self.revoked.iter().collect();
        let revocation = RevocationOptionsBuilder::new(&revoked).ok().map(|options| {
            options
                .with_depth(RevocationCheckDepth::Chain)
                // Authorities without a list are accepted; a list that is too old is not.
                .with_status_policy(UnknownStatusPolicy::Allow)
                .with_expiration_policy(ExpirationPolicy::Enforce)
                .build()
        });
        let path = leaf
            .verify_for_usage(
                algorithms().all,
                &self.anchors,
                issuers,
                UnixTime::since_unix_epoch(Duration::from_millis(now_unix_ms)),
                usage,
                revocation,
                None,
            )
            .map_err(fault)?;
        let mut end = CertificateFacts::read(&leaf.der())?.end_unix_ms;
        for issuer in path.intermediate_certificates() {
            end = end.min(CertificateFacts::read(&issuer.der())?.end_unix_ms);
        }
        Ok(end)
    }
}

/// Verifies that the leaf's key has signed the voucher (LH-VOUCHER-2).
pub(crate) fn verify_signature(
    voucher: &Voucher,
    leaf: &EndEntityCert<'_>,
) -> Result<(), VoucherFault> {
    let scheme = SignatureScheme::from(voucher.scheme);
    if !SCHEMES.contains(&scheme) {
        return Err(VoucherFault::Signature);
    }
    let text = voucher.signed_bytes();
    let mapping = algorithms().mapping.iter();
    let mut candidates = mapping
        .filter(|(mapped, _)| *mapped == scheme)
        .flat_map(|(_, algorithms)| algorithms.iter());
    let verified = candidates.any(|algorithm| {
        leaf.verify_signature(*algorithm, &text, &voucher.signature)
            .is_ok()
    });
    verified.then_some(()).ok_or(VoucherFault::Signature)
}

/// Reads the leaf of a chain.
pub(crate) fn read_leaf<'a>(
    leaf: &'a CertificateDer<'a>,
) -> Result<EndEntityCert<'a>, VoucherFault> {
    EndEntityCert::try_from(leaf).map_err(fault)
}

fn algorithms() -> WebPkiSupportedAlgorithms {
    aws_lc_rs::default_provider().signature_verification_algorithms
}

/// Returns the anchor of a certificate, or `None` if it has expired.
fn anchor(
    der: &CertificateDer<'_>,
    file: &Path,
) -> Result<Option<TrustAnchor<'static>>, IdentityError> {
    let facts = CertificateFacts::read(der).map_err(|error| invalid(file, error))?;
    if facts.end_unix_ms <= unix_ms() {
        return Ok(None);
    }
    let anchor = anchor_from_trusted_cert(der).map_err(|error| invalid(file, error))?;
    Ok(Some(anchor.to_owned()))
}

/// Returns the fault that explains an error of the verifier.
fn fault(error: webpki::Error) -> VoucherFault {
    use webpki::Error;
    match error {
        Error::CertExpired { .. } => VoucherFault::CertificateExpired,
        Error::CertNotValidYet { .. } => VoucherFault::CertificateNotYetValid,
        Error::CertRevoked => VoucherFault::Revoked,
        Error::CrlExpired { .. } => VoucherFault::OutdatedRevocationList,
        Error::UnknownIssuer => VoucherFault::UnknownIssuer,
        Error::UnsupportedCriticalExtension => VoucherFault::Certificate(
            "it has a critical extension that is not supported; proxy certificates (RFC 3820) are \
             not accepted, so vouch with the certificate itself",
        ),
        Error::EndEntityUsedAsCa => VoucherFault::Certificate(
            "a certificate that is no authority has issued it; proxy certificates are not accepted",
        ),
        Error::CaUsedAsEndEntity => {
            VoucherFault::Certificate("it belongs to an authority, and not to a user or host")
        }
        Error::RequiredEkuNotFoundContext(_) => {
            VoucherFault::Certificate("its extended key usage does not permit this")
        }
        Error::NameConstraintViolation => {
            VoucherFault::Certificate("its issuer may not issue certificates for its names")
        }
        Error::InvalidSignatureForPublicKey => {
            VoucherFault::Certificate("the signature of its issuer does not match")
        }
        Error::InvalidCrlSignatureForPublicKey => {
            VoucherFault::Certificate("the signature of its authority's revocation list is invalid")
        }
        Error::UnsupportedSignatureAlgorithmContext(_)
        | Error::UnsupportedSignatureAlgorithmForPublicKeyContext(_) => VoucherFault::Certificate(
            "its signature has an algorithm that is not accepted, such as SHA-1",
        ),
        Error::PathLenConstraintViolated => {
            VoucherFault::Certificate("its chain is longer than its authority permits")
        }
        _ => VoucherFault::Certificate("it is malformed, or its chain breaks a rule of RFC 5280"),
    }
}

fn is_anchor_name(name: &str) -> bool {
    let Some((_, ending)) = name.rsplit_once('.') else {
        return false;
    };
    is_number(ending) || ["pem", "crt", "cer"].contains(&ending)
}

fn is_crl_name(name: &str) -> bool {
    let Some((_, ending)) = name.rsplit_once('.') else {
        return false;
    };
    ending == "crl" || ending.strip_prefix('r').is_some_and(is_number)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns the files of a directory whose names fit, in the order of their names.
fn list_dir(dir: &Path, fits: fn(&str) -> bool) -> Result<Vec<PathBuf>, IdentityError> {
    let unreadable = |source| IdentityError::Unreadable {
        file: dir.to_owned(),
        source,
    };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        if entry.file_name().to_str().is_some_and(fits) {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}

fn read(file: &Path) -> Result<Vec<u8>, IdentityError> {
    read_trusted_bytes(file).map_err(|source| IdentityError::Unreadable {
        file: file.to_owned(),
        source,
    })
}

fn invalid(file: &Path, problem: impl ToString) -> IdentityError {
    IdentityError::Certificate {
        file: file.to_owned(),
        problem: problem.to_string(),
    }
}
