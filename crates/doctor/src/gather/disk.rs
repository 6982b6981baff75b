//! Write and read rate of a directory's disk, measured with one file that is bounded in size and
//! time and then removed.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::fact::{Fact, PrintableText};
use crate::facts::DiskRates;

/// Limits of a measurement.
#[derive(Debug, Clone, Copy)]
pub struct Probe {
    /// Maximum bytes written.
    pub bytes: u64,
    /// Time for writing, and again for reading. A flush under way is awaited.
    pub time: Duration,
}

impl Default for Probe {
    fn default() -> Self {
        Self {
            bytes: 256 << 20,
            time: Duration::from_secs(2),
        }
    }
}

const CHUNK_BYTES: usize = 1 << 20;
/// Alignment of memory for `O_DIRECT`, in bytes. No disk has blocks larger than a page.
const ALIGNMENT_BYTES: usize = 4096;
const NAME: &str = ".longhaul-doctor-probe";

/// Measures. Errors are reported in the facts.
pub(super) fn measure(directory: &Path, bounds: Probe) -> DiskRates {
    let shown = PrintableText::new(&directory.display().to_string());
    let file = directory.join(format!("{NAME}.{}", std::process::id()));
    let opened = create(&file, true)
        .map(|file| (file, true))
        .or_else(|_| create(&file, false).map(|file| (file, false)));
    let (mut handle, direct) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            return DiskRates {
                directory: shown,
                write: Fact::unknown(&error),
                read: Fact::unknown(&error),
                direct: false,
            };
        }
    };
    // Removed from the directory at once, and from the disk when it is closed, however this program
    // ends.
    let removed = std::fs::remove_file(&file);
    let mut memory = vec![0; CHUNK_BYTES + ALIGNMENT_BYTES];
    let start = memory
        .as_ptr()
        .align_offset(ALIGNMENT_BYTES)
        .min(ALIGNMENT_BYTES);
    let chunk = memory
        .get_mut(start..start + CHUNK_BYTES)
        .unwrap_or_default();
    fill(chunk);
    let written = removed.and_then(|()| write(&mut handle, chunk, bounds));
    let read = match &written {
        Ok(_) => read(&mut handle, chunk, bounds),
        Err(_) => Err(io::Error::other("nothing could be written")),
    };
    DiskRates {
        directory: shown,
        write: written.into(),
        read: read.into(),
        direct,
    }
}

fn create(file: &Path, direct: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600);
    if direct {
        options.custom_flags(libc::O_DIRECT);
    }
    // A file system may accept the flag and then refuse it: the caller finds that out with the
    // first write.
    options.open(file)
}

/// Fills it with data that a disk or file system cannot compress or deduplicate.
fn fill(chunk: &mut [u8]) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for word in chunk.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        for (byte, random) in word.iter_mut().zip(state.to_le_bytes()) {
            *byte = random;
        }
    }
}

fn write(file: &mut File, chunk: &[u8], bounds: Probe) -> io::Result<u64> {
    let (start, mut bytes) = (Instant::now(), 0);
    while bytes < bounds.bytes && start.elapsed() < bounds.time {
        file.write_all(chunk)?;
        bytes += chunk.len() as u64;
    }
    // Data counts as written if it survives a power failure.
    file.sync_data()?;
    Ok(per_second(bytes, start))
}

fn read(file: &mut File, chunk: &mut [u8], bounds: Probe) -> io::Result<u64> {
    file.rewind()?;
    // Without O_DIRECT, at least ask for the cache to be dropped.
    let _ = rustix::fs::fadvise(&*file, 0, None, rustix::fs::Advice::DontNeed);
    let (start, mut bytes) = (Instant::now(), 0);
    while start.elapsed() < bounds.time {
        match file.read(chunk)? {
            0 => break,
            n => bytes += n as u64,
        }
    }
    Ok(per_second(bytes, start))
}

fn per_second(bytes: u64, since: Instant) -> u64 {
    (bytes as f64 / since.elapsed().as_secs_f64().max(1e-9)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_measured_and_nothing_stays() {
        let dir = tempfile::tempdir().unwrap();
        let bounds = Probe {
            bytes: 3 << 20,
            time: Duration::from_secs(60),
        };
        let disk = measure(dir.path(), bounds);
        assert!(disk.write.known().is_some_and(|rate| *rate > 0), "{disk:?}");
        assert!(disk.read.known().is_some_and(|rate| *rate > 0), "{disk:?}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        let missing = measure(&dir.path().join("missing"), bounds);
        assert!(matches!(missing.write, Fact::Unknown(_)));
    }
}
