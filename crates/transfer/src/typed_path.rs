//! Interpretation of paths that a user types: the same for local paths, on a server, and on a host
//! that is reached by ssh.

#![deny(clippy::indexing_slicing)] // what is read here comes from the command line

/// Returns the name that a source takes in a directory. It is empty for a path that stands for the
/// content of a directory: `dir/.`, `.`, `..`, `/` and the empty path.
#[must_use]
pub fn source_name(typed: &[u8]) -> &[u8] {
    match last_part(typed) {
        b"." | b".." => b"",
        name => name,
    }
}

/// Returns true if the path can only name a directory: it ends with a slash, or has no name.
#[must_use]
pub fn names_directory(typed: &[u8]) -> bool {
    typed.ends_with(b"/") || source_name(typed).is_empty()
}

/// Returns the part behind the last slash, ignoring trailing slashes.
fn last_part(typed: &[u8]) -> &[u8] {
    let parts = typed.split(|&byte| byte == b'/');
    parts
        .rev()
        .find(|part| !part.is_empty())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_form_has_one_meaning() {
        for (typed, name, directory) in [
            ("dir", "dir", false),
            ("dir/", "dir", true),
            ("dir//", "dir", true),
            ("dir/.", "", true),
            ("dir/./", "", true),
            ("dir/..", "", true),
            (".", "", true),
            ("./", "", true),
            ("..", "", true),
            ("/", "", true),
            ("", "", true),
            ("a/./b", "b", false),
            ("a/~", "~", false),
            ("...", "...", false),
            ("a.", "a.", false),
        ] {
            assert_eq!(source_name(typed.as_bytes()), name.as_bytes(), "{typed}");
            assert_eq!(names_directory(typed.as_bytes()), directory, "{typed}");
        }
    }
}
