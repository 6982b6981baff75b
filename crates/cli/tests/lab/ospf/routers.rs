//! A client and a server with three routers between them, each of which runs FRR.

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::Service;
use crate::common::bed::Bed;

/// Capacity that routers announce for each link between them, in bit/s.
pub const LINK_BPS: u64 = 1_000_000_000;

/// Number of looks at a router's database before it is built again, if anything is missing: as
/// many as take some seconds.
const POLLS_BETWEEN_RESETS: usize = 200;

/// Daemons of FRR, as Debian installs them.
const DAEMONS: &str = "/usr/lib/frr";

const NETWORK: &str = r#"
title = "three routers in a triangle"
[nodes.client]
[nodes.west]
[nodes.middle]
[nodes.east]
[nodes.server]
[links.access]
ends = ["client", "west"]
delay = "1 ms"
rate = "1 Gbit/s"
[links.direct]
ends = ["west", "east"]
delay = "2 ms"
rate = "1 Gbit/s"
[links.first]
ends = ["west", "middle"]
delay = "3 ms"
rate = "1 Gbit/s"
[links.second]
ends = ["middle", "east"]
delay = "3 ms"
rate = "1 Gbit/s"
[links.exit]
ends = ["east", "server"]
delay = "1 ms"
rate = "1 Gbit/s"
"#;

/// Routers, with the interfaces between them and the host behind each.
const ROUTERS: [(&str, [&str; 2], Option<&str>); 3] = [
    ("west", ["direct", "first"], Some("client")),
    ("middle", ["first", "second"], None),
    ("east", ["direct", "second"], Some("server")),
];

/// Links between routers, with both ends and the third byte of their network.
const LINKS: [(&str, [&str; 2], u8); 3] = [
    ("direct", ["west", "east"], 1),
    ("first", ["west", "middle"], 2),
    ("second", ["middle", "east"], 3),
];

/// A link that carries nothing, without any device noticing it.
pub struct Cut<'a> {
    bed: &'a Bed,
    link: &'static str,
}

/// Starts the lab, whose routers have no routes but those of OSPF. Says why and returns `None` if
/// this machine cannot run it.
pub fn start() -> Option<Bed> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not tested: FRR runs as root only");
        return None;
    }
    if !Path::new(DAEMONS).join("ospfd").exists() {
        eprintln!("not tested: FRR is not installed (Debian: frr)");
        return None;
    }
    let mut bed = Bed::start(NETWORK, None)?;
    // The daemons leave root for their own user.
    fs::set_permissions(bed.dir.path(), fs::Permissions::from_mode(0o711)).unwrap();
    keep_in_time(bed.lab.process());
    for (link, ends, network) in LINKS {
        for (end, host) in ends.iter().zip(1..) {
            let address = format!("172.16.{network}.{host}/30");
            run(&bed, end, "ip", &["addr", "add", &address, "dev", link]);
        }
    }
    for (router, interfaces, host) in ROUTERS {
        for (node, address) in bed.lab.nodes() {
            if node != router && Some(node) != host {
                run(&bed, router, "ip", &["route", "del", &address.to_string()]);
            }
        }
        start_daemons(&mut bed, router, interfaces);
    }
    wait_until_known(&bed, "west");
    Some(bed)
}

/// Waits until a router knows all links with their rates. Routers that start together may
/// forget rates that arrive before the link itself, until they build their database again.
fn wait_until_known(bed: &Bed, router: &str) {
    let count = |database: &str, field: &str| database.matches(field).count();
    let all = 2 * LINKS.len();
    loop {
        for _ in 0..POLLS_BETWEEN_RESETS {
            let database = vtysh(bed, router, &["show ip ospf mpls-te database json"]);
            if count(&database, "\"max-link-bandwidth\"") == all
                && count(&database, "\"remote-vertex-id\"") == all
            {
                return;
            }
        }
        let reset = [
            "configure terminal",
            "router ospf",
            "no mpls-te on",
            "mpls-te on",
        ];
        vtysh(bed, router, &reset);
    }
}

