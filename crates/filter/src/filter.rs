//! A filter that is ready for use.

#![deny(clippy::indexing_slicing)] // rules and names come from the network
#![cfg_attr(test, allow(clippy::indexing_slicing))]

use std::collections::BTreeSet;

use regex::bytes::{RegexSet, RegexSetBuilder};

use crate::pattern::{self, DIRECTORY_MARK, PatternError};
use crate::rules::FilterRules;

/// Maximum memory of the compiled patterns, in bytes, and of their cache.
const MAX_COMPILED_BYTES: usize = 8 << 20;

/// Kind of an entry, as far as filters distinguish them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// A directory.
    Directory,
    /// A regular file.
    File {
        /// Size in bytes.
        bytes: u64,
        /// Modification time in milliseconds since 1970, rounded down.
        modified_ms: i64,
    },
    /// Anything else, such as a symbolic link.
    Other,
}

/// A compiled filter. Paths are relative to the source and have no slash at the ends. The source
/// itself is always taken.
#[derive(Debug)]
pub struct Filter {
    rules: FilterRules,
    patterns: RegexSet,
    listed: Option<BTreeSet<Vec<u8>>>,
}

impl Filter {
    /// Compiles a filter.
    ///
    /// # Errors
    /// A pattern is invalid, or the patterns are too large.
    pub fn new(rules: FilterRules) -> Result<Self, PatternError> {
        let patterns: Result<Vec<String>, PatternError> = rules
            .names
            .iter()
            .map(|rule| pattern::translate(&rule.pattern.0))
            .collect();
        let patterns = RegexSetBuilder::new(patterns?)
            .size_limit(MAX_COMPILED_BYTES)
            .dfa_size_limit(MAX_COMPILED_BYTES)
            .build()
            .map_err(|_| PatternError::TooLarge)?;
        let listed = rules.listed.as_ref();
        let listed = listed.map(|paths| paths.iter().map(|path| path.0.clone()).collect());
        Ok(Self {
            rules,
            patterns,
            listed,
        })
    }

    /// Returns the rules of the filter.
    pub fn rules(&self) -> &FilterRules {
        &self.rules
    }

    /// Returns the paths to which the filter is limited. Empty if it is not.
    pub fn listed(&self) -> impl Iterator<Item = &[u8]> {
        self.listed.iter().flatten().map(Vec::as_slice)
    }

    /// Returns true if the list has exactly this path.
    pub fn lists(&self, path: &[u8]) -> bool {
        self.listed
            .as_ref()
            .is_some_and(|listed| listed.contains(path))
    }

    /// Returns true if the name of an entry is taken. The directories above it were taken before.
    pub fn takes_name(&self, path: &[u8], is_directory: bool) -> bool {
        path.is_empty() || (self.is_listed(path) && self.may_have_name(path, is_directory))
    }

    /// Returns true if an entry is taken.
    pub fn takes(&self, path: &[u8], kind: EntryKind) -> bool {
        self.takes_name(path, kind == EntryKind::Directory) && self.takes_content(kind)
    }

    /// Returns true if the size and the time of an entry are taken.
    pub fn takes_content(&self, kind: EntryKind) -> bool {
        let EntryKind::File { bytes, modified_ms } = kind else {
            return true;
        };
        let rules = &self.rules;
        rules.min_bytes.is_none_or(|least| bytes >= least)
            && rules.max_bytes.is_none_or(|most| bytes <= most)
            && rules.newer_ms.is_none_or(|after| modified_ms > after)
            && rules.older_ms.is_none_or(|before| modified_ms < before)
    }

    fn may_have_name(&self, path: &[u8], is_directory: bool) -> bool {
        if self.rules.names.is_empty() {
            return true;
        }
        let mut text = Vec::with_capacity(path.len() + 2);
        text.push(b'/');
        text.extend_from_slice(path);
        if is_directory {
            text.push(DIRECTORY_MARK);
        }
        let first = self.patterns.matches(&text).into_iter().next();
        let rule = first.and_then(|first| self.rules.names.get(first));
        rule.is_none_or(|rule| rule.include)
    }

