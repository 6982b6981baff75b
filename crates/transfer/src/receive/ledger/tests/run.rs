//! A sender with streams that die, and a receiver whose threads proceed in any order, in virtual
//! time.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use crate::error::{Failure, FailureKind};
use crate::manifest::ManifestRecord;
use crate::path::RelPath;
use crate::receive::ledger::{
    BlockClass, BlockWrite, CopyLedger, Directory, EntryReport, FileCommit, LedgerAction,
    LedgerTypes, RequestedEntries, SentKind, SkipClaim,
};
use crate::store::{AnnouncedFile, Comparison, MadeDir};
use crate::tree_hash::{BlockHash, BlockHasher, Hash};
use crate::wire::{Block, EntryHead, EntryOutcome, FileOffer, Frame, Meta};

/// Block size of the files here: 64 KiB, the minimum.
pub(super) const BLOCK_LOG2: u32 = 16;
pub(super) const BLOCK: u64 = 1 << BLOCK_LOG2;
/// Memory that the ledger begins with, in bytes.
pub(super) const BEGUN_WITH: u64 = 1000;

pub(super) struct Numbers;

impl LedgerTypes for Numbers {
    /// The stream and the question.
    type Asker = (usize, Question);
    /// The block whose data it is.
    type Data = (u64, u64);
    /// The file.
    type File = u64;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Question {
    Entry(u64),
    Block(u64, u64),
    FileEnd(u64),
    Offer(u64),
}

/// Result of offering an entry, if it is offered.
pub(super) type Offered = Option<Result<Comparison, FailureKind>>;

pub(super) fn offered() -> impl Strategy<Value = Offered> {
    prop_oneof![
        4 => Just(None),
        2 => Just(Some(Ok(Comparison::InPlace))),
        2 => Just(Some(Ok(Comparison::Wanted))),
        1 => kind().prop_map(|kind| Some(Err(kind))),
    ]
}

/// Kind and fate of an entry of the tree.
#[derive(Debug, Clone)]
pub(super) enum Planned {
    Small(Result<EntryOutcome, FailureKind>),
    Directory(Result<MadeDir, FailureKind>),
    Unreadable(FailureKind),
    Blocks {
        count: u64,
        tail: u64,
        /// The block that cannot be written.
        bad_block: Option<u64>,
        wrong_hash: bool,
        placed: Result<EntryOutcome, FailureKind>,
        /// Number of questions after which the sender gives it up.
        given_up: Option<usize>,
    },
}

impl Planned {
    pub(super) fn size(&self) -> u64 {
        match self {
            Self::Blocks { count, tail, .. } => (count - 1) * BLOCK + tail,
            Self::Small(_) => 10,
            _ => 0,
        }
    }
}

pub(super) fn kind() -> impl Strategy<Value = FailureKind> {
    (1u8..=15).prop_map(|code| FailureKind::from_repr(code).unwrap())
}

pub(super) fn fate() -> impl Strategy<Value = Result<EntryOutcome, FailureKind>> {
    prop_oneof![
        3 => Just(Ok(EntryOutcome::New)),
        1 => Just(Ok(EntryOutcome::Same)),
        1 => kind().prop_map(Err)
    ]
}

pub(super) fn planned() -> impl Strategy<Value = Planned> {
    let blocks = (
        1u64..9,
        1..=BLOCK,
        prop::option::weighted(0.2, 0u64..9),
        prop::bool::weighted(0.1),
        fate(),
        prop::option::weighted(0.1, 0usize..12),
    )
        .prop_map(
            |(count, tail, bad_block, wrong_hash, placed, given_up)| Planned::Blocks {
                count,
                tail,
                bad_block,
                wrong_hash,
                placed,
                given_up,
            },
        );
    let made = prop_oneof![
        Just(Ok(MadeDir::New)),
        Just(Ok(MadeDir::Kept)),
        kind().prop_map(Err)
    ];
    prop_oneof![
        1 => fate().prop_map(Planned::Small),
        1 => made.prop_map(Planned::Directory),
        1 => kind().prop_map(Planned::Unreadable),
        3 => blocks,
    ]
}

pub(super) fn head(id: u64) -> EntryHead {
    EntryHead {
        id,
        source: 0,
        path: RelPath::from_bytes(format!("e{id}").as_bytes()).unwrap(),
    }
}

pub(super) fn block_of(id: u64, offset: u64, size: u64) -> Block {
    Block {
        id,
        offset,
        len: BLOCK.min(size - offset) as u32,
        extents: vec![],
    }
}

pub(super) fn hash_of(offset: u64, size: u64) -> BlockHash {
    let len = BLOCK.min(size - offset);
    let mut hasher = BlockHasher::new(offset, len, size);
    hasher.update_zeros(len);
    hasher.finish()
}

pub(super) fn root_of(size: u64) -> Hash {
    *blake3::hash(&vec![0; size as usize]).as_bytes()
}

/// Work in progress on the receiver's threads.
pub(super) enum Work {
    Entry(u64),
    Compare(u64),
    Hash(Block),
    Write(BlockWrite<Numbers>),
    Place(FileCommit<Numbers>),
    Discard(u64),
    Finish(Vec<Directory>),
}

/// A sender with streams that die, and a receiver whose threads proceed in any order.
pub(super) struct Run {
    pub(super) plan: Vec<Planned>,
    pub(super) offers: HashMap<u64, Result<Comparison, FailureKind>>,
    pub(super) ledger: CopyLedger<Numbers>,
    /// Questions without an answer, in the order in which the sender will ask them.
    pub(super) unasked: Vec<Question>,
    /// Questions on their way to the receiver or unanswered there, by stream.
    pub(super) asked: Vec<HashSet<Question>>,
    pub(super) work: Vec<Work>,
    pub(super) questions_of: HashMap<u64, usize>,
    pub(super) answers: HashMap<Question, Vec<(Frame, Option<Frame>)>>,
    pub(super) reports: HashMap<u64, EntryReport>,
    pub(super) counted: i64,
    pub(super) writing: HashSet<u64>,
    pub(super) open: HashSet<u64>,
    pub(super) finished: usize,
    pub(super) events: usize,
    pub(super) actions: usize,
}

impl Run {
    /// Creates a run. Some files are offered first, others at any time.
    pub(super) fn new(plan: Vec<Planned>, offered: &[Offered]) -> Self {
        let mut unasked = Vec::new();
        let mut offers = HashMap::new();
        for (id, planned) in (0u64..).zip(&plan) {
            let offer = offered.get(id as usize).cloned().flatten();
            let is_file = matches!(planned, Planned::Small(_) | Planned::Blocks { .. });
            if let Some(offer) = offer.filter(|_| is_file) {
                offers.insert(id, offer);
                unasked.push(Question::Offer(id));
            }
            match planned {
                Planned::Blocks { count, .. } => {
                    unasked.extend((0..*count).map(|n| Question::Block(id, n * BLOCK)));
                    unasked.push(Question::FileEnd(id));
                }
                _ => unasked.push(Question::Entry(id)),
            }
        }
        Self {
            plan,
            offers,
            ledger: CopyLedger::new(RequestedEntries::Anything, 1, BEGUN_WITH),
            unasked,
            asked: vec![HashSet::new(); 3],
            work: Vec::new(),
            questions_of: HashMap::new(),
            answers: HashMap::new(),
            reports: HashMap::new(),
            counted: 0,
            writing: HashSet::new(),
            open: HashSet::new(),
            finished: 0,
            events: 0,
            actions: 0,
        }
    }

