//! Two ends, their connection, and what the applications have read.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::super::*;

pub const STEP: Duration = Duration::from_millis(5);
pub const WITHIN: Duration = Duration::from_secs(60);
pub const MAX_WINDOW: u64 = 1 << 20;

/// Memory that counts.
pub struct Counted(Arc<AtomicU64>, u64);

impl MemoryAllowance for Counted {
    fn try_take(&mut self, bytes: u64) -> bool {
        let fits = self.0.load(Ordering::Relaxed) + bytes <= self.1;
        if fits {
            self.0.fetch_add(bytes, Ordering::Relaxed);
        }
        fits
    }

    fn release(&mut self, bytes: u64) {
        self.0.fetch_sub(bytes, Ordering::Relaxed);
    }
}

pub fn end(role: Role) -> (ResumableEnd, Arc<AtomicU64>) {
    let taken = Arc::new(AtomicU64::new(0));
    let limits = StreamLimits {
        within: WITHIN,
        max_window: MAX_WINDOW,
    };
    let memory = Box::new(Counted(Arc::clone(&taken), 2 * MAX_WINDOW));
    (
        ResumableEnd::new(role, limits, memory, Duration::ZERO),
        taken,
    )
}

/// Bytes under way in one direction, in pieces with their time of arrival.
#[derive(Default)]
pub struct Pipe {
    pieces: VecDeque<(Duration, Vec<u8>)>,
    ended: bool,
}

/// One connection: pipes from the initiator and from the acceptor.
#[derive(Default)]
pub struct Connection {
    pipes: [Pipe; 2],
    /// True if it swallows everything without a sign.
    pub black_hole: bool,
}

pub struct Application {
    pub end: ResumableEnd,
    pub to_write: VecDeque<u8>,
    pub read: Vec<u8>,
    pub saw_end: bool,
    pub dropped: bool,
    connection: Option<usize>,
    memory: Arc<AtomicU64>,
}

/// The two ends and all connections between them.
pub struct World {
    pub now: Duration,
    pub delay: Duration,
    pub sides: [Application; 2],
    pub connections: Vec<Connection>,
    /// Requests of the initiator under way: arrival, epoch, position.
    requests: Vec<(Duration, ResumeAttempt)>,
    /// The acceptor's answers under way: arrival, epoch, position, connection.
    answers: Vec<(Duration, u32, u64, usize)>,
    /// If true, no request arrives.
    pub isolated: bool,
    /// If true, each request arrives twice.
    pub duplicates: bool,
    pub stale: usize,
}

impl World {
    pub fn new(to_acceptor: &[u8], to_initiator: &[u8], delay: Duration) -> Self {
        let side = |role, data: &[u8]| {
            let (end, memory) = end(role);
            Application {
                end,
                to_write: data.iter().copied().collect(),
                read: Vec::new(),
                saw_end: false,
                dropped: false,
                connection: Some(0),
                memory,
            }
        };
        Self {
            now: Duration::ZERO,
            delay,
            sides: [
                side(Role::Initiator, to_acceptor),
                side(Role::Acceptor, to_initiator),
            ],
            connections: vec![Connection::default()],
            requests: Vec::new(),
            answers: Vec::new(),
            isolated: false,
            duplicates: false,
            stale: 0,
        }
    }

    /// Lets one step of time pass. `reads` says who reads, `room` how much goes at once.
    pub fn step(&mut self, reads: [bool; 2], room: usize) {
        self.now += STEP;
        self.deliver_requests();
        self.deliver_answers();
        for (side, reads) in reads.into_iter().enumerate() {
            self.receive(side, reads, room);
            self.run_application(side, reads, room);
            let now = self.now;
            self.sides[side].end.on_timeout(now);
            self.send(side, room);
        }
        if let Some(attempt) = self.sides[0].end.poll_attempt(self.now) {
            self.sides[0].connection = None;
            self.requests.push((self.now + self.delay, attempt));
            if self.duplicates {
                self.requests.push((self.now + self.delay * 3, attempt));
            }
        }
    }

    fn deliver_requests(&mut self) {
        let (due, later): (Vec<_>, Vec<_>) =
            self.requests.drain(..).partition(|(at, _)| *at <= self.now);
        self.requests = later;
        for (_, attempt) in due {
            let acceptor = &mut self.sides[1];
            if self.isolated {
                self.fail_attempt(attempt.epoch);
                continue;
            }
            match acceptor
                .end
                .attach(self.now, attempt.epoch, attempt.received)
            {
                Ok(()) => {
                    let connection = self.connections.len();
                    self.connections.push(Connection::default());
                    acceptor.connection = Some(connection);
                    let received = acceptor.end.received();
                    let at = self.now + self.delay;
                    self.answers.push((at, attempt.epoch, received, connection));
                }
                Err(AttachError::Closed) => {
                    self.sides[0].end.on_refused("it is unknown".to_owned());
                }
                Err(AttachError::Stale) => self.stale += 1,
                Err(AttachError::Contradiction) => panic!("an honest position is refused"),
            }
        }
    }

    fn deliver_answers(&mut self) {
        let (due, later): (Vec<_>, Vec<_>) =
            self.answers.drain(..).partition(|(at, ..)| *at <= self.now);
        self.answers = later;
        for (_, epoch, received, connection) in due {
            match self.sides[0].end.attach(self.now, epoch, received) {
                Ok(()) => self.sides[0].connection = Some(connection),
                Err(AttachError::Contradiction) => panic!("an honest position is refused"),
                Err(_) => self.stale += 1,
            }
        }
    }

