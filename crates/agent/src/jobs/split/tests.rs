use proptest::prelude::*;

use super::*;
use crate::jobs::life::AttemptResult;

const POLICY: RetryPolicy = RetryPolicy::DEFAULT;
const LEASE: Moment = 20_000;

/// A job and its parts, as a store keeps them.
#[derive(Debug, Clone)]
struct Job {
    whole: JobLife,
    parts: Vec<JobLife>,
    now: Moment,
}

impl Job {
    fn new(parts: usize) -> Self {
        let parts = vec![JobLife::new(0); parts];
        Self {
            whole: JobLife::new(0).update_from_parts(PartCounts::count(&parts)),
            parts,
            now: 0,
        }
    }

    fn settle(&mut self) {
        self.whole = self.whole.update_from_parts(PartCounts::count(&self.parts));
    }

    /// Applies an event to a part. Returns true if it changed something.
    fn part(&mut self, which: usize, event: JobEvent) -> bool {
        let Ok(after) = self.parts[which].apply(event, self.now, &POLICY, 7) else {
            return false;
        };
        self.parts[which] = after;
        self.settle();
        true
    }

    /// Applies an event to the job's own run. Returns true if it changed something.
    fn whole(&mut self, event: JobEvent) -> bool {
        let Ok(after) = self.whole.apply(event, self.now, &POLICY, 7) else {
            return false;
        };
        self.whole = after;
        true
    }

    fn ask(&mut self, event: JobEvent) -> Result<(), EventRefusal> {
        (self.whole, self.parts) =
            apply_to_split(self.whole, &self.parts, event, self.now, &POLICY, 7)?;
        Ok(())
    }

    fn claim(&mut self, which: usize) {
        let until = self.now + LEASE;
        assert!(self.part(which, JobEvent::Claim { until }));
    }

    fn end(&mut self, which: usize, end: AttemptResult) {
        let fence = self.parts[which].fence;
        assert!(self.part(which, JobEvent::Ended { fence, end }));
    }

    fn states(&self) -> Vec<State> {
        self.parts.iter().map(|part| part.state).collect()
    }
}

#[test]
fn a_split_job_runs_when_no_part_is_left() {
    let mut job = Job::new(3);
    let until = LEASE;
    for (part, end) in [
        AttemptResult::Done,
        AttemptResult::Failed,
        AttemptResult::Done,
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(job.whole.state, State::Split);
        assert!(!job.whole(JobEvent::Claim { until }));
        job.claim(part);
        job.end(part, end);
    }
    assert_eq!(job.whole.state, State::Queued);
    assert!(job.whole(JobEvent::Claim { until }));
    let fence = job.whole.fence;
    assert!(job.whole(JobEvent::Ended {
        fence,
        end: AttemptResult::Done
    }));
    assert_eq!(job.whole.state, State::Done);
}

#[test]
fn a_split_job_pauses_and_resumes_with_its_parts() {
    let mut job = Job::new(3);
    job.claim(0);
    job.claim(1);
    job.end(0, AttemptResult::Done);
    job.ask(JobEvent::Pause).unwrap();
    assert_eq!(
        (job.whole.state, job.whole.wish),
        (State::Split, StopWish::Pause)
    );
    assert_eq!(job.states(), [State::Done, State::Running, State::Paused]);
    job.end(1, AttemptResult::Stopped);
    assert_eq!(job.whole.state, State::Paused);
    job.ask(JobEvent::Resume).unwrap();
    assert_eq!(job.whole.state, State::Split);
    assert_eq!(job.states(), [State::Done, State::Queued, State::Queued]);
    // Resumed before it has come to rest, it continues at once.
    job.claim(1);
    job.ask(JobEvent::Pause).unwrap();
    job.ask(JobEvent::Resume).unwrap();
    assert_eq!(
        (job.whole.state, job.whole.wish),
        (State::Split, StopWish::Run)
    );
    assert_eq!(job.parts[1].wish, StopWish::Run);
    assert_eq!(job.parts[2].state, State::Queued);
}

