//! Copies with object stores and web servers, against programs of other projects.

mod clouds;
mod faults;
mod listing;
mod matrix;
mod nginx;
mod peers;
mod proxy;
mod relay;
mod server_and_login;
mod sshd;
mod sync;
mod xrootd;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::common::noise;
use crate::resuming::has_journal;
use crate::stage::{Running, Stage, errors, no_temps};
use clouds::Cloud;
use peers::Peer;
use proxy::{Limited, StallingProxy};

/// A store and a machine that copies with it.
struct World {
    stage: Stage,
    cloud: Cloud,
    peer: Peer,
}

impl World {
    /// Starts a store with the bucket `runs`.
    fn new(cloud: Cloud) -> Option<Self> {
        Some(Self {
            peer: cloud.start()?,
            cloud,
            stage: Stage::new(),
        })
    }

    fn s3() -> Option<Self> {
        Self::new(Cloud::S3)
    }

    /// Returns the command with the environment of a user of the store at an address.
    fn longhaul(&self, address: &str) -> Command {
        let mut command = isolated(&self.stage);
        command.envs(self.cloud.variables(address));
        command
    }

    fn cp(&self, arguments: &[&str]) -> Copied {
        let mut command = self.longhaul(&self.peer.address);
        Copied::new(command.args(["cp", "--json"]).args(arguments))
    }

    /// Runs another command than cp. Returns its exit code, and what it prints.
    fn run(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let mut command = self.longhaul(&self.peer.address);
        let output = command.args(arguments).output().unwrap();
        let printed = String::from_utf8(output.stdout.clone()).unwrap();
        (output.status.code(), printed + &errors(&output))
    }

    /// Starts a copy by a proxy that stalls, and kills it once it has copied `bytes` and
    /// `is_recorded` returns true.
    fn kill_after(
        &self,
        proxy: &StallingProxy,
        arguments: &[&str],
        bytes: u64,
        is_recorded: impl Fn() -> bool,
    ) {
        let mut command = self.longhaul(&proxy.address);
        command
            .args(["cp", "--json", "--streams", "2"])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut copy = Running::new(command);
        let is_far =
            |event: &Value| event["event"] == "progress" && event["bytes"].as_u64() >= Some(bytes);
        copy.until(is_far);
        // Some time passes, in which what was written is recorded.
        for _ in 0..8 {
            copy.until(is_far);
        }
        copy.until(|_| is_recorded());
        copy.child.kill().unwrap();
        copy.child.wait().unwrap();
    }
}

/// Returns the command without any settings of the machine that the test runs on.
fn isolated(stage: &Stage) -> Command {
    let mut command = stage.longhaul("me");
    for (name, _) in std::env::vars() {
        if ["AWS_", "GOOGLE_", "AZURE_", "STORAGE_", "LONGHAUL_HTTP"]
            .iter()
            .any(|p| name.starts_with(p))
        {
            command.env_remove(name);
        }
    }
    command
        .env("HOME", stage.path("me"))
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .env_remove("NETRC");
    command
}

/// A copy that ended.
struct Copied {
    report: Value,
    output: Output,
}

impl Copied {
    fn new(command: &mut Command) -> Self {
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let last = text.lines().last().unwrap_or("{}");
        let report = serde_json::from_str(last)
            .unwrap_or_else(|error| panic!("{error}: {last} {}", errors(&output)));
        Self { report, output }
    }

    #[track_caller]
    fn assert_done(&self) {
        let code = self.output.status.code();
        assert_eq!(code, Some(0), "{} {}", errors(&self.output), self.report);
    }

    /// Asserts that it failed with this code, and says all of this.
    #[track_caller]
    fn assert_failed(&self, code: i32, says: &[&str]) {
        // With --json, they are in the report.
        let errors = format!("{} {}", errors(&self.output), self.report);
        assert_eq!(self.output.status.code(), Some(code), "{errors}");
        for words in says {
            assert!(errors.contains(words), "{words}: {errors}");
        }
    }

    fn number(&self, key: &str) -> u64 {
        self.report[key]
            .as_u64()
            .unwrap_or_else(|| panic!("{key}: {}", self.report))
    }
}

