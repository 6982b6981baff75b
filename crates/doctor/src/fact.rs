//! A fact that is known, or the reason why not; and text that is safe to print and to use in a
//! command.

#![deny(clippy::indexing_slicing)] // what is read here comes from the network

use std::fmt;

use longhaul_proto::text::printable_within;
use serde::{Deserialize, Serialize};

/// A property of a machine: known, or unknown with a reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fact<T> {
    /// The value.
    Known(T),
    /// The reason why it could not be found out, in a few words.
    Unknown(PrintableText),
}

impl<T> Fact<T> {
    /// Creates an unknown fact with this reason.
    pub fn unknown(why: impl fmt::Display) -> Self {
        Self::Unknown(PrintableText::new(&why.to_string()))
    }

    /// Returns the value, if it is known.
    pub const fn known(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Unknown(_) => None,
        }
    }

    /// Changes the value, if it is known.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Fact<U> {
        match self {
            Self::Known(value) => Fact::Known(change(value)),
            Self::Unknown(why) => Fact::Unknown(why),
        }
    }
}

impl<T, E: fmt::Display> From<Result<T, E>> for Fact<T> {
    fn from(result: Result<T, E>) -> Self {
        match result {
            Ok(value) => Self::Known(value),
            Err(error) => Self::unknown(error),
        }
    }
}

/// Text for a person: one line, at most 200 bytes, without anything that controls a terminal
/// ([`longhaul_proto::text`]).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String")]
pub struct PrintableText(String);

/// Maximum length of a [`PrintableText`], in bytes.
const MAX_TEXT_BYTES: usize = 200;

impl PrintableText {
    /// Accepts any text: escapes what must not be printed, and truncates what is too long.
    pub fn new(text: &str) -> Self {
        // Trimmed again: truncation may leave white space at the end.
        let text = printable_within(text.trim().as_bytes(), MAX_TEXT_BYTES);
        Self(text.trim_end().to_owned())
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for PrintableText {
    fn from(text: String) -> Self {
        Self::new(&text)
    }
}

impl fmt::Display for PrintableText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Name for use in commands: of a device, a congestion control, a queue discipline. It has at most
/// 32 letters, digits, `_`, `.`, `:`, `@` and `-`, and does not start with `-`. It needs no quoting
/// in a shell.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct CommandName(String);

const MAX_NAME_BYTES: usize = 32;

/// The text is not a [`CommandName`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a name that fits no command line")]
pub struct NameError;

impl CommandName {
    /// Checks a name.
    ///
    /// # Errors
    /// [`NameError`] if it contains characters that a shell or a command could misinterpret.
    pub fn new(name: &str) -> Result<Self, NameError> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"_.:@-".contains(&b);
        let fits = (1..=MAX_NAME_BYTES).contains(&name.len())
            && name.bytes().all(plain)
            && !name.starts_with('-');
        if fits {
            Ok(Self(name.to_owned()))
        } else {
            Err(NameError)
        }
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for CommandName {
    type Error = NameError;

    fn try_from(name: String) -> Result<Self, NameError> {
        Self::new(&name)
    }
}

impl fmt::Display for CommandName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing)]
mod tests {
    use super::*;

    #[test]
    fn names_hold_nothing_that_a_shell_reads() {
        for good in ["eth0", "enp3s0f1.100", "br-lan", "a:b", "fq_codel", "tun@x"] {
            assert!(CommandName::new(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "-all",
            "a b",
            "a;b",
            "$(x)",
            "a\nb",
            "ä",
            "a'b",
            "0123456789012345678901234567890123",
        ] {
            assert!(CommandName::new(bad).is_err(), "{bad}");
            assert!(
                serde_json::from_value::<CommandName>(serde_json::json!(bad)).is_err(),
                "{bad}"
            );
        }
    }

    #[test]
    fn text_cannot_steer_a_terminal() {
        assert_eq!(
            PrintableText::new(" a\u{1b}[2Jb\nc\u{202e}d\u{200b}\u{2028}\u{2029}e ").as_str(),
            "a\\u{1b}[2Jb\\u{a}c\\u{202e}d\\u{200b}\\u{2028}\\u{2029}e"
        );
        let long: PrintableText =
            serde_json::from_value(serde_json::json!("x".repeat(9000))).unwrap();
        assert_eq!(long.as_str().len(), MAX_TEXT_BYTES);
    }
}
