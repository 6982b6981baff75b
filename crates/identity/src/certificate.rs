//! Names and end of a certificate, read with `x509-parser`.

use std::collections::BTreeSet;

use longhaul_proto::text::is_printable;
use longhaul_proto::{Voucher, VoucherFault};
use x509_parser::prelude::{
    CertificateRevocationList, FromDer, GeneralName, X509Certificate, X509Name,
};
use x509_parser::x509::AttributeTypeAndValue;

/// Maximum number of names that are read from a certificate.
const MAX_NAMES: usize = 64;
/// Maximum length of a name, in bytes.
const MAX_NAME_BYTES: usize = 512;
/// Prefix of the names of hosts.
const HOST_PREFIX: &str = "dns:";

/// Facts of a certificate that its chain has to confirm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CertificateFacts {
    /// Its subject, such as `/DC=org/CN=Ana`, then its alternative names: addresses of mail, URIs,
    /// and `dns:` with a host. Names that are not printable are left out.
    pub(crate) names: Vec<String>,
    /// Time from which it is no longer valid, in milliseconds since 1970-01-01 UTC.
    pub(crate) end_unix_ms: u64,
    /// Its subject in DER.
    pub(crate) subject: Vec<u8>,
    /// Name of its issuer in DER.
    pub(crate) issuer: Vec<u8>,
}

impl CertificateFacts {
    /// Reads a certificate in DER.
    ///
    /// # Errors
    /// [`VoucherFault::Certificate`]: it is malformed.
    pub(crate) fn read(der: &[u8]) -> Result<Self, VoucherFault> {
        let malformed = VoucherFault::Certificate("it is malformed");
        let (rest, certificate) = X509Certificate::from_der(der).map_err(|_| malformed)?;
        if !rest.is_empty() {
            return Err(malformed);
        }
        let mut names: Vec<String> = subject(certificate.subject()).into_iter().collect();
        let alternatives = certificate
            .subject_alternative_name()
            .map_err(|_| malformed)?;
        if let Some(alternatives) = alternatives {
            let listed = alternatives.value.general_names.iter();
            names.extend(listed.filter_map(alternative).take(MAX_NAMES));
        }
        names.retain(|name| name.len() <= MAX_NAME_BYTES && name.chars().all(is_printable));
        let end = certificate.validity().not_after.timestamp();
        Ok(Self {
            names,
            // The last second is included (RFC 5280, section 4.1.2.5).
            end_unix_ms: u64::try_from(end)
                .unwrap_or(0)
                .saturating_add(1)
                .saturating_mul(1000),
            subject: certificate.subject().as_raw().to_vec(),
            issuer: certificate.issuer().as_raw().to_vec(),
        })
    }

    /// Returns true if it names its own issuer.
    pub(crate) fn is_self_issued(&self) -> bool {
        self.subject == self.issuer
    }
}

/// Reads the certificates of a voucher, and returns the facts of the leaf.
///
/// # Errors
/// [`VoucherFault::Certificate`]: one is malformed, or two have the same subject. A verifier would
/// have to try their combinations, which costs a stranger nothing (LH-VOUCHER-1).
pub(crate) fn read_chain(certificates: &[Vec<u8>]) -> Result<CertificateFacts, VoucherFault> {
    let mut read = certificates.iter().map(|der| CertificateFacts::read(der));
    let leaf = read.next().ok_or(VoucherFault::Signature)??;
    let mut subjects = BTreeSet::from([leaf.subject.clone()]);
    for issuer in read {
        if !subjects.insert(issuer?.subject) {
            return Err(VoucherFault::Certificate(
                "two certificates of its chain have the same subject",
            ));
        }
    }
    Ok(leaf)
}

/// Returns the name in DER of the authority of a revocation list, which may be of a kind that
/// cannot be used. `None` if it is malformed.
pub(crate) fn revocation_list_issuer(der: &[u8]) -> Option<Vec<u8>> {
    let (_, list) = CertificateRevocationList::from_der(der).ok()?;
    Some(list.issuer().as_raw().to_vec())
}

/// Returns the names of a voucher's certificate: its subject and its alternative names.
///
/// # Errors
/// [`VoucherFault::Certificate`]: it is malformed.
pub fn certificate_names(voucher: &Voucher) -> Result<Vec<String>, VoucherFault> {
    let leaf = voucher
        .certificates
        .first()
        .ok_or(VoucherFault::Signature)?;
    Ok(CertificateFacts::read(leaf)?.names)
}

/// Writes a subject as `/TYPE=VALUE/...`, in the order of the certificate. A backslash precedes
/// `/`, `+` and `\` in values, so different subjects have different texts. Returns `None` if a
/// value is not text.
fn subject(name: &X509Name<'_>) -> Option<String> {
    let mut text = String::new();
    for part in name.iter_rdn() {
        for (index, attribute) in part.iter().enumerate() {
            text.push(if index == 0 { '/' } else { '+' });
            text.push_str(&attribute_type(attribute));
            text.push('=');
            for character in attribute.as_str().ok()?.chars() {
                if matches!(character, '/' | '+' | '\\') {
                    text.push('\\');
                }
                text.push(character);
            }
        }
    }
    (!text.is_empty()).then_some(text)
}

