//! `longhaul sync`, filters, and `--dry-run`.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::common::archive::abilities::can_give_files_away;
use crate::common::archive::archives_equal_rsync;
use crate::common::mirror::{describe, mirrors_equal_rsync};
use crate::stage::*;

/// Both ends of a mirror.
pub struct Mirror {
    pub stage: Stage,
    pub server: Service,
}

impl Mirror {
    pub fn new() -> Self {
        Self::serving(&[])
    }

    /// Creates it with options of the server.
    fn serving(options: &[&str]) -> Self {
        let stage = Stage::new();
        let server = stage.serve(options);
        Self { stage, server }
    }

    pub fn write(&self, path: &str, content: &str) {
        let file = self.stage.path(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, content).unwrap();
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.stage.longhaul("me");
        let (name, rest) = arguments.split_first().unwrap();
        command.arg(name).args(["--host-key", &self.server.key]);
        let there = format!("lh://{}/", self.server.address);
        command.args(rest.iter().map(|argument| argument.replace('@', &there)));
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    pub fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(
            output.status.code(),
            Some(0),
            "{arguments:?}: {}",
            errors(&output)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn paths(&self, root: &str) -> Vec<String> {
        let found = describe(&self.stage.path(root)).into_keys();
        let named = found.filter(|path| path != Path::new(""));
        named.map(|path| path.display().to_string()).collect()
    }
}

#[test]
fn pushed_mirrors_equal_rsync() {
    let mirror = Mirror::new();
    let (here, root) = (mirror.stage.path("here"), mirror.stage.path("root"));
    mirrors_equal_rsync(&here, &root, |source, target, rules| {
        let name = target.file_name().unwrap().to_str().unwrap();
        sync(
            &mirror,
            "-H",
            source.to_str().unwrap(),
            &format!("@{name}"),
            rules,
        );
    });
}

#[test]
fn pulled_mirrors_equal_rsync() {
    let mirror = Mirror::new();
    let (here, root) = (mirror.stage.path("here"), mirror.stage.path("root"));
    mirrors_equal_rsync(&root, &here, |source, target, rules| {
        let name = source.file_name().unwrap().to_str().unwrap();
        sync(
            &mirror,
            "-H",
            &format!("@{name}"),
            target.to_str().unwrap(),
            rules,
        );
    });
}

#[test]
fn pushed_archive_mirrors_equal_rsync() {
    let options = &["--allow-owners"][..];
    let mirror = Mirror::serving(if can_give_files_away() { options } else { &[] });
    let (here, root) = (mirror.stage.path("here"), mirror.stage.path("root"));
    archives_equal_rsync(&here, &root, |source, target, rules| {
        let name = target.file_name().unwrap().to_str().unwrap();
        let source = source.to_str().unwrap();
        sync(&mirror, "-a", source, &format!("@{name}"), rules);
    });
}

#[test]
fn pulled_archive_mirrors_equal_rsync() {
    let mirror = Mirror::new();
    let (here, root) = (mirror.stage.path("here"), mirror.stage.path("root"));
    archives_equal_rsync(&root, &here, |source, target, rules| {
        let name = source.file_name().unwrap().to_str().unwrap();
        let target = target.to_str().unwrap();
        sync(&mirror, "-a", &format!("@{name}"), target, rules);
    });
}

#[test]
fn local_archive_mirrors_equal_rsync() {
    let mirror = Mirror::new();
    let (here, root) = (mirror.stage.path("here"), mirror.stage.path("root"));
    archives_equal_rsync(&here, &root, |source, target, rules| {
        let (source, target) = (source.to_str().unwrap(), target.to_str().unwrap());
        sync(&mirror, "-a", source, target, rules);
    });
}

fn sync(mirror: &Mirror, kept: &str, source: &str, target: &str, rules: &Path) {
    let rules = rules.to_str().unwrap();
    mirror.ok(&[
        "sync",
        "-q",
        kept,
        "--delete",
        "--force",
        "--exclude-from",
        rules,
        source,
        target,
    ]);
}

#[test]
fn local_mirror_removes_and_repeats_nothing() {
    let mirror = Mirror::new();
    mirror.write("here/a/x", "x");
    mirror.write("here/b", "b");
    mirror.write("root/old/y", "y");
    mirror.write("root/b", "before");
    mirror.ok(&["sync", "-q", "--delete", "here", "root"]);
    let at = |path: &str| describe(&mirror.stage.path(path));
    assert_eq!(at("root"), at("here"));
    let again = mirror.ok(&["sync", "-n", "--delete", "here", "root"]);
    assert!(
        again.starts_with("would change nothing; 2 unchanged"),
        "{again}"
    );
}

#[test]
fn dry_run_lists_steps_and_changes_nothing() {
    let mirror = Mirror::new();
    mirror.write("here/new", "12345");
    mirror.write("here/changed", "new");
    mirror.write("root/changed", "before");
    mirror.write("root/old/y", "y");
    let before = describe(&mirror.stage.path("root"));
    for (source, target) in [("here", "@"), ("here", "root")] {
        let text = mirror.ok(&["sync", "--dry-run", "--delete", "--json", source, target]);
        let lines: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let steps: Vec<(&str, &str)> = lines
            .iter()
            .filter(|line| line["event"] == "planned" && line["kind"] == "file")
            .map(|line| {
                (
                    line["change"].as_str().unwrap(),
                    line["path"].as_str().unwrap(),
                )
            })
            .collect();
        assert_eq!(steps, [("replace", "changed"), ("create", "new")]);
        let end = lines.last().unwrap();
        assert_eq!(
            (&end["event"], &end["remove"]),
            (&Value::from("plan"), &Value::from(2))
        );
        assert_eq!(end["copied_bytes"], 8);
        assert_eq!(describe(&mirror.stage.path("root")), before);
    }
    let text = mirror.ok(&["cp", "-n", "-r", "here/new", "here/changed", "@"]);
    assert!(text.contains("refuse") && text.contains("create"), "{text}");
    assert_eq!(describe(&mirror.stage.path("root")), before);
}

#[test]
fn nothing_is_removed_if_that_may_be_a_mistake() {
    let mirror = Mirror::new();
    for n in 0..3 {
        mirror.write(&format!("root/f{n}"), "x");
    }
    let kept = |output: Output, words: &str| {
        assert_eq!(output.status.code(), Some(1), "{}", errors(&output));
        assert!(errors(&output).contains(words), "{}", errors(&output));
        assert_eq!(mirror.paths("root").len(), 3);
    };
    kept(
        mirror.run(&["sync", "--delete", "here", "@"]),
        "the source is empty",
    );
    mirror.write("here/f0", "x");
    kept(
        mirror.run(&["sync", "--delete", "--max-delete", "1", "here", "@"]),
        "--max-delete",
    );
    // A source that cannot be copied as a whole.
    rustix::fs::mknodat(
        rustix::fs::CWD,
        mirror.stage.path("here/fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    kept(
        mirror.run(&["sync", "-q", "--delete", "here", "@"]),
        "nothing was removed",
    );
    fs::remove_file(mirror.stage.path("here/fifo")).unwrap();
    mirror.ok(&["sync", "-q", "--delete", "--max-delete", "2", "here", "@"]);
    assert_eq!(mirror.paths("root"), ["f0"]);
}

#[test]
fn trash_takes_what_is_removed() {
    let mirror = Mirror::new();
    mirror.write("here/kept", "x");
    mirror.write("root/old/deep/f", "old");
    mirror.write("root/kept", "x");
    mirror.ok(&["sync", "-q", "--delete", "--trash", ".trash", "here", "@"]);
    let runs: Vec<_> = fs::read_dir(mirror.stage.path("root/.trash"))
        .unwrap()
        .collect();
    let [run] = &runs[..] else { panic!("{runs:?}") };
    let taken = run.as_ref().unwrap().path().join("old/deep/f");
    assert_eq!(fs::read_to_string(taken).unwrap(), "old");
    // The trash itself stays.
    mirror.ok(&["sync", "-q", "--delete", "--trash", ".trash", "here", "@"]);
    assert!(mirror.stage.path("root/.trash").exists() && !mirror.stage.path("root/old").exists());
    for bad in ["/tmp/trash", "../trash", "."] {
        let output = mirror.run(&["sync", "--delete", "--trash", bad, "here", "@"]);
        assert_eq!(output.status.code(), Some(2), "{bad}");
    }
}

#[test]
fn ignored_files_stay_at_both_ends() {
    let mirror = Mirror::new();
    mirror.write("here/.longhaulignore", "*.o\n");
    mirror.write("here/a.c", "c");
    mirror.write("here/a.o", "here");
    mirror.write("root/b.o", "there");
    mirror.ok(&["sync", "-q", "--delete", "here", "@"]);
    assert_eq!(mirror.paths("root"), [".longhaulignore", "a.c", "b.o"]);
    mirror.ok(&["sync", "-q", "--delete", "@", "here"]);
    assert_eq!(mirror.paths("here"), [".longhaulignore", "a.c", "a.o"]);
    mirror.ok(&["sync", "-q", "--delete", "--no-ignore-files", "@", "here"]);
    assert_eq!(mirror.paths("here"), [".longhaulignore", "a.c", "b.o"]);
}

#[test]
fn filters_select_what_cp_copies() {
    let mirror = Mirror::new();
    for path in ["a.c", "a.o", "keep.o", "sub/b.c", "sub/b.o"] {
        mirror.write(&format!("root/t/{path}"), path);
    }
    let rules = ["--exclude", "*.o", "--include", "keep.o"];
    let pull = [&["cp", "-q", "-r"][..], &rules, &["@t", "here/"]].concat();
    mirror.ok(&pull);
    assert_eq!(mirror.paths("here/t"), ["a.c", "keep.o", "sub", "sub/b.c"]);
    let list = mirror.stage.path("list");
    fs::write(&list, "sub/b.o\0a.c\0none\0").unwrap();
    let from = ["--files-from", list.to_str().unwrap(), "-0"];
    let pull = [&["cp", "-q", "-r"][..], &from, &["@t", "here/listed/"]].concat();
    let output = mirror.run(&pull);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        errors(&output).contains("none: no such file"),
        "{}",
        errors(&output)
    );
    assert_eq!(mirror.paths("here/listed/t"), ["a.c", "sub", "sub/b.o"]);
    let wrong = mirror.run(&["cp", "--exclude", "[a", "@t", "here/"]);
    assert_eq!(wrong.status.code(), Some(2), "{}", errors(&wrong));
}

#[test]
fn updates_keep_newer_files() {
    let mirror = Mirror::new();
    mirror.write("here/t/f", "source");
    mirror.write("root/t/f", "newer one");
    let late = fs::File::options()
        .write(true)
        .open(mirror.stage.path("root/t/f"))
        .unwrap();
    late.set_modified(std::time::SystemTime::now() + std::time::Duration::from_secs(60))
        .unwrap();
    mirror.ok(&["cp", "-q", "-r", "--update", "here/t", "@"]);
    let there = || fs::read_to_string(mirror.stage.path("root/t/f")).unwrap();
    assert_eq!(there(), "newer one");
    mirror.ok(&["sync", "-q", "--ignore-existing", "here", "@"]);
    assert_eq!(there(), "newer one");
    mirror.ok(&["sync", "-q", "here", "@"]);
    assert_eq!(there(), "source");
}

#[test]
fn dry_runs_of_rm_mv_and_mkdir_change_nothing() {
    let mirror = Mirror::new();
    mirror.write("root/d/f", "12345");
    let before = describe(&mirror.stage.path("root"));
    let text = mirror.ok(&["rm", "-r", "-n", "@d"]);
    assert!(
        text.contains("d/ (2 entries)") && text.contains("would remove 2; 5 B to remove"),
        "{text}"
    );
    mirror.ok(&["mv", "-n", "@d", "@e"]);
    mirror.ok(&["mkdir", "-n", "@new"]);
    assert_eq!(mirror.run(&["rm", "-n", "@none"]).status.code(), Some(1));
    assert_eq!(describe(&mirror.stage.path("root")), before);
}
