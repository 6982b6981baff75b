//! Guests of an on-ramp attack servers near it, its rules, its capacity and its log.

use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, ChildStdout, Stdio};
use std::thread;
use std::time::Instant;

use longhaul_hostile::{StrangerBehaviour, Usage};
use serde_json::Value;

use crate::nodes::in_a_node;
use crate::world::*;

/// Hostile connections: more than the on-ramp of these tests carries.
const STRANGERS: usize = 700;
const PER_SECOND: u32 = 1500;
/// Connections that the on-ramp carries.
const CARRIED: &str = "256";
const MAX_DESCRIPTORS_UNDER_STRANGERS: u64 = 1_200;
/// Requests of one guest in a row, the lines and bytes of log that they may cause at once, and the
/// lines that each second adds.
const REQUESTS: usize = 2_000;
const MAX_LOG_LINES: usize = 600;
const MAX_LOG_BYTES: usize = 128 << 10;
const LOG_LINES_PER_SECOND: usize = 20;
/// A port without a listener.
const DISCARD: u16 = 9;

/// A running on-ramp that logs to `gateway.log`.
struct Onramp {
    child: Child,
    places: Value,
    // Kept open so that its writes do not fail.
    _out: BufReader<ChildStdout>,
}

impl Onramp {
    fn start(world: &World, arguments: &[&str]) -> Self {
        let mut command = world.logged("gateway");
        let mut child = command
            .args(["onramp", "--json"])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let places =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
        Self {
            child,
            places,
            _out: out,
        }
    }

    fn entry_address(&self, entry: &str) -> SocketAddr {
        self.places[entry][0].as_str().unwrap().parse().unwrap()
    }
}

