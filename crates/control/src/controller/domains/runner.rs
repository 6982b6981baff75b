//! The task that runs the agent. It takes waiting requests, results of the book and the time,
//! stores what changes, and only then sends messages and gives commands to the book.
//!
//! Of controllers that share a store, only the leader runs the agent. A new leader, and a restarted
//! controller, begins with the stored connections. If storing fails, the agent is dropped with
//! everything that it decided, and begins again with what is stored.

use std::sync::Arc;
use std::time::Duration;

use longhaul_circuits::ledger::ReservationId;
use longhaul_circuits::time::MomentMs;
use longhaul_control_api::domains::{
    ConnectionId, DomainName, Message, ProblemReason, SegmentProblem,
};
use longhaul_domains::agent::{AgentLimits, BookResult, DomainAgent, Effect, Outcome};
use longhaul_domains::connection::{LegState, Phase, Provider};
use longhaul_hop::SharedPermits;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::exchange::Exchange;
use super::segments::{SegmentCommand, SegmentResult, SegmentTask, is_alive};
use crate::controller::Controller;
use crate::domains::handle::{AgentInputs, AgentRequest, DomainError, DomainsHandle, Waiting};
use crate::domains::peers::PeerClients;
use crate::leader::{self, Leadership};
use crate::reservations::book_moment;
use crate::store::StoreError;
use crate::store::domains::ConnectionChange;

/// Maximum number of requests and results that are stored together.
const MAX_BATCH: usize = 64;
/// Maximum number of commands for the book that wait. Further ones are repeated by the agent.
const MAX_COMMANDS: usize = 1_024;
/// Maximum number of messages under way to all peers; a peer gets half of them at most. Further
/// ones are repeated by the agent.
const MAX_SENDING: usize = 256;
/// Pause after the store failed.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Maximum pause between two looks at the time.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// Answer to a request, to be sent once its effect is stored.
type Reply = (
    oneshot::Sender<Result<Option<ConnectionId>, DomainError>>,
    Result<Option<ConnectionId>, DomainError>,
);

/// Task that runs the agent.
pub struct AgentTask {
    controller: Controller,
    domains: DomainsHandle,
    waiting: mpsc::Receiver<Waiting>,
    changed: watch::Sender<u64>,
    exchanged: watch::Sender<u64>,
    clients: Arc<PeerClients>,
}

/// State of one term of leadership.
struct Term {
    agent: DomainAgent,
    /// Epoch of the leader, if controllers share the store.
    epoch: Option<i64>,
    commands: mpsc::Sender<SegmentCommand>,
    results: mpsc::Receiver<SegmentResult>,
    sending: JoinSet<()>,
    permits: Arc<SharedPermits<DomainName>>,
    /// Tasks that end with the term.
    _tasks: JoinSet<()>,
}

impl AgentTask {
    /// Creates the task.
    #[must_use]
    pub fn new(
        controller: Controller,
        domains: DomainsHandle,
        inputs: AgentInputs,
        clients: PeerClients,
    ) -> Self {
        Self {
            controller,
            domains,
            waiting: inputs.waiting,
            changed: inputs.changed,
            exchanged: inputs.exchanged,
            clients: Arc::new(clients),
        }
    }

