//! Commands of the agent for the book of reservations. They are carried out one after the other, so
//! that an end never overtakes the hold that it ends.

use std::collections::HashMap;

use longhaul_api::Caller;
use longhaul_circuits::ledger::ReservationId;
use longhaul_circuits::machine::{LifeState, ProvisionState};
use longhaul_circuits::time::Window;
use longhaul_control_api::domains::{
    ConnectionId, Criteria, DomainName, ProblemReason, SegmentProblem,
};
use longhaul_control_api::reservations::{ReservationRequest, Reserved, Wish};
use longhaul_domains::agent::{BookCommand, BookResult};
use longhaul_domains::connection::Requester;
use longhaul_provisioning::streams::Prefix;
use tokio::sync::mpsc;

use crate::controller::Controller;
use crate::domains::handle::DomainsHandle;
use crate::places::MapIndex;
use crate::reservations::wanted::{ReservationEnd, request_window};
use crate::reservations::writer::AskError;
use crate::reservations::{ReservationCommand, ReservationError, book_moment};
use crate::store::IdempotencyKey;

/// Principal of the idempotency keys of commands. It is no key and no operator.
const PRINCIPAL: &str = "domains";

/// Command with its connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SegmentCommand {
    pub connection: ConnectionId,
    pub leg: usize,
    pub requester: Requester,
    pub command: BookCommand,
}

/// Result of a command.
#[derive(Debug)]
pub(super) struct SegmentResult {
    pub connection: ConnectionId,
    pub leg: usize,
    pub result: BookResult,
}

/// Task that carries out commands.
pub(super) struct SegmentTask {
    controller: Controller,
    domains: DomainsHandle,
    /// Reservations that were held since the start, by connection and leg.
    held: HashMap<(ConnectionId, usize), u64>,
}

impl SegmentTask {
    pub(super) fn new(controller: Controller, domains: DomainsHandle) -> Self {
        Self {
            controller,
            domains,
            held: HashMap::new(),
        }
    }

    /// Carries out commands until their sender is gone. A command without a result is repeated by
    /// the agent.
    pub(super) async fn run(
        mut self,
        mut commands: mpsc::Receiver<SegmentCommand>,
        results: mpsc::Sender<SegmentResult>,
    ) {
        while let Some(command) = commands.recv().await {
            let (connection, leg) = (command.connection.clone(), command.leg);
            let Some(result) = self.carry_out(command).await else {
                continue;
            };
            let result = SegmentResult {
                connection,
                leg,
                result,
            };
            if results.send(result).await.is_err() {
                return;
            }
        }
    }

    async fn carry_out(&mut self, asked: SegmentCommand) -> Option<BookResult> {
        let place = (asked.connection.clone(), asked.leg);
        match &asked.command {
            BookCommand::Reserve(criteria) => {
                let result = self.reserve(&asked, criteria).await?;
                if let BookResult::Held { reservation, .. } = &result {
                    self.held.insert(place, *reservation);
                }
                Some(result)
            }
            BookCommand::Commit(id) => {
                let command = ReservationCommand::Commit(ReservationId(*id));
                let done = self.execute(&asked, "commit", id, command).await;
                match done {
                    Ok(_) => Some(BookResult::Promised),
                    Err(error) => self.refusal(error, "the hold expired").map(ended),
                }
            }
            BookCommand::Cancel(id) => {
                let held = self.held.remove(&place);
                let Some(id) = id.or(held) else {
                    // Whatever was held before a restart expires by itself.
                    return Some(BookResult::Ended(None));
                };
                let command = ReservationCommand::Cancel {
                    id: ReservationId(id),
                    series: false,
                };
                // Returning bandwidth needs no right of the requester.
                let book = self.controller.book();
                let operator = self.controller.asker(&self.controller.operator());
                match book.execute(operator, command, None).await {
                    Ok(_) => Some(BookResult::Ended(None)),
                    Err(error) => self
                        .refusal(error, "it has ended")
                        .map(|_| BookResult::Ended(None)),
                }
            }
            BookCommand::SetProvisioned {
                reservation,
                sequence,
                is_provisioned,
            } => {
                let (id, sequence) = (*reservation, *sequence);
                self.set_provisioned(&asked, id, sequence, *is_provisioned)
                    .await
            }
        }
    }

