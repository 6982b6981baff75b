//! Faults of a store or web server during a copy.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::Stdio;

use serde_json::Value;

use super::clouds::Cloud;
use super::nginx::{Certificate, Served};
use super::peers::Peer;
use super::proxy::{Limited, StallingProxy};
use super::{Copied, World, assert_same, isolated};
use crate::common::noise;
use crate::stage::{Running, Stage, no_temps};

#[test]
fn wrong_credentials_are_refused_by_stores() {
    for cloud in Cloud::ALL {
        let peer = match cloud {
            Cloud::S3 => Peer::s3_that_knows_nobody(),
            Cloud::Azure | Cloud::Google => cloud.start(),
        };
        let Some(peer) = peer else { continue };
        let stage = Stage::new();
        fs::write(stage.path("here/f"), "content").unwrap();
        let world = World { stage, cloud, peer };
        let there = cloud.location("f");
        for paths in [["here/f", there.as_str()], [there.as_str(), "here/g"]] {
            let mut command = world.longhaul(&world.peer.address);
            command.envs(cloud.wrong_credentials());
            let refused = Copied::new(command.args(["cp", "--json"]).args(paths));
            refused.assert_failed(4, &["refuses these credentials", "check which"]);
        }
    }
}

#[test]
fn missing_buckets_and_objects_are_named() {
    for world in Cloud::ALL.into_iter().filter_map(World::new) {
        fs::write(world.stage.path("here/f"), "content").unwrap();
        let bucket = world.cloud.location("f").replace("runs", "no-such-bucket");
        let missing = world.cp(&["here/f", &bucket]);
        missing.assert_failed(1, &["no-such-bucket does not exist", "check the name"]);
        let missing = world.cp(&[&bucket, "here/g"]);
        missing.assert_failed(1, &["no-such-bucket does not exist"]);
        let nothing = world.cloud.location("nothing");
        let missing = world.cp(&[&nothing, "here/g"]);
        missing.assert_failed(2, &[&nothing, "no such file"]);
    }
}

/// A WebDAV server that takes files of at most 1 MiB.
fn limited_nginx(stage: &Stage) -> Option<(Peer, Certificate)> {
    let certificate = Certificate::new(&stage.path("certificate"));
    let served = Served {
        root: &stage.path("nginx"),
        state: &stage.path("nginx-state"),
        certificate: &certificate,
        login: ("ana", "s3cret"),
        limit: "1m",
    };
    let peer = served.start()?;
    Some((peer, certificate))
}

#[test]
fn logins_of_web_servers_are_demanded() {
    let stage = Stage::new();
    let Some((nginx, certificate)) = limited_nginx(&stage) else {
        return;
    };
    fs::write(stage.path("here/f"), "content").unwrap();
    let cp = |password: &str, paths: [&str; 2]| {
        let mut command = isolated(&stage);
        command
            .env("SSL_CERT_FILE", &certificate.authority)
            .env("LONGHAUL_HTTP_USER", "ana")
            .env("LONGHAUL_HTTP_PASSWORD", password);
        Copied::new(command.args(["cp", "--json"]).args(paths))
    };
    for scheme in ["https", "webdavs"] {
        let there = format!("{scheme}://{}/{scheme}", nginx.address);
        let refused = cp("wrong", ["here/f", &there]);
        refused.assert_failed(4, &["refuses these credentials", "check which"]);
        let refused = cp("wrong", [&there, "here/g"]);
        refused.assert_failed(4, &["refuses these credentials", "check which"]);
        cp("s3cret", ["here/f", &there]).assert_done();
        cp("s3cret", [&there, &format!("here/{scheme}")]).assert_done();
    }
}

#[test]
fn servers_of_unknown_authorities_are_refused() {
    let stage = Stage::new();
    let Some((nginx, certificate)) = limited_nginx(&stage) else {
        return;
    };
    let chain = certificate.chain.display().to_string();
    let key = certificate.key.display().to_string();
    let options = ["--ssl", "--ssl-cert", &chain, "--ssl-key", &key];
    let Some(moto) = Peer::moto(&options, &[]) else {
        return;
    };
    let unknown = Certificate::new(&stage.path("unknown"));
    let cp = |authority: &Certificate, source: &str| {
        let mut command = isolated(&stage);
        command
            .envs(Cloud::S3.variables(""))
            .env("AWS_ENDPOINT_URL", format!("https://{}", moto.address))
            .env("SSL_CERT_FILE", &authority.authority);
        Copied::new(command.args(["cp", "--json", source, "here/f"]))
    };
    let nginx = |scheme: &str| format!("{scheme}://{}/f", nginx.address);
    for source in [nginx("https"), nginx("webdavs"), "s3://runs/f".to_owned()] {
        let refused = cp(&unknown, &source);
        refused.assert_failed(3, &["cannot reach", "certificate"]);
        // An answer is that there is no login, or no bucket.
        let answered = cp(&certificate, &source);
        assert!(
            matches!(answered.output.status.code(), Some(1 | 4)),
            "{}",
            answered.report
        );
    }
}

