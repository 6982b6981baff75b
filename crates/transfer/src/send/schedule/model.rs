//! The schedule in a model of a whole copy, in virtual time. Streams come and go. Frames and
//! answers are lost, late or duplicated. Files fail, grow and change. The receiver refuses some,
//! and has parts of others before. All of it happens in any order.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use proptest::prelude::*;

use super::*;
use crate::error::{Failure, FailureKind};
use crate::tree_hash::{BlockHash, BlockHasher, Subtree};
use crate::wire::{Compare, EntryOutcome};

mod invariants;
mod plan;
mod receiver;
mod sender;

use plan::{Plan, plan};
use receiver::Arriving;

const BLOCK_LOG2: u32 = 18;
const BLOCK: u64 = 1 << BLOCK_LOG2;

#[derive(Debug, Clone)]
enum Sent {
    /// With the hash that it is offered with, if any.
    Offer(Arc<SourceEntry>, Option<(u64, Hash)>),
    Link(Arc<SourceEntry>),
    Whole(Arc<SourceEntry>, Option<(u64, Hash)>),
    Block {
        id: u64,
        offset: u64,
        size: u64,
    },
    FileEnd {
        id: u64,
        hash: Hash,
        size: u64,
    },
    Failed(Arc<SourceEntry>),
    End(u64),
}

#[derive(Debug, Clone)]
enum Answer {
    Ack(u64, u64),
    Result(u64, Outcome),
    Want(u64),
    /// True if some of what is sent may exist.
    Reported(bool),
    Have(u64, Vec<Subtree>),
    Done(Hash),
}

/// Outcome of an entry at the receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Written,
    Unchanged,
    Linked,
    Failed,
}

/// A stream while it is open.
#[derive(Default)]
struct Line {
    sent: VecDeque<Sent>,
    answers: VecDeque<Answer>,
    reported_done: bool,
    stalled: bool,
    retiring: bool,
}

#[derive(Default)]
struct World {
    schedule: Schedule,
    plans: Vec<Plan>,
    now: Duration,
    to_find: usize,
    next_stream: StreamId,
    lines: BTreeMap<StreamId, Line>,
    /// Work that streams took and have not read yet, including streams that are gone.
    readers: BTreeMap<StreamId, VecDeque<StreamWork>>,
    /// Answers that arrive late or a second time.
    late: Vec<Answer>,
    /// Number of readings of each entry.
    readings: HashMap<u64, usize>,
    /// Number of requests to link each entry.
    links_asked: HashMap<u64, usize>,
    /// True if the receiver understands links.
    understands_links: bool,
    /// Number of comparisons of each entry.
    comparisons: HashMap<u64, usize>,
    /// Files that the sender has open.
    open: HashMap<u64, (u64, u8)>,
    arriving: HashMap<u64, Arriving>,
    written: BTreeMap<u64, Outcome>,
    compare: Compare,
    /// True if the receiver may have some files, which it reports first on each stream.
    has_some: bool,
    manifest: Manifest,
    end: Option<u64>,
    results: BTreeMap<u64, (bool, u64)>,
}

impl World {
    fn new(
        plans: Vec<Plan>,
        presence: Presence,
        compare: Compare,
        has_some: bool,
        (keeps, understands_links): (bool, bool),
    ) -> Self {
        let mut world = Self {
            to_find: plans.len(),
            plans,
            compare,
            understands_links,
            has_some: has_some || presence == Presence::Something,
            ..Self::default()
        };
        world.schedule.expect(presence, compare);
        if keeps {
            world.schedule.keep_links();
        }
        world
    }

    /// Performs the schedule's actions, and checks the invariants.
    fn act(&mut self) {
        let actions = self.schedule.actions();
        if let Some(id) = actions.close {
            self.open.remove(&id).expect("closed once");
        }
        if let Some(EntryResult {
            entry,
            content,
            outcome,
        }) = actions.result
        {
            let size = content.map_or(0, |(size, _)| size);
            let first = self.results.insert(entry.head.id, (outcome.is_ok(), size));
            assert!(first.is_none(), "two results of {}", entry.head.id);
        }
        self.schedule.check();
    }