/// Returns the answer of a router to some commands.
fn vtysh(bed: &Bed, router: &str, commands: &[&str]) -> String {
    let mut vtysh = bed.command(router, "vtysh");
    vtysh.arg("--vty_socket").arg(run_dir(bed, router));
    for command in commands {
        vtysh.args(["-c", command]);
    }
    let output = vtysh.output().unwrap();
    assert!(
        output.status.success(),
        "{router}: {commands:?}: {output:?}"
    );
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the controller's configuration to follow a router.
pub fn ospf_config(bed: &Bed, router: &str) -> String {
    let socket = run_dir(bed, router).join("ospfd.vty");
    let mut config = format!("[[ospf.source]]\nsocket = \"{}\"\n", socket.display());
    config += "[ospf.routers]\n";
    for (router, ..) in ROUTERS {
        config += &format!("{router} = \"{}\"\n", bed.lab.address(router).unwrap());
    }
    config
}

/// Makes a link drop everything, in both directions.
pub fn cut<'a>(bed: &'a Bed, link: &'static str) -> Cut<'a> {
    let rules = format!(
        "table netdev cut_{link} {{ chain drop_all {{ type filter hook ingress device {link} \
         priority 0; policy drop; }}; }}"
    );
    for router in ends(link) {
        run(bed, router, "nft", &[&rules]);
    }
    Cut { bed, link }
}

fn run_dir(bed: &Bed, router: &str) -> PathBuf {
    bed.path(&format!("frr-{router}"))
}

/// Runs a program on a node, which must succeed.
fn run(bed: &Bed, node: &str, program: &str, arguments: &[&str]) {
    let output = bed.command(node, program).args(arguments).output();
    let output = output.unwrap();
    assert!(
        output.status.success(),
        "{node}: {program} {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Starts the daemons of a router.
fn start_daemons(bed: &mut Bed, router: &str, interfaces: [&str; 2]) {
    let run = run_dir(bed, router);
    fs::create_dir(&run).unwrap();
    let owned = Command::new("chown").arg("frr:frrvty").arg(&run).status();
    assert!(owned.unwrap().success());
    for (daemon, config) in [
        ("zebra", zebra_config(interfaces)),
        (
            "ospfd",
            ospfd_config(bed.lab.address(router).unwrap(), interfaces),
        ),
    ] {
        let file = run.join(format!("{daemon}.conf"));
        fs::write(&file, config).unwrap();
        let mut command = bed
            .lab
            .command(router, Path::new(DAEMONS).join(daemon))
            .unwrap();
        command
            .arg("-f")
            .arg(&file)
            .arg("-i")
            .arg(run.join(format!("{daemon}.pid")))
            .arg("-z")
            .arg(run.join("zserv.api"))
            .arg("--vty_socket")
            .arg(&run)
            .args(["-P", "0"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut child = Service(command.spawn().unwrap());
        // The next daemon needs this one.
        let socket = run.join(format!("{daemon}.vty"));
        while UnixStream::connect(&socket).is_err() {
            let ended = child.0.try_wait().unwrap();
            assert!(ended.is_none(), "{daemon} of {router}: {ended:?}");
            std::thread::yield_now();
        }
        keep_in_time(child.0.id());
        bed.keep(&format!("{router} {daemon}"), child);
    }
}

impl Cut<'_> {
    /// Lets the link carry packets again.
    pub fn restore(self) {
        let table = format!("cut_{}", self.link);
        for router in ends(self.link) {
            let delete = ["delete", "table", "netdev", &table];
            run(self.bed, router, "nft", &delete);
        }
    }
}

/// Lets all threads of a process run before those of other programs, where that is allowed: routers
/// that miss a neighbor after a second cannot wait for a busy machine.
fn keep_in_time(process: u32) {
    let mut chrt = Command::new("chrt");
    chrt.args(["--all-tasks", "--rr", "--pid", "5"])
        .arg(process.to_string())
        .stderr(Stdio::null());
    let _ = chrt.status();
}

fn ends(link: &str) -> [&'static str; 2] {
    let found = LINKS.iter().find(|(name, ..)| *name == link);
    found.unwrap().1
}

/// Returns the configuration of `zebra`: what routers announce of their links, in bytes/s. FRR
/// refuses a capacity below the reservable rates at any moment, so those are lowered first.
fn zebra_config(interfaces: [&str; 2]) -> String {
    let reservable = |rate: f64| {
        let priorities = (0..8).map(|priority| format!("  unrsv-bw {priority} {rate}\n"));
        format!("  max-rsv-bw {rate}\n{}", priorities.collect::<String>())
    };
    let capacity = LINK_BPS as f64 / 8.0;
    let interfaces = interfaces.map(|interface| {
        format!(
            "interface {interface}\n link-params\n  enable\n{}  max-bw {capacity}\n{}  \
             exit-link-params\nexit\n",
            reservable(1.0),
            reservable(capacity / 2.0)
        )
    });
    interfaces.concat()
}

/// Returns the configuration of `ospfd`, which misses a neighbor after a second.
fn ospfd_config(id: Ipv4Addr, interfaces: [&str; 2]) -> String {
    let interfaces = interfaces.map(|interface| {
        format!(
            "interface {interface}\n ip ospf area 0\n ip ospf network point-to-point\n \
             ip ospf dead-interval minimal hello-multiplier 4\nexit\n"
        )
    });
    format!(
        "{}interface lo\n ip ospf area 0\nexit\nrouter ospf\n ospf router-id {id}\n \
         capability opaque\n redistribute kernel\n timers throttle spf 0 50 500\n\n mpls-te on\n \
         mpls-te router-address {id}\nexit\n",
        interfaces.concat()
    )
}
