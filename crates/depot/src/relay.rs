//! Moves a session's bytes unread in both directions (LH-DEPOT-3) until both sides have ended or
//! one has died.
//!
//! One future drives both directions, so a wake-up on either socket costs one task switch. Its
//! guarantees are the table in `docs/close-states.md`. An end of stream on one side becomes a FIN
//! on the other once everything before it has been delivered to the kernel (LH-END-1). A death on
//! one side becomes a reset on the other (LH-END-3).
//!
//! Besides these, only the idle timeout, the half-close timeout, a size beyond the stated one and
//! the end of a drain end a session, and those are resets too.

mod batch;
mod direction;
pub(crate) mod hops;
pub(crate) mod pipe;

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use longhaul_hop::Conn;
use longhaul_policy::RateLimits;
use tokio::time::{Instant, Sleep};

use crate::metrics::Traffic;
use direction::{Advance, Direction, Stop};
use hops::{HopTallies, Hops, HopsSeen};
use pipe::PipePool;

/// Side of the relayed session: towards the initiator, or towards the acceptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// The hop on which the OPEN arrived.
    Upstream,
    /// The hop that was dialled.
    Downstream,
}

/// Outcome of a relayed session. Only [`Ending::Finished`] is clean.
#[derive(Debug)]
pub(crate) enum Ending {
    /// Both directions ended with a FIN and everything was delivered.
    Finished,
    /// A side was reset, timed out or became unreachable; the other was reset.
    Died(Side, io::Error),
    /// The idle timeout passed without a byte moving; both sides were reset.
    Idle,
    /// One direction had ended and no byte moved in the other for the half-close timeout; both were
    /// reset.
    HalfClosed,
    /// One direction exceeded the size stated by the initiator, under a rule that bounds it
    /// (LH-WISH-2); both were reset.
    BeyondSize,
    /// The depot was told to stop and the drain deadline passed; both were reset.
    Drained,
}

/// Maximum idle times of a session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Silence {
    /// Limit while both directions are open.
    pub(crate) open: Duration,
    /// Limit once one direction has ended.
    pub(crate) half_closed: Duration,
}

/// State of the depot that a relay needs.
#[derive(Debug, Clone)]
pub(crate) struct RelayContext {
    pub(crate) pipes: Arc<PipePool>,
    pub(crate) silence: Silence,
    pub(crate) traffic: Traffic,
    /// Initial rate limits: those of the policy rule, or of the granted circuit.
    pub(crate) limits: RateLimits,
    /// Maximum number of bytes that each direction may carry.
    pub(crate) most_bytes: u64,
}

/// Result of a relayed session.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) ending: Ending,
    /// Bytes that the kernel accepted for the acceptor's side, without those sent before the relay
    /// began.
    pub(crate) forward: u64,
    /// Bytes that the kernel accepted for the initiator's side.
    pub(crate) backward: u64,
    /// Time spent under each limit at both hops.
    pub(crate) hops: HopTallies,
    /// Further observations of the hops; `None` if too few bytes moved.
    pub(crate) seen: Option<HopsSeen>,
}

/// Future that relays. It completes with the sockets closed: cleanly after [`Ending::Finished`],
/// otherwise with resets.
pub(crate) struct Relay {
    /// `None` once closed.
    sides: Option<(Conn, Conn)>,
    forward: Direction,
    backward: Direction,
    context: RelayContext,
    timer: Pin<Box<Sleep>>,
    /// Bytes moved when the timer was last set. Comparing it measures silence without resetting the
    /// timer for every byte.
    moved_at_check: u64,
    half_closed_at_check: bool,
    /// Set once the session moves bulk data.
    hops: Option<Box<Hops>>,
}

impl Relay {
    /// Relays between `upstream` and `downstream`. `upstream_ended` is true if the upstream's end
    /// of stream has already been read (with the early data).
    pub(crate) fn new(
        upstream: Conn,
        downstream: Conn,
        upstream_ended: bool,
        context: RelayContext,
    ) -> Self {
        let timer = Box::pin(tokio::time::sleep(context.silence.open));
        let splices = upstream.splices() && downstream.splices();
        let RateLimits { forward, backward } = context.limits.clone();
        Self {
            sides: Some((upstream, downstream)),
            forward: Direction::new(forward, upstream_ended, splices),
            backward: Direction::new(backward, false, splices),
            context,
            timer,
            moved_at_check: 0,
            half_closed_at_check: false,
            hops: None,
        }
    }

    /// Replaces the rate limits. The relay must be polled afterwards.
    pub(crate) fn limit(&mut self, limits: RateLimits) {
        self.forward.limit(limits.forward);
        self.backward.limit(limits.backward);
    }

    /// Ends the session now, with resets.
    pub(crate) fn abort(&mut self, ending: Ending) -> Report {
        self.sides = None;
        self.report(ending)
    }

    fn report(&self, ending: Ending) -> Report {
        Report {
            ending,
            forward: self.forward.moved,
            backward: self.backward.moved,
            hops: self
                .hops
                .as_ref()
                .map(|hops| hops.tallies())
                .unwrap_or_default(),
            seen: self.hops.as_ref().map(|hops| hops.seen()),
        }
    }

