//! Notices to send, stored in the transaction of the job's end.

use longhaul_api::signatures::sign::random_nonce;
use sqlx::{Any, AssertSqlSafe, Row as _, Transaction};

use super::{Store, StoreError};
use crate::notice::{Notice, Receiver};

impl Store {
    /// Stores a notice if the job ended in this transaction and names a URL.
    pub(super) async fn keep_notice(
        &self,
        transaction: &mut Transaction<'static, Any>,
        job: i64,
        now: i64,
    ) -> Result<(), StoreError> {
        let Some(kept) = self.locked(transaction, job, "").await? else {
            return Ok(());
        };
        let Some(url) = kept
            .job
            .request
            .on_end_url
            .as_ref()
            .filter(|_| kept.life.state.is_end())
        else {
            return Ok(());
        };
        // The URL was checked at submission. An invalid one is skipped.
        let Some(receiver) = Receiver::of(url) else {
            return Ok(());
        };
        let random = random_nonce().unwrap_or_default();
        let insert = "INSERT INTO notices (id, job, url, authority, body, created, attempts, due) \
            VALUES ($1, $2, $3, $4, $5, $6, 0, $7)";
        sqlx::query(insert)
            .bind(format!("{job}-{}-{random}", kept.job.change))
            .bind(job)
            .bind(url)
            .bind(receiver.place())
            .bind(serde_json::to_string(&kept.job).unwrap_or_default())
            .bind(now)
            .bind(now)
            .execute(&mut **transaction)
            .await?;
        Ok(())
    }

    /// Takes at most `room` notices that are due, and at most `of_one` for each receiver. They are
    /// due again after `lost_after` milliseconds, unless their result is recorded before.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn take_notices(
        &self,
        room: usize,
        of_one: usize,
        lost_after: i64,
    ) -> Result<Vec<Notice>, StoreError> {
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let mut transaction = self.database.write().await?;
        let now = self.database.now(&mut transaction).await?;
        let select = "SELECT id FROM (SELECT id, due, ROW_NUMBER() OVER (PARTITION BY authority \
            ORDER BY due, id) AS turn FROM notices WHERE due <= $1) AS waiting WHERE turn <= $2 \
            ORDER BY due, id LIMIT $3";
        let due = sqlx::query(select)
            .bind(now)
            .bind(count(of_one))
            .bind(count(room))
            .fetch_all(&mut *transaction)
            .await?;
        let mut taken = Vec::new();
        for row in due {
            let id: String = row.try_get("id")?;
            // A notice that another agent is taking is skipped.
            let select = format!(
                "SELECT id, job, url, body, attempts FROM notices WHERE id = $1 AND due <= $2{}",
                self.database.for_update_skip_locked()
            );
            let row = sqlx::query(AssertSqlSafe(select))
                .bind(&id)
                .bind(now)
                .fetch_optional(&mut *transaction)
                .await?;
            let Some(row) = row else { continue };
            let attempts = row.try_get::<i64, _>("attempts")?.saturating_add(1);
            sqlx::query("UPDATE notices SET attempts = $1, due = $2 WHERE id = $3")
                .bind(attempts)
                .bind(now.saturating_add(lost_after))
                .bind(&id)
                .execute(&mut *transaction)
                .await?;
            taken.push(Notice {
                id,
                job: row.try_get("job")?,
                url: row.try_get("url")?,
                body: row.try_get("body")?,
                attempts,
            });
        }
        transaction.commit().await?;
        Ok(taken)
    }

    /// Makes all notices due now: those of a lost sender, and those that waited for a retry.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn notices_lost(&self) -> Result<(), StoreError> {
        let mut transaction = self.database.write().await?;
        let now = self.database.now(&mut transaction).await?;
        sqlx::query("UPDATE notices SET due = $1 WHERE due > $1")
            .bind(now)
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(())
    }

    /// Removes a notice that was accepted or is given up.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn notice_taken(&self, id: &str) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM notices WHERE id = $1")
            .bind(id)
            .execute(&self.database.pool())
            .await?;
        Ok(())
    }

    /// Schedules a retry of a notice in `pause` milliseconds, unless another sender has taken it
    /// since.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn notice_later(&self, notice: &Notice, pause: i64) -> Result<(), StoreError> {
        let mut transaction = self.database.write().await?;
        let now = self.database.now(&mut transaction).await?;
        sqlx::query("UPDATE notices SET due = $1 WHERE id = $2 AND attempts = $3")
            .bind(now.saturating_add(pause))
            .bind(&notice.id)
            .bind(notice.attempts)
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(())
    }

    /// Returns the milliseconds until the next notice is due. `None` if no notice is.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn next_notice(&self) -> Result<Option<i64>, StoreError> {
        let mut connection = self.database.pool().acquire().await?;
        let now = self.database.now(&mut connection).await?;
        let row = sqlx::query("SELECT due FROM notices ORDER BY due LIMIT 1")
            .fetch_optional(&mut *connection)
            .await?;
        let due: Option<i64> = row.map(|row| row.try_get("due")).transpose()?;
        Ok(due.map(|due| due.saturating_sub(now)))
    }
}
