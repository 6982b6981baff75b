//! Moves bytes between the state machine of a session and its current connection, and replaces the
//! connection.

use std::cell::RefCell;
use std::future::Future;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Buf, Bytes};
use longhaul_hop::{Conn, Payer};
use longhaul_proto::SessionId;
use longhaul_resume::{CloseReason, ResumableEnd};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use super::continuation::{AttemptError, Continuation, ContinuationFuture, Continuations};
use super::wakers::TaskWakers;
use super::{ResumeError, ResumeEvent, ResumeObserver};

/// Size of a read from the connection, in bytes.
const READ_BYTES: usize = 128 * 1024;
/// Room for frame headers beside the data that a reader takes, in bytes.
const MAX_HEADER_BYTES: usize = 64;
/// Maximum bytes read before other tasks of the same thread get a turn.
const MAX_BYTES_PER_TURN: usize = 1024 * 1024;

thread_local! {
    /// Input is parsed before the next connection is read, so all sessions of a thread share this.
    static INPUT: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BYTES]);
}

/// A session's state machine and its connection.
pub(super) struct Link {
    pub(super) end: ResumableEnd,
    session: SessionId,
    payer: Payer,
    conn: Option<Conn>,
    /// Bytes to send before the output of `end`: the answer to a request to resume.
    answer: Bytes,
    began: Instant,
    /// Time of the last call of [`ResumableEnd::output`].
    flushed_at: Duration,
    /// Time of the last [`Turn::Both`].
    received_at: Duration,
    timer: Pin<Box<Sleep>>,
    /// Opens further connections, at the initiator.
    continuations: Option<Continuations>,
    attempt: Option<(u32, ContinuationFuture)>,
    observer: ResumeObserver,
    /// State at the last report to the observer.
    reported: ReportedState,
    /// Addresses of the latest connection: the peer's and the local one.
    addresses: (Option<SocketAddr>, Option<SocketAddr>),
    waker: Waker,
    pub(super) wakers: Arc<TaskWakers>,
}

#[derive(Debug, Default)]
struct ReportedState {
    resumed: u32,
    retransmitted: u64,
    lost_at: Option<Instant>,
    is_over: bool,
}

/// Directions in which bytes move in one turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    Both,
    /// Only output. It leaves the input for the reader, which takes it without a copy.
    Output,
}

impl Link {
    pub(super) fn new(
        session: SessionId,
        payer: Payer,
        end: ResumableEnd,
        conn: Conn,
        began: Instant,
        continuations: Option<Continuations>,
        observer: ResumeObserver,
    ) -> Self {
        let wakers = Arc::new(TaskWakers::default());
        observer.notify(session, payer, ResumeEvent::Started);
        Self {
            end,
            session,
            payer,
            addresses: (conn.peer_addr().ok(), conn.local_addr().ok()),
            conn: Some(conn),
            answer: Bytes::new(),
            began,
            flushed_at: Duration::ZERO,
            received_at: Duration::ZERO,
            timer: Box::pin(sleep_until(began)),
            continuations,
            attempt: None,
            observer,
            reported: ReportedState::default(),
            waker: Waker::from(Arc::clone(&wakers)),
            wakers,
        }
    }

    /// Returns the time since the session began.
    pub(super) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Returns the time since the input was last read.
    pub(super) fn idle_time(&self) -> Duration {
        self.now().saturating_sub(self.received_at)
    }

    /// Returns the current connection.
    pub(super) const fn conn(&self) -> Option<&Conn> {
        self.conn.as_ref()
    }

    /// Returns the addresses of the current connection, or of the last one: the peer's and the
    /// local one.
    pub(super) const fn addresses(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        self.addresses
    }

    /// Returns the error with which the session ended, if it ended early.
    pub(super) fn error(&self) -> Option<io::Error> {
        let error = ResumeError::from_reason(self.end.close_reason()?)?;
        Some(error.into())
    }

