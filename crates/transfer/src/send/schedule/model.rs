//! The schedule in a model of a whole copy: streams come and go, frames and answers are lost, late or doubled, files fail, grow and
//! change, the receiver refuses some; in any order, and in virtual time.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

use proptest::prelude::*;

use super::*;
use crate::error::{Failure, FailureKind};
use crate::manifest::Record;
use crate::tree_hash::{BlockHash, BlockHasher};
use crate::wire::Written;

const BLOCK_LOG2: u32 = 18;
const BLOCK: u64 = 1 << BLOCK_LOG2;

impl Schedule {
    /// Everything that should hold after every event.
    pub(super) fn check(&self) {
        self.in_flight.check();
        let outstanding = |subject: Subject| {
            let (flies, back) = (self.in_flight.contains(subject), self.returned.contains(&subject));
            assert!(!(flies && back), "{subject:?} is in flight and came back");
            flies || back
        };
        let mut subjects = usize::from(outstanding(Subject::END));
        let (mut entry_bytes, mut file_bytes, mut acknowledged) = (0, 0, 0);
        for (id, tracked) in &self.tracked {
            entry_bytes += tracked.entry.memory();
            acknowledged += tracked.acknowledged;
            let whole = outstanding(Subject::whole(*id));
            let blocks = self.blocks_out(*id);
            subjects += usize::from(whole) + blocks.len();
            match &tracked.stage {
                Stage::Whole | Stage::Failed(_) => assert!(whole && blocks.is_empty(), "{id} is lost"),
                Stage::Blocks(None) => assert!(!whole && blocks == [0], "{id} is lost before it is open"),
                Stage::Blocks(Some(open)) => {
                    let out: u64 = blocks.iter().map(|offset| open.len_at(*offset)).sum();
                    assert_eq!(out + open.unsent_bytes() + tracked.acknowledged, open.size());
                    assert_eq!(whole, tracked.content.is_some());
                    assert_eq!(self.cutting.contains(id), open.has_unsent());
                    file_bytes += open.memory();
                }
            }
        }
        entry_bytes += self.queued.iter().map(|entry| entry.memory()).sum::<u64>();
        assert_eq!((self.entry_bytes, self.file_bytes), (entry_bytes, file_bytes));
        assert_eq!(
            self.in_flight.len() + self.returned.len(),
            subjects,
            "of no entry"
        );
        assert!(self.cutting.iter().all(|id| self.tracked.contains_key(id)));
        assert!(self.bytes_done >= acknowledged);
        let known = self.queued.len() as u64 + self.tracked.len() as u64 + self.manifest.len();
        assert_eq!(known, self.found.entries, "an entry is lost");
    }

    /// Offsets of the blocks of a file that are in flight or came back.
    fn blocks_out(&self, id: u64) -> Vec<u64> {
        let back = self.returned.iter().filter_map(|subject| match subject.part {
            Part::Block(offset) if subject.entry == id => Some(offset),
            _ => None,
        });
        let all: BTreeSet<u64> = back.chain(self.in_flight.blocks_of(id)).collect();
        all.into_iter().collect()
    }
}

/// What an entry turns out to be.
#[derive(Debug, Clone)]
enum Plan {
    Directory,
    Link,
    Bad,
    File {
        found: u64,
        /// Its size when it is read for the n-th time, the last one ever after.
        sizes: Vec<u64>,
        /// Its content, in the same way.
        contents: Vec<u8>,
        /// The readings that fail.
        failing: Vec<bool>,
        /// The receiver has no room for it.
        refused: bool,
    },
}

