//! The log: one JSON object per line, each written with one `write(2)` to a file opened for
//! appending, so that lines of several processes never mix. Nothing is allocated: lines are built
//! in memory that was reserved at the start. A line is dropped as a whole if it does not fit, or if
//! there is no space for it.

use std::cell::UnsafeCell;
use std::fmt::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

use rustix::fs::{Mode as Permissions, OFlags};

use crate::claim::Claim;

/// Lowest descriptor for the log: above the low numbers that programs expect, and below the usual
/// limit of 1024.
const MIN_DESCRIPTOR: RawFd = 1000;
/// Maximum number of lines that are being built at the same time.
const LINES: usize = 8;
/// Maximum length of a line, in bytes.
const LONGEST_LINE: usize = 4096;
/// State of a buffer that no thread uses.
const FREE: u64 = 0;

/// The log file, if one is open.
pub struct Log {
    descriptor: AtomicI32,
    /// Identity of the file: a program may close descriptors that it does not know, and get their
    /// numbers for its own files.
    device: AtomicU64,
    inode: AtomicU64,
    lines: Box<[Room; LINES]>,
}

/// Buffer for one line.
struct Room {
    state: Claim,
    line: UnsafeCell<Line>,
}

// SAFETY: only the holder of `state` touches the line.
unsafe impl Sync for Room {}

impl Log {
    /// Returns a log without a file.
    pub fn none() -> Self {
        Self {
            descriptor: AtomicI32::new(-1),
            device: AtomicU64::new(0),
            inode: AtomicU64::new(0),
            lines: Box::new(
                [const {
                    Room {
                        state: Claim::new(FREE),
                        line: UnsafeCell::new(Line::new()),
                    }
                }; LINES],
            ),
        }
    }

    /// Opens the log for appending. If the file cannot be written, nothing is logged.
    pub fn open(&self, path: &Path) {
        let flags = OFlags::WRONLY
            | OFlags::APPEND
            | OFlags::CREATE
            | OFlags::CLOEXEC
            | OFlags::NOCTTY
            | OFlags::NONBLOCK;
        if let Ok(file) = rustix::fs::open(path, flags, Permissions::from_raw_mode(0o600)) {
            self.keep(file);
        }
    }

    fn keep(&self, file: OwnedFd) {
        let high = rustix::io::fcntl_dupfd_cloexec(&file, MIN_DESCRIPTOR);
        let file = high.unwrap_or(file);
        if let Ok(stat) = rustix::fs::fstat(&file) {
            self.device.store(stat.st_dev, Ordering::Relaxed);
            self.inode.store(stat.st_ino, Ordering::Relaxed);
            self.descriptor.store(file.into_raw_fd(), Ordering::Release);
        }
    }

    /// Returns the log's descriptor, which the program must not reach, or -1.
    pub fn descriptor(&self) -> RawFd {
        self.descriptor.load(Ordering::Acquire)
    }

    /// Moves the log to another descriptor if the program wants this number.
    pub fn make_way(&self, wanted: RawFd) {
        if wanted < 0 || self.descriptor() != wanted {
            return;
        }
        let moved = self
            .file()
            .and_then(|file| rustix::io::fcntl_dupfd_cloexec(file, MIN_DESCRIPTOR).ok());
        let moved = moved.map_or(-1, IntoRawFd::into_raw_fd);
        self.descriptor.store(moved, Ordering::Release);
        // A thread that began a line before may be about to write it to the old number.
        for room in self.lines.iter() {
            if room.state.take_soon(FREE) {
                room.state.put(FREE);
            }
        }
    }

    /// Returns true if the log's descriptor is still the log.
    pub fn stands(&self) -> bool {
        self.file().is_some()
    }

    /// Frees the lines of other threads in the child of a fork.
    pub fn after_fork(&self) {
        for room in self.lines.iter().filter(|room| room.state.is_orphan()) {
            room.state.put(FREE);
        }
    }

