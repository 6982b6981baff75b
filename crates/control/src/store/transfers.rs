//! Reports of transfers.

use longhaul_api::database::next_numbers;
use longhaul_control_api::transfers::{KeptReport, TransferReport};
use sqlx::Row as _;

use super::{REQUEST_KEY_LIFE_MS, Store, StoreError};

/// Maximum number of reports that one step removes.
const STEP_ROWS: i64 = 1000;

impl Store {
    /// Stores a report, once for each reporter and ID. Returns true if it is new.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn keep_report(
        &self,
        reporter: &str,
        report: &TransferReport,
    ) -> Result<bool, StoreError> {
        let content = serde_json::to_string(report).unwrap_or_default();
        let mut writing = self.write().await?;
        let now = self.database.now(&mut writing.transaction).await?;
        // Taking the number first makes concurrent reports wait.
        let number = next_numbers(&mut writing.transaction, "transfer", 1).await?;
        let insert = "INSERT INTO transfers (number, reporter, id, content, kept) \
            VALUES ($1, $2, $3, $4, $5) ON CONFLICT (reporter, id) DO NOTHING";
        let new = sqlx::query(insert)
            .bind(number)
            .bind(reporter)
            .bind(&report.id)
            .bind(content)
            .bind(now)
            .execute(&mut *writing.transaction)
            .await?;
        writing.commit().await?;
        Ok(new.rows_affected() > 0)
    }

    /// Returns at most `limit` reports stored after that number, with their numbers; only those of
    /// one reporter, if given.
    ///
    /// # Errors
    /// The store does not answer, or has a report that cannot be read.
    pub async fn reports(
        &self,
        reporter: Option<&str>,
        after: i64,
        limit: i64,
    ) -> Result<Vec<(i64, KeptReport)>, StoreError> {
        let select = "SELECT number, reporter, content FROM transfers WHERE number > $1 \
            AND ($2 = '' OR reporter = $2) ORDER BY number LIMIT $3";
        let rows = sqlx::query(select)
            .bind(after)
            .bind(reporter.unwrap_or_default())
            .bind(limit)
            .fetch_all(&self.database.pool())
            .await?;
        rows.iter().map(read).collect()
    }

    /// Returns the newest reports, the oldest of them first.
    ///
    /// # Errors
    /// The store does not answer, or has a report that cannot be read.
    pub async fn newest_reports(&self, limit: i64) -> Result<Vec<(i64, KeptReport)>, StoreError> {
        let rows = sqlx::query(
            "SELECT number, reporter, content FROM transfers ORDER BY number DESC LIMIT $1",
        )
        .bind(limit)
        .fetch_all(&self.database.pool())
        .await?;
        rows.iter().rev().map(read).collect()
    }

    /// Removes some of the reports stored before that time, and answers to old requests with
    /// idempotency keys. Returns the number of reports removed.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn forget_reports(&self, before: i64) -> Result<u64, StoreError> {
        let mut writing = self.write().await?;
        let now = self.database.now(&mut writing.transaction).await?;
        sqlx::query("DELETE FROM request_keys WHERE kept < $1")
            .bind(now.saturating_sub(REQUEST_KEY_LIFE_MS))
            .execute(&mut *writing.transaction)
            .await?;
        let delete = "DELETE FROM transfers WHERE number IN (SELECT number FROM transfers \
            WHERE kept < $1 ORDER BY number LIMIT $2)";
        let gone = sqlx::query(delete)
            .bind(before)
            .bind(STEP_ROWS)
            .execute(&mut *writing.transaction)
            .await?;
        writing.commit().await?;
        Ok(gone.rows_affected())
    }
}

fn read(row: &sqlx::any::AnyRow) -> Result<(i64, KeptReport), StoreError> {
    let content: String = row.try_get("content")?;
    let report = serde_json::from_str(&content).map_err(|error| StoreError::Unreadable {
        what: "report of a transfer",
        why: error.to_string(),
    })?;
    let reporter = row.try_get("reporter")?;
    Ok((row.try_get("number")?, KeptReport { report, reporter }))
}
