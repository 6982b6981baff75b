//! Store of jobs. Each change is one transaction around a step of [`JobLife`], so
//! two agents, or an agent and a user, never change a job from the same state.

mod claim;
mod history;
mod migrations;
mod notices;
mod parts;
mod places;
mod row;

use std::collections::BTreeMap;

use longhaul_api::Database;
use longhaul_api::database::{DatabaseKind, OpenError, next_numbers};
use sqlx::{Any, AssertSqlSafe, Row as _, Transaction};

pub use claim::{Holder, LostAgents};
use migrations::MIGRATIONS;
pub use parts::PartsStatus;
use row::COLUMNS;
pub use row::StoredJob;

use crate::jobs::{
    AttemptResult, EventRefusal, JobEvent, JobLife, Moment, PartCounts, RetryPolicy,
};
use crate::model::{Job, JobRequest, JobState};

/// A job cannot be stored, found or changed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The job does not exist. It never existed, or was removed from the history; `longhaul jobs`
    /// lists those that exist.
    #[error("there is no job {0}")]
    Missing(i64),
    /// The job's state does not allow the change.
    #[error(transparent)]
    Refused(#[from] EventRefusal),
    /// The job is a part, which cannot be changed by itself. Pause, resume, cancel, retry or remove
    /// the whole job.
    #[error("job {part} is a part of job {job}: ask for that one")]
    IsPart {
        /// Number of the part.
        part: i64,
        /// Number of its job.
        job: i64,
    },
    /// The idempotency key was already used for another request. Give another `--key`, or none.
    #[error("the idempotency key {0:?} was used for another request")]
    KeyReused(String),
    /// The stored job is malformed. Another program, or a newer release, wrote it.
    #[error("job {job} cannot be read from the store: {what}")]
    Unreadable {
        /// Number of the job.
        job: i64,
        /// Description of the error.
        what: String,
    },
    /// The store does not answer. The service asks again every second. An agent stops its copies
    /// before their leases end.
    #[error("the store does not answer: {0}")]
    Sql(#[from] sqlx::Error),
}

/// Agent's report of an ended attempt.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AttemptEnd {
    /// Closing report of `longhaul cp --json`.
    pub report: Option<String>,
    /// Reason why not all was copied.
    pub error: Option<String>,
    /// Exit code.
    pub exit_code: Option<i64>,
    /// Final progress, in JSON.
    pub progress: Option<String>,
    /// Bytes that were transferred.
    pub travelled: i64,
}

/// Selection of jobs to list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobSelection {
    /// Jobs that users submitted.
    Jobs,
    /// Jobs and their parts.
    All,
    /// Parts of one job.
    PartsOf(i64),
}

/// Store of jobs, notices and places.
#[derive(Debug, Clone)]
pub struct JobStore {
    database: Database,
    policy: RetryPolicy,
}

impl JobStore {
    /// Opens the store in a file, which only one agent may use.
    ///
    /// # Errors
    /// The store cannot be opened.
    pub async fn sqlite(file: &std::path::Path) -> Result<Self, OpenError> {
        Ok(Self::from_database(
            Database::sqlite(file, &MIGRATIONS).await?,
        ))
    }

    /// Opens the store at a server, which any number of agents may share.
    ///
    /// # Errors
    /// The store cannot be reached.
    pub async fn postgres(url: &str) -> Result<Self, OpenError> {
        Ok(Self::from_database(
            Database::postgres(url, &MIGRATIONS).await?,
        ))
    }

    fn from_database(database: Database) -> Self {
        Self {
            database,
            policy: RetryPolicy::DEFAULT,
        }
    }

    /// Returns true if other agents may use the store.
    pub fn is_shared(&self) -> bool {
        self.database.kind() == DatabaseKind::Postgres
    }

