//! The journal of reservations. One writer at a time appends records. Each writer takes an epoch
//! above all earlier ones, and records of an older epoch are refused in the same transaction
//! (fencing). So two controllers that both act as writer cannot promise the same bandwidth.

use std::collections::BTreeMap;

use longhaul_api::database::next_numbers;
use sqlx::any::AnyRow;
use sqlx::{Any, AssertSqlSafe, Row as _, Transaction};

use super::{ControllerStore, IdempotencyKey, StoreError};
use crate::reservations::record::Record;

/// Numbers of rows that one statement writes.
const STATEMENT_ROWS: [usize; 3] = [64, 8, 1];
/// Number of columns in a row.
const COLUMNS: usize = 4;
/// Name of the counter of epochs.
pub(super) const EPOCH: &str = "reservation-epoch";

/// Records that are appended together: all of them, or none.
#[derive(Debug, Clone, Copy)]
pub struct JournalBatch<'a> {
    /// Epoch of the writer.
    pub epoch: i64,
    /// Number of the first record, which follows the last one stored.
    pub first: i64,
    /// The records.
    pub records: &'a [Record],
    /// Answers to requests with idempotency keys, as they are stored.
    pub answers: &'a [(IdempotencyKey, String)],
    /// Time of writing, in milliseconds since the Unix epoch.
    pub now: i64,
}

impl ControllerStore {
    /// Makes the caller the writer of the journal, and returns its epoch. Earlier writers can
    /// append nothing more, and all they have appended can be read.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn lead_reservations(&self) -> Result<i64, StoreError> {
        let mut writing = self.write().await?;
        let epoch = next_numbers(&mut writing.transaction, EPOCH, 1).await?;
        writing.commit().await?;
        Ok(epoch)
    }

    /// Returns the epoch of the newest writer.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn reservation_epoch(&self) -> Result<i64, StoreError> {
        let row = sqlx::query("SELECT value FROM counters WHERE name = $1")
            .bind(EPOCH)
            .fetch_one(&self.database.pool())
            .await?;
        Ok(row.try_get("value")?)
    }

    /// Appends records, and stores answers.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] if there is a newer writer. If the store does not answer, the records
    /// may have been appended or not, which only reading the journal shows.
    pub async fn append_reservations(&self, batch: &JournalBatch<'_>) -> Result<(), StoreError> {
        let rows = rows(batch)?;
        let mut writing = self.write().await?;
        let select = format!(
            "SELECT value FROM counters WHERE name = $1{}",
            self.database.for_update()
        );
        let newest: i64 = sqlx::query(AssertSqlSafe(select))
            .bind(EPOCH)
            .fetch_one(&mut *writing.transaction)
            .await?
            .try_get("value")?;
        if newest != batch.epoch {
            return Err(StoreError::Fenced);
        }
        insert(&mut writing.transaction, batch, &rows).await?;
        for (once, answer) in batch.answers {
            self.remember(&mut writing.transaction, once, answer, batch.now)
                .await?;
        }
        Ok(writing.commit().await?)
    }

    /// Returns at most `limit` records with numbers above `after`, in order.
    ///
    /// # Errors
    /// The store does not answer, or has a record that cannot be read.
    pub async fn reservation_records(
        &self,
        after: i64,
        limit: i64,
    ) -> Result<Vec<(i64, Record)>, StoreError> {
        let select = "SELECT number, content FROM reservation_journal WHERE number > $1 \
            ORDER BY number LIMIT $2";
        let rows = sqlx::query(select)
            .bind(after)
            .bind(limit)
            .fetch_all(&self.database.pool())
            .await?;
        rows.iter().map(read).collect()
    }

    /// Returns the stored answers to requests with these idempotency keys: the hash of each
    /// request, and its answer.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn answered_before(
        &self,
        all: &[&IdempotencyKey],
    ) -> Result<BTreeMap<(String, String), (String, String)>, StoreError> {
        let mut found = BTreeMap::new();
        for once in all {
            let select = "SELECT request_hash, answer FROM request_keys WHERE principal = $1 \
                AND request_key = $2";
            let row = sqlx::query(select)
                .bind(&once.principal)
                .bind(&once.key)
                .fetch_optional(&self.database.pool())
                .await?;
            if let Some(row) = row {
                let answer = (row.try_get("request_hash")?, row.try_get("answer")?);
                found.insert((once.principal.clone(), once.key.clone()), answer);
            }
        }
        Ok(found)
    }
}

/// Serializes records, with their numbers.
fn rows(batch: &JournalBatch<'_>) -> Result<Vec<(i64, String)>, StoreError> {
    let numbered = (batch.first..).zip(batch.records);
    let row = |(number, record)| {
        let content = serde_json::to_string(record).map_err(|error| StoreError::Unreadable {
            what: "record of reservations",
            why: error.to_string(),
        })?;
        Ok((number, content))
    };
    numbered.map(row).collect()
}

async fn insert(
    transaction: &mut Transaction<'static, Any>,
    batch: &JournalBatch<'_>,
    rows: &[(i64, String)],
) -> Result<(), StoreError> {
    let mut rest = rows;
    for at_once in STATEMENT_ROWS {
        while let Some((now, later)) = rest.split_at_checked(at_once) {
            rest = later;
            let mut query = sqlx::query(statement(at_once));
            for (number, content) in now {
                query = query
                    .bind(*number)
                    .bind(batch.epoch)
                    .bind(batch.now)
                    .bind(content);
            }
            query.execute(&mut **transaction).await?;
        }
    }
    Ok(())
}

/// Returns the statement that writes this many rows.
fn statement(rows: usize) -> AssertSqlSafe<String> {
    // Consists of digits and punctuation only.
    AssertSqlSafe(format!(
        "INSERT INTO reservation_journal (number, epoch, at, content) VALUES {}",
        super::values_clause(rows, COLUMNS)
    ))
}

fn read(row: &AnyRow) -> Result<(i64, Record), StoreError> {
    let (number, content): (i64, String) = (row.try_get("number")?, row.try_get("content")?);
    let record = serde_json::from_str(&content).map_err(|error| StoreError::Unreadable {
        what: "record of reservations",
        why: format!("{number}: {error}"),
    })?;
    Ok((number, record))
}
