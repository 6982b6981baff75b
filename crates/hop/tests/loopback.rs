//! Connections over loopback: creation, transfer, and end.

#![allow(clippy::unwrap_used, clippy::panic)] // failed tests panic, also in helpers

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use longhaul_hop::{Conn, DialError, HopOptions, Listener, answer_and_linger, dial};
use longhaul_proto::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(120)
}

async fn pair() -> (Conn, Conn) {
    let mut listener =
        Listener::bind("127.0.0.1:0".parse().unwrap(), &HopOptions::default()).unwrap();
    let address = listener.local_addr().unwrap();
    let dialled = dial(&[address], |_| HopOptions::default(), soon())
        .await
        .unwrap();
    assert_eq!(dialled.address, address);
    let (fd, peer) = listener.accept(|error| panic!("{error}")).await;
    let accepted = Conn::new(fd).unwrap();
    assert_eq!(accepted.peer_addr().unwrap(), peer);
    (dialled.conn, accepted)
}

/// More bytes than the kernel buffers, in both directions at once, in pieces of any size.
#[tokio::test]
async fn bytes_arrive_both_ways_and_each_direction_ends_by_itself() {
    let (near, far) = pair().await;
    let sent: Vec<u8> = (0..6_000_000u32)
        .map(|number| number.to_le_bytes()[0])
        .collect();
    let end = async |conn: Conn| {
        let (mut reader, mut writer) = tokio::io::split(conn);
        let writing = async {
            writer.write_all(&sent).await.unwrap();
            writer.shutdown().await.unwrap();
        };
        let mut received = Vec::new();
        let (_, read) = tokio::join!(writing, reader.read_to_end(&mut received));
        read.unwrap();
        received
    };
    let (one, two) = tokio::join!(end(near), end(far));
    assert!(one == sent && two == sent);
}

/// LH-END-3: a stream that was not ended is reset, whatever was written.
#[tokio::test]
async fn a_drop_resets_unless_the_stream_was_shut_down() {
    let (mut near, mut far) = pair().await;
    near.write_all(b"half a").await.unwrap();
    drop(near);
    let error = far.read_to_end(&mut Vec::new()).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    let (mut near, mut far) = pair().await;
    near.write_all(b"whole").await.unwrap();
    near.shutdown().await.unwrap();
    drop(near);
    let mut received = Vec::new();
    far.read_to_end(&mut received).await.unwrap();
    assert_eq!(received, b"whole");
}

/// Returns the error of the first write that fails, once the peer's reset has arrived.
async fn write_error(conn: &mut Conn) -> io::Error {
    loop {
        if let Err(error) = conn.write_all(b"too late").await {
            return error;
        }
        tokio::task::yield_now().await;
    }
}

/// LH-END-3: the kernel reports a reset once, to the first read or write.
#[tokio::test]
async fn a_reset_reported_to_a_write_still_fails_reads() {
    let (mut near, far) = pair().await;
    drop(far);
    assert_eq!(
        write_error(&mut near).await.kind(),
        io::ErrorKind::ConnectionReset
    );
    for _ in 0..2 {
        let error = near.read_to_end(&mut Vec::new()).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }
    // If the peer had ended its own direction before, its data is complete.
    let (mut near, mut far) = pair().await;
    far.write_all(b"whole").await.unwrap();
    far.shutdown().await.unwrap();
    drop(far);
    assert_eq!(
        write_error(&mut near).await.kind(),
        io::ErrorKind::BrokenPipe
    );
    let mut received = Vec::new();
    near.read_to_end(&mut received).await.unwrap();
    assert_eq!(received, b"whole");
}

/// LH-STATUS-6: an answer can be read even though its reader had sent bytes that nobody read.
#[tokio::test]
async fn an_answer_is_read_despite_unread_input() {
    let (mut near, far) = pair().await;
    near.write_all(&[7; 30_000]).await.unwrap();
    let answering = answer_and_linger(far, b"no", Duration::from_secs(120));
    let reading = async {
        let mut received = Vec::new();
        near.read_to_end(&mut received).await.unwrap();
        drop(near);
        received
    };
    let ((), received) = tokio::join!(answering, reading);
    assert_eq!(received, b"no");
}

#[tokio::test]
async fn the_next_address_is_tried_and_the_last_failure_reported() {
    // Bound but not listening, so that nobody else can take the port meanwhile.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let closed = socket.local_addr().unwrap();
    let open = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let answers: SocketAddr = open.local_addr().unwrap();
    let dialled = dial(&[closed, answers], |_| HopOptions::default(), soon())
        .await
        .unwrap();
    assert_eq!(dialled.address, answers);
    assert!(dialled.conn.tcp().is_some_and(|tcp| tcp.info().is_ok()));
    let error = dial(&[closed], |_| HopOptions::default(), soon())
        .await
        .unwrap_err();
    assert_eq!(error.code(), StatusCode::DialRefused);
    assert!(error.to_string().contains(&closed.to_string()), "{error}");
    let error = dial(&[], |_| HopOptions::default(), soon())
        .await
        .unwrap_err();
    assert!(matches!(error, DialError::NoAddress));
}
