//! `longhaul sum`: checksums of files, computed where the files are.

use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;

use anyhow::{Result, bail};
use clap::Args;
use longhaul_checksum::{Algorithm, Checksum, Hasher, ListFormat};
use longhaul_filter::{Filter, FilterRules, IgnoreRules};
use longhaul_output::{message, print_bytes};
use longhaul_proto::text::printable;
use longhaul_sync::NodeKind;
use longhaul_transfer::files::message::{FilesFailure, FilesFailureKind, PathBytes, SumOutcome};
use rustix::io::Errno;
use serde_json::json;

use crate::exit::Exit;
use crate::files::show::join;
use crate::place::{Place, PlaceOptions, PlacePath};
use crate::{answer, logging, tree};

pub mod check;
mod list_name;
pub mod places;

use check::{Check, CheckOutput};
use places::{SumPlaces, SummedPath};

/// Bytes that are read from standard input at once.
const STDIN_BUFFER_BYTES: usize = 1 << 20;

/// Print checksums of files: here, at user@host:path or lh://host/path, where they are computed.
///
/// The lines are those of b3sum, sha256sum and md5sum, and for adler32 and crc32c those of XRootD's
/// xrdadler32 and xrdcrc32c. Several files and processors are used at a time.
#[derive(Args)]
pub struct SumCommand {
    /// File: a local path, user@host:path, lh://host[:port]/path, or - for standard input. With
    /// --check, the directory that the names of the list are below [default: .].
    #[arg(required_unless_present = "check", value_name = "PATH")]
    path: Vec<OsString>,
    /// The checksum: blake3, sha256, md5, adler32 or crc32c [default: blake3; with --check, what
    /// the list has].
    #[arg(short, long, value_name = "NAME")]
    algorithm: Option<Algorithm>,
    /// Take the files of directories, too. Symbolic links in them are left out.
    #[arg(short, long, conflicts_with = "check")]
    recursive: bool,
    /// Compare files with this list of checksums (- for standard input) in any of the formats.
    #[arg(short, long, value_name = "FILE")]
    check: Option<OsString>,
    /// Print only files that differ.
    #[arg(short, long, requires = "check", conflicts_with = "json")]
    quiet: bool,
    /// Print lines as BSD's programs do: `SHA256 (name) = hash`.
    #[arg(long, conflicts_with_all = ["check", "json", "xrdfs"])]
    tag: bool,
    /// Print lines as `xrdfs query checksum` does: `adler32 hash`.
    #[arg(long, conflicts_with_all = ["check", "json"])]
    xrdfs: bool,
    /// Print one JSON object per line for each file.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: PlaceOptions,
}

impl SumCommand {
    /// Prints or compares the checksums.
    pub fn run(self) -> Result<Exit> {
        logging::start("error");
        let runtime = crate::runtime::start()?;
        if let Some(list) = &self.check {
            if self.path.len() > 1 {
                bail!("give one directory that the names of the list are below");
            }
            let output = match (self.json, self.quiet) {
                (true, _) => CheckOutput::Json,
                (false, true) => CheckOutput::Differences,
                (false, false) => CheckOutput::Lines,
            };
            let check = Check::new(self.path.first(), self.algorithm, output)?;
            return runtime.block_on(check.run(list, &self.place));
        }
        let mut command = SumRun {
            algorithm: self.algorithm.unwrap_or(Algorithm::Blake3),
            places: SumPlaces::new(&self.place),
            printer: SumPrinter::new(self.format(), self.json),
            pending: Vec::new(),
        };
        runtime.block_on(async {
            for path in &self.path {
                let goes_on = match self.recursive && path != "-" {
                    true => command.add_tree(path, &self.place).await?,
                    false => command.add(path).await?,
                };
                if !goes_on {
                    break;
                }
            }
            command.flush().await?;
            command.places.end().await;
            Ok(command.printer.exit)
        })
    }

    fn format(&self) -> ListFormat {
        match (self.tag, self.xrdfs) {
            (true, _) => ListFormat::Bsd,
            (_, true) => ListFormat::Xrdfs,
            _ => ListFormat::Plain,
        }
    }
}

/// A run that prints checksums. Its methods return false once nothing more can be printed.
struct SumRun<'a> {
    algorithm: Algorithm,
    places: SumPlaces<'a>,
    printer: SumPrinter,
    /// Files of one place that are not computed yet.
    pending: Vec<SummedPath>,
}

