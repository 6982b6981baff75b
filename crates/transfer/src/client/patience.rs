//! How long a copy waits for a server that it has lost.
//!
//! A copy is *carried* while a stream stands and something arrives on it. An *outage* begins with
//! the last thing that arrived. It ends when the copy gets further than it ever was, or when it has
//! been carried for [`SOUND_AFTER`]: streams that open and break at once end none. An outage that
//! lasts for as long as the user's patience ends the copy.
//!
//! Running time alone counts. The monotonic clock stands still while the machine is suspended; a
//! process that was stopped looks again much later than it should, and such a gap counts as
//! [`MAX_COUNTED_GAP`].
//!
//! No clock and no socket in here; the supervisor feeds it.

use std::time::Duration;

use tokio::time::Instant;

use crate::frame_io::KEEP_ALIVE;

/// Interval between two looks.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Most that counts of the time between two looks. More has passed only if the process was stopped.
const MAX_COUNTED_GAP: Duration = Duration::from_secs(2);
/// Silence from which a stream that stands carries nothing: a server says something every
/// [`KEEP_ALIVE`].
const MAX_SILENCE: Duration = Duration::from_secs(2 * KEEP_ALIVE.as_secs());
/// Silence from which the user is shown that nothing arrives.
const SHOWN_SILENCE: Duration = Duration::from_secs(3);
/// Time for which a copy must be carried without a break until an outage is over.
const SOUND_AFTER: Duration = Duration::from_secs(10);
/// Copies in a row that may be lost without getting any further than one before them: a server may
/// crash at the same file each time.
const MAX_FRUITLESS_COPIES: u32 = 10;
/// Pause before another copy is begun; it doubles with each that got no further, up to the second.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const MAX_PAUSE: Duration = Duration::from_secs(4);

/// State of a copy at one look.
#[derive(Debug, Clone, Copy)]
pub(super) struct PatienceView {
    pub now: Instant,
    /// A stream stands that the server has accepted.
    pub has_stream: bool,
    /// This side is busy with what has arrived, and does not look whether there is more.
    pub is_busy: bool,
    /// Number of times that something arrived on accepted streams.
    pub arrivals: u64,
    /// Entries and bytes that are in place.
    pub done: u64,
}

/// Outlook of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outlook {
    /// No stream has ever stood.
    Opening,
    /// It is carried.
    Carried,
    /// Nothing has arrived for this long, which is worth showing.
    Waiting(Duration),
    /// The outage has lasted for as long as the user's patience.
    Lost(Duration),
}

/// Decides. See the module's documentation.
#[derive(Debug)]
pub(super) struct Patience {
    limit: Duration,
    looked_at: Option<Instant>,
    /// A stream has stood.
    has_stood: bool,
    arrivals: u64,
    /// Time since something arrived.
    silence: Duration,
    /// Time since the outage began; zero while there is none.
    outage: Duration,
    /// Time for which the copy has been carried without a break.
    carried: Duration,
    /// The most that was ever in place.
    most_done: u64,
    fruitless_copies: u32,
}

impl Patience {
    /// Waits out outages of up to `limit`.
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

    /// Returns whether a stream has ever stood.
    pub(super) fn has_stood(&self) -> bool {
        self.has_stood
    }

    /// Takes a look.
    pub(super) fn look(&mut self, view: &PatienceView) -> Outlook {
        let before = self.looked_at.replace(view.now).unwrap_or(view.now);
        let passed = view
            .now
            .saturating_duration_since(before)
            .min(MAX_COUNTED_GAP);
        // One may have come and gone between two looks.
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

    /// The server has lost the copy. Returns the pause before another one, or `None` if others got
    /// no further before.
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
        /// One that has been carried for a minute.
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

        /// Lets so many seconds pass. Returns the last outlook.
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
        // By then the stream is cut as silent.
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
    fn streams_that_break_at_once_end_no_outage() {
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
    fn copy_that_never_stood_is_not_waited_for() {
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
    fn copies_that_get_no_further_are_bounded() {
        let mut trial = Trial::carried();
        let pauses: Vec<_> = std::iter::from_fn(|| trial.patience.next_copy()).collect();
        assert_eq!(pauses.len(), MAX_FRUITLESS_COPIES as usize);
        assert_eq!((pauses[0], pauses[9]), (FIRST_PAUSE, MAX_PAUSE));
        // Another copy repeats what is in place before it gets any further.
        trial.view.done = 0;
        trial.pass(5, true);
        assert_eq!(trial.patience.next_copy(), None);
        trial.view.done = 2;
        trial.pass(1, true);
        assert_eq!(trial.patience.next_copy(), Some(FIRST_PAUSE));
        assert!(trial.view.now > trial.began);
    }
}
