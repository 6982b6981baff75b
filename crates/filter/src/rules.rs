//! Descriptions of filters.

#![deny(clippy::indexing_slicing)] // rules come from the command line, files and the network

use data_encoding::BASE64;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::pattern::{self, PatternError};

/// Description of the entries that a copy takes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FilterRules {
    /// Rules for names. The first one that matches decides. An entry that none matches is taken.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<NameRule>,
    /// If set, only these paths are taken, with the directories above and everything below them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listed: Option<Vec<PathText>>,
    /// If true, the rules of `.longhaulignore` files in the tree apply as well.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ignore_files: bool,
    /// Only files that were modified after this time, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub newer_ms: Option<i64>,
    /// Only files that were modified before this time, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub older_ms: Option<i64>,
    /// Minimum size of files, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_bytes: Option<u64>,
    /// Maximum size of files, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
    /// If true, directories on other file systems than their source are taken without content.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub one_file_system: bool,
}

impl FilterRules {
    /// Returns true if the rules take everything.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns true if only `.longhaulignore` files leave anything out.
    pub fn is_only_ignore_files(&self) -> bool {
        let rest = Self {
            ignore_files: false,
            ..self.clone()
        };
        self.ignore_files && rest.is_empty()
    }

    /// Returns the rules without those for size and time, which select what is copied, but do not
    /// hide an entry from a comparison of two trees.
    #[must_use]
    pub fn for_names(&self) -> Self {
        Self {
            newer_ms: None,
            older_ms: None,
            min_bytes: None,
            max_bytes: None,
            ..self.clone()
        }
    }
}

/// Rule for the names of entries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NameRule {
    /// If true, entries that match are taken. Otherwise they are left out.
    pub include: bool,
    /// The pattern.
    pub pattern: PathText,
}

impl NameRule {
    /// Returns a rule that leaves out what `pattern` matches.
    pub fn exclude(pattern: impl Into<Vec<u8>>) -> Self {
        Self {
            include: false,
            pattern: PathText(pattern.into()),
        }
    }

    /// Returns a rule that takes what `pattern` matches.
    pub fn include(pattern: impl Into<Vec<u8>>) -> Self {
        Self {
            include: true,
            pattern: PathText(pattern.into()),
        }
    }
}

/// A path or pattern of any bytes. It is text in JSON if it is UTF-8, and Base64 behind NUL
/// otherwise.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathText(pub Vec<u8>);

impl Serialize for PathText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => serializer.serialize_str(&format!("\0{}", BASE64.encode(&self.0))),
        }
    }
}

impl<'de> Deserialize<'de> for PathText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.strip_prefix('\0') {
            Some(encoded) => BASE64
                .decode(encoded.as_bytes())
                .map(Self)
                .map_err(serde::de::Error::custom),
            None => Ok(Self(text.into_bytes())),
        }
    }
}

/// Error in a file of rules.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleFileError {
    /// A line of the file is not a valid pattern. The line number and the reason are given.
    #[error("line {line}: {error}")]
    Pattern {
        /// Number of the line, from 1.
        line: usize,
        /// Error of its pattern.
        error: PatternError,
    },
}

/// Parses a file of rules, as rsync's `--exclude-from` does: one pattern per line to leave out, or
/// `+ PATTERN` to take. Empty lines and those that begin with `#` or `;` are skipped.
///
/// # Errors
/// A pattern is invalid.
pub fn parse_rules(text: &[u8]) -> Result<Vec<NameRule>, RuleFileError> {
    let mut rules = Vec::new();
    for (index, line) in text.split(|&byte| byte == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let rule = match line {
            [] | [b'#' | b';', ..] => continue,
            [b'+', b' ', pattern @ ..] => NameRule::include(pattern),
            [b'-', b' ', pattern @ ..] => NameRule::exclude(pattern),
            pattern => NameRule::exclude(pattern),
        };
        pattern::translate(&rule.pattern.0).map_err(|error| RuleFileError::Pattern {
            line: index + 1,
            error,
        })?;
        rules.push(rule);
    }
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rule_files_are_those_of_rsync() {
        let rules = parse_rules(b"# a comment\n; another\n\n*.o\r\n+ keep.o\n- b\n").unwrap();
        let expected = [
            NameRule::exclude("*.o"),
            NameRule::include("keep.o"),
            NameRule::exclude("b"),
        ];
        assert_eq!(rules, expected);
        let error = parse_rules(b"a\n[b\n").unwrap_err().to_string();
        assert!(
            error.starts_with("line 2: ") && !error.contains('\n'),
            "{error}"
        );
    }

    #[test]
    fn unused_rules_take_no_space() {
        let text = serde_json::to_string(&FilterRules::default()).unwrap();
        assert_eq!(text, "{}");
        assert!(serde_json::from_str::<FilterRules>(r#"{"later":1}"#).is_err());
    }

    proptest! {
        #[test]
        fn patterns_of_any_bytes_travel(bytes: Vec<u8>) {
            let text = serde_json::to_string(&PathText(bytes.clone())).unwrap();
            let back = serde_json::from_str::<PathText>(&text);
            // A pattern never begins with NUL.
            if bytes.first() != Some(&0) {
                prop_assert_eq!(back.unwrap(), PathText(bytes));
            }
        }
    }
}
