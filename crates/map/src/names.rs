//! Unique names from labels.

use std::collections::{HashMap, HashSet};

use longhaul_proto::text::printable_within;

/// Maximum length of a name, in bytes.
pub const MAX_NAME_BYTES: usize = 128;
/// Maximum length of a label in a name, in bytes. A number may follow it.
const MAX_BASE_BYTES: usize = 100;

/// Names that are in use.
#[derive(Default)]
pub struct UniqueNames {
    given: HashSet<String>,
    /// Last number of each base, so that many equal labels need not count from 2 each time.
    last: HashMap<String, u64>,
}

impl UniqueNames {
    /// Returns `base`, followed by a number if it is already in use.
    pub fn claim(&mut self, base: &str) -> String {
        let base = normalize_label(base);
        if !base.is_empty() && self.given.insert(base.clone()) {
            return base;
        }
        let last = self.last.entry(base.clone()).or_insert(1);
        loop {
            *last += 1;
            let name = format!("{base} #{last}").trim_start().to_owned();
            if self.given.insert(name.clone()) {
                return name;
            }
        }
    }
}

/// Normalizes a label: one line of bounded length, without blanks at its ends or in a row.
pub fn normalize_label(label: &str) -> String {
    let words: Vec<&str> = label.split_whitespace().collect();
    printable_within(words.join(" ").as_bytes(), MAX_BASE_BYTES)
        .trim()
        .to_owned()
}

/// Returns true if a text is a valid name.
pub fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= MAX_NAME_BYTES
        && text.trim() == text
        && text.chars().all(longhaul_proto::text::is_printable)
}
