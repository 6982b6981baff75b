//! The store: SQLite in a file, or PostgreSQL by its URL. One set of queries serves both, with `$1`
//! for what is bound.

mod checkpoints;

use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::RwLock;
use sqlx::any::{AnyConnectOptions, AnyPoolOptions};
use sqlx::migrate::Migrator;
use sqlx::{Any, AnyConnection, AnyPool, Connection, Executor, Row, Transaction};
use tokio::sync::watch;
use tokio::time::timeout;

use checkpoints::Checkpoints;

/// Connections at once: a service asks little, and each of them costs memory.
const MAX_CONNECTIONS: u32 = 4;
/// How long a request waits for a connection, and in SQLite for another writer.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);
/// What each connection to SQLite begins with: readers beside a writer, and what was committed is
/// on the disk. The log is brought into the file by [`Checkpoints`]; only if that falls behind by
/// so many pages (of 4 KiB), by whoever commits.
const SQLITE_SETTINGS: &str = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA busy_timeout = 10000; \
    PRAGMA foreign_keys = ON; PRAGMA wal_autocheckpoint = 8192; PRAGMA cache_size = -2048";

/// How a server is to see that whoever has a connection is gone without a word, in settings of each
/// session: what a transaction has locked is free again within seconds, and so is the connection. A
/// server that does not know one of them goes without.
const POSTGRES_SETTINGS: &[(&str, &str)] = &[
    ("idle_in_transaction_session_timeout", "5000"),
    ("tcp_keepalives_idle", "3"),
    ("tcp_keepalives_interval", "1"),
    ("tcp_keepalives_count", "4"),
    ("tcp_user_timeout", "7000"),
];
/// How long connections that were given up may take to be closed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(30);

/// Which program keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A file that one service has for itself.
    Sqlite,
    /// A server that several share.
    Postgres,
}

/// The store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Neither of the two.
    #[error(
        "the store's URL does not begin with postgres://: give that, or nothing for a file of this user's"
    )]
    Url,
    /// The path has characters that its URL could not have.
    #[error("the store's path, {0}, is not UTF-8")]
    Path(String),
    /// It does not answer, or is not ours.
    #[error("cannot open the store: {0}")]
    Connect(#[from] sqlx::Error),
    /// It was made by a newer release, or by somebody else.
    #[error("cannot bring the store to this release's form: {0}")]
    Migrate(#[from] sqlx::migrate::MigrateError),
}

/// The store.
#[derive(Debug, Clone)]
pub struct Database {
    options: AnyConnectOptions,
    pool: Arc<RwLock<AnyPool>>,
    kind: Kind,
    /// Of SQLite.
    checkpoints: Option<Checkpoints>,
    /// How often connections were given up.
    given_up: watch::Sender<u64>,
}

impl Database {
    /// That in a file, which is made if it is not there.
    ///
    /// # Errors
    /// It cannot be opened, or brought to the form that `migrations` give.
    pub async fn sqlite(file: &Path, migrations: &Migrator) -> Result<Self, OpenError> {
        let Some(path) = file.to_str() else {
            return Err(OpenError::Path(file.display().to_string()));
        };
        let escaped = path
            .replace('%', "%25")
            .replace('?', "%3f")
            .replace('#', "%23");
        Self::open(
            &format!("sqlite://{escaped}?mode=rwc"),
            Kind::Sqlite,
            migrations,
        )
        .await
    }

    /// That at a server: `postgres://user@host/name`.
    ///
    /// # Errors
    /// It cannot be reached, or brought to the form that `migrations` give.
    pub async fn postgres(url: &str, migrations: &Migrator) -> Result<Self, OpenError> {
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(OpenError::Url);
        }
        Self::open(url, Kind::Postgres, migrations).await
    }

    async fn open(url: &str, kind: Kind, migrations: &Migrator) -> Result<Self, OpenError> {
        sqlx::any::install_default_drivers();
        let options = AnyConnectOptions::from_str(url)?;
        // A pool would try again for as long as it may, and not say why.
        let mut first = AnyConnection::connect_with(&options).await?;
        if kind == Kind::Sqlite {
            first.execute(SQLITE_SETTINGS).await?;
        }
        first.close().await?;
        let pool = pool(&options, kind);
        migrations.run(&pool).await?;
        let checkpoints = match kind {
            Kind::Sqlite => Some(Checkpoints::begin(options.clone(), SQLITE_SETTINGS)),
            Kind::Postgres => None,
        };
        Ok(Self {
            options,
            pool: Arc::new(RwLock::new(pool)),
            kind,
            checkpoints,
            given_up: watch::Sender::new(0),
        })
    }

    /// Which program keeps it.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// For queries that change nothing.
    pub fn pool(&self) -> AnyPool {
        // A pool is whole at any moment.
        self.pool.read().clone()
    }

    /// A connection beside the pool, that goes when it is dropped. `settings` are made in its
    /// session, as far as the server knows them.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn connection(&self, settings: &[(&str, &str)]) -> sqlx::Result<AnyConnection> {
        let mut connection = AnyConnection::connect_with(&self.options).await?;
        prepare(&mut connection, self.kind).await?;
        if self.kind == Kind::Postgres {
            set(&mut connection, settings).await?;
        }
        Ok(connection)
    }

    /// Gives up all connections, and whatever waits for an answer on one of them
    /// ([`Self::unless_given_up`]): for when the server is no longer reached and nobody says so.
    /// What is asked next is asked over new ones.
    pub fn give_up(&self) {
        let new = pool(&self.options, self.kind);
        let old = std::mem::replace(&mut *self.pool.write(), new);
        self.given_up.send_modify(|times| *times += 1);
        tokio::spawn(async move {
            // Those that hang are closed when the system gives them up.
            let _ = timeout(CLOSE_TIMEOUT, old.close()).await;
        });
    }

    /// Does `work` with the database; none where connections are given up meanwhile: whether it was
    /// done is not known then.
    pub async fn unless_given_up<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut given_up = self.given_up.subscribe();
        tokio::select! {
            biased;
            done = work => Some(done),
            // The sender is here: this ends only when it says so.
            _ = given_up.changed() => None,
        }
    }

    /// Begins a transaction that changes something. In SQLite there is one at a time; in
    /// PostgreSQL, rows that it has read to change them are to be locked ([`Self::for_update`]).
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn write(&self) -> sqlx::Result<Transaction<'static, Any>> {
        if let Some(checkpoints) = &self.checkpoints {
            // What this one writes is taken into account by the next one.
            checkpoints.written();
        }
        match self.kind {
            Kind::Sqlite => self.pool().begin_with("BEGIN IMMEDIATE").await,
            Kind::Postgres => self.pool().begin().await,
        }
    }

    /// What ends a query for rows that the transaction goes on to change.
    pub fn for_update(&self) -> &'static str {
        match self.kind {
            Kind::Sqlite => "",
            Kind::Postgres => " FOR UPDATE",
        }
    }

    /// The same, leaving out those that another transaction has under way.
    pub fn for_update_skip_locked(&self) -> &'static str {
        match self.kind {
            Kind::Sqlite => "",
            Kind::Postgres => " FOR UPDATE SKIP LOCKED",
        }
    }

    /// Milliseconds since the Unix epoch, by the clock that all who share the store have in common.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn now(&self, connection: &mut AnyConnection) -> sqlx::Result<i64> {
        match self.kind {
            Kind::Sqlite => Ok(system_now()),
            Kind::Postgres => {
                let now =
                    "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT) AS now";
                sqlx::query(now).fetch_one(connection).await?.try_get("now")
            }
        }
    }

    /// Closes it, when all that was begun has ended.
    pub async fn close(&self) {
        // The last connection that is closed takes the log with it.
        if let Some(checkpoints) = &self.checkpoints {
            checkpoints.end().await;
        }
        self.pool().close().await;
    }
}

