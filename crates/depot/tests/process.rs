//! A depot in a separate process: the cost of 1,000 idle sessions, the effect of its sudden death,
//! and its behaviour without free file descriptors. Started with `depot KEY [DESCRIPTORS]`, this
//! program is that process.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "failed tests panic"
)]

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::BytesMut;
use longhaul_depot::{Depot, DepotConfig, ListenerConfig, Policy};
use longhaul_proto::{
    Hop, Open, OpenDecoder, Route, ServiceName, SessionId, SigningKey, StatusCode, StatusDecoder,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Maximum memory of an idle session, in bytes.
const BOUND: f64 = 64.0 * 1024.0;
const SESSIONS: usize = 1000;
/// Bytes that each session carries in both directions before it idles, so that memory never freed
/// counts.
const CARRIED: usize = 64 * 1024;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [word, key] if word == "depot" => be_a_depot(key, None),
        [word, key, descriptors] if word == "depot" => {
            be_a_depot(key, Some(descriptors.parse().expect("number")))
        }
        // `cargo test` may ask for a list, or filter by name: it sees both tests as one.
        arguments if arguments.iter().any(|argument| argument == "--list") => {
            println!("process: test")
        }
        _ => {
            let limit = getrlimit(Resource::Nofile);
            setrlimit(
                Resource::Nofile,
                Rlimit {
                    current: limit.maximum,
                    maximum: limit.maximum,
                },
            )
            .expect("descriptors");
            idle_sessions_are_cheap();
            a_killed_depot_resets_both_sides();
            without_descriptors_sessions_go_on();
            println!("process: ok");
        }
    }
}

fn be_a_depot(key: &str, descriptors: Option<u64>) {
    if let Some(current) = descriptors {
        let maximum = getrlimit(Resource::Nofile).maximum;
        setrlimit(
            Resource::Nofile,
            Rlimit {
                current: Some(current),
                maximum,
            },
        )
        .expect("descriptors");
    }
    let rule =
        format!("[[allow]]\nprincipals = [\"{key}\"]\nto = [\"127.0.0.0/8\"]\nports = [\"any\"]\n");
    let policy = Policy::parse(&rule, Path::new("test.toml")).expect("policy");
    let mut config = DepotConfig::new(SigningKey::generate().expect("key"), policy);
    config.listen = vec![ListenerConfig::new("127.0.0.1:0".parse().expect("address"))];
    config.metrics = Some("127.0.0.1:0".parse().expect("address"));
    config.limits.sessions = 10 * SESSIONS;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("runtime");
    runtime.block_on(async {
        let depot = Depot::bind(config).expect("bind");
        println!(
            "{} {}",
            depot.local_addresses()[0],
            depot.metrics_address().expect("page")
        );
        depot.run(std::future::pending()).await;
    });
}

/// The depot's process, killed when dropped.
struct Other {
    child: Child,
    address: SocketAddr,
    page: SocketAddr,
    key: SigningKey,
}

