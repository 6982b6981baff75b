//! Waits for another copy of the same request that holds a file's journal.
//!
//! Usually the other is an attempt that was just interrupted. Its program may still be ending, or
//! its client's last data may still arrive, and a moment later its journal can be resumed.
//! Otherwise it is a copy that continues in parallel. The two cases cannot be told apart at once,
//! so a copy waits, but only once: from the first contested file it has [`CONTEST_TIMEOUT`] in all.
//! Every later contested file is written without a journal immediately.

use std::time::Duration;

/// Time that a copy waits for contested files, from the first one, if nothing is known of the other
/// copy.
const CONTEST_TIMEOUT: Duration = Duration::from_secs(2);
/// Time that a copy waits for an older copy whose client is connected. That client may have been
/// killed, which its host reports at once.
const RIVAL_TIMEOUT: Duration = Duration::from_secs(3);
/// Time that a copy waits for a rival that is not known to hold anything.
const MAYBE_RIVAL_TIMEOUT: Duration = Duration::from_millis(250);
/// Time limit for another copy to release its files.
const LET_GO_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause before a contested file is checked again.
const CONTEST_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// State of another copy of the same request in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rival {
    /// It is over, and has not released its files yet.
    LettingGo,
    /// It has been silent since this copy first looked, so its client may be gone.
    Silent,
    /// It was begun before this copy, and its client is connected.
    Older,
    /// It was begun after this copy, so it is not an earlier attempt.
    Younger,
}

/// Knowledge about a file that another copy may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Contest {
    /// Another copy may hold it, without any sign of that.
    Possible,
    /// Another copy has locked its journal.
    Held,
}

/// Remaining time of one copy to wait for others. Times are relative to any moment that the caller
/// chose.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    looked_at: Option<Duration>,
    contested_at: Option<Duration>,
}

impl Patience {
    /// Returns the time since the copy first looked for others.
    pub(crate) fn since_first_look(&mut self, now: Duration) -> Duration {
        now.saturating_sub(*self.looked_at.get_or_insert(now))
    }

    /// Returns the pause before the file is checked again, or `None` if waiting is no longer
    /// worthwhile.
    pub(crate) fn pause(
        &mut self,
        contest: Contest,
        rivals: &[Rival],
        now: Duration,
    ) -> Option<Duration> {
        let looking = self.since_first_look(now);
        let contested = match contest {
            Contest::Possible => None,
            Contest::Held => Some(now.saturating_sub(*self.contested_at.get_or_insert(now))),
        };
        let has = |state| rivals.contains(&state);
        let is_worth_waiting = match contested {
            _ if has(Rival::LettingGo) => looking < LET_GO_TIMEOUT,
            // Eventually the rival is gone, or is heard of.
            Some(_) if has(Rival::Silent) => true,
            Some(contested) if has(Rival::Older) => contested < RIVAL_TIMEOUT,
            Some(_) if has(Rival::Younger) => false,
            // Another process holds it.
            Some(contested) => contested < CONTEST_TIMEOUT,
            None if has(Rival::Silent) || has(Rival::Older) => looking < MAYBE_RIVAL_TIMEOUT,
            None => false,
        };
        is_worth_waiting.then_some(CONTEST_POLL_INTERVAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the virtual time until a copy that begins at `now` gives up on a file that others
    /// keep holding.
    fn wait(
        patience: &mut Patience,
        contest: Contest,
        rivals: &[Rival],
        now: &mut Duration,
    ) -> Duration {
        let began = *now;
        while let Some(pause) = patience.pause(contest, rivals, *now) {
            *now += pause;
            assert!(*now - began < 2 * LET_GO_TIMEOUT, "it waits without an end");
        }
        *now - began
    }

    #[test]
    fn copy_waits_once_and_not_for_each_file() {
        for (rivals, limit) in [
            (vec![], CONTEST_TIMEOUT),
            (vec![Rival::Older], RIVAL_TIMEOUT),
            (vec![Rival::Older, Rival::Younger], RIVAL_TIMEOUT),
        ] {
            let (mut patience, mut now) = (Patience::default(), Duration::from_secs(7));
            let waits: Vec<Duration> = (0..60)
                .map(|_| wait(&mut patience, Contest::Held, &rivals, &mut now))
                .collect();
            assert_eq!(waits[0], limit, "{rivals:?}");
            assert!(
                waits[1..].iter().all(Duration::is_zero),
                "{rivals:?}: {waits:?}"
            );
        }
    }

    #[test]
    fn uncontested_files_cost_one_short_wait() {
        let (mut patience, mut now) = (Patience::default(), Duration::ZERO);
        let mut wait = |rivals: &[Rival]| wait(&mut patience, Contest::Possible, rivals, &mut now);
        assert_eq!(wait(&[]), Duration::ZERO);
        let first = wait(&[Rival::Older]);
        assert!(
            (MAYBE_RIVAL_TIMEOUT..MAYBE_RIVAL_TIMEOUT + CONTEST_POLL_INTERVAL).contains(&first)
        );
        assert_eq!(wait(&[Rival::Older]), Duration::ZERO);
    }

    #[test]
    fn older_of_two_copies_does_not_wait() {
        let (mut patience, mut now) = (Patience::default(), Duration::ZERO);
        for contest in [Contest::Possible, Contest::Held] {
            let waited = wait(&mut patience, contest, &[Rival::Younger], &mut now);
            assert_eq!(waited, Duration::ZERO, "{contest:?}");
        }
    }

    #[test]
    fn ending_copy_is_waited_for() {
        let (mut patience, mut now) = (Patience::default(), Duration::ZERO);
        wait(&mut patience, Contest::Held, &[Rival::Older], &mut now);
        // Its client turns out to be gone, or is silent.
        for state in [Rival::LettingGo, Rival::Silent] {
            let pause = patience.pause(Contest::Held, &[state], now);
            assert_eq!(pause, Some(CONTEST_POLL_INTERVAL), "{state:?}");
        }
        let ending = [Rival::LettingGo];
        assert!(patience.pause(Contest::Possible, &ending, now).is_some());
        assert_eq!(patience.pause(Contest::Held, &ending, LET_GO_TIMEOUT), None);
    }
}
