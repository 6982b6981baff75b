//! Filters of a copy: which entries of a tree it takes.
//!
//! - [`FilterRules`] describes a filter. It travels to the side that has the source.
//! - [`Filter`] applies it to names, sizes and times. Patterns match as those of rsync's
//!   `--exclude` do.
//! - [`IgnoreRules`] applies the rules of the `.longhaulignore` files of a tree, which match as
//!   those of `.gitignore` do.
//!
//! All of it is pure. A walk of a tree asks for each entry, and descends into a directory only
//! if it is taken.

#![forbid(unsafe_code)]

mod filter;
mod ignore_files;
mod list;
mod pattern;
mod rules;

pub use filter::{EntryKind, Filter};
pub use ignore_files::{IGNORE_FILE_NAME, IgnoreRules, MAX_IGNORE_FILE_BYTES};
pub use list::parse_list;
pub use pattern::PatternError;
pub use rules::{FilterRules, NameRule, PathText, RuleFileError, parse_rules};
