//! The directory of the file, where its rotated ones are too.

use std::io;
use std::path::Path;

/// Returns the directory of a file.
pub(crate) fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// Returns the name of a file.
pub(crate) fn file_name(path: &Path) -> io::Result<&str> {
    let name = path.file_name().and_then(|name| name.to_str());
    name.ok_or_else(|| io::ErrorKind::InvalidFilename.into())
}

/// Returns the names in a directory that are text.
pub(crate) fn names_in(directory: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        names.extend(entry?.file_name().into_string());
    }
    Ok(names)
}