impl Drop for Onramp {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Writes a file with a user and a password.
fn login_file(world: &World) -> String {
    let file = world.stage.path("login");
    std::fs::write(&file, "me:word\n").unwrap();
    std::fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    file.to_str().unwrap().to_owned()
}

fn connected(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect_timeout(&to, HONEST).unwrap();
    stream.set_read_timeout(Some(HONEST)).unwrap();
    stream
}

/// Returns the status of an answer, and the rest that arrived in time, up to the end or `enough`.
fn answer(proxy: SocketAddr, request: &str, enough: fn(&str) -> bool) -> (u16, String) {
    let mut stream = connected(proxy);
    stream.write_all(request.as_bytes()).unwrap();
    let mut received = Vec::new();
    let mut more = [0; 4096];
    while !enough(&String::from_utf8_lossy(&received)) {
        match stream.read(&mut more) {
            Ok(0) | Err(_) => break,
            Ok(count) => received.extend(&more[..count]),
        }
    }
    let text = String::from_utf8_lossy(&received).into_owned();
    let status = text
        .split_whitespace()
        .nth(1)
        .and_then(|status| status.parse().ok());
    (status.unwrap_or_default(), text)
}

fn connect_by_http(proxy: SocketAddr, to: &str) -> u16 {
    let request = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n");
    answer(proxy, &request, |text| text.contains("\r\n\r\n")).0
}

/// Returns the SOCKS5 reply for a name and a port.
fn connect_by_socks(proxy: SocketAddr, name: &str, port: u16) -> u8 {
    let mut stream = connected(proxy);
    let length = u8::try_from(name.len()).unwrap();
    let request = [
        &[5, 1, 0, 5, 1, 0, 3, length][..],
        name.as_bytes(),
        &port.to_be_bytes(),
    ]
    .concat();
    stream.write_all(&request).unwrap();
    let mut reply = [0; 4];
    stream.read_exact(&mut reply).unwrap();
    reply[3]
}

fn nobody_came(listeners: &[TcpListener]) -> bool {
    listeners.iter().all(|listener| listener.accept().is_err())
}

fn quiet_listener(address: IpAddr) -> TcpListener {
    let listener = TcpListener::bind((address, 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    listener
}

#[test]
fn guests_reach_nothing_local_through_an_onramp() {
    in_a_node(
        "onramp::guests_reach_nothing_local_through_an_onramp",
        |own| {
            let world = World::new();
            let inside = [
                quiet_listener(Ipv4Addr::LOCALHOST.into()),
                quiet_listener(own),
            ];
            let [inner, outer] = inside.each_ref().map(|it| it.local_addr().unwrap().port());
            let (everywhere, here) = (format!("{own}:0"), "127.0.0.1:0");
            world.stage.key("gateway");
            let start = |table: &str| {
                std::fs::write(world.stage.path("gateway/routes.toml"), table).unwrap();
                let entries = [
                    "--http",
                    &everywhere,
                    "--socks",
                    &everywhere,
                    "--http",
                    here,
                ];
                Onramp::start(
                    &world,
                    &[&entries[..], &["--allow-from", "0.0.0.0/0"]].concat(),
                )
            };
            // Without rules or with a rule for everything, internal addresses are not named.
            for table in ["", "[[route]]\nto = [\"0.0.0.0/0\", \"::/0\", \"*\"]\n"] {
                let onramp = start(table);
                let (http, socks) = (onramp.entry_address("http"), onramp.entry_address("socks"));
                let local: SocketAddr = onramp.places["http"][1].as_str().unwrap().parse().unwrap();
                for (host, port) in [
                    ("127.0.0.1", inner),
                    ("127.66.0.1", inner),
                    ("0.0.0.0", inner),
                    ("[::1]", inner),
                    ("[::]", inner),
                    ("[::ffff:127.0.0.1]", inner),
                    ("[::ffff:0:127.0.0.1]", inner),
                    ("169.254.169.254", 80),
                    (&own.to_string(), outer),
                    (&format!("[::ffff:{own}]"), outer),
                    // The proxy itself, whose next request would come from this machine.
                    (&own.to_string(), http.port()),
                    ("127.0.0.1", local.port()),
                ] {
                    let to = format!("{host}:{port}");
                    assert_eq!(connect_by_http(http, &to), 403, "CONNECT {to}");
                    let get = format!(
                        "GET http://{to}/ HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n\r\n"
                    );
                    assert_eq!(answer(http, &get, |_| false).0, 403, "GET {to}");
                    let bare = host.trim_matches(['[', ']']);
                    if !bare.contains(':') {
                        assert_eq!(connect_by_socks(socks, bare, port), 2, "SOCKS {to}");
                    }
                }
                // The address of a name is checked once it is looked up.
                for name in ["localhost", "LOCALHOST", "localhost."] {
                    assert_ne!(
                        connect_by_http(http, &format!("{name}:{inner}")),
                        200,
                        "{name}"
                    );
                    assert_ne!(connect_by_socks(socks, name, inner), 0, "{name}");
                }
                assert!(nobody_came(&inside));
                // A program of this machine reaches what it could reach without the on-ramp.
                assert_eq!(connect_by_http(local, &format!("127.0.0.1:{inner}")), 200);
                inside[0].set_nonblocking(false).unwrap();
                inside[0].accept().unwrap();
                inside[0].set_nonblocking(true).unwrap();
            }
            // Nor through a session that falls back from a depot that does not run, to a direct
            // connection.
            let depot = world.stage.key("depot");
            let rule = format!(
                "[[route]]\nto = [\"*\"]\nvia = \"{depot}@{own}:{DISCARD}\"\nacceptor = true\n"
            );
            let onramp = start(&rule);
            for name in ["localhost", "localhost."] {
                let to = format!("{name}:{inner}");
                assert_ne!(
                    connect_by_http(onramp.entry_address("http"), &to),
                    200,
                    "{name}"
                );
            }
            assert!(nobody_came(&inside));
            drop(onramp);
            // What a rule names is reached, and its neighbour is not.
            let named = format!("[[route]]\nto = [\"{own}\"]\nports = [{outer}]\n");
            let onramp = start(&named);
            let http = onramp.entry_address("http");
            assert_eq!(connect_by_http(http, &format!("{own}:{outer}")), 200);
            assert_eq!(connect_by_http(http, &format!("127.0.0.1:{inner}")), 403);
        },
    );
}

#[test]
fn proxy_pac_shows_rules_only_to_those_it_serves() {
    const SECRET: &str = "secret.example";
    let world = World::new();
    world.stage.key("gateway");
    let login = login_file(&world);
    let rules = format!("[[route]]\nto = [\"{SECRET}\"]\n");
    std::fs::write(world.stage.path("gateway/routes.toml"), rules).unwrap();
    let shows = |onramp: &Onramp, host: &str| {
        let request =
            format!("GET /proxy.pac HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        let (status, file) = answer(onramp.entry_address("http"), &request, |_| false);
        assert_eq!(status, 200, "{file}");
        assert!(
            file.contains("FindProxyForURL") && file.contains("nosniff"),
            "{file}"
        );
        file.contains(SECRET)
    };
    let onramp = Onramp::start(&world, &["--http", "127.0.0.1:0"]);
    assert!(shows(&onramp, &onramp.entry_address("http").to_string()));
    assert!(
        !shows(&onramp, "evil.example"),
        "a page that had its name lead here"
    );
    drop(onramp);
    let onramp = Onramp::start(&world, &["--http", "127.0.0.1:0", "--login", &login]);
    assert!(!shows(&onramp, &onramp.entry_address("http").to_string()));
}

#[test]
fn idle_connections_do_not_block_an_onramp_with_login() {
    let world = World::new();
    let login = login_file(&world);
    let arguments = [
        "--socks",
        "127.0.0.1:0",
        "--http",
        "127.0.0.1:0",
        "--max-connections",
        CARRIED,
    ];
    let onramp = Onramp::start(&world, &[&arguments[..], &["--login", &login]].concat());
    let server = TcpListener::bind(ANY).unwrap();
    let port = server.local_addr().unwrap().port();
    let _crowds = ["socks", "http"].map(|entry| {
        let at = onramp.entry_address(entry).to_string();
        world.strangers(&at, STRANGERS, PER_SECOND, StrangerBehaviour::Idle)
    });
    let mut stream = connected(onramp.entry_address("socks"));
    let greeting = b"\x05\x01\x02\x01\x02me\x04word";
    let request = [&[5, 1, 0, 1, 127, 0, 0, 1][..], &port.to_be_bytes()].concat();
    stream
        .write_all(&[&greeting[..], &request].concat())
        .unwrap();
    let mut reply = [0; 14];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(
        (reply[..4].to_vec(), reply[5]),
        (vec![5, 2, 1, 0], 0),
        "{reply:?}"
    );
    let (mut far, _) = server.accept().unwrap();
    far.write_all(b"!").unwrap();
    stream.read_exact(&mut reply[..1]).unwrap();
    assert_eq!(reply[0], b'!');
    let authorized = format!(
        "CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: h\r\n\
         Proxy-Authorization: Basic bWU6d29yZA==\r\n\r\n"
    );
    let (status, text) = answer(onramp.entry_address("http"), &authorized, |text| {
        text.contains("\r\n\r\n")
    });
    assert_eq!(status, 200, "{text}");
    let held = Usage::read(onramp.child.id()).unwrap();
    assert!(
        held.descriptors <= MAX_DESCRIPTORS_UNDER_STRANGERS,
        "{held:?}"
    );
}

#[test]
fn a_guest_cannot_fill_the_log_of_an_onramp() {
    let world = World::new();
    let onramp = Onramp::start(&world, &["--http", "127.0.0.1:0"]);
    let began = Instant::now();
    let mut stream = connected(onramp.entry_address("http"));
    let mut sender = stream.try_clone().unwrap();
    let request = format!("GET http://127.0.0.1:{DISCARD}/ HTTP/1.1\r\nHost: h\r\n\r\n");
    // Pipelined: answers are read while more requests are sent.
    let asking = thread::spawn(move || sender.write_all(request.repeat(REQUESTS).as_bytes()));
    let mut answered = 0;
    let mut lines = BufReader::new(&mut stream).lines();
    while answered < REQUESTS {
        let line = lines.next().unwrap().unwrap();
        answered += usize::from(line.starts_with("HTTP/1.1 502"));
    }
    asking.join().unwrap().unwrap();
    let log = std::fs::read_to_string(world.log("gateway")).unwrap();
    let lines = log.lines().count();
    assert!(log.contains("connection requested"), "{log}");
    let more = began.elapsed().as_secs() as usize * LOG_LINES_PER_SECOND;
    assert!(lines <= MAX_LOG_LINES + more, "{lines} lines of log");
    let max_bytes = MAX_LOG_BYTES + more * MAX_LOG_BYTES / MAX_LOG_LINES;
    assert!(log.len() <= max_bytes, "{} bytes of log", log.len());
}
