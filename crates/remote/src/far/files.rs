//! Lists files and changes names as the user who logged in. Typed paths are resolved as that user
//! means them, and [`Files`] does the rest.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::available_parallelism;

use longhaul_transfer::files::message::{
    FilesFailure, FilesFailureKind, FilesRequest, FilesResponse, PathBytes, SumOutcome,
};
use longhaul_transfer::files::{AllowAll, Files};
use longhaul_transfer::path::RelPath;
use longhaul_transfer::store::confine::Dir;
use longhaul_transfer::typed_path::source_name;

use super::resolve;
use crate::login::below_home;

/// The files of this host that its user may access.
#[derive(Default)]
pub(super) struct LoginFiles {
    files: Option<Files>,
    /// Paths of the last listing, which the next page continues.
    looked_at: QuestionPaths,
}

impl LoginFiles {
    /// Answers a question. Blocking.
    pub(super) fn answer(&mut self, home: &Path, ask: &FilesRequest) -> FilesResponse {
        self.try_answer(home, ask)
            .unwrap_or_else(FilesResponse::Failed)
    }

    fn try_answer(
        &mut self,
        home: &Path,
        ask: &FilesRequest,
    ) -> Result<FilesResponse, FilesFailure> {
        let files = match &mut self.files {
            Some(files) => files,
            None => {
                let root = Dir::open(Path::new("/"));
                let root = root
                    .map_err(|errno| FilesFailure::from_errno(errno, &PathBytes(b"/".to_vec())))?;
                let mut files = Files::new(Arc::new(root));
                files.set_threads(available_parallelism().map_or(1, usize::from));
                self.files.insert(files)
            }
        };
        let (real, paths) = with_real_paths(home, ask)?;
        // Never set: work ends with the process, which ends with ssh.
        let stop = AtomicBool::new(false);
        let answer = files.answer(&real, &AllowAll, &stop);
        Ok(match ask {
            FilesRequest::More { .. } => self.looked_at.with_typed_paths(answer),
            FilesRequest::Look { .. } => {
                self.looked_at = paths;
                self.looked_at.with_typed_paths(answer)
            }
            _ => paths.with_typed_paths(answer),
        })
    }
}

/// Paths of a question.
#[derive(Default)]
struct QuestionPaths {
    /// Paths beneath the root, with their typed forms.
    known: Vec<(PathBytes, PathBytes)>,
    /// The listed entry itself, as it was typed.
    itself: Option<PathBytes>,
}

impl QuestionPaths {
    fn resolve_name(&mut self, home: &Path, typed: &PathBytes) -> Result<PathBytes, FilesFailure> {
        let real =
            resolve::name(home, &typed.0).map_err(|error| FilesFailure::not_plain(error, typed))?;
        Ok(self.keep(real, typed))
    }

    /// Resolves a name that is removed or changed. A link is never followed, with or without a
    /// slash. A path like `.`, which may be typed by mistake for the content of a directory, is
    /// refused.
    fn resolve_changed_name(
        &mut self,
        home: &Path,
        typed: &PathBytes,
    ) -> Result<PathBytes, FilesFailure> {
        if source_name(below_home(&typed.0)).is_empty() {
            return Err(FilesFailure::new(FilesFailureKind::RefusedPath, typed));
        }
        let slashes = typed
            .0
            .iter()
            .rev()
            .take_while(|&&byte| byte == b'/')
            .count();
        let bare = typed.0.get(..typed.0.len() - slashes).unwrap_or_default();
        let real =
            resolve::name(home, bare).map_err(|error| FilesFailure::not_plain(error, typed))?;
        Ok(self.keep(real, typed))
    }

    /// Resolves a file that is read. Its user's links are followed.
    fn resolve_content(
        &mut self,
        home: &Path,
        typed: &PathBytes,
    ) -> Result<PathBytes, FilesFailure> {
        let real = resolve::source(home, &typed.0, true)
            .map_err(|reason| FilesFailure::with_detail(FilesFailureKind::Io, typed, &reason))?;
        Ok(self.keep(real, typed))
    }

    /// Resolves a path to be listed: a link to a directory is listed as that directory, as ls does.
    fn resolve_listed(
        &mut self,
        home: &Path,
        typed: &PathBytes,
    ) -> Result<PathBytes, FilesFailure> {
        match resolve::typed(home, &typed.0).is_dir() {
            true => {
                let directory = PathBytes([&typed.0[..], b"/"].concat());
                let directory = if typed.0.is_empty() {
                    typed
                } else {
                    &directory
                };
                let real = resolve::name(home, &directory.0);
                let real = real.map_err(|error| FilesFailure::not_plain(error, typed))?;
                Ok(self.keep(real, typed))
            }
            false => self.resolve_name(home, typed),
        }
    }