fn plan() -> impl Strategy<Value = Plan> {
    let size = prop_oneof![
        3 => 0..BLOCK,
        1 => Just(BLOCK),
        2 => BLOCK + 1..6 * BLOCK,
    ];
    let one = |usual: u8| prop::collection::vec(prop_oneof![9 => Just(usual), 1 => 0u8..3], 1..5);
    let failing = prop::collection::vec(prop::bool::weighted(0.05), 1..8);
    let sizes = prop::collection::vec(size.clone(), 0..2);
    let file = (size, sizes, one(0), failing, prop::bool::weighted(0.1)).prop_map(
        |(found, later, contents, failing, refused)| Plan::File {
            found,
            sizes: [vec![found], later].concat(),
            contents,
            failing,
            refused,
        },
    );
    prop_oneof![1 => Just(Plan::Directory), 1 => Just(Plan::Link), 1 => Just(Plan::Bad), 8 => file]
}

fn nth<T: Copy>(list: &[T], n: usize) -> T {
    list[n.min(list.len() - 1)]
}

#[derive(Debug, Clone)]
enum Sent {
    Whole(Arc<Entry>, Option<(u64, Hash)>),
    Block { id: u64, offset: u64, size: u64 },
    FileEnd { id: u64, hash: Hash, size: u64 },
    Failed(Arc<Entry>),
    End(u64),
}

#[derive(Debug, Clone)]
enum Answer {
    Ack(u64, u64),
    Result(u64, bool),
    Done(Hash),
}

/// A stream, as long as it is open.
#[derive(Default)]
struct Line {
    sent: VecDeque<Sent>,
    answers: VecDeque<Answer>,
    told_done: bool,
    stalled: bool,
}

/// A file that is arriving in blocks.
#[derive(Default)]
struct Arriving {
    offsets: HashSet<u64>,
    size: u64,
    end: Option<Hash>,
    asked: Vec<StreamId>,
}

#[derive(Default)]
struct World {
    schedule: Schedule,
    plans: Vec<Plan>,
    now: Duration,
    to_find: usize,
    next_stream: StreamId,
    lines: BTreeMap<StreamId, Line>,
    /// Work that streams took and have not read yet, also of streams that are gone.
    readers: BTreeMap<StreamId, VecDeque<Work>>,
    /// Answers that come late or a second time.
    late: Vec<Answer>,
    /// How often each entry has been read.
    readings: HashMap<u64, usize>,
    /// Files that the sender has open.
    open: HashMap<u64, (u64, u8)>,
    arriving: HashMap<u64, Arriving>,
    written: BTreeMap<u64, bool>,
    manifest: Manifest,
    end: Option<u64>,
    results: BTreeMap<u64, (bool, u64)>,
}

impl World {
    fn new(plans: Vec<Plan>) -> Self {
        Self {
            to_find: plans.len(),
            plans,
            ..Self::default()
        }
    }

