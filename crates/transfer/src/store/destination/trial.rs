//! Trials before data are sent: whether a file can be given its name in the end.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use rustix::io::Errno;

use super::{Destination, Parent};
use crate::error::{Failure, FailureKind};

/// Bits that tell the temporary names of trials from those of entries, whose numbers have neither
/// (LH-COPY-3).
const FIRST_TRIAL: u64 = 1 << 63;
const SECOND_TRIAL: u64 = 3 << 62;
/// Names that some file systems keep for devices, with any ending.
const DEVICES: [&str; 4] = ["con", "prn", "aux", "nul"];

impl Destination {
    /// Fails if the file of entry `id` can certainly not be given its name: the file system has no
    /// means to do that without replacing another file, or does not allow the name.
    pub(super) fn try_name(&self, parent: &Parent, id: u64) -> Result<(), Failure> {
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
            let detail = "the target's file system can name files only in a way that may replace \
                          others; give --overwrite to accept that, or copy elsewhere";
            Failure::with(FailureKind::Io, detail)
        }
        errno => errno.into(),
    }
}

/// Whether there are file systems that allow no such name: what Windows forbids, what is not
/// UTF-8, and names longer than encrypting file systems have room for.
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
    fn names_that_some_file_system_refuses_are_unusual() {
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
