//! Lists whole trees at any place, many directories at a time.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use longhaul_filter::{EntryKind as FilteredKind, Filter, IGNORE_FILE_NAME, IgnoreRules};
use longhaul_sync::{Modified, Node, NodeKind, Tree};
use longhaul_transfer::TEMP_PREFIX;
use longhaul_transfer::files::message::{
    EntryKind, FilesFailure, FilesFailureKind, FilesRequest, FilesResponse, ListingEntry, PathBytes,
};
use longhaul_transfer::path::RelPath;

use crate::files::show::{failure_of, join};
use crate::place::{Location, Place, PlacePath};
use crate::target::Target;

pub mod store_times;

/// Maximum number of questions that are asked without waiting.
const MAX_QUESTIONS: usize = 128;
/// Maximum length of the paths in these questions, in bytes. They fit into the buffers of any
/// connection.
const MAX_QUESTION_BYTES: usize = 16 << 10;

/// A listed tree.
#[derive(Debug, Default)]
pub struct Listing {
    /// Entries below the root, and the root itself with the empty path. Empty if there is no such
    /// entry.
    pub tree: Tree,
    /// Rules of the ignore files in the tree, if the filter applies them.
    pub ignored: IgnoreRules,
    /// Failures to list.
    pub failures: Vec<FilesFailure>,
}

/// Parses a path of any place. A local path need not exist, but its directory must.
///
/// # Errors
/// The text is not a path.
pub fn parse_path(text: &OsStr) -> Result<PlacePath> {
    let Target::Local(path) = Target::parse(text)? else {
        return PlacePath::parse(text);
    };
    let directory = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => PathBuf::from("."),
        Some(parent) => parent.to_path_buf(),
        None => path.clone(),
    };
    Ok(match path.file_name().filter(|_| !path.is_dir()) {
        Some(name) => PlacePath {
            location: Location::Here(directory),
            path: PathBytes(name.as_bytes().to_vec()),
        },
        None => PlacePath {
            location: Location::Here(path),
            path: PathBytes::default(),
        },
    })
}

/// Parses a path of any place, of a store, or of a host with an SFTP server.
///
/// # Errors
/// The text is not a path.
pub fn parse_listed(text: &OsStr) -> Result<PlacePath> {
    match Target::parse(text)? {
        Target::Endpoint(path) if path.is_listable() => Ok(PlacePath::in_store(&path)),
        Target::Sftp(path) => Ok(PlacePath::at_sftp(&path)),
        _ => parse_path(text),
    }
}

/// Returns the kind of the entry at `path`. `None` if there is none.
///
/// # Errors
/// The place is gone.
pub async fn kind(place: &mut Place, path: &PathBytes) -> Result<Option<NodeKind>> {
    Ok(describe(place, path)
        .await?
        .ok()
        .map(|entry| node_kind(entry.kind)))
}

/// Describes the entry at `path`. A host follows a link that is named, a server follows none.
async fn describe(
    place: &mut Place,
    path: &PathBytes,
) -> Result<Result<ListingEntry, FilesFailure>> {
    let look = FilesRequest::Look {
        path: path.clone(),
        list: false,
        after: None,
        limit: None,
    };
    let found = match place.ask(look).await? {
        FilesResponse::Entries { entries, .. } => entries.into_iter().next(),
        other => {
            if let Some(failure) = failure_of(other)? {
                return Ok(Err(failure));
            }
            None
        }
    };
    let Some(mut entry) = found else {
        return Ok(Err(FilesFailure::new(FilesFailureKind::NotFound, path)));
    };
    if entry.kind == EntryKind::Symlink && matches!(place, Place::Login(_) | Place::Sftp(_)) {
        entry.kind = EntryKind::Directory;
    }
    Ok(Ok(entry))
}

/// Lists the tree at `root`, as far as the filter takes names. Content of a directory that is left
/// out is not listed. `other` has the rules of the ignore files at the other end, which apply here
/// as well.
///
/// # Errors
/// The place is gone. What cannot be listed is in [`Listing::failures`].
pub async fn list(
    place: &mut Place,
    root: &PathBytes,
    filter: &Filter,
    other: &IgnoreRules,
) -> Result<Listing> {
    let mut walk = TreeWalk {
        place,
        root,
        filter,
        other,
        ahead: VecDeque::new(),
        partial: BTreeMap::new(),
        listing: Listing::default(),
    };
    walk.begin().await?;
    while !walk.ahead.is_empty() {
        walk.step().await?;
    }
    Ok(walk.listing)
}

/// A page of a directory that is to be listed.
struct Page {
    /// Path of the directory below the root.
    directory: Vec<u8>,
    after: Option<PathBytes>,
}

