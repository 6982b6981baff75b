//! Standard output and standard error of the programs.
//!
//! Both may be a file on a full disk, or a pipe without a reader. `println!` and `eprintln!` panic
//! then; nothing here does. A message that cannot be written to standard error is lost, and nothing
//! else. The first error on standard output is kept, so that a program finishes its work and then
//! reports it ([`stdout_error`]).

use std::fmt::{Arguments, Write as _};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

/// Serializes the lines of concurrent threads.
static STDOUT: Mutex<()> = Mutex::new(());
static STDERR: Mutex<()> = Mutex::new(());
/// First error on standard output.
static STDOUT_ERROR: OnceLock<Errno> = OnceLock::new();

/// Writes a line to standard error, formatted as by `format!`. If that fails, the line is lost.
#[macro_export]
macro_rules! message {
    ($($argument:tt)*) => {
        $crate::write_message(::core::format_args!($($argument)*))
    };
}

/// Writes a line to standard output, formatted as by `format!`. See [`print`].
#[macro_export]
macro_rules! print_line {
    ($($argument:tt)*) => {
        $crate::write_line(::core::format_args!($($argument)*))
    };
}

/// Writes a line to standard error. The macro [`message!`] calls it.
pub fn write_message(message: Arguments<'_>) {
    prompt(&line(message));
}

/// Writes a line to standard output. The macro [`print_line!`] calls it.
pub fn write_line(text: Arguments<'_>) {
    print(&line(text));
}

/// Writes `text` to standard error, without a newline.
pub fn prompt(text: &str) {
    let _one_at_a_time = STDERR.lock();
    // There is nowhere else to report it.
    let _ = write_all(rustix::stdio::stderr(), text.as_bytes());
}

/// Writes and flushes `text` to standard output. Returns false if this or an earlier write failed:
/// nothing is written after the first error, so the output has no gaps.
pub fn print(text: &str) -> bool {
    print_bytes(text.as_bytes())
}

/// Writes and flushes bytes as [`print`] does.
pub fn print_bytes(bytes: &[u8]) -> bool {
    let _one_at_a_time = STDOUT.lock();
    if STDOUT_ERROR.get().is_some() {
        return false;
    }
    match write_all(rustix::stdio::stdout(), bytes) {
        Ok(()) => true,
        Err(errno) => STDOUT_ERROR.set(errno).is_err(),
    }
}

/// Returns the error that kept output from standard output. A reader that has closed its pipe
/// (EPIPE) needs no more output, which is no error.
pub fn stdout_error() -> Option<io::Error> {
    let errno = STDOUT_ERROR.get().copied();
    errno.filter(|errno| *errno != Errno::PIPE).map(Into::into)
}

/// Writer to standard error that never fails, for logs.
#[derive(Debug, Clone, Copy, Default)]
pub struct Messages;

impl io::Write for Messages {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _one_at_a_time = STDERR.lock();
        let _ = write_all(rustix::stdio::stderr(), bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn line(text: Arguments<'_>) -> String {
    let mut line = String::new();
    // `to_string` panics if a `Display` fails; the text written before that is still shown.
    let _ = line.write_fmt(text);
    line.push('\n');
    line
}

/// Writes all of `bytes`. Waits if the stream is non-blocking, as ssh and terminals leave it.
fn write_all(stream: BorrowedFd<'_>, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(stream, bytes) {
            Ok(0) => return Err(Errno::IO),
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => match poll(&mut [PollFd::new(&stream, PollFlags::OUT)], None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            },
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::{File, OpenOptions};
    use std::io::Read;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn errors_of_a_stream_are_returned() {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        assert_eq!(write_all(full.as_fd(), b"x"), Err(Errno::NOSPC));
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        drop(reader);
        assert_eq!(write_all(writer.as_fd(), b"x"), Err(Errno::PIPE));
        let read_only = File::open("/dev/null").unwrap();
        assert_eq!(write_all(read_only.as_fd(), b"x"), Err(Errno::BADF));
    }

    #[test]
    fn nonblocking_streams_are_awaited() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        rustix::io::ioctl_fionbio(&writer, true).unwrap();
        let text = vec![b'x'; 1 << 20];
        let writing = std::thread::spawn(move || write_all(writer.as_fd(), &text));
        let mut read = Vec::new();
        File::from(reader).read_to_end(&mut read).unwrap();
        assert_eq!(writing.join().unwrap(), Ok(()));
        assert_eq!(read.len(), 1 << 20);
    }

    #[test]
    fn a_display_that_fails_does_not_panic() {
        struct Failing;
        impl std::fmt::Display for Failing {
            fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                Err(std::fmt::Error)
            }
        }
        assert_eq!(line(format_args!("before {Failing} after")), "before \n");
    }
}
