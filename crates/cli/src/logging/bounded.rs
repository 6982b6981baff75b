//! Bounds of every log: the length of a line, and the rate of lines of each call site.
//!
//! They hold for every cause of a line, and even if the code forgets a check. Services with many
//! users first share their lines among keys and sources ([`longhaul_hop::EventLog`]), so one does
//! not silence the others.

use std::collections::HashMap;
use std::io::{self, Write};

use std::time::Instant;

use longhaul_proto::LogRate;
use parking_lot::Mutex;
use tracing::Metadata;
use tracing::callsite::Identifier;
use tracing_subscriber::fmt::MakeWriter;

/// Maximum bytes of a line, including its newline.
pub const MAX_LINE_BYTES: usize = 4096;
/// Maximum bytes of a field.
pub const MAX_FIELD_BYTES: usize = 1024;
/// Lines that one call site may write at once, and per second from then on.
const MAX_BURST_LINES: u32 = 1024;
const LINES_PER_SECOND: u32 = 100;
/// Marks the end of a truncated line.
const TRUNCATION_MARK: &str = "...\n";

/// Maker of writers that add the bounds to those of `make`.
pub struct Bounded<F> {
    make: F,
    began: Instant,
    /// One limit for each call site that has written a line. Their number is bounded by the code.
    rates: Mutex<HashMap<Identifier, LogRate>>,
}

impl<F> Bounded<F> {
    pub fn new(make: F) -> Self {
        Self {
            make,
            began: Instant::now(),
            rates: Mutex::default(),
        }
    }

    /// Admits a line of this call site. Returns `None` if the line exceeds the rate, or else the
    /// number of lines left out since the last one.
    fn admit(&self, place: Identifier) -> Option<u64> {
        let now = self.began.elapsed();
        let mut rates = self.rates.lock();
        let fresh = || LogRate::new(MAX_BURST_LINES, LINES_PER_SECOND);
        rates.entry(place).or_insert_with(fresh).admit(now)
    }
}

impl<'a, F: Fn() -> W + 'a, W: Write> MakeWriter<'a> for Bounded<F> {
    type Writer = BoundedLine<W>;

    fn make_writer(&'a self) -> Self::Writer {
        BoundedLine {
            out: Some((self.make)()),
            left_out: 0,
        }
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> Self::Writer {
        let admitted = self.admit(metadata.callsite());
        BoundedLine {
            out: admitted.map(|_| (self.make)()),
            left_out: admitted.unwrap_or_default(),
        }
    }
}

/// Writer of one line that may be left out.
pub struct BoundedLine<W> {
    /// `None` if the line is left out.
    out: Option<W>,
    left_out: u64,
}

impl<W: Write> Write for BoundedLine<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let Some(out) = &mut self.out else {
            return Ok(line.len());
        };
        let note = match std::mem::take(&mut self.left_out) {
            0 => String::new(),
            left_out => format!(" (and {left_out} more like it, left out)\n"),
        };
        let room = MAX_LINE_BYTES - note.len().max(TRUNCATION_MARK.len());
        let text = String::from_utf8_lossy(line);
        match (text.len() <= room, text.strip_suffix('\n')) {
            (true, _) if note.is_empty() => out.write_all(line)?,
            (true, whole) => {
                out.write_all(format!("{}{note}", whole.unwrap_or(&text)).as_bytes())?
            }
            (false, _) => {
                let end = if note.is_empty() {
                    TRUNCATION_MARK
                } else {
                    &note
                };
                let cut = text
                    .get(..text.floor_char_boundary(room))
                    .unwrap_or_default();
                out.write_all(format!("{cut}{end}").as_bytes())?;
            }
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.as_mut().map_or(Ok(()), W::flush)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(left_out: u64, line: &str) -> String {
        let mut out = Vec::new();
        let mut writer = BoundedLine {
            out: Some(&mut out),
            left_out,
        };
        writer.write_all(line.as_bytes()).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn long_lines_are_truncated_and_dropped_ones_counted() {
        assert_eq!(written(0, "a line\n"), "a line\n");
        assert_eq!(
            written(7, "a line\n"),
            "a line (and 7 more like it, left out)\n"
        );
        let long = "\u{e9}".repeat(MAX_LINE_BYTES);
        for left_out in [0, 7, u64::MAX] {
            let line = written(left_out, &format!("{long}\n"));
            assert!(
                line.len() <= MAX_LINE_BYTES && line.ends_with('\n'),
                "{}",
                line.len()
            );
            assert_eq!(line.matches('\n').count(), 1);
        }
        let mut left_out = BoundedLine {
            out: None::<Vec<u8>>,
            left_out: 0,
        };
        assert_eq!(left_out.write(b"more\n").unwrap(), 5);
    }
}
