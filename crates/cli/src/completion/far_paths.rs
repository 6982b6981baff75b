//! Completion of paths on other machines. A second process of this program lists the directory, as
//! a person would with `longhaul ls`, but never asks a question.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use clap_complete::engine::CompletionCandidate;

/// Time after which a shell gets no candidates.
const TIMEOUT: Duration = Duration::from_secs(4);
/// Maximum number of bytes of a listing that are read.
const MAX_LISTING_BYTES: u64 = 4 << 20;

/// A typed path on another machine.
#[derive(Debug, PartialEq, Eq)]
pub struct FarPath {
    /// Path of its directory, as typed: it ends in `:` or `/`.
    directory: Vec<u8>,
    /// Beginning of a name in that directory.
    name: Vec<u8>,
}

/// Splits a typed path on another machine into directory and name. Returns `None` for a local path,
/// and as long as the host is incomplete.
pub fn split(typed: &OsStr) -> Option<FarPath> {
    let typed = typed.as_bytes();
    let begin = match typed.strip_prefix(b"lh://") {
        Some(rest) => 5 + rest.iter().position(|&byte| byte == b'/')? + 1,
        None => {
            let colon = typed.iter().position(|&byte| byte == b':')?;
            let host = typed.get(..colon)?;
            if host.is_empty() || host.contains(&b'/') {
                return None;
            }
            colon + 1
        }
    };
    let path = typed.get(begin..)?;
    let name = path
        .iter()
        .rposition(|&byte| byte == b'/')
        .map_or(0, |slash| slash + 1);
    Some(FarPath {
        directory: typed.get(..begin + name)?.to_vec(),
        name: path.get(name..)?.to_vec(),
    })
}

/// Lists the entries that begin with the typed name. Empty if the machine does not answer in time,
/// or would ask for a password.
pub fn list(path: &FarPath) -> Vec<CompletionCandidate> {
    let listing = listing(&OsString::from_vec(path.directory.clone())).unwrap_or_default();
    let entries = listing.split(|&byte| byte == b'\n').filter_map(entry);
    let matching = entries.filter(|(name, _)| name.as_bytes().starts_with(&path.name));
    let values = matching.map(|(name, is_directory)| {
        let end: &[u8] = if is_directory { b"/" } else { b"" };
        OsString::from_vec([&path.directory, name.as_bytes(), end].concat())
    });
    values.map(CompletionCandidate::new).collect()
}

/// Parses a line of `longhaul ls --json`: the name, and true for a directory.
fn entry(line: &[u8]) -> Option<(String, bool)> {
    let entry: serde_json::Value = serde_json::from_slice(line).ok()?;
    let name = entry.get("name")?.as_str()?.to_owned();
    let is_directory = entry.get("kind")?.as_str()? == "directory";
    Some((name, is_directory))
}

fn listing(directory: &OsStr) -> Option<Vec<u8>> {
    let mut child = Command::new(std::env::current_exe().ok()?)
        .args(["ls", "--json", "-B"])
        .arg(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let output = child.stdout.take()?;
    let (sender, receiver) = mpsc::channel();
    // Without a thread nothing is sent, and there are no candidates.
    let _ = std::thread::Builder::new().spawn(move || {
        let mut text = Vec::new();
        let read = output.take(MAX_LISTING_BYTES).read_to_end(&mut text);
        let _ = sender.send(read.ok().map(|_| text));
    });
    let text = receiver.recv_timeout(TIMEOUT).ok().flatten();
    let _ = child.kill();
    let _ = child.wait();
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(typed: &str) -> Option<(String, String)> {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        split(typed.as_ref()).map(|path| (text(path.directory), text(path.name)))
    }

    #[test]
    fn paths_are_split_behind_the_last_slash() {
        let is = |typed: &str, directory: &str, name: &str| {
            assert_eq!(
                parts(typed),
                Some((directory.into(), name.into())),
                "{typed}"
            );
        };
        is("h:", "h:", "");
        is("ana@h:ru", "ana@h:", "ru");
        is("h:runs/4", "h:runs/", "4");
        is("lh://h/", "lh://h/", "");
        is("lh://h:99/a/b", "lh://h:99/a/", "b");
        for local in ["", "a", "a/b:c", "/a", "lh://h", "lh:/", ":x"] {
            assert_eq!(parts(local).filter(|_| local != "lh:/"), None, "{local}");
        }
    }

    #[test]
    fn lines_of_a_listing_are_names() {
        let line = br#"{"event":"entry","name":"runs","kind":"directory","bytes":0}"#;
        assert_eq!(entry(line), Some(("runs".to_owned(), true)));
        assert_eq!(entry(b"not JSON"), None);
    }
}
