//! A world of domains in virtual time: agents with their books, and messages under way.
//!
//! A crash loses everything but the stored connections and the book's journal. The time is the same
//! everywhere; agents exchange only durations.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use longhaul_circuits::time::MomentMs;
use longhaul_control_api::domains::{
    ConnectionId, Criteria, DomainName, Message, ProblemReason, SegmentProblem, Shape,
    TerminationPoint,
};

use crate::agent::{
    AgentLimits, BookCommand, BookResult, DomainAgent, Effect, Outcome, Planner, UserRequest,
};
use crate::connection::{Connection, Phase, PlannedLeg, Provider};
use crate::timing::Timing;

/// Time limits in steps of the world, all different.
pub const TIMING: Timing = Timing {
    reserve: 7,
    commit: 8,
    confirm: 20,
    lease: 30,
    retry: 4,
    max_retry: 4,
    memory: 1_000_000,
};
/// Last time of a world: nothing is forgotten before, and the window does not end.
const LAST: MomentMs = 50_000;
/// Time for which a book holds.
pub const HOLD: u64 = 11;
/// End of the reservation's window.
pub const WINDOW_END: u64 = 100_000;

pub fn domain(number: usize) -> DomainName {
    format!("d{number}").parse().unwrap()
}

fn number(domain: &DomainName) -> usize {
    domain.as_str().trim_start_matches('d').parse().unwrap()
}

fn point(number: usize) -> TerminationPoint {
    TerminationPoint::new(domain(number), "end").unwrap()
}

pub fn criteria(from: usize, to: usize, shape: Shape) -> Criteria {
    Criteria {
        source: point(from),
        destination: point(to),
        capacity_bps: 1,
        start_ms: 0,
        end_ms: WINDOW_END,
        shape,
        source_address: None,
        destination_address: None,
    }
}

/// Planner of one domain in a row of domains.
pub struct Row(pub usize);

impl Planner for Row {
    fn plan(&self, wanted: &Criteria, _: &[DomainName]) -> Result<Vec<PlannedLeg>, SegmentProblem> {
        let last = number(&wanted.destination.domain);
        let leg = |provider, from, to| PlannedLeg {
            provider,
            criteria: criteria(from, to, wanted.shape),
        };
        let mut legs = vec![leg(Provider::Book, self.0, self.0)];
        match wanted.shape {
            Shape::Chain if last > self.0 => {
                let next = self.0 + 1;
                legs.push(leg(Provider::Peer(domain(next)), next, last));
            }
            Shape::Tree => {
                legs.extend(
                    (self.0 + 1..=last).map(|next| leg(Provider::Peer(domain(next)), next, next)),
                );
            }
            Shape::Chain => {}
        }
        Ok(legs)
    }
}

/// Entry of a book.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Entry {
    Held(MomentMs),
    Promised,
    Gone,
}