    /// Stores a new job, or finds the one that this owner's `key` created before. Also returns true
    /// if it is new.
    ///
    /// # Errors
    /// The key was used for another request, or the store does not answer.
    pub async fn submit(
        &self,
        owner: &str,
        request: &JobRequest,
        due: Option<i64>,
        key: Option<&str>,
    ) -> Result<(Job, bool), StoreError> {
        let text = serde_json::to_string(request).unwrap_or_default();
        let mut transaction = self.database.begin_write().await?;
        let parts = request.split.map_or(0, i64::from);
        let last = next_numbers(&mut transaction, "job", 1 + parts).await?;
        let id = last - parts;
        if let Some(key) = key {
            // Taking the number first makes concurrent submissions wait, so that no two find the
            // key unused.
            let known = sqlx::query(
                "SELECT request, job FROM request_keys WHERE owner = $1 AND request_key = $2",
            )
            .bind(owner)
            .bind(key)
            .fetch_optional(&mut *transaction)
            .await?;
            if let Some(known) = known {
                // Compared as requests: another release may write them differently.
                let before: Result<JobRequest, _> = serde_json::from_str(known.try_get("request")?);
                if before.ok().as_ref() != Some(request) {
                    return Err(StoreError::KeyReused(key.to_owned()));
                }
                let known = known.try_get("job")?;
                transaction.rollback().await?;
                return Ok((self.job(known).await?.job, false));
            }
            sqlx::query(
                "INSERT INTO request_keys (owner, request_key, request, job) \
                VALUES ($1, $2, $3, $4)",
            )
            .bind(owner)
            .bind(key)
            .bind(&text)
            .bind(id)
            .execute(&mut *transaction)
            .await?;
        }
        let now = self.database.now(&mut transaction).await?;
        let part = JobLife::new(due.unwrap_or(now));
        let left = PartCounts {
            left: request.split.unwrap_or(0),
            running: 0,
        };
        let whole = part.update_from_parts(left);
        let insert = "INSERT INTO jobs (id, owner, place, request, priority, state, wish, due, \
            attempts, in_vain, fence, created, travelled, change_number, parent, part) \
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 0, 0, 0, $9, 0, $10, $11, $12)";
        for number in 0..=parts {
            let is_part = number > 0;
            let life = if is_part { part } else { whole };
            let change = next_numbers(&mut transaction, "change", 1).await?;
            sqlx::query(insert)
                .bind(id + number)
                .bind(owner)
                .bind(request.place())
                // A part has no request of its own; it uses its job's.
                .bind(if is_part { "" } else { &text })
                .bind(request.priority)
                .bind(life.state.word())
                .bind(life.wish.word())
                .bind(life.due)
                .bind(now)
                .bind(change)
                .bind(is_part.then_some(id))
                .bind(is_part.then_some(number))
                .execute(&mut *transaction)
                .await?;
        }
        transaction.commit().await?;
        Ok((self.job(id).await?.job, true))
    }

    /// Returns a job.
    ///
    /// # Errors
    /// The job does not exist, or the store does not answer.
    pub async fn job(&self, id: i64) -> Result<StoredJob, StoreError> {
        let row = sqlx::query(AssertSqlSafe(format!(
            "SELECT {COLUMNS} FROM jobs WHERE id = $1"
        )))
        .bind(id)
        .fetch_optional(&self.database.pool())
        .await?;
        StoredJob::read(&row.ok_or(StoreError::Missing(id))?)
    }

    /// Returns the closing report of a job's last attempt, verbatim.
    ///
    /// # Errors
    /// The job does not exist, or the store does not answer.
    pub async fn report(&self, id: i64) -> Result<Option<String>, StoreError> {
        let row = sqlx::query("SELECT report FROM jobs WHERE id = $1")
            .bind(id)
            .fetch_optional(&self.database.pool())
            .await?;
        Ok(row.ok_or(StoreError::Missing(id))?.try_get("report")?)
    }

