//! The member that has a client's copy, as far as the client knows.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use longhaul_proto::Endpoint;
use longhaul_session::{Session, has_several_addresses};
use tokio::sync::watch;
use tokio::time::timeout;

use super::preface::StreamPreface;
use crate::stripe::MemberId;

/// Time for which the other streams of a copy wait until its first one is accepted, if the server
/// has several addresses. They are spread only if it is known to be striped.
const ACCEPT_WAIT: Duration = Duration::from_secs(2);

/// Knowledge about the member that has the copy.
#[derive(Debug, Default)]
pub(in super::super) struct CopyOwnership {
    owner: watch::Sender<CopyOwner>,
    /// True once the first stream of the copy has been opened.
    is_begun: AtomicBool,
    /// Number of streams that were opened since the owner was known.
    streams: AtomicUsize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum CopyOwner {
    /// The server has accepted no stream of the copy yet.
    #[default]
    Unknown,
    /// The server is not striped, or does not relay this copy.
    Unstriped,
    Member(MemberId),
}

impl CopyOwnership {
    /// Notes that the server has accepted a stream, and the member that has its copy.
    pub(in super::super) fn learn(&self, member: Option<MemberId>) {
        let learnt = member.map_or(CopyOwner::Unstriped, CopyOwner::Member);
        self.owner.send_if_modified(|owner| {
            let is_new = *owner != learnt;
            *owner = learnt;
            is_new
        });
    }

    /// Forgets the copy, because another one begins or its owner is not striped any more.
    pub(in super::super) fn forget(&self) {
        self.is_begun.store(false, Ordering::Relaxed);
        self.owner.send_replace(CopyOwner::Unknown);
    }

    /// Returns the member that the next stream is for. `None` means that the member which accepts
    /// the stream has the copy.
    pub(in super::super) async fn owner(&self, server: &Endpoint) -> Option<MemberId> {
        let mut owner = self.owner.subscribe();
        let is_first = !self.is_begun.swap(true, Ordering::Relaxed);
        let is_unknown = *owner.borrow() == CopyOwner::Unknown;
        if is_unknown && !is_first && has_several_addresses(server).await {
            let known = owner.wait_for(|owner| *owner != CopyOwner::Unknown);
            // After that, the stream goes where the first one went.
            let _ = timeout(ACCEPT_WAIT, known).await;
        }
        match *self.owner.borrow() {
            CopyOwner::Member(member) => Some(member),
            CopyOwner::Unknown | CopyOwner::Unstriped => None,
        }
    }

    /// Returns the [turn](longhaul_session::ConnectOptions::address_turn) of the next stream that
    /// any member may accept. The first stream had the turn 0.
    pub(in super::super) fn next_turn(&self) -> usize {
        self.streams
            .fetch_add(1, Ordering::Relaxed)
            .saturating_add(1)
    }
}

/// Tells the member that has accepted `session` which one has its copy. Nothing else may have been
/// sent.
///
/// # Errors
/// The stream was lost.
pub(in super::super) async fn name_owner(
    session: &mut Session,
    member: MemberId,
) -> io::Result<()> {
    StreamPreface::ForMember { member }.write(session).await
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: &str = "192.0.2.1:7511";

    #[tokio::test(start_paused = true)]
    async fn streams_are_for_the_member_that_accepted_the_first() {
        let server: Endpoint = SERVER.parse().unwrap();
        let ownership = CopyOwnership::default();
        let member = MemberId([7; 8]);
        assert_eq!(ownership.owner(&server).await, None);
        ownership.learn(Some(member));
        assert_eq!(ownership.owner(&server).await, Some(member));
        assert_eq!((ownership.next_turn(), ownership.next_turn()), (1, 2));
        ownership.learn(None);
        assert_eq!(ownership.owner(&server).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn another_copy_begins_at_any_member() {
        let server: Endpoint = SERVER.parse().unwrap();
        let ownership = CopyOwnership::default();
        ownership.learn(Some(MemberId([7; 8])));
        ownership.forget();
        assert_eq!(ownership.owner(&server).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn server_with_one_address_is_not_waited_for() {
        let server: Endpoint = SERVER.parse().unwrap();
        let ownership = CopyOwnership::default();
        let began = tokio::time::Instant::now();
        for _ in 0..3 {
            assert_eq!(ownership.owner(&server).await, None);
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
}
