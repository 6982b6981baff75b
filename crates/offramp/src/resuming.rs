//! Resumable sessions of an off-ramp: their limits, metrics and log lines.

use std::net::SocketAddr;
use std::sync::Arc;

use longhaul_hop::{EventLog, Payer};
use longhaul_policy::Role;
use longhaul_proto::Open;
use longhaul_session::{ResumeAcceptance, ResumeEvent, ResumeLimits, ResumeMemory, ResumeObserver};

use crate::metrics::OfframpMetrics;
use crate::state::OfframpState;

/// Returns how an off-ramp with room for this many sessions lets them be resumed.
pub(crate) fn acceptance(
    limits: &ResumeLimits,
    sessions: usize,
    metrics: Arc<OfframpMetrics>,
    events: Arc<EventLog>,
) -> ResumeAcceptance {
    let observer = ResumeObserver::new(move |session, payer, event| match event {
        ResumeEvent::Started => {
            metrics.sessions_resumable.inc();
        }
        ResumeEvent::Resumed {
            after,
            retransmitted,
            ..
        } => {
            metrics.sessions_resumed.inc();
            events.log(Some(payer), |left_out| {
                tracing::info!(
                    %session, after_seconds = after.as_secs_f64(),
                    retransmitted_bytes = retransmitted, left_out,
                    "session resumed over another connection"
                );
            });
        }
        ResumeEvent::GivenUp(error) => {
            metrics.sessions_not_resumed.inc();
            events.log(Some(payer), |left_out| {
                tracing::warn!(%session, %error, left_out, "session not resumed");
            });
        }
        ResumeEvent::Ended => {
            metrics.sessions_resumable.dec();
        }
        _ => {}
    });
    ResumeAcceptance {
        within: limits.within,
        sessions,
        memory: ResumeMemory::new(limits.memory, limits.window),
        observer,
    }
}

/// Returns the account of a request to resume. Its session has a permit already, and the request
/// takes no further one: it is answered at once.
pub(crate) fn payer(shared: &OfframpState, peer: SocketAddr, open: &Open) -> Payer {
    let policy = shared.policy.policy();
    match policy.lists_key(&open.principal, Role::Offramp) {
        true => Payer::Key(open.principal),
        false => Payer::from_address(peer.ip()),
    }
}
