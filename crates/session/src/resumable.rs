//! Sessions that continue over another route when their connection dies (LH-RESUME-1 to
//! LH-RESUME-9).
//!
//! The handshake is as in any session. Then both ends put a [`longhaul_resume`] stream between the
//! connection and TLS. So TLS keeps its state, and neither it nor the application notices that the
//! connection was replaced.

mod acceptance;
mod continuation;
mod error;
mod link;
mod memory;
mod observer;
mod stream;
mod wakers;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use longhaul_hop::Payer;
use longhaul_proto::Route;

pub(crate) use acceptance::ResumableSessions;
pub use acceptance::ResumeAcceptance;
pub(crate) use continuation::Continuations;
pub use error::ResumeError;
pub use memory::ResumeMemory;
pub(crate) use memory::SessionMemory;
pub use observer::{ResumeEvent, ResumeObserver};
pub(crate) use stream::ResumableStream;

/// Default of the maximum time without a connection.
pub const DEFAULT_RESUME_WITHIN: Duration = Duration::from_secs(60);

/// Limits on the resumable sessions of a program. Beyond them, sessions end with their connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResumeLimits {
    /// Maximum time without a connection. The shorter limit of the two ends applies.
    pub within: Duration,
    /// Memory of all sessions in bytes, for what may have to be sent again and what has not been
    /// read. One principal or client may have half of it, two a third each, and so on.
    pub memory: u64,
    /// Maximum of one direction of a session in bytes.
    pub window: u64,
}

impl Default for ResumeLimits {
    fn default() -> Self {
        Self {
            within: DEFAULT_RESUME_WITHIN,
            memory: ResumeMemory::DEFAULT_TOTAL_BYTES,
            window: ResumeMemory::DEFAULT_WINDOW_BYTES,
        }
    }
}

/// Settings by which the initiator of a session resumes it.
#[derive(Clone)]
pub struct ResumeOptions {
    /// Maximum time without a connection. The acceptor may have a shorter limit.
    pub within: Duration,
    /// Memory for the bytes that may have to be sent again. A session that finds none is not
    /// resumable.
    pub memory: Arc<ResumeMemory>,
    /// Account to which the memory is charged.
    pub payer: Payer,
    /// Routes on which the session may continue.
    pub routes: RouteList,
    /// Observer of lost and replaced connections.
    pub observer: ResumeObserver,
}

/// Routes on which a session may continue, best first. They are asked for at each round of
/// attempts, so a route that has just become known is used.
#[derive(Clone)]
pub struct RouteList(Arc<dyn Fn() -> Vec<Route> + Send + Sync>);

impl RouteList {
    /// Creates a list whose routes `routes` returns. It must not block.
    pub fn new(routes: impl Fn() -> Vec<Route> + Send + Sync + 'static) -> Self {
        Self(Arc::new(routes))
    }

    /// Returns the current routes.
    pub(crate) fn current(&self) -> Vec<Route> {
        (self.0)()
    }
}

impl fmt::Debug for RouteList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RouteList").finish_non_exhaustive()
    }
}

impl fmt::Debug for ResumeOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResumeOptions")
            .field("within", &self.within)
            .finish_non_exhaustive()
    }
}
