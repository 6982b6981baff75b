//! Seeded reordering: single segments arrive later than others, which overtake them.

use rand_xoshiro::Xoshiro256PlusPlus;

use super::Nanos;
use super::random::geometric;
use crate::spec::ReorderSpec;

/// Process that holds up segments. Only the order of segments counts, never time.
#[derive(Debug, Clone)]
pub struct Reorder {
    probability: f64,
    by: Nanos,
    random: Xoshiro256PlusPlus,
    /// Number of segments before the next one that is held up.
    gap: u64,
}

impl Reorder {
    /// Returns the process of `spec`.
    #[must_use]
    pub fn new(spec: &ReorderSpec, mut random: Xoshiro256PlusPlus) -> Self {
        let gap = geometric(&mut random, spec.probability);
        Self {
            probability: spec.probability,
            by: spec.by.as_nanos() as Nanos,
            random,
            gap,
        }
    }

    /// Returns how many of the next segments, at most `most`, share a fate, and by how much they
    /// are held up.
    pub fn next_run(&mut self, most: u32) -> (u32, Nanos) {
        if self.gap == 0 {
            self.gap = geometric(&mut self.random, self.probability);
            return (1, self.by);
        }
        let passed = u32::try_from(self.gap).unwrap_or(u32::MAX).min(most);
        self.gap -= u64::from(passed);
        (passed, 0)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::random::{Process, sequence};
    use super::*;

    fn held(probability: f64, count: usize, mut chunk: impl FnMut() -> u32) -> Vec<bool> {
        let spec = ReorderSpec {
            probability,
            by: Duration::from_millis(3),
        };
        let mut reorder = Reorder::new(&spec, sequence(4, Process::Reorder, 1));
        let mut all = Vec::new();
        while all.len() < count {
            let (run, by) = reorder.next_run(chunk());
            assert!(by == 0 || (by, run) == (3_000_000, 1));
            all.extend(std::iter::repeat_n(by > 0, run as usize));
        }
        all.truncate(count);
        all
    }

    #[test]
    fn the_share_is_the_one_asked_however_segments_are_grouped() {
        let one_by_one = held(0.001, 1_000_000, || 1);
        let count = one_by_one.iter().filter(|held| **held).count();
        assert!((880..1_120).contains(&count), "{count}");
        let mut n = 0;
        let grouped = held(0.001, 1_000_000, || {
            n += 1;
            1 + n * 31 % 97
        });
        assert!(one_by_one == grouped);
        assert!(held(1.0, 1_000, || 45).iter().all(|held| *held));
        assert!(!held(0.0, 1_000, || 45).iter().any(|held| *held));
    }
}
