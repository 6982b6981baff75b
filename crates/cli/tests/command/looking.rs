//! `longhaul du`, `find`, `cat` and `head`, here and at a server.

use std::fs;
use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::common::noise;
use crate::stage::*;

struct Looker {
    stage: Stage,
    server: Service,
}

impl Looker {
    /// Starts a server with this tree, which is also here.
    fn with_tree() -> Self {
        let stage = Stage::new();
        let server = stage.serve(&[]);
        for (name, bytes) in [
            ("a.dat", 3000),
            ("sub/b.dat", 70_000),
            ("sub/deep/c.tmp", 5),
        ] {
            for side in ["here", "root"] {
                let path = stage.path(&format!("{side}/{name}"));
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, noise(bytes, bytes as u64)).unwrap();
            }
        }
        Self { stage, server }
    }

    /// Returns the command. `@path` stands for that path at the server.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.stage.longhaul("me");
        command.current_dir(self.stage.path("here"));
        for argument in arguments {
            match argument.strip_prefix('@') {
                Some(path) => command
                    .args(["--host-key", &self.server.key])
                    .arg(format!("lh://{}/{path}", self.server.address)),
                None => command.arg(argument),
            };
        }
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn ok(&self, arguments: &[&str]) -> Vec<u8> {
        let output = self.run(arguments);
        let code = output.status.code();
        assert_eq!(code, Some(0), "{arguments:?}: {}", errors(&output));
        output.stdout
    }

    fn text(&self, arguments: &[&str]) -> String {
        String::from_utf8(self.ok(arguments)).unwrap()
    }

    fn there(&self) -> String {
        format!("lh://{}/", self.server.address)
    }
}

