//! Observation of lost and replaced connections.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use longhaul_hop::Payer;
use longhaul_proto::{Route, SessionId};

use super::ResumeError;

/// Event of a resumable session.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum ResumeEvent<'a> {
    /// The session is resumable.
    Started,
    /// The connection was lost.
    Lost,
    /// The session continues on another connection.
    Resumed {
        /// Route of the connection; `None` at the acceptor.
        route: Option<&'a Route>,
        /// Time without a connection; zero if the acceptor had not noticed.
        after: Duration,
        /// Bytes that were sent again.
        retransmitted: u64,
    },
    /// The session ended early.
    GivenUp(&'a ResumeError),
    /// The session is over, and its memory is free. The last event.
    Ended,
}

/// Callback for the events of resumable sessions. It must not block.
#[derive(Clone)]
pub struct ResumeObserver(Arc<Observe>);

type Observe = dyn Fn(SessionId, Payer, ResumeEvent<'_>) + Send + Sync;

impl ResumeObserver {
    /// Creates an observer that calls `notify` at each event, with the session and its account.
    pub fn new(notify: impl Fn(SessionId, Payer, ResumeEvent<'_>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(notify))
    }

    pub(super) fn notify(&self, session: SessionId, payer: Payer, event: ResumeEvent<'_>) {
        (self.0)(session, payer, event);
    }
}

impl fmt::Debug for ResumeObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResumeObserver").finish_non_exhaustive()
    }
}
