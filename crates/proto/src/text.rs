//! Escaping of text from other parties, for logs and terminals.

use unicode_properties::{GeneralCategory, UnicodeGeneralCategory};

/// Returns `bytes` as text that cannot control a terminal, hide, or be mistaken for other text.
///
/// Characters that [`is_printable`] rejects become `\u{...}`, and bytes that are not UTF-8 become
/// `\x..`. The function is idempotent.
#[must_use]
pub fn printable(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for char in chunk.valid().chars() {
            if is_printable(char) {
                text.push(char);
            } else {
                text.extend(char.escape_unicode());
            }
        }
        for byte in chunk.invalid() {
            text.extend(std::ascii::escape_default(*byte).map(char::from));
        }
    }
    text
}

/// Returns the printable text of at most `bytes` bytes; the rest is truncated.
#[must_use]
pub fn printable_within(text: &[u8], bytes: usize) -> String {
    // Bytes truncated here would be truncated below too, as escaping never shortens a character.
    let mut text = printable(text.get(..bytes).unwrap_or(text));
    text.truncate(text.floor_char_boundary(bytes));
    text
}

/// Returns true if a character can be shown unchanged.
///
/// Excluded are controls, line and paragraph separators, and letters that are blank. Format
/// characters are excluded too, such as those that change text direction or have no width.
#[must_use]
pub fn is_printable(char: char) -> bool {
    const BLANK: [char; 5] = ['\u{115f}', '\u{1160}', '\u{2800}', '\u{3164}', '\u{ffa0}'];
    char.is_ascii_graphic()
        || char == ' '
        || !(matches!(
            char.general_category(),
            GeneralCategory::Control
                | GeneralCategory::Format
                | GeneralCategory::LineSeparator
                | GeneralCategory::ParagraphSeparator
        ) || BLANK.contains(&char))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn controlling_and_hidden_characters_are_escaped() {
        for (bytes, shown) in [
            (&b"a\x1b[31m\n\xffz"[..], "a\\u{1b}[31m\\u{a}\\xffz"),
            (
                "caf\u{e9} \u{65e5}\u{672c} \u{1f600}".as_bytes(),
                "caf\u{e9} \u{65e5}\u{672c} \u{1f600}",
            ),
            ("exe\u{202e}txt".as_bytes(), "exe\\u{202e}txt"),
            (
                "a\u{200b}b\u{2066}c\u{feff}".as_bytes(),
                "a\\u{200b}b\\u{2066}c\\u{feff}",
            ),
            (
                "one\u{2028}two\u{2029}\u{85}".as_bytes(),
                "one\\u{2028}two\\u{2029}\\u{85}",
            ),
            (
                "\u{e0041}\u{3164}\u{ad}".as_bytes(),
                "\\u{e0041}\\u{3164}\\u{ad}",
            ),
        ] {
            assert_eq!(printable(bytes), shown);
        }
    }

    proptest! {
        #[test]
        fn escaping_is_printable_and_idempotent(
            bytes in prop::collection::vec(any::<u8>(), 0..80),
            text in "\\PC{0,20}\\p{Cf}{0,3}", most in 0usize..60,
        ) {
            for bytes in [&bytes[..], text.as_bytes()] {
                let shown = printable(bytes);
                prop_assert!(shown.chars().all(is_printable));
                prop_assert_eq!(printable(shown.as_bytes()), shown);
                let short = printable_within(bytes, most);
                prop_assert!(short.len() <= most && short.chars().all(is_printable));
                prop_assert_eq!(printable_within(short.as_bytes(), most), short);
            }
        }
    }
}
