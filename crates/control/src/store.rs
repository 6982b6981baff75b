//! Store of a controller, in SQLite or PostgreSQL, with the same queries for both.
//!
//! | module | content |
//! |---|---|
//! | [`principals`] | principals, and roles that an operator made |
//! | [`places`] | the operator's map, and registrations of depots |
//! | [`names`] | names of depots, and the keys that own them |
//! | [`measurements`] | measurements, written by one writer that groups requests |
//! | [`retention`] | summaries and removal of old measurements |
//! | [`transfers`] | reports of transfers |
//! | [`reservations`] | the journal of reservations |
//! | [`domains`] | connections with other domains |
//! | [`leaders`] | the lock of the leader |

pub mod domains;
pub mod leaders;
pub mod measurements;
mod migrations;
pub mod names;
pub mod places;
pub mod principals;
pub mod reservations;
pub mod retention;
pub mod transfers;

use std::path::Path;
use std::sync::Arc;

use longhaul_api::Database;
use longhaul_api::database::{DatabaseKind, OpenError};
use sqlx::{Any, Row as _, Transaction};
use tokio::sync::{Mutex, OwnedMutexGuard};

use migrations::MIGRATIONS;

/// Time for which the answer to a request with an idempotency key is stored, in milliseconds.
pub const REQUEST_KEY_LIFE_MS: i64 = 24 * 3600 * 1000;

/// Something cannot be stored or found.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The item does not exist. `longhaul control principals` lists roles and principals.
    #[error("there is no {what} {name}")]
    Missing {
        /// Kind of the item.
        what: &'static str,
        /// Name of the item.
        name: String,
    },
    /// The idempotency key was already used for another request. Give another `--key`, or none.
    #[error("the idempotency key {0:?} was used for another request")]
    KeyReused(String),
    /// The key has registered its maximum number of depot names.
    #[error(
        "{key} has registered {} names of depots, and no key may have more: use one of these, or \
        have the operator release one (longhaul control release NAME)",
        longhaul_map::MAX_NAMES_OF_KEY
    )]
    TooManyNames {
        /// The key.
        key: String,
    },
    /// A stored item cannot be read. Another program, or a newer release, wrote it.
    #[error("cannot read a {what} in the store: {why}")]
    Unreadable {
        /// Kind of the item.
        what: &'static str,
        /// Description of the error.
        why: String,
    },
    /// Too many requests are waiting: the disk is too slow, another controller writes at the same
    /// time, or this key has its share of requests waiting. Send again what was not acknowledged.
    #[error("too many requests are waiting at the controller: try again later")]
    Busy,
    /// The journal of reservations cannot be read at the moment.
    #[error("reservations cannot be read or written now: try again")]
    Behind,
    /// Another controller leads and must be asked. `longhaul controller add URL` names the others,
    /// so that they are asked too.
    #[error("this controller does not lead: {}", ask_elsewhere(.leader.as_deref()))]
    NotLeading {
        /// URL of the leader, if known.
        leader: Option<String>,
    },
    /// The connections to the store were abandoned.
    #[error("the store no longer answers: try again")]
    Silent,
    /// Another controller writes the journal of reservations. Two controllers of one store received
    /// requests at the same time.
    #[error("another controller has taken over the reservations: try again")]
    Fenced,
    /// The controller is ending. It was stopped, or restarts.
    #[error("the controller is stopping: try again")]
    Ending,
    /// The store does not answer. The service asks again every second. An agent stops its copies
    /// before their leases end.
    #[error("the store does not answer: {0}")]
    Sql(#[from] sqlx::Error),
}

fn ask_elsewhere(leader: Option<&str>) -> String {
    match leader {
        Some(url) => format!("ask the one at {url}"),
        None => "ask another controller, or try again".to_owned(),
    }
}

/// Store of a controller.
#[derive(Debug, Clone)]
pub struct ControllerStore {
    database: Database,
    /// Lock of the local writer, taken in order. SQLite allows one writer at a time, and would
    /// otherwise be polled.
    writing: Arc<Mutex<()>>,
}

/// Transaction with the lock of the local writer.
pub(crate) struct WriteTransaction {
    pub transaction: Transaction<'static, Any>,
    _turn: Option<OwnedMutexGuard<()>>,
}

impl WriteTransaction {
    pub async fn commit(self) -> sqlx::Result<()> {
        self.transaction.commit().await
    }
}

impl ControllerStore {
    /// Opens the store in a file, which only one controller may use.
    ///
    /// # Errors
    /// The store cannot be opened.
    pub async fn sqlite(file: &Path) -> Result<Self, OpenError> {
        Ok(Self::from_database(
            Database::sqlite(file, &MIGRATIONS).await?,
        ))
    }

