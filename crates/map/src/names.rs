//! Names out of labels, each of them once.

use std::collections::{HashMap, HashSet};

use longhaul_proto::text::printable_within;

/// Longest name, in bytes.
pub const MAX_NAME_BYTES: usize = 128;
/// Of a label, so much goes into a name, in bytes: numbers may come behind it.
const MAX_BASE_BYTES: usize = 100;

/// The names that were given out.
#[derive(Default)]
pub struct Names {
    given: HashSet<String>,
    /// For each base, the last number behind it, so that many of the same label don't count from 2
    /// each time.
    last: HashMap<String, u64>,
}

impl Names {
    /// `base`, or that with a number behind it if somebody has it already.
    pub fn own(&mut self, base: &str) -> String {
        let base = tidy(base);
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

/// A label as one line without blanks at its ends or in a row, of a bounded length.
pub fn tidy(label: &str) -> String {
    let words: Vec<&str> = label.split_whitespace().collect();
    printable_within(words.join(" ").as_bytes(), MAX_BASE_BYTES)
        .trim()
        .to_owned()
}

/// Whether a text can be a name.
pub fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= MAX_NAME_BYTES
        && text.trim() == text
        && text.chars().all(longhaul_proto::text::is_printable)
}
