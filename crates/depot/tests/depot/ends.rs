//! Bytes and ends, through one to three depots: exact, in order, in both directions, half-closed in
//! both directions.

use longhaul_proto::StatusCode;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::bed::*;

const SIZE: usize = 3_000_000;

/// Returns reproducible bytes.
fn payload(seed: u64, size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    Xoshiro256PlusPlus::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes
}

/// Writes `bytes` in chunks of random sizes, then ends the direction.
async fn write_chunks(stream: &mut (impl AsyncWriteExt + Unpin), bytes: &[u8], seed: u64) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut rest = bytes;
    while !rest.is_empty() {
        let largest = 1usize << (rng.next_u32() % 18);
        let n = (rng.next_u64() as usize % largest + 1).min(rest.len());
        stream.write_all(&rest[..n]).await.expect("write");
        rest = &rest[n..];
        if rng.next_u32().is_multiple_of(4) {
            tokio::task::yield_now().await;
        }
    }
    stream.shutdown().await.expect("FIN");
}

async fn exchange(initiator: TcpStream, acceptor: TcpStream, seed: u64) {
    let (there, back) = (payload(seed, SIZE), payload(seed + 1, SIZE / 2));
    let (mut from_initiator, mut to_initiator) = (Vec::new(), Vec::new());
    let (mut read_i, mut write_i) = initiator.into_split();
    let (mut read_a, mut write_a) = acceptor.into_split();
    tokio::join!(
        write_chunks(&mut write_i, &there, seed + 2),
        write_chunks(&mut write_a, &back, seed + 3),
        async {
            read_a
                .read_to_end(&mut from_initiator)
                .await
                .expect("a clean end there")
        },
        async {
            read_i
                .read_to_end(&mut to_initiator)
                .await
                .expect("a clean end back")
        },
    );
    assert!(from_initiator == there, "bytes towards the acceptor differ");
    assert!(to_initiator == back, "bytes towards the initiator differ");
}

/// LH-END-1, LH-DEPOT-3.
#[tokio::test]
async fn both_ways_through_one_to_three_depots() {
    for count in 1..=3 {
        let key = new_key();
        let depots: Vec<Running> = (0..count).map(|_| depot(&key)).collect();
        let addresses: Vec<_> = depots.iter().map(|depot| depot.address).collect();
        let (initiator, acceptor) = established(&key, &addresses).await;
        soon(exchange(initiator, acceptor, 10 * count)).await;
    }
}

#[tokio::test]
async fn on_threads_of_its_own() {
    let key = new_key();
    let mut depot = depot_with(loopback_policy(key.public(), ""), |config| {
        config.workers = 2
    });
    let sessions: Vec<_> = [
        established(&key, &[depot.address]).await,
        established(&key, &[depot.address]).await,
    ]
    .into();
    let (mut cut, _held) = established(&key, &[depot.address]).await;
    depot.stop();
    for (seed, (initiator, acceptor)) in sessions.into_iter().enumerate() {
        soon(exchange(initiator, acceptor, 100 + seed as u64)).await;
    }
    // Dropping the depot resets the remaining sessions, on whatever thread they run.
    depot.abandon();
    soon(assert_reset(&mut cut)).await;
}

#[tokio::test]
async fn without_pipes_bytes_are_copied() {
    let key = new_key();
    let depot = depot_with(loopback_policy(key.public(), ""), |config| {
        config.limits.pipes = 0
    });
    let (initiator, acceptor) = established(&key, &[depot.address]).await;
    soon(exchange(initiator, acceptor, 77)).await;
}

#[tokio::test]
async fn under_a_rate_cap() {
    let key = new_key();
    let depot = depot_with(
        loopback_policy(key.public(), "max_rate = \"400 Mbit/s\""),
        |_| {},
    );
    let (initiator, acceptor) = established(&key, &[depot.address]).await;
    soon(exchange(initiator, acceptor, 78)).await;
}