struct TreeWalk<'a> {
    place: &'a mut Place,
    root: &'a PathBytes,
    filter: &'a Filter,
    other: &'a IgnoreRules,
    ahead: VecDeque<Page>,
    /// Pages received of directories that have more.
    partial: BTreeMap<Vec<u8>, Vec<ListingEntry>>,
    listing: Listing,
}

impl TreeWalk<'_> {
    async fn begin(&mut self) -> Result<()> {
        let entry = match describe(self.place, self.root).await? {
            Ok(entry) => entry,
            Err(failure) if failure.kind == FilesFailureKind::NotFound => return Ok(()),
            Err(failure) => {
                self.listing.failures.push(failure);
                return Ok(());
            }
        };
        if entry.kind == EntryKind::Directory {
            self.ahead.push_back(Page {
                directory: Vec::new(),
                after: None,
            });
        }
        self.listing.tree.insert(Vec::new(), self.node(&entry));
        Ok(())
    }

    /// Lists the next directories.
    async fn step(&mut self) -> Result<()> {
        let pages = self.next_pages();
        let looks: Vec<FilesRequest> = pages
            .iter()
            .map(|page| FilesRequest::Look {
                path: self.path_of(&page.directory),
                list: true,
                after: page.after.clone(),
                limit: None,
            })
            .collect();
        let answers = self.place.ask_all(&looks).await?;
        let mut complete = Vec::new();
        for (page, answer) in pages.into_iter().zip(answers) {
            let (entries, next) = match answer {
                FilesResponse::Entries { entries, next } => (entries, next),
                other => {
                    self.listing.failures.extend(failure_of(other)?);
                    self.note_excluded(&page.directory);
                    continue;
                }
            };
            let mut all = self.partial.remove(&page.directory).unwrap_or_default();
            all.extend(entries);
            match next {
                Some(next) => {
                    self.partial.insert(page.directory.clone(), all);
                    self.ahead.push_front(Page {
                        after: Some(next),
                        ..page
                    });
                }
                None => complete.push((page.directory, all)),
            }
        }
        self.read_ignore_files(&complete).await?;
        for (directory, entries) in complete {
            self.take(&directory, entries);
        }
        Ok(())
    }

    /// Returns as many pages as may be asked for at once.
    fn next_pages(&mut self) -> Vec<Page> {
        let (mut pages, mut bytes) = (Vec::new(), 0);
        while pages.len() < MAX_QUESTIONS
            && let Some(page) = self.ahead.front()
        {
            bytes += self.root.0.len() + page.directory.len();
            if bytes > MAX_QUESTION_BYTES && !pages.is_empty() {
                break;
            }
            pages.extend(self.ahead.pop_front());
        }
        pages
    }

    async fn read_ignore_files(&mut self, complete: &[(Vec<u8>, Vec<ListingEntry>)]) -> Result<()> {
        if !self.filter.rules().ignore_files {
            return Ok(());
        }
        let is_rules = |entry: &ListingEntry| {
            entry.kind == EntryKind::File && entry.name.0 == IGNORE_FILE_NAME.as_bytes()
        };
        for (directory, entries) in complete {
            if !entries.iter().any(is_rules) {
                continue;
            }
            let path = join(&self.path_of(directory), IGNORE_FILE_NAME.as_bytes());
            match self.place.ask(FilesRequest::Read { path }).await? {
                FilesResponse::Content { content, .. } => {
                    self.listing.ignored.add(directory, &content.0);
                }
                FilesResponse::Failed(failure)
                    if failure.kind == FilesFailureKind::NotUnderstood =>
                {
                    bail!(
                        "the other side is of an earlier release and cannot read \
                         {IGNORE_FILE_NAME} for a comparison: upgrade it, or give \
                         --no-ignore-files"
                    );
                }
                other => self.listing.failures.extend(failure_of(other)?),
            }
        }
        Ok(())
    }

    /// Adds the entries of a directory.
    fn take(&mut self, directory: &[u8], entries: Vec<ListingEntry>) {
        for entry in entries {
            let name = &entry.name.0;
            if name.starts_with(TEMP_PREFIX.as_bytes()) {
                continue;
            }
            let path = match directory.is_empty() {
                true => name.clone(),
                false => [directory, b"/", name].concat(),
            };
            if !is_name(name) {
                self.listing.failures.push(FilesFailure::with_detail(
                    FilesFailureKind::RefusedPath,
                    &self.path_of(&path),
                    "not the name of an entry",
                ));
                self.note_excluded(directory);
                continue;
            }
            let is_directory = entry.kind == EntryKind::Directory;
            let is_taken = self.filter.takes_name(&path, is_directory)
                && !self.listing.ignored.leaves_out(&path, is_directory)
                && !self.other.leaves_out(&path, is_directory);
            if !is_taken {
                self.note_excluded(directory);
                continue;
            }
            if is_directory {
                self.ahead.push_back(Page {
                    directory: path.clone(),
                    after: None,
                });
            }
            let node = self.node(&entry);
            self.listing.tree.insert(path, node);
        }
    }

    /// Notes that a directory holds entries that the listing does not have.
    fn note_excluded(&mut self, directory: &[u8]) {
        if let Some(node) = self.listing.tree.get_mut(directory) {
            node.holds_excluded = true;
        }
    }

    fn node(&self, entry: &ListingEntry) -> Node {
        let kind = node_kind(entry.kind);
        let milliseconds = i64::from(entry.nanoseconds.unwrap_or(0) / 1_000_000);
        let filtered = match kind {
            NodeKind::File => FilteredKind::File {
                bytes: entry.size,
                modified_ms: entry
                    .modified
                    .saturating_mul(1000)
                    .saturating_add(milliseconds),
            },
            NodeKind::Directory => FilteredKind::Directory,
            NodeKind::Symlink | NodeKind::Other => FilteredKind::Other,
        };
        Node {
            kind,
            bytes: if kind == NodeKind::File {
                entry.size
            } else {
                0
            },
            // A copy keeps no other bits.
            mode: entry.mode & 0o777,
            modified: Modified {
                seconds: entry.modified,
                nanoseconds: entry.nanoseconds,
            },
            target: entry.target.clone().map(|target| target.0),
            is_taken: self.filter.takes_content(filtered),
            holds_excluded: false,
        }
    }

    fn path_of(&self, directory: &[u8]) -> PathBytes {
        path_below(self.root, directory)
    }
}