#[test]
fn a_split_job_is_cancelled_once_no_part_runs() {
    let mut job = Job::new(3);
    job.claim(0);
    job.end(0, AttemptResult::Done);
    job.claim(1);
    job.ask(JobEvent::Cancel).unwrap();
    assert_eq!(job.whole.state, State::Split);
    assert_eq!(
        job.ask(JobEvent::Pause),
        Err(EventRefusal::State(State::Cancelled))
    );
    job.now = LEASE;
    // Its agent was killed at this moment.
    assert!(job.part(1, JobEvent::Lost { known: false }));
    assert_eq!(job.whole.state, State::Cancelled);
    assert_eq!(
        job.states(),
        [State::Done, State::Cancelled, State::Cancelled]
    );
    job.ask(JobEvent::Retry).unwrap();
    assert_eq!(job.whole.state, State::Split);
    assert_eq!(job.states(), [State::Done, State::Queued, State::Queued]);
}

#[test]
fn retry_does_not_wait_for_waiting_parts() {
    let mut job = Job::new(2);
    assert_eq!(
        job.ask(JobEvent::Retry),
        Err(EventRefusal::State(State::Split))
    );
    job.claim(0);
    job.end(0, AttemptResult::BrokeOff { advanced: false });
    assert_eq!(job.parts[0].state, State::Waiting);
    job.ask(JobEvent::Retry).unwrap();
    assert_eq!(job.states(), [State::Queued; 2]);
    assert_eq!(job.whole.state, State::Split);
    for part in 0..2 {
        job.claim(part);
        job.end(
            part,
            if part == 0 {
                AttemptResult::Failed
            } else {
                AttemptResult::Done
            },
        );
    }
    let until = LEASE;
    assert!(job.whole(JobEvent::Claim { until }));
    let fence = job.whole.fence;
    assert!(job.whole(JobEvent::Ended {
        fence,
        end: AttemptResult::BrokeOff { advanced: true }
    }));
    // The job's own run took over the part's work: that is retried, not the part.
    job.ask(JobEvent::Retry).unwrap();
    assert_eq!(
        (job.whole.state, job.parts[0].state),
        (State::Queued, State::Failed)
    );
    assert!(job.whole(JobEvent::Claim { until }));
    let fence = job.whole.fence;
    assert!(job.whole(JobEvent::Ended {
        fence,
        end: AttemptResult::Failed
    }));
    job.ask(JobEvent::Retry).unwrap();
    assert_eq!(
        (job.whole.state, job.parts[0].state),
        (State::Split, State::Queued)
    );
}

/// Actions of agents and users, in any order.
#[derive(Debug, Clone, Copy)]
enum Step {
    Claim(usize),
    End(usize, AttemptResult),
    Lost(usize, bool),
    ClaimWhole,
    EndWhole(AttemptResult),
    LostWhole,
    Ask(JobEvent),
}

fn steps() -> impl Strategy<Value = Step> {
    let end = || {
        prop_oneof![
            3 => Just(AttemptResult::Done),
            1 => Just(AttemptResult::Failed),
            2 => any::<bool>().prop_map(|advanced| AttemptResult::BrokeOff { advanced }),
            2 => Just(AttemptResult::Stopped),
        ]
    };
    prop_oneof![
        4 => (0usize..6).prop_map(Step::Claim),
        4 => (0usize..6, end()).prop_map(|(which, end)| Step::End(which, end)),
        1 => (0usize..6, any::<bool>()).prop_map(|(which, known)| Step::Lost(which, known)),
        2 => Just(Step::ClaimWhole),
        2 => end().prop_map(Step::EndWhole),
        1 => Just(Step::LostWhole),
        2 => prop_oneof![
            Just(JobEvent::Pause),
            Just(JobEvent::Resume),
            Just(JobEvent::Cancel),
            Just(JobEvent::Retry)
        ].prop_map(Step::Ask),
    ]
}

