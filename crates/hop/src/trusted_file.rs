//! Files that grant trust: policies, lists of keys, known servers, routes, operator settings.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Write permission bits of the group and of others.
const OTHERS_WRITE_BITS: u32 = 0o022;

/// Reads the text of a file that grants trust. Refuses it if users other than its owner may write
/// it, since they could then grant themselves access.
///
/// # Errors
/// The file cannot be read, is not text, or is writable by others
/// ([`io::ErrorKind::PermissionDenied`]).
pub fn read_trusted_file(path: &Path) -> io::Result<String> {
    text(read_trusted_bytes(path)?)
}

/// Reads the text of a file that grants trust, as [`read_trusted_file`] does, and which must belong
/// to root.
///
/// # Errors
/// The file cannot be read, is not text, belongs to another user or is writable by others
/// ([`io::ErrorKind::PermissionDenied`]).
pub fn read_roots_file(path: &Path) -> io::Result<String> {
    let file = File::open(path)?;
    if file.metadata()?.uid() != 0 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "it says as whom processes run, so it must belong to root: run chown root on it",
        ));
    }
    text(read_checked(file)?)
}

fn text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not text in UTF-8"))
}

/// Reads a file that grants trust and need not be text, as [`read_trusted_file`] does.
///
/// # Errors
/// The file cannot be read, or is writable by others ([`io::ErrorKind::PermissionDenied`]).
pub fn read_trusted_bytes(path: &Path) -> io::Result<Vec<u8>> {
    read_checked(File::open(path)?)
}

fn read_checked(mut file: File) -> io::Result<Vec<u8>> {
    // Taken from the open file, so that the checked file is the one that is read.
    let mode = file.metadata()?.mode() & 0o7777;
    if mode & OTHERS_WRITE_BITS != 0 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!(
                "users other than its owner can write it (mode {mode:04o}), and it decides who is \
                 trusted: run chmod go-w on it"
            ),
        ));
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_that_others_may_write_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("policy.toml");
        write(&file, "text").unwrap();
        for (mode, is_read) in [
            (0o600, true),
            (0o644, true),
            (0o620, false),
            (0o602, false),
            (0o666, false),
        ] {
            set_permissions(&file, Permissions::from_mode(mode)).unwrap();
            let read = read_trusted_file(&file);
            assert_eq!(read.is_ok(), is_read, "{mode:o}: {read:?}");
        }
        let refused = read_trusted_file(&file).unwrap_err().to_string();
        assert!(
            refused.contains("mode 0666") && refused.contains("chmod go-w"),
            "{refused}"
        );
        // A link is treated like its target.
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(read_trusted_file(&link).is_err());
        let missing = read_trusted_file(&dir.path().join("none")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }
}
