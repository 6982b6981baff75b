//! Sessions through relays that follow or break the rules of a depot: the initiator's reaction to
//! each.

#![allow(clippy::unwrap_used, clippy::panic)] // failed tests panic, also in helpers

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::BytesMut;
use longhaul_proto::{
    Admission, CircuitGrant, FailureKind, Hop, NextReceiver, Open, OpenDecoder, Route, ServiceName,
    Status, StatusCode,
};
use longhaul_session::{
    ConnectOptions, Error, Identity, ListenOptions, Listener, ServerTrust, connect,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpSocket, TcpStream},
};

/// Behaviour of a relay once it has an OPEN.
#[derive(Clone, Copy)]
enum Manner {
    /// Dials the next hop, answers, relays.
    Relays,
    /// Relays this many bytes towards the acceptor, and then ends that direction with a FIN, like a
    /// complete stream.
    Cuts(u64),
    /// Answers with this code, and whether payload was forwarded.
    Answers(StatusCode, bool),
    /// Closes without an answer.
    Closes,
    /// Sends an answer that no depot sends.
    Babbles,
}

/// Starts a minimal relay for any number of sessions.
async fn relay(manner: Manner) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let identity = Identity::generate().unwrap();
    tokio::spawn(async move {
        let admission = Admission::new(identity.public());
        while let Ok((mut stream, _)) = listener.accept().await {
            let (open, early) = receive(&mut stream).await;
            let now = SystemTime::now()
                .duration_since(SystemTime::UNIX_EPOCH)
                .unwrap()
                .as_millis();
            admission
                .check_at_depot(&open, now.try_into().unwrap(), |_| true)
                .unwrap();
            let me = identity.clone();
            tokio::spawn(async move { behave(manner, stream, open, early, me).await });
        }
    });
    address
}

async fn receive(stream: &mut TcpStream) -> (Open, Vec<u8>) {
    let mut decoder = OpenDecoder::new();
    let mut piece = [0; 4096];
    loop {
        let length = stream.read(&mut piece).await.unwrap();
        assert_ne!(length, 0);
        if let Some((open, used)) = decoder.feed(&piece[..length]).unwrap() {
            return (open, piece[used..length].to_vec());
        }
    }
}

async fn behave(manner: Manner, mut up: TcpStream, open: Open, early: Vec<u8>, me: Identity) {
    let mut status = Status::new(StatusCode::Ok, open.position());
    let mut down = None;
    match manner {
        Manner::Closes => return,
        Manner::Babbles => return up.write_all(b"SSH-2.0-OpenSSH\r\n").await.unwrap(),
        Manner::Answers(code, forwarded) => {
            (status.code, status.payload_forwarded) = (code, forwarded)
        }
        Manner::Relays | Manner::Cuts(_) => {
            let next = match open.next_receiver() {
                NextReceiver::Hop(hop) => hop.endpoint.clone(),
                NextReceiver::Destination(endpoint) => endpoint.clone(),
                NextReceiver::Here => panic!("admitted"),
            };
            match TcpStream::connect(next.to_string()).await {
                Ok(stream) => down = Some(stream),
                Err(_) => (status.code, status.at) = (StatusCode::DialRefused, Some(next)),
            }
        }
    }
    if let Some(down) = &mut down {
        let mut bytes = BytesMut::new();
        open.forwarded(me.public(), Duration::ZERO)
            .unwrap()
            .encode(&mut bytes)
            .unwrap();
        bytes.extend_from_slice(&early);
        down.write_all(&bytes).await.unwrap();
    }
    status.sign(me.signing_key(), &open).unwrap();
    let mut bytes = BytesMut::new();
    status.encode(&mut bytes);
    up.write_all(&bytes).await.unwrap();
    let Some(mut down) = down else { return };
    let Manner::Cuts(allowed) = manner else {
        let _ = copy_bidirectional(&mut up, &mut down).await;
        return;
    };
    let (mut from_up, mut to_up) = up.split();
    let (mut from_down, mut to_down) = down.split();
    let forward = async {
        tokio::io::copy(&mut (&mut from_up).take(allowed), &mut to_down).await?;
        to_down.shutdown().await?;
        tokio::io::copy(&mut from_up, &mut tokio::io::sink()).await
    };
    let _ = tokio::join!(forward, tokio::io::copy(&mut from_down, &mut to_up));
}