    /// Returns true if the list, if there is one, has the path, one above it or one below it.
    fn is_listed(&self, path: &[u8]) -> bool {
        let Some(listed) = &self.listed else {
            return true;
        };
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let mut above = ends.filter_map(|(end, _)| path.get(..end)).chain([path]);
        if above.any(|above| listed.contains(above)) {
            return true;
        }
        let below = [path, b"/"].concat();
        let next = listed.range(below.clone()..).next();
        next.is_some_and(|next| next.starts_with(&below))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rules::{NameRule, PathText};

    fn filter(rules: FilterRules) -> Filter {
        Filter::new(rules).unwrap()
    }

    #[test]
    fn first_matching_rule_decides() {
        let names = vec![
            NameRule::include("*/"),
            NameRule::include("*.c"),
            NameRule::exclude("*"),
        ];
        let filter = filter(FilterRules {
            names,
            ..FilterRules::default()
        });
        assert!(filter.takes_name(b"src", true) && filter.takes_name(b"src/a.c", false));
        assert!(!filter.takes_name(b"src/a.o", false) && filter.takes_name(b"", true));
    }

    #[test]
    fn listed_paths_bring_what_is_above_and_below() {
        let listed = ["a/b", "c"].map(|path| PathText(path.into()));
        let filter = filter(FilterRules {
            listed: Some(listed.to_vec()),
            ..FilterRules::default()
        });
        for taken in ["a", "a/b", "a/b/x", "c", "c/d/e"] {
            assert!(filter.takes_name(taken.as_bytes(), true), "{taken}");
        }
        for left in ["b", "a/c", "a/bb", "cc"] {
            assert!(!filter.takes_name(left.as_bytes(), true), "{left}");
        }
    }

    #[test]
    fn sizes_and_times_select_files() {
        let filter = filter(FilterRules {
            newer_ms: Some(1000),
            older_ms: Some(2000),
            min_bytes: Some(10),
            max_bytes: Some(20),
            ..FilterRules::default()
        });
        let takes = |bytes, modified_ms| filter.takes(b"f", EntryKind::File { bytes, modified_ms });
        assert!(takes(10, 1500) && takes(20, 1500));
        assert!(!takes(9, 1500) && !takes(21, 1500) && !takes(15, 1000) && !takes(15, 2000));
        assert!(filter.takes(b"d", EntryKind::Directory) && filter.takes(b"l", EntryKind::Other));
        assert!(filter.rules().for_names().is_empty());
    }

    proptest! {
        /// A filter with one more rule at the end decides as before, where a rule matched before.
        #[test]
        fn later_rules_change_only_undecided_names(
            first in "[ab*?]{1,4}", second in "[ab*?]{1,4}", path in "[ab]{1,4}(/[ab]{1,4}){0,2}",
            include: bool,
        ) {
            let rule = |pattern: &str, include| NameRule { include, pattern: PathText(pattern.into()) };
            let one = |names| filter(FilterRules { names, ..FilterRules::default() });
            let before = one(vec![rule(&first, include)]);
            let after = one(vec![rule(&first, include), rule(&second, !include)]);
            let path = path.as_bytes();
            let is_decided = !one(vec![rule(&first, false)]).takes_name(path, false);
            if is_decided {
                prop_assert_eq!(before.takes_name(path, false), after.takes_name(path, false));
            }
        }

        #[test]
        fn listed_paths_are_taken_with_their_parents(
            paths in prop::collection::vec("[ab]{1,2}(/[ab]{1,2}){0,3}", 1..5)
        ) {
            let listed = paths.iter().map(|path| PathText(path.clone().into())).collect();
            let filter = filter(FilterRules { listed: Some(listed), ..FilterRules::default() });
            for path in &paths {
                for (end, _) in path.match_indices('/').chain([(path.len(), "")]) {
                    prop_assert!(filter.takes_name(&path.as_bytes()[..end], true));
                }
            }
        }
    }
}
