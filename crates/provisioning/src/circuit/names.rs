//! Names of owners, circuits, nodes and links, and the ids that consist of them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::streams::StreamSelector;

/// Maximum length of a name, in bytes.
pub const MAX_NAME_BYTES: usize = 128;

/// Maximum length of an id, in bytes: three names, in which each byte may be escaped as three, and
/// streams.
const MAX_ID_BYTES: usize = 2_048;

/// A text of 1 to 128 bytes, in one line, without blanks at its ends.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct EntityName(String);

/// Id of a part.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PartId(String);

/// A text that is not a name or an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a valid {what}: write 1 to {most} bytes in one line, with no space at \
         either end"
)]
pub struct InvalidName {
    text: String,
    what: &'static str,
    most: usize,
}

fn escaped(name: &EntityName) -> String {
    name.0.replace('%', "%25").replace('/', "%2F")
}

fn is_one_line(text: &str, most: usize) -> bool {
    !text.is_empty()
        && text.len() <= most
        && text.trim() == text
        // Line and paragraph separators are not control characters, but end a line.
        && !text.chars().any(|c| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}'))
}

fn invalid_name(text: &str, what: &'static str, most: usize) -> InvalidName {
    InvalidName {
        text: text.chars().take(40).collect(),
        what,
        most,
    }
}

impl FromStr for EntityName {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        if is_one_line(text, MAX_NAME_BYTES) {
            Ok(Self(text.to_owned()))
        } else {
            Err(invalid_name(text, "name", MAX_NAME_BYTES))
        }
    }
}

impl EntityName {
    /// Returns the default owner of circuits.
    #[must_use]
    pub fn default_owner() -> Self {
        Self("longhaul".to_owned())
    }

    /// Returns the name that consists of a number.
    #[must_use]
    pub fn from_number(number: u64) -> Self {
        Self(number.to_string())
    }
}

impl PartId {
    /// Returns the id of a circuit's part at a node, for the streams that leave it by a link. Ids
    /// of different parts differ.
    #[must_use]
    pub fn for_streams(
        circuit: &EntityName,
        node: &EntityName,
        link: &EntityName,
        streams: &StreamSelector,
    ) -> Self {
        let [circuit, node, link] = [circuit, node, link].map(escaped);
        // The last separator stands before the streams, whose prefixes may contain others.
        Self(format!("{circuit}/{node}/{link}/{streams}"))
    }

    /// Returns true if it is a part of this circuit.
    #[must_use]
    pub fn belongs_to(&self, circuit: &EntityName) -> bool {
        let rest = self.0.strip_prefix(&escaped(circuit));
        rest.is_some_and(|rest| rest.starts_with('/'))
    }

    /// Returns the id of an object with the router's numbers that belongs to no known part.
    pub(crate) fn from_unknown_slot(number: u16) -> Self {
        Self(format!("?{number}"))
    }

    /// Returns the number of such an id.
    pub(crate) fn unknown_slot(&self) -> Option<u16> {
        self.0.strip_prefix('?')?.parse().ok()
    }
}

impl FromStr for PartId {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        if is_one_line(text, MAX_ID_BYTES) {
            Ok(Self(text.to_owned()))
        } else {
            Err(invalid_name(text, "id", MAX_ID_BYTES))
        }
    }
}

macro_rules! as_text {
    ($type:ident) => {
        impl TryFrom<String> for $type {
            type Error = InvalidName;

            fn try_from(text: String) -> Result<Self, InvalidName> {
                text.parse()
            }
        }

        impl From<$type> for String {
            fn from(name: $type) -> Self {
                name.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl $type {
            /// Returns the text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
    };
}

as_text!(EntityName);
as_text!(PartId);
