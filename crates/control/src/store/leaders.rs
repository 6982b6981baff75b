//! The lock that the one has who leads, at a server that several controllers share, and where that
//! one answers.

use longhaul_api::database::system_now;
use sqlx::{AnyConnection, Connection as _, Row as _};

use super::{Store, StoreError};
use crate::leader::{Leader, SERVER_LIMIT_MS};

/// Asks for the lock, and reads who had it last. The lock is the session's: it goes with the
/// connection. Each schema is a store of its own.
const ASK: &str = "SELECT pg_try_advisory_lock(hashtextextended('longhaul control leads ' || current_schema(), 0)) AS held, \
    (SELECT controller FROM leaders WHERE name = 'reservations') AS controller, \
    (SELECT url FROM leaders WHERE name = 'reservations') AS url";
/// Whether the session has a lock: it has asked for no other one. A pooler in between that shares
/// sessions would show here.
const IS_HELD: &str = "SELECT count(*) AS held FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid = pg_backend_pid()";
/// Takes the journal's next epoch, and says who leads.
const LEAD: &str = "WITH led AS (UPDATE counters SET value = value + 1 WHERE name = 'reservation-epoch' RETURNING value) \
    INSERT INTO leaders (name, controller, url, since) SELECT 'reservations', $1, $2, $3 FROM led \
    ON CONFLICT (name) DO UPDATE SET controller = excluded.controller, url = excluded.url, since = excluded.since \
    RETURNING (SELECT value FROM led) AS epoch";

/// A connection that asks for the lock, and has it as long as it lasts.
#[derive(Debug)]
pub struct Seat(AnyConnection);

impl Store {
    /// A connection that may come to lead.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn seat(&self) -> Result<Seat, StoreError> {
        let limit = SERVER_LIMIT_MS.to_string();
        let settings = [("idle_session_timeout", limit.as_str())];
        Ok(Seat(self.database.connection(&settings).await?))
    }

    /// Gives up all connections, and what waits for an answer over one of them.
    pub fn give_up(&self) {
        self.database.give_up();
    }

    /// Does `work`, unless connections are given up meanwhile: then it is not known whether it was
    /// done.
    ///
    /// # Errors
    /// [`StoreError::Silent`], or what `work` says.
    pub async fn unless_given_up<T>(
        &self,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let done = self.database.unless_given_up(work).await;
        done.unwrap_or(Err(StoreError::Silent))
    }
}

impl Seat {
    /// Asks for the lock: whether this one has it, and who had it last.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn ask(&mut self) -> Result<(bool, Option<Leader>), StoreError> {
        let row = sqlx::query(ASK).fetch_one(&mut self.0).await?;
        let name: Option<String> = row.try_get("controller")?;
        let url = row.try_get("url")?;
        Ok((row.try_get("held")?, name.map(|name| Leader { name, url })))
    }

    /// Whether it has it still.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn is_held(&mut self) -> Result<bool, StoreError> {
        let row = sqlx::query(IS_HELD).fetch_one(&mut self.0).await?;
        Ok(row.try_get::<i64, _>("held")? > 0)
    }

    /// Takes the epoch of the journal, and says where the one answers that has the lock. What
    /// others have written can be read then, and they write nothing more.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn lead(&mut self, leader: &Leader) -> Result<i64, StoreError> {
        let row = sqlx::query(LEAD)
            .bind(&leader.name)
            .bind(&leader.url)
            .bind(system_now())
            .fetch_one(&mut self.0)
            .await?;
        Ok(row.try_get("epoch")?)
    }

    /// Gives it back.
    ///
    /// # Errors
    /// The store does not answer: then the server takes it back.
    pub async fn leave(self) -> Result<(), StoreError> {
        Ok(self.0.close().await?)
    }
}
