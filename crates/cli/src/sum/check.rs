//! `longhaul sum --check`: compares files with a list of checksums.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal, Read};
use std::os::unix::ffi::OsStrExt;

use anyhow::{Context, Result, bail};
use longhaul_checksum::{Algorithm, Checksum, parse_line};
use longhaul_output::{message, print_bytes};
use longhaul_proto::text::printable;
use longhaul_transfer::files::MAX_SUMMED_FILES;
use longhaul_transfer::files::message::{FilesFailure, PathBytes, SumOutcome};
use serde_json::json;

use super::list_name::{self, ListBase};
use super::places::{SumPlaces, SummedPath};
use super::shown_name;
use crate::answer;
use crate::exit::Exit;
use crate::place::PlaceOptions;

/// Maximum length of a line of a list, in bytes. It holds the longest path, escaped.
const MAX_LINE_BYTES: u64 = 16 << 10;

/// Output of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckOutput {
    /// A line on standard output for each file.
    Lines,
    /// A line on standard output for each file that is not equal.
    Differences,
    /// An object on standard output for each file.
    Json,
    /// A message on standard error for each file that is not equal.
    Messages,
}

/// A comparison with a list.
pub struct Check {
    base: ListBase,
    algorithm: Option<Algorithm>,
    output: CheckOutput,
    is_terminal: bool,
    counts: CheckCounts,
}

/// Outcomes so far.
#[derive(Default)]
struct CheckCounts {
    equal: u64,
    different: u64,
    unreadable: u64,
    /// Lines that are no checksums.
    unusable: u64,
}

/// A line of a list, and the file that it is about.
struct CheckedPath {
    sum: Checksum,
    path: SummedPath,
}

impl Check {
    /// Creates a comparison of files below `base`.
    ///
    /// # Errors
    /// `base` is not a path.
    pub fn new(
        base: Option<&OsString>,
        algorithm: Option<Algorithm>,
        output: CheckOutput,
    ) -> Result<Self> {
        Ok(Self {
            base: ListBase::parse(base)?,
            algorithm,
            output,
            is_terminal: std::io::stdout().is_terminal(),
            counts: CheckCounts::default(),
        })
    }

    /// Compares all files of the list.
    ///
    /// # Errors
    /// The list cannot be read or has no checksum, or a place cannot be asked.
    pub async fn run(mut self, list: &OsStr, options: &PlaceOptions) -> Result<Exit> {
        let shown = printable(list.as_bytes());
        let mut lines: Box<dyn BufRead> = match list == "-" {
            true => Box::new(BufReader::new(std::io::stdin())),
            false => Box::new(BufReader::new(
                File::open(list).with_context(|| format!("reading {shown} failed"))?,
            )),
        };
        let mut places = SumPlaces::new(options);
        let mut batch: Vec<CheckedPath> = Vec::new();
        loop {
            let line = read_line(&mut lines).with_context(|| format!("reading {shown} failed"))?;
            let Some(line) = line else { break };
            let Some(next) = self.parse(line.as_deref(), list) else {
                continue;
            };
            let is_full = batch.len() >= MAX_SUMMED_FILES;
            let differs = |first: &CheckedPath| {
                first.sum.algorithm() != next.sum.algorithm()
                    || first.path.spot.location != next.path.spot.location
            };
            if is_full || batch.first().is_some_and(differs) {
                self.compare(&mut places, &mut batch).await?;
            }
            batch.push(next);
        }
        self.compare(&mut places, &mut batch).await?;
        places.end().await;
        self.conclude(&shown)
    }

    /// Parses a line. `None` if there is no file to compare.
    fn parse(&mut self, line: Option<&[u8]>, list: &OsStr) -> Option<CheckedPath> {
        let listed = match line.map(parse_line) {
            Some(Ok(listed)) => listed?,
            Some(Err(_)) | None => {
                self.counts.unusable += 1;
                return None;
            }
        };
        let Some(sum) = list_name::checksum(&listed, self.algorithm, list) else {
            self.counts.unusable += 1;
            return None;
        };
        let name = list_name::name_of(&listed, list);
        match self.base.locate(&name) {
            Ok(path) => Some(CheckedPath { sum, path }),
            Err(failure) => {
                self.report_unreadable(&name, failure);
                None
            }
        }
    }

