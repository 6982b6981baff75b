//! Streams through a network that loses, changes and breaks: no byte is wrong, and what ends, ends
//! with an error.

#![allow(clippy::unwrap_used, clippy::panic)] // A test that can't go on has failed.

mod relay;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use longhaul_hop::{Conn, StreamDialler, StreamListener};
use longhaul_proto::SigningKey;
use longhaul_quic::{QuicDialler, QuicLimits, QuicListener};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use tokio::time::Instant;

use relay::Relay;

/// Bytes sent before the network changes, and after.
const PART: usize = 2 << 20;

struct Pair {
    key: SigningKey,
    listener: QuicListener,
    dialler: Arc<QuicDialler>,
    relay: Relay,
}

impl Pair {
    async fn new() -> Self {
        let key = SigningKey::generate().unwrap();
        let local: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let listener = QuicListener::bind(local, &key, QuicLimits::default()).unwrap();
        Self {
            relay: Relay::start(listener.local_addr()).await,
            listener,
            dialler: QuicDialler::new(QuicLimits::default()),
            key,
        }
    }

    /// Opens a stream and sends its `number` first.
    async fn dial(&self, number: u32) -> Conn {
        let key = Some(self.key.public());
        let opened = self.dialler.open(self.relay.address, key, in_a_minute());
        let mut near = opened.await.unwrap();
        near.write_u32(number).await.unwrap();
        near
    }

    /// Accepts a stream and reads its number.
    async fn accept(&mut self) -> (Conn, u32) {
        let (mut far, _) = self.listener.accept().await;
        let number = far.read_u32().await.unwrap();
        (far, number)
    }

    async fn stream(&mut self) -> (Conn, Conn) {
        let near = self.dial(0).await;
        (near, self.accept().await.0)
    }
}

fn in_a_minute() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// Returns bytes in which no part equals another.
fn pattern(seed: u32, length: usize) -> Vec<u8> {
    let words = (0..length.div_ceil(4) as u32).map(|n| n.wrapping_mul(0x9e37_79b9) ^ seed);
    let mut bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
    bytes.truncate(length);
    bytes
}

/// Sends a part, lets `change` change the network, and sends another. Checks every byte.
async fn transfer_across(change: impl FnOnce(&Relay)) {
    let mut pair = Pair::new().await;
    let (mut near, mut far) = pair.stream().await;
    let sent = pattern(7, 2 * PART);
    let mut received = vec![0; PART];
    tokio::join!(
        async { near.write_all(&sent[..PART]).await.unwrap() },
        async { far.read_exact(&mut received).await.unwrap() },
    );
    change(&pair.relay);
    let sending = async {
        near.write_all(&sent[PART..]).await.unwrap();
        near.shutdown().await.unwrap();
        let mut answer = Vec::new();
        near.read_to_end(&mut answer).await.unwrap();
        answer
    };
    let receiving = async {
        far.read_to_end(&mut received).await.unwrap();
        far.write_all(b"all there").await.unwrap();
        far.shutdown().await.unwrap();
    };
    let both = async { tokio::join!(sending, receiving) };
    let (answer, ()) = tokio::time::timeout(Duration::from_secs(120), both)
        .await
        .unwrap();
    assert_eq!(answer, b"all there");
    assert!(received == sent, "the bytes differ");
}

#[tokio::test]
async fn streams_survive_a_nat_that_changes_the_port() {
    transfer_across(|relay| relay.rebind("127.0.0.1")).await;
}

#[tokio::test]
async fn streams_survive_a_path_from_another_address() {
    transfer_across(|relay| relay.rebind("127.0.0.2")).await;
}

/// Datagrams above QUIC's minimum vanish without a message, as where a tunnel begins.
#[tokio::test]
async fn streams_survive_an_mtu_black_hole() {
    transfer_across(|relay| relay.network.max_datagram.store(1200, Ordering::Relaxed)).await;
}

#[tokio::test]
async fn streams_survive_a_policer_that_drops_a_tenth() {
    transfer_across(|relay| relay.network.lose_one_in.store(10, Ordering::Relaxed)).await;
}

/// Each of a thousand sessions on one connection gets its own bytes.
#[tokio::test]
async fn a_thousand_streams_share_a_connection() {
    const STREAMS: u32 = 1000;
    let mut pair = Pair::new().await;
    let mut first = pair.dial(0).await;
    let local = first.local_addr().unwrap();
    let mut echoing = JoinSet::new();
    let (mut far, _) = pair.accept().await;
    echoing.spawn(async move { echo(&mut far).await });
    let mut near = JoinSet::new();
    for number in 1..STREAMS {
        let mut stream = pair.dial(number).await;
        assert_eq!(stream.local_addr().unwrap(), local);
        let (mut far, seen) = pair.accept().await;
        assert_eq!(seen, number);
        echoing.spawn(async move { echo(&mut far).await });
        near.spawn(async move { check_echo(&mut stream, number).await });
    }
    near.spawn(async move { check_echo(&mut first, 0).await });
    near.join_all().await;
    echoing.join_all().await;
}

async fn echo(far: &mut Conn) {
    let mut bytes = Vec::new();
    far.read_to_end(&mut bytes).await.unwrap();
    far.write_all(&bytes).await.unwrap();
    far.shutdown().await.unwrap();
}

async fn check_echo(near: &mut Conn, number: u32) {
    let sent = pattern(number, 8 << 10);
    near.write_all(&sent).await.unwrap();
    near.shutdown().await.unwrap();
    let mut back = Vec::new();
    near.read_to_end(&mut back).await.unwrap();
    assert!(back == sent, "stream {number}");
}

/// A peer that is gone ends all its streams with an error, and what arrived before is right.
#[tokio::test]
async fn streams_of_a_killed_peer_end_with_an_error() {
    let mut pair = Pair::new().await;
    let mut ends = Vec::new();
    for _ in 0..20 {
        ends.push(pair.stream().await);
    }
    let (near, far): (Vec<_>, Vec<_>) = ends.into_iter().unzip();
    // The far host vanishes: nothing passes, and nobody closes anything.
    pair.relay.network.is_cut.store(true, Ordering::Relaxed);
    tokio::time::pause();
    for mut stream in near {
        let ended = stream.read_u8().await.unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::TimedOut, "{ended}");
    }
    drop(far);
}
