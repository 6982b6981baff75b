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

use super::LogFormat;

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
    format: LogFormat,
    began: Instant,
    /// One limit for each call site that has written a line. Their number is bounded by the code.
    rates: Mutex<HashMap<Identifier, LogRate>>,
}

impl<F> Bounded<F> {
    pub fn new(make: F) -> Self {
        Self {
            make,
            format: LogFormat::Text,
            began: Instant::now(),
            rates: Mutex::default(),
        }
    }

    /// Sets the format of the lines, for the note about lines that were left out.
    pub fn with_format(self, format: LogFormat) -> Self {
        Self { format, ..self }
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
            format: self.format,
            left_out: 0,
        }
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> Self::Writer {
        let admitted = self.admit(metadata.callsite());
        BoundedLine {
            out: admitted.map(|_| (self.make)()),
            format: self.format,
            left_out: admitted.unwrap_or_default(),
        }
    }
}

/// Writer of one line that may be left out.
pub struct BoundedLine<W> {
    /// `None` if the line is left out.
    out: Option<W>,
    format: LogFormat,
    left_out: u64,
}

impl<W: Write> Write for BoundedLine<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let Some(out) = &mut self.out else {
            return Ok(line.len());
        };
        let (note, end) = match (std::mem::take(&mut self.left_out), self.format) {
            (0, _) => (String::new(), "\n"),
            (left_out, LogFormat::Text) => {
                (format!(" (and {left_out} more like it, left out)\n"), "\n")
            }
            // The format keeps room for it.
            (left_out, LogFormat::Json) => (format!(",\"lines_left_out\":{left_out}}}\n"), "}\n"),
        };
        let room = MAX_LINE_BYTES - note.len().max(TRUNCATION_MARK.len());
        let text = String::from_utf8_lossy(line);
        match (text.len() <= room, text.strip_suffix(end)) {
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
        written_as(LogFormat::Text, left_out, line)
    }

    fn written_as(format: LogFormat, left_out: u64, line: &str) -> String {
        let mut out = Vec::new();
        let mut writer = BoundedLine {
            out: Some(&mut out),
            format,
            left_out,
        };
        writer.write_all(line.as_bytes()).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn left_out_lines_are_a_field_of_json() {
        let written = |left_out| written_as(LogFormat::Json, left_out, "{\"a\":1}\n");
        assert_eq!(written(0), "{\"a\":1}\n");
        assert_eq!(written(7), "{\"a\":1,\"lines_left_out\":7}\n");
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
            format: LogFormat::Text,
            left_out: 0,
        };
        assert_eq!(left_out.write(b"more\n").unwrap(), 5);
    }
}
