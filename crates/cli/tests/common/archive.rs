//! Random trees with all that `-a` keeps, under names of any bytes. They are mirrored, changed and
//! mirrored again. Each time the target must equal what `rsync -aAXHS --delete --exclude-from`
//! leaves.

#![allow(dead_code, reason = "each program of tests uses some of it")]

use std::cell::Cell;
use std::fs;
use std::path::Path;
use std::process::Command;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::mirror::config;

pub mod abilities;
mod case;
pub mod listing;
mod source;

use abilities::Abilities;
use case::case;
use listing::describe;
use source::Source;

/// Mirrors random trees with `mirror` before and after random changes, and compares the results
/// with rsync. `mirror` gets the source, the target and a file of rules. The source is made below
/// `sources`, the target below `targets`.
pub fn archives_equal_rsync(sources: &Path, targets: &Path, mirror: impl Fn(&Path, &Path, &Path)) {
    if Command::new("rsync").arg("--version").output().is_err() {
        eprintln!("not tested: rsync is not installed");
        return;
    }
    let abilities = Abilities::probe(targets);
    let last = Cell::new(0);
    TestRunner::new(config())
        .run(&case(), |case| {
            let number = last.get() + 1;
            last.set(number);
            let root = sources.join(format!("source{number}"));
            let [target, expected] =
                ["target", "expected"].map(|name| targets.join(format!("{name}{number}")));
            fs::create_dir(&target).unwrap();
            fs::create_dir(&expected).unwrap();
            let rules = sources.join(format!("rules{number}"));
            fs::write(&rules, case.rules.join("\n")).unwrap();
            let source = Source {
                root: &root,
                abilities,
            };
            source.make(&case.entries);
            for is_changed in [false, true] {
                let changes = case.changes.iter().filter(|_| is_changed);
                changes.for_each(|change| source.change(change));
                rsync(abilities, &root, &expected, &rules);
                mirror(&root, &target, &rules);
                prop_assert_eq!(describe(&target), describe(&expected));
            }
            for tree in [&root, &target, &expected] {
                fs::remove_dir_all(tree).unwrap();
            }
            Ok(())
        })
        .unwrap();
}

/// Mirrors with rsync.
fn rsync(abilities: Abilities, source: &Path, target: &Path, rules: &Path) {
    let attributes = if abilities.has_attributes {
        "-AX"
    } else {
        "-a"
    };
    let output = Command::new("rsync")
        // Without the window, a time within the same second counts as equal.
        .args(["-aHS", attributes, "--delete", "--modify-window=-1"])
        .arg("--exclude-from")
        .arg(rules)
        .arg(source.join(""))
        .arg(target.join(""))
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
}
