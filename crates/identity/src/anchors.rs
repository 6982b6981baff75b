//! Certificates of authorities and their revocation lists, loaded from files or from a directory
//! as IGTF distributes it.

use std::collections::{BTreeSet, HashMap};
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
use crate::certificate::{CertificateFacts, revocation_list_issuer};

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
    /// Names in DER of the authorities whose list cannot be used. Nobody can tell which of their
    /// certificates were revoked, so all are refused.
    without_list: BTreeSet<Vec<u8>>,
}

/// Names in DER of the authorities in the files of a directory, by the names of the files without
/// their ending. IGTF names the list of `1a2b3c4d.0` `1a2b3c4d.r0`.
type AuthoritiesByFile = HashMap<PathBuf, BTreeSet<Vec<u8>>>;

impl TrustAnchors {
    /// Loads the certificates of a PEM file, or of a directory: names that end in a number, as in
    /// `1a2b3c4d.0`, or in `.pem`, `.crt` or `.cer`. Expired ones are left out.
    ///
    /// Revocation lists are those in `crls`, a file or directory, or else in the directory of
    /// anchors: names that end in `.r` and a number, or in `.crl`. They are PEM or DER.
    ///
    /// In a directory, a certificate that cannot be used is left out, and a revocation list that
    /// cannot be used disables its authority only.
    ///
    /// # Errors
    /// [`IdentityError`], which names the file. It is also an error if the authority of a useless
    /// revocation list cannot be told, because its certificates would otherwise be accepted.
    pub fn load(anchors: &Path, crls: Option<&Path>) -> Result<Self, IdentityError> {
        let mut loaded = Self::default();
        let authorities = loaded.load_anchors(anchors)?;
        if loaded.anchors.is_empty() {
            return Err(IdentityError::NoAnchors {
                file: anchors.to_owned(),
            });
        }
        match crls {
            Some(crls) => loaded.load_revoked(crls, &authorities)?,
            None if anchors.is_dir() => loaded.load_revoked(anchors, &authorities)?,
            None => {}
        }
        Ok(loaded)
    }

    fn load_anchors(&mut self, path: &Path) -> Result<AuthoritiesByFile, IdentityError> {
        let mut authorities = AuthoritiesByFile::new();
        if !path.is_dir() {
            self.load_anchor_file(path, &mut BTreeSet::new(), &mut authorities)?;
            return Ok(authorities);
        }
        // Directories have each certificate twice: by its name and by its hash.
        let mut seen = BTreeSet::new();
        for file in list_dir(path, is_anchor_name)? {
            // A single odd authority does not disable the others.
            if let Err(error) = self.load_anchor_file(&file, &mut seen, &mut authorities) {
                tracing::warn!("left out an authority: {error}");
            }
        }
        Ok(authorities)
    }

    /// Loads the certificates of a file that are not in `seen`.
    fn load_anchor_file(
        &mut self,
        file: &Path,
        seen: &mut BTreeSet<Vec<u8>>,
        authorities: &mut AuthoritiesByFile,
    ) -> Result<(), IdentityError> {
        for der in CertificateDer::pem_slice_iter(&read(file)?) {
            let der = der.map_err(|error| invalid(file, error))?;
            let facts = CertificateFacts::read(&der).map_err(|error| invalid(file, error))?;
            let by_file = authorities.entry(stem(file)).or_default();
            by_file.insert(facts.subject);
            if facts.end_unix_ms <= unix_ms() || !seen.insert(der.to_vec()) {
                continue;
            }
            let anchor = anchor_from_trusted_cert(&der).map_err(|error| invalid(file, error))?;
            self.anchors.push(anchor.to_owned());
        }
        Ok(())
    }

    fn load_revoked(
        &mut self,
        path: &Path,
        authorities: &AuthoritiesByFile,
    ) -> Result<(), IdentityError> {
        if !path.is_dir() {
            return self.load_lists(path, false);
        }
        for file in list_dir(path, is_crl_name)? {
            let Err(error) = self.load_lists(&file, true) else {
                continue;
            };
            let Some(disabled) = authorities.get(&stem(&file)) else {
                return Err(error);
            };
            warn_of_disabled(&error);
            self.without_list.extend(disabled.iter().cloned());
        }
        Ok(())
    }

    /// Loads the revocation lists of a file. With `disables`, one that cannot be used disables its
    /// authority, if it can be told.
    fn load_lists(&mut self, file: &Path, disables: bool) -> Result<(), IdentityError> {
        let bytes = read(file)?;
        // A sequence in DER begins with this byte; no PEM file does.
        let lists: Vec<CertificateRevocationListDer<'_>> = match bytes.first() {
            Some(0x30) => vec![CertificateRevocationListDer::from(bytes.as_slice())],
            _ => CertificateRevocationListDer::pem_slice_iter(&bytes)
                .collect::<Result<_, _>>()
                .map_err(|error| invalid(file, error))?,
        };
        if lists.is_empty() {
            return Err(invalid(file, "it has no revocation list"));
        }
        for der in lists {
            let error = match OwnedCertRevocationList::from_der(&der) {
                Ok(list) => {
                    self.revoked.push(list.into());
                    continue;
                }
                Err(error) => invalid(file, format!("revocation list: {error}")),
            };
            match revocation_list_issuer(&der) {
                Some(issuer) if disables => {
                    warn_of_disabled(&error);
                    self.without_list.insert(issuer);
                }
                _ => return Err(error),
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
        let mut end = u64::MAX;
        let between = path.intermediate_certificates();
        let between = between.map(|certificate| certificate.der());
        for certificate in std::iter::once(leaf.der()).chain(between) {
            let facts = CertificateFacts::read(&certificate)?;
            if self.without_list.contains(&facts.issuer) {
                return Err(VoucherFault::UnusableRevocationList);
            }
            end = end.min(facts.end_unix_ms);
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

/// Returns the fault that explains an error of the verifier.
fn fault(error: webpki::Error) -> VoucherFault {
    use webpki::Error;
    match error {
        Error::CertExpired { .. } => VoucherFault::CertificateExpired,
        Error::CertNotValidYet { .. } => VoucherFault::CertificateNotYetValid,
        Error::CertRevoked => VoucherFault::Revoked,
        Error::CrlExpired { .. } => VoucherFault::UnusableRevocationList,
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

/// Returns the name of a file without its directory and ending.
fn stem(file: &Path) -> PathBuf {
    file.file_stem().map(PathBuf::from).unwrap_or_default()
}

fn warn_of_disabled(error: &IdentityError) {
    tracing::warn!("certificates of an authority are refused until its file is usable: {error}");
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
