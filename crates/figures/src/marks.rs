//! Figures in documents. The runs determine the text between `<!-- figure NAME KEY -->` and
//! `<!-- /figure -->`; `KEY@NOISE` is the figure under that noise.

use anyhow::{Context, Result};

const OPEN: &str = "<!-- figure ";
const OPEN_END: &str = " -->";
const CLOSE: &str = "<!-- /figure -->";

/// Fills every mark of `text` with the result of `quote` for its experiment and key. Marks without
/// a result stay unchanged, and are returned next to the text.
///
/// # Errors
/// A mark is not closed.
pub fn fill(
    text: &str,
    quote: impl Fn(&str, &str) -> Option<String>,
) -> Result<(String, Vec<String>)> {
    let mut filled = String::with_capacity(text.len());
    let mut missing = vec![];
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(OPEN) {
        let (mark, inner) = after
            .split_once(OPEN_END)
            .context("a figure's mark does not end with -->")?;
        let (old, behind) = inner
            .split_once(CLOSE)
            .with_context(|| format!("the mark of the figure {mark:?} has no {CLOSE}"))?;
        let figure = mark
            .trim()
            .split_once(' ')
            .and_then(|(name, key)| quote(name, key.trim()))
            .unwrap_or_else(|| {
                missing.push(mark.to_owned());
                old.to_owned()
            });
        filled.push_str(&format!("{before}{OPEN}{mark}{OPEN_END}{figure}{CLOSE}"));
        rest = behind;
    }
    filled.push_str(rest);
    Ok((filled, missing))
}

/// Returns the marks that stand in a paragraph whose own words say "median", each as `NAME KEY`.
pub fn called_medians(text: &str) -> Vec<&str> {
    let mut found = vec![];
    // Marks of the current paragraph, and whether its words say so.
    let (mut marks, mut is_claimed) = (vec![], false);
    let mut rest = text;
    loop {
        let (prose, after) = rest.split_once(OPEN).unwrap_or((rest, ""));
        for (nth, paragraph) in prose.split("\n\n").enumerate() {
            if nth > 0 {
                found.extend(marks.drain(..).filter(|_| is_claimed));
                is_claimed = false;
            }
            is_claimed |= paragraph.to_lowercase().contains("median");
        }
        let Some((mark, inner)) = after.split_once(OPEN_END) else {
            found.extend(marks.into_iter().filter(|_| is_claimed));
            return found;
        };
        marks.push(mark);
        rest = inner.split_once(CLOSE).map_or("", |(_, behind)| behind);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_beside_the_word_median_are_found() {
        let text = "A rate of <!-- figure a one -->1\n\nmedian<!-- /figure -->.\n\n\
                    Rates (medians): <!-- figure a two -->1<!-- /figure -->, \
                    <!-- figure a three -->2<!-- /figure -->\n\n\
                    Medians.\n\nNot <!-- figure a four -->3<!-- /figure -->.";
        assert_eq!(called_medians(text), ["a two", "a three"]);
        assert_eq!(
            called_medians("The median is <!-- figure a one -->1<!-- /figure -->"),
            ["a one"]
        );
        assert!(called_medians("A median without a figure.").is_empty());
    }

    fn quote(name: &str, key: &str) -> Option<String> {
        (name == "lsr" && key == "share").then(|| "99 %".to_owned())
    }

    #[test]
    fn only_text_between_marks_is_replaced() {
        let text = "It carries <!-- figure lsr share -->7 %<!-- /figure --> there, twice <!-- \
            figure lsr share --><!-- /figure -->.";
        let (filled, missing) = fill(text, quote).unwrap();
        assert!(missing.is_empty());
        assert_eq!(
            filled,
            "It carries <!-- figure lsr share -->99 %<!-- /figure --> there, twice <!-- figure \
             lsr share -->99 %<!-- /figure -->."
        );
        assert_eq!(fill(&filled, quote).unwrap().0, filled);
    }

    #[test]
    fn missing_figure_is_kept_and_named() {
        let text = "<!-- figure lsr other -->1<!-- /figure -->";
        assert_eq!(
            fill(text, quote).unwrap(),
            (text.to_owned(), vec!["lsr other".to_owned()])
        );
    }

    #[test]
    fn a_mark_that_does_not_end_is_an_error() {
        for text in ["<!-- figure lsr share -->1", "<!-- figure lsr share"] {
            assert!(fill(text, quote).is_err(), "{text}");
        }
    }
}
