//! The syntax by which policies, grants and roles list principals, and the one function that
//! matches it.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

use longhaul_proto::PublicKey;
use longhaul_proto::text::printable_within;

use crate::{NamePattern, Principal};

/// Maximum length of an invalid text in an error, in bytes.
const MAX_SHOWN_BYTES: usize = 80;
/// Maximum length of a group's name, in bytes.
const MAX_GROUP_BYTES: usize = 128;

/// Principals that an entry of a policy, of grants or of roles lists.
///
/// Text: `lhk1:...` is one key; `name:` and a [`NamePattern`] are principals with such a name;
/// `group:` and a name are the members of a group; `*` is anybody with a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PrincipalPattern {
    /// Anybody with a key.
    Anybody,
    /// One key.
    Key(PublicKey),
    /// Principals with a name that the pattern takes.
    Name(NamePattern),
    /// Members of a group.
    Group(String),
}

/// Error for text that lists no principal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" is not {problem}")]
pub struct InvalidPattern {
    text: String,
    problem: String,
}

impl PrincipalPattern {
    /// Returns true if the pattern takes `principal`.
    #[must_use]
    pub fn matches(&self, principal: &Principal) -> bool {
        match self {
            Self::Anybody => true,
            Self::Key(key) => *key == principal.key,
            Self::Name(pattern) => principal.names.iter().any(|name| pattern.matches(name)),
            Self::Group(group) => principal.groups.contains(group),
        }
    }
}

impl fmt::Display for PrincipalPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anybody => f.write_str("*"),
            Self::Key(key) => key.fmt(f),
            Self::Name(pattern) => write!(f, "name:{pattern}"),
            Self::Group(group) => write!(f, "group:{group}"),
        }
    }
}

impl FromStr for PrincipalPattern {
    type Err = InvalidPattern;

    fn from_str(text: &str) -> Result<Self, InvalidPattern> {
        let invalid = |problem: String| InvalidPattern {
            text: printable_within(text.as_bytes(), MAX_SHOWN_BYTES),
            problem,
        };
        if text == "*" {
            return Ok(Self::Anybody);
        }
        if let Some(name) = text.strip_prefix("name:") {
            let named = name.parse().map(Self::Name);
            return named.map_err(|problem| invalid(format!("a principal: {problem}")));
        }
        if let Some(group) = text.strip_prefix("group:") {
            check_group(group).map_err(|problem| invalid(format!("a principal: {problem}")))?;
            return Ok(Self::Group(group.to_owned()));
        }
        text.parse().map(Self::Key).map_err(|_| {
            let form = "a public key: write lhk1: and 52 letters and digits, name:NAME, \
                group:NAME, or \"*\"";
            invalid(form.to_owned())
        })
    }
}

/// Checks that a group can be named in a policy.
pub(crate) fn check_group(group: &str) -> Result<(), &'static str> {
    let printable = group.chars().all(longhaul_proto::text::is_printable);
    let fits = (1..=MAX_GROUP_BYTES).contains(&group.len());
    match fits && printable && group.trim() == group {
        true => Ok(()),
        false => Err("a group's name must have 1 to 128 bytes without control characters"),
    }
}

/// Principals that a rule applies to. Keys are looked up, whatever their number.
#[derive(Debug, Clone, Default)]
pub struct PrincipalSet {
    /// If true, the set contains anybody with a key.
    anybody: bool,
    keys: HashSet<PublicKey>,
    /// Names and groups.
    named: Vec<PrincipalPattern>,
}

impl PrincipalSet {
    /// Returns true if the set contains `principal`.
    #[must_use]
    pub fn includes(&self, principal: &Principal) -> bool {
        self.anybody || self.lists(principal)
    }

    /// Returns true if the set lists `principal`, and does not only contain anybody.
    #[must_use]
    pub fn lists(&self, principal: &Principal) -> bool {
        self.keys.contains(&principal.key)
            || self.named.iter().any(|pattern| pattern.matches(principal))
    }
}

impl FromIterator<PrincipalPattern> for PrincipalSet {
    fn from_iter<T: IntoIterator<Item = PrincipalPattern>>(patterns: T) -> Self {
        let mut set = Self::default();
        for pattern in patterns {
            match pattern {
                PrincipalPattern::Anybody => set.anybody = true,
                PrincipalPattern::Key(key) => drop(set.keys.insert(key)),
                named => set.named.push(named),
            }
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ana() -> Principal {
        let mut ana = Principal::from_key(PublicKey::from_bytes([1; 32]));
        ana.extend(
            ["ana".to_owned(), "ana@lab.example".to_owned()],
            ["lab".to_owned()],
            None,
        );
        ana
    }

    #[test]
    fn keys_names_and_groups_are_matched() {
        let other = PublicKey::from_bytes([2; 32]);
        for (text, listed) in [
            (ana().key.to_string(), true),
            (other.to_string(), false),
            ("name:ana".to_owned(), true),
            ("name:*@lab.example".to_owned(), true),
            ("name:lab".to_owned(), false),
            ("group:lab".to_owned(), true),
            ("group:ana".to_owned(), false),
        ] {
            let pattern: PrincipalPattern = text.parse().unwrap();
            assert_eq!(pattern.to_string(), text);
            let set: PrincipalSet = [pattern].into_iter().collect();
            assert_eq!(set.includes(&ana()), listed, "{text}");
            assert_eq!(set.lists(&ana()), listed, "{text}");
        }
        let anybody: PrincipalSet = [PrincipalPattern::Anybody].into_iter().collect();
        assert!(anybody.includes(&ana()) && !anybody.lists(&ana()));
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "ana",
            "name:",
            "group:",
            "group: lab",
            "lhk1:x",
            "Name:ana",
        ] {
            let error = text.parse::<PrincipalPattern>().unwrap_err();
            assert!(!error.to_string().contains('\n'), "{error}");
        }
    }
}
