//! Servers that work as local users. The users exist in a mount namespace of the helper alone.

use std::fs::{Permissions, metadata, set_permissions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use serde_json::Value;

use crate::stage::*;

/// Rate of a depot on the route while a copy is to be interrupted.
const SLOW: Option<&str> = Some("8 Mbit/s");
/// User of the server, the users of the accounts, and a group of the first one.
const SERVER: u32 = 20_000;
const ANA: u32 = 20_001;
const BEN: u32 = 20_002;
const GENOMICS: u32 = 20_010;

const PASSWD: &str = "root:x:0:0::/:/bin/sh\nlhserver:x:20000:20000::/:/bin/false\n\
                      ana:x:20001:20001::/:/bin/false\nben:x:20002:20002::/:/bin/false\n\
                      daemon:x:1:1::/:/bin/false\n";
const GROUP: &str = "root:x:0:\nlhserver:x:20000:\nana:x:20001:\nben:x:20002:\n\
                     genomics:x:20010:ana\ndaemon:x:1:\n";
/// Runs a command with other users.
const WITH_USERS: &str = "mount --bind \"$1\" /etc/passwd && mount --bind \"$2\" /etc/group && \
                          shift 2 && exec \"$@\"";

/// A helper, and a server that runs as its own user. The keys of `me` and `ben` have the accounts
/// `ana` and `ben`.
struct Accounts {
    stage: Stage,
    program: PathBuf,
    helper: Child,
    // Kept open so that its writes do not fail.
    _out: BufReader<ChildStdout>,
}

impl Drop for Accounts {
    fn drop(&mut self) {
        let _ = self.helper.kill();
        let _ = self.helper.wait();
    }
}

fn set_mode(path: &Path, mode: u32) {
    set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn give(path: &Path, user: u32, group: u32, mode: u32) {
    chown(path, Some(user), Some(group)).unwrap();
    set_mode(path, mode);
}

impl Accounts {
    /// Starts the helper. Prints why and returns `None` if this machine cannot.
    fn new(listed: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("left out: only root can start processes of other users");
            return None;
        }
        let stage = Stage::new();
        let parent = stage.tmp.path().parent().unwrap();
        if metadata(parent).unwrap().mode() & 0o001 == 0 {
            eprintln!("left out: other users cannot enter {}", parent.display());
            return None;
        }
        set_mode(stage.tmp.path(), 0o755);
        set_mode(&stage.path("root"), 0o755);
        for (dir, user, group, mode) in [
            ("root/ana", ANA, ANA, 0o700),
            ("root/ben", BEN, BEN, 0o700),
            ("root/group", 0, GENOMICS, 0o2770),
            ("server", SERVER, SERVER, 0o700),
            ("log", SERVER, SERVER, 0o700),
        ] {
            std::fs::create_dir(stage.path(dir)).unwrap();
            give(&stage.path(dir), user, group, mode);
        }
        // Other users may not be able to enter the directory of the built program.
        let program = stage.path("longhaul");
        let built = env!("CARGO_BIN_EXE_longhaul");
        if std::fs::hard_link(built, &program).is_err() {
            // A child that another test starts would inherit the open file, and until that child
            // executes its own program, the system would not execute this one (ETXTBSY).
            let copied = Command::new("cp").arg(built).arg(&program).status();
            assert!(copied.unwrap().success());
        }
        std::fs::write(stage.path("passwd"), PASSWD).unwrap();
        std::fs::write(stage.path("group"), GROUP).unwrap();
        let rules = format!("server = \"lhserver\"\naccounts = [{listed}]\n");
        std::fs::write(stage.path("accounts.toml"), rules).unwrap();
        let mut helper = Command::new("unshare")
            .args([
                "--mount",
                "--propagation",
                "private",
                "sh",
                "-c",
                WITH_USERS,
                "sh",
            ])
            .args([stage.path("passwd"), stage.path("group"), program.clone()])
            .args(["serve-accounts", "--config"])
            .arg(stage.path("accounts.toml"))
            .arg("--socket")
            .arg(stage.path("socket"))
            .env("RUST_LOG", "info")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(stage.path("helper.log")).unwrap())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(helper.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        if !line.starts_with("listening on ") {
            eprintln!("left out: no mount namespaces here: {:?}", helper.wait());
            return None;
        }
        Some(Self {
            stage,
            program,
            helper,
            _out: out,
        })
    }

    /// Starts the server. `settings` are the tables `[[account]]`.
    fn serve(&self, settings: &str, more: &[&str]) -> Service {
        let (me, ben) = (self.stage.key("me"), self.stage.key("ben"));
        let grants = [grant(&me, "ana"), grant(&ben, "ben")].concat();
        self.serve_grants(&format!("{settings}{grants}"), more)
    }

    /// Starts the server with this file of grants.
    fn serve_grants(&self, text: &str, more: &[&str]) -> Service {
        let stage = &self.stage;
        let grants = stage.path("grants.toml");
        std::fs::write(&grants, text).unwrap();
        let mut command = Command::new(&self.program);
        command
            .uid(SERVER)
            .gid(SERVER)
            .env("LONGHAUL_HOME", stage.path("server"))
            .env("RUST_LOG", "error")
            .current_dir(stage.tmp.path())
            .stdin(Stdio::null())
            .args([
                "serve",
                "--root",
                "root",
                "--listen",
                "127.0.0.1:0",
                "--grants",
            ])
            .arg(grants)
            .arg("--account-helper")
            .arg(stage.path("socket"))
            .args(more);
        stage.service(command, "address")
    }

    /// Runs a command of `who` at the server.
    fn run(&self, who: &str, server: &Service, command: &[&str]) -> Output {
        self.stage
            .longhaul(who)
            .args([command[0], "--host-key", &server.key])
            .args(&command[1..])
            .output()
            .unwrap()
    }

    /// Returns the processes of workers that run as `user`.
    fn workers(&self, user: u32) -> Vec<PathBuf> {
        let helper = format!("PPid:\t{}\n", self.helper.id());
        let user = format!("Uid:\t{user}\t");
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let processes = processes.map(|process| process.path());
        processes
            .filter(|process| {
                let status = std::fs::read_to_string(process.join("status"));
                status.is_ok_and(|status| {
                    // An ended one waits for the helper.
                    let is_running = !status.contains("State:\tZ");
                    is_running && status.contains(&helper) && status.contains(&user)
                })
            })
            .collect()
    }
}

/// Returns a grant of everything to a key.
fn grant(key: &str, account: &str) -> String {
    format!(
        "[[grant]]\nkey = \"{key}\"\naccount = \"{account}\"\nread = [\"/\"]\nwrite = [\"/\"]\n"
    )
}

fn assert_success(output: &Output) {
    assert_eq!(output.status.code(), Some(0), "{}", errors(output));
}

/// Returns the owner, the group and the permissions of an entry.
fn owner(path: &Path) -> (u32, u32, u32) {
    let found = metadata(path).unwrap();
    (found.uid(), found.gid(), found.mode() & 0o7777)
}

#[test]
fn files_belong_to_the_user_of_the_key() {
    let Some(accounts) = Accounts::new("\"ana\", \"ben\"") else {
        return;
    };
    let stage = &accounts.stage;
    let settings = "[[account]]\nname = \"ana\"\numask = \"027\"\n";
    let log = stage.path("log/accounts.jsonl");
    let server = accounts.serve(settings, &["--accounts", log.to_str().unwrap()]);
    let there = |path: &str| format!("lh://{}/{path}", server.address);
    let data = stage.noise("here/f", 300_000);
    set_mode(&stage.path("here/f"), 0o666);
    std::fs::create_dir_all(stage.path("here/tree/deep")).unwrap();
    stage.noise("here/tree/deep/small", 10);

    let receipt = stage.path("receipt");
    let receipt = receipt.to_str().unwrap();
    let copied = ["cp", "--receipt", receipt, "here/f", &there("ana/f")];
    assert_success(&accounts.run("me", &server, &copied));
    let root = stage.path("root");
    assert_eq!(std::fs::read(root.join("ana/f")).unwrap(), data);
    assert_eq!(owner(&root.join("ana/f")), (ANA, ANA, 0o640));
    let text = std::fs::read_to_string(receipt).unwrap();
    assert!(text.contains(&server.key), "the server's key signs: {text}");
    // A directory of a group gives its group to what is in it.
    let copied = ["cp", "-r", "here/tree", &there("group/")];
    assert_success(&accounts.run("me", &server, &copied));
    let (user, group, mode) = owner(&root.join("group/tree/deep"));
    assert_eq!((user, group, mode & 0o2007), (ANA, GENOMICS, 0o2000));
    let small = owner(&root.join("group/tree/deep/small"));
    assert_eq!((small.0, small.1), (ANA, GENOMICS));
    // Another user's umask is the usual one.
    assert_success(&accounts.run("ben", &server, &["cp", "here/f", &there("ben/f")]));
    assert_eq!(owner(&root.join("ben/f")), (BEN, BEN, 0o644));

    // The system decides what each may do, although the grants allow everything.
    for (who, command) in [
        ("me", &["cp", "here/f", &there("ben/g")][..]),
        ("me", &["ls", &there("ben/")]),
        ("me", &["rm", &there("ben/f")]),
        ("ben", &["cp", &there("ana/f"), "here/stolen"]),
        ("ben", &["mv", &there("group/tree"), &there("ben/tree")]),
    ] {
        let output = accounts.run(who, &server, command);
        assert_eq!(
            output.status.code(),
            Some(1),
            "{command:?}: {}",
            errors(&output)
        );
        let reported = errors(&output).to_lowercase();
        assert!(reported.contains("permission"), "{command:?}: {reported}");
    }
    for command in [
        &["ls", &there("ana/")][..],
        &["mv", &there("ana/f"), &there("ana/g")],
        &["rm", &there("ana/g")],
        &["mkdir", &there("ana/new")],
    ] {
        assert_success(&accounts.run("me", &server, command));
    }
    assert_eq!(owner(&root.join("ana/new")), (ANA, ANA, 0o750));

    let (me, ben) = (stage.key("me"), stage.key("ben"));
    // Records are written a moment after their copies.
    until("the copies are recorded", || {
        let records = std::fs::read_to_string(&log).unwrap();
        let lines = records.split_inclusive('\n');
        let complete = lines.filter(|line| line.ends_with('\n'));
        let records: Vec<Value> = complete
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let of = |key: &str, name: &str| {
            let mut records = records.iter();
            records.any(|record| record["key"] == key && record["names"][0] == name)
        };
        of(&me, "/ana/f") && of(&ben, "/ben/f")
    });
}

#[test]
fn worker_has_the_rights_of_its_user_alone() {
    let Some(accounts) = Accounts::new("\"ana\"") else {
        return;
    };
    let stage = &accounts.stage;
    let settings = "[[account]]\nname = \"ana\"\numask = \"027\"\nroot = \"ana\"\n";
    let server = accounts.serve(settings, &[]);
    stage.noise("here/f", 1000);
    let there = format!("lh://{}/f", server.address);
    assert_success(&accounts.run("me", &server, &["cp", "here/f", &there]));
    // The root of the account is beneath the server's.
    assert!(stage.path("root/ana/f").exists());
    let workers = accounts.workers(ANA);
    let [worker] = &workers[..] else {
        panic!("one worker");
    };
    let status = std::fs::read_to_string(worker.join("status")).unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let words = line.unwrap().split_whitespace();
        words.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(field("Uid:"), "20001 20001 20001 20001");
    assert_eq!(field("Gid:"), "20001 20001 20001 20001");
    assert_eq!(field("Groups:"), "20001 20010");
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
        assert_eq!(field(set), "0000000000000000", "{set}");
    }
    assert_eq!(field("NoNewPrivs:"), "1");
    assert_eq!(field("Umask:"), "0027");
    // It has sockets of its own, and no file of the server, and of the helper its log.
    for open in std::fs::read_dir(worker.join("fd")).unwrap() {
        // It may have been closed meanwhile.
        let Ok(open) = std::fs::read_link(open.unwrap().path()) else {
            continue;
        };
        let open = open.to_string_lossy().into_owned();
        let is_own = ["socket:", "anon_inode:", "pipe:", "/dev/"].iter();
        let is_log = open == stage.path("helper.log").to_str().unwrap();
        let is_root = open.starts_with(stage.path("root").to_str().unwrap());
        assert!(
            is_log || is_root || is_own.into_iter().any(|own| open.starts_with(own)),
            "{open}"
        );
    }
    let key = stage.path("server/identity");
    assert!(key.exists());
    let read = Command::new("cat")
        .arg(key)
        .uid(ANA)
        .gid(ANA)
        .output()
        .unwrap();
    assert!(
        !read.status.success(),
        "the user cannot read the server's key"
    );
}

