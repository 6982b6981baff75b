//! Ed25519 public keys (RFC 8032): the identity of a principal, a depot or an acceptor.

use std::{fmt, str::FromStr};

use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use data_encoding::BASE32_NOPAD;

/// Prefix of every printed key; the digit is the version of the text form.
const PREFIX: &str = "lhk1:";

/// An Ed25519 public key, which is also the fingerprint that users compare and policy files name.
///
/// Its text is `lhk1:` and 52 lower-case base32 digits (RFC 4648, no padding). Upper case is
/// accepted too.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublicKey([u8; 32]);

/// `SubjectPublicKeyInfo` of an Ed25519 key up to the key itself (RFC 8410, section 4).
const SPKI_PREFIX: [u8; 12] = [
    0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
];

impl PublicKey {
    /// Returns the key with these bytes (RFC 8032, section 5.1.5). `verify` fails if they are not a
    /// point of the curve.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes as on the wire.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Encodes the key as in X.509 and TLS: a `SubjectPublicKeyInfo` in DER (RFC 8410).
    #[must_use]
    pub fn to_spki(&self) -> Vec<u8> {
        [&SPKI_PREFIX[..], &self.0].concat()
    }

    /// Parses the output of [`PublicKey::to_spki`]. Returns `None` for anything else, such as a key
    /// of another algorithm.
    #[must_use]
    pub fn from_spki(der: &[u8]) -> Option<Self> {
        let key = der.strip_prefix(&SPKI_PREFIX)?;
        key.try_into().ok().map(Self)
    }

    /// Returns true if `signature` is this key's signature over `message`.
    #[must_use]
    pub fn verify(&self, message: &[u8], signature: &[u8; 64]) -> bool {
        UnparsedPublicKey::new(&ED25519, &self.0)
            .verify(message, signature)
            .is_ok()
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{PREFIX}{}",
            BASE32_NOPAD.encode(&self.0).to_ascii_lowercase()
        )
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let digits = text.strip_prefix(PREFIX).ok_or(KeyError::NotAKey)?;
        let bytes = BASE32_NOPAD
            .decode(digits.to_ascii_uppercase().as_bytes())
            .map_err(|_| KeyError::NotAKey)?;
        Ok(Self(bytes.try_into().map_err(|_| KeyError::NotAKey)?))
    }
}

/// Error in a key or in its use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The text is not a public key: copy it again, whole, starting at `lhk1:`.
    #[error("not a public key: expected lhk1: followed by 52 base32 digits")]
    NotAKey,
    /// The document holds no usable private key: create a new identity, or restore the file.
    #[error("not an Ed25519 private key in PKCS #8 form")]
    NotPkcs8,
    /// The library refused to sign.
    #[error("the cryptographic library could not sign")]
    CannotSign,
    /// The system's random generator failed.
    #[error("the system's random generator failed")]
    NoRandomness,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SigningKey;

    #[test]
    fn a_key_survives_text_and_pkcs8() {
        let key = SigningKey::generate().unwrap();
        let public = key.public();
        let text = public.to_string();
        assert_eq!(text.len(), PREFIX.len() + 52);
        assert_eq!(text.parse::<PublicKey>().unwrap(), public);
        let digits = text.strip_prefix(PREFIX).unwrap().to_ascii_uppercase();
        assert_eq!(
            format!("{PREFIX}{digits}").parse::<PublicKey>().unwrap(),
            public
        );
        let again = SigningKey::from_pkcs8(&key.to_pkcs8().unwrap()).unwrap();
        assert_eq!(again.public(), public);
        assert!(public.verify(b"word", &again.sign(b"word").unwrap()));
        assert!(!public.verify(b"other", &again.sign(b"word").unwrap()));
        assert_eq!(format!("{key:?}"), format!("SigningKey({public})"));
    }

    #[test]
    fn a_key_is_written_as_in_rfc_8410() {
        // Section 10.1.
        let der = data_encoding::BASE64
            .decode(b"MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=")
            .unwrap();
        let key = PublicKey::from_spki(&der).unwrap();
        assert_eq!(key.to_spki(), der);
        assert_eq!(key.as_bytes()[..4], [0x19, 0xbf, 0x44, 0x09]);
        assert_eq!(PublicKey::from_spki(&der[..43]), None);
        assert_eq!(PublicKey::from_spki(&[0; 44]), None);
    }

    #[test]
    fn other_text_is_no_key() {
        for text in ["", "lhk1:", "lhk2:aaaa", "lhk1:aaaa", "lhk1:!", "lhk1:ä"] {
            assert_eq!(text.parse::<PublicKey>(), Err(KeyError::NotAKey), "{text}");
        }
        assert_eq!(
            SigningKey::from_pkcs8(b"junk").unwrap_err(),
            KeyError::NotPkcs8
        );
    }
}
