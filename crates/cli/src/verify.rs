//! `longhaul verify`: compares files with the receipt of a copy, by reading one side.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use longhaul_filter::PathText;
use longhaul_output::message;
use longhaul_proto::text::printable;
use longhaul_transfer::files::MAX_SUMMED_FILES;
use longhaul_transfer::files::message::{FilesFailure, PathBytes, SumOutcome};
use longhaul_transfer::receipt::{FileParts, Receipt, ReceiptEntry, RecordedEntry};
use quantities::ByteCount;
use serde_json::json;

use crate::exit::Exit;
use crate::files::show::join;
use crate::place::{Location, PlaceOptions, PlacePath};
use crate::sum::places::{SumPlaces, SummedPath};
use crate::{answer, home, logging};

/// Compare files with the receipt of a copy (cp --receipt), by reading them at one end.
///
/// Names every file that differs from what was copied, and of a large file the part. Over ssh and
/// at a server, the files are read there.
#[derive(Args)]
pub struct VerifyCommand {
    /// The receipt.
    receipt: PathBuf,
    /// What was copied, or the copy of it: a local path, user@host:path or lh://host[:port]/path;
    /// of several sources, the directory that holds them [default: the files at this machine].
    end: Option<OsString>,
    /// Print only what differs.
    #[arg(short, long)]
    quiet: bool,
    /// Print JSON, one object per line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: PlaceOptions,
}

impl VerifyCommand {
    /// Compares the files.
    pub fn run(self) -> Result<Exit> {
        logging::start("error");
        let shown = home::display_path(&self.receipt);
        let mut receipt = Receipt::open(&self.receipt).with_context(|| shown.clone())?;
        let runtime = crate::runtime::start()?;
        runtime.block_on(async {
            let links = hard_links(&mut receipt).await?;
            let mut verification = Verification {
                ends: ends(&receipt, self.end.as_deref())?,
                places: SumPlaces::new(&self.place),
                batch: Vec::new(),
                firsts: links
                    .iter()
                    .map(|link| ((link.first_source, link.first.clone()), None))
                    .collect(),
                result: VerificationResult::new(self.json),
            };
            receipt
                .for_each(async |entry| verification.add(entry).await)
                .await?;
            verification.compare().await?;
            for link in links {
                verification.add_link(link).await?;
            }
            verification.compare().await?;
            verification.places.end().await;
            Ok(verification.result.conclude(&receipt, &shown, self.quiet))
        })
    }
}

/// Another name of a file.
struct LinkedName {
    source: u32,
    path: Vec<u8>,
    first_source: u32,
    first: Vec<u8>,
}

async fn hard_links(receipt: &mut Receipt) -> Result<Vec<LinkedName>> {
    let mut links = Vec::new();
    receipt
        .for_each::<anyhow::Error>(async |entry| {
            if let RecordedEntry::HardLink {
                first_source,
                first,
                ..
            } = entry.recorded
            {
                links.push(LinkedName {
                    source: entry.source,
                    path: entry.path.0,
                    first_source,
                    first: first.0,
                });
            }
            Ok(())
        })
        .await?;
    Ok(links)
}

/// Content of a file, as the copy recorded it.
#[derive(Clone)]
struct RecordedContent {
    size: u64,
    hash: [u8; 32],
    parts: FileParts,
}

/// A comparison under way.
struct Verification<'a> {
    /// Location of each source's files.
    ends: Vec<SummedPath>,
    places: SumPlaces<'a>,
    /// Files of one place that are not compared yet.
    batch: Vec<(SummedPath, RecordedContent)>,
    /// Content of the files that have several names, once it is known.
    firsts: HashMap<(u32, Vec<u8>), Option<RecordedContent>>,
    result: VerificationResult,
}

