//! Runs TCP over one emulated link between two network namespaces of its own, and prints what was asked and what
//! came out. Needs root (or `unshare --user --map-root-user --net`), `ip`, `sysctl` and `iperf3`; leaves nothing behind.
//!
//! `cargo run --release -p wanbed --example link_fidelity -- [tun|veth] [ping|goodput|loss|udp|uso|chain]...`
#![allow(unsafe_code)] // `unshare` affects one thread, whose children then live in the new namespace.

use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use rustix::thread::UnshareFlags;
use wanbed::link::{self, LinkHandle, Port, Snapshot, packet, tun};
use wanbed::spec::{BitRate, DirectionSpec, LinkSpec, LossModel};

const MTU: u32 = 1500;
/// Payload of IP bytes in a TCP segment with time stamps, at an MTU of 1500.
const TCP_SHARE: f64 = 1448.0 / 1500.0;

fn main() -> Result<()> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let veth = match arguments.first().map(String::as_str) {
        Some(kind @ ("tun" | "veth")) => {
            let veth = kind == "veth";
            arguments.remove(0);
            veth
        }
        _ => false,
    };
    if arguments.is_empty() {
        arguments = ["ping", "goodput", "loss", "udp", "uso", "chain"]
            .map(str::to_owned)
            .to_vec();
    }
    for test in &arguments {
        match test.as_str() {
            "ping" => ping(veth)?,
            "goodput" => goodput(veth)?,
            "loss" => loss(veth)?,
            "udp" => udp(veth)?,
            "uso" => uso(veth)?,
            "chain" => chain(veth)?,
            other => bail!("{other}: no such test; use ping, goodput, loss, udp, uso or chain"),
        }
    }
    Ok(())
}

fn ping(veth: bool) -> Result<()> {
    for delay in [10, 50] {
        let lab = Lab::new(veth, spec(delay, None, 0, LossModel::None))?;
        let echo = lab.b.run(|| Ok(UdpSocket::bind("10.0.0.2:7")?))?;
        echo.set_read_timeout(Some(Duration::from_secs(1)))?;
        std::thread::spawn(move || {
            let mut buffer = [0; 64];
            while let Ok((len, from)) = echo.recv_from(&mut buffer) {
                let _ = echo.send_to(&buffer[..len], from);
            }
        });
        let socket = lab.a.run(|| Ok(UdpSocket::bind("10.0.0.1:0")?))?;
        socket.connect("10.0.0.2:7")?;
        socket.set_read_timeout(Some(Duration::from_secs(1)))?;
        let mut times = Vec::new();
        for _ in 0..40 {
            let sent = Instant::now();
            socket.send(b"?")?;
            socket.recv(&mut [0; 64])?;
            times.push(sent.elapsed().as_secs_f64() * 1e3);
            std::thread::sleep(Duration::from_millis(20));
        }
        times.sort_by(f64::total_cmp);
        println!(
            "ping  asked {} ms: {:.3}/{:.3}/{:.3} ms min/median/max; {}",
            2 * delay,
            times[0],
            times[times.len() / 2],
            times[times.len() - 1],
            lag(&lab.link.stop()?)
        );
    }
    Ok(())
}

fn goodput(veth: bool) -> Result<()> {
    for rate in [
        155_000_000,
        1_000_000_000,
        2_500_000_000,
        5_000_000_000,
        8_000_000_000,
    ] {
        let queue = BitRate(rate).bytes_in(Duration::from_millis(20)).max(1_000_000);
        let lab = Lab::new(veth, spec(10, Some(rate), queue, LossModel::None))?;
        let _server = lab.b.server("iperf3 -s -1")?;
        // Slow start is left out: only the full pipe says what the link carries.
        let text = lab.a.output("iperf3 -c 10.0.0.2 -t 6 -O 2 -C cubic -J")?;
        let got = received(&text)?;
        let snapshot = lab.link.stop()?;
        println!(
            "tcp   asked {:>12}: {:.3} of the goodput it allows; {}",
            BitRate(rate).to_string(),
            got / (rate as f64 * TCP_SHARE),
            lag(&snapshot)
        );
        println!("      {}", counters(&snapshot));
    }
    Ok(())
}

