use std::collections::BTreeSet;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use proptest::prelude::*;

use super::message::{FilesFailureKind, FilesRequest, FilesResponse, ListingEntry, PathBytes};
use super::tree::{AllowAll, Files, Permission};
use crate::grants::Access;
use crate::path::RelPath;
use crate::store::confine::Dir;

/// A directory with `root`, which is served, and `outside`, which is not.
struct World(tempfile::TempDir);

impl World {
    fn new() -> Self {
        let world = Self(tempfile::tempdir().unwrap());
        for directory in ["root/in/deep", "root/out", "outside"] {
            std::fs::create_dir_all(world.0.path().join(directory)).unwrap();
        }
        for file in ["root/in/f", "root/in/deep/g", "root/out/h", "outside/kept"] {
            std::fs::write(world.0.path().join(file), file).unwrap();
        }
        symlink("../../outside", world.root("in/way-out")).unwrap();
        symlink("deep", world.root("in/way-in")).unwrap();
        world
    }

    fn root(&self, path: &str) -> std::path::PathBuf {
        self.0.path().join("root").join(path)
    }

    fn ask(&self, ask: &FilesRequest, permission: &dyn Permission) -> FilesResponse {
        let root = Arc::new(Dir::open(&self.root("")).unwrap());
        Files::new(root).answer(ask, permission, &AtomicBool::new(false))
    }

    fn failure(&self, ask: &FilesRequest, permission: &dyn Permission) -> Option<FilesFailureKind> {
        match self.ask(ask, permission) {
            FilesResponse::Failed(failure) => {
                assert!(!failure.to_string().contains('\n'));
                Some(failure.kind)
            }
            _ => None,
        }
    }
}

/// Grants: access and directory.
struct Granted(&'static [(Access, &'static str)]);

impl Permission for Granted {
    fn may(&self, access: Access, path: &RelPath) -> bool {
        self.0.iter().any(|(granted, directory)| {
            let covers =
                *granted == access || (*granted == Access::Write && access == Access::Create);
            covers && path.is_within(&RelPath::from_bytes(directory.as_bytes()).unwrap())
        })
    }
}

fn bytes(path: &str) -> PathBytes {
    PathBytes(path.into())
}

fn look(path: &str) -> FilesRequest {
    FilesRequest::Look {
        path: bytes(path),
        list: true,
        after: None,
        limit: None,
    }
}

fn mkdir(path: &str, parents: bool) -> FilesRequest {
    FilesRequest::MakeDirectory {
        path: bytes(path),
        parents,
    }
}

fn mv(from: &str, to: &str, overwrite: bool) -> FilesRequest {
    FilesRequest::Rename {
        from: bytes(from),
        to: bytes(to),
        overwrite,
        keep_time: false,
    }
}

fn mv_file(from: &str, to: &str) -> FilesRequest {
    FilesRequest::RenameFile {
        from: bytes(from),
        to: bytes(to),
    }
}

fn rm(path: &str) -> FilesRequest {
    FilesRequest::Remove {
        path: bytes(path),
        recursive: true,
        keep_time: false,
    }
}

fn leftovers(path: &str, remove: Option<u64>) -> FilesRequest {
    FilesRequest::Leftovers {
        path: bytes(path),
        after: None,
        remove_older_than_seconds: remove,
    }
}

#[test]
fn lh_files_6_no_path_leads_out_and_the_root_stays() {
    use FilesFailureKind::*;
    let world = World::new();
    for path in ["..", "in/..", "/etc", "in//f", "in/../../outside", "a\0b"] {
        for ask in [
            look(path),
            mkdir(path, true),
            mv("in/f", path, true),
            mv(path, "x", true),
            rm(path),
        ] {
            assert_eq!(world.failure(&ask, &AllowAll), Some(RefusedPath), "{ask:?}");
        }
    }
    for path in ["in/way-out/kept", "in/way-in/g"] {
        for ask in [
            look(path),
            mkdir(path, false),
            mv(path, "x", true),
            rm(path),
            mv("in/f", path, true),
        ] {
            let kind = world.failure(&ask, &AllowAll);
            assert!(
                matches!(kind, Some(RefusedPath | NotADirectory)),
                "{ask:?} {kind:?}"
            );
        }
    }
    assert_eq!(
        world.failure(&mv("in/f", "in", true), &AllowAll),
        Some(Exists)
    );
    for ask in [rm(""), mv("", "x", true), mkdir("", false)] {
        assert_eq!(world.failure(&ask, &AllowAll), Some(RefusedPath), "{ask:?}");
    }
    // A link is itself listed, renamed and removed, and its target stays.
    let FilesResponse::Entries { entries, .. } = world.ask(&look("in/way-out"), &AllowAll) else {
        panic!("no entries")
    };
    assert_eq!(entries[0].target, Some(bytes("../../outside")));
    assert_eq!(
        world.failure(&mv("in/way-out", "link", false), &AllowAll),
        None
    );
    assert_eq!(world.failure(&rm("link"), &AllowAll), None);
    assert!(world.0.path().join("outside/kept").exists());
}

