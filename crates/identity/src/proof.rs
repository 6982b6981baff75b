//! The check of a server's voucher by its clients.

use longhaul_proto::{Voucher, VoucherFault};
use rustls_pki_types::{CertificateDer, ServerName};
use webpki::KeyUsage;

use crate::TrustAnchors;
use crate::anchors::{read_leaf, verify_signature};
use crate::certificate::read_chain;

/// Checks that `voucher` proves that its key belongs to the server `host`, a name or an IP address.
///
/// # Errors
/// [`VoucherFault`]: the voucher is not valid now, the certificate is for other hosts, or no anchor
/// has issued it.
pub fn verify_server(
    voucher: &Voucher,
    host: &str,
    anchors: &TrustAnchors,
    now_unix_ms: u64,
) -> Result<(), VoucherFault> {
    voucher.check_time(now_unix_ms)?;
    let mut chain = voucher
        .certificates
        .iter()
        .map(|der| CertificateDer::from(der.as_slice()));
    let leaf = chain.next().ok_or(VoucherFault::Signature)?;
    let issuers: Vec<CertificateDer<'_>> = chain.collect();
    read_chain(&voucher.certificates)?;
    let leaf = read_leaf(&leaf)?;
    verify_signature(voucher, &leaf)?;
    let name = ServerName::try_from(host)
        .map_err(|_| VoucherFault::Certificate("the server's name is not one of a host"))?;
    leaf.verify_is_valid_for_subject_name(&name)
        .map_err(|_| VoucherFault::Certificate("it is for another host"))?;
    anchors.verify_chain(&leaf, &issuers, KeyUsage::server_auth(), now_unix_ms)?;
    Ok(())
}
