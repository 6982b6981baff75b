//! The distribution's programs on a route: from a client over a long path to an off-ramp, and to
//! the machine behind it.

use std::fs::{self, File};
use std::process::{Output, Stdio};

use wanbed::{Lab, Overrides, Scenario};

use crate::common::{self, Service, has_labs, key_of, listening, new_key, started};
use crate::{OBJECT, reported};

const PATH: &str = r#"
title = "a gateway, a machine behind it"
[nodes.client]
[nodes.gateway]
[nodes.inside]
[links.long]
ends = ["client", "gateway"]
delay = "20 ms"
rate = "1 Gbit/s"
queue = "1 bdp of 100 ms"
[links.lan]
ends = ["gateway", "inside"]
delay = "0.1 ms"
rate = "unlimited"
"#;

pub struct Bed {
    pub lab: Lab,
    folder: tempfile::TempDir,
    _services: Vec<Service>,
}

impl Bed {
    /// Starts it. Prints why and returns `None` if this machine allows no labs.
    pub fn up() -> Option<Self> {
        if !has_labs() {
            return None;
        }
        let lab = Lab::up(&Scenario::from_text("run", PATH), &Overrides::default()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let client = new_key(&at("client"));
        new_key(&at("gateway"));
        let gateway = key_of(&at("gateway"));
        let [inside, offramp] = ["inside", "gateway"].map(|node| lab.address(node).unwrap());
        let policy = format!(
            "[[allow]]\nprincipals = [\"{client}\"]\nservers = [\"{inside}\"]\n\
             ports = [\"5000-5999\"]\n"
        );
        fs::write(at("policy.toml"), policy).unwrap();
        let routes = format!(
            "[[route]]\nto = [\"{inside}\"]\nvia = \"direct\"\n\
             offramp = \"{gateway}@{offramp}:7512\"\nalways = true\n"
        );
        fs::write(at("client/routes.toml"), routes).unwrap();
        fs::create_dir(at("www")).unwrap();
        fs::write(at("www/file"), served()).unwrap();
        let mut offramp = lab
            .command("gateway", env!("CARGO_BIN_EXE_longhaul"))
            .unwrap();
        offramp
            .env("LONGHAUL_HOME", at("gateway"))
            .args(["offramp", "--listen", "0.0.0.0:7512", "--policy"])
            .arg(at("policy.toml"))
            .stdin(Stdio::null())
            .stderr(File::create(at("offramp.log")).unwrap());
        let offramp = started(offramp);
        let mut web = lab.command("inside", "busybox").unwrap();
        web.args(["httpd", "-f", "-p", "5080", "-h"]).arg(at("www"));
        let web = Service(web.spawn().unwrap());
        let bed = Self {
            lab,
            folder,
            _services: vec![offramp, web],
        };
        listening(&bed.lab, "inside", 5080);
        Some(bed)
    }

    /// Starts a server on a node, and waits until it listens.
    pub fn service(&self, node: &str, program: &str, arguments: &[&str], port: u16) -> Service {
        let mut command = self.lab.command(node, program).unwrap();
        let service = Service(command.args(arguments).spawn().unwrap());
        listening(&self.lab, node, port);
        service
    }

    pub fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the off-ramp's log lines about ended sessions, once there are this many: it logs
    /// them after the program has exited.
    pub fn ended(&self, sessions: usize) -> Vec<String> {
        loop {
            let log = fs::read_to_string(self.path("offramp.log")).unwrap();
            let ended = log.lines().filter(|line| line.contains("session ended"));
            let ended: Vec<String> = ended.map(str::to_owned).collect();
            if ended.len() >= sessions {
                return ended;
            }
            std::thread::yield_now();
        }
    }

    /// Runs `longhaul run` on the client, with an on-ramp of its own.
    pub fn run(&self, options: &[&str], program: &[&str]) -> Output {
        let mut command = self
            .lab
            .command("client", env!("CARGO_BIN_EXE_longhaul"))
            .unwrap();
        command
            .env("LONGHAUL_PRELOAD", &*OBJECT)
            .env("LONGHAUL_HOME", self.path("client"))
            .env_remove("LONGHAUL_ONRAMP")
            .env("TMPDIR", self.folder.path())
            .arg("run")
            .args(options)
            .arg("--")
            .args(program);
        command.output().unwrap()
    }
}

/// Returns the content that the internal machine serves.
pub fn served() -> Vec<u8> {
    common::noise(3 << 20, 7)
}

#[test]
fn curl_and_wget_use_the_route_unchanged() {
    let Some(bed) = Bed::up() else { return };
    let inside = bed.lab.address("inside").unwrap();
    let url = format!("http://{inside}:5080/file");
    let [by_curl, by_wget] = ["by-curl", "by-wget"].map(|name| bed.path(name));
    let curl = [
        "curl",
        "--silent",
        "--show-error",
        "--write-out",
        "%{remote_ip} %{remote_port}",
        "--output",
        by_curl.to_str().unwrap(),
        &url,
    ];
    let wget = [
        "busybox",
        "wget",
        "-q",
        "-O",
        by_wget.to_str().unwrap(),
        &url,
    ];
    for (number, (program, copy)) in [(&curl[..], &by_curl), (&wget, &by_wget)]
        .into_iter()
        .enumerate()
    {
        let output = bed.run(&["--closed", "--purpose", "a test"], program);
        assert!(output.status.success(), "{}", reported(&output));
        assert!(fs::read(copy).unwrap() == served(), "{}", program[0]);
        let ended = bed.ended(number + 1);
        assert!(
            ended
                .iter()
                .all(|line| line.contains(&format!("server={inside}:5080"))
                    && line.contains("a test"))
        );
        if number == 0 {
            assert_eq!(
                String::from_utf8_lossy(&output.stdout),
                format!("{inside} 5080")
            );
        }
    }
    // Nothing listens there, as the off-ramp finds out.
    let refused = bed.run(
        &[],
        &[
            "curl",
            "--silent",
            "--show-error",
            &format!("http://{inside}:5081/"),
        ],
    );
    assert_eq!(refused.status.code(), Some(7), "{}", reported(&refused));
    let left: Vec<_> = fs::read_dir(bed.folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("longhaul-run-"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}
