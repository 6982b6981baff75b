//! Choice of the waiting jobs to run next: fair shares between users, by priority and age within a
//! user's jobs, and within limits.
//!
//! All running parts of a job count as one job towards limits. Limits keep jobs from disturbing
//! each other, while parts are spread over nodes because one node alone is too slow. A node runs
//! one part of a job at a time, as a part uses all the bandwidth of the node's path.

use std::collections::{BTreeMap, BTreeSet};

use super::moment::Moment;

/// Maximum numbers of simultaneous jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobLimits {
    /// Limit for all jobs.
    pub in_all: usize,
    /// Limit for jobs to or from one place.
    pub per_place: usize,
    /// Limit for the jobs of one user, if there is one.
    pub per_user: Option<usize>,
}

/// A job that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Number of the job.
    pub id: i64,
    /// User who submitted it.
    pub user: String,
    /// The place whose limit applies.
    pub place: String,
    /// Priority among its user's jobs; a greater one runs sooner.
    pub priority: i64,
    /// Time since when it is due. Among jobs of one priority, the older runs sooner.
    pub due: Moment,
    /// The job that it is a part of.
    pub part_of: Option<i64>,
}

/// A running job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningJob {
    /// User who submitted it.
    pub user: String,
    /// The place whose limit applies.
    pub place: String,
    /// The job that it is a part of.
    pub part_of: Option<i64>,
    /// True if it runs at the agent that chooses.
    pub is_here: bool,
}

/// Returns the `candidates` to run now in addition to the running jobs, in the order of choice.
///
/// The next job belongs to the user with the fewest running jobs. Ties go to the user with the
/// lowest recent use (`used`, in any one unit: bytes, seconds), then to the job that has been due
/// longest. A limit only delays the jobs that it applies to.
pub fn choose(
    candidates: &[Candidate],
    running: &[RunningJob],
    used: &BTreeMap<String, u64>,
    limits: &JobLimits,
) -> Vec<i64> {
    let mut waiting: Vec<&Candidate> = candidates.iter().collect();
    waiting.sort_by_key(|job| (std::cmp::Reverse(job.priority), job.due, job.id));
    let mut room = CapacityUse::default();
    for load in running {
        room.take(&load.user, &load.place, load.part_of, load.is_here);
    }
    let mut chosen = Vec::new();
    while running.len() + chosen.len() < limits.in_all {
        // Sorted: the first of each user that fits is the next.
        let next = waiting
            .iter()
            .enumerate()
            .filter(|(_, job)| room.fits(job, limits))
            .min_by_key(|(place, job)| {
                let had = used.get(&job.user).copied().unwrap_or(0);
                let run = room.running.get(job.user.as_str()).copied().unwrap_or(0);
                (run, had, job.user.clone(), *place)
            });
        let Some((place, _)) = next else { break };
        let job = waiting.remove(place);
        room.take(&job.user, &job.place, job.part_of, true);
        chosen.push(job.id);
    }
    chosen
}

/// Running jobs, counted for the limits.
#[derive(Default)]
struct CapacityUse<'a> {
    /// Jobs by user, with every part counted, which decides whose turn it is.
    running: BTreeMap<&'a str, usize>,
    /// Jobs by user and by place, where a job and its parts count as one.
    of_user: BTreeMap<&'a str, usize>,
    of_place: BTreeMap<&'a str, usize>,
    /// Jobs with running parts.
    split: BTreeSet<i64>,
    /// Jobs with a part that runs here.
    split_here: BTreeSet<i64>,
}

impl<'a> CapacityUse<'a> {
    fn take(&mut self, user: &'a str, place: &'a str, part_of: Option<i64>, is_here: bool) {
        *self.running.entry(user).or_default() += 1;
        if let Some(job) = part_of {
            if is_here {
                self.split_here.insert(job);
            }
            if !self.split.insert(job) {
                return;
            }
        }
        *self.of_user.entry(user).or_default() += 1;
        *self.of_place.entry(place).or_default() += 1;
    }

    fn fits(&self, job: &Candidate, limits: &JobLimits) -> bool {
        if let Some(whole) = &job.part_of {
            if self.split_here.contains(whole) {
                return false;
            }
            if self.split.contains(whole) {
                return true;
            }
        }
        let count = |of: &BTreeMap<&str, usize>, key: &str| of.get(key).copied().unwrap_or(0);
        count(&self.of_place, &job.place) < limits.per_place
            && limits
                .per_user
                .is_none_or(|most| count(&self.of_user, &job.user) < most)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: JobLimits = JobLimits {
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
            part_of: None,
        }
    }

    fn load(user: &str, place: &str) -> RunningJob {
        RunningJob {
            user: user.into(),
            place: place.into(),
            part_of: None,
            is_here: false,
        }
    }

    fn part(id: i64, of: i64, user: &str, place: &str) -> Candidate {
        Candidate {
            part_of: Some(of),
            ..job(id, user, place, 0)
        }
    }

