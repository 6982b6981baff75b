//! Text that is no quantity.

use std::{error::Error, fmt};

/// Of a text that is refused, so many characters are shown.
const MAX_SHOWN_CHARS: usize = 80;

/// Text that is no quantity of the kind that was wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuantityError {
    text: String,
    kind: &'static str,
    example: &'static str,
}

impl QuantityError {
    pub(crate) fn new(text: &str, kind: &'static str, example: &'static str) -> Self {
        Self {
            text: text.chars().take(MAX_SHOWN_CHARS).collect(),
            kind,
            example,
        }
    }
}

impl fmt::Display for QuantityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            text,
            kind,
            example,
        } = self;
        write!(f, "{text:?} is not a {kind}: write it like {example}")
    }
}

impl Error for QuantityError {}
