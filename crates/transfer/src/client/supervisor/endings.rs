//! Handles streams that have ended, and the streams that are left at the end of the copy.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::Supervisor;
use super::slot::{Slot, SlotState};
use crate::client::Connector;
use crate::client::attempt::{AttemptEnd, AttemptError, CLOSE_TIMEOUT};
use crate::error::Error;
use crate::half::Half;
use crate::progress::TransferEvent;
use crate::receive::StreamEnd;

/// First pause before a lost stream is reopened. It doubles each time, up to [`MAX_RETRY_PAUSE`].
const FIRST_RETRY_PAUSE: Duration = Duration::from_millis(250);
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(4);
/// Time for which the report of a finished copy waits for its streams to end on this side.
const STREAM_END_TIMEOUT: Duration = Duration::from_millis(30);

impl<C: Connector> Supervisor<'_, C> {
    pub(super) fn handle_end(&mut self, mut ended: AttemptEnd) -> Result<(), Error> {
        self.finished.extend(ended.take_finished(&self.leaving));
        let current = |slot: &&mut Slot| slot.attempts == ended.attempt && slot.under_way.is_some();
        let (stands_another, may_be_known) = (self.has_accepted_stream(), self.may_be_known());
        // A stream that was given up has ended before.
        let Some(slot) = self.slots.get_mut(ended.slot).filter(current) else {
            return Ok(());
        };
        slot.under_way = None;
        let retired = std::mem::replace(&mut slot.stream, SlotState::Free) == SlotState::Retiring;
        if ended.opened.is_some() {
            self.ever_open = true;
        }
        if ended.accepted {
            slot.failures = 0;
        } else if ended.opened.is_some() && !self.accepted {
            self.unaccepted_losses += 1;
        }
        let number = slot.route;
        let route = self.routes.get(number).cloned().unwrap_or_default();
        let mut surplus = false;
        let (error, retry) = match ended.result {
            Ok(StreamEnd::Finished) => return Ok(()),
            // Its remaining work has returned to the queue in either case.
            Ok(StreamEnd::Closed) | Err(AttemptError::Stream(Error::Stream(_))) if retired => {
                return Ok(());
            }
            Ok(StreamEnd::Closed) => (
                Error::StreamsLost(format!("the server closed the stream over route {route}")),
                true,
            ),
            Err(AttemptError::Stream(error @ (Error::Disagreement | Error::CopyLost(_)))) => {
                return Err(error);
            }
            Err(AttemptError::Stream(error @ (Error::Refused(_) | Error::Limit(_))))
                if !ended.accepted && stands_another =>
            {
                surplus = true;
                (error, false)
            }
            // The server refuses to resume the copy (LH-COPY-10).
            Err(AttemptError::Stream(Error::Refused(why))) if !ended.accepted && may_be_known => {
                return Err(Error::CopyLost(why));
            }
            // The server may not have noticed yet that the lost streams are gone.
            Err(AttemptError::Stream(error @ Error::Limit(_)))
                if !ended.accepted && self.run.patience.was_established() =>
            {
                (error, true)
            }
            Err(AttemptError::Stream(Error::Stream(error))) => (
                Error::StreamsLost(format!("the stream over route {route} was lost: {error}")),
                true,
            ),
            Err(AttemptError::Stream(error)) => (error, false),
            Err(AttemptError::Connect(error)) => {
                let retry = error.retry && (self.ever_open || *self.open.borrow() > 0);
                let text = format!("route {route}: {}", error.message);
                (error.into_error(text), retry)
            }
        };
        let reason = match &error {
            Error::StreamsLost(reason) => reason.clone(),
            error => error.to_string(),
        };
        slot.stream = if retry {
            let pause = FIRST_RETRY_PAUSE
                .saturating_mul(1 << slot.failures.min(8))
                .min(MAX_RETRY_PAUSE);
            slot.failures += 1;
            SlotState::Due(Instant::now() + pause)
        } else if surplus {
            SlotState::Free
        } else {
            SlotState::Failed
        };
        // The error that ends a copy is in its report.
        let is_silent = surplus || self.has_no_stream_left();
        self.client.observer.event(TransferEvent::StreamLost {
            stream: ended.opened,
            route,
            reason,
            is_silent,
        });
        if surplus {
            self.no_more_before = Instant::now() + MAX_RETRY_PAUSE;
        }
        if !self.ever_open {
            // A component that knows other routes learns of it immediately.
            self.next_look = Instant::now();
        }
        // An error about the key, or from the hop itself, says more than a later consequence.
        // Errors of reserved paths and other transports do not
        // end a copy.
        if surplus || (self.is_separate(number) && self.ever_open) {
            return Ok(());
        }
        if !matches!(
            (&self.last_error, &error),
            (
                Some(Error::Connect(_) | Error::Unauthorised(_)),
                Error::StreamsLost(_)
            )
        ) {
            self.last_error = Some(error);
        }
        Ok(())
    }

    /// Returns true if the server may know the copy: it has accepted a stream, or its ACCEPT to one
    /// was lost.
    fn may_be_known(&self) -> bool {
        self.accepted || (self.run.patience.was_established() && self.unaccepted_losses > 0)
    }

    /// Winds down the streams after the end of the copy. Open streams close by themselves, one that
    /// hangs on a dead path is abandoned, and those still opening are given up. The returned tasks
    /// end when no stream is needed any more.
    pub(super) async fn wind_down(&mut self) -> JoinSet<()> {
        let never_open = |slot: &&mut Slot| slot.is_running() && slot.counters.get().is_none();
        self.slots
            .iter_mut()
            .filter(never_open)
            .for_each(Slot::give_up);
        let mut tasks = std::mem::take(&mut self.tasks);
        let mut finished = std::mem::take(&mut self.finished);
        let leaving = self.leaving.clone();
        // Open streams end at once, and their counters belong in the report.
        let open = async {
            while *self.open.borrow() > 0
                && let Some(ended) = tasks.join_next().await
            {
                finished.extend(
                    ended
                        .ok()
                        .and_then(|mut ended| ended.take_finished(&leaving)),
                );
            }
        };
        let _ = timeout(STREAM_END_TIMEOUT, open).await;
        // The last message of a push comes from the server. That of a pull is sent on every stream.
        // A lost connection before one of several has arrived is too unlikely to spend a round trip
        // on every copy.
        let needs_answer = matches!(self.half, Half::Receiving(_)) && finished.len() < 2;
        let mut closing = JoinSet::new();
        for stream in finished {
            match needs_answer {
                true => closing.spawn(stream.wait_closed()),
                false => closing.spawn(stream.wait_sent()),
            };
        }
        let others = async move {
            let all = async {
                while let Some(ended) = tasks.join_next().await {
                    if let Some(stream) = ended.ok().and_then(|ended| ended.closing) {
                        stream.wait_closed().await;
                    }
                }
            };
            let _ = timeout(CLOSE_TIMEOUT, all).await;
        };
        if needs_answer {
            closing.spawn(others);
        } else {
            // A stream may be in the middle of a block that also arrived over another one. It ends
            // by itself, if there is time.
            tokio::spawn(others);
        }
        closing
    }
}