    /// Passes an event to the ledger, and checks what must hold of its actions.
    fn event<R>(
        &mut self,
        event: impl FnOnce(&mut CopyLedger<Numbers>, &mut Vec<LedgerAction<Numbers>>) -> R,
    ) -> R {
        let mut out = Vec::new();
        let result = event(&mut self.ledger, &mut out);
        self.events += 1;
        self.actions += out.len();
        let others = out
            .iter()
            .filter(|action| !matches!(action, LedgerAction::Answer(..)))
            .count();
        assert!(others <= 5, "bounded work");
        for action in out {
            match action {
                LedgerAction::Answer((stream, question), answer) => {
                    // Answers to questions of a dead stream are dropped.
                    if self.asked[stream].remove(&question) {
                        self.unasked.retain(|one| *one != question);
                    }
                    self.answers.entry(question).or_default().push(answer);
                }
                LedgerAction::Write(write) => {
                    assert!(self.writing.insert(write.block.id), "one writer at a time");
                    assert_eq!(write.data, (write.block.id, write.block.offset));
                    self.work.push(Work::Write(write));
                }
                LedgerAction::Commit(placement) => {
                    assert!(!self.writing.contains(&placement.announced.head.id));
                    self.open.remove(&placement.announced.head.id);
                    self.work.push(Work::Place(placement));
                }
                LedgerAction::Discard { file, .. } => self.work.push(Work::Discard(file)),
                LedgerAction::Report(report) => {
                    let before = self.reports.insert(report.head.id, report);
                    assert!(before.is_none(), "reported twice: {before:?}");
                }
                LedgerAction::Count(bytes) => self.counted += bytes,
                LedgerAction::Finish(directories) => {
                    assert!(
                        self.open.is_empty() && self.writing.is_empty(),
                        "nothing is left behind"
                    );
                    self.finished += 1;
                    self.work.push(Work::Finish(directories));
                }
            }
        }
        result
    }

