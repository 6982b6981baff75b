//! Pages from templates: prose in `pages/NAME.md.jinja`, tables and numbers from the runs.
//!
//! The lines of a template are wrapped for its editors. On the page, each paragraph is one line.

use anyhow::{Context, Result};
use minijinja::{Environment, UndefinedBehavior, Value};

use crate::page::Page;

/// Renders the template of this name with values named as for [`minijinja::context`].
macro_rules! page {
    ($name:literal $(, $($values:tt)*)?) => {
        $crate::template::render(
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/pages/", $name, ".md.jinja")),
            minijinja::context!($($($values)*)?),
        )
    };
}
pub(crate) use page;

/// Beginning and end of a block whose lines stay as they are.
const FENCE: &str = "```";

/// Renders a template. Empty tables, and what the template omits, leave no empty lines.
///
/// # Errors
/// The template is not valid, or names a value that it was not given.
pub fn render(template: &str, values: Value) -> Result<Page> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.add_filter("fixed", |value: f64, digits: usize| {
        format!("{value:.digits$}")
    });
    let text = environment
        .render_str(&join_paragraphs(template), values)
        .context("a page's template cannot be rendered")?;
    let paragraphs = text.split("\n\n").map(|text| text.trim_matches('\n'));
    let paragraphs = paragraphs.filter(|paragraph| !paragraph.is_empty());
    Ok(paragraphs.fold(Page::default(), Page::paragraph))
}

/// Joins the wrapped lines of each paragraph and each item of a list.
fn join_paragraphs(template: &str) -> String {
    let mut in_fence = false;
    let mut is_whole = |line: &str| {
        let starts = ["|", "#", "{%", "![", FENCE];
        let is_fence = line.starts_with(FENCE);
        in_fence ^= is_fence;
        in_fence || line.is_empty() || starts.iter().any(|start| line.starts_with(start))
    };
    let mut text = String::with_capacity(template.len());
    let mut is_open = false;
    for line in template.lines() {
        let whole = is_whole(line);
        let continues = is_open && !whole && !line.starts_with("- ");
        if !text.is_empty() {
            text.push(if continues { ' ' } else { '\n' });
        }
        text.push_str(if continues { line.trim_start() } else { line });
        is_open = !whole;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_are_joined_and_empty_tables_vanish() {
        let template = "Some words\nand {{ number | fixed(1) }}.\n\n{{ table }}\n\n{% if table %}\n\
                        ## Head\n\n{% endif %}\n- an item\n  of two lines\n- another\n";
        let values = minijinja::context!(number => 2.04, table => "");
        assert_eq!(
            render(template, values).unwrap().text,
            "Some words and 2.0.\n\n- an item of two lines\n- another\n\n"
        );
    }

    #[test]
    fn value_without_a_name_is_an_error() {
        assert!(render("{{ unknown }}", minijinja::context!()).is_err());
    }
}
