//! Paths in messages.

use data_encoding::BASE64;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A path as bytes, encoded in Base64 (RFC 4648, section 4).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct PathBytes(pub Vec<u8>);

impl Serialize for PathBytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&BASE64.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for PathBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = BASE64.decode(text.as_bytes());
        bytes.map(Self).map_err(serde::de::Error::custom)
    }
}