impl Verification<'_> {
    async fn add(&mut self, entry: ReceiptEntry) -> Result<()> {
        let ReceiptEntry {
            source,
            path: PathText(path),
            recorded,
            ..
        } = entry;
        match recorded {
            RecordedEntry::File {
                size,
                blake3,
                parts,
                ..
            } => {
                let content = RecordedContent {
                    size,
                    hash: blake3,
                    parts,
                };
                if let Some(first) = self.firsts.get_mut(&(source, path.clone())) {
                    *first = Some(content.clone());
                }
                self.push(source, &path, content).await
            }
            RecordedEntry::Unchanged { .. } => {
                self.result
                    .report(&self.name(source, &path)?, "has no hash in the receipt");
                Ok(())
            }
            RecordedEntry::Failed => {
                self.result
                    .report(&self.name(source, &path)?, "was not copied");
                Ok(())
            }
            RecordedEntry::Directory
            | RecordedEntry::Symlink { .. }
            | RecordedEntry::Special { .. }
            | RecordedEntry::HardLink { .. } => Ok(()),
        }
    }

    async fn add_link(&mut self, link: LinkedName) -> Result<()> {
        let first = self.firsts.get(&(link.first_source, link.first));
        match first.cloned().flatten() {
            Some(content) => self.push(link.source, &link.path, content).await,
            None => {
                let name = self.name(link.source, &link.path)?;
                self.result.report(&name, "has no hash in the receipt");
                Ok(())
            }
        }
    }

    async fn push(&mut self, source: u32, path: &[u8], content: RecordedContent) -> Result<()> {
        if self.batch.len() >= MAX_SUMMED_FILES {
            self.compare().await?;
        }
        let end = self.end(source)?;
        let shown = below(&end.shown, path);
        let path = match &end.spot.location {
            // A link of that name, and those above it, belong to the user.
            Location::Here(_) => {
                let real = below(&[b"/", &end.spot.path.0[..]].concat(), path);
                match SummedPath::local(Path::new(OsStr::from_bytes(&real)), shown) {
                    Ok(path) => path,
                    Err(failure) => {
                        self.result.report_failure(&failure);
                        return Ok(());
                    }
                }
            }
            location => SummedPath {
                shown,
                spot: PlacePath {
                    location: location.clone(),
                    path: PathBytes(below(&end.spot.path.0, path)),
                },
            },
        };
        self.batch.push((path, content));
        Ok(())
    }

    fn end(&self, source: u32) -> Result<&SummedPath> {
        let end = self.ends.get(source as usize);
        end.context("the receipt names an entry of a source that it does not have")
    }

    fn name(&self, source: u32, path: &[u8]) -> Result<Vec<u8>> {
        Ok(below(&self.end(source)?.shown, path))
    }

    async fn compare(&mut self) -> Result<()> {
        let (paths, contents): (Vec<_>, Vec<_>) = self.batch.drain(..).unzip();
        let mut contents = contents.into_iter();
        let result = &mut self.result;
        self.places
            .sum_parts(&paths, |path, outcome| {
                if let Some(content) = contents.next() {
                    result.compare(&path.shown, &content, outcome);
                }
                true
            })
            .await?;
        Ok(())
    }
}

/// Returns the path of an entry below `end`, or `end` itself for an empty path.
fn below(end: &[u8], path: &[u8]) -> Vec<u8> {
    match path.is_empty() {
        true => end.to_vec(),
        false => join(&PathBytes(end.to_vec()), path).0,
    }
}

/// Returns where the files of each source are.
fn ends(receipt: &Receipt, typed: Option<&OsStr>) -> Result<Vec<SummedPath>> {
    let here = &receipt.header().here;
    let local = |path: &[u8], shown: Vec<u8>| SummedPath {
        shown,
        spot: PlacePath {
            location: Location::Here(PathBuf::from("/")),
            path: PathBytes(path.strip_prefix(b"/").unwrap_or(path).to_vec()),
        },
    };
    let Some(typed) = typed else {
        return Ok(here
            .iter()
            .map(|PathText(path)| local(path, path.clone()))
            .collect());
    };
    let spot = PlacePath::parse(typed)?;
    let end = match &spot.location {
        Location::Here(path) => {
            let path = std::path::absolute(path)?;
            local(path.as_os_str().as_bytes(), typed.as_bytes().to_vec())
        }
        Location::Server(_) | Location::Login(_) | Location::Store(_) | Location::Sftp(_) => {
            SummedPath {
                shown: typed.as_bytes().to_vec(),
                spot,
            }
        }
    };
    if here.len() == 1 {
        return Ok(vec![end]);
    }
    let names = here.iter().map(|PathText(path)| {
        let name = Path::new(OsStr::from_bytes(path)).file_name();
        let Some(name) = name else {
            bail!("the receipt is of several sources, one without a name: give no END");
        };
        Ok(SummedPath {
            shown: below(&end.shown, name.as_bytes()),
            spot: PlacePath {
                location: end.spot.location.clone(),
                path: PathBytes(below(&end.spot.path.0, name.as_bytes())),
            },
        })
    });
    names.collect()
}

