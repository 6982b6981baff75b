//! Two connections over loopback with a [`Duplex`] between them, in each way of moving bytes.

use std::io::IoSlice;

use proptest::prelude::*;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::{Conn, DialledConnection, HopOptions, dial};

/// A stream without a socket to lend, as that of a transport in user space is.
struct Opaque(Conn);

impl AsyncRead for Opaque {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Opaque {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, &[IoSlice::new(data)])
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

impl DuplexSide for Opaque {
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_end(cx)
    }

    fn poll_broken(&self, cx: &mut Context<'_>) -> Poll<io::Error> {
        self.0.poll_broken(cx)
    }

    fn close(self) {
        self.0.close();
    }
}

/// Way of moving bytes between two connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TestLane {
    Spliced,
    /// The pool has no pipe left.
    Copied,
    /// One side lends no socket.
    Buffered,
}

const LANES: [TestLane; 3] = [TestLane::Spliced, TestLane::Copied, TestLane::Buffered];

impl TestLane {
    /// Returns options with the pools of this lane.
    fn options(self, ends: EndPolicy) -> DuplexOptions {
        let total = match self {
            Self::Spliced => 1 << 20,
            Self::Copied | Self::Buffered => 0,
        };
        DuplexOptions {
            ends,
            pipes: Some(PipePool::new(PipeBounds {
                size: 1 << 16,
                total,
                spare: 1,
            })),
            ..DuplexOptions::default()
        }
    }

    /// Runs a [`Duplex`] to its end.
    async fn run(self, first: Conn, second: Conn, options: DuplexOptions) -> DuplexOutcome {
        match self {
            Self::Buffered => Duplex::new(first, Opaque(second), options, ()).await,
            _ => Duplex::new(first, second, options, ()).await,
        }
    }
}

/// Returns a connection over loopback: the end of the duplex, and the other.
async fn pair() -> (Conn, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let deadline = Instant::now() + Duration::from_secs(120);
    let dialled = dial(
        std::slice::from_ref(&address),
        |_| HopOptions::default(),
        deadline,
    );
    let (dialled, accepted) = tokio::join!(dialled, listener.accept());
    let DialledConnection { conn, .. } = dialled.unwrap();
    (conn, accepted.unwrap().0)
}

/// LH-END-3: if a side dies before bytes for it arrive, writing them consumes its error. The end
/// that a read then appears to return must not be relayed.
#[tokio::test]
async fn a_death_found_by_a_write_is_not_an_end_of_stream() {
    for lane in LANES {
        for first_dies in [false, true] {
            let (first, initiator) = pair().await;
            let (second, acceptor) = pair().await;
            let (dies, mut lives) = if first_dies {
                (initiator, acceptor)
            } else {
                (acceptor, initiator)
            };
            lives.write_all(b"x").await.unwrap();
            dies.set_zero_linger().unwrap();
            drop(dies);
            let options = lane.options(EndPolicy::Revocable);
            let outcome = lane.run(first, second, options).await;
            assert!(
                match &outcome.ending {
                    DuplexEnding::FirstDied(error) =>
                        first_dies && error.kind() == io::ErrorKind::ConnectionReset,
                    DuplexEnding::SecondDied(error) =>
                        !first_dies && error.kind() == io::ErrorKind::ConnectionReset,
                    _ => false,
                },
                "{lane:?}: {outcome:?}"
            );
            let error = lives.read_u8().await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
        }
    }
}

/// LH-END-3: the side that has ended its direction and then dies is noticed without a byte, and an
/// end that was relayed to the other side does not keep that from being reset.
#[tokio::test]
async fn a_revocable_end_is_followed_by_a_reset() {
    for lane in LANES {
        let (first, mut initiator) = pair().await;
        let (second, mut acceptor) = pair().await;
        let dying = async {
            initiator.write_all(b"question").await.unwrap();
            initiator.shutdown().await.unwrap();
            let mut received = String::new();
            acceptor.read_to_string(&mut received).await.unwrap();
            assert_eq!(received, "question");
            initiator.set_zero_linger().unwrap();
            drop(initiator);
        };
        let options = lane.options(EndPolicy::Revocable);
        let (outcome, ()) = tokio::join!(lane.run(first, second, options), dying);
        assert!(
            matches!(outcome.ending, DuplexEnding::FirstClosed),
            "{lane:?}: {outcome:?}"
        );
        let reset = acceptor.ready(tokio::io::Interest::ERROR).await.unwrap();
        assert!(reset.is_error(), "{lane:?}");
    }
}

