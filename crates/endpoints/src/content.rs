//! Content that is uploaded: of a local file, or of an object of another store.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use longhaul_transfer::local_end::{LocalFile, blocking};
use longhaul_transfer::path::RelPath;
use longhaul_transfer::{Failure, FailureKind, Sources, TransferProgress};

use crate::reader::ObjectReader;

/// Maximum bytes that are read at once.
pub(crate) const MAX_READ_BYTES: u64 = 4 << 20;

/// Content of one file.
#[derive(Clone)]
pub(crate) enum Content {
    Local(Arc<LocalFile>),
    Object(Arc<ObjectReader>),
}

/// A file that is opened when its content is needed.
pub(crate) enum ContentSource {
    /// A file of this machine: its source and the path below that.
    Local {
        sources: Arc<Sources>,
        source: u32,
        path: RelPath,
        progress: Arc<TransferProgress>,
    },
    Object(Arc<ObjectReader>),
}

impl ContentSource {
    pub(crate) async fn open(&self) -> Result<Content, Failure> {
        match self {
            Self::Object(reader) => Ok(Content::Object(reader.clone())),
            Self::Local {
                sources,
                source,
                path,
                progress,
            } => {
                let (sources, source, path) = (sources.clone(), *source, path.clone());
                let progress = progress.clone();
                blocking(move || {
                    let file = sources.open(source, &path)?;
                    file.note_lost(&progress);
                    Ok(Content::Local(Arc::new(file)))
                })
                .await
            }
        }
    }
}

impl Content {
    /// Returns the size in bytes.
    pub(crate) fn size(&self) -> u64 {
        match self {
            Self::Local(file) => file.size(),
            Self::Object(reader) => reader.object.size,
        }
    }

    /// Returns the modification time: seconds since 1970, and nanoseconds.
    pub(crate) fn modified(&self) -> (i64, u32) {
        match self {
            Self::Local(file) => file.meta().mtime,
            Self::Object(reader) => reader.object.modified(),
        }
    }

    /// Returns a value that distinguishes this state of the file from every other, if there is one.
    pub(crate) fn identity(&self) -> Option<[u8; 32]> {
        match self {
            Self::Local(file) => file.identity(),
            Self::Object(reader) => identity(reader),
        }
    }

    /// Reads a range in pieces of at most [`MAX_READ_BYTES`].
    ///
    /// # Errors
    /// [`FailureKind::Changed`] if the file is shorter now.
    pub(crate) async fn read(&self, range: Range<u64>) -> Result<Vec<Bytes>, Failure> {
        match self {
            Self::Object(reader) => Ok(vec![reader.read(range).await?]),
            Self::Local(file) => {
                let mut pieces = Vec::new();
                let mut at = range.start;
                while at < range.end {
                    let len = MAX_READ_BYTES.min(range.end - at);
                    pieces.push(read_local(file.clone(), at, len).await?);
                    at += len;
                }
                Ok(pieces)
            }
        }
    }

    /// Returns an error if the file has changed since it was opened.
    pub(crate) async fn check_unchanged(&self) -> Result<(), Failure> {
        let is_unchanged = match self {
            Self::Local(file) => {
                let file = file.clone();
                blocking(move || file.is_unchanged()).await?
            }
            Self::Object(reader) => return reader.look().await.map(drop),
        };
        match is_unchanged {
            true => Ok(()),
            false => Err(Failure::new(FailureKind::Changed)),
        }
    }
}

async fn read_local(file: Arc<LocalFile>, offset: u64, len: u64) -> Result<Bytes, Failure> {
    let len = usize::try_from(len).map_err(|_| Failure::new(FailureKind::Limit))?;
    blocking(move || {
        let mut data = vec![0; len];
        match file.read_at(&mut data, offset)? == len {
            true => Ok(data.into()),
            false => Err(Failure::new(FailureKind::Changed)),
        }
    })
    .await
}

/// Returns a value that distinguishes this state of an object from others. Without an ETag, an
/// object of the same size and time is taken for the same. Without a time, there is no such value.
pub(crate) fn identity(reader: &ObjectReader) -> Option<[u8; 32]> {
    if !reader.object.has_version() {
        return None;
    }
    let mut hasher = blake3::Hasher::new_derive_key("longhaul 2026 identity of an object");
    let object = &reader.object;
    let time = object.changed.to_string();
    let e_tag = object.e_tag.as_deref().unwrap_or(&time);
    for part in [reader.store.place(), reader.key.as_ref(), e_tag] {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.update(&object.size.to_le_bytes());
    Some(*hasher.finalize().as_bytes())
}
