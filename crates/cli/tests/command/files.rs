//! `longhaul ls`, `stat`, `mkdir`, `mv` and `rm` at a server.

use std::process::Output;

use serde_json::Value;

use crate::stage::*;

struct Shop {
    stage: Stage,
    server: Service,
}

impl Shop {
    fn open() -> Self {
        let stage = Stage::new();
        let server = stage.serve(&[]);
        Self { stage, server }
    }

    fn run(&self, command: &str, arguments: &[&str]) -> Output {
        let mut run = self.stage.longhaul("me");
        run.arg(command).args(["--host-key", &self.server.key]);
        run.args(arguments.iter().map(|argument| self.there(argument)));
        run.output().unwrap()
    }

    /// Replaces `@path` by that path at the server.
    fn there(&self, argument: &str) -> String {
        match argument.strip_prefix('@') {
            Some(path) => format!("lh://{}/{path}", self.server.address),
            None => argument.to_owned(),
        }
    }

    fn ok(&self, command: &str, arguments: &[&str]) -> String {
        let output = self.run(command, arguments);
        assert_eq!(
            output.status.code(),
            Some(0),
            "{command} {arguments:?}: {}",
            errors(&output)
        );
        String::from_utf8(output.stdout).unwrap()
    }
}

fn events(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn files_are_listed_made_renamed_and_removed_at_a_server() {
    let shop = Shop::open();
    shop.ok("mkdir", &["-p", "@runs/new", "@runs/old"]);
    std::fs::write(shop.stage.path("root/runs/f"), "12345").unwrap();
    std::os::unix::fs::symlink("f", shop.stage.path("root/runs/link")).unwrap();
    std::fs::write(shop.stage.path("root/runs/.longhaul-01020304-1"), "x").unwrap();
    assert_eq!(shop.ok("ls", &["@runs"]), "f\nlink@\nnew/\nold/\n");
    assert_eq!(
        shop.ok("ls", &["-a", "@runs"]),
        ".longhaul-01020304-1\nf\nlink@\nnew/\nold/\n"
    );
    assert_eq!(shop.ok("ls", &["@"]), "runs/\n");
    let long = shop.ok("ls", &["-l", "@runs"]);
    assert!(
        long.contains("0644          5 B") && long.contains("link@ -> f"),
        "{long}"
    );
    let listed = events(&shop.ok("ls", &["--json", "@runs"]));
    assert_eq!(listed[1]["kind"], "symlink");
    assert_eq!(
        (&listed[0]["name"], &listed[0]["bytes"]),
        (&"f".into(), &5.into())
    );
    let reported = events(&shop.ok("stat", &["--json", "@runs/f"]));
    assert_eq!(
        (&reported[0]["event"], &reported[0]["kind"]),
        (&"entry".into(), &"file".into())
    );
    shop.ok("mv", &["@runs/f", "@runs/new"]);
    assert_eq!(shop.ok("ls", &["@runs/new"]), "f\n");
    let done = events(&shop.ok("rm", &["--json", "-r", "@runs/old", "@runs/link"]));
    assert_eq!(done.len(), 2);
    assert!(done.iter().all(|event| event["event"] == "done"));
    assert!(!shop.stage.path("root/runs/old").exists());
}

#[test]
fn failures_name_their_path_and_the_rest_is_done() {
    let shop = Shop::open();
    shop.ok("mkdir", &["@d"]);
    let failed = shop.run("rm", &["--json", "@d", "@none", "@"]);
    assert_eq!(failed.status.code(), Some(1));
    let reported = errors(&failed);
    assert_eq!(reported.lines().count(), 3, "{reported}");
    assert!(
        reported.contains("/d: is a directory; give -r")
            && reported.contains("/none: no such file"),
        "{reported}"
    );
    let kinds: Vec<_> = events(&String::from_utf8(failed.stdout).unwrap());
    let kinds: Vec<_> = kinds
        .iter()
        .map(|event| event["kind"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["is_directory", "not_found", "refused_path"]);
    // A key that is granted something else.
    let grant = format!("{}=other", shop.stage.key("other"));
    let server = shop.stage.serve(&["--read", &grant]);
    let place = format!("lh://{}/d", server.address);
    let denied = shop
        .stage
        .longhaul("other")
        .args(["ls", "--host-key", &server.key, &place])
        .output()
        .unwrap();
    assert_eq!(denied.status.code(), Some(4), "{}", errors(&denied));
    assert!(
        errors(&denied).contains("does not let key lhk1:"),
        "{}",
        errors(&denied)
    );
}

#[test]
fn long_directories_are_listed_through_a_depot_in_order() {
    let shop = Shop::open();
    let depot = shop.stage.depot("depot", None);
    std::fs::create_dir(shop.stage.path("root/many")).unwrap();
    for n in 0..2345 {
        std::fs::write(shop.stage.path(&format!("root/many/{n:05}")), "").unwrap();
    }
    let listed = shop.ok("ls", &["--route", &depot.address, "@many"]);
    let expected: String = (0..2345).map(|n| format!("{n:05}\n")).collect();
    assert_eq!(listed, expected);
    drop(depot);
    let gone = shop.run("ls", &["--route", "127.0.0.1:1", "@many"]);
    assert_eq!(gone.status.code(), Some(3), "{}", errors(&gone));
    // An unknown server is not trusted, and the message says what to do.
    let place = shop.there("@many");
    let unknown = shop
        .stage
        .longhaul("me")
        .args(["ls", &place])
        .output()
        .unwrap();
    assert_eq!(unknown.status.code(), Some(4));
    assert!(
        errors(&unknown).contains("--accept-new"),
        "{}",
        errors(&unknown)
    );
}

#[test]
fn ssh_flags_are_refused_without_ssh() {
    let stage = Stage::new();
    let copy = |flags: &[&str]| {
        let mut copy = stage.longhaul("me");
        copy.arg("cp")
            .args(flags)
            .args(["here/f", "lh://127.0.0.1:1/f"]);
        let copied = copy.output().unwrap();
        (copied.status.code(), errors(&copied))
    };
    for (flags, instead) in [
        (&["-P", "22"][..], "lh://host:PORT/path"),
        (&["-i", "key"], "--identity"),
        (&["-J", "hub"], "--route"),
        (&["-4"], "lh://192.0.2.1/path"),
        (&["-l", "8000"], "max_rate"),
    ] {
        let (code, reported) = copy(flags);
        assert_eq!(code, Some(2), "{flags:?}: {reported}");
        assert!(
            reported.contains(instead) && reported.contains(flags[0]),
            "{flags:?}: {reported}"
        );
    }
}
