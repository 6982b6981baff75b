//! Links that lead out of their source.

/// Returns true if a symbolic link at `path` beneath its source may lead out of the source: its
/// target is absolute, or has more `..` than there are directories to leave. Every step of the
/// target must stay within, as rsync's `--safe-links` has it.
pub(crate) fn leads_out(path: &[u8], target: &[u8]) -> bool {
    if target.is_empty() || target.starts_with(b"/") {
        return true;
    }
    let mut depth = path.iter().filter(|byte| **byte == b'/').count();
    for part in target.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => match depth.checked_sub(1) {
                Some(above) => depth = above,
                None => return true,
            },
            _ => depth += 1,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lh_copy_70_links_that_lead_out_are_unsafe() {
        for (path, target, out) in [
            ("link", "file", false),
            ("link", "a/../b", false),
            ("link", "../x", true),
            ("a/link", "../x", false),
            ("a/link", "../../x", true),
            ("a/link", "../../source/x", true),
            ("a/b/link", "../../x", false),
            ("a/b/link", "./.././../x", false),
            ("link", "a/../../b", true),
            ("a/link", "/etc/passwd", true),
            ("a/link", "", true),
            ("a/link", "..", false),
            ("link", "..", true),
        ] {
            assert_eq!(
                leads_out(path.as_bytes(), target.as_bytes()),
                out,
                "{path} -> {target}"
            );
        }
    }
}