#[test]
fn lh_files_8_nothing_without_a_grant_is_reported_or_done() {
    use FilesFailureKind::*;
    let world = World::new();
    let reader = Granted(&[(Access::Read, "in")]);
    assert_eq!(world.failure(&look("in/deep"), &reader), None);
    for ask in [
        look(""),
        look("out"),
        look("none"),
        look("out/none"),
        leftovers("", None),
        leftovers("in", Some(0)),
    ] {
        assert_eq!(world.failure(&ask, &reader), Some(NotGranted), "{ask:?}");
    }
    for ask in [mkdir("in/x", false), mv("in/f", "in/x", false), rm("in/f")] {
        assert_eq!(world.failure(&ask, &reader), Some(NotGranted), "{ask:?}");
    }
    let creator = Granted(&[(Access::Create, "in")]);
    assert_eq!(world.failure(&mkdir("in/x/y", true), &creator), None);
    for ask in [
        mkdir("in", true),
        mkdir("new", true),
        rm("in/f"),
        mv("in/f", "in/y", false),
        look("in"),
    ] {
        assert_eq!(world.failure(&ask, &creator), Some(NotGranted), "{ask:?}");
    }
    // Without read access, existing entries reveal nothing.
    for path in ["in/f", "in/deep", "in/way-out"] {
        assert_eq!(
            world.failure(&mkdir(path, false), &creator),
            Some(Exists),
            "{path}"
        );
    }
    let writer = Granted(&[(Access::Write, "in")]);
    assert_eq!(world.failure(&mv("in/f", "in/deep", false), &writer), None);
    assert!(world.root("in/deep/f").exists());
    for ask in [
        rm("in"),
        rm("out/h"),
        mv("in/deep", "out", false),
        mv("out/h", "in/h", false),
        mv("in", "x", false),
    ] {
        assert_eq!(world.failure(&ask, &writer), Some(NotGranted), "{ask:?}");
    }
    // Moving an entry does not make it readable.
    let mixed = Granted(&[
        (Access::Write, "in"),
        (Access::Write, "out"),
        (Access::Read, "out"),
    ]);
    assert_eq!(
        world.failure(&mv("in/deep/f", "out/f", false), &mixed),
        Some(NotGranted)
    );
    assert_eq!(world.failure(&mv("out/h", "in/h", false), &mixed), None);
    // Names are reported only to keys that may read them, even in errors.
    assert_eq!(world.failure(&rm("in/deep"), &writer), None);
}

#[test]
fn lh_files_9_names_of_copies_are_reserved() {
    use FilesFailureKind::*;
    let world = World::new();
    let name = ".longhaul-01020304-5";
    std::fs::write(world.root(name), "half").unwrap();
    for ask in [
        rm(name),
        mv(name, "x", true),
        mv("in/f", ".longhaul-x", false),
        mkdir("in/.longhaul-d/x", true),
    ] {
        assert_eq!(
            world.failure(&ask, &AllowAll),
            Some(ReservedName),
            "{ask:?}"
        );
    }
    let FilesResponse::Leftovers {
        leftovers: found,
        next,
    } = world.ask(&leftovers("", None), &AllowAll)
    else {
        panic!("no leftovers")
    };
    assert_eq!((found.len(), next), (1, None));
    assert_eq!(found[0].names, [bytes(name)]);
}

#[test]
fn names_change_as_on_a_local_file_system() {
    use FilesFailureKind::*;
    let world = World::new();
    let failure = |ask: FilesRequest| world.failure(&ask, &AllowAll);
    assert_eq!(failure(mkdir("in", false)), Some(Exists));
    assert_eq!(failure(mkdir("in", true)), None);
    assert_eq!(failure(mkdir("", true)), None);
    assert_eq!(failure(mkdir("in/f", true)), Some(NotADirectory));
    assert_eq!(failure(mkdir("a/b/c", false)), Some(NotFound));
    assert_eq!(failure(mkdir("a/b/c", true)), None);
    assert_eq!(failure(mv("in/f", "out/h", false)), Some(Exists));
    assert_eq!(failure(mv("in/f", "out/h", true)), None);
    assert_eq!(std::fs::read(world.root("out/h")).unwrap(), b"root/in/f");
    assert_eq!(failure(mv("none", "out/h", true)), Some(NotFound));
    assert_eq!(failure(mv("a", "a/b/x", true)), Some(IntoItself));
    assert_eq!(failure(mv("a/b", "", true)), None);
    assert!(world.root("b/c").exists());
    // No directory is replaced, empty or not.
    assert_eq!(failure(mkdir("out/b", false)), None);
    assert_eq!(failure(mv("b", "out", true)), Some(Exists));
    let kept = FilesRequest::Remove {
        path: bytes("b"),
        recursive: false,
        keep_time: false,
    };
    assert_eq!(failure(kept), Some(IsDirectory));
    assert_eq!(failure(rm("b")), None);
    assert_eq!(failure(rm("b")), Some(NotFound));
}