    /// Returns at most `limit` of the selected jobs with numbers below `before`, newest first. If a
    /// state is given, only jobs in that state.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn list(
        &self,
        listed: JobSelection,
        state: Option<JobState>,
        before: Option<i64>,
        limit: i64,
    ) -> Result<Vec<Job>, StoreError> {
        let of = match listed {
            JobSelection::Jobs => "parent IS NULL".to_owned(),
            JobSelection::All => "1 = 1".to_owned(),
            JobSelection::PartsOf(job) => format!("parent = {job}"),
        };
        let select = format!(
            "SELECT {COLUMNS} FROM jobs WHERE {of} AND id < $1 AND ($2 = '' OR state = $2) \
            ORDER BY id DESC LIMIT $3"
        );
        let state = state.map_or("", JobState::word);
        let rows = sqlx::query(AssertSqlSafe(select))
            .bind(before.unwrap_or(i64::MAX))
            .bind(state)
            .bind(limit)
            .fetch_all(&self.database.pool())
            .await?;
        rows.iter()
            .map(|row| Ok(StoredJob::read(row)?.job))
            .collect()
    }

    /// Returns at most `limit` jobs that changed after change number `after`, in the order of their
    /// last changes.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn changed_since(&self, after: i64, limit: i64) -> Result<Vec<Job>, StoreError> {
        let select = format!(
            "SELECT {COLUMNS} FROM jobs WHERE change_number > $1 ORDER BY change_number LIMIT $2"
        );
        let rows = sqlx::query(AssertSqlSafe(select))
            .bind(after)
            .bind(limit)
            .fetch_all(&self.database.pool())
            .await?;
        rows.iter()
            .map(|row| Ok(StoredJob::read(row)?.job))
            .collect()
    }

    /// Returns the number of the last change.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn last_change(&self) -> Result<i64, StoreError> {
        let row = sqlx::query("SELECT value FROM counters WHERE name = 'change'")
            .fetch_one(&self.database.pool())
            .await?;
        Ok(row.try_get("value")?)
    }

    /// Returns the number of jobs in each state. A job counts once, whatever its parts.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn counts(&self) -> Result<BTreeMap<String, i64>, StoreError> {
        let rows = sqlx::query(
            "SELECT state, COUNT(*) AS jobs FROM jobs WHERE parent IS NULL GROUP BY state",
        )
        .fetch_all(&self.database.pool())
        .await?;
        let counts = rows
            .iter()
            .map(|row| Ok((row.try_get("state")?, row.try_get("jobs")?)));
        counts.collect()
    }

    /// Applies a user's request to a job.
    ///
    /// # Errors
    /// The job's state does not allow it, the job does not exist, or the store does not answer.
    pub async fn apply_event(&self, id: i64, event: JobEvent) -> Result<Job, StoreError> {
        self.change(id, event, &AttemptEnd::default()).await?;
        Ok(self.job(id).await?.job)
    }

    /// Renews the lease of a job for this many milliseconds, and stores its progress.
    ///
    /// # Errors
    /// The lease belongs to another agent by now, or the store does not answer.
    pub async fn renew(
        &self,
        id: i64,
        fence: i64,
        for_how_long: i64,
        progress: Option<String>,
    ) -> Result<JobLife, StoreError> {
        let mut transaction = self.database.begin_write().await?;
        let now = self.database.now(&mut transaction).await?;
        let kept = self.lock_job(&mut transaction, id).await?;
        let until = now.saturating_add(for_how_long);
        let life = kept.life.apply(
            JobEvent::Renew { fence, until },
            now,
            &self.policy,
            backoff_jitter(id),
        )?;
        sqlx::query(
            "UPDATE jobs SET lease_until = $1, progress = COALESCE($2, progress) WHERE id = $3",
        )
        .bind(until)
        .bind(progress)
        .bind(id)
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(life)
    }

    /// Records the end of an attempt. Returns the job, and the job that it is a part of, if that
    /// has ended with it.
    ///
    /// # Errors
    /// The lease belongs to another agent by now, or the store does not answer.
    pub async fn end_attempt(
        &self,
        id: i64,
        fence: i64,
        end: AttemptResult,
        with: &AttemptEnd,
    ) -> Result<(Job, Option<Job>), StoreError> {
        let whole = self
            .change(id, JobEvent::Ended { fence, end }, with)
            .await?;
        let job = self.job(id).await?.job;
        match whole {
            Some(whole) => Ok((job, Some(self.job(whole).await?.job))),
            None => Ok((job, None)),
        }
    }

    /// Returns the milliseconds until the next job is due. `None` if no job is.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn next_due(&self) -> Result<Option<i64>, StoreError> {
        let mut connection = self.database.pool().acquire().await?;
        let now = self.database.now(&mut connection).await?;
        let select = "SELECT due AS at FROM jobs WHERE state IN ('queued', 'waiting') AND due > $1 \
            ORDER BY due LIMIT 1";
        let row = sqlx::query(select)
            .bind(now)
            .fetch_optional(&mut *connection)
            .await?;
        let due: Option<i64> = row.map(|row| row.try_get("at")).transpose()?;
        Ok(due.map(|due| due.saturating_sub(now)))
    }

    /// Closes the store.
    pub async fn close(&self) {
        self.database.close().await;
    }

    /// Performs one step of a job's life. Returns the number of the job that it is a part of, if
    /// that has ended with it.
    async fn change(
        &self,
        id: i64,
        event: JobEvent,
        with: &AttemptEnd,
    ) -> Result<Option<i64>, StoreError> {
        let is_asked = matches!(
            event,
            JobEvent::Pause | JobEvent::Resume | JobEvent::Cancel | JobEvent::Retry
        );
        let mut transaction = self.database.begin_write().await?;
        let whole = self.lock_whole(&mut transaction, id).await?;
        let job = whole.job.id;
        let now = self.database.now(&mut transaction).await?;
        let mut has_ended = false;
        if job != id && is_asked {
            return Err(StoreError::IsPart { part: id, job });
        } else if job != id {
            let step = (event, now);
            has_ended = self
                .change_part(&mut transaction, &whole, id, step, with)
                .await?;
        } else if is_asked && whole.job.request.split.is_some() {
            self.apply_to_whole(&mut transaction, &whole, event, now)
                .await?;
        } else {
            let life = whole
                .life
                .apply(event, now, &self.policy, backoff_jitter(id))?;
            self.write_life(&mut transaction, id, life, now, with)
                .await?;
        }
        if whole.job.request.on_end_url.is_some() && !whole.life.state.is_end() {
            self.keep_notice(&mut transaction, job, now).await?;
        }
        transaction.commit().await?;
        Ok(has_ended.then_some(job))
    }

    /// Writes a job's life as of `now`. Its row must be locked.
    async fn write_life(
        &self,
        transaction: &mut Transaction<'static, Any>,
        id: i64,
        life: JobLife,
        now: Moment,
        with: &AttemptEnd,
    ) -> Result<(), StoreError> {
        let change = next_numbers(transaction, "change", 1).await?;
        let update = "UPDATE jobs SET state = $1, wish = $2, due = $3, attempts = $4, \
            in_vain = $5, fence = $6, lease_until = $7, ended = $8, progress = COALESCE($9, \
            progress), report = COALESCE($10, report), error = COALESCE($11, error), \
            exit_code = COALESCE($12, exit_code), travelled = travelled + $13, change_number = $14 \
            WHERE id = $15";
        sqlx::query(update)
            .bind(life.state.word())
            .bind(life.wish.word())
            .bind(life.due)
            .bind(i64::from(life.attempts))
            .bind(i64::from(life.in_vain))
            .bind(life.fence)
            .bind(life.lease.map(|lease| lease.until))
            .bind(life.state.is_end().then_some(now))
            .bind(with.progress.as_deref())
            .bind(with.report.as_deref())
            .bind(with.error.as_deref())
            .bind(with.exit_code)
            .bind(with.travelled)
            .bind(change)
            .bind(id)
            .execute(&mut **transaction)
            .await?;
        Ok(())
    }

    /// Locks and returns a job that the transaction changes.
    async fn lock_job(
        &self,
        transaction: &mut Transaction<'static, Any>,
        id: i64,
    ) -> Result<StoredJob, StoreError> {
        let kept = self
            .try_lock_job(transaction, id, self.database.for_update())
            .await?;
        kept.ok_or(StoreError::Missing(id))
    }

    /// Locks and returns a job. `None` if it does not exist, or if another transaction has locked
    /// it and `suffix` says not to wait.
    async fn try_lock_job(
        &self,
        transaction: &mut Transaction<'static, Any>,
        id: i64,
        suffix: &'static str,
    ) -> Result<Option<StoredJob>, StoreError> {
        let select = format!("SELECT {COLUMNS} FROM jobs WHERE id = $1{suffix}");
        let row = sqlx::query(AssertSqlSafe(select))
            .bind(id)
            .fetch_optional(&mut **transaction)
            .await?;
        row.as_ref().map(StoredJob::read).transpose()
    }
}

/// Returns a seed, so that jobs' retry pauses differ.
fn backoff_jitter(id: i64) -> u64 {
    id.unsigned_abs()
}