impl SumRun<'_> {
    async fn add(&mut self, typed: &OsStr) -> Result<bool> {
        if typed == "-" {
            return Ok(self.flush().await? && self.sum_stdin());
        }
        match SummedPath::parse(typed)? {
            Ok(path) => {
                let is_elsewhere = |other: &SummedPath| other.spot.location != path.spot.location;
                let goes_on = match self.pending.first().is_some_and(is_elsewhere) {
                    true => self.flush().await?,
                    false => true,
                };
                self.pending.push(path);
                Ok(goes_on)
            }
            Err(failure) => {
                let goes_on = self.flush().await?;
                self.printer.report(&failure);
                Ok(goes_on)
            }
        }
    }

    /// Adds all files of a directory.
    async fn add_tree(&mut self, typed: &OsStr, options: &PlaceOptions) -> Result<bool> {
        if !self.flush().await? {
            return Ok(false);
        }
        let root = tree::parse_path(typed)?;
        let mut place = Place::open(&root.location, options).await?;
        let filter = Filter::new(FilterRules::default())?;
        let listing = tree::list(&mut place, &root.path, &filter, &IgnoreRules::default()).await?;
        place.end().await;
        for failure in listing.failures {
            self.printer.report(&FilesFailure {
                path: PathBytes(root.location.shown(&failure.path).into_bytes()),
                ..failure
            });
        }
        let name = PathBytes(typed.as_encoded_bytes().to_vec());
        if listing.tree.is_empty() && self.printer.exit == Exit::Success {
            let failure = FilesFailure::new(FilesFailureKind::NotFound, &name);
            self.printer.report(&failure);
        }
        let files = listing.tree.iter();
        let files = files.filter(|(_, node)| node.kind == NodeKind::File);
        self.pending = files
            .map(|(below, _)| SummedPath {
                shown: match below.is_empty() {
                    true => name.0.clone(),
                    false => join(&name, below).0,
                },
                spot: PlacePath {
                    location: root.location.clone(),
                    path: tree::path_below(&root.path, below),
                },
            })
            .collect();
        self.flush().await
    }

    async fn flush(&mut self) -> Result<bool> {
        let pending = std::mem::take(&mut self.pending);
        let printer = &mut self.printer;
        let algorithm = self.algorithm;
        self.places
            .sum(&pending, algorithm, |path, outcome| {
                printer.show(algorithm, &path.shown, outcome)
            })
            .await
    }

    fn sum_stdin(&mut self) -> bool {
        let (mut hasher, mut size) = (Hasher::new(self.algorithm), 0);
        let mut buffer = vec![0; STDIN_BUFFER_BYTES];
        loop {
            match rustix::io::read(rustix::stdio::stdin(), &mut buffer) {
                Ok(0) => break,
                Ok(read) => {
                    hasher.update(buffer.get(..read).unwrap_or_default());
                    size += read as u64;
                }
                Err(Errno::INTR) => {}
                Err(errno) => {
                    let name = PathBytes(b"standard input".to_vec());
                    self.printer.report(&FilesFailure::from_errno(errno, &name));
                    return true;
                }
            }
        }
        self.printer.line(&hasher.finish(), b"-", size)
    }
}

/// Prints checksums and failures.
struct SumPrinter {
    format: ListFormat,
    json: bool,
    is_terminal: bool,
    exit: Exit,
}

impl SumPrinter {
    fn new(format: ListFormat, json: bool) -> Self {
        Self {
            format,
            json,
            is_terminal: std::io::stdout().is_terminal(),
            exit: Exit::Success,
        }
    }

    /// Shows the outcome of a file. Returns false if nothing more can be printed.
    fn show(&mut self, algorithm: Algorithm, name: &[u8], outcome: SumOutcome) -> bool {
        match outcome {
            SumOutcome::Sum { value, size, .. } => match Checksum::new(algorithm, value.0) {
                Some(sum) => return self.line(&sum, name, size),
                None => self.report(&FilesFailure::with_detail(
                    FilesFailureKind::Io,
                    &PathBytes(name.to_vec()),
                    "the other side sent a checksum of another algorithm",
                )),
            },
            SumOutcome::Failed(failure) => self.report(&FilesFailure {
                path: PathBytes(name.to_vec()),
                ..failure
            }),
        }
        true
    }

    fn line(&self, sum: &Checksum, name: &[u8], size: u64) -> bool {
        if self.json {
            let line = json!({
                "event": "sum", "path": printable(name), "algorithm": sum.algorithm(),
                "value": sum.to_string(), "bytes": size,
            });
            return answer::write_lines(std::iter::once(line.to_string()));
        }
        let mut line = self.format.line(sum, &shown_name(name, self.is_terminal));
        line.push(b'\n');
        print_bytes(&line)
    }

    /// Reports a file without a checksum. Its path is as it was typed.
    fn report(&mut self, failure: &FilesFailure) {
        message!("longhaul: {failure}");
        if self.json {
            answer::write_line(json!({
                "event": "failed", "path": printable(&failure.path.0), "kind": failure.kind,
                "message": failure.to_string(),
            }));
        }
        self.exit = match (failure.kind, self.exit) {
            (FilesFailureKind::NotGranted, Exit::Success | Exit::Unauthorised) => {
                Exit::Unauthorised
            }
            _ => Exit::SomeFailed,
        };
    }
}

/// Returns a name as it is printed. Names of another machine must not steer a terminal.
fn shown_name(name: &[u8], is_terminal: bool) -> Vec<u8> {
    match is_terminal {
        true => printable(name).into_bytes(),
        false => name.to_vec(),
    }
}
