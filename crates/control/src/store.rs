//! What a controller keeps, in SQLite or PostgreSQL: the same queries for both.
//!
//! | room | what is kept |
//! |---|---|
//! | [`principals`] | principals, and roles that an operator made |
//! | [`places`] | the operator's map, and what depots said of themselves |
//! | [`names`] | names of depots, and the keys that registered them first |
//! | [`measurements`] | measurements, written by one writer that brings requests together |
//! | [`retention`] | what becomes of old ones |
//! | [`transfers`] | reports of transfers |
//! | [`reservations`] | the journal of reservations |
//! | [`leaders`] | the lock of the one that leads |

pub mod leaders;
pub mod measurements;
pub mod names;
pub mod places;
pub mod principals;
pub mod reservations;
pub mod retention;
pub mod transfers;

use std::path::Path;
use std::sync::Arc;

use longhaul_api::Database;
use longhaul_api::database::{Kind, OpenError};
use sqlx::migrate::Migrator;
use sqlx::{Any, Row as _, Transaction};
use tokio::sync::{Mutex, OwnedMutexGuard};

static MIGRATIONS: Migrator = sqlx::migrate!("./migrations");

/// For how long the answer to a request with an idempotency key is kept, in milliseconds.
pub const REQUEST_KEY_LIFE_MS: i64 = 24 * 3600 * 1000;

/// Something cannot be kept or found.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no such thing.
    #[error("there is no {what} {name}")]
    Missing {
        /// What kind of thing.
        what: &'static str,
        /// Which.
        name: String,
    },
    /// The same key came with another request before.
    #[error("the idempotency key {0:?} was used for another request")]
    KeyReused(String),
    /// The key registered as many names of depots as one key may.
    #[error(
        "{key} has registered {} names of depots, and no key may have more: use one of these, or have the operator release one (longhaul control release NAME)",
        longhaul_map::MAX_NAMES_OF_KEY
    )]
    TooManyNames {
        /// The key.
        key: String,
    },
    /// What is kept is not what was.
    #[error("the store has a {what} that cannot be read: {why}")]
    Unreadable {
        /// What kind of thing.
        what: &'static str,
        /// What is wrong.
        why: String,
    },
    /// It takes no more now.
    #[error("more comes in than can be written: try again later")]
    Busy,
    /// It is not known what the journal of reservations says.
    #[error("reservations cannot be read or written now: try again")]
    Behind,
    /// Another controller leads, and it is asked.
    #[error("this controller does not lead: {}", ask_elsewhere(.leader.as_deref()))]
    NotLeading {
        /// Where that one answers, if it is known.
        leader: Option<String>,
    },
    /// Connections to it were given up.
    #[error("the store does not answer any more: try again")]
    Silent,
    /// Another controller writes the journal of reservations.
    #[error("another controller writes reservations by now: try again")]
    Fenced,
    /// The controller is ending.
    #[error("the controller is ending: try again")]
    Ending,
    /// It does not answer.
    #[error("the store does not answer: {0}")]
    Sql(#[from] sqlx::Error),
}

fn ask_elsewhere(leader: Option<&str>) -> String {
    match leader {
        Some(url) => format!("ask the one at {url}"),
        None => "ask another one, or try again".to_owned(),
    }
}

/// See the module.
#[derive(Debug, Clone)]
pub struct Store {
    database: Database,
    /// Whoever writes holds it, in the order in which they came: in SQLite one can write at a time,
    /// and would else ask again and again.
    writing: Arc<Mutex<()>>,
}

/// A transaction, and the right to write.
pub(crate) struct Writing {
    pub transaction: Transaction<'static, Any>,
    _turn: Option<OwnedMutexGuard<()>>,
}

impl Writing {
    pub async fn commit(self) -> sqlx::Result<()> {
        self.transaction.commit().await
    }
}

impl Store {
    /// That in a file, which only one controller may have.
    ///
    /// # Errors
    /// It cannot be opened.
    pub async fn sqlite(file: &Path) -> Result<Self, OpenError> {
        Ok(Self::of(Database::sqlite(file, &MIGRATIONS).await?))
    }

