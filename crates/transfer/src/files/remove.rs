//! Removes a directory with all its content: in bounded memory, with two descriptors, without
//! following links.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering};

use longhaul_platform::fs;
use rustix::io::Errno;

use crate::path::RelPath;
use crate::store::confine::Dir;
use crate::store::quota::Quota;

/// Memory for the names of directories that are still to be emptied, in bytes.
const MAX_NAME_BYTES: usize = 1 << 20;
/// Memory overhead of a name, in bytes.
const NAME_OVERHEAD_BYTES: usize = 48;

/// A directory that is being emptied: its path, and its subdirectories that are not empty.
struct EmptiedDirectory {
    path: RelPath,
    directories: Vec<OsString>,
    /// True if it may contain more than was recorded.
    is_cut: bool,
}

/// Error, and its path beneath the directory to be removed.
pub(super) type RemoveError = (Errno, RelPath);

/// Removes an entry that is not a directory, and gives it back to the quota, if there is one.
pub(super) fn remove_entry(dir: &Dir, name: &OsStr, quota: Option<&Quota>) -> Result<(), Errno> {
    let gone = quota.and_then(|_| dir.stat_name(name).ok());
    dir.remove(name)?;
    if let (Some(quota), Some(gone)) = (quota, gone) {
        quota.removed(&gone);
    }
    Ok(())
}

/// Removes the directory `name` of `parent` and everything beneath it, until `stop` is set (then
/// `EINTR`). After a failure, everything that was removed before it stays removed. Files are given
/// back to the quota, if there is one.
pub(super) fn remove_directory(
    parent: &Dir,
    name: &OsStr,
    quota: Option<&Quota>,
    stop: &AtomicBool,
) -> Result<(), RemoveError> {
    let at_top = |errno| (errno, RelPath::root());
    let plain =
        |name: &OsStr| RelPath::from_bytes(name.as_bytes()).map_err(|_| at_top(Errno::INVAL));
    let top = parent.open_dir(&plain(name)?).map_err(at_top)?;
    let mut room = MAX_NAME_BYTES;
    let empty = |path: RelPath, room: &mut usize| empty_directory(&top, path, room, quota, stop);
    let mut levels = vec![empty(RelPath::root(), &mut room)?];
    while let Some(level) = levels.last_mut() {
        if let Some(next) = level.directories.pop() {
            room += bytes_of(&next);
            let path = level.path.child(next.as_bytes());
            // The path is too deep to be expressed (LH-FILES-10).
            let path = path.map_err(|_| (Errno::NAMETOOLONG, level.path.clone()))?;
            levels.push(empty(path, &mut room)?);
            continue;
        }
        if level.is_cut {
            let path = level.path.clone();
            *level = empty(path, &mut room)?;
            continue;
        }
        let Some((above, name)) = level.path.split_last() else {
            break;
        };
        let name = OsStr::from_bytes(name).to_owned();
        let removed = top.handle(&above).and_then(|above| above.remove_dir(&name));
        match removed {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err((errno, level.path.clone())),
        }
        levels.pop();
    }
    parent.remove_dir(name).map_err(at_top)
}

/// Removes what can be removed at once: everything except non-empty directories. The latter are
/// recorded as far as their names fit; one always fits.
fn empty_directory(
    top: &Dir,
    path: RelPath,
    room: &mut usize,
    quota: Option<&Quota>,
    stop: &AtomicBool,
) -> Result<EmptiedDirectory, RemoveError> {
    let mut level = EmptiedDirectory {
        path,
        directories: Vec::new(),
        is_cut: false,
    };
    if let Err(errno) = empty_into(top, &mut level, room, quota, stop) {
        return Err((errno, level.path));
    }
    Ok(level)
}

