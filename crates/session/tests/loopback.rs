//! Sessions over real sockets on loopback, without depots.

#![allow(clippy::unwrap_used, clippy::panic)] // failed tests panic, also in helpers

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use longhaul_proto::{FailureKind, StatusCode};
use longhaul_session::{
    ConnectOptions, Error, FirstHop, Identity, KnownHosts, ListenOptions, Listener, PublicKey,
    Route, ServerTrust, ServiceName, Session, connect,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// Returns a listener that accepts one principal, and options for that principal to connect to it.
async fn pair_of_ends() -> (Listener, ConnectOptions) {
    let (server, client) = (
        Arc::new(Identity::generate().unwrap()),
        Arc::new(Identity::generate().unwrap()),
    );
    let welcome = client.public();
    let options = ListenOptions::new(
        loopback(),
        Arc::clone(&server),
        Arc::new(move |key| *key == welcome),
        vec![ServiceName::COPY],
    );
    let listener = Listener::bind(options).await.unwrap();
    let trust = ServerTrust::Pinned(server.public());
    let options = ConnectOptions::new(
        ServiceName::COPY,
        Route::direct(),
        listener.local_addr().into(),
        client,
        trust,
    );
    (listener, options)
}

async fn pair() -> (Session, Session) {
    let (listener, options) = pair_of_ends().await;
    let (connected, accepted) = tokio::join!(connect(&options), listener.accept());
    (connected.unwrap(), accepted.unwrap())
}

#[tokio::test]
async fn a_session_uses_the_chosen_source_address() {
    let (listener, mut options) = pair_of_ends().await;
    options.source = Some("127.0.0.9".parse().unwrap());
    let (connected, accepted) = tokio::join!(connect(&options), listener.accept());
    let (_near, far) = (connected.unwrap(), accepted.unwrap());
    let from = far.info().first_hop.map(|address| address.ip());
    assert_eq!(from, options.source);
}

#[tokio::test]
async fn sessions_use_only_their_source_ports() {
    let (listener, mut options) = pair_of_ends().await;
    // Finds two consecutive free ports.
    let free = || std::net::TcpListener::bind("127.0.0.8:0").unwrap();
    let first = loop {
        let (one, at) = {
            let one = free();
            let at = one.local_addr().unwrap().port();
            (one, at)
        };
        let next = at
            .checked_add(1)
            .map(|next| std::net::TcpListener::bind(("127.0.0.8", next)));
        drop(one);
        if next.is_some_and(|next| next.is_ok()) {
            break at;
        }
    };
    options.source = Some("127.0.0.8".parse().unwrap());
    options.source_ports = Some(first..=first + 1);
    let mut sessions = Vec::new();
    let mut ports = Vec::new();
    for _ in 0..2 {
        let (connected, accepted) = tokio::join!(connect(&options), listener.accept());
        let accepted = accepted.unwrap();
        ports.push(accepted.info().first_hop.unwrap().port());
        sessions.push((connected.unwrap(), accepted));
    }
    ports.sort_unstable();
    assert_eq!(ports, [first, first + 1]);
    let error = connect(&options).await.unwrap_err().to_string();
    assert!(error.contains("in use"), "{error}");
}

#[tokio::test]
async fn an_unusable_source_address_is_reported() {
    let (_listener, mut options) = pair_of_ends().await;
    options.source = Some("::1".parse().unwrap());
    let error = connect(&options).await.unwrap_err().to_string();
    assert!(error.contains("to the other IP family"), "{error}");
}

#[tokio::test]
async fn a_direct_session_carries_bytes_and_knows_both_ends() {
    let (listener, mut options) = pair_of_ends().await;
    options.purpose = Some("a test".into());
    options.congestion = Some("reno".into());
    let (connected, accepted) = tokio::join!(connect(&options), listener.accept());
    let (mut near, mut far) = (connected.unwrap(), accepted.unwrap());
    assert_eq!(near.info().session_id, far.info().session_id);
    assert_eq!(far.info().peer, options.identity.public());
    assert!(matches!(options.server, ServerTrust::Pinned(key) if key == near.info().peer));
    assert_eq!(far.info().purpose.as_deref(), Some("a test"));
    assert_eq!(near.info().first_hop, Some(listener.local_addr()));
    assert_eq!(
        (near.info().route.clone(), near.info().statuses.len()),
        (Route::direct(), 1)
    );

    let sent: Vec<u8> = (0..3_000_000u32)
        .map(|number| number.to_le_bytes()[0])
        .collect();
    let sending = async {
        near.write_all(&sent).await.unwrap();
        near.shutdown().await.unwrap();
    };
    let mut received = Vec::new();
    let (_, length) = tokio::join!(sending, far.read_to_end(&mut received));
    assert_eq!(length.unwrap(), sent.len());
    assert_eq!(received, sent);
    assert!(far.tcp_info().unwrap().bytes_received.unwrap() > 3_000_000);
}

/// LH-END-1: either end closes its half, and the other continues.
#[tokio::test]
async fn half_close_works_in_both_directions() {
    for near_first in [true, false] {
        let (near, far) = pair().await;
        let (mut first, mut second) = if near_first { (near, far) } else { (far, near) };
        first.write_all(b"question").await.unwrap();
        first.shutdown().await.unwrap();
        let mut received = Vec::new();
        second.read_to_end(&mut received).await.unwrap();
        assert_eq!(received, b"question");
        let answer = vec![7; 500_000];
        let answering = async {
            second.write_all(&answer).await.unwrap();
            second.shutdown().await.unwrap();
        };
        let mut received = Vec::new();
        let (_, read) = tokio::join!(answering, first.read_to_end(&mut received));
        read.unwrap();
        assert_eq!(received, answer);
        let (one, two) = tokio::join!(first.close(), second.close());
        one.unwrap();
        two.unwrap();
    }
}

/// LH-END-2, LH-END-3: an end without a close is an error, with data in flight or without.
#[tokio::test]
async fn a_session_that_is_dropped_never_looks_complete() {
    for written in [&b"half a"[..], b""] {
        let (mut near, mut far) = pair().await;
        near.write_all(written).await.unwrap();
        near.flush().await.unwrap();
        let mut received = vec![0; written.len()];
        far.read_exact(&mut received).await.unwrap();
        drop(near);
        let error = far.read_to_end(&mut Vec::new()).await.unwrap_err();
        assert!(
            matches!(
                error.kind(),
                io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof
            ),
            "{error}"
        );
    }
}

/// LH-END-3: also while the watch of its paced flow is still held.
#[tokio::test]
async fn a_paced_session_that_is_dropped_ends() {
    let (mut near, mut far) = pair().await;
    let watch = near.watch(drs::Mode::Observe, drs::Side::Sending);
    watch.fit_rate();
    near.write_all(b"half a").await.unwrap();
    near.flush().await.unwrap();
    far.read_exact(&mut [0; 6]).await.unwrap();
    drop(near);
    let mut received = Vec::new();
    let ended = tokio::time::timeout(Duration::from_secs(120), far.read_to_end(&mut received));
    assert!(ended.await.expect("it goes on").is_err());
    assert!(watch.observations().sent > 0, "it was looked at");
}

/// LH-TLS-1.
#[tokio::test]
async fn a_server_with_another_key_is_refused_by_name() {
    let (listener, mut options) = pair_of_ends().await;
    let expected = Identity::generate().unwrap().public();
    let ServerTrust::Pinned(found) = options.server else {
        panic!("pinned")
    };
    options.server = ServerTrust::Pinned(expected);
    let error = connect(&options).await.unwrap_err();
    assert!(
        matches!(
            &error,
            Error::ServerKey { expected: e, found: f, .. } if (e, f) == (&expected, &found)
        ),
        "{error}"
    );
    assert_eq!(error.endpoint().unwrap().port, listener.local_addr().port());
    assert!(!error.nothing_forwarded());
}

#[tokio::test]
async fn an_unknown_server_can_be_added_and_then_connected_to() {
    let (listener, mut options) = pair_of_ends().await;
    let directory = tempfile::tempdir().unwrap();
    let mut hosts = KnownHosts::open(&directory.path().join("known_hosts")).unwrap();
    options.server = hosts.trust();
    let error = connect(&options).await.unwrap_err();
    let Error::UnknownServer { destination, found } = error else {
        panic!("{error}")
    };
    hosts.add(destination, found).unwrap();
    options.server = hosts.trust();
    let (connected, accepted) = tokio::join!(connect(&options), listener.accept());
    assert_eq!(connected.unwrap().info().peer, found);
    accepted.unwrap();
}

/// LH-ADMIT-1: the acceptor refuses with a typed code that reaches the initiator. LH-FALLBACK-2:
/// the initiator does not fall back then.
#[tokio::test]
async fn an_unknown_key_is_refused_as_such() {
    let (_listener, mut options) = pair_of_ends().await;
    let stranger = Arc::new(Identity::generate().unwrap());
    options.identity = Arc::clone(&stranger);
    for fall_back in [false, true] {
        options.fall_back = fall_back;
        let error = connect(&options).await.unwrap_err();
        let Error::Hop(failure) = &error else {
            panic!("{error}")
        };
        assert_eq!(
            failure.kind,
            FailureKind::Acceptor(StatusCode::Unauthorised)
        );
        assert!(
            error.to_string().contains(&stranger.public().to_string()),
            "{error}"
        );
        assert_eq!(error.to_string().lines().count(), 1);
    }
}

#[tokio::test]
async fn a_missing_listener_is_reported_with_the_address() {
    let (_listener, mut options) = pair_of_ends().await;
    // Bound but not listening, so that nobody else can take the port meanwhile.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(loopback()).unwrap();
    let address = socket.local_addr().unwrap();
    options.destination = address.into();
    let error = connect(&options).await.unwrap_err();
    assert!(
        matches!(
            &error,
            Error::NotConnected { place: FirstHop::Server, source, .. }
                if source.kind() == io::ErrorKind::ConnectionRefused
        ),
        "{error}"
    );
    assert!(error.to_string().contains(&address.to_string()), "{error}");
    assert!(error.nothing_forwarded());
}

#[tokio::test]
async fn an_unavailable_congestion_control_is_an_error() {
    let (_listener, mut options) = pair_of_ends().await;
    options.congestion = Some("no-such-one".into());
    assert!(matches!(
        connect(&options).await,
        Err(Error::Congestion { .. })
    ));
    let mut listen = ListenOptions::new(
        loopback(),
        options.identity,
        Arc::new(|_: &PublicKey| true),
        vec![ServiceName::COPY],
    );
    listen.congestion = Some("no-such-one".into());
    assert!(matches!(
        Listener::bind(listen).await,
        Err(Error::Congestion { .. })
    ));
}

/// Returns every file of the fuzz corpus, and truncated valid OPENs.
fn malformed_opens() -> Vec<Vec<u8>> {
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/open");
    let files = std::fs::read_dir(corpus)
        .unwrap()
        .map(|entry| std::fs::read(entry.unwrap().path()).unwrap());
    let prefixes = [
        &b""[..],
        b"\xf1LHO",
        b"\xf1LHO\x01\x01\x00\x28",
        b"\xf1LHO\x01\x01\xff\xff",
    ];
    files.chain(prefixes.map(<[u8]>::to_vec)).collect()
}

/// LH-ACCEPT-2: the listener keeps serving after ten thousand malformed OPENs, including the fuzz
/// corpus.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_leaves_the_listener_serving() {
    let (listener, options) = pair_of_ends().await;
    let address = listener.local_addr();
    let seeds = Arc::new(malformed_opens());
    let throw = |first: usize| {
        let seeds = Arc::clone(&seeds);
        async move {
            for number in (first..10_000).step_by(16) {
                let mut stream = TcpStream::connect(address).await.unwrap();
                let mut bytes = seeds[number % seeds.len()].clone();
                // Each input once unchanged, then with small changes.
                if let Some(at) = (number / seeds.len()).checked_sub(1) {
                    bytes.extend(
                        (number as u32)
                            .wrapping_mul(2_654_435_761)
                            .to_be_bytes()
                            .repeat(16),
                    );
                    let length = bytes.len();
                    bytes[at * 7 % length] ^= 1 << (at % 8);
                }
                // The listener may close before all is written.
                let _ = stream.write_all(&bytes).await;
                let _ = stream.shutdown().await;
                let _ = stream.read_to_end(&mut Vec::new()).await;
            }
        }
    };
    let throwers: Vec<_> = (0..16).map(|first| tokio::spawn(throw(first))).collect();
    for thrower in throwers {
        thrower.await.unwrap();
    }
    let (connected, accepted) = tokio::join!(connect(&options), listener.accept());
    connected.unwrap();
    accepted.unwrap();
}

/// LH-ACCEPT-1: silent connections do not keep others out.
#[tokio::test]
async fn silent_connections_block_nobody() {
    let (listener, options) = pair_of_ends().await;
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(TcpStream::connect(listener.local_addr()).await.unwrap());
    }
    let (connected, accepted) = tokio::join!(connect(&options), listener.accept());
    connected.unwrap();
    accepted.unwrap();
}
