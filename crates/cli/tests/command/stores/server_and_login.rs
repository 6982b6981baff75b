//! Copies between a server and an ssh host, which pass through this machine.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::proxy::{Limited, StallingProxy};
use super::sshd::{BARE, Hosts, LOGIN};
use super::{Copied, assert_same, assert_same_trees, isolated, make_tree};
use crate::common::noise;
use crate::resuming::has_journal;
use crate::stage::{Running, Service, Stage, errors, no_temps};

/// A server of `root`, an ssh host with the home `login`, and a machine that copies between them.
struct Pair {
    stage: Stage,
    hosts: Hosts,
    server: Service,
}

/// Direction of a copy.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Direction {
    ToServer,
    ToHost,
}

/// Options of a copy that stalls.
const STALLED: [&str; 5] = ["--json", "--streams", "2", "--patience", "6s"];

const BOTH: [Direction; 2] = [Direction::ToServer, Direction::ToHost];

impl Direction {
    /// Returns the directories of the source and of the destination.
    fn roots(self) -> [&'static str; 2] {
        match self {
            Self::ToServer => ["login", "root"],
            Self::ToHost => ["root", "login"],
        }
    }

    /// Returns source and destination: the one at this server, the other at this host.
    fn paths(self, server: &str, host: &str, [from, to]: [&str; 2]) -> [String; 2] {
        match self {
            Self::ToServer => [format!("{host}:{from}"), format!("lh://{server}/{to}")],
            Self::ToHost => [format!("lh://{server}/{from}"), format!("{host}:{to}")],
        }
    }

    /// Returns which bytes of connections with the server a proxy limits to stall the copy.
    fn limited(self) -> Limited {
        match self {
            Self::ToServer => Limited::FromClient,
            Self::ToHost => Limited::FromServer,
        }
    }
}

impl Pair {
    fn new() -> Option<Self> {
        let stage = Stage::new();
        let hosts = Hosts::new(&stage)?;
        let server = stage.serve(&[]);
        Some(Self {
            stage,
            hosts,
            server,
        })
    }

    fn command(&self, name: &str, arguments: &[&str]) -> Command {
        let mut command = isolated(&self.stage);
        command.arg(name).arg("-F").arg(&self.hosts.config);
        command.args(["--host-key", &self.server.key]);
        command.args(arguments);
        command
    }

    fn cp(&self, arguments: &[&str]) -> Copied {
        Copied::new(self.command("cp", arguments).arg("--json"))
    }

    /// Copies between the server and the host with longhaul.
    fn copy(&self, direction: Direction, options: &[&str], paths: [&str; 2]) -> Copied {
        let [from, to] = direction.paths(&self.server.address, LOGIN, paths);
        self.cp(&[options, &[&from, &to]].concat())
    }

    /// Starts a copy that stalls after some MiB, and waits until this many bytes were copied.
    fn stalled(&self, direction: Direction, bytes: u64) -> (Running, StallingProxy) {
        let proxy = StallingProxy::new(&self.server.address, direction.limited(), 54 << 20);
        let [from, to] = direction.paths(&proxy.address, LOGIN, ["f", "copy/f"]);
        let mut command = self.command("cp", &[&STALLED[..], &[&from, &to]].concat());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut copy = Running::new(command);
        let is_far =
            |event: &Value| event["event"] == "progress" && event["bytes"].as_u64() >= Some(bytes);
        copy.until(is_far);
        (copy, proxy)
    }

    /// Returns the directories of the source and of the destination.
    fn roots(&self, direction: Direction) -> [std::path::PathBuf; 2] {
        direction.roots().map(|root| self.stage.path(root))
    }
}

