//! A session and a TCP connection, joined over loopback.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use longhaul_hop::{
    BufferPool, Conn, DialledConnection, Duplex, DuplexEnding, DuplexOptions, DuplexOutcome,
    HopOptions, IdleLimits, RateLimits, dial,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::*;
use crate::{
    ConnectOptions, Identity, ListenOptions, Listener, Route, ServerTrust, ServiceName, connect,
};

/// Exceeds the combined size of all buffers on the path.
const MORE_THAN_BUFFERED: usize = 24 << 20;

const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

type Join = Duplex<Session, Conn, JoinObserver>;

/// Returns the initiator's end of a session, the program's end of a TCP connection, and the task
/// that joins them.
async fn joined(options: DuplexOptions) -> (Session, TcpStream, JoinHandle<DuplexOutcome>) {
    let (near, program, join) = unjoined(options).await;
    (near, program, tokio::spawn(join))
}

/// Returns the same before the join runs.
async fn unjoined(options: DuplexOptions) -> (Session, TcpStream, Join) {
    observed(options, JoinObserver::default()).await
}

async fn observed(options: DuplexOptions, observer: JoinObserver) -> (Session, TcpStream, Join) {
    let server = Arc::new(Identity::generate().unwrap());
    let trust = ServerTrust::Pinned(server.public());
    let listen = ListenOptions::new(
        LOOPBACK,
        server,
        Arc::new(|_| true),
        vec![ServiceName::COPY],
    );
    let listener = Listener::bind(listen).await.unwrap();
    let to = ConnectOptions::new(
        ServiceName::COPY,
        Route::direct(),
        listener.local_addr().into(),
        Arc::new(Identity::generate().unwrap()),
        trust,
    );
    let (near, far) = tokio::join!(connect(&to), listener.accept());
    let programs = TcpListener::bind(LOOPBACK).await.unwrap();
    let address = programs.local_addr().unwrap();
    let deadline = Instant::now() + Duration::from_secs(120);
    let dialled = dial(
        std::slice::from_ref(&address),
        |_| HopOptions::default(),
        deadline,
    );
    let (dialled, accepted) = tokio::join!(dialled, programs.accept());
    let DialledConnection { conn, .. } = dialled.unwrap();
    let join = Duplex::new(far.unwrap(), conn, options, observer);
    (near.unwrap(), accepted.unwrap().0, join)
}

/// Returns bytes whose values depend on their position.
fn bytes(length: usize, seed: u8) -> Vec<u8> {
    (0..length)
        .map(|at| (at.wrapping_mul(31) >> 3) as u8 ^ seed)
        .collect()
}

#[tokio::test]
async fn both_directions_carry_bytes_and_end_separately() {
    let moved = Arc::new(std::sync::Mutex::new((0, 0)));
    let counted = moved.clone();
    let on_moved: OnMoved = Arc::new(move |to_tcp, to_session| {
        let mut moved = counted.lock().unwrap();
        *moved = (moved.0 + to_tcp, moved.1 + to_session);
    });
    let observer = JoinObserver {
        on_moved: Some(on_moved),
        ..JoinObserver::default()
    };
    let (near, program, mut join) = observed(DuplexOptions::default(), observer).await;
    let join = tokio::spawn(async move { ((&mut join).await, join.into_observer().flow) });
    let (asked, answered) = (
        bytes(MORE_THAN_BUFFERED, 1),
        bytes(MORE_THAN_BUFFERED / 2, 2),
    );
    let (mut near_reads, mut near_writes) = tokio::io::split(near);
    let (mut program_reads, mut program_writes) = program.into_split();
    let sending = async {
        near_writes.write_all(&asked).await.unwrap();
        near_writes.shutdown().await.unwrap();
    };
    let answering = async {
        program_writes.write_all(&answered).await.unwrap();
        program_writes.shutdown().await.unwrap();
    };
    let (mut there, mut back) = (Vec::new(), Vec::new());
    let (_, _, read, returned) = tokio::join!(
        sending,
        answering,
        program_reads.read_to_end(&mut there),
        near_reads.read_to_end(&mut back)
    );
    read.unwrap();
    returned.unwrap();
    assert!(there == asked && back == answered, "bytes differ");
    let (done, flow) = join.await.unwrap();
    assert!(
        matches!(done.ending, DuplexEnding::Finished),
        "{:?}",
        done.ending
    );
    assert_eq!(
        (done.forward, done.backward),
        (asked.len() as u64, answered.len() as u64)
    );
    assert_eq!(*moved.lock().unwrap(), (done.forward, done.backward));
    assert!(flow.is_some(), "bulk data is watched");
}

