//! Detects whether the copy is carried, and limits how long it waits for its server.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use quantities::Time;
use tokio::time::Instant;

use super::Supervisor;
use super::slot::Slot;
use crate::client::Connector;
use crate::client::patience::{LOOK_INTERVAL, Outlook, PatienceView};
use crate::error::Error;
use crate::progress::{Event, StreamCounters};

/// Silence after which the observer is told that the copy waits.
const REPORTED_SILENCE: Duration = Duration::from_secs(5);

impl<C: Connector> Supervisor<'_, C> {
    /// Returns the established streams that the server has accepted.
    fn accepted_streams(&self) -> impl Iterator<Item = &StreamCounters> {
        let running = self.slots.iter().filter(|slot| slot.is_running());
        let counters = running
            .filter_map(|slot| slot.counters.get())
            .map(Arc::as_ref);
        counters.filter(|counters| counters.open.load(Ordering::Relaxed) && counters.is_accepted())
    }

    /// Returns true if a stream is established that the server has accepted.
    pub(super) fn has_accepted_stream(&self) -> bool {
        self.accepted_streams().next().is_some()
    }

    /// Checks whether anything arrives, if a check is due, and informs the observer.
    pub(super) fn look_for_outage(&mut self) {
        let now = Instant::now();
        let progress = &self.client.progress;
        let arrivals = progress.arrivals();
        if now < self.next_outlook && self.run.patience.has_stood() == (arrivals > 0) {
            return;
        }
        self.next_outlook = now + LOOK_INTERVAL;
        let has_stream = self.has_accepted_stream();
        // A disk on this side may block all of them, which is no outage.
        let is_busy = self.accepted_streams().any(StreamCounters::is_busy);
        self.outlook = self.run.patience.look(&PatienceView {
            now,
            has_stream,
            is_busy,
            arrivals,
            done: progress
                .entries_done
                .load(Ordering::Relaxed)
                .saturating_add(progress.bytes_done.load(Ordering::Relaxed)),
        });
        let silence = match self.outlook {
            Outlook::Waiting(silence) => Some(silence),
            Outlook::Opening | Outlook::Carried | Outlook::Lost(_) => None,
        };
        self.report_silence(silence);
    }

    /// Reports for how long nothing has arrived, if that is worth showing.
    pub(super) fn report_silence(&mut self, silence: Option<Duration>) {
        self.client.progress.set_silence(silence);
        match (silence, self.reported_wait) {
            (Some(silence), None) if silence < REPORTED_SILENCE => {}
            (Some(silence), before) => {
                self.reported_wait = Some(silence);
                if before.is_none() {
                    let patience = self.client.patience;
                    self.client
                        .observer
                        .event(Event::Waiting { silence, patience });
                }
            }
            (None, Some(after)) => {
                self.reported_wait = None;
                self.client.observer.event(Event::Back { after });
            }
            (None, None) => {}
        }
    }

    /// Returns true if a stream that is due may be opened now. In an outage, one per route is
    /// enough to detect its end.
    pub(super) fn may_start(&self, slot: &Slot) -> bool {
        if !self.run.patience.has_stood() || self.has_accepted_stream() {
            return true;
        }
        let others = self.slots.iter().filter(|other| other.route == slot.route);
        !others.into_iter().any(Slot::is_running)
    }

    /// Returns the error of a copy whose outage has lasted too long.
    pub(super) fn lose_patience(&mut self, outage: Duration) -> Error {
        self.client.progress.set_silence(None);
        let waited = Time(Duration::from_secs(outage.as_secs()));
        match self.give_up() {
            Error::StreamsLost(reason) => Error::StreamsLost(format!(
                "nothing arrived for {waited} (--patience): {reason}"
            )),
            // A temporary limit, or a depot: the text has the last error of the attempts.
            error => Error::StreamsLost(format!(
                "nothing arrived for {waited} (--patience): {error}"
            )),
        }
    }
}