#[test]
fn accounts_that_are_not_listed_have_no_worker() {
    let Some(accounts) = Accounts::new("\"root\", \"daemon\", \"nobody-here\"") else {
        return;
    };
    let stage = &accounts.stage;
    stage.noise("here/f", 1000);
    let me = stage.key("me");
    for (account, reason) in [
        ("root", "no worker runs"),
        ("daemon", "system user"),
        ("ben", "is not in the file"),
        ("nobody-here", "no user of this machine"),
    ] {
        let grants = stage.path("grants.toml");
        let server = accounts.serve("", &[]);
        let text = format!("[[grant]]\nkey = \"{me}\"\naccount = \"{account}\"\nwrite = [\"/\"]\n");
        std::fs::write(&grants, text).unwrap();
        server.hang_up();
        let there = format!("lh://{}/f", server.address);
        // The signal takes effect with a delay.
        let mut reported = String::new();
        until("the refusal", || {
            let output = accounts.run("me", &server, &["cp", "--overwrite", "here/f", &there]);
            reported = errors(&output);
            assert_ne!(output.status.code(), Some(0), "{account}: {reported}");
            let name = format!("local account {account}:");
            reported.contains(reason) && reported.contains(&name)
        });
        assert!(!stage.path("root/f").exists());
    }
    // A worker does not run as root, whoever starts it.
    let worker = stage
        .longhaul("me")
        .args(["serve", "--worker"])
        .output()
        .unwrap();
    assert!(
        errors(&worker).contains("never runs as root"),
        "{}",
        errors(&worker)
    );
    // Another user than the server's cannot ask, even if it can connect.
    set_mode(&stage.path("socket"), 0o666);
    let mut command = Command::new(&accounts.program);
    command
        .uid(BEN)
        .gid(BEN)
        .env("LONGHAUL_HOME", stage.path("bens"));
    std::fs::create_dir(stage.path("bens")).unwrap();
    give(&stage.path("bens"), BEN, BEN, 0o700);
    command
        .current_dir(stage.tmp.path())
        .args([
            "serve",
            "--root",
            "root",
            "--listen",
            "127.0.0.1:0",
            "--grants",
            "grants.toml",
        ])
        .args(["--account-helper", "socket"]);
    let server = stage.service(command, "address");
    let there = format!("lh://{}/f", server.address);
    let output = accounts.run("me", &server, &["cp", "here/f", &there]);
    assert!(
        errors(&output).contains("only \"lhserver\" may"),
        "{}",
        errors(&output)
    );
}

