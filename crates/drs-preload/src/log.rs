//! The log: one JSON object a line, each written with one `write(2)` to a file opened for appending, so that lines of several
//! processes never mix. Nothing is allocated, and a line that does not fit is left out whole.

use std::fmt::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

use drs::{Action, Advice, Applied, Limit, Outcome, Side, TcpInfo, Verdict};
use quantities::ByteCount;
use rustix::fs::{Mode as Permissions, OFlags};

use crate::account::{Account, now};
use crate::ahead::Freed;

/// Where the log's descriptor is put: out of the way of programs that count on getting low numbers, and below the usual limit of 1024.
const HIGH: RawFd = 1000;

/// The open log, or none.
pub struct Log {
    descriptor: AtomicI32,
    /// The file's identity: a program may close descriptors that it does not know, and get their numbers for its own files.
    device: AtomicU64,
    inode: AtomicU64,
}

impl Log {
    /// No log.
    pub const fn none() -> Self {
        Self {
            descriptor: AtomicI32::new(-1),
            device: AtomicU64::new(0),
            inode: AtomicU64::new(0),
        }
    }

    /// Opens the log for appending; without a file that can be written nothing is logged.
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
        let high = rustix::io::fcntl_dupfd_cloexec(&file, HIGH);
        let file = high.unwrap_or(file);
        if let Ok(stat) = rustix::fs::fstat(&file) {
            self.device.store(stat.st_dev, Ordering::Relaxed);
            self.inode.store(stat.st_ino, Ordering::Relaxed);
            self.descriptor.store(file.into_raw_fd(), Ordering::Release);
        }
    }

    /// The number of the log's descriptor, which the program must not get at; -1 for none.
    pub fn descriptor(&self) -> RawFd {
        self.descriptor.load(Ordering::Acquire)
    }

    /// Moves out of the way of a program that wants this very number.
    pub fn make_way(&self, wanted: RawFd) {
        if wanted < 0 || self.descriptor() != wanted {
            return;
        }
        if let Some(file) = self.file()
            && let Ok(moved) = rustix::io::fcntl_dupfd_cloexec(file, HIGH)
        {
            self.descriptor.store(moved.into_raw_fd(), Ordering::Release);
            return;
        }
        self.descriptor.store(-1, Ordering::Release);
    }

    /// Whether the log's descriptor is still the log.
    pub fn stands(&self) -> bool {
        self.file().is_some()
    }

    /// The log's file, if the number still stands for it.
    fn file(&self) -> Option<BorrowedFd<'_>> {
        let descriptor = self.descriptor();
        if descriptor < 0 {
            return None;
        }
        // SAFETY: not -1; it is only asked and written to, after its identity was compared.
        let file = unsafe { BorrowedFd::borrow_raw(descriptor) };
        let stat = rustix::fs::fstat(file).ok()?;
        let same = stat.st_dev == self.device.load(Ordering::Relaxed)
            && stat.st_ino == self.inode.load(Ordering::Relaxed);
        same.then_some(file)
    }

    /// Writes one line made by `fill`, which starts after the fields that every line has.
    fn line(&self, event: &str, fill: impl FnOnce(&mut Line) -> fmt::Result) {
        let Some(file) = self.file() else { return };
        let mut line = Line::new();
        let process = rustix::process::getpid().as_raw_nonzero();
        let made = write!(
            line,
            r#"{{"event":"{event}","at":{:.3},"process":{process}"#,
            now().as_secs_f64()
        )
        .and_then(|()| fill(&mut line))
        .and_then(|()| line.write_str("}\n"));
        if made.is_ok() {
            let _ = rustix::io::write(file.as_fd(), line.bytes());
        }
    }

    /// A verdict that differs from the one before.
    pub fn verdict(&self, account: &Account, side: Side, verdict: &Verdict) {
        self.line("verdict", |line| {
            let evidence = &verdict.evidence;
            write!(
                line,
                r#","flow":{},"side":"{}","limit":"{}","goodput_bps":{:.0},"rtt_us":{},"congestion_window":{},"in_flight":{},"peer_window":{},"send_buffer":{},"receive_buffer":{}"#,
                account.number,
                side_word(side),
                verdict.limit,
                finite(evidence.goodput_bps),
                evidence.rtt.as_micros(),
                evidence.congestion_window,
                evidence.in_flight,
                evidence.peer_window,
                evidence.send_buffer,
                evidence.receive_buffer,
            )
        });
    }

    /// Something that was done to a connection.
    pub fn action(&self, account: &Account, applied: &Applied) {
        self.line("action", |line| {
            let what = word_of(applied.action);
            write!(line, r#","flow":{},"what":"{what}""#, account.number)?;
            if let Some(asked) = number_of(applied.action) {
                write!(line, r#","asked":{asked}"#)?;
            }
            match applied.outcome {
                Outcome::Set(made) => write!(line, r#","made":{made}"#)?,
                Outcome::Refused(number) => write!(line, r#","refused":{number}"#)?,
            }
            write!(line, r#","cause":"{}""#, Escaped(applied.cause))
        });
    }

    /// Something that was done to a socket before it was connected or listened.
    pub fn ahead(&self, freed: &Freed) {
        self.line("action", |line| {
            write!(
                line,
                r#","what":"unlock-receive","cause":"the window scale is settled with the SYN, and the program's own buffer of {} would hold it down""#,
                ByteCount(u64::from(freed.buffer))
            )
        });
    }

    /// Advice that was not given to the connection before.
    pub fn advice(&self, account: &Account, advice: &Advice) {
        self.line("advice", |line| {
            write!(
                line,
                r#","flow":{},"advice":"{}""#,
                account.number,
                Escaped(advice)
            )
        });
    }

    /// The last line of a connection: bytes that were acknowledged and received until its descriptor was closed, with a last look at its socket where that is still to be had.
    pub fn end(&self, account: &mut Account, socket: Option<BorrowedFd<'_>>) {
        if let Some((socket, info)) = socket.and_then(|socket| Some((socket, TcpInfo::read(socket).ok()?))) {
            account.remember(socket, &info);
        }
        let account = &*account;
        self.line("end", |line| {
            let at_us = u64::try_from(now().as_micros()).unwrap_or(u64::MAX);
            let seconds = Duration::from_micros(at_us.saturating_sub(account.since_us)).as_secs_f64();
            write!(line, r#","flow":{},"seconds":{seconds:.3}"#, account.number)?;
            for (name, address) in [("local", account.local), ("peer", account.peer)] {
                if let Some(address) = address.socket() {
                    write!(line, r#","{name}":"{address}""#)?;
                }
            }
            let [sent, received] = account.moved;
            write!(
                line,
                r#","sent":{sent},"received":{received},"looks":{}"#,
                account.looks
            )?;
            write!(
                line,
                r#","actions":{},"refused":{}"#,
                account.actions, account.refused
            )?;
            if account.unscaled {
                line.write_str(r#","unscaled":true"#)?;
            }
            line.write_str(r#","verdicts":{"#)?;
            let mut comma = "";
            for (side, counts) in [Side::Sending, Side::Receiving]
                .into_iter()
                .zip(&account.verdicts)
            {
                for (limit, count) in Limit::ALL
                    .into_iter()
                    .zip(counts)
                    .filter(|(_, count)| **count > 0)
                {
                    write!(line, r#"{comma}"{} {limit}":{count}"#, side_word(side))?;
                    comma = ",";
                }
            }
            line.write_str("}")
        });
    }
}

/// What an action sets, as the log has it.
fn word_of(action: Action) -> &'static str {
    match action {
        Action::UnlockReceive => "unlock-receive",
        Action::UnlockSend => "unlock-send",
        Action::ReceiveBuffer(_) => "receive-buffer",
        Action::SendBuffer(_) => "send-buffer",
        Action::WindowClamp(_) => "window-clamp",
        Action::UnsentLimit(_) => "unsent-limit",
        Action::PacingRate(_) => "pacing-rate",
        Action::CongestionControl(_) => "congestion-control",
    }
}

/// The number that an action sets.
fn number_of(action: Action) -> Option<u64> {
    match action {
        Action::UnlockReceive | Action::UnlockSend | Action::CongestionControl(_) => None,
        Action::ReceiveBuffer(bytes)
        | Action::SendBuffer(bytes)
        | Action::WindowClamp(bytes)
        | Action::UnsentLimit(bytes) => Some(bytes.into()),
        Action::PacingRate(rate) => Some(rate),
    }
}

/// Text within quotation marks of JSON.
struct Escaped<T>(T);

impl<T: fmt::Display> fmt::Display for Escaped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        struct Into<'a, 'b>(&'a mut fmt::Formatter<'b>);
        impl Write for Into<'_, '_> {
            fn write_str(&mut self, text: &str) -> fmt::Result {
                for character in text.chars() {
                    match character {
                        '"' | '\\' => write!(self.0, "\\{character}")?,
                        control if control.is_control() => write!(self.0, "\\u{:04x}", u32::from(control))?,
                        other => self.0.write_char(other)?,
                    }
                }
                Ok(())
            }
        }
        write!(Into(f), "{}", self.0)
    }
}

fn side_word(side: Side) -> &'static str {
    match side {
        Side::Sending => "sending",
        Side::Receiving => "receiving",
    }
}

/// JSON has no word for what is no number.
fn finite(number: f64) -> f64 {
    if number.is_finite() { number } else { 0.0 }
}

/// A line in the making.
struct Line {
    room: [u8; 4096],
    used: usize,
}

impl Line {
    fn new() -> Self {
        Self {
            room: [0; 4096],
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
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    fn lines(log: impl FnOnce(&Log)) -> Vec<serde_json::Value> {
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
    fn every_line_is_json() {
        let mut account = Account {
            number: 3,
            ..Account::default()
        };
        account.count(1, Limit::ReceiveWindow);
        account.count(1, Limit::ReceiveWindow);
        account.count(0, Limit::Path);
        let lines = lines(|log| {
            log.end(&mut account, None);
            log.ahead(&Freed { buffer: 4096 });
        });
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0]["verdicts"]["receiving receive-window"], 2);
        assert_eq!(lines[0]["verdicts"]["sending path"], 1);
        assert_eq!(lines[0]["flow"], 3);
        assert!(lines[1]["cause"].as_str().unwrap().contains("4 KiB"));
    }

    #[test]
    fn what_breaks_json_is_escaped() {
        assert_eq!(Escaped("a\"b\\c\n").to_string(), r#"a\"b\\c\u000a"#);
    }

    #[test]
    fn another_file_in_the_logs_place_is_not_written_to() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let other = tempfile::NamedTempFile::new().unwrap();
        let log = Log::none();
        log.open(file.path());
        let (old, new) = (other.as_file().as_raw_fd(), log.descriptor());
        // SAFETY: this puts another file in the place of a descriptor that only this test has.
        assert!(unsafe { libc::dup2(old, new) } >= 0);
        log.ahead(&Freed { buffer: 1 });
        assert_eq!(other.as_file().metadata().unwrap().len(), 0);
    }

    #[test]
    fn it_makes_way() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let log = Log::none();
        log.open(file.path());
        let before = log.descriptor();
        log.make_way(before);
        assert!(log.descriptor() != before && log.stands());
    }
}
