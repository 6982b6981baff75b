//! Measurements. One writer brings the requests of the moment together into one transaction (group
//! commit): each is answered when that is on the disk.

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

use super::{Once, Store, StoreError, kept, loaded};

/// Measurements of one transaction, at most, unless one batch alone has more.
const MAX_TRANSACTION_ROWS: usize = 20_000;
/// Batches that wait to be written; more are turned away.
const MAX_WAITING_BATCHES: usize = 4_096;
/// Measurements that wait to be written; more are turned away. Some tens of megabytes.
const MAX_WAITING_ROWS: usize = 200_000;
/// How many rows one statement writes: so that there are few statements to prepare, and each has
/// fewer parameters than SQLite and PostgreSQL allow.
const ROWS_OF_STATEMENTS: [usize; 4] = [500, 50, 5, 1];
/// Columns of a row.
const COLUMNS: usize = 6;

/// A quantity of a path as one reporter has it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeriesKey {
    /// Who says so.
    pub reporter: String,
    /// Where the path begins.
    pub from: String,
    /// Where it ends.
    pub to: String,
    /// What of it.
    pub quantity: Quantity,
}

impl SeriesKey {
    /// That of another quantity of the same path, by the same reporter.
    #[must_use]
    pub fn of_quantity(&self, quantity: Quantity) -> Self {
        Self {
            quantity,
            ..self.clone()
        }
    }

    /// That of a measurement.
    #[must_use]
    pub fn of(reporter: &str, measurement: &Measurement) -> Self {
        Self {
            reporter: reporter.to_owned(),
            from: measurement.from.clone(),
            to: measurement.to.clone(),
            quantity: measurement.quantity,
        }
    }
}

/// Measurements that were kept.
#[derive(Debug, Clone)]
pub struct Kept {
    /// Who reported them.
    pub reporter: String,
    /// What they are.
    pub measurements: Vec<Measurement>,
}

/// A batch that waits to be written.
#[derive(Debug)]
struct Waiting {
    kept: Kept,
    once: Option<Once>,
    answer: oneshot::Sender<Result<BatchKept, StoreError>>,
}

/// Where batches are given to the writer.
#[derive(Debug, Clone)]
pub struct Ingest {
    sender: mpsc::Sender<Waiting>,
    room: std::sync::Arc<tokio::sync::Semaphore>,
}

impl Ingest {
    /// Keeps a batch. When this says so it is on the disk.
    ///
    /// # Errors
    /// Too many wait, the key came with another request before, or the store does not answer: then
    /// nothing of it is kept.
    pub async fn keep(&self, kept: Kept, once: Option<Once>) -> Result<BatchKept, StoreError> {
        let rows = u32::try_from(kept.measurements.len()).unwrap_or(u32::MAX);
        let Ok(_room) = self.room.try_acquire_many(rows) else {
            return Err(StoreError::Busy);
        };
        let (answer, answered) = oneshot::channel();
        let waiting = Waiting { kept, once, answer };
        self.sender.try_send(waiting).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => StoreError::Busy,
            mpsc::error::TrySendError::Closed(_) => StoreError::Ending,
        })?;
        answered.await.unwrap_or(Err(StoreError::Ending))
    }
}

/// The writer. It is the one task that writes measurements.
#[derive(Debug)]
pub struct Writer {
    store: Store,
    receiver: mpsc::Receiver<Waiting>,
    series: HashMap<SeriesKey, i64>,
    /// Receives what was kept.
    kept: mpsc::UnboundedSender<Kept>,
}

/// What batches are given to, and what writes them. `kept` receives each batch that has been
/// written.
#[must_use]
pub fn ingest(store: Store, kept: mpsc::UnboundedSender<Kept>) -> (Ingest, Writer) {
    let (sender, receiver) = mpsc::channel(MAX_WAITING_BATCHES);
    let room = std::sync::Arc::new(tokio::sync::Semaphore::new(MAX_WAITING_ROWS));
    let writer = Writer {
        store,
        receiver,
        series: HashMap::new(),
        kept,
    };
    (Ingest { sender, room }, writer)
}