fn loss(veth: bool) -> Result<()> {
    for probability in [1e-2, 1e-3] {
        let model = LossModel::Independent { probability };
        let lab = Lab::new(veth, spec(1, Some(1_000_000_000), 1_000_000, model))?;
        let _server = lab.b.server("iperf3 -s -1")?;
        lab.a.output("iperf3 -c 10.0.0.2 -t 5 -C bbr -J")?;
        let snapshot = lab.link.stop()?;
        let forward = &snapshot.forward;
        let seen = forward.packets + forward.drops_loss;
        println!(
            "loss  asked {probability:e}: {:.3e} of {seen} segments in {:.1} to a read; {}",
            forward.drops_loss as f64 / seen as f64,
            forward.offered as f64 / (forward.super_packets.max(1)) as f64,
            counters(&snapshot)
        );
    }
    Ok(())
}

fn udp(veth: bool) -> Result<()> {
    for rate in [50_000_000, 155_000_000, 622_000_000] {
        let lab = Lab::new(veth, spec(10, Some(rate), 1_000_000, LossModel::None))?;
        let _server = lab.b.server("iperf3 -s -1")?;
        let asked = rate * 13 / 10;
        let _client = lab
            .a
            .server(&format!("iperf3 -c 10.0.0.2 -u -l 1448 -b {asked} -t 4"))?;
        // Between two moments while the queue is full: what it holds at the end doesn't count.
        std::thread::sleep(Duration::from_secs(1));
        let begin = lab.link.counters()?;
        std::thread::sleep(Duration::from_secs(2));
        let end = lab.link.stop()?;
        let bytes = end.forward.bytes - begin.forward.bytes;
        println!(
            "udp   1.3 times {}: {:.1} Mbit/s through, queue peak {}; {}",
            BitRate(rate),
            bytes as f64 * 8.0 / (end.seconds - begin.seconds) / 1e6,
            end.forward.queue_peak,
            counters(&end)
        );
    }
    Ok(())
}

/// UDP segmentation offload: forty numbered datagrams in each send, some lost; what arrives must be whole.
fn uso(veth: bool) -> Result<()> {
    const DATAGRAM: usize = 1000;
    let model = LossModel::Independent { probability: 0.1 };
    let lab = Lab::new(veth, spec(5, Some(200_000_000), 10_000_000, model))?;
    let receiver = lab.b.run(|| Ok(UdpSocket::bind("10.0.0.2:9000")?))?;
    receiver.set_read_timeout(Some(Duration::from_secs(1)))?;
    let sender = lab.a.run(|| Ok(UdpSocket::bind("10.0.0.1:0")?))?;
    sender.connect("10.0.0.2:9000")?;
    let size = DATAGRAM as libc::c_int;
    // SAFETY: the kernel reads an `int` from `size`.
    let set = unsafe {
        let (fd, size, len) = (
            sender.as_raw_fd(),
            (&raw const size).cast(),
            size_of_val(&size) as u32,
        );
        libc::setsockopt(fd, libc::SOL_UDP, libc::UDP_SEGMENT, size, len)
    };
    ensure!(set == 0, "UDP_SEGMENT: {}", std::io::Error::last_os_error());
    let receiver = std::thread::spawn(move || {
        let (mut whole, mut arrived, mut buffer) = (0, 0, [0; 2 * DATAGRAM]);
        while let Ok(len) = receiver.recv(&mut buffer) {
            let number = u32::from_be_bytes([buffer[0], buffer[1], buffer[2], buffer[3]]);
            arrived += 1;
            whole += u32::from(len == DATAGRAM && buffer[4..len].iter().all(|b| *b == (number % 40) as u8));
        }
        (whole, arrived)
    });
    for round in 0..100_u32 {
        let mut data = vec![0; 40 * DATAGRAM];
        for (i, datagram) in data.chunks_mut(DATAGRAM).enumerate() {
            datagram.fill(i as u8);
            datagram[..4].copy_from_slice(&(round * 40 + i as u32).to_be_bytes());
        }
        sender.send(&data)?;
        std::thread::sleep(Duration::from_millis(2));
    }
    let (whole, arrived) = receiver.join().map_err(|_| anyhow!("the receiver is gone"))?;
    let snapshot = lab.link.stop()?;
    let forward = &snapshot.forward;
    println!(
        "uso   {whole} of {arrived} whole, {} sent, {} lost on the wire, {} super-packets; {}",
        forward.offered,
        forward.drops_loss,
        forward.super_packets,
        counters(&snapshot)
    );
    Ok(())
}

