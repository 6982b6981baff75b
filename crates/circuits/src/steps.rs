//! What is reserved of one direction of a link, as a step function of time.
//!
//! It is kept as its changes in order of time, in blocks, each with what answers a question about the whole of it: a tree of two levels,
//! in which an insertion takes about the square root of the number of changes, and the maximum over a window a block at each end of it and
//! one look at each block between, in memory that lies together.

#[cfg(test)]
mod tests;

use crate::time::{Moment, Rate, Volume, Window};

/// Changes of a block, at most; a fuller one is divided.
const BLOCK: usize = 128;

/// What changes at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Change {
    at: Moment,
    /// What the rate rises by (negative: falls by), in bit/s, of all bookings together.
    by: i64,
    /// Bookings that start or end here: one that ends where another starts changes nothing, and yet each can be removed alone.
    ends: u32,
    /// The level from here on, counted from before the first change of the block: so a level is looked up, and not summed up.
    level: i64,
}

impl Change {
    /// Where one booking starts or ends.
    const fn one(at: Moment, by: i64) -> Self {
        Self {
            at,
            by,
            ends: 1,
            level: 0,
        }
    }
}

#[derive(Debug, Clone, Default)]
struct Block {
    changes: Vec<Change>,
    /// The moment of the first of them: beside the rest, so that looking for a block touches no other memory.
    first: Moment,
    /// The level before the first of them.
    base: i64,
    /// The sum of all that change.
    by: i64,
    /// The highest behind any of the changes, counted from before the first.
    peak: i64,
    /// The sum of each change times its moment.
    moments: i128,
}

impl Block {
    fn of(changes: Vec<Change>, base: i64) -> Self {
        let mut block = Self {
            changes,
            base,
            ..Self::default()
        };
        block.count();
        block
    }

    fn count(&mut self) {
        self.first = self.changes.first().map_or(Moment::MAX, |change| change.at);
        (self.by, self.peak, self.moments) = (0, i64::MIN, 0);
        for change in &mut self.changes {
            self.by += change.by;
            change.level = self.by;
            self.peak = self.peak.max(self.by);
            self.moments += i128::from(change.by) * i128::from(change.at);
        }
    }

    /// The changes up to a moment, and those behind it.
    fn around(&self, at: Moment) -> (&[Change], &[Change]) {
        let behind = self.changes.partition_point(|change| change.at <= at);
        self.changes.split_at_checked(behind).unwrap_or_default()
    }

    /// The level at a moment that is before the next block's.
    fn level(&self, at: Moment) -> i64 {
        self.base + self.around(at).0.last().map_or(0, |change| change.level)
    }

    /// The moment of its last change.
    fn last(&self) -> Moment {
        self.changes.last().map_or(self.first, |change| change.at)
    }
}

/// Rates over half-open windows, summed: bit/s at every moment.
#[derive(Debug, Clone, Default)]
pub struct Steps {
    /// None of them empty.
    blocks: Vec<Block>,
}

impl PartialEq for Steps {
    fn eq(&self, other: &Self) -> bool {
        // Where blocks begin depends on the order in which they were filled, and says nothing.
        self.changes().eq(other.changes())
    }
}

impl Eq for Steps {}

impl Steps {
    /// Adds a rate over a window. The sum of all must stay within 2^62 bit/s, which admission sees to.
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
        self.blocks
            .partition_point(|block| block.first <= at)
            .saturating_sub(1)
    }

    fn change(&mut self, at: Moment, by: i64, added: bool) {
        let place = self.block_of(at);
        let Some(block) = self.blocks.get_mut(place) else {
            if added {
                self.blocks.push(Block::of(vec![Change::one(at, by)], 0));
            }
            return;
        };
        let within = block.changes.partition_point(|change| change.at < at);
        match block.changes.get_mut(within) {
            Some(change) if change.at == at => {
                change.by += by;
                change.ends = if added {
                    change.ends + 1
                } else {
                    change.ends.saturating_sub(1)
                };
                if change.ends == 0 {
                    block.changes.remove(within);
                }
            }
            _ if added => block.changes.insert(within, Change::one(at, by)),
            _ => return,
        }
        block.count();
        for behind in self.blocks.iter_mut().skip(place + 1) {
            behind.base += by;
        }
        let Some(block) = self.blocks.get_mut(place) else {
            return;
        };
        if block.changes.is_empty() {
            self.blocks.remove(place);
        } else if block.changes.len() > BLOCK {
            let rest = block.changes.split_off(BLOCK / 2);
            block.count();
            let rest = Block::of(rest, block.base + block.by);
            self.blocks.insert(place + 1, rest);
        }
    }

    fn changes(&self) -> impl Iterator<Item = (Moment, i64, u32)> {
        let changes = self.blocks.iter().flat_map(|block| &block.changes);
        changes.map(|change| (change.at, change.by, change.ends))
    }

    /// The changes behind a moment, in order, with nothing skipped.
    fn changes_behind(&self, at: Moment) -> impl Iterator<Item = &Change> {
        let blocks = self.blocks.iter().skip(self.block_of(at));
        blocks.flat_map(move |block| block.around(at).1)
    }

    fn level(&self, at: Moment) -> i64 {
        let block = self.blocks.get(self.block_of(at));
        block.map_or(0, |block| block.level(at))
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
        let start = self.blocks.get(first);
        let mut most = start.map_or(0, |block| block.level(window.start));
        let mut seen = Seen::At(window.start);
        for (place, block) in self.blocks.iter().enumerate().skip(first) {
            if block.first >= window.end {
                break;
            }
            if block.first > window.start && block.last() < window.end {
                if block.base + block.peak >= most {
                    (most, seen) = (block.base + block.peak, Seen::Within(place));
                }
                continue;
            }
            let behind = block.around(window.start).1.iter();
            for change in behind.take_while(|change| change.at < window.end) {
                if block.base + change.level >= most {
                    (most, seen) = (block.base + change.level, Seen::At(change.at));
                }
            }
        }
        (most, seen)
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
                let block = self.blocks.get(place);
                let highest = block.and_then(|block| {
                    let mut changes = block.changes.iter().rev();
                    changes.find(|change| change.level == block.peak)
                });
                highest.map_or(window.start, |change| change.at)
            }
        };
        let until = self.changes_behind(at).find(|change| change.by != 0);
        Peak {
            rate: rate(most),
            at,
            until: until.map_or(Moment::MAX, |change| change.at),
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
        for block in self.blocks.iter().skip(first) {
            if block.first >= window.end {
                break;
            }
            if block.first > window.start && block.last() < window.end {
                carried += i128::from(block.by) * end - block.moments;
            } else {
                let behind = block.around(window.start).1.iter();
                for change in behind.take_while(|change| change.at < window.end) {
                    carried += i128::from(change.by) * (end - i128::from(change.at));
                }
            }
        }
        Volume(u128::try_from(carried).unwrap_or(0))
    }

    /// The moments strictly within a window at which the rate changes, in order, each with the rate from then on.
    pub fn changes_within(&self, window: Window) -> impl Iterator<Item = (Moment, Rate)> + '_ {
        let mut level = self.level(window.start);
        self.changes_behind(window.start)
            .take_while(move |change| change.at < window.end)
            .filter(|change| change.by != 0)
            .map(move |change| {
                level += change.by;
                (change.at, rate(level))
            })
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
    /// Where that step ends, which may be behind the window; the latest moment of all where it never ends.
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
