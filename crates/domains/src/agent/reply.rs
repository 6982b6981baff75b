//! Answers and reports to a connection's requester.

use longhaul_circuits::time::MomentMs;
use longhaul_control_api::domains::{
    CorrelationId, DomainName, Header, Message, MessageBody, ProblemReason, SegmentProblem,
};

use super::{DomainAgent, Effect};
use crate::connection::{Connection, Phase, RequestKind, Requester};

impl DomainAgent {
    /// Answers the requester's last request, once the connection has followed it.
    pub(super) fn answer(
        &self,
        connection: &mut Connection,
        now: MomentMs,
        effects: &mut Vec<Effect>,
    ) {
        let Some(pending) = &connection.pending else {
            return;
        };
        let Some(body) = self.answer_to(connection, pending.kind, now) else {
            return;
        };
        let correlation = pending.correlation.clone();
        effects.extend(self.to_requester(connection, correlation, body));
        connection.pending = None;
    }

    fn answer_to(
        &self,
        connection: &Connection,
        kind: RequestKind,
        now: MomentMs,
    ) -> Option<MessageBody> {
        let has_ended = connection.phase >= Phase::Terminating;
        let problem = || connection.problem_or(&self.domain);
        let remaining = || u64::try_from(connection.until.saturating_sub(now)).unwrap_or(0);
        match kind {
            RequestKind::Reserve if has_ended => {
                Some(MessageBody::ReserveFailed { problem: problem() })
            }
            RequestKind::Reserve => {
                (connection.phase >= Phase::Held).then(|| MessageBody::ReserveConfirmed {
                    hold_ms: remaining(),
                    segments: connection.segments(),
                })
            }
            RequestKind::Commit if has_ended => {
                Some(MessageBody::ReserveCommitFailed { problem: problem() })
            }
            RequestKind::Commit => (connection.phase >= Phase::Committed).then(|| {
                MessageBody::ReserveCommitConfirmed {
                    lease_ms: remaining(),
                }
            }),
            RequestKind::Abort => (connection.phase == Phase::Terminated)
                .then_some(MessageBody::ReserveAbortConfirmed),
            RequestKind::Terminate => {
                (connection.phase == Phase::Terminated).then_some(MessageBody::TerminateConfirmed)
            }
            RequestKind::Renew | RequestKind::Provision(_) | RequestKind::Release(_)
                if has_ended =>
            {
                Some(MessageBody::ServiceException { problem: problem() })
            }
            RequestKind::Renew => Some(MessageBody::RenewConfirmed {
                lease_ms: remaining(),
            }),
            RequestKind::Provision(sequence) => has_followed(connection, sequence)
                .then_some(MessageBody::ProvisionConfirmed { sequence }),
            RequestKind::Release(sequence) => has_followed(connection, sequence)
                .then_some(MessageBody::ReleaseConfirmed { sequence }),
        }
    }

    /// Reports an end that the requester did not ask for, until it is acknowledged.
    pub(super) fn report(
        &self,
        connection: &mut Connection,
        now: MomentMs,
        effects: &mut Vec<Effect>,
    ) {
        let is_over = connection.phase == Phase::Terminated && connection.until <= now;
        let waits = connection.next_report.is_some_and(|moment| moment > now);
        if !connection.is_report_due || is_over || waits {
            return;
        }
        let problem = connection.problem_or(&self.domain);
        let was_held = !connection.legs.iter().any(|leg| leg.is_commit_sent);
        let body = if problem.reason == ProblemReason::Expired && was_held {
            MessageBody::ReserveTimeout
        } else {
            MessageBody::ErrorEvent { problem }
        };
        let correlation = format!("{}/report", connection.id).parse().ok();
        effects.extend(
            correlation.and_then(|correlation| self.to_requester(connection, correlation, body)),
        );
        connection.report_attempts = connection.report_attempts.saturating_add(1);
        let pause = self.timing.pause(connection.report_attempts);
        connection.next_report = Some(now.saturating_add_unsigned(pause));
    }

    /// Returns a message to the requester, if that is a domain.
    pub(super) fn to_requester(
        &self,
        connection: &Connection,
        correlation_id: CorrelationId,
        body: MessageBody,
    ) -> Option<Effect> {
        let Requester::Peer(requester) = &connection.requester else {
            return None;
        };
        let header = Header {
            correlation_id,
            requester_nsa: requester.clone(),
            provider_nsa: self.domain.clone(),
            global_reservation_id: connection.global.clone(),
            connection_id: Some(connection.id.clone()),
        };
        Some(Effect::Send(Message { header, body }))
    }

    /// Returns an answer to a request that reached no connection, or must not change it.
    pub(super) fn exception(
        &self,
        request: &Header,
        requester: &DomainName,
        problem: SegmentProblem,
    ) -> Effect {
        let header = Header {
            correlation_id: request.correlation_id.clone(),
            requester_nsa: requester.clone(),
            provider_nsa: self.domain.clone(),
            global_reservation_id: request.global_reservation_id.clone(),
            connection_id: request.connection_id.clone(),
        };
        let body = MessageBody::ServiceException { problem };
        Effect::Send(Message { header, body })
    }
}

/// Returns true if all legs have carried out a request to set up or tear down, or a later one.
fn has_followed(connection: &Connection, sequence: u32) -> bool {
    connection
        .legs
        .iter()
        .all(|leg| leg.provisioned >= sequence)
}