#[test]
fn trees_pass_between_a_server_and_a_login() {
    let Some(pair) = Pair::new() else { return };
    for direction in BOTH {
        let [source, destination] = pair.roots(direction);
        make_tree(&source.join("tree"));
        symlink("large.h5", source.join("tree/link")).unwrap();
        let copied = pair.copy(direction, &["-r"], ["tree", "copy"]);
        copied.assert_done();
        assert_eq!(copied.number("files"), 301);
        assert_eq!(copied.report["direction"], "between");
        // Both ends have hashed what they read and wrote.
        assert_eq!(copied.report["verification"]["verified"], true);
        assert_same_trees(&source.join("tree"), &destination.join("copy"));
        let link = fs::read_link(destination.join("copy/link")).unwrap();
        assert_eq!(link, Path::new("large.h5"));
        let modified = |file: &Path| fs::metadata(file).unwrap().modified().unwrap();
        assert_eq!(
            modified(&source.join("tree/large.h5")),
            modified(&destination.join("copy/large.h5"))
        );
        assert!(no_temps(&destination));

        let again = pair.copy(direction, &["-r"], ["tree/.", "copy"]);
        again.assert_done();
        assert!(again.number("unchanged_bytes") >= 100 << 20);
        let [from, to] = direction.paths(&pair.server.address, LOGIN, ["tree/.", "copy"]);
        let plan = pair.command("cp", &["-n", "-r", &from, &to]).output();
        let plan = String::from_utf8(plan.unwrap().stdout).unwrap();
        assert!(plan.contains("would change nothing"), "{plan}");

        let filter = ["-r", "--exclude", "small/deeper", "--max-size", "1M"];
        let taken = pair.copy(direction, &filter, ["tree", "picked"]);
        taken.assert_done();
        assert_eq!(taken.number("files"), 200);
        for copy in ["copy", "picked"] {
            fs::remove_dir_all(destination.join(copy)).unwrap();
        }
    }
}

#[test]
fn login_relay_says_where_the_data_goes() {
    let Some(pair) = Pair::new() else { return };
    for direction in BOTH {
        let [source, destination] = pair.roots(direction);
        fs::write(source.join("f"), "content").unwrap();
        // The home directory and the root get the file under its name.
        fs::create_dir(source.join("d")).unwrap();
        fs::write(source.join("d/g"), "other").unwrap();
        let [from, to] = direction.paths(&pair.server.address, LOGIN, ["d/g", ""]);
        let output = pair.command("cp", &[&from, &to]).output().unwrap();
        let said = errors(&output);
        assert!(output.status.success(), "{said}");
        assert!(said.contains("passes through this machine"), "{said}");
        assert!(
            said.contains(LOGIN) && !said.contains("not verified"),
            "{said}"
        );
        assert_same(&source.join("d/g"), &destination.join("g"));
    }
}

#[test]
fn killed_login_relays_resume() {
    for direction in BOTH {
        let Some(pair) = Pair::new() else { return };
        let [source, destination] = pair.roots(direction);
        fs::create_dir(destination.join("copy")).unwrap();
        fs::write(source.join("f"), noise(64 << 20, 3)).unwrap();
        let (mut copy, proxy) = pair.stalled(direction, 16 << 20);
        copy.until(|_| has_journal(&destination.join("copy")));
        // Some time passes, in which what was written is recorded.
        for _ in 0..8 {
            copy.until(|event: &Value| event["event"] == "progress");
        }
        copy.child.kill().unwrap();
        copy.child.wait().unwrap();
        pair.hosts.wait_for_far_sides(&pair.stage);
        assert!(!destination.join("copy/f").exists());
        // A source at another address would be another file.
        proxy.release();
        let [from, to] = direction.paths(&proxy.address, LOGIN, ["f", "copy/f"]);
        let resumed = pair.cp(&[&from, &to]);
        resumed.assert_done();
        let bytes = resumed.number("resumed_bytes");
        assert!(bytes > 1 << 20, "{direction:?} {}", resumed.report);
        assert_eq!(resumed.report["verification"]["verified"], true);
        assert_same(&source.join("f"), &destination.join("copy/f"));
        assert!(no_temps(&destination));
    }
}