/// LH-DEPOT-2, LH-DEPOT-6, LH-DEPOT-7, LH-ROUTE-5, LH-ROUTE-6.
#[tokio::test]
async fn the_forwarded_open_differs_only_in_hop_fields() {
    let key = new_key();
    let (first, second) = (depot(&key), depot(&key));
    let (listener, address) = acceptor().await;
    let mut open = open_via(&key, &[first.address, second.address], address);
    open.size = Some(12);
    open.purpose = Some("a test".to_owned());
    open.sign(&key, now_ms()).expect("sign");
    let mut initiator = initiate(first.address, &open, b"early ").await;
    let (mut accepted, arrived) = soon(take(&listener)).await;
    assert_eq!(arrived.passed, [first.key, second.key]);
    assert_eq!((arrived.cursor, arrived.hop_limit), (3, open.hop_limit - 2));
    assert!(arrived.setup_budget <= open.setup_budget);
    assert_eq!(
        (arrived.size, arrived.purpose.as_deref()),
        (Some(12), Some("a test"))
    );
    arrived.verify().expect("the signature still holds");
    let mut early = [0; 6];
    accepted.read_exact(&mut early).await.expect("early data");
    assert_eq!(&early, b"early ");
    for (place, reporter) in [(1, Some(first.key)), (2, Some(second.key)), (3, None)] {
        let status = read_status(&mut initiator).await;
        assert_eq!(
            (status.code, status.hop, status.reporter),
            (StatusCode::Ok, place, reporter)
        );
        assert_eq!(status.acceptor, place == 3);
    }
}

/// LH-DEPOT-5.
#[tokio::test]
async fn early_data_beyond_the_buffer_waits_and_arrives() {
    let key = new_key();
    let depot = depot(&key);
    let (listener, address) = acceptor().await;
    let early = payload(5, 500_000);
    let open = open_via(&key, &[depot.address], address);
    let sent = early.clone();
    let sender = tokio::spawn(async move {
        let mut initiator = initiate(depot.address, &open, &sent).await;
        initiator.shutdown().await.expect("FIN");
        (initiator, depot)
    });
    let (mut accepted, _) = soon(take(&listener)).await;
    let mut arrived = Vec::new();
    soon(accepted.read_to_end(&mut arrived))
        .await
        .expect("a clean end");
    assert!(arrived == early);
    let _ends = sender.await.expect("sender");
}

/// An initiator may send everything, the end included, before it has received anything; the answer
/// still comes back.
#[tokio::test]
async fn an_end_with_the_early_data_is_relayed() {
    let key = new_key();
    let depot = depot(&key);
    let (listener, address) = acceptor().await;
    let mut initiator = initiate(
        depot.address,
        &open_via(&key, &[depot.address], address),
        b"all of it",
    )
    .await;
    initiator.shutdown().await.expect("FIN");
    let (mut accepted, _) = soon(take(&listener)).await;
    let mut arrived = Vec::new();
    soon(accepted.read_to_end(&mut arrived))
        .await
        .expect("a clean end");
    assert_eq!(arrived, b"all of it");
    accepted.write_all(b"the answer").await.expect("answer");
    accepted.shutdown().await.expect("FIN");
    assert_eq!(read_status(&mut initiator).await.code, StatusCode::Ok);
    assert!(read_status(&mut initiator).await.acceptor);
    let mut answer = Vec::new();
    soon(initiator.read_to_end(&mut answer))
        .await
        .expect("a clean end");
    assert_eq!(answer, b"the answer");
}

/// If one end stops reading, the sockets and one pipe bound what the other may send, and all of it
/// arrives later (LH-DEPOT-3).
#[tokio::test]
async fn back_pressure_reaches_the_sender() {
    let key = new_key();
    let depot = depot(&key);
    let (initiator, mut acceptor) = established(&key, &[depot.address]).await;
    let (_keep, mut write) = initiator.into_split();
    let block = payload(9, 1 << 20);
    let mut sent = 0;
    // A write that succeeds means that the kernel took it. Once writes fail for 50 round trips, the
    // chain is full.
    let mut refused = 0;
    while refused < 50 {
        match write.try_write(&block[sent % block.len()..]) {
            Ok(n) => (sent, refused) = (sent + n, 0),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                refused += 1;
                // A round trip through another session gives the depot its turn.
                let (mut a, mut b) = established(&key, &[depot.address]).await;
                a.write_all(b"x").await.expect("write");
                b.read_u8().await.expect("read");
            }
            Err(error) => panic!("{error}"),
        }
        assert!(
            sent < 256 << 20,
            "nobody reads, and yet {sent} bytes were taken"
        );
    }
    let reader = tokio::spawn(async move {
        let mut arrived = Vec::new();
        acceptor
            .read_to_end(&mut arrived)
            .await
            .expect("a clean end");
        arrived
    });
    write.shutdown().await.expect("FIN");
    let arrived = soon(reader).await.expect("reader");
    assert_eq!(arrived.len(), sent);
    assert!(
        arrived
            .chunks(block.len())
            .all(|chunk| chunk == &block[..chunk.len()])
    );
}