/// Three links in a row, between them two nodes that forward packets.
fn chain(veth: bool) -> Result<()> {
    for rate in [155_000_000, 1_000_000_000, 2_500_000_000, 5_000_000_000] {
        let queue = BitRate(rate).bytes_in(Duration::from_millis(60)).max(1_000_000);
        let nodes = [Node::new()?, Node::new()?, Node::new()?, Node::new()?];
        let mut links = Vec::new();
        for (at, pair) in nodes.windows(2).enumerate() {
            let (left, right) = (format!("10.0.{at}.1"), format!("10.0.{at}.2"));
            let a = pair[0].port("right", veth, &left, &right)?;
            let b = pair[1].port("left", veth, &right, &left)?;
            links.push(link::start(spec(10, Some(rate), queue, LossModel::None), a, b)?);
        }
        for (node, route) in [(0, "10.0.2.2 via 10.0.0.2"), (1, "10.0.2.2 via 10.0.1.2")] {
            nodes[node].run(move || sh(&format!("ip route add {route}")))?;
        }
        for (node, route) in [(3, "10.0.0.1 via 10.0.2.1"), (2, "10.0.0.1 via 10.0.1.1")] {
            nodes[node].run(move || sh(&format!("ip route add {route}")))?;
        }
        for node in &nodes[1..3] {
            node.run(|| sh("sysctl -qw net.ipv4.ip_forward=1"))?;
        }
        let _server = nodes[3].server("iperf3 -s -1")?;
        let before = cpu_seconds();
        let text = nodes[0].output("iperf3 -c 10.0.2.2 -t 6 -O 2 -C cubic -J")?;
        let cpu = cpu_seconds() - before;
        let got = received(&text)? / (rate as f64 * TCP_SHARE);
        println!(
            "chain asked {}: {got:.3}, the links took {cpu:.1} s of 8 s on each CPU",
            BitRate(rate)
        );
        for link in links {
            let snapshot = link.stop()?;
            println!("      {}; {}", lag(&snapshot), counters(&snapshot));
        }
    }
    Ok(())
}

/// What this process has used, which is what its links have.
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn spec(delay_ms: u64, rate: Option<u64>, queue: u64, loss: LossModel) -> LinkSpec {
    let direction = DirectionSpec {
        delay: Duration::from_millis(delay_ms),
        rate: rate.map(BitRate),
        queue,
        loss: LossModel::None,
        changes: None,
    };
    let forward = DirectionSpec {
        loss,
        ..direction.clone()
    };
    LinkSpec {
        name: "ab".to_owned(),
        mtu: MTU,
        forward,
        backward: direction,
        seed: 1,
    }
}

fn received(json: &str) -> Result<f64> {
    let report: serde_json::Value = serde_json::from_str(json).context("iperf3 gave no JSON")?;
    report["end"]["sum_received"]["bits_per_second"]
        .as_f64()
        .with_context(|| format!("iperf3: {}", report["error"]))
}

fn lag(snapshot: &Snapshot) -> String {
    let lag = &snapshot.forward.lag;
    format!(
        "lag {}/{}/{}/{} us p50/90/99/max, {:?}",
        lag.p50, lag.p90, lag.p99, lag.max, snapshot.scheduling
    )
}

