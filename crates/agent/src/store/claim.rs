//! Assignment of jobs to agents: claiming jobs that are due, and recovering those of lost agents.

use std::collections::BTreeMap;

use longhaul_api::database::next_numbers;
use sqlx::{AnyConnection, AssertSqlSafe, Row as _};

use super::{AttemptEnd, JobStore, StoreError, StoredJob, backoff_jitter};
use crate::jobs::{Candidate, JobEvent, JobLimits, RunningJob, choose};

/// Period over which users' recent usage is counted, in milliseconds.
const USAGE_PERIOD_MS: i64 = 24 * 3600 * 1000;

/// Agents that are considered lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LostAgents<'a> {
    /// Agents whose leases have expired.
    Silent,
    /// Agents whose leases have expired, and the previous process of this agent, which has this
    /// instance name.
    Instance(&'a str),
    /// All agents, as no other one uses the store.
    All,
}

/// Agent that claims jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder<'a> {
    /// Display name.
    pub name: &'a str,
    /// Identity among agents of the same name, which survives restarts.
    pub instance: &'a str,
}

impl JobStore {
    /// Claims at most `room` jobs that are due, within `limits` of users and places over all
    /// agents.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn claim(
        &self,
        holder: Holder<'_>,
        room: usize,
        limits: &JobLimits,
        for_how_long: i64,
    ) -> Result<Vec<StoredJob>, StoreError> {
        if room == 0 {
            return Ok(Vec::new());
        }
        let mut transaction = self.database.begin_write().await?;
        // One agent claims at a time, so that no two claim the same job or exceed a limit together.
        let chooser = format!(
            "SELECT value FROM counters WHERE name = 'chooser'{}",
            self.database.for_update()
        );
        sqlx::query(AssertSqlSafe(chooser))
            .fetch_one(&mut *transaction)
            .await?;
        let now = self.database.now(&mut transaction).await?;
        let candidates = self.candidates(&mut transaction, now, room, holder).await?;
        if candidates.is_empty() {
            transaction.rollback().await?;
            return Ok(Vec::new());
        }
        let running = self.running(&mut transaction, holder).await?;
        let used = self.recent_usage(&mut transaction, now).await?;
        let limits = JobLimits {
            in_all: running.len().saturating_add(room),
            ..*limits
        };
        let mut claimed = Vec::new();
        for id in choose(&candidates, &running, &used, &limits) {
            // A job that is being changed, for example paused, is skipped.
            let suffix = self.database.for_update_skip_locked();
            let Some(kept) = self.try_lock_job(&mut transaction, id, suffix).await? else {
                continue;
            };
            let until = now.saturating_add(for_how_long);
            let Ok(life) = kept.life.apply(
                JobEvent::Claim { until },
                now,
                &self.policy,
                backoff_jitter(id),
            ) else {
                continue;
            };
            let change = next_numbers(&mut transaction, "change", 1).await?;
            let update = "UPDATE jobs SET state = $1, wish = $2, due = $3, attempts = $4, \
                fence = $5, holder = $6, lease_until = $7, started = COALESCE(started, $8), \
                error = NULL, exit_code = NULL, change_number = $9, holder_instance = $10 \
                WHERE id = $11";
            sqlx::query(update)
                .bind(life.state.word())
                .bind(life.wish.word())
                .bind(life.due)
                .bind(i64::from(life.attempts))
                .bind(life.fence)
                .bind(holder.name)
                .bind(until)
                .bind(now)
                .bind(change)
                .bind(holder.instance)
                .bind(id)
                .execute(&mut *transaction)
                .await?;
            claimed.push(StoredJob { life, ..kept });
        }
        transaction.commit().await?;
        Ok(claimed)
    }

    /// Returns jobs that are due, at most `room` of each user and place. Of a split job it returns
    /// one part, if the holder runs none of its parts.
    async fn candidates(
        &self,
        connection: &mut AnyConnection,
        now: i64,
        room: usize,
        holder: Holder<'_>,
    ) -> Result<Vec<Candidate>, StoreError> {
        let select = "SELECT id, owner, place, priority, due, parent \
            FROM (SELECT id, owner, place, priority, due, parent, \
            ROW_NUMBER() OVER (PARTITION BY owner, place, CASE WHEN parent IS NULL THEN 0 ELSE 1 \
            END ORDER BY priority DESC, due, id) AS turn FROM (SELECT id, owner, place, priority, \
            due, parent, ROW_NUMBER() OVER (PARTITION BY COALESCE(parent, id) \
            ORDER BY priority DESC, due, id) AS turn_in_job FROM jobs \
            WHERE state IN ('queued', 'waiting') AND due <= $1 AND (parent IS NULL \
            OR NOT EXISTS (SELECT 1 FROM jobs AS other WHERE other.parent = jobs.parent \
            AND other.state = 'running' AND other.holder_instance = $3))) AS one \
            WHERE turn_in_job = 1) AS waiting WHERE turn <= $2";
        let rows = sqlx::query(select)
            .bind(now)
            .bind(i64::try_from(room).unwrap_or(i64::MAX))
            .bind(holder.instance)
            .fetch_all(connection)
            .await?;
        let candidates = rows.iter().map(|row| {
            Ok(Candidate {
                id: row.try_get("id")?,
                user: row.try_get("owner")?,
                place: row.try_get("place")?,
                priority: row.try_get("priority")?,
                due: row.try_get("due")?,
                part_of: row.try_get("parent")?,
            })
        });
        candidates.collect()
    }

    async fn running(
        &self,
        connection: &mut AnyConnection,
        holder: Holder<'_>,
    ) -> Result<Vec<RunningJob>, StoreError> {
        let rows = sqlx::query(
            "SELECT owner, place, parent, holder_instance FROM jobs WHERE state = 'running'",
        )
        .fetch_all(connection)
        .await?;
        let loads = rows.iter().map(|row| {
            let instance: Option<String> = row.try_get("holder_instance")?;
            Ok(RunningJob {
                user: row.try_get("owner")?,
                place: row.try_get("place")?,
                part_of: row.try_get("parent")?,
                is_here: instance.as_deref() == Some(holder.instance),
            })
        });
        loads.collect()
    }

    /// Returns the bytes that were transferred for each user in the last day.
    async fn recent_usage(
        &self,
        connection: &mut AnyConnection,
        now: i64,
    ) -> Result<BTreeMap<String, u64>, StoreError> {
        let select = "SELECT owner, CAST(SUM(travelled) AS BIGINT) AS travelled FROM jobs \
            WHERE ended > $1 GROUP BY owner";
        let rows = sqlx::query(select)
            .bind(now.saturating_sub(USAGE_PERIOD_MS))
            .fetch_all(connection)
            .await?;
        let used = rows.iter().map(|row| {
            let travelled: i64 = row.try_get("travelled")?;
            Ok((row.try_get("owner")?, u64::try_from(travelled).unwrap_or(0)))
        });
        used.collect()
    }

    /// Queues the jobs of lost agents again.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn recover_lost(&self, gone: &LostAgents<'_>) -> Result<usize, StoreError> {
        let mut connection = self.database.pool().acquire().await?;
        let now = self.database.now(&mut connection).await?;
        let select = "SELECT id FROM jobs WHERE state = 'running' AND (lease_until <= $1 \
            OR holder_instance = $2 OR $3 = 1)";
        let instance = match gone {
            LostAgents::Instance(instance) => *instance,
            LostAgents::Silent | LostAgents::All => "",
        };
        let lost = sqlx::query(select)
            .bind(now)
            .bind(instance)
            .bind(i64::from(matches!(gone, LostAgents::All)))
            .fetch_all(&mut *connection)
            .await?;
        drop(connection);
        let known = !matches!(gone, LostAgents::Silent);
        let mut taken = 0;
        for row in lost {
            let id = row.try_get("id")?;
            match self
                .change(id, JobEvent::Lost { known }, &AttemptEnd::default())
                .await
            {
                Ok(_) => taken += 1,
                // Another agent has recovered the job, or its own agent is back.
                Err(StoreError::Refused(_) | StoreError::Missing(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(taken)
    }
}
