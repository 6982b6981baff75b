//! Programs that ask over the Unix socket.

use std::net::SocketAddr;
use std::time::Duration;

use longhaul_onramp::{Onramp, OnrampConfig};
use longhaul_ramp_protocol::{RampRequest, RouteQuery};
use rustix::io::Errno;
use rustix::net::sockopt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::world::{
    OwnedReply, Program, User, acceptor, assert_carries, listening, refusing_address,
};

const FAR: RouteQuery<'static> = RouteQuery {
    address: Some(std::net::IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1))),
    name: None,
    port: 80,
    route: None,
    wish: longhaul_ramp_protocol::ConnectionWish {
        purpose: None,
        size: None,
        rate: None,
        duration: None,
    },
    v6: false,
    route_required: false,
    acceptor: false,
    key: None,
    remembers: false,
    binds: false,
};

#[tokio::test]
async fn without_a_rule_connections_are_direct_or_refused() {
    let user = User::new();
    let _onramp = user.start();
    let program = Program::connect_to(&user).await;
    assert_eq!(program.ask(FAR).await, OwnedReply::Direct);
    let OwnedReply::Refuse(errno, _) = program
        .ask(RouteQuery {
            route_required: true,
            ..FAR
        })
        .await
    else {
        panic!("it is refused")
    };
    assert_eq!(errno, Errno::NETUNREACH.raw_os_error());
    let OwnedReply::Refuse(errno, _) = program
        .ask(RouteQuery {
            route: Some("a b"),
            ..FAR
        })
        .await
    else {
        panic!("it is refused")
    };
    assert_eq!(errno, Errno::INVAL.raw_os_error());
}

#[tokio::test]
async fn a_rule_applies_once_it_is_loaded() {
    let user = User::new();
    let onramp = user.start();
    let program = Program::connect_to(&user).await;
    let rule = "[[route]]\nto = [\"192.0.2.0/24\", \"*.example\"]\nofframp = \"gateway.example\"\n";
    user.write("routes.toml", rule);
    onramp.reload();
    let OwnedReply::Via(listener, _) = program.ask(FAR).await else {
        panic!("by the route")
    };
    assert!(listener.ip().is_loopback() && listener.is_ipv4());
    let named = RouteQuery {
        name: Some("h.example"),
        address: None,
        v6: true,
        ..FAR
    };
    let OwnedReply::Via(listener, _) = program.ask(named).await else {
        panic!("by the route")
    };
    assert!(listener.is_ipv6(), "{listener}");
    user.write("routes.toml", "[[route]]\n");
    onramp.reload();
    assert!(
        matches!(program.ask(FAR).await, OwnedReply::Via(..)),
        "the old table stays"
    );
    user.write("routes.toml", "");
    onramp.reload();
    assert_eq!(program.ask(FAR).await, OwnedReply::Direct);
}

