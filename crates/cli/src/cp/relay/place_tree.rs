//! Files of a server or host, which are read by requests.

use std::ops::Range;
use std::sync::Arc;

use anyhow::Result;
use bytes::{Bytes, BytesMut};
use longhaul_checksum::Algorithm;
use longhaul_filter::{EntryKind as FilteredKind, IGNORE_FILE_NAME};
use longhaul_transfer::files::message::{
    EntryKind, FilesFailure, FilesFailureKind, FilesRequest, FilesResponse, ListingEntry,
    MAX_RANGE_BYTES, PathBytes, SumOutcome,
};
use longhaul_transfer::local_end::{
    ListedTree, LocalEntryKind, Meta, RelayFile, RelayTree, RemoteEntry, RemoteListing,
};
use longhaul_transfer::path::RelPath;
use longhaul_transfer::{Failure, FailureKind, Hash};

use super::place_pool::PlacePool;
use crate::files::show::join;

/// Context of the values that tell states of a file apart (BLAKE3 paper, section 2.3).
const IDENTITY_CONTEXT: &str = "longhaul 2026 identity of a relayed file";

type FoundEntry = RemoteEntry<ListingEntry>;

/// Sources in one place.
pub struct PlaceTree {
    places: Arc<PlacePool>,
    sources: Vec<PathBytes>,
}

impl PlaceTree {
    /// Creates the tree of sources with these paths, as they were typed.
    pub fn new(places: Arc<PlacePool>, paths: Vec<Vec<u8>>) -> Self {
        let sources = paths.into_iter().map(|path| PathBytes(content_path(path)));
        Self {
            places,
            sources: sources.collect(),
        }
    }

    /// Finds the sources. A failure is the reason why there is nothing to copy.
    ///
    /// # Errors
    /// The place does not answer.
    pub async fn roots(&self, recursive: bool) -> Result<Vec<Result<FoundEntry, Failure>>> {
        let looks: Vec<FilesRequest> = self.sources.iter().map(look).collect();
        let answers = self.places.ask_all(&looks).await;
        let answers = match answers {
            Ok(answers) => answers,
            Err(_) => return Err(self.places.ended().await),
        };
        let roots = (0..).zip(answers).map(|(source, answer)| {
            let attributes = entry_of(answer)?;
            match attributes.kind {
                EntryKind::Directory if !recursive => Err(Failure::new(FailureKind::IsDirectory)),
                EntryKind::Symlink if !recursive => Err(Failure::new(FailureKind::IsLink)),
                _ => Ok(FoundEntry {
                    source,
                    path: RelPath::root(),
                    attributes,
                }),
            }
        });
        Ok(roots.collect())
    }

    fn path_of(&self, source: u32, path: &RelPath) -> PathBytes {
        let root = self.sources.get(source as usize);
        let root = root.cloned().unwrap_or_default();
        match path.is_root() {
            true => root,
            false => join(&root, path.as_bytes()),
        }
    }

    async fn ask(&self, request: FilesRequest) -> Result<FilesResponse, Failure> {
        let answers = self.places.ask_all(&[request]).await?;
        answers.into_iter().next().ok_or_else(no_match)
    }
}

impl ListedTree for PlaceTree {
    type Attributes = ListingEntry;

    fn kind(entry: &ListingEntry) -> FilteredKind {
        match entry.kind {
            EntryKind::Directory => FilteredKind::Directory,
            EntryKind::File => {
                let milliseconds = i64::from(entry.nanoseconds.unwrap_or(0) / 1_000_000);
                FilteredKind::File {
                    bytes: entry.size,
                    modified_ms: entry
                        .modified
                        .saturating_mul(1000)
                        .saturating_add(milliseconds),
                }
            }
            EntryKind::Symlink | EntryKind::Other => FilteredKind::Other,
        }
    }

    async fn list(&self, directory: &FoundEntry) -> Result<RemoteListing<ListingEntry>, Failure> {
        let path = self.path_of(directory.source, &directory.path);
        let mut listing = RemoteListing::new();
        let mut after = None;
        loop {
            let request = FilesRequest::Look {
                path: path.clone(),
                list: true,
                after: after.take(),
                limit: None,
            };
            let (entries, next) = match self.ask(request).await? {
                FilesResponse::Entries { entries, next } => (entries, next),
                other => return Err(failure_of(other)),
            };
            let named = entries
                .into_iter()
                .map(|entry| (entry.name.0.clone(), entry));
            listing.extend(named);
            match next {
                Some(next) => after = Some(next),
                None => return Ok(listing),
            }
        }
    }