    async fn compare(
        &mut self,
        places: &mut SumPlaces<'_>,
        batch: &mut Vec<CheckedPath>,
    ) -> Result<()> {
        let Some(first) = batch.first() else {
            return Ok(());
        };
        let algorithm = first.sum.algorithm();
        let (sums, paths): (Vec<_>, Vec<_>) =
            batch.drain(..).map(|line| (line.sum, line.path)).unzip();
        let mut sums = sums.into_iter();
        places
            .sum(&paths, algorithm, |path, outcome| {
                let expected = sums.next();
                match outcome {
                    SumOutcome::Sum { value, .. } => {
                        let found = Checksum::new(algorithm, value.0);
                        self.report(&path.shown, found.is_some() && found == expected);
                    }
                    SumOutcome::Failed(failure) => self.report_unreadable(&path.shown, failure),
                }
                // All files are compared, even if the lines cannot be printed.
                true
            })
            .await?;
        Ok(())
    }

    fn report(&mut self, name: &[u8], is_equal: bool) {
        match is_equal {
            true => self.counts.equal += 1,
            false => self.counts.different += 1,
        }
        match (is_equal, self.output) {
            (true, CheckOutput::Differences | CheckOutput::Messages) => {}
            (true, _) => self.print(name, "OK"),
            (false, CheckOutput::Messages) => {
                message!("longhaul: {}: differs from the list", printable(name));
            }
            (false, _) => self.print(name, "FAILED"),
        }
    }

    fn report_unreadable(&mut self, name: &[u8], failure: FilesFailure) {
        self.counts.unreadable += 1;
        let path = PathBytes(name.to_vec());
        message!("longhaul: {}", FilesFailure { path, ..failure });
        if self.output != CheckOutput::Messages {
            self.print(name, "FAILED open or read");
        }
    }

    /// Prints a result in the words of `sha256sum -c`.
    fn print(&self, name: &[u8], result: &str) {
        if self.output == CheckOutput::Json {
            let name = printable(name);
            return answer::write_line(
                json!({ "event": "checked", "path": name, "result": result }),
            );
        }
        let mut line = shown_name(name, self.is_terminal);
        line.retain(|byte| !b"\r\n".contains(byte));
        line.extend_from_slice(format!(": {result}\n").as_bytes());
        print_bytes(&line);
    }

    fn conclude(self, list: &str) -> Result<Exit> {
        let counts = &self.counts;
        let files = counts.equal + counts.different + counts.unreadable;
        if files == 0 {
            bail!("{list}: no line is a checksum and a name");
        }
        let problems = [
            (counts.different, "differ"),
            (counts.unreadable, "could not be read"),
        ];
        let mut text: Vec<String> = problems
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} of {files} files {what}"))
            .collect();
        if counts.unusable > 0 {
            text.push(format!("{} lines are no checksums", counts.unusable));
        }
        if text.is_empty() {
            return Ok(Exit::Success);
        }
        message!("longhaul: {list}: {}", text.join(", "));
        Ok(Exit::SomeFailed)
    }
}

/// Reads a line without its end. The inner `None` is a line that is too long, the outer one the
/// end.
fn read_line(lines: &mut impl BufRead) -> std::io::Result<Option<Option<Vec<u8>>>> {
    let mut line = Vec::new();
    let read = lines.take(MAX_LINE_BYTES).read_until(b'\n', &mut line)?;
    if read == 0 {
        return Ok(None);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
        return Ok(Some(Some(line)));
    }
    if (read as u64) < MAX_LINE_BYTES {
        return Ok(Some(Some(line)));
    }
    lines.skip_until(b'\n')?;
    Ok(Some(None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_bounded() {
        let long = [&vec![b'x'; MAX_LINE_BYTES as usize + 5][..], b"\nb\nc"].concat();
        let mut lines = &long[..];
        let mut found = Vec::new();
        while let Some(line) = read_line(&mut lines).unwrap() {
            found.push(line);
        }
        assert_eq!(found, [None, Some(b"b".to_vec()), Some(b"c".to_vec())]);
    }
}
