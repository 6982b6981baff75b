//! Checks before data is sent that a file can be committed in the end.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use rustix::io::Errno;

use super::{CopyDestination, EntryLocation};
use crate::error::{Failure, FailureKind};

/// Flag of the numbers in temporary names of trials. It distinguishes them from those of entries,
/// whose numbers do not have it (LH-COPY-3).
const FIRST_TRIAL: u64 = 1 << 63;
const SECOND_TRIAL: u64 = 3 << 62;
/// Names that some file systems reserve for devices, with any extension.
const DEVICES: [&str; 4] = ["con", "prn", "aux", "nul"];

impl CopyDestination {
    /// Fails if the file of entry `id` certainly cannot be committed. Either the file system cannot
    /// rename without replacing another file, or it does not allow the name.
    pub(super) fn try_name(&self, parent: &EntryLocation, id: u64) -> Result<(), Failure> {
        let first = self.temp_name(id | FIRST_TRIAL);
        if !self.options.overwrite {
            let second = self.temp_name(id | SECOND_TRIAL);
            parent
                .dir
                .try_naming(&first, &second)
                .map_err(naming_failure)?;
        }
        if !is_unusual(&parent.name) {
            return Ok(());
        }
        let tried = parent.dir.try_name(&first, &parent.name);
        tried.map_err(|errno| Failure::for_name(errno, parent.name.as_bytes()))
    }
}

fn naming_failure(errno: Errno) -> Failure {
    match errno {
        Errno::EXIST | Errno::PERM | Errno::NOSYS | Errno::OPNOTSUPP => {
            let detail = "the target's file system cannot rename files without possibly replacing \
                others; give --overwrite to accept that, or copy elsewhere";
            Failure::with_detail(FailureKind::Io, detail)
        }
        errno => errno.into(),
    }
}

/// Returns true if some file system does not allow the name: it is forbidden on Windows, is not
/// UTF-8, or is too long for an encrypting file system.
fn is_unusual(name: &OsStr) -> bool {
    let Some(text) = name.to_str() else {
        return true;
    };
    let stem = text
        .split('.')
        .next()
        .unwrap_or_default()
        .to_ascii_lowercase();
    let is_port = |port: &str| {
        let number = stem
            .strip_prefix(port)
            .and_then(|rest| rest.parse::<u32>().ok());
        number.is_some_and(|number| number < 10)
    };
    text.len() > 140
        || text.contains(|letter: char| r#"\:*?"<>|"#.contains(letter) || letter.is_control())
        || text.ends_with(['.', ' '])
        || DEVICES.contains(&stem.as_str())
        || is_port("com")
        || is_port("lpt")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_refused_by_some_file_system_are_unusual() {
        let long = "x".repeat(200);
        for name in [
            "a:b",
            "q?",
            "back\\slash",
            "trail.",
            "trail ",
            "con",
            "NUL.txt",
            "com1.log",
            "tab\t",
            &long,
        ] {
            assert!(is_unusual(name.as_ref()), "{name:?}");
        }
        assert!(is_unusual(OsStr::from_bytes(b"\xff")));
        for name in [
            "data.bin", ".hidden", "console", "company", "com", "a b", "\u{e4}",
        ] {
            assert!(!is_unusual(name.as_ref()), "{name:?}");
        }
    }
}
