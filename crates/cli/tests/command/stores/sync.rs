//! `sync --delete` with stores and SFTP servers.

use std::fs;
use std::os::unix::fs::symlink;

use super::clouds::Cloud;
use super::peers::Peer;
use super::sshd::{self, Hosts};
use super::{World, assert_same_trees, isolated};
use crate::stage::{Stage, errors};

/// Makes a tree of three files.
fn make_tree(stage: &Stage, root: &str) {
    for (name, content) in [("a", "one"), ("b c", "three"), ("d/e", "four")] {
        let file = stage.path(root).join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, content).unwrap();
    }
}

/// Asserts that the command succeeds, and returns what it prints.
#[track_caller]
fn done((code, printed): (Option<i32>, String)) -> String {
    assert_eq!(code, Some(0), "{printed}");
    printed
}

/// Asserts that the command fails with these words.
#[track_caller]
fn refused((code, printed): (Option<i32>, String), expected: i32, words: &str) {
    assert_eq!(code, Some(expected), "{printed}");
    assert!(printed.contains(words), "{printed}");
}

/// Mirrors `here/tree` to a directory at another end and back, and asserts what is removed there.
fn mirror(stage: &Stage, there: &str, run: impl Fn(&[&str]) -> (Option<i32>, String)) {
    make_tree(stage, "here/tree");
    // What is beside the directory is left alone.
    let beside = format!("{there}-beside");
    done(run(&["cp", "-q", "here/tree/a", &beside]));
    let sync = |more: &[&str]| run(&[&["sync", "--delete"][..], more].concat());
    done(sync(&["here/tree", there]));

    for name in ["old/x", "old/deeper/y", "z"] {
        let file = stage.path("here/more").join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, "old").unwrap();
    }
    done(run(&["cp", "-q", "-r", "here/more/.", there]));
    let listed = || {
        done(run(&[
            "cp",
            "-n",
            "-r",
            &format!("{there}/."),
            "here/nothing",
        ]))
    };
    let full = listed();
    assert!(full.contains("old/deeper/y"), "{full}");

    let plan = done(sync(&["-n", "here/tree", there]));
    assert!(plan.contains("remove"), "{plan}");
    assert!(plan.contains("old/"), "{plan}");
    assert!(plan.contains("3 unchanged"), "{plan}");
    refused(
        sync(&["--max-delete", "2", "here/tree", there]),
        1,
        "--max-delete allows 2",
    );
    fs::create_dir_all(stage.path("here/empty")).unwrap();
    refused(sync(&["here/empty", there]), 1, "the source is empty");
    refused(
        sync(&["--trash", ".trash", "here/tree", there]),
        2,
        "--trash is not possible",
    );
    let inside = format!("{there}/d");
    refused(sync(&[&inside, there]), 2, "one holds the other");
    assert_eq!(listed(), full, "nothing of this changes anything");

    let removed = done(sync(&["here/tree", there]));
    assert!(removed.contains("removed"), "{removed}");
    done(sync(&[there, "here/back"]));
    assert_same_trees(&stage.path("here/tree"), &stage.path("here/back"));
    let nothing = done(sync(&["-n", "here/tree", there]));
    assert!(nothing.contains("would change nothing"), "{nothing}");

    // A file that is gone there is removed here.
    fs::remove_file(stage.path("here/tree/b c")).unwrap();
    done(sync(&["here/tree", there]));
    done(sync(&[there, "here/back"]));
    assert_same_trees(&stage.path("here/tree"), &stage.path("here/back"));

    // A directory takes the place of a file.
    fs::remove_file(stage.path("here/tree/a")).unwrap();
    fs::create_dir(stage.path("here/tree/a")).unwrap();
    fs::write(stage.path("here/tree/a/below"), "new").unwrap();
    done(sync(&["here/tree", there]));
    done(sync(&[there, "here/back"]));
    assert_same_trees(&stage.path("here/tree"), &stage.path("here/back"));

    done(sync(&["--force", "here/empty", there]));
    done(run(&["cp", "-q", &beside, "here/beside"]));
    assert_eq!(fs::read(stage.path("here/beside")).unwrap(), b"one");
    refused(
        run(&["cp", "-q", &format!("{there}/d/e"), "here/gone"]),
        2,
        "no such file",
    );
}

#[test]
fn mirrors_in_object_stores_are_exact() {
    for world in Cloud::ALL.into_iter().filter_map(World::new) {
        let there = world.cloud.location("some/tree");
        fs::create_dir(world.stage.path("here/back")).unwrap();
        mirror(&world.stage, &there, |arguments| world.run(arguments));
    }
}

