//! Distribution of requests over connections. It is pure.
//!
//! A request goes to the connection with the fewest bytes under way, unless its window is full.
//! Requests that find no room wait, and are served in order.

use std::collections::{BTreeMap, VecDeque};

/// Number of a connection.
pub(crate) type SessionId = u32;

/// A request that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Waiting {
    ticket: u64,
    cost: u64,
}

/// Bytes under way on each connection, and requests that wait.
#[derive(Debug)]
pub(crate) struct Balance {
    window: u64,
    loads: BTreeMap<SessionId, u64>,
    waiting: VecDeque<Waiting>,
}

impl Balance {
    /// Creates the balance of connections with `window` bytes each.
    pub(crate) const fn new(window: u64) -> Self {
        Self {
            window,
            loads: BTreeMap::new(),
            waiting: VecDeque::new(),
        }
    }

    /// Adds a connection. Returns what it takes of the waiting requests.
    pub(crate) fn add(&mut self, session: SessionId) -> Vec<(u64, SessionId)> {
        self.loads.insert(session, 0);
        self.serve()
    }

    /// Removes a connection. Its requests are no longer under way.
    pub(crate) fn remove(&mut self, session: SessionId) {
        self.loads.remove(&session);
    }

    /// Takes a request of `cost` bytes. Returns its connection, or `None` if it waits.
    pub(crate) fn request(&mut self, ticket: u64, cost: u64) -> Option<SessionId> {
        let taken = match self.waiting.is_empty() {
            true => self.take(cost),
            false => None,
        };
        if taken.is_none() {
            self.waiting.push_back(Waiting { ticket, cost });
        }
        taken
    }

    /// Forgets a waiting request.
    pub(crate) fn cancel(&mut self, ticket: u64) {
        self.waiting.retain(|waiting| waiting.ticket != ticket);
    }

    /// Notes that a request of `cost` bytes is answered. Returns the waiting requests that are
    /// served now.
    pub(crate) fn release(&mut self, session: SessionId, cost: u64) -> Vec<(u64, SessionId)> {
        if let Some(load) = self.loads.get_mut(&session) {
            *load = load.saturating_sub(cost);
        }
        self.serve()
    }

    /// Returns true if another connection would carry something now.
    pub(crate) fn is_loaded(&self) -> bool {
        let least = self.loads.values().min();
        !self.waiting.is_empty() || least.is_some_and(|load| *load >= self.window / 4)
    }

    /// Returns true if any request is under way or waits.
    pub(crate) fn is_busy(&self) -> bool {
        !self.waiting.is_empty() || self.loads.values().any(|load| *load > 0)
    }

    /// Returns the number of connections.
    pub(crate) fn sessions(&self) -> usize {
        self.loads.len()
    }

    fn take(&mut self, cost: u64) -> Option<SessionId> {
        let (session, load) = self.loads.iter_mut().min_by_key(|(_, load)| **load)?;
        if *load > 0 && *load + cost > self.window {
            return None;
        }
        *load += cost;
        Some(*session)
    }

    fn serve(&mut self) -> Vec<(u64, SessionId)> {
        let mut served = Vec::new();
        while let Some(first) = self.waiting.front().copied() {
            let Some(session) = self.take(first.cost) else {
                break;
            };
            self.waiting.pop_front();
            served.push((first.ticket, session));
        }
        served
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn requests_go_to_the_least_loaded_and_wait_in_order() {
        let mut balance = Balance::new(10);
        assert_eq!(balance.request(0, 4), None);
        assert!(balance.is_loaded());
        assert_eq!(balance.add(1), [(0, 1)]);
        assert_eq!(balance.request(1, 4), Some(1));
        assert_eq!(balance.request(2, 4), None);
        // A small one does not overtake.
        assert_eq!(balance.request(3, 1), None);
        assert_eq!(balance.add(2), [(2, 2), (3, 2)]);
        assert_eq!(balance.request(4, 4), Some(2));
        balance.remove(2);
        assert_eq!(balance.release(2, 4), []);
        assert_eq!(balance.request(5, 100), None);
        balance.cancel(5);
        assert_eq!(balance.release(1, 4), []);
        assert_eq!(balance.release(1, 4), []);
        assert!(!balance.is_busy());
        // One that is larger than the window goes alone.
        assert_eq!(balance.request(6, 100), Some(1));
        assert_eq!(balance.request(7, 1), None);
        assert_eq!(balance.release(1, 100), [(7, 1)]);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Add(u32),
        Remove(u32),
        Request(u64),
        Answer(usize),
        Cancel(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..4_u32).prop_map(Step::Add),
            (0..4_u32).prop_map(Step::Remove),
            (1..8_u64).prop_map(Step::Request),
            any::<usize>().prop_map(Step::Answer),
            any::<usize>().prop_map(Step::Cancel),
        ]
    }

    proptest! {
        /// No window is exceeded, and nothing waits beside an idle connection.
        #[test]
        fn windows_hold_and_nothing_is_forgotten(steps in prop::collection::vec(step(), 0..200)) {
            let mut balance = Balance::new(10);
            let mut alive: BTreeMap<u32, u64> = BTreeMap::new();
            let mut under_way: Vec<(u32, u64)> = Vec::new();
            let mut waiting: BTreeMap<u64, u64> = BTreeMap::new();
            for (ticket, step) in (0..).zip(steps) {
                let served = match step {
                    Step::Add(session) if !alive.contains_key(&session) => {
                        alive.insert(session, 0);
                        balance.add(session)
                    }
                    Step::Remove(session) => {
                        balance.remove(session);
                        alive.remove(&session);
                        under_way.retain(|(one, _)| *one != session);
                        Vec::new()
                    }
                    Step::Request(cost) => {
                        waiting.insert(ticket, cost);
                        let taken = balance.request(ticket, cost);
                        taken.map(|session| (ticket, session)).into_iter().collect()
                    }
                    Step::Answer(pick) if !under_way.is_empty() => {
                        let (session, cost) = under_way.swap_remove(pick % under_way.len());
                        *alive.get_mut(&session).unwrap() -= cost;
                        balance.release(session, cost)
                    }
                    Step::Cancel(pick) if !waiting.is_empty() => {
                        let ticket = *waiting.keys().nth(pick % waiting.len()).unwrap();
                        waiting.remove(&ticket);
                        balance.cancel(ticket);
                        Vec::new()
                    }
                    _ => Vec::new(),
                };
                for (ticket, session) in served {
                    let cost = waiting.remove(&ticket).unwrap();
                    let load = alive.get_mut(&session).unwrap();
                    *load += cost;
                    prop_assert!(*load <= 10);
                    under_way.push((session, cost));
                }
                prop_assert_eq!(balance.sessions(), alive.len());
                if alive.values().any(|load| *load == 0) {
                    // Requests behind a cancelled one are served with the next event.
                    let event = balance.release(99, 0);
                    for (ticket, session) in event {
                        let cost = waiting.remove(&ticket).unwrap();
                        *alive.get_mut(&session).unwrap() += cost;
                        under_way.push((session, cost));
                    }
                    if alive.values().any(|load| *load == 0) {
                        prop_assert!(waiting.is_empty());
                    }
                }
            }
        }
    }
}
