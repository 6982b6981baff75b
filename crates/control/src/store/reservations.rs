//! The journal of reservations. Records are appended by one writer at a time: each writer takes an
//! epoch above those before it, and what an older one appends is refused in the same transaction
//! (fencing), so two that both take themselves for the writer promise nothing twice.

use std::collections::BTreeMap;

use longhaul_api::database::next_numbers;
use sqlx::any::AnyRow;
use sqlx::{Any, AssertSqlSafe, Row as _, Transaction};

use super::{Once, Store, StoreError};
use crate::reservations::Record;

/// How many rows one statement writes.
const ROWS_OF_STATEMENTS: [usize; 3] = [64, 8, 1];
/// Columns of a row.
const COLUMNS: usize = 4;
/// The counter of epochs.
const EPOCH: &str = "reservation-epoch";

/// Records that are appended at once: all of them, or none.
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a> {
    /// The writer's epoch.
    pub epoch: i64,
    /// The number of the first of the records: behind the last that is there.
    pub first: i64,
    /// The records.
    pub records: &'a [Record],
    /// What requests with keys are answered, in the form in which it is kept.
    pub answers: &'a [(Once, String)],
    /// When it is written, in milliseconds since the Unix epoch.
    pub now: i64,
}

impl Store {
    /// Makes the caller the writer of the journal: its epoch. Whatever writers before it have
    /// appended can be read when this is answered, and they append nothing more.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn lead_reservations(&self) -> Result<i64, StoreError> {
        let mut writing = self.write().await?;
        let epoch = next_numbers(&mut writing.transaction, EPOCH, 1).await?;
        writing.commit().await?;
        Ok(epoch)
    }

    /// The epoch of the newest writer.
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

    /// Appends records, and remembers answers.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] where there is a newer writer, or the store does not answer: then it
    /// is not known whether they are there, unless the journal is read again.
    pub async fn append_reservations(&self, batch: &Batch<'_>) -> Result<(), StoreError> {
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

    /// Records with numbers above `after`, by number, at most `limit`.
    ///
    /// # Errors
    /// The store does not answer, or has one that cannot be read.
    pub async fn reservation_records(
        &self,
        after: i64,
        limit: i64,
    ) -> Result<Vec<(i64, Record)>, StoreError> {
        let select = "SELECT number, content FROM reservation_journal WHERE number > $1 ORDER BY number LIMIT $2";
        let rows = sqlx::query(select)
            .bind(after)
            .bind(limit)
            .fetch_all(&self.database.pool())
            .await?;
        rows.iter().map(read).collect()
    }

    /// What requests with these keys were answered before: of each that was, the hash of what was
    /// asked, and the answer.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn answered_before(
        &self,
        all: &[&Once],
    ) -> Result<BTreeMap<(String, String), (String, String)>, StoreError> {
        let mut found = BTreeMap::new();
        for once in all {
            let select = "SELECT request_hash, answer FROM request_keys WHERE principal = $1 AND request_key = $2";
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

/// Records as they are kept, by number.
fn rows(batch: &Batch<'_>) -> Result<Vec<(i64, String)>, StoreError> {
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
    batch: &Batch<'_>,
    rows: &[(i64, String)],
) -> Result<(), StoreError> {
    let mut rest = rows;
    for at_once in ROWS_OF_STATEMENTS {
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

/// The statement that writes so many rows.
fn statement(rows: usize) -> AssertSqlSafe<String> {
    // Of digits and signs alone.
    AssertSqlSafe(format!(
        "INSERT INTO reservation_journal (number, epoch, at, content) VALUES {}",
        super::values(rows, COLUMNS)
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