#[test]
fn quotas_end_what_exceeds_them_and_are_given_back() {
    let Some(accounts) = Accounts::new("\"ana\"") else {
        return;
    };
    let stage = &accounts.stage;
    let settings = "[[account]]\nname = \"ana\"\nquota = \"3 MiB\"\nfiles = 4\nroot = \"ana\"\n";
    let mut server = accounts.serve(settings, &[]);
    let there = |server: &Service, path: &str| format!("lh://{}/{path}", server.address);
    let count = || {
        let found = std::fs::read_dir(stage.path("root/ana/large"));
        found.map_or(0, Iterator::count)
    };
    std::fs::create_dir(stage.path("here/large")).unwrap();
    for n in 0..5 {
        stage.noise(&format!("here/large/{n}"), 1_000_000);
    }
    let copy = ["cp", "-r", "here/large", &there(&server, "")];
    let output = accounts.run("me", &server, &copy);
    assert_eq!(output.status.code(), Some(1), "{}", errors(&output));
    let reported = errors(&output);
    assert!(
        reported.contains("account ana: its quota is 3 MiB, and"),
        "{reported}"
    );
    assert!(reported.contains("of it are left"), "{reported}");
    // What did not fit is removed.
    until("three files are left", || count() == 3);
    // Two small ones: one is beyond the number of files.
    std::fs::create_dir(stage.path("here/small")).unwrap();
    for n in 0..2 {
        stage.noise(&format!("here/small/{n}"), 10);
    }
    let output = accounts.run(
        "me",
        &server,
        &["cp", "-r", "here/small", &there(&server, "")],
    );
    assert!(
        errors(&output).contains("its quota is 4 files"),
        "{}",
        errors(&output)
    );
    // What is removed is given back, and replacing needs no other file.
    let removed = ["rm", "-r", &there(&server, "large")];
    assert_success(&accounts.run("me", &server, &removed));
    let copied = ["cp", "--overwrite", "-r", "here/small", &there(&server, "")];
    assert_success(&accounts.run("me", &server, &copied));
    let copied = ["cp", "here/large/0", &there(&server, "one")];
    assert_success(&accounts.run("me", &server, &copied));

    // The next server knows the use, or counts it if the last one was killed.
    for is_killed in [false, true] {
        match is_killed {
            true => server.kill(),
            false => server.end("TERM"),
        }
        until("the worker ends with its server", || {
            accounts.workers(ANA).is_empty()
        });
        server = accounts.serve(settings, &[]);
        let output = accounts.run(
            "me",
            &server,
            &["cp", "-r", "here/large", &there(&server, "")],
        );
        let reported = errors(&output);
        assert!(reported.contains("its quota is"), "{reported}");
        until("one file and no more is left", || count() == 1);
        let removed = ["rm", "-r", &there(&server, "large")];
        assert_success(&accounts.run("me", &server, &removed));
    }
}

