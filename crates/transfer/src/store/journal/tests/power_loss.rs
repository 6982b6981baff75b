//! A copy that ends at any moment and is resumed. Everything that was promised is there, and
//! nothing invalid is accepted.

use std::ffi::OsStr;
use std::time::Duration;

use proptest::prelude::*;

use super::sim_disk::SimDisk;
use super::{
    BLOCK, BLOCK_LOG2, Random, TICK, block_of, content, identity, is_hole, is_true, subtree_of,
};
use crate::error::Failure;
use crate::store::journal::{Action, Flushed, Journal};

const TARGET: &str = "target";

/// End of a life of the copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// By `kill -9`: written data is there.
    Kill,
    /// By a power loss: unsynced data is lost, or a part of it.
    PowerLoss,
}

/// One copy through all of its lives.
struct Copy {
    disk: SimDisk,
    content: Vec<u8>,
    random: Random,
    /// Blocks that must be there in the next life.
    promised: Vec<usize>,
    /// Blocks that must be there after a kill, including noted ones.
    noted: Vec<usize>,
    /// True if a life without a journal, which syncs nothing, committed the file. After a power
    /// loss it may have any content.
    is_target_doubtful: bool,
    /// Average number of blocks between two flushes.
    blocks_per_flush: usize,
}

impl Copy {
    fn new(size: usize, seed: u64, blocks_per_flush: usize) -> Self {
        Self {
            disk: SimDisk::default(),
            content: content(size, seed),
            random: Random(seed),
            promised: Vec::new(),
            noted: Vec::new(),
            is_target_doubtful: false,
            blocks_per_flush,
        }
    }

    fn blocks(&self) -> usize {
        self.content.len().div_ceil(BLOCK)
    }

    /// Simulates one life, which ends as told with its `last_step`-th change. Returns true if the
    /// file was finished, as far as the copy knows.
    fn live(&mut self, last_step: Option<u32>, end: End) -> bool {
        self.disk.end_at(last_step);
        let finished = self.run().is_ok();
        assert!(finished || last_step.is_some());
        self.disk.end_at(None);
        if end == End::PowerLoss {
            self.disk.fail_power(&mut self.random);
            self.noted.clear();
        }
        self.is_target_doubtful |= self.promised.is_empty() && self.disk.content(TARGET).is_some();
        finished
    }

    fn run(&mut self) -> Result<(), Failure> {
        let (disk, size) = (self.disk.clone(), self.content.len() as u64);
        let (journal, resume) =
            Journal::open_or_create(disk, OsStr::new(TARGET), &identity(), BLOCK_LOG2, size)?;
        let is_in = |n: usize| {
            resume
                .ranges()
                .iter()
                .any(|range| range.contains(&((n * BLOCK) as u64)))
        };
        self.check(&resume.subtrees, is_in);
        let mut left: Vec<usize> = (0..self.blocks()).filter(|&n| !is_in(n)).collect();
        self.random.shuffle(&mut left);
        let (mut now, mut written) = (Duration::ZERO, self.promised.clone());
        written.append(&mut self.noted.clone());
        let mut torn = vec![false; self.blocks()];
        while let Some(n) = left.pop() {
            // Half of a block of a stream that is lost, which never becomes complete.
            if let Some(&other) = left.first()
                && self.random.below(4) == 0
                && (other + 1) * BLOCK <= self.content.len()
            {
                journal.write_at(&[0xEE; BLOCK / 2], (other * BLOCK) as u64)?;
                torn.fill(true);
            }
            self.write(&journal, n, torn[n])?;
            now += TICK;
            let is_time = journal.written(now, subtree_of(&self.content, n));
            written.push(n);
            if is_time && self.random.below(2) == 0 && journal.note(now) {
                self.noted.clone_from(&written);
            }
            if self.random.below(self.blocks_per_flush) == 0 {
                now += TICK * 20;
            }
            if journal.poll(now) == Action::Flush {
                let asked = written.clone();
                // Another thread writes on.
                if let Some(n) = left.pop() {
                    self.write(&journal, n, torn[n])?;
                    journal.written(now, subtree_of(&self.content, n));
                    written.push(n);
                }
                if journal.flush(|| now)? == Flushed::Recorded {
                    self.promised = asked;
                }
            }
        }
        assert!(journal.at_risk(now).bytes <= size);
        if self.random.below(4) == 0 && journal.leave()? == Flushed::Recorded {
            self.promised = written;
        }
        journal.finish(true)
    }

    /// Writes a block in two extents, or nothing where there is a hole already.
    fn write(&self, journal: &Journal<SimDisk>, n: usize, is_torn: bool) -> Result<(), Failure> {
        if is_hole(n) && !is_torn {
            return Ok(());
        }
        let (start, block) = ((n * BLOCK) as u64, block_of(&self.content, n));
        let (first, second) = block.split_at(block.len() / 2);
        journal.write_at(second, start + first.len() as u64)?;
        journal.write_at(first, start)
    }

