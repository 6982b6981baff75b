//! Copies between a store and a server, which pass through this machine.

use std::fs;
use std::process::Stdio;

use serde_json::Value;

use super::clouds::Cloud;
use super::proxy::{Limited, StallingProxy};
use super::{Copied, World, assert_same, assert_same_trees, make_tree};
use crate::common::noise;
use crate::resuming::has_journal;
use crate::stage::{Running, Service, errors, no_temps};

/// A store, a server, and a machine that copies between them.
struct Relay {
    world: World,
    server: Service,
}

impl Relay {
    fn new(cloud: Cloud) -> Option<Self> {
        let world = World::new(cloud)?;
        let server = world.stage.serve(&[]);
        Some(Self { world, server })
    }

    /// Returns the location of a path at the server.
    fn there(&self, path: &str) -> String {
        format!("lh://{}/{path}", self.server.address)
    }

    fn cp(&self, arguments: &[&str]) -> Copied {
        let key = ["--host-key", self.server.key.as_str()];
        self.world.cp(&[&key[..], arguments].concat())
    }

    /// Starts a copy that is killed once it has copied `bytes` and `is_recorded` returns true.
    fn kill_after(
        &self,
        proxy: &StallingProxy,
        paths: [&str; 2],
        bytes: u64,
        is_recorded: impl Fn() -> bool,
    ) {
        let key = ["--host-key", self.server.key.as_str(), "-r"];
        let arguments = [&key[..], &paths[..]].concat();
        self.world.kill_after(proxy, &arguments, bytes, is_recorded);
    }
}

#[test]
fn trees_pass_between_stores_and_a_server() {
    let Some(relay) = Relay::new(Cloud::S3) else {
        return;
    };
    let stage = &relay.world.stage;
    make_tree(&stage.path("here/tree"));
    relay
        .cp(&["-r", "here/tree", "s3://runs/tree"])
        .assert_done();
    let there = relay.there("copy");
    let down = relay.cp(&["-r", "s3://runs/tree", &there]);
    down.assert_done();
    assert_eq!(down.number("files"), 301);
    assert_eq!(down.report["direction"], "between");
    assert_eq!(down.report["verification"]["verified"], false);
    assert_same_trees(&stage.path("here/tree"), &stage.path("root/copy"));
    let modified = |path: &str| fs::metadata(stage.path(path)).unwrap().modified().unwrap();
    assert_eq!(
        modified("here/tree/large.h5"),
        modified("root/copy/large.h5")
    );

    let up = relay.cp(&["-r", &there, "s3://runs/back"]);
    up.assert_done();
    assert_eq!(up.number("files"), 301);
    relay
        .cp(&["-r", "s3://runs/back", "here/back"])
        .assert_done();
    assert_same_trees(&stage.path("here/tree"), &stage.path("here/back"));
    for paths in [
        ["s3://runs/tree/.", &there],
        [&relay.there("copy/."), "s3://runs/back"],
    ] {
        let again = relay.cp(&["-r", paths[0], paths[1]]);
        again.assert_done();
        assert_eq!(again.number("files"), 301);
        // A server gets small files before it has said that it has any (LH-COPY-39).
        match paths[1] == there {
            true => assert!(again.number("unchanged_bytes") >= 100 << 20),
            false => assert_eq!(again.number("unchanged_files"), 301),
        }
        let plan = relay.world.run(&[
            "cp",
            "-n",
            "-r",
            "--host-key",
            &relay.server.key,
            paths[0],
            paths[1],
        ]);
        assert!(plan.1.contains("would change nothing"), "{plan:?}");
    }
    let picked = relay.there("picked");
    let filter = ["-r", "--exclude", "small/deeper", "--max-size", "1M"];
    let taken = relay.cp(&[&filter[..], &["s3://runs/tree", &picked][..]].concat());
    taken.assert_done();
    assert_eq!(taken.number("files"), 200);
}

#[test]
fn report_says_how_far_a_relay_is_verified() {
    let Some(relay) = Relay::new(Cloud::S3) else {
        return;
    };
    fs::write(relay.world.stage.path("root/f"), "content").unwrap();
    let there = relay.there("f");
    let back = relay.there("back");
    for (paths, words) in [
        ([there.as_str(), "s3://runs/f"], "the destination has no"),
        (["s3://runs/f", back.as_str()], "the source has no"),
    ] {
        let mut command = relay.world.longhaul(&relay.world.peer.address);
        command.args(["cp", "--host-key", &relay.server.key]);
        let output = command.args(paths).output().unwrap();
        let said = errors(&output);
        assert!(output.status.success(), "{said}");
        assert!(
            said.contains(words) && said.contains("was verified"),
            "{said}"
        );
    }
    assert_same(
        &relay.world.stage.path("root/f"),
        &relay.world.stage.path("root/back"),
    );
}

