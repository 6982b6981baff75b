//! Messages of requesters to this domain as their provider.

use longhaul_circuits::time::MomentMs;
use longhaul_control_api::domains::{
    CorrelationId, Criteria, DomainName, Header, MAX_PATH_TRACE, Message, MessageBody,
    ProblemReason,
};

use super::{DomainAgent, MessageFault, Outcome, Planner, new_legs};
use crate::connection::{Connection, PendingRequest, Phase, RequestKind, Requester};

/// Effect of a request on a connection.
enum Verdict {
    /// It is answered once the connection has followed it.
    Pending(RequestKind),
    /// It needs no answer.
    Silent,
    /// The state does not allow it.
    NotNow,
}

impl DomainAgent {
    /// Takes a message that was signed by the key of `peer`.
    ///
    /// # Errors
    /// [`MessageFault`]: nothing has changed.
    pub fn receive(
        &mut self,
        peer: &DomainName,
        message: Message,
        planner: &impl Planner,
        now: MomentMs,
    ) -> Result<Outcome, MessageFault> {
        if message.sender() != peer {
            return Err(MessageFault::Sender {
                sender: message.sender().clone(),
                peer: peer.clone(),
            });
        }
        if *message.receiver() != self.domain {
            return Err(MessageFault::Receiver {
                receiver: message.receiver().clone(),
                domain: self.domain.clone(),
            });
        }
        if message.body.is_by_requester() {
            self.serve(peer, message, planner, now)
        } else {
            Ok(self.take_answer(peer, message, now))
        }
    }

    fn serve(
        &mut self,
        peer: &DomainName,
        message: Message,
        planner: &impl Planner,
        now: MomentMs,
    ) -> Result<Outcome, MessageFault> {
        let Message { header, body } = message;
        let requester = Requester::Peer(peer.clone());
        let id = self.connection_id(&requester, &header.global_reservation_id)?;
        let mut outcome = Outcome::default();
        let Some(mut connection) = self.connections.get(&id).cloned() else {
            match body {
                MessageBody::Reserve {
                    criteria,
                    path_trace,
                } => {
                    self.check_share(&requester)?;
                    let connection =
                        self.open(&header, requester, criteria, path_trace, planner, now)?;
                    self.finish(connection, None, now, &mut outcome);
                }
                // The requester has forgotten what it acknowledges, as this domain has.
                MessageBody::NotificationAcknowledged => {}
                _ => {
                    let text = format!("{id}: there is no such segment");
                    let problem = self.own_problem(ProblemReason::NoSuchConnection, text);
                    outcome.effects.push(self.exception(&header, peer, problem));
                }
            }
            return Ok(outcome);
        };
        let before = connection.stored_form();
        // What has expired by now cannot be committed or renewed any more.
        self.settle(&mut connection, now);
        match self.apply_request(&mut connection, &header, body, now) {
            Verdict::Pending(kind) => {
                connection.pending = Some(PendingRequest {
                    kind,
                    correlation: header.correlation_id,
                });
            }
            Verdict::Silent => {}
            Verdict::NotNow => {
                let text = format!("{id}: its state does not allow that");
                let problem = self.own_problem(ProblemReason::InvalidTransition, text);
                outcome.effects.push(self.exception(&header, peer, problem));
            }
        }
        self.finish(connection, Some(before), now, &mut outcome);
        Ok(outcome)
    }

    /// Opens the connection of a new request. One that cannot be planned has ended.
    fn open(
        &self,
        header: &Header,
        requester: Requester,
        criteria: Criteria,
        path_trace: Vec<DomainName>,
        planner: &impl Planner,
        now: MomentMs,
    ) -> Result<Connection, MessageFault> {
        let id = self.connection_id(&requester, &header.global_reservation_id)?;
        let planned = if path_trace.contains(&self.domain) {
            let text = "the path passes this domain twice: name other ends";
            Err(self.own_problem(ProblemReason::NoPath, text))
        } else if path_trace.len() >= MAX_PATH_TRACE {
            let text = format!("the path has more than {MAX_PATH_TRACE} domains");
            Err(self.own_problem(ProblemReason::NoPath, text))
        } else {
            planner.plan(&criteria, &path_trace)
        };
        let (legs, problem) = match planned {
            Ok(legs) if !legs.is_empty() => (legs, None),
            Ok(_) => {
                let problem = self.own_problem(ProblemReason::NoPath, "no path leads there");
                (Vec::new(), Some(problem))
            }
            Err(problem) => (Vec::new(), Some(problem)),
        };
        let global = header.global_reservation_id.clone();
        let mut connection = Connection {
            path_trace,
            legs: new_legs(legs, now),
            pending: Some(PendingRequest {
                kind: RequestKind::Reserve,
                correlation: header.correlation_id.clone(),
            }),
            ..Connection::new(id, requester, global, criteria, self.reserve_until(now))
        };
        if let Some(problem) = problem {
            self.end(&mut connection, problem, now);
        }
        Ok(connection)
    }

