//! Joins a session with an ordinary TCP connection, or with another session.
//!
//! [`longhaul_hop::Duplex`] moves the bytes: the session is its first side, the other one the
//! second. A truncated session fails to be read, so it becomes a reset (LH-END-3).

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use drs::{FlowWatch, Mode, Side};
use longhaul_hop::{DuplexObserver, DuplexSide};

use crate::Session;

/// Callback for byte counts as they move: bytes written to the other side, and to the session.
pub type OnMoved = Arc<dyn Fn(u64, u64) + Send + Sync>;

/// Counts the bytes of a joined session, and watches the session's own hop once it moves bulk data.
pub struct JoinObserver {
    /// Right-sizing mode for that hop.
    pub sizing: Mode,
    /// Callback that counts moved bytes.
    pub on_moved: Option<OnMoved>,
    /// Observations of the hop, once it moves bulk data.
    pub flow: Option<Arc<FlowWatch>>,
}

impl Default for JoinObserver {
    /// Returns an observer with automatic right-sizing that counts nothing.
    fn default() -> Self {
        Self {
            sizing: Mode::Auto,
            on_moved: None,
            flow: None,
        }
    }
}

impl<S> DuplexObserver<Session, S> for JoinObserver {
    fn count(&mut self, from_session: u64, to_session: u64) {
        if let Some(on_moved) = &self.on_moved {
            on_moved(from_session, to_session);
        }
    }

    fn watch(&mut self, session: &mut Session, _: &mut S, from_session: bool) {
        let side = match from_session {
            true => Side::Receiving,
            false => Side::Sending,
        };
        self.flow
            .get_or_insert_with(|| session.watch(self.sizing, side));
    }
}

impl DuplexSide for Session {
    fn poll_broken(&self, cx: &mut Context<'_>) -> Poll<io::Error> {
        Self::poll_broken(self, cx)
    }

    /// The session has already sent its end, so dropping it is a clean close.
    fn close(self) {}
}

#[cfg(test)]
mod tests;
