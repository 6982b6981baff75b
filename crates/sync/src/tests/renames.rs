use std::collections::BTreeMap;

use super::*;

/// Returns the renames between two trees, given the content of files. One without content cannot be
/// read.
fn renames(
    (source, created): (&Tree, &[(&str, u8)]),
    (target, removed): (&Tree, &[(&str, u8)]),
) -> Vec<(String, String)> {
    let candidates = RenameCandidates::new(source, target);
    let hashes = |files: &[Candidate], contents: &[(&str, u8)]| -> Vec<Option<ContentHash>> {
        let contents: BTreeMap<&[u8], u8> = contents
            .iter()
            .map(|(path, content)| (path.as_bytes(), *content))
            .collect();
        let content = |file: &Candidate| contents.get(&file.path[..]).map(|byte| [*byte; 32]);
        files.iter().map(content).collect()
    };
    let created = hashes(&candidates.created, created);
    let removed = hashes(&candidates.removed, removed);
    let text = |path: Vec<u8>| String::from_utf8(path).unwrap();
    let renames = candidates.matching(&created, &removed).into_iter();
    renames.map(|it| (text(it.from), text(it.to))).collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |(from, to): &(&str, &str)| ((*from).to_owned(), (*to).to_owned());
    expected.iter().map(owned).collect()
}

#[test]
fn renamed_files_have_the_same_content_size_and_time() {
    let source = tree(&[
        ("new", directory()),
        ("new/x", file(5, 7)),
        ("other", file(5, 7)),
        ("unread", file(5, 7)),
        ("later", file(5, 8)),
        ("empty", file(0, 7)),
        ("stays", file(5, 7)),
    ]);
    let target = tree(&[
        ("old", directory()),
        ("old/x", file(5, 7)),
        ("older", file(5, 6)),
        ("gone", file(0, 7)),
        ("stays", file(5, 7)),
    ]);
    let created = [("new/x", 1), ("other", 2), ("later", 1)];
    let removed = [("old/x", 1), ("older", 1)];
    let found = renames((&source, &created), (&target, &removed));
    assert_eq!(found, pairs(&[("old/x", "new/x")]));
    let candidates = RenameCandidates::new(&source, &target);
    assert_eq!((candidates.created.len(), candidates.removed.len()), (3, 1));
    assert_eq!(candidates.bytes(), 20);
}

#[test]
fn equal_files_keep_their_names_where_they_can() {
    let same = || file(5, 7);
    let source = tree(&[
        ("b", directory()),
        ("b/x", same()),
        ("b/y", same()),
        ("z", same()),
    ]);
    let target = tree(&[("a", directory()), ("a/w", same()), ("a/y", same())]);
    let created = [("b/x", 1), ("b/y", 1), ("z", 1)];
    let removed = [("a/w", 1), ("a/y", 1)];
    let found = renames((&source, &created), (&target, &removed));
    assert_eq!(found, pairs(&[("a/w", "b/x"), ("a/y", "b/y")]));
}

#[test]
fn files_below_an_obstacle_are_not_renamed() {
    // `d` and `e` change their kinds, so they are removed before the copy.
    let source = tree(&[("d", file(1, 1)), ("e", directory()), ("e/x", file(5, 7))]);
    let target = tree(&[
        ("d", directory()),
        ("d/x", file(5, 7)),
        ("e", file(2, 2)),
        ("y", file(5, 7)),
    ]);
    let candidates = RenameCandidates::new(&source, &target);
    assert!(candidates.is_empty(), "{candidates:?}");
}

#[test]
fn nanoseconds_count_if_both_sides_report_them() {
    let at = |nanoseconds| {
        let mut node = file(5, 7);
        node.modified.nanoseconds = nanoseconds;
        node
    };
    for (there, is_renamed) in [(Some(1), true), (Some(2), false), (None, true)] {
        let (source, target) = (tree(&[("b", at(Some(1)))]), tree(&[("a", at(there))]));
        let found = renames((&source, &[("b", 1)]), (&target, &[("a", 1)]));
        assert_eq!(found.len(), usize::from(is_renamed), "{there:?}");
    }
}

#[test]
fn files_are_renamed_only_if_the_old_name_would_go() {
    assert!(mirror().permits_renames());
    for options in [
        PlanOptions {
            delete: false,
            ..mirror()
        },
        PlanOptions {
            overwrite: false,
            ..mirror()
        },
        PlanOptions {
            existing: true,
            ..mirror()
        },
    ] {
        assert!(!options.permits_renames());
    }
}

proptest! {
    #[test]
    fn renames_replace_nothing_and_are_no_removals(source in any_tree(), target in any_tree()) {
        let candidates = RenameCandidates::new(&source, &target);
        let content = |file: &Candidate| Some([file.path[0]; 32]);
        let created: Vec<_> = candidates.created.iter().map(content).collect();
        let removed: Vec<_> = candidates.removed.iter().map(content).collect();
        let renames = candidates.matching(&created, &removed);
        let before = Plan::new(&source, &target, mirror());
        let mut renamed = target.clone();
        for rename in &renames {
            prop_assert!(!renamed.contains_key(&rename.to) && !source.contains_key(&rename.from));
            prop_assert_eq!(renamed[&rename.from].bytes, source[&rename.to].bytes);
            prop_assert_eq!(rename.from[0], rename.to[0]);
            rename.apply(&mut renamed);
        }
        let plan = Plan::new(&source, &renamed, mirror());
        let count = |plan: &Plan| plan.removed().map(|step| step.entries).sum::<u64>();
        prop_assert_eq!(count(&plan) + renames.len() as u64, count(&before));
        prop_assert_eq!(&apply(&plan, &source, &renamed), &source);
        renames.iter().for_each(|rename| rename.revert(&mut renamed));
        prop_assert_eq!(renamed, target);
    }
}