impl Other {
    fn start(descriptors: Option<u64>) -> Self {
        let key = SigningKey::generate().expect("key");
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["depot", &key.public().to_string()])
            .args(descriptors.map(|number| number.to_string()))
            .stdout(Stdio::piped())
            .spawn()
            .expect("start");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("stdout"))
            .read_line(&mut line)
            .expect("addresses");
        let (address, page) = line.trim().split_once(' ').expect("two addresses");
        Self {
            child,
            address: address.parse().expect("address"),
            page: page.parse().expect("page"),
            key,
        }
    }

    fn resident(&self) -> f64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("status");
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .expect("VmRSS");
        line.trim()
            .trim_end_matches(" kB")
            .parse::<f64>()
            .expect("kB")
            * 1024.0
    }

    fn metric(&self, name: &str) -> f64 {
        let mut stream = TcpStream::connect(self.page).expect("connect");
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\n\r\n")
            .expect("ask");
        let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
        lines
            .find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
            .expect("metric")
    }

    /// Returns an established session: the initiator's stream and the acceptor's.
    fn session(&self, listener: &TcpListener) -> (TcpStream, TcpStream) {
        let destination = listener.local_addr().expect("address");
        let route = Route::new(vec![Hop {
            endpoint: self.address.into(),
            strict: true,
            key: None,
            transport: None,
        }])
        .expect("route");
        let id = SessionId::from_bytes(rand::random());
        let mut open = Open::new(
            id,
            ServiceName::COPY,
            route,
            destination.into(),
            Duration::from_secs(60),
        );
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("clock");
        open.sign(&self.key, now.as_millis() as u64).expect("sign");
        let mut bytes = BytesMut::new();
        open.for_first_hop().encode(&mut bytes).expect("encode");
        let mut initiator = TcpStream::connect(self.address).expect("connect");
        initiator.write_all(&bytes).expect("OPEN");
        let (mut acceptor, _) = listener.accept().expect("accept");
        let (mut decoder, mut byte) = (OpenDecoder::new(), [0]);
        loop {
            acceptor.read_exact(&mut byte).expect("OPEN");
            if decoder.feed(&byte).expect("OPEN").is_some() {
                break;
            }
        }
        let mut decoder = StatusDecoder::new();
        loop {
            initiator.read_exact(&mut byte).expect("status");
            if let Some((status, _)) = decoder.feed(&byte).expect("status") {
                assert_eq!(status.code, StatusCode::Ok, "{}", status.detail);
                return (initiator, acceptor);
            }
        }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn carry(from: &mut TcpStream, to: &mut TcpStream) {
    let mut bytes = vec![0; CARRIED];
    from.write_all(&bytes).expect("write");
    to.read_exact(&mut bytes).expect("read");
}

fn idle_sessions_are_cheap() {
    let depot = Other::start(None);
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let sessions = SESSIONS.min(
        usize::try_from(descriptors)
            .unwrap_or(usize::MAX)
            .saturating_sub(200)
            / 2,
    );
    assert!(
        sessions >= 100,
        "with {descriptors} descriptors there is nothing to measure: raise `ulimit -Hn`"
    );
    let before = depot.resident();
    let mut held = Vec::new();
    for _ in 0..sessions {
        let (mut initiator, mut acceptor) = depot.session(&listener);
        carry(&mut initiator, &mut acceptor);
        carry(&mut acceptor, &mut initiator);
        held.push((initiator, acceptor));
    }
    assert_eq!(
        depot.metric("longhaul_depot_sessions_active"),
        sessions as f64
    );
    let pipes = depot.metric("longhaul_depot_pipe_bytes");
    let each = (depot.resident() - before + pipes) / sessions as f64;
    println!("{sessions} idle sessions: {each:.0} bytes each, {pipes:.0} bytes of pipes in all");
    assert!(each < BOUND, "an idle session costs {each:.0} bytes");
}

/// LH-END-3: the end of the process never looks like the end of the stream.
fn a_killed_depot_resets_both_sides() {
    let mut depot = Other::start(None);
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let (mut initiator, mut acceptor) = depot.session(&listener);
    carry(&mut initiator, &mut acceptor);
    depot.child.kill().expect("kill");
    for side in [&mut initiator, &mut acceptor] {
        let error = side
            .read_to_end(&mut Vec::new())
            .expect_err("a reset, not a clean end");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }
}

/// With more connections than descriptors, sessions continue, and the depot accepts again once some
/// are free.
fn without_descriptors_sessions_go_on() {
    const DESCRIPTORS: usize = 40;
    let depot = Other::start(Some(DESCRIPTORS as u64));
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let (mut initiator, mut acceptor) = depot.session(&listener);
    // The kernel completes these handshakes even if the depot does not accept.
    let connect = |_| TcpStream::connect(depot.address).expect("connect");
    let strangers: Vec<TcpStream> = (0..2 * DESCRIPTORS).map(connect).collect();
    carry(&mut initiator, &mut acceptor);
    carry(&mut acceptor, &mut initiator);
    drop(strangers);
    // All have been accepted, and all have closed.
    while depot.metric("longhaul_depot_connections_total") < 1.0 + 2.0 * DESCRIPTORS as f64
        || depot.metric("longhaul_depot_connections_unauthenticated") > 0.0
    {
        std::thread::yield_now();
    }
    let (mut initiator, mut acceptor) = depot.session(&listener);
    carry(&mut initiator, &mut acceptor);
    assert!(
        depot.metric("longhaul_depot_accept_errors_total") > 0.0,
        "it never ran out of descriptors"
    );
}
