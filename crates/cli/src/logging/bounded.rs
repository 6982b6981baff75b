//! Bounds of every log: the length of a line, and how many lines each place in the program writes.
//!
//! They hold whoever causes the lines, and whatever the code forgets. Services that many use share
//! their lines among keys and sources first ([`longhaul_hop::EventLog`]), so one does not silence
//! the others.

use std::collections::HashMap;
use std::io::{self, Write};

use std::time::Instant;

use longhaul_proto::LogRate;
use parking_lot::Mutex;
use tracing::Metadata;
use tracing::callsite::Identifier;
use tracing_subscriber::fmt::MakeWriter;

/// Most bytes of a line, with its end.
pub const MAX_LINE_BYTES: usize = 4096;
/// Most bytes of a field of a line.
pub const MAX_FIELD_BYTES: usize = 1024;
/// Lines at once, and lines a second from then on, that one place in the program writes.
const MAX_BURST_LINES: u32 = 1024;
const LINES_PER_SECOND: u32 = 100;
/// Stands at the end of a line that was cut off.
const CUT: &str = "...\n";

/// Makes writers that keep to the bounds, on top of those that `make` makes.
pub struct Bounded<F> {
    make: F,
    began: Instant,
    /// One for each place in the program that has written a line, which are as many as its code
    /// has.
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

    /// Decides about a line of this place: `None` if it is one too many, else how many were left
    /// out since the last.
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

/// Writes one line, or leaves it out.
pub struct BoundedLine<W> {
    /// `None` for a line that is left out.
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
        let room = MAX_LINE_BYTES - note.len().max(CUT.len());
        let text = String::from_utf8_lossy(line);
        match (text.len() <= room, text.strip_suffix('\n')) {
            (true, _) if note.is_empty() => out.write_all(line)?,
            (true, whole) => {
                out.write_all(format!("{}{note}", whole.unwrap_or(&text)).as_bytes())?
            }
            (false, _) => {
                let end = if note.is_empty() { CUT } else { &note };
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
    fn lines_are_cut_and_say_what_was_left_out() {
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
