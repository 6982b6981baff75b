//! What is reserved of one direction of a link, as a step function of time.
//!
//! It is kept as its changes in order of time, in blocks, each with what answers a question about
//! the whole of it: a tree of two levels, in which an insertion takes about the square root of the
//! number of changes, and the maximum over a window a block at each end of it and one look at each
//! block between. Each question of a busy network is about other memory than the one before: what
//! is looked at together lies together.
//!
//! Blocks are shared between a copy and what it was made of until one of the two changes: a copy
//! costs a word for each block, and a change behind it a block.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::time::{Moment, Rate, Volume, Window};

/// Changes of a block, at most; a fuller one is divided.
const BLOCK: usize = 64;

/// A moment at which bookings start or end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Change {
    at: Moment,
    /// The level from here on, in bit/s, counted from before the first change of the block: so a
    /// level is looked up, and not summed up.
    level: i64,
}

#[derive(Debug, Clone, Default)]
struct Block {
    changes: Vec<Change>,
    /// Of each change, how many bookings start or end there: one that ends where another starts
    /// changes nothing, and yet each can be removed alone.
    ends: Vec<u32>,
    /// The sum of what the level rises by at each change times its moment.
    moments: i128,
}

impl Block {
    /// Adds a change, or removes one that was added; whether there was one.
    fn change(&mut self, at: Moment, by: i64, added: bool) -> bool {
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
            self.changes.insert(within, Change { at, level });
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

    /// Divides it: what comes behind is the other half.
    fn divide(&mut self) -> Self {
        let half = self.changes.len() / 2;
        let mut rest = Self {
            changes: self.changes.split_off(half),
            ends: self.ends.split_off(half),
            ..Self::default()
        };
        let by = self.by();
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

    /// What the level rises by at each change (negative: falls by).
    fn rises(&self) -> impl Iterator<Item = (Moment, i64)> {
        let mut level = 0;
        self.changes.iter().map(move |change| {
            let before = std::mem::replace(&mut level, change.level);
            (change.at, change.level - before)
        })
    }

    /// What all of it changes.
    fn by(&self) -> i64 {
        self.changes.last().map_or(0, |change| change.level)
    }

    /// The changes up to a moment, and those behind it.
    fn around(&self, at: Moment) -> (&[Change], &[Change]) {
        let behind = self.changes.partition_point(|change| change.at <= at);
        self.changes.split_at_checked(behind).unwrap_or_default()
    }

    /// The moment of its last change.
    fn last(&self) -> Moment {
        self.changes.last().map_or(Moment::MAX, |change| change.at)
    }
}

/// Rates over half-open windows, summed: bit/s at every moment.
#[derive(Debug, Clone, Default)]
pub struct Steps {
    /// None of them empty.
    blocks: Vec<Arc<Block>>,
    /// The moment of the first change of each of them.
    firsts: Vec<Moment>,
    /// What a question about the whole of each of them is answered from: blocks are shared with
    /// copies, so they lie all over the memory.
    heads: Vec<Head>,
}

/// What is known of a block without a look at it.
#[derive(Debug, Clone, Copy, Default)]
struct Head {
    /// The level before its first change.
    base: i64,
    /// The highest level of its changes, counted from the base.
    peak: i64,
    /// The moment of its last change.
    last: Moment,
}

impl Head {
    fn of(block: &Block, base: i64) -> Self {
        let levels = block.changes.iter().map(|change| change.level);
        Self {
            base,
            peak: levels.max().unwrap_or(i64::MIN),
            last: block.last(),
        }
    }
}

impl PartialEq for Steps {
    fn eq(&self, other: &Self) -> bool {
        // Where blocks begin depends on the order in which they were filled, and says nothing.
        self.changes().eq(other.changes())
    }
}

impl Eq for Steps {}

impl Steps {
    /// Adds a rate over a window. The sum of all must stay within 2^62 bit/s, which admission sees
    /// to.
    pub fn add(&mut self, window: Window, rate: Rate) {
        if window.is_empty() || rate == 0 {
            return;
        }
        let rate = i64::try_from(rate).unwrap_or(i64::MAX);
        self.change(window.start, rate, true);
        self.change(window.end, -rate, true);
    }

    /// Takes away what was added, with the same window and rate.
    pub fn remove(&mut self, window: Window, rate: Rate) {
        if window.is_empty() || rate == 0 {
            return;
        }
        let rate = i64::try_from(rate).unwrap_or(i64::MAX);
        self.change(window.start, -rate, false);
        self.change(window.end, rate, false);
    }

    /// The place of the block that holds a moment's change, or would.
    fn block_of(&self, at: Moment) -> usize {
        self.firsts
            .partition_point(|first| *first <= at)
            .saturating_sub(1)
    }

    fn change(&mut self, at: Moment, by: i64, added: bool) {
        if self.blocks.is_empty() && added {
            self.blocks.push(Arc::default());
            self.firsts.push(at);
            self.heads.push(Head::default());
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
        let rest = (block.changes.len() > BLOCK).then(|| block.divide());
        let (head, behind) = (Head::of(block, base), base + block.by());
        if let Some(there) = self.heads.get_mut(place) {
            *there = head;
        }
        if let Some(rest) = rest {
            let first = rest.changes.first().map_or(at, |change| change.at);
            self.firsts.insert(place + 1, first);
            self.heads.insert(place + 1, Head::of(&rest, behind));
            self.blocks.insert(place + 1, Arc::new(rest));
        }
    }

    /// All changes: when, by how much, and of how many bookings.
    fn changes(&self) -> impl Iterator<Item = (Moment, i64, u32)> {
        self.blocks.iter().flat_map(|block| {
            let rises = block.rises().zip(&block.ends);
            rises.map(|((at, by), ends)| (at, by, *ends))
        })
    }

    /// Blocks from a place on, each with the moment of its first change, and the level before it.
    fn blocks_from(&self, place: usize) -> impl Iterator<Item = (&Block, Moment, i64)> {
        let from = self.blocks.iter().skip(place);
        let heads = self.firsts.iter().zip(&self.heads).skip(place);
        from.zip(heads)
            .map(|(block, (first, head))| (block.as_ref(), *first, head.base))
    }

    /// The changes behind a moment, in order, each with the level from there on.
    fn levels_behind(&self, at: Moment) -> impl Iterator<Item = (Moment, i64)> {
        let blocks = self.blocks_from(self.block_of(at));
        blocks.flat_map(move |(block, _, base)| {
            let behind = block.around(at).1.iter();
            behind.map(move |change| (change.at, base + change.level))
        })
    }

    fn level(&self, at: Moment) -> i64 {
        self.blocks_from(self.block_of(at))
            .next()
            .map_or(0, |(block, _, base)| {
                base + block.around(at).0.last().map_or(0, |change| change.level)
            })
    }

    /// The rate at a moment.
    #[must_use]
    pub fn at(&self, moment: Moment) -> Rate {
        rate(self.level(moment))
    }

    /// The highest rate at any moment of a window; 0 for an empty one.
    #[must_use]
    pub fn most(&self, window: Window) -> Rate {
        if window.is_empty() {
            return 0;
        }
        rate(self.highest(window).0)
    }

    /// The highest level within a window, and where it was last seen.
    fn highest(&self, window: Window) -> (i64, Seen) {
        let first = self.block_of(window.start);
        let (mut most, mut seen) = (None, Seen::At(window.start));
        let heads = self.firsts.iter().zip(&self.heads).skip(first);
        for (place, (&start, head)) in (first..).zip(heads) {
            if start >= window.end {
                break;
            }
            // Nothing comes before the first block.
            let highest = most.unwrap_or(head.base);
            if start > window.start && head.last < window.end {
                let peak = head.base + head.peak;
                if peak >= highest {
                    seen = Seen::Within(place);
                }
                most = Some(highest.max(peak));
                continue;
            }
            let Some(block) = self.blocks.get(place) else {
                break;
            };
            let base = head.base;
            let (before, behind) = block.around(window.start);
            let mut highest =
                most.unwrap_or_else(|| base + before.last().map_or(0, |change| change.level));
            for change in behind.iter().take_while(|change| change.at < window.end) {
                if base + change.level >= highest {
                    (highest, seen) = (base + change.level, Seen::At(change.at));
                }
            }
            most = Some(highest);
        }
        (most.unwrap_or(0), seen)
    }

    /// The highest rate within a window, with the last of its steps that has it.
    #[must_use]
    pub fn peak(&self, window: Window) -> Peak {
        if window.is_empty() {
            return Peak {
                rate: 0,
                at: window.start,
                until: window.start,
            };
        }
        let (most, seen) = self.highest(window);
        let at = match seen {
            Seen::At(moment) => moment,
            Seen::Within(place) => {
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
            rate: rate(most),
            at,
            until: until.map_or(Moment::MAX, |(at, _)| at),
        }
    }

    /// What all of it carries within a window.
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
            if first > window.start && block.last() < window.end {
                carried += i128::from(block.by()) * end - block.moments;
            } else {
                let within = |at| window.start < at && at < window.end;
                for (at, by) in block.rises().filter(|(at, _)| within(*at)) {
                    carried += i128::from(by) * (end - i128::from(at));
                }
            }
        }
        Volume(u128::try_from(carried).unwrap_or(0))
    }

    /// The moments strictly within a window at which the rate changes, in order, each with the rate
    /// from then on.
    pub fn changes_within(&self, window: Window) -> impl Iterator<Item = (Moment, Rate)> + '_ {
        let mut before = self.level(window.start);
        self.levels_behind(window.start)
            .take_while(move |(at, _)| *at < window.end)
            .filter_map(move |(at, level)| {
                let is_new = std::mem::replace(&mut before, level) != level;
                is_new.then_some((at, rate(level)))
            })
    }

    /// Whether the rate is the same as another's at each moment of a window.
    #[must_use]
    pub fn is_alike(&self, other: &Self, window: Window) -> bool {
        self.at(window.start) == other.at(window.start)
            && self.changes_within(window).eq(other.changes_within(window))
    }

    /// How many moments there are at which a booking starts or ends.
    #[must_use]
    pub fn len(&self) -> usize {
        self.blocks.iter().map(|block| block.changes.len()).sum()
    }

    /// Whether nothing is booked.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The moment from which nothing is booked any more; none where nothing is.
    #[must_use]
    pub fn end(&self) -> Option<Moment> {
        self.blocks.last()?.changes.last().map(|change| change.at)
    }
}

/// The highest rate within a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peak {
    /// The rate, in bit/s.
    pub rate: Rate,
    /// A moment of the window at which it is reached, in the last of the steps that reach it.
    pub at: Moment,
    /// Where that step ends, which may be behind the window; the latest moment of all where it
    /// never ends.
    pub until: Moment,
}

/// Where the highest level was seen last.
enum Seen {
    /// From this moment on.
    At(Moment),
    /// In the block at this place.
    Within(usize),
}

fn rate(level: i64) -> Rate {
    Rate::try_from(level).unwrap_or(0)
}
