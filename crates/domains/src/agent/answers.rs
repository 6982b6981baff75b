//! Answers and reports of providers, and results of the book.

use longhaul_circuits::time::MomentMs;
use longhaul_control_api::domains::{
    ConnectionId, DomainName, Header, MAX_SEGMENTS, Message, MessageBody, ProblemReason,
    SegmentProblem,
};

use super::drive::{LegRequest, correlation, leg_request};
use super::{BookResult, DomainAgent, Effect, MessageFault, Outcome};
use crate::connection::{Connection, Leg, LegState, Phase, Provider};
use crate::timing::Timing;

impl DomainAgent {
    /// Takes an answer or a report of a provider. One that fits nothing has no effect.
    pub(super) fn take_answer(
        &mut self,
        peer: &DomainName,
        message: Message,
        now: MomentMs,
    ) -> Outcome {
        let Message { header, body } = message;
        let mut outcome = Outcome::default();
        let is_report = matches!(
            body,
            MessageBody::ReserveTimeout | MessageBody::ErrorEvent { .. }
        );
        if is_report {
            outcome.effects.push(self.acknowledgement(peer, &header));
        }
        let Some((id, place)) = self.find_leg(peer, &header, is_report) else {
            return outcome;
        };
        let Some(mut connection) = self.connections.get(&id).cloned() else {
            return outcome;
        };
        let before = connection.stored_form();
        let expected = connection
            .legs
            .get(place)
            .and_then(|leg| leg_request(&connection, leg));
        let is_current = expected
            .and_then(|request| correlation(&connection, place, request))
            .is_some_and(|expected| expected == header.correlation_id);
        if let Some(leg) = connection.legs.get_mut(place) {
            if leg.connection_id.is_none() {
                leg.connection_id.clone_from(&header.connection_id);
            }
            let current = expected.filter(|_| is_current);
            let problem = apply_answer(leg, body, current, now);
            keep_problem(&mut connection, problem);
        }
        self.finish(connection, Some(before), now, &mut outcome);
        outcome
    }

    /// Takes the result of a command for the book.
    ///
    /// # Errors
    /// [`MessageFault::Unknown`] if the connection is not remembered any more.
    pub fn record_result(
        &mut self,
        id: &ConnectionId,
        place: usize,
        result: BookResult,
        now: MomentMs,
    ) -> Result<Outcome, MessageFault> {
        self.update(id, now, |_, connection| {
            let Some(leg) = connection.legs.get_mut(place) else {
                return false;
            };
            match result {
                BookResult::Held {
                    reservation,
                    hold_ms,
                } if leg.state == LegState::Asked => {
                    leg.state = LegState::Held;
                    leg.reservation = Some(reservation);
                    leg.until = now.saturating_add_unsigned(hold_ms);
                    leg.segments = vec![Self::own_segment(&leg.criteria)];
                    leg.begin_request(now);
                }
                BookResult::Promised if leg.state == LegState::Held => {
                    leg.state = LegState::Promised;
                    leg.until = MomentMs::MAX;
                    leg.begin_request(now);
                }
                BookResult::Held { .. } | BookResult::Promised => {}
                BookResult::Ended(problem) => {
                    leg.state = LegState::Ended;
                    keep_problem(connection, problem);
                }
                BookResult::SetProvisioned(sequence) => {
                    leg.provisioned = leg.provisioned.max(sequence);
                }
            }
            true
        })
    }

    /// Finds the leg that a provider's message is about.
    fn find_leg(
        &self,
        peer: &DomainName,
        header: &Header,
        is_report: bool,
    ) -> Option<(ConnectionId, usize)> {
        let of_reservation = self
            .connections
            .values()
            .filter(|connection| connection.global == header.global_reservation_id);
        let mut legs = of_reservation.flat_map(|connection| {
            let legs = connection.legs.iter().enumerate();
            legs.map(move |(place, leg)| (connection, place, leg))
        });
        let (connection, place, _) = legs.find(|(connection, place, leg)| {
            let is_peer = matches!(&leg.provider, Provider::Peer(domain) if domain == peer);
            let is_named = leg.connection_id.is_some()
                && leg.connection_id.as_ref() == header.connection_id.as_ref();
            let prefix = format!("{}/{place}/", connection.id);
            let is_answer = header.correlation_id.as_str().starts_with(&prefix);
            is_peer && if is_report { is_named } else { is_answer }
        })?;
        Some((connection.id.clone(), place))
    }

    fn acknowledgement(&self, peer: &DomainName, report: &Header) -> Effect {
        let header = Header {
            requester_nsa: self.domain.clone(),
            provider_nsa: peer.clone(),
            ..report.clone()
        };
        Effect::Send(Message {
            header,
            body: MessageBody::NotificationAcknowledged,
        })
    }
}

/// Applies an answer to a leg. `current` is the leg's request if this answers it. Returns the
/// problem that ended the leg, if it ended.
fn apply_answer(
    leg: &mut Leg,
    body: MessageBody,
    current: Option<LegRequest>,
    now: MomentMs,
) -> Option<SegmentProblem> {
    match body {
        MessageBody::ReserveConfirmed {
            hold_ms,
            mut segments,
        } if leg.state == LegState::Asked => {
            segments.truncate(MAX_SEGMENTS);
            leg.state = LegState::Held;
            // The provider counts from its answer, which is later than the first attempt.
            leg.until = leg.asked_at.saturating_add_unsigned(hold_ms);
            leg.segments = segments;
            leg.begin_request(now);
        }
        MessageBody::ReserveCommitConfirmed { lease_ms } if leg.state == LegState::Held => {
            leg.state = LegState::Promised;
            leg.until = leg.asked_at.saturating_add_unsigned(lease_ms);
            leg.begin_request(now);
        }
        MessageBody::RenewConfirmed { lease_ms } => {
            if matches!(current, Some(LegRequest::Renew(_))) {
                let begun = leg.asked_at;
                leg.is_renewing = false;
                leg.until = begun.saturating_add_unsigned(lease_ms);
                leg.next_renewal =
                    begun.saturating_add_unsigned(Timing::renewal_pause(lease_ms).max(1));
                leg.begin_request(now);
            }
        }
        MessageBody::ProvisionConfirmed { sequence }
        | MessageBody::ReleaseConfirmed { sequence }
            if current == Some(LegRequest::SetProvisioned(sequence)) =>
        {
            leg.provisioned = leg.provisioned.max(sequence);
        }
        MessageBody::ProvisionConfirmed { .. } | MessageBody::ReleaseConfirmed { .. } => {}
        MessageBody::ReserveAbortConfirmed | MessageBody::TerminateConfirmed => {
            leg.state = LegState::Ended;
        }
        MessageBody::ReserveFailed { problem }
        | MessageBody::ReserveCommitFailed { problem }
        | MessageBody::ErrorEvent { problem } => {
            leg.state = LegState::Ended;
            return Some(problem);
        }
        MessageBody::ReserveTimeout => leg.state = LegState::Ended,
        MessageBody::ServiceException { problem } => {
            let request = current?;
            if request == LegRequest::Abort && problem.reason == ProblemReason::InvalidTransition {
                // It was committed after all: ask for its end, whatever its state.
                leg.is_commit_sent = true;
                leg.begin_request(now);
                return None;
            }
            leg.state = LegState::Ended;
            return Some(problem);
        }
        _ => {}
    }
    None
}

/// Keeps the first problem as the reason for the connection's end.
fn keep_problem(connection: &mut Connection, problem: Option<SegmentProblem>) {
    if connection.phase < Phase::Terminating && connection.problem.is_none() {
        connection.problem = problem;
    }
}
