//! The newest values of a series, with order statistics over several windows.

/// The last values of a series, kept once for all predictors, and sorted for each window.
///
/// A push costs a search and a move of at most 51 numbers per window, whatever the length of the
/// series.
#[derive(Debug, Clone)]
pub struct Windows {
    sizes: &'static [usize],
    /// Newest values, in a ring of the size of the largest window.
    ring: Box<[f32]>,
    next: u32,
    /// Number of values in the ring.
    held: u32,
    /// Windows one after another, each sorted.
    sorted: Box<[f32]>,
}

impl Windows {
    /// Creates windows of these sizes, in ascending order, each at least one.
    #[must_use]
    pub fn new(sizes: &'static [usize]) -> Self {
        debug_assert!(sizes.is_sorted() && sizes.first().is_some_and(|size| *size > 0));
        let largest = sizes.last().copied().unwrap_or(1).max(1);
        Self {
            sizes,
            ring: vec![0.0; largest].into(),
            next: 0,
            held: 0,
            sorted: vec![0.0; sizes.iter().sum()].into(),
        }
    }

    /// Returns the sizes of the windows.
    #[must_use]
    pub const fn sizes(&self) -> &'static [usize] {
        self.sizes
    }

    /// Takes the newest value, which must be finite.
    pub fn push(&mut self, value: f32) {
        let capacity = self.ring.len();
        let mut rest: &mut [f32] = &mut self.sorted;
        for &size in self.sizes {
            let Some((window, others)) = std::mem::take(&mut rest).split_at_mut_checked(size)
            else {
                return;
            };
            rest = others;
            let held = size.min(self.held as usize);
            if held == size {
                // The value that leaves is the one from `size` values ago.
                let oldest = (self.next as usize + capacity - size) % capacity;
                let leaves = self.ring.get(oldest).copied().unwrap_or_default();
                replace_sorted(window, held, Some(leaves), value);
            } else {
                replace_sorted(window, held, None, value);
            }
        }
        if let Some(place) = self.ring.get_mut(self.next as usize) {
            *place = value;
        }
        self.next = (self.next + 1) % capacity as u32;
        self.held = (self.held + 1).min(capacity as u32);
    }

    /// Returns the sorted values of a window. There are fewer than its size while the series is
    /// short.
    fn in_order(&self, window: usize) -> &[f32] {
        let Some(&size) = self.sizes.get(window) else {
            return &[];
        };
        let from: usize = self.sizes.iter().take(window).sum();
        let held = size.min(self.held as usize);
        self.sorted.get(from..from + held).unwrap_or_default()
    }

    /// Returns the mean of a window; zero before the first value.
    #[must_use]
    pub fn mean(&self, window: usize) -> f64 {
        mean(self.in_order(window))
    }

    /// Returns the median of a window: the mean of the middle two if their number is even. Zero
    /// before the first value.
    #[must_use]
    pub fn median(&self, window: usize) -> f64 {
        let values = self.in_order(window);
        let Some(last) = values.len().checked_sub(1) else {
            return 0.0;
        };
        mean(values.get(last / 2..=last.div_ceil(2)).unwrap_or_default())
    }

    /// Returns the mean of a window without this share of its values at either end. The share is
    /// below one half.
    #[must_use]
    pub fn trimmed_mean(&self, window: usize, share: f64) -> f64 {
        let values = self.in_order(window);
        let left_out = (values.len() as f64 * share) as usize;
        mean(
            values
                .get(left_out..values.len().saturating_sub(left_out))
                .unwrap_or_default(),
        )
    }

    /// Returns the allocated bytes.
    pub(super) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.ring) + size_of_val(&*self.sorted)
    }
}

fn mean(values: &[f32]) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    values.iter().map(|value| f64::from(*value)).sum::<f64>() / values.len() as f64
}

/// Inserts `value` into the first `held` elements of `window`, which are sorted. Replaces `leaves`
/// if it is given.
pub(super) fn replace_sorted(window: &mut [f32], held: usize, leaves: Option<f32>, value: f32) {
    let rank = |window: &[f32], value: f32| {
        window.get(..held).map_or(0, |held| {
            held.partition_point(|other| other.total_cmp(&value).is_lt())
        })
    };
    let to = rank(window, value);
    let from = leaves.map_or(held, |leaves| rank(window, leaves));
    let (shifted, place) = if from < to {
        // The elements between move one down.
        (from + 1..to, to - 1)
    } else {
        (to..from, to)
    };
    if shifted.end > window.len() || place >= window.len() {
        return;
    }
    let target = if from < to {
        shifted.start - 1
    } else {
        shifted.start + 1
    };
    if !shifted.is_empty() && target + shifted.len() <= window.len() {
        window.copy_within(shifted, target);
    }
    if let Some(place) = window.get_mut(place) {
        *place = value;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SIZES: &[usize] = &[1, 3, 4, 9];

    proptest! {
        #[test]
        fn windows_match_sorted_values(
            values in prop::collection::vec(-9i8..9, 1..60),
        ) {
            let mut windows = Windows::new(SIZES);
            for end in 1..=values.len() {
                windows.push(f32::from(values[end - 1]));
                for (index, size) in SIZES.iter().enumerate() {
                    let mut last: Vec<f64> =
                        values[end.saturating_sub(*size)..end]
                            .iter()
                            .map(|value| f64::from(*value))
                            .collect();
                    last.sort_by(f64::total_cmp);
                    let count = last.len();
                    let mean = last.iter().sum::<f64>() / count as f64;
                    prop_assert!((windows.mean(index) - mean).abs() < 1e-6);
                    let median = (last[(count - 1) / 2] + last[count / 2]) / 2.0;
                    prop_assert!((windows.median(index) - median).abs() < 1e-6);
                    let kept = &last[count * 3 / 10..count - count * 3 / 10];
                    let trimmed = kept.iter().sum::<f64>() / kept.len() as f64;
                    prop_assert!((windows.trimmed_mean(index, 0.3) - trimmed).abs() < 1e-6);
                }
            }
        }
    }
}
