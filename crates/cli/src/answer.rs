//! Output of a command on standard output.

use std::fmt::Display;
use std::net::SocketAddr;

/// Writes one line. Errors are ignored: a server keeps serving after its first lines were read, and
/// a copy finishes before its exit code reports the result.
pub fn write_line(text: impl Display) {
    longhaul_output::print_line!("{text}");
}

/// Writes and flushes lines. Returns false if the reader is gone or nothing more can be written.
pub fn write_lines(texts: impl Iterator<Item = String>) -> bool {
    let mut text = String::new();
    for line in texts {
        text.push_str(&line);
        text.push('\n');
    }
    longhaul_output::print(&text)
}

/// Returns the address of a listener for use in a command line. A listener on all addresses has no
/// known name, so a placeholder stands for it.
pub fn shown_address(listener: SocketAddr) -> String {
    if listener.ip().is_unspecified() {
        format!("HOST:{}", listener.port())
    } else {
        listener.to_string()
    }
}
