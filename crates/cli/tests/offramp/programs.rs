//! Debian's servers: the data they send and receive arrives whole, and each direction ends as it
//! ended.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use longhaul_hop::{Conn, Duplex, DuplexOptions, HopOptions, Listener};
use longhaul_session::{JoinObserver, connect};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::bed::*;
use crate::common::{Service, noise};

/// Each side sends its own file, ends its direction, and receives the other's to the end.
#[test]
fn netcat_directions_end_independently() {
    on_the_path(
        "programs::netcat_directions_end_independently",
        5.0,
        |bed, initiator| {
            let (sent, taken) = (bed.path("sent"), bed.path("taken"));
            fs::write(&sent, noise(8 << 20, 1)).unwrap();
            let mut netcat =
                bed.program("gateway", "nc.openbsd", &["-N", "-l", "127.0.0.1", "5001"]);
            netcat
                .stdin(fs::File::open(&sent).unwrap())
                .stdout(fs::File::create(&taken).unwrap());
            let mut netcat = Service(netcat.spawn().unwrap());
            bed.listening("gateway", 5001);
            fs::write(bed.path("ready"), "").unwrap();
            initiator.finish();
            assert!(netcat.0.wait().unwrap().success());
            assert!(
                fs::read(&taken).unwrap() == noise(4 << 20, 2),
                "what netcat took"
            );
            bed.offramp.signal("TERM");
            assert_eq!(bed.offramp.0.wait().unwrap().code(), Some(0));
            for node in ["near", "far", "gateway"] {
                let log = bed.log(node);
                let line = log.lines().find(|line| line.contains("session ended"));
                // A depot logs it once it has noticed; the off-ramp has ended, and logs nothing
                // more.
                let Some(line) = line else {
                    assert_ne!(node, "gateway", "{log}");
                    continue;
                };
                for word in [
                    "server=127.0.0.1:5001",
                    "a test",
                    "rate=1000000000",
                    "duration=60",
                    "finished",
                ] {
                    assert!(line.contains(word), "{node}: {word} in {line}");
                }
            }
        },
        async |me| {
            file(&me.directory.join("ready")).await;
            let session = me.connect("127.0.0.1:5001").await.unwrap();
            let (mut from, mut to) = tokio::io::split(session);
            let sending = async {
                to.write_all(&noise(4 << 20, 2)).await.unwrap();
                to.shutdown().await.unwrap();
            };
            let mut received = Vec::new();
            let (_, read) = tokio::join!(sending, from.read_to_end(&mut received));
            read.unwrap();
            assert!(
                received == noise(8 << 20, 1),
                "{} bytes of netcat's",
                received.len()
            );
        },
    );
}

#[test]
fn a_web_server_is_reached_on_the_gateway_and_behind_it() {
    on_the_path(
        "programs::a_web_server_is_reached_on_the_gateway_and_behind_it",
        5.0,
        |bed, initiator| {
            fs::create_dir(bed.path("www")).unwrap();
            fs::write(bed.path("www/file"), noise(3 << 20, 3)).unwrap();
            let web = |node: &str, at: &str| {
                let arguments = ["httpd", "-f", "-p", at, "-h", "www"];
                let mut command = bed.program(node, "busybox", &arguments);
                Service(command.spawn().unwrap())
            };
            let _here = web("gateway", "127.0.0.1:5080");
            let _behind = web("inside", "5081");
            bed.listening("gateway", 5080);
            bed.listening("inside", 5081);
            fs::write(bed.path("ready"), "").unwrap();
            initiator.finish();
        },
        async |me| {
            file(&me.directory.join("ready")).await;
            for server in ["127.0.0.1:5080".to_owned(), format!("{}:5081", me.inside)] {
                let mut session = me.connect(&server).await.unwrap();
                session
                    .write_all(b"GET /file HTTP/1.0\r\n\r\n")
                    .await
                    .unwrap();
                session.flush().await.unwrap();
                let mut answer = Vec::new();
                session.read_to_end(&mut answer).await.unwrap();
                let end = answer
                    .windows(4)
                    .position(|four| four == b"\r\n\r\n")
                    .unwrap();
                assert!(
                    answer.starts_with(b"HTTP/1.1 200 OK")
                        || answer.starts_with(b"HTTP/1.0 200 OK")
                );
                assert!(answer[end + 4..] == noise(3 << 20, 3), "{server}");
            }
        },
    );
}

