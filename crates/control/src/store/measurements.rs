//! Measurements. One writer groups concurrent requests into one transaction (group commit). Each is
//! answered once it is on disk.

use std::collections::HashMap;

use longhaul_api::database::next_numbers;
use longhaul_control_api::measurements::{
    BatchKept, Conditions, KeptMeasurement, Measurement, MeasurementQuery, Quantity, Source,
    Summary,
};
use sqlx::any::{AnyArguments, AnyRow};
use sqlx::query::Query;
use sqlx::{Any, AssertSqlSafe, Row as _, Transaction};
use tokio::sync::{mpsc, oneshot, watch};

use super::{ControllerStore, IdempotencyKey, StoreError, from_stored, to_stored};

/// Maximum number of measurements in one transaction, unless a single batch has more.
const MAX_TRANSACTION_ROWS: usize = 20_000;
/// Maximum number of batches that wait to be written; further ones are refused.
const MAX_WAITING_BATCHES: usize = 4_096;
/// Maximum number of measurements that wait to be written; further ones are refused. They take some
/// tens of megabytes.
const MAX_WAITING_ROWS: usize = 200_000;
/// Numbers of rows that one statement writes. There are few statements to prepare, and each has
/// fewer parameters than SQLite and PostgreSQL allow.
const STATEMENT_ROWS: [usize; 4] = [500, 50, 5, 1];
/// Number of columns in a row.
const COLUMNS: usize = 6;

/// Series of one quantity of a path, as measured by one reporter.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeriesKey {
    /// Reporter of the series.
    pub reporter: String,
    /// End where the path begins.
    pub from: String,
    /// End where the path ends.
    pub to: String,
    /// Measured quantity.
    pub quantity: Quantity,
}

impl SeriesKey {
    /// Returns the key for another quantity of the same path by the same reporter.
    #[must_use]
    pub fn with_quantity(&self, quantity: Quantity) -> Self {
        Self {
            quantity,
            ..self.clone()
        }
    }

    /// Returns the key of a measurement's series.
    #[must_use]
    pub fn from_measurement(reporter: &str, measurement: &Measurement) -> Self {
        Self {
            reporter: reporter.to_owned(),
            from: measurement.from.clone(),
            to: measurement.to.clone(),
            quantity: measurement.quantity,
        }
    }
}

/// Stored measurements.
#[derive(Debug, Clone)]
pub struct StoredBatch {
    /// Reporter of the measurements.
    pub reporter: String,
    /// The measurements.
    pub measurements: Vec<Measurement>,
}

/// Batch that waits to be written.
#[derive(Debug)]
struct PendingBatch {
    kept: StoredBatch,
    once: Option<IdempotencyKey>,
    answer: oneshot::Sender<Result<BatchKept, StoreError>>,
}

/// Queue of batches for the writer.
#[derive(Debug, Clone)]
pub struct Ingest {
    sender: mpsc::Sender<PendingBatch>,
    room: std::sync::Arc<tokio::sync::Semaphore>,
}

impl Ingest {
    /// Stores a batch. On success, it is on disk.
    ///
    /// # Errors
    /// Too many batches wait, the idempotency key was used for another request, or the store does
    /// not answer. Nothing of the batch is stored then.
    pub async fn keep(
        &self,
        kept: StoredBatch,
        once: Option<IdempotencyKey>,
    ) -> Result<BatchKept, StoreError> {
        let rows = u32::try_from(kept.measurements.len()).unwrap_or(u32::MAX);
        let Ok(_room) = self.room.try_acquire_many(rows) else {
            return Err(StoreError::Busy);
        };
        let (answer, answered) = oneshot::channel();
        let waiting = PendingBatch { kept, once, answer };
        self.sender.try_send(waiting).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => StoreError::Busy,
            mpsc::error::TrySendError::Closed(_) => StoreError::Ending,
        })?;
        answered.await.unwrap_or(Err(StoreError::Ending))
    }
}

/// The only task that writes measurements.
#[derive(Debug)]
pub struct MeasurementWriter {
    store: ControllerStore,
    receiver: mpsc::Receiver<PendingBatch>,
    series: HashMap<SeriesKey, i64>,
    /// Receiver of stored batches.
    kept: mpsc::UnboundedSender<StoredBatch>,
}

