//! Retention of measurements. Old ones are summarized over short spans, these later over longer
//! ones, and finally removed. Each step is small, so that nothing waits for it long.

use std::collections::BTreeMap;

use longhaul_api::database::next_numbers;
use sqlx::Row as _;

use super::{Store, StoreError};

/// Maximum number of rows in one step.
const STEP_ROWS: i64 = 2_000;
/// Milliseconds in a second.
const SECOND_MS: i64 = 1_000;

/// Retention periods, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Time for which measurements are kept individually.
    pub single: i64,
    /// Time after that for which summaries of [`SHORT_SPAN`] are kept.
    pub short: i64,
    /// Time after that for which summaries of [`LONG_SPAN`] are kept.
    pub long: i64,
    /// Time for which transfer reports are kept.
    pub reports: i64,
}

/// Span of the first summaries, in seconds.
pub const SHORT_SPAN: i64 = 300;
/// Span of the second summaries, in seconds.
pub const LONG_SPAN: i64 = 3_600;
/// A day, in seconds.
const DAY: i64 = 86_400;

impl Default for Retention {
    /// A week, three months and two years for measurements; a year for reports.
    fn default() -> Self {
        Self {
            single: 7 * DAY,
            short: 90 * DAY,
            long: 730 * DAY,
            reports: 365 * DAY,
        }
    }
}

/// Summary of several values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Together {
    /// Number of values.
    pub count: i64,
    /// Smallest value.
    pub least: f64,
    /// Mean value.
    pub mean: f64,
    /// Largest value.
    pub greatest: f64,
}

impl Together {
    /// Creates the summary of one value.
    #[must_use]
    pub const fn one(value: f64) -> Self {
        Self {
            count: 1,
            least: value,
            mean: value,
            greatest: value,
        }
    }

    /// Combines two summaries.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let count = self.count.saturating_add(other.count);
        let share = other.count as f64 / count.max(1) as f64;
        Self {
            count,
            least: self.least.min(other.least),
            mean: self.mean + (other.mean - self.mean) * share,
            greatest: self.greatest.max(other.greatest),
        }
    }
}

/// Summaries by series and start of their span.
type Spans = BTreeMap<(i64, i64), Together>;

fn gather(spans: &mut Spans, series: i64, at: i64, span: i64, value: Together) {
    let begin = at - at.rem_euclid(span * SECOND_MS);
    let with = |together: &mut Together| *together = together.and(value);
    spans
        .entry((series, begin))
        .and_modify(with)
        .or_insert(value);
}

