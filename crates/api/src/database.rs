//! Database of a service: SQLite in a file, or PostgreSQL by URL. The same queries serve both, with
//! `$1` for bound values.

mod checkpoints;

use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::RwLock;
use sqlx::any::{AnyConnectOptions, AnyPoolOptions};
use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::{Any, AnyConnection, AnyPool, Connection, Executor, Row, SqlStr, Transaction};
use tokio::sync::watch;
use tokio::time::timeout;

use checkpoints::Checkpoints;

/// Maximum number of connections. A service runs few queries, and each connection costs memory.
const MAX_CONNECTIONS: u32 = 4;
/// Maximum wait for a connection and, in SQLite, for another writer.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);
/// Settings of each SQLite connection: readers run beside a writer, and a commit is on disk. The
/// write-ahead log is checkpointed by [`Checkpoints`]. Only if that falls behind by this many pages
/// (of 4 KiB) does the committing connection do it.
const SQLITE_SETTINGS: &str = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; \
    PRAGMA busy_timeout = 10000; PRAGMA foreign_keys = ON; PRAGMA wal_autocheckpoint = 8192; \
    PRAGMA cache_size = -2048";

/// Session settings with which a PostgreSQL server detects a client that vanished. Its locks and
/// its connection are free again within seconds. A setting that the server does not know is
/// skipped.
const POSTGRES_SETTINGS: &[(&str, &str)] = &[
    ("idle_in_transaction_session_timeout", "5000"),
    ("tcp_keepalives_idle", "3"),
    ("tcp_keepalives_interval", "1"),
    ("tcp_keepalives_count", "4"),
    ("tcp_user_timeout", "7000"),
];
/// Maximum time to close abandoned connections.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(30);

/// Database system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatabaseKind {
    /// SQLite: a file that one service uses alone.
    Sqlite,
    /// PostgreSQL: a server that several services share.
    Postgres,
}