    /// Moves as many bytes as possible. Returns `Some` when the session has ended.
    fn advance(&mut self, cx: &mut Context<'_>) -> Option<Ending> {
        let Some((upstream, downstream)) = &mut self.sides else {
            return Some(Ending::Finished);
        };
        let before = (self.forward.moved, self.backward.moved);
        let pipes = &self.context.pipes;
        let there = self.forward.advance(cx, upstream, downstream, pipes);
        let back = self.backward.advance(cx, downstream, upstream, pipes);
        self.context.traffic.count(
            self.forward.moved - before.0,
            self.backward.moved - before.1,
        );
        if self.forward.moved.max(self.backward.moved) > self.context.most_bytes {
            return Some(Ending::BeyondSize);
        }
        if self.hops.is_none() {
            self.hops = Hops::of(self.forward.moved, self.backward.moved);
        }
        if let Some(hops) = &mut self.hops {
            hops.look(upstream, downstream);
        }
        match (there, back) {
            (Advance::Failed(Stop::Reading(error)), _)
            | (_, Advance::Failed(Stop::Writing(error))) => {
                return Some(Ending::Died(Side::Upstream, error));
            }
            (Advance::Failed(Stop::Writing(error)), _)
            | (_, Advance::Failed(Stop::Reading(error))) => {
                return Some(Ending::Died(Side::Downstream, error));
            }
            (Advance::Ended, Advance::Ended) => return Some(Ending::Finished),
            _ => {}
        }
        // A side that is still owed bytes may die while nothing is read from it, because it has
        // ended its own direction or that direction is held up. The detection must not wait for the
        // next byte.
        if !self.forward.has_ended()
            && let Poll::Ready(error) = downstream.poll_broken(cx)
        {
            return Some(Ending::Died(Side::Downstream, error));
        }
        if !self.backward.has_ended()
            && let Poll::Ready(error) = upstream.poll_broken(cx)
        {
            return Some(Ending::Died(Side::Upstream, error));
        }
        self.check_silence(cx)
    }

    fn check_silence(&mut self, cx: &mut Context<'_>) -> Option<Ending> {
        let half_closed = self.forward.has_ended() || self.backward.has_ended();
        let moved = self.forward.moved.wrapping_add(self.backward.moved);
        let allowed = if half_closed {
            self.context.silence.half_closed
        } else {
            self.context.silence.open
        };
        if half_closed != self.half_closed_at_check {
            self.half_closed_at_check = half_closed;
            self.moved_at_check = moved;
            self.timer.as_mut().reset(Instant::now() + allowed);
        }
        while self.timer.as_mut().poll(cx).is_ready() {
            if moved == self.moved_at_check {
                return Some(if half_closed {
                    Ending::HalfClosed
                } else {
                    Ending::Idle
                });
            }
            self.moved_at_check = moved;
            self.timer.as_mut().reset(Instant::now() + allowed);
        }
        None
    }
}

impl Future for Relay {
    type Output = Report;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Report> {
        let relay = &mut *self;
        match relay.advance(cx) {
            None => Poll::Pending,
            Some(Ending::Finished) => {
                if let Some((upstream, downstream)) = relay.sides.take() {
                    upstream.close();
                    downstream.close();
                }
                Poll::Ready(relay.report(Ending::Finished))
            }
            Some(ending) => Poll::Ready(relay.abort(ending)),
        }
    }
}

#[cfg(test)]
mod tests {
    use longhaul_hop::{Dialled, Options, RateLimit, dial};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::pipe::PipeBounds;
    use super::*;
    use crate::metrics::Metrics;

    /// Returns a connection over loopback: the depot's end, and the other.
    async fn pair() -> (Conn, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        let dialled = dial(
            std::slice::from_ref(&address),
            |_| Options::default(),
            deadline,
        );
        let (dialled, accepted) = tokio::join!(dialled, listener.accept());
        let Dialled { conn, .. } = dialled.unwrap();
        (conn, accepted.unwrap().0)
    }

    fn context() -> RelayContext {
        let hour = Duration::from_secs(3600);
        RelayContext {
            pipes: PipePool::new(PipeBounds {
                size: 1 << 16,
                total: 1 << 20,
                spare: 1,
            }),
            silence: Silence {
                open: hour,
                half_closed: hour,
            },
            traffic: Metrics::new().traffic.clone(),
            limits: RateLimits {
                forward: Arc::new(RateLimit::new(None)),
                backward: Arc::new(RateLimit::new(None)),
            },
            most_bytes: u64::MAX,
        }
    }

    /// LH-END-3: if a side dies before bytes for it arrive, writing them consumes its error. The
    /// end that a read then appears to return must not be relayed.
    #[tokio::test]
    async fn a_death_found_by_a_write_is_not_an_end_of_stream() {
        for initiator_dies in [false, true] {
            let (upstream, initiator) = pair().await;
            let (downstream, acceptor) = pair().await;
            let (dies, mut lives, at) = if initiator_dies {
                (initiator, acceptor, Side::Upstream)
            } else {
                (acceptor, initiator, Side::Downstream)
            };
            lives.write_all(b"x").await.unwrap();
            dies.set_zero_linger().unwrap();
            drop(dies);
            let report = Relay::new(upstream, downstream, false, context()).await;
            assert!(
                matches!(&report.ending, Ending::Died(side, error)
                    if *side == at && error.kind() == io::ErrorKind::ConnectionReset),
                "{report:?}"
            );
            let error = lives.read_u8().await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
        }
    }
}
