//! Figures in documents: whatever stands between `<!-- figure NAME KEY -->` and `<!-- /figure -->` is written from the runs.

use anyhow::{Context, Result};

const OPEN: &str = "<!-- figure ";
const OPEN_END: &str = " -->";
const CLOSE: &str = "<!-- /figure -->";

/// Fills every mark of `text` with what `quote` gives for its experiment and key.
///
/// # Errors
/// A mark is not closed, or quotes what there is not.
pub fn fill(text: &str, quote: impl Fn(&str, &str) -> Option<String>) -> Result<String> {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(OPEN) {
        let (mark, inner) = after
            .split_once(OPEN_END)
            .context("a figure's mark does not end with -->")?;
        let (_, behind) = inner
            .split_once(CLOSE)
            .with_context(|| format!("the mark of the figure {mark:?} has no {CLOSE}"))?;
        let figure = mark
            .trim()
            .split_once(' ')
            .and_then(|(name, key)| quote(name, key.trim()))
            .with_context(|| format!("there is no figure {mark:?}: measure it first, or mend its name"))?;
        filled.push_str(&format!("{before}{OPEN}{mark}{OPEN_END}{figure}{CLOSE}"));
        rest = behind;
    }
    filled.push_str(rest);
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quote(name: &str, key: &str) -> Option<String> {
        (name == "lsr" && key == "share").then(|| "99 %".to_owned())
    }

    #[test]
    fn what_stands_between_marks_is_replaced_and_nothing_else() {
        let text = "It carries <!-- figure lsr share -->7 %<!-- /figure --> there, twice <!-- figure lsr share --><!-- /figure -->.";
        let filled = fill(text, quote).unwrap();
        assert_eq!(
            filled,
            "It carries <!-- figure lsr share -->99 %<!-- /figure --> there, twice <!-- figure lsr share -->99 %<!-- /figure -->."
        );
        assert_eq!(fill(&filled, quote).unwrap(), filled);
    }

    #[test]
    fn a_figure_that_there_is_not_is_named() {
        for text in [
            "<!-- figure lsr other -->1<!-- /figure -->",
            "<!-- figure lsr share -->1",
            "<!-- figure lsr share",
        ] {
            assert!(fill(text, quote).is_err(), "{text}");
        }
    }
}
