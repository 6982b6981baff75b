use super::*;
use std::path::Path;

use crate::store::journal::tests::{leave, open_real as open};

fn find(path: &Path) -> (Arc<Dir>, Vec<Leftover>) {
    let dir = Arc::new(Dir::open(path).unwrap());
    let found = leftovers(&dir).unwrap();
    (dir, found)
}

#[test]
fn leftover_of_a_copy_is_reported_and_removed() {
    let tmp = tempfile::tempdir().unwrap();
    std::fs::write(tmp.path().join("mine"), "kept").unwrap();
    leave(tmp.path(), 20);
    let (dir, found) = find(tmp.path());
    let [leftover] = &found[..] else {
        panic!("{found:?}")
    };
    assert_eq!(leftover.names.len(), 2);
    assert_eq!(leftover.target.as_deref(), Some(&b"target"[..]));
    assert_eq!(
        (leftover.size, leftover.durable_bytes),
        (Some(50 * 1024 + 7), 20 * 1024)
    );
    assert!(leftover.disk_bytes >= 12 * 1024);
    assert!(leftover.age < Duration::from_secs(3600));
    assert_eq!(leftover.usage, LeftoverUse::Idle);
    // A copy resumes it.
    let (journal, _) = open(tmp.path());
    assert_eq!(remove_leftover(&dir, leftover), Ok(false));
    assert_eq!(find(tmp.path()).1[0].usage, LeftoverUse::InUse);
    drop(journal);
    assert_eq!(remove_leftover(&dir, leftover), Ok(true));
    assert_eq!(remove_leftover(&dir, leftover), Ok(true));
    assert_eq!(std::fs::read_dir(tmp.path()).unwrap().count(), 1);
}

#[test]
fn copy_without_a_journal_is_in_use_until_it_ends() {
    let tmp = tempfile::tempdir().unwrap();
    let (journal, _) = open(tmp.path());
    let (dir, found) = find(tmp.path());
    let [leftover] = &found[..] else {
        panic!("{found:?}")
    };
    assert_eq!(
        (leftover.usage, &leftover.target),
        (LeftoverUse::InUse, &None)
    );
    assert_eq!(remove_leftover(&dir, leftover), Ok(false));
    drop(journal);
}

#[test]
fn foreign_files_are_reported_and_left_alone() {
    let tmp = tempfile::tempdir().unwrap();
    leave(tmp.path(), 20);
    let (_, found) = find(tmp.path());
    let journal = tmp.path().join(&found[0].names[0]);
    std::fs::remove_file(&journal).unwrap();
    std::os::unix::fs::symlink("mine", &journal).unwrap();
    std::fs::write(tmp.path().join(".longhaul-01020304-5"), "begun").unwrap();
    std::fs::create_dir(tmp.path().join(".longhaul-directory")).unwrap();
    std::os::unix::fs::symlink("x", tmp.path().join(".longhaul-01020304-6")).unwrap();
    let (dir, mut found) = find(tmp.path());
    found.sort_by_key(|leftover| leftover.names[0].len());
    let usages: Vec<LeftoverUse> = found.iter().map(|leftover| leftover.usage).collect();
    use LeftoverUse::*;
    assert_eq!(usages, [Foreign, Unknown, Unknown, Foreign, Idle]);
    for leftover in &found {
        let goes = leftover.usage != Foreign;
        assert_eq!(remove_leftover(&dir, leftover), Ok(goes), "{leftover:?}");
    }
    assert_eq!(find(tmp.path()).1.len(), 2);
}