/// Creates a queue of batches and its writer. `kept` receives each batch that has been written.
#[must_use]
pub fn ingest(
    store: ControllerStore,
    kept: mpsc::UnboundedSender<StoredBatch>,
) -> (Ingest, MeasurementWriter) {
    let (sender, receiver) = mpsc::channel(MAX_WAITING_BATCHES);
    let room = std::sync::Arc::new(tokio::sync::Semaphore::new(MAX_WAITING_ROWS));
    let writer = MeasurementWriter {
        store,
        receiver,
        series: HashMap::new(),
        kept,
    };
    (Ingest { sender, room }, writer)
}

impl MeasurementWriter {
    /// Writes until `end` is true and all batches received by then are written.
    pub async fn run(mut self, mut end: watch::Receiver<bool>) {
        loop {
            let first = tokio::select! {
                first = self.receiver.recv() => first,
                // Nothing new is accepted; batches in the channel are still received.
                _ = end.wait_for(|end| *end), if !self.receiver.is_closed() => {
                    self.receiver.close();
                    continue;
                }
            };
            let Some(first) = first else {
                return;
            };
            let mut rows = first.kept.measurements.len();
            let mut batches = vec![first];
            while rows < MAX_TRANSACTION_ROWS {
                let Ok(next) = self.receiver.try_recv() else {
                    break;
                };
                rows += next.kept.measurements.len();
                batches.push(next);
            }
            self.write(batches).await;
        }
    }

    async fn write(&mut self, batches: Vec<PendingBatch>) {
        let store = self.store.clone();
        match store.unless_given_up(self.transact(&batches)).await {
            Ok(answers) => {
                for (waiting, answer) in batches.into_iter().zip(answers) {
                    if answer.as_ref().is_ok_and(|answer| answer.kept > 0) {
                        // The receiver may be gone when the controller ends.
                        let _ = self.kept.send(waiting.kept);
                    }
                    let _ = waiting.answer.send(answer);
                }
            }
            Err(error) => {
                tracing::warn!(
                    %error,
                    batches = batches.len(),
                    "cannot write measurements"
                );
                for waiting in batches {
                    let _ = waiting
                        .answer
                        .send(Err(StoreError::Sql(sqlx::Error::WorkerCrashed)));
                }
            }
        }
    }

    /// Writes batches in one transaction. The answers are valid only if this completes.
    async fn transact(
        &mut self,
        batches: &[PendingBatch],
    ) -> Result<Vec<Result<BatchKept, StoreError>>, StoreError> {
        let store = self.store.clone();
        let mut writing = store.write().await?;
        let transaction = &mut writing.transaction;
        let rows: usize = batches
            .iter()
            .map(|waiting| waiting.kept.measurements.len())
            .sum();
        // Taking the numbers first makes other writers wait, so numbers become visible in order.
        let count = i64::try_from(rows).unwrap_or(i64::MAX);
        let mut number = next_numbers(transaction, "measurement", count).await? - count;
        let mut new_series = HashMap::new();
        let mut answers = Vec::with_capacity(batches.len());
        for waiting in batches {
            let before = match &waiting.once {
                None => None,
                Some(once) => match store.answered(transaction, once).await {
                    Err(StoreError::KeyReused(key)) => {
                        answers.push(Err(StoreError::KeyReused(key)));
                        continue;
                    }
                    before => before?,
                },
            };
            if let Some(answer) = before {
                answers.push(serde_json::from_str(&answer).map_err(|error| {
                    StoreError::Unreadable {
                        what: "answer",
                        why: error.to_string(),
                    }
                }));
                continue;
            }
            let StoredBatch {
                reporter,
                measurements,
            } = &waiting.kept;
            let mut rows = Vec::with_capacity(measurements.len());
            for measurement in measurements {
                number += 1;
                let key = SeriesKey::from_measurement(reporter, measurement);
                let known = self
                    .series
                    .get(&key)
                    .or_else(|| new_series.get(&key))
                    .copied();
                let series = match known {
                    Some(series) => series,
                    None => {
                        let series = series(transaction, &key).await?;
                        new_series.insert(key, series);
                        series
                    }
                };
                rows.push((number, series, measurement));
            }
            let kept = insert(transaction, &rows).await?;
            let answer = BatchKept {
                kept,
                duplicates: rows.len().saturating_sub(kept),
            };
            if let Some(once) = &waiting.once {
                let now = store.database.now(transaction).await?;
                let text = serde_json::to_string(&answer).unwrap_or_default();
                store.remember(transaction, once, &text, now).await?;
            }
            answers.push(Ok(answer));
        }
        writing.commit().await?;
        self.series.extend(new_series);
        Ok(answers)
    }
}