impl Job {
    fn step(&mut self, step: Step) {
        let (until, count) = (self.now + LEASE, self.parts.len());
        match step {
            Step::Claim(which) => drop(self.part(which % count, JobEvent::Claim { until })),
            Step::End(which, end) => {
                let fence = self.parts[which % count].fence;
                self.part(which % count, JobEvent::Ended { fence, end });
            }
            Step::Lost(which, known) => drop(self.part(which % count, JobEvent::Lost { known })),
            Step::ClaimWhole => drop(self.whole(JobEvent::Claim { until })),
            Step::EndWhole(end) => {
                let fence = self.whole.fence;
                self.whole(JobEvent::Ended { fence, end });
            }
            Step::LostWhole => drop(self.whole(JobEvent::Lost { known: true })),
            Step::Ask(event) => drop(self.ask(event)),
        }
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let parts = PartCounts::count(&self.parts);
        let resting = self
            .parts
            .iter()
            .all(|part| part.state.is_end() || part.state == State::Paused);
        match self.whole.state {
            // While a part can run, the job itself neither runs nor may run.
            State::Queued | State::Running | State::Waiting | State::Done | State::Failed => {
                prop_assert_eq!(parts.left, 0);
            }
            State::Split => {
                prop_assert!(parts.left > 0);
                // Nothing begins in a job that is to stop.
                if self.whole.wish != StopWish::Run {
                    prop_assert!(parts.running > 0);
                    let stopping = |part: &JobLife| match part.state {
                        State::Running => part.wish == self.whole.wish,
                        state => state.is_end() || state == State::Paused,
                    };
                    prop_assert!(self.parts.iter().all(stopping), "{:?}", self);
                }
            }
            State::Paused => prop_assert!(resting),
            // Nothing of a cancelled job runs, or will run by itself.
            State::Cancelled => prop_assert_eq!(parts.left, 0),
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// In every order of events, the job runs only when none of its parts can, and a part that is
    /// done stays done. The job can reach its end from every state; only resuming needs a user.
    #[test]
    fn a_job_and_its_parts_stay_consistent(
        count in 1usize..6, steps in prop::collection::vec((steps(), 0i64..40_000), 0..80)
    ) {
        let mut job = Job::new(count);
        job.check()?;
        for (step, later) in steps {
            job.now += later;
            let before = job.clone();
            job.step(step);
            job.check()?;
            for (part, was) in job.parts.iter().zip(&before.parts) {
                prop_assert!(was.state != State::Done || part.state == State::Done);
            }
        }
        if matches!(
            (job.whole.state, job.whole.wish), (State::Paused, _) | (State::Split, StopWish::Pause)
        ) {
            job.ask(JobEvent::Resume).unwrap();
        }
        // From here on agents do what they can, one step after the other, until nothing is left.
        for _ in 0..100 {
            job.now += 1_000_000;
            let now = job.now;
            for which in 0..count {
                job.part(which, JobEvent::Claim { until: now + LEASE });
                let fence = job.parts[which].fence;
                job.part(which, JobEvent::Ended { fence, end: AttemptResult::Done });
            }
            job.whole(JobEvent::Claim { until: now + LEASE });
            let fence = job.whole.fence;
            job.whole(JobEvent::Ended { fence, end: AttemptResult::Done });
            job.check()?;
        }
        prop_assert!(job.whole.state.is_end());
        prop_assert_eq!(PartCounts::count(&job.parts).left, 0);
    }

    /// A job that is to stop stops once its agents know, and nothing begins meanwhile.
    #[test]
    fn nothing_begins_after_cancel(
        count in 1usize..6, steps in prop::collection::vec((steps(), 0i64..40_000), 0..40)
    ) {
        let mut job = Job::new(count);
        for (step, later) in steps {
            job.now += later;
            job.step(step);
        }
        prop_assume!(!job.whole.state.is_end());
        job.ask(JobEvent::Cancel).unwrap();
        let (until, fence) = (job.now + LEASE, job.whole.fence);
        for which in 0..count {
            let claim = JobEvent::Claim { until };
            prop_assert!(!job.part(which, claim));
            let fence = job.parts[which].fence;
            job.part(which, JobEvent::Ended { fence, end: AttemptResult::Stopped });
        }
        let claim = JobEvent::Claim { until };
        prop_assert!(!job.whole(claim));
        job.whole(JobEvent::Ended { fence, end: AttemptResult::Stopped });
        prop_assert_eq!(job.whole.state, State::Cancelled);
        prop_assert_eq!(PartCounts::count(&job.parts), PartCounts::default());
    }
}
