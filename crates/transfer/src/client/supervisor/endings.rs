//! What becomes of a stream that has ended, and of those that are left when the copy is over.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::Supervisor;
use super::slot::{Slot, SlotState};
use crate::client::attempt::{CLOSE_TIMEOUT, Ended, Lost};
use crate::client::{Connector, Side};
use crate::error::Error;
use crate::progress::Event;
use crate::receive::StreamEnd;

/// First pause before a lost stream is opened again; it doubles each time up to the second.
const FIRST_RETRY_AFTER: Duration = Duration::from_millis(250);
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(4);
/// How long the report of a finished copy waits for its streams to end on this side.
const REPORT_WAITS_FOR_STREAMS: Duration = Duration::from_millis(30);

impl<C: Connector> Supervisor<'_, C> {
    pub(super) fn ended(&mut self, mut ended: Ended) -> Result<(), Error> {
        self.finished.extend(ended.take_finished(&self.leaving));
        let current = |slot: &&mut Slot| slot.attempts == ended.attempt && slot.under_way.is_some();
        let (stands_another, may_be_known) = (self.has_accepted_stream(), self.may_be_known());
        // One that was given up has ended before.
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
            // What it still carried has gone back to the queue, whichever way it ended.
            Ok(StreamEnd::Closed) | Err(Lost::Stream(Error::Stream(_))) if retired => return Ok(()),
            Ok(StreamEnd::Closed) => (
                Error::StreamsLost(format!("the server closed the stream over route {route}")),
                true,
            ),
            Err(Lost::Stream(error @ (Error::Disagreement | Error::CopyLost(_)))) => {
                return Err(error);
            }
            Err(Lost::Stream(error @ (Error::Refused(_) | Error::Limit(_))))
                if !ended.accepted && stands_another =>
            {
                surplus = true;
                (error, false)
            }
            // What it refuses is to resume (LH-COPY-10).
            Err(Lost::Stream(Error::Refused(why))) if !ended.accepted && may_be_known => {
                return Err(Error::CopyLost(why));
            }
            // It may not know yet that the streams that are lost are gone.
            Err(Lost::Stream(error @ Error::Limit(_)))
                if !ended.accepted && self.run.patience.has_stood() =>
            {
                (error, true)
            }
            Err(Lost::Stream(Error::Stream(error))) => (
                Error::StreamsLost(format!("the stream over route {route} was lost: {error}")),
                true,
            ),
            Err(Lost::Stream(error)) => (error, false),
            Err(Lost::Connect(error)) => {
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
            let pause = FIRST_RETRY_AFTER
                .saturating_mul(1 << slot.failures.min(8))
                .min(MAX_RETRY_PAUSE);
            slot.failures += 1;
            SlotState::Due(Instant::now() + pause)
        } else if surplus {
            SlotState::Free
        } else {
            SlotState::Failed
        };
        // What a copy ends by is in its report.
        let is_silent = surplus || self.none_left();
        self.client.observer.event(Event::StreamLost {
            stream: ended.opened,
            route,
            reason,
            is_silent,
        });
        if surplus {
            self.no_more_before = Instant::now() + MAX_RETRY_PAUSE;
        }
        if !self.ever_open {
            // Whoever knows other routes learns of it at once.
            self.next_look = Instant::now();
        }
        // What was said of who asks, or by the hop itself, says more than a later echo. What
        // befalls reserved ways is not what a copy ends by.
        if surplus || (self.is_reserved(number) && self.ever_open) {
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

    /// Returns whether the server may know the copy: it has accepted a stream, or its ACCEPT to one
    /// was lost.
    fn may_be_known(&self) -> bool {
        self.accepted || (self.run.patience.has_stood() && self.unaccepted_losses > 0)
    }

    /// The copy is over: streams that are open close by themselves, one that hangs on a dead path
    /// is left behind, and those that are still being opened are given up. What is returned ends
    /// when nobody needs the streams any more.
    pub(super) async fn wind_down(&mut self) -> JoinSet<()> {
        let never_open = |slot: &&mut Slot| slot.is_running() && slot.counters.get().is_none();
        self.slots
            .iter_mut()
            .filter(never_open)
            .for_each(Slot::give_up);
        let mut tasks = std::mem::take(&mut self.tasks);
        let mut finished = std::mem::take(&mut self.finished);
        let leaving = self.leaving.clone();
        // Those that are open end at once, and what they counted belongs in the report.
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
        let _ = timeout(REPORT_WAITS_FOR_STREAMS, open).await;
        // The last word of a push is the server's. That of a pull is said on every stream: that the
        // connection is lost before one of several has arrived is not worth a round trip of every
        // copy.
        let needs_answer = matches!(self.side, Side::Pull(_)) && finished.len() < 2;
        let mut closing = JoinSet::new();
        for stream in finished {
            match needs_answer {
                true => closing.spawn(stream.closed()),
                false => closing.spawn(stream.said()),
            };
        }
        let others = async move {
            let all = async {
                while let Some(ended) = tasks.join_next().await {
                    if let Some(stream) = ended.ok().and_then(|ended| ended.closing) {
                        stream.closed().await;
                    }
                }
            };
            let _ = timeout(CLOSE_TIMEOUT, all).await;
        };
        if needs_answer {
            closing.spawn(others);
        } else {
            // One may be in the middle of a block that came by another one as well: it ends by
            // itself, if there is time for that.
            tokio::spawn(others);
        }
        closing
    }
}
