//! Ed25519 private keys (RFC 8032), which sign requests.

use std::{fmt, sync::Arc};

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use zeroize::Zeroizing;

use crate::{KeyError, PublicKey, Voucher};

/// An Ed25519 private key, with the voucher that says whose it is, if there is one. Cheap to clone;
/// `Debug` shows the public half only.
#[derive(Clone)]
pub struct SigningKey {
    pair: Arc<Ed25519KeyPair>,
    public: PublicKey,
    voucher: Option<Arc<Voucher>>,
}

impl SigningKey {
    /// Generates a key with the system's random generator.
    ///
    /// # Errors
    /// [`KeyError::NoRandomness`] when the generator fails.
    pub fn generate() -> Result<Self, KeyError> {
        Self::from_pair(Ed25519KeyPair::generate().map_err(|_| KeyError::NoRandomness)?)
    }

    /// Parses the key from a PKCS #8 document (RFC 5958, RFC 8410), with or without its public
    /// half.
    ///
    /// # Errors
    /// [`KeyError::NotPkcs8`] when the document holds no Ed25519 key, or one that contradicts
    /// itself.
    pub fn from_pkcs8(document: &[u8]) -> Result<Self, KeyError> {
        Self::from_pair(
            Ed25519KeyPair::from_pkcs8_maybe_unchecked(document).map_err(|_| KeyError::NotPkcs8)?,
        )
    }

    /// Encodes the key as a PKCS #8 document, for storage. The document is secret and is erased
    /// from memory when dropped.
    ///
    /// # Errors
    /// [`KeyError::NotPkcs8`] when the key cannot be written out.
    pub fn to_pkcs8(&self) -> Result<Zeroizing<Vec<u8>>, KeyError> {
        let document = self.pair.to_pkcs8().map_err(|_| KeyError::NotPkcs8)?;
        Ok(Zeroizing::new(document.as_ref().to_vec()))
    }

    /// Returns the public half.
    #[must_use]
    pub const fn public(&self) -> PublicKey {
        self.public
    }

    /// Returns the key with this voucher, which its requests carry from now on.
    #[must_use]
    pub fn with_voucher(mut self, voucher: Voucher) -> Self {
        self.voucher = Some(Arc::new(voucher));
        self
    }

    /// Returns the voucher, if there is one.
    #[must_use]
    pub fn voucher(&self) -> Option<&Voucher> {
        self.voucher.as_deref()
    }

    /// Signs `message`.
    ///
    /// # Errors
    /// [`KeyError::CannotSign`] when the cryptographic library refuses.
    pub fn sign(&self, message: &[u8]) -> Result<[u8; 64], KeyError> {
        let signature = self
            .pair
            .try_sign(message)
            .map_err(|_| KeyError::CannotSign)?;
        signature
            .as_ref()
            .try_into()
            .map_err(|_| KeyError::CannotSign)
    }

    fn from_pair(pair: Ed25519KeyPair) -> Result<Self, KeyError> {
        let public = pair
            .public_key()
            .as_ref()
            .try_into()
            .map_err(|_| KeyError::NotPkcs8)?;
        Ok(Self {
            pair: Arc::new(pair),
            public: PublicKey::from_bytes(public),
            voucher: None,
        })
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({})", self.public)
    }
}
