use std::path::Path;
use std::time::Duration;

use longhaul_proto::PublicKey;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer,
    CustomExtension, DnType, IsCa, KeyPair, RevokedCertParams, SanType, SerialNumber,
    date_time_ymd,
};

use super::*;
use crate::certificate::CertificateFacts;
use crate::{VouchRequest, verify_server, vouch};

/// A moment of 2026, in milliseconds since 1970-01-01 UTC.
const NOW: u64 = 1_780_000_000_000;
const DAY: Duration = Duration::from_secs(86_400);

pub(crate) type Ca = CertifiedIssuer<'static, KeyPair>;

fn ca_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
}

pub(crate) fn root(name: &str) -> Ca {
    Ca::self_signed(ca_params(name), KeyPair::generate().unwrap()).unwrap()
}

fn intermediate(name: &str, issuer: &Ca) -> Ca {
    Ca::signed_by(ca_params(name), KeyPair::generate().unwrap(), issuer).unwrap()
}

/// Returns the parameters of a certificate that is valid from 2020 to 2040.
pub(crate) fn user(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::OrganizationName, "Lab");
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2040, 1, 1);
    params.serial_number = Some(SerialNumber::from(7));
    params
}

/// Issues a certificate, and vouches for a key with it.
fn voucher_of(params: &CertificateParams, issuer: &Ca, issuers: &[&Ca], now: u64) -> Voucher {
    let pair = KeyPair::generate().unwrap();
    let mut chain = params.signed_by(&pair, issuer).unwrap().pem();
    for issuer in issuers {
        chain.push_str(&issuer.as_ref().pem());
    }
    vouch(&VouchRequest {
        key: PublicKey::from_bytes([5; 32]),
        certificates: chain.as_bytes(),
        private_key: pair.serialize_pem().as_bytes(),
        now_unix_ms: now,
        lifetime: DAY,
    })
    .unwrap()
}

/// Loads anchors and revocation lists from files, as services do.
fn anchors(certificates: &[&Ca], crls: &[&[u8]]) -> TrustAnchors {
    let dir = tempfile::tempdir().unwrap();
    for (index, ca) in certificates.iter().enumerate() {
        let pem = ca.as_ref().pem();
        std::fs::write(dir.path().join(format!("1234abcd.{index}")), &pem).unwrap();
        // IGTF has each certificate by its name, too.
        std::fs::write(dir.path().join(format!("ca{index}.pem")), &pem).unwrap();
    }
    for (index, crl) in crls.iter().enumerate() {
        std::fs::write(dir.path().join(format!("1234abcd.r{index}")), crl).unwrap();
    }
    std::fs::write(dir.path().join("1234abcd.signing_policy"), "ignored").unwrap();
    TrustAnchors::load(dir.path(), None).unwrap()
}

fn authority(anchors: TrustAnchors, subjects: &[&str]) -> Authority {
    Authority {
        anchors,
        subjects: subjects.iter().map(|text| text.parse().unwrap()).collect(),
        groups: vec!["grid".to_owned()],
    }
}

pub(crate) fn revocation_list(ca: &Ca, revoked: &[u64], next_update: i32) -> Vec<u8> {
    let revoked = revoked.iter().map(|serial| RevokedCertParams {
        serial_number: SerialNumber::from(*serial),
        revocation_time: date_time_ymd(2021, 1, 1),
        reason_code: None,
        invalidity_date: None,
    });
    let list = CertificateRevocationListParams {
        this_update: date_time_ymd(2021, 1, 1),
        next_update: date_time_ymd(next_update, 1, 1),
        crl_number: SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs: revoked.collect(),
        key_identifier_method: rcgen::KeyIdMethod::Sha256,
    };
    list.signed_by(ca).unwrap().der().to_vec()
}