fn node_kind(kind: EntryKind) -> NodeKind {
    match kind {
        EntryKind::File => NodeKind::File,
        EntryKind::Directory => NodeKind::Directory,
        EntryKind::Symlink => NodeKind::Symlink,
        EntryKind::Other => NodeKind::Other,
    }
}

/// Returns the path of an entry below `root`.
pub fn path_below(root: &PathBytes, path: &[u8]) -> PathBytes {
    match path.is_empty() {
        true => root.clone(),
        false => join(root, path),
    }
}

/// Returns true if these bytes of a listing name one entry. Others would lead out of the directory.
fn is_name(bytes: &[u8]) -> bool {
    RelPath::root()
        .child(bytes)
        .is_ok_and(|path| !path.is_root())
}

/// Returns true if the path is below a directory and leads nowhere else.
pub fn is_plain(path: &Path) -> bool {
    let is_name = |part| matches!(part, std::path::Component::Normal(_));
    path.components().next().is_some() && path.components().all(is_name)
}

#[cfg(test)]
mod tests {
    use longhaul_filter::FilterRules;

    use super::*;

    fn entry(name: &[u8], kind: EntryKind) -> ListingEntry {
        ListingEntry {
            name: PathBytes(name.to_vec()),
            kind,
            size: 1,
            mode: 0o644,
            modified: 1,
            nanoseconds: None,
            target: None,
        }
    }

    /// An end may lie about its names. One outside the directory would be renamed or removed.
    #[test]
    fn names_that_lead_elsewhere_are_failures() {
        let (filter, none) = (
            Filter::new(FilterRules::default()).unwrap(),
            IgnoreRules::default(),
        );
        let root = PathBytes(b"photos".to_vec());
        let mut walk = TreeWalk {
            place: &mut Place::Here(None),
            root: &root,
            filter: &filter,
            other: &none,
            ahead: VecDeque::new(),
            partial: BTreeMap::new(),
            listing: Listing::default(),
        };
        let bad = [
            &b".."[..],
            b".",
            b"",
            b"/etc",
            b"../.bashrc",
            b"a/b",
            b"a\0b",
        ];
        walk.take(b"", vec![entry(b"sub", EntryKind::Directory)]);
        for (name, kind) in bad
            .iter()
            .flat_map(|name| [EntryKind::File, EntryKind::Directory].map(|kind| (name, kind)))
        {
            walk.take(b"sub", vec![entry(name, kind)]);
        }
        walk.take(b"sub", vec![entry(b"...", EntryKind::File)]);
        let paths: Vec<&[u8]> = walk.listing.tree.keys().map(Vec::as_slice).collect();
        assert_eq!(paths, [&b"sub"[..], b"sub/..."]);
        assert_eq!(walk.ahead.len(), 1);
        assert_eq!(walk.listing.failures.len(), 2 * bad.len());
        assert!(walk.listing.tree[&b"sub"[..]].holds_excluded);
    }
}