#[test]
fn files_too_large_for_a_server_fail_alone() {
    let stage = Stage::new();
    let Some((nginx, certificate)) = limited_nginx(&stage) else {
        return;
    };
    fs::create_dir(stage.path("here/tree")).unwrap();
    fs::write(stage.path("here/tree/small"), "content").unwrap();
    fs::write(stage.path("here/tree/large"), noise(2 << 20, 1)).unwrap();
    let mut command = isolated(&stage);
    command
        .env("SSL_CERT_FILE", &certificate.authority)
        .env("LONGHAUL_HTTP_USER", "ana")
        .env("LONGHAUL_HTTP_PASSWORD", "s3cret");
    let there = format!("webdavs://{}/tree", nginx.address);
    let copied = Copied::new(command.args(["cp", "--json", "-r", "here/tree", &there]));
    copied.assert_failed(1, &["does not take files of this size", "raise its limit"]);
    assert_eq!(
        fs::read(stage.path("nginx/tree/small")).unwrap(),
        b"content"
    );
    assert!(!stage.path("nginx/tree/large").exists());
    assert!(no_temps(&stage.path("nginx")));
}

/// Starts a web server that answers every upload with success, and has three bytes of it.
fn forgetful_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let mut is_stored = false;
        for stream in listener.incoming().map_while(Result::ok) {
            let mut lines = BufReader::new(&stream);
            let (mut request, mut len) = (String::new(), 0);
            lines.read_line(&mut request).unwrap();
            let mut line = String::new();
            while lines.read_line(&mut line).unwrap() > 2 {
                if let Some(value) = line.strip_prefix("Content-Length: ") {
                    len = value.trim().parse().unwrap();
                }
                line.clear();
            }
            std::io::copy(&mut lines.take(len), &mut std::io::sink()).unwrap();
            let answer = match request.starts_with("PUT ") {
                true => "201 Created\r\nContent-Length: 0",
                false if is_stored => "200 OK\r\nContent-Length: 3",
                false => "404 Not Found\r\nContent-Length: 0",
            };
            is_stored |= request.starts_with("PUT ");
            write!(&stream, "HTTP/1.1 {answer}\r\nConnection: close\r\n\r\n").unwrap();
        }
    });
    address
}

#[test]
fn server_that_stores_less_than_it_says_is_noticed() {
    let stage = Stage::new();
    fs::write(stage.path("here/f"), "content").unwrap();
    let there = format!("http://{}/f", forgetful_server());
    let copied = Copied::new(isolated(&stage).args(["cp", "--json", "here/f", &there]));
    copied.assert_failed(1, &["has 3 of 7 bytes"]);
    assert_eq!(copied.number("bytes"), 0);
}

#[test]
fn full_disk_of_a_server_is_reported() {
    let stage = Stage::new();
    let Some(rclone) = Peer::webdav_on_small_disk(&stage.path("root")) else {
        return;
    };
    fs::write(stage.path("here/f"), noise(8 << 20, 1)).unwrap();
    let there = format!("webdav://{}/f", rclone.address);
    let copied = Copied::new(isolated(&stage).args(["cp", "--json", "here/f", &there]));
    copied.assert_failed(1, &["room"]);
    let back = Copied::new(isolated(&stage).args(["cp", "--json", &there, "here/g"]));
    back.assert_failed(2, &["no such file"]);
}

#[test]
fn uploads_that_a_store_forgot_start_over() {
    // moto takes parts of unknown uploads for errors of its own.
    let clouds = [Cloud::Azure, Cloud::Google];
    for mut world in clouds.into_iter().filter_map(World::new) {
        let there = world.cloud.location("f");
        fs::write(world.stage.path("here/f"), noise(40 << 20, 8)).unwrap();
        let paths = ["here/f", there.as_str()];
        let proxy = StallingProxy::new(&world.peer.address, Limited::FromClient, 36 << 20);
        world.kill_after(&proxy, &paths, 16 << 20, || true);
        let Some(another) = world.cloud.start() else {
            return;
        };
        world.peer = another;
        world.cp(&paths).assert_done();
        world.cp(&[&there, "here/back"]).assert_done();
        assert_same(&world.stage.path("here/f"), &world.stage.path("here/back"));
    }
}

/// Starts the download of an object of 40 MiB, stops the store in its middle, and lets `change`
/// happen. Returns the exit code and the words of the copy.
fn download_while(world: &World, change: impl FnOnce(&str)) -> (Option<i32>, String) {
    let there = world.cloud.location("f");
    fs::write(world.stage.path("here/f"), noise(40 << 20, 5)).unwrap();
    world.cp(&["--overwrite", "here/f", &there]).assert_done();
    let proxy = StallingProxy::new(&world.peer.address, Limited::FromServer, 20 << 20);
    let mut command = world.longhaul(&proxy.address);
    command
        .args(["cp", "--json", "--streams", "1", &there, "here/back"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut copy = Running::new(command);
    let is_begun =
        |event: &Value| event["event"] == "progress" && event["bytes"].as_u64() >= Some(8 << 20);
    copy.until(is_begun);
    change(&there);
    proxy.release();
    let (report, code, errors) = copy.report();
    assert!(!world.stage.path("here/back").exists());
    (code, format!("{errors} {report}"))
}

#[test]
fn objects_that_change_meanwhile_are_not_mixed() {
    for world in Cloud::ALL.into_iter().filter_map(World::new) {
        let (code, said) = download_while(&world, |there| {
            // Another size, as its time may be the same second.
            fs::write(world.stage.path("here/f"), noise((40 << 20) + 1, 6)).unwrap();
            world.cp(&["--overwrite", "here/f", there]).assert_done();
        });
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("changed while it was being read"), "{said}");
        assert!(no_temps(&world.stage.path("here")));
    }
}

#[test]
fn objects_that_vanish_meanwhile_are_reported() {
    let Some(world) = World::s3() else { return };
    let (code, said) = download_while(&world, |_| {
        let removed = world.peer.request("DELETE", "/runs/f");
        assert!(removed.starts_with("HTTP/1.1 204"), "{removed}");
    });
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("vanished before it could be read"), "{said}");
}