fn pool(options: &AnyConnectOptions, kind: Kind) -> AnyPool {
    AnyPoolOptions::new()
        .max_connections(MAX_CONNECTIONS)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        // A file does not go away; a server may.
        .test_before_acquire(kind == Kind::Postgres)
        .after_connect(move |connection, _| Box::pin(prepare(connection, kind)))
        .connect_lazy_with(options.clone())
}

/// What each connection begins with.
async fn prepare(connection: &mut AnyConnection, kind: Kind) -> sqlx::Result<()> {
    match kind {
        Kind::Sqlite => connection.execute(SQLITE_SETTINGS).await.map(drop),
        Kind::Postgres => set(connection, POSTGRES_SETTINGS).await,
    }
}

/// Makes settings of a session, as far as the server knows them.
async fn set(connection: &mut AnyConnection, settings: &[(&str, &str)]) -> sqlx::Result<()> {
    for (name, value) in settings {
        sqlx::query("SELECT set_config(name, $2, false) FROM pg_settings WHERE name = $1")
            .bind(*name)
            .bind(*value)
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}

/// The last of the next `count` numbers of a counter, in the table `counters (name, value)`.
/// Whoever else wants one waits until this transaction has ended, so numbers are seen in their
/// order.
///
/// # Errors
/// The store does not answer, or has no such counter.
pub async fn next_numbers(
    transaction: &mut Transaction<'static, Any>,
    counter: &'static str,
    count: i64,
) -> sqlx::Result<i64> {
    sqlx::query("UPDATE counters SET value = value + $1 WHERE name = $2")
        .bind(count)
        .bind(counter)
        .execute(&mut **transaction)
        .await?;
    let row = sqlx::query("SELECT value FROM counters WHERE name = $1")
        .bind(counter)
        .fetch_one(&mut **transaction)
        .await?;
    row.try_get("value")
}

/// Milliseconds since the Unix epoch, by this machine's clock.
pub fn system_now() -> i64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}
