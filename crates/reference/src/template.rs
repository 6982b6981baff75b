//! Messages as users search for them: the text of a format string with `...` for its placeholders.

/// Returns the text of a format string with `...` for each placeholder, or run of placeholders.
#[must_use]
pub fn from_format(format: &str) -> String {
    let mut template = String::new();
    let mut rest = format;
    while let Some((text, more)) = rest.split_once('{') {
        template.push_str(text);
        let Some((_, after)) = more.split_once('}') else {
            break;
        };
        if !template.ends_with("...") {
            template.push_str("...");
        }
        rest = after;
    }
    template.push_str(rest);
    template
}

/// Returns the number of words of a template that contain a letter.
#[must_use]
pub fn words(template: &str) -> usize {
    let words = template.split_whitespace();
    words
        .filter(|word| word.contains(char::is_alphabetic))
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_become_dots() {
        assert_eq!(from_format("a {b:?}{c} d"), "a ... d");
        assert_eq!(from_format("{0}: no \"{name}\""), "...: no \"...\"");
        assert_eq!(from_format("plain"), "plain");
    }

    #[test]
    fn only_words_with_letters_count() {
        assert_eq!(words("...: 2 of ..."), 1);
        assert_eq!(words("no space left"), 3);
    }
}