#[tokio::test]
async fn a_side_that_has_ended_still_receives() {
    for session_first in [true, false] {
        let (mut near, mut program, join) = joined(DuplexOptions::default()).await;
        let mut received = String::new();
        if session_first {
            near.write_all(b"question").await.unwrap();
            near.shutdown().await.unwrap();
            program.read_to_string(&mut received).await.unwrap();
            program.write_all(b"answer").await.unwrap();
            program.shutdown().await.unwrap();
            near.read_to_string(&mut received).await.unwrap();
        } else {
            program.write_all(b"question").await.unwrap();
            program.shutdown().await.unwrap();
            near.read_to_string(&mut received).await.unwrap();
            near.write_all(b"answer").await.unwrap();
            near.shutdown().await.unwrap();
            program.read_to_string(&mut received).await.unwrap();
        }
        assert_eq!(received, "questionanswer");
        assert!(matches!(join.await.unwrap().ending, DuplexEnding::Finished));
    }
}

#[tokio::test]
async fn a_reset_of_one_side_is_a_reset_of_the_other() {
    let (mut near, program, join) = joined(DuplexOptions::default()).await;
    program.set_zero_linger().unwrap();
    drop(program);
    let error = near.read_u8().await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
    let done = join.await.unwrap();
    assert!(
        matches!(done.ending, DuplexEnding::SecondDied(_)),
        "{done:?}"
    );

    let (near, mut program, join) = joined(DuplexOptions::default()).await;
    drop(near);
    let error = program.read_u8().await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
    let done = join.await.unwrap();
    assert!(
        matches!(done.ending, DuplexEnding::FirstDied(_)),
        "{done:?}"
    );
}

/// If the program dies before bytes for it arrive, writing them consumes the connection's error. A
/// read then appears to return end of stream, which must not make the session look complete.
#[tokio::test]
async fn a_death_found_by_a_write_is_not_an_end_of_stream() {
    let (mut near, program, join) = unjoined(DuplexOptions::default()).await;
    near.write_all(b"x").await.unwrap();
    near.flush().await.unwrap();
    program.set_zero_linger().unwrap();
    drop(program);
    let done = join.await;
    assert!(
        matches!(
            &done.ending,
            DuplexEnding::SecondDied(error) if error.kind() == io::ErrorKind::ConnectionReset
        ),
        "{done:?}"
    );
    let error = near.read_u8().await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
}

/// A side that accepts no bytes holds back the other. Its death is noticed even though nothing can
/// be written to it.
#[tokio::test]
async fn a_death_is_noticed_behind_blocked_writes() {
    let (mut near, program, join) = joined(DuplexOptions::default()).await;
    let chunk = bytes(1 << 20, 3);
    // Far more than fits: this ends only when the program's reset has arrived.
    let sending = async {
        loop {
            if near.write_all(&chunk).await.is_err() {
                break;
            }
        }
    };
    let dying = async {
        // Some bytes have arrived, so the join now holds data back.
        program.readable().await.unwrap();
        program.set_zero_linger().unwrap();
        drop(program);
    };
    tokio::join!(sending, dying);
    let done = join.await.unwrap();
    assert!(
        matches!(done.ending, DuplexEnding::SecondDied(_)),
        "{done:?}"
    );
}

/// Data that a program sent before it closed arrives whole, though the other side was still sending
/// and the program's kernel answered with a reset.
#[tokio::test]
async fn data_sent_before_a_close_arrives() {
    let (near, mut program, join) = joined(DuplexOptions::default()).await;
    // As much as the sockets and buffers on the path hold.
    let answer = bytes(192 << 10, 4);
    let (mut reads, mut writes) = tokio::io::split(near);
    let uploading = async {
        let chunk = bytes(1 << 16, 5);
        while writes.write_all(&chunk).await.is_ok() {}
    };
    let answering = async {
        // The program has received enough, sends the rest, and closes with bytes unread once its
        // end has been relayed.
        program.read_u8().await.unwrap();
        program.write_all(&answer).await.unwrap();
        program.shutdown().await.unwrap();
        while drs::TcpInfo::read(&program).unwrap().state != drs::TcpState::FinWait2 {
            tokio::task::yield_now().await;
        }
        drop(program);
        let mut received = Vec::new();
        reads.read_to_end(&mut received).await.unwrap();
        received
    };
    let received = tokio::select! {
        received = answering => received,
        () = uploading => panic!("the upload broke off before the answer had been read"),
    };
    assert!(
        received == answer,
        "{} of {} bytes",
        received.len(),
        answer.len()
    );
    writes.shutdown().await.unwrap();
    let done = join.await.unwrap();
    assert!(matches!(done.ending, DuplexEnding::Closed), "{done:?}");
    assert_eq!(done.backward, answer.len() as u64);
}