async fn ends(relays: &[SocketAddr]) -> (Listener, ConnectOptions) {
    let (server, client) = (
        Arc::new(Identity::generate().unwrap()),
        Arc::new(Identity::generate().unwrap()),
    );
    let trust = ServerTrust::Pinned(server.public());
    let listen = ListenOptions::new(
        "127.0.0.1:0".parse().unwrap(),
        server,
        Arc::new(|_| true),
        vec![ServiceName::COPY],
    );
    let listener = Listener::bind(listen).await.unwrap();
    let hops = relays
        .iter()
        .map(|&address| Hop {
            endpoint: address.into(),
            strict: true,
            key: None,
            transport: None,
        })
        .collect();
    let route = Route::new(hops).unwrap();
    let options = ConnectOptions::new(
        ServiceName::COPY,
        route,
        listener.local_addr().into(),
        client,
        trust,
    );
    (listener, options)
}

#[tokio::test]
async fn a_session_passes_relays_and_half_closes_through_them() {
    for count in 1..=3 {
        let mut relays = Vec::new();
        for _ in 0..count {
            relays.push(relay(Manner::Relays).await);
        }
        let (listener, options) = ends(&relays).await;
        let (connected, accepted) = tokio::join!(connect(&options), listener.accept());
        let (mut near, mut far) = (connected.unwrap(), accepted.unwrap());
        assert_eq!(near.info().statuses.len(), count + 1);
        assert_eq!(near.info().first_hop, Some(relays[0]));
        assert_eq!(far.info().route, options.route);
        let sent = vec![9; 300_000];
        let sending = async {
            near.write_all(&sent).await.unwrap();
            near.shutdown().await.unwrap();
        };
        let mut received = Vec::new();
        let (_, read) = tokio::join!(sending, far.read_to_end(&mut received));
        read.unwrap();
        assert_eq!(received, sent);
        far.write_all(b"and back").await.unwrap();
        far.shutdown().await.unwrap();
        let mut received = Vec::new();
        near.read_to_end(&mut received).await.unwrap();
        assert_eq!(received, b"and back");
    }
}

/// LH-END-2: wherever a relay truncates the stream, the reader gets an error.
#[tokio::test]
async fn a_stream_cut_short_never_looks_complete() {
    // Bytes of TLS, including the rest of the handshake.
    for allowed in [1000, 5000, 12_345, 60_000] {
        let (listener, options) = ends(&[relay(Manner::Cuts(allowed)).await]).await;
        let (connected, accepted) = tokio::join!(connect(&options), listener.accept());
        let (mut near, mut far) = (connected.unwrap(), accepted.unwrap());
        let writing = tokio::spawn(async move {
            for _ in 0..100 {
                near.write_all(&[3; 1000]).await.unwrap();
            }
            near.shutdown().await.unwrap();
            near
        });
        let mut received = Vec::new();
        let error = far.read_to_end(&mut received).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof, "{error}");
        assert!(received.len() < 100_000);
        drop(writing.await.unwrap());
    }
}

