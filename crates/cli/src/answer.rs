//! What a command answers on standard output.

use std::fmt::Display;
use std::io::Write;
use std::net::SocketAddr;

/// Writes one line. A reader that has gone away is no reason to end: a server serves on after its first lines were read.
pub fn line(text: impl Display) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

/// Writes lines at once; false when the reader has gone away and needs no more of them.
pub fn lines(texts: impl Iterator<Item = String>) -> bool {
    let mut text = String::new();
    for line in texts {
        text.push_str(&line);
        text.push('\n');
    }
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_ok()
}

/// How others reach a listener, for a command line to copy: of one that listens everywhere nobody knows by which name.
pub fn reachable(listener: SocketAddr) -> String {
    if listener.ip().is_unspecified() {
        format!("HOST:{}", listener.port())
    } else {
        listener.to_string()
    }
}
