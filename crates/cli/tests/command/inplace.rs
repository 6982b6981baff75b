//! `cp --inplace`: files that are overwritten where they differ.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::common::noise;
use crate::stage::*;

const BYTES: usize = 8 << 20;

fn inode(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().ino()
}

#[test]
fn files_keep_their_inode_and_names() {
    let stage = Stage::new();
    let server = stage.serve(&[]);
    let there = format!("lh://{}/image", server.address);
    let old = stage.noise("here/old", BYTES);
    let mut new = old.clone();
    for at in [0, BYTES / 2, BYTES - 1] {
        new[at] ^= 1;
    }
    new.extend(noise(100_000, 7));
    let flags = ["--inplace", "--overwrite", "--json"];
    for (from, to, target) in [
        ("here/new", &there[..], "root/image"),
        (&there, "here/copy", "here/copy"),
        ("here/new", "here/local", "here/local"),
    ] {
        std::fs::write(stage.path("here/new"), &new).unwrap();
        std::fs::write(stage.path(target), &old).unwrap();
        let other = format!("{target}.link");
        std::fs::hard_link(stage.path(target), stage.path(&other)).unwrap();
        let before = inode(&stage.path(target));
        let copied = stage.cp(&server, &[&flags[..], &[from, to]].concat());
        assert_eq!(copied.status.code(), Some(0), "{}", errors(&copied));
        assert!(
            std::fs::read(stage.path(&other)).unwrap() == new,
            "{target}"
        );
        assert_eq!(inode(&stage.path(target)), before, "{target}");
    }
    // What is in place stays.
    let again = stage.cp(&server, &[&flags[..], &["here/new", &there]].concat());
    assert_eq!(again.status.code(), Some(0), "{}", errors(&again));
}

#[test]
fn it_needs_overwrite_and_excludes_a_backup() {
    let stage = Stage::new();
    stage.noise("here/f", 1000);
    let run = |arguments: &[&str]| {
        let output = stage.longhaul("me").args(arguments).output().unwrap();
        (output.status.code(), errors(&output))
    };
    for (arguments, word) in [
        (&["cp", "--inplace", "here/f", "here/g"][..], "--overwrite"),
        (
            &["cp", "--inplace", "--update", "here/f", "here/g"],
            "--update",
        ),
        (
            &[
                "sync",
                "--inplace",
                "--delete",
                "--trash",
                "t",
                "here",
                "root",
            ],
            "--trash",
        ),
        (
            &["cp", "--inplace", "--overwrite", "here/f", "sftp://h/f"],
            "--inplace",
        ),
    ] {
        let (code, reported) = run(arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {reported}");
        assert!(reported.contains(word), "{arguments:?}: {reported}");
    }
}
