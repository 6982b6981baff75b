//! Files that were renamed in the source of a mirror are renamed at the target.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Stdio;
use std::time::SystemTime;

use serde_json::Value;

use crate::common::mirror::describe;
use crate::mounts::{Kind, Mount};
use crate::stage::*;
use crate::sync::Mirror;

/// Ends of a mirror, and the directories that they are.
const ENDS: [[(&str, &str); 2]; 3] = [
    [("here", "here"), ("@", "root")],
    [("@", "root"), ("here", "here")],
    [("here", "here"), ("root", "root")],
];

/// Mirrors, and returns the events.
fn sync(mirror: &Mirror, source: &str, target: &str, more: &[&str]) -> Vec<Value> {
    let first = &["sync", "--json", "--delete"][..];
    let arguments = [first, more, &[source, target]].concat();
    let text = mirror.ok(&arguments);
    let events = text.lines().map(|line| serde_json::from_str(line).unwrap());
    events.collect()
}

/// Returns the old and new names of the renamed files.
fn renamed(events: &[Value]) -> Vec<(&str, &str)> {
    let renamed = events.iter().filter(|event| event["event"] == "renamed");
    let names = |event| ["from", "path"].map(|name| text(event, name)).into();
    renamed.map(names).collect()
}

fn text<'a>(event: &'a Value, name: &str) -> &'a str {
    event[name].as_str().unwrap()
}

fn inode(path: &Path) -> u64 {
    fs::metadata(path).unwrap().ino()
}

fn set_time(path: &Path, time: SystemTime) {
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(time).unwrap();
}

#[test]
fn renamed_files_do_not_travel() {
    for [(source, from), (target, to)] in ENDS {
        let mirror = Mirror::new();
        mirror.write(&format!("{from}/old/small"), "small");
        mirror.write(&format!("{from}/kept"), "kept");
        mirror.stage.noise(&format!("{from}/old/large"), 3 << 20);
        sync(&mirror, source, target, &[]);
        let at = |side: &str, path: &str| mirror.stage.path(&format!("{side}/{path}"));
        let inodes = ["small", "large"].map(|name| inode(&at(to, &format!("old/{name}"))));
        fs::create_dir(at(from, "new")).unwrap();
        fs::rename(at(from, "old"), at(from, "new/deep")).unwrap();
        let events = sync(&mirror, source, target, &[]);
        let expected = [
            ("old/large", "new/deep/large"),
            ("old/small", "new/deep/small"),
        ];
        assert_eq!(renamed(&events), expected);
        let is_report = |event: &&Value| event["event"] == "report";
        let report = events.iter().find(is_report).unwrap();
        let bytes = |name: &str| report[name].as_u64().unwrap();
        // A push may send small files before it learns that they are there.
        assert!(
            bytes("bytes") - bytes("unchanged_bytes") < 1 << 20,
            "{report}"
        );
        assert_eq!(
            ["small", "large"].map(|name| inode(&at(to, &format!("new/deep/{name}")))),
            inodes
        );
        let tree = |side: &str| describe(&mirror.stage.path(side));
        assert_eq!(tree(from), tree(to));
    }
}

#[test]
fn files_of_other_content_are_copied() {
    for [(source, from), (target, to)] in ENDS {
        let mirror = Mirror::new();
        let at = |side: &str, path: &str| mirror.stage.path(&format!("{side}/{path}"));
        mirror.write(&format!("{from}/new"), "source");
        mirror.write(&format!("{to}/old"), "target");
        let time = SystemTime::now();
        set_time(&at(from, "new"), time);
        set_time(&at(to, "old"), time);
        let events = sync(&mirror, source, target, &[]);
        assert!(renamed(&events).is_empty(), "{events:?}");
        assert_eq!(fs::read_to_string(at(to, "new")).unwrap(), "source");
        assert_eq!(mirror.paths(to), ["new"]);
    }
}

#[test]
fn rename_is_shown_and_is_no_removal() {
    let mirror = Mirror::new();
    mirror.write("here/a", "content");
    sync(&mirror, "here", "@", &[]);
    let inode_before = inode(&mirror.stage.path("root/a"));
    let here = |name: &str| mirror.stage.path(&format!("here/{name}"));
    fs::rename(here("a"), here("b")).unwrap();
    let limit = ["--max-delete", "0", "--trash", ".trash"];
    let before = describe(&mirror.stage.path("root"));
    let plan = |more: &[&str]| {
        let first = &["sync", "-n", "--delete"][..];
        mirror.ok(&[first, &limit, more, &["here", "@"]].concat())
    };
    let text = plan(&[]);
    assert!(text.contains("rename          7 B a to b\n"), "{text}");
    let total = text.lines().last().unwrap();
    assert!(
        total.starts_with("would rename 1") && !total.contains("remove"),
        "{text}"
    );
    let json = plan(&["--json"]);
    let steps: Vec<Value> = json
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(
        (&steps[0]["change"], &steps[0]["from"], &steps[0]["path"]),
        (&"rename".into(), &"a".into(), &"b".into())
    );
    assert_eq!(describe(&mirror.stage.path("root")), before);
    sync(&mirror, "here", "@", &limit);
    assert_eq!(mirror.paths("root"), ["b"]);
    assert_eq!(inode(&mirror.stage.path("root/b")), inode_before);
}