/// Returns the type of an attribute, abbreviated as OpenSSL does, or its number.
fn attribute_type(attribute: &AttributeTypeAndValue<'_>) -> String {
    let number = attribute.attr_type().to_id_string();
    let short = match number.as_str() {
        "2.5.4.3" => "CN",
        "2.5.4.4" => "SN",
        "2.5.4.5" => "serialNumber",
        "2.5.4.6" => "C",
        "2.5.4.7" => "L",
        "2.5.4.8" => "ST",
        "2.5.4.10" => "O",
        "2.5.4.11" => "OU",
        "2.5.4.12" => "title",
        "2.5.4.42" => "GN",
        "0.9.2342.19200300.100.1.1" => "UID",
        "0.9.2342.19200300.100.1.25" => "DC",
        "1.2.840.113549.1.9.1" => "emailAddress",
        _ => return number,
    };
    short.to_owned()
}

/// Returns an alternative name in a form that no other kind of name has. The hosts of addresses
/// and the names of hosts are in lower case, because they do not distinguish cases.
fn alternative(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::RFC822Name(address) => {
            let (person, host) = address.split_once('@')?;
            let plain = |text: &str| {
                let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"@/:\"\\".contains(&byte);
                !text.is_empty() && text.bytes().all(is_plain)
            };
            (plain(person) && plain(host))
                .then(|| format!("{person}@{}", host.to_ascii_lowercase()))
        }
        GeneralName::DNSName(host) => {
            let is_of_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-_*".contains(&byte);
            let is_host = !host.is_empty() && host.bytes().all(is_of_host);
            is_host.then(|| format!("{HOST_PREFIX}{}", host.to_ascii_lowercase()))
        }
        GeneralName::URI(uri) => {
            let (scheme, _) = uri.split_once(':')?;
            let is_scheme = scheme.bytes().all(|byte| byte.is_ascii_alphanumeric());
            let reserved = ["dns", "name", "group", "lhk1"].contains(&scheme);
            (is_scheme && !scheme.is_empty() && !reserved).then(|| (*uri).to_owned())
        }
        _ => None,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::*;

    fn facts(names: &[(DnType, &str)], alternatives: Vec<SanType>) -> CertificateFacts {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (kind, value) in names {
            params.distinguished_name.push(kind.clone(), *value);
        }
        params.subject_alt_names = alternatives;
        let key = KeyPair::generate().unwrap();
        CertificateFacts::read(params.self_signed(&key).unwrap().der()).unwrap()
    }

    #[test]
    fn subjects_are_written_unambiguously() {
        let dc = || DnType::CustomDnType(vec![0, 9, 2342, 19_200_300, 100, 1, 25]);
        let plain = facts(&[(dc(), "org"), (DnType::CommonName, "Ana")], Vec::new());
        assert_eq!(plain.names, ["/DC=org/CN=Ana"]);
        assert!(plain.is_self_issued());
        let tricky = facts(&[(dc(), "org/CN=Ana+x\\")], Vec::new());
        assert_eq!(tricky.names, [r"/DC=org\/CN=Ana\+x\\"]);
        let unknown = facts(
            &[(DnType::CustomDnType(vec![2, 5, 4, 99]), "x")],
            Vec::new(),
        );
        assert_eq!(unknown.names, ["/2.5.4.99=x"]);
        let unprintable = facts(&[(DnType::CommonName, "a\nb")], Vec::new());
        assert_eq!(unprintable.names, [""; 0]);
    }

    #[test]
    fn alternative_names_cannot_pose_as_other_names() {
        let names = facts(
            &[(DnType::CommonName, "Ana")],
            vec![
                SanType::Rfc822Name("ana@Lab.Example".try_into().unwrap()),
                SanType::Rfc822Name("ana".try_into().unwrap()),
                SanType::Rfc822Name("a@b@lab.example".try_into().unwrap()),
                SanType::Rfc822Name("/CN=x@lab.example".try_into().unwrap()),
                SanType::DnsName("Ana".try_into().unwrap()),
                SanType::DnsName("ana@lab.example".try_into().unwrap()),
                SanType::URI("spiffe://lab.example/ana".try_into().unwrap()),
                SanType::URI("dns:host".try_into().unwrap()),
                SanType::URI("ana".try_into().unwrap()),
            ],
        )
        .names;
        let expected = [
            "/CN=Ana",
            "ana@lab.example",
            "dns:ana",
            "spiffe://lab.example/ana",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn other_bytes_are_refused() {
        for bytes in [&b""[..], b"junk", &[0x30, 0x03, 1, 2, 3]] {
            assert!(CertificateFacts::read(bytes).is_err(), "{bytes:?}");
        }
    }
}
