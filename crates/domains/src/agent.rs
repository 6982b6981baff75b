//! Agent of a domain: requester of segments at other domains, and provider of its own.
//!
//! Every method takes the time, and returns an [`Outcome`]: connections to store, and effects that
//! may begin once they are stored. A crash in between only loses effects, and the agent repeats
//! those until they are answered.

mod answers;
mod drive;
mod io;
mod reply;
mod serve;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use longhaul_circuits::time::MomentMs;
use longhaul_control_api::domains::{
    ConnectionId, Criteria, DomainName, GlobalReservationId, ProblemReason, Segment, SegmentProblem,
};

use crate::connection::{Connection, Leg, Phase, PlannedLeg, Requester};
use crate::timing::Timing;
use io::MAX_GLOBAL_BYTES;

pub use io::{
    AgentLimits, BookCommand, BookResult, Effect, MessageFault, Outcome, Planner, UserRequest,
};

/// Agent of a domain.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DomainAgent {
    domain: DomainName,
    timing: Timing,
    limits: AgentLimits,
    connections: BTreeMap<ConnectionId, Connection>,
    /// Next time at which something is due, of each connection.
    timers: BTreeSet<(MomentMs, ConnectionId)>,
    due_at: BTreeMap<ConnectionId, MomentMs>,
}

impl DomainAgent {
    /// Creates an agent with its stored connections. Whatever is not answered is asked again.
    #[must_use]
    pub fn restore(
        domain: DomainName,
        timing: Timing,
        limits: AgentLimits,
        connections: impl IntoIterator<Item = Connection>,
        now: MomentMs,
    ) -> Self {
        let mut agent = Self {
            domain,
            timing,
            limits,
            connections: BTreeMap::new(),
            timers: BTreeSet::new(),
            due_at: BTreeMap::new(),
        };
        for mut connection in connections {
            for leg in &mut connection.legs {
                (leg.attempts, leg.next_attempt) = (0, Some(now));
            }
            (connection.report_attempts, connection.next_report) = (0, Some(now));
            agent.put(connection);
        }
        agent
    }

    /// Returns the name of the domain.
    #[must_use]
    pub const fn domain(&self) -> &DomainName {
        &self.domain
    }

    /// Returns a connection.
    #[must_use]
    pub fn connection(&self, id: &ConnectionId) -> Option<&Connection> {
        self.connections.get(id)
    }

    /// Returns all connections by their identifiers.
    pub fn connections(&self) -> impl Iterator<Item = &Connection> {
        self.connections.values()
    }

    /// Returns the identifier of a requester's connection.
    ///
    /// # Errors
    /// [`MessageFault::GlobalId`].
    pub fn connection_id(
        &self,
        requester: &Requester,
        global: &GlobalReservationId,
    ) -> Result<ConnectionId, MessageFault> {
        if global.as_str().len() > MAX_GLOBAL_BYTES {
            return Err(MessageFault::GlobalId);
        }
        let requester = match requester {
            Requester::User(_) => "user",
            Requester::Peer(domain) => domain.as_str(),
        };
        let id = format!("{}:{requester}/{global}", self.domain);
        id.parse().map_err(|_| MessageFault::GlobalId)
    }

    /// Returns the time at which [`Self::advance`] has something to do.
    #[must_use]
    pub fn next_due(&self) -> Option<MomentMs> {
        self.timers.first().map(|(moment, _)| *moment)
    }

    /// Begins a reservation of a user.
    ///
    /// # Errors
    /// The identifier is in use or too long, or there are too many connections.
    pub fn request(
        &mut self,
        request: UserRequest,
        now: MomentMs,
    ) -> Result<(ConnectionId, Outcome), MessageFault> {
        let requester = Requester::User(request.user);
        let id = self.connection_id(&requester, &request.global)?;
        if self.connections.contains_key(&id) {
            return Err(MessageFault::GlobalId);
        }
        if request.legs.is_empty() {
            return Err(MessageFault::NoLegs(request.global));
        }
        self.check_share(&requester)?;
        let (global, criteria) = (request.global, request.criteria);
        let until = self.reserve_until(now);
        let connection = Connection {
            legs: new_legs(request.legs, now),
            is_hold_only: request.is_hold_only,
            is_provisioned: request.is_provisioned,
            provision_sequence: u32::from(request.is_provisioned),
            ..Connection::new(id.clone(), requester, global, criteria, until)
        };
        let mut outcome = Outcome::default();
        self.finish(connection, None, now, &mut outcome);
        Ok((id, outcome))
    }

    /// Commits what a user's connection holds.
    ///
    /// # Errors
    /// [`MessageFault::Unknown`] if it holds nothing.
    pub fn commit(&mut self, id: &ConnectionId, now: MomentMs) -> Result<Outcome, MessageFault> {
        self.update(id, now, |agent, connection| {
            let is_held = connection.phase == Phase::Held && connection.requester.is_user();
            if is_held {
                agent.begin_commit(connection, now);
            }
            is_held
        })
    }

