//! XRootD, which serves files by HTTPS and WebDAV.

use std::fs;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::nginx::Certificate;
use super::peers::{Peer, installed};
use super::proxy::{Limited, StallingProxy};
use super::{Copied, assert_same, isolated};
use crate::common::noise;
use crate::stage::{Running, Stage};

/// Hands its standard input, a socket that listens, to a program as systemd does.
const PASS_SOCKET: &str = "exec 3<&0 </dev/null
export LISTEN_FDS=1 LISTEN_PID=$$
exec \"$@\"";

/// Serves a directory by XRootD with TLS. Returns `None`, and prints why, if it cannot be
/// installed.
fn start(root: &Path, state: &Path, certificate: &Certificate) -> Option<Peer> {
    let program = installed("xrootd")?;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (port, root) = (address.port(), root.display());
    fs::create_dir_all(state).unwrap();
    // It takes no key that others may read.
    fs::set_permissions(&certificate.key, fs::Permissions::from_mode(0o600)).unwrap();
    let settings = format!(
        "all.role server\nall.export /\noss.localroot {root}\nall.adminpath {state}\n\
         all.pidpath {state}\nxrd.port {port}\nxrd.protocol XrdHttp:{port} libXrdHttp.so\n\
         xrd.tls {chain} {key}\nxrd.tlsca certfile {authority}\n",
        state = state.display(),
        chain = certificate.chain.display(),
        key = certificate.key.display(),
        authority = certificate.authority.display(),
    );
    let file = state.join("xrootd.cfg");
    fs::write(&file, settings).unwrap();
    let log = fs::File::create(state.join("log")).unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", PASS_SOCKET, "sh"]);
    // It refuses to run as root.
    if rustix::process::geteuid().is_root() {
        command.args([
            "unshare",
            "--user",
            "--map-user=1000",
            "--map-group=1000",
            "--",
        ]);
    }
    command
        .arg(program)
        .arg("-c")
        .arg(file)
        .args(["-n", "test"])
        .stdin(Stdio::from(OwnedFd::from(listener)))
        .stdout(log.try_clone().unwrap())
        .stderr(log);
    Some(Peer::with_workers(&mut command, address.to_string()))
}

/// XRootD with the directory `root`, and a machine that copies with it.
struct World {
    stage: Stage,
    certificate: Certificate,
    peer: Peer,
}

impl World {
    fn new() -> Option<Self> {
        let stage = Stage::new();
        let certificate = Certificate::new(&stage.path("certificate"));
        let peer = start(&stage.path("root"), &stage.path("state"), &certificate)?;
        Some(Self {
            stage,
            certificate,
            peer,
        })
    }

    fn longhaul(&self, command: &str, arguments: &[&str]) -> Command {
        let mut longhaul = isolated(&self.stage);
        longhaul
            .env("SSL_CERT_FILE", &self.certificate.authority)
            .arg(command)
            .args(arguments);
        longhaul
    }

    fn cp(&self, arguments: &[&str]) -> Copied {
        Copied::new(self.longhaul("cp", arguments).arg("--json"))
    }

    /// Starts a copy, and kills it once it has copied 24 MiB.
    fn kill_after_24_mib(&self, paths: &[&str]) {
        let mut command = self.longhaul("cp", paths);
        command.arg("--json");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut copy = Running::new(command);
        copy.until(|event: &Value| {
            event["event"] == "progress" && event["bytes"].as_u64() >= Some(24 << 20)
        });
        copy.child.kill().unwrap();
        copy.child.wait().unwrap();
    }

    fn location(&self, scheme: &str, path: &str) -> String {
        format!("{scheme}://{}/{path}", self.peer.address)
    }
}

