//! Reserved rate of one direction of a link, as a step function of time.
//!
//! The function is kept as its changes in order of time, in blocks. Each block has a summary that
//! answers queries about the whole of it. This is a tree of two levels. An insertion takes about
//! the square root of the number of changes. The maximum over a window reads one block at each end
//! and one summary per block between them. In a busy network, each query touches other memory than
//! the one before, so data that is read together lies together.
//!
//! Blocks are shared between copies until one of them changes. A copy costs one word per block, and
//! a change after it one block.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::time::{BitsPerSecond, MomentMs, Volume, Window};

/// Maximum number of changes in a block; a fuller one is split.
const MAX_BLOCK_CHANGES: usize = 64;

/// A moment at which bookings start or end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct StepChange {
    at: MomentMs,
    /// Level from here on, in bit/s, relative to the level before the block. So a level is looked
    /// up, not summed up.
    level: i64,
}

#[derive(Debug, Clone, Default)]
struct Block {
    changes: Vec<StepChange>,
    /// Number of bookings that start or end at each change. A booking that ends where another
    /// starts changes nothing, but each must be removable alone.
    ends: Vec<u32>,
    /// Sum over all changes of the rise times its moment.
    moments: i128,
}

impl Block {
    /// Adds a change, or removes one that was added. Returns false if there was none to remove.
    fn change(&mut self, at: MomentMs, by: i64, added: bool) -> bool {
        let within = self.changes.partition_point(|change| change.at < at);
        let is_there = self
            .changes
            .get(within)
            .is_some_and(|change| change.at == at);
        if !is_there && !added {
            return false;
        }
        if !is_there {
            let before = within
                .checked_sub(1)
                .and_then(|before| self.changes.get(before));
            let level = before.map_or(0, |change| change.level);
            self.changes.insert(within, StepChange { at, level });
            self.ends.insert(within, 0);
        }
        for change in self.changes.iter_mut().skip(within) {
            change.level += by;
        }
        if let Some(ends) = self.ends.get_mut(within) {
            *ends = if added {
                *ends + 1
            } else {
                ends.saturating_sub(1)
            };
            if *ends == 0 {
                self.ends.remove(within);
                self.changes.remove(within);
            }
        }
        self.moments += i128::from(by) * i128::from(at);
        true
    }

    /// Splits the block and returns the second half.
    fn divide(&mut self) -> Self {
        let half = self.changes.len() / 2;
        let mut rest = Self {
            changes: self.changes.split_off(half),
            ends: self.ends.split_off(half),
            ..Self::default()
        };
        let by = self.total_rise();
        for change in &mut rest.changes {
            change.level -= by;
        }
        for part in [self, &mut rest] {
            part.moments = part
                .rises()
                .map(|(at, by)| i128::from(at) * i128::from(by))
                .sum();
        }
        rest
    }

    /// Returns the rise of the level at each change; falls are negative.
    fn rises(&self) -> impl Iterator<Item = (MomentMs, i64)> {
        let mut level = 0;
        self.changes.iter().map(move |change| {
            let before = std::mem::replace(&mut level, change.level);
            (change.at, change.level - before)
        })
    }

    /// Returns the total change of the level.
    fn total_rise(&self) -> i64 {
        self.changes.last().map_or(0, |change| change.level)
    }

    /// Returns the changes up to a moment, and those after it.
    fn split_at_moment(&self, at: MomentMs) -> (&[StepChange], &[StepChange]) {
        let behind = self.changes.partition_point(|change| change.at <= at);
        self.changes.split_at_checked(behind).unwrap_or_default()
    }

    /// Returns the moment of the last change.
    fn last_change(&self) -> MomentMs {
        self.changes
            .last()
            .map_or(MomentMs::MAX, |change| change.at)
    }
}

/// Sum of rates over half-open windows: bit/s at every moment.
#[derive(Debug, Clone, Default)]
pub struct RateSteps {
    /// The blocks; none of them is empty.
    blocks: Vec<Arc<Block>>,
    /// Moment of the first change of each block.
    firsts: Vec<MomentMs>,
    /// Summary of each block. Blocks are shared with copies, so they are scattered over the memory.
    heads: Vec<BlockSummary>,
}

/// Summary of a block.
#[derive(Debug, Clone, Copy, Default)]
struct BlockSummary {
    /// Level before the first change.
    base: i64,
    /// Highest level of the changes, relative to `base`.
    peak: i64,
    /// Moment of the last change.
    last: MomentMs,
}

impl BlockSummary {
    fn summarize(block: &Block, base: i64) -> Self {
        let levels = block.changes.iter().map(|change| change.level);
        Self {
            base,
            peak: levels.max().unwrap_or(i64::MIN),
            last: block.last_change(),
        }
    }
}

