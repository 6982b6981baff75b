//! Positions and texts in errors of configuration files.

use std::fmt::Display;

use longhaul_proto::text::printable;

/// Returns the line number, from 1, of byte `at`.
pub(crate) fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

/// Formats text as one printable line, as TOML's messages quote the file.
pub(crate) fn one_line(text: impl Display) -> String {
    printable(text.to_string().replace('\n', " ").as_bytes())
}
