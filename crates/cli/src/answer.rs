//! What a command answers on standard output.

use std::fmt::Display;
use std::io::Write;
use std::net::SocketAddr;

/// Writes one line. A reader that has gone away is no reason to end: a server serves on after its first lines were read.
pub fn line(text: impl Display) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

/// How others reach a listener, for a command line to copy: of one that listens everywhere nobody knows by which name.
pub fn reachable(listener: SocketAddr) -> String {
    if listener.ip().is_unspecified() {
        format!("HOST:{}", listener.port())
    } else {
        listener.to_string()
    }
}
