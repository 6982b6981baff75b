//! Algorithms, and values of them.

use std::fmt;
use std::str::FromStr;

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use longhaul_proto::text::printable;
use serde::{Deserialize, Serialize};

/// Algorithm of a checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Algorithm {
    /// BLAKE3, as `b3sum` computes it.
    Blake3,
    /// SHA-256 (FIPS 180-4).
    Sha256,
    /// MD5 (RFC 1321). It detects accidents, not forgeries.
    Md5,
    /// Adler-32 (RFC 1950). It detects accidents, not forgeries.
    Adler32,
    /// CRC-32C (RFC 3720, appendix B.4). It detects accidents, not forgeries.
    Crc32c,
}

/// The name is not that of an algorithm. Use one of those that the message lists.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}: unknown checksum; use blake3, sha256, md5, adler32 or crc32c")]
pub struct UnknownAlgorithm(String);

impl Algorithm {
    /// All algorithms.
    pub const ALL: [Self; 5] = [
        Self::Blake3,
        Self::Sha256,
        Self::Md5,
        Self::Adler32,
        Self::Crc32c,
    ];

    /// Returns the name, as it is typed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Blake3 => "blake3",
            Self::Sha256 => "sha256",
            Self::Md5 => "md5",
            Self::Adler32 => "adler32",
            Self::Crc32c => "crc32c",
        }
    }

    /// Returns the name, as lists in BSD's format have it.
    pub const fn tag(self) -> &'static str {
        match self {
            Self::Blake3 => "BLAKE3",
            Self::Sha256 => "SHA256",
            Self::Md5 => "MD5",
            Self::Adler32 => "ADLER32",
            Self::Crc32c => "CRC32C",
        }
    }

    /// Returns the length of a value, in bytes.
    pub const fn value_bytes(self) -> usize {
        match self {
            Self::Blake3 | Self::Sha256 => 32,
            Self::Md5 => 16,
            Self::Adler32 | Self::Crc32c => 4,
        }
    }

    /// Returns true if XRootD's programs print it, with one space before the name.
    pub const fn is_of_xrootd(self) -> bool {
        matches!(self, Self::Adler32 | Self::Crc32c)
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // `SHA-256` and `crc32-c` are common, too.
        let plain = text.to_ascii_lowercase().replace(['-', '_'], "");
        Self::ALL
            .into_iter()
            .find(|algorithm| algorithm.name() == plain)
            .ok_or_else(|| UnknownAlgorithm(printable(text.as_bytes())))
    }
}

/// A value of an algorithm, most significant byte first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checksum {
    algorithm: Algorithm,
    value: Vec<u8>,
}

impl Checksum {
    /// Creates a checksum from its bytes. `None` if the algorithm has values of another length.
    pub fn new(algorithm: Algorithm, value: Vec<u8>) -> Option<Self> {
        (value.len() == algorithm.value_bytes()).then_some(Self { algorithm, value })
    }

    /// Creates a checksum that an algorithm has just computed.
    pub(crate) fn of_parts(algorithm: Algorithm, value: Vec<u8>) -> Self {
        Self { algorithm, value }
    }

    /// Creates a checksum from hexadecimal digits of either case.
    pub fn from_hex(algorithm: Algorithm, digits: &[u8]) -> Option<Self> {
        Self::new(algorithm, HEXLOWER_PERMISSIVE.decode(digits).ok()?)
    }

    /// Returns the algorithm.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.value
    }
}

/// Formats the value in hexadecimal digits.
impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_people_write_them() {
        for algorithm in Algorithm::ALL {
            for name in [algorithm.name(), algorithm.tag()] {
                assert_eq!(name.parse(), Ok(algorithm));
            }
            let sent = serde_json::to_string(&algorithm).unwrap();
            assert_eq!(sent, format!("\"{algorithm}\""));
        }
        assert_eq!("SHA-256".parse(), Ok(Algorithm::Sha256));
        let error = "sha\x1b1".parse::<Algorithm>().unwrap_err().to_string();
        assert!(
            !error.contains('\x1b') && error.contains("crc32c"),
            "{error}"
        );
    }

    #[test]
    fn values_have_the_length_of_their_algorithm() {
        let value = Checksum::from_hex(Algorithm::Adler32, b"00C0ffee").unwrap();
        assert_eq!(value.to_string(), "00c0ffee");
        assert_eq!(Checksum::from_hex(Algorithm::Adler32, b"c0ffee"), None);
        assert_eq!(Checksum::from_hex(Algorithm::Md5, b"00c0ffee"), None);
        assert_eq!(Checksum::from_hex(Algorithm::Adler32, b"00c0ffe "), None);
    }
}