#[test]
fn killed_relays_resume() {
    let data = noise(64 << 20, 3);
    for relay in Cloud::ALL.into_iter().filter_map(Relay::new) {
        let (world, stage) = (&relay.world, &relay.world.stage);
        fs::create_dir(stage.path("root/tree")).unwrap();
        fs::write(stage.path("root/tree/a"), "small").unwrap();
        fs::write(stage.path("root/tree/f"), &data).unwrap();
        let (source, store) = (relay.there("tree/."), world.cloud.location("tree"));
        let proxy = StallingProxy::new(&world.peer.address, Limited::FromClient, 54 << 20);
        relay.kill_after(&proxy, [&source, &store], 16 << 20, || true);
        let resumed = relay.cp(&["-r", &source, &store]);
        resumed.assert_done();
        assert_eq!(resumed.number("unchanged_files"), 1, "{}", resumed.report);
        let bytes = resumed.number("resumed_bytes");
        assert!(bytes >= 16 << 20, "{}", resumed.report);

        let (source, copy) = (world.cloud.location("tree/."), relay.there("copy"));
        let proxy = StallingProxy::new(&world.peer.address, Limited::FromServer, 44 << 20);
        relay.kill_after(&proxy, [&source, &copy], 24 << 20, || {
            has_journal(&stage.path("root/copy"))
        });
        let resumed = relay.cp(&["-r", &source, &copy]);
        resumed.assert_done();
        let bytes = resumed.number("resumed_bytes");
        assert!(bytes > 1 << 20, "{}", resumed.report);
        assert_same_trees(&stage.path("root/tree"), &stage.path("root/copy"));
        assert!(no_temps(&stage.path("root")));
    }
}

#[test]
fn file_of_a_server_that_changes_is_not_mixed() {
    let Some(relay) = Relay::new(Cloud::S3) else {
        return;
    };
    let (world, stage) = (&relay.world, &relay.world.stage);
    fs::write(stage.path("root/f"), noise(64 << 20, 5)).unwrap();
    let proxy = StallingProxy::new(&world.peer.address, Limited::FromClient, 36 << 20);
    let mut command = world.longhaul(&proxy.address);
    let source = relay.there("f");
    command
        .args(["cp", "--json", "--host-key", &relay.server.key])
        .args(["--streams", "1", &source, "s3://runs/f"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut copy = Running::new(command);
    copy.until(|event: &Value| {
        event["event"] == "progress" && event["bytes"].as_u64() >= Some(16 << 20)
    });
    // The size and the time are the same.
    let before = fs::metadata(stage.path("root/f"))
        .unwrap()
        .modified()
        .unwrap();
    fs::write(stage.path("root/f"), noise(64 << 20, 6)).unwrap();
    let file = fs::File::options()
        .write(true)
        .open(stage.path("root/f"))
        .unwrap();
    file.set_modified(before).unwrap();
    proxy.release();
    let (report, code, errors) = copy.report();
    let said = format!("{errors} {report}");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("changed while it was being read"), "{said}");
    let nothing = relay.cp(&["s3://runs/f", "here/f"]);
    nothing.assert_failed(2, &["no such file"]);
}

#[test]
fn relay_without_its_server_ends_with_advice() {
    let Some(mut relay) = Relay::new(Cloud::S3) else {
        return;
    };
    let nowhere = relay.cp(&["lh://127.0.0.1:1/f", "s3://runs/f"]);
    nowhere.assert_failed(3, &["127.0.0.1:1"]);
    let missing = relay.cp(&[&relay.there("f"), "s3://runs/f"]);
    missing.assert_failed(2, &["no such file"]);
    let missing = relay.cp(&["s3://runs/f", &relay.there("f")]);
    missing.assert_failed(2, &["no such file"]);
    let tree = relay.cp(&[&relay.there(""), "s3://runs/f"]);
    tree.assert_failed(1, &["give -r"]);

    fs::write(relay.world.stage.path("root/f"), noise(64 << 20, 7)).unwrap();
    let proxy = StallingProxy::new(&relay.world.peer.address, Limited::FromClient, 20 << 20);
    let mut command = relay.world.longhaul(&proxy.address);
    let source = relay.there("f");
    command
        .args(["cp", "--json", "--host-key", &relay.server.key])
        .args(["--patience", "1s", &source, "s3://runs/f"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut copy = Running::new(command);
    copy.until(|event: &Value| event["event"] == "progress" && event["bytes"].as_u64() > Some(0));
    relay.server.kill();
    proxy.release();
    let (report, code, errors) = copy.report();
    assert!(matches!(code, Some(3 | 5)), "{errors} {report}");
}

#[test]
fn options_that_a_relay_cannot_provide_are_refused() {
    let Some(relay) = Relay::new(Cloud::S3) else {
        return;
    };
    let there = relay.there("f");
    for (option, paths) in [
        (&["--receipt", "r"][..], ["s3://runs/f", &there]),
        (&["-a"], ["s3://runs/f", &there]),
        (&["--delta"], ["s3://runs/f", &there]),
        (&["--transport", "quic"], [&there, "s3://runs/f"]),
        (&["--port-range", "7000-7010"], [&there, "s3://runs/f"]),
    ] {
        let refused = relay.cp(&[option, &paths[..]].concat());
        refused.assert_failed(2, &["passes through this machine", "not possible"]);
    }
}
