//! Patterns of rsync, translated to regular expressions.
//!
//! A path is matched with a slash before it and, if it is a directory, [`DIRECTORY_MARK`] behind
//! it. A regular expression takes linear time, so a pattern from the network cannot stall a walk.

#![deny(clippy::indexing_slicing)] // patterns come from the command line, files and the network
#![cfg_attr(test, allow(clippy::indexing_slicing))]

use std::fmt::Write;

/// Byte behind the path of a directory. No name contains it.
pub(crate) const DIRECTORY_MARK: u8 = 0;

/// Maximum length of a pattern, in bytes.
pub(crate) const MAX_PATTERN_BYTES: usize = 4096;

/// Error of an invalid pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// The pattern is empty, and would match nothing. Leave it out.
    #[error("an empty pattern matches nothing: leave it out")]
    Empty,
    /// A class such as `[a-z]` is not closed. Close it, or write `\[` for the character itself.
    #[error("{0}: [ is not closed: write \\[ for the character itself")]
    UnclosedClass(String),
    /// The pattern is longer than any path. Shorten it.
    #[error("a pattern has more than {MAX_PATTERN_BYTES} bytes: shorten it")]
    TooLong,
    /// The patterns together are too large to be compiled. Use fewer or simpler ones, or a
    /// `.longhaulignore` file in the source.
    #[error("the patterns are too many or too large: use fewer, or a .longhaulignore file")]
    TooLarge,
}

/// Translates a pattern to a regular expression for a path with its marks.
pub(crate) fn translate(pattern: &[u8]) -> Result<String, PatternError> {
    if pattern.len() > MAX_PATTERN_BYTES {
        return Err(PatternError::TooLong);
    }
    let (pattern, end) = match pattern {
        [.., b'/', b'*', b'*', b'*'] => (split_end(pattern, 4), r"(?:\x00|/[^\x00]*\x00?)$"),
        [.., b'/'] => (split_end(pattern, 1), r"\x00$"),
        _ => (pattern, r"\x00?$"),
    };
    let (pattern, begin) = match pattern {
        [b'/', rest @ ..] => (rest, "^/"),
        // It also matches at the top, where only the slash before the path precedes.
        [b'*', b'*', ..] => (pattern, "^"),
        _ => (pattern, "/"),
    };
    if pattern.is_empty() {
        return Err(PatternError::Empty);
    }
    let mut text = format!("(?s-u){begin}");
    body(pattern, &mut text)?;
    text.push_str(end);
    Ok(text)
}

fn split_end(pattern: &[u8], bytes: usize) -> &[u8] {
    pattern.get(..pattern.len() - bytes).unwrap_or_default()
}

fn body(pattern: &[u8], text: &mut String) -> Result<(), PatternError> {
    // A backslash is special only in a pattern with wildcards, as in rsync.
    let is_wild = pattern.iter().any(|byte| b"*?[".contains(byte));
    let mut rest = pattern;
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        match byte {
            b'*' => {
                let stars = rest.iter().take_while(|&&byte| byte == b'*').count();
                rest = rest.get(stars..).unwrap_or_default();
                text.push_str(match stars {
                    0 => r"[^/\x00]*",
                    _ => r"[^\x00]*",
                });
            }
            b'?' => text.push_str(r"[^/\x00]"),
            b'[' => {
                let class = class(rest);
                let (class, behind) = class.ok_or_else(|| unclosed(pattern))?;
                text.push_str(&class);
                rest = behind;
            }
            b'\\' if is_wild => match rest.split_first() {
                Some((&escaped, behind)) => {
                    literal(escaped, text);
                    rest = behind;
                }
                None => literal(b'\\', text),
            },
            byte => literal(byte, text),
        }
    }
    Ok(())
}

fn unclosed(pattern: &[u8]) -> PatternError {
    PatternError::UnclosedClass(pattern.escape_ascii().to_string())
}

fn literal(byte: u8, text: &mut String) {
    // Writing to a string cannot fail.
    let _ = write!(text, "\\x{byte:02x}");
}

