//! What is made of the server's answers, and of their absence. Moments are milliseconds of a clock
//! that only goes forward.

use super::LEASE_MS;

#[cfg(test)]
mod tests;

/// How this controller stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// There is no connection that could hold the lock.
    Lost,
    /// Another has the lock, or nobody has asked for it yet.
    Following,
    /// This one has it.
    Leading {
        /// Which time, counted from 1.
        term: u64,
        /// Until when, unless the server answers again.
        until: u64,
    },
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// There is a new connection.
    Connected,
    /// The server answered what was asked at `sent`: the lock is held by the connection.
    Held {
        /// When it was asked.
        sent: u64,
    },
    /// The server answered: it is not.
    NotHeld,
    /// The connection broke, or is given up.
    Broken,
    /// Time went by.
    Passed,
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Election {
    standing: Standing,
    terms: u64,
}

impl Default for Election {
    fn default() -> Self {
        Self {
            standing: Standing::Lost,
            terms: 0,
        }
    }
}

impl Election {
    /// How it stands.
    #[must_use]
    pub const fn standing(&self) -> Standing {
        self.standing
    }

    /// The term in which it leads at `now`, if it does.
    #[must_use]
    pub const fn term(&self, now: u64) -> Option<u64> {
        match self.standing {
            Standing::Leading { term, until } if now < until => Some(term),
            _ => None,
        }
    }

    /// Takes what happened by `now`. A connection over which it was led until its time ran out is
    /// of no use any more: the server may have given its lock away since it answered last.
    pub fn take(&mut self, event: Event, now: u64) -> Standing {
        if let Standing::Leading { until, .. } = self.standing
            && now >= until
        {
            self.standing = Standing::Lost;
        }
        self.standing = match (self.standing, event) {
            (_, Event::Broken) => Standing::Lost,
            // Also of one before that was not told to be broken.
            (_, Event::Connected) => Standing::Following,
            (standing, Event::Passed) => standing,
            // Of a connection that was given up.
            (Standing::Lost, Event::Held { .. } | Event::NotHeld) => Standing::Lost,
            (_, Event::NotHeld) => Standing::Following,
            (before, Event::Held { sent }) => self.held(before, sent.saturating_add(LEASE_MS), now),
        };
        self.standing
    }

    fn held(&mut self, before: Standing, until: u64, now: u64) -> Standing {
        match before {
            Standing::Leading { term, until: known } => Standing::Leading {
                term,
                until: known.max(until),
            },
            // It came too late to be relied on.
            _ if now >= until => Standing::Lost,
            _ => {
                self.terms += 1;
                Standing::Leading {
                    term: self.terms,
                    until,
                }
            }
        }
    }
}
