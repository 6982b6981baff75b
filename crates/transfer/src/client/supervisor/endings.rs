//! What becomes of a stream that has ended, and of those that are left when the copy is over.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::Supervisor;
use super::slot::{Slot, SlotState};
use crate::client::Connector;
use crate::client::attempt::{CLOSE_TIMEOUT, Ended, Lost};
use crate::error::Error;
use crate::progress::Event;
use crate::receive::StreamEnd;

/// First pause before a lost stream is opened again; it doubles each time up to the second.
const FIRST_RETRY_AFTER: Duration = Duration::from_millis(250);
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(4);
/// How long the report of a finished copy waits for its streams to end on this side.
const REPORT_WAITS_FOR_STREAMS: Duration = Duration::from_millis(30);

impl<C: Connector> Supervisor<'_, C> {
    pub(super) fn ended(&mut self, ended: Ended) -> Result<(), Error> {
        let current = |slot: &&mut Slot| slot.attempts == ended.attempt && slot.under_way.is_some();
        // One that was given up has ended before.
        let Some(slot) = self.slots.get_mut(ended.slot).filter(current) else {
            return Ok(());
        };
        slot.under_way = None;
        let retired = std::mem::replace(&mut slot.stream, SlotState::Free) == SlotState::Retiring;
        if ended.opened.is_some() {
            slot.failures = 0;
            self.ever_open = true;
        }
        let route = self.routes.get(slot.route).cloned().unwrap_or_default();
        let (error, retry) = match ended.result {
            Ok(StreamEnd::Finished) => return Ok(()),
            // What it still carried has gone back to the queue, whichever way it ended.
            Ok(StreamEnd::Closed) | Err(Lost::Stream(Error::Stream(_))) if retired => return Ok(()),
            Ok(StreamEnd::Closed) => (
                Error::StreamsLost(format!("the server closed the stream over route {route}")),
                true,
            ),
            Err(Lost::Stream(error @ (Error::Disagreement | Error::Forgotten))) => return Err(error),
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
        let reason = error.to_string();
        self.client.observer.event(Event::StreamLost {
            stream: ended.opened,
            route,
            reason,
        });
        slot.stream = if retry {
            let pause = FIRST_RETRY_AFTER
                .saturating_mul(1 << slot.failures.min(8))
                .min(MAX_RETRY_PAUSE);
            slot.failures += 1;
            SlotState::Due(Instant::now() + pause)
        } else {
            SlotState::Failed
        };
        // What was said of who asks, or by the hop itself, tells more than a later echo.
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

    /// The copy is over: streams that are open close by themselves, one that hangs on a dead path is left behind, and those that are still being opened are
    /// given up.
    pub(super) async fn wind_down(&mut self, mut closing: JoinSet<()>) -> JoinSet<()> {
        let never_open = |slot: &&mut Slot| slot.is_running() && slot.counters.get().is_none();
        self.slots.iter_mut().filter(never_open).for_each(Slot::give_up);
        let mut tasks = std::mem::take(&mut self.tasks);
        // Those that are open end at once, and what they counted belongs in the report.
        let open = async {
            while *self.open.borrow() > 0
                && let Some(ended) = tasks.join_next().await
            {
                if let Ok(Ended {
                    closing: Some(ended), ..
                }) = ended
                {
                    closing.spawn(async move {
                        ended.join_all().await;
                    });
                }
            }
        };
        let _ = timeout(REPORT_WAITS_FOR_STREAMS, open).await;
        closing.spawn(async move {
            let all = async {
                while let Some(ended) = tasks.join_next().await {
                    if let Ok(Ended {
                        closing: Some(closing),
                        ..
                    }) = ended
                    {
                        closing.join_all().await;
                    }
                }
            };
            let _ = timeout(CLOSE_TIMEOUT, all).await;
        });
        closing
    }
}