#[test]
fn what_filters_leave_out_is_not_renamed() {
    let mirror = Mirror::new();
    mirror.write("here/x.o", "content");
    sync(&mirror, "here", "@", &[]);
    let here = |name: &str| mirror.stage.path(&format!("here/{name}"));
    fs::rename(here("x.o"), here("x.c")).unwrap();
    let events = sync(&mirror, "here", "@", &["--exclude", "*.o"]);
    assert!(renamed(&events).is_empty(), "{events:?}");
    assert_eq!(mirror.paths("root"), ["x.c", "x.o"]);
}

#[test]
fn files_with_other_names_are_copied() {
    let mirror = Mirror::new();
    mirror.write("here/a", "content");
    mirror.write("here/c", "content");
    sync(&mirror, "here", "@", &[]);
    let root = |name: &str| mirror.stage.path(&format!("root/{name}"));
    fs::remove_file(root("a")).unwrap();
    fs::hard_link(root("c"), root("a")).unwrap();
    let here = |name: &str| mirror.stage.path(&format!("here/{name}"));
    let time = fs::metadata(here("c")).unwrap().modified().unwrap();
    set_time(&here("a"), time);
    fs::rename(here("a"), here("b")).unwrap();
    let events = sync(&mirror, "here", "@", &[]);
    assert!(renamed(&events).is_empty(), "{events:?}");
    assert_eq!(mirror.paths("root"), ["b", "c"]);
    assert_ne!(inode(&root("b")), inode(&root("c")));
}

#[test]
fn killed_renames_lose_nothing_and_are_continued() {
    const FILES: usize = 200;
    let mirror = Mirror::new();
    for n in 0..FILES {
        mirror.write(&format!("here/old/{n}"), &format!("content of {n}"));
    }
    sync(&mirror, "here", "root", &[]);
    let here = |name: &str| mirror.stage.path(&format!("here/{name}"));
    fs::rename(here("old"), here("new")).unwrap();
    let mut command = mirror.command(&["sync", "--json", "--delete", "here", "root"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = Running::new(command);
    running.until(|event| event["event"] == "renamed");
    running.child.kill().unwrap();
    running.child.wait().unwrap();
    for n in 0..FILES {
        let found = ["old", "new"].map(|directory| {
            let path = mirror.stage.path(&format!("root/{directory}/{n}"));
            fs::read_to_string(path).ok()
        });
        let whole = Some(format!("content of {n}"));
        assert!(found.contains(&whole), "{n}: {found:?}");
    }
    sync(&mirror, "here", "root", &[]);
    let tree = |side: &str| describe(&mirror.stage.path(side));
    assert_eq!(tree("here"), tree("root"));
}

#[test]
fn change_of_case_removes_nothing_where_case_is_ignored() {
    let mirror = Mirror::new();
    let Some(mount) = Mount::new(&mirror.stage, Kind::Exfat, "there") else {
        return;
    };
    for path in ["a.jpg", "Sub/x", "gone"] {
        mirror.write(&format!("here/{path}"), path);
    }
    sync(&mirror, "here", "there", &[]);
    let here = |path: &str| mirror.stage.path(&format!("here/{path}"));
    for (from, to) in [("a.jpg", "A.jpg"), ("Sub", "sub")] {
        fs::rename(here(from), here(to)).unwrap();
    }
    fs::remove_file(here("gone")).unwrap();
    for _ in 0..2 {
        sync(&mirror, "here", "there", &[]);
        for path in ["a.jpg", "Sub/x"] {
            let content = fs::read_to_string(mount.path().join(path));
            assert_eq!(content.unwrap(), path);
        }
        assert!(!mount.path().join("gone").exists());
    }
}

#[test]
fn file_beside_its_name_in_other_case_is_removed() {
    let mirror = Mirror::new();
    mirror.write("here/B", "B");
    mirror.write("there/b", "another");
    sync(&mirror, "here", "there", &[]);
    assert_eq!(mirror.paths("there"), ["B"]);
}