/// Returns the number of a series, which is created if it does not exist.
async fn series(
    transaction: &mut Transaction<'static, Any>,
    key: &SeriesKey,
) -> Result<i64, StoreError> {
    let select = "SELECT id FROM series WHERE reporter = $1 AND from_end = $2 AND to_end = $3 \
        AND quantity = $4";
    let found = sqlx::query(select)
        .bind(&key.reporter)
        .bind(&key.from)
        .bind(&key.to)
        .bind(key.quantity.word())
        .fetch_optional(&mut **transaction)
        .await?;
    if let Some(row) = found {
        return Ok(row.try_get("id")?);
    }
    let id = next_numbers(transaction, "series", 1).await?;
    sqlx::query(
        "INSERT INTO series (id, reporter, from_end, to_end, quantity) VALUES ($1, $2, $3, $4, $5)",
    )
    .bind(id)
    .bind(&key.reporter)
    .bind(&key.from)
    .bind(&key.to)
    .bind(key.quantity.word())
    .execute(&mut **transaction)
    .await?;
    Ok(id)
}

/// Writes rows, and returns how many were new.
async fn insert(
    transaction: &mut Transaction<'static, Any>,
    mut rows: &[(i64, i64, &Measurement)],
) -> Result<usize, StoreError> {
    let mut kept = 0;
    for at_once in STATEMENT_ROWS {
        while let Some((now, later)) = rows.split_at_checked(at_once) {
            rows = later;
            let mut query = sqlx::query(statement(at_once));
            for (number, series, measurement) in now {
                let conditions = (measurement.conditions != Conditions::default())
                    .then(|| serde_json::to_string(&measurement.conditions).unwrap_or_default());
                query = query
                    .bind(*number)
                    .bind(*series)
                    .bind(to_stored(measurement.at_ms))
                    .bind(measurement.value)
                    .bind(source_word(measurement.source))
                    .bind(conditions);
            }
            let written = query.execute(&mut **transaction).await?;
            kept += usize::try_from(written.rows_affected()).unwrap_or(usize::MAX);
        }
    }
    Ok(kept)
}

/// Returns the statement that writes this many rows.
fn statement(rows: usize) -> AssertSqlSafe<String> {
    // Consists of digits and punctuation only.
    AssertSqlSafe(format!(
        "INSERT INTO measurements (number, series, at, value, source, conditions) VALUES {} \
        ON CONFLICT (series, at) DO NOTHING",
        super::values_clause(rows, COLUMNS)
    ))
}

const fn source_word(source: Source) -> &'static str {
    match source {
        Source::Probe => "probe",
        Source::Transfer => "transfer",
        Source::Relay => "relay",
        Source::Archive => "archive",
    }
}

fn source_of(word: &str) -> Source {
    match word {
        "probe" => Source::Probe,
        "relay" => Source::Relay,
        "archive" => Source::Archive,
        _ => Source::Transfer,
    }
}

fn quantity_of(word: &str) -> Result<Quantity, StoreError> {
    let found = Quantity::ALL
        .into_iter()
        .find(|quantity| quantity.word() == word);
    found.ok_or_else(|| StoreError::Unreadable {
        what: "series",
        why: format!("its quantity is {word}"),
    })
}

/// Columns that are selected of a measurement and its series.
const SELECTED_COLUMNS: &str = "m.number AS number, m.at AS at, m.value AS value, m.source AS source, \
    m.conditions AS conditions, s.reporter AS reporter, s.from_end AS from_end, \
    s.to_end AS to_end, s.quantity AS quantity";

/// Filter for rows `m` of series `s`; [`bind_filter`] binds its parameters.
const FILTER: &str = "($1 = '' OR s.from_end = $1) AND ($2 = '' OR s.to_end = $2) \
    AND ($3 = '' OR s.quantity = $3) AND ($4 = '' OR s.reporter = $4) AND m.at >= $5 AND m.at < $6";

/// Binds the parameters of a selection with [`FILTER`], which consists of constants.
fn bind_filter<'q>(
    select: String,
    query: &'q MeasurementQuery,
    reporter: Option<&'q str>,
) -> Query<'q, Any, AnyArguments> {
    sqlx::query(AssertSqlSafe(select))
        .bind(query.from.as_deref().unwrap_or_default())
        .bind(query.to.as_deref().unwrap_or_default())
        .bind(query.quantity.map_or("", Quantity::word))
        .bind(reporter.unwrap_or_default())
        .bind(query.since_ms.map_or(0, to_stored))
        .bind(query.before_ms.map_or(i64::MAX, to_stored))
}