    /// Lets an attempt fail: its request or its answer is lost, or still arrives later.
    pub fn fail_attempt(&mut self, epoch: u32) {
        if self.sides[0].end.epoch() == epoch {
            let end = &mut self.sides[0].end;
            end.on_attempt_failed(self.now, STEP * 10, "no answer".to_owned());
        }
    }

    /// Fails the latest attempt; late messages of it still arrive if `late`.
    pub fn give_attempt_up(&mut self, late: bool) {
        let epoch = self.sides[0].end.epoch();
        if !self.sides[0].end.is_attached() {
            self.fail_attempt(epoch);
            if late {
                let later = self.delay * 40;
                self.requests.iter_mut().for_each(|(at, _)| *at += later);
                self.answers.iter_mut().for_each(|(at, ..)| *at += later);
            } else {
                self.requests.clear();
                self.answers.clear();
            }
        }
    }

    /// Cuts the newest connection. Each side may notice at once, or must find out by itself.
    pub fn cut(&mut self, noticed: [bool; 2]) {
        let newest = self.connections.len() - 1;
        let connection = &mut self.connections[newest];
        connection.black_hole = true;
        connection
            .pipes
            .iter_mut()
            .for_each(|pipe| pipe.pieces.clear());
        for (side, noticed) in noticed.into_iter().enumerate() {
            if noticed && self.sides[side].connection == Some(newest) {
                self.sides[side].connection = None;
                let now = self.now;
                self.sides[side].end.on_link_failed(now, "cut".to_owned());
            }
        }
    }

    fn receive(&mut self, side: usize, reads: bool, room: usize) {
        let Some(number) = self.sides[side].connection else {
            return;
        };
        let connection = &mut self.connections[number];
        let pipe = &mut connection.pipes[1 - side];
        let application = &mut self.sides[side];
        while pipe.pieces.front().is_some_and(|(at, _)| *at <= self.now) {
            let (_, bytes) = pipe.pieces.pop_front().unwrap();
            let room = room.min(bytes.len());
            let mut direct = vec![
                0;
                if reads && !application.dropped {
                    room
                } else {
                    0
                }
            ];
            let read = application.end.on_input(self.now, &bytes, &mut direct);
            application.read.extend_from_slice(&direct[..read]);
        }
        if pipe.ended && pipe.pieces.is_empty() && !connection.black_hole {
            application.connection = None;
            application.end.on_link_ended(self.now);
        }
    }

    fn run_application(&mut self, side: usize, reads: bool, room: usize) {
        let now = self.now;
        let application = &mut self.sides[side];
        if application.dropped {
            return;
        }
        if reads {
            let mut buffer = vec![0; room.min(application.end.queue.len())];
            match application.end.read(now, &mut buffer) {
                ReadOutcome::Bytes(count) => application.read.extend_from_slice(&buffer[..count]),
                ReadOutcome::End => application.saw_end = true,
                ReadOutcome::Pending | ReadOutcome::Closed => {}
            }
        }
        let some: Vec<u8> = application.to_write.iter().copied().take(room).collect();
        if let Some(written) = application.end.write(now, &some) {
            application.to_write.drain(..written);
        }
        if application.to_write.is_empty() {
            application.end.finish();
        }
        if application.saw_end && application.end.is_delivered() {
            application.dropped = true;
            application.end.abandon();
        }
    }

    fn send(&mut self, side: usize, room: usize) {
        let Some(number) = self.sides[side].connection else {
            return;
        };
        let now = self.now;
        let application = &mut self.sides[side];
        // A superseded connection is closed by its owner.
        let current = application.end.is_attached();
        let mut left = 4 * room;
        let mut out = Vec::new();
        while left > 0 && current {
            let mut piece = application.end.output(now).concat();
            piece.truncate(left);
            if piece.is_empty() {
                break;
            }
            left -= piece.len();
            application.end.on_written(now, piece.len());
            out.extend_from_slice(&piece);
        }
        let ends = application.end.wants_output_end();
        if ends {
            application.end.on_output_ended(now);
        }
        let over = application.end.close_reason().is_some();
        let connection = &mut self.connections[number];
        let pipe = &mut connection.pipes[side];
        if !out.is_empty() && !connection.black_hole {
            pipe.pieces.push_back((now + self.delay, out));
        }
        pipe.ended |= ends || over || !current;
        if over || !current {
            self.sides[side].connection = None;
        }
    }

    /// Returns true if both ends are over.
    pub fn is_over(&self) -> bool {
        self.sides
            .iter()
            .all(|side| side.end.close_reason().is_some())
    }

    pub fn reasons(&self) -> [Option<CloseReason>; 2] {
        [0, 1].map(|side| self.sides[side].end.close_reason().cloned())
    }

    /// Asserts that no end took more memory than it may.
    pub fn check_memory(&self) {
        for side in &self.sides {
            assert!(side.memory.load(Ordering::Relaxed) <= 2 * MAX_WINDOW);
            assert!(side.end.counts().replay_bytes <= MAX_WINDOW);
            assert!(side.end.queue.len() as u64 <= MAX_WINDOW);
        }
    }
}

pub fn bytes(length: usize, seed: u8) -> Vec<u8> {
    (0..length as u32)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8 ^ seed)
        .collect()
}
