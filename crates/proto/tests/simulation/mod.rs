//! A chain in virtual time: initiator, depots and acceptor built from this crate's state machines.
//!
//! They are connected by links that carry bytes with a one-way delay and take a round trip to
//! connect, as TCP does.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    time::Duration,
};

use bytes::BytesMut;
use longhaul_proto::{
    Admission, Chain, ChainFailure, Endpoint, Open, OpenDecoder, Progress, Refusal, Route, Service,
    SessionId, SigningKey, Status, StatusCode,
};

/// Microseconds since the initiator began.
pub type Time = u64;

pub const EARLY: &[u8] = b"hello, the first flight";
pub const LATER: &[u8] = b"more payload, when the chain stands or not";
pub const ANSWER: &[u8] = b"the acceptor's first words";
/// The wall clock at time 0, in milliseconds since 1970.
pub const CLOCK: u64 = 1_800_000_000_000;

/// A fault and its position. Positions count from 1 and include the acceptor.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fault {
    /// Depot that cannot connect to the next hop, and learns so after the round trip.
    pub dial: Option<usize>,
    /// Hop that does not know the principal.
    pub stranger: Option<usize>,
    /// Depot that dies, closing both sides, as soon as it has connected to the next hop.
    pub dies_connected: Option<usize>,
    /// Hop whose clock is wrong by 10 minutes.
    pub clock: Option<usize>,
    /// Depot that has the key of the first depot.
    pub same_key: Option<usize>,
    /// Depot that inserts a forged failure in the next hop's name.
    pub forges: Option<usize>,
    /// True if the route names the keys of all depots.
    pub keyed: bool,
}

/// Result of a simulated session.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Time at which the first byte of payload reached the acceptor.
    pub first_payload: Option<Time>,
    /// Time at which the first byte of the acceptor's answer reached the initiator.
    pub first_answer: Option<Time>,
    /// Payload that the acceptor received.
    pub payload: Vec<u8>,
    /// Part of the answer that the initiator received.
    pub answer: Vec<u8>,
    /// Statuses that the initiator received.
    pub statuses: Vec<Status>,
    /// Failure that the initiator reported, if any.
    pub failure: Option<ChainFailure>,
    /// Size of the first flight, in bytes.
    pub first_flight: usize,
    /// Positions that depots dialled.
    pub dialled: Vec<usize>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The connection from position `.0` to the next is established, or was refused.
    Connected(usize, bool),
    /// Bytes for this position from the one before it.
    Down(usize, Vec<u8>),
    /// Bytes for this position from the one after it.
    Up(usize, Vec<u8>),
    /// The position after this one closed the connection.
    ClosedUp(usize),
    /// The initiator writes more.
    WriteMore,
}

struct Place {
    key: SigningKey,
    decoder: OpenDecoder,
    admission: Admission,
    open: Option<Open>,
    began: Time,
    held: Vec<u8>,
    relaying: bool,
    dead: bool,
}

pub struct World {
    delays: Vec<Time>,
    fault: Fault,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    sequence: u64,
    now: Time,
    places: BTreeMap<usize, Place>,
    route: Route,
    open: Open,
    chain: Chain,
    connected: bool,
    established: bool,
    segment: usize,
    outcome: Outcome,
}

/// Returns a key derived from its number, so that runs repeat.
pub fn key(number: u8) -> SigningKey {
    let mut document = vec![
        0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20,
    ];
    document.extend([number; 32]);
    SigningKey::from_pkcs8(&document).unwrap()
}

/// Returns when the first byte would arrive over one plain TCP link of this delay.
pub const fn plain_tcp(delay: Time) -> Time {
    // SYN, SYN-ACK, data.
    3 * delay
}

pub fn destination() -> Endpoint {
    "server.example:7511".parse().unwrap()
}

