//! Bytes in the JSON of a receipt.

use data_encoding::{BASE64, HEXLOWER};
use serde::{Deserialize, Deserializer, Serializer};

use crate::tree_hash::Hash;

/// A hash in hexadecimal digits.
pub(super) mod hex {
    use super::*;

    pub fn serialize<S: Serializer>(hash: &Hash, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&HEXLOWER.encode(hash))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Hash, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = HEXLOWER.decode(text.as_bytes()).ok();
        let hash = bytes.and_then(|bytes| bytes.try_into().ok());
        hash.ok_or(serde::de::Error::custom("not a hash"))
    }
}

/// Bytes in Base64.
pub(super) mod base64 {
    use super::*;

    pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&BASE64.encode(bytes))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        BASE64
            .decode(text.as_bytes())
            .map_err(serde::de::Error::custom)
    }
}