    async fn reserve(&self, asked: &SegmentCommand, criteria: &Criteria) -> Option<BookResult> {
        let places = self.controller.places();
        let found = self.ends(&places, criteria);
        let (from, to) = match found {
            Ok(ends) => ends,
            Err(problem) => return Some(ended(problem)),
        };
        let now = book_moment(self.controller.book().now());
        let window = request_window(Some(criteria.start_ms), criteria.end_ms, now);
        let window: Window = match window {
            Ok(window) => window,
            Err(fault) => {
                return Some(ended(
                    self.problem(ProblemReason::Invalid, fault.to_string()),
                ));
            }
        };
        let speaker = self.controller.speaker(&self.caller(&asked.requester)?);
        let is_end =
            speaker.is_some_and(|one| one.speaks_for(&from.name) || one.speaks_for(&to.name));
        let command = ReservationCommand::Reserve {
            request: Box::new(request(criteria)),
            from,
            to,
            windows: vec![window],
            is_end,
            document: None,
            delegation: None,
        };
        match self.execute(asked, "reserve", criteria, command).await {
            Ok(reserved) => {
                let first = reserved.reservations.first()?;
                let now = self.controller.book().now();
                let held = first.held.as_ref();
                Some(BookResult::Held {
                    reservation: first.id,
                    hold_ms: held.map_or(0, |held| held.until_ms.saturating_sub(now)),
                })
            }
            Err(error) => self.refusal(error, "it is not held").map(ended),
        }
    }

    async fn set_provisioned(
        &self,
        asked: &SegmentCommand,
        reservation: u64,
        sequence: u32,
        is_provisioned: bool,
    ) -> Option<BookResult> {
        let id = ReservationId(reservation);
        let book = self.controller.book();
        let state = book.read(|desk, _| Some(desk.reservation(id)?.1.machine.provision));
        let state = state.await.ok()?;
        let wanted = match is_provisioned {
            true => [ProvisionState::Provisioning, ProvisionState::Provisioned],
            false => [ProvisionState::Releasing, ProvisionState::Released],
        };
        let is_done = state.flatten().is_some_and(|phase| wanted.contains(&phase));
        if is_done {
            return Some(BookResult::SetProvisioned(sequence));
        }
        let (word, command) = match is_provisioned {
            true => ("provision", ReservationCommand::Provision(id)),
            false => ("release", ReservationCommand::Release(id)),
        };
        let content = (reservation, sequence);
        match self.execute(asked, word, &content, command).await {
            Ok(_) => Some(BookResult::SetProvisioned(sequence)),
            // While it is being torn down, it cannot be set up. The agent asks again.
            Err(AskError::Refused(ReservationError::NotNow(..))) => None,
            Err(error) => self.refusal(error, "it has ended").map(ended),
        }
    }

    /// Executes a command in the name of the requester, once.
    async fn execute(
        &self,
        asked: &SegmentCommand,
        word: &str,
        content: &impl serde::Serialize,
        command: ReservationCommand,
    ) -> Result<Reserved, AskError> {
        let Some(caller) = self.caller(&asked.requester) else {
            return Err(ReservationError::Unknown(0).into());
        };
        let asker = self.controller.asker(&caller);
        let content = serde_json::to_vec(&(word, content)).unwrap_or_default();
        let mut key = format!("{}/{}/{word}", asked.connection, asked.leg);
        if let BookCommand::SetProvisioned { sequence, .. } = &asked.command {
            key = format!("{key}/{sequence}");
        }
        let once = IdempotencyKey::new(PRINCIPAL, &key, &content);
        self.controller
            .book()
            .execute(asker, command, Some(once))
            .await
    }

    /// Returns the requester as a caller; `None` for a domain that is no peer any more.
    fn caller(&self, requester: &Requester) -> Option<Caller> {
        let key = match requester {
            Requester::User(user) if user == crate::authority::OPERATOR => {
                return Some(self.controller.operator());
            }
            Requester::User(user) => user.parse().ok()?,
            Requester::Peer(domain) => self.domains.settings().peers.get(domain)?.key,
        };
        Some(self.controller.caller(key))
    }

