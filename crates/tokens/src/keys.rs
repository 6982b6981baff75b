//! Public keys of an issuer (RFC 7517), and the verification of signatures with them.

#![deny(clippy::indexing_slicing)] // what is read here comes from the network
#![cfg_attr(test, allow(clippy::indexing_slicing))]

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::jwk::{
    AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, KeyOperations, PublicKeyUse,
};
use jsonwebtoken::{Algorithm, DecodingKey, Header, Validation, decode, decode_header};
use serde::Deserialize;

use crate::claims::Claims;

/// Maximum number of keys of an issuer.
const MAX_KEYS: usize = 64;
/// Maximum number of keys that are tried for a token that names none.
const MAX_TRIED_KEYS: usize = 4;

/// Keys of an issuer that tokens may be signed with.
#[derive(Clone, Default)]
pub(crate) struct KeySet(Vec<IssuerKey>);

#[derive(Clone)]
struct IssuerKey {
    id: Option<String>,
    algorithm: Algorithm,
    key: DecodingKey,
    source: Jwk,
}

impl PartialEq for KeySet {
    fn eq(&self, other: &Self) -> bool {
        let sources = |set: &Self| -> Vec<Jwk> {
            let sources = set.0.iter().map(|key| key.source.clone());
            sources.collect()
        };
        sources(self) == sources(other)
    }
}

/// Outcome of the verification of a token.
#[derive(Debug, PartialEq)]
pub(crate) enum Verification {
    /// The signature is the issuer's.
    Valid(Box<Claims>),
    /// The issuer has no such key, or had none when its keys were fetched.
    UnknownKey,
    /// The signature is not the issuer's.
    Forged,
    /// It is signed, and its claims are not those of a token.
    Malformed,
}

/// Reason why a text is not a token whose signature could be verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeaderError {
    /// It is not a JSON Web Token, for example an opaque access token.
    NoJwt,
    /// It is not signed, or by a method that is not accepted.
    Algorithm,
    /// It has an extension that a reader must understand (RFC 7515, section 4.1.11).
    Critical,
}

/// The list of keys as an issuer publishes it.
#[derive(Deserialize)]
struct PublishedKeys {
    keys: Vec<serde_json::Value>,
}

/// Reads the header of a token. Only the methods RS256, ES256 and EdDSA are accepted: none that
/// uses a shared secret, and not `none`.
pub(crate) fn read_header(token: &str) -> Result<Header, HeaderError> {
    let header = match decode_header(token) {
        Ok(header) => header,
        // The name of the method is not one that the library knows, such as `none`.
        Err(error) if matches!(error.kind(), ErrorKind::Json(_)) => {
            return Err(HeaderError::Algorithm);
        }
        Err(_) => return Err(HeaderError::NoJwt),
    };
    match header.alg {
        Algorithm::RS256 | Algorithm::ES256 | Algorithm::EdDSA => {}
        _ => return Err(HeaderError::Algorithm),
    }
    match header.crit {
        None => Ok(header),
        Some(_) => Err(HeaderError::Critical),
    }
}

impl KeySet {
    /// Parses the keys that an issuer publishes. Keys for other purposes or methods are left out.
    /// Returns `None` if it is no list of keys.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let published: PublishedKeys = serde_json::from_slice(bytes).ok()?;
        let jwks = published.keys.into_iter().take(MAX_KEYS);
        let keys = jwks.filter_map(|value| IssuerKey::new(serde_json::from_value(value).ok()?));
        Some(Self(keys.collect()))
    }

    /// Returns the number of keys.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Verifies the signature of a token that has this header.
    pub(crate) fn verify(&self, token: &str, header: &Header) -> Verification {
        let is_candidate = |key: &&IssuerKey| {
            key.algorithm == header.alg && (header.kid.is_none() || key.id == header.kid)
        };
        let mut result = Verification::UnknownKey;
        for key in self.0.iter().filter(is_candidate).take(MAX_TRIED_KEYS) {
            match key.verify(token) {
                Verification::Forged => result = Verification::Forged,
                verified => return verified,
            }
        }
        result
    }
}