/// Translates what follows `[`. Returns the class, and what is behind it.
fn class(mut rest: &[u8]) -> Option<(String, &[u8])> {
    let is_negative = matches!(rest.first(), Some(b'!' | b'^'));
    if is_negative {
        rest = rest.get(1..)?;
    }
    let mut members = String::new();
    let mut is_first = true;
    loop {
        let (&byte, behind) = rest.split_first()?;
        rest = behind;
        match byte {
            b']' if !is_first => break,
            b'[' if rest.first() == Some(&b':') => {
                let end = rest.windows(2).position(|two| two == b":]")?;
                let name = std::str::from_utf8(rest.get(1..end)?).ok()?;
                if !POSIX_CLASSES.contains(&name) {
                    return None;
                }
                let _ = write!(members, "[:{name}:]");
                rest = rest.get(end + 2..)?;
            }
            byte => {
                let low = match byte {
                    b'\\' => take(&mut rest)?,
                    byte => byte,
                };
                let mut high = low;
                if let [b'-', end, ..] = *rest
                    && end != b']'
                {
                    rest = rest.get(1..)?;
                    high = match take(&mut rest)? {
                        b'\\' => take(&mut rest)?,
                        end => end,
                    };
                }
                if low <= high {
                    let _ = write!(members, "\\x{low:02x}-\\x{high:02x}");
                }
            }
        }
        is_first = false;
    }
    // A class matches no slash.
    Some(match (is_negative, members.is_empty()) {
        (true, _) => (format!(r"[^/\x00{members}]"), rest),
        (false, true) => (r"[^\x00-\xff]".to_owned(), rest),
        (false, false) => (format!(r"[{members}&&[^/\x00]]"), rest),
    })
}

/// Names of classes that regular expressions have as well.
const POSIX_CLASSES: [&str; 12] = [
    "alnum", "alpha", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space",
    "upper", "xdigit",
];

fn take(rest: &mut &[u8]) -> Option<u8> {
    let (&byte, behind) = rest.split_first()?;
    *rest = behind;
    Some(byte)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use regex::bytes::Regex;

    use super::*;

    /// Returns true if the pattern matches a path. A directory ends in a slash.
    fn matches(pattern: &str, path: &str) -> bool {
        let regex = Regex::new(&translate(pattern.as_bytes()).unwrap()).unwrap();
        let mut text = format!("/{}", path.trim_end_matches('/')).into_bytes();
        if path.ends_with('/') {
            text.push(DIRECTORY_MARK);
        }
        regex.is_match(&text)
    }

    #[test]
    fn patterns_match_as_in_rsync() {
        for (pattern, path, is_match) in [
            // Without a slash, the last name counts.
            ("foo", "foo", true),
            ("foo", "a/foo", true),
            ("foo", "a/foo/", true),
            ("foo", "foo/a", false),
            ("foo", "afoo", false),
            ("*.o", "a/b.o", true),
            ("*.o", "a.o/b", false),
            // A slash at the beginning anchors.
            ("/foo", "foo", true),
            ("/foo", "a/foo", false),
            ("/a/*", "a/b", true),
            ("/a/*", "a/b/c", false),
            // A slash inside matches the last names.
            ("a/b", "x/a/b", true),
            ("a/b", "xa/b", false),
            // A slash at the end is for directories.
            ("foo/", "foo", false),
            ("foo/", "x/foo/", true),
            // Two stars cross slashes.
            ("/a/**/z", "a/b/c/z", true),
            ("/a/**/z", "a/z", false),
            ("**/z", "z", true),
            ("**z", "a/bz", true),
            ("a/**", "a/", false),
            ("a/**", "a/b/c", true),
            ("a/***", "a/", true),
            ("a/***", "a", false),
            ("a/***", "x/a/b/c/", true),
            // Classes and escapes.
            ("f[a-c]", "fb", true),
            ("f[!a-c]", "fb", false),
            ("f[!a]o", "f/o", false),
            ("f[]x]", "f]", true),
            ("[[:digit:]]", "7", true),
            ("a?c", "a/c", false),
            ("a\\*", "a*", true),
            ("a\\*", "ab", false),
            ("a\\b", "a\\b", true),
            ("a.b", "axb", false),
        ] {
            assert_eq!(matches(pattern, path), is_match, "{pattern} {path}");
        }
    }

    #[test]
    fn invalid_patterns_are_errors() {
        assert_eq!(translate(b""), Err(PatternError::Empty));
        assert_eq!(translate(b"/"), Err(PatternError::Empty));
        assert!(matches!(
            translate(b"a[b"),
            Err(PatternError::UnclosedClass(_))
        ));
        assert_eq!(translate(&[b'a'; 5000]), Err(PatternError::TooLong));
    }

    proptest! {
        #[test]
        fn every_pattern_is_a_regular_expression_or_an_error(
            pattern in prop::collection::vec(
                prop_oneof![any::<u8>(), prop::sample::select(b"*?[]!^-\\/:a".to_vec())],
                0..12,
            )
        ) {
            if let Ok(text) = translate(&pattern) {
                prop_assert!(Regex::new(&text).is_ok(), "{}", text);
            }
        }

        #[test]
        fn plain_name_matches_itself_only(name in "[a-z.+$(){}|^]{1,8}", other in "[a-z.]{1,8}") {
            prop_assert!(matches(&name, &name));
            prop_assert_eq!(matches(&name, &other), name == other);
        }
    }
}