    fn find(&mut self) {
        if self.to_find == 0 {
            return;
        }
        self.to_find -= 1;
        let id = self.schedule.totals().entries;
        let path = RelPath::from_bytes(format!("e{id}").as_bytes()).unwrap();
        let found = match &self.plans[id as usize] {
            Plan::Directory => FoundEntry::Directory,
            Plan::Link => FoundEntry::Symlink {
                target: b"t".to_vec(),
            },
            Plan::Bad => FoundEntry::Failed(Failure::new(FailureKind::NotRegular)),
            Plan::File { found, .. } => FoundEntry::File { size: *found },
        };
        let inode = match self.plans[id as usize] {
            Plan::File { inode, .. } => inode,
            _ => None,
        };
        match (inode, found) {
            (Some(number), FoundEntry::File { size }) => {
                let inode = SourceInode {
                    device: 0,
                    number: number.into(),
                };
                let names = self
                    .plans
                    .iter()
                    .filter(|plan| {
                        matches!(plan, Plan::File { inode: Some(other), .. } if *other == number)
                    });
                // One of the names is elsewhere.
                let linked = (inode, names.count() as u64 + u64::from(number));
                self.schedule
                    .found_linked(0, path, Meta::default(), size, linked);
            }
            (_, found) => self.schedule.found(0, path, Meta::default(), found),
        }
        if self.to_find == 0 {
            self.schedule.walk_ended(true);
        }
    }

    fn add_stream(&mut self) {
        if self.lines.len() < 4 {
            let answers = VecDeque::from([Answer::Reported(self.has_some)]);
            let line = Line {
                answers,
                ..Line::default()
            };
            self.lines.insert(self.next_stream, line);
            self.schedule.add_stream(self.next_stream);
            self.next_stream += 1;
            self.report_done();
        }
    }

    fn remove_stream(&mut self, stream: StreamId, keep: bool) {
        let line = self.lines.remove(&stream).unwrap();
        if keep {
            self.late.extend(line.answers);
        }
        self.schedule.remove_stream(stream);
        assert_eq!(self.schedule.in_flight.count_on(stream), 0);
    }

    /// Retires a stream, unless it is the last.
    fn retire(&mut self, stream: StreamId) {
        if self.lines.values().filter(|line| !line.retiring).count() > 1 {
            self.lines.get_mut(&stream).unwrap().retiring = true;
            self.schedule.retire(stream);
        }
    }

    /// Takes work. Returns how long to wait if there is nothing to send.
    fn take(&mut self, stream: StreamId, room: usize) -> Option<Duration> {
        if self
            .readers
            .get(&stream)
            .is_some_and(|work| !work.is_empty())
        {
            return None;
        }
        match self.schedule.next_step(stream, self.now, room) {
            NextStep::Send(work) => {
                assert!(!work.is_empty() && work.len() <= room.max(1));
                let is_block = |work: &&StreamWork| matches!(work, StreamWork::Block { .. });
                let blocks = work.iter().filter(is_block).count();
                assert!(blocks == 0 || blocks == work.len());
                assert!(
                    work.len() == 1
                        || !work
                            .iter()
                            .any(|work| matches!(work, StreamWork::Open { .. }))
                );
                self.readers.insert(stream, work.into());
                None
            }
            NextStep::Wait { until } => {
                let longest = MAX_ANSWER_WAIT.max(self.now * MIN_ANSWER_TIMES_TO_REPEAT);
                assert!(until > self.now && until <= self.now + longest);
                Some(until)
            }
            NextStep::Over => {
                if self.schedule.agreed().is_none() {
                    assert!(
                        self.lines[&stream].retiring
                            && self.schedule.in_flight.count_on(stream) == 0
                    );
                    self.remove_stream(stream, false);
                }
                None
            }
        }
    }

    fn send(&mut self, stream: StreamId, sent: Sent) {
        if let Some(line) = self.lines.get_mut(&stream) {
            line.sent.push_back(sent);
        }
    }

    fn receive(&mut self, answer: Answer) {
        match answer {
            Answer::Ack(id, offset) => {
                self.schedule.acknowledged(id, offset, self.now);
            }
            Answer::Result(id, outcome) => {
                let outcome = match outcome {
                    Outcome::Written => Ok(EntryOutcome::New),
                    Outcome::Unchanged => Ok(EntryOutcome::Unchanged),
                    Outcome::Linked => Ok(EntryOutcome::Linked),
                    Outcome::Failed => Err(Failure::new(FailureKind::DiskFull)),
                };
                self.schedule.answered(id, outcome, self.now);
            }
            Answer::Want(id) => self.schedule.wanted(id, self.now),
            Answer::Reported(something) => {
                self.schedule.reported_presence(something, self.now);
                if self.understands_links {
                    self.schedule.links_understood();
                }
            }
            Answer::Have(id, parts) => {
                assert!(
                    self.schedule.have(id, &parts, false),
                    "parts of another file"
                )
            }
            Answer::Done(manifest) => self.schedule.completed(manifest),
        }
    }