/// LH-FALLBACK-1: falls back only if it is certain that nothing was forwarded.
#[tokio::test]
async fn it_falls_back_only_if_nothing_was_forwarded() {
    let closed = TcpSocket::new_v4().unwrap();
    closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let cases = [
        (
            relay(Manner::Answers(StatusCode::Refused, false)).await,
            true,
        ),
        (
            relay(Manner::Answers(StatusCode::DialTimeout, false)).await,
            true,
        ),
        (
            relay(Manner::Answers(StatusCode::Unknown(99), false)).await,
            true,
        ),
        (closed.local_addr().unwrap(), true),
        (
            relay(Manner::Answers(StatusCode::Internal, true)).await,
            false,
        ),
        (relay(Manner::Closes).await, false),
        (relay(Manner::Babbles).await, false),
    ];
    for (index, (address, falls_back)) in cases.into_iter().enumerate() {
        let (listener, mut options) = ends(&[address]).await;
        let error = connect(&options).await.unwrap_err();
        assert_eq!(
            error.nothing_forwarded(),
            falls_back,
            "case {index}: {error}"
        );
        assert_eq!(
            error.endpoint(),
            Some(&address.into()),
            "case {index}: {error}"
        );
        options.fall_back = true;
        if falls_back {
            let (connected, accepted) = tokio::join!(connect(&options), listener.accept());
            let session = connected.unwrap();
            assert_eq!(session.info().route, Route::direct());
            assert_eq!(
                session.info().fell_back.as_deref(),
                Some(error.to_string().as_str())
            );
            accepted.unwrap();
        } else {
            assert!(
                matches!(connect(&options).await, Err(Error::Hop(_))),
                "case {index}"
            );
        }
    }
}

/// LH-GRANT-4: a session with a grant is paced from the first hop on, and uses its depots or fails.
#[tokio::test]
async fn a_session_with_a_grant_is_paced_and_does_not_fall_back() {
    let controller = Identity::generate().unwrap();
    let (listener, mut options) = ends(&[relay(Manner::Relays).await]).await;
    let mut grant = CircuitGrant {
        circuit: b"12".to_vec(),
        holder: options.identity.public(),
        from: "a".to_owned(),
        to: "b".to_owned(),
        start_unix_ms: 0,
        end_unix_ms: u64::MAX,
        rate: 8_000_000,
        sessions: 1,
        depots: vec![controller.public()],
        issuer: controller.public(),
        signature: [0; 64],
    };
    grant.sign(controller.signing_key()).unwrap();
    options.grant = Some(Box::new(grant));
    options.fall_back = true;
    for (stated, paced) in [(None, 956_406), (Some(4_000_000), 478_203)] {
        options.rate = stated;
        let (connected, accepted) = tokio::join!(connect(&options), listener.accept());
        let session = connected.unwrap();
        assert_eq!(session.tcp_info().unwrap().max_pacing_rate, Some(paced));
        accepted.unwrap();
    }
    let refuses = relay(Manner::Answers(StatusCode::GrantRefused, false)).await;
    let (_listener, mut refused) = ends(&[refuses]).await;
    refused.grant = options.grant;
    refused.fall_back = true;
    let error = connect(&refused).await.unwrap_err();
    assert!(
        error.is_grant_error() && matches!(error, Error::Hop(_)),
        "{error}"
    );
}

/// The second relay is down: the error names it, as reported by the first.
#[tokio::test]
async fn a_dead_relay_in_the_middle_is_named() {
    let closed = TcpSocket::new_v4().unwrap();
    closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let dead = closed.local_addr().unwrap();
    let first = relay(Manner::Relays).await;
    let (_listener, mut options) = ends(&[first, dead]).await;
    let error = connect(&options).await.unwrap_err();
    let Error::Hop(failure) = &error else {
        panic!("{error}")
    };
    assert_eq!(failure.kind, FailureKind::Depot(StatusCode::DialRefused));
    assert_eq!(
        (failure.hop, failure.endpoint.clone()),
        (1, Some(first.into()))
    );
    assert_eq!(error.endpoint(), Some(&dead.into()));
    assert!(error.to_string().contains(&dead.to_string()), "{error}");

    // When the server is down as well, both failures are reported.
    options.fall_back = true;
    options.destination = dead.into();
    let error = connect(&options).await.unwrap_err();
    assert!(matches!(&error, Error::FellBack { .. }), "{error}");
    assert_eq!(error.to_string().lines().count(), 1);
}
