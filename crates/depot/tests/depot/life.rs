//! Silence, drain, reload, counters: behaviour that a depot initiates itself.

use std::time::Duration;

use longhaul_depot::{Depot, DepotConfig, Error, ListenerConfig, Policy};
use longhaul_proto::StatusCode;
use longhaul_service::Error as ServiceError;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::bed::*;

#[tokio::test(start_paused = true)]
async fn an_idle_session_is_reset_after_the_idle_timeout() {
    let key = new_key();
    let depot = depot_with(loopback_policy(key.public(), ""), |config| {
        config.timeouts.idle = Duration::from_secs(100);
        config.timeouts.half_closed = Duration::from_secs(10);
    });
    let still = stand_still();
    let (mut initiator, mut acceptor) = established(&key, &[depot.address]).await;
    // An occasional byte from either side keeps it alive.
    for turn in 0..5 {
        tokio::time::advance(Duration::from_secs(90)).await;
        let (from, to) = if turn % 2 == 0 {
            (&mut initiator, &mut acceptor)
        } else {
            (&mut acceptor, &mut initiator)
        };
        from.write_all(b"x").await.expect("write");
        assert_eq!(to.read_u8().await.expect("read"), b'x');
    }
    let start = Instant::now();
    drop(still);
    assert_reset(&mut initiator).await;
    assert_reset(&mut acceptor).await;
    let silent = start.elapsed();
    assert!(
        (100..=200).contains(&silent.as_secs()),
        "reset after {silent:?} of silence"
    );
}

#[tokio::test(start_paused = true)]
async fn a_half_closed_session_is_reaped_sooner() {
    let key = new_key();
    let depot = depot_with(loopback_policy(key.public(), ""), |config| {
        config.timeouts.idle = Duration::from_secs(1000);
        config.timeouts.half_closed = Duration::from_secs(10);
    });
    let still = stand_still();
    let (mut initiator, mut acceptor) = established(&key, &[depot.address]).await;
    initiator.shutdown().await.expect("FIN");
    assert_end(&mut acceptor).await;
    for _ in 0..5 {
        tokio::time::advance(Duration::from_secs(9)).await;
        acceptor.write_all(b"x").await.expect("write");
        assert_eq!(initiator.read_u8().await.expect("read"), b'x');
    }
    let start = Instant::now();
    drop(still);
    assert_reset(&mut initiator).await;
    let silent = start.elapsed();
    assert!(
        (10..=20).contains(&silent.as_secs()),
        "reset after {silent:?} of silence"
    );
}

#[tokio::test]
async fn a_drain_lets_sessions_finish_and_takes_no_new_ones() {
    let key = new_key();
    let mut depot = depot(&key);
    let (mut initiator, mut acceptor) = with_timeout(established(&key, &[depot.address])).await;
    depot.stop();
    // The listener closes first: once it is closed, the drain has begun.
    let refused = async {
        while let Ok(mut stream) = TcpStream::connect(depot.address).await {
            // Caught in the backlog, or between accept and the phase: refused with a STATUS, or
            // reset.
            let mut sink = Vec::new();
            let _ = stream
                .write_all(&encoded(&open_via(&key, &[depot.address], depot.address)))
                .await;
            let _ = stream.read_to_end(&mut sink).await;
        }
    };
    with_timeout(refused).await;
    initiator.write_all(b"the rest").await.expect("write");
    initiator.shutdown().await.expect("FIN");
    let mut arrived = Vec::new();
    with_timeout(acceptor.read_to_end(&mut arrived))
        .await
        .expect("a clean end");
    assert_eq!(arrived, b"the rest");
    drop(acceptor);
    with_timeout(assert_end(&mut initiator)).await;
    with_timeout(depot.stopped()).await;
}

#[tokio::test(start_paused = true)]
async fn sessions_left_at_the_drain_deadline_are_reset() {
    let key = new_key();
    let mut depot = depot_with(loopback_policy(key.public(), ""), with_page);
    let page = depot.metrics.expect("page");
    let still = stand_still();
    let (mut initiator, mut acceptor) = established(&key, &[depot.address]).await;
    let mut stranger = TcpStream::connect(depot.address).await.expect("connect");
    stranger.write_all(b"\xf1").await.expect("write");
    wait_for_metric(page, "longhaul_depot_connections_unauthenticated", 1.0).await;
    depot.stop();
    let start = Instant::now();
    drop(still);
    assert_reset(&mut initiator).await;
    assert_reset(&mut acceptor).await;
    assert!(
        start.elapsed() >= Duration::from_secs(60),
        "the drain lasts as long as it is set to"
    );
    depot.stopped().await;
    let mut sink = Vec::new();
    // The header timeout was reported to the unknown peer meanwhile.
    stranger.read_to_end(&mut sink).await.expect("a clean end");
    assert!(!sink.is_empty());
}