/// Only a program that states support may remember an answer, once its destination's distance is
/// known. It is informed when rules change, whether it asks or not.
#[tokio::test]
async fn programs_with_remembered_answers_learn_of_changes() {
    let user = User::new();
    let onramp = user.start();
    let program = Program::connect_to(&user).await;
    let remembers = RouteQuery {
        remembers: true,
        ..FAR
    };
    assert_eq!(
        program.ask(remembers).await,
        OwnedReply::Direct,
        "it is to be measured"
    );
    program
        .say(&RampRequest::Measured {
            address: FAR.address.unwrap(),
            round_trip: 80_000,
        })
        .await;
    assert!(matches!(
        program.ask(remembers).await,
        OwnedReply::Remember(1..)
    ));
    assert_eq!(
        program.ask(FAR).await,
        OwnedReply::Direct,
        "who does not say so asks"
    );
    let rule = "[[route]]\nto = [\"192.0.2.0/24\"]\nofframp = \"gateway.example\"\n";
    user.write("routes.toml", "[[route]]\n");
    onramp.reload();
    // A mistake changes nothing. The next notification is for the rules after it, which are loaded
    // without a request.
    user.write("routes.toml", rule);
    assert_eq!(program.received().await, Some(OwnedReply::Forget));
    assert!(matches!(program.ask(remembers).await, OwnedReply::Via(..)));
    // No program remembers an answer now.
    user.write("routes.toml", "");
    onramp.reload();
    assert!(matches!(
        program.ask(remembers).await,
        OwnedReply::Remember(1..)
    ));
    program
        .say(&RampRequest::Remembered { connections: 7 })
        .await;
    let socket = user.path("onramp/socket");
    assert!(
        matches!(program.ask(remembers).await, OwnedReply::Remember(1..)),
        "it was heard"
    );
    let asked = tokio::task::spawn_blocking(move || longhaul_onramp::request_status(&socket));
    let status: serde_json::Value = serde_json::from_str(&asked.await.unwrap().unwrap()).unwrap();
    assert_eq!(status["connections"][0]["count"], 5 + 7);
    assert_eq!(status["connections"][0]["outcome"], "direct");
}

#[tokio::test]
async fn a_program_reaches_one_that_listens() {
    let (near, far) = (User::new(), User::new());
    let _onramps = (near.start(), far.start());
    let (listener, at) = listening(&far, &near).await;
    let program = Program::connect_to(&near).await;
    let stream = program.connect(acceptor(at)).await.unwrap();
    let (said, accepted) = listener.accepted().await;
    let OwnedReply::Accepted(peer, key) = said else {
        panic!("{said:?}")
    };
    assert_eq!(key, *near.identity.public().as_bytes());

    // Each can query its destination as long as it is connected.
    let asked = |user, local| async move {
        let program = Program::connect_to(user).await;
        program.say(&RampRequest::Peer { local }).await;
        program.received().await.unwrap()
    };
    assert_eq!(
        asked(&near, stream.local_addr().unwrap()).await,
        OwnedReply::Peer(at)
    );
    assert_eq!(
        asked(&far, accepted.local_addr().unwrap()).await,
        OwnedReply::Peer(peer)
    );
    let stranger: SocketAddr = "127.0.0.1:9".parse().unwrap();
    let not_connected = Errno::NOTCONN.raw_os_error();
    let said = asked(&near, stranger).await;
    assert!(matches!(said, OwnedReply::Refuse(errno, _) if errno == not_connected));
    assert_carries(stream, accepted, 3_000_000).await;
}

#[tokio::test]
async fn unlisted_keys_and_unknown_servers_are_refused() {
    let (near, far, stranger) = (User::new(), User::new(), User::new());
    let _onramps = (near.start(), far.start(), stranger.start());
    let (_listener, at) = listening(&far, &near).await;
    let program = Program::connect_to(&stranger).await;
    assert_eq!(
        program.connect(acceptor(at)).await.unwrap_err(),
        Errno::ACCESS.raw_os_error()
    );
    stranger.write("known_hosts", &format!("{at} {}\n", far.key()));
    assert_eq!(
        program.connect(acceptor(at)).await.unwrap_err(),
        Errno::ACCESS.raw_os_error()
    );
    assert_eq!(
        program
            .connect(acceptor(refusing_address()))
            .await
            .unwrap_err(),
        Errno::CONNREFUSED.raw_os_error()
    );
}

/// Fills a socket as the hook does for a program with a non-blocking socket: until it accepts no
/// more.
fn fill(stream: &TcpStream) -> u32 {
    sockopt::set_socket_send_buffer_size(stream, 16 * 1024).unwrap();
    let mut put = 0;
    while let Ok(more) = rustix::net::send(stream, &[0; 65536], rustix::net::SendFlags::DONTWAIT) {
        put += u32::try_from(more).unwrap();
    }
    put
}

