//! The file of accounts: appends, repairs its end, and rotates it. Several processes may write to
//! one file, such as a service and the one that replaces it.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use rustix::fs::{FlockOperation, flock};

use crate::directory::{directory_of, file_name, names_in};
use crate::record::{AccountRecord, MAX_LINE_BYTES};
use crate::rotation::{RotationLimits, rotated_name};
use crate::writer::RecordStore;

/// Mode of new files: records name people's files.
const FILE_MODE: u32 = 0o640;
/// Pause after a failed rotation. Records are appended meanwhile.
const ROTATION_PAUSE: Duration = Duration::from_secs(60);

/// The file of accounts, open for appending.
pub(crate) struct AccountFile {
    path: PathBuf,
    limits: RotationLimits,
    open: OpenFile,
    /// Time of the last failed rotation.
    rotation_failed: Option<Timestamp>,
    /// Number of rotations, and the error of the last one if it failed.
    pub(crate) rotations: u64,
    pub(crate) rotation_error: Option<io::Error>,
}

struct OpenFile {
    file: File,
    /// Time of the first record.
    first: Option<Timestamp>,
    /// True if the last line may lack its newline.
    is_torn: bool,
}

/// Lock on the file against other processes, held while it is changed.
struct FileLock<'a>(&'a File);

impl<'a> FileLock<'a> {
    fn take(file: &'a File) -> io::Result<Self> {
        loop {
            match flock(file, FlockOperation::LockExclusive) {
                Ok(()) => return Ok(Self(file)),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Drop for FileLock<'_> {
    fn drop(&mut self) {
        // Fails only on a descriptor that is no file.
        let _ = flock(self.0, FlockOperation::Unlock);
    }
}

impl OpenFile {
    fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(FILE_MODE)
            .open(path)?;
        let is_torn = ends_torn(&file)?;
        Ok(Self {
            first: first_time(&file),
            file,
            is_torn,
        })
    }

    /// Returns true if `path` still leads to this file.
    fn is_at(&self, path: &Path) -> io::Result<bool> {
        let here = self.file.metadata()?;
        match std::fs::metadata(path) {
            Ok(there) => Ok((here.dev(), here.ino()) == (there.dev(), there.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Appends whole lines, or nothing. The caller holds the lock.
    fn append(&mut self, lines: &[u8], now: Timestamp) -> io::Result<()> {
        let before = self.file.metadata()?.len();
        let mut written = Ok(());
        if self.is_torn {
            written = self.file.write_all(b"\n");
        }
        if let Err(error) = written.and_then(|()| self.file.write_all(lines)) {
            // A full disk may have taken a part.
            self.is_torn |= self.file.set_len(before).is_err();
            return Err(error);
        }
        self.is_torn = false;
        self.first.get_or_insert(now);
        Ok(())
    }
}

impl AccountFile {
    /// Opens the file, or creates it. A line that a crash has cut off is ended, so that the next
    /// record begins on its own line.
    pub(crate) fn open(path: &Path, limits: RotationLimits) -> io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            limits,
            open: OpenFile::open(path)?,
            rotation_failed: None,
            rotations: 0,
            rotation_error: None,
        })
    }

    /// Appends `lines` at `now`, and rotates the file before if that is due.
    fn append_at(&mut self, lines: &[u8], now: Timestamp) -> io::Result<()> {
        loop {
            let locked = self.open.file.try_clone()?;
            let _lock = FileLock::take(&locked)?;
            if !self.open.is_at(&self.path)? {
                // Another process, or logrotate, has rotated it.
                self.open = OpenFile::open(&self.path)?;
                continue;
            }
            if !self.is_rotation_due(now)? {
                return self.open.append(lines, now);
            }
            match self.rotate(now) {
                Ok(()) => self.rotations += 1,
                Err(error) => {
                    self.rotation_failed = Some(now);
                    self.rotation_error = Some(error);
                }
            }
        }
    }

    fn is_rotation_due(&self, now: Timestamp) -> io::Result<bool> {
        let paused = self.rotation_failed.is_some_and(|failed| {
            Duration::try_from(now.duration_since(failed)).is_ok_and(|since| since < ROTATION_PAUSE)
        });
        let bytes = self.open.file.metadata()?.len();
        Ok(!paused && self.limits.is_due(bytes, self.open.first, now))
    }

    /// Gives the file the name of a rotated one, and removes surplus ones.
    fn rotate(&self, now: Timestamp) -> io::Result<()> {
        self.open.file.sync_data()?;
        let directory = directory_of(&self.path);
        let names = names_in(directory)?;
        let file = file_name(&self.path)?;
        let name = rotated_name(file, now, |name| names.iter().any(|taken| taken == name));
        let name = name.ok_or(io::ErrorKind::AlreadyExists)?;
        std::fs::rename(&self.path, directory.join(name))?;
        File::open(directory)?.sync_all()?;
        for surplus in self.limits.surplus(file, &names_in(directory)?) {
            std::fs::remove_file(directory.join(surplus))?;
        }
        Ok(())
    }
}

impl RecordStore for AccountFile {
    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        self.append_at(lines, Timestamp::now())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.open.file.sync_data()
    }
}

/// Returns true if the last line of the file has no newline.
fn ends_torn(file: &File) -> io::Result<bool> {
    let Some(last) = file.metadata()?.len().checked_sub(1) else {
        return Ok(false);
    };
    let mut byte = [0];
    // A device has no last byte.
    let read = file.read_at(&mut byte, last)?;
    Ok(read == 1 && byte != *b"\n")
}

/// Returns the time of the first record in the file.
fn first_time(file: &File) -> Option<Timestamp> {
    let mut line = Vec::new();
    let from_start = FromStart(file, 0).take(MAX_LINE_BYTES);
    BufReader::new(from_start)
        .read_until(b'\n', &mut line)
        .ok()?;
    let record: AccountRecord = serde_json::from_slice(&line).ok()?;
    Some(record.time().ended)
}

/// Reads a file from its start, without moving its position.
struct FromStart<'a>(&'a File, u64);

impl Read for FromStart<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.0.read_at(buffer, self.1)?;
        self.1 += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::read_records;
    use crate::record::tests::copy;

