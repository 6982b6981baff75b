//! Identity of the members of a striped server: processes with one key that serve one shared
//! directory.

use std::net::SocketAddr;

use longhaul_proto::{KeyError, SigningKey};
use serde::{Deserialize, Serialize};

/// Message whose signature is the secret behind the identities. Nothing else signs it.
const NAMING_MESSAGE: &[u8] = b"longhaul 2026 names of the members of a striped server";
/// Context for deriving the key of the identities (BLAKE3 paper, section 2.3).
const NAMING_CONTEXT: &str = "longhaul 2026 key of the names of members";

/// Identity of a member (LH-COPY-76). It is a keyed hash, so clients learn no address from it, and
/// can name no address by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MemberId(pub(crate) [u8; 8]);

/// Function from the addresses of members to their identities. It is the same at all members, and
/// only they can compute it.
pub(crate) struct MemberNaming([u8; 32]);

impl MemberNaming {
    /// Creates the function of the members that have this key.
    ///
    /// # Errors
    /// [`KeyError::CannotSign`] when the cryptographic library refuses.
    pub(crate) fn new(key: &SigningKey) -> Result<Self, KeyError> {
        // Signatures of Ed25519 are deterministic (RFC 8032, section 5.1.6).
        let secret = key.sign(NAMING_MESSAGE)?;
        Ok(Self(blake3::derive_key(NAMING_CONTEXT, &secret)))
    }

    /// Returns the identity of the member that the others reach at `address`.
    pub(crate) fn id(&self, address: SocketAddr) -> MemberId {
        let address = SocketAddr::new(address.ip().to_canonical(), address.port());
        let hash = blake3::keyed_hash(&self.0, address.to_string().as_bytes());
        MemberId(hash.as_bytes().first_chunk().copied().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_one_address_are_one_member() {
        let key = SigningKey::generate().unwrap();
        let naming = MemberNaming::new(&key).unwrap();
        let id = |text: &str| naming.id(text.parse().unwrap());
        assert_eq!(id("192.0.2.1:7511"), id("[::ffff:192.0.2.1]:7511"));
        assert_ne!(id("192.0.2.1:7511"), id("192.0.2.1:7512"));
        assert_ne!(id("192.0.2.1:7511"), id("192.0.2.2:7511"));
    }

    #[test]
    fn identities_are_known_to_holders_of_the_key_only() {
        let address = "192.0.2.1:7511".parse().unwrap();
        let id = |key: &SigningKey| MemberNaming::new(key).unwrap().id(address);
        let key = SigningKey::generate().unwrap();
        let again = SigningKey::from_pkcs8(&key.to_pkcs8().unwrap()).unwrap();
        assert_eq!(id(&key), id(&again));
        assert_ne!(id(&key), id(&SigningKey::generate().unwrap()));
    }
}