    /// Does what the schedule wants done, and looks whether all is well.
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
            let size = content.filter(|_| outcome.is_ok()).map_or(0, |(size, _)| size);
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
            Plan::Directory => Found::Directory,
            Plan::Link => Found::Symlink {
                target: b"t".to_vec(),
            },
            Plan::Bad => Found::Failed(Failure::new(FailureKind::NotRegular)),
            Plan::File { found, .. } => Found::File { size: *found },
        };
        self.schedule.found(0, path, Meta::default(), found);
        if self.to_find == 0 {
            self.schedule.walk_ended(true);
        }
    }

    fn add_stream(&mut self) {
        if self.lines.len() < 4 {
            self.lines.insert(self.next_stream, Line::default());
            self.schedule.add_stream(self.next_stream);
            self.next_stream += 1;
            self.tell_done();
        }
    }

    fn remove_stream(&mut self, stream: StreamId, keep: bool) {
        let line = self.lines.remove(&stream).unwrap();
        if keep {
            self.late.extend(line.answers);
        }
        self.schedule.remove_stream(stream);
        assert_eq!(self.schedule.in_flight.carried(stream), 0);
    }

    /// How long to wait, if there is nothing to send.
    fn take(&mut self, stream: StreamId, room: usize) -> Option<Duration> {
        if self.readers.get(&stream).is_some_and(|work| !work.is_empty()) {
            return None;
        }
        match self.schedule.next(stream, self.now, room) {
            Next::Send(work) => {
                assert!(!work.is_empty() && work.len() <= room.max(1));
                assert!(work.len() == 1 || !work.iter().any(Work::is_block));
                self.readers.insert(stream, work.into());
                None
            }
            Next::Wait { until } => {
                let longest = MIN_AGE_TO_REPEAT.max(self.now * MIN_ANSWER_TIMES_TO_REPEAT);
                assert!(until > self.now && until <= self.now + longest);
                Some(until)
            }
            Next::Over => {
                assert!(self.schedule.agreed().is_some());
                None
            }
        }
    }

    fn send(&mut self, stream: StreamId, sent: Sent) {
        if let Some(line) = self.lines.get_mut(&stream) {
            line.sent.push_back(sent);
        }
    }

    /// One piece of work is read and framed.
    fn read(&mut self, stream: StreamId) {
        let Some(work) = self.readers.get_mut(&stream).and_then(VecDeque::pop_front) else {
            return;
        };
        let Work::Entry(entry) = &work else {
            return self.read_blocks(stream, work);
        };
        let id = entry.head.id;
        let Plan::File { sizes, contents, .. } = self.plans[id as usize].clone() else {
            return self.send(stream, Sent::Whole(entry.clone(), None));
        };
        let (n, fails) = self.reading(id);
        let size = nth(&sizes, n);
        let content = (size, [nth(&contents, n); 32]);
        let said = if fails {
            let failure = Failure::new(FailureKind::Io);
            self.schedule.failed(stream, id, &failure, self.now);
            Say::Failure(failure)
        } else if size > BLOCK {
            self.schedule.grew(stream, id, self.now)
        } else {
            self.schedule.whole_read(stream, id, size, content.1, self.now)
        };
        match said {
            Say::File => self.send(stream, Sent::Whole(entry.clone(), Some(content))),
            Say::Failure(_) => self.send(stream, Sent::Failed(entry.clone())),
            Say::Nothing => {}
        }
    }

    /// Which reading of an entry this is, and whether it fails.
    fn reading(&mut self, id: u64) -> (usize, bool) {
        let count = self.readings.entry(id).or_default();
        *count += 1;
        let n = *count - 1;
        match &self.plans[id as usize] {
            Plan::File { failing, .. } => (n, failing.get(n).copied().unwrap_or(false)),
            _ => (n, false),
        }
    }

    fn read_blocks(&mut self, stream: StreamId, work: Work) {
        match work {
            Work::Open(entry) => {
                let id = entry.head.id;
                let (n, fails) = self.reading(id);
                let Plan::File { sizes, contents, .. } = &self.plans[id as usize] else {
                    panic!("opened what is no file")
                };
                let (size, content) = (nth(sizes, n), nth(contents, n));
                if fails {
                    return self.fail(stream, entry);
                }
                if self.schedule.opened(id, size, BLOCK_LOG2) {
                    self.open.insert(id, (size, content));
                }
                self.read_block(stream, entry, 0);
            }
            Work::Block { file, offset } => self.read_block(stream, file, offset),
            Work::FileEnd { file, hash } => {
                let id = file.head.id;
                if let Some(&(size, _)) = self.open.get(&id) {
                    self.send(stream, Sent::FileEnd { id, hash, size });
                }
            }
            Work::Failed(entry, _) => self.send(stream, Sent::Failed(entry)),
            Work::End { entries, .. } => self.send(stream, Sent::End(entries)),
            Work::Entry(_) => unreachable!(),
        }
    }

    fn read_block(&mut self, stream: StreamId, entry: Arc<Entry>, offset: u64) {
        let id = entry.head.id;
        let Some((size, content)) = self.open.get(&id).copied() else {
            return;
        };
        let root = if size == 0 {
            Some([content; 32])
        } else {
            if self.reading(id).1 {
                return self.fail(stream, entry);
            }
            let hash = block_hash(offset, BLOCK.min(size - offset), size);
            self.send(stream, Sent::Block { id, offset, size });
            self.schedule.block_read(id, offset, hash)
        };
        if let Some(root) = root {
            let Plan::File { contents, .. } = &self.plans[id as usize] else {
                return;
            };
            if nth(contents, self.readings[&id]) != content {
                return self.fail(stream, entry);
            }
            if self.schedule.file_read(stream, id, size, root, self.now) {
                let hash = root;
                self.send(stream, Sent::FileEnd { id, hash, size });
            }
        }
    }

    fn fail(&mut self, stream: StreamId, entry: Arc<Entry>) {
        let failure = Failure::new(FailureKind::Changed);
        self.schedule.failed(stream, entry.head.id, &failure, self.now);
        self.send(stream, Sent::Failed(entry));
    }

    /// The receiver takes one frame.
    fn deliver(&mut self, stream: StreamId) {
        let line = self.lines.get_mut(&stream).unwrap();
        let Some(sent) = line.sent.pop_front() else { return };
        let (mut asked, mut ended) = (vec![stream], None);
        match sent {
            Sent::Whole(entry, content) => {
                let ok = !self.refuses(entry.head.id);
                self.write(entry.head.id, ok.then_some(content));
                ended = Some(entry.head.id);
            }
            Sent::Failed(entry) => {
                self.write(entry.head.id, None);
                ended = Some(entry.head.id);
            }
            Sent::Block { id, offset, size } => {
                line.answers.push_back(Answer::Ack(id, offset));
                if !self.written.contains_key(&id) {
                    let file = self.arriving.entry(id).or_default();
                    file.size = size;
                    file.offsets.insert(offset);
                    if self.refuses(id) {
                        self.write(id, None);
                        ended = Some(id);
                    } else {
                        asked.clear();
                        ended = self.complete(id);
                    }
                }
            }
            Sent::FileEnd { id, hash, size } => {
                if self.written.contains_key(&id) {
                    ended = Some(id);
                } else {
                    let file = self.arriving.entry(id).or_default();
                    file.size = size;
                    file.end = Some(hash);
                    file.asked.push(stream);
                    asked.clear();
                    ended = self.complete(id);
                }
            }
            Sent::End(entries) => self.end = Some(entries),
        }
        if let Some(id) = ended {
            asked.extend(self.arriving.remove(&id).map_or(vec![], |file| file.asked));
            for stream in asked {
                if let Some(line) = self.lines.get_mut(&stream) {
                    line.answers.push_back(Answer::Result(id, self.written[&id]));
                }
            }
        }
        self.tell_done();
    }

    fn refuses(&self, id: u64) -> bool {
        matches!(&self.plans[id as usize], Plan::File { refused: true, .. })
    }

    /// A file that came in blocks is written once all of it is there.
    fn complete(&mut self, id: u64) -> Option<u64> {
        let file = &self.arriving[&id];
        let hash = file.end?;
        if (file.offsets.len() as u64) < file.size.div_ceil(BLOCK) {
            return None;
        }
        let size = file.size;
        self.write(id, Some(Some((size, hash))));
        Some(id)
    }

    fn write(&mut self, id: u64, content: Option<Option<(u64, Hash)>>) {
        let path = RelPath::from_bytes(format!("e{id}").as_bytes()).unwrap();
        let record = match (&self.plans[id as usize], &content) {
            (Plan::Directory, Some(_)) => Record::Directory,
            (Plan::Link, Some(_)) => Record::Symlink { target: b"t" },
            (_, Some(Some((size, hash)))) => Record::File { size: *size, hash },
            _ => Record::Failed,
        };
        if self.manifest.record(id, 0, &path, record) {
            self.written.insert(id, content.is_some());
        }
    }

    fn tell_done(&mut self) {
        if self.end != Some(self.manifest.len()) {
            return;
        }
        for line in self.lines.values_mut().filter(|line| !line.told_done) {
            line.told_done = true;
            line.answers.push_back(Answer::Done(self.manifest.hash()));
        }
    }

    fn hear(&mut self, answer: Answer) {
        match answer {
            Answer::Ack(id, offset) => self.schedule.acknowledged(id, offset, self.now),
            Answer::Result(id, ok) => {
                let failure = Failure::new(FailureKind::DiskFull);
                let outcome = if ok { Ok(Written::New) } else { Err(failure) };
                self.schedule.answered(id, outcome, self.now);
            }
            Answer::Done(manifest) => self.schedule.completed(manifest),
        }
    }

    /// One thing happens.
    fn step(&mut self, (what, which, how): (u8, u8, u8)) {
        let pick = |len: usize| (len > 0).then(|| usize::from(which) % len);
        let line = pick(self.lines.len()).map(|n| *self.lines.keys().nth(n).unwrap());
        let reader = pick(self.readers.len()).map(|n| *self.readers.keys().nth(n).unwrap());
        match (what, line, reader) {
            (0 | 1, ..) => self.find(),
            (2, ..) => self.add_stream(),
            (3, Some(line), _) if how % 4 == 0 => self.remove_stream(line, how % 8 == 0),
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
                    self.hear(answer);
                }
            }
            (16, ..) => {
                if let Some(n) = pick(self.late.len()) {
                    let answer = self.late.swap_remove(n);
                    self.hear(answer);
                }
            }
            _ => self.now += Duration::from_millis(u64::from(how) * 20),
        }
        self.act();
    }

    /// From here on nothing goes wrong any more, but that `stalled` of the streams carry nothing.
    fn finish(&mut self, stalled: usize) {
        while self.to_find > 0 {
            self.find();
            self.act();
        }
        for line in self.lines.values_mut().take(stalled) {
            line.stalled = true;
        }
        if self.lines.values().all(|line| line.stalled) {
            if self.lines.len() == 4 {
                self.remove_stream(*self.lines.keys().next().unwrap(), false);
                self.act();
            }
            self.add_stream();
        }
        if self.plans.is_empty() {
            self.schedule.walk_ended(true);
        }
        for _ in 0..10_000 {
            if self.schedule.agreed().is_some() {
                return;
            }
            let mut until = None;
            let readers: Vec<StreamId> = self.readers.keys().copied().collect();
            for reader in readers {
                while self.readers.get(&reader).is_some_and(|work| !work.is_empty()) {
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
                while !self.lines[&stream].sent.is_empty() {
                    self.deliver(stream);
                }
                while let Some(answer) = self.lines.get_mut(&stream).unwrap().answers.pop_front() {
                    self.hear(answer);
                    self.act();
                }
            }
            self.now = self.now.max(until.unwrap_or(self.now));
        }
        panic!("it does not end");
    }
}

