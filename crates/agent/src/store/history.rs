//! History of ended jobs.

use super::{JobStore, StoreError};
use crate::jobs::EventRefusal;

impl JobStore {
    /// Removes a job, with its parts, from the history.
    ///
    /// # Errors
    /// The job has not ended or does not exist, or the store does not answer.
    pub async fn forget(&self, id: i64) -> Result<(), StoreError> {
        let mut transaction = self.database.begin_write().await?;
        let kept = self.lock_whole(&mut transaction, id).await?;
        if kept.job.id != id {
            return Err(StoreError::IsPart {
                part: id,
                job: kept.job.id,
            });
        }
        if !kept.life.state.is_end() {
            return Err(EventRefusal::State(kept.life.state).into());
        }
        sqlx::query("DELETE FROM request_keys WHERE job = $1")
            .bind(id)
            .execute(&mut *transaction)
            .await?;
        sqlx::query("DELETE FROM jobs WHERE id = $1 OR parent = $1")
            .bind(id)
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(())
    }

    /// Removes jobs from the history that ended more than this many milliseconds ago.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn forget_older(&self, age: i64) -> Result<u64, StoreError> {
        let mut transaction = self.database.begin_write().await?;
        let before = self
            .database
            .now(&mut transaction)
            .await?
            .saturating_sub(age);
        sqlx::query("DELETE FROM request_keys WHERE job IN (SELECT id FROM jobs WHERE ended < $1)")
            .bind(before)
            .execute(&mut *transaction)
            .await?;
        // Parts are removed with their job; they may have ended long before it.
        sqlx::query(
            "DELETE FROM jobs WHERE parent IN (SELECT whole.id FROM jobs AS whole \
            WHERE whole.parent IS NULL AND whole.ended < $1)",
        )
        .bind(before)
        .execute(&mut *transaction)
        .await?;
        let gone = sqlx::query("DELETE FROM jobs WHERE parent IS NULL AND ended < $1")
            .bind(before)
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(gone.rows_affected())
    }
}
