//! Lists of paths.

#![deny(clippy::indexing_slicing)] // lists come from files

use crate::rules::PathText;

/// Parses a list of paths that each end with `separator`: a newline, or NUL. Slashes at the ends
/// of a path, dots as names and empty paths are dropped.
pub fn parse_list(text: &[u8], separator: u8) -> Vec<PathText> {
    let paths = text.split(|&byte| byte == separator).map(|path| {
        let names = path.split(|&byte| byte == b'/');
        let names: Vec<&[u8]> = names.filter(|name| !matches!(name, [] | [b'.'])).collect();
        names.join(&b'/')
    });
    paths
        .filter(|path| !path.is_empty())
        .map(PathText)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_plain() {
        let list = |text: &str, separator| {
            let paths = parse_list(text.as_bytes(), separator).into_iter();
            paths
                .map(|path| String::from_utf8(path.0).unwrap())
                .collect::<Vec<_>>()
        };
        assert_eq!(list("a\n./b//c/\n\n/d", b'\n'), ["a", "b/c", "d"]);
        assert_eq!(list("a\nb\0c", 0), ["a\nb", "c"]);
    }
}