#[test]
fn copy_resumes_after_its_worker_was_killed() {
    let Some(accounts) = Accounts::new("\"ana\"") else {
        return;
    };
    let stage = &accounts.stage;
    let server = accounts.serve("[[account]]\nname = \"ana\"\nroot = \"ana\"\n", &[]);
    let depot = stage.depot("d", SLOW);
    let data = stage.noise("here/f", 20_000_000);
    let there = format!("lh://{}/f", server.address);
    let mut copy = stage.start_cp(&server, &["--route", &depot.address, "here/f", &there]);
    copy.until_mid_copy();
    let workers = accounts.workers(ANA);
    let [worker] = &workers[..] else {
        panic!("one worker");
    };
    kill_all(std::slice::from_ref(worker));
    stage.set_depot_rate("d", &depot, None);
    let (report, code, reported) = copy.report();
    assert_eq!(code, Some(0), "{report} {reported}");
    assert_eq!(std::fs::read(stage.path("root/ana/f")).unwrap(), data);
    assert_eq!(owner(&stage.path("root/ana/f")).0, ANA);
}

#[test]
fn idle_worker_ends_and_the_next_one_starts() {
    let Some(accounts) = Accounts::new("\"ana\"") else {
        return;
    };
    let stage = &accounts.stage;
    let settings = "[[account]]\nname = \"ana\"\nroot = \"ana\"\n";
    let server = accounts.serve(settings, &["--account-idle", "1 s"]);
    stage.noise("here/f", 1000);
    for name in ["f", "g"] {
        let there = format!("lh://{}/{name}", server.address);
        assert_success(&accounts.run("me", &server, &["cp", "here/f", &there]));
        until("the idle worker ends", || accounts.workers(ANA).is_empty());
    }
    assert!(stage.path("root/ana/g").exists());
    let ends = || {
        let log = std::fs::read_to_string(stage.path("helper.log")).unwrap();
        let lines = log.split_inclusive('\n');
        let ended = lines.filter(|line| line.contains("worker ended") && line.ends_with('\n'));
        ended.map(str::to_owned).collect::<Vec<_>>()
    };
    // The helper logs the end of a process after the process is gone.
    until("both ends are logged", || ends().len() >= 2);
    let ended = ends();
    let is_orderly = |line: &String| line.contains("exit status: 0");
    assert!(
        ended.len() == 2 && ended.iter().all(is_orderly),
        "{ended:?}"
    );
}

