//! Ranges of a file, in the order in which they are sent. It is pure.
//!
//! Ranges are sent by several connections, so they complete in any order. None is begun more than a
//! window behind the first that is incomplete. The size of an unfinished file therefore says how
//! much of its beginning is certainly complete, whatever ended the copy.

use std::collections::BTreeSet;

/// Bytes that may be under way behind the first incomplete range.
pub(crate) const WINDOW_BYTES: u64 = 32 << 20;

/// Returns the offset from which an unfinished file of `written` bytes is resumed: everything
/// before it is complete, and it is a multiple of `range` bytes.
pub(crate) const fn resume_offset(written: u64, range: u64) -> u64 {
    let complete = written.saturating_sub(WINDOW_BYTES);
    complete - complete % range
}

/// A part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Range {
    /// Offset in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub len: u32,
}

/// Ranges of one file that are still to be sent, or under way.
#[derive(Debug)]
pub(crate) struct FileRanges {
    size: u64,
    range: u32,
    next: u64,
    under_way: BTreeSet<u64>,
}

impl FileRanges {
    /// Creates the ranges of a file of `size` bytes from `offset` on, of `range` bytes each.
    pub(crate) const fn new(offset: u64, size: u64, range: u32) -> Self {
        Self {
            size,
            range,
            next: offset,
            under_way: BTreeSet::new(),
        }
    }

    /// Takes the next range. `None` if there is none, or the window is full.
    pub(crate) fn take(&mut self) -> Option<Range> {
        let offset = self.next;
        let first = self.under_way.first().copied().unwrap_or(offset);
        let len = u64::from(self.range).min(self.size.saturating_sub(offset));
        if len == 0 || offset + len > first + WINDOW_BYTES {
            return None;
        }
        self.next = offset + len;
        self.under_way.insert(offset);
        Some(Range {
            offset,
            len: len as u32,
        })
    }

    /// Notes that a range is complete.
    pub(crate) fn complete(&mut self, range: Range) {
        self.under_way.remove(&range.offset);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A file that grows to the end of the last range that was begun can be resumed at
        /// [`resume_offset`], whichever ranges are complete.
        #[test]
        fn size_of_an_unfinished_file_bounds_its_holes(
            size in 0_u64..(200 << 20), range in prop::sample::select(vec![1_u32 << 15, 261_120, 1 << 20]),
            order in prop::collection::vec(0_usize..200, 0..400),
        ) {
            let mut ranges = FileRanges::new(0, size, range);
            let (mut under_way, mut complete, mut end) = (Vec::new(), 0, 0);
            let mut incomplete: BTreeSet<u64> = (0..size).step_by(range as usize).collect();
            for pick in order {
                while let Some(taken) = ranges.take() {
                    end = end.max(taken.offset + u64::from(taken.len));
                    under_way.push(taken);
                }
                if under_way.is_empty() {
                    break;
                }
                let done: Range = under_way.swap_remove(pick % under_way.len());
                ranges.complete(done);
                incomplete.remove(&done.offset);
                complete += u64::from(done.len);
                let first = incomplete.first().copied().unwrap_or(size);
                prop_assert!(resume_offset(end, u64::from(range)) <= first);
            }
            prop_assert!(complete <= size);
            if under_way.is_empty() && ranges.take().is_none() && complete > 0 {
                prop_assert_eq!(complete, size);
            }
        }
    }

    #[test]
    fn empty_file_and_complete_file_have_no_range() {
        assert_eq!(FileRanges::new(0, 0, 1024).take(), None);
        assert_eq!(FileRanges::new(5, 5, 1024).take(), None);
        let last = FileRanges::new(1024, 1030, 1024).take();
        assert_eq!(
            last,
            Some(Range {
                offset: 1024,
                len: 6
            })
        );
        assert_eq!(resume_offset(0, 1024), 0);
        assert_eq!(resume_offset(WINDOW_BYTES + 1500, 1024), 1024);
    }
}
