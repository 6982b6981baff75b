//! Consequences of a connection's state and the time: its next phase, and requests to its legs.

use longhaul_circuits::time::MomentMs;
use longhaul_control_api::domains::{
    CorrelationId, Header, Message, MessageBody, ProblemReason, SegmentProblem,
};

use super::{BookCommand, DomainAgent, Effect};
use crate::connection::{Connection, Leg, LegState, Phase, Provider};

/// Request to a leg.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LegRequest {
    Reserve,
    Commit,
    Renew(u32),
    SetProvisioned(u32),
    Abort,
    Terminate,
}

impl DomainAgent {
    /// Brings a connection up to date, and collects the effects.
    pub(super) fn drive(
        &self,
        connection: &mut Connection,
        now: MomentMs,
        effects: &mut Vec<Effect>,
    ) {
        self.settle(connection, now);
        self.ask_legs(connection, now, effects);
        self.answer(connection, now, effects);
        self.report(connection, now, effects);
    }

    /// Advances the phase as far as the legs and the time allow.
    pub(super) fn settle(&self, connection: &mut Connection, now: MomentMs) {
        loop {
            let before = connection.phase;
            self.step(connection, now);
            if connection.phase == before {
                return;
            }
        }
    }

    fn step(&self, connection: &mut Connection, now: MomentMs) {
        let is_late = connection.until <= now;
        let has_ended = connection
            .legs
            .iter()
            .any(|leg| leg.state == LegState::Ended);
        match connection.phase {
            Phase::Terminated => {}
            Phase::Terminating if is_late || connection.all_legs(LegState::Ended) => {
                connection.phase = Phase::Terminated;
                connection.until = now.saturating_add_unsigned(self.timing.memory);
            }
            Phase::Terminating => {}
            phase if now >= connection.window_end() => {
                let text = "its window is over";
                let problem = self.own_problem(ProblemReason::Expired, text);
                self.end(connection, problem, now);
                // Every domain ends its segment at that time by itself.
                if phase == Phase::Active {
                    connection.is_report_due = false;
                }
            }
            _ if has_ended => {
                let text = "a segment ended";
                let problem = self.own_problem(ProblemReason::ForcedEnd, text);
                self.end(connection, problem, now);
            }
            Phase::Reserving if connection.all_legs(LegState::Held) => {
                let holds = connection.legs.iter().map(|leg| leg.until);
                connection.until = holds.min().unwrap_or(now).min(connection.window_end());
                connection.phase = Phase::Held;
            }
            Phase::Held if is_late => {
                let text = "the hold expired before it was committed";
                let problem = self.own_problem(ProblemReason::Expired, text);
                self.end(connection, problem, now);
            }
            Phase::Held if connection.requester.is_user() && !connection.is_hold_only => {
                self.begin_commit(connection, now);
            }
            Phase::Committing if connection.all_legs(LegState::Promised) => {
                if connection.requester.is_user() {
                    connection.until = connection.window_end();
                    self.activate(connection, now);
                } else {
                    connection.until = now.saturating_add_unsigned(self.timing.confirm);
                    connection.phase = Phase::Committed;
                }
            }
            Phase::Reserving | Phase::Committing if is_late => {
                let problem = self.silence(connection);
                self.end(connection, problem, now);
            }
            Phase::Committed | Phase::Active if is_late => {
                let text = match connection.phase {
                    Phase::Committed => "the requester did not say that all segments are promised",
                    _ => "the requester did not renew it",
                };
                let problem = self.own_problem(ProblemReason::Expired, text);
                self.end(connection, problem, now);
            }
            Phase::Active if connection.legs.iter().any(|leg| leg.until <= now) => {
                let problem = self.silence(connection);
                self.end(connection, problem, now);
            }
            Phase::Reserving
            | Phase::Held
            | Phase::Committing
            | Phase::Committed
            | Phase::Active => {}
        }
    }

