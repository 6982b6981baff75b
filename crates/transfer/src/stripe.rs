//! Identity of the members of a striped server: processes with one key that serve one shared
//! directory.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// Identity of a member (LH-COPY-76). It is a hash, so clients learn no address from it, and can
/// name no address by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MemberId(pub(crate) [u8; 8]);

impl MemberId {
    /// Returns the identity of the member that the others reach at `address`.
    #[must_use]
    pub fn at_address(address: SocketAddr) -> Self {
        let address = SocketAddr::new(address.ip().to_canonical(), address.port());
        let hash = blake3::hash(address.to_string().as_bytes());
        Self(hash.as_bytes().first_chunk().copied().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_one_address_are_one_member() {
        let id = |text: &str| MemberId::at_address(text.parse().unwrap());
        assert_eq!(id("192.0.2.1:7511"), id("[::ffff:192.0.2.1]:7511"));
        assert_ne!(id("192.0.2.1:7511"), id("192.0.2.1:7512"));
        assert_ne!(id("192.0.2.1:7511"), id("192.0.2.2:7511"));
    }
}
