//! Which of the jobs that wait run next: fair shares between users, by priority and age within one user's, and within limits.

use std::collections::BTreeMap;

use crate::life::Moment;

/// How many may run at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// In all.
    pub in_all: usize,
    /// To or from one place.
    pub per_place: usize,
    /// Of one user; none: as many as there is room for.
    pub per_user: Option<usize>,
}

/// A job that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Which.
    pub id: i64,
    /// Whose.
    pub user: String,
    /// The place it is limited by.
    pub place: String,
    /// Greater is sooner, among one user's.
    pub priority: i64,
    /// Since when it is due: among those of one priority the older is sooner.
    pub due: Moment,
}

/// A job that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Load {
    /// Whose.
    pub user: String,
    /// The place it is limited by.
    pub place: String,
}

/// Those of `candidates` that are to run now, in the order in which they are chosen, beside those that run already.
///
/// The next one is always of the user of whom the fewest run; among users of whom equally many do, of the one who has had least of late
/// (`used`, in any one unit: bytes, seconds), and then of the one whose job is due for longest. Nobody is kept waiting for the sake of a
/// limit that does not hold for them.
pub fn choose(
    candidates: &[Candidate],
    running: &[Load],
    used: &BTreeMap<String, u64>,
    limits: &Limits,
) -> Vec<i64> {
    let mut waiting: Vec<&Candidate> = candidates.iter().collect();
    waiting.sort_by_key(|job| (std::cmp::Reverse(job.priority), job.due, job.id));
    let mut of_user: BTreeMap<&str, usize> = BTreeMap::new();
    let mut of_place: BTreeMap<&str, usize> = BTreeMap::new();
    for load in running {
        *of_user.entry(&load.user).or_default() += 1;
        *of_place.entry(&load.place).or_default() += 1;
    }
    let mut chosen = Vec::new();
    while running.len() + chosen.len() < limits.in_all {
        let count = |of: &BTreeMap<&str, usize>, key: &str| of.get(key).copied().unwrap_or(0);
        let fits = |job: &&&Candidate| {
            count(&of_place, &job.place) < limits.per_place
                && limits
                    .per_user
                    .is_none_or(|most| count(&of_user, &job.user) < most)
        };
        // Sorted: of each user the first that fits is the one.
        let next = waiting
            .iter()
            .enumerate()
            .filter(|(_, job)| fits(job))
            .min_by_key(|(place, job)| {
                let had = used.get(&job.user).copied().unwrap_or(0);
                (count(&of_user, &job.user), had, job.user.clone(), *place)
            });
        let Some((place, _)) = next else { break };
        let job = waiting.remove(place);
        *of_user.entry(&job.user).or_default() += 1;
        *of_place.entry(&job.place).or_default() += 1;
        chosen.push(job.id);
    }
    chosen
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: Limits = Limits {
        in_all: 4,
        per_place: 2,
        per_user: None,
    };

    fn job(id: i64, user: &str, place: &str, priority: i64) -> Candidate {
        Candidate {
            id,
            user: user.into(),
            place: place.into(),
            priority,
            due: id,
        }
    }

    fn load(user: &str, place: &str) -> Load {
        Load {
            user: user.into(),
            place: place.into(),
        }
    }

    #[test]
    fn users_take_turns_however_much_one_has_queued() {
        let mut jobs: Vec<_> = (0..100).map(|id| job(id, "ana", &format!("a{id}"), 0)).collect();
        jobs.push(job(200, "ben", "b", 0));
        jobs.push(job(201, "ben", "c", 0));
        assert_eq!(choose(&jobs, &[], &BTreeMap::new(), &LIMITS), [0, 200, 1, 201]);
        let running = [load("ana", "x"), load("ana", "y"), load("ana", "z")];
        assert_eq!(choose(&jobs, &running, &BTreeMap::new(), &LIMITS), [200]);
        // Who has had less of late is first.
        let used = BTreeMap::from([("ana".to_owned(), 10), ("ben".to_owned(), 3)]);
        assert_eq!(choose(&jobs, &[], &used, &LIMITS), [200, 0, 201, 1]);
    }

    #[test]
    fn within_one_users_priority_and_then_age_decide() {
        let jobs = [
            job(1, "ana", "a", 0),
            job(2, "ana", "b", 5),
            job(3, "ana", "c", 5),
        ];
        assert_eq!(choose(&jobs, &[], &BTreeMap::new(), &LIMITS), [2, 3, 1]);
    }

    #[test]
    fn a_full_place_keeps_nobody_else_waiting() {
        let jobs = [
            job(1, "ana", "slow", 0),
            job(2, "ana", "slow", 0),
            job(3, "ana", "slow", 0),
            job(4, "ana", "other", 0),
        ];
        assert_eq!(choose(&jobs, &[], &BTreeMap::new(), &LIMITS), [1, 2, 4]);
        let one_each = Limits {
            per_user: Some(1),
            ..LIMITS
        };
        assert_eq!(choose(&jobs, &[], &BTreeMap::new(), &one_each), [1]);
    }

    proptest! {
        /// No limit is ever passed, nothing is chosen twice, and nothing that would fit is left.
        #[test]
        fn limits_hold_and_no_room_is_left_unused(
            jobs in prop::collection::vec((0u8..5, 0u8..5, 0i64..3), 0..40),
            busy in prop::collection::vec((0u8..5, 0u8..5), 0..6),
            in_all in 0usize..10, per_place in 1usize..4, per_user in prop::option::of(1usize..4),
        ) {
            let name = |number: u8| char::from(b'a' + number).to_string();
            let jobs: Vec<_> = jobs.iter().enumerate()
                .map(|(id, (user, place, priority))| job(id as i64, &name(*user), &name(*place), *priority)).collect();
            let busy: Vec<_> = busy.iter().map(|(user, place)| load(&name(*user), &name(*place))).collect();
            let limits = Limits { in_all, per_place, per_user };
            let chosen = choose(&jobs, &busy, &BTreeMap::new(), &limits);
            let mut all: Vec<Load> = busy.clone();
            for id in &chosen {
                let job = &jobs[*id as usize];
                let before = |key: fn(&Load) -> &String, value: &String| all.iter().filter(|load| key(load) == value).count();
                prop_assert!(before(|load| &load.place, &job.place) < per_place);
                prop_assert!(per_user.is_none_or(|most| before(|load| &load.user, &job.user) < most));
                all.push(load(&job.user, &job.place));
            }
            prop_assert!(chosen.is_empty() || all.len() <= in_all);
            let unique: std::collections::HashSet<_> = chosen.iter().collect();
            prop_assert_eq!(unique.len(), chosen.len());
            if all.len() < in_all {
                for job in jobs.iter().filter(|job| !chosen.contains(&job.id)) {
                    let count = |key: fn(&Load) -> &String, value: &String| all.iter().filter(|load| key(load) == value).count();
                    let place_full = count(|load| &load.place, &job.place) >= per_place;
                    let user_full = per_user.is_some_and(|most| count(|load| &load.user, &job.user) >= most);
                    prop_assert!(place_full || user_full);
                }
            }
        }
    }
}