#[track_caller]
fn assert_same(one: &Path, other: &Path) {
    let (one, other) = (fs::read(one).unwrap(), fs::read(other).unwrap());
    assert!(one == other);
}

/// Makes a tree of one large and 300 small files.
fn make_tree(directory: &Path) {
    fs::create_dir_all(directory.join("small/deeper")).unwrap();
    fs::write(directory.join("large.h5"), noise(100 << 20, 1)).unwrap();
    for number in 0..300_usize {
        let folder = if number % 3 == 0 {
            "small/deeper"
        } else {
            "small"
        };
        // Some are empty.
        let data = noise(number % 7 * 1000, number as u64);
        fs::write(
            directory.join(folder).join(format!("run {number}#%.dat")),
            data,
        )
        .unwrap();
    }
}

#[track_caller]
fn assert_same_trees(one: &Path, other: &Path) {
    let compared = Command::new("diff")
        .arg("-r")
        .args([one, other])
        .output()
        .unwrap();
    assert!(compared.status.success(), "{compared:?}");
}

#[test]
fn trees_come_back_from_s3_unchanged() {
    let Some(world) = World::s3() else { return };
    let (source, copy) = (world.stage.path("here/tree"), world.stage.path("here/back"));
    make_tree(&source);
    let pushed = world.cp(&["-r", "here/tree", "s3://runs/data/"]);
    pushed.assert_done();
    assert_eq!(pushed.number("files"), 301);
    assert_eq!(pushed.report["verification"]["verified"], false);

    let again = world.cp(&["-r", "here/tree", "s3://runs/data/"]);
    again.assert_done();
    assert_eq!(again.number("unchanged_files"), 301);

    let pulled = world.cp(&["-r", "s3://runs/data/tree", "here/back"]);
    pulled.assert_done();
    assert_eq!(pulled.number("files"), 301);
    assert_same_trees(&source, &copy);
    assert!(no_temps(&copy));
    let modified = |path: &Path| {
        fs::metadata(path.join("large.h5"))
            .unwrap()
            .modified()
            .unwrap()
    };
    assert_eq!(modified(&source), modified(&copy));

    // A directory that exists gets the tree below it, as with cp.
    let again = world.cp(&["-r", "s3://runs/data/tree/.", "here/back"]);
    again.assert_done();
    assert_eq!(again.number("unchanged_files"), 301);
}

#[test]
fn killed_uploads_to_stores_resume() {
    let (data, other_data) = (noise(64 << 20, 3), noise(64 << 20, 4));
    for world in Cloud::ALL.into_iter().filter_map(World::new) {
        let path = |name: &str| world.stage.path(name);
        let (f, other) = (world.cloud.location("f"), world.cloud.location("other"));
        fs::write(path("here/f"), &data).unwrap();
        let proxy = StallingProxy::new(&world.peer.address, Limited::FromClient, 54 << 20);
        let paths = ["here/f", f.as_str()];
        world.kill_after(&proxy, &paths, 16 << 20, || true);
        let resumed = world.cp(&paths);
        resumed.assert_done();
        let bytes = resumed.number("resumed_bytes");
        assert!(bytes >= 16 << 20, "{}", resumed.report);
        world.cp(&[&f, "here/back"]).assert_done();
        assert_same(&path("here/f"), &path("here/back"));
        let records = fs::read_dir(path("me/state/uploads")).unwrap();
        assert_eq!(records.count(), 0);

        // Another state of the file is not mixed with what is there.
        let proxy = StallingProxy::new(&world.peer.address, Limited::FromClient, 54 << 20);
        let paths = ["here/f", other.as_str()];
        world.kill_after(&proxy, &paths, 16 << 20, || true);
        fs::write(path("here/f"), &other_data).unwrap();
        let begun = world.cp(&paths);
        begun.assert_done();
        assert_eq!(begun.number("resumed_bytes"), 0);
        world.cp(&[&other, "here/again"]).assert_done();
        assert_same(&path("here/f"), &path("here/again"));
    }
}