fn writable(stream: &TcpStream) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut asked = [PollFd::new(stream, PollFlags::OUT)];
    poll(&mut asked, Some(&Timespec::default())).unwrap();
    asked[0].revents().contains(PollFlags::OUT)
}

#[tokio::test]
async fn fill_keeps_a_socket_unwritable_and_is_discarded() {
    let (near, far) = (User::new(), User::new());
    let _onramps = (near.start(), far.start());
    let (listener, at) = listening(&far, &near).await;
    let program = Program::connect_to(&near).await;
    let (stream, ticket) = program.connected(acceptor(at)).await;
    let put = fill(&stream);
    assert!(!writable(&stream));
    program.begin(&stream, ticket, put).await;
    assert_eq!(
        program.received().await,
        Some(OwnedReply::Done(0, String::new()))
    );
    stream.writable().await.unwrap();
    let (_, accepted) = listener.accepted().await;
    assert_carries(stream, accepted, 3_000_000).await;
}

#[tokio::test]
async fn a_failure_is_reported_before_the_reset() {
    let near = User::new();
    let _onramp = near.start();
    let program = Program::connect_to(&near).await;
    for fill_it in [false, true] {
        let (mut stream, ticket) = program.connected(acceptor(refusing_address())).await;
        let put = if fill_it { fill(&stream) } else { 0 };
        program.begin(&stream, ticket, put).await;
        let Some(OwnedReply::Done(errno, reason)) = program.received().await else {
            panic!("it is told")
        };
        assert_eq!(errno, Errno::CONNREFUSED.raw_os_error());
        assert!(reason.contains("cannot connect to the server"), "{reason}");
        let error = stream.read(&mut [0]).await.unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::CONNRESET.raw_os_error()));
    }
}

#[tokio::test]
async fn a_ticket_works_once_and_unknown_messages_close() {
    let near = User::new();
    let _onramp = near.start();
    let program = Program::connect_to(&near).await;
    let (stream, ticket) = program.connected(acceptor(refusing_address())).await;
    program.begin(&stream, ticket + 1, 0).await;
    let Some(OwnedReply::Done(errno, _)) = program.received().await else {
        panic!("it is told")
    };
    assert_eq!(errno, Errno::INVAL.raw_os_error());
    program.raw(&[1, 99]).await;
    assert_eq!(program.received().await, None);
}

/// LH-END-1 and LH-END-3, seen by the programs' own sockets.
#[tokio::test]
async fn a_reset_is_relayed_to_the_other_side() {
    let (near, far) = (User::new(), User::new());
    let _onramps = (near.start(), far.start());
    let (listener, at) = listening(&far, &near).await;
    let program = Program::connect_to(&near).await;
    for near_resets in [true, false] {
        let mut stream = program.connect(acceptor(at)).await.unwrap();
        let (_, mut accepted) = listener.accepted().await;
        stream.write_all(b"half a").await.unwrap();
        accepted.read_exact(&mut [0; 6]).await.unwrap();
        let (gone, mut left) = if near_resets {
            (stream, accepted)
        } else {
            (accepted, stream)
        };
        sockopt::set_socket_linger(&gone, Some(Duration::ZERO)).unwrap();
        drop(gone);
        let error = left.read(&mut [0]).await.unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::CONNRESET.raw_os_error()));
    }
}

#[tokio::test]
async fn a_program_that_stops_listening_gets_no_sessions() {
    let (near, far) = (User::new(), User::new());
    let _onramps = (near.start(), far.start());
    let (listener, at) = listening(&far, &near).await;
    drop(listener);
    let program = Program::connect_to(&near).await;
    // The listener closes once the on-ramp has seen that the program has closed its own socket.
    while let Ok(stream) = program.connect(acceptor(at)).await {
        drop(stream);
    }
    assert_eq!(
        program.connect(acceptor(at)).await.unwrap_err(),
        Errno::CONNREFUSED.raw_os_error()
    );
}

