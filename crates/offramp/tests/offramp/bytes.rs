//! Bytes and ends, from the initiator through depots and the off-ramp to the server and back.

use std::io::ErrorKind;

use longhaul_session::connect;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::bed::*;

#[tokio::test]
async fn bytes_go_to_a_server_and_back_through_depots() {
    let me = me();
    let offramp = offramp(&me);
    let (first, second) = (depot(&me), depot(&me));
    for route in ["direct".to_owned(), format!("{first},{second}")] {
        let (listener, address) = server().await;
        let serving = async {
            // A server that is unaware of sessions: it reads to the end, and sends back the bytes
            // in reverse.
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut received = Vec::new();
            stream.read_to_end(&mut received).await.unwrap();
            received.reverse();
            stream.write_all(&received).await.unwrap();
        };
        let asking = async {
            let mut session = connect(&offramp.connect_options(&me, address, &route))
                .await
                .unwrap();
            assert_eq!(session.info().onward, Some(address.into()));
            let sent: Vec<u8> = (0..5_000_000u32).map(|at| (at >> 5) as u8).collect();
            session.write_all(&sent).await.unwrap();
            session.shutdown().await.unwrap();
            let mut back = Vec::new();
            session.read_to_end(&mut back).await.unwrap();
            back.reverse();
            assert!(back == sent, "{route}: {} bytes back", back.len());
        };
        with_timeout(async { tokio::join!(serving, asking) }).await;
    }
    offramp
        .wait_for_metric(
            "longhaul_offramp_sessions_ended_total{ending=\"finished\"}",
            2.0,
        )
        .await;
    offramp
        .wait_for_metric(
            "longhaul_offramp_moved_bytes_total{direction=\"forward\"}",
            10_000_000.0,
        )
        .await;
}

/// A server may send first, and end first.
#[tokio::test]
async fn a_server_that_sends_and_ends_first_still_receives() {
    let me = me();
    let offramp = offramp(&me);
    let (mut session, mut server) = with_timeout(established(&offramp, &me)).await;
    let talking = async {
        server.write_all(b"220 ready\r\n").await.unwrap();
        server.shutdown().await.unwrap();
        let mut greeting = String::new();
        session.read_to_string(&mut greeting).await.unwrap();
        assert_eq!(greeting, "220 ready\r\n");
        session.write_all(b"and now me").await.unwrap();
        session.shutdown().await.unwrap();
        let mut received = String::new();
        server.read_to_string(&mut received).await.unwrap();
        assert_eq!(received, "and now me");
    };
    with_timeout(talking).await;
}

#[tokio::test]
async fn resets_pass_through_both_ways() {
    let me = me();
    let offramp = offramp(&me);
    let (mut session, server) = with_timeout(established(&offramp, &me)).await;
    server.set_zero_linger().unwrap();
    drop(server);
    let error = with_timeout(session.read_u8()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    offramp
        .wait_for_metric(
            "longhaul_offramp_sessions_ended_total{ending=\"server died\"}",
            1.0,
        )
        .await;

    let (session, mut server) = with_timeout(established(&offramp, &me)).await;
    drop(session);
    let error = with_timeout(server.read_u8()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    offramp
        .wait_for_metric(
            "longhaul_offramp_sessions_ended_total{ending=\"initiator side died\"}",
            1.0,
        )
        .await;
}