/// The database cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The URL is not one of PostgreSQL.
    #[error(
        "the store's URL does not begin with postgres://: correct it, or leave it out to keep the \
         store in a file"
    )]
    Url,
    /// The path contains characters that cannot be part of its URL. Set `LONGHAUL_STATE` to another
    /// directory.
    #[error("the store's path, {0}, is not UTF-8")]
    Path(String),
    /// The database does not answer, or does not belong to this service. Check the file's
    /// permissions, or the URL and the account of PostgreSQL.
    #[error("cannot open the store: {0}")]
    Connect(#[from] sqlx::Error),
    /// The database was created by a newer release or by another program.
    #[error("cannot convert the store to this release's format: {0}")]
    Migrate(#[from] sqlx::migrate::MigrateError),
}

/// Creates a [`Migrator`] of files in the crate's folder `migrations`: `NUMBER_DESCRIPTION.sql`.
///
/// `sqlx::migrate!` does the same, but compiles SQLite, the TLS library and both drivers a second
/// time, for the compiler.
#[macro_export]
macro_rules! migrations {
    ($($file:literal),+ $(,)?) => {
        $crate::database::migrator(&[$((
            $file,
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/migrations/", $file)),
        )),+])
    };
}

/// Creates the migrator of these files, each with its statements. Use [`crate::migrations!`].
#[doc(hidden)]
#[must_use]
pub fn migrator(files: &[(&'static str, &'static str)]) -> Migrator {
    let migrations = files.iter().copied().filter_map(|(file, statements)| {
        let (number, description) = file.strip_suffix(".sql")?.split_once('_')?;
        let statements = SqlStr::from_static(statements);
        let has_no_transaction = false;
        Some(Migration::new(
            number.parse().ok()?,
            description.replace('_', " ").into(),
            MigrationType::Simple,
            statements,
            has_no_transaction,
        ))
    });
    Migrator::with_migrations(migrations.collect())
}

/// Pool of connections to a database.
#[derive(Debug, Clone)]
pub struct Database {
    options: AnyConnectOptions,
    pool: Arc<RwLock<AnyPool>>,
    kind: DatabaseKind,
    /// Present for SQLite only.
    checkpoints: Option<Checkpoints>,
    /// Number of times the connections were abandoned.
    given_up: watch::Sender<u64>,
}

impl Database {
    /// Opens the SQLite database in a file, which is created if it does not exist.
    ///
    /// # Errors
    /// The database cannot be opened, or `migrations` fail.
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
            DatabaseKind::Sqlite,
            migrations,
        )
        .await
    }

    /// Opens the PostgreSQL database at a URL: `postgres://user@host/name`.
    ///
    /// # Errors
    /// The database cannot be reached, or `migrations` fail.
    pub async fn postgres(url: &str, migrations: &Migrator) -> Result<Self, OpenError> {
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(OpenError::Url);
        }
        Self::open(url, DatabaseKind::Postgres, migrations).await
    }

    async fn open(url: &str, kind: DatabaseKind, migrations: &Migrator) -> Result<Self, OpenError> {
        sqlx::any::install_default_drivers();
        let options = AnyConnectOptions::from_str(url)?;
        // A pool would retry until its timeout, and not report the cause.
        let mut first = AnyConnection::connect_with(&options).await?;
        if kind == DatabaseKind::Sqlite {
            first.execute(SQLITE_SETTINGS).await?;
        }
        first.close().await?;
        let pool = pool(&options, kind);
        migrations.run(&pool).await?;
        let checkpoints = match kind {
            DatabaseKind::Sqlite => Some(Checkpoints::start(options.clone(), SQLITE_SETTINGS)),
            DatabaseKind::Postgres => None,
        };
        Ok(Self {
            options,
            pool: Arc::new(RwLock::new(pool)),
            kind,
            checkpoints,
            given_up: watch::Sender::new(0),
        })
    }

    /// Returns the database system.
    pub fn kind(&self) -> DatabaseKind {
        self.kind
    }

    /// Returns the pool, for queries that change nothing.
    pub fn pool(&self) -> AnyPool {
        self.pool.read().clone()
    }

    /// Opens a connection outside the pool, which is closed when it is dropped. Applies `settings`
    /// to its session, as far as the server knows them.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn connection(&self, settings: &[(&str, &str)]) -> sqlx::Result<AnyConnection> {
        let mut connection = AnyConnection::connect_with(&self.options).await?;
        prepare_connection(&mut connection, self.kind).await?;
        if self.kind == DatabaseKind::Postgres {
            apply_settings(&mut connection, settings).await?;
        }
        Ok(connection)
    }

    /// Abandons all connections and cancels the work that waits for them
    /// ([`Self::run_unless_abandoned`]). Used when the server can no longer be reached and does not
    /// report it. Later queries use new connections.
    pub fn abandon_connections(&self) {
        let new = pool(&self.options, self.kind);
        let old = std::mem::replace(&mut *self.pool.write(), new);
        self.given_up.send_modify(|times| *times += 1);
        tokio::spawn(async move {
            // Connections that hang are closed when the operating system gives up on them.
            let _ = timeout(CLOSE_TIMEOUT, old.close()).await;
        });
    }

    /// Runs `work`. Returns `None` if connections are abandoned meanwhile; the work may then have
    /// been done or not.
    pub async fn run_unless_abandoned<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut given_up = self.given_up.subscribe();
        tokio::select! {
            biased;
            done = work => Some(done),
            // The sender lives in `self`, so this completes only on a change.
            _ = given_up.changed() => None,
        }
    }

    /// Begins a transaction that writes. In SQLite there is one at a time. In PostgreSQL, rows that
    /// are read in order to change them must be locked ([`Self::for_update`]).
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn begin_write(&self) -> sqlx::Result<Transaction<'static, Any>> {
        if let Some(checkpoints) = &self.checkpoints {
            // The next checkpoint includes what this transaction writes.
            checkpoints.notify_written();
        }
        match self.kind {
            DatabaseKind::Sqlite => self.pool().begin_with("BEGIN IMMEDIATE").await,
            DatabaseKind::Postgres => self.pool().begin().await,
        }
    }

    /// Returns the suffix of a query that selects rows to be changed in the same transaction.
    pub fn for_update(&self) -> &'static str {
        match self.kind {
            DatabaseKind::Sqlite => "",
            DatabaseKind::Postgres => " FOR UPDATE",
        }
    }

    /// Like [`Self::for_update`], but skips rows that another transaction has locked.
    pub fn for_update_skip_locked(&self) -> &'static str {
        match self.kind {
            DatabaseKind::Sqlite => "",
            DatabaseKind::Postgres => " FOR UPDATE SKIP LOCKED",
        }
    }

    /// Returns milliseconds since the Unix epoch, by a clock that all users of the database share.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn now(&self, connection: &mut AnyConnection) -> sqlx::Result<i64> {
        match self.kind {
            DatabaseKind::Sqlite => Ok(system_now()),
            DatabaseKind::Postgres => {
                let now =
                    "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT) AS now";
                sqlx::query(now).fetch_one(connection).await?.try_get("now")
            }
        }
    }

    /// Closes the database once all queries have ended.
    pub async fn close(&self) {
        // The last connection to close removes the write-ahead log.
        if let Some(checkpoints) = &self.checkpoints {
            checkpoints.stop().await;
        }
        self.pool().close().await;
    }
}

fn pool(options: &AnyConnectOptions, kind: DatabaseKind) -> AnyPool {
    AnyPoolOptions::new()
        .max_connections(MAX_CONNECTIONS)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        // A file does not disappear; a server may.
        .test_before_acquire(kind == DatabaseKind::Postgres)
        .after_connect(move |connection, _| Box::pin(prepare_connection(connection, kind)))
        .connect_lazy_with(options.clone())
}

/// Applies the settings of a new connection.
async fn prepare_connection(
    connection: &mut AnyConnection,
    kind: DatabaseKind,
) -> sqlx::Result<()> {
    match kind {
        DatabaseKind::Sqlite => connection.execute(SQLITE_SETTINGS).await.map(drop),
        DatabaseKind::Postgres => apply_settings(connection, POSTGRES_SETTINGS).await,
    }
}

/// Applies session settings, as far as the server knows them.
async fn apply_settings(
    connection: &mut AnyConnection,
    settings: &[(&str, &str)],
) -> sqlx::Result<()> {
    for (name, value) in settings {
        sqlx::query("SELECT set_config(name, $2, false) FROM pg_settings WHERE name = $1")
            .bind(*name)
            .bind(*value)
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}

/// Reserves the next `count` numbers of a counter in the table `counters (name, value)`, and
/// returns the last. Other transactions that want numbers wait until this one has ended, so numbers
/// become visible in order.
///
/// # Errors
/// The database does not answer, or has no such counter.
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

/// Returns milliseconds since the Unix epoch, by this machine's clock.
pub fn system_now() -> i64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}
