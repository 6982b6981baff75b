//! Decides how long a copy waits for a server that it has lost.
//!
//! A copy is *carried* while a stream is established and data arrives on it. An *outage* begins
//! with the last arrival. It ends when the copy gets further than ever before, or has been carried
//! for [`SOUND_AFTER`]. Streams that open and break immediately do not end it. An outage that
//! exceeds the user's patience ends the copy.
//!
//! Only running time counts. The monotonic clock stands still while the machine is suspended. A
//! process that was stopped observes late, and such a gap counts as [`MAX_COUNTED_GAP`].
//!
//! This module has no clock and no sockets; the supervisor feeds it.

use std::time::Duration;

use tokio::time::Instant;

use crate::frame_io::KEEP_ALIVE;

/// Interval between two observations.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum time that counts between two observations. Longer gaps occur only if the process was
/// stopped.
const MAX_COUNTED_GAP: Duration = Duration::from_secs(2);
/// Silence after which an established stream carries nothing: a server sends something every
/// [`KEEP_ALIVE`].
const MAX_SILENCE: Duration = Duration::from_secs(2 * KEEP_ALIVE.as_secs());
/// Silence after which the user is told that nothing arrives.
const SHOWN_SILENCE: Duration = Duration::from_secs(3);
/// Time for which a copy must be carried without interruption to end an outage.
const SOUND_AFTER: Duration = Duration::from_secs(10);
/// Maximum number of consecutive copies that are lost without getting further than an earlier one.
/// A server may crash at the same file each time.
const MAX_FRUITLESS_COPIES: u32 = 10;
/// Pause before another copy begins. It doubles with each copy that got no further, up to
/// [`MAX_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const MAX_PAUSE: Duration = Duration::from_secs(4);

/// Observation of a copy.
#[derive(Debug, Clone, Copy)]
pub(super) struct PatienceView {
    pub now: Instant,
    /// True if a stream is established that the server has accepted.
    pub has_stream: bool,
    /// True if this side is busy with data that has arrived, and does not check for more.
    pub is_busy: bool,
    /// Number of reads that returned data on accepted streams.
    pub arrivals: u64,
    /// Number of entries and bytes that are in place.
    pub done: u64,
}

/// Assessment of a copy's connection to its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outlook {
    /// Before the first stream was established.
    Opening,
    /// The copy is carried.
    Carried,
    /// Time for which nothing has arrived, once it is worth showing.
    Waiting(Duration),
    /// The outage, of this duration, has exhausted the user's patience.
    Lost(Duration),
}

/// Decides when an outage ends a copy.
#[derive(Debug)]
pub(super) struct Patience {
    limit: Duration,
    looked_at: Option<Instant>,
    /// True once a stream has been established.
    has_stood: bool,
    arrivals: u64,
    /// Time since the last arrival.
    silence: Duration,
    /// Time since the outage began. Zero outside an outage.
    outage: Duration,
    /// Time for which the copy has been carried without interruption.
    carried: Duration,
    /// Maximum of what was ever in place.
    most_done: u64,
    fruitless_copies: u32,
}

impl Patience {
    /// Creates an assessment that tolerates outages of up to `limit`.
    pub(super) fn new(limit: Duration) -> Self {
        Self {
            limit,
            looked_at: None,
            has_stood: false,
            arrivals: 0,
            silence: Duration::ZERO,
            outage: Duration::ZERO,
            carried: Duration::ZERO,
            most_done: 0,
            fruitless_copies: 0,
        }
    }

    /// Returns true if a stream has ever been established.
    pub(super) fn has_stood(&self) -> bool {
        self.has_stood
    }

    /// Records an observation, and returns the assessment.
    pub(super) fn look(&mut self, view: &PatienceView) -> Outlook {
        let before = self.looked_at.replace(view.now).unwrap_or(view.now);
        let passed = view
            .now
            .saturating_duration_since(before)
            .min(MAX_COUNTED_GAP);
        // A stream may have come and gone between two observations.
        if (view.has_stream || view.arrivals > 0) && !self.has_stood {
            self.has_stood = true;
            self.silence = Duration::ZERO;
        }
        if !self.has_stood {
            return Outlook::Opening;
        }
        let nothing_arrived = std::mem::replace(&mut self.arrivals, view.arrivals) == view.arrivals;
        match nothing_arrived && !view.is_busy {
            true => self.silence = self.silence.saturating_add(passed),
            false => self.silence = Duration::ZERO,
        }
        let is_carried = view.has_stream && self.silence < MAX_SILENCE;
        self.carried = match is_carried {
            true => self.carried.saturating_add(passed),
            false => Duration::ZERO,
        };
        if view.done > self.most_done {
            self.most_done = view.done;
            self.fruitless_copies = 0;
            self.outage = Duration::ZERO;
        } else if self.carried >= SOUND_AFTER {
            self.outage = Duration::ZERO;
        } else if !is_carried || !self.outage.is_zero() {
            self.outage = self.outage.saturating_add(passed).max(match is_carried {
                true => Duration::ZERO,
                false => self.silence,
            });
        }
        if self.outage >= self.limit && !is_carried {
            Outlook::Lost(self.outage)
        } else if self.silence >= SHOWN_SILENCE {
            Outlook::Waiting(self.silence)
        } else {
            Outlook::Carried
        }
    }

