//! `ls`, `stat`, `du`, `find` and `rm` in stores.

use std::fs;

use super::clouds::Cloud;
use super::peers::Peer;
use super::{World, isolated};
use crate::stage::{Stage, errors};

/// Makes a tree of three files of 12 bytes in all.
fn make_tree(stage: &Stage) {
    for (name, content) in [("a", "one"), ("b c", "three"), ("d/e", "four")] {
        let file = stage.path("here/tree").join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, content).unwrap();
    }
}

/// Asserts what the commands print of the tree at `there`, removes it, and asserts that it is gone.
fn use_commands(there: &str, run: impl Fn(&[&str]) -> (Option<i32>, String)) {
    let printed = |arguments: &[&str]| {
        let (code, printed) = run(arguments);
        assert_eq!(code, Some(0), "{arguments:?}: {printed}");
        printed
    };
    assert_eq!(printed(&["ls", there]), "a\nb c\nd/\n");
    assert_eq!(printed(&["find", there]), "a\nb c\nd/e\n");
    let sum = printed(&["du", "-s", there]);
    assert!(sum.starts_with("12\t"), "{sum}");
    let file = format!("{there}/a");
    let described = printed(&["stat", "--json", &file]);
    assert!(described.contains("\"bytes\":3"), "{described}");

    let (code, said) = run(&["rm", there]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("is a directory; give -r"), "{said}");
    let would = printed(&["rm", "-r", "-n", there]);
    assert!(would.contains("12"), "{would}");
    printed(&["rm", &file]);
    assert_eq!(printed(&["ls", there]), "b c\nd/\n");
    printed(&["rm", "-r", there]);
    let (code, said) = run(&["ls", there]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("no such file"), "{said}");
}

#[test]
fn object_stores_are_listed_and_emptied() {
    for world in Cloud::ALL.into_iter().filter_map(World::new) {
        make_tree(&world.stage);
        let there = world.cloud.location("some/tree");
        world.cp(&["-r", "here/tree", &there]).assert_done();
        use_commands(&there, |arguments| world.run(arguments));
        for arguments in [["rm", "-r"], ["mkdir", "-p"], ["ls", "-l"]] {
            let root = world.cloud.location("");
            let (code, said) = world.run(&[&arguments[..], &[root.as_str()][..]].concat());
            let expected = if arguments[0] == "ls" { 0 } else { 2 };
            assert_eq!(code, Some(expected), "{arguments:?}: {said}");
        }
        let (code, said) = world.run(&["sum", &there]);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("only cp, sync, ls, stat"), "{said}");
    }
}

#[test]
fn dry_runs_with_stores_tell_what_differs() {
    for world in Cloud::ALL.into_iter().filter_map(World::new) {
        make_tree(&world.stage);
        let there = world.cloud.location("tree");
        let all = world.cloud.location("tree/.");
        let plan = |arguments: &[&str]| {
            let (code, printed) = world.run(&[&["cp", "-n", "-r"][..], arguments].concat());
            assert_eq!(code, Some(0), "{arguments:?}: {printed}");
            printed
        };
        let create = plan(&["here/tree", &there]);
        assert!(
            create.contains("create") && create.contains("d/e"),
            "{create}"
        );
        assert!(create.contains("12 B to send"), "{create}");
        world.cp(&["-r", "here/tree", &there]).assert_done();
        world.cp(&["-r", &there, "here/back"]).assert_done();
        for paths in [["here/tree/.", there.as_str()], [all.as_str(), "here/back"]] {
            let nothing = plan(&paths);
            assert!(
                nothing.contains("would change nothing; 3 unchanged"),
                "{nothing}"
            );
        }
        for file in ["here/tree/a", "here/back/a"] {
            fs::write(world.stage.path(file), "longer").unwrap();
        }
        for paths in [["here/tree/.", there.as_str()], [all.as_str(), "here/back"]] {
            let refuse = plan(&paths);
            assert!(
                refuse.contains("would refuse 1") && refuse.contains("2 unchanged"),
                "{refuse}"
            );
            let replace = plan(&["--overwrite", paths[0], paths[1]]);
            assert!(replace.contains("replace 1"), "{replace}");
        }
    }
}

#[test]
fn webdav_servers_are_listed_and_emptied() {
    let stage = Stage::new();
    let Some(rclone) = Peer::webdav(&stage.path("root"), None) else {
        return;
    };
    make_tree(&stage);
    let there = format!("webdav://{}/tree", rclone.address);
    let run = |arguments: &[&str]| {
        let output = isolated(&stage).args(arguments).output().unwrap();
        let printed = String::from_utf8(output.stdout.clone()).unwrap();
        (output.status.code(), printed + &errors(&output))
    };
    let (code, said) = run(&["cp", "-q", "-r", "here/tree", &there]);
    assert_eq!(code, Some(0), "{said}");
    use_commands(&there, run);
    assert_eq!(fs::read_dir(stage.path("root")).unwrap().count(), 0);
}