#[test]
fn root_that_becomes_a_link_is_not_followed() {
    let Some(accounts) = Accounts::new("\"ana\"") else {
        return;
    };
    let stage = &accounts.stage;
    // Members of the group may rename what is in its directory.
    for (dir, mode) in [("root/group/ana", 0o700), ("home", 0o700)] {
        std::fs::create_dir(stage.path(dir)).unwrap();
        give(&stage.path(dir), ANA, ANA, mode);
    }
    let settings = "[[account]]\nname = \"ana\"\nroot = \"group/ana\"\nquota = \"1 GiB\"\n";
    let server = accounts.serve(settings, &[]);
    stage.noise("here/f", 1000);
    let there = |path: &str| format!("lh://{}/{path}", server.address);
    assert_success(&accounts.run("me", &server, &["cp", "here/f", &there("f")]));
    let root = stage.path("root/group/ana");
    std::fs::rename(&root, stage.path("root/group/former")).unwrap();
    std::os::unix::fs::symlink(stage.path("home"), &root).unwrap();
    let listed = accounts.run("me", &server, &["ls", &there("")]);
    assert_ne!(listed.status.code(), Some(0));
    assert!(
        errors(&listed).contains("moved, replaced"),
        "{}",
        errors(&listed)
    );
    // Nor does another worker, or the operator's signal, follow it.
    server.hang_up();
    kill_all(&accounts.workers(ANA));
    until("the worker is gone", || accounts.workers(ANA).is_empty());
    for command in [&["ls", &there("")][..], &["mkdir", &there("new")]] {
        // The server may notice only now that the worker is gone, and say that instead.
        until("the next worker refuses the root", || {
            let refused = accounts.run("me", &server, command);
            assert_ne!(refused.status.code(), Some(0));
            errors(&refused).contains("user ana may read and enter")
        });
    }
    assert_eq!(std::fs::read_dir(stage.path("home")).unwrap().count(), 0);
}

