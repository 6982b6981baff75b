//! The simulation: events in order of virtual time, and the assertions after each of them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use longhaul_hop::{AdmittedConnection, ConnectionGate, GateLimits, Payer, QuotaExceeded};
use longhaul_identity::Identities;
use longhaul_proto::{
    MAX_SIGNATURE_AGE, Open, OpenRefusal, PublicKey, ReplayError, Route, ServiceName, SessionId,
};
use longhaul_service::OpenAdmission;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::actors::{Attack, exponential_ms, honest_address, key};

/// Milliseconds of a day.
pub const DAY_MS: u64 = 24 * 3600 * 1000;
/// Longest time that an honest client may be kept out, if it tries again every second.
pub const MAX_LOCKOUT_MS: u64 = 20_000;

/// Start of the simulation, in milliseconds since 1970.
const EPOCH_MS: u64 = 1_800_000_000_000;
/// Time after which an honest client that was not admitted tries again.
const RETRY_MS: u64 = 1_000;
/// Mean time between an honest client's copies, and of a copy.
const MEAN_PAUSE_MS: u64 = 40 * 60 * 1000;
const MEAN_COPY_MS: u64 = 10 * 60 * 1000;
/// Most sessions that an honest client has at a time.
const MAX_HONEST_SESSIONS: u32 = 2;
/// Most entries of the memory (LH-SIGN-4).
const MAX_REMEMBERED: usize = 65_536;

/// One simulation.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Seed of all random choices.
    pub seed: u64,
    /// Duration.
    pub days: u64,
    /// Attacks, each with its begin in milliseconds.
    pub attacks: Vec<(u64, Attack)>,
    /// Number of honest clients.
    pub honest: usize,
    /// Maximum number of pending connections.
    pub pending: usize,
    /// Maximum number of sessions.
    pub verified: usize,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            seed: 1,
            days: 24,
            attacks: Vec::new(),
            honest: 6,
            pending: 96,
            // An eighth of them is five times what the honest clients need together.
            verified: 512,
        }
    }
}

/// What happened, so that a test can tell that something did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    /// Sessions of honest clients.
    pub admitted: u64,
    /// Connections that were evicted before their OPEN arrived.
    pub evicted: u64,
    /// OPENs that were refused because they had been admitted before.
    pub replays: u64,
    /// OPENs that were refused for lack of room, or of room in the memory.
    pub over_quota: u64,
    /// Longest time for which an honest client was kept out, in milliseconds.
    pub longest_lockout_ms: u64,
}

/// An event. The greater number came later at the same time.
type Event = (u64, u64, Action);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Action {
    /// An honest client connects.
    Connect(usize),
    /// An attack makes its next connection, of which so many are left.
    Attack(usize, u32),
    /// The OPEN of a connection arrives.
    Open(u64),
    /// A session ends, or the time for an OPEN is over.
    Leave(u64),
}

/// A connection.
struct Connection {
    entered: AdmittedConnection,
    /// Honest client, if it is one's.
    honest: Option<usize>,
    /// OPEN that it sends, its payer, and how long its session lasts.
    request: Option<(Open, Payer, u64)>,
    holds_session: bool,
}

/// An honest client.
struct Honest {
    key: PublicKey,
    address: IpAddr,
    sessions: u32,
    /// Time of the first attempt of which none has succeeded yet.
    waits_since: Option<u64>,
}

/// Refusal of an OPEN.
#[derive(Debug)]
enum Refusal {
    Quota,
    Open(OpenRefusal),
}

impl From<QuotaExceeded> for Refusal {
    fn from(_: QuotaExceeded) -> Self {
        Self::Quota
    }
}

impl From<OpenRefusal> for Refusal {
    fn from(refusal: OpenRefusal) -> Self {
        Self::Open(refusal)
    }
}

/// The gate, the memory, and everybody who connects.
pub struct World {
    plan: Plan,
    random: Xoshiro256PlusPlus,
    gate: Arc<ConnectionGate>,
    admission: OpenAdmission,
    now: u64,
    events: BinaryHeap<Reverse<Event>>,
    connections: BTreeMap<u64, Connection>,
    next: u64,
    honest: Vec<Honest>,
    /// Signing times of the admitted OPENs that the memory must still have.
    remembered: VecDeque<u64>,
    admitted_ids: HashSet<SessionId>,
    /// The last OPEN that was admitted, for replays.
    last_admitted: Option<Open>,
    summary: Summary,
}