    fn keep(&mut self, real: RelPath, typed: &PathBytes) -> PathBytes {
        let real = PathBytes(real.as_bytes().to_vec());
        self.known.push((real.clone(), typed.clone()));
        real
    }

    fn typed(&self, real: &PathBytes) -> PathBytes {
        let found = self.known.iter().find(|(known, _)| known == real);
        found.map_or_else(
            || PathBytes([b"/", &real.0[..]].concat()),
            |(_, typed)| match typed.0.is_empty() {
                true => PathBytes(b"~".to_vec()),
                false => typed.clone(),
            },
        )
    }

    /// Replaces real paths in an answer by the typed ones.
    fn with_typed_paths(&self, answer: FilesResponse) -> FilesResponse {
        match answer {
            FilesResponse::Failed(failure) => FilesResponse::Failed(FilesFailure {
                path: self.typed(&failure.path),
                ..failure
            }),
            FilesResponse::Entries { mut entries, next } => {
                if let (Some(itself), Some(entry)) = (&self.itself, entries.first_mut()) {
                    entry.name = itself.clone();
                }
                FilesResponse::Entries { entries, next }
            }
            FilesResponse::Sums { sums } => FilesResponse::Sums {
                sums: sums
                    .into_iter()
                    .map(|sum| self.with_typed_path(sum))
                    .collect(),
            },
            other => other,
        }
    }

    fn with_typed_path(&self, outcome: SumOutcome) -> SumOutcome {
        match outcome {
            SumOutcome::Failed(failure) => SumOutcome::Failed(FilesFailure {
                path: self.typed(&failure.path),
                ..failure
            }),
            sum @ SumOutcome::Sum { .. } => sum,
        }
    }
}

