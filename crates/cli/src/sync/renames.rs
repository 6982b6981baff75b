//! Finds files that the source has under another name, and renames them at the destination.

use anyhow::Result;
use longhaul_checksum::Algorithm;
use longhaul_output::message;
use longhaul_proto::text::printable;
use longhaul_sync::{Candidate, ContentHash, Rename, RenameCandidates};
use longhaul_transfer::files::message::{FilesRequest, FilesResponse, PathBytes, SumOutcome};
use quantities::ByteCount;
use serde_json::json;

use super::batches::batches;
use crate::answer;
use crate::files::show::failure_of;
use crate::place::{Place, PlaceOptions, PlacePath};
use crate::sum::places::{SumPlaces, SummedPath};
use crate::tree::path_below;

/// Number of files whose paths are held for questions at a time.
const FILES_AT_ONCE: usize = 4096;

/// Renamed files.
#[derive(Debug, Default)]
pub struct RenamedFiles {
    pub files: u64,
    pub bytes: u64,
    /// Files that could not be renamed, and are copied instead.
    pub refused: Vec<Rename>,
}

impl RenamedFiles {
    /// Reports it in one line.
    pub fn report(&self, as_json: bool, is_quiet: bool) {
        let Self { files, bytes, .. } = self;
        if as_json {
            answer::write_line(json!({ "event": "renaming", "files": files, "bytes": bytes }));
        } else if *files > 0 && !is_quiet {
            let noun = if *files == 1 { "file" } else { "files" };
            let bytes = ByteCount(*bytes);
            message!("longhaul: renamed {files} {noun} ({bytes}) at the destination");
        }
    }
}

/// Finds the files that were renamed, by hashes that both ends compute at the same time.
///
/// # Errors
/// An end is gone, or cannot compute hashes.
pub async fn find(
    source: &PlacePath,
    destination: &PlacePath,
    options: &PlaceOptions,
    candidates: &RenameCandidates,
) -> Result<Vec<Rename>> {
    let (created, removed) = tokio::try_join!(
        content_hashes(source, options, &candidates.created),
        content_hashes(destination, options, &candidates.removed),
    )?;
    Ok(candidates.matching(&created, &removed))
}

/// Returns the hashes of files, in order. A file that cannot be read has none.
async fn content_hashes(
    end: &PlacePath,
    options: &PlaceOptions,
    files: &[Candidate],
) -> Result<Vec<Option<ContentHash>>> {
    let mut places = SumPlaces::new(options);
    let mut hashes = Vec::with_capacity(files.len());
    for files in files.chunks(FILES_AT_ONCE) {
        let paths: Vec<SummedPath> = files.iter().map(|file| summed_path(end, file)).collect();
        let take = |_: &SummedPath, outcome: SumOutcome| {
            hashes.push(content_hash(outcome));
            true
        };
        places.sum(&paths, Algorithm::Blake3, take).await?;
    }
    places.end().await;
    Ok(hashes)
}

fn summed_path(end: &PlacePath, file: &Candidate) -> SummedPath {
    SummedPath {
        shown: Vec::new(),
        spot: PlacePath {
            location: end.location.clone(),
            path: path_below(&end.path, &file.path),
        },
    }
}

fn content_hash(outcome: SumOutcome) -> Option<ContentHash> {
    match outcome {
        SumOutcome::Sum { value, .. } => value.0.try_into().ok(),
        SumOutcome::Failed(_) => None,
    }
}

/// Renames files below `root`. Nothing is replaced. An end of an earlier release renames none.
///
/// # Errors
/// The place is gone.
pub async fn carry_out(
    place: &mut Place,
    root: &PathBytes,
    renames: &[Rename],
    as_json: bool,
) -> Result<RenamedFiles> {
    let mut renamed = RenamedFiles::default();
    let path_bytes = |rename: &Rename| 2 * root.0.len() + rename.from.len() + rename.to.len();
    for batch in batches(renames, path_bytes) {
        let requests: Vec<FilesRequest> =
            batch.iter().map(|rename| request(rename, root)).collect();
        let answers = place.ask_all(&requests).await?;
        for (rename, answer) in batch.iter().zip(answers) {
            if !matches!(answer, FilesResponse::Changed) {
                failure_of(answer)?;
                renamed.refused.push(rename.clone());
                continue;
            }
            renamed.files += 1;
            renamed.bytes += rename.bytes;
            if as_json {
                answer::write_line(json!({
                    "event": "renamed", "path": printable(&rename.to),
                    "from": printable(&rename.from), "bytes": rename.bytes,
                }));
            }
        }
    }
    Ok(renamed)
}

fn request(rename: &Rename, root: &PathBytes) -> FilesRequest {
    FilesRequest::RenameFile {
        from: path_below(root, &rename.from),
        to: path_below(root, &rename.to),
    }
}
