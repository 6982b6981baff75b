//! `longhaul doctor` in nodes with one fault each: the fault is found, and gone after the printed
//! command was run.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use wanbed::{Lab, Overrides, Scenario};

use crate::common::{Service, has_labs, key_of, new_key, started};
use crate::path::quiet;

/// client - 6 ms - router - 8 ms - gate - 6 ms - server, round trips. The link in the middle
/// carries packets of at most 1400 bytes.
const PATH: &str = r#"
title = "a path to be examined"
[nodes.client]
[nodes.router]
[nodes.gate]
[nodes.server]
[links.first]
ends = ["client", "router"]
delay = "3 ms"
rate = "1 Gbit/s"
[links.narrow]
ends = ["router", "gate"]
delay = "4 ms"
rate = "1 Gbit/s"
mtu = 1400
[links.last]
ends = ["gate", "server"]
delay = "3 ms"
rate = "1 Gbit/s"
"#;

struct Bed {
    // Dropped in this order: processes in the lab first.
    servers: Vec<Service>,
    lab: Lab,
    dir: tempfile::TempDir,
    server_key: String,
    client_key: String,
}

impl Bed {
    /// Starts it. Prints why and returns `None` if this machine allows no labs.
    fn up() -> Option<Self> {
        if !has_labs() {
            return None;
        }
        let lab = Lab::up(&Scenario::from_text("path", PATH), &Overrides::default()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("root")).unwrap();
        let [client_key, server_key, ..] =
            ["client", "server", "stranger"].map(|name| new_key(&dir.path().join(name)));
        Some(Self {
            lab,
            dir,
            servers: vec![],
            server_key,
            client_key,
        })
    }

    /// Starts `longhaul serve` on the server, with a read grant for the client and a write grant
    /// for the stranger.
    fn serve(&mut self) {
        let mut serve = self.longhaul("server", "server");
        serve.args([
            "serve",
            "--listen",
            "0.0.0.0:7511",
            "--read",
            &self.client_key,
        ]);
        serve
            .args([
                "--write",
                &key_of(&self.dir.path().join("stranger")),
                "--root",
            ])
            .arg(self.dir.path().join("root"));
        self.servers.push(started(quiet(serve)));
    }

    fn longhaul(&self, node: &str, home: &str) -> Command {
        let mut command = self
            .lab
            .command(node, env!("CARGO_BIN_EXE_longhaul"))
            .unwrap();
        let home: &Path = &self.dir.path().join(home);
        command.env("LONGHAUL_HOME", home).stdin(Stdio::null());
        command
    }

    /// Runs a command line as a person would paste it.
    fn shell(&self, node: &str, line: &str) {
        let output = self
            .lab
            .command(node, "sh")
            .unwrap()
            .args(["-c", &format!("PATH=$PATH:/usr/sbin:/sbin; {line}")])
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{line}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    fn doctor(&self, arguments: &[&str]) -> (Value, Output) {
        let mut command = self.longhaul("client", "client");
        let output = command
            .args(["doctor", "--json"])
            .args(arguments)
            .output()
            .unwrap();
        let seen = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
        (seen, output)
    }

    fn server(&self) -> String {
        self.lab.address("server").unwrap().to_string()
    }
}

/// Returns the finding with this id on that side.
fn finding<'a>(seen: &'a Value, side: &str, id: &str) -> Option<&'a Value> {
    let all = seen["findings"].as_array()?;
    all.iter()
        .find(|finding| finding["id"] == id && finding["side"] == side)
}

fn mend(finding: &Value) -> &str {
    finding["mends"][0]["now"].as_str().unwrap()
}