/// LH-VOUCHER-5.
#[test]
fn chain_and_names_are_believed_together() {
    let (ca, other) = (root("ca"), root("other"));
    let voucher = voucher_of(&user("Ana"), &ca, &[], NOW);
    let believed = authority(anchors(&[&ca], &[]), &["/O=Lab/CN=*", "/O=Else/*"]);
    let identity = judge(&[believed], &voucher, NOW).unwrap();
    assert_eq!(identity.names, ["/O=Lab/CN=Ana"]);
    assert_eq!(identity.groups, ["grid"]);
    assert_eq!(identity.end_unix_ms, voucher.end_unix_ms);
    for (authorities, fault) in [
        (vec![], VoucherFault::Name),
        (
            vec![authority(anchors(&[&ca], &[]), &["/O=Else/*"])],
            VoucherFault::Name,
        ),
        (
            vec![authority(anchors(&[&other], &[]), &["/O=Lab/*"])],
            VoucherFault::UnknownIssuer,
        ),
        // An authority is believed only for its own names.
        (
            vec![
                authority(anchors(&[&other], &[]), &["/O=Lab/*"]),
                authority(anchors(&[&ca], &[]), &["/O=Else/*"]),
            ],
            VoucherFault::UnknownIssuer,
        ),
    ] {
        assert_eq!(judge(&authorities, &voucher, NOW), Err(fault));
    }
}

#[test]
fn impostor_with_the_same_name_is_unmasked() {
    let (ca, impostor) = (root("ca"), root("ca"));
    let voucher = voucher_of(&user("Ana"), &impostor, &[&impostor], NOW);
    let believed = authority(anchors(&[&ca], &[]), &["/O=Lab/*"]);
    assert!(judge(&[believed], &voucher, NOW).is_err());
}

#[test]
fn intermediates_come_with_the_voucher() {
    let ca = root("ca");
    let between = intermediate("between", &ca);
    let believed = || [authority(anchors(&[&ca], &[]), &["/O=Lab/*"])];
    // The root is left out of the voucher.
    let whole = voucher_of(&user("Ana"), &between, &[&between, &ca], NOW);
    assert_eq!(whole.certificates.len(), 2);
    assert!(judge(&believed(), &whole, NOW).is_ok());
    let lacking = voucher_of(&user("Ana"), &between, &[], NOW);
    let fault = judge(&believed(), &lacking, NOW);
    assert_eq!(fault, Err(VoucherFault::UnknownIssuer));
    // Or the receiver has them.
    let both = [authority(anchors(&[&ca, &between], &[]), &["/O=Lab/*"])];
    assert!(judge(&both, &lacking, NOW).is_ok());
}

/// LH-VOUCHER-1: otherwise a stranger could make a receiver try many combinations.
#[test]
fn two_issuers_of_one_name_are_refused() {
    let ca = root("ca");
    let (one, other) = (intermediate("between", &ca), intermediate("between", &ca));
    let mut voucher = voucher_of(&user("Ana"), &one, &[&one], NOW);
    let twin: &rcgen::Certificate = other.as_ref();
    voucher.certificates.push(twin.der().to_vec());
    let believed = [authority(anchors(&[&ca], &[]), &["/O=Lab/*"])];
    let fault = judge(&believed, &voucher, NOW);
    assert!(
        matches!(fault, Err(VoucherFault::Certificate(_))),
        "{fault:?}"
    );
}

/// LH-VOUCHER-3, LH-VOUCHER-5.
#[test]
fn voucher_and_certificate_end() {
    let ca = root("ca");
    let believed = [authority(anchors(&[&ca], &[]), &["/O=Lab/*"])];
    let day = u64::try_from(DAY.as_millis()).unwrap();
    let voucher = voucher_of(&user("Ana"), &ca, &[], NOW);
    assert!(judge(&believed, &voucher, NOW + day - 1).is_ok());
    let late = judge(&believed, &voucher, NOW + day);
    assert_eq!(late, Err(VoucherFault::Expired(0)));
    let early = judge(&believed, &voucher, NOW - day);
    assert!(matches!(early, Err(VoucherFault::NotYetValid(_))));
    // A voucher ends with its certificate at the latest.
    let mut short = user("Ana");
    short.not_after = date_time_ymd(2026, 5, 29);
    let voucher = voucher_of(&short, &ca, &[], NOW);
    let end = judge(&believed, &voucher, NOW).unwrap().end_unix_ms;
    assert!(end < NOW + day, "{end}");
    // And a forged end does not prolong it.
    let mut forged = voucher;
    forged.end_unix_ms += day;
    assert_eq!(judge(&believed, &forged, NOW), Err(VoucherFault::Signature));
    let mut future = user("Ana");
    future.not_before = date_time_ymd(2030, 1, 1);
    let voucher = voucher_of(&future, &ca, &[], NOW);
    let fault = judge(&believed, &voucher, NOW);
    assert_eq!(fault, Err(VoucherFault::CertificateNotYetValid));
}