impl World {
    /// Creates the world before its first event.
    pub fn new(plan: Plan) -> Self {
        let honest = |number| Honest {
            key: key(number),
            address: honest_address(number),
            sessions: 0,
            waits_since: None,
        };
        let mut world = Self {
            random: Xoshiro256PlusPlus::seed_from_u64(plan.seed),
            gate: ConnectionGate::new(GateLimits {
                newcomers: plan.pending,
                verified: plan.verified,
                reserves_for_keys: true,
                ..GateLimits::default()
            }),
            admission: OpenAdmission::new(key(255), Identities::unnamed()),
            now: 0,
            events: BinaryHeap::new(),
            connections: BTreeMap::new(),
            next: 0,
            honest: (1..).take(plan.honest).map(honest).collect(),
            remembered: VecDeque::new(),
            admitted_ids: HashSet::new(),
            last_admitted: None,
            summary: Summary::default(),
            plan,
        };
        for number in 0..world.honest.len() {
            world.after_pause(number);
        }
        for (number, (begin, attack)) in world.plan.attacks.clone().into_iter().enumerate() {
            let left = attack.plan().connections;
            world.schedule_at(begin, Action::Attack(number, left));
            // Every honest client tries during the attack.
            for client in 0..world.honest.len() {
                let into = world.random.random_range(500..10_000);
                world.schedule_at(begin + into, Action::Connect(client));
            }
        }
        world
    }

    /// Runs to the end, and lets everybody leave.
    pub fn run(mut self) -> Summary {
        let end = self.plan.days * DAY_MS;
        while let Some(Reverse((at, _, action))) = self.events.pop() {
            self.now = at;
            match action {
                // Nobody comes after the end.
                Action::Connect(_) | Action::Attack(..) if at > end => {}
                Action::Connect(client) => self.connect(client),
                Action::Attack(number, left) => self.attack(number, left),
                Action::Open(connection) => self.receive_open(connection),
                Action::Leave(connection) => self.leave(connection),
            }
            self.check_bounds();
        }
        assert!(self.connections.is_empty());
        assert_eq!(
            (self.gate.pending_count(), self.gate.verified_count()),
            (0, 0)
        );
        self.check_that_memory_is_forgotten();
        self.summary
    }

    fn schedule_at(&mut self, at: u64, action: Action) {
        self.next += 1;
        self.events.push(Reverse((at, self.next, action)));
    }

    fn schedule(&mut self, after: u64, action: Action) {
        self.schedule_at(self.now + after, action);
    }

    fn after_pause(&mut self, client: usize) {
        let pause = exponential_ms(&mut self.random, MEAN_PAUSE_MS);
        self.schedule(pause, Action::Connect(client));
    }

    fn connect(&mut self, client: usize) {
        let (now, honest) = (self.now, &mut self.honest[client]);
        if honest.sessions >= MAX_HONEST_SESSIONS {
            // It connects again some time after one of them has ended.
            return;
        }
        honest.waits_since.get_or_insert(now);
        let (address, payer) = (honest.address, Payer::Key(honest.key));
        let lasts = exponential_ms(&mut self.random, MEAN_COPY_MS);
        let open = self.new_open();
        // A round trip, as the initiator sends its OPEN with the handshake's last packet.
        let arrives = self.random.random_range(10..300);
        self.enter(address, Some(client), Some((open, payer, lasts)), arrives);
    }

    fn attack(&mut self, number: usize, left: u32) {
        let (_, attack) = self.plan.attacks[number];
        let source = attack.source(&mut self.random);
        let session = attack.session(source, &mut self.random);
        let request = match (attack, session) {
            (Attack::Replays, _) => self
                .last_admitted
                .clone()
                .map(|open| (open, Payer::Key(key(200)), 10)),
            (_, None) => None,
            (_, Some((payer, lasts))) => Some((self.new_open(), payer, millis(lasts))),
        };
        self.enter(source, None, request, 1);
        if left > 1 {
            let pause = u64::from(1000 / attack.plan().per_second);
            self.schedule(pause, Action::Attack(number, left - 1));
        }
    }

    fn new_open(&mut self) -> Open {
        let destination = SocketAddr::from(([192, 0, 2, 10], 7511));
        let mut open = Open::new(
            SessionId::from_bytes(self.random.random()),
            ServiceName::COPY,
            Route::direct(),
            destination.into(),
            Duration::from_secs(10),
        );
        open.signed_at_unix_ms = EPOCH_MS + self.now;
        open
    }