/// Commands that cause a fault, the finding, and whether it costs bandwidth at 1 Gbit/s x 100 ms.
const AILMENTS: [(&str, &str, bool); 12] = [
    (
        "sysctl -w net.ipv4.tcp_rmem='4096 65536 65536'",
        "receive-buffer-ceiling",
        true,
    ),
    (
        "sysctl -w net.ipv4.tcp_wmem='4096 16384 65536'",
        "send-buffer-ceiling",
        true,
    ),
    (
        "sysctl -w net.ipv4.tcp_moderate_rcvbuf=0",
        "receive-autotuning-off",
        true,
    ),
    (
        "sysctl -w net.ipv4.tcp_window_scaling=0",
        "window-scaling-off",
        true,
    ),
    (
        "sysctl -w net.ipv4.tcp_timestamps=0",
        "timestamps-off",
        true,
    ),
    ("sysctl -w net.ipv4.tcp_sack=0", "sack-off", true),
    (
        "sysctl -w net.ipv4.tcp_congestion_control=reno",
        "congestion-control",
        true,
    ),
    (
        "sysctl -w net.ipv4.tcp_slow_start_after_idle=1",
        "slow-after-idle",
        false,
    ),
    (
        "sysctl -w net.ipv4.tcp_no_metrics_save=0 net.ipv4.tcp_no_ssthresh_metrics_save=0",
        "remembers-losses",
        false,
    ),
    (
        "tc qdisc add dev first root tbf rate 10mbit burst 32k latency 50ms",
        "queue-rate",
        true,
    ),
    (
        "sysctl -w net.ipv4.tcp_congestion_control=reno && tc qdisc replace dev first root \
         pfifo_fast && ip link set dev first txqueuelen 100",
        "transmit-queue",
        false,
    ),
    ("ulimit -n 512", "descriptors", false),
];

#[test]
fn each_fault_is_found_and_fixed_by_its_command() {
    let Some(bed) = Bed::up() else { return };
    for (ailment, id, serious) in AILMENTS {
        // A process inherits the limits of the shell it is started from.
        let limits = ailment.starts_with("ulimit");
        let look = |before: &str| {
            let program = env!("CARGO_BIN_EXE_longhaul");
            let line = format!("{before} exec {program} doctor --json --rate 1Gbit/s --rtt 100ms");
            let output = bed
                .lab
                .command("client", "sh")
                .unwrap()
                .args(["-c", &line])
                .output()
                .unwrap();
            let seen: Value = serde_json::from_slice(&output.stdout).unwrap();
            (seen, output.status.code())
        };
        let ill = if limits {
            format!("{ailment};")
        } else {
            String::new()
        };
        if !limits {
            bed.shell("client", ailment);
        }
        let (seen, code) = look(&ill);
        let found =
            finding(&seen, "here", id).unwrap_or_else(|| panic!("{id} is not found: {seen:#}"));
        assert_eq!(
            found["severity"],
            if serious { "serious" } else { "advice" },
            "{found:#}"
        );
        assert!(!serious || code == Some(1), "{code:?}");
        if found["mends"].as_array().is_some_and(Vec::is_empty) {
            // A machine may allow its namespaces no other congestion control.
            assert_eq!(id, "congestion-control");
            eprintln!("found and not mended: {ailment}");
            continue;
        }
        // A limit can only be raised within the shell's own limit, so the command runs in a new
        // shell.
        let mended = if limits {
            format!("{};", mend(found))
        } else {
            String::new()
        };
        if !limits {
            bed.shell("client", mend(found));
        }
        let (seen, _) = look(&mended);
        assert!(
            finding(&seen, "here", id).is_none(),
            "{id} stays after {}",
            mend(found)
        );
    }
}