#[test]
fn mirrors_at_webdav_servers_are_exact() {
    let stage = Stage::new();
    let Some(rclone) = Peer::webdav(&stage.path("root"), None) else {
        return;
    };
    fs::create_dir(stage.path("here/back")).unwrap();
    let there = format!("webdav://{}/tree", rclone.address);
    mirror(&stage, &there, |arguments| {
        let output = isolated(&stage).args(arguments).output().unwrap();
        let printed = String::from_utf8(output.stdout.clone()).unwrap();
        (output.status.code(), printed + &errors(&output))
    });
}

#[test]
fn mirrors_at_sftp_servers_are_exact() {
    let stage = Stage::new();
    let Some(hosts) = Hosts::new(&stage) else {
        return;
    };
    fs::create_dir(stage.path("here/back")).unwrap();
    let host = sshd::SFTP;
    let there = format!("sftp://{host}{}/tree", stage.path("sftp").display());
    let run = |arguments: &[&str]| {
        let mut command = isolated(&stage);
        let (name, rest) = arguments.split_first().unwrap();
        command.arg(name).arg("-F").arg(&hosts.config).args(rest);
        let output = command.output().unwrap();
        let printed = String::from_utf8(output.stdout.clone()).unwrap();
        (output.status.code(), printed + &errors(&output))
    };
    mirror(&stage, &there, run);

    // Another login and a link do not hide that it is the same directory.
    make_tree(&stage, "sftp/tree");
    symlink(stage.path("sftp/tree"), stage.path("sftp/link")).unwrap();
    let link = format!("sftp://root@{host}{}", stage.path("sftp/link").display());
    let inside = format!("{link}/d");
    for options in [&["--delete"][..], &[]] {
        let ends = [inside.as_str(), there.as_str()];
        let sync = [&["sync"][..], options, &ends].concat();
        refused(run(&sync), 2, "one holds the other");
    }
    let missing = format!("{link}/new/directory");
    refused(
        run(&["cp", "-r", &there, &missing]),
        2,
        "cannot be copied into itself",
    );
    assert!(!stage.path("sftp/tree/new").exists());
}

#[test]
fn mirror_between_store_and_server_removes_at_both() {
    let Some(world) = World::new(Cloud::S3) else {
        return;
    };
    let server = world.stage.serve(&[]);
    let there = format!("lh://{}/tree", server.address);
    let sync = |from: &str, to: &str| {
        let key = ["sync", "--delete", "--host-key", server.key.as_str()];
        world.run(&[&key[..], &[from, to][..]].concat())
    };
    make_tree(&world.stage, "root/tree");
    make_tree(&world.stage, "here/tree");
    fs::write(world.stage.path("here/tree/old"), "old").unwrap();
    done(sync("here/tree", "s3://runs/tree"));
    let removed = done(sync(&there, "s3://runs/tree"));
    assert!(removed.contains("removed 1 entry"), "{removed}");
    fs::write(world.stage.path("root/tree/new"), "new").unwrap();
    let removed = done(sync("s3://runs/tree", &there));
    assert!(removed.contains("removed 1 entry"), "{removed}");
    fs::remove_file(world.stage.path("here/tree/old")).unwrap();
    assert_same_trees(
        &world.stage.path("here/tree"),
        &world.stage.path("root/tree"),
    );
}

#[test]
fn nothing_is_removed_after_an_error_of_the_source() {
    let Some(world) = World::new(Cloud::S3) else {
        return;
    };
    make_tree(&world.stage, "here/tree");
    done(world.run(&["sync", "here/tree", "s3://runs/tree"]));
    fs::remove_file(world.stage.path("here/tree/a")).unwrap();
    // Stores have no links.
    symlink("b c", world.stage.path("here/tree/link")).unwrap();
    refused(
        world.run(&["sync", "--delete", "here/tree", "s3://runs/tree"]),
        1,
        "nothing was removed",
    );
    done(world.run(&["cp", "-q", "s3://runs/tree/a", "here/a"]));

    // A bucket that does not exist is not an empty source.
    fs::create_dir(world.stage.path("here/back")).unwrap();
    fs::write(world.stage.path("here/back/f"), "mine").unwrap();
    for missing in ["s3://no-such-bucket/tree", "s3://runs/no-such-tree"] {
        let (code, said) = world.run(&["sync", "--delete", "--force", missing, "here/back"]);
        assert!(matches!(code, Some(1 | 2)), "{said}");
        assert!(world.stage.path("here/back/f").exists(), "{said}");
    }
}