#[test]
fn files_come_back_from_xrootd_unchanged() {
    let Some(world) = World::new() else { return };
    let path = |path: &str| world.stage.path(path);
    let url = |path: &str| world.location("https", path);
    for (name, len) in [("large", 80 << 20), ("small", 1000), ("empty", 0)] {
        let (file, back) = (format!("here/{name}"), format!("here/{name}-back"));
        fs::write(path(&file), noise(len, 1)).unwrap();
        // It makes the directories above.
        let there = format!("new/a%20b/{name}");
        world.cp(&[&file, &url(&there)]).assert_done();
        assert_same(&path(&file), &path(&format!("root/new/a b/{name}")));
        world.cp(&[&url(&there), &back]).assert_done();
        assert_same(&path(&file), &path(&back));
    }
    world
        .cp(&[&url("nothing"), "here/f"])
        .assert_failed(2, &["no such file"]);
}

#[test]
fn files_at_xrootd_are_replaced_only_if_asked() {
    let Some(world) = World::new() else { return };
    let path = |path: &str| world.stage.path(path);
    let url = world.location("https", "f");
    fs::write(path("here/f"), "one").unwrap();
    fs::write(path("root/f"), "two").unwrap();
    world
        .cp(&["here/f", &url])
        .assert_failed(1, &["already exists", "--overwrite"]);
    assert_eq!(fs::read(path("root/f")).unwrap(), b"two");
    world.cp(&["--overwrite", "here/f", &url]).assert_done();
    assert_same(&path("here/f"), &path("root/f"));
    let same = world.cp(&["--checksum", "here/f", &url]);
    same.assert_done();
    assert_eq!(same.number("unchanged_files"), 1);

    // It reports no times, so another file of the same size is not taken for an earlier copy.
    world.cp(&[&url, "here/g"]).assert_done();
    fs::write(path("root/f"), "six").unwrap();
    world
        .cp(&[&url, "here/g"])
        .assert_failed(1, &["already exists"]);
    world.cp(&["--overwrite", &url, "here/g"]).assert_done();
    assert_eq!(fs::read(path("here/g")).unwrap(), b"six");
}

#[test]
fn interrupted_copies_with_xrootd_start_over() {
    let Some(world) = World::new() else { return };
    let path = |path: &str| world.stage.path(path);
    fs::write(path("root/f"), noise(64 << 20, 2)).unwrap();
    let proxy = StallingProxy::new(&world.peer.address, Limited::FromServer, 44 << 20);
    let url = format!("https://{}/f", proxy.address);
    world.kill_after_24_mib(&[&url, "here/f"]);
    assert!(!path("here/f").exists());
    // Nothing tells another state of this size from the one that was begun.
    fs::write(path("root/f"), noise(64 << 20, 3)).unwrap();
    proxy.release();
    let again = world.cp(&[&url, "here/f"]);
    again.assert_done();
    assert_eq!(again.number("resumed_bytes"), 0);
    assert_same(&path("root/f"), &path("here/f"));

    let proxy = StallingProxy::new(&world.peer.address, Limited::FromClient, 44 << 20);
    let url = format!("https://{}/up", proxy.address);
    world.kill_after_24_mib(&["here/f", &url]);
    proxy.release();
    // What arrived may have the name already.
    world.cp(&["--overwrite", "here/f", &url]).assert_done();
    assert_same(&path("here/f"), &path("root/up"));
}

#[test]
fn trees_at_xrootd_are_refused_with_advice() {
    let Some(world) = World::new() else { return };
    let path = |path: &str| world.stage.path(path);
    fs::create_dir(path("here/tree")).unwrap();
    fs::write(path("here/tree/f"), "content").unwrap();
    fs::write(path("root/f"), "content").unwrap();
    let tree = world.location("webdavs", "");
    for paths in [["here/tree", tree.as_str()], [tree.as_str(), "here/back"]] {
        let refused = world.cp(&["-r", paths[0], paths[1]]);
        refused.assert_failed(1, &["listings lack resourcetype", "https://"]);
    }
    assert!(!path("here/back/f").exists() && !path("root/tree/f").exists());
}