#[test]
fn killed_downloads_from_stores_resume() {
    // Another size, as the time may be the same second.
    let (data, other_data) = (noise(64 << 20, 5), noise((64 << 20) + 1, 6));
    for world in Cloud::ALL.into_iter().filter_map(World::new) {
        let path = |name: &str| world.stage.path(name);
        let f = world.cloud.location("f");
        fs::write(path("here/f"), &data).unwrap();
        world.cp(&["here/f", &f]).assert_done();
        let proxy = StallingProxy::new(&world.peer.address, Limited::FromServer, 44 << 20);
        let paths = [f.as_str(), "here/back"];
        world.kill_after(&proxy, &paths, 24 << 20, || has_journal(&path("here")));
        assert!(!path("here/back").exists());
        let resumed = world.cp(&paths);
        resumed.assert_done();
        let bytes = resumed.number("resumed_bytes");
        assert!(bytes > 1 << 20, "{}", resumed.report);
        assert_same(&path("here/f"), &path("here/back"));
        assert!(no_temps(&path("here")));

        // Another object is not mixed with what is there.
        let proxy = StallingProxy::new(&world.peer.address, Limited::FromServer, 44 << 20);
        let paths = [f.as_str(), "here/other"];
        world.kill_after(&proxy, &paths, 24 << 20, || has_journal(&path("here")));
        fs::write(path("here/f"), &other_data).unwrap();
        world.cp(&["--overwrite", "here/f", &f]).assert_done();
        let begun = world.cp(&paths);
        begun.assert_done();
        assert_eq!(begun.number("resumed_bytes"), 0);
        assert_same(&path("here/f"), &path("here/other"));
    }
}

#[test]
fn errors_of_s3_name_cause_and_remedy() {
    let Some(world) = World::s3() else { return };
    fs::write(world.stage.path("here/f"), "content").unwrap();
    let mut nobody = isolated(&world.stage);
    nobody.env("AWS_ENDPOINT_URL", format!("http://{}", world.peer.address));
    let nobody = Copied::new(nobody.args(["cp", "--json", "here/f", "s3://runs/f"]));
    nobody.assert_failed(4, &["s3://runs: no credentials", "AWS_ACCESS_KEY_ID"]);

    let mut nowhere = world.longhaul("127.0.0.1:1");
    let nowhere = Copied::new(nowhere.args(["cp", "--json", "here/f", "s3://runs/f"]));
    nowhere.assert_failed(3, &["cannot reach s3://runs", "endpoint"]);

    let mixed = world.cp(&["s3://runs/f", "lh://server.example/f", "here"]);
    mixed.assert_failed(2, &["several places", "one command for each"]);
    let mixed = world.cp(&["here/f", "ana@host.example:f", "s3://runs/f"]);
    mixed.assert_failed(2, &["here and elsewhere", "one command for each"]);
    let route = world.cp(&["--route", "depot.example", "here/f", "s3://runs/f"]);
    route.assert_failed(2, &["--route is not possible with stores"]);
}

#[test]
fn objects_are_replaced_only_if_asked() {
    let Some(world) = World::s3() else { return };
    fs::write(world.stage.path("here/f"), "one").unwrap();
    world.cp(&["here/f", "s3://runs/f"]).assert_done();
    fs::write(world.stage.path("here/f"), "another").unwrap();
    let exists = world.cp(&["here/f", "s3://runs/f"]);
    exists.assert_failed(1, &["already exists"]);
    world
        .cp(&["--overwrite", "here/f", "s3://runs/f"])
        .assert_done();
    let exists = world.cp(&["s3://runs/f", "here/g"]);
    exists.assert_done();
    fs::write(world.stage.path("here/g"), "mine").unwrap();
    let exists = world.cp(&["s3://runs/f", "here/g"]);
    exists.assert_failed(1, &["already exists"]);
    assert_eq!(fs::read(world.stage.path("here/g")).unwrap(), b"mine");
    // The content is the same, whatever the times are.
    fs::write(world.stage.path("here/g"), "another").unwrap();
    let same = world.cp(&["--checksum", "here/g", "s3://runs/f"]);
    same.assert_done();
    assert_eq!(same.number("unchanged_files"), 1);
}

