use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::tree::above;

mod renames;

fn node(kind: NodeKind, bytes: u64, seconds: i64) -> Node {
    Node {
        kind,
        bytes,
        mode: 0o644,
        modified: Modified {
            seconds,
            nanoseconds: Some(0),
        },
        target: (kind == NodeKind::Symlink).then(|| b"t".to_vec()),
        is_taken: true,
        holds_excluded: false,
    }
}

fn tree(entries: &[(&str, Node)]) -> Tree {
    let mut tree = Tree::from([(Vec::new(), node(NodeKind::Directory, 0, 0))]);
    tree.extend(
        entries
            .iter()
            .map(|(path, node)| (path.as_bytes().to_vec(), node.clone())),
    );
    tree
}

fn shown(steps: &[Step]) -> Vec<(String, Change)> {
    steps
        .iter()
        .map(|step| (String::from_utf8(step.path.clone()).unwrap(), step.change))
        .collect()
}

fn mirror() -> PlanOptions {
    PlanOptions {
        overwrite: true,
        delete: true,
        ..PlanOptions::default()
    }
}

fn file(bytes: u64, seconds: i64) -> Node {
    node(NodeKind::File, bytes, seconds)
}

fn directory() -> Node {
    node(NodeKind::Directory, 0, 0)
}

#[test]
fn mirror_creates_replaces_and_removes() {
    let source = tree(&[("a", file(1, 1)), ("b", file(2, 2)), ("d", directory())]);
    let target = tree(&[
        ("b", file(2, 1)),
        ("old", directory()),
        ("old/x", file(7, 0)),
        ("old-2", file(1, 0)),
    ]);
    let plan = Plan::new(&source, &target, mirror());
    let expected = [
        ("a", Change::Create),
        ("b", Change::Replace),
        ("d", Change::Create),
    ];
    assert_eq!(
        shown(&plan.copies),
        expected.map(|(path, change)| (path.to_owned(), change))
    );
    let removed: Vec<_> = plan
        .removals
        .iter()
        .map(|step| (&step.path[..], step.entries))
        .collect();
    assert_eq!(removed, [(&b"old"[..], 2), (b"old-2", 1)]);
    assert_eq!(plan.removals[0].bytes, 7);
}

#[test]
fn options_leave_entries_alone() {
    let source = tree(&[
        ("new", file(1, 1)),
        ("older", file(1, 1)),
        ("newer", file(1, 9)),
    ]);
    let target = tree(&[("older", file(2, 5)), ("newer", file(2, 5))]);
    let plan = |options: PlanOptions| {
        let overwrite = true;
        shown(
            &Plan::new(
                &source,
                &target,
                PlanOptions {
                    overwrite,
                    ..options
                },
            )
            .copies,
        )
    };
    let update = PlanOptions {
        update: true,
        ..PlanOptions::default()
    };
    let is = |path: &str, change| (path.to_owned(), change);
    assert_eq!(
        plan(update),
        [is("new", Change::Create), is("newer", Change::Replace)]
    );
    let existing = PlanOptions {
        existing: true,
        ..PlanOptions::default()
    };
    assert_eq!(
        plan(existing),
        [is("newer", Change::Replace), is("older", Change::Replace)]
    );
    let ignore_existing = PlanOptions {
        ignore_existing: true,
        ..PlanOptions::default()
    };
    assert_eq!(plan(ignore_existing), [is("new", Change::Create)]);
    let refused = Plan::new(&source, &target, PlanOptions::default());
    assert_eq!(shown(&refused.copies)[1].1, Change::Refuse);
}

#[test]
fn entries_of_another_kind_are_removed_first_or_refused() {
    let source = tree(&[("x", file(1, 1))]);
    let target = tree(&[("x", directory()), ("x/y", file(1, 1))]);
    let plan = Plan::new(&source, &target, mirror());
    assert_eq!(shown(&plan.obstacles), [("x".to_owned(), Change::Remove)]);
    assert_eq!(plan.obstacles[0].entries, 2);
    let options = PlanOptions {
        delete: false,
        ..mirror()
    };
    let plan = Plan::new(&source, &target, options);
    assert!(plan.obstacles.is_empty());
    assert_eq!(shown(&plan.copies), [("x".to_owned(), Change::Refuse)]);
}

#[test]
fn excluded_entries_keep_their_directories() {
    let source = tree(&[]);
    let mut old = directory();
    old.holds_excluded = true;
    let target = tree(&[
        ("a", directory()),
        ("a/old", old),
        ("a/old/x", file(1, 1)),
        ("a/other", directory()),
        ("a/other/y", file(1, 1)),
    ]);
    let plan = Plan::new(&source, &target, mirror());
    let removed: Vec<String> = shown(&plan.removals)
        .into_iter()
        .map(|(path, _)| path)
        .collect();
    assert_eq!(removed, ["a/old/x", "a/other"]);
}