    /// Ends a connection for this reason.
    ///
    /// # Errors
    /// [`MessageFault::Unknown`] if it has ended.
    pub fn terminate(
        &mut self,
        id: &ConnectionId,
        problem: SegmentProblem,
        now: MomentMs,
    ) -> Result<Outcome, MessageFault> {
        self.update(id, now, |agent, connection| {
            let is_alive = connection.phase < Phase::Terminating;
            if is_alive {
                agent.end(connection, problem, now);
            }
            is_alive
        })
    }

    /// Sets up, or tears down, the paths of all segments of a user's connection.
    ///
    /// # Errors
    /// [`MessageFault::Unknown`] if not all segments are promised.
    pub fn set_provisioned(
        &mut self,
        id: &ConnectionId,
        is_provisioned: bool,
        now: MomentMs,
    ) -> Result<Outcome, MessageFault> {
        self.update(id, now, |_, connection| {
            let may = connection.phase == Phase::Active && connection.requester.is_user();
            if may && connection.is_provisioned != is_provisioned {
                connection.is_provisioned = is_provisioned;
                connection.provision_sequence = connection.provision_sequence.saturating_add(1);
                connection
                    .legs
                    .iter_mut()
                    .filter(|leg| !leg.is_renewing)
                    .for_each(|leg| leg.begin_request(now));
            }
            may
        })
    }

    /// Does what is due: repeats requests, renews promises, and ends what has expired.
    pub fn advance(&mut self, now: MomentMs) -> Outcome {
        let mut outcome = Outcome::default();
        let due = self.timers.iter().take_while(|(moment, _)| *moment <= now);
        let due: Vec<ConnectionId> = due.map(|(_, id)| id.clone()).collect();
        for id in due {
            let Some(connection) = self.connections.get(&id).cloned() else {
                continue;
            };
            if connection.phase == Phase::Terminated && connection.until <= now {
                self.remove(&id);
                outcome.changed.insert(id);
                continue;
            }
            let before = connection.stored_form();
            self.finish(connection, Some(before), now, &mut outcome);
        }
        outcome
    }

    /// Applies a change to a connection after what is due, and carries out what follows.
    fn update(
        &mut self,
        id: &ConnectionId,
        now: MomentMs,
        change: impl FnOnce(&Self, &mut Connection) -> bool,
    ) -> Result<Outcome, MessageFault> {
        let mut outcome = Outcome::default();
        let found = self.connections.get(id).cloned();
        let mut connection = found.ok_or_else(|| MessageFault::Unknown(id.clone()))?;
        let before = connection.stored_form();
        self.settle(&mut connection, now);
        let is_done = change(self, &mut connection);
        self.finish(connection, Some(before), now, &mut outcome);
        match is_done {
            true => Ok(outcome),
            false => Err(MessageFault::Unknown(id.clone())),
        }
    }

    /// Settles a connection, collects its effects, and keeps it.
    fn finish(
        &mut self,
        mut connection: Connection,
        before: Option<Connection>,
        now: MomentMs,
        outcome: &mut Outcome,
    ) {
        self.drive(&mut connection, now, &mut outcome.effects);
        if before.is_none_or(|before| before != connection.stored_form()) {
            outcome.changed.insert(connection.id.clone());
        }
        self.put(connection);
    }

    fn put(&mut self, connection: Connection) {
        let id = connection.id.clone();
        if let Some(before) = self.due_at.remove(&id) {
            self.timers.remove(&(before, id.clone()));
        }
        let due = drive::next_due(&connection);
        self.timers.insert((due, id.clone()));
        self.due_at.insert(id.clone(), due);
        self.connections.insert(id, connection);
    }

    fn remove(&mut self, id: &ConnectionId) {
        if let Some(before) = self.due_at.remove(id) {
            self.timers.remove(&(before, id.clone()));
        }
        self.connections.remove(id);
    }

    /// Checks that a requester may have one more connection.
    fn check_share(&self, requester: &Requester) -> Result<(), MessageFault> {
        let most = self.limits.connections_per_requester;
        let own = self.connections.values();
        let own = own.filter(|connection| connection.requester == *requester);
        if own.count() < most {
            return Ok(());
        }
        let who = match requester {
            Requester::User(user) => user.clone(),
            Requester::Peer(domain) => domain.to_string(),
        };
        Err(MessageFault::Full(who, most))
    }

    /// Returns the time until which a new connection has to be reserved.
    const fn reserve_until(&self, now: MomentMs) -> MomentMs {
        now.saturating_add_unsigned(self.timing.reserve)
    }

    /// Returns a problem that arose in this domain.
    fn own_problem(&self, reason: ProblemReason, text: impl Into<String>) -> SegmentProblem {
        SegmentProblem {
            reason,
            domain: self.domain.clone(),
            text: text.into(),
        }
    }

    /// Returns this domain's segment with these criteria.
    fn own_segment(criteria: &Criteria) -> Segment {
        Segment {
            source: criteria.source.clone(),
            destination: criteria.destination.clone(),
        }
    }
}

fn new_legs(planned: Vec<PlannedLeg>, now: MomentMs) -> Vec<Leg> {
    planned.into_iter().map(|leg| Leg::new(leg, now)).collect()
}