/// Runs a session over links with these one-way delays, in microseconds, and a depot between each
/// two. Bytes travel in segments of `segment` bytes. `more_at` is the time of the initiator's
/// second write.
pub fn run(delays: &[Time], fault: Fault, segment: usize, more_at: Option<Time>) -> Outcome {
    let depots = delays.len() - 1;
    let hops: Vec<_> = (1..=depots)
        .map(|number| match fault.keyed {
            true => format!(
                "{}@depot{number}.example",
                key(u8::try_from(number).unwrap()).public()
            ),
            false => format!("depot{number}.example"),
        })
        .collect();
    let route: Route = if depots == 0 {
        Route::direct()
    } else {
        hops.join(",").parse().unwrap()
    };
    let place = |place: usize| {
        let number = if fault.same_key == Some(place) {
            1
        } else {
            u8::try_from(place).unwrap()
        };
        let key = key(number);
        let admission = Admission::new(key.public());
        let decoder = OpenDecoder::new();
        Place {
            key,
            decoder,
            admission,
            open: None,
            began: 0,
            held: Vec::new(),
            relaying: false,
            dead: false,
        }
    };
    let mut open = Open::new(
        SessionId::from_bytes([5; 16]),
        Service::COPY,
        route.clone(),
        destination(),
        Duration::from_secs(20),
    );
    open.sign(&key(200), CLOCK).unwrap();
    let acceptor = fault
        .keyed
        .then(|| key(u8::try_from(depots + 1).unwrap()).public());
    let mut world = World {
        delays: delays.to_vec(),
        fault,
        events: BinaryHeap::new(),
        sequence: 0,
        now: 0,
        places: (1..=depots + 1)
            .map(|number| (number, place(number)))
            .collect(),
        chain: Chain::new(&open, acceptor),
        route,
        open,
        connected: false,
        established: false,
        segment,
        outcome: Outcome::default(),
    };
    world.dial(0, true);
    if let Some(at) = more_at {
        world.at(at, Event::WriteMore);
    }
    while let Some(Reverse((time, _, event))) = world.events.pop() {
        world.now = time;
        world.step(event);
    }
    world.outcome.statuses = world.chain.statuses().to_vec();
    world.outcome
}