/// Behaviour of a book.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Refusals {
    /// It refuses to hold.
    pub reserve: bool,
    /// It refuses to promise what it holds.
    pub commit: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Node {
    agent: DomainAgent,
    pub is_up: bool,
    book: BTreeMap<(ConnectionId, usize), Entry>,
    /// Commands that the book has not carried out.
    commands: Vec<(ConnectionId, usize, BookCommand)>,
    refusals: Refusals,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct World {
    pub nodes: Vec<Node>,
    /// Messages under way, in the order in which they were sent.
    pub network: Vec<Message>,
    pub now: MomentMs,
    root: ConnectionId,
    /// True once the user was told that all is reserved.
    pub was_granted: bool,
}

impl World {
    /// Creates domains in a row. A user of the first one asks for a reservation to the last.
    pub fn new(domains: usize, shape: Shape, refusals: &[(usize, Refusals)]) -> Self {
        let nodes = (0..domains).map(|number| Node {
            agent: DomainAgent::restore(
                domain(number),
                TIMING,
                AgentLimits::default(),
                Vec::<Connection>::new(),
                0,
            ),
            is_up: true,
            book: BTreeMap::new(),
            commands: Vec::new(),
            refusals: refusals
                .iter()
                .find(|(at, _)| *at == number)
                .map_or_else(Refusals::default, |(_, refusals)| *refusals),
        });
        let mut nodes: Vec<Node> = nodes.collect();
        let wanted = criteria(0, domains - 1, shape);
        let request = UserRequest {
            user: "operator".to_owned(),
            global: "g1".parse().unwrap(),
            legs: Row(0).plan(&wanted, &[]).unwrap(),
            criteria: wanted,
            is_hold_only: false,
            is_provisioned: true,
        };
        let (root, outcome) = nodes[0].agent.request(request, 0).unwrap();
        let mut world = Self {
            nodes,
            network: Vec::new(),
            now: 0,
            root,
            was_granted: false,
        };
        world.apply(0, outcome);
        world
    }

    pub fn hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        Hash::hash(self, &mut hasher);
        hasher.finish()
    }

    pub fn root(&self) -> &Connection {
        self.nodes[0].agent.connection(&self.root).unwrap()
    }

    /// Returns what a book has of the reservation: nothing doubled means at most one entry.
    pub fn entry(&self, node: usize) -> Option<Entry> {
        let live = self.nodes[node].book.values();
        let mut live = live.filter(|entry| **entry != Entry::Gone);
        let first = live.next().copied();
        assert_eq!(live.next(), None, "domain {node} reserved twice");
        first
    }

    fn apply(&mut self, node: usize, outcome: Outcome) {
        for effect in outcome.effects {
            match effect {
                Effect::Send(message) => self.network.push(message),
                Effect::Book {
                    connection,
                    leg,
                    command,
                } => {
                    let command = (connection, leg, command);
                    if !self.nodes[node].commands.contains(&command) {
                        self.nodes[node].commands.push(command);
                    }
                }
            }
        }
        if node == 0 && self.root().phase == Phase::Active && !self.was_granted {
            self.was_granted = true;
            for node in 0..self.nodes.len() {
                assert_eq!(self.entry(node), Some(Entry::Promised), "at domain {node}");
            }
        }
        self.check();
    }

    /// Checks what holds in every state.
    fn check(&self) {
        for (number, node) in self.nodes.iter().enumerate() {
            let _ = self.entry(number);
            for ((id, leg), entry) in node.book.iter().filter(|_| node.is_up) {
                let connection = node.agent.connection(id);
                let cancels = node.commands.iter().any(|(of, at, command)| {
                    of == id && at == leg && matches!(command, BookCommand::Cancel(_))
                });
                match entry {
                    Entry::Held(until) => assert!(*until > self.now, "held beyond its time"),
                    Entry::Promised => {
                        let connection = connection.unwrap();
                        let is_due = connection.until > self.now;
                        let ends = connection.phase == Phase::Terminating;
                        assert!(
                            cancels || ends || (is_due && connection.phase <= Phase::Active),
                            "promised beyond its time: {connection:?}"
                        );
                    }
                    Entry::Gone => {}
                }
            }
        }
    }

    /// Returns true if a domain has a command for its book.
    pub fn has_command(&self, node: usize) -> bool {
        self.nodes[node].is_up && !self.nodes[node].commands.is_empty()
    }

    /// Has the book of a domain carry out its next command. If `crash`, the domain dies before its
    /// agent learns of the result.
    pub fn run_command(&mut self, node: usize, crash: bool) {
        let now = self.now;
        let place = &mut self.nodes[node];
        let (id, leg, command) = place.commands.remove(0);
        let key = (id.clone(), leg);
        let before = place.book.get(&key).copied();
        let gone = |text: &str| {
            BookResult::Ended(Some(SegmentProblem {
                reason: ProblemReason::InsufficientBandwidth,
                domain: domain(node),
                text: text.to_owned(),
            }))
        };
        let result = match (command, before) {
            (BookCommand::Reserve(_), None) if place.refusals.reserve => gone("refused"),
            (BookCommand::Reserve(_), None) => {
                let until = now.saturating_add_unsigned(HOLD);
                place.book.insert(key, Entry::Held(until));
                BookResult::Held {
                    reservation: 1,
                    hold_ms: HOLD,
                }
            }
            // As by the idempotency key: the first answer again.
            (BookCommand::Reserve(_), Some(entry)) => BookResult::Held {
                reservation: 1,
                hold_ms: match entry {
                    Entry::Held(until) => u64::try_from(until - now).unwrap(),
                    _ => 0,
                },
            },
            (BookCommand::Commit(_), Some(Entry::Held(_))) if place.refusals.commit => {
                place.book.insert(key, Entry::Gone);
                gone("not promised")
            }
            (BookCommand::Commit(_), Some(Entry::Held(_) | Entry::Promised)) => {
                place.book.insert(key, Entry::Promised);
                BookResult::Promised
            }
            (BookCommand::Commit(_), _) => gone("expired"),
            (BookCommand::Cancel(_), found) => {
                if found.is_some() {
                    place.book.insert(key, Entry::Gone);
                }
                BookResult::Ended(None)
            }
            (BookCommand::SetProvisioned { sequence, .. }, _) => {
                BookResult::SetProvisioned(sequence)
            }
        };
        if crash {
            self.crash(node);
            return;
        }
        if let Ok(outcome) = self.nodes[node].agent.record_result(&id, leg, result, now) {
            self.apply(node, outcome);
        }
    }

    /// Delivers a message. If `crash`, its receiver dies after it has stored the message.
    pub fn deliver(&mut self, place: usize, crash: bool) {
        let message = self.network.remove(place);
        let node = number(message.receiver());
        if !self.nodes[node].is_up {
            return;
        }
        let (sender, now) = (message.sender().clone(), self.now);
        let agent = &mut self.nodes[node].agent;
        let outcome = agent.receive(&sender, message, &Row(node), now).unwrap();
        if crash {
            self.crash(node);
        } else {
            self.apply(node, outcome);
        }
    }

    pub fn crash(&mut self, node: usize) {
        self.nodes[node].is_up = false;
        self.nodes[node].commands.clear();
    }

    /// Restarts a domain from its store. The book first ends what has expired.
    pub fn restart(&mut self, node: usize) {
        let now = self.now;
        let place = &mut self.nodes[node];
        place.is_up = true;
        expire(&mut place.book, now);
        let stored: Vec<Connection> = place
            .agent
            .connections()
            .map(Connection::stored_form)
            .collect();
        place.agent =
            DomainAgent::restore(domain(node), TIMING, AgentLimits::default(), stored, now);
        let outcome = self.nodes[node].agent.advance(now);
        self.apply(node, outcome);
    }

    /// Returns the next time at which something is due.
    pub fn next_due(&self) -> Option<MomentMs> {
        let up = self.nodes.iter().filter(|node| node.is_up);
        let due = up.flat_map(|node| {
            let held = node.book.values().filter_map(|entry| match entry {
                Entry::Held(until) => Some(*until),
                _ => None,
            });
            held.chain(node.agent.next_due())
        });
        due.min().map(|due| due.max(self.now + 1))
    }

    /// Advances the time to what is due next. Returns false if nothing is.
    pub fn tick(&mut self) -> bool {
        let Some(due) = self.next_due().filter(|due| *due <= LAST) else {
            return false;
        };
        self.now = due;
        for node in &mut self.nodes {
            if node.is_up {
                expire(&mut node.book, due);
            }
        }
        let nodes = self.nodes.iter_mut().enumerate();
        let up = nodes.filter(|(_, node)| node.is_up);
        let outcomes: Vec<(usize, Outcome)> = up
            .map(|(number, node)| (number, node.agent.advance(due)))
            .collect();
        for (node, outcome) in outcomes {
            self.apply(node, outcome);
        }
        true
    }

    /// Returns true if nothing can happen before the time advances.
    pub fn is_idle(&self) -> bool {
        self.network.is_empty() && (0..self.nodes.len()).all(|node| !self.has_command(node))
    }

    /// Does the next thing in order: commands, messages, then the time.
    pub fn step(&mut self) -> bool {
        if let Some(node) = (0..self.nodes.len()).find(|node| self.has_command(*node)) {
            self.run_command(node, false);
            return true;
        }
        if self.network.is_empty() {
            return self.tick();
        }
        self.deliver(0, false);
        true
    }

    /// Lets everything happen, without faults, until a time.
    pub fn run_until(&mut self, end: MomentMs) {
        while !self.is_idle() || self.next_due().is_some_and(|due| due < end) {
            self.step();
        }
    }

    /// Checks that without further faults the reservation is complete or nothing is left of it.
    pub fn check_outcome(mut self) -> Outcomes {
        let longest = TIMING.lease + TIMING.confirm + HOLD + TIMING.reserve + TIMING.commit;
        self.run_until(self.now.saturating_add_unsigned(2 * longest));
        let entries: Vec<Option<Entry>> =
            (0..self.nodes.len()).map(|node| self.entry(node)).collect();
        let alive = || (0..self.nodes.len()).filter(|node| self.nodes[*node].is_up);
        if alive().count() == self.nodes.len() && self.root().phase == Phase::Active {
            let all = entries.iter().all(|entry| *entry == Some(Entry::Promised));
            assert!(all, "incomplete: {entries:?}");
            assert!(self.was_granted);
            return Outcomes::Complete;
        }
        // A domain that stays dead keeps its journal, and ends what is in it when it restarts.
        for node in alive() {
            assert_eq!(entries[node], None, "left over at domain {node}: {self:?}");
        }
        let end = self.root().phase;
        assert!(!self.nodes[0].is_up || end == Phase::Terminated || end == Phase::Terminating);
        Outcomes::Nothing
    }
}

/// Outcome of a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcomes {
    Complete,
    Nothing,
}

fn expire(book: &mut BTreeMap<(ConnectionId, usize), Entry>, now: MomentMs) {
    for entry in book.values_mut() {
        if matches!(entry, Entry::Held(until) if *until <= now) {
            *entry = Entry::Gone;
        }
    }
}
