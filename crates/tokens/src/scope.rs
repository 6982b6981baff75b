//! Scopes that permit access to files: those of the WLCG profile (`storage.read:/path`) and of
//! SciTokens (`read:/path`).

use longhaul_transfer::Access;
use longhaul_transfer::path::RelPath;
use percent_encoding::percent_decode_str;

/// Returns the access that a scope permits, and the directory at the issuer's part of the server.
/// Returns `None` if the scope is about something else, or its path is not absolute and plain.
///
/// `storage.create` makes new files. `storage.modify` and SciTokens' `write` also replace, rename
/// and remove. `storage.stage` includes reading. None of those that write includes reading.
pub(crate) fn storage_right(scope: &str) -> Option<(Access, RelPath)> {
    let (verb, path) = scope.split_once(':')?;
    let access = match verb {
        "storage.read" | "storage.stage" | "read" => Access::Read,
        "storage.create" => Access::Create,
        "storage.modify" | "write" => Access::Write,
        _ => return None,
    };
    let path: Vec<u8> = percent_decode_str(path).collect();
    if path.first() != Some(&b'/') {
        return None;
    }
    // Doubled slashes and `.` are dropped; a path with `..` gives no right.
    Some((access, RelPath::from_typed(&path).ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::from_typed(text.as_bytes()).unwrap()
    }

    #[test]
    fn scopes_of_both_profiles_are_rights() {
        for (scope, access, at) in [
            ("storage.read:/", Access::Read, ""),
            ("storage.read:/a/b", Access::Read, "a/b"),
            ("storage.stage:/a", Access::Read, "a"),
            ("storage.create:/a/", Access::Create, "a"),
            ("storage.modify:/a//b/./c", Access::Write, "a/b/c"),
            ("read:/a", Access::Read, "a"),
            ("write:/a%20b", Access::Write, "a b"),
            ("read:/a:b", Access::Read, "a:b"),
        ] {
            assert_eq!(storage_right(scope), Some((access, path(at))), "{scope}");
        }
    }

    #[test]
    fn other_scopes_give_no_right() {
        for scope in [
            "",
            "openid",
            "read",
            "read:",
            "read:a",
            "storage.read",
            "storage.read:a",
            "storage.poll:/a",
            "compute.read:/",
            "READ:/a",
            "read:/a/../b",
            "read:/..",
            "read:/a/%2e%2e/b",
            "read:/a%00b",
            "queue:/a",
        ] {
            assert_eq!(storage_right(scope), None, "{scope}");
        }
    }

    proptest! {
        #[test]
        fn no_scope_leads_out(scope in "(read|write|storage.read):[/.%a-f0-9]{0,20}") {
            if let Some((_, directory)) = storage_right(&scope) {
                let names = directory.as_bytes().split(|&byte| byte == b'/');
                prop_assert!(names.into_iter().all(|name| name != b".." && name != b"."));
            }
        }
    }
}