#[test]
fn key_that_loses_its_account_loses_its_streams() {
    let Some(accounts) = Accounts::new("\"ana\", \"ben\"") else {
        return;
    };
    let stage = &accounts.stage;
    let settings = "[[account]]\nname = \"ana\"\nroot = \"ana\"\n";
    let server = accounts.serve(settings, &[]);
    let depot = stage.depot("d", SLOW);
    stage.noise("here/f", 20_000_000);
    let there = |path: &str| format!("lh://{}/{path}", server.address);
    for is_stopped in [false, true] {
        let at = there(&format!("f{is_stopped}"));
        let arguments = ["--route", &depot.address, "here/f", &at];
        let mut copy = stage.start_cp(&server, &arguments);
        copy.until_mid_copy();
        let workers = accounts.workers(ANA);
        if is_stopped {
            // A worker that its user has stopped cannot keep them, and delays no other account.
            send_to_all(&workers, rustix::process::Signal::STOP);
        }
        let grants = grant(&stage.key("ben"), "ben");
        std::fs::write(stage.path("grants.toml"), &grants).unwrap();
        server.hang_up();
        let (report, code, reported) = copy.report();
        assert_ne!(code, Some(0), "{report} {reported}");
        assert!(!stage.path(&format!("root/ana/f{is_stopped}")).exists());
        let listed = accounts.run("ben", &server, &["ls", &there("ben")]);
        assert_success(&listed);
        let refused = accounts.run("me", &server, &["ls", &there("")]);
        assert_eq!(refused.status.code(), Some(4), "{}", errors(&refused));
        send_to_all(&workers, rustix::process::Signal::CONT);
        // Both have their accounts again.
        let all = format!("{settings}{}{grants}", grant(&stage.key("me"), "ana"));
        std::fs::write(stage.path("grants.toml"), all).unwrap();
        server.hang_up();
        until("the key is known again", || {
            let listed = accounts.run("me", &server, &["ls", &there("")]);
            listed.status.code() == Some(0)
        });
    }
}

#[test]
fn names_have_accounts_while_they_are_believed() {
    let Some(accounts) = Accounts::new("\"ana\"") else {
        return;
    };
    let stage = &accounts.stage;
    let principals = stage.path("principals.toml");
    let (me, ben) = (stage.key("me"), stage.key("ben"));
    let name_ana = |keys: &str| {
        let text = format!("[[principal]]\nname = \"ana\"\nkeys = [{keys}]\n");
        std::fs::write(&principals, text).unwrap();
    };
    name_ana(&format!("\"{me}\", \"{ben}\""));
    let grants = "[[account]]\nname = \"ana\"\nroot = \"ana\"\n\
                  [[grant]]\nprincipals = [\"name:ana\"]\naccount = \"ana\"\n\
                  read = [\"/\"]\nwrite = [\"/\"]\n";
    let more = ["--principals", principals.to_str().unwrap()];
    let server = accounts.serve_grants(grants, &more);
    stage.noise("here/f", 1000);
    for who in ["me", "ben"] {
        let there = format!("lh://{}/{who}", server.address);
        assert_success(&accounts.run(who, &server, &["cp", "here/f", &there]));
        assert_eq!(owner(&stage.path("root/ana").join(who)).0, ANA);
    }
    assert_eq!(accounts.workers(ANA).len(), 1, "one for both keys");
    name_ana(&format!("\"{me}\""));
    server.hang_up();
    let there = format!("lh://{}/", server.address);
    until("the name is lost", || {
        let listed = accounts.run("ben", &server, &["ls", &there]);
        listed.status.code() == Some(4)
    });
    assert_success(&accounts.run("me", &server, &["ls", &there]));
}