/// LH-VOUCHER-2.
#[test]
fn changed_vouchers_are_not_believed() {
    let ca = root("ca");
    let believed = [authority(anchors(&[&ca], &[]), &["/O=Lab/*"])];
    let voucher = voucher_of(&user("Ana"), &ca, &[], NOW);
    let bo = voucher_of(&user("Bo"), &ca, &[], NOW);
    let changes: [&dyn Fn(&mut Voucher); 4] = [
        &|voucher| voucher.key = PublicKey::from_bytes([6; 32]),
        &|voucher| voucher.signature[8] ^= 1,
        // RSA with PKCS #1 and SHA-1 are not accepted for vouchers.
        &|voucher| voucher.scheme = 0x0201,
        &|voucher| voucher.certificates = bo.certificates.clone(),
    ];
    for change in changes {
        let mut changed = voucher.clone();
        change(&mut changed);
        assert_eq!(
            judge(&believed, &changed, NOW),
            Err(VoucherFault::Signature)
        );
    }
}

#[test]
fn revocation_lists_are_obeyed() {
    let ca = root("ca");
    let voucher = voucher_of(&user("Ana"), &ca, &[], NOW);
    for (crl, expected) in [
        (revocation_list(&ca, &[], 2040), None),
        (revocation_list(&ca, &[8], 2040), None),
        (
            revocation_list(&ca, &[7], 2040),
            Some(VoucherFault::Revoked),
        ),
        (
            revocation_list(&ca, &[], 2022),
            Some(VoucherFault::UnusableRevocationList),
        ),
    ] {
        let believed = [authority(anchors(&[&ca], &[&crl]), &["/O=Lab/*"])];
        assert_eq!(judge(&believed, &voucher, NOW).err(), expected);
    }
    // A list of another authority says nothing.
    let other = revocation_list(&root("other"), &[7], 2040);
    let believed = [authority(anchors(&[&ca], &[&other]), &["/O=Lab/*"])];
    assert!(judge(&believed, &voucher, NOW).is_ok());
}

/// Returns a list of version 1, which has neither a version nor extensions (RFC 5280, section 5.1).
/// Its signature is empty.
fn list_of_version_1(ca: &Ca) -> Vec<u8> {
    let element = |tag: u8, parts: &[&[u8]]| {
        let content = parts.concat();
        let length = u16::try_from(content.len()).unwrap().to_be_bytes();
        [&[tag, 0x82], &length[..], &content].concat()
    };
    let subject = CertificateFacts::read(ca.as_ref().der()).unwrap().subject;
    // ecdsa-with-SHA256
    let algorithm = [0x30, 0x0a, 0x06, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];
    let time = [&[0x17, 13][..], b"210101000000Z"].concat();
    let list = element(0x30, &[&algorithm, &subject, &time, &time]);
    element(0x30, &[&list, &algorithm, &[0x03, 2, 0, 0]])
}