    #[test]
    fn users_take_turns_however_much_one_has_queued() {
        let mut jobs: Vec<_> = (0..100)
            .map(|id| job(id, "ana", &format!("a{id}"), 0))
            .collect();
        jobs.push(job(200, "ben", "b", 0));
        jobs.push(job(201, "ben", "c", 0));
        assert_eq!(
            choose(&jobs, &[], &BTreeMap::new(), &LIMITS),
            [0, 200, 1, 201]
        );
        let running = [load("ana", "x"), load("ana", "y"), load("ana", "z")];
        assert_eq!(choose(&jobs, &running, &BTreeMap::new(), &LIMITS), [200]);
        // The user with less recent use comes first.
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
    fn a_full_place_delays_no_other_place() {
        let jobs = [
            job(1, "ana", "slow", 0),
            job(2, "ana", "slow", 0),
            job(3, "ana", "slow", 0),
            job(4, "ana", "other", 0),
        ];
        assert_eq!(choose(&jobs, &[], &BTreeMap::new(), &LIMITS), [1, 2, 4]);
        let one_each = JobLimits {
            per_user: Some(1),
            ..LIMITS
        };
        assert_eq!(choose(&jobs, &[], &BTreeMap::new(), &one_each), [1]);
    }

    #[test]
    fn an_agent_runs_one_part_and_limits_count_the_job_once() {
        let parts: Vec<_> = (0..9).map(|id| part(id, 100, "ana", "dtn")).collect();
        let limits = JobLimits {
            per_place: 1,
            per_user: Some(1),
            ..LIMITS
        };
        assert_eq!(choose(&parts, &[], &BTreeMap::new(), &limits), [0]);
        let elsewhere = RunningJob {
            part_of: Some(100),
            ..load("ana", "dtn")
        };
        // Every other agent has room for one more part of the same job, but for nothing else of
        // that place.
        let others = [elsewhere.clone(), elsewhere.clone()];
        let mut waiting = parts.clone();
        waiting.extend([part(20, 200, "ana", "dtn"), job(21, "ben", "dtn", 0)]);
        assert_eq!(choose(&waiting, &others, &BTreeMap::new(), &limits), [0]);
        let here = RunningJob {
            is_here: true,
            ..elsewhere
        };
        assert_eq!(choose(&waiting, &[here], &BTreeMap::new(), &limits), [0; 0]);
        // Running jobs decide whose turn it is: other users come first.
        waiting.push(job(22, "ben", "other", 0));
        assert_eq!(
            choose(&waiting, &others, &BTreeMap::new(), &LIMITS),
            [21, 22]
        );
    }

    proptest! {
        /// Limits are never exceeded, a job is chosen at most once, and every job that fits is
        /// chosen.
        #[test]
        fn limits_hold_and_capacity_is_used(
            jobs in prop::collection::vec((0u8..5, 0u8..5, 0i64..3), 0..40),
            busy in prop::collection::vec((0u8..5, 0u8..5), 0..6),
            in_all in 0usize..10, per_place in 1usize..4, per_user in prop::option::of(1usize..4),
        ) {
            let name = |number: u8| char::from(b'a' + number).to_string();
            let jobs: Vec<_> = jobs.iter().enumerate()
                .map(|(id, (user, place, priority))|
                    job(id as i64, &name(*user), &name(*place), *priority))
                .collect();
            let busy: Vec<_> = busy
                .iter()
                .map(|(user, place)| load(&name(*user), &name(*place)))
                .collect();
            let limits = JobLimits { in_all, per_place, per_user };
            let chosen = choose(&jobs, &busy, &BTreeMap::new(), &limits);
            let mut all: Vec<RunningJob> = busy.clone();
            for id in &chosen {
                let job = &jobs[*id as usize];
                let before = |key: fn(&RunningJob) -> &String, value: &String|
                    all.iter().filter(|load| key(load) == value).count();
                prop_assert!(before(|load| &load.place, &job.place) < per_place);
                prop_assert!(
                    per_user.is_none_or(|most| before(|load| &load.user, &job.user) < most)
                );
                all.push(load(&job.user, &job.place));
            }
            prop_assert!(chosen.is_empty() || all.len() <= in_all);
            let unique: std::collections::HashSet<_> = chosen.iter().collect();
            prop_assert_eq!(unique.len(), chosen.len());
            if all.len() < in_all {
                for job in jobs.iter().filter(|job| !chosen.contains(&job.id)) {
                    let count = |key: fn(&RunningJob) -> &String, value: &String|
                        all.iter().filter(|load| key(load) == value).count();
                    let place_full = count(|load| &load.place, &job.place) >= per_place;
                    let user_full =
                        per_user.is_some_and(|most| count(|load| &load.user, &job.user) >= most);
                    prop_assert!(place_full || user_full);
                }
            }
        }
    }
}
