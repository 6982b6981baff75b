//! What a command answers on standard output.

use std::fmt::Display;
use std::io::Write;

/// Writes one line. A reader that has gone away is no reason to end: a server serves on after its first lines were read.
pub fn line(text: impl Display) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}
