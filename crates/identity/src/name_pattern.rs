//! Patterns of names, with `*` as the only wildcard.

use std::fmt;
use std::str::FromStr;

use longhaul_proto::text::is_printable;
use regex::Regex;

/// Maximum length of a pattern, in bytes.
const MAX_PATTERN_BYTES: usize = 512;
/// Characters of a part of a subject: any but the separators, which a backslash escapes.
const WITHIN_PART: &str = r"(?:[^/+\\]|\\.)*";
/// Characters of a part of any other name. Kinds of names differ by these separators.
const WITHIN_NAME: &str = "[^/@:]*";

/// Pattern of names.
///
/// `*` is any run of characters within one part: `*@lab.example`, `/DC=org/DC=Lab/CN=Robot *`. A
/// pattern of subjects that ends in `/*` takes any further parts. Everything else is literal, and
/// upper and lower case differ.
#[derive(Debug, Clone)]
pub struct NamePattern {
    text: String,
    regex: Regex,
}

impl NamePattern {
    /// Returns true if the pattern takes `name`.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        self.regex.is_match(name)
    }

    /// Returns the name if the pattern has no wildcard.
    #[must_use]
    pub fn exact(&self) -> Option<&str> {
        (!self.text.contains('*')).then_some(&self.text)
    }

    /// Returns the pattern as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl PartialEq for NamePattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for NamePattern {}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for NamePattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() || text.len() > MAX_PATTERN_BYTES || !text.chars().all(is_printable) {
            return Err(format!(
                "a name must have 1 to {MAX_PATTERN_BYTES} bytes without control characters"
            ));
        }
        let within = match text.starts_with('/') {
            true => WITHIN_PART,
            false => WITHIN_NAME,
        };
        let (body, tail) = match text.strip_suffix("/*") {
            Some(body) if text.starts_with('/') => (body, "/.+"),
            _ => (text, ""),
        };
        let parts: Vec<String> = body.split('*').map(regex::escape).collect();
        let expression = format!(r"\A(?:{}{tail})\z", parts.join(within));
        let regex = Regex::new(&expression).map_err(|_| "too many wildcards".to_owned())?;
        Ok(Self {
            text: text.to_owned(),
            regex,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, name: &str) -> bool {
        pattern.parse::<NamePattern>().unwrap().matches(name)
    }

    #[test]
    fn wildcard_stays_within_a_part() {
        for (pattern, name, expected) in [
            ("ana", "ana", true),
            ("ana", "anab", false),
            ("ana", "Ana", false),
            ("an.", "ana", false),
            ("*@lab.example", "ana@lab.example", true),
            ("*@lab.example", "ana@lab.example.org", false),
            ("*@lab.example", "a@b@lab.example", false),
            ("*@lab.example", "mailto:ana@lab.example", false),
            ("*@lab.example", "dns:ana@lab.example", false),
            ("*", "/DC=org/CN=Ana", false),
            ("*", "dns:host", false),
            ("dns:*", "dns:host", true),
            ("/DC=org/CN=*", "/DC=org/CN=Ana+UID=root", false),
            ("/DC=org/CN=*", r"/DC=org/CN=Ana\+Bo", true),
            ("/DC=org/CN=*", "/DC=org/CN=Ana", true),
            ("/DC=org/CN=*", "/DC=org/CN=Ana/CN=proxy", false),
            ("/DC=org/CN=*", r"/DC=org/CN=host\/a.example", true),
            ("/DC=org/CN=*", r"/DC=org/CN=x\\/CN=y", false),
            ("/DC=org/*/CN=Ana", "/DC=org/OU=a/CN=Ana", true),
            ("/DC=org/*/CN=Ana", "/DC=org/OU=a/OU=b/CN=Ana", false),
            ("/DC=org/*", "/DC=org/OU=a/CN=Ana", true),
            ("/DC=org/*", "/DC=org", false),
            ("/DC=org/*", "/DC=organisation/CN=Ana", false),
            ("/DC=org/*", "/DC=com/DC=org/CN=Ana", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn unprintable_patterns_are_refused() {
        for text in ["", "a\nb", &"a".repeat(513)] {
            assert!(text.parse::<NamePattern>().is_err(), "{text:?}");
        }
    }
}
