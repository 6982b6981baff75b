//! What a command answers on standard output.

use std::fmt::Display;
use std::net::SocketAddr;

/// Writes one line. An error ends nothing here: a server serves on after its first lines were read,
/// and a copy ends before the exit code reports it.
pub fn line(text: impl Display) {
    longhaul_output::print_line!("{text}");
}

/// Writes lines at once; false when the reader has gone away, or no more can be written.
pub fn lines(texts: impl Iterator<Item = String>) -> bool {
    let mut text = String::new();
    for line in texts {
        text.push_str(&line);
        text.push('\n');
    }
    longhaul_output::print(&text)
}

/// How others reach a listener, for a command line to copy: of one that listens everywhere nobody
/// knows by which name.
pub fn reachable(listener: SocketAddr) -> String {
    if listener.ip().is_unspecified() {
        format!("HOST:{}", listener.port())
    } else {
        listener.to_string()
    }
}