fn events(text: &str) -> Vec<Value> {
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn sizes_are_summed_here_and_at_a_server() {
    let looker = Looker::with_tree();
    let here = looker.text(&["du", "."]);
    assert_eq!(here, "5\t./sub/deep\n70005\t./sub\n73005\t.\n");
    let there = looker.text(&["du", "@"]);
    assert_eq!(
        there
            .replace(&looker.there(), "./")
            .replace("\t./\n", "\t.\n"),
        here
    );
    assert_eq!(looker.text(&["du", "-sh", "."]), "72K\t.\n");
    assert_eq!(
        looker.text(&["du", "-d", "1", "sub"]),
        "5\tsub/deep\n70005\tsub\n"
    );
    let both = looker.text(&["du", "-s", "-c", "a.dat", "sub"]);
    assert_eq!(both, "3000\ta.dat\n70005\tsub\n73005\ttotal\n");
    let all = looker.text(&["du", "-a", "sub/deep"]);
    assert_eq!(all, "5\tsub/deep/c.tmp\n5\tsub/deep\n");
    let usage = &events(&looker.text(&["du", "-s", "--json", "@"]))[0];
    assert_eq!(
        (
            &usage["event"],
            &usage["bytes"],
            &usage["files"],
            &usage["entries"]
        ),
        (&"usage".into(), &73_005.into(), &3.into(), &6.into())
    );
    let help = looker.text(&["du", "--help"]);
    assert!(help.contains("--human-readable"), "{help}");
}

#[test]
fn du_of_what_is_missing_fails_and_sums_the_rest() {
    let looker = Looker::with_tree();
    let output = looker.run(&["du", "-s", "none", "a.dat"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(output.stdout, b"3000\ta.dat\n");
    assert!(
        errors(&output).contains("no such file"),
        "{}",
        errors(&output)
    );
    assert_eq!(looker.run(&["find", "@none"]).status.code(), Some(1));
    assert_eq!(looker.run(&["find", "a.dat"]).status.code(), Some(1));
}

#[test]
fn found_paths_are_those_that_a_copy_takes() {
    let looker = Looker::with_tree();
    std::os::unix::fs::symlink("a.dat", looker.stage.path("here/link")).unwrap();
    let all = "a.dat\nlink\nsub/b.dat\nsub/deep/c.tmp\n";
    assert_eq!(looker.text(&["find", "."]), all);
    assert_eq!(looker.text(&["find", "@"]), all.replace("link\n", ""));
    assert_eq!(
        looker.text(&["find", "--type", "d", "@"]),
        "sub\nsub/deep\n"
    );
    assert_eq!(looker.text(&["find", "--type", "l"]), "link\n");
    assert_eq!(
        looker.text(&["find", "--type", "d,l"]),
        "link\nsub\nsub/deep\n"
    );
    let large = ["find", "--min-size", "1K", "--exclude", "a*", "@"];
    assert_eq!(looker.text(&large), "sub/b.dat\n");
    fs::write(looker.stage.path("root/.longhaulignore"), "*.tmp\n").unwrap();
    assert!(!looker.text(&["find", "@"]).contains("c.tmp"));
    assert!(
        looker
            .text(&["find", "--no-ignore-files", "@"])
            .contains("c.tmp")
    );
    let found = events(&looker.text(&["find", "--json", "--type", "f", "@sub/deep"]));
    assert_eq!(
        found.len(),
        1,
        "rules above the directory do not apply: {found:?}"
    );
    let found = events(&looker.text(&["find", "--json", "@sub"]));
    assert_eq!(
        (&found[0]["name"], &found[0]["bytes"], &found[0]["kind"]),
        (&"b.dat".into(), &70_000.into(), &"file".into())
    );
    assert_eq!(looker.run(&["find", "-x", "."]).status.code(), Some(2));
}

#[test]
fn found_paths_feed_a_copy() {
    let looker = Looker::with_tree();
    fs::write(looker.stage.path("root/sub/two\nlines"), "abcd").unwrap();
    let list = looker.ok(&["find", "-0", "--max-size", "100", "@"]);
    assert_eq!(list, b"sub/deep/c.tmp\0sub/two\nlines\0");
    let mut copy = looker.command(&["cp", "-rq", "--files-from", "-", "-0", "@", "../copied"]);
    let mut child = copy.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&list).unwrap();
    assert!(child.wait().unwrap().success());
    let copied = looker.text(&["find", "../copied"]);
    assert_eq!(copied, "sub/deep/c.tmp\nsub/two\nlines\n");
}

#[test]
fn files_are_printed_whole_and_in_part() {
    let looker = Looker::with_tree();
    let content = fs::read(looker.stage.path("here/sub/b.dat")).unwrap();
    for path in ["sub/b.dat", "@sub/b.dat"] {
        assert!(looker.ok(&["cat", path]) == content);
        let part = looker.ok(&["cat", "--offset", "69990", path]);
        assert_eq!(part, content[69_990..]);
        let part = looker.ok(&["cat", "--offset", "7", "--length", "5", path]);
        assert_eq!(part, content[7..12]);
        assert_eq!(looker.ok(&["head", "-c", "9", path]), content[..9]);
        assert_eq!(looker.ok(&["cat", "--offset", "1G", path]), b"");
    }
    let both = looker.ok(&["cat", "a.dat", "@sub/b.dat"]);
    assert_eq!(both.len(), 73_000);
    // The rest is printed although one fails.
    let failed = looker.run(&["cat", "@none", "a.dat"]);
    assert_eq!((failed.status.code(), failed.stdout.len()), (Some(1), 3000));
    assert!(
        errors(&failed).contains("no such file"),
        "{}",
        errors(&failed)
    );
    assert_eq!(looker.run(&["cat", "@sub"]).status.code(), Some(1));
    assert_eq!(looker.run(&["cat", "-"]).status.code(), Some(2));
}

#[test]
fn head_prints_lines_of_each_file() {
    let looker = Looker::with_tree();
    let lines: String = (1..=20).map(|n| format!("{n}\n")).collect();
    fs::write(looker.stage.path("root/lines"), &lines).unwrap();
    let first: String = (1..=10).map(|n| format!("{n}\n")).collect();
    assert_eq!(looker.text(&["head", "@lines"]), first);
    assert_eq!(looker.text(&["head", "-n", "99", "@lines"]), lines);
    let path = format!("{}lines", looker.there());
    assert_eq!(
        looker.text(&["head", "-n", "1", "@lines", &path]),
        format!("==> {path} <==\n1\n\n==> {path} <==\n1\n")
    );
}

#[test]
fn head_reads_little_of_a_large_file() {
    let looker = Looker::with_tree();
    let file = fs::File::create(looker.stage.path("root/large")).unwrap();
    // Reading it to its end would take hours.
    file.set_len(1 << 42).unwrap();
    assert_eq!(looker.ok(&["head", "-c", "1M", "@large"]), vec![0; 1 << 20]);
    let end = (1_u64 << 42) - 3;
    let last = ["cat", "--offset", &end.to_string(), "@large"];
    assert_eq!(looker.ok(&last), [0; 3]);
}