#[tokio::test]
async fn a_socket_has_one_on_ramp_and_a_private_directory() {
    let user = User::new();
    let onramp = user.start();
    let error = Onramp::start(user.config()).unwrap_err().to_string();
    assert!(error.starts_with("an on-ramp already runs at "), "{error}");
    onramp.stop().await;
    assert!(
        !user.path("onramp/socket").exists(),
        "the name goes with it"
    );
    // Left behind like that of a killed on-ramp.
    drop(tokio_seqpacket::UnixSeqpacketListener::bind(user.path("onramp/socket")).unwrap());
    assert!(user.path("onramp/socket").exists());
    drop(user.start());
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(user.path("onramp"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let error = Onramp::start(user.config()).unwrap_err().to_string();
    assert!(
        error.ends_with("run chmod 700 on it, or name a socket elsewhere"),
        "{error}"
    );
}

#[tokio::test]
async fn an_on_ramp_that_stops_lets_connections_finish() {
    let (near, far) = (User::new(), User::new());
    let (onramp, _other) = (near.start(), far.start());
    let (listener, at) = listening(&far, &near).await;
    let program = Program::connect_to(&near).await;
    let stream = program.connect(acceptor(at)).await.unwrap();
    let (_, accepted) = listener.accepted().await;
    let stopping = tokio::spawn(onramp.stop());
    assert_eq!(program.received().await, None, "nothing new is asked of it");
    assert_carries(stream, accepted, 100_000).await;
    stopping.await.unwrap();
}

#[tokio::test]
async fn status_reports_connections_and_destinations() {
    let user = User::new();
    let onramp = Onramp::start(OnrampConfig {
        metrics: Some("127.0.0.1:0".parse().unwrap()),
        ..user.config()
    })
    .unwrap();
    let program = Program::connect_to(&user).await;
    assert_eq!(program.ask(FAR).await, OwnedReply::Direct);
    let address = FAR.address.unwrap();
    program
        .say(&RampRequest::Measured {
            address,
            round_trip: 80_000,
        })
        .await;
    assert!(matches!(
        program
            .ask(RouteQuery {
                route_required: true,
                ..FAR
            })
            .await,
        OwnedReply::Refuse(..)
    ));
    let socket = user.path("onramp/socket");
    let asked = tokio::task::spawn_blocking(move || longhaul_onramp::request_status(&socket));
    let status: serde_json::Value = serde_json::from_str(&asked.await.unwrap().unwrap()).unwrap();
    assert_eq!(
        status["connections"],
        serde_json::json!([
            { "entry": "program", "outcome": "direct", "count": 1 },
            { "entry": "program", "outcome": "failed", "count": 1 },
        ])
    );
    assert_eq!(status["routes"]["rules"], 0);
    assert_eq!(status["hosts"][0]["address"], "192.0.2.1");
    assert_eq!(status["hosts"][0]["round_trip_seconds"], 0.08);
    assert_eq!(status["carried"], 0);

    let page = onramp.addresses().metrics.expect("a page");
    let mut stream = TcpStream::connect(page).await.unwrap();
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\n\r\n")
        .await
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    let line = "longhaul_onramp_connections_total{entry=\"program\",outcome=\"direct\"} 1";
    assert!(text.lines().any(|found| found == line), "{text}");
}

/// A rule for a near destination: the distance reported by the program decides.
#[tokio::test]
async fn a_reported_round_trip_decides() {
    let user = User::new();
    user.write(
        "routes.toml",
        "[[route]]\nto = [\"192.0.2.0/24\"]\nofframp = \"gateway.example\"\n",
    );
    let _onramp = user.start();
    let program = Program::connect_to(&user).await;
    assert!(matches!(program.ask(FAR).await, OwnedReply::Via(..)));
    let address = FAR.address.unwrap();
    program
        .say(&RampRequest::Measured {
            address,
            round_trip: 2_000,
        })
        .await;
    assert_eq!(program.ask(FAR).await, OwnedReply::Direct);
}
