//! `cp SRC -`: the content of a file on standard output.

use std::ffi::OsString;
use std::time::Duration;

use anyhow::{Result, bail};
use longhaul_checksum::{Algorithm, Hasher};
use longhaul_output::print_bytes;
use longhaul_transfer::files::message::{
    FilesFailure, FilesFailureKind, FilesRequest, FilesResponse, MAX_RANGE_BYTES, PathBytes,
    SumOutcome,
};

use super::Cp;
use crate::copy_checks::StreamFailed;
use crate::exit::Exit;
use crate::files::show::failure_of;
use crate::logging;
use crate::place::{Place, PlaceOptions};
use crate::sum::places::{SumPlaces, SummedPath};

/// Number of ranges that are asked for at once.
const RANGES_AT_ONCE: u64 = 16;

/// Interval between looks at a file that may grow.
const FOLLOW_INTERVAL: Duration = Duration::from_secs(1);

impl Cp {
    /// Returns the sources, if the destination is standard output.
    pub(super) fn stdout_sources(&self) -> Option<&[OsString]> {
        let (destination, sources) = self.paths.split_last()?;
        (destination == "-").then_some(sources)
    }

    /// Prints the content of files, one after the other.
    pub(super) fn copy_to_stdout(&self, sources: &[OsString]) -> Result<Exit> {
        logging::start("error");
        let refused = [
            (self.run_options.json, "--json"),
            (self.dry_run, "--dry-run"),
            (self.options.recursive, "-r"),
            (self.receipt.is_some(), "--receipt"),
            (self.checksum_with.is_some(), "--checksum-with"),
            (self.background, "--background"),
            (
                self.follow && sources.len() > 1,
                "--follow with several sources",
            ),
        ];
        if let Some((_, flag)) = refused.iter().find(|(is_given, _)| *is_given) {
            bail!("{flag} is not for copies to standard output (-): name a file - as ./-");
        }
        let options = PlaceOptions::for_copy(&self.options);
        let runtime = crate::runtime::start()?;
        runtime.block_on(async {
            for source in sources {
                if source == "-" {
                    bail!("standard input to standard output: use cat");
                }
                let path = SummedPath::parse(source)?.map_err(StreamFailed::Failed)?;
                let printed = match self.follow {
                    true => follow_file(&path, &options).await?,
                    false => print_file(&path, &options).await?,
                };
                if !printed {
                    // Whoever reads the output has enough.
                    return Ok(Exit::SomeFailed);
                }
            }
            Ok(Exit::Success)
        })
    }
}

/// Prints what a file has, and what is appended to it. Returns once nothing more can be printed.
async fn follow_file(path: &SummedPath, options: &PlaceOptions) -> Result<bool> {
    let mut place = Place::open(&path.spot.location, options).await?;
    let mut offset = 0;
    loop {
        let before = offset;
        if !print_ranges(&mut place, path, &mut offset, None).await? {
            return Ok(false);
        }
        if offset == before {
            tokio::time::sleep(FOLLOW_INTERVAL).await;
        }
    }
}

/// Prints a file. Returns false if nothing more can be printed.
async fn print_file(path: &SummedPath, options: &PlaceOptions) -> Result<bool> {
    let mut place = Place::open(&path.spot.location, options).await?;
    let mut hasher = Hasher::new(Algorithm::Blake3);
    if !print_ranges(&mut place, path, &mut 0, Some(&mut hasher)).await? {
        return Ok(false);
    }
    place.end().await;
    let printed = hasher.finish();
    let mut found = None;
    let mut places = SumPlaces::new(options);
    places
        .sum(
            std::slice::from_ref(path),
            Algorithm::Blake3,
            |_, outcome| {
                found = Some(outcome);
                true
            },
        )
        .await?;
    places.end().await;
    match found {
        Some(SumOutcome::Sum { value, .. }) if value.0 == printed.as_bytes() => Ok(true),
        Some(SumOutcome::Failed(failure)) => Err(StreamFailed::Failed(failure).into()),
        _ => Err(StreamFailed::Changed(path.spot.to_string()).into()),
    }
}

/// Prints a file from `offset` to its end, and hashes it. Returns false if nothing more can be
/// printed.
async fn print_ranges(
    place: &mut Place,
    path: &SummedPath,
    offset: &mut u64,
    mut hasher: Option<&mut Hasher>,
) -> Result<bool> {
    loop {
        let asks: Vec<FilesRequest> = (0..RANGES_AT_ONCE)
            .map(|n| FilesRequest::ReadRange {
                path: path.spot.path.clone(),
                offset: *offset + n * MAX_RANGE_BYTES as u64,
            })
            .collect();
        for answer in place.ask_all(&asks).await? {
            let (content, is_cut) = match answer {
                FilesResponse::Content { content, is_cut } => (content.0, is_cut),
                other => return Err(explain(failure_of(other)?, path)),
            };
            if is_cut && content.len() != MAX_RANGE_BYTES {
                bail!("{}: the answer does not match the request", path.spot);
            }
            if let Some(hasher) = &mut hasher {
                hasher.update(&content);
            }
            if !print_bytes(&content) {
                return Ok(false);
            }
            *offset += content.len() as u64;
            if !is_cut {
                return Ok(true);
            }
        }
    }
}

fn explain(failure: Option<FilesFailure>, path: &SummedPath) -> anyhow::Error {
    match failure {
        Some(failure) if failure.kind == FilesFailureKind::NotUnderstood => anyhow::anyhow!(
            "{}: the other side is of an earlier release and cannot copy to standard output: \
             upgrade it, or copy to a file",
            path.spot
        ),
        Some(failure) => StreamFailed::Failed(FilesFailure {
            path: PathBytes(path.shown.clone()),
            ..failure
        })
        .into(),
        None => anyhow::anyhow!("{}: the answer does not match the request", path.spot),
    }
}
