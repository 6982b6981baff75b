//! Direct connections over reserved paths, by their source ports.

use std::net::SocketAddr;

use longhaul_onramp::{Onramp, OnrampConfig, PathShares, ReservedPath, ReservedPaths};
use longhaul_ramp_protocol::RouteQuery;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::world::{OwnedReply, Program, User, free_address};

/// Returns a reservation to loopback with one source port for each path.
fn reserved(ports: &[u16]) -> Vec<ReservedPaths> {
    let path = |port: &u16| ReservedPath {
        ports: *port..=*port,
        rate_bps: 1_000_000,
    };
    vec![ReservedPaths {
        reservation: 12,
        from: "127.0.0.1".parse().ok(),
        to: "127.0.0.0/8".parse().unwrap(),
        paths: ports.iter().map(path).collect(),
    }]
}

fn query(to: SocketAddr) -> RouteQuery<'static> {
    RouteQuery {
        address: Some(to.ip()),
        port: to.port(),
        binds: true,
        remembers: true,
        ..RouteQuery::default()
    }
}

#[tokio::test]
async fn programs_leave_from_ports_of_the_paths() {
    let user = User::new();
    let onramp = user.start();
    let program = Program::connect_to(&user).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = listener.local_addr().unwrap();
    let sources = [free_address(), free_address()];
    onramp.set_reserved_paths(reserved(&sources.map(|source| source.port())));
    let mut open = Vec::new();
    for source in sources {
        assert_eq!(program.ask(query(to)).await, OwnedReply::DirectFrom(source));
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(source).unwrap();
        open.push(socket.connect(to).await.unwrap());
        assert_eq!(listener.accept().await.unwrap().1, source);
    }
    // No path has a port left, so the connection is as without a reservation.
    assert!(matches!(
        program.ask(query(to)).await,
        OwnedReply::Direct | OwnedReply::Remember(_)
    ));
}

#[tokio::test]
async fn programs_that_cannot_bind_are_not_assigned_a_path() {
    let user = User::new();
    let onramp = user.start();
    let program = Program::connect_to(&user).await;
    let to = free_address();
    onramp.set_reserved_paths(reserved(&[free_address().port()]));
    let bound = RouteQuery {
        binds: false,
        remembers: false,
        ..query(to)
    };
    assert_eq!(program.ask(bound).await, OwnedReply::Direct);
    let routed = RouteQuery {
        route: Some("gateway.example"),
        ..query(to)
    };
    assert!(matches!(program.ask(routed).await, OwnedReply::Via(..)));
    let required = RouteQuery {
        route_required: true,
        ..query(to)
    };
    let answer = program.ask(required).await;
    assert!(matches!(answer, OwnedReply::DirectFrom(_)), "{answer:?}");
    onramp.set_reserved_paths(Vec::new());
    // A destination on this machine needs no route.
    let answer = program.ask(required).await;
    assert_eq!(answer, OwnedReply::Direct);
}

#[tokio::test]
async fn proxies_connect_from_ports_of_the_paths() {
    let user = User::new();
    let onramp = Onramp::start(OnrampConfig {
        socks: vec!["127.0.0.1:0".parse().unwrap()],
        socket: None,
        shares: PathShares::Even,
        ..user.config()
    });
    let onramp = onramp.unwrap();
    let proxy = onramp.addresses().socks[0];
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = listener.local_addr().unwrap();
    let sources = [free_address(), free_address()];
    onramp.set_reserved_paths(reserved(&sources.map(|source| source.port())));
    let mut open = Vec::new();
    for source in sources {
        // SOCKS 4: one request and one reply.
        let [high, low] = to.port().to_be_bytes();
        let mut client = TcpStream::connect(proxy).await.unwrap();
        client
            .write_all(&[4, 1, high, low, 127, 0, 0, 1, 0])
            .await
            .unwrap();
        let mut reply = [0; 8];
        client.read_exact(&mut reply).await.unwrap();
        assert_eq!(reply[1], 90, "granted");
        let (accepted, peer) = listener.accept().await.unwrap();
        assert_eq!(peer, source);
        open.push((client, accepted));
    }
}
