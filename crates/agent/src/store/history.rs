//! What has ended, and is kept for a while.

use longhaul_jobs::Refused;

use super::{Store, StoreError};

impl Store {
    /// Removes a job from the history.
    ///
    /// # Errors
    /// It has not ended, there is no such job, or the store does not answer.
    pub async fn forget(&self, id: i64) -> Result<(), StoreError> {
        let mut transaction = self.database.write().await?;
        let kept = self.to_change(&mut transaction, id).await?;
        if !kept.life.state.is_end() {
            return Err(Refused::State(kept.life.state).into());
        }
        sqlx::query("DELETE FROM request_keys WHERE job = $1")
            .bind(id)
            .execute(&mut *transaction)
            .await?;
        sqlx::query("DELETE FROM jobs WHERE id = $1")
            .bind(id)
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(())
    }

    /// Removes from the history what ended longer ago than so many milliseconds.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn forget_older(&self, age: i64) -> Result<u64, StoreError> {
        let mut transaction = self.database.write().await?;
        let before = self.database.now(&mut transaction).await?.saturating_sub(age);
        sqlx::query("DELETE FROM request_keys WHERE job IN (SELECT id FROM jobs WHERE ended < $1)")
            .bind(before)
            .execute(&mut *transaction)
            .await?;
        let gone = sqlx::query("DELETE FROM jobs WHERE ended < $1")
            .bind(before)
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(gone.rows_affected())
    }
}
