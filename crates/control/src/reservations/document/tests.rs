//! Tests with documents and certificates from other implementations (`jsonwebtoken`, `rcgen`),
//! intact and modified.

use data_encoding::{BASE64, BASE64URL_NOPAD};
use jsonwebtoken::jwk::{
    AlgorithmParameters, CommonParameters, EllipticCurve, Jwk as ForeignJwk,
    OctetKeyPairParameters, OctetKeyPairType,
};
use jsonwebtoken::{Algorithm, EncodingKey, Header as ForeignHeader, encode};
use longhaul_proto::SigningKey;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    PKCS_ED25519, date_time_ymd,
};
use serde_json::{Value, json};

use super::*;

/// A time in 2026, in seconds.
const NOW_S: i64 = 1_795_000_000;

/// Authority that issues certificates.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// Key with the certificates that lead to its authority.
struct Holder {
    key: KeyPair,
    chain: Vec<String>,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, "grid root");
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            pem,
            issuer: Issuer::new(params, key),
        }
    }

    fn roots(&self) -> Roots {
        Roots::of_pem(self.pem.as_bytes()).unwrap()
    }

    /// Issues a certificate for a new key, through an intermediate authority.
    fn certify(&self, change: impl FnOnce(&mut CertificateParams)) -> Holder {
        let between_key = KeyPair::generate().unwrap();
        let mut between = CertificateParams::new(Vec::new()).unwrap();
        between.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        between
            .distinguished_name
            .push(DnType::CommonName, "grid people");
        let between_certificate = between.signed_by(&between_key, &self.issuer).unwrap();
        let issuer = Issuer::new(between, between_key);
        let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, "ana");
        change(&mut params);
        let certificate = params.signed_by(&key, &issuer).unwrap();
        let chain = [certificate, between_certificate];
        Holder {
            key,
            chain: chain.map(|one| BASE64.encode(one.der())).to_vec(),
        }
    }
}

impl Holder {
    fn public(&self) -> PublicKey {
        PublicKey::from_bytes(self.key.public_key_raw().try_into().unwrap())
    }

    fn sign_with(&self, header: &ForeignHeader, claims: &Value) -> String {
        encode(
            header,
            claims,
            &EncodingKey::from_ed_der(&self.key.serialize_der()),
        )
        .unwrap()
    }

    fn sign(&self, claims: &Value) -> String {
        let header = ForeignHeader {
            x5c: Some(self.chain.clone()),
            ..ForeignHeader::new(Algorithm::EdDSA)
        };
        self.sign_with(&header, claims)
    }
}

fn controller() -> PublicKey {
    PublicKey::from_bytes([7; 32])
}

fn claims() -> Value {
    json!({"aud": controller().to_string(), "iat": NOW_S - 5, "exp": NOW_S + 600, "jti": "42",
    "reservation": {
        "from": "dtn1",
        "to": "archive",
        "wish": {"rate": {"rate_bps": 5_000_000_000_u64}},
        "end_ms": NOW_S * 1_000 + 3_600_000
    }})
}

/// Returns the claims with one of them replaced.
fn but(name: &str, value: impl Into<Value>) -> Value {
    let mut claims = claims();
    claims[name] = value.into();
    claims
}

fn read_now(text: &str, roots: &Roots) -> Result<Document, DocumentFault> {
    read(text, roots, &controller(), NOW_S * 1_000)
}

fn flattened(compact: &str) -> Value {
    let parts: Vec<&str> = compact.split('.').collect();
    json!({"protected": parts[0], "payload": parts[1], "signature": parts[2]})
}

#[test]
fn signer_is_known_by_certificate_chain_or_key() {
    let authority = Authority::new();
    let ana = authority.certify(|_| {});
    let text = ana.sign(&claims());
    let document = read_now(&text, &authority.roots()).unwrap();
    assert_eq!((document.key, document.id.as_str()), (ana.public(), "42"));
    assert_eq!(
        serde_json::to_value(&document.request).unwrap()["wish"]["rate"]["rate_bps"],
        5_000_000_000_u64
    );
    assert_eq!(
        read_now(&flattened(&text).to_string(), &authority.roots()),
        Ok(document.clone())
    );
    let several = but("aud", json!(["another", controller().to_string()]));
    assert!(read_now(&ana.sign(&several), &authority.roots()).is_ok());
    // A key of this project, without a certificate.
    let jwk = ForeignJwk {
        common: CommonParameters::default(),
        algorithm: AlgorithmParameters::OctetKeyPair(OctetKeyPairParameters {
            key_type: OctetKeyPairType::OctetKeyPair,
            curve: EllipticCurve::Ed25519,
            x: BASE64URL_NOPAD.encode(ana.public().as_bytes()),
        }),
    };
    let header = ForeignHeader {
        jwk: Some(jwk),
        ..ForeignHeader::new(Algorithm::EdDSA)
    };
    let text = ana.sign_with(&header, &claims());
    assert_eq!(read_now(&text, &Roots::default()), Ok(document));
}

#[test]
fn any_altered_byte_is_refused() {
    let authority = Authority::new();
    let text = authority.certify(|_| {}).sign(&claims());
    let roots = authority.roots();
    for (place, byte) in text.bytes().enumerate() {
        let mut altered = text.clone().into_bytes();
        altered[place] = if byte == b'A' { b'B' } else { b'A' };
        let altered = String::from_utf8(altered).unwrap();
        assert!(read_now(&altered, &roots).is_err(), "{place}");
    }
    // Signed by another key with the same certificates.
    let (one, other) = (authority.certify(|_| {}), authority.certify(|_| {}));
    let header = ForeignHeader {
        x5c: Some(one.chain.clone()),
        ..ForeignHeader::new(Algorithm::EdDSA)
    };
    assert_eq!(
        read_now(&other.sign_with(&header, &claims()), &roots),
        Err(DocumentFault::Signature)
    );
}

