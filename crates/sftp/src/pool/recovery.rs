//! When a connection is opened, and when the copy is given up. It is pure: times are those since
//! the copy began.

use std::time::Duration;

/// Pause after a failed login, which doubles up to [`MAX_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const MAX_PAUSE: Duration = Duration::from_secs(15);
/// Failed logins after which no further connection is opened beside those that work.
const MAX_EXTRA_FAILURES: u32 = 2;

/// State of the logins of a copy.
#[derive(Debug)]
pub(crate) struct Recovery {
    patience: Duration,
    max_sessions: usize,
    /// Time of the last answer, or of the last change after which one is expected.
    last_answer: Duration,
    /// Failed logins since the last successful one.
    failures: u32,
    next_login: Duration,
}

/// Next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Log in.
    Login,
    /// Decide again at this time, or when something happens.
    Until(Duration),
    /// Decide again when something happens.
    Rest,
    /// Give up, as nothing was answered for so long.
    GiveUp(Duration),
}

/// State of the connections, for a decision.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Connections {
    /// Connections that work.
    pub alive: usize,
    /// Logins that are under way.
    pub pending: usize,
    /// If true, another connection would carry something.
    pub is_loaded: bool,
    /// If true, requests wait for answers.
    pub is_busy: bool,
}

impl Recovery {
    /// Creates the state of a copy that has its first connection at the time `now`.
    pub(crate) const fn new(patience: Duration, max_sessions: usize, now: Duration) -> Self {
        Self {
            patience,
            max_sessions,
            last_answer: now,
            failures: 0,
            next_login: now,
        }
    }

    /// Notes an answer, or that requests begin after a rest.
    pub(crate) const fn answered(&mut self, now: Duration) {
        self.last_answer = now;
    }

    /// Notes a successful login.
    pub(crate) const fn opened(&mut self, now: Duration) {
        self.failures = 0;
        self.next_login = now;
    }

    /// Notes a failed login.
    pub(crate) fn login_failed(&mut self, now: Duration) {
        let pause = FIRST_PAUSE.saturating_mul(1 << self.failures.min(10));
        self.failures = self.failures.saturating_add(1);
        self.next_login = now + pause.min(MAX_PAUSE);
    }

    /// Returns the time without an answer.
    pub(crate) const fn silence(&self, now: Duration) -> Duration {
        now.saturating_sub(self.last_answer)
    }

    /// Decides.
    pub(crate) fn step(&self, now: Duration, connections: Connections) -> Step {
        let Connections {
            alive,
            pending,
            is_loaded,
            is_busy,
        } = connections;
        let silence = self.silence(now);
        if silence >= self.patience && (is_busy || alive == 0) {
            return Step::GiveUp(silence);
        }
        let deadline = self.last_answer + self.patience;
        if alive == 0 {
            return match pending {
                0 if now >= self.next_login => Step::Login,
                0 => Step::Until(self.next_login.min(deadline)),
                _ => Step::Until(deadline),
            };
        }
        // A login that asks for a password cannot be repeated: the first connection carries all.
        let may_add = alive + pending < self.max_sessions && self.failures < MAX_EXTRA_FAILURES;
        match () {
            () if may_add && is_loaded && now >= self.next_login => Step::Login,
            () if may_add && is_loaded => Step::Until(self.next_login.min(deadline)),
            () if is_busy => Step::Until(deadline),
            () => Step::Rest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn with(alive: usize, pending: usize) -> Connections {
        Connections {
            alive,
            pending,
            is_loaded: true,
            is_busy: true,
        }
    }

    #[test]
    fn connections_are_added_while_they_carry_something() {
        let mut recovery = Recovery::new(PATIENCE, 3, seconds(0));
        assert_eq!(recovery.step(seconds(0), with(1, 0)), Step::Login);
        assert_eq!(recovery.step(seconds(0), with(1, 1)), Step::Login);
        assert_eq!(recovery.step(seconds(0), with(1, 2)), Step::Until(PATIENCE));
        let idle = Connections {
            is_loaded: false,
            is_busy: false,
            ..with(1, 0)
        };
        assert_eq!(recovery.step(seconds(500), idle), Step::Rest);
        // A server that refuses more is left alone.
        recovery.login_failed(seconds(0));
        assert_eq!(
            recovery.step(seconds(0), with(1, 0)),
            Step::Until(FIRST_PAUSE)
        );
        recovery.login_failed(seconds(1));
        assert_eq!(recovery.step(seconds(5), with(1, 0)), Step::Until(PATIENCE));
        recovery.opened(seconds(6));
        assert_eq!(recovery.step(seconds(6), with(1, 0)), Step::Login);
    }

    #[test]
    fn lost_connections_are_replaced_until_patience_ends() {
        let mut recovery = Recovery::new(PATIENCE, 3, seconds(0));
        recovery.answered(seconds(10));
        let mut now = seconds(10);
        let mut logins = 0;
        loop {
            match recovery.step(now, with(0, 0)) {
                Step::Login => {
                    logins += 1;
                    recovery.login_failed(now);
                }
                Step::Until(then) => {
                    assert!(then > now);
                    now = then;
                }
                Step::GiveUp(silence) => {
                    assert_eq!(silence, PATIENCE);
                    break;
                }
                Step::Rest => panic!("nothing works, and nothing is tried"),
            }
        }
        assert_eq!(now, seconds(70));
        assert!((5..=12).contains(&logins), "{logins}");
    }

    #[test]
    fn silent_server_is_given_up() {
        let recovery = Recovery::new(PATIENCE, 1, seconds(0));
        assert_eq!(
            recovery.step(seconds(59), with(1, 0)),
            Step::Until(PATIENCE)
        );
        assert_eq!(recovery.step(PATIENCE, with(1, 0)), Step::GiveUp(PATIENCE));
    }
}