impl Store {
    /// Performs one step: summarizes the oldest measurements, or removes some. Returns true if
    /// there may be more to do.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn forget(&self, retention: &Retention) -> Result<bool, StoreError> {
        let now = self.now().await?;
        let before = |seconds: i64| now.saturating_sub(seconds.saturating_mul(SECOND_MS));
        let singles = self.gather_singles(before(retention.single)).await?;
        let shorts = self.gather_shorts(before(retention.short)).await?;
        let longs = self.remove_longs(before(retention.long)).await?;
        let reports = self.forget_reports(before(retention.reports)).await? > 0;
        Ok(singles || shorts || longs || reports)
    }

    /// Summarizes the oldest measurements, in the order in which they were stored.
    async fn gather_singles(&self, before: i64) -> Result<bool, StoreError> {
        let oldest = "SELECT number, series, at, value FROM measurements ORDER BY number LIMIT $1";
        // Looks without a lock first, as most often there is nothing to do.
        let rows = sqlx::query(oldest)
            .bind(STEP_ROWS)
            .fetch_all(&self.database.pool())
            .await?;
        let mut is_due = false;
        for row in &rows {
            is_due |= row.try_get::<i64, _>("at")? < before;
        }
        if !is_due {
            return Ok(false);
        }
        let mut writing = self.write().await?;
        // Controllers that summarize concurrently lock the same row first.
        next_numbers(&mut writing.transaction, "retention", 0).await?;
        let rows = sqlx::query(oldest)
            .bind(STEP_ROWS)
            .fetch_all(&mut *writing.transaction)
            .await?;
        let mut spans = Spans::new();
        let mut last = 0;
        for row in &rows {
            let (number, at): (i64, i64) = (row.try_get("number")?, row.try_get("at")?);
            if at < before {
                let value = Together::one(row.try_get("value")?);
                gather(&mut spans, row.try_get("series")?, at, SHORT_SPAN, value);
            }
            last = number;
        }
        self.add(&mut writing.transaction, SHORT_SPAN, &spans)
            .await?;
        sqlx::query("DELETE FROM measurements WHERE number <= $1 AND at < $2")
            .bind(last)
            .bind(before)
            .execute(&mut *writing.transaction)
            .await?;
        writing.commit().await?;
        Ok(true)
    }

    /// Merges old summaries of short spans into those of long ones.
    async fn gather_shorts(&self, before: i64) -> Result<bool, StoreError> {
        let mut writing = self.write().await?;
        next_numbers(&mut writing.transaction, "retention", 0).await?;
        let select = "SELECT series, at, count, least, mean, greatest FROM summaries \
            WHERE span = $1 AND at < $2 ORDER BY at, series LIMIT $3";
        let rows = sqlx::query(select)
            .bind(SHORT_SPAN)
            .bind(before)
            .bind(STEP_ROWS)
            .fetch_all(&mut *writing.transaction)
            .await?;
        if rows.is_empty() {
            return Ok(false);
        }
        let mut spans = Spans::new();
        for row in &rows {
            let (series, at): (i64, i64) = (row.try_get("series")?, row.try_get("at")?);
            let value = Together {
                count: row.try_get("count")?,
                least: row.try_get("least")?,
                mean: row.try_get("mean")?,
                greatest: row.try_get("greatest")?,
            };
            gather(&mut spans, series, at, LONG_SPAN, value);
            sqlx::query("DELETE FROM summaries WHERE series = $1 AND span = $2 AND at = $3")
                .bind(series)
                .bind(SHORT_SPAN)
                .bind(at)
                .execute(&mut *writing.transaction)
                .await?;
        }
        self.add(&mut writing.transaction, LONG_SPAN, &spans)
            .await?;
        writing.commit().await?;
        Ok(true)
    }

    async fn remove_longs(&self, before: i64) -> Result<bool, StoreError> {
        let mut writing = self.write().await?;
        let delete = "DELETE FROM summaries WHERE span = $1 AND at < $2";
        let gone = sqlx::query(delete)
            .bind(LONG_SPAN)
            .bind(before)
            .execute(&mut *writing.transaction)
            .await?;
        writing.commit().await?;
        Ok(gone.rows_affected() > 0)
    }

    /// Adds values to the summaries of their spans.
    async fn add(
        &self,
        transaction: &mut sqlx::Transaction<'static, sqlx::Any>,
        span: i64,
        spans: &Spans,
    ) -> Result<(), StoreError> {
        let select = "SELECT count, least, mean, greatest FROM summaries WHERE series = $1 \
            AND span = $2 AND at = $3";
        let insert = "INSERT INTO summaries (series, span, at, count, least, mean, greatest) \
            VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (series, span, at) DO UPDATE \
            SET count = excluded.count, least = excluded.least, mean = excluded.mean, \
            greatest = excluded.greatest";
        for ((series, at), value) in spans {
            let there = sqlx::query(select)
                .bind(series)
                .bind(span)
                .bind(at)
                .fetch_optional(&mut **transaction)
                .await?;
            let mut value = *value;
            if let Some(row) = there {
                let there = Together {
                    count: row.try_get("count")?,
                    least: row.try_get("least")?,
                    mean: row.try_get("mean")?,
                    greatest: row.try_get("greatest")?,
                };
                value = there.and(value);
            }
            sqlx::query(insert)
                .bind(series)
                .bind(span)
                .bind(at)
                .bind(value.count)
                .bind(value.least)
                .bind(value.mean)
                .bind(value.greatest)
                .execute(&mut **transaction)
                .await?;
        }
        Ok(())
    }
}