    /// `stream` asks the next question, `behind` some others.
    pub(super) fn ask(&mut self, stream: usize, behind: usize) {
        let Some(question) = self
            .unasked
            .get(behind.min(self.unasked.len().saturating_sub(1)))
            .copied()
        else {
            return;
        };
        self.ask_about(stream, question);
    }

    pub(super) fn ask_about(&mut self, stream: usize, question: Question) {
        let asker = (stream, question);
        if !self.asked[stream].insert(question) {
            return;
        }
        match question {
            Question::Entry(id) => {
                let planned = self.plan[id as usize].clone();
                self.event(|ledger, _| ledger.admit(&head(id), SentKind::File))
                    .unwrap();
                if let Planned::Unreadable(kind) = planned {
                    return self.event(|ledger, out| {
                        ledger.failed(&head(id), Failure::new(kind), asker, out)
                    });
                }
                let directory = matches!(planned, Planned::Directory(_)).then(Meta::default);
                let directory = directory.as_ref();
                if self.event(|ledger, out| ledger.entry(&head(id), directory, asker, out)) {
                    self.work.push(Work::Entry(id));
                }
            }
            Question::Offer(id) => {
                self.event(|ledger, _| ledger.admit(&head(id), SentKind::File))
                    .unwrap();
                let offer = self.offer(id);
                if self
                    .event(|ledger, out| ledger.handle_claim(SkipClaim::Offer(&offer), asker, out))
                {
                    self.work.push(Work::Compare(id));
                }
            }
            Question::Block(id, offset) => {
                if self.give_up(id, asker) {
                    return;
                }
                self.announce(id);
                let block = block_of(id, offset, self.plan[id as usize].size());
                let expected = self
                    .event(|ledger, _| ledger.classify_block(&block))
                    .unwrap();
                if let BlockClass::Wanted {
                    has_permit: false, ..
                } = expected
                {
                    let spare = self.event(|ledger, out| ledger.assign_permit(id, Ok(id), out));
                    assert_eq!(spare, None);
                    self.open.insert(id);
                    let spare = self.event(|ledger, out| ledger.assign_permit(id, Ok(id), out));
                    assert_eq!(spare, Some(id), "a second place goes back");
                }
                if self.event(|ledger, out| ledger.block_arrived(&block, asker, out)) {
                    assert_ne!(expected, BlockClass::Settled);
                    self.work.push(Work::Hash(block));
                }
            }
            Question::FileEnd(id) => {
                if self.give_up(id, asker) {
                    return;
                }
                self.announce(id);
                let planned = &self.plan[id as usize];
                let wrong = matches!(
                    planned,
                    Planned::Blocks {
                        wrong_hash: true,
                        ..
                    }
                );
                let hash = if wrong {
                    [7; 32]
                } else {
                    root_of(planned.size())
                };
                self.event(|ledger, out| ledger.file_end(id, hash, asker, out))
                    .unwrap();
            }
        }
    }

    fn offer(&self, id: u64) -> FileOffer {
        FileOffer {
            head: head(id),
            meta: Meta::default(),
            size: self.plan[id as usize].size(),
            hash: None,
        }
    }

    fn announce(&mut self, id: u64) {
        let announced = AnnouncedFile {
            head: head(id),
            meta: Meta::default(),
            size: self.plan[id as usize].size(),
            block_log2: BLOCK_LOG2,
            identity: None,
        };
        self.event(|ledger, _| ledger.admit(&head(id), SentKind::File))
            .unwrap();
        self.event(|ledger, out| ledger.announce(announced, &[], out))
            .unwrap();
    }

