//! Looking at files and changing names, as the user who logged in.

use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use longhaul_proto::text::printable;
use rustix::fs::{CWD, RenameFlags};

use super::resolve::typed;
use crate::message::{Answer, Entry, EntryKind, FilesAsk, PathBytes};

/// Most entries in one answer.
const MAX_ENTRIES_PER_ANSWER: usize = 1000;

/// Does it, and answers; or says why not, in one line.
pub(super) fn answer(home: &Path, ask: &FilesAsk) -> Result<Answer, String> {
    match ask {
        FilesAsk::Look { path, list, after } => {
            let full = typed(home, &path.0);
            let itself = fs::symlink_metadata(&full).map_err(|error| said(path, &error))?;
            // A link to a directory is listed as one, as ls does it.
            if *list && full.is_dir() {
                return listed(&full, after.as_ref()).map_err(|error| said(path, &error));
            }
            Ok(Answer::Entries {
                entries: vec![entry(&full, path.clone(), &itself)],
                more: false,
            })
        }
        FilesAsk::MakeDirectory { path, parents } => {
            let full = typed(home, &path.0);
            let made = match parents {
                true => fs::create_dir_all(&full),
                false => fs::create_dir(&full),
            };
            done(path, made)
        }
        FilesAsk::Rename { from, to, overwrite } => {
            let (full, mut there) = (typed(home, &from.0), typed(home, &to.0));
            if let (true, Some(name)) = (there.is_dir(), full.file_name()) {
                there.push(name);
            }
            let flags = match overwrite {
                true => RenameFlags::empty(),
                false => RenameFlags::NOREPLACE,
            };
            let renamed = rustix::fs::renameat_with(CWD, &full, CWD, &there, flags);
            // The source is to blame only if it is missing.
            let blamed = if full.symlink_metadata().is_err() {
                from
            } else {
                to
            };
            done(blamed, renamed.map_err(io::Error::from))
        }
        FilesAsk::Remove { path, recursive } => {
            let full = typed(home, &path.0);
            let kind = fs::symlink_metadata(&full).map_err(|error| said(path, &error))?;
            let removed = match kind.is_dir() {
                true if *recursive => fs::remove_dir_all(&full),
                true => {
                    return Err(format!(
                        "{}: is a directory; give -r to remove it with all it holds",
                        shown(path)
                    ));
                }
                false => fs::remove_file(&full),
            };
            done(path, removed)
        }
    }
}

fn listed(directory: &Path, after: Option<&PathBytes>) -> io::Result<Answer> {
    let mut names: Vec<OsString> = Vec::new();
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        if after.is_none_or(|after| name.as_bytes() > &after.0[..]) {
            names.push(name);
        }
    }
    names.sort_unstable();
    let more = names.len() > MAX_ENTRIES_PER_ANSWER;
    names.truncate(MAX_ENTRIES_PER_ANSWER);
    let look = |name: OsString| {
        let full: PathBuf = directory.join(&name);
        // Gone since the names were read.
        let itself = fs::symlink_metadata(&full).ok()?;
        Some(entry(&full, PathBytes(name.into_vec()), &itself))
    };
    Ok(Answer::Entries {
        entries: names.into_iter().filter_map(look).collect(),
        more,
    })
}

fn entry(path: &Path, name: PathBytes, itself: &Metadata) -> Entry {
    let kind = itself.file_type();
    let kind = match (kind.is_file(), kind.is_dir(), kind.is_symlink()) {
        (true, ..) => EntryKind::File,
        (_, true, _) => EntryKind::Directory,
        (_, _, true) => EntryKind::Symlink,
        _ => EntryKind::Other,
    };
    let target = match kind {
        EntryKind::Symlink => fs::read_link(path).ok(),
        _ => None,
    };
    Entry {
        name,
        kind,
        size: itself.len(),
        mode: itself.mode() & 0o7777,
        modified: itself.mtime(),
        target: target.map(|target| PathBytes(target.into_os_string().into_vec())),
    }
}

fn done(path: &PathBytes, done: io::Result<()>) -> Result<Answer, String> {
    done.map(|()| Answer::Changed).map_err(|error| said(path, &error))
}

fn said(path: &PathBytes, error: &io::Error) -> String {
    format!("{}: {error}", shown(path))
}

fn shown(path: &PathBytes) -> String {
    match path.0.is_empty() {
        true => "~".to_owned(),
        false => printable(&path.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(path: &str) -> PathBytes {
        PathBytes(path.into())
    }

    fn look(home: &Path, path: &str, list: bool, after: Option<&str>) -> (Vec<Entry>, bool) {
        let ask = FilesAsk::Look {
            path: bytes(path),
            list,
            after: after.map(bytes),
        };
        match answer(home, &ask).unwrap() {
            Answer::Entries { entries, more } => (entries, more),
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
    fn names_are_made_changed_and_removed_and_nothing_is_replaced_unasked() {
        let home = tempfile::tempdir().unwrap();
        let at = home.path();
        let change = |ask: FilesAsk| answer(at, &ask);
        let make = |path: &str, parents| {
            change(FilesAsk::MakeDirectory {
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
            change(FilesAsk::Rename { from, to, overwrite })
        };
        let error = rename("one", "two", false).unwrap_err();
        assert!(error.starts_with("two: ") && !error.contains('\n'), "{error}");
        assert!(rename("none", "two", false).unwrap_err().starts_with("none: "));
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
            change(FilesAsk::Remove {
                path: bytes(path),
                recursive,
            })
        };
        assert!(remove("a", false).unwrap_err().contains("give -r"));
        remove("a", true).unwrap();
        remove("link", false).unwrap();
        assert_eq!(fs::read_dir(at).unwrap().count(), 0);
        assert!(remove("a", true).is_err());
    }
}