#[test]
fn useless_list_disables_only_its_authority() {
    let (ca, other) = (root("ca"), root("other"));
    let ana = voucher_of(&user("Ana"), &ca, &[], NOW);
    let bo = voucher_of(&user("Bo"), &other, &[], NOW);
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &[u8]| {
        std::fs::write(dir.path().join(name), content).unwrap();
    };
    write("ca.0", ca.as_ref().pem().as_bytes());
    write("ca.pem", ca.as_ref().pem().as_bytes());
    write("other.0", other.as_ref().pem().as_bytes());
    write(
        "odd.0",
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    );
    std::os::unix::fs::symlink("nowhere", dir.path().join("gone.0")).unwrap();
    let judged = || {
        let anchors = TrustAnchors::load(dir.path(), None).unwrap();
        let believed = [authority(anchors, &["/O=Lab/*"])];
        [&ana, &bo].map(|voucher| judge(&believed, voucher, NOW).err())
    };
    assert_eq!(judged(), [None, None]);
    let refused = [Some(VoucherFault::UnusableRevocationList), None];
    // Known by the name of the file.
    write("ca.r0", b"junk");
    assert_eq!(judged(), refused);
    write("ca.r0", b"");
    assert_eq!(judged(), refused);
    std::fs::remove_file(dir.path().join("ca.r0")).unwrap();
    // Known by the name in the list.
    write("named.crl", &list_of_version_1(&ca));
    assert_eq!(judged(), refused);
    // A sound list beside it does not help, because it may lack what the other one has.
    write("ca.r0", &revocation_list(&ca, &[], 2040));
    assert_eq!(judged(), refused);
}

#[test]
fn useless_list_of_an_unknown_authority_is_an_error() {
    let ca = root("ca");
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("ca.pem"), ca.as_ref().pem()).unwrap();
    let list = dir.path().join("list.r0");
    std::fs::write(&list, "junk").unwrap();
    let error = TrustAnchors::load(dir.path(), None).unwrap_err();
    assert!(error.to_string().contains("list.r0"), "{error}");
    // So is a single file that cannot be used.
    std::fs::write(&list, list_of_version_1(&ca)).unwrap();
    let error = TrustAnchors::load(&dir.path().join("ca.pem"), Some(&list)).unwrap_err();
    assert!(error.to_string().contains("list.r0"), "{error}");
    let none = TrustAnchors::load(Path::new("/nonexistent"), None).unwrap_err();
    assert!(none.to_string().contains("/nonexistent"), "{none}");
}

/// RFC 3820: proxies have a critical extension that `rustls-webpki` does not know.
#[test]
fn proxy_certificates_are_refused() {
    let ca = root("ca");
    let mut proxy = user("Ana");
    let info = [
        0x30, 0x0c, 0x30, 0x0a, 0x06, 0x08, 0x2b, 6, 1, 5, 5, 7, 21, 1,
    ];
    let oid = &[1, 3, 6, 1, 5, 5, 7, 1, 14];
    let mut extension = CustomExtension::from_oid_content(oid, info.to_vec());
    extension.set_criticality(true);
    proxy.custom_extensions.push(extension);
    let pair = KeyPair::generate().unwrap();
    let error = vouch(&VouchRequest {
        key: PublicKey::from_bytes([5; 32]),
        certificates: proxy.signed_by(&pair, &ca).unwrap().pem().as_bytes(),
        private_key: pair.serialize_pem().as_bytes(),
        now_unix_ms: NOW,
        lifetime: DAY,
    })
    .unwrap_err();
    assert!(error.to_string().contains("RFC 3820"), "{error}");
}

#[test]
fn authority_is_no_user() {
    let ca = root("ca");
    let mut params = user("Ana");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let voucher = voucher_of(&params, &ca, &[], NOW);
    let believed = [authority(anchors(&[&ca], &[]), &["/O=Lab/*"])];
    let fault = judge(&believed, &voucher, NOW);
    assert!(
        matches!(fault, Err(VoucherFault::Certificate(_))),
        "{fault:?}"
    );
}

#[test]
fn server_proves_the_names_of_its_certificate() {
    let (ca, other) = (root("ca"), root("other"));
    let mut params = user("host");
    params.subject_alt_names = vec![
        SanType::DnsName("store.example".try_into().unwrap()),
        SanType::IpAddress([192, 0, 2, 1].into()),
    ];
    let voucher = voucher_of(&params, &ca, &[], NOW);
    let trusted = anchors(&[&ca], &[]);
    for (host, expected) in [
        ("store.example", true),
        ("192.0.2.1", true),
        ("other.example", false),
        ("192.0.2.2", false),
    ] {
        let verified = verify_server(&voucher, host, &trusted, NOW);
        assert_eq!(verified.is_ok(), expected, "{host}: {verified:?}");
    }
    let stranger = anchors(&[&other], &[]);
    assert!(verify_server(&voucher, "store.example", &stranger, NOW).is_err());
}
