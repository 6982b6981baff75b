//! Streams through a router with circuits.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use longhaul_provisioning::ask::Counters;
use longhaul_provisioning::circuit::{CircuitPart, PartId};
use longhaul_provisioning::driver::{Driver, counters, set_up, tear_down};
use longhaul_provisioning::streams::{PortProtocol, SourcePorts, StreamSelector};
use rustix::net::{AddressFamily, SocketType};
use wanbed::Lab;

use crate::bed::{LINK, lab, name, part, router, said, streams};

/// Port on which the server listens, in its own network.
const PORT: u16 = 5_001;

/// Bytes of each stream.
const BYTES: u64 = 400_000;

/// Environment variable with the kind of helper that this program is to be, and its arguments.
const HELPER: &str = "ROUTER_TEST_HELPER";

/// Not a test: the helper program that the tests run in nodes.
#[test]
#[ignore = "does nothing by itself"]
fn helper() {
    let Ok(words) = std::env::var(HELPER) else {
        return;
    };
    match words.split_whitespace().collect::<Vec<_>>()[..] {
        ["receive", streams] => receive(streams.parse().unwrap()),
        ["send", port, to, class] => send(
            port.parse().unwrap(),
            to.parse().unwrap(),
            class.parse().unwrap(),
        ),
        ["flood", port, to, packets] => flood(
            port.parse().unwrap(),
            to.parse().unwrap(),
            packets.parse().unwrap(),
        ),
        _ => panic!("{words}"),
    }
}

fn receive(streams: usize) {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).unwrap();
    println!("\nready");
    for _ in 0..streams {
        let (mut stream, _) = listener.accept().unwrap();
        std::thread::spawn(move || {
            std::io::copy(&mut stream, &mut std::io::sink()).unwrap();
            stream.write_all(b"!").unwrap();
        });
    }
    // Until all requests are answered: the parent process ends it.
    std::thread::park();
}

fn socket(kind: SocketType, port: u16) -> OwnedFd {
    let socket = rustix::net::socket(AddressFamily::INET, kind, None).unwrap();
    rustix::net::bind(&socket, &SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))).unwrap();
    socket
}

fn send(port: u16, to: IpAddr, class: u8) {
    let socket = socket(SocketType::STREAM, port);
    rustix::net::sockopt::set_ip_tos(&socket, class).unwrap();
    rustix::net::connect(&socket, &SocketAddr::from((to, PORT))).unwrap();
    let mut stream = TcpStream::from(socket);
    stream
        .write_all(&vec![7; usize::try_from(BYTES).unwrap()])
        .unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut received = Vec::new();
    stream.read_to_end(&mut received).unwrap();
    assert_eq!(received, b"!");
}

/// Sends packets of 1000 bytes without waiting for a response.
fn flood(port: u16, to: IpAddr, packets: u32) {
    let socket = std::net::UdpSocket::from(socket(SocketType::DGRAM, port));
    for _ in 0..packets {
        // Nobody listens there; the resulting ICMP error surfaces here.
        let _ = socket.send_to(&[7; 1_000], (to, PORT));
    }
}

/// Returns a command that runs this program as a helper in a node.
fn helper_in(lab: &Lab, node: &str, words: &str) -> Command {
    let mut command = lab.command(node, std::env::current_exe().unwrap()).unwrap();
    command
        .args(["flows::helper", "--exact", "--ignored", "--nocapture"])
        .env(HELPER, words)
        .stdout(Stdio::piped());
    command
}

struct Server(Child);

impl Server {
    fn start(lab: &Lab, streams: usize) -> Self {
        let mut child = helper_in(lab, "server", &format!("receive {streams}"))
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(
            lines.any(|line| line.unwrap() == "ready"),
            "the server did not start"
        );
        Self(child)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends a stream from each port at the same time, and waits until all have arrived.
fn send_from(lab: &Arc<Lab>, ports: &[u16]) {
    let streams: Vec<(u16, u8)> = ports.iter().map(|port| (*port, 0)).collect();
    send_with(lab, &streams);
}

/// Like [`send_from`], with the type of service of each stream.
fn send_with(lab: &Arc<Lab>, streams: &[(u16, u8)]) {
    let _server = Server::start(lab, streams.len());
    let to = lab.address("server").unwrap();
    let senders: Vec<Child> = streams
        .iter()
        .map(|(port, class)| {
            helper_in(lab, "client", &format!("send {port} {to} {class}"))
                .spawn()
                .unwrap()
        })
        .collect();
    for sender in senders {
        let output = sender.wait_with_output().unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stdout)
        );
    }
}

