//! Answers requests about the files beneath one directory, and changes names there. No path escapes
//! the directory ([`Dir`], LH-FILES-6).

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::io::Errno;

use super::kept_time::KeptTime;
use super::listing::{Listing, entry};
use super::message::{
    EntryKind, FilesFailure, FilesFailureKind, FilesRequest, FilesResponse, FoundLeftover,
    LeftoverOutcome, MAX_CONTENT_BYTES, MAX_RANGE_BYTES, PathBytes,
};
use super::sum::{MAX_SUMMED_FILES, SumRequest, SummedFile, sum_files};
use super::{leftovers, remove};
use crate::grants::Access;
use crate::path::RelPath;
use crate::store::TEMP_PREFIX;
use crate::store::confine::{Dir, NodeKind, kind_of};
use crate::store::quota::Quota;

/// Permissions of a new directory, before the umask of the process is applied.
const NEW_DIRECTORY_MODE: u32 = 0o777;
/// Permissions of a new directory whose content may be private. A copy sets the final ones.
const PRIVATE_DIRECTORY_MODE: u32 = 0o700;

/// Permissions of a client.
pub trait Permission {
    /// Returns true if `access` is permitted to the directory or file `path`, and everything
    /// beneath it.
    fn may(&self, access: Access, path: &RelPath) -> bool;

    /// Returns the name of the client, as a refusal states it after "the server does not let".
    fn client_name(&self) -> String {
        "you".to_owned()
    }
}

/// Permits whatever the operating system allows this user.
#[derive(Debug, Clone, Copy)]
pub struct AllowAll;

impl Permission for AllowAll {
    fn may(&self, _: Access, _: &RelPath) -> bool {
        true
    }
}

/// The files beneath one directory, for one client.
#[derive(Debug)]
pub struct Files {
    root: Arc<Dir>,
    listing: Listing,
    /// The directory that was listed last, and the last name of the page. `None` if there was
    /// nothing behind it.
    reported: Option<(PathBytes, PathBytes)>,
    /// Maximum number of threads that read files for one answer.
    threads: usize,
    /// Quota to which removed files are given back, if there is one.
    quota: Option<Arc<Quota>>,
}

type FilesResult = Result<FilesResponse, FilesFailure>;

/// Manner of giving an entry another name.
#[derive(Clone, Copy)]
struct RenameTerms {
    /// If true, an existing file may be replaced.
    overwrite: bool,
    /// If true, only a file is renamed, into directories that may be missing (LH-FILES-18).
    as_file: bool,
}

impl Files {
    /// Creates access to the files beneath `root`.
    pub fn new(root: Arc<Dir>) -> Self {
        Self {
            root,
            listing: Listing::default(),
            reported: None,
            threads: 1,
            quota: None,
        }
    }

    /// Gives what is removed back to a quota.
    #[must_use]
    pub(crate) fn with_quota(self, quota: Option<Arc<Quota>>) -> Self {
        Self { quota, ..self }
    }

    /// Sets the maximum number of threads that read files for one answer.
    pub fn set_threads(&mut self, threads: usize) {
        self.threads = threads;
    }

    /// Rewrites a request for the next page (LH-FILES-12) as one with an explicit position, if
    /// there is a next page. Returns any other request unchanged.
    pub(crate) fn with_position(&self, ask: FilesRequest) -> FilesRequest {
        match (&ask, &self.reported) {
            (FilesRequest::More { limit }, Some((path, reported))) => FilesRequest::Look {
                path: path.clone(),
                list: true,
                after: Some(reported.clone()),
                limit: *limit,
            },
            _ => ask,
        }
    }

    /// Returns true if the answer needs the memory of a pass over a directory:
    /// [`super::listing::MAX_KEPT_BYTES`].
    pub(crate) fn needs_pass(&self, ask: &FilesRequest) -> bool {
        match ask {
            FilesRequest::Look {
                path,
                list: true,
                after,
                ..
            } => RelPath::from_bytes(&path.0).is_ok_and(|path| {
                self.listing
                    .needs_pass(&path, after.as_ref().map(|after| &after.0[..]))
            }),
            _ => false,
        }
    }