impl PartialEq for RateSteps {
    fn eq(&self, other: &Self) -> bool {
        // The layout of blocks depends on the order of insertions, so it is not compared.
        self.changes().eq(other.changes())
    }
}

impl Eq for RateSteps {}

impl RateSteps {
    /// Adds a rate over a window. Admission ensures that the sum stays within 2^62 bit/s.
    pub fn add(&mut self, window: Window, rate: BitsPerSecond) {
        if window.is_empty() || rate == 0 {
            return;
        }
        let rate = i64::try_from(rate).unwrap_or(i64::MAX);
        self.change(window.start, rate, true);
        self.change(window.end, -rate, true);
    }

    /// Removes a rate that was added over the same window.
    pub fn remove(&mut self, window: Window, rate: BitsPerSecond) {
        if window.is_empty() || rate == 0 {
            return;
        }
        let rate = i64::try_from(rate).unwrap_or(i64::MAX);
        self.change(window.start, -rate, false);
        self.change(window.end, rate, false);
    }

    /// Returns the index of the block that contains a moment's change, or would.
    fn block_of(&self, at: MomentMs) -> usize {
        self.firsts
            .partition_point(|first| *first <= at)
            .saturating_sub(1)
    }

    fn change(&mut self, at: MomentMs, by: i64, added: bool) {
        if self.blocks.is_empty() && added {
            self.blocks.push(Arc::default());
            self.firsts.push(at);
            self.heads.push(BlockSummary::default());
        }
        let place = self.block_of(at);
        let Some(block) = self.blocks.get_mut(place).map(Arc::make_mut) else {
            return;
        };
        if !block.change(at, by, added) {
            return;
        }
        for head in self.heads.iter_mut().skip(place + 1) {
            head.base += by;
        }
        let Some(start) = block.changes.first().map(|change| change.at) else {
            self.blocks.remove(place);
            self.firsts.remove(place);
            self.heads.remove(place);
            return;
        };
        if let Some(first) = self.firsts.get_mut(place) {
            *first = start;
        }
        let base = self.heads.get(place).map_or(0, |head| head.base);
        let rest = (block.changes.len() > MAX_BLOCK_CHANGES).then(|| block.divide());
        let (head, behind) = (
            BlockSummary::summarize(block, base),
            base + block.total_rise(),
        );
        if let Some(there) = self.heads.get_mut(place) {
            *there = head;
        }
        if let Some(rest) = rest {
            let first = rest.changes.first().map_or(at, |change| change.at);
            self.firsts.insert(place + 1, first);
            self.heads
                .insert(place + 1, BlockSummary::summarize(&rest, behind));
            self.blocks.insert(place + 1, Arc::new(rest));
        }
    }

    /// Returns all changes: moment, rise, and number of bookings.
    fn changes(&self) -> impl Iterator<Item = (MomentMs, i64, u32)> {
        self.blocks.iter().flat_map(|block| {
            let rises = block.rises().zip(&block.ends);
            rises.map(|((at, by), ends)| (at, by, *ends))
        })
    }

    /// Returns the blocks from an index on, each with the moment of its first change and the level
    /// before it.
    fn blocks_from(&self, place: usize) -> impl Iterator<Item = (&Block, MomentMs, i64)> {
        let from = self.blocks.iter().skip(place);
        let heads = self.firsts.iter().zip(&self.heads).skip(place);
        from.zip(heads)
            .map(|(block, (first, head))| (block.as_ref(), *first, head.base))
    }

    /// Returns the changes after a moment in order, each with the level from there on.
    fn levels_behind(&self, at: MomentMs) -> impl Iterator<Item = (MomentMs, i64)> {
        let blocks = self.blocks_from(self.block_of(at));
        blocks.flat_map(move |(block, _, base)| {
            let behind = block.split_at_moment(at).1.iter();
            behind.map(move |change| (change.at, base + change.level))
        })
    }

    fn level(&self, at: MomentMs) -> i64 {
        self.blocks_from(self.block_of(at))
            .next()
            .map_or(0, |(block, _, base)| {
                base + block
                    .split_at_moment(at)
                    .0
                    .last()
                    .map_or(0, |change| change.level)
            })
    }

    /// Returns the rate at a moment.
    #[must_use]
    pub fn rate_at(&self, moment: MomentMs) -> BitsPerSecond {
        level_to_rate(self.level(moment))
    }

    /// Returns the highest rate within a window; 0 for an empty one.
    #[must_use]
    pub fn max_rate(&self, window: Window) -> BitsPerSecond {
        if window.is_empty() {
            return 0;
        }
        level_to_rate(self.highest_level(window).0)
    }