    /// Notes that the server has lost the copy. Returns the pause before the next one, or `None` if
    /// too many copies got no further.
    pub(super) fn next_copy(&mut self) -> Option<Duration> {
        let pause = FIRST_PAUSE.saturating_mul(1 << self.fruitless_copies.min(8));
        self.fruitless_copies += 1;
        (self.fruitless_copies <= MAX_FRUITLESS_COPIES).then_some(pause.min(MAX_PAUSE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(300);

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    /// A copy in virtual time.
    struct Trial {
        patience: Patience,
        view: PatienceView,
        began: Instant,
    }

    impl Trial {
        /// Returns a copy that has been carried for a minute.
        fn carried() -> Self {
            let began = Instant::now();
            let mut trial = Self {
                patience: Patience::new(LIMIT),
                view: PatienceView {
                    now: began,
                    has_stream: true,
                    is_busy: false,
                    arrivals: 1,
                    done: 1,
                },
                began,
            };
            trial.pass(60, true);
            trial
        }

        /// Lets `secs` seconds pass. Returns the last assessment.
        fn pass(&mut self, secs: u64, arrives: bool) -> Outlook {
            let mut outlook = self.patience.look(&self.view);
            for _ in 0..secs {
                self.view.now += LOOK_INTERVAL;
                self.view.arrivals += u64::from(arrives);
                outlook = self.patience.look(&self.view);
            }
            outlook
        }

        /// Loses every stream. Returns the seconds until the copy is given up.
        fn given_up_after(&mut self) -> u64 {
            self.view.has_stream = false;
            (1..1000)
                .find(|_| matches!(self.pass(1, false), Outlook::Lost(_)))
                .unwrap_or(u64::MAX)
        }
    }

    #[test]
    fn outage_ends_the_copy_after_the_limit() {
        let mut trial = Trial::carried();
        assert_eq!(trial.given_up_after(), 300);
    }

    #[test]
    fn silent_stream_counts_from_the_last_arrival() {
        let mut trial = Trial::carried();
        assert_eq!(trial.pass(2, false), Outlook::Carried);
        assert_eq!(trial.pass(10, false), Outlook::Waiting(seconds(12)));
        // By then the stream is cut for its silence.
        assert_eq!(trial.pass(18, false), Outlook::Waiting(seconds(30)));
        assert_eq!(trial.given_up_after(), 270);
    }

    #[test]
    fn busy_receiver_is_no_outage() {
        let mut trial = Trial::carried();
        trial.view.is_busy = true;
        assert_eq!(trial.pass(1000, false), Outlook::Carried);
        trial.view.is_busy = false;
        assert_eq!(trial.given_up_after(), 300);
    }

    #[test]
    fn suspended_time_does_not_count() {
        let mut trial = Trial::carried();
        trial.view.has_stream = false;
        trial.pass(100, false);
        trial.view.now += seconds(100_000);
        assert_eq!(
            trial.given_up_after(),
            300 - 100 - MAX_COUNTED_GAP.as_secs()
        );
    }

    #[test]
    fn streams_that_break_immediately_do_not_end_an_outage() {
        let mut trial = Trial::carried();
        let mut waited = 0;
        loop {
            trial.view.has_stream = false;
            if let Outlook::Lost(outage) = trial.pass(4, false) {
                assert!((LIMIT..LIMIT + seconds(8)).contains(&outage), "{outage:?}");
                return;
            }
            trial.view.has_stream = true;
            trial.pass(4, true);
            waited += 8;
            assert!(waited < 400, "never given up");
        }
    }

    #[test]
    fn progress_or_a_lasting_stream_ends_an_outage() {
        for progresses in [true, false] {
            let mut trial = Trial::carried();
            trial.view.has_stream = false;
            trial.pass(200, false);
            trial.view.has_stream = true;
            trial.view.done += u64::from(progresses);
            trial.pass(if progresses { 1 } else { 11 }, true);
            assert_eq!(trial.given_up_after(), 300);
        }
    }

    #[test]
    fn copy_that_was_never_established_is_not_waited_for() {
        let mut patience = Patience::new(LIMIT);
        let now = Instant::now();
        for n in 0..1000 {
            let outlook = patience.look(&PatienceView {
                now: now + seconds(n),
                has_stream: false,
                is_busy: false,
                arrivals: 0,
                done: 0,
            });
            assert_eq!(outlook, Outlook::Opening);
        }
        assert!(!patience.has_stood());
    }

    #[test]
    fn number_of_copies_without_progress_is_bounded() {
        let mut trial = Trial::carried();
        let pauses: Vec<_> = std::iter::from_fn(|| trial.patience.next_copy()).collect();
        assert_eq!(pauses.len(), MAX_FRUITLESS_COPIES as usize);
        assert_eq!((pauses[0], pauses[9]), (FIRST_PAUSE, MAX_PAUSE));
        // The next copy first repeats what is in place.
        trial.view.done = 0;
        trial.pass(5, true);
        assert_eq!(trial.patience.next_copy(), None);
        trial.view.done = 2;
        trial.pass(1, true);
        assert_eq!(trial.patience.next_copy(), Some(FIRST_PAUSE));
        assert!(trial.view.now > trial.began);
    }
}
