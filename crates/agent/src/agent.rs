//! Scheduling of jobs: claims them, runs their attempts, and records how those end.
//!
//! The agent wakes after a request, at the end of an attempt, when a job is due, and to renew its
//! leases. If others share its store, it also wakes once a second to see their changes. Otherwise
//! it is idle.

mod hook;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use longhaul_proto::SigningKey;
use longhaul_service::MetricsPage;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};
use tokio::task::{Id, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};

use crate::asset::Asset;
pub use crate::attempt::CopyProgram;
use crate::attempt::{self, FinishedAttempt};
use crate::jobs::{AttemptResult, JobEvent, JobLimits, StopWish};
use crate::metrics::AgentMetrics;
use crate::model::{Job, JobParts, JobRequest, Progress, shown_moment};
use crate::notice;
use crate::places::{Browse, Place};
use crate::store::{AttemptEnd, Holder, JobStore, LostAgents, PartsStatus, StoreError, StoredJob};

/// Duration of a job's lease. It bounds how long a job is stuck when its agent dies.
pub const LEASE: Duration = Duration::from_secs(20);
/// Interval between renewals of leases, which also store progress.
const RENEW_INTERVAL: Duration = Duration::from_secs(5);
/// Time without a successful renewal after which an agent stops a job. The copy then has five
/// seconds to end before another agent can claim the job.
const STOP_UNRENEWED_AFTER: Duration = Duration::from_secs(15);
/// Interval between checks of a store that others share.
const SHARED_INTERVAL: Duration = Duration::from_secs(1);
/// Wait before a store that did not answer is asked again.
const STORE_RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum time for running attempts to end when the agent stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);
/// Interval between removals of old jobs from the history.
const PRUNE_INTERVAL: Duration = Duration::from_secs(24 * 3600);

/// Settings of an agent.
#[derive(Debug, Clone)]
pub struct AgentSettings {
    /// Display name of the agent.
    pub name: String,
    /// Identity of the agent among those of the same name, which survives restarts.
    pub instance: String,
    /// Program that copies.
    pub program: CopyProgram,
    /// Maximum numbers of running jobs: `in_all` for this agent, the others for all agents that
    /// share the store.
    pub limits: JobLimits,
    /// Time for which ended jobs are kept.
    pub history: Duration,
    /// Places that always exist.
    pub places: Vec<Place>,
    /// Files of the web page; empty if the program was built without it.
    pub assets: &'static [Asset],
    /// Default URL to which a job's end is reported.
    pub on_end_url: Option<String>,
    /// Key that signs notices.
    pub key: SigningKey,
    /// Access to places.
    pub browse: Arc<dyn Browse>,
    /// Checks that `longhaul cp` accepts a request; the error says why not.
    pub check: fn(&JobRequest) -> Result<(), String>,
}

/// Agent: its store, settings, and running jobs. Clones share them.
#[derive(Debug, Clone)]
pub struct Agent {
    shared: Arc<AgentState>,
}

#[derive(Debug)]
struct AgentState {
    store: JobStore,
    settings: AgentSettings,
    /// Wakes the scheduling loop.
    wake: Notify,
    /// Wakes the sender of notices.
    notices: Notify,
    /// Announces changes made by this agent.
    changes: watch::Sender<()>,
    /// Progress of the jobs that run here, by job.
    progress: Mutex<BTreeMap<i64, watch::Receiver<Option<Progress>>>>,
    metrics: AgentMetrics,
}

/// Running attempt of a job.
#[derive(Debug)]
struct RunningAttempt {
    fence: i64,
    stop: watch::Sender<bool>,
    progress: watch::Receiver<Option<Progress>>,
    renewed: Instant,
}

/// State of the scheduling loop.
#[derive(Default)]
struct SchedulerState {
    attempts: JoinSet<FinishedAttempt>,
    /// Jobs by the task that runs them.
    tasks: BTreeMap<Id, i64>,
    held: BTreeMap<i64, RunningAttempt>,
    /// Ends of attempts that are not stored yet: job, fence and result.
    unreported: Vec<(i64, i64, FinishedAttempt)>,
    /// `None` while nothing runs here.
    next_renewal: Option<Instant>,
    next_due: Option<Instant>,
    next_prune: Option<Instant>,
}

impl Agent {
    /// Creates an agent that keeps its jobs in `store`. It is idle until [`Self::run`].
    pub fn new(store: JobStore, settings: AgentSettings) -> Self {
        Self {
            shared: Arc::new(AgentState {
                store,
                settings,
                wake: Notify::new(),
                notices: Notify::new(),
                changes: watch::Sender::new(()),
                progress: Mutex::default(),
                metrics: AgentMetrics::new(),
            }),
        }
    }