    fn apply_request(
        &self,
        connection: &mut Connection,
        header: &Header,
        body: MessageBody,
        now: MomentMs,
    ) -> Verdict {
        let phase = connection.phase;
        let has_ended = phase >= Phase::Terminating;
        match body {
            MessageBody::Reserve {
                criteria,
                path_trace,
            } => {
                let is_same =
                    connection.criteria == criteria && connection.path_trace == path_trace;
                match is_same {
                    true => Verdict::Pending(RequestKind::Reserve),
                    false => Verdict::NotNow,
                }
            }
            MessageBody::ReserveCommit => {
                match phase {
                    Phase::Reserving => return Verdict::NotNow,
                    Phase::Held => self.begin_commit(connection, now),
                    _ => {}
                }
                Verdict::Pending(RequestKind::Commit)
            }
            MessageBody::ReserveAbort => {
                match phase {
                    Phase::Reserving | Phase::Held => {
                        self.end_as_asked(connection, &header.correlation_id, now);
                    }
                    Phase::Committing | Phase::Committed | Phase::Active => {
                        return Verdict::NotNow;
                    }
                    Phase::Terminating | Phase::Terminated => connection.is_report_due = false,
                }
                Verdict::Pending(RequestKind::Abort)
            }
            MessageBody::Terminate => {
                if !has_ended {
                    self.end_as_asked(connection, &header.correlation_id, now);
                }
                connection.is_report_due = false;
                Verdict::Pending(RequestKind::Terminate)
            }
            MessageBody::Renew => {
                match phase {
                    Phase::Committed | Phase::Active => {
                        connection.until = now.saturating_add_unsigned(self.timing.lease);
                    }
                    Phase::Terminating | Phase::Terminated => {}
                    _ => return Verdict::NotNow,
                }
                if phase == Phase::Committed {
                    self.activate(connection, now);
                }
                Verdict::Pending(RequestKind::Renew)
            }
            MessageBody::Provision { sequence } => {
                self.apply_provisioning(connection, sequence, true, now)
            }
            MessageBody::Release { sequence } => {
                self.apply_provisioning(connection, sequence, false, now)
            }
            MessageBody::NotificationAcknowledged => {
                connection.is_report_due = false;
                Verdict::Silent
            }
            _ => Verdict::Silent,
        }
    }

    fn apply_provisioning(
        &self,
        connection: &mut Connection,
        sequence: u32,
        is_provisioned: bool,
        now: MomentMs,
    ) -> Verdict {
        let kind = match is_provisioned {
            true => RequestKind::Provision(sequence),
            false => RequestKind::Release(sequence),
        };
        if connection.phase >= Phase::Terminating {
            return Verdict::Pending(kind);
        }
        if connection.phase != Phase::Active {
            return Verdict::NotNow;
        }
        if sequence > connection.provision_sequence {
            connection.provision_sequence = sequence;
            connection.is_provisioned = is_provisioned;
            let legs = connection.legs.iter_mut();
            legs.filter(|leg| !leg.is_renewing)
                .for_each(|leg| leg.begin_request(now));
        }
        if sequence < connection.provision_sequence {
            // A late request must not undo a newer one.
            return Verdict::Silent;
        }
        Verdict::Pending(kind)
    }

    fn end_as_asked(
        &self,
        connection: &mut Connection,
        correlation: &CorrelationId,
        now: MomentMs,
    ) {
        connection.pending = Some(PendingRequest {
            kind: RequestKind::Terminate,
            correlation: correlation.clone(),
        });
        let problem = self.own_problem(ProblemReason::Terminated, "its requester ended it");
        self.end(connection, problem, now);
    }
}
