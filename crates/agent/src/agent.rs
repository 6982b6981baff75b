//! Which jobs run here, and what becomes of them.
//!
//! The agent wakes when something was asked of it, when an attempt ends, when a job is due, to
//! renew its leases, and, where others share its store, once a second to see what they have done.
//! With nothing to do it does nothing.

mod hook;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use longhaul_jobs::{End, Event, Limits, Wish};
use longhaul_proto::SigningKey;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};
use tokio::task::{Id, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};

pub use crate::attempt::Program;
use crate::attempt::{self, Ended};
use crate::http::Asset;
use crate::model::{Job, JobParts, JobRequest, Progress, shown_moment};
use crate::notice;
use crate::places::{Browse, Place};
use crate::store::{AttemptEnd, Gone, Holder, Kept, PartsOf, Store, StoreError};

/// How long a job is its agent's after that was last seen: no job is stuck for longer when its
/// agent dies.
pub const LEASE: Duration = Duration::from_secs(20);
/// How often leases are renewed, and progress is written down.
const RENEW_INTERVAL: Duration = Duration::from_secs(5);
/// An agent that has not been able to renew a lease for so long gives the job up before another one
/// takes it: the copy then has five seconds to end.
const GIVE_UP_AFTER: Duration = Duration::from_secs(15);
/// How often a store that others share is looked at.
const SHARED_INTERVAL: Duration = Duration::from_secs(1);
/// Wait before a store that did not answer is asked again.
const STORE_RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// How long the attempts that run may take to end when the agent does.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);
/// How often what is old is removed from the history.
const PRUNE_INTERVAL: Duration = Duration::from_secs(24 * 3600);

/// How an agent works.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What other agents and people know it by.
    pub name: String,
    /// What tells it from others of that name, and stays when it is started again.
    pub instance: String,
    /// The program that copies.
    pub program: Program,
    /// How many jobs run at once: `in_all` of this agent, the others over all agents that share the
    /// store.
    pub limits: Limits,
    /// How long jobs that have ended are kept.
    pub history: Duration,
    /// Places that are always there.
    pub places: Vec<Place>,
    /// The files of the page; none if this program was built without it.
    pub assets: &'static [Asset],
    /// What a job's end is reported to, where the job does not say otherwise.
    pub on_end_url: Option<String>,
    /// What notices are signed with.
    pub key: SigningKey,
    /// What reaches places.
    pub browse: Arc<dyn Browse>,
    /// Whether `longhaul cp` understands a request, and if not, why.
    pub check: fn(&JobRequest) -> Result<(), String>,
}

/// An agent. See the module.
#[derive(Debug, Clone)]
pub struct Agent {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    store: Store,
    settings: Settings,
    /// Something is to be done.
    wake: Notify,
    /// A job's end may have to be sent.
    notices: Notify,
    /// Something has changed here.
    changes: watch::Sender<()>,
    /// How far the jobs that run here have come.
    progress: Mutex<BTreeMap<i64, watch::Receiver<Option<Progress>>>>,
}

/// A job that is carried out here.
#[derive(Debug)]
struct Held {
    fence: i64,
    stop: watch::Sender<bool>,
    progress: watch::Receiver<Option<Progress>>,
    renewed: Instant,
}

/// What only the loop has.
#[derive(Default)]
struct Work {
    attempts: JoinSet<Ended>,
    /// The job of each task.
    tasks: BTreeMap<Id, i64>,
    held: BTreeMap<i64, Held>,
    /// Ends that the store has not taken yet.
    unreported: Vec<(i64, i64, Ended)>,
    /// None while nothing runs here.
    next_renewal: Option<Instant>,
    next_due: Option<Instant>,
    next_prune: Option<Instant>,
}

impl Agent {
    /// One that keeps its jobs in `store`. It does nothing until it runs.
    pub fn new(store: Store, settings: Settings) -> Self {
        Self {
            shared: Arc::new(Shared {
                store,
                settings,
                wake: Notify::new(),
                notices: Notify::new(),
                changes: watch::Sender::new(()),
                progress: Mutex::default(),
            }),
        }
    }

    /// Its store.
    pub fn store(&self) -> &Store {
        &self.shared.store
    }