/// A first side that is done may exit without reading the rest. That is no death, unless it had
/// not ended its direction.
#[tokio::test]
async fn a_first_side_that_leaves_after_its_end_has_closed() {
    for lane in LANES {
        for ends_first in [false, true] {
            let (first, mut initiator) = pair().await;
            let (second, mut acceptor) = pair().await;
            let leaving = async {
                initiator.write_all(b"data").await.unwrap();
                if ends_first {
                    initiator.shutdown().await.unwrap();
                    let mut received = String::new();
                    acceptor.read_to_string(&mut received).await.unwrap();
                    assert_eq!(received, "data");
                } else {
                    acceptor.read_exact(&mut [0; 4]).await.unwrap();
                    initiator.set_zero_linger().unwrap();
                }
                drop(initiator);
                // What a server still has to say when its client has left, and its own end.
                let _ = acceptor.write_all(b"done").await;
                let _ = acceptor.shutdown().await;
                acceptor
            };
            let options = lane.options(EndPolicy::Revocable);
            let (outcome, _acceptor) = tokio::join!(lane.run(first, second, options), leaving);
            assert!(
                match outcome.ending {
                    // The reset may come after everything has been relayed.
                    DuplexEnding::FirstClosed | DuplexEnding::Finished => ends_first,
                    DuplexEnding::FirstDied(_) => !ends_first,
                    _ => false,
                },
                "{lane:?}: {outcome:?}"
            );
            assert_eq!(outcome.forward, 4);
        }
    }
}

/// Under final ends, a second side that has sent everything may close: the rest is discarded.
#[tokio::test]
async fn a_close_after_the_own_end_is_no_death() {
    for lane in LANES {
        let (first, mut initiator) = pair().await;
        let (second, mut acceptor) = pair().await;
        let options = lane.options(EndPolicy::Final);
        let exchange = async {
            initiator.write_all(b"question").await.unwrap();
            acceptor.write_all(b"answer").await.unwrap();
            acceptor.shutdown().await.unwrap();
            let mut received = String::new();
            initiator.read_to_string(&mut received).await.unwrap();
            assert_eq!(received, "answer");
            acceptor.readable().await.unwrap();
            // Closed with a byte unread, so the kernel sends a reset.
            drop(acceptor);
            initiator.write_all(&[0; 1 << 20]).await.unwrap();
            initiator.shutdown().await.unwrap();
            initiator
        };
        let (outcome, _initiator) = tokio::join!(lane.run(first, second, options), exchange);
        assert!(
            matches!(outcome.ending, DuplexEnding::Closed),
            "{lane:?}: {outcome:?}"
        );
        assert_eq!(outcome.backward, 6);
    }
}

/// LH-WISH-2.
#[tokio::test]
async fn a_direction_beyond_its_size_ends_both() {
    for lane in LANES {
        for max_bytes in [1000, 999] {
            let (first, mut initiator) = pair().await;
            let (second, mut acceptor) = pair().await;
            initiator.write_all(&[1; 1000]).await.unwrap();
            initiator.shutdown().await.unwrap();
            acceptor.shutdown().await.unwrap();
            let options = DuplexOptions {
                max_bytes,
                ..lane.options(EndPolicy::Revocable)
            };
            let outcome = lane.run(first, second, options).await;
            assert!(
                match outcome.ending {
                    DuplexEnding::Finished => max_bytes == 1000,
                    DuplexEnding::BeyondSize => max_bytes == 999,
                    _ => false,
                },
                "{lane:?}: {outcome:?}"
            );
        }
    }
}

