//! The error for text that is not a quantity.

use std::{error::Error, fmt};

/// Maximum number of characters of a refused text that are shown.
const MAX_SHOWN_CHARS: usize = 80;

/// Text that is not a quantity of the expected kind.
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