    /// Asks all legs to promise what they hold.
    pub(super) fn begin_commit(&self, connection: &mut Connection, now: MomentMs) {
        connection.phase = Phase::Committing;
        let until = now.saturating_add_unsigned(self.timing.commit);
        connection.until = until.min(connection.window_end());
        for leg in &mut connection.legs {
            leg.is_commit_sent = true;
            leg.begin_request(now);
        }
    }

    /// Begins the renewals of promised segments, now that all are promised.
    pub(super) fn activate(&self, connection: &mut Connection, now: MomentMs) {
        connection.phase = Phase::Active;
        for leg in &mut connection.legs {
            leg.next_renewal = now;
            leg.begin_request(now);
        }
    }

    /// Ends a connection, and tells its requester unless that asked for something.
    pub(super) fn end(&self, connection: &mut Connection, problem: SegmentProblem, now: MomentMs) {
        connection.problem.get_or_insert(problem);
        connection.phase = Phase::Terminating;
        connection.until = connection.window_end().max(now);
        connection.is_report_due = !connection.requester.is_user() && connection.pending.is_none();
        (connection.report_attempts, connection.next_report) = (0, Some(now));
        for leg in &mut connection.legs {
            leg.is_renewing = false;
            leg.begin_request(now);
        }
    }

    /// Returns the problem that a domain does not answer.
    fn silence(&self, connection: &Connection) -> SegmentProblem {
        let waits = |leg: &&Leg| match connection.phase {
            Phase::Reserving => leg.state == LegState::Asked,
            Phase::Committing => leg.state == LegState::Held,
            _ => leg.is_renewing,
        };
        let silent = connection.legs.iter().find(waits);
        let who = match silent.map(|leg| &leg.provider) {
            Some(Provider::Peer(domain)) => format!("domain {domain}"),
            _ => "the book of this domain".to_owned(),
        };
        self.own_problem(
            ProblemReason::Unreachable,
            format!("{who} did not answer in time"),
        )
    }

    /// Sends requests that are due.
    fn ask_legs(&self, connection: &mut Connection, now: MomentMs, effects: &mut Vec<Effect>) {
        for place in 0..connection.legs.len() {
            begin_renewal(connection, place, now);
            let Some(leg) = connection.legs.get(place) else {
                continue;
            };
            let Some(request) = leg_request(connection, leg) else {
                continue;
            };
            if leg.next_attempt.is_some_and(|moment| moment > now) {
                continue;
            }
            if let Some(effect) = self.leg_effect(connection, place, leg, request) {
                effects.push(effect);
            }
            if let Some(leg) = connection.legs.get_mut(place) {
                leg.attempts = leg.attempts.saturating_add(1);
                let pause = self.timing.pause(leg.attempts);
                leg.next_attempt = Some(now.saturating_add_unsigned(pause));
            }
        }
    }

    fn leg_effect(
        &self,
        connection: &Connection,
        place: usize,
        leg: &Leg,
        request: LegRequest,
    ) -> Option<Effect> {
        let peer = match &leg.provider {
            Provider::Peer(peer) => peer,
            Provider::Book => {
                let command = book_command(connection, leg, request)?;
                return Some(Effect::Book {
                    connection: connection.id.clone(),
                    leg: place,
                    command,
                });
            }
        };
        let body = match request {
            LegRequest::Reserve => {
                let mut path_trace = connection.path_trace.clone();
                path_trace.push(self.domain.clone());
                MessageBody::Reserve {
                    criteria: leg.criteria.clone(),
                    path_trace,
                }
            }
            LegRequest::Commit => MessageBody::ReserveCommit,
            LegRequest::Renew(_) => MessageBody::Renew,
            LegRequest::SetProvisioned(sequence) if connection.is_provisioned => {
                MessageBody::Provision { sequence }
            }
            LegRequest::SetProvisioned(sequence) => MessageBody::Release { sequence },
            LegRequest::Abort => MessageBody::ReserveAbort,
            LegRequest::Terminate => MessageBody::Terminate,
        };
        let header = Header {
            correlation_id: correlation(connection, place, request)?,
            requester_nsa: self.domain.clone(),
            provider_nsa: peer.clone(),
            global_reservation_id: connection.global.clone(),
            connection_id: leg.connection_id.clone(),
        };
        Some(Effect::Send(Message { header, body }))
    }
}