    /// Performs one event.
    fn step(&mut self, (what, which, how): (u8, u8, u8)) {
        let pick = |len: usize| (len > 0).then(|| usize::from(which) % len);
        let line = pick(self.lines.len()).map(|n| *self.lines.keys().nth(n).unwrap());
        let reader = pick(self.readers.len()).map(|n| *self.readers.keys().nth(n).unwrap());
        match (what, line, reader) {
            (0 | 1, ..) => self.find(),
            (2, ..) => self.add_stream(),
            (3, Some(line), _) if how % 4 == 0 => self.remove_stream(line, how % 8 == 0),
            (3, Some(line), _) if how % 4 == 1 => self.retire(line),
            (4..=6, Some(line), _) => {
                self.take(line, usize::from(how) * 2);
            }
            (7..=9, _, Some(reader)) => self.read(reader),
            (10..=12, Some(line), _) => self.deliver(line),
            (13..=15, Some(line), _) => {
                if let Some(answer) = self.lines.get_mut(&line).unwrap().answers.pop_front() {
                    if how % 4 == 0 {
                        self.late.push(answer.clone());
                    }
                    self.receive(answer);
                }
            }
            (16, ..) => {
                if let Some(n) = pick(self.late.len()) {
                    let answer = self.late.swap_remove(n);
                    self.receive(answer);
                }
            }
            _ => self.now += Duration::from_millis(u64::from(how) * 20),
        }
        self.act();
    }

    /// Continues to the end without further faults, except that `stalled` of the streams carry
    /// nothing.
    fn finish(&mut self, stalled: usize) {
        while self.to_find > 0 {
            self.find();
            self.act();
        }
        for line in self.lines.values_mut().take(stalled) {
            line.stalled = true;
        }
        if self
            .lines
            .values()
            .all(|line| line.stalled || line.retiring)
        {
            if self.lines.len() == 4 {
                self.remove_stream(*self.lines.keys().next().unwrap(), false);
                self.act();
            }
            self.add_stream();
        }
        if self.plans.is_empty() {
            self.schedule.walk_ended(true);
        }
        // If streams ask again soon, answers that took minutes are still repeated only after
        // minutes. The longer nothing happens, the later the streams ask.
        let mut pause = Duration::ZERO;
        for _ in 0..10_000 {
            if self.schedule.agreed().is_some() {
                return;
            }
            pause *= 2;
            let mut until = None;
            let readers: Vec<StreamId> = self.readers.keys().copied().collect();
            for reader in readers {
                while self
                    .readers
                    .get(&reader)
                    .is_some_and(|work| !work.is_empty())
                {
                    pause = SHARE_PAUSE;
                    self.read(reader);
                    self.act();
                }
            }
            let lines: Vec<StreamId> = self.lines.keys().copied().collect();
            for stream in lines {
                if self.lines[&stream].stalled {
                    continue;
                }
                let wait = self.take(stream, 256);
                until = until.max(wait);
                self.act();
                if !self.lines.contains_key(&stream) {
                    continue;
                }
                while !self.lines[&stream].sent.is_empty() {
                    self.deliver(stream);
                }
                while let Some(answer) = self.lines.get_mut(&stream).unwrap().answers.pop_front() {
                    self.receive(answer);
                    self.act();
                }
            }
            self.now = (self.now + pause).max(until.unwrap_or(self.now));
        }
        panic!("it does not end");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn every_entry_gets_one_result_and_nothing_remains(
        plans in prop::collection::vec(plan(), 0..12),
        steps in prop::collection::vec(
            (prop_oneof![4 => 0u8..19, 1 => Just(18)], any::<u8>(), any::<u8>()),
            0..400,
        ),
        stalled in 0usize..3,
        presence in prop_oneof![
            Just(Presence::Unknown),
            Just(Presence::Nothing),
            Just(Presence::Something),
        ],
        compare in prop_oneof![Just(Compare::SizeAndTime), Just(Compare::Content)],
        has_some in any::<bool>(),
        links in any::<(bool, bool)>(),
        (ahead, in_flight) in (1u64..8, 8usize..32),
    ) {
        let mut world = World::new(plans, presence, compare, has_some, links);
        world.schedule.block_limits = BlockLimits { ahead, in_flight };
        for step in steps {
            world.step(step);
        }
        world.finish(stalled);
        let schedule = &world.schedule;
        prop_assert_eq!(schedule.agreed(), Some(true), "{:?}", world.results);
        prop_assert_eq!(world.results.len(), world.plans.len());
        for (id, (ok, _)) in &world.results {
            let written = world.written[id] != Outcome::Failed;
            prop_assert_eq!(*ok, written, "both sides say the same of {}", id);
        }
        let bytes: u64 = world.results.values().map(|(_, size)| size).sum();
        prop_assert_eq!(schedule.bytes_done(), bytes);
        prop_assert_eq!(schedule.memory(), ScheduleMemory::default());
        prop_assert!(world.open.is_empty());
        for stream in world.lines.keys() {
            prop_assert_eq!(schedule.in_flight.count_on(*stream), 0);
        }
    }
}