fn block_hash(offset: u64, len: u64, size: u64) -> BlockHash {
    let mut hasher = BlockHasher::new(offset, len, size);
    hasher.update(b"x");
    hasher.finish()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn whatever_happens_every_entry_gets_one_result_and_nothing_stays(
        plans in prop::collection::vec(plan(), 0..12),
        steps in prop::collection::vec((0u8..19, any::<u8>(), any::<u8>()), 0..400),
        stalled in 0usize..3,
    ) {
        let mut world = World::new(plans);
        for step in steps {
            world.step(step);
        }
        world.finish(stalled);
        let schedule = &world.schedule;
        prop_assert_eq!(schedule.agreed(), Some(true), "{:?}", world.results);
        prop_assert_eq!(world.results.len(), world.plans.len());
        for (id, (ok, _)) in &world.results {
            prop_assert_eq!(ok, &world.written[id], "both sides say the same of {}", id);
        }
        let bytes: u64 = world.results.values().map(|(_, size)| size).sum();
        prop_assert_eq!(schedule.bytes_done(), bytes);
        prop_assert_eq!(schedule.memory(), Memory::default());
        prop_assert!(world.open.is_empty());
        for stream in world.lines.keys() {
            prop_assert_eq!(schedule.in_flight.carried(*stream), 0);
        }
    }
}