    /// Checks that the journal is correct, and records everything that was promised. Everything
    /// else must be zeros.
    fn check(&self, subtrees: &[crate::tree_hash::Subtree], is_in: impl Fn(usize) -> bool) {
        let data = self.disk.names().into_iter().find(|name| {
            // Other files are left by lives that ended before their journal was created.
            let data = self.disk.content(name).unwrap();
            name.ends_with(".part") && data.len() == self.content.len() && self.holds(&data, &is_in)
        });
        assert!(
            data.is_some(),
            "no data file holds what the journal says: {:?}",
            self.disk.names()
        );
        for subtree in subtrees {
            assert!(is_true(&self.content, subtree));
        }
        for &n in self.promised.iter().chain(&self.noted) {
            assert!(is_in(n), "block {n} was promised");
        }
    }

    fn holds(&self, data: &[u8], is_in: impl Fn(usize) -> bool) -> bool {
        (0..self.blocks()).all(|n| match is_in(n) {
            true => block_of(data, n) == block_of(&self.content, n),
            false => block_of(data, n).iter().all(|&byte| byte == 0),
        })
    }

    /// Returns true if the target exists. It must be correct if any of it was promised.
    fn is_in_place(&self) -> bool {
        match self.disk.content(TARGET) {
            Some(there) if there == self.content => true,
            Some(_) => {
                assert!(
                    self.promised.is_empty() || self.is_target_doubtful,
                    "the target has its name and not its content"
                );
                false
            }
            None => false,
        }
    }
}

/// Simulates lives that end with these steps, then an undisturbed one, and another one after it.
fn all_ends_well(mut copy: Copy, lives: &[(u32, End)]) {
    for &(last_step, end) in lives {
        let finished = copy.live(Some(last_step), end);
        assert!(!finished || copy.promised.is_empty() || copy.is_in_place());
        if copy.is_in_place() {
            return;
        }
    }
    assert!(copy.live(None, End::Kill));
    assert_eq!(copy.disk.content(TARGET), Some(copy.content.clone()));
    assert!(
        !copy
            .disk
            .names()
            .iter()
            .any(|name| name.ends_with(".journal"))
    );
    let promised = !copy.promised.is_empty();
    copy.disk.fail_power(&mut copy.random);
    assert!(!promised || copy.is_in_place());
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![Just(End::Kill), Just(End::PowerLoss)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn copy_that_ends_at_any_moment_resumes(
        size in BLOCK + 1..40 * BLOCK,
        seed in any::<u64>(),
        blocks_per_flush in 1usize..8,
        lives in prop::collection::vec((1u32..120, end()), 0..8),
    ) {
        all_ends_well(Copy::new(size, seed, blocks_per_flush), &lives);
    }
}

#[test]
fn copy_resumes_after_every_single_step() {
    for end in [End::Kill, End::PowerLoss] {
        for seed in 0..6 {
            let mut whole = Copy::new(12 * BLOCK + 5, seed, 3);
            whole.disk.end_at(None);
            whole.run().unwrap();
            for step in 1..=whole.disk.steps() {
                // A second life ends early, too.
                all_ends_well(
                    Copy::new(12 * BLOCK + 5, seed, 3),
                    &[(step, end), (step / 2 + 1, end)],
                );
            }
        }
    }
}

/// Writes a file front to back with a flush for each block, until the journal has become shorter.
/// Returns the steps in which that happened.
fn until_compacted(copy: &mut Copy) -> Result<(u32, u32), Failure> {
    let (disk, size) = (copy.disk.clone(), copy.content.len() as u64);
    let (journal, _) =
        Journal::open_or_create(disk, OsStr::new(TARGET), &identity(), BLOCK_LOG2, size)?;
    let (mut now, mut before) = (Duration::ZERO, 0);
    for n in 0..copy.blocks() {
        copy.write(&journal, n, false)?;
        journal.written(now, subtree_of(&copy.content, n));
        now += TICK * 20;
        assert_eq!(journal.poll(now), Action::Flush);
        let steps = copy.disk.steps();
        if let Flushed::Unrecorded(failure) = journal.flush(|| now)? {
            return Err(failure);
        }
        copy.promised.push(n);
        let name = copy
            .disk
            .names()
            .into_iter()
            .find(|name| name.ends_with(".journal"));
        let length = copy.disk.content(&name.unwrap()).unwrap().len();
        if length < before {
            assert!((900..1400).contains(&n), "{n}");
            return Ok((steps, copy.disk.steps()));
        }
        before = length;
    }
    panic!("the journal was never written anew");
}

#[test]
fn rewritten_journal_exists_at_every_step() {
    let copy = || Copy::new(1500 * BLOCK, 1, 4);
    let (first, last) = until_compacted(&mut copy()).unwrap();
    for end in [End::Kill, End::PowerLoss] {
        for step in first..=last + 1 {
            let mut copy = copy();
            copy.random = Random(step.into());
            copy.disk.end_at(Some(step));
            let _ = until_compacted(&mut copy);
            copy.disk.end_at(None);
            if end == End::PowerLoss {
                copy.disk.fail_power(&mut copy.random);
            }
            all_ends_well(copy, &[]);
        }
    }
}
