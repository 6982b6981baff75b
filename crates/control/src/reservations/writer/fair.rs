//! Fair queue: each key has its own queue, and a turn takes one request of each key in rotation. No
//! caller waits behind all requests of another.

use std::collections::{BTreeMap, VecDeque};

/// Queues of requests, each with its cost.
#[derive(Debug)]
pub(super) struct FairQueue<T> {
    rows: BTreeMap<String, VecDeque<(usize, T)>>,
    /// Keys with requests, the next one first.
    turns: VecDeque<String>,
    len: usize,
}

impl<T> Default for FairQueue<T> {
    fn default() -> Self {
        Self {
            rows: BTreeMap::new(),
            turns: VecDeque::new(),
            len: 0,
        }
    }
}

impl<T> FairQueue<T> {
    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Adds a request to the queue of its key.
    pub(super) fn push(&mut self, key: &str, cost: usize, request: T) {
        let row = self.rows.entry(key.to_owned()).or_default();
        if row.is_empty() {
            self.turns.push_back(key.to_owned());
        }
        row.push_back((cost, request));
        self.len += 1;
    }

    /// Takes requests to decide together: at most `most`, with a total cost of at most `most_cost`,
    /// but at least one.
    pub(super) fn take(&mut self, most: usize, most_cost: usize) -> Vec<T> {
        let (mut taken, mut total) = (Vec::new(), 0_usize);
        while taken.len() < most {
            let Some(key) = self.turns.front() else {
                break;
            };
            let cost = self
                .rows
                .get(key)
                .and_then(|row| row.front())
                .map_or(0, |(cost, _)| *cost);
            if !taken.is_empty() && total.saturating_add(cost) > most_cost {
                break;
            }
            total = total.saturating_add(cost);
            let Some(key) = self.turns.pop_front() else {
                break;
            };
            let Some(row) = self.rows.get_mut(&key) else {
                continue;
            };
            taken.extend(row.pop_front().map(|(_, request)| request));
            self.len = self.len.saturating_sub(1);
            match row.is_empty() {
                true => _ = self.rows.remove(&key),
                false => self.turns.push_back(key),
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_waits_for_all_of_another() {
        let mut queue = FairQueue::default();
        for number in 0..1000 {
            queue.push("many", 366, ("many", number));
        }
        queue.push("one", 1, ("one", 0));
        assert_eq!(queue.take(128, 400), [("many", 0), ("one", 0)]);
        // A request that costs more than a turn is decided alone.
        assert_eq!(queue.take(128, 100), [("many", 1)]);
        let mut left = 998;
        while !queue.is_empty() {
            left -= queue.take(128, 400).len();
        }
        assert_eq!(left, 0);
        assert!(queue.rows.is_empty() && queue.take(128, 400).is_empty());
    }

    #[test]
    fn requests_of_one_key_stay_in_order() {
        let mut queue = FairQueue::default();
        for number in 0..5 {
            queue.push("a", 1, number);
        }
        queue.push("b", 1, 10);
        assert_eq!(queue.take(3, 100), [0, 10, 1]);
        assert_eq!(queue.take(10, 100), [2, 3, 4]);
    }
}