#[test]
fn server_that_ends_drains_its_workers_and_keeps_their_records() {
    let Some(accounts) = Accounts::new("\"ana\"") else {
        return;
    };
    let stage = &accounts.stage;
    let data = stage.noise("here/f", 10_000_000);
    let settings = "[[account]]\nname = \"ana\"\nroot = \"ana\"\n";
    let log = stage.path("log/accounts.jsonl");
    let log = log.to_str().unwrap();
    for (more, name, result) in [
        (&["--drain", "60 s"][..], "drained", "completed"),
        (&[], "broken", "stopped"),
    ] {
        let more = [&["--accounts", log], more].concat();
        let mut server = accounts.serve(settings, &more);
        let there = format!("lh://{}/{name}", server.address);
        let depot = stage.depot(name, SLOW);
        let mut copy = stage.start_cp(&server, &["--route", &depot.address, "here/f", &there]);
        copy.until_mid_copy();
        if result == "completed" {
            stage.set_depot_rate(name, &depot, None);
        }
        server.end("TERM");
        let records = std::fs::read_to_string(log).unwrap();
        let last: Value = serde_json::from_str(records.lines().last().unwrap()).unwrap();
        assert_eq!(last["names"][0], format!("/{name}"), "{records}");
        assert_eq!(last["result"], result, "{records}");
        if result == "completed" {
            let (report, code, reported) = copy.report();
            assert_eq!(code, Some(0), "{report} {reported}");
            assert_eq!(std::fs::read(stage.path("root/ana/drained")).unwrap(), data);
        } else {
            copy.child.kill().unwrap();
            copy.child.wait().unwrap();
        }
        until("the worker ends", || accounts.workers(ANA).is_empty());
    }
}

#[test]
fn changed_account_gets_another_worker() {
    let Some(accounts) = Accounts::new("\"ana\"") else {
        return;
    };
    let stage = &accounts.stage;
    let settings = |root: &str, umask: &str| {
        format!("[[account]]\nname = \"ana\"\nroot = \"{root}\"\numask = \"{umask}\"\n")
    };
    let server = accounts.serve(&settings("ana", "077"), &[]);
    stage.noise("here/f", 1000);
    let there = |path: &str| format!("lh://{}/{path}", server.address);
    assert_success(&accounts.run("me", &server, &["cp", "here/f", &there("f")]));
    assert_eq!(owner(&stage.path("root/ana/f")), (ANA, ANA, 0o600));
    let grants = grant(&stage.key("me"), "ana");
    let text = format!("{}{grants}", settings("group", "022"));
    std::fs::write(stage.path("grants.toml"), text).unwrap();
    server.hang_up();
    until("the new root is served", || {
        let listed = accounts.run("me", &server, &["ls", &there("")]);
        listed.status.code() == Some(0) && listed.stdout.is_empty()
    });
    assert_success(&accounts.run("me", &server, &["cp", "here/f", &there("g")]));
    assert_eq!(owner(&stage.path("root/group/g")), (ANA, GENOMICS, 0o644));
}

#[test]
fn helper_reads_only_from_its_server() {
    let Some(accounts) = Accounts::new("\"ana\"") else {
        return;
    };
    let mut stranger =
        std::os::unix::net::UnixStream::connect(accounts.stage.path("socket")).unwrap();
    // It is answered although it sends nothing.
    let mut answer = String::new();
    stranger.read_to_string(&mut answer).unwrap();
    assert!(
        answer.contains("only") && answer.contains("lhserver"),
        "{answer}"
    );
}

/// Sends a signal to processes of `/proc`.
fn send_to_all(processes: &[PathBuf], signal: rustix::process::Signal) {
    for process in processes {
        let process = process.file_name().unwrap().to_str().unwrap();
        let process = rustix::process::Pid::from_raw(process.parse().unwrap()).unwrap();
        // It may have ended.
        let _ = rustix::process::kill_process(process, signal);
    }
}

fn kill_all(processes: &[PathBuf]) {
    send_to_all(processes, rustix::process::Signal::KILL);
}
