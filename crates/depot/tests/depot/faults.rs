//! A fault at every state of a session, and its effect on the other side: the rows of
//! docs/close-states.md.

use std::time::Duration;

use longhaul_proto::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::bed::*;

/// Asserts that the depot still carries a session from end to end.
async fn assert_serving(depot: &RunningDepot, key: &longhaul_proto::SigningKey) {
    let (mut initiator, mut acceptor) = with_timeout(established(key, &[depot.address])).await;
    initiator.write_all(b"still here").await.expect("write");
    initiator.shutdown().await.expect("FIN");
    let mut arrived = Vec::new();
    with_timeout(acceptor.read_to_end(&mut arrived))
        .await
        .expect("a clean end");
    assert_eq!(arrived, b"still here");
    drop(acceptor);
    with_timeout(assert_end(&mut initiator)).await;
}

#[tokio::test]
async fn the_peer_leaves_before_or_within_the_open() {
    let key = new_key();
    let depot = depot(&key);
    let (listener, address) = acceptor().await;
    let open = encoded(&open_via(&key, &[depot.address], address));
    for cut in [0, 1, 4, 9, open.len() / 2, open.len() - 1] {
        for with_reset in [false, true] {
            let mut stream = TcpStream::connect(depot.address).await.expect("connect");
            stream.write_all(&open[..cut]).await.expect("write");
            if with_reset {
                reset(stream);
                continue;
            }
            stream.shutdown().await.expect("FIN");
            if cut == 0 {
                with_timeout(assert_end(&mut stream)).await;
            } else {
                with_timeout(assert_reset(&mut stream)).await;
            }
        }
    }
    assert_serving(&depot, &key).await;
    assert_never_dialled(&listener).await;
}

/// A listener whose queue is full, so that a dial to it stays unanswered as long as the test needs.
struct Unanswering {
    address: std::net::SocketAddr,
    _listener: std::net::TcpListener,
    _queued: Vec<socket2::Socket>,
}

fn unanswering() -> Unanswering {
    let socket =
        socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("socket");
    let any: std::net::SocketAddr = "127.0.0.1:0".parse().expect("address");
    socket.bind(&any.into()).expect("bind");
    socket.listen(0).expect("listen");
    let listener = std::net::TcpListener::from(socket);
    let address = listener.local_addr().expect("address");
    let fill = |_| {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)
            .expect("socket");
        socket.set_nonblocking(true).expect("non-blocking");
        let _ = socket.connect(&address.into());
        socket
    };
    Unanswering {
        address,
        _queued: (0..8).map(fill).collect(),
        _listener: listener,
    }
}

#[tokio::test]
async fn the_initiator_leaves_while_the_depot_dials() {
    let key = new_key();
    let depot = depot_with(loopback_policy(key.public(), ""), with_page);
    let page = depot.metrics.expect("page");
    let black_hole = unanswering();
    for (abandoned, early) in (1..).zip([0, 10, 200_000]) {
        let open = open_via(&key, &[depot.address], black_hole.address);
        let stream = TcpStream::connect(depot.address).await.expect("connect");
        let mut bytes = encoded(&open);
        bytes.extend_from_slice(&vec![7; early]);
        // A large payload need not be written whole before the reset.
        let _ = stream.try_write(&bytes);
        with_timeout(wait_for_metric(
            page,
            "longhaul_depot_sessions_setting_up",
            1.0,
        ))
        .await;
        reset(stream);
        with_timeout(wait_for_metric(
            page,
            "longhaul_depot_opens_refused_total{status=\"abandoned\"}",
            f64::from(abandoned),
        ))
        .await;
    }
    assert_serving(&depot, &key).await;
}

/// LH-ROUTE-7.
#[tokio::test(start_paused = true)]
async fn a_next_hop_that_does_not_answer_is_a_dial_timeout() {
    let key = new_key();
    let depot = depot_with(loopback_policy(key.public(), ""), with_page);
    let page = depot.metrics.expect("page");
    let black_hole = unanswering();
    for (budget, code) in [
        (60_000, StatusCode::DialTimeout),
        (700, StatusCode::SetupTimeout),
    ] {
        let still = stand_still();
        let mut open = open_via(&key, &[depot.address], black_hole.address);
        open.setup_budget = Duration::from_millis(budget);
        let start = tokio::time::Instant::now();
        let mut stream = initiate(depot.address, &open, b"early").await;
        wait_for_metric(page, "longhaul_depot_sessions_setting_up", 1.0).await;
        drop(still);
        let status = read_status(&mut stream).await;
        assert_eq!(
            (status.code, status.hop, status.payload_forwarded),
            (code, 1, false)
        );
        assert_eq!(status.at, Some(black_hole.address.into()));
        assert!(
            start.elapsed() >= Duration::from_millis(budget.min(10_000)),
            "after {:?}",
            start.elapsed()
        );
        assert_end(&mut stream).await;
    }
}