#[tokio::test]
async fn silence_and_a_half_close_have_limits() {
    let short = Duration::from_millis(20);
    let long = Duration::from_secs(3600);
    for lane in LANES {
        for ended in [false, true] {
            let (first, mut initiator) = pair().await;
            let (second, _acceptor) = pair().await;
            if ended {
                initiator.shutdown().await.unwrap();
            }
            let (open, half_closed) = if ended { (long, short) } else { (short, long) };
            let options = DuplexOptions {
                idle_limits: IdleLimits { open, half_closed },
                ..lane.options(EndPolicy::Revocable)
            };
            let outcome = lane.run(first, second, options).await;
            assert!(
                match outcome.ending {
                    DuplexEnding::Idle => !ended,
                    DuplexEnding::HalfClosed => ended,
                    _ => false,
                },
                "{lane:?}: {outcome:?}"
            );
        }
    }
}

/// An observer adds up what it is told.
#[derive(Default)]
struct Sum {
    counted: (u64, u64),
    watched: Option<bool>,
}

impl<A, B> DuplexObserver<A, B> for Sum {
    fn count(&mut self, forward: u64, backward: u64) {
        self.counted.0 += forward;
        self.counted.1 += backward;
    }

    fn watch(&mut self, _: &mut A, _: &mut B, forward: bool) {
        self.watched = Some(forward);
    }
}

async fn observe<A: DuplexSide>(
    first: A,
    second: Conn,
    options: DuplexOptions,
) -> (DuplexOutcome, Sum) {
    let mut duplex = Duplex::new(first, second, options, Sum::default());
    ((&mut duplex).await, duplex.into_observer())
}

/// Sends `sent`, ends the direction, and returns what arrives.
async fn send_and_receive(stream: TcpStream, sent: &[u8]) -> Vec<u8> {
    let (mut reads, mut writes) = stream.into_split();
    let sending = async {
        writes.write_all(sent).await.unwrap();
        writes.shutdown().await.unwrap();
    };
    let mut received = Vec::new();
    let ((), read) = tokio::join!(sending, reads.read_to_end(&mut received));
    read.unwrap();
    received
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// LH-END-1: every byte arrives in order before the end, in both directions, whatever moves
    /// them and whatever the rate.
    #[test]
    fn bytes_arrive_in_order_before_the_end(
        lane in prop::sample::select(&LANES),
        sizes in (0_usize..2 << 20, 0_usize..2 << 20),
        rate in prop::option::of(400_000_000_u64..8_000_000_000),
        final_ends in any::<bool>(),
    ) {
        let noise = |length: usize, seed: usize| -> Vec<u8> {
            (0..length).map(|at| (at.wrapping_mul(31) >> 3 ^ seed) as u8).collect()
        };
        let (there, back) = (noise(sizes.0, 1), noise(sizes.1, 2));
        let ends = if final_ends { EndPolicy::Final } else { EndPolicy::Revocable };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let ((outcome, sum), received, returned) = runtime.block_on(async {
            let (first, initiator) = pair().await;
            let (second, acceptor) = pair().await;
            let options = DuplexOptions {
                limits: RateLimits::new(rate),
                ..lane.options(ends)
            };
            let moving = async {
                match lane {
                    TestLane::Buffered => observe(Opaque(first), second, options).await,
                    _ => observe(first, second, options).await,
                }
            };
            let (outcome, returned, received) = tokio::join!(
                moving,
                send_and_receive(initiator, &there),
                send_and_receive(acceptor, &back)
            );
            (outcome, received, returned)
        });
        prop_assert!(received == there && returned == back, "bytes differ");
        prop_assert!(matches!(outcome.ending, DuplexEnding::Finished), "{:?}", outcome.ending);
        let moved = (there.len() as u64, back.len() as u64);
        prop_assert_eq!((outcome.forward, outcome.backward), moved);
        prop_assert_eq!(sum.counted, moved);
        prop_assert_eq!(sum.watched.is_some(), moved.0.max(moved.1) >= MIN_BULK_BYTES);
    }
}