    /// Returns the number of bytes that are kept from one answer to the next.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.listing.kept_bytes()
    }

    /// Answers a request. Blocking; long work ends early once `stop` is set.
    pub fn answer(
        &mut self,
        ask: &FilesRequest,
        permission: &dyn Permission,
        stop: &AtomicBool,
    ) -> FilesResponse {
        let ask = self.with_position(ask.clone());
        let answered = match &ask {
            FilesRequest::Look {
                path,
                list,
                after,
                limit,
            } => {
                let answered = self.look(path, *list, after.as_ref(), *limit, permission);
                self.reported = match &answered {
                    Ok(FilesResponse::Entries {
                        next: Some(next), ..
                    }) => Some((path.clone(), next.clone())),
                    _ => None,
                };
                answered
            }
            FilesRequest::More { .. } => Ok(FilesResponse::Entries {
                entries: Vec::new(),
                next: None,
            }),
            FilesRequest::MakeDirectory { path, parents } => {
                self.make_directory(path, *parents, permission)
            }
            FilesRequest::Rename {
                from,
                to,
                overwrite,
                keep_time,
            } => self.keeping_time(*keep_time, from, || {
                let terms = RenameTerms {
                    overwrite: *overwrite,
                    as_file: false,
                };
                self.rename(from, to, terms, permission)
            }),
            FilesRequest::RenameFile { from, to } => self.keeping_time(true, from, || {
                let terms = RenameTerms {
                    overwrite: false,
                    as_file: true,
                };
                self.rename(from, to, terms, permission)
            }),
            FilesRequest::Remove {
                path,
                recursive,
                keep_time,
            } => self.keeping_time(*keep_time, path, || {
                self.remove(path, *recursive, permission, stop)
            }),
            FilesRequest::Read { path } => self.read(path, 0, MAX_CONTENT_BYTES, permission),
            FilesRequest::ReadRange { path, offset } => {
                self.read(path, *offset, MAX_RANGE_BYTES, permission)
            }
            FilesRequest::Sum {
                paths,
                algorithm,
                coarse,
            } => {
                let request = SumRequest {
                    algorithm: *algorithm,
                    coarse: *coarse,
                };
                Ok(self.sum(paths, request, permission, stop))
            }
            FilesRequest::Leftovers {
                path,
                after,
                remove_older_than_seconds,
            } => self.leftovers(path, after.as_ref(), *remove_older_than_seconds, permission),
        };
        answered.unwrap_or_else(FilesResponse::Failed)
    }

    fn look(
        &mut self,
        path: &PathBytes,
        list: bool,
        after: Option<&PathBytes>,
        limit: Option<u32>,
        permission: &dyn Permission,
    ) -> FilesResult {
        let place = plain(path)?;
        require(permission, Access::Read, &place, path)?;
        let failed = |errno| FilesFailure::from_errno(errno, path);
        let stat = self.root.stat(&place).map_err(failed)?;
        if list && kind_of(&stat) == NodeKind::Directory {
            let dir = self.root.open_dir(&place).map_err(failed)?;
            let after = after.map(|after| &after.0[..]);
            let (entries, next) =
                self.listing
                    .page(&dir, &place, after, limit)
                    .map_err(|failure| FilesFailure {
                        path: path.clone(),
                        ..failure
                    })?;
            return Ok(FilesResponse::Entries { entries, next });
        }
        let mut found = entry(path.clone(), &stat);
        if found.kind == EntryKind::Symlink {
            found.target = self.root.read_link(&place).ok().map(PathBytes);
        }
        Ok(FilesResponse::Entries {
            entries: vec![found],
            next: None,
        })
    }

    fn make_directory(
        &self,
        path: &PathBytes,
        parents: bool,
        permission: &dyn Permission,
    ) -> FilesResult {
        let place = plain(path)?;
        let failed = |errno| FilesFailure::from_errno(errno, path);
        // The root exists, so this succeeds for a key that may create something in it.
        if place.is_root() && parents && permission.may(Access::Create, &place) {
            return Ok(FilesResponse::Changed);
        }
        require_change(permission, Access::Create, &place, path)?;
        if parents {
            self.make_with_parents(place, NEW_DIRECTORY_MODE, permission)
                .map_err(failed)?;
            return Ok(FilesResponse::Changed);
        }
        let (parent, name) = place.split_last().ok_or(failed(Errno::EXIST))?;
        let parent = self.root.handle(&parent).map_err(failed)?;
        match parent.make_dir(OsStr::from_bytes(name), NEW_DIRECTORY_MODE) {
            Ok(true) => Ok(FilesResponse::Changed),
            // A key that may only create does not learn what exists instead.
            Ok(false) | Err(Errno::NOTDIR | Errno::LOOP) => Err(failed(Errno::EXIST)),
            Err(errno) => Err(failed(errno)),
        }
    }

    /// Creates a directory and those above it that the client may create, unless they exist.
    fn make_with_parents(
        &self,
        directory: RelPath,
        mode: u32,
        permission: &dyn Permission,
    ) -> Result<(), Errno> {
        for place in with_parents(directory, permission) {
            let (parent, name) = place.split_last().ok_or(Errno::EXIST)?;
            let parent = self.root.handle(&parent)?;
            parent.make_dir(OsStr::from_bytes(name), mode)?;
        }
        Ok(())
    }

    fn rename(
        &self,
        from: &PathBytes,
        to: &PathBytes,
        terms: RenameTerms,
        permission: &dyn Permission,
    ) -> FilesResult {
        let RenameTerms { overwrite, as_file } = terms;
        let (source, mut place) = (plain(from)?, plain(to)?);
        require_change(permission, Access::Write, &source, from)?;
        let (source_parent, source_name) = source.split_last().ok_or(refused(from))?;
        // If the destination is a directory, the entry is moved into it. Whether it is one is
        // revealed only to a key that may write there.
        let may_look = place.is_root() || permission.may(Access::Write, &place);
        let is_directory = |place: &RelPath| {
            let stat = self.root.stat(place);
            stat.is_ok_and(|stat| kind_of(&stat) == NodeKind::Directory)
        };
        if !as_file && may_look && is_directory(&place) {
            place = place
                .child(source_name)
                .map_err(|error| FilesFailure::not_plain(error, to))?;
        }
        require_change(permission, Access::Write, &place, to)?;
        // A key that may read the destination but not the source must not gain read access by
        // moving.
        if permission.may(Access::Read, &place) {
            require(permission, Access::Read, &source, from)?;
        }
        let (parent, name) = place.split_last().ok_or(refused(to))?;
        if place == source {
            return Err(FilesFailure::from_errno(Errno::EXIST, to));
        }
        if place.is_within(&source) {
            return Err(FilesFailure::new(FilesFailureKind::IntoItself, to));
        }
        let source_dir = self
            .root
            .handle(&source_parent)
            .map_err(|errno| FilesFailure::from_errno(errno, from))?;
        let (source_name, name) = (OsStr::from_bytes(source_name), OsStr::from_bytes(name));
        let stat = source_dir
            .stat_name(source_name)
            .map_err(|errno| FilesFailure::from_errno(errno, from))?;
        if as_file {
            if kind_of(&stat) != NodeKind::File || stat.st_nlink > 1 {
                return Err(FilesFailure::with_detail(
                    FilesFailureKind::Io,
                    from,
                    "not a regular file, or one with several names",
                ));
            }
            self.make_private(&parent, to, permission)?;
        }
        let dir = self
            .root
            .handle(&parent)
            .map_err(|errno| FilesFailure::from_errno(errno, to))?;
        if is_directory(&place) {
            return Err(FilesFailure::from_errno(Errno::EXIST, to));
        }
        if overwrite
            && let Ok(there) = dir.stat_name(name)
            && kind_of(&there) == NodeKind::Other
        {
            let what = "a device, FIFO or socket, which is never replaced: \
                        remove it, or choose another name";
            return Err(FilesFailure::with_detail(
                FilesFailureKind::Exists,
                to,
                what,
            ));
        }
        let replaced = dir.stat_name(name).ok().filter(|_| overwrite);
        source_dir
            .rename_into(source_name, &dir, name, overwrite)
            .map_err(|errno| FilesFailure::from_errno(errno, to))?;
        if let (Some(quota), Some(replaced)) = (&self.quota, replaced) {
            quota.removed(&replaced);
        }
        Ok(FilesResponse::Changed)
    }

    /// Creates the directories that are missing above `to`, as far as the client may.
    fn make_private(
        &self,
        directory: &RelPath,
        to: &PathBytes,
        permission: &dyn Permission,
    ) -> Result<(), FilesFailure> {
        let may_be_made =
            !directory.is_root() && change_refused(permission, Access::Create, directory).is_none();
        if !may_be_made || self.root.handle(directory).is_ok() {
            return Ok(());
        }
        self.make_with_parents(directory.clone(), PRIVATE_DIRECTORY_MODE, permission)
            .map_err(|errno| FilesFailure::from_errno(errno, to))
    }

    fn remove(
        &self,
        path: &PathBytes,
        recursive: bool,
        permission: &dyn Permission,
        stop: &AtomicBool,
    ) -> FilesResult {
        let place = plain(path)?;
        require_change(permission, Access::Write, &place, path)?;
        let (parent, name) = place.split_last().ok_or(refused(path))?;
        let failed = |errno| FilesFailure::from_errno(errno, path);
        let dir = self.root.handle(&parent).map_err(failed)?;
        let name = OsStr::from_bytes(name);
        let quota = self.quota.as_deref();
        match kind_of(&dir.stat_name(name).map_err(failed)?) {
            NodeKind::Directory if !recursive => Err(failed(Errno::ISDIR)),
            NodeKind::Directory => {
                remove::remove_directory(&dir, name, quota, stop).map_err(|(errno, beneath)| {
                    // Names within the directory are reported only to a key that may read them.
                    let reported = place.join(&beneath).unwrap_or_else(|_| place.clone());
                    match permission.may(Access::Read, &place) && !beneath.is_root() {
                        true => FilesFailure::from_errno(
                            errno,
                            &PathBytes(reported.as_bytes().to_vec()),
                        ),
                        false => failed(errno),
                    }
                })
            }
            _ => remove::remove_entry(&dir, name, quota).map_err(failed),
        }?;
        Ok(FilesResponse::Changed)
    }

    /// Makes a change that takes an entry out of its directory. With `keeps`, the directory gets
    /// the modification time back that it had before.
    fn keeping_time(
        &self,
        keeps: bool,
        path: &PathBytes,
        change: impl FnOnce() -> FilesResult,
    ) -> FilesResult {
        let parent = plain(path).ok().filter(|_| keeps).and_then(|place| {
            let (parent, _) = place.split_last()?;
            KeptTime::read(&self.root, &parent)
        });
        let changed = change()?;
        if let Some(parent) = parent {
            parent.restore();
        }
        Ok(changed)
    }

    fn read(
        &self,
        path: &PathBytes,
        offset: u64,
        max_bytes: usize,
        permission: &dyn Permission,
    ) -> FilesResult {
        let place = plain(path)?;
        require(permission, Access::Read, &place, path)?;
        let read = self.root.read_range(&place, offset, max_bytes);
        let (content, is_cut) = read.map_err(|errno| FilesFailure::from_errno(errno, path))?;
        Ok(FilesResponse::Content {
            content: PathBytes(content),
            is_cut,
        })
    }

    fn sum(
        &self,
        paths: &[PathBytes],
        request: SumRequest,
        permission: &dyn Permission,
        stop: &AtomicBool,
    ) -> FilesResponse {
        let readable = |path| {
            let place = plain(path)?;
            require(permission, Access::Read, &place, path)?;
            Ok(place)
        };
        let files: Vec<SummedFile<'_>> = paths
            .iter()
            .take(MAX_SUMMED_FILES)
            .map(|path| SummedFile {
                place: readable(path),
                path,
            })
            .collect();
        let sums = sum_files(&self.root, &files, request, self.threads, stop);
        FilesResponse::Sums { sums }
    }

    fn leftovers(
        &self,
        path: &PathBytes,
        after: Option<&PathBytes>,
        remove_older_than_seconds: Option<u64>,
        permission: &dyn Permission,
    ) -> FilesResult {
        let place = plain(path)?;
        require(permission, Access::Read, &place, path)?;
        if remove_older_than_seconds.is_some() {
            require(permission, Access::Write, &place, path)?;
        }
        let dir = self
            .root
            .open_dir(&place)
            .map_err(|errno| FilesFailure::from_errno(errno, path))?;
        let page = leftovers::leftovers_page(&Arc::new(dir), after, remove_older_than_seconds);
        let (leftovers, next) = page.map_err(|failure| FilesFailure::from_store(&failure, path))?;
        let is_removed = |found: &&FoundLeftover| found.outcome == LeftoverOutcome::Removed;
        for removed in leftovers.iter().filter(is_removed) {
            if let Some(quota) = &self.quota {
                quota.removed_leftover(removed.disk_bytes);
            }
        }
        Ok(FilesResponse::Leftovers { leftovers, next })
    }
}

