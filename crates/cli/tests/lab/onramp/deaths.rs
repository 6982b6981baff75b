//! Behaviour of programs when a part of their path dies or ends.

use std::fs;
use std::io::Read;
use std::process::{Child, Stdio};

use super::world::World;

/// A running download whose first bytes have arrived.
struct Download {
    curl: Child,
    first: Vec<u8>,
}

impl Download {
    fn start(world: &World, socks: &str) -> Self {
        let mut curl = world.lab.command("laptop", "curl").unwrap();
        // Slow enough that it still runs when something happens.
        curl.args([
            "-sS",
            "--limit-rate",
            "100k",
            "--socks5",
            socks,
            &world.url(),
        ]);
        let mut curl = curl
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut first = vec![0; 1000];
        curl.stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut first)
            .unwrap();
        assert!(first == world.data[..1000]);
        Self { curl, first }
    }

    /// Asserts that it ends, and not as if everything had arrived.
    fn breaks_off(mut self) {
        let mut rest = Vec::new();
        self.curl
            .stdout
            .take()
            .unwrap()
            .read_to_end(&mut rest)
            .unwrap();
        assert!(
            !self.curl.wait().unwrap().success(),
            "{} bytes came",
            self.first.len() + rest.len()
        );
    }
}

#[test]
fn connections_end_with_a_dead_hop_and_new_ones_avoid_it() {
    let Some(mut world) = World::up() else { return };
    world.rules("");
    let mut onramp = world.onramp(&["--socks=0"]);
    let socks = onramp.entry_address("socks");
    let held = onramp.descriptors();

    let download = Download::start(&world, &socks);
    world.kill(2);
    onramp.logged(&["the session broke off"]);
    download.breaks_off();
    // The off-ramp does not answer, and nothing was sent: the connection is made directly.
    world.is_the_file(
        &world.curl(&["--socks5", &socks], &world.url()),
        "without the off-ramp",
    );
    onramp.logged(&["falls back to a direct connection"]);
    world.servers[2] = Some(world.start("offramp"));

    // The direct connection has been measured: at 20 ms the route is worth it.
    let download = Download::start(&world, &socks);
    onramp.logged(&["connection requested", "way=route"]);
    world.kill(0);
    onramp.logged(&["the session broke off"]);
    download.breaks_off();
    world.is_the_file(
        &world.curl(&["--socks5", &socks], &world.url()),
        "without the depot",
    );

    // With `fall_back = false`, there is no direct connection.
    world.rules("fall_back = false");
    onramp.signal(rustix::process::Signal::HUP);
    onramp.logged(&["table of routes reloaded"]);
    let refused = world.curl(&["--socks5", &socks], &world.url());
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("(3)"), "{said}");
    fs::write(world.file("laptop/routes.toml"), "[[route]]\nto = 7\n").unwrap();
    onramp.signal(rustix::process::Signal::HUP);
    onramp.logged(&["table of routes not reloaded: keeping the previous one"]);
    assert!(
        !world
            .curl(&["--socks5", &socks], &world.url())
            .status
            .success()
    );
    onramp.holds_again(held);
}

#[test]
fn a_killed_onramp_returns_and_a_stopped_one_drains() {
    let Some(world) = World::up() else { return };
    world.rules("");
    let mut onramp = world.onramp(&["--socks=0"]);
    let port = onramp.port("socks");
    let download = Download::start(&world, &onramp.entry_address("socks"));
    onramp.service.0.kill().unwrap();
    download.breaks_off();
    drop(onramp);
    // Its socket's name still exists, and so does its port in the kernel's memory.
    let mut onramp = world.onramp(&["--socks", &port, "--drain=10min"]);
    let socks = onramp.entry_address("socks");
    world.is_the_file(
        &world.curl(&["--socks5", &socks], &world.url()),
        "after its return",
    );

    let mut curl = world.lab.command("laptop", "curl").unwrap();
    curl.args([
        "-sS",
        "--limit-rate",
        "3M",
        "--socks5",
        &socks,
        &world.url(),
    ]);
    let mut curl = curl.stdout(Stdio::piped()).spawn().unwrap();
    let mut all = vec![0; 1000];
    curl.stdout.as_mut().unwrap().read_exact(&mut all).unwrap();
    onramp.signal(rustix::process::Signal::TERM);
    onramp.logged(&["draining: waiting for connections to finish"]);
    assert!(
        !world
            .curl(&["--socks5", &socks], &world.url())
            .status
            .success(),
        "there are no new ones"
    );
    curl.stdout.take().unwrap().read_to_end(&mut all).unwrap();
    assert!(curl.wait().unwrap().success() && all == world.data);
    assert!(onramp.service.0.wait().unwrap().success());
    assert!(!world.file("laptop/state/onramp/socket").exists());
}