    /// Returns the highest level within a window, and where it was last reached.
    fn highest_level(&self, window: Window) -> (i64, PeakLocation) {
        let first = self.block_of(window.start);
        let (mut most, mut seen) = (None, PeakLocation::At(window.start));
        let heads = self.firsts.iter().zip(&self.heads).skip(first);
        for (place, (&start, head)) in (first..).zip(heads) {
            if start >= window.end {
                break;
            }
            // The level before the first block is 0.
            let highest = most.unwrap_or(head.base);
            if start > window.start && head.last < window.end {
                let peak = head.base + head.peak;
                if peak >= highest {
                    seen = PeakLocation::Within(place);
                }
                most = Some(highest.max(peak));
                continue;
            }
            let Some(block) = self.blocks.get(place) else {
                break;
            };
            let base = head.base;
            let (before, behind) = block.split_at_moment(window.start);
            let mut highest =
                most.unwrap_or_else(|| base + before.last().map_or(0, |change| change.level));
            for change in behind.iter().take_while(|change| change.at < window.end) {
                if base + change.level >= highest {
                    (highest, seen) = (base + change.level, PeakLocation::At(change.at));
                }
            }
            most = Some(highest);
        }
        (most.unwrap_or(0), seen)
    }

    /// Returns the highest rate within a window, with the last step that reaches it.
    #[must_use]
    pub fn peak(&self, window: Window) -> Peak {
        if window.is_empty() {
            return Peak {
                rate: 0,
                at: window.start,
                until: window.start,
            };
        }
        let (most, seen) = self.highest_level(window);
        let at = match seen {
            PeakLocation::At(moment) => moment,
            PeakLocation::Within(place) => {
                let highest = self.blocks.get(place).zip(self.heads.get(place));
                let highest = highest.and_then(|(block, head)| {
                    let mut changes = block.changes.iter().rev();
                    changes.find(|change| change.level == head.peak)
                });
                highest.map_or(window.start, |change| change.at)
            }
        };
        let until = self.levels_behind(at).find(|(_, level)| *level != most);
        Peak {
            rate: level_to_rate(most),
            at,
            until: until.map_or(MomentMs::MAX, |(at, _)| at),
        }
    }

    /// Returns the volume carried within a window.
    #[must_use]
    pub fn carried(&self, window: Window) -> Volume {
        if window.is_empty() {
            return Volume::default();
        }
        let end = i128::from(window.end);
        let first = self.block_of(window.start);
        let mut carried = i128::from(self.level(window.start)) * i128::from(window.length());
        for (block, first, _) in self.blocks_from(first) {
            if first >= window.end {
                break;
            }
            if first > window.start && block.last_change() < window.end {
                carried += i128::from(block.total_rise()) * end - block.moments;
            } else {
                let within = |at| window.start < at && at < window.end;
                for (at, by) in block.rises().filter(|(at, _)| within(*at)) {
                    carried += i128::from(by) * (end - i128::from(at));
                }
            }
        }
        Volume(u128::try_from(carried).unwrap_or(0))
    }

    /// Returns the moments strictly within a window at which the rate changes, in order, each with
    /// the rate from then on.
    pub fn changes_within(
        &self,
        window: Window,
    ) -> impl Iterator<Item = (MomentMs, BitsPerSecond)> + '_ {
        let mut before = self.level(window.start);
        self.levels_behind(window.start)
            .take_while(move |(at, _)| *at < window.end)
            .filter_map(move |(at, level)| {
                let is_new = std::mem::replace(&mut before, level) != level;
                is_new.then_some((at, level_to_rate(level)))
            })
    }

    /// Returns true if the rate equals another's at each moment of a window.
    #[must_use]
    pub fn equals_within(&self, other: &Self, window: Window) -> bool {
        self.rate_at(window.start) == other.rate_at(window.start)
            && self.changes_within(window).eq(other.changes_within(window))
    }

    /// Returns the number of moments at which a booking starts or ends.
    #[must_use]
    pub fn len(&self) -> usize {
        self.blocks.iter().map(|block| block.changes.len()).sum()
    }

    /// Returns true if nothing is booked.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Returns the moment from which nothing is booked, or `None` if nothing ever is.
    #[must_use]
    pub fn end(&self) -> Option<MomentMs> {
        self.blocks.last()?.changes.last().map(|change| change.at)
    }
}

/// The highest rate within a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peak {
    /// Rate in bit/s.
    pub rate: BitsPerSecond,
    /// Moment of the window at which the rate is reached, in the last step that reaches it.
    pub at: MomentMs,
    /// End of that step, which may be after the window. `MomentMs::MAX` if it never ends.
    pub until: MomentMs,
}

/// Place where the highest level was last reached.
enum PeakLocation {
    /// From this moment on.
    At(MomentMs),
    /// In the block at this index.
    Within(usize),
}

fn level_to_rate(level: i64) -> BitsPerSecond {
    BitsPerSecond::try_from(level).unwrap_or(0)
}