/// Returns a directory and those above it that the client may create, from the top down.
/// Directories above the granted one are not created, so they must exist.
fn with_parents(directory: RelPath, permission: &dyn Permission) -> VecDeque<RelPath> {
    let mut all = VecDeque::from([directory.clone()]);
    let mut above = directory;
    while let Some((parent, _)) = above.split_last() {
        if parent.is_root() || change_refused(permission, Access::Create, &parent).is_some() {
            break;
        }
        all.push_front(parent.clone());
        above = parent;
    }
    all
}

fn plain(path: &PathBytes) -> Result<RelPath, FilesFailure> {
    RelPath::from_bytes(&path.0).map_err(|error| FilesFailure::not_plain(error, path))
}

fn refused(path: &PathBytes) -> FilesFailure {
    FilesFailure::new(FilesFailureKind::RefusedPath, path)
}

/// Requires `access` to `place` itself (LH-FILES-8).
fn require(
    permission: &dyn Permission,
    access: Access,
    place: &RelPath,
    path: &PathBytes,
) -> Result<(), FilesFailure> {
    match permission.may(access, place) {
        true => Ok(()),
        false => Err(not_granted(permission, access, path)),
    }
}

/// Requires that the name `place` may be created or changed: its parent is granted, and the name is
/// not reserved for copies (LH-FILES-8, LH-FILES-9).
fn require_change(
    permission: &dyn Permission,
    access: Access,
    place: &RelPath,
    path: &PathBytes,
) -> Result<(), FilesFailure> {
    match change_refused(permission, access, place) {
        None => Ok(()),
        Some(FilesFailureKind::NotGranted) => Err(not_granted(permission, access, path)),
        Some(kind) => Err(FilesFailure::new(kind, path)),
    }
}

fn change_refused(
    permission: &dyn Permission,
    access: Access,
    place: &RelPath,
) -> Option<FilesFailureKind> {
    let Some((parent, _)) = place.split_last() else {
        return Some(FilesFailureKind::RefusedPath);
    };
    if !permission.may(access, &parent) {
        return Some(FilesFailureKind::NotGranted);
    }
    let mut names = place.as_bytes().split(|&byte| byte == b'/');
    names
        .any(|name| name.starts_with(TEMP_PREFIX.as_bytes()))
        .then_some(FilesFailureKind::ReservedName)
}

fn not_granted(permission: &dyn Permission, access: Access, path: &PathBytes) -> FilesFailure {
    let verb = match access {
        Access::Read => "read",
        Access::Create => "make",
        Access::Write => "change",
    };
    let shown = longhaul_proto::text::printable(&path.0);
    // A path of 4095 bytes is too long for a detail, and its beginning is enough.
    let shown: String = shown.chars().take(200).collect();
    let detail = format!(
        "the server does not let {} {verb} /{shown}; ask its operator",
        permission.client_name()
    );
    FilesFailure::with_detail(FilesFailureKind::NotGranted, path, &detail)
}