    /// Runs the agent while this controller leads, until `stop` is true.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let exchange = Exchange {
            controller: self.controller.clone(),
            domains: self.domains.clone(),
            clients: self.clients.clone(),
            exchanged: self.exchanged.clone(),
        };
        tokio::select! {
            () = exchange.run() => {}
            () = self.lead() => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
    }

    async fn lead(&mut self) {
        let mut leads = self.controller.book().leads();
        loop {
            let leadership = self.controller.leadership();
            // The book's writer leads, so that commands for the book are carried out.
            let led = *leads.borrow_and_update();
            let is_leading = led.is_some() && led == leadership.term();
            if !is_leading {
                tokio::select! {
                    () = leader::changed(&mut leads) => {}
                    Some(waiting) = self.waiting.recv() => {
                        let leader = leadership.leader_url().map(str::to_owned);
                        // The caller may be gone.
                        let error = StoreError::NotLeading { leader };
                        let _ = waiting.answer.send(Err(error.into()));
                    }
                }
                continue;
            }
            let epoch = match leadership {
                Leadership::Leading { epoch } => Some(epoch),
                _ => None,
            };
            if let Err(error) = self.run_term(epoch, leads.clone()).await {
                tracing::warn!(%error, "cannot store connections with other domains");
                sleep(RETRY_PAUSE).await;
            }
        }
    }

    /// Runs the agent until another controller leads, or the store fails.
    async fn run_term(
        &mut self,
        epoch: Option<i64>,
        mut leads: watch::Receiver<Option<i64>>,
    ) -> Result<(), StoreError> {
        let mut term = self.begin_term(epoch).await?;
        let mut changes = self.controller.book().changes();
        let outcome = term.agent.advance(self.now());
        self.keep(&mut term, outcome, Vec::new()).await?;
        loop {
            let pause = pause(&term.agent, self.now());
            let mut outcome = Outcome::default();
            let mut replies = Vec::new();
            tokio::select! {
                () = leader::changed(&mut leads) => return Ok(()),
                Some(waiting) = self.waiting.recv() => {
                    self.take_request(&mut term, waiting, &mut outcome, &mut replies);
                }
                Some(result) = term.results.recv() => {
                    take_result(&mut term, result, self.now(), &mut outcome);
                    // What ended before it was known as promised has ended, too.
                    self.follow_book(&mut term, &mut outcome).await;
                }
                changed = changes.changed() => {
                    if changed.is_err() {
                        return Ok(());
                    }
                    self.follow_book(&mut term, &mut outcome).await;
                }
                Some(_) = term.sending.join_next() => continue,
                () = sleep(pause) => {}
            }
            while replies.len() < MAX_BATCH
                && let Ok(waiting) = self.waiting.try_recv()
            {
                self.take_request(&mut term, waiting, &mut outcome, &mut replies);
            }
            while let Ok(result) = term.results.try_recv() {
                take_result(&mut term, result, self.now(), &mut outcome);
            }
            merge(&mut outcome, term.agent.advance(self.now()));
            self.keep(&mut term, outcome, replies).await?;
        }
    }

    async fn begin_term(&self, epoch: Option<i64>) -> Result<Term, StoreError> {
        let stored = self.controller.store().domain_connections().await?;
        let settings = self.domains.settings();
        let known = stored
            .iter()
            .map(|connection| (connection.id.clone(), connection.clone()));
        *self.domains.shared().connections.write() = known.collect();
        let agent = DomainAgent::restore(
            settings.name.clone(),
            settings.timing,
            AgentLimits::default(),
            stored,
            self.now(),
        );
        let (commands, received) = mpsc::channel(MAX_COMMANDS);
        let (done, results) = mpsc::channel(MAX_COMMANDS);
        let segments = SegmentTask::new(self.controller.clone(), self.domains.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(segments.run(received, done));
        Ok(Term {
            agent,
            epoch,
            commands,
            results,
            sending: JoinSet::new(),
            permits: SharedPermits::new(MAX_SENDING),
            _tasks: tasks,
        })
    }

    fn now(&self) -> MomentMs {
        book_moment(self.controller.book().now())
    }

    fn take_request(
        &self,
        term: &mut Term,
        waiting: Waiting,
        outcome: &mut Outcome,
        replies: &mut Vec<Reply>,
    ) {
        let now = self.now();
        let answer = match waiting.request {
            AgentRequest::Receive(peer, message) => {
                let planner = self.domains.planner();
                term.agent
                    .receive(&peer, *message, &planner, now)
                    .map(|done| (None, done))
            }
            AgentRequest::Reserve(request) => term
                .agent
                .request(*request, now)
                .map(|(id, done)| (Some(id), done)),
            AgentRequest::Terminate(id, problem) => term
                .agent
                .terminate(&id, problem, now)
                .map(|done| (Some(id), done)),
        };
        let answer = answer.map(|(id, done)| {
            merge(outcome, done);
            id
        });
        replies.push((waiting.answer, answer.map_err(DomainError::from)));
    }

    /// Takes over what happened in the book: segments that ended, and set-ups that the owner of a
    /// reservation asked for or released.
    async fn follow_book(&self, term: &mut Term, outcome: &mut Outcome) {
        let segments = term.agent.connections().flat_map(|connection| {
            let legs = connection.legs.iter().enumerate();
            let promised = legs.filter(|(_, leg)| {
                leg.provider == Provider::Book && leg.state == LegState::Promised
            });
            promised.filter_map(move |(place, leg)| {
                let phase = connection.phase;
                let id = ReservationId(leg.reservation?);
                (phase < Phase::Terminating).then(|| (connection.id.clone(), place, id))
            })
        });
        let segments: Vec<_> = segments.collect();
        let book = self.controller.book();
        let states = book.read(|desk, _| {
            let state = |(_, _, id): &(ConnectionId, usize, _)| {
                desk.reservation(*id).map(|(_, found)| found.machine)
            };
            segments.iter().map(state).collect::<Vec<_>>()
        });
        let Ok(states) = states.await else { return };
        let now = self.now();
        for ((id, place, _), state) in segments.into_iter().zip(states) {
            let alive = state.filter(|machine| is_alive(machine.life));
            let Some(machine) = alive else {
                let problem = SegmentProblem {
                    reason: ProblemReason::ForcedEnd,
                    domain: self.domains.settings().name.clone(),
                    text: "its reservation in this domain was cancelled, failed, or is over"
                        .to_owned(),
                };
                let result = BookResult::Ended(Some(problem));
                if let Ok(done) = term.agent.record_result(&id, place, result, now) {
                    merge(outcome, done);
                }
                continue;
            };
            let is_wanted = matches!(
                machine.provision,
                Some(
                    longhaul_circuits::machine::ProvisionState::Provisioning
                        | longhaul_circuits::machine::ProvisionState::Provisioned
                )
            );
            let is_settled = term.agent.connection(&id).is_some_and(|connection| {
                let sequence = connection.provision_sequence;
                let leg = connection.legs.get(place);
                connection.phase == Phase::Active
                    && connection.requester.is_user()
                    && leg.is_some_and(|leg| leg.provisioned >= sequence)
                    && connection.is_provisioned != is_wanted
            });
            if is_settled && let Ok(done) = term.agent.set_provisioned(&id, is_wanted, now) {
                merge(outcome, done);
            }
        }
    }

    /// Stores what has changed, then answers and carries out the effects.
    async fn keep(
        &self,
        term: &mut Term,
        outcome: Outcome,
        replies: Vec<Reply>,
    ) -> Result<(), StoreError> {
        let changes: Vec<ConnectionChange> = outcome
            .changed
            .iter()
            .map(|id| match term.agent.connection(id) {
                Some(connection) => ConnectionChange::Put(Box::new(connection.stored_form())),
                None => ConnectionChange::Remove(id.to_string()),
            })
            .collect();
        if !changes.is_empty() {
            let store = self.controller.store();
            let stored = store.change_domain_connections(&changes, term.epoch);
            if let Err(error) = store.unless_given_up(stored).await {
                for (answer, _) in replies {
                    // The caller may be gone.
                    let _ = answer.send(Err(StoreError::Behind.into()));
                }
                return Err(error);
            }
            let mut known = self.domains.shared().connections.write();
            for change in changes {
                match change {
                    ConnectionChange::Put(connection) => {
                        known.insert(connection.id.clone(), *connection);
                    }
                    ConnectionChange::Remove(id) => known.retain(|known, _| known.as_str() != id),
                }
            }
            drop(known);
            self.changed.send_modify(|times| *times += 1);
        }
        for (answer, result) in replies {
            let _ = answer.send(result);
        }
        for effect in outcome.effects {
            self.carry_out(term, effect);
        }
        Ok(())
    }

    fn carry_out(&self, term: &mut Term, effect: Effect) {
        match effect {
            Effect::Send(message) => self.send(term, message),
            Effect::Book {
                connection,
                leg,
                command,
            } => {
                let Some(known) = term.agent.connection(&connection) else {
                    return;
                };
                let command = SegmentCommand {
                    requester: known.requester.clone(),
                    connection,
                    leg,
                    command,
                };
                // If too many wait, the agent asks again.
                let _ = term.commands.try_send(command);
            }
        }
    }

    fn send(&self, term: &mut Term, message: Message) {
        let Ok(permit) = term.permits.take(message.receiver().clone()) else {
            return;
        };
        let (clients, controller) = (self.clients.clone(), self.controller.clone());
        term.sending.spawn(async move {
            if let Err(error) = clients.deliver(&message).await {
                // The agent repeats it.
                controller.log().log(None, |left_out| {
                    tracing::warn!(
                        domain = %message.receiver(),
                        %error,
                        left_out,
                        "cannot deliver a message to another domain"
                    );
                });
            }
            drop(permit);
        });
    }
}

fn take_result(term: &mut Term, done: SegmentResult, now: MomentMs, outcome: &mut Outcome) {
    let SegmentResult {
        connection,
        leg,
        result,
    } = done;
    // A connection that has been forgotten needs no result.
    if let Ok(found) = term.agent.record_result(&connection, leg, result, now) {
        merge(outcome, found);
    }
}

fn merge(outcome: &mut Outcome, more: Outcome) {
    outcome.changed.extend(more.changed);
    outcome.effects.extend(more.effects);
}

/// Returns the time until something is due.
fn pause(agent: &DomainAgent, now: MomentMs) -> Duration {
    let due = agent.next_due().map(|due| due.saturating_sub(now).max(0));
    let due = due.and_then(|due| u64::try_from(due).ok());
    due.map_or(MAX_PAUSE, Duration::from_millis).min(MAX_PAUSE)
}