    /// Returns its metrics page.
    pub fn metrics(&self) -> MetricsPage {
        let shared = Arc::clone(&self.shared);
        MetricsPage::new(move || shared.metrics.page())
    }

    /// Returns the store.
    pub fn store(&self) -> &JobStore {
        &self.shared.store
    }

    /// Returns the settings.
    pub fn settings(&self) -> &AgentSettings {
        &self.shared.settings
    }

    /// Subscribes to changes made by this agent, not by others.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.shared.changes.subscribe()
    }

    /// Stores a new job, or finds the one that the same key created before. Also returns true if it
    /// is new. The request must have been checked.
    ///
    /// # Errors
    /// See [`JobStore::submit`].
    pub async fn submit(
        &self,
        user: &str,
        request: &JobRequest,
        due: Option<i64>,
        key: Option<&str>,
    ) -> Result<(Job, bool), StoreError> {
        let (job, is_new) = self.shared.store.submit(user, request, due, key).await?;
        if is_new {
            self.shared.metrics.jobs_submitted.inc();
        }
        self.changed();
        Ok((self.describe_job(job).await?, is_new))
    }

    /// Applies a user's request to a job.
    ///
    /// # Errors
    /// See [`JobStore::apply_event`].
    pub async fn apply_event(&self, id: i64, event: JobEvent) -> Result<Job, StoreError> {
        let job = self.shared.store.apply_event(id, event).await?;
        self.changed();
        self.handle_end(&job);
        self.describe_job(job).await
    }

    /// Adds a job's current progress, if it runs here, and the state of its parts, if it is split.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn describe_job(&self, job: Job) -> Result<Job, StoreError> {
        let id = job.id;
        let shown = self.describe_jobs(vec![job]).await?.pop();
        shown.ok_or(StoreError::Missing(id))
    }

    /// Like [`Self::describe_job`], for several jobs.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn describe_jobs(&self, jobs: Vec<Job>) -> Result<Vec<Job>, StoreError> {
        let split = jobs
            .iter()
            .filter(|job| job.request.split.is_some() && job.part.is_none());
        let split: Vec<i64> = split.map(|job| job.id).collect();
        let parts = self.shared.store.parts_of(&split).await?;
        let shown = |job: Job| match parts.iter().find(|parts| parts.job == job.id) {
            Some(parts) => self.with_parts(job, parts),
            None => self.with_progress(job),
        };
        Ok(jobs.into_iter().map(shown).collect())
    }

    /// Returns the progress of jobs whose parts are running, here or elsewhere.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn split_progress(&self) -> Result<Vec<(i64, JobParts, Progress)>, StoreError> {
        let split = self.shared.store.split_jobs().await?;
        let parts = self.shared.store.parts_of(&split).await?;
        let progress = parts
            .iter()
            .map(|parts| (parts.job, parts.counts, self.sum_parts(parts)));
        Ok(progress.collect())
    }

    fn with_parts(&self, job: Job, parts: &PartsStatus) -> Job {
        let mut job = self.with_progress(job);
        // Once the job itself has run, its own progress counts.
        if job.progress.is_none() || !parts.counts.have_ended() {
            job.progress = (!parts.progress.is_empty()).then(|| self.sum_parts(parts));
        }
        let started = parts.started.map(shown_moment);
        job.started = started.into_iter().chain(job.started).min();
        job.parts = Some(parts.counts);
        job
    }

    /// Sums the progress of parts, with current values for those that run here.
    fn sum_parts(&self, parts: &PartsStatus) -> Progress {
        let here = self.progress();
        let by_now = parts.progress.iter().map(|(id, kept)| {
            let come = here.get(id).and_then(|come| come.borrow().clone());
            come.unwrap_or_else(|| kept.clone())
        });
        let by_now: Vec<Progress> = by_now.collect();
        Progress::sum(&by_now, parts.counts.of)
    }

    /// Adds a job's current progress, if it runs here.
    fn with_progress(&self, mut job: Job) -> Job {
        if let Some(come) = self.progress().get(&job.id)
            && let Some(progress) = come.borrow().clone()
        {
            job.progress = Some(progress);
        }
        job
    }

    /// Returns the IDs and progress of the jobs that run here.
    pub fn running(&self) -> Vec<(i64, Option<Progress>)> {
        let progress = self.progress();
        let running = progress
            .iter()
            .map(|(id, come)| (*id, come.borrow().clone()));
        running.collect()
    }

    fn progress(&self) -> MutexGuard<'_, BTreeMap<i64, watch::Receiver<Option<Progress>>>> {
        self.shared.progress.lock()
    }

    /// Wakes the scheduling loop and announces a change.
    fn changed(&self) {
        self.shared.wake.notify_one();
        self.announce();
    }

    /// Announces a change to subscribers.
    fn announce(&self) {
        self.shared.changes.send_replace(());
    }

    /// Runs the `on_end` program of a job that has ended, and has its notice sent. The end of a
    /// part is not the end of its job.
    fn handle_end(&self, job: &Job) {
        if job.state.is_end() && job.part.is_none() && job.request.on_end_url.is_some() {
            self.shared.notices.notify_one();
        }
        if job.state.is_end()
            && job.part.is_none()
            && let Some(command) = &job.request.on_end
        {
            tokio::spawn(hook::run(command.clone(), job.clone()));
        }
    }

    /// Runs jobs until `stop` is true. Then stops the running ones gracefully, so that they are
    /// queued again.
    pub async fn run(&self, stop: watch::Receiver<bool>) {
        let shared = self.shared.clone();
        let notices = {
            let stop = stop.clone();
            let run = async move {
                notice::run(
                    shared.store.clone(),
                    shared.settings.key.clone(),
                    &shared.notices,
                    stop,
                )
                .await;
            };
            tokio::spawn(run)
        };
        self.run_jobs(stop).await;
        if let Err(error) = notices.await {
            tracing::warn!(%error, "the thread that sends notices of ended jobs failed");
        }
        self.shared.store.close().await;
    }

    async fn run_jobs(&self, mut stop: watch::Receiver<bool>) {
        let mut work = SchedulerState::default();
        let mut has_taken_own = false;
        loop {
            let result = async {
                if !has_taken_own {
                    self.requeue_own().await?;
                    has_taken_own = true;
                }
                self.step(&mut work).await
            };
            let retry = match result.await {
                Ok(()) => None,
                Err(error) => {
                    self.shared.metrics.store_errors.inc();
                    tracing::warn!(%error, "the store did not answer; retrying");
                    Some(Instant::now() + STORE_RETRY_INTERVAL)
                }
            };
            work.stop_unrenewed();
            let wake = self.next_wake(&work, retry);
            tokio::select! {
                Some(ended) = work.attempts.join_next_with_id() => {
                    self.attempt_ended(&mut work, ended)
                }
                () = self.shared.wake.notified() => {
                    work.next_renewal = work.next_renewal.map(|_| Instant::now())
                }
                () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
                _ = stop.wait_for(|stop| *stop) => break,
            }
        }
        self.wind_down(work).await;
    }

    /// Queues jobs again that this agent ran when it last ended without releasing them.
    async fn requeue_own(&self) -> Result<(), StoreError> {
        let gone = match self.shared.store.is_shared() {
            true => LostAgents::Instance(&self.shared.settings.instance),
            false => LostAgents::All,
        };
        if self.shared.store.recover_lost(&gone).await? > 0 {
            // A job that was to be cancelled has ended by this.
            self.shared.notices.notify_one();
        }
        Ok(())
    }

    async fn step(&self, work: &mut SchedulerState) -> Result<(), StoreError> {
        let shared = &self.shared;
        let now = Instant::now();
        self.report_ends(work).await?;
        if work.next_renewal.is_some_and(|at| at <= now) {
            self.renew(work).await?;
        }
        if shared.store.is_shared() && shared.store.recover_lost(&LostAgents::Silent).await? > 0 {
            self.announce();
            shared.notices.notify_one();
        }
        if work.next_prune.is_none_or(|at| at <= now) {
            let age = i64::try_from(shared.settings.history.as_millis()).unwrap_or(i64::MAX);
            shared.store.forget_older(age).await?;
            work.next_prune = Some(now + PRUNE_INTERVAL);
        }
        let limits = &shared.settings.limits;
        let room = limits.in_all.saturating_sub(work.held.len());
        let holder = Holder {
            name: &shared.settings.name,
            instance: &shared.settings.instance,
        };
        let claimed = shared
            .store
            .claim(holder, room, limits, milliseconds(LEASE))
            .await?;
        let began = !claimed.is_empty();
        for kept in claimed {
            self.begin(work, kept);
        }
        if began {
            self.announce();
        }
        let due = shared.store.next_due().await?;
        work.next_due =
            due.map(|due| Instant::now() + Duration::from_millis(due.max(1).unsigned_abs()));
        Ok(())
    }

    fn next_wake(&self, work: &SchedulerState, retry: Option<Instant>) -> Option<Instant> {
        let shared = self
            .shared
            .store
            .is_shared()
            .then(|| Instant::now() + SHARED_INTERVAL);
        // Pruning needs no wake-up of its own.
        let times = match retry {
            Some(retry) => [Some(retry), None, None],
            None => [shared, work.next_due, work.next_renewal],
        };
        times.into_iter().flatten().min()
    }

    fn begin(&self, work: &mut SchedulerState, kept: StoredJob) {
        let (id, fence) = (kept.job.id, kept.life.fence);
        let (stop, stopped) = watch::channel(false);
        let (progress, come) = watch::channel(None);
        let program = self.shared.settings.program.clone();
        let arguments = kept.job.arguments();
        let task = work
            .attempts
            .spawn(async move { attempt::run(&program, &arguments, stopped, &progress).await });
        work.tasks.insert(task.id(), id);
        self.shared.metrics.attempts_active.inc();
        self.progress().insert(id, come.clone());
        let renewed = Instant::now();
        work.held.insert(
            id,
            RunningAttempt {
                fence,
                stop,
                progress: come,
                renewed,
            },
        );
        work.next_renewal.get_or_insert(renewed + RENEW_INTERVAL);
    }

    fn attempt_ended(
        &self,
        work: &mut SchedulerState,
        ended: Result<(Id, FinishedAttempt), tokio::task::JoinError>,
    ) {
        let (task, ended) = match ended {
            Ok((task, ended)) => (task, ended),
            Err(error) => {
                let with = AttemptEnd {
                    error: Some(format!("the agent failed: {error}")),
                    ..AttemptEnd::default()
                };
                let end = AttemptResult::BrokeOff { advanced: false };
                (error.id(), FinishedAttempt { end, with })
            }
        };
        self.shared.metrics.attempts_active.dec();
        self.shared.metrics.count_ended(ended.end);
        let Some(id) = work.tasks.remove(&task) else {
            return;
        };
        self.progress().remove(&id);
        if let Some(held) = work.held.remove(&id) {
            work.unreported.push((id, held.fence, ended));
        }
        if work.held.is_empty() {
            work.next_renewal = None;
        }
    }

    /// Stores the ends of attempts.
    async fn report_ends(&self, work: &mut SchedulerState) -> Result<(), StoreError> {
        while let Some((id, fence, ended)) = work.unreported.last() {
            match self
                .shared
                .store
                .end_attempt(*id, *fence, ended.end, &ended.with)
                .await
            {
                Ok((job, whole)) => {
                    self.handle_end(&job);
                    if let Some(whole) = whole {
                        self.handle_end(&whole);
                    }
                }
                // The job belongs to another agent by now, or to none.
                Err(
                    StoreError::Refused(_) | StoreError::Missing(_) | StoreError::Unreadable { .. },
                ) => {}
                Err(error) => return Err(error),
            }
            work.unreported.pop();
            self.announce();
        }
        Ok(())
    }

    /// Renews the leases of running jobs, and stops jobs that are no longer wanted.
    async fn renew(&self, work: &mut SchedulerState) -> Result<(), StoreError> {
        for (id, held) in &mut work.held {
            let come = held
                .progress
                .borrow()
                .as_ref()
                .and_then(|come| serde_json::to_string(come).ok());
            let asked = Instant::now();
            match self
                .shared
                .store
                .renew(*id, held.fence, milliseconds(LEASE), come)
                .await
            {
                Ok(life) => {
                    held.renewed = asked;
                    if life.wish != StopWish::Run {
                        held.stop.send_replace(true);
                    }
                }
                Err(
                    StoreError::Refused(_) | StoreError::Missing(_) | StoreError::Unreadable { .. },
                ) => {
                    held.stop.send_replace(true);
                }
                Err(error) => return Err(error),
            }
        }
        work.next_renewal = (!work.held.is_empty()).then(|| Instant::now() + RENEW_INTERVAL);
        Ok(())
    }

    async fn wind_down(&self, mut work: SchedulerState) {
        for held in work.held.values() {
            held.stop.send_replace(true);
        }
        let all = async {
            while let Some(ended) = work.attempts.join_next_with_id().await {
                self.attempt_ended(&mut work, ended);
            }
            self.report_ends(&mut work).await
        };
        match timeout(STOP_TIMEOUT, all).await {
            Ok(Ok(())) => {}
            // A lost end is noticed when its lease expires, or when this agent is back.
            Ok(Err(error)) => {
                tracing::warn!(%error, "cannot record in the store how the last attempts ended")
            }
            Err(_) => tracing::warn!("some attempts did not stop"),
        }
    }
}

impl SchedulerState {
    /// Stops jobs whose lease was not renewed in time, before another agent can claim them.
    fn stop_unrenewed(&self) {
        for held in self.held.values() {
            if held.renewed.elapsed() >= STOP_UNRENEWED_AFTER {
                held.stop.send_replace(true);
            }
        }
    }
}

fn milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