    /// Returns the ends of a segment, with the addresses by which its streams are recognised.
    fn ends(
        &self,
        places: &MapIndex,
        criteria: &Criteria,
    ) -> Result<(ReservationEnd, ReservationEnd), SegmentProblem> {
        let end = |what: &str, point: &str, address: Option<&String>| {
            let unknown = || {
                let text = format!("{what}: this domain has no edge, host, depot or site {point}");
                self.problem(ProblemReason::NoPath, text)
            };
            let mut end = places.place(point).ok_or_else(unknown)?;
            let own = places.addresses(&end.name);
            let is_edge = self.domains.settings().edges.contains_key(point);
            let asked = address.map(|text| text.parse::<Prefix>()).transpose();
            let asked = asked.map_err(|error| {
                self.problem(ProblemReason::Invalid, format!("{what}: {error}"))
            })?;
            let is_own = |prefix: &Prefix| own.iter().any(|known| known.contains(*prefix));
            if let Some(asked) = asked.filter(|asked| !is_edge && !is_own(asked)) {
                let text = format!("{what}: {asked} is not an address of {point}");
                return Err(self.problem(ProblemReason::Forbidden, text));
            }
            // Streams of this domain's hosts do not enter at its edges.
            let hosts = places.known.map.hosts.iter();
            let is_host = |prefix: &Prefix| {
                hosts.clone().any(|host| {
                    let addresses = places.addresses(&host.name);
                    addresses
                        .iter()
                        .any(|known| known.contains(*prefix) || prefix.contains(*known))
                })
            };
            if let Some(asked) = asked.filter(|asked| is_edge && is_host(asked)) {
                let text = format!("{what}: {asked} is an address of this domain");
                return Err(self.problem(ProblemReason::Forbidden, text));
            }
            end.address = asked.or_else(|| own.first().copied());
            Ok(end)
        };
        let (source, destination) = (&criteria.source, &criteria.destination);
        let mut from = end("sourceSTP", &source.point, criteria.source_address.as_ref())?;
        let to = end(
            "destSTP",
            &destination.point,
            criteria.destination_address.as_ref(),
        )?;
        // Streams of two IP versions are no streams.
        let families = from.address.zip(to.address);
        if families.is_some_and(|(from, to)| from.family() != to.family()) {
            from.address = None;
        }
        Ok((from, to))
    }

    fn problem(&self, reason: ProblemReason, text: impl Into<String>) -> SegmentProblem {
        SegmentProblem {
            reason,
            domain: self.domain().clone(),
            text: text.into(),
        }
    }

    fn domain(&self) -> &DomainName {
        &self.domains.settings().name
    }

    /// Returns the reason of a refusal, or `None` if the command is to be repeated.
    fn refusal(&self, error: AskError, otherwise: &str) -> Option<SegmentProblem> {
        let AskError::Refused(error) = error else {
            return None;
        };
        let reason = match &error {
            ReservationError::Fault(_) => return None,
            ReservationError::InsufficientBandwidth(_) => ProblemReason::InsufficientBandwidth,
            ReservationError::Forbidden(_)
            | ReservationError::Policy(_)
            | ReservationError::Delegation(_)
            | ReservationError::DelegationUsed(_)
            | ReservationError::Quota(_) => ProblemReason::Forbidden,
            ReservationError::Wanted(_) | ReservationError::Request(_) => ProblemReason::Invalid,
            ReservationError::NotNow(..) | ReservationError::Unknown(_) => {
                return Some(self.problem(ProblemReason::Expired, otherwise));
            }
        };
        // Other domains need not learn which links and reservations are in the way.
        let text = match reason {
            ProblemReason::InsufficientBandwidth => "there is not enough bandwidth".to_owned(),
            _ => error.to_string(),
        };
        Some(self.problem(reason, text))
    }
}

fn ended(problem: SegmentProblem) -> BookResult {
    BookResult::Ended(Some(problem))
}

/// Returns the request for a segment: it is held until the agent commits it.
fn request(criteria: &Criteria) -> ReservationRequest {
    let (from, to) = (&criteria.source.point, &criteria.destination.point);
    let wish = Wish::Rate {
        rate_bps: criteria.capacity_bps,
    };
    ReservationRequest {
        start_ms: Some(criteria.start_ms),
        hold: true,
        description: Some("segment of a reservation across domains".to_owned()),
        ..ReservationRequest::new(from.clone(), to.clone(), wish, criteria.end_ms)
    }
}

/// Returns true if a reservation of the book can still be used.
pub(super) fn is_alive(life: LifeState) -> bool {
    life == LifeState::Created
}