    async fn ignore_file(
        &self,
        directory: &FoundEntry,
        _: &ListingEntry,
    ) -> Result<Vec<u8>, Failure> {
        let directory = self.path_of(directory.source, &directory.path);
        let path = join(&directory, IGNORE_FILE_NAME.as_bytes());
        match self.ask(FilesRequest::Read { path }).await? {
            FilesResponse::Content { content, .. } => Ok(content.0),
            other => Err(failure_of(other)),
        }
    }
}

impl RelayTree for PlaceTree {
    type File = PlaceFile;

    async fn describe(&self, entry: &FoundEntry) -> Result<(Meta, LocalEntryKind), Failure> {
        let entry = &entry.attributes;
        let kind = match (entry.kind, &entry.target) {
            (EntryKind::File, _) => LocalEntryKind::File { size: entry.size },
            (EntryKind::Directory, _) => LocalEntryKind::Directory,
            (EntryKind::Symlink, Some(target)) => LocalEntryKind::Symlink {
                target: target.0.clone(),
            },
            (EntryKind::Symlink, None) | (EntryKind::Other, _) => {
                LocalEntryKind::Failed(Failure::new(FailureKind::NotRegular))
            }
        };
        Ok((meta_of(entry), kind))
    }

    async fn open(&self, source: u32, path: &RelPath) -> Result<PlaceFile, Failure> {
        let path = self.path_of(source, path);
        let asks = [look(&path), range(&path, 0)];
        let mut answers = self.places.ask_all(&asks).await?.into_iter();
        let entry = entry_of(answers.next().ok_or_else(no_match)?)?;
        if entry.kind != EntryKind::File {
            return Err(Failure::new(FailureKind::Changed));
        }
        let first = content_of(answers.next().ok_or_else(no_match)?)?;
        Ok(PlaceFile {
            places: self.places.clone(),
            path,
            entry,
            first: first.into(),
        })
    }
}

/// A file that is read by requests.
pub struct PlaceFile {
    places: Arc<PlacePool>,
    path: PathBytes,
    /// The file when it was opened.
    entry: ListingEntry,
    /// Its first bytes.
    first: Bytes,
}

impl RelayFile for PlaceFile {
    fn size(&self) -> u64 {
        self.entry.size
    }

    fn meta(&self) -> Meta {
        meta_of(&self.entry)
    }

    fn identity(&self) -> Option<[u8; 32]> {
        let mut hasher = blake3::Hasher::new_derive_key(IDENTITY_CONTEXT);
        let entry = &self.entry;
        hasher.update(self.places.shown(&self.path).as_bytes());
        hasher.update(&entry.size.to_le_bytes());
        hasher.update(&entry.modified.to_le_bytes());
        hasher.update(&entry.nanoseconds.unwrap_or_default().to_le_bytes());
        Some(*hasher.finalize().as_bytes())
    }

    async fn read(&self, wanted: Range<u64>) -> Result<Bytes, Failure> {
        let known = self.first.len() as u64;
        let begin = usize::try_from(wanted.start).unwrap_or(usize::MAX);
        let len = usize::try_from(wanted.end.saturating_sub(wanted.start));
        let len = len.map_err(|_| Failure::new(FailureKind::Limit))?;
        let mut content = BytesMut::with_capacity(len);
        content.extend_from_slice(self.first.get(begin..).unwrap_or_default());
        let offsets = (wanted.start.max(known)..wanted.end).step_by(MAX_RANGE_BYTES);
        let asks: Vec<FilesRequest> = offsets.map(|offset| range(&self.path, offset)).collect();
        if content.len() < len && !asks.is_empty() {
            for answer in self.places.ask_all(&asks).await? {
                content.extend_from_slice(&content_of(answer)?);
            }
        }
        if content.len() < len {
            return Err(Failure::new(FailureKind::Changed));
        }
        content.truncate(len);
        Ok(content.freeze())
    }

    async fn check(&self, hash: Option<Hash>) -> Result<(), Failure> {
        let sum = FilesRequest::Sum {
            paths: vec![self.path.clone()],
            algorithm: Algorithm::Blake3,
            coarse: false,
        };
        let asks = match hash.filter(|_| self.places.has_checksums()) {
            Some(_) => vec![look(&self.path), sum],
            None => vec![look(&self.path)],
        };
        let mut answers = self.places.ask_all(&asks).await?.into_iter();
        let now = entry_of(answers.next().ok_or_else(no_match)?)?;
        let state = |entry: &ListingEntry| (entry.kind, entry.size, meta_of(entry).mtime);
        let mut is_same = state(&now) == state(&self.entry);
        if let (Some(answer), Some(hash)) = (answers.next(), hash) {
            is_same &= sum_of(answer)? == hash;
        }
        match is_same {
            true => Ok(()),
            false => Err(Failure::new(FailureKind::Changed)),
        }
    }
}