#[test]
fn nothing_is_removed_after_an_error_or_from_an_empty_source() {
    let guard = RemovalGuard {
        max_removals: Some(10),
        permits_empty_source: false,
    };
    let source = |entries, failures| SourceState { entries, failures };
    assert_eq!(guard.check(source(5, 0), 10), Ok(()));
    assert_eq!(guard.check(source(0, 9), 0), Ok(()));
    assert_eq!(
        guard.check(source(5, 1), 1),
        Err(RemovalRefusal::SourceFailed { failures: 1 })
    );
    assert_eq!(
        guard.check(source(0, 0), 1),
        Err(RemovalRefusal::EmptySource)
    );
    assert_eq!(
        guard.check(source(5, 0), 11),
        Err(RemovalRefusal::TooMany {
            entries: 11,
            max: 10
        })
    );
    let forced = RemovalGuard {
        permits_empty_source: true,
        ..guard
    };
    assert_eq!(forced.check(source(0, 0), 1), Ok(()));
}

/// A tree in which every entry has its directories.
fn any_tree() -> impl Strategy<Value = Tree> {
    let kind = prop::sample::select(vec![NodeKind::File, NodeKind::Directory, NodeKind::Symlink]);
    let entry = ("[ab-]{1,2}(/[ab-]{1,2}){0,2}", kind, 0u64..3, 0i64..3);
    prop::collection::vec(entry, 0..12).prop_map(|entries| {
        let mut tree = tree(&[]);
        for (path, kind, bytes, seconds) in entries {
            let bytes = if kind == NodeKind::File { bytes } else { 0 };
            let path = path.into_bytes();
            let fits = above(&path).all(|above| {
                tree.get(above)
                    .is_none_or(|node| node.kind == NodeKind::Directory)
            });
            let is_taken = tree.contains_key(&path);
            if fits && !is_taken {
                for above in above(&path) {
                    tree.entry(above.to_vec()).or_insert_with(directory);
                }
                tree.insert(path, node(kind, bytes, seconds));
            }
        }
        tree
    })
}

fn is_below(path: &[u8], directory: &[u8]) -> bool {
    above(path).any(|above| above == directory)
}

/// Carries a plan out.
fn apply(plan: &Plan, source: &Tree, target: &Tree) -> Tree {
    let mut target = target.clone();
    let take_away = |target: &mut Tree, step: &Step| {
        target.retain(|path, _| *path != step.path && !is_below(path, &step.path));
    };
    plan.obstacles
        .iter()
        .for_each(|step| take_away(&mut target, step));
    for step in &plan.copies {
        match step.change {
            Change::Refuse | Change::Remove => {}
            _ => {
                let parent = above(&step.path).next_back();
                assert!(parent.is_none_or(|parent| target.contains_key(parent)));
                target.insert(step.path.clone(), source[&step.path].clone());
            }
        }
    }
    plan.removals
        .iter()
        .for_each(|step| take_away(&mut target, step));
    target
}

proptest! {
    #[test]
    fn mirror_makes_the_target_equal(source in any_tree(), target in any_tree()) {
        let plan = Plan::new(&source, &target, mirror());
        let after = apply(&plan, &source, &target);
        prop_assert_eq!(&after, &source);
        let again = Plan::new(&source, &after, mirror());
        prop_assert!(again.is_empty(), "{:?}", again);
        let removed: u64 = plan.removed().map(|step| step.entries).sum();
        let changed_kind = |(path, there): (&Vec<u8>, &Node)| {
            source.get(path).is_none_or(|node| {
                (node.kind == NodeKind::Directory) != (there.kind == NodeKind::Directory)
            })
        };
        prop_assert_eq!(removed as usize, target.iter().filter(|&entry| changed_kind(entry)).count());
    }

    #[test]
    fn copy_removes_nothing(source in any_tree(), target in any_tree(), overwrite: bool) {
        let options = PlanOptions { overwrite, ..PlanOptions::default() };
        let plan = Plan::new(&source, &target, options);
        prop_assert_eq!(plan.removed().count(), 0);
    }

    #[test]
    fn entries_outside_the_listing_are_never_touched(source in any_tree(), target in any_tree()) {
        // Every directory of the target holds something that a filter left out.
        let mut target = target;
        for node in target.values_mut() {
            node.holds_excluded = node.kind == NodeKind::Directory;
        }
        let plan = Plan::new(&source, &target, mirror());
        let directories: BTreeSet<&Vec<u8>> = target
            .iter()
            .filter(|(_, node)| node.kind == NodeKind::Directory)
            .map(|(path, _)| path)
            .collect();
        prop_assert!(plan.removed().all(|step| !directories.contains(&step.path)));
    }
}