async fn count(router: &dyn Driver, part: &CircuitPart) -> Counters {
    counters(router, name("us"), part.id.clone()).await.unwrap()
}

/// Returns bytes, packets and drops of the packets without a circuit, at an interface.
fn rest(lab: &Lab, device: &str) -> (u64, u64) {
    let classes = said(lab, &format!("tc -s class show dev {device}"));
    let lines: Vec<&str> = classes
        .lines()
        .skip_while(|line| !line.starts_with("class htb 4c48:2 "))
        .collect();
    let words: Vec<&str> = lines[1].split_whitespace().collect();
    let drops = words[6].trim_end_matches(',');
    assert_eq!((words[0], words[5]), ("Sent", "(dropped"), "{}", lines[1]);
    (words[1].parse().unwrap(), drops.parse().unwrap())
}

#[tokio::test]
async fn each_stream_takes_its_own_class_and_link() {
    let Some(lab) = lab() else { return };
    let folder = tempfile::tempdir().unwrap();
    let router = router(&lab, folder.path());
    let near = part("near", "near", LINK / 10, streams(&lab, 21_000, 21_009));
    let far = part("far", "far", LINK / 5, streams(&lab, 22_000, 22_009));
    for part in [&near, &far] {
        set_up(&router, part.clone()).await.unwrap();
    }
    let classes = said(&lab, "tc class show dev near");
    for class in [
        "class htb 4c48:10 parent 4c48:1 leaf",
        "prio 0 rate 10Mbit ceil 10Mbit",
        "prio 1 rate 90Mbit ceil 100Mbit",
    ] {
        assert!(classes.contains(class), "{classes}");
    }

    send_from(&lab, &[21_003, 22_009, 22_010]);
    let (by_near, by_far) = (count(&router, &near).await, count(&router, &far).await);
    let ((rest_near, _), (rest_far, _)) = (rest(&lab, "near"), rest(&lab, "far"));
    // Headers and retransmissions add less than half.
    let once = BYTES..BYTES * 3 / 2;
    for (bytes, what) in [
        (by_near.bytes, "near"),
        (by_far.bytes, "far"),
        (rest_near, "the rest"),
    ] {
        assert!(once.contains(&bytes), "{what}: {bytes} bytes");
    }
    assert!(
        rest_far < BYTES / 10,
        "{rest_far} bytes without a circuit took the far link"
    );

    // Another rate leaves the class and its counters as they are.
    let faster = CircuitPart {
        rate: LINK / 4,
        ..near.clone()
    };
    set_up(&router, faster.clone()).await.unwrap();
    let classes = said(&lab, "tc class show dev near");
    assert!(
        classes.contains("rate 25Mbit ceil 25Mbit") && classes.contains("rate 75Mbit ceil 100Mbit"),
        "{classes}"
    );
    assert!(count(&router, &faster).await.bytes >= by_near.bytes);

    tear_down(&router, name("us"), near.id.clone())
        .await
        .unwrap();
    tear_down(&router, name("us"), far.id).await.unwrap();
    send_from(&lab, &[22_001]);
    assert!(!said(&lab, "tc qdisc show").contains("4c48:"));
}

