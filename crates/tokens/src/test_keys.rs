//! Keys of issuers, for tests.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair,
};
use data_encoding::BASE64URL_NOPAD;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};

/// A key pair of an issuer.
#[derive(Clone)]
pub(crate) struct TestKey {
    /// Name that tokens give it.
    pub id: Option<String>,
    /// Public half, as the issuer publishes it.
    pub jwk: Value,
    pub algorithm: Algorithm,
    pub signs: EncodingKey,
}

impl TestKey {
    /// Makes a key for ES256.
    pub(crate) fn ec(id: &str) -> Self {
        let (rng, method) = (SystemRandom::new(), &ECDSA_P256_SHA256_FIXED_SIGNING);
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(method, &rng).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(method, pkcs8.as_ref()).unwrap();
        // An uncompressed point: 4, x and y.
        let point = pair.public_key().as_ref();
        Self {
            id: Some(id.to_owned()),
            jwk: json!({
                "kty": "EC", "crv": "P-256", "kid": id,
                "x": BASE64URL_NOPAD.encode(&point[1..33]),
                "y": BASE64URL_NOPAD.encode(&point[33..]),
            }),
            algorithm: Algorithm::ES256,
            signs: EncodingKey::from_ec_der(pkcs8.as_ref()),
        }
    }

    /// Makes a key for EdDSA.
    pub(crate) fn ed(id: &str) -> Self {
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        let pair = Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap();
        Self {
            id: Some(id.to_owned()),
            jwk: json!({
                "kty": "OKP", "crv": "Ed25519", "kid": id,
                "x": BASE64URL_NOPAD.encode(pair.public_key().as_ref()),
            }),
            algorithm: Algorithm::EdDSA,
            signs: EncodingKey::from_ed_der(pkcs8.as_ref()),
        }
    }
}

/// Returns a token with these claims.
pub(crate) fn signed(key: &TestKey, claims: &Value) -> String {
    let mut header = Header::new(key.algorithm);
    header.kid.clone_from(&key.id);
    encode(&header, claims, &key.signs).unwrap()
}
