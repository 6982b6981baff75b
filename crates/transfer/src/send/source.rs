//! Sources of the files of a copy.

use std::path::Path;
use std::sync::Arc;

use longhaul_filter::Filter;

use crate::error::{Error, Failure};
use crate::metadata::changes::MetadataChanges;
use crate::metadata::reader::MetadataReader;
use crate::part::{PartFilter, Portion};
use crate::path::RelPath;
use crate::preservation::Preservation;
use crate::reporter::EntryLabels;
use crate::send::walk::WalkSink;
use crate::store::confine::Dir;
use crate::tree_hash::Hash;
use crate::wire::{EntryHead, Extent, Meta, SourceIdentity};

mod device_file;
mod filtered;
mod input;
mod local_tree;
mod of_part;
mod unsized_file;

use filtered::FilterSink;
use input::InputSource;
use local_tree::LocalTree;
use of_part::PartFilterSink;

/// A source of files: its entries, and the content of each file. All methods may block.
pub(crate) trait Source: Send + Sync {
    /// Passes every entry to `sink` in one order, each directory before its content. Returns false
    /// if `sink` stopped it.
    fn walk(&self, sink: &dyn WalkSink) -> bool;

    /// Opens the file of an entry that the walk found.
    ///
    /// # Errors
    /// A change of the file since the walk, or the reason why it cannot be read.
    fn open(&self, head: &EntryHead) -> Result<Box<dyn SourceFile>, Failure>;

    /// Begins to open these files, which are opened next, if that takes long.
    fn prepare(&self, _heads: &mut dyn Iterator<Item = &EntryHead>) {}

    /// Returns true if it has files of late size, if the receiver takes them.
    fn has_late_sizes(&self) -> bool {
        false
    }

    /// Sets the reader of the metadata of its entries.
    fn set_metadata(&mut self, _metadata: Arc<MetadataReader>) {}

    /// Sets the filter, if the source applies it itself. Returns false if it does not.
    fn set_filter(&mut self, _filter: Option<&Arc<Filter>>) -> bool {
        false
    }
}

/// An open file of a [`Source`]. Several threads may read it at once.
pub(crate) trait SourceFile: Send + Sync {
    /// Returns the size in bytes when it was opened. A late size is replaced by the size as soon as
    /// that is known.
    fn size(&self) -> u64;

    /// Returns the metadata when it was opened.
    fn meta(&self) -> Meta;

    /// Returns a value that distinguishes this state of the file from every other, if there is one
    /// (LH-COPY-33).
    fn identity(&self) -> Option<SourceIdentity> {
        None
    }

    /// Returns the names of its extended attributes, each terminated by NUL. Empty if it has none
    /// or they are unknown.
    fn attribute_names(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Returns the extents of data in `len` bytes from `offset`, ascending, at most
    /// [`crate::wire::MAX_EXTENTS`]. The rest reads as zeros.
    fn extents(&self, offset: u64, len: u32) -> Result<Vec<Extent>, Failure> {
        let _ = offset;
        Ok(vec![Extent { offset: 0, len }])
    }

    /// Reads from `offset` until `buffer` is full or the file ends. Returns the number of bytes.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, Failure>;

    /// Notes that the receiver has the block at `offset`, so that it is not read again. Only for
    /// files of late size.
    fn release(&self, _offset: u64) {}

    /// Returns true if the block at `offset` has been released.
    fn is_released(&self, _offset: u64) -> bool {
        false
    }

    /// Returns true if the file has not changed since it was opened.
    fn is_unchanged(&self) -> Result<bool, Failure>;

    /// Returns true if the file has not changed since it was opened, once the receiver has all
    /// content. `hash` is the hash of that, some of which an earlier copy may have sent.
    fn is_unchanged_with(&self, hash: Hash) -> Result<bool, Failure> {
        let _ = hash;
        self.is_unchanged()
    }
}

/// The sources of a copy.
pub struct Sources {
    source: Box<dyn Source>,
    /// If set, only files of one part are taken.
    part: Option<PartFilter>,
    /// If set, only what the filter takes is taken.
    filter: Option<Arc<Filter>>,
    metadata: Arc<MetadataReader>,
}

impl std::fmt::Debug for Sources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sources").finish_non_exhaustive()
    }
}

impl Sources {
    /// Creates sources beneath one directory, as a server sends them.
    pub fn beneath(base: Arc<Dir>, paths: &[RelPath], recursive: bool) -> Self {
        Self::from_source(LocalTree::beneath(base, paths, recursive))
    }

