//! An authority: its anchors, and the names for which it is believed.

use longhaul_proto::{Voucher, VoucherFault};
use rustls_pki_types::CertificateDer;
use webpki::KeyUsage;

use crate::anchors::{read_leaf, verify_signature};
use crate::certificate::read_chain;
use crate::{NamePattern, TrustAnchors};

/// An authority of the file of principals.
#[derive(Debug)]
pub(crate) struct Authority {
    pub(crate) anchors: TrustAnchors,
    /// Names for which it is believed.
    pub(crate) subjects: Vec<NamePattern>,
    /// Groups of everybody with such a name.
    pub(crate) groups: Vec<String>,
}

/// Facts about a key that a voucher proves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VouchedIdentity {
    /// First name of the certificate, which is its subject if that is text.
    pub(crate) subject: String,
    /// Names of the certificate that the authority is believed for; never empty.
    pub(crate) names: Vec<String>,
    pub(crate) groups: Vec<String>,
    /// Time from which it is no longer believed, in milliseconds since 1970-01-01 UTC.
    pub(crate) end_unix_ms: u64,
}

impl VouchedIdentity {
    /// Returns true if this has all of `other`, until the same time or longer.
    pub(crate) fn outlives(&self, other: &Self) -> bool {
        self.end_unix_ms >= other.end_unix_ms
            && self.names == other.names
            && self.groups == other.groups
    }
}

/// Judges a voucher by the first of `authorities` that is believed for a name of its certificate
/// and has issued it (LH-VOUCHER-5).
pub(crate) fn judge(
    authorities: &[Authority],
    voucher: &Voucher,
    now_unix_ms: u64,
) -> Result<VouchedIdentity, VoucherFault> {
    voucher.check_time(now_unix_ms)?;
    let mut chain = voucher
        .certificates
        .iter()
        .map(|der| CertificateDer::from(der.as_slice()));
    let leaf = chain.next().ok_or(VoucherFault::Signature)?;
    let issuers: Vec<CertificateDer<'_>> = chain.collect();
    let facts = read_chain(&voucher.certificates)?;
    let believed = |authority: &Authority| -> Vec<String> {
        let believes = |name: &&String| {
            let mut subjects = authority.subjects.iter();
            subjects.any(|pattern| pattern.matches(name))
        };
        facts.names.iter().filter(believes).cloned().collect()
    };
    let candidates = authorities
        .iter()
        .map(|authority| (authority, believed(authority)));
    let candidates: Vec<_> = candidates.filter(|(_, names)| !names.is_empty()).collect();
    // Signatures cost the most, so they come last.
    if candidates.is_empty() {
        return Err(VoucherFault::Name);
    }
    let leaf = read_leaf(&leaf)?;
    verify_signature(voucher, &leaf)?;
    let mut fault = VoucherFault::UnknownIssuer;
    for (authority, names) in candidates {
        let anchors = &authority.anchors;
        match anchors.verify_chain(&leaf, &issuers, KeyUsage::client_auth(), now_unix_ms) {
            Ok(end) => {
                return Ok(VouchedIdentity {
                    subject: facts.names.first().cloned().unwrap_or_default(),
                    names,
                    groups: authority.groups.clone(),
                    end_unix_ms: end.min(voucher.end_unix_ms),
                });
            }
            // Another authority's refusal says more than that this one is not the issuer.
            Err(VoucherFault::UnknownIssuer) => {}
            Err(why) => fault = why,
        }
    }
    Err(fault)
}

#[cfg(test)]
pub(crate) mod tests;
