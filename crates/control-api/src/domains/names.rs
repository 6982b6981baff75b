//! Names of domains, of points at which traffic enters or leaves them, and of connections.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Maximum length of a domain's name, in bytes.
const MAX_DOMAIN_BYTES: usize = 63;
/// Maximum length of a point's name, in bytes.
const MAX_POINT_BYTES: usize = 253;
/// Maximum length of an identifier, in bytes.
const MAX_ID_BYTES: usize = 255;
/// Prefix of keys, which are no domains.
const KEY_PREFIX: &str = "lhk1";

/// A text is no valid name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The name of the domain is invalid. Write letters a to z, digits, `-` and `.`.
    #[error(
        "{0:?} is no name of a domain: write 1 to 63 of a-z, 0-9, - and ., beginning with a letter"
    )]
    Domain(String),
    /// The termination point is invalid. Write the domain, a colon, and the name of an edge, host,
    /// depot or site.
    #[error("{0:?} is no point of a domain: write DOMAIN:NAME, as in east:store")]
    Point(String),
    /// The identifier is empty, too long, or has characters that are not allowed.
    #[error("{0:?} is no identifier: write 1 to 255 of a-z, A-Z, 0-9 and -_.:/")]
    Id(String),
}

macro_rules! text_type {
    ($(#[$doc:meta])* $name:ident, $error:path, $is_valid:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Returns the text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = NameError;

            fn from_str(text: &str) -> Result<Self, NameError> {
                Self::try_from(text.to_owned())
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;

            fn try_from(text: String) -> Result<Self, NameError> {
                let is_valid: fn(&str) -> bool = $is_valid;
                if is_valid(&text) {
                    Ok(Self(text))
                } else {
                    // Names come from other domains: an error shows no more than a line of them.
                    Err($error(text.chars().take(MAX_DOMAIN_BYTES).collect()))
                }
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }
    };
}

text_type! {
    /// Name of a domain: letters a to z, digits, `-` and `.`, beginning with a letter. In NSI, the
    /// network and its agent (NSA) have this name.
    DomainName, NameError::Domain, |text| {
        let is_key = text.starts_with(KEY_PREFIX);
        text.len() <= MAX_DOMAIN_BYTES
            && !is_key
            && text.starts_with(|first: char| first.is_ascii_lowercase())
            && text
                .bytes()
                .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.'))
    }
}

text_type! {
    /// Identifier of an end-to-end reservation, chosen by the domain that was asked first. All of
    /// its segments carry it.
    GlobalReservationId, NameError::Id, is_id
}

text_type! {
    /// Identifier of a segment, chosen by its provider.
    ConnectionId, NameError::Id, is_id
}

text_type! {
    /// Identifier of a request. A repeated request has the same one, and its answer carries it.
    CorrelationId, NameError::Id, is_id
}

fn is_id(text: &str) -> bool {
    (1..=MAX_ID_BYTES).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.:/".contains(&byte))
}

/// Service termination point (STP): a point at which traffic enters or leaves a domain, written
/// `DOMAIN:NAME`. The name is that of an edge, host, depot or site of the domain.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TerminationPoint {
    /// Domain of the point.
    pub domain: DomainName,
    /// Name of the point in its domain.
    pub point: String,
}

impl TerminationPoint {
    /// Creates a point.
    ///
    /// # Errors
    /// [`NameError::Point`] if the point's name is empty, too long, or has control characters.
    pub fn new(domain: DomainName, point: &str) -> Result<Self, NameError> {
        let is_valid = (1..=MAX_POINT_BYTES).contains(&point.len())
            && !point.chars().any(|c| c.is_control() || c.is_whitespace());
        if !is_valid {
            let text = format!("{domain}:{point}");
            return Err(NameError::Point(
                text.chars().take(MAX_DOMAIN_BYTES).collect(),
            ));
        }
        Ok(Self {
            domain,
            point: point.to_owned(),
        })
    }
}

impl fmt::Display for TerminationPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.domain, self.point)
    }
}

impl FromStr for TerminationPoint {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let (domain, point) = text
            .split_once(':')
            .ok_or_else(|| NameError::Point(text.chars().take(MAX_DOMAIN_BYTES).collect()))?;
        Self::new(domain.parse()?, point)
    }
}

impl TryFrom<String> for TerminationPoint {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<TerminationPoint> for String {
    fn from(point: TerminationPoint) -> Self {
        point.to_string()
    }
}
