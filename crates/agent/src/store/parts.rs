//! Split jobs and their parts.
//!
//! A transaction that changes a split job or a part locks the job's row first and those of its
//! parts afterwards, which prevents deadlocks. Agents claim parts and renew leases without that
//! lock, as this does not change the job.

use sqlx::{Any, AssertSqlSafe, Row as _, Transaction};

use super::row::COLUMNS;
use super::{AttemptEnd, JobStore, StoreError, StoredJob, backoff_jitter};
use crate::jobs::{JobEvent, Moment, PartCounts, apply_to_split};
use crate::model::{JobParts, JobState, Progress};

/// State of a job's parts.
#[derive(Debug, Clone, PartialEq)]
pub struct PartsStatus {
    /// Number of the job.
    pub job: i64,
    /// Numbers of parts by state.
    pub counts: JobParts,
    /// Start of the first part.
    pub started: Option<Moment>,
    /// Numbers and progress of the parts that have any; empty if all have ended.
    pub progress: Vec<(i64, Progress)>,
}

impl JobStore {
    /// Returns the state of these jobs' parts.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn parts_of(&self, jobs: &[i64]) -> Result<Vec<PartsStatus>, StoreError> {
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        let numbers = |jobs: &mut dyn Iterator<Item = i64>| {
            let numbers: Vec<String> = jobs.map(|job| job.to_string()).collect();
            numbers.join(", ")
        };
        let select = format!(
            "SELECT parent, state, COUNT(*) AS parts, MIN(started) AS started FROM jobs \
            WHERE parent IN ({}) GROUP BY parent, state",
            numbers(&mut jobs.iter().copied())
        );
        let rows = sqlx::query(AssertSqlSafe(select))
            .fetch_all(&self.database.pool())
            .await?;
        let none = |job: &i64| PartsStatus {
            job: *job,
            counts: JobParts::default(),
            started: None,
            progress: Vec::new(),
        };
        let mut all: Vec<PartsStatus> = jobs.iter().map(none).collect();
        for row in rows {
            let (job, count): (i64, i64) = (row.try_get("parent")?, row.try_get("parts")?);
            let (state, started): (String, Option<i64>) =
                (row.try_get("state")?, row.try_get("started")?);
            let count = u32::try_from(count).unwrap_or(u32::MAX);
            if let Some(of) = all.iter_mut().find(|of| of.job == job) {
                of.counts.add(JobState::from_word(&state), count);
                of.started = of.started.into_iter().chain(started).min();
            }
        }
        let under_way = numbers(
            &mut all
                .iter()
                .filter(|of| !of.counts.have_ended())
                .map(|of| of.job),
        );
        if under_way.is_empty() {
            return Ok(all);
        }
        let select = format!(
            "SELECT id, parent, progress FROM jobs WHERE parent IN ({under_way}) \
            AND progress IS NOT NULL"
        );
        let rows = sqlx::query(AssertSqlSafe(select))
            .fetch_all(&self.database.pool())
            .await?;
        for row in rows {
            let (id, job): (i64, i64) = (row.try_get("id")?, row.try_get("parent")?);
            let progress: String = row.try_get("progress")?;
            if let Some(of) = all.iter_mut().find(|of| of.job == job)
                && let Ok(progress) = serde_json::from_str(&progress)
            {
                of.progress.push((id, progress));
            }
        }
        Ok(all)
    }

    /// Returns the numbers of jobs whose parts are running.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn split_jobs(&self) -> Result<Vec<i64>, StoreError> {
        let rows = sqlx::query("SELECT id FROM jobs WHERE state = 'split'")
            .fetch_all(&self.database.pool())
            .await?;
        rows.iter().map(|row| Ok(row.try_get("id")?)).collect()
    }

    /// Locks and returns the job, or the job that it is a part of.
    pub(super) async fn lock_whole(
        &self,
        transaction: &mut Transaction<'static, Any>,
        id: i64,
    ) -> Result<StoredJob, StoreError> {
        let select = format!(
            "SELECT {COLUMNS} FROM jobs WHERE id = COALESCE((SELECT one.parent FROM jobs AS one \
            WHERE one.id = $1), $1){}",
            self.database.for_update()
        );
        let row = sqlx::query(AssertSqlSafe(select))
            .bind(id)
            .fetch_optional(&mut **transaction)
            .await?;
        StoredJob::read(&row.ok_or(StoreError::Missing(id))?)
    }

    /// Applies a user's request to a split job and its parts.
    pub(super) async fn apply_to_whole(
        &self,
        transaction: &mut Transaction<'static, Any>,
        whole: &StoredJob,
        event: JobEvent,
        now: Moment,
    ) -> Result<(), StoreError> {
        let id = whole.job.id;
        let select = format!(
            "SELECT {COLUMNS} FROM jobs WHERE parent = $1 ORDER BY id{}",
            self.database.for_update()
        );
        let rows = sqlx::query(AssertSqlSafe(select))
            .bind(id)
            .fetch_all(&mut **transaction)
            .await?;
        let parts: Result<Vec<StoredJob>, StoreError> = rows.iter().map(StoredJob::read).collect();
        let parts = parts?;
        let lives: Vec<_> = parts.iter().map(|part| part.life).collect();
        let (life, after) = apply_to_split(
            whole.life,
            &lives,
            event,
            now,
            &self.policy,
            backoff_jitter(id),
        )?;
        let nothing = AttemptEnd::default();
        for (part, life) in parts.iter().zip(after) {
            if part.life != life {
                self.write_life(transaction, part.job.id, life, now, &nothing)
                    .await?;
            }
        }
        self.write_life(transaction, id, life, now, &nothing).await
    }

    /// Performs one step of the life of a part of `whole`. Returns true if `whole` has ended with
    /// it.
    pub(super) async fn change_part(
        &self,
        transaction: &mut Transaction<'static, Any>,
        whole: &StoredJob,
        id: i64,
        (event, now): (JobEvent, Moment),
        with: &AttemptEnd,
    ) -> Result<bool, StoreError> {
        let part = self.lock_job(transaction, id).await?;
        let life = part
            .life
            .apply(event, now, &self.policy, backoff_jitter(id))?;
        self.write_life(transaction, id, life, now, with).await?;
        let count = "SELECT CAST(SUM(CASE WHEN state IN ('done', 'failed', 'cancelled') THEN 0 \
            ELSE 1 END) AS BIGINT) AS under_way, CAST(SUM(CASE WHEN state = 'running' THEN 1 ELSE \
            0 END) AS BIGINT) AS running FROM jobs WHERE parent = $1";
        let row = sqlx::query(count)
            .bind(whole.job.id)
            .fetch_one(&mut **transaction)
            .await?;
        let number = |name: &str| -> Result<u32, StoreError> {
            Ok(u32::try_from(row.try_get::<i64, _>(name)?).unwrap_or(u32::MAX))
        };
        let parts = PartCounts {
            left: number("under_way")?,
            running: number("running")?,
        };
        let life = whole.life.update_from_parts(parts);
        // Also if the job stays the same, so that subscribers see the progress of its parts.
        self.write_life(transaction, whole.job.id, life, now, &AttemptEnd::default())
            .await?;
        Ok(life.state.is_end() && !whole.life.state.is_end())
    }
}