#[test]
fn profiles_of_the_aws_tools_are_used() {
    let Some(world) = World::s3() else { return };
    fs::create_dir_all(world.stage.path("me/.aws")).unwrap();
    let keys = "[lab]\naws_access_key_id = A\naws_secret_access_key = s\n";
    fs::write(world.stage.path("me/.aws/credentials"), keys).unwrap();
    let config = format!(
        "[profile lab]\nregion = eu-west-1\nendpoint_url = http://{}\n",
        world.peer.address
    );
    fs::write(world.stage.path("me/.aws/config"), config).unwrap();
    fs::write(world.stage.path("here/f"), "content").unwrap();
    let cp = |profile: &str| {
        let mut command = isolated(&world.stage);
        command.env("AWS_PROFILE", profile);
        Copied::new(command.args(["cp", "--json", "here/f", "s3://runs/f"]))
    };
    cp("lab").assert_done();
    cp("other").assert_failed(2, &["AWS_PROFILE=other", "no such profile"]);
}

#[test]
fn trees_come_back_from_webdav_unchanged() {
    let stage = Stage::new();
    let Some(peer) = Peer::webdav(&stage.path("root"), Some(("ana", "s3cret"))) else {
        return;
    };
    make_tree(&stage.path("here/tree"));
    let cp = |arguments: &[&str]| {
        let mut command = isolated(&stage);
        Copied::new(command.args(["cp", "--json"]).args(arguments))
    };
    let there = format!("webdav://{}/data", peer.address);
    let refused = cp(&["-r", "here/tree", &there]);
    refused.assert_failed(4, &["refuses these credentials"]);
    let netrc = "machine 127.0.0.1 login ana password s3cret\n";
    fs::create_dir_all(stage.path("me")).unwrap();
    fs::write(stage.path("me/.netrc"), netrc).unwrap();
    let pushed = cp(&["-r", "here/tree", &there]);
    pushed.assert_done();
    assert_eq!(pushed.number("files"), 301);
    assert_same_trees(&stage.path("here/tree"), &stage.path("root/data"));
    assert!(no_temps(&stage.path("root")));
    let again = cp(&["-r", "here/tree/.", &there]);
    again.assert_done();
    assert_eq!(again.number("unchanged_files"), 301);
    let pulled = cp(&["-r", &there, "here/back"]);
    pulled.assert_done();
    assert_same_trees(&stage.path("here/tree"), &stage.path("here/back"));
    fs::write(stage.path("here/tree/large.h5"), "another").unwrap();
    let exists = cp(&["here/tree/large.h5", &format!("{there}/large.h5")]);
    exists.assert_failed(1, &["already exists"]);
    let nowhere = cp(&["here/tree/large.h5", &format!("{there}/none/f")]);
    nowhere.assert_failed(1, &["no such file or directory"]);
}

#[test]
fn files_of_web_servers_are_downloaded() {
    let stage = Stage::new();
    fs::write(stage.path("root/large file"), noise(40 << 20, 9)).unwrap();
    let mut servers = vec![Peer::http_without_ranges(&stage.path("root"))];
    servers.extend(Peer::webdav(&stage.path("root"), None));
    for (number, server) in servers.iter().enumerate() {
        let cp = |path: &str, to: &str| {
            let url = format!("http://{}/{path}", server.address);
            Copied::new(isolated(&stage).args(["cp", "--json", &url, to]))
        };
        let to = format!("here/{number}");
        cp("large%20file?download=1", &to).assert_done();
        assert_same(&stage.path("root/large file"), &stage.path(&to));
        cp("nothing", "here/nothing").assert_failed(2, &["no such file"]);
        cp("", "here/all").assert_failed(2, &["name each"]);
    }
    let secret = "https://ana:s3cret@host.example/f";
    let refused = Copied::new(isolated(&stage).args(["cp", "--json", secret, "here/f"]));
    refused.assert_failed(2, &["~/.netrc"]);
    assert!(!errors(&refused.output).contains("s3cret"));
    assert!(!refused.report.to_string().contains("s3cret"));
}