#[test]
fn file_that_changes_in_a_login_relay_is_not_mixed() {
    for direction in BOTH {
        let Some(pair) = Pair::new() else { return };
        let [source, destination] = pair.roots(direction);
        fs::create_dir(destination.join("copy")).unwrap();
        let file = source.join("f");
        fs::write(&file, noise(64 << 20, 5)).unwrap();
        let (copy, proxy) = pair.stalled(direction, 16 << 20);
        // The size and the time are the same.
        let before = fs::metadata(&file).unwrap().modified().unwrap();
        fs::write(&file, noise(64 << 20, 6)).unwrap();
        let written = fs::File::options().write(true).open(&file).unwrap();
        written.set_modified(before).unwrap();
        proxy.release();
        let (report, code, errors) = copy.report();
        let said = format!("{errors} {report}");
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("changed while it was being read"), "{said}");
        assert!(!destination.join("copy/f").exists());
    }
}

#[test]
fn existing_files_stay_in_a_login_relay() {
    let Some(pair) = Pair::new() else { return };
    for direction in BOTH {
        let [source, destination] = pair.roots(direction);
        fs::write(source.join("mine"), "new content").unwrap();
        fs::write(destination.join("theirs"), "old").unwrap();
        let paths = ["mine", "theirs"];
        let refused = pair.copy(direction, &[], paths);
        refused.assert_failed(1, &["exists", "--overwrite"]);
        assert_eq!(fs::read(destination.join("theirs")).unwrap(), b"old");
        let kept = pair.copy(direction, &["--ignore-existing"], paths);
        kept.assert_done();
        assert_eq!(fs::read(destination.join("theirs")).unwrap(), b"old");
        pair.copy(direction, &["--overwrite"], paths).assert_done();
        assert_same(&source.join("mine"), &destination.join("theirs"));
        let missing = pair.copy(direction, &[], ["nothing", "f"]);
        missing.assert_failed(2, &["no such file"]);
        fs::create_dir(source.join("d")).unwrap();
        let tree = pair.copy(direction, &[], ["d", "e"]);
        tree.assert_failed(1, &["give -r"]);
    }
}

#[test]
fn login_relay_with_wrong_credentials_names_them() {
    let Some(pair) = Pair::new() else { return };
    for direction in BOTH {
        let [source, destination] = pair.roots(direction);
        fs::write(source.join("f"), "content").unwrap();
        let copy = |host: &str, server: &str, options: &[&str]| {
            let [from, to] = direction.paths(server, host, ["f", "g"]);
            pair.cp(&[options, &[&from, &to]].concat())
        };
        let server = &pair.server.address;
        let nobody = copy(&format!("no-such-user@{LOGIN}"), server, &[]);
        nobody.assert_failed(3, &["cannot log in", "no-such-user"]);
        pair.stage.key("stranger");
        let key = fs::read_dir(pair.stage.path("stranger")).unwrap().flatten();
        let key = key.map(|entry| entry.path()).find(|path| path.is_file());
        let key = key.unwrap().display().to_string();
        let stranger = copy(LOGIN, server, &["--identity", &key]);
        stranger.assert_failed(4, &["not"]);
        let nowhere = copy(LOGIN, "127.0.0.1:1", &[]);
        nowhere.assert_failed(3, &["127.0.0.1:1"]);
        assert!(!destination.join("g").exists());
    }
}