    /// Opens local sources as a user names them, with the name that each takes in a destination
    /// directory (empty for `.`, `..` and `/`, whose content goes there). A source that cannot be
    /// opened is reported as a failure when its turn comes. It is an error if none can be opened.
    /// Without `recursive`, a symbolic link named here is followed, as `cp` does.
    pub fn local(
        paths: &[impl AsRef<Path>],
        recursive: bool,
    ) -> Result<(Self, Vec<Vec<u8>>), Error> {
        let (tree, names) = LocalTree::open(paths, recursive)?;
        Ok((Self::from_source(tree), names))
    }

    /// Opens local sources as [`Self::local`] does. Block devices among them are read as files.
    ///
    /// # Errors
    /// No source can be opened.
    pub fn local_with_devices(
        paths: &[impl AsRef<Path>],
        recursive: bool,
    ) -> Result<(Self, Vec<Vec<u8>>), Error> {
        let (tree, names) = LocalTree::open(paths, recursive)?;
        Ok((Self::from_source(tree.with_devices()), names))
    }

    /// Takes an input that can be read once, such as standard input, as the only source. It is sent
    /// while it is read, and at most `max_bytes` of it are in memory. If the other end cannot take
    /// a file of unknown size, or without `max_bytes`, `on_store` is called, and the input is first
    /// stored in a temporary file. Nothing is read before the copy begins.
    ///
    /// # Errors
    /// The input is not open.
    pub fn input(
        input: std::fs::File,
        max_bytes: Option<usize>,
        on_store: impl Fn() + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        let source = InputSource::new(input, max_bytes, Box::new(on_store))?;
        Ok(Self::from_source(source))
    }

    /// Creates sources from any [`Source`].
    pub(crate) fn from_source(source: impl Source + 'static) -> Self {
        Self {
            source: Box::new(source),
            part: None,
            filter: None,
            metadata: Arc::default(),
        }
    }

    /// Keeps what is selected of the metadata of entries, and changes it as the user asks for
    /// (LH-COPY-65).
    #[must_use]
    pub fn keeping(mut self, keep: Preservation, changes: MetadataChanges) -> Self {
        self.metadata = Arc::new(MetadataReader::new(keep, changes));
        self.source.set_metadata(self.metadata.clone());
        self
    }

    /// Returns the reader of the metadata of entries.
    pub(crate) fn metadata(&self) -> &MetadataReader {
        &self.metadata
    }

    /// Restricts the sources to `portion`. With `hard_links`, all names of a file belong to one
    /// part (LH-COPY-49).
    #[must_use]
    pub fn restricted_to(self, portion: Portion, hard_links: bool) -> Self {
        let part = portion.part().map(|part| PartFilter {
            part,
            links_together: hard_links,
        });
        Self { part, ..self }
    }

    /// Restricts the sources to what `filter` takes (LH-COPY-55).
    #[must_use]
    pub fn filtered(mut self, filter: Option<Arc<Filter>>) -> Self {
        let is_set = self.source.set_filter(filter.as_ref());
        Self {
            filter: filter.filter(|_| !is_set),
            ..self
        }
    }

    /// Walks all sources. Returns false if `sink` stopped it.
    pub(crate) fn walk(&self, sink: &dyn WalkSink) -> bool {
        let Some(filter) = &self.filter else {
            return self.walk_part(sink);
        };
        let filtered = FilterSink::new(filter, sink);
        self.walk_part(&filtered) && filtered.report_missing()
    }

    fn walk_part(&self, sink: &dyn WalkSink) -> bool {
        match self.part {
            None => self.source.walk(sink),
            Some(filter) => self.source.walk(&PartFilterSink { filter, sink }),
        }
    }

    /// Returns the source from which their content is read.
    pub(crate) fn source(&self) -> &dyn Source {
        &*self.source
    }

    /// Returns a function that names entries as the user knows them: beneath `prefixes[source]`.
    pub(crate) fn labels(prefixes: Vec<String>) -> EntryLabels {
        Box::new(move |head| {
            let prefix = prefixes
                .get(head.source as usize)
                .map_or("?", String::as_str);
            match (head.path.is_root(), prefix.ends_with('/')) {
                (true, _) => prefix.to_owned(),
                (false, true) => format!("{prefix}{}", head.path),
                (false, false) => format!("{prefix}/{}", head.path),
            }
        })
    }
}