    /// Lets a connection pass the gate. Its OPEN, if it sends one, arrives so much later.
    fn enter(
        &mut self,
        source: IpAddr,
        honest: Option<usize>,
        request: Option<(Open, Payer, u64)>,
        arrives: u64,
    ) {
        let entered = self.gate.admit(source);
        self.next += 1;
        let number = self.next;
        match &request {
            Some(_) => self.schedule(arrives, Action::Open(number)),
            None => self.schedule(millis(entered.header), Action::Leave(number)),
        }
        let connection = Connection {
            entered,
            honest,
            request,
            holds_session: false,
        };
        self.connections.insert(number, connection);
    }

    fn receive_open(&mut self, number: u64) {
        let mut connection = self.connections.remove(&number).unwrap();
        let honest = connection.honest;
        let evicted = connection.entered.eviction.wait().now_or_never().is_some();
        let (open, payer, lasts) = connection.request.take().unwrap();
        if evicted {
            self.summary.evicted += 1;
            return self.retry(honest);
        }
        let now = EPOCH_MS + self.now;
        let permit = &mut connection.entered.permit;
        match self.admission.admit::<Refusal>(&open, permit, payer, now) {
            Ok(()) => {
                self.count_admitted(open);
                connection.holds_session = true;
                if let Some(client) = honest {
                    self.begin_session(client);
                }
                self.connections.insert(number, connection);
                self.schedule(lasts, Action::Leave(number));
            }
            Err(refusal) => {
                assert!(
                    honest.is_none(),
                    "a listed key with little was refused: {refusal:?}"
                );
                match refusal {
                    Refusal::Open(OpenRefusal::Replay(ReplayError::Replay)) => {
                        self.summary.replays += 1;
                    }
                    Refusal::Open(OpenRefusal::Replay(ReplayError::Expired { .. })) => {}
                    _ => self.summary.over_quota += 1,
                }
            }
        }
    }

    fn retry(&mut self, honest: Option<usize>) {
        if let Some(client) = honest {
            self.schedule(RETRY_MS, Action::Connect(client));
        }
    }

    fn begin_session(&mut self, client: usize) {
        let honest = &mut self.honest[client];
        honest.sessions += 1;
        let waited = self.now - honest.waits_since.take().unwrap_or(self.now);
        assert!(
            waited <= MAX_LOCKOUT_MS,
            "an honest client was kept out for {waited} ms"
        );
        self.summary.admitted += 1;
        self.summary.longest_lockout_ms = self.summary.longest_lockout_ms.max(waited);
    }

    fn leave(&mut self, number: u64) {
        let connection = self.connections.remove(&number).unwrap();
        if let Some(client) = connection.honest
            && connection.holds_session
        {
            self.honest[client].sessions -= 1;
            self.after_pause(client);
        }
    }

    /// Checks the memory after an admission: it has forgotten what is too old, and nothing else.
    fn count_admitted(&mut self, open: Open) {
        let oldest = (EPOCH_MS + self.now).saturating_sub(millis(MAX_SIGNATURE_AGE));
        let place = self
            .remembered
            .partition_point(|signed_at| *signed_at <= open.signed_at_unix_ms);
        self.remembered.insert(place, open.signed_at_unix_ms);
        while self.remembered.front().is_some_and(|at| *at < oldest) {
            self.remembered.pop_front();
        }
        assert_eq!(self.admission.len(), self.remembered.len());
        let is_new = self.admitted_ids.insert(open.session_id);
        assert!(is_new, "an OPEN was admitted twice");
        self.last_admitted = Some(open);
    }

    fn check_bounds(&self) {
        assert!(self.gate.pending_count() <= self.plan.pending);
        assert!(self.gate.verified_count() <= self.plan.verified);
        assert!(self.admission.len() <= MAX_REMEMBERED);
    }

    /// Checks that days of load leave nothing behind.
    fn check_that_memory_is_forgotten(&mut self) {
        self.now += 2 * millis(MAX_SIGNATURE_AGE);
        let open = self.new_open();
        let payer = Payer::Key(key(1));
        let now = EPOCH_MS + self.now;
        self.admission.remember(&open, &payer, now).unwrap();
        assert_eq!(self.admission.len(), 1);
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap()
}