    /// Returns true if the sender sends FAILED instead, because it has given up the file.
    fn give_up(&mut self, id: u64, asker: (usize, Question)) -> bool {
        let asked = self.questions_of.entry(id).or_default();
        *asked += 1;
        match &self.plan[id as usize] {
            Planned::Blocks {
                given_up: Some(after),
                ..
            } if *asked > *after => {
                let failure = Failure::with_detail(FailureKind::Changed, "while it was read");
                self.event(|ledger, out| ledger.failed(&head(id), failure, asker, out));
                true
            }
            _ => false,
        }
    }

    /// Completes a piece of work on one of the receiver's threads.
    pub(super) fn work(&mut self, which: usize) {
        if self.work.is_empty() {
            return;
        }
        let failure = |kind: FailureKind| Failure::with_detail(kind, "in words");
        match self.work.remove(which % self.work.len()) {
            Work::Entry(id) => match self.plan[id as usize].clone() {
                Planned::Small(fate) => {
                    let record = ManifestRecord::File {
                        size: 10,
                        hash: &[id as u8; 32],
                        mtime: (0, 0),
                        parts: &[],
                    };
                    let outcome = fate.map_err(failure);
                    self.event(|ledger, out| ledger.entry_written(&head(id), record, outcome, out));
                }
                Planned::Directory(made) => {
                    let made = made.map_err(failure);
                    let finish = made == Ok(MadeDir::New);
                    self.event(|ledger, out| {
                        ledger.directory_made(&head(id), Meta::default(), made, finish, out)
                    });
                }
                planned => panic!("{planned:?} is not written whole"),
            },
            Work::Compare(id) => {
                let offer = self.offer(id);
                let compared = self.offers[&id].map_err(failure);
                self.event(|ledger, out| {
                    ledger.claim_checked(SkipClaim::Offer(&offer), compared, out)
                });
            }
            Work::Hash(block) => {
                let hash = hash_of(block.offset, self.plan[block.id as usize].size());
                let data = (block.id, block.offset);
                self.event(|ledger, out| ledger.block_hashed(block, hash, data, out));
            }
            Work::Write(write) => {
                let id = write.block.id;
                assert!(self.writing.remove(&id));
                let Planned::Blocks { bad_block, .. } = self.plan[id as usize] else {
                    panic!("a block of none");
                };
                let written = match bad_block == Some(write.block.offset / BLOCK) {
                    true => Err(failure(FailureKind::DiskFull)),
                    false => Ok(()),
                };
                self.event(|ledger, out| {
                    ledger.block_written(id, write.block.offset, write.file, written, out)
                });
            }
            Work::Place(placement) => {
                let id = placement.announced.head.id;
                let Planned::Blocks { placed, .. } = self.plan[id as usize].clone() else {
                    panic!("no file");
                };
                assert_eq!(placement.hash, root_of(placement.announced.size));
                let placed = placed.map_err(failure);
                self.event(|ledger, out| ledger.file_committed(id, placed, out));
            }
            Work::Discard(file) => {
                assert!(self.open.remove(&file));
                self.event(|ledger, out| ledger.discarded(out));
            }
            Work::Finish(directories) => {
                assert!(self.open.is_empty(), "nothing is left behind");
                assert!(directories.is_sorted_by_key(|one| std::cmp::Reverse(one.head.id)));
                self.event(|ledger, _| ledger.finished(vec![]));
            }
        }
    }

    /// Loses a stream: its unanswered questions are asked again.
    pub(super) fn die(&mut self, stream: usize) {
        self.asked[stream].clear();
    }

    /// Asks and works until the copy is over.
    pub(super) fn settle(&mut self) {
        let entries = self.plan.len() as u64;
        self.event(|ledger, out| ledger.handle_end(entries, out))
            .unwrap();
        for _ in 0..10_000 {
            if self.ledger.conclusion().is_some() && self.unasked.is_empty() {
                return;
            }
            while !self.work.is_empty() {
                self.work(0);
            }
            for question in self.unasked.clone() {
                self.ask_about(0, question);
            }
        }
        panic!("still waiting for {:?}", self.unasked);
    }
}