    /// How it works.
    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    /// Changes whenever something has changed here; not for what other agents do.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.shared.changes.subscribe()
    }

    /// Keeps a new job, or finds the one that the key made before. Says whether it is new. The
    /// request must have been checked.
    ///
    /// # Errors
    /// See [`Store::submit`].
    pub async fn submit(
        &self,
        user: &str,
        request: &JobRequest,
        due: Option<i64>,
        key: Option<&str>,
    ) -> Result<(Job, bool), StoreError> {
        let (job, is_new) = self.shared.store.submit(user, request, due, key).await?;
        self.changed();
        Ok((self.shown(job).await?, is_new))
    }

    /// What a person asks of a job.
    ///
    /// # Errors
    /// See [`Store::ask`].
    pub async fn ask(&self, id: i64, event: Event) -> Result<Job, StoreError> {
        let job = self.shared.store.ask(id, event).await?;
        self.changed();
        self.on_end(&job);
        self.shown(job).await
    }

    /// The job, with how far it has come by now if it runs here, and how its parts stand if it is
    /// split.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn shown(&self, job: Job) -> Result<Job, StoreError> {
        let id = job.id;
        let shown = self.all_shown(vec![job]).await?.pop();
        shown.ok_or(StoreError::Missing(id))
    }

    /// The same of several.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn all_shown(&self, jobs: Vec<Job>) -> Result<Vec<Job>, StoreError> {
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

    /// How far the jobs have come whose parts are worked on, here or elsewhere.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn split_progress(&self) -> Result<Vec<(i64, JobParts, Progress)>, StoreError> {
        let split = self.shared.store.split_jobs().await?;
        let parts = self.shared.store.parts_of(&split).await?;
        let progress = parts
            .iter()
            .map(|parts| (parts.job, parts.counts, self.sum(parts)));
        Ok(progress.collect())
    }

    fn with_parts(&self, job: Job, parts: &PartsOf) -> Job {
        let mut job = self.with_progress(job);
        // Once it has run itself, what came of that counts.
        if job.progress.is_none() || !parts.counts.have_ended() {
            job.progress = (!parts.progress.is_empty()).then(|| self.sum(parts));
        }
        let started = parts.started.map(shown_moment);
        job.started = started.into_iter().chain(job.started).min();
        job.parts = Some(parts.counts);
        job
    }

    /// How far parts have come together; those that run here, by now.
    fn sum(&self, parts: &PartsOf) -> Progress {
        let here = self.progress();
        let by_now = parts.progress.iter().map(|(id, kept)| {
            let come = here.get(id).and_then(|come| come.borrow().clone());
            come.unwrap_or_else(|| kept.clone())
        });
        let by_now: Vec<Progress> = by_now.collect();
        Progress::sum(&by_now, parts.counts.of)
    }

    /// The job, with how far it has come by now if it runs here.
    fn with_progress(&self, mut job: Job) -> Job {
        if let Some(come) = self.progress().get(&job.id)
            && let Some(progress) = come.borrow().clone()
        {
            job.progress = Some(progress);
        }
        job
    }

    /// The numbers of the jobs that run here and how far they have come.
    pub fn running(&self) -> Vec<(i64, Option<Progress>)> {
        let progress = self.progress();
        let running = progress
            .iter()
            .map(|(id, come)| (*id, come.borrow().clone()));
        running.collect()
    }

    fn progress(&self) -> MutexGuard<'_, BTreeMap<i64, watch::Receiver<Option<Progress>>>> {
        // What is in there is whole at any moment.
        self.shared.progress.lock()
    }

    /// Something has changed, and something may be to be done.
    fn changed(&self) {
        self.shared.wake.notify_one();
        self.announce();
    }

    /// Says to those who listen that something has changed.
    fn announce(&self) {
        self.shared.changes.send_replace(());
    }

    /// Runs the program that a job names for its end, if it has come to it. A part's end is none of
    /// the job.
    fn on_end(&self, job: &Job) {
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

    /// Carries jobs out until `stop` is true; then lets those that run stop in good order, so that
    /// they are queued again.
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
            tracing::warn!(%error, "what reports ends has failed");
        }
        self.shared.store.close().await;
    }

    async fn run_jobs(&self, mut stop: watch::Receiver<bool>) {
        let mut work = Work::default();
        let mut has_taken_own = false;
        loop {
            let result = async {
                if !has_taken_own {
                    self.take_own().await?;
                    has_taken_own = true;
                }
                self.step(&mut work).await
            };
            let retry = match result.await {
                Ok(()) => None,
                Err(error) => {
                    tracing::warn!(%error, "the store did not answer; asking again");
                    Some(Instant::now() + STORE_RETRY_INTERVAL)
                }
            };
            work.give_up_what_cannot_be_renewed();
            let wake = self.next_wake(&work, retry);
            tokio::select! {
                Some(ended) = work.attempts.join_next_with_id() => self.attempt_ended(&mut work, ended),
                () = self.shared.wake.notified() => work.next_renewal = work.next_renewal.map(|_| Instant::now()),
                () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
                _ = stop.wait_for(|stop| *stop) => break,
            }
        }
        self.wind_down(work).await;
    }

    /// Queues again what this agent had when it last ended without a word.
    async fn take_own(&self) -> Result<(), StoreError> {
        let gone = match self.shared.store.is_shared() {
            true => Gone::Instance(&self.shared.settings.instance),
            false => Gone::All,
        };
        if self.shared.store.take_lost(&gone).await? > 0 {
            // One that was to be cancelled has ended with that.
            self.shared.notices.notify_one();
        }
        Ok(())
    }

    async fn step(&self, work: &mut Work) -> Result<(), StoreError> {
        let shared = &self.shared;
        let now = Instant::now();
        self.report_ends(work).await?;
        if work.next_renewal.is_some_and(|at| at <= now) {
            self.renew(work).await?;
        }
        if shared.store.is_shared() && shared.store.take_lost(&Gone::Silent).await? > 0 {
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

    fn next_wake(&self, work: &Work, retry: Option<Instant>) -> Option<Instant> {
        let shared = self
            .shared
            .store
            .is_shared()
            .then(|| Instant::now() + SHARED_INTERVAL);
        // With nothing to do, what is old can wait for the next time that there is.
        let times = match retry {
            Some(retry) => [Some(retry), None, None],
            None => [shared, work.next_due, work.next_renewal],
        };
        times.into_iter().flatten().min()
    }

    fn begin(&self, work: &mut Work, kept: Kept) {
        let (id, fence) = (kept.job.id, kept.life.fence);
        let (stop, stopped) = watch::channel(false);
        let (progress, come) = watch::channel(None);
        let program = self.shared.settings.program.clone();
        let arguments = kept.job.arguments();
        let task = work
            .attempts
            .spawn(async move { attempt::run(&program, &arguments, stopped, &progress).await });
        work.tasks.insert(task.id(), id);
        self.progress().insert(id, come.clone());
        let renewed = Instant::now();
        work.held.insert(
            id,
            Held {
                fence,
                stop,
                progress: come,
                renewed,
            },
        );
        work.next_renewal.get_or_insert(renewed + RENEW_INTERVAL);
    }

    fn attempt_ended(&self, work: &mut Work, ended: Result<(Id, Ended), tokio::task::JoinError>) {
        let (task, ended) = match ended {
            Ok((task, ended)) => (task, ended),
            Err(error) => {
                let with = AttemptEnd {
                    error: Some(format!("the agent failed: {error}")),
                    ..AttemptEnd::default()
                };
                let end = End::BrokeOff { advanced: false };
                (error.id(), Ended { end, with })
            }
        };
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

    /// Has the store take how attempts ended.
    async fn report_ends(&self, work: &mut Work) -> Result<(), StoreError> {
        while let Some((id, fence, ended)) = work.unreported.last() {
            match self
                .shared
                .store
                .ended(*id, *fence, ended.end, &ended.with)
                .await
            {
                Ok((job, whole)) => {
                    self.on_end(&job);
                    if let Some(whole) = whole {
                        self.on_end(&whole);
                    }
                }
                // It is another agent's by now, or nobody's.
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

    /// Renews the leases of what runs here, and stops what is not wanted any more.
    async fn renew(&self, work: &mut Work) -> Result<(), StoreError> {
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
                    if life.wish != Wish::Run {
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

    async fn wind_down(&self, mut work: Work) {
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
            // What is not reported is found when its lease has run out, or when this agent is back.
            Ok(Err(error)) => {
                tracing::warn!(%error, "the store did not take how the last attempts ended")
            }
            Err(_) => tracing::warn!("some attempts did not end"),
        }
    }
}

impl Work {
    /// Another agent may begin a job when its lease has run out: what cannot be renewed until then
    /// is stopped before.
    fn give_up_what_cannot_be_renewed(&self) {
        for held in self.held.values() {
            if held.renewed.elapsed() >= GIVE_UP_AFTER {
                held.stop.send_replace(true);
            }
        }
    }
}

fn milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