    /// Moves as much as possible. Data that arrives goes into `reader` first; returns its number of
    /// bytes. Wakes the waiting tasks when there is more to do.
    pub(super) fn drive(&mut self, turn: Turn, reader: &mut [u8]) -> usize {
        let waker = self.waker.clone();
        let cx = &mut Context::from_waker(&waker);
        let mut delivered = 0;
        loop {
            if turn == Turn::Both {
                self.received_at = self.now();
                delivered += self.receive(cx, reader.get_mut(delivered..).unwrap_or_default());
            }
            self.send(cx);
            self.poll_attempt(cx);
            if !self.end.is_attached() && self.end.close_reason().is_none() {
                // A silent connection is reset.
                self.conn = None;
            }
            let is_over = self.end.close_reason().is_some();
            if is_over {
                self.finish();
                break;
            }
            if !self.poll_timer(cx, turn) {
                break;
            }
        }
        self.report();
        delivered
    }

    fn receive(&mut self, cx: &mut Context<'_>, reader: &mut [u8]) -> usize {
        let mut delivered = 0;
        let mut turn = MAX_BYTES_PER_TURN;
        INPUT.with_borrow_mut(|input| {
            while let Some(conn) = self.conn.as_mut().filter(|_| self.end.is_attached()) {
                if turn == 0 {
                    cx.waker().wake_by_ref();
                    break;
                }
                // No more than the reader takes, as the rest would have to be copied once more.
                let room = reader.get(delivered..).unwrap_or_default().len();
                if !reader.is_empty() && (delivered > 0 || room == 0) {
                    break;
                }
                let wanted = match room {
                    0 => READ_BYTES,
                    room => room.saturating_add(MAX_HEADER_BYTES).min(READ_BYTES),
                };
                let mut buffer = ReadBuf::new(input.get_mut(..wanted).unwrap_or_default());
                let read = Pin::new(conn).poll_read(cx, &mut buffer);
                let now = self.began.elapsed();
                match read {
                    Poll::Pending => break,
                    Poll::Ready(Err(error)) => {
                        self.end.on_link_failed(now, error.to_string());
                        self.conn = None;
                    }
                    Poll::Ready(Ok(())) if buffer.filled().is_empty() => {
                        self.end.on_link_ended(now);
                        if self.end.close_reason().is_none() {
                            self.conn = None;
                        }
                    }
                    Poll::Ready(Ok(())) => {
                        let filled = buffer.filled();
                        turn = turn.saturating_sub(filled.len());
                        let room = reader.get_mut(delivered..).unwrap_or_default();
                        delivered += self.end.on_input(now, filled, room);
                    }
                }
            }
        });
        delivered
    }

    fn send(&mut self, cx: &mut Context<'_>) {
        self.flushed_at = self.began.elapsed();
        while let Some(conn) = self.conn.as_mut().filter(|_| self.end.is_attached()) {
            let now = self.flushed_at;
            let written = if self.answer.is_empty() {
                let parts = self.end.output(now);
                if parts.iter().all(|part| part.is_empty()) {
                    break;
                }
                Pin::new(conn).poll_write_vectored(cx, &parts.map(IoSlice::new))
            } else {
                Pin::new(conn).poll_write(cx, &self.answer)
            };
            match written {
                Poll::Pending => return,
                Poll::Ready(Ok(count)) if count > 0 && !self.answer.is_empty() => {
                    self.answer.advance(count);
                }
                Poll::Ready(Ok(count)) if count > 0 => self.end.on_written(now, count),
                Poll::Ready(other) => {
                    let error = other
                        .err()
                        .unwrap_or_else(|| io::ErrorKind::WriteZero.into());
                    self.end.on_link_failed(now, error.to_string());
                    self.conn = None;
                }
            }
        }
        if self.end.wants_output_end()
            && let Some(conn) = &mut self.conn
        {
            // What was sent must arrive even if this process ends now.
            conn.end_cleanly();
            let now = self.began.elapsed();
            match conn.shutdown_write() {
                Ok(()) => self.end.on_output_ended(now),
                Err(error) => self.end.on_link_failed(now, error.to_string()),
            }
        }
    }