    /// Opens the store at a server.
    ///
    /// # Errors
    /// The store cannot be reached.
    pub async fn postgres(url: &str) -> Result<Self, OpenError> {
        Ok(Self::from_database(
            Database::postgres(url, &MIGRATIONS).await?,
        ))
    }

    fn from_database(database: Database) -> Self {
        Self {
            database,
            writing: Arc::default(),
        }
    }

    /// Returns true if other controllers may use the store.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.database.kind() == DatabaseKind::Postgres
    }

    /// Checks that the store answers.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn check(&self) -> Result<(), StoreError> {
        sqlx::query("SELECT value FROM counters WHERE name = 'change'")
            .fetch_one(&self.database.pool())
            .await?;
        Ok(())
    }

    /// Returns milliseconds since the Unix epoch, by a clock that all users of the store share.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn now(&self) -> Result<i64, StoreError> {
        let mut connection = self.database.pool().acquire().await?;
        Ok(self.database.now(&mut connection).await?)
    }

    /// Returns the numbers of the last changes, by which other controllers notice that their state
    /// is outdated.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn changes(&self) -> Result<ChangeNumbers, StoreError> {
        let rows = sqlx::query(
            "SELECT name, value FROM counters WHERE name IN ('change', 'registration')",
        )
        .fetch_all(&self.database.pool())
        .await?;
        let mut changes = ChangeNumbers::default();
        for row in rows {
            let value = row.try_get("value")?;
            match row.try_get::<String, _>("name")?.as_str() {
                "change" => changes.by_operator = value,
                _ => changes.registration = value,
            }
        }
        Ok(changes)
    }

    /// Closes the store once all queries have ended.
    pub async fn close(&self) {
        self.database.close().await;
    }

    pub(crate) async fn write(&self) -> Result<WriteTransaction, StoreError> {
        let turn = match self.database.kind() {
            DatabaseKind::Sqlite => Some(self.writing.clone().lock_owned().await),
            DatabaseKind::Postgres => None,
        };
        Ok(WriteTransaction {
            transaction: self.database.begin_write().await?,
            _turn: turn,
        })
    }

    /// Returns the stored answer to a request with this idempotency key, if there is one.
    async fn answered(
        &self,
        transaction: &mut Transaction<'static, Any>,
        once: &IdempotencyKey,
    ) -> Result<Option<String>, StoreError> {
        let row = sqlx::query(
            "SELECT request_hash, answer FROM request_keys WHERE principal = $1 \
            AND request_key = $2",
        )
        .bind(&once.principal)
        .bind(&once.key)
        .fetch_optional(&mut **transaction)
        .await?;
        let Some(row) = row else {
            return Ok(None);
        };
        match row.try_get::<String, _>("request_hash")? == once.hash {
            true => Ok(Some(row.try_get("answer")?)),
            false => Err(StoreError::KeyReused(once.key.clone())),
        }
    }

    /// Stores the answer to a request with an idempotency key.
    async fn remember(
        &self,
        transaction: &mut Transaction<'static, Any>,
        once: &IdempotencyKey,
        answer: &str,
        now: i64,
    ) -> Result<(), StoreError> {
        sqlx::query(
            "INSERT INTO request_keys (principal, request_key, request_hash, answer, kept) \
            VALUES ($1, $2, $3, $4, $5)",
        )
        .bind(&once.principal)
        .bind(&once.key)
        .bind(&once.hash)
        .bind(answer)
        .bind(now)
        .execute(&mut **transaction)
        .await?;
        Ok(())
    }
}

/// Numbers of changes of stored data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChangeNumbers {
    /// Changes of principals, roles and the operator's map.
    pub by_operator: i64,
    /// Changes of registrations.
    pub registration: i64,
}

/// Idempotency key of a request, which makes it take effect once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// Principal that sent the request.
    pub principal: String,
    /// The key.
    pub key: String,
    /// Hash of the request's content.
    pub hash: String,
}

impl IdempotencyKey {
    /// Creates the idempotency key of a request with this content.
    #[must_use]
    pub fn new(principal: &str, key: &str, content: &[u8]) -> Self {
        Self {
            principal: principal.to_owned(),
            key: key.to_owned(),
            hash: blake3::hash(content).to_hex().to_string(),
        }
    }
}

/// Converts a number into the signed form that databases store.
pub(crate) fn to_stored(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Converts a stored number back.
fn from_stored(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

/// Returns the parameter list after `VALUES` for this many rows and columns.
fn values_clause(rows: usize, columns: usize) -> String {
    let row = |row: usize| {
        let parameters: Vec<String> = (1..=columns)
            .map(|column| format!("${}", row * columns + column))
            .collect();
        format!("({})", parameters.join(", "))
    };
    let rows: Vec<String> = (0..rows).map(row).collect();
    rows.join(", ")
}
