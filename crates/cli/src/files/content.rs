//! Content of files on standard output: `cat`, `head`, and `cp SRC -`.

use std::time::Duration;

use anyhow::{Result, bail};
use longhaul_checksum::{Algorithm, Hasher};
use longhaul_output::print_bytes;
use longhaul_transfer::files::message::{
    FilesFailure, FilesFailureKind, FilesRequest, FilesResponse, MAX_RANGE_BYTES, PathBytes,
    SumOutcome,
};

use super::limit::ContentLimit;
use super::show::failure_of;
use crate::copy_checks::StreamFailed;
use crate::place::Place;
use crate::sum::places::{SumPlaces, SummedPath};

/// Number of ranges that are asked for at once.
const RANGES_AT_ONCE: u64 = 16;

/// Interval between looks at a file that may grow.
const FOLLOW_INTERVAL: Duration = Duration::from_secs(1);

/// Prints a whole file, has the other side compute its checksum, and compares both. Returns false
/// if nothing more can be printed.
///
/// # Errors
/// The file cannot be read, or changed meanwhile.
pub async fn print_file(places: &mut SumPlaces<'_>, path: &SummedPath) -> Result<bool> {
    let mut hasher = Hasher::new(Algorithm::Blake3);
    let place = places.place(&path.spot.location).await?;
    if !FileReader::new(place, path, 0)
        .print(Some(&mut hasher))
        .await?
    {
        return Ok(false);
    }
    let printed = hasher.finish();
    let mut found = None;
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
    match found {
        Some(SumOutcome::Sum { value, .. }) if value.0 == printed.as_bytes() => Ok(true),
        Some(SumOutcome::Failed(failure)) => Err(StreamFailed::Failed(failure).into()),
        _ => Err(StreamFailed::Changed(path.spot.to_string()).into()),
    }
}

/// Prints a file from `offset` up to a limit, and reads little more than that. Returns false if
/// nothing more can be printed.
///
/// # Errors
/// The file cannot be read.
pub async fn print_part(
    places: &mut SumPlaces<'_>,
    path: &SummedPath,
    offset: u64,
    mut limit: ContentLimit,
) -> Result<bool> {
    let place = places.place(&path.spot.location).await?;
    let mut reader = FileReader::new(place, path, offset);
    let mut ranges = 1;
    while !limit.is_reached() && !reader.is_at_end {
        let most = limit.ranges(MAX_RANGE_BYTES as u64).unwrap_or(ranges);
        for piece in reader.read(most.min(RANGES_AT_ONCE)).await? {
            if !print_bytes(limit.take(&piece)) {
                return Ok(false);
            }
        }
        ranges = (ranges * 2).min(RANGES_AT_ONCE);
    }
    Ok(true)
}

/// Prints what a file has, and what is appended to it. Returns once nothing more can be printed.
///
/// # Errors
/// The file cannot be read.
pub async fn follow_file(places: &mut SumPlaces<'_>, path: &SummedPath) -> Result<bool> {
    let mut offset = 0;
    loop {
        let place = places.place(&path.spot.location).await?;
        let mut reader = FileReader::new(place, path, offset);
        if !reader.print(None).await? {
            return Ok(false);
        }
        if reader.offset == offset {
            tokio::time::sleep(FOLLOW_INTERVAL).await;
        }
        offset = reader.offset;
    }
}

/// Reads a file from front to back, several ranges at a time.
struct FileReader<'a> {
    place: &'a mut Place,
    path: &'a SummedPath,
    /// Offset of the next byte.
    offset: u64,
    is_at_end: bool,
}

impl<'a> FileReader<'a> {
    fn new(place: &'a mut Place, path: &'a SummedPath, offset: u64) -> Self {
        Self {
            place,
            path,
            offset,
            is_at_end: false,
        }
    }

    /// Prints the rest, and hashes it. Returns false if nothing more can be printed.
    async fn print(&mut self, mut hasher: Option<&mut Hasher>) -> Result<bool> {
        while !self.is_at_end {
            for piece in self.read(RANGES_AT_ONCE).await? {
                if let Some(hasher) = &mut hasher {
                    hasher.update(&piece);
                }
                if !print_bytes(&piece) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Reads this number of ranges, or fewer at the end.
    async fn read(&mut self, ranges: u64) -> Result<Vec<Vec<u8>>> {
        let range_bytes = MAX_RANGE_BYTES as u64;
        let asks: Vec<FilesRequest> = (0..ranges)
            .map(|n| FilesRequest::ReadRange {
                path: self.path.spot.path.clone(),
                offset: self.offset.saturating_add(n.saturating_mul(range_bytes)),
            })
            .collect();
        let mut pieces = Vec::with_capacity(asks.len());
        for answer in self.place.ask_all(&asks).await? {
            let (content, is_cut) = match answer {
                FilesResponse::Content { content, is_cut } => (content.0, is_cut),
                other => return Err(explain(failure_of(other)?, self.path)),
            };
            if is_cut && content.len() != MAX_RANGE_BYTES {
                bail!("{}: the answer does not match the request", self.path.spot);
            }
            self.offset = self.offset.saturating_add(content.len() as u64);
            pieces.push(content);
            if !is_cut {
                self.is_at_end = true;
                break;
            }
        }
        Ok(pieces)
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
