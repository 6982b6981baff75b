//! Method by which the data of blocks is compressed on its way.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Method by which the data of blocks is compressed on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Compression {
    /// Nothing is compressed.
    #[default]
    None,
    /// Data is compressed while that makes the copy faster.
    Auto,
    /// Everything is compressed by Zstandard (RFC 8878) at this level, from 1 to
    /// [`Self::MAX_LEVEL`].
    Zstd(u8),
}

/// A text that names no method of compression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no compression: use auto, none, zstd, or zstd:N with N from 1 to 19")]
pub struct UnknownCompression(String);

impl Compression {
    /// Highest level of Zstandard that needs no extra memory at the receiver.
    pub const MAX_LEVEL: u8 = 19;
    /// Level of `zstd` without a number, and highest level at which a server compresses. Higher
    /// ones would let a client take a server's processors.
    pub(crate) const DEFAULT_LEVEL: u8 = 3;
    /// Level of `auto`: the fastest, so that it pays on most paths.
    pub(crate) const AUTO_LEVEL: u8 = 1;

    /// Returns true if nothing is compressed.
    pub fn is_none(&self) -> bool {
        *self == Self::None
    }

    /// Returns the method as it is sent: the level, or 0 for `auto`.
    pub(crate) fn code(self) -> Option<u8> {
        match self {
            Self::None => None,
            Self::Auto => Some(0),
            Self::Zstd(level) => Some(level),
        }
    }

    /// Decodes a method. `None` if the level is too high.
    pub(crate) fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Auto),
            1..=Self::MAX_LEVEL => Some(Self::Zstd(code)),
            _ => None,
        }
    }

    /// Returns the method that a server uses if a client requests this one.
    pub(crate) fn at_server(self) -> Self {
        match self {
            Self::Zstd(level) => Self::Zstd(level.min(Self::DEFAULT_LEVEL)),
            method => method,
        }
    }

    /// Returns the level of Zstandard, or `None` if nothing is compressed.
    pub(crate) fn level(self) -> Option<u8> {
        match self {
            Self::None => None,
            Self::Auto => Some(Self::AUTO_LEVEL),
            Self::Zstd(level) => Some(level),
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Auto => f.write_str("auto"),
            Self::Zstd(level) => write!(f, "zstd:{level}"),
        }
    }
}

impl FromStr for Compression {
    type Err = UnknownCompression;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let unknown = || UnknownCompression(text.to_owned());
        match text {
            "none" => Ok(Self::None),
            "auto" => Ok(Self::Auto),
            "zstd" => Ok(Self::Zstd(Self::DEFAULT_LEVEL)),
            _ => {
                let level = text.strip_prefix("zstd:").ok_or_else(unknown)?;
                let level = level.parse().map_err(|_| unknown())?;
                let is_level = (1..=Self::MAX_LEVEL).contains(&level);
                is_level.then_some(Self::Zstd(level)).ok_or_else(unknown)
            }
        }
    }
}

impl TryFrom<String> for Compression {
    type Error = UnknownCompression;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Compression> for String {
    fn from(method: Compression) -> Self {
        method.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_survive_text_and_wire() {
        for text in ["none", "auto", "zstd:1", "zstd:19"] {
            let method: Compression = text.parse().unwrap();
            assert_eq!(method.to_string(), text);
            let code = method.code();
            assert_eq!(
                code.and_then(Compression::from_code).unwrap_or_default(),
                method
            );
        }
        assert_eq!("zstd".parse(), Ok(Compression::Zstd(3)));
        for wrong in ["", "gzip", "zstd:0", "zstd:20", "zstd:", "zstd:x", "Auto"] {
            assert!(wrong.parse::<Compression>().is_err(), "{wrong}");
        }
        assert_eq!(Compression::from_code(20), None);
    }

    #[test]
    fn server_compresses_at_moderate_levels_only() {
        let level = |text: &str| text.parse::<Compression>().unwrap().at_server().level();
        assert_eq!(level("zstd:19"), Some(3));
        assert_eq!(level("zstd:2"), Some(2));
        assert_eq!(level("auto"), Some(1));
        assert_eq!(level("none"), None);
    }
}