/// Replaces typed paths in a question by real ones.
fn with_real_paths(
    home: &Path,
    ask: &FilesRequest,
) -> Result<(FilesRequest, QuestionPaths), FilesFailure> {
    let mut paths = QuestionPaths::default();
    let ask = match ask.clone() {
        FilesRequest::Look {
            path,
            list,
            after,
            limit,
        } => {
            let real = match list && resolve::typed(home, &path.0).is_dir() {
                true => paths.resolve_listed(home, &path)?,
                false => {
                    paths.itself = Some(path.clone());
                    paths.resolve_name(home, &path)?
                }
            };
            FilesRequest::Look {
                path: real,
                list,
                after,
                limit,
            }
        }
        more @ FilesRequest::More { .. } => more,
        FilesRequest::MakeDirectory { path, parents } => FilesRequest::MakeDirectory {
            path: paths.resolve_name(home, &path)?,
            parents,
        },
        FilesRequest::Rename {
            from,
            to,
            overwrite,
            keep_time,
        } => FilesRequest::Rename {
            from: paths.resolve_changed_name(home, &from)?,
            // A link to a directory is followed.
            to: paths.resolve_listed(home, &to)?,
            overwrite,
            keep_time,
        },
        FilesRequest::RenameFile { from, to } => FilesRequest::RenameFile {
            from: paths.resolve_changed_name(home, &from)?,
            to: paths.resolve_listed(home, &to)?,
        },
        FilesRequest::Remove {
            path,
            recursive,
            keep_time,
        } => FilesRequest::Remove {
            path: paths.resolve_changed_name(home, &path)?,
            recursive,
            keep_time,
        },
        FilesRequest::Read { path } => FilesRequest::Read {
            path: paths.resolve_name(home, &path)?,
        },
        FilesRequest::ReadRange { path, offset } => FilesRequest::ReadRange {
            path: paths.resolve_content(home, &path)?,
            offset,
        },
        FilesRequest::Sum {
            paths: typed,
            algorithm,
            coarse,
        } => FilesRequest::Sum {
            paths: typed
                .iter()
                .map(|path| paths.resolve_content(home, path))
                .collect::<Result<_, _>>()?,
            algorithm,
            coarse,
        },
        FilesRequest::Leftovers {
            path,
            after,
            remove_older_than_seconds,
        } => FilesRequest::Leftovers {
            path: paths.resolve_listed(home, &path)?,
            after,
            remove_older_than_seconds,
        },
    };
    Ok((ask, paths))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use longhaul_transfer::files::message::{EntryKind, ListingEntry};

    use super::*;

    fn bytes(path: &str) -> PathBytes {
        PathBytes(path.into())
    }

    fn look(home: &Path, path: &str, list: bool, after: Option<&str>) -> (Vec<ListingEntry>, bool) {
        let ask = FilesRequest::Look {
            path: bytes(path),
            list,
            after: after.map(bytes),
            limit: None,
        };
        match LoginFiles::default().answer(home, &ask) {
            FilesResponse::Entries { entries, next } => (entries, next.is_some()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_large_directory_comes_in_pages_each_name_once() {
        let home = tempfile::tempdir().unwrap();
        for n in 0..2500 {
            fs::write(home.path().join(format!("f{n:04}")), "x").unwrap();
        }
        let (mut names, mut after) = (Vec::new(), None);
        loop {
            let (entries, more) = look(home.path(), "", true, after.as_deref());
            names.extend(
                entries
                    .iter()
                    .map(|entry| String::from_utf8(entry.name.0.clone()).unwrap()),
            );
            after = names.last().cloned();
            if !more {
                break;
            }
        }
        let expected: Vec<_> = (0..2500).map(|n| format!("f{n:04}")).collect();
        assert_eq!(names, expected);
    }

    #[test]
    fn the_next_page_continues_the_typed_directory() {
        let home = tempfile::tempdir().unwrap();
        for name in ["d/a", "d/b"] {
            fs::create_dir_all(home.path().join(name)).unwrap();
        }
        let mut files = LoginFiles::default();
        let look = FilesRequest::Look {
            path: bytes("d"),
            list: true,
            after: None,
            limit: Some(1),
        };
        let more = FilesRequest::More { limit: None };
        let answered = files.answer(home.path(), &look);
        assert!(matches!(
            answered,
            FilesResponse::Entries { next: Some(_), .. }
        ));
        let FilesResponse::Entries {
            entries,
            next: None,
        } = files.answer(home.path(), &more)
        else {
            panic!("no entries")
        };
        assert_eq!(entries[0].name, bytes("b"));
        files.answer(home.path(), &look);
        fs::remove_dir_all(home.path().join("d")).unwrap();
        let FilesResponse::Failed(failure) = files.answer(home.path(), &more) else {
            panic!("still there")
        };
        assert_eq!(failure.path, bytes("d"));
    }

    #[test]
    fn names_change_and_nothing_is_replaced_unasked() {
        let home = tempfile::tempdir().unwrap();
        let at = home.path();
        let change = |ask: FilesRequest| match LoginFiles::default().answer(at, &ask) {
            FilesResponse::Changed => Ok(()),
            FilesResponse::Failed(failure) => Err(failure),
            other => panic!("{other:?}"),
        };
        let make = |path: &str, parents| {
            change(FilesRequest::MakeDirectory {
                path: bytes(path),
                parents,
            })
        };
        make("a/b", true).unwrap();
        assert!(make("x/y", false).is_err() && make("a", false).is_err());
        fs::write(at.join("one"), "one").unwrap();
        fs::write(at.join("two"), "two").unwrap();
        std::os::unix::fs::symlink("one", at.join("link")).unwrap();
        let rename = |from: &str, to: &str, overwrite| {
            let (from, to) = (bytes(from), bytes(to));
            change(FilesRequest::Rename {
                from,
                to,
                overwrite,
                keep_time: false,
            })
        };
        let error = rename("one", "two", false).unwrap_err().to_string();
        assert!(
            error.starts_with("two: ") && !error.contains('\n'),
            "{error}"
        );
        assert!(
            rename("none", "two", false)
                .unwrap_err()
                .to_string()
                .starts_with("none: ")
        );
        rename("one", "two", true).unwrap();
        rename("two", "a", false).unwrap();
        let (entries, more) = look(at, "a", true, None);
        let names: Vec<_> = entries
            .iter()
            .map(|entry| (entry.name.clone(), entry.kind))
            .collect();
        assert_eq!(
            names,
            [
                (bytes("b"), EntryKind::Directory),
                (bytes("two"), EntryKind::File)
            ]
        );
        assert!(!more && entries[1].size == 3);
        let (link, _) = look(at, "link", false, None);
        assert_eq!(
            (link[0].kind, &link[0].target),
            (EntryKind::Symlink, &Some(bytes("one")))
        );
        let remove = |path: &str, recursive| {
            change(FilesRequest::Remove {
                path: bytes(path),
                recursive,
                keep_time: false,
            })
        };
        assert_eq!(
            remove("a", false).unwrap_err().kind,
            FilesFailureKind::IsDirectory
        );
        std::os::unix::fs::symlink("a", at.join("to-a")).unwrap();
        assert_eq!(look(at, "to-a", true, None).0.len(), 2);
        assert_eq!(look(at, "to-a", false, None).0[0].name, bytes("to-a"));
        for odd in ["", "~", ".", "a/..", "/"] {
            assert_eq!(
                remove(odd, true).unwrap_err().kind,
                FilesFailureKind::RefusedPath,
                "{odd}"
            );
        }
        remove("to-a/", true).unwrap();
        assert!(at.join("a/b").exists() && !at.join("to-a").exists());
        make("a/x/y/z", true).unwrap();
        remove("a", true).unwrap();
        remove("link", false).unwrap();
        assert_eq!(fs::read_dir(at).unwrap().count(), 0);
        assert!(remove("a", true).is_err());
    }
}