    /// That at a server.
    ///
    /// # Errors
    /// It cannot be reached.
    pub async fn postgres(url: &str) -> Result<Self, OpenError> {
        Ok(Self::of(Database::postgres(url, &MIGRATIONS).await?))
    }

    fn of(database: Database) -> Self {
        Self {
            database,
            writing: Arc::default(),
        }
    }

    /// Whether other controllers may change it.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.database.kind() == Kind::Postgres
    }

    /// Whether it answers.
    ///
    /// # Errors
    /// It does not.
    pub async fn is_there(&self) -> Result<(), StoreError> {
        sqlx::query("SELECT value FROM counters WHERE name = 'change'")
            .fetch_one(&self.database.pool())
            .await?;
        Ok(())
    }

    /// Milliseconds since the Unix epoch, by the clock that all who share the store have in common.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn now(&self) -> Result<i64, StoreError> {
        let mut connection = self.database.pool().acquire().await?;
        Ok(self.database.now(&mut connection).await?)
    }

    /// The numbers of the last changes: others who share the store see by them whether what they
    /// know is old.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn changes(&self) -> Result<Changes, StoreError> {
        let rows = sqlx::query(
            "SELECT name, value FROM counters WHERE name IN ('change', 'registration')",
        )
        .fetch_all(&self.database.pool())
        .await?;
        let mut changes = Changes::default();
        for row in rows {
            let value = row.try_get("value")?;
            match row.try_get::<String, _>("name")?.as_str() {
                "change" => changes.by_operator = value,
                _ => changes.registration = value,
            }
        }
        Ok(changes)
    }

    /// Closes it, when all that was begun has ended.
    pub async fn close(&self) {
        self.database.close().await;
    }

    pub(crate) async fn write(&self) -> Result<Writing, StoreError> {
        let turn = match self.database.kind() {
            Kind::Sqlite => Some(self.writing.clone().lock_owned().await),
            Kind::Postgres => None,
        };
        Ok(Writing {
            transaction: self.database.write().await?,
            _turn: turn,
        })
    }

    /// What was answered to the request with this key before, if it was.
    async fn answered(
        &self,
        transaction: &mut Transaction<'static, Any>,
        once: &Once,
    ) -> Result<Option<String>, StoreError> {
        let row = sqlx::query(
            "SELECT request_hash, answer FROM request_keys WHERE principal = $1 AND request_key = $2",
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

    /// Remembers what a request with a key is answered.
    async fn remember(
        &self,
        transaction: &mut Transaction<'static, Any>,
        once: &Once,
        answer: &str,
        now: i64,
    ) -> Result<(), StoreError> {
        sqlx::query(
            "INSERT INTO request_keys (principal, request_key, request_hash, answer, kept) VALUES ($1, $2, $3, $4, $5)",
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

/// How often what is kept has changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Changes {
    /// Principals, roles and the operator's map.
    pub by_operator: i64,
    /// What depots said of themselves.
    pub registration: i64,
}

/// A request that does nothing a second time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Once {
    /// Who asks.
    pub principal: String,
    /// The idempotency key.
    pub key: String,
    /// The hash of what is asked.
    pub hash: String,
}

impl Once {
    /// Of a request's content.
    #[must_use]
    pub fn of(principal: &str, key: &str, content: &[u8]) -> Self {
        Self {
            principal: principal.to_owned(),
            key: key.to_owned(),
            hash: blake3::hash(content).to_hex().to_string(),
        }
    }
}

/// A number that others gave as one that databases can keep.
pub(crate) fn kept(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The other way round.
fn loaded(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

/// The parameters of so many rows of so many columns, as they stand behind `VALUES`.
fn values(rows: usize, columns: usize) -> String {
    let row = |row: usize| {
        let parameters: Vec<String> = (1..=columns)
            .map(|column| format!("${}", row * columns + column))
            .collect();
        format!("({})", parameters.join(", "))
    };
    let rows: Vec<String> = (0..rows).map(row).collect();
    rows.join(", ")
}
