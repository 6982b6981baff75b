//! The network of these tests: client - west - middle - east - server, with a router's agent on
//! each of the three nodes between, and a controller on west.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::common::bed::{Bed, CONTROLLER, ready, until};
use crate::common::{Service, listening, new_key, noise};
use crate::support::OBJECT;

pub const WEB_PORT: u16 = 8080;

/// The first link is so slow that programs take some ten seconds.
const NETWORK: &str = r#"
title = "a client and a server beyond three routers"
[nodes.client]
[nodes.west]
[nodes.middle]
[nodes.east]
[nodes.server]
[links.access]
ends = ["client", "west"]
delay = "1 ms"
rate = "40 Mbit/s"
[links.wide]
ends = ["west", "middle"]
delay = "1 ms"
rate = "1 Gbit/s"
[links.last]
ends = ["middle", "east"]
delay = "1 ms"
rate = "1 Gbit/s"
[links.campus]
ends = ["east", "server"]
delay = "1 ms"
rate = "1 Gbit/s"
"#;

impl Bed {
    /// Starts it. Prints why and returns `None` if this machine allows no labs.
    pub fn up() -> Option<Self> {
        let mut bed = Self::start(NETWORK, Some("west"))?;
        for name in ["client", CONTROLLER] {
            new_key(&bed.path(name));
        }
        let routers: [(&str, &[(&str, &str)]); 3] = [
            ("west", &[("wide", "server")]),
            ("middle", &[("wide", "client"), ("last", "server")]),
            ("east", &[("last", "client")]),
        ];
        for (router, links) in routers {
            let links = links
                .iter()
                .map(|&(link, node)| (link.to_owned(), bed.link_towards(router, node)));
            let links = links.collect();
            bed.start_router(router, &Value::Object(links));
        }
        bed.start_controller(&bed.agents(&["west", "middle", "east"]));
        bed.import(&bed.map());
        for role in ["client", "reserver"] {
            bed.grant("client", role);
        }
        let url = bed.controller_url();
        bed.run(
            "client",
            "client",
            &["controller", "use", &url, "--accept-new"],
        );
        Some(bed)
    }

    /// Returns a map on which half of 100 Mbit/s is reservable.
    pub fn map(&self) -> Value {
        let capacity = json!({"capacity": {"rate_bps": 1e8}});
        let link = |name: &str, from: &str, to: &str| {
            json!({
                "name": name, "from": from, "to": to, "forward": capacity, "backward": capacity
            })
        };
        json!({
            "sites": [{"name": "west"}, {"name": "middle"}, {"name": "east"}],
            "hosts": [
                {"name": "client", "site": "west", "addresses": [self.address("client")]},
                {"name": "server", "site": "east", "addresses": [self.address("server")]},
            ],
            "links": [link("wide", "west", "middle"), link("last", "middle", "east")],
        })
    }

    /// Starts a program on the server, and waits until it listens. Its folder is the bed's.
    pub fn serve(&mut self, program: &str, arguments: &[&str], port: u16) {
        let mut command = self.command("server", program);
        command.args(arguments).current_dir(self.dir.path());
        // A GridFTP server does not listen if it cannot resolve the machine's name.
        command.env("GLOBUS_HOSTNAME", self.address("server"));
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(self.path("server.log")).unwrap());
        self.keep("server", Service(command.spawn().unwrap()));
        listening(&self.lab, "server", port);
    }

    /// Starts a web server with a file of this many bytes, `data`.
    pub fn serve_web(&mut self, bytes: usize) {
        fs::write(self.path("data"), noise(bytes, 3)).unwrap();
        let port = WEB_PORT.to_string();
        self.serve("python3", &["-m", "http.server", &port], WEB_PORT);
    }

    /// Starts an on-ramp on the client, with these rules. Its log is in the file `onramp.log`.
    pub fn start_onramp(&mut self, rules: &str, options: &[&str]) {
        drop(self.services.remove("onramp"));
        fs::write(self.path("client").join("routes.toml"), rules).unwrap();
        let log = fs::File::create(self.path("onramp.log")).unwrap();
        let mut command = self.longhaul("client", "client");
        command
            .args(["onramp", "--json", "--socket"])
            .arg(self.path("client.d/socket"))
            .args(options)
            .env("RUST_LOG", "info")
            .stderr(log);
        self.keep("onramp", ready(command));
    }

    /// Returns the on-ramp's log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.path("onramp.log")).unwrap()
    }

    /// Waits until the on-ramp has logged this.
    pub fn logged(&self, words: &str) {
        self.until(words, || self.log().contains(words));
    }

    /// Returns a program on the client under `longhaul run`, which asks the on-ramp.
    pub fn program(&self, options: &[&str], program: &str) -> Command {
        let mut command = self.longhaul("client", "client");
        command
            .env("LONGHAUL_PRELOAD", &*OBJECT)
            .env("LONGHAUL_ONRAMP", self.path("client.d/socket"))
            .arg("run")
            .args(options)
            .args(["--", program]);
        command
    }

    /// Starts curl on the client under `longhaul run`. It fetches `data` into the file `fetched`.
    pub fn curl(&self, options: &[&str]) -> Child {
        let url = format!("http://{}:{WEB_PORT}/data", self.address("server"));
        let mut curl = self.program(options, "curl");
        curl.args(["-sS", "-o"])
            .arg(self.path("fetched"))
            .arg(&url)
            .spawn()
            .unwrap()
    }

    /// Waits for curl, which must have fetched the whole file.
    pub fn is_fetched(&self, curl: Child) {
        succeeds(curl, "curl");
        assert!(are_same(&self.path("data"), &self.path("fetched")));
    }

    /// Returns all reservations of the controller.
    pub fn reservations(&self) -> Vec<Value> {
        let said = self.operate(&["reservations", "--all", "--json"]);
        let stream = serde_json::Deserializer::from_str(&said).into_iter::<Value>();
        stream.map(Result::unwrap).collect()
    }

    /// Returns true if a router has a class of a rate of 20 Mbit/s on the way to a node.
    fn has_class(&self, router: &str, to: &str) -> bool {
        let classes = self.classes(router, to);
        let mut classes = classes.lines();
        classes.any(|line| line.contains("rate 20Mbit ceil 20Mbit"))
    }

    /// Returns true if both routers on the way from `from` to `to` have a class of 20 Mbit/s.
    pub fn has_classes(&self, from: &str, to: &str) -> bool {
        let first = if from == "client" { "west" } else { "east" };
        self.has_class(first, to) && self.has_class("middle", to)
    }

    /// Returns true if no router has a class of 20 Mbit/s.
    pub fn has_no_classes(&self) -> bool {
        let directions = [
            ("west", "server"),
            ("middle", "server"),
            ("middle", "client"),
            ("east", "client"),
        ];
        !directions
            .iter()
            .any(|(router, to)| self.has_class(router, to))
    }

    /// Waits for something, while a program runs or not.
    pub fn until(&self, what: &str, is: impl Fn() -> bool) {
        until(what, || match is() {
            true => Ok(()),
            false => Err(Value::String(self.log())),
        });
    }
}

/// Waits for a program, which must succeed.
pub fn succeeds(mut child: Child, what: &str) {
    let status = child.wait().unwrap();
    assert!(status.success(), "{what}: {status}");
}

/// Returns true if both files have the same content.
pub fn are_same(one: &Path, other: &Path) -> bool {
    fs::read(one).unwrap() == fs::read(other).unwrap()
}
