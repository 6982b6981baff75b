//! Streams over loopback: bytes, ends, resets, keys, and connections that are shared.

#![allow(clippy::unwrap_used, clippy::panic)] // A test that can't go on has failed.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use longhaul_hop::{Conn, StreamDialler, StreamListener};
use longhaul_proto::SigningKey;
use longhaul_quic::{QuicDialler, QuicLimits, QuicListener};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

struct Pair {
    key: SigningKey,
    listener: QuicListener,
    dialler: Arc<QuicDialler>,
}

impl Pair {
    fn new() -> Self {
        let key = SigningKey::generate().unwrap();
        let local: SocketAddr = "127.0.0.1:0".parse().unwrap();
        Self {
            listener: QuicListener::bind(local, &key, QuicLimits::default()).unwrap(),
            dialler: QuicDialler::new(QuicLimits::default()),
            key,
        }
    }

    /// Returns the two ends of a stream over which the first byte has passed.
    async fn stream(&mut self) -> (Conn, Conn) {
        let mut near = self
            .dialler
            .open(self.listener.local_addr(), Some(self.key.public()), soon())
            .await
            .unwrap();
        near.write_all(b"o").await.unwrap();
        let (mut far, _) = self.listener.accept().await;
        assert_eq!(far.read_u8().await.unwrap(), b'o');
        (near, far)
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(120)
}

#[tokio::test]
async fn bytes_and_ends_pass_in_both_directions() {
    let mut pair = Pair::new();
    let (mut near, mut far) = pair.stream().await;
    let sent: Vec<u8> = (0..3_000_000_u32).map(|n| n as u8).collect();
    let sending = async {
        near.write_all(&sent).await.unwrap();
        near.shutdown().await.unwrap();
        let mut back = Vec::new();
        near.read_to_end(&mut back).await.unwrap();
        back
    };
    let echoing = async {
        let mut received = Vec::new();
        far.read_to_end(&mut received).await.unwrap();
        far.write_all(&received).await.unwrap();
        far.shutdown().await.unwrap();
    };
    let (back, ()) = tokio::join!(sending, echoing);
    assert!(back == sent);
}

#[tokio::test]
async fn streams_to_one_server_share_a_connection() {
    let mut pair = Pair::new();
    let (first, far_first) = pair.stream().await;
    let (second, far_second) = pair.stream().await;
    assert_eq!(first.local_addr().unwrap(), second.local_addr().unwrap());
    assert_eq!(
        far_first.peer_addr().unwrap(),
        far_second.peer_addr().unwrap()
    );
}

/// LH-END-3: a dropped end is a reset, in both directions and without a byte to send.
#[tokio::test]
async fn a_dropped_stream_is_reset() {
    let mut pair = Pair::new();
    let (near, mut far) = pair.stream().await;
    drop(near);
    let error = far.read_u8().await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");

    let (near, far) = pair.stream().await;
    drop(near);
    let error = far.broken().await;
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");

    let (mut near, mut far) = pair.stream().await;
    far.shutdown_write().unwrap();
    assert_eq!(near.read(&mut [0]).await.unwrap(), 0);
    drop(far);
    let error = near.broken().await;
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
}

#[tokio::test]
async fn another_key_is_refused() {
    let pair = Pair::new();
    let other = SigningKey::generate().unwrap().public();
    let address = pair.listener.local_addr();
    let error = pair.dialler.open(address, Some(other), soon()).await;
    assert!(error.is_err(), "{error:?}");
}

#[tokio::test]
async fn a_connection_that_ended_is_replaced() {
    let mut pair = Pair::new();
    let (near, far) = pair.stream().await;
    let address = pair.listener.local_addr();
    drop((pair.listener, far));
    near.broken().await;
    drop(near);
    pair.listener = loop {
        match QuicListener::bind(address, &pair.key, QuicLimits::default()) {
            Ok(listener) => break listener,
            // The old endpoint closes its socket in the background.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                tokio::task::yield_now().await;
            }
            Err(error) => panic!("{error}"),
        }
    };
    pair.stream().await;
}