/// An OPEN arrives while the depot drains, on a connection accepted before.
#[tokio::test]
async fn an_open_during_the_drain_gets_a_status() {
    let key = new_key();
    let mut depot = depot_with(loopback_policy(key.public(), ""), with_page);
    let page = depot.metrics.expect("page");
    let (listener, address) = acceptor().await;
    let mut early_bird = TcpStream::connect(depot.address).await.expect("connect");
    with_timeout(wait_for_metric(
        page,
        "longhaul_depot_connections_unauthenticated",
        1.0,
    ))
    .await;
    depot.stop();
    let closed = async { while TcpStream::connect(depot.address).await.is_ok() {} };
    with_timeout(closed).await;
    early_bird
        .write_all(&encoded(&open_via(&key, &[depot.address], address)))
        .await
        .expect("write");
    assert_eq!(
        with_timeout(read_status(&mut early_bird)).await.code,
        StatusCode::Draining
    );
    assert_never_dialled(&listener).await;
    drop(early_bird);
    with_timeout(depot.stopped()).await;
}

#[tokio::test]
async fn every_session_is_counted() {
    let key = new_key();
    let depot = depot_with(loopback_policy(key.public(), ""), with_page);
    let page = depot.metrics.expect("page");
    let (listener, address) = acceptor().await;
    let open = open_via(&key, &[depot.address], address);
    let mut initiator = initiate(depot.address, &open, b"1234").await;
    let (mut accepted, _) = with_timeout(accept_session(&listener)).await;
    initiator.write_all(b"56789").await.expect("write");
    initiator.shutdown().await.expect("FIN");
    let mut arrived = Vec::new();
    with_timeout(accepted.read_to_end(&mut arrived))
        .await
        .expect("end");
    drop(accepted);
    let mut answer = Vec::new();
    with_timeout(initiator.read_to_end(&mut answer))
        .await
        .expect("end");
    let ended = "longhaul_depot_sessions_ended_total{ending=\"finished\"}";
    with_timeout(wait_for_metric(page, ended, 1.0)).await;
    for (name, value) in [
        (
            "longhaul_depot_relayed_bytes_total{direction=\"forward\"}",
            9.0,
        ),
        ("longhaul_depot_dial_seconds_count", 1.0),
        ("longhaul_depot_sessions_active", 0.0),
    ] {
        with_timeout(wait_for_metric(page, name, value)).await;
    }
}

#[tokio::test]
async fn a_failed_start_names_the_reason() {
    let config = || DepotConfig::new(new_key(), Policy::deny_all());
    let at = |address: &str| ListenerConfig::new(address.parse().expect("address"));
    let none = Depot::bind(DepotConfig {
        listen: Vec::new(),
        ..config()
    });
    assert!(matches!(
        none,
        Err(Error::Service(ServiceError::NoListener))
    ));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = taken.local_addr().expect("address");
    let in_use = Depot::bind(DepotConfig {
        listen: vec![ListenerConfig::new(address)],
        ..config()
    });
    assert!(matches!(
        in_use,
        Err(Error::Service(ServiceError::Listen { address: at, .. })) if at == address
    ));
    let mut listen = at("127.0.0.1:0");
    listen.congestion = Some("no-such".to_owned());
    let error = Depot::bind(DepotConfig {
        listen: vec![listen],
        ..config()
    })
    .expect_err("congestion")
    .to_string();
    assert!(
        error.contains("no-such") && error.contains("cubic"),
        "{error}"
    );
    let next = vec!["*=no-such".parse().expect("choice")];
    let error = Depot::bind(DepotConfig {
        listen: vec![at("127.0.0.1:0")],
        next_congestion: next,
        ..config()
    });
    assert!(matches!(
        error,
        Err(Error::Service(ServiceError::Congestion { .. }))
    ));
}