impl World {
    fn at(&mut self, time: Time, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((time, self.sequence, event)));
    }

    /// Simulates a TCP handshake from `place` to the next: the client may send after one round
    /// trip.
    fn dial(&mut self, place: usize, succeeds: bool) {
        self.outcome.dialled.push(place + 1);
        self.at(
            self.now + 2 * self.delays[place],
            Event::Connected(place, succeeds),
        );
    }

    fn send_down(&mut self, from: usize, bytes: &[u8]) {
        let arrival = self.now + self.delays[from];
        for part in bytes.chunks(self.segment) {
            self.at(arrival, Event::Down(from + 1, part.to_vec()));
        }
    }

    fn send_up(&mut self, from: usize, bytes: &[u8]) {
        let arrival = self.now + self.delays[from - 1];
        for part in bytes.chunks(self.segment) {
            self.at(arrival, Event::Up(from - 1, part.to_vec()));
        }
    }

    fn close_up(&mut self, from: usize) {
        self.at(self.now + self.delays[from - 1], Event::ClosedUp(from - 1));
    }

    fn step(&mut self, event: Event) {
        match event {
            Event::Connected(0, _) => self.initiator_sends(),
            Event::Connected(place, succeeded) => self.depot_connected(place, succeeded),
            Event::Down(place, bytes) if place == self.delays.len() => {
                self.acceptor_receives(&bytes)
            }
            Event::Down(place, bytes) => self.depot_receives(place, &bytes),
            Event::Up(0, bytes) => self.initiator_receives(&bytes),
            // Relayed unread (LH-DEPOT-6): a depot that receives bytes from the next hop is already
            // relaying.
            Event::Up(place, bytes) if !self.places[&place].dead => self.send_up(place, &bytes),
            Event::Up(..) => {}
            Event::ClosedUp(0) if !self.established && self.outcome.failure.is_none() => {
                self.outcome.failure = Some(self.chain.closed());
            }
            Event::ClosedUp(0) => {}
            Event::ClosedUp(place) => self.close_up(place),
            Event::WriteMore if self.connected => self.send_down(0, LATER),
            Event::WriteMore => {}
        }
    }

    fn initiator_sends(&mut self) {
        self.connected = true;
        let mut flight = BytesMut::new();
        self.open.clone().departing().encode(&mut flight).unwrap();
        flight.extend_from_slice(EARLY);
        self.outcome.first_flight = flight.len();
        self.send_down(0, &flight);
    }

    fn initiator_receives(&mut self, bytes: &[u8]) {
        if self.outcome.failure.is_some() {
            return;
        }
        let mut payload = bytes;
        if !self.established {
            match self.chain.feed(bytes) {
                Ok(Progress::Waiting) => return,
                Ok(Progress::Established { consumed }) => payload = &bytes[consumed..],
                Err(failure) => {
                    self.outcome.failure = Some(*failure);
                    return;
                }
            }
            self.established = true;
        }
        if !payload.is_empty() {
            self.outcome.first_answer.get_or_insert(self.now);
            self.outcome.answer.extend(payload);
        }
    }

    fn clock(&self, place: usize) -> u64 {
        CLOCK
            + self.now / 1000
            + if self.fault.clock == Some(place) {
                600_000
            } else {
                0
            }
    }

    fn answer(&mut self, from: usize, mut status: Status) {
        status.sign(&self.places[&from].key, &self.open).unwrap();
        let mut bytes = BytesMut::new();
        status.encode(&mut bytes);
        self.send_up(from, &bytes);
    }

    /// Sends a forged answer of the next position, signed with the depot's own key.
    fn forge(&mut self, from: usize) {
        let next = from + 1;
        let mut status = Status::new(StatusCode::DialRefused, u8::try_from(next).unwrap());
        status.acceptor = next == self.delays.len();
        self.answer(from, status);
    }

    /// LH-DEPOT-4: one failing status, then the close.
    fn fail(&mut self, place: usize, mut status: Status) {
        status.acceptor = place == self.delays.len();
        self.answer(place, status);
        self.close_up(place);
        self.places.get_mut(&place).unwrap().dead = true;
    }

    fn depot_receives(&mut self, number: usize, bytes: &[u8]) {
        let now = self.now;
        let clock = self.clock(number);
        let knows = self.fault.stranger != Some(number);
        let place = self.places.get_mut(&number).unwrap();
        if place.dead {
            return;
        }
        if place.relaying {
            return self.send_down(number, bytes);
        }
        if place.open.is_some() {
            return place.held.extend(bytes);
        }
        if place.decoder.held() == 0 {
            place.began = now;
        }
        let Some((open, used)) = place.decoder.feed(bytes).unwrap() else {
            return;
        };
        place.held.extend(&bytes[used..]);
        let position = open.position();
        if let Err(refusal) = place.admission.depot(&open, clock, |_| knows) {
            return self.fail(number, Status::new(refusal.code(), position));
        }
        assert_eq!(open.next().endpoint(), Some(&self.endpoint(number + 1)));
        self.places.get_mut(&number).unwrap().open = Some(open);
        self.dial(number, self.fault.dial != Some(number));
    }

    fn depot_connected(&mut self, number: usize, succeeded: bool) {
        let tried = self.endpoint(number + 1);
        let now = self.now;
        let place = self.places.get_mut(&number).unwrap();
        let open = place.open.clone().unwrap();
        let mut status = Status::new(StatusCode::Ok, open.position());
        if !succeeded {
            status.code = StatusCode::DialRefused;
            status.at = Some(tried);
            return self.fail(number, status);
        }
        if self.fault.dies_connected == Some(number) {
            place.dead = true;
            return self.close_up(number);
        }
        let onward =
            match open.passed_on(place.key.public(), Duration::from_micros(now - place.began)) {
                Ok(onward) => onward,
                Err(refusal) => {
                    status.code = Refusal::code(&refusal);
                    return self.fail(number, status);
                }
            };
        place.relaying = true;
        let mut flight = BytesMut::new();
        onward.encode(&mut flight).unwrap();
        flight.extend_from_slice(&std::mem::take(&mut place.held));
        // LH-DEPOT-2: one answer, before any byte from the next hop can arrive.
        self.send_down(number, &flight);
        self.answer(number, status);
        if self.fault.forges == Some(number) {
            self.forge(number);
        }
    }

    fn acceptor_receives(&mut self, bytes: &[u8]) {
        let number = self.delays.len();
        let clock = self.clock(number);
        let knows = self.fault.stranger != Some(number);
        let place = self.places.get_mut(&number).unwrap();
        if place.dead {
            return;
        }
        let mut payload = bytes;
        if !place.relaying {
            let Some((open, used)) = place.decoder.feed(bytes).unwrap() else {
                return;
            };
            payload = &bytes[used..];
            let position = open.position();
            if let Err(refusal) = place.admission.acceptor(
                &open,
                clock,
                |_| knows,
                |service| *service == Service::COPY,
            ) {
                return self.fail(number, Status::of_acceptor(refusal.code(), position));
            }
            place.relaying = true;
            self.answer(number, Status::of_acceptor(StatusCode::Ok, position));
        }
        if !payload.is_empty() {
            if self.outcome.first_payload.is_none() {
                self.outcome.first_payload = Some(self.now);
                self.send_up(number, ANSWER);
            }
            self.outcome.payload.extend(payload);
        }
    }

    fn endpoint(&self, place: usize) -> Endpoint {
        self.route
            .hops()
            .get(place - 1)
            .map_or_else(destination, |hop| hop.endpoint.clone())
    }
}
