//! Ten thousand malformed OPENs, and crowds: the depot keeps serving.

use std::path::PathBuf;

use longhaul_proto::StatusCode;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::bed::*;

const MALFORMED: usize = 10_000;
const AT_ONCE: usize = 50;

/// Returns every file of the fuzz corpus, if there is one.
fn corpus() -> Vec<Vec<u8>> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let targets = std::fs::read_dir(root).into_iter().flatten().flatten();
    let files = targets.flat_map(|target| {
        std::fs::read_dir(target.path())
            .into_iter()
            .flatten()
            .flatten()
    });
    files
        .filter_map(|file| std::fs::read(file.path()).ok())
        .collect()
}

/// Returns `valid` with damage: bits flipped, bytes overwritten, cut, doubled, or a piece of it
/// moved.
fn mutated(valid: &[u8], rng: &mut Xoshiro256PlusPlus) -> Vec<u8> {
    let mut bytes = valid.to_vec();
    for _ in 0..=rng.next_u32() % 4 {
        if bytes.is_empty() {
            break;
        }
        let at = rng.next_u64() as usize % bytes.len();
        match rng.next_u32() % 6 {
            0 => bytes[at] ^= 1 << (rng.next_u32() % 8),
            1 => bytes[at] = rng.next_u32() as u8,
            2 => bytes.truncate(at),
            3 => bytes.insert(at, rng.next_u32() as u8),
            4 => {
                let piece = bytes[at..].to_vec();
                bytes.extend_from_slice(&piece);
            }
            _ => bytes.rotate_left(at),
        }
    }
    // Mutations may cancel out, and the signature of a fresh OPEN must not slip through.
    if bytes.starts_with(valid) {
        bytes[0] ^= 0x80;
    }
    bytes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_malformed_opens_leave_the_depot_serving() {
    let key = new_key();
    let depot = depot(&key);
    let (listener, address) = acceptor().await;
    let mut open = open_via(&key, &[depot.address], address);
    open.purpose = Some("hostile".to_owned());
    open.sign(&key, now_ms()).expect("sign");
    let valid = encoded(&open);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut bad: Vec<Vec<u8>> = corpus();
    while bad.len() < MALFORMED {
        bad.push(mutated(&valid, &mut rng));
    }
    let to = depot.address;
    for batch in bad.chunks(AT_ONCE) {
        let mut tasks = tokio::task::JoinSet::new();
        for bytes in batch {
            let bytes = bytes.clone();
            tasks.spawn(async move {
                let mut stream = TcpStream::connect(to).await.expect("connect");
                // The depot may answer and close before all is written.
                let _ = stream.write_all(&bytes).await;
                let _ = stream.shutdown().await;
                let mut answer = Vec::new();
                let _ = stream.read_to_end(&mut answer).await;
            });
        }
        while let Some(done) = soon(tasks.join_next()).await {
            done.expect("a sender must not panic");
        }
    }
    assert_never_dialled(&listener).await;
    let (mut initiator, mut acceptor) = soon(established(&key, &[depot.address])).await;
    initiator.write_all(b"alive").await.expect("write");
    let mut word = [0; 5];
    soon(acceptor.read_exact(&mut word)).await.expect("read");
    assert_eq!(&word, b"alive");
}

#[tokio::test(start_paused = true)]
async fn a_silent_or_trickling_peer_is_disconnected() {
    let key = new_key();
    let depot = depot_with(loopback_policy(key.public(), ""), with_page);
    let page = depot.metrics.expect("page");
    let (_, address) = acceptor().await;
    let open = encoded(&open_via(&key, &[depot.address], address));
    for cut in [0, 1, open.len() - 1] {
        let still = stand_still();
        let mut stream = TcpStream::connect(depot.address).await.expect("connect");
        stream.write_all(&open[..cut]).await.expect("write");
        until(page, "longhaul_depot_connections_unauthenticated", 1.0).await;
        drop(still);
        assert_eq!(
            read_status(&mut stream).await.code,
            StatusCode::HeaderTimeout
        );
        assert_end(&mut stream).await;
        drop(stream);
        until(page, "longhaul_depot_connections_unauthenticated", 0.0).await;
    }
}

/// The oldest of a crowd is evicted for each newcomer, and sessions continue.
#[tokio::test]
async fn a_crowd_of_unknown_peers_keeps_nobody_out() {
    let key = new_key();
    let depot = depot_with(loopback_policy(key.public(), ""), |config| {
        config.limits.unauthenticated = 3;
        with_page(config);
    });
    let (mut initiator, mut acceptor) = soon(established(&key, &[depot.address])).await;
    let page = depot.metrics.expect("page");
    let mut strangers = Vec::new();
    for n in 1..=3 {
        strangers.push(TcpStream::connect(depot.address).await.expect("connect"));
        soon(until(
            page,
            "longhaul_depot_connections_unauthenticated",
            f64::from(n),
        ))
        .await;
    }
    let _one_more = TcpStream::connect(depot.address).await.expect("connect");
    soon(assert_reset(&mut strangers[0])).await;
    assert_eq!(
        metric(
            page,
            "longhaul_depot_connections_turned_away_total{reason=\"evicted\"}"
        )
        .await,
        Some(1.0)
    );
    soon(established(&key, &[depot.address])).await;
    initiator.write_all(b"on").await.expect("sessions go on");
    let mut word = [0; 2];
    soon(acceptor.read_exact(&mut word)).await.expect("read");
}
