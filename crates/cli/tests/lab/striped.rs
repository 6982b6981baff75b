//! Two servers that share a directory and a key, and act as one (LH-COPY-76 to LH-COPY-78).

use std::fs;
use std::process::Stdio;

use crate::common::bed::Bed;
use crate::common::{new_key, noise, started};
use crate::stage::Running;

const NETWORK: &str = r#"
title = "a client, and two members of a striped server"
[nodes.client]
[nodes.hub]
[nodes.one]
[nodes.two]
[links.access]
ends = ["client", "hub"]
delay = "1 ms"
rate = "60 Mbit/s"
[links.first]
ends = ["hub", "one"]
delay = "1 ms"
rate = "unlimited"
[links.second]
ends = ["hub", "two"]
delay = "1 ms"
rate = "unlimited"
"#;
const MEMBERS: [&str; 2] = ["one", "two"];
/// Name of both members.
const NAME: &str = "store.example";
/// Line of the log of a member that relays a stream.
const RELAYED: &str = "stream relayed to the member with its copy";
const BYTES: usize = 20_000_000;

/// Direction of a copy.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Direction {
    Push,
    Pull,
}

use Direction::{Pull, Push};

/// The members and their client.
struct Stripe {
    bed: Bed,
    key: String,
    data: Vec<u8>,
}

impl Stripe {
    /// Starts the members. Prints why and returns `None` if this machine allows no labs.
    fn start() -> Option<Self> {
        let bed = Bed::start(NETWORK, None)?;
        let names: Vec<String> = MEMBERS
            .iter()
            .map(|member| format!("{} {NAME}\\n", bed.address(member)))
            .collect();
        let script = format!(
            "printf '{}' >> /etc/hosts; echo nameserver 127.0.0.1 > /etc/resolv.conf",
            names.concat()
        );
        let mut hosts = bed.command("client", "sh");
        assert!(hosts.args(["-c", &script]).status().unwrap().success());
        for directory in ["root", "here"] {
            fs::create_dir(bed.path(directory)).unwrap();
        }
        for home in ["server", "me"] {
            new_key(&bed.path(home));
        }
        let key = bed.key("server");
        let data = noise(BYTES, 7);
        let mut stripe = Self { bed, key, data };
        for member in MEMBERS {
            stripe.start_member(member);
        }
        Some(stripe)
    }

    fn start_member(&mut self, member: &str) {
        let (bed, me) = (&self.bed, self.bed.key("me"));
        let addresses = MEMBERS.map(|member| format!("{}:7511", bed.address(member)));
        let own = format!("{}:7511", bed.address(member));
        let mut command = bed.longhaul(member, "server");
        command
            .args(["serve", "--read", &me, "--write", &me, "--stripe", &own])
            .args(["--stripe-member", &addresses[0]])
            .args(["--stripe-member", &addresses[1], "--root"])
            .arg(bed.path("root"))
            .env("RUST_LOG", "info,longhaul_transfer=debug")
            .stderr(fs::File::create(bed.path(&format!("{member}.log"))).unwrap());
        let service = started(command);
        self.bed.keep(member, service);
    }

    /// Starts a copy over four streams.
    fn start_copy(&self, direction: Direction) -> Running {
        let (here, there) = (self.bed.path("here/f"), self.bed.path("root/f"));
        let source = match direction {
            Push => &here,
            Pull => &there,
        };
        fs::write(source, &self.data).unwrap();
        let remote = format!("lh://{NAME}/f");
        let (here, remote) = (here.to_str().unwrap(), remote.as_str());
        let mut command = self.bed.longhaul("client", "me");
        command
            .args(["cp", "--json", "--streams", "4", "--patience", "2min"])
            .args(["--host-key", &self.key])
            .args(match direction {
                Push => [here, remote],
                Pull => [remote, here],
            })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Running::new(command)
    }

    /// Waits for the end of a copy, which must have copied everything.
    fn finish(&self, copy: Running, what: &str) {
        let (report, code, reported) = copy.report();
        assert_eq!(code, Some(0), "{what}: {report} {reported}");
        for end in ["here/f", "root/f"] {
            assert!(fs::read(self.bed.path(end)).unwrap() == self.data, "{what}");
        }
    }

    /// Returns the number of streams that a member has relayed.
    fn relayed(&self, member: &str) -> usize {
        let log = fs::read_to_string(self.bed.path(&format!("{member}.log"))).unwrap();
        log.matches(RELAYED).count()
    }
}

/// Disturbs each member in turn in the middle of a copy, with this signal.
fn survives(signal: &str, direction: Direction) {
    for member in MEMBERS {
        let Some(stripe) = Stripe::start() else {
            return;
        };
        let mut copy = stripe.start_copy(direction);
        copy.until_mid_copy();
        stripe.bed.services[member].signal(signal);
        stripe.finish(copy, &format!("{signal} {member} {direction:?}"));
    }
}

#[test]
fn lh_copy_77_streams_spread_over_the_members() {
    let Some(stripe) = Stripe::start() else {
        return;
    };
    for (direction, before) in [(Push, 0), (Pull, 2)] {
        let copy = stripe.start_copy(direction);
        stripe.finish(copy, &format!("{direction:?}"));
        let relayed: usize = MEMBERS.iter().map(|member| stripe.relayed(member)).sum();
        assert!(
            relayed >= before + 2,
            "{direction:?}: {relayed} of 4 streams"
        );
        for end in ["here/f", "root/f"] {
            fs::remove_file(stripe.bed.path(end)).unwrap();
        }
    }
}

#[test]
fn killed_member_is_replaced_in_a_push() {
    survives("KILL", Push);
}

#[test]
fn killed_member_is_replaced_in_a_pull() {
    survives("KILL", Pull);
}

#[test]
fn hung_member_is_replaced_in_a_push() {
    survives("STOP", Push);
}

#[test]
fn hung_member_is_replaced_in_a_pull() {
    survives("STOP", Pull);
}