#[test]
fn lh_files_18_files_are_renamed_into_new_private_directories() {
    use FilesFailureKind::*;
    let world = World::new();
    let writer = Granted(&[(Access::Write, "in")]);
    let failure = |ask: FilesRequest| world.failure(&ask, &writer);
    assert_eq!(failure(mv_file("in/f", "in/a/b/c")), None);
    assert_eq!(std::fs::read(world.root("in/a/b/c")).unwrap(), b"root/in/f");
    for made in ["in/a", "in/a/b"] {
        let mode = world.root(made).metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{made}");
    }
    // Nothing is replaced, moved into a directory, or made outside the grant.
    for (to, kind) in [
        ("in/a/b/c", Exists),
        ("in/a", Exists),
        ("in/a/b/c/d", NotADirectory),
        ("new/x", NotGranted),
        ("in/way-out/x", RefusedPath),
        ("in/way-out/x/y", RefusedPath),
    ] {
        assert_eq!(failure(mv_file("in/deep/g", to)), Some(kind), "{to}");
    }
    assert!(!world.root("new").exists() && !world.0.path().join("outside/x").exists());
    // Only a file without other names.
    std::fs::hard_link(world.root("in/deep/g"), world.root("in/other")).unwrap();
    for from in ["in/deep", "in/way-in", "in/deep/g", "in/other"] {
        assert_eq!(failure(mv_file(from, "in/none/x")), Some(Io), "{from}");
    }
    assert_eq!(failure(mv_file("in/missing", "in/none/x")), Some(NotFound));
    assert!(!world.root("in/none").exists());
}

#[test]
fn lh_files_7_a_page_is_never_larger_than_allowed() {
    let world = World::new();
    let large = world.root("large");
    std::fs::create_dir(&large).unwrap();
    for n in 0..super::MAX_ENTRIES_PER_PAGE + 5 {
        std::fs::write(large.join(format!("{n:05}")), "").unwrap();
    }
    for (limit, expected) in [
        (Some(u32::MAX), super::MAX_ENTRIES_PER_PAGE),
        (None, super::MAX_ENTRIES_PER_PAGE),
        (Some(0), 1),
        (Some(7), 7),
    ] {
        let ask = FilesRequest::Look {
            path: bytes("large"),
            list: true,
            after: None,
            limit,
        };
        let FilesResponse::Entries { entries, next } = world.ask(&ask, &AllowAll) else {
            panic!("no entries")
        };
        assert_eq!(entries.len(), expected, "{limit:?}");
        assert_eq!(
            next,
            entries
                .last()
                .map(|entry: &ListingEntry| entry.name.clone())
        );
    }
}

/// Returns all paths beneath a directory, with the content of files.
fn tree(at: &Path) -> BTreeSet<(String, Vec<u8>)> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(at).unwrap() {
        let path = entry.unwrap().path();
        let kind = path.symlink_metadata().unwrap();
        let content = match kind.is_file() {
            true => std::fs::read(&path).unwrap(),
            false => Vec::new(),
        };
        found.insert((path.display().to_string(), content));
        if kind.is_dir() {
            found.extend(tree(&path));
        }
    }
    found
}

fn any_path() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec![
        "in", "out", "deep", "f", "way-out", "way-in", "kept", "..", ".", "", "new",
    ]);
    prop::collection::vec(name, 0..4).prop_map(|names| names.join("/"))
}

fn any_ask() -> impl Strategy<Value = FilesRequest> {
    (any_path(), any_path(), any::<bool>(), 0..6).prop_map(|(path, other, flag, kind)| match kind {
        0 => look(&path),
        1 => mkdir(&path, flag),
        2 => mv(&path, &other, flag),
        3 => rm(&path),
        4 => mv_file(&path, &other),
        _ => leftovers(&path, Some(0)),
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever is requested, nothing outside the root changes, and nothing outside the grants.
    #[test]
    fn only_granted_paths_change_for_any_request(
        asks in prop::collection::vec(any_ask(), 1..12),
    ) {
        let world = World::new();
        let granted = Granted(&[(Access::Read, "in"), (Access::Write, "in")]);
        let outside = tree(&world.0.path().join("outside"));
        let others = tree(&world.root("out"));
        for ask in &asks {
            world.ask(ask, &granted);
        }
        prop_assert_eq!(tree(&world.0.path().join("outside")), outside);
        prop_assert_eq!(tree(&world.root("out")), others);
        let names: BTreeSet<_> = std::fs::read_dir(world.root(""))
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        prop_assert_eq!(names, BTreeSet::from(["in".into(), "out".into()]));
    }
}