    /// Returns the log's file if the descriptor is still the log.
    fn file(&self) -> Option<BorrowedFd<'_>> {
        let descriptor = self.descriptor();
        if descriptor < 0 {
            return None;
        }
        // SAFETY: not -1; it is only examined and, after its identity was compared, written to.
        let file = unsafe { BorrowedFd::borrow_raw(descriptor) };
        let stat = rustix::fs::fstat(file).ok()?;
        let same = stat.st_dev == self.device.load(Ordering::Relaxed)
            && stat.st_ino == self.inode.load(Ordering::Relaxed);
        same.then_some(file)
    }

    /// Writes one line. `fill` adds to the fields that every line has.
    pub fn line(&self, event: &str, fill: impl FnOnce(&mut Line) -> fmt::Result) {
        if self.descriptor() < 0 {
            return;
        }
        let Some(room) = self.lines.iter().find(|room| room.state.take(FREE)) else {
            return;
        };
        // SAFETY: this thread holds the buffer.
        let line = unsafe { &mut *room.line.get() };
        self.write(line, event, fill);
        room.state.put(FREE);
    }

    fn write(&self, line: &mut Line, event: &str, fill: impl FnOnce(&mut Line) -> fmt::Result) {
        let Some(file) = self.file() else { return };
        line.used = 0;
        let process = rustix::process::getpid().as_raw_nonzero();
        let made = write!(
            line,
            r#"{{"event":"{event}","at":{},"process":{process}"#,
            Seconds(now())
        )
        .and_then(|()| fill(line))
        .and_then(|()| line.write_str("}\n"));
        if made.is_ok() {
            let _ = rustix::io::write(file.as_fd(), line.bytes());
        }
    }
}

/// Returns the time since the machine was started, which is the same for every process.
pub fn now() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::try_from(now).unwrap_or_default()
}

/// A duration in seconds, with milliseconds. (The standard formatting of any number of digits takes
/// kilobytes of the stack.)
pub struct Seconds(pub Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0.as_secs(), self.0.subsec_millis())
    }
}

/// Text that is escaped for a JSON string.
pub struct Escaped<T>(pub T);

impl<T: fmt::Display> fmt::Display for Escaped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        struct Into<'a, 'b>(&'a mut fmt::Formatter<'b>);
        impl Write for Into<'_, '_> {
            fn write_str(&mut self, text: &str) -> fmt::Result {
                for character in text.chars() {
                    match character {
                        '"' | '\\' => write!(self.0, "\\{character}")?,
                        control if control.is_control() => {
                            write!(self.0, "\\u{:04x}", u32::from(control))?
                        }
                        other => self.0.write_char(other)?,
                    }
                }
                Ok(())
            }
        }
        write!(Into(f), "{}", self.0)
    }
}

/// A line that is being built.
pub struct Line {
    room: [u8; LONGEST_LINE],
    used: usize,
}

impl Line {
    const fn new() -> Self {
        Self {
            room: [0; LONGEST_LINE],
            used: 0,
        }
    }

    fn bytes(&self) -> &[u8] {
        self.room.get(..self.used).unwrap_or_default()
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.used + text.len();
        let room = self.room.get_mut(self.used..end).ok_or(fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.used = end;
        Ok(())
    }
}

#[cfg(test)]
pub mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    /// Returns the lines that were logged.
    pub fn lines(log: impl FnOnce(&Log)) -> Vec<serde_json::Value> {
        let file = tempfile::NamedTempFile::new().unwrap();
        let kept = Log::none();
        kept.open(file.path());
        log(&kept);
        let text = std::fs::read_to_string(file.path()).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    #[test]
    fn json_special_characters_are_escaped() {
        assert_eq!(Escaped("a\"b\\c\n").to_string(), r#"a\"b\\c\u000a"#);
    }

    #[test]
    fn another_file_in_the_logs_place_is_not_written_to() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let other = tempfile::NamedTempFile::new().unwrap();
        let log = Log::none();
        log.open(file.path());
        let (old, new) = (other.as_file().as_raw_fd(), log.descriptor());
        // SAFETY: this replaces a descriptor that only this test has.
        assert!(unsafe { libc::dup2(old, new) } >= 0);
        log.line("end", |_| Ok(()));
        assert_eq!(other.as_file().metadata().unwrap().len(), 0);
    }

    #[test]
    fn log_moves_when_its_number_is_wanted() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let log = Log::none();
        log.open(file.path());
        let before = log.descriptor();
        log.make_way(before);
        assert!(log.descriptor() != before && log.stands());
    }

    #[test]
    fn lines_of_all_threads_and_of_a_handler_are_whole() {
        let lines = lines(|log| {
            log.line("outer", |line| {
                // As from a signal handler that interrupted the line.
                log.line("inner", |line| line.write_str(r#","one":1"#));
                line.write_str(r#","two":2"#)
            });
            log.line("long", |line| {
                (0..LONGEST_LINE).try_for_each(|_| line.write_str(" "))
            });
        });
        assert_eq!(lines.len(), 2, "what is too long is left out");
        assert!(lines[0]["one"] == 1 && lines[1]["two"] == 2);
    }

    #[test]
    fn a_fork_frees_the_lines_of_other_threads() {
        let log = Log::none();
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(log.lines.iter().all(|room| room.state.take(FREE))));
        });
        log.after_fork();
        assert!(log.lines.iter().all(|room| room.state.state() == FREE));
    }
}