    fn line(ended: &str) -> Vec<u8> {
        copy("lhk1:A", ended, 1).line()
    }

    fn keys(path: &Path) -> (usize, u64) {
        let mut records = 0;
        let damaged = read_records(path, |_| records += 1).unwrap();
        (records, damaged)
    }

    #[test]
    fn a_line_cut_off_by_a_crash_damages_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.jsonl");
        let whole = line("2026-11-30T00:00:00Z");
        // Every length that a crash may leave of the second line, and pages that were not written.
        for cut in (0..whole.len() - 1).step_by(17) {
            for tail in [&whole[..cut], &vec![0; cut][..]] {
                std::fs::write(&path, [&whole[..], tail].concat()).unwrap();
                let mut file = AccountFile::open(&path, RotationLimits::default()).unwrap();
                let now = "2026-11-30T00:00:01Z".parse().unwrap();
                file.append_at(&whole, now).unwrap();
                assert_eq!(keys(&path), (2, u64::from(cut > 0)), "{cut} bytes");
            }
        }
    }

    #[test]
    fn files_rotate_by_size_and_age_and_all_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.jsonl");
        let limits = RotationLimits {
            max_bytes: 2 * line("2026-11-30T00:00:00Z").len() as u64,
            max_age: Duration::from_secs(24 * 3600),
            max_files: 3,
        };
        let mut file = AccountFile::open(&path, limits.clone()).unwrap();
        for second in 0..5 {
            let time = format!("2026-11-30T00:00:0{second}Z");
            file.append_at(&line(&time), time.parse().unwrap()).unwrap();
        }
        assert_eq!((file.rotations, keys(&path)), (2, (5, 0)));
        // Another process finds the age of the file in its first record.
        let mut file = AccountFile::open(&path, limits).unwrap();
        let time = "2026-12-01T00:00:04Z";
        file.append_at(&line(time), time.parse().unwrap()).unwrap();
        assert_eq!((file.rotations, keys(&path)), (1, (6, 0)));
        for day in 2..5 {
            let time = format!("2026-12-0{day}T00:00:05Z");
            file.append_at(&line(&time), time.parse().unwrap()).unwrap();
        }
        let names = names_in(dir.path()).unwrap();
        assert_eq!(names.len(), 4, "three rotated files are kept: {names:?}");
    }

    #[test]
    fn several_processes_may_share_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.jsonl");
        let limits = RotationLimits {
            max_bytes: 20_000,
            ..RotationLimits::default()
        };
        std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| {
                    let mut file = AccountFile::open(&path, limits.clone()).unwrap();
                    for _ in 0..200 {
                        file.append(&line("2026-11-30T00:00:00Z")).unwrap();
                    }
                });
            }
        });
        assert_eq!(keys(&path), (800, 0));
        std::fs::rename(&path, dir.path().join("moved")).unwrap();
        let mut file = AccountFile::open(&path, limits).unwrap();
        std::fs::rename(&path, dir.path().join("moved too")).unwrap();
        file.append(&line("2026-11-30T00:00:00Z")).unwrap();
        assert!(path.exists(), "the file is made again");
    }

    #[test]
    fn a_device_without_space_is_an_error() {
        let mut file =
            AccountFile::open(Path::new("/dev/full"), RotationLimits::default()).unwrap();
        let error = file.append(&line("2026-11-30T00:00:00Z")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
}