impl Writer {
    /// Writes until `end` is true and what was given until then is written.
    pub async fn run(mut self, mut end: watch::Receiver<bool>) {
        loop {
            let first = tokio::select! {
                first = self.receiver.recv() => first,
                // Nothing more is taken; what is there is received still.
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

    async fn write(&mut self, batches: Vec<Waiting>) {
        let store = self.store.clone();
        match store.unless_given_up(self.transact(&batches)).await {
            Ok(answers) => {
                for (waiting, answer) in batches.into_iter().zip(answers) {
                    if answer.as_ref().is_ok_and(|answer| answer.kept > 0) {
                        // Nobody listens any more when the controller ends.
                        let _ = self.kept.send(waiting.kept);
                    }
                    let _ = waiting.answer.send(answer);
                }
            }
            Err(error) => {
                tracing::warn!(%error, batches = batches.len(), "measurements could not be written");
                for waiting in batches {
                    let _ = waiting
                        .answer
                        .send(Err(StoreError::Sql(sqlx::Error::WorkerCrashed)));
                }
            }
        }
    }

    /// One transaction. What is answered to each batch is true only if this comes to its end.
    async fn transact(
        &mut self,
        batches: &[Waiting],
    ) -> Result<Vec<Result<BatchKept, StoreError>>, StoreError> {
        let store = self.store.clone();
        let mut writing = store.write().await?;
        let transaction = &mut writing.transaction;
        let rows: usize = batches
            .iter()
            .map(|waiting| waiting.kept.measurements.len())
            .sum();
        // The numbers are taken first: whoever else writes now waits, so numbers are seen in their
        // order.
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
            let Kept {
                reporter,
                measurements,
            } = &waiting.kept;
            let mut rows = Vec::with_capacity(measurements.len());
            for measurement in measurements {
                number += 1;
                let key = SeriesKey::of(reporter, measurement);
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

/// The number of a series, which is made if it is not there.
async fn series(
    transaction: &mut Transaction<'static, Any>,
    key: &SeriesKey,
) -> Result<i64, StoreError> {
    let select = "SELECT id FROM series WHERE reporter = $1 AND from_end = $2 AND to_end = $3 AND quantity = $4";
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

/// Writes rows, and says how many were not there before.
async fn insert(
    transaction: &mut Transaction<'static, Any>,
    mut rows: &[(i64, i64, &Measurement)],
) -> Result<usize, StoreError> {
    let mut kept = 0;
    for at_once in ROWS_OF_STATEMENTS {
        while let Some((now, later)) = rows.split_at_checked(at_once) {
            rows = later;
            let mut query = sqlx::query(statement(at_once));
            for (number, series, measurement) in now {
                let conditions = (measurement.conditions != Conditions::default())
                    .then(|| serde_json::to_string(&measurement.conditions).unwrap_or_default());
                query = query
                    .bind(*number)
                    .bind(*series)
                    .bind(super::kept(measurement.at_ms))
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

/// The statement that writes so many rows.
fn statement(rows: usize) -> AssertSqlSafe<String> {
    // Of digits and signs alone.
    AssertSqlSafe(format!(
        "INSERT INTO measurements (number, series, at, value, source, conditions) VALUES {} ON CONFLICT (series, at) DO NOTHING",
        super::values(rows, COLUMNS)
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

/// What is selected of a measurement with its series.
const SELECTED: &str = "m.number AS number, m.at AS at, m.value AS value, m.source AS source, m.conditions AS conditions, \
    s.reporter AS reporter, s.from_end AS from_end, s.to_end AS to_end, s.quantity AS quantity";

/// What is wanted of rows `m` of series `s`; [`wanted`] binds it.
const WANTED: &str = "($1 = '' OR s.from_end = $1) AND ($2 = '' OR s.to_end = $2) AND ($3 = '' OR s.quantity = $3) \
    AND ($4 = '' OR s.reporter = $4) AND m.at >= $5 AND m.at < $6";

/// A selection with [`WANTED`] in it, which is made of constants, and what that stands for.
fn wanted<'q>(
    select: String,
    query: &'q MeasurementQuery,
    reporter: Option<&'q str>,
) -> Query<'q, Any, AnyArguments> {
    sqlx::query(AssertSqlSafe(select))
        .bind(query.from.as_deref().unwrap_or_default())
        .bind(query.to.as_deref().unwrap_or_default())
        .bind(query.quantity.map_or("", Quantity::word))
        .bind(reporter.unwrap_or_default())
        .bind(query.since_ms.map_or(0, kept))
        .bind(query.before_ms.map_or(i64::MAX, kept))
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
        at_ms: loaded(row.try_get("at")?),
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

impl Store {
    /// Measurements that were kept after number `after`, at most `limit`, with their numbers; of
    /// one reporter only, if one is given.
    ///
    /// # Errors
    /// The store does not answer, or has one that cannot be read.
    pub async fn measurements(
        &self,
        query: &MeasurementQuery,
        reporter: Option<&str>,
        after: i64,
        limit: i64,
    ) -> Result<Vec<(i64, KeptMeasurement)>, StoreError> {
        let select = format!(
            "SELECT {SELECTED} FROM measurements m JOIN series s ON s.id = m.series WHERE {WANTED} AND m.number > $7 ORDER BY m.number LIMIT $8"
        );
        let rows = wanted(select, query, reporter)
            .bind(after)
            .bind(limit)
            .fetch_all(&self.database.pool())
            .await?;
        rows.iter().map(read).collect()
    }

    /// The newest number of a measurement, 0 if there is none.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn last_measurement(&self) -> Result<i64, StoreError> {
        let row = sqlx::query("SELECT value FROM counters WHERE name = 'measurement'")
            .fetch_one(&self.database.pool())
            .await?;
        Ok(row.try_get("value")?)
    }

    /// How many measurements are kept singly. It counts them: for tests and for people.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn count_measurements(&self) -> Result<i64, StoreError> {
        let row = sqlx::query("SELECT COUNT(*) AS rows FROM measurements")
            .fetch_one(&self.database.pool())
            .await?;
        Ok(row.try_get("rows")?)
    }

    /// Summaries of paths from `from` to `to`, by time, at most `limit`, behind the first `skip`.
    ///
    /// # Errors
    /// The store does not answer, or has one that cannot be read.
    pub async fn summaries(
        &self,
        query: &MeasurementQuery,
        reporter: Option<&str>,
        skip: i64,
        limit: i64,
    ) -> Result<Vec<Summary>, StoreError> {
        let select = format!(
            "SELECT m.span AS span, m.at AS at, m.count AS count, m.least AS least, m.mean AS mean, m.greatest AS greatest, \
            s.from_end AS from_end, s.to_end AS to_end, s.quantity AS quantity FROM summaries m JOIN series s ON s.id = m.series \
            WHERE {WANTED} ORDER BY m.at, m.series, m.span LIMIT $7 OFFSET $8"
        );
        let rows = wanted(select, query, reporter)
            .bind(limit)
            .bind(skip)
            .fetch_all(&self.database.pool())
            .await?;
        let summary = |row: &AnyRow| {
            Ok(Summary {
                from: row.try_get("from_end")?,
                to: row.try_get("to_end")?,
                quantity: quantity_of(&row.try_get::<String, _>("quantity")?)?,
                at_ms: loaded(row.try_get("at")?),
                span_s: loaded(row.try_get("span")?),
                count: loaded(row.try_get("count")?),
                least: row.try_get("least")?,
                mean: row.try_get("mean")?,
                greatest: row.try_get("greatest")?,
            })
        };
        rows.iter().map(summary).collect()
    }
}