#[tokio::test]
async fn only_packets_beyond_a_circuits_rate_are_dropped() {
    let Some(lab) = lab() else { return };
    let folder = tempfile::tempdir().unwrap();
    let router = router(&lab, folder.path());
    let ports = SourcePorts {
        first: 23_000,
        last: 23_000,
        transport: PortProtocol::Udp,
    };
    let udp = StreamSelector {
        source_ports: Some(ports),
        ..streams(&lab, 1, 1)
    };
    // Five times the length of the circuit's queue, which would take eleven seconds at this rate.
    let part = part("udp", "near", 1_000_000, udp);
    let packets = 1_400;
    set_up(&router, part.clone()).await.unwrap();
    let to = lab.address("server").unwrap();
    let flood = helper_in(&lab, "client", &format!("flood 23000 {to} {packets}"))
        .status()
        .unwrap();
    assert!(flood.success());
    send_from(&lab, &[30_000]);
    let counted = count(&router, &part).await;
    assert!(
        counted.drops > 0 && counted.packets + counted.drops <= packets,
        "{counted:?}"
    );
    let (bytes, drops) = rest(&lab, "near");
    assert!(bytes >= BYTES && drops == 0, "{bytes} bytes, {drops} drops");
}

#[tokio::test]
async fn both_versions_of_ip_marks_and_prefixes_are_set_up() {
    let Some(lab) = lab() else { return };
    // IPv6 is disabled in the lab's nodes by default.
    let on = lab
        .command("router", "sh")
        .unwrap()
        .args(["-c", "echo 0 >/proc/sys/net/ipv6/conf/near/disable_ipv6"])
        .status();
    assert!(on.unwrap().success());
    let folder = tempfile::tempdir().unwrap();
    let router = router(&lab, folder.path());
    let marked = StreamSelector {
        from: "10.1.0.0/16".parse().unwrap(),
        mark: Some(0x4c),
        ..streams(&lab, 21_000, 21_009)
    };
    let six = StreamSelector {
        from: "2001:db8:1::/48".parse().unwrap(),
        to: "2001:db8:2::7".parse().unwrap(),
        ..marked
    };
    for (circuit, streams, rule) in [
        ("marked", marked, "from 10.1.0.0/16 to"),
        ("six", six, "from 2001:db8:1::/48 to 2001:db8:2::7"),
    ] {
        let part = part(circuit, "near", LINK / 10, streams);
        set_up(&router, part.clone()).await.unwrap();
        assert_eq!(count(&router, &part).await, Counters::default());
        let rules = said(&lab, "ip -4 rule show") + &said(&lab, "ip -6 rule show");
        assert!(
            rules.contains(rule) && rules.contains("fwmark 0x4c"),
            "{rules}"
        );
    }
    let filters = said(&lab, "tc filter show dev near parent 4c48:");
    assert!(
        filters.contains("protocol ip ") && filters.contains("protocol ipv6 "),
        "{filters}"
    );
    let nobody: PartId = "nobody".parse().unwrap();
    assert!(counters(&router, name("us"), nobody).await.is_err());
}

#[tokio::test]
async fn only_packets_with_the_ports_and_code_point_have_the_class() {
    let Some(lab) = lab() else { return };
    let folder = tempfile::tempdir().unwrap();
    let router = router(&lab, folder.path());
    let expedited = StreamSelector {
        dscp: Some(46),
        ..streams(&lab, 24_000, 24_009)
    };
    let part = part("expedited", "far", LINK / 5, expedited);
    set_up(&router, part.clone()).await.unwrap();
    // The low bits mark congestion and do not matter.
    send_with(&lab, &[(24_003, 46 << 2 | 2)]);
    let once = BYTES..BYTES * 3 / 2;
    let counted = count(&router, &part).await;
    assert!(once.contains(&counted.bytes), "{counted:?}");
    // Others get no rate: another code point takes the link without the class, other ports do not
    // take it.
    send_with(&lab, &[(24_004, 0), (24_010, 46 << 2)]);
    assert_eq!(count(&router, &part).await, counted);
    let ((rest_far, _), classes) = (rest(&lab, "far"), said(&lab, "tc class show dev near"));
    assert!(once.contains(&rest_far), "{rest_far} bytes");
    assert!(!classes.contains("4c48:"), "{classes}");

    let all = StreamSelector {
        source_ports: None,
        ..expedited
    };
    let part = self::part("all", "far", LINK / 5, all);
    set_up(&router, part.clone()).await.unwrap();
    send_with(&lab, &[(25_000, 46 << 2), (25_001, 10 << 2)]);
    let counted = count(&router, &part).await;
    assert!(once.contains(&counted.bytes), "{counted:?}");
}
