//! State machine of an election: processes the server's answers and their absence. Times are
//! milliseconds of a monotonic clock.

use super::LEASE_MS;

#[cfg(test)]
mod tests;

/// State of this controller in the election.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// There is no connection that could hold the lock.
    Lost,
    /// Another controller has the lock, or none has requested it yet.
    Following,
    /// This controller has the lock.
    Leading {
        /// Number of the term, from 1.
        term: u64,
        /// End of the lease, unless the server answers again.
        until: u64,
    },
}

/// Input of the election.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A new connection is open.
    Connected,
    /// The server confirmed, for a request sent at `sent`, that the connection holds the lock.
    Held {
        /// Time when the request was sent.
        sent: u64,
    },
    /// The server answered that the connection does not hold the lock.
    NotHeld,
    /// The connection failed or was abandoned.
    Broken,
    /// Time has passed.
    Passed,
}

/// State machine of one candidate.
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
    /// Returns the current state.
    #[must_use]
    pub const fn standing(&self) -> Standing {
        self.standing
    }

    /// Returns the term in which this controller leads at `now`, if it leads.
    #[must_use]
    pub const fn term(&self, now: u64) -> Option<u64> {
        match self.standing {
            Standing::Leading { term, until } if now < until => Some(term),
            _ => None,
        }
    }

    /// Processes an event at `now`. A connection whose lease expired is no longer usable, as the
    /// server may have given the lock to another since its last answer.
    pub fn take(&mut self, event: Event, now: u64) -> Standing {
        if let Standing::Leading { until, .. } = self.standing
            && now >= until
        {
            self.standing = Standing::Lost;
        }
        self.standing = match (self.standing, event) {
            (_, Event::Broken) => Standing::Lost,
            // Also if the failure of the previous connection was not reported.
            (_, Event::Connected) => Standing::Following,
            (standing, Event::Passed) => standing,
            // From a connection that was abandoned.
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
            // The answer came too late to be relied on.
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