/// Results so far.
struct VerificationResult {
    json: bool,
    files: u64,
    bytes: u64,
    /// Entries that differ or could not be compared.
    faults: u64,
}

impl VerificationResult {
    fn new(json: bool) -> Self {
        Self {
            json,
            files: 0,
            bytes: 0,
            faults: 0,
        }
    }

    fn compare(&mut self, name: &[u8], content: &RecordedContent, outcome: SumOutcome) {
        let (value, size, coarse) = match outcome {
            SumOutcome::Sum {
                value,
                size,
                coarse,
            } => (value.0, size, coarse.unwrap_or_default().0),
            SumOutcome::Failed(failure) => {
                let path = PathBytes(name.to_vec());
                return self.report_failure(&FilesFailure { path, ..failure });
            }
        };
        self.files += 1;
        self.bytes += size;
        if size != content.size {
            let text = format!("has {size} bytes instead of {}", content.size);
            return self.report(name, &text);
        }
        if value == content.hash {
            return;
        }
        let changed = content.parts.changed(size, &coarse);
        if changed.is_empty() {
            return self.report(name, "differs");
        }
        for part in changed {
            let length = ByteCount(part.end - part.start);
            let text = format!(
                "differs in block {} of {length} (bytes {} to {})",
                part.index,
                part.start,
                part.end - 1
            );
            self.report(name, &text);
        }
    }

    fn report(&mut self, name: &[u8], fault: &str) {
        self.faults += 1;
        let name = printable(name);
        match self.json {
            true => {
                answer::write_line(json!({ "event": "differs", "path": name, "message": fault }))
            }
            false => answer::write_line(format_args!("{name}: {fault}")),
        }
    }

    fn report_failure(&mut self, failure: &FilesFailure) {
        self.faults += 1;
        message!("longhaul: {failure}");
        if self.json {
            let path = printable(&failure.path.0);
            answer::write_line(
                json!({ "event": "differs", "path": path, "message": failure.to_string() }),
            );
        }
    }

    fn conclude(self, receipt: &Receipt, shown: &str, quiet: bool) -> Exit {
        let exit = match self.faults {
            0 => Exit::Success,
            _ => Exit::SomeFailed,
        };
        let milliseconds = i64::try_from(receipt.ended_ms()).unwrap_or(i64::MAX);
        let ended = jiff::Timestamp::from_millisecond(milliseconds).map_or(String::new(), |time| {
            time.strftime("%Y-%m-%d %H:%M UTC").to_string()
        });
        let (client, server) = (receipt.client(), receipt.server().map(|server| server.key));
        if self.json {
            answer::write_line(json!({
                "event": "verified", "ok": self.faults == 0, "files": self.files,
                "bytes": self.bytes, "faults": self.faults, "ended_ms": receipt.ended_ms(),
                "client": client.to_string(),
                "server": server.map(|server| server.to_string()),
            }));
        } else if !quiet || self.faults > 0 {
            let result = match self.faults {
                0 => "all as they were copied".to_owned(),
                1 => "1 fault".to_owned(),
                faults => format!("{faults} faults"),
            };
            let server = server.map_or(String::new(), |server| format!(" and {server}"));
            answer::write_line(format_args!(
                "{shown}: {} files, {}: {result} ({ended}, signed by {client}{server})",
                self.files,
                ByteCount(self.bytes),
            ));
        }
        exit
    }
}