#[tokio::test]
async fn silence_ends_a_joined_session() {
    let short = Duration::from_millis(20);
    let idle_limits = IdleLimits {
        open: short,
        half_closed: short,
    };
    let options = || DuplexOptions {
        idle_limits,
        ..DuplexOptions::default()
    };
    let (mut near, _program, join) = joined(options()).await;
    assert!(matches!(join.await.unwrap().ending, DuplexEnding::Idle));
    assert!(near.read_u8().await.is_err());

    let (mut near, mut program, join) = joined(DuplexOptions {
        idle_limits: IdleLimits {
            open: Duration::from_secs(3600),
            ..idle_limits
        },
        ..options()
    })
    .await;
    near.shutdown().await.unwrap();
    assert_eq!(program.read(&mut [0]).await.unwrap(), 0);
    assert!(matches!(
        join.await.unwrap().ending,
        DuplexEnding::HalfClosed
    ));
    assert!(program.read_u8().await.is_err());
}

/// LH-WISH-2.
#[tokio::test]
async fn a_direction_beyond_its_size_ends_the_join() {
    for max_bytes in [1000, 999] {
        let options = DuplexOptions {
            max_bytes,
            ..DuplexOptions::default()
        };
        let (mut near, mut program, join) = joined(options).await;
        near.write_all(&bytes(1000, 3)).await.unwrap();
        near.shutdown().await.unwrap();
        if max_bytes == 1000 {
            program.shutdown().await.unwrap();
            assert!(matches!(join.await.unwrap().ending, DuplexEnding::Finished));
        } else {
            assert!(matches!(
                join.await.unwrap().ending,
                DuplexEnding::BeyondSize
            ));
            assert!(near.read_u8().await.is_err());
        }
    }
}

#[tokio::test]
async fn a_rate_is_kept_without_loss() {
    let options = DuplexOptions {
        // A burst of 64 KiB, and then 10 MB a second.
        limits: RateLimits::new(Some(80_000_000)),
        ..DuplexOptions::default()
    };
    let (mut near, mut program, join) = joined(options).await;
    let sent = bytes(2 << 20, 6);
    let sending = async {
        near.write_all(&sent).await.unwrap();
        near.shutdown().await.unwrap();
        let mut back = Vec::new();
        near.read_to_end(&mut back).await.unwrap();
        back
    };
    let echoing = async {
        let mut received = Vec::new();
        program.read_to_end(&mut received).await.unwrap();
        program.write_all(&received).await.unwrap();
        program.shutdown().await.unwrap();
    };
    let began = Instant::now();
    let (back, ()) = tokio::join!(sending, echoing);
    assert!(back == sent);
    // At least as long as the rate implies, on any machine: a burst is worth a tenth of a second.
    let least = Duration::from_secs_f64((2.0 * (f64::from(2 << 20) - 1e6)) / 1e7);
    assert!(began.elapsed() >= least, "{:?}", began.elapsed());
    assert!(matches!(join.await.unwrap().ending, DuplexEnding::Finished));
}

#[tokio::test]
async fn without_buffer_memory_a_join_still_works() {
    let options = DuplexOptions {
        buffers: BufferPool::new(0),
        ..DuplexOptions::default()
    };
    let (mut near, mut program, join) = joined(options).await;
    let sent = bytes(1 << 20, 7);
    let sending = async {
        near.write_all(&sent).await.unwrap();
        near.shutdown().await.unwrap();
    };
    let mut received = Vec::new();
    let (_, read) = tokio::join!(sending, program.read_to_end(&mut received));
    read.unwrap();
    assert!(received == sent);
    program.shutdown().await.unwrap();
    near.read_to_end(&mut Vec::new()).await.unwrap();
    assert!(matches!(join.await.unwrap().ending, DuplexEnding::Finished));
}