/// LH-DEPOT-4, LH-STATUS-6: a hundred kilobytes that nobody reads do not destroy the status.
#[tokio::test]
async fn a_next_hop_that_refuses_is_named() {
    let key = new_key();
    let depot = depot(&key);
    let (_closed, address) = refusing_address();
    let mut stream = initiate(
        depot.address,
        &open_via(&key, &[depot.address], address),
        &[1; 100_000],
    )
    .await;
    let status = with_timeout(read_status(&mut stream)).await;
    assert_eq!(
        (status.code, status.hop, status.payload_forwarded),
        (StatusCode::DialRefused, 1, false)
    );
    assert_eq!(
        (status.reporter, status.at),
        (Some(depot.key), Some(address.into()))
    );
    with_timeout(assert_end(&mut stream)).await;
}

/// Depot 2 cannot connect: its status comes back through depot 1, after depot 1's Ok.
#[tokio::test]
async fn a_later_hops_failure_comes_back_in_order() {
    let key = new_key();
    let (first, second) = (depot(&key), depot(&key));
    let (_closed, address) = refusing_address();
    let open = open_via(&key, &[first.address, second.address], address);
    let mut stream = initiate(first.address, &open, b"early").await;
    assert_eq!(
        with_timeout(read_status(&mut stream)).await.code,
        StatusCode::Ok
    );
    let status = with_timeout(read_status(&mut stream)).await;
    assert_eq!(
        (status.code, status.hop, status.payload_forwarded),
        (StatusCode::DialRefused, 2, false)
    );
    with_timeout(assert_end(&mut stream)).await;
}

async fn pair(key: &longhaul_proto::SigningKey, depot: &RunningDepot) -> (TcpStream, TcpStream) {
    with_timeout(established(key, &[depot.address])).await
}

/// LH-END-3.
#[tokio::test]
async fn a_death_on_either_side_resets_the_other() {
    let key = new_key();
    let depot = depot(&key);
    let (initiator, mut acceptor) = pair(&key, &depot).await;
    reset(initiator);
    with_timeout(assert_reset(&mut acceptor)).await;
    let (mut initiator, acceptor) = pair(&key, &depot).await;
    reset(acceptor);
    with_timeout(assert_reset(&mut initiator)).await;
    assert_serving(&depot, &key).await;
}

/// With bytes in flight in both directions and no reader, the death must not wait for the blocked
/// writes.
#[tokio::test]
async fn a_death_behind_blocked_writes_is_seen() {
    let key = new_key();
    let depot = depot(&key);
    for initiator_dies in [true, false] {
        let (initiator, acceptor) = pair(&key, &depot).await;
        let block = vec![3u8; 1 << 20];
        for stream in [&initiator, &acceptor] {
            let mut refused = 0;
            while refused < 3 {
                match stream.try_write(&block) {
                    Ok(_) => refused = 0,
                    Err(_) => {
                        refused += 1;
                        let _round_trip = pair(&key, &depot).await;
                    }
                }
            }
        }
        let (dies, mut lives) = if initiator_dies {
            (initiator, acceptor)
        } else {
            (acceptor, initiator)
        };
        reset(dies);
        with_timeout(assert_reset(&mut lives)).await;
    }
}

#[tokio::test]
async fn a_death_after_one_end_of_stream_resets_too() {
    let key = new_key();
    let depot = depot(&key);
    // One side ends its direction, then one side dies: all four combinations.
    for (ender_is_initiator, ender_dies) in
        [(true, true), (true, false), (false, true), (false, false)]
    {
        let (initiator, acceptor) = pair(&key, &depot).await;
        let (mut ender, mut other) = if ender_is_initiator {
            (initiator, acceptor)
        } else {
            (acceptor, initiator)
        };
        ender.write_all(b"last words").await.expect("write");
        ender.shutdown().await.expect("FIN");
        let mut words = Vec::new();
        with_timeout(other.read_to_end(&mut words))
            .await
            .expect("the end comes through");
        assert_eq!(words, b"last words");
        if ender_dies {
            reset(ender);
            // It has nothing left to read, so the reset shows when it writes.
            let died = async {
                loop {
                    if let Err(error) = other.write_all(b"?").await {
                        return error;
                    }
                    tokio::task::yield_now().await;
                }
            };
            let error = with_timeout(died).await;
            let kinds = [
                std::io::ErrorKind::ConnectionReset,
                std::io::ErrorKind::BrokenPipe,
            ];
            assert!(kinds.contains(&error.kind()), "{error}");
        } else {
            reset(other);
            with_timeout(assert_reset(&mut ender)).await;
        }
    }
    assert_serving(&depot, &key).await;
}

/// A next hop that accepts the connection and dies before it has read the OPEN.
#[tokio::test]
async fn a_next_hop_that_hangs_up_is_a_reset_after_the_ok() {
    let key = new_key();
    let depot = depot(&key);
    let (listener, address) = acceptor().await;
    let mut stream = initiate(
        depot.address,
        &open_via(&key, &[depot.address], address),
        b"early",
    )
    .await;
    hang_up(&listener).await;
    let first = with_timeout(read_status(&mut stream)).await;
    assert_eq!(first.code, StatusCode::Ok);
    assert!(first.payload_forwarded);
    with_timeout(assert_reset(&mut stream)).await;
}

async fn hang_up(listener: &TcpListener) {
    let (stream, _) = with_timeout(listener.accept()).await.expect("accept");
    // Waits until the OPEN has arrived: the depot has sent everything by then.
    assert_eq!(with_timeout(stream.peek(&mut [0])).await.expect("peek"), 1);
    reset(stream);
}