#[test]
fn untrusted_or_expired_certificates_are_refused() {
    let authority = Authority::new();
    let roots = authority.roots();
    let chain = |text: &str, roots: &Roots| match read_now(text, roots) {
        Err(DocumentFault::Chain(why)) => why,
        other => panic!("{other:?}"),
    };
    let ana = authority.certify(|_| {});
    let good = ana.sign(&claims());
    chain(&good, &Authority::new().roots());
    chain(&good, &Roots::default());
    let old = authority.certify(|params| params.not_after = date_time_ymd(2025, 1, 1));
    chain(&old.sign(&claims()), &roots);
    let early = authority.certify(|params| params.not_before = date_time_ymd(2100, 1, 1));
    chain(&early.sign(&claims()), &roots);
    let server = authority
        .certify(|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]);
    chain(&server.sign(&claims()), &roots);
    let client = authority
        .certify(|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth]);
    assert!(read_now(&client.sign(&claims()), &roots).is_ok());
    let alone = Holder {
        key: ana.key,
        chain: ana.chain[..1].to_vec(),
    };
    chain(&alone.sign(&claims()), &roots);
    // A certified key cannot certify others.
    let issuer = Issuer::new(CertificateParams::new(Vec::new()).unwrap(), alone.key);
    let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
    let certificate = CertificateParams::new(Vec::new())
        .unwrap()
        .signed_by(&key, &issuer)
        .unwrap();
    let mut chain_of_it = vec![BASE64.encode(certificate.der())];
    chain_of_it.extend(ana.chain.clone());
    let holder = Holder {
        key,
        chain: chain_of_it,
    };
    chain(&holder.sign(&claims()), &roots);
    assert!(Roots::of_pem(b"").is_err());
    assert!(
        Roots::of_pem(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").is_err()
    );
}

#[test]
fn wrong_audience_or_time_is_refused() {
    let authority = Authority::new();
    let (ana, roots) = (authority.certify(|_| {}), authority.roots());
    let fault = |claims: &Value| read_now(&ana.sign(claims), &roots).unwrap_err();
    let audience = DocumentFault::Audience(controller().to_string());
    assert_eq!(fault(&but("aud", "lhk1:another")), audience);
    assert_eq!(fault(&but("aud", json!([]))), audience);
    assert_eq!(fault(&but("exp", NOW_S)), DocumentFault::Expired(0));
    assert_eq!(
        fault(&but("exp", i64::MIN)),
        DocumentFault::Expired(i64::MAX)
    );
    assert_eq!(fault(&but("iat", NOW_S + 61)), DocumentFault::Early(61));
    let long = NOW_S + MAX_LIFE_S + 1;
    assert_eq!(
        fault(&but("exp", long)),
        DocumentFault::Long(MAX_LIFE_S + 1)
    );
    for (name, value) in [
        ("jti", json!("")),
        ("jti", json!("x".repeat(129))),
        ("jti", Value::Null),
        ("reservation", json!({})),
    ] {
        assert!(
            matches!(fault(&but(name, value)), DocumentFault::Content(_)),
            "{name}"
        );
    }
    assert!(matches!(
        fault(&json!({"aud": "x"})),
        DocumentFault::Content(_)
    ));
}

#[test]
fn unsupported_headers_and_forms_are_refused() {
    let key = SigningKey::generate().unwrap();
    let jwk = json!({
        "kty": "OKP",
        "crv": "Ed25519",
        "x": BASE64URL_NOPAD.encode(key.public().as_bytes())
    });
    let sign = |header: Value| {
        let part = |value: &Value| BASE64URL_NOPAD.encode(value.to_string().as_bytes());
        let signed = format!("{}.{}", part(&header), part(&claims()));
        let signature = key.sign(signed.as_bytes()).unwrap();
        format!("{signed}.{}", BASE64URL_NOPAD.encode(&signature))
    };
    let good = sign(json!({"alg": "EdDSA", "jwk": jwk}));
    assert_eq!(
        read_now(&good, &Roots::default()).unwrap().key,
        key.public()
    );
    for header in [
        json!({"alg": "none", "jwk": jwk}),
        json!({"alg": "HS256", "jwk": jwk}),
        json!({"jwk": jwk}),
        json!({"alg": "EdDSA"}),
        json!({"alg": "EdDSA", "jwk": jwk, "x5c": []}),
        json!({"alg": "EdDSA", "jwk": jwk, "crit": ["b64"], "b64": false}),
        json!({"alg": "EdDSA", "jwk": {"kty": "OKP", "crv": "X25519", "x": jwk["x"]}}),
        json!({"alg": "EdDSA", "jwk": {"kty": "OKP", "crv": "Ed25519", "x": "AAAA"}}),
    ] {
        let fault = read_now(&sign(header.clone()), &Roots::default());
        assert!(
            matches!(fault, Err(DocumentFault::Header(_))),
            "{header}: {fault:?}"
        );
    }
    let mut unprotected = flattened(&good);
    unprotected["header"] = json!({"kid": "x"});
    let long = format!("{good}{}", "A".repeat(MAX_DOCUMENT_BYTES));
    for text in [
        "",
        "a.b",
        "a.b.c.d",
        "{}",
        "{",
        "!.!.!",
        &unprotected.to_string(),
        &long,
    ] {
        let fault = read_now(text, &Roots::default());
        assert!(
            matches!(fault, Err(DocumentFault::Form(_))),
            "{text}: {fault:?}"
        );
    }
}