fn empty_into(
    top: &Dir,
    level: &mut EmptiedDirectory,
    room: &mut usize,
    quota: Option<&Quota>,
    stop: &AtomicBool,
) -> Result<(), Errno> {
    let dir = top.open_dir(&level.path)?;
    for found in dir.entries()? {
        if stop.load(Ordering::Relaxed) {
            return Err(Errno::INTR);
        }
        let found = found?;
        let name = OsStr::from_bytes(found.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        let removed = match found.file_type() {
            fs::FileType::Directory => Err(Errno::ISDIR),
            // This includes entries of unknown type, as a directory cannot be removed like this.
            _ => remove_entry(&dir, name, quota),
        };
        // Linux returns EISDIR, POSIX and others EPERM.
        let removed = match removed {
            Err(Errno::ISDIR) => dir.remove_dir(name),
            other => other,
        };
        match removed {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(Errno::NOTEMPTY | Errno::EXIST) => {
                let bytes = name.len() + NAME_OVERHEAD_BYTES;
                if level.directories.is_empty() || *room >= bytes {
                    *room = room.saturating_sub(bytes);
                    level.directories.push(name.to_owned());
                } else {
                    level.is_cut = true;
                }
            }
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

fn bytes_of(name: &OsStr) -> usize {
    name.len() + NAME_OVERHEAD_BYTES
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;

    fn remove(at: &Path, name: &str) -> Result<(), RemoveError> {
        let parent = Dir::open(at).unwrap();
        remove_directory(&parent, OsStr::new(name), None, &AtomicBool::new(false))
    }

    #[test]
    fn tree_is_removed_and_link_targets_stay() {
        let tmp = tempfile::tempdir().unwrap();
        let at = tmp.path();
        std::fs::create_dir_all(at.join("kept/deep")).unwrap();
        std::fs::write(at.join("kept/deep/f"), "f").unwrap();
        for n in 0..50 {
            std::fs::create_dir_all(at.join(format!("tree/d{n}/e/f/g"))).unwrap();
            std::fs::write(at.join(format!("tree/d{n}/e/file")), "x").unwrap();
            symlink("../../kept", at.join(format!("tree/d{n}/link"))).unwrap();
        }
        symlink("kept", at.join("link")).unwrap();
        assert_eq!(remove(at, "link").unwrap_err().0, Errno::LOOP);
        remove(at, "tree").unwrap();
        assert!(!at.join("tree").exists());
        assert_eq!(std::fs::read(at.join("kept/deep/f")).unwrap(), b"f");
    }

    #[test]
    fn removal_ends_with_memory_for_hardly_a_name() {
        let tmp = tempfile::tempdir().unwrap();
        for n in 0..20 {
            std::fs::create_dir_all(tmp.path().join(format!("tree/d{n}/e/f"))).unwrap();
        }
        let top = Dir::open(&tmp.path().join("tree")).unwrap();
        let mut room = 1;
        let stop = AtomicBool::new(false);
        let level = empty_directory(&top, RelPath::root(), &mut room, None, &stop).unwrap();
        assert_eq!((level.directories.len(), level.is_cut), (1, true));
        remove(tmp.path(), "tree").unwrap();
        assert!(!tmp.path().join("tree").exists());
    }

    #[test]
    fn lh_files_10_removal_stops_and_reports_excessive_depth() {
        let tmp = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(tmp.path().join("tree/d")).unwrap();
        std::fs::write(tmp.path().join("tree/f"), "f").unwrap();
        let parent = Dir::open(tmp.path()).unwrap();
        let stopped = remove_directory(&parent, OsStr::new("tree"), None, &AtomicBool::new(true));
        assert_eq!(stopped.unwrap_err().0, Errno::INTR);
        assert!(tmp.path().join("tree/f").exists());
        // Deeper than any path: 40 times 200 letters.
        let name = "x".repeat(200);
        let mut below = fs::open(tmp.path().join("tree"), fs::HANDLE, fs::Mode::empty()).unwrap();
        for _ in 0..40 {
            fs::mkdirat(&below, &name, fs::Mode::RWXU).unwrap();
            below = fs::openat(&below, &name, fs::HANDLE, fs::Mode::empty()).unwrap();
        }
        assert_eq!(
            remove(tmp.path(), "tree").unwrap_err().0,
            Errno::NAMETOOLONG
        );
        // Half of the depth at a time.
        let half: String = vec![name.as_str(); 19].join("/");
        std::fs::rename(tmp.path().join("tree").join(&half), tmp.path().join("half")).unwrap();
        let deeper = Dir::open(&tmp.path().join("half")).unwrap();
        let second = RelPath::from_bytes(half.as_bytes()).unwrap();
        let (above, last) = second.split_last().unwrap();
        let above = deeper.handle(&above).unwrap();
        let stop = AtomicBool::new(false);
        remove_directory(&above, OsStr::from_bytes(last), None, &stop).unwrap();
        remove(tmp.path(), "half").unwrap();
        remove(tmp.path(), "tree").unwrap();
    }
}
