//! Lock of the leader, at a server that several controllers share, and the leader's address.

use longhaul_api::database::system_now;
use sqlx::{AnyConnection, Connection as _, Row as _};

use super::{ControllerStore, StoreError};
use crate::leader::{Leader, SERVER_LOCK_TIMEOUT_MS};

/// Requests the lock, and reads its last holder. The lock belongs to the session, so it is released
/// with the connection. Each schema is a store of its own.
const REQUEST_LOCK: &str = "SELECT pg_try_advisory_lock(hashtextextended('longhaul control leads ' || \
    current_schema(), 0)) AS held, \
    (SELECT controller FROM leaders WHERE name = 'reservations') AS controller, \
    (SELECT url FROM leaders WHERE name = 'reservations') AS url";
/// Counts the locks of the session, which requests no other one. This also detects a pooler that
/// shares sessions.
const COUNT_LOCKS: &str = "SELECT count(*) AS held FROM pg_locks WHERE locktype = 'advisory' \
    AND granted AND pid = pg_backend_pid()";
/// Takes the journal's next epoch, and records the leader.
const TAKE_EPOCH: &str = "WITH led AS (UPDATE counters SET value = value + 1 \
    WHERE name = 'reservation-epoch' RETURNING value) \
    INSERT INTO leaders (name, controller, url, since) SELECT 'reservations', $1, $2, $3 FROM led \
    ON CONFLICT (name) DO UPDATE SET controller = excluded.controller, url = excluded.url, \
    since = excluded.since \
    RETURNING (SELECT value FROM led) AS epoch";

/// Connection that requests the lock, and holds it while it lasts.
#[derive(Debug)]
pub struct LockSession(AnyConnection);

impl ControllerStore {
    /// Opens a connection for the lock.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn seat(&self) -> Result<LockSession, StoreError> {
        let limit = SERVER_LOCK_TIMEOUT_MS.to_string();
        let settings = [("idle_session_timeout", limit.as_str())];
        Ok(LockSession(self.database.connection(&settings).await?))
    }

    /// Abandons all connections, and the work that waits for answers over them.
    pub fn give_up(&self) {
        self.database.abandon_connections();
    }

    /// Runs `work` until connections are abandoned. The work may then have been done or not.
    ///
    /// # Errors
    /// [`StoreError::Silent`], or the error of `work`.
    pub async fn unless_given_up<T>(
        &self,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let done = self.database.run_unless_abandoned(work).await;
        done.unwrap_or(Err(StoreError::Silent))
    }
}

impl LockSession {
    /// Requests the lock. Returns true if this connection holds it, and the last recorded leader.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn ask(&mut self) -> Result<(bool, Option<Leader>), StoreError> {
        let row = sqlx::query(REQUEST_LOCK).fetch_one(&mut self.0).await?;
        let name: Option<String> = row.try_get("controller")?;
        let url = row.try_get("url")?;
        Ok((row.try_get("held")?, name.map(|name| Leader { name, url })))
    }

    /// Returns true if this connection still holds the lock.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn is_held(&mut self) -> Result<bool, StoreError> {
        let row = sqlx::query(COUNT_LOCKS).fetch_one(&mut self.0).await?;
        Ok(row.try_get::<i64, _>("held")? > 0)
    }

    /// Takes the epoch of the journal, and records the leader's address. Earlier writers can write
    /// nothing more, and all they have written can be read.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn lead(&mut self, leader: &Leader) -> Result<i64, StoreError> {
        let row = sqlx::query(TAKE_EPOCH)
            .bind(&leader.name)
            .bind(&leader.url)
            .bind(system_now())
            .fetch_one(&mut self.0)
            .await?;
        Ok(row.try_get("epoch")?)
    }

    /// Releases the lock.
    ///
    /// # Errors
    /// The store does not answer; then the server releases the lock.
    pub async fn leave(self) -> Result<(), StoreError> {
        Ok(self.0.close().await?)
    }
}