#[test]
fn a_black_hole_is_found_and_fixed_by_its_command() {
    let Some(mut bed) = Bed::up() else { return };
    bed.serve();
    // Neither end of the narrow link knows its MTU: larger packets are dropped silently in between.
    for node in ["router", "gate"] {
        bed.shell(node, "ip link set dev narrow mtu 1500");
    }
    let server = bed.server();
    // By TCP if a process listens; by datagrams otherwise.
    for (host, method) in [(server.clone(), "tcp"), (format!("{server}:9"), "udp")] {
        let (seen, output) = bed.doctor(&[&host]);
        let found = finding(&seen, "here", "mtu-black-hole").unwrap_or_else(|| panic!("{seen:#}"));
        assert_eq!(found["severity"], "serious");
        assert_eq!(seen["path"]["measured"]["mtu"]["known"]["method"], method);
        assert_eq!(seen["path"]["measured"]["mtu"]["known"]["bytes"], 1400);
        assert_eq!(output.status.code(), Some(1));
    }
    let (seen, _) = bed.doctor(&[&server]);
    let found = finding(&seen, "here", "mtu-black-hole").unwrap();
    bed.shell("client", mend(found));
    let (seen, _) = bed.doctor(&[&server]);
    assert!(
        finding(&seen, "here", "mtu-black-hole").is_none(),
        "{seen:#}"
    );
    // In both directions: the remote machine's answer takes several full packets.
    let (seen, output) = bed.doctor(&["--host-key", &bed.server_key, &format!("lh://{server}")]);
    assert!(
        seen["there"]["known"].is_object(),
        "{seen:#} {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn a_narrow_link_with_icmp_is_no_fault() {
    let Some(mut bed) = Bed::up() else { return };
    bed.serve();
    let (seen, _) = bed.doctor(&[&bed.server()]);
    let mtu = &seen["path"]["measured"]["mtu"]["known"];
    assert_eq!(
        (mtu["bytes"].as_u64(), &mtu["first_hop"]),
        (Some(1400), &Value::from(1500)),
        "{seen:#}"
    );
    assert_eq!(mtu["discovery"], "works");
    assert!(finding(&seen, "here", "mtu-black-hole").is_none());
    // 20 ms, and what the lab adds.
    let rtt = seen["path"]["rtt_seconds"].as_f64().unwrap();
    assert!(rtt >= 0.02, "{rtt}");
    assert_eq!(seen["path"]["rtt_from"], "measured");
}

#[test]
fn the_far_machine_reports_only_to_keys_that_may_read() {
    let Some(mut bed) = Bed::up() else { return };
    bed.serve();
    let server = format!("lh://{}", bed.server());
    let key = bed.server_key.clone();
    let ask = |bed: &Bed| {
        bed.doctor(&[
            "--host-key",
            &key,
            "--rate",
            "1Gbit/s",
            "--rtt",
            "100ms",
            &server,
        ])
        .0
    };
    bed.shell(
        "server",
        "sysctl -w net.ipv4.tcp_wmem='4096 16384 65536' net.ipv4.tcp_sack=0",
    );
    let seen = ask(&bed);
    let found =
        finding(&seen, "there", "send-buffer-ceiling").unwrap_or_else(|| panic!("{seen:#}"));
    assert!(
        finding(&seen, "here", "send-buffer-ceiling")
            .is_none_or(|here| here["what"] != found["what"])
    );
    // An option that is off there is missing here.
    assert!(
        finding(&seen, "here", "no-sack").is_some()
            && finding(&seen, "there", "sack-off").is_some()
    );
    let skew = seen["path"]["measured"]["skew"]["seconds"]
        .as_f64()
        .unwrap();
    let uncertainty = seen["path"]["measured"]["skew"]["uncertainty_seconds"]
        .as_f64()
        .unwrap();
    assert!(
        skew.abs() <= uncertainty && uncertainty >= 0.01,
        "{skew} {uncertainty}"
    );
    let quic = &seen["path"]["measured"]["quic"]["known"];
    assert!(
        quic["rtt"]["nanos"].as_u64() > Some(0) && quic["sent_packets"].as_u64() > Some(0),
        "{quic:#}"
    );
    bed.shell("server", mend(found));
    // The server caches facts for some seconds, so another server is asked now.
    for server in &mut bed.servers {
        server.0.kill().unwrap();
        server.0.wait().unwrap();
    }
    bed.serve();
    let seen = ask(&bed);
    assert!(
        finding(&seen, "there", "send-buffer-ceiling").is_none(),
        "{seen:#}"
    );

    // A key that may only write, and a key without grants.
    let mut stranger = bed.longhaul("client", "stranger");
    let output = stranger
        .args(["doctor", "--host-key", &key, &server])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(
        said.contains("nothing to read") && said.lines().count() == 1,
        "{said}"
    );
    let mut nobody = bed.longhaul("client", "nobody");
    let output = nobody
        .args(["doctor", "--host-key", &key, &server])
        .output()
        .unwrap();
    assert_eq!(
        output.status.code(),
        Some(4),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );

    // An address without a host.
    let (_, output) = bed.doctor(&["10.77.0.99"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}
