//! The server's part of a receipt.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use longhaul_proto::{PublicKey, SigningKey};

use crate::tree_hash::Hash;

/// Beginning of what a server signs. It distinguishes the signature from all others of the key.
const SERVER_CONTEXT: &[u8] = b"longhaul receipt of a server 1\0";

/// Server's statement that a copy has ended, with all entries in place or failed as its manifest
/// says (LH-COPY-58).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerReceipt {
    /// Key that signed it.
    pub key: PublicKey,
    /// Key of the client of the copy.
    pub client: PublicKey,
    /// The server's clock when the copy ended, in milliseconds since 1970.
    pub time_ms: u64,
    /// Signature over the statement.
    pub signature: [u8; 64],
}

impl ServerReceipt {
    /// Returns true if it is the server's statement about this copy. `fetch` tells that the server
    /// had the sources.
    pub fn verify(&self, fetch: bool, entries: u64, manifest: &Hash) -> bool {
        let statement = ReceiptStatement {
            client: self.client,
            fetch,
            entries,
            manifest: *manifest,
            time_ms: self.time_ms,
        };
        self.key.verify(&statement.text(), &self.signature)
    }
}

/// What a server signs: the end of one copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiptStatement {
    /// Key of the client of the copy.
    pub client: PublicKey,
    /// True if the server had the sources.
    pub fetch: bool,
    /// Number of entries.
    pub entries: u64,
    /// Hash over all entries.
    pub manifest: Hash,
    /// The server's clock, in milliseconds since 1970.
    pub time_ms: u64,
}

impl ReceiptStatement {
    /// Returns the bytes that are signed.
    fn text(&self) -> Vec<u8> {
        [
            SERVER_CONTEXT,
            self.client.as_bytes(),
            &[u8::from(self.fetch)],
            &self.entries.to_le_bytes(),
            &self.manifest,
            &self.time_ms.to_le_bytes(),
        ]
        .concat()
    }
}

/// Signer of statements with the key of a server. Another process may have the key.
pub trait ReceiptAuthority: fmt::Debug + Send + Sync {
    /// Returns the key that signs.
    fn public(&self) -> PublicKey;

    /// Returns the signature, or `None` if it cannot be had. May wait briefly.
    fn sign(&self, statement: &ReceiptStatement) -> Option<[u8; 64]>;
}

impl ReceiptAuthority for SigningKey {
    fn public(&self) -> PublicKey {
        Self::public(self)
    }

    fn sign(&self, statement: &ReceiptStatement) -> Option<[u8; 64]> {
        Self::sign(self, &statement.text()).ok()
    }
}

/// Signs the receipt of one copy.
#[derive(Debug)]
pub(crate) struct ReceiptSigner {
    key: Arc<dyn ReceiptAuthority>,
    client: PublicKey,
    fetch: bool,
    /// The signed receipt. `None` if it could not be signed.
    signed: OnceLock<Option<ServerReceipt>>,
}

impl ReceiptSigner {
    /// Creates a signer for a copy of `client`. `fetch` tells that the server has the sources.
    pub(crate) fn new(key: Arc<dyn ReceiptAuthority>, client: PublicKey, fetch: bool) -> Self {
        Self {
            key,
            client,
            fetch,
            signed: OnceLock::new(),
        }
    }

    /// Returns the receipt, which is signed at the first call. `None` if the key cannot sign.
    pub(crate) fn sign(&self, entries: u64, manifest: &Hash) -> Option<ServerReceipt> {
        *self.signed.get_or_init(|| {
            let since = SystemTime::now().duration_since(UNIX_EPOCH);
            let time_ms = since.map_or(0, |since| since.as_millis() as u64);
            let statement = ReceiptStatement {
                client: self.client,
                fetch: self.fetch,
                entries,
                manifest: *manifest,
                time_ms,
            };
            Some(ServerReceipt {
                key: self.key.public(),
                client: self.client,
                time_ms,
                signature: self.key.sign(&statement)?,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lh_copy_58_a_server_signs_the_manifest() {
        let key = SigningKey::generate().unwrap();
        let client = SigningKey::generate().unwrap().public();
        let signer = ReceiptSigner::new(Arc::new(key), client, true);
        let signed = signer.sign(3, &[7; 32]).unwrap();
        assert_eq!(signer.sign(3, &[7; 32]), Some(signed));
        assert!(signed.verify(true, 3, &[7; 32]));
        assert!(!signed.verify(false, 3, &[7; 32]));
        assert!(!signed.verify(true, 4, &[7; 32]));
        assert!(!signed.verify(true, 3, &[8; 32]));
        let later = ServerReceipt {
            time_ms: signed.time_ms + 1,
            ..signed
        };
        assert!(!later.verify(true, 3, &[7; 32]));
        let other = ServerReceipt {
            client: signed.key,
            ..signed
        };
        assert!(!other.verify(true, 3, &[7; 32]));
    }
}