fn read(row: &AnyRow) -> Result<(i64, KeptMeasurement), StoreError> {
    let conditions: Option<String> = row.try_get("conditions")?;
    let conditions = conditions
        .map(|text| serde_json::from_str(&text))
        .transpose();
    let conditions = conditions.map_err(|error| StoreError::Unreadable {
        what: "measurement",
        why: error.to_string(),
    })?;
    let measurement = Measurement {
        from: row.try_get("from_end")?,
        to: row.try_get("to_end")?,
        quantity: quantity_of(&row.try_get::<String, _>("quantity")?)?,
        at_ms: from_stored(row.try_get("at")?),
        value: row.try_get("value")?,
        source: source_of(&row.try_get::<String, _>("source")?),
        conditions: conditions.unwrap_or_default(),
    };
    let reporter = row.try_get("reporter")?;
    Ok((
        row.try_get("number")?,
        KeptMeasurement {
            measurement,
            reporter,
        },
    ))
}

impl ControllerStore {
    /// Returns at most `limit` measurements stored after number `after`, with their numbers; only
    /// those of one reporter, if given.
    ///
    /// # Errors
    /// The store does not answer, or has a measurement that cannot be read.
    pub async fn measurements(
        &self,
        query: &MeasurementQuery,
        reporter: Option<&str>,
        after: i64,
        limit: i64,
    ) -> Result<Vec<(i64, KeptMeasurement)>, StoreError> {
        let select = format!(
            "SELECT {SELECTED_COLUMNS} FROM measurements m JOIN series s ON s.id = m.series WHERE {FILTER} \
            AND m.number > $7 ORDER BY m.number LIMIT $8"
        );
        let rows = bind_filter(select, query, reporter)
            .bind(after)
            .bind(limit)
            .fetch_all(&self.database.pool())
            .await?;
        rows.iter().map(read).collect()
    }

    /// Returns the number of the newest measurement, or 0.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn last_measurement(&self) -> Result<i64, StoreError> {
        let row = sqlx::query("SELECT value FROM counters WHERE name = 'measurement'")
            .fetch_one(&self.database.pool())
            .await?;
        Ok(row.try_get("value")?)
    }

    /// Counts the measurements that are not summarized. For tests and diagnosis.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn count_measurements(&self) -> Result<i64, StoreError> {
        let row = sqlx::query("SELECT COUNT(*) AS rows FROM measurements")
            .fetch_one(&self.database.pool())
            .await?;
        Ok(row.try_get("rows")?)
    }

    /// Returns at most `limit` summaries of paths from `from` to `to`, by time, after the first
    /// `skip`.
    ///
    /// # Errors
    /// The store does not answer, or has a summary that cannot be read.
    pub async fn summaries(
        &self,
        query: &MeasurementQuery,
        reporter: Option<&str>,
        skip: i64,
        limit: i64,
    ) -> Result<Vec<Summary>, StoreError> {
        let select = format!(
            "SELECT m.span AS span, m.at AS at, m.count AS count, m.least AS least, \
            m.mean AS mean, m.greatest AS greatest, s.from_end AS from_end, s.to_end AS to_end, \
            s.quantity AS quantity FROM summaries m JOIN series s ON s.id = m.series \
            WHERE {FILTER} ORDER BY m.at, m.series, m.span LIMIT $7 OFFSET $8"
        );
        let rows = bind_filter(select, query, reporter)
            .bind(limit)
            .bind(skip)
            .fetch_all(&self.database.pool())
            .await?;
        let summary = |row: &AnyRow| {
            Ok(Summary {
                from: row.try_get("from_end")?,
                to: row.try_get("to_end")?,
                quantity: quantity_of(&row.try_get::<String, _>("quantity")?)?,
                at_ms: from_stored(row.try_get("at")?),
                span_s: from_stored(row.try_get("span")?),
                count: from_stored(row.try_get("count")?),
                least: row.try_get("least")?,
                mean: row.try_get("mean")?,
                greatest: row.try_get("greatest")?,
            })
        };
        rows.iter().map(summary).collect()
    }
}