fn meta_of(entry: &ListingEntry) -> Meta {
    let nanoseconds = entry.nanoseconds.unwrap_or(0).min(999_999_999);
    Meta::new(entry.mode & 0o777, (entry.modified, nanoseconds))
}

fn look(path: &PathBytes) -> FilesRequest {
    FilesRequest::Look {
        path: path.clone(),
        list: false,
        after: None,
        limit: None,
    }
}

fn range(path: &PathBytes, offset: u64) -> FilesRequest {
    FilesRequest::ReadRange {
        path: path.clone(),
        offset,
    }
}

/// Returns the entry that an answer describes.
fn entry_of(answer: FilesResponse) -> Result<ListingEntry, Failure> {
    match answer {
        FilesResponse::Entries { entries, .. } => entries
            .into_iter()
            .next()
            .ok_or(Failure::new(FailureKind::NotFound)),
        other => Err(failure_of(other)),
    }
}

/// Returns the content in an answer. Only the last one of a file is shorter than others.
fn content_of(answer: FilesResponse) -> Result<Vec<u8>, Failure> {
    match answer {
        FilesResponse::Content { content, is_cut } => {
            match !is_cut || content.0.len() == MAX_RANGE_BYTES {
                true => Ok(content.0),
                false => Err(no_match()),
            }
        }
        other => Err(failure_of(other)),
    }
}

/// Returns the checksum in an answer.
fn sum_of(answer: FilesResponse) -> Result<Hash, Failure> {
    let sums = match answer {
        FilesResponse::Sums { sums } => sums,
        other => return Err(failure_of(other)),
    };
    match sums.into_iter().next() {
        Some(SumOutcome::Sum { value, .. }) => value.0.try_into().map_err(|_| no_match()),
        Some(SumOutcome::Failed(failure)) => Err(failed(&failure)),
        None => Err(no_match()),
    }
}

/// Returns the failure in an answer that is not the expected one.
fn failure_of(answer: FilesResponse) -> Failure {
    match answer {
        FilesResponse::Failed(failure) => failed(&failure),
        _ => no_match(),
    }
}

fn failed(failure: &FilesFailure) -> Failure {
    let kind = match failure.kind {
        FilesFailureKind::NotFound => FailureKind::NotFound,
        FilesFailureKind::PermissionDenied | FilesFailureKind::NotGranted => {
            FailureKind::PermissionDenied
        }
        FilesFailureKind::RefusedPath => FailureKind::RefusedPath,
        FilesFailureKind::Limit => FailureKind::Limit,
        FilesFailureKind::NotUnderstood => {
            let why = "the source is of an earlier release, which copies through this machine \
                       cannot read: upgrade it";
            return Failure::with_detail(FailureKind::Io, why);
        }
        _ => return Failure::with_detail(FailureKind::Io, failure.to_string()),
    };
    Failure::with_detail(kind, failure.detail.clone())
}

fn no_match() -> Failure {
    let why = "the answer does not match the request; do both sides run the same release?";
    Failure::with_detail(FailureKind::Io, why)
}

/// Returns a path without a `.` at its end, which stands for the content of a directory.
fn content_path(mut path: Vec<u8>) -> Vec<u8> {
    while path == b"." || path.ends_with(b"/.") {
        path.pop();
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_of_directories_has_their_path() {
        for (typed, path) in [
            ("a/.", "a/"),
            (".", ""),
            ("/.", "/"),
            ("a/b", "a/b"),
            ("a.", "a."),
        ] {
            assert_eq!(content_path(typed.into()), path.as_bytes(), "{typed}");
        }
    }

    #[test]
    fn answers_that_do_not_fit_are_refused() {
        let short = FilesResponse::Content {
            content: PathBytes(vec![1]),
            is_cut: true,
        };
        assert_eq!(content_of(short), Err(no_match()));
        assert_eq!(content_of(FilesResponse::Changed), Err(no_match()));
        let sums = vec![SumOutcome::Sum {
            value: PathBytes(vec![0; 31]),
            size: 1,
            coarse: None,
        }];
        assert_eq!(sum_of(FilesResponse::Sums { sums }), Err(no_match()));
        let nothing = FilesResponse::Entries {
            entries: Vec::new(),
            next: None,
        };
        assert_eq!(entry_of(nothing), Err(Failure::new(FailureKind::NotFound)));
    }
}