/// Begins the renewal of a leg if it is due.
fn begin_renewal(connection: &mut Connection, place: usize, now: MomentMs) {
    if connection.phase != Phase::Active {
        return;
    }
    let Some(leg) = connection.legs.get_mut(place) else {
        return;
    };
    let is_peer = matches!(leg.provider, Provider::Peer(_));
    if is_peer && !leg.is_renewing && leg.next_renewal <= now {
        leg.renewals = leg.renewals.saturating_add(1);
        leg.is_renewing = true;
        leg.begin_request(now);
    }
}

/// Returns the request that a leg has not followed yet.
pub(super) fn leg_request(connection: &Connection, leg: &Leg) -> Option<LegRequest> {
    match connection.phase {
        Phase::Reserving => (leg.state == LegState::Asked).then_some(LegRequest::Reserve),
        Phase::Committing => (leg.state == LegState::Held).then_some(LegRequest::Commit),
        Phase::Active if leg.is_renewing => Some(LegRequest::Renew(leg.renewals)),
        Phase::Active => (leg.provisioned < connection.provision_sequence)
            .then_some(LegRequest::SetProvisioned(connection.provision_sequence)),
        Phase::Terminating if leg.state == LegState::Ended => None,
        Phase::Terminating if leg.is_commit_sent => Some(LegRequest::Terminate),
        Phase::Terminating => Some(LegRequest::Abort),
        Phase::Held | Phase::Committed | Phase::Terminated => None,
    }
}

fn book_command(connection: &Connection, leg: &Leg, request: LegRequest) -> Option<BookCommand> {
    Some(match request {
        LegRequest::Reserve => BookCommand::Reserve(leg.criteria.clone()),
        LegRequest::Commit => BookCommand::Commit(leg.reservation?),
        LegRequest::SetProvisioned(sequence) => BookCommand::SetProvisioned {
            reservation: leg.reservation?,
            sequence,
            is_provisioned: connection.is_provisioned,
        },
        LegRequest::Abort | LegRequest::Terminate => BookCommand::Cancel(leg.reservation),
        LegRequest::Renew(_) => return None,
    })
}

/// Returns the identifier of a request to a leg. A repeated request has the same one.
pub(super) fn correlation(
    connection: &Connection,
    place: usize,
    request: LegRequest,
) -> Option<CorrelationId> {
    let id = &connection.id;
    let text = match request {
        LegRequest::Reserve => format!("{id}/{place}/reserve"),
        LegRequest::Commit => format!("{id}/{place}/commit"),
        LegRequest::Renew(number) => format!("{id}/{place}/renew/{number}"),
        LegRequest::SetProvisioned(number) => format!("{id}/{place}/provision/{number}"),
        LegRequest::Abort => format!("{id}/{place}/abort"),
        LegRequest::Terminate => format!("{id}/{place}/terminate"),
    };
    text.parse().ok()
}

/// Returns the time at which a connection has something to do.
pub(super) fn next_due(connection: &Connection) -> MomentMs {
    let mut due = connection.until;
    if connection.phase < Phase::Terminating {
        due = due.min(connection.window_end());
    }
    for leg in &connection.legs {
        if leg_request(connection, leg).is_some() {
            due = due.min(leg.next_attempt.unwrap_or(MomentMs::MIN));
        }
        if connection.phase == Phase::Active && matches!(leg.provider, Provider::Peer(_)) {
            due = due.min(leg.until);
            if !leg.is_renewing {
                due = due.min(leg.next_renewal);
            }
        }
    }
    if connection.is_report_due {
        due = due.min(connection.next_report.unwrap_or(MomentMs::MIN));
    }
    due
}