fn counters(snapshot: &Snapshot) -> String {
    let f = &snapshot.forward;
    let b = &snapshot.backward;
    format!(
        "packets {} queue {} mtu {} malformed {} overflow {} write {}+{} device {}+{}",
        f.packets,
        f.drops_queue,
        f.drops_mtu,
        f.malformed,
        f.ring_overflow,
        f.write_errors,
        b.write_errors,
        f.device_drops,
        b.device_drops
    )
}

/// Two nodes and a link between them.
struct Lab {
    a: Node,
    b: Node,
    link: LinkHandle,
}

impl Lab {
    fn new(veth: bool, spec: LinkSpec) -> Result<Self> {
        let (a, b) = (Node::new()?, Node::new()?);
        let port_a = a.port("wan", veth, "10.0.0.1", "10.0.0.2")?;
        let port_b = b.port("wan", veth, "10.0.0.2", "10.0.0.1")?;
        Ok(Self {
            link: link::start(spec, port_a, port_b)?,
            a,
            b,
        })
    }
}

/// A thread in a network namespace of its own.
struct Node {
    work: Sender<Box<dyn FnOnce() + Send>>,
}

impl Node {
    fn new() -> Result<Self> {
        let (work, queue): (_, Receiver<Box<dyn FnOnce() + Send>>) = channel();
        std::thread::spawn(move || queue.into_iter().for_each(|job| job()));
        let node = Self { work };
        node.run(|| {
            // SAFETY: only the network namespace of this thread changes; no file descriptor table is involved.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }.context("new network namespace")
        })?;
        Ok(node)
    }

    fn run<T: Send + 'static>(&self, job: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
        let (done, result) = channel();
        self.work
            .send(Box::new(move || drop(done.send(job()))))
            .map_err(|_| anyhow!("a node is gone"))?;
        result.recv()?
    }

    fn port(&self, name: &'static str, veth: bool, address: &str, peer: &str) -> Result<Port> {
        let address = format!("ip addr add {address} peer {peer} dev {name}");
        self.run(move || {
            let port = if veth {
                sh(&format!("ip link add {name} type veth peer name emu-{name}"))?;
                sh(&format!(
                    "ip link set {name} address 02:00:00:00:00:01 arp off txqueuelen 10000"
                ))?;
                sh("sysctl -qw net.ipv6.conf.all.disable_ipv6=1")?;
                sh(&format!("ip link set emu-{name} up arp off"))?;
                Port::Packet(packet::open(&format!("emu-{name}"), [2, 0, 0, 0, 0, 1])?)
            } else {
                Port::Tun(tun::create(name)?)
            };
            sh(&address)?;
            sh(&format!("ip link set {name} mtu {MTU} up"))?;
            for sysctl in [
                "tcp_rmem=4096 131072 67108864",
                "tcp_wmem=4096 65536 67108864",
                "tcp_no_metrics_save=1",
            ] {
                let status = Command::new("sysctl")
                    .args(["-qw", &format!("net.ipv4.{sysctl}")])
                    .status()?;
                ensure!(status.success(), "sysctl {sysctl}");
            }
            Ok(port)
        })
    }

    fn output(&self, command: &str) -> Result<String> {
        let command = command.to_owned();
        self.run(move || {
            let output = split(&command)
                .stderr(Stdio::inherit())
                .output()
                .context(command)?;
            Ok(String::from_utf8(output.stdout)?)
        })
    }

    fn server(&self, command: &str) -> Result<Server> {
        let command = command.to_owned();
        let child = self.run(move || split(&command).stdout(Stdio::null()).spawn().context(command))?;
        std::thread::sleep(Duration::from_millis(300));
        Ok(Server(child))
    }
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn split(command: &str) -> Command {
    let mut words = command.split(' ');
    let mut split = Command::new(words.next().unwrap_or_default());
    split.args(words);
    split
}

fn sh(command: &str) -> Result<()> {
    let status = split(command).status().with_context(|| command.to_owned())?;
    ensure!(status.success(), "{command}: {status}");
    Ok(())
}