impl IssuerKey {
    fn new(source: Jwk) -> Option<Self> {
        let common = &source.common;
        let is_for_signatures = common
            .public_key_use
            .as_ref()
            .is_none_or(|usage| *usage == PublicKeyUse::Signature);
        let may_verify = common
            .key_operations
            .as_ref()
            .is_none_or(|operations| operations.contains(&KeyOperations::Verify));
        // The key decides which method it is for, and not the token.
        let (algorithm, name) = match &source.algorithm {
            AlgorithmParameters::RSA(_) => (Algorithm::RS256, KeyAlgorithm::RS256),
            AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => {
                (Algorithm::ES256, KeyAlgorithm::ES256)
            }
            AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
                (Algorithm::EdDSA, KeyAlgorithm::EdDSA)
            }
            _ => return None,
        };
        let is_of_algorithm = common.key_algorithm.is_none_or(|named| named == name);
        if !is_for_signatures || !may_verify || !is_of_algorithm {
            return None;
        }
        Some(Self {
            id: common.key_id.clone(),
            algorithm,
            key: DecodingKey::from_jwk(&source).ok()?,
            source,
        })
    }

    fn verify(&self, token: &str) -> Verification {
        let mut validation = Validation::new(self.algorithm);
        // `judge` decides about the claims.
        validation.required_spec_claims.clear();
        validation.validate_exp = false;
        validation.validate_aud = false;
        match decode::<Claims>(token, &self.key, &validation) {
            Ok(token) => Verification::Valid(Box::new(token.claims)),
            // The claims are read after the signature.
            Err(error) => match error.kind() {
                ErrorKind::Json(_) | ErrorKind::Utf8(_) => Verification::Malformed,
                _ => Verification::Forged,
            },
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::test_keys::{TestKey, signed};

    fn verify(keys: &KeySet, token: &str) -> Verification {
        keys.verify(token, &read_header(token).unwrap())
    }

    fn claims() -> serde_json::Value {
        serde_json::json!({
            "iss": "https://a.example/", "sub": "alice", "aud": "x", "exp": 5, "scope": "read:/",
        })
    }

    fn published(keys: &[&TestKey]) -> KeySet {
        let keys: Vec<_> = keys.iter().map(|key| key.jwk.clone()).collect();
        let list = serde_json::json!({ "keys": keys });
        KeySet::parse(&serde_json::to_vec(&list).unwrap()).unwrap()
    }

    #[test]
    fn signatures_of_the_issuer_are_valid() {
        let (ec, ed) = (TestKey::ec("one"), TestKey::ed("two"));
        let keys = published(&[&ec, &ed]);
        assert_eq!(keys.len(), 2);
        for key in [&ec, &ed] {
            let token = signed(key, &claims());
            let Verification::Valid(read) = verify(&keys, &token) else {
                panic!("a valid token");
            };
            assert_eq!(read.sub, "alice");
        }
    }

    #[test]
    fn other_signatures_are_not() {
        let (ours, other) = (TestKey::ec("one"), TestKey::ec("one"));
        let keys = published(&[&ours]);
        let token = signed(&other, &claims());
        assert_eq!(verify(&keys, &token), Verification::Forged);
        let unknown = signed(&TestKey::ec("two"), &claims());
        assert_eq!(verify(&keys, &unknown), Verification::UnknownKey);
        // The claims of one token with the signature of another.
        let token = signed(&ours, &claims());
        let mut changed = claims();
        changed["sub"] = "root".into();
        let parts: Vec<String> = [signed(&ours, &changed), token]
            .iter()
            .flat_map(|token| token.split('.').map(str::to_owned).collect::<Vec<_>>())
            .collect();
        let mixed = format!("{}.{}.{}", parts[0], parts[1], parts[5]);
        assert_eq!(verify(&keys, &mixed), Verification::Forged);
    }

    #[test]
    fn token_without_a_key_id_is_verified_with_the_keys_of_its_method() {
        let key = TestKey::ec("one");
        let keys = published(&[&TestKey::ed("two"), &key]);
        let nameless = TestKey { id: None, ..key };
        let token = signed(&nameless, &claims());
        assert!(matches!(verify(&keys, &token), Verification::Valid(_)));
    }

    #[test]
    fn unsigned_and_secret_methods_are_refused() {
        use data_encoding::BASE64URL_NOPAD;
        let payload = BASE64URL_NOPAD.encode(claims().to_string().as_bytes());
        for (header, error) in [
            (r#"{"alg":"none"}"#, HeaderError::Algorithm),
            (r#"{"alg":"NONE"}"#, HeaderError::Algorithm),
            (r#"{"alg":"HS256"}"#, HeaderError::Algorithm),
            (r#"{"alg":"HS512","kid":"one"}"#, HeaderError::Algorithm),
            (r#"{"alg":"ES384"}"#, HeaderError::Algorithm),
            (r#"{"alg":"PS256"}"#, HeaderError::Algorithm),
            (r#"{"typ":"JWT"}"#, HeaderError::Algorithm),
            (r#"{"alg":"ES256","crit":["b64"]}"#, HeaderError::Critical),
        ] {
            let header = BASE64URL_NOPAD.encode(header.as_bytes());
            for signature in ["", "c2ln"] {
                let token = format!("{header}.{payload}.{signature}");
                assert_eq!(read_header(&token), Err(error), "{token}");
            }
        }
        for text in ["", "opaque", "a.b", "a.b.c", "....", "\u{e9}.e30.e30"] {
            assert!(read_header(text).is_err(), "{text}");
        }
    }

    #[test]
    fn public_key_is_no_shared_secret() {
        // The classic confusion: the published key as the secret of HS256.
        let key = TestKey::ec("one");
        let keys = published(&[&key]);
        let secret = serde_json::to_vec(&key.jwk).unwrap();
        let mut header = Header::new(Algorithm::HS256);
        header.kid = Some("one".into());
        let confused = jsonwebtoken::EncodingKey::from_secret(&secret);
        let token = jsonwebtoken::encode(&header, &claims(), &confused).unwrap();
        assert_eq!(read_header(&token), Err(HeaderError::Algorithm));
        assert_eq!(keys.verify(&token, &header), Verification::UnknownKey);
    }

    #[test]
    fn keys_for_other_purposes_are_left_out() {
        let key = TestKey::ec("one");
        let with = |name: &str, value: serde_json::Value| {
            let mut jwk = key.jwk.clone();
            jwk[name] = value;
            published(&[&TestKey { jwk, ..key.clone() }]).len()
        };
        assert_eq!(with("use", "sig".into()), 1);
        assert_eq!(with("use", "enc".into()), 0);
        assert_eq!(with("key_ops", serde_json::json!(["verify"])), 1);
        assert_eq!(with("key_ops", serde_json::json!(["deriveKey"])), 0);
        assert_eq!(with("alg", "ES256".into()), 1);
        assert_eq!(with("alg", "ECDH-ES".into()), 0);
        assert_eq!(with("crv", "P-384".into()), 0);
        assert_eq!(with("kty", "oct".into()), 0);
        let list = br#"{"keys": [5, {}, {"kty": "oct", "k": "c2VjcmV0"}, {"kty": "new"}]}"#;
        assert_eq!(KeySet::parse(list).unwrap().len(), 0);
        assert!(KeySet::parse(b"{}").is_none());
        assert!(KeySet::parse(b"[]").is_none());
    }

    proptest! {
        #[test]
        fn any_text_is_a_token_or_refused(text in "[A-Za-z0-9._-]{0,60}") {
            if let Ok(header) = read_header(&text) {
                prop_assert_ne!(KeySet::default().verify(&text, &header), Verification::Forged);
            }
        }

        #[test]
        fn any_bytes_are_keys_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = KeySet::parse(&bytes);
        }

        #[test]
        fn keys_with_any_fields_are_used_or_left_out(
            kty in "(EC|RSA|OKP|oct|x)", crv in "(P-256|P-384|Ed25519|x)",
            x in "[A-Za-z0-9_-]{0,50}", y in "[A-Za-z0-9_-]{0,50}",
        ) {
            let key = serde_json::json!({ "kty": kty, "crv": crv, "x": x, "y": y, "n": x, "e": y });
            let list = serde_json::json!({ "keys": [key] }).to_string();
            let keys = KeySet::parse(list.as_bytes()).unwrap();
            let key = TestKey::ec("one");
            let token = signed(&TestKey { id: None, ..key }, &claims());
            prop_assert!(!matches!(verify(&keys, &token), Verification::Valid(_)));
        }
    }

    #[test]
    fn signed_text_without_claims_is_malformed() {
        let key = TestKey::ec("one");
        let token = signed(&key, &serde_json::json!({"iss": "https://a.example/"}));
        assert_eq!(verify(&published(&[&key]), &token), Verification::Malformed);
    }
}