/// iperf3 measures over several connections at once, in either direction: each connection is joined
/// with a session at its own end.
#[test]
fn iperf3_measures_both_directions_through_an_offramp() {
    on_the_path(
        "programs::iperf3_measures_both_directions_through_an_offramp",
        5.0,
        |bed, initiator| {
            let mut server = bed.program("inside", "iperf3", &["-s", "-p", "5201"]);
            let _server = Service(server.spawn().unwrap());
            bed.listening("inside", 5201);
            fs::write(bed.path("ready"), "").unwrap();
            initiator.finish();
        },
        async |me| {
            file(&me.directory.join("ready")).await;
            let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            let mut listener = Listener::bind(any, &HopOptions::default()).unwrap();
            let port = listener.local_addr().unwrap().port().to_string();
            let to = me.options_to(&format!("{}:5201", me.inside));
            let forwarding = tokio::spawn(async move {
                loop {
                    let (fd, _) = listener.accept(|error| panic!("{error}")).await;
                    let to = to.clone();
                    tokio::spawn(async move {
                        let session = connect(&to).await.unwrap();
                        let conn = Conn::new(fd).unwrap();
                        let observer = JoinObserver::default();
                        Duplex::new(session, conn, DuplexOptions::default(), observer).await
                    });
                }
            });
            for direction in [&[][..], &["-R"]] {
                let mut client = tokio::process::Command::new("iperf3");
                client
                    .args([
                        "-c",
                        "127.0.0.1",
                        "-p",
                        &port,
                        "-n",
                        "16M",
                        "-P",
                        "3",
                        "--json",
                    ])
                    .args(direction)
                    .stdin(Stdio::null());
                let output = client.output().await.unwrap();
                let reported: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
                assert!(output.status.success(), "{reported}");
                let bytes = |sum: &str| reported["end"][sum]["bytes"].as_u64().unwrap();
                assert!(bytes("sum_sent") >= 16 << 20, "{reported}");
                // It stops counting when the sender has finished, so data in flight is left out.
                assert!(bytes("sum_received") > 0, "{reported}");
                assert_eq!(reported["end"]["streams"].as_array().unwrap().len(), 3);
            }
            forwarding.abort();
        },
    );
}

/// LH-OFFRAMP-2: TCP's round trip, and one for OPEN, TLS and the server's own connection. No more,
/// however the path is divided.
#[test]
fn a_server_is_reached_after_two_round_trips() {
    const HOP_DELAY_MS: f64 = 125.0;
    /// Minimum and maximum attempts. A busy machine can only make one slower, so more are made
    /// meanwhile.
    const ATTEMPTS: RangeInclusive<usize> = 2..=30;
    on_the_path(
        "programs::a_server_is_reached_after_two_round_trips",
        HOP_DELAY_MS,
        |bed, initiator| {
            let arguments = ["httpd", "-f", "-p", "127.0.0.1:5080", "-h", "client"];
            let _web = Service(
                bed.program("gateway", "busybox", &arguments)
                    .spawn()
                    .unwrap(),
            );
            bed.listening("gateway", 5080);
            fs::write(bed.path("ready"), "").unwrap();
            initiator.finish();
        },
        async |me| {
            file(&me.directory.join("ready")).await;
            let hop = 2.0 * HOP_DELAY_MS / 1e3;
            // Three hops, two round trips on each. The tolerance is half a hop's round trip, as an
            // additional one would show whole.
            let expected = 2.0 * 3.0 * hop;
            let is_expected = |took: Duration| {
                (expected * 0.99..expected + hop / 2.0).contains(&took.as_secs_f64())
            };
            let mut fastest = Duration::MAX;
            let mut refused = Duration::MAX;
            for made in 1..=*ATTEMPTS.end() {
                let began = Instant::now();
                me.connect("127.0.0.1:5080").await.unwrap();
                fastest = fastest.min(began.elapsed());
                let began = Instant::now();
                me.connect("127.0.0.1:5081").await.unwrap_err();
                refused = refused.min(began.elapsed());
                if made >= *ATTEMPTS.start() && is_expected(fastest) && is_expected(refused) {
                    break;
                }
            }
            for (what, took) in [("reached", fastest), ("refused", refused)] {
                assert!(
                    is_expected(took),
                    "{what} after {took:?}, where two round trips take {expected:.3} s"
                );
            }
        },
    );
}

/// Asserts that the programs that the lab's tests need are installed.
#[test]
fn the_programs_are_installed() {
    for program in ["nc.openbsd", "busybox", "iperf3", "ss"] {
        let found = Command::new("sh")
            .args(["-c", &format!("command -v {program}")])
            .output();
        assert!(
            found.unwrap().status.success(),
            "{program}: see `make deps`"
        );
    }
}