    /// Opens another connection, if one is due.
    fn poll_attempt(&mut self, cx: &mut Context<'_>) {
        let Some(continuations) = &mut self.continuations else {
            return;
        };
        loop {
            let now = self.began.elapsed();
            if self.attempt.is_none()
                && let Some(attempt) = self.end.poll_attempt(now)
            {
                self.conn = None;
                let round_trip = self.end.round_trip();
                match continuations.start(now, attempt, round_trip) {
                    Ok(future) => self.attempt = Some((attempt.epoch, future)),
                    Err((delay, why)) => self.end.on_attempt_failed(now, delay, why),
                }
            }
            let Some((epoch, future)) = &mut self.attempt else {
                return;
            };
            let epoch = *epoch;
            let Poll::Ready(result) = future.as_mut().poll(cx) else {
                return;
            };
            self.attempt = None;
            let now = self.began.elapsed();
            match result {
                Ok(Continuation {
                    conn,
                    received,
                    ahead,
                    route,
                }) => {
                    if self.end.attach(now, epoch, received).is_ok() {
                        continuations.attached(now, route);
                        self.use_conn(conn, &ahead);
                    }
                    // Its first bytes have to be read and written.
                    cx.waker().wake_by_ref();
                    return;
                }
                Err(AttemptError::Refused(why)) => return self.end.on_refused(why),
                Err(AttemptError::Failed(why)) => {
                    self.end.on_attempt_failed(now, Duration::ZERO, why);
                }
            }
        }
    }

    fn use_conn(&mut self, conn: Conn, ahead: &[u8]) {
        self.addresses = (conn.peer_addr().ok(), conn.local_addr().ok());
        self.conn = Some(conn);
        self.answer = Bytes::new();
        let now = self.began.elapsed();
        self.end.on_input(now, ahead, &mut []);
    }

    /// Continues over the initiator's new connection, once `answer` is sent. The connection has
    /// been attached to `end`.
    pub(super) fn accept(&mut self, conn: Conn, ahead: &[u8], answer: Bytes) {
        self.use_conn(conn, ahead);
        self.answer = answer;
        self.drive(Turn::Both, &mut []);
        self.wakers.wake_all();
    }

    /// Lets due time limits pass. Returns true if something was due. A turn without input leaves
    /// them to the next one, as the input may hold the answer that seems to be missing.
    fn poll_timer(&mut self, cx: &mut Context<'_>, turn: Turn) -> bool {
        let Some(next) = self.end.next_timeout(self.flushed_at) else {
            return false;
        };
        let now = self.began.elapsed();
        if next <= now {
            return match turn {
                Turn::Both => {
                    self.end.on_timeout(now);
                    true
                }
                // Output that has become due since the last one.
                Turn::Output => next > self.flushed_at,
            };
        }
        let due = self.began + next;
        // Later times wait until the timer fires: it is not reset for every byte.
        if self.timer.deadline() > due || self.timer.is_elapsed() {
            self.timer.as_mut().reset(due);
        }
        while self.timer.as_mut().poll(cx).is_ready() {
            if Instant::now() >= due {
                return true;
            }
            self.timer.as_mut().reset(due);
        }
        false
    }

    /// Lets go of the connection of a stream that is over.
    fn finish(&mut self) {
        self.attempt = None;
        let Some(conn) = self.conn.take() else {
            return;
        };
        let is_orderly = matches!(
            self.end.close_reason(),
            Some(CloseReason::Finished | CloseReason::ResetByPeer | CloseReason::ResetHere)
        );
        // Otherwise dropping it resets it.
        if is_orderly {
            conn.close();
        }
    }

    /// Tells the observer what has changed.
    fn report(&mut self) {
        if self.reported.is_over {
            return;
        }
        let counts = self.end.counts();
        let is_attached = self.end.is_attached();
        let notify = |event: ResumeEvent<'_>| {
            self.observer.notify(self.session, self.payer, event);
        };
        if counts.resumed != self.reported.resumed {
            let lost_at = self.reported.lost_at.take();
            notify(ResumeEvent::Resumed {
                route: self.continuations.as_ref().map(Continuations::route),
                after: lost_at.map_or(Duration::ZERO, |at| at.elapsed()),
                retransmitted: counts
                    .retransmitted
                    .saturating_sub(self.reported.retransmitted),
            });
            self.reported.resumed = counts.resumed;
            self.reported.retransmitted = counts.retransmitted;
        }
        let reason = self.end.close_reason();
        if !is_attached && reason.is_none() && self.reported.lost_at.is_none() {
            self.reported.lost_at = Some(Instant::now());
            notify(ResumeEvent::Lost);
        }
        if let Some(reason) = reason {
            self.reported.is_over = true;
            if let Some(error) = ResumeError::from_reason(reason)
                && error != ResumeError::Reset
            {
                notify(ResumeEvent::GivenUp(&error));
            }
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.observer
            .notify(self.session, self.payer, ResumeEvent::Ended);
    }
}