#[test]
fn login_relay_without_longhaul_goes_by_sftp() {
    let Some(pair) = Pair::new() else { return };
    for direction in BOTH {
        let [source, destination] = pair.roots(direction);
        fs::create_dir(source.join("tree")).unwrap();
        fs::write(source.join("tree/f"), noise(3 << 20, 8)).unwrap();
        // The home directory of an SFTP server is that of the password file.
        let home = pair.stage.path("login").display().to_string();
        let (server_path, host_path) = (format!("by {direction:?}"), format!("{home}/tree"));
        let paths = match direction {
            Direction::ToServer => [host_path.as_str(), &server_path],
            Direction::ToHost => ["tree", &format!("{home}/{server_path}")],
        };
        let [from, to] = direction.paths(&pair.server.address, BARE, paths);
        let output = pair.command("cp", &["-r", &from, &to]).output().unwrap();
        let said = errors(&output);
        assert!(output.status.success(), "{said}");
        assert!(
            said.contains("by sftp") && said.contains("not verified"),
            "{said}"
        );
        assert_same_trees(&source.join("tree"), &destination.join(&server_path));
        fs::remove_dir_all(source.join("tree")).unwrap();
    }
}

#[test]
fn lost_login_or_server_ends_a_login_relay() {
    for direction in BOTH {
        let Some(mut pair) = Pair::new() else { return };
        let [source, destination] = pair.roots(direction);
        fs::create_dir(destination.join("copy")).unwrap();
        fs::write(source.join("f"), noise(64 << 20, 7)).unwrap();
        let (copy, proxy) = pair.stalled(direction, 1);
        pair.server.kill();
        proxy.release();
        let (report, code, errors) = copy.report();
        assert!(matches!(code, Some(3 | 5)), "{errors} {report}");
        assert!(!destination.join("copy/f").exists());
    }
}

#[test]
fn options_that_a_login_relay_cannot_provide_are_refused() {
    let Some(pair) = Pair::new() else { return };
    for direction in BOTH {
        for option in [
            &["--receipt", "r"][..],
            &["-a"],
            &["--delta"],
            &["--hard-links"],
        ] {
            let refused = pair.copy(direction, option, ["f", "g"]);
            refused.assert_failed(2, &["passes through this machine", "not possible"]);
        }
    }
    let ports = ["--port-range", "7000-7010"];
    let refused = pair.copy(Direction::ToServer, &ports, ["f", "g"]);
    refused.assert_failed(2, &["--port-range is not possible", "goes through ssh"]);
    let mixed = [
        &format!("{LOGIN}:f"),
        &format!("lh://{}/f", pair.server.address),
        "here/",
    ];
    let refused = pair.cp(&mixed.map(|path| path as &str));
    refused.assert_failed(2, &["several places", "one command for each"]);
}

#[test]
fn mirrors_between_a_server_and_a_login_are_exact() {
    let Some(pair) = Pair::new() else { return };
    for direction in BOTH {
        let name = format!("{direction:?}");
        let [source, destination] = pair.roots(direction).map(|root| root.join(&name));
        for name in ["a", "b c", "d/e"] {
            let file = source.join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, format!("{name} {direction:?}")).unwrap();
        }
        fs::create_dir_all(destination.join("old")).unwrap();
        fs::write(destination.join("old/x"), "old").unwrap();
        let [from, to] = direction.paths(&pair.server.address, LOGIN, [&name, &name]);
        let sync = |options: &[&str]| {
            let arguments = [&["--delete"], options, &[&from, &to]].concat();
            let output = pair.command("sync", &arguments).output().unwrap();
            let printed = String::from_utf8(output.stdout.clone()).unwrap() + &errors(&output);
            assert!(output.status.success(), "{printed}");
            printed
        };
        let plan = sync(&["-n"]);
        assert!(plan.contains("remove") && plan.contains("old/"), "{plan}");
        assert!(destination.join("old/x").exists());
        sync(&[]);
        assert_same_trees(&source, &destination);
        // Longhaul at both ends finds what was renamed.
        fs::rename(source.join("a"), source.join("d/renamed")).unwrap();
        let renamed = sync(&[]);
        assert!(renamed.contains("renamed 1 file"), "{renamed}");
        assert_same_trees(&source, &destination);
        let plan = sync(&["-n"]);
        assert!(plan.contains("3 unchanged"), "{plan}");
        assert!(
            !plan.contains("create") && !plan.contains("remove"),
            "{plan}"
        );
    }
}
