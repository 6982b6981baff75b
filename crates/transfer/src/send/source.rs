//! Where the files of a copy come from.

use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Failure};
use crate::part::{PartFilter, Portion};
use crate::path::RelPath;
use crate::send::walk::WalkSink;
use crate::store::confine::Dir;
use crate::wire::{Extent, Head, Meta, SourceIdentity};

mod local_tree;
mod of_part;

use local_tree::LocalTree;
use of_part::OfPart;

/// A place that files come from: what there is, and the content of each file. All of it may block.
pub(crate) trait Source: Send + Sync {
    /// Gives `sink` every entry, in one order, each directory before what is in it; false if `sink`
    /// stopped it.
    fn walk(&self, sink: &dyn WalkSink) -> bool;

    /// Opens the file of an entry that the walk found.
    ///
    /// # Errors
    /// What became of it since the walk, or why it can't be read.
    fn open(&self, head: &Head) -> Result<Box<dyn SourceFile>, Failure>;
}

/// An open file of a [`Source`]. Several threads may read it at once.
pub(crate) trait SourceFile: Send + Sync {
    /// Bytes, as it was when it was opened.
    fn size(&self) -> u64;

    /// Permissions and modification time, as they were when it was opened.
    fn meta(&self) -> Meta;

    /// What tells this state of the file from every other; none if there is no such thing
    /// (LH-COPY-33).
    fn identity(&self) -> Option<SourceIdentity> {
        None
    }

    /// Names of its extended attributes, each ended by NUL; empty if it has none or nobody can
    /// tell.
    fn attribute_names(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Where there is data in `len` bytes from `offset`, ascending, at most
    /// [`crate::wire::MAX_EXTENTS`]; the rest reads as zeros.
    fn extents(&self, offset: u64, len: u32) -> Result<Vec<Extent>, Failure> {
        let _ = offset;
        Ok(vec![Extent { offset: 0, len }])
    }

    /// Reads from `offset` until `buffer` is full or the file ends. How many bytes that is.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, Failure>;

    /// Whether it is still what it was when it was opened.
    fn is_unchanged(&self) -> Result<bool, Failure>;
}

/// What is to be copied.
pub struct Sources {
    source: Box<dyn Source>,
    /// Of that, files of one part only.
    filter: Option<PartFilter>,
}

impl std::fmt::Debug for Sources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sources").finish_non_exhaustive()
    }
}

impl Sources {
    /// Sources beneath one directory, as a server sends them.
    pub fn beneath(base: Arc<Dir>, paths: &[RelPath], recursive: bool) -> Self {
        Self::all_of(LocalTree::beneath(base, paths, recursive))
    }

    /// Local sources as a person names them, with the name each takes in a destination directory
    /// (empty for `.`, `..` and `/`, whose content goes there). A source that can't be opened is
    /// reported as a failure when its turn comes; it is an error if none can. Without `recursive` a
    /// symbolic link named here is followed, as `cp` does.
    pub fn local(
        paths: &[impl AsRef<Path>],
        recursive: bool,
    ) -> Result<(Self, Vec<Vec<u8>>), Error> {
        let (tree, names) = LocalTree::open(paths, recursive)?;
        Ok((Self::all_of(tree), names))
    }

    fn all_of(source: impl Source + 'static) -> Self {
        Self {
            source: Box::new(source),
            filter: None,
        }
    }

    /// Of these sources what is of `portion`. With `hard_links`, names of one file are of one part
    /// (LH-COPY-49).
    #[must_use]
    pub fn only(self, portion: Portion, hard_links: bool) -> Self {
        let filter = portion.part().map(|part| PartFilter {
            part,
            links_together: hard_links,
        });
        Self { filter, ..self }
    }

    /// Walks them all; false if `sink` stopped it.
    pub(crate) fn walk(&self, sink: &dyn WalkSink) -> bool {
        match self.filter {
            None => self.source.walk(sink),
            Some(filter) => self.source.walk(&OfPart { filter, sink }),
        }
    }

    /// Where their content is read.
    pub(crate) fn source(&self) -> &dyn Source {
        &*self.source
    }

    /// An entry's name as the user knows it: beneath `prefixes[source]`.
    pub(crate) fn labels(prefixes: Vec<String>) -> Box<dyn Fn(&Head) -> String + Send + Sync> {
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

#[cfg(test)]
impl Sources {
    /// Files from anywhere.
    pub(crate) fn of(source: impl Source + 'static) -> Self {
        Self::all_of(source)
    }
}
