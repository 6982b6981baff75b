//! Connections with other domains. They are written by the leader only, in the same way as the
//! journal of reservations: a controller that another one has replaced can store nothing more.

use longhaul_domains::connection::Connection;
use sqlx::Row as _;

use super::reservations::EPOCH;
use super::{ControllerStore, StoreError};

/// Change of a stored connection.
#[derive(Debug, Clone)]
pub enum ConnectionChange {
    /// It is stored.
    Put(Box<Connection>),
    /// It is forgotten.
    Remove(String),
}

impl ControllerStore {
    /// Returns all stored connections.
    ///
    /// # Errors
    /// The store does not answer, or has a connection that cannot be read.
    pub async fn domain_connections(&self) -> Result<Vec<Connection>, StoreError> {
        let rows = sqlx::query("SELECT id, content FROM domain_connections ORDER BY id")
            .fetch_all(&self.database.pool())
            .await?;
        let read = |row: &sqlx::any::AnyRow| {
            let (id, content): (String, String) = (row.try_get("id")?, row.try_get("content")?);
            serde_json::from_str(&content).map_err(|error| StoreError::Unreadable {
                what: "connection with another domain",
                why: format!("{id}: {error}"),
            })
        };
        rows.iter().map(read).collect()
    }

    /// Stores changes of connections: all of them, or none. `epoch` is that of the leader among
    /// controllers that share the store.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] if there is a newer leader, or the store does not answer.
    pub async fn change_domain_connections(
        &self,
        changes: &[ConnectionChange],
        epoch: Option<i64>,
    ) -> Result<(), StoreError> {
        let mut writing = self.write().await?;
        if let Some(epoch) = epoch {
            let select = format!(
                "SELECT value FROM counters WHERE name = $1{}",
                self.database.for_update()
            );
            let newest: i64 = sqlx::query(sqlx::AssertSqlSafe(select))
                .bind(EPOCH)
                .fetch_one(&mut *writing.transaction)
                .await?
                .try_get("value")?;
            if newest != epoch {
                return Err(StoreError::Fenced);
            }
        }
        for change in changes {
            match change {
                ConnectionChange::Put(connection) => {
                    let content = serde_json::to_string(connection).map_err(|error| {
                        StoreError::Unreadable {
                            what: "connection with another domain",
                            why: error.to_string(),
                        }
                    })?;
                    sqlx::query(
                        "INSERT INTO domain_connections (id, content) VALUES ($1, $2) \
                        ON CONFLICT (id) DO UPDATE SET content = excluded.content",
                    )
                    .bind(connection.id.as_str())
                    .bind(content)
                    .execute(&mut *writing.transaction)
                    .await?;
                }
                ConnectionChange::Remove(id) => {
                    sqlx::query("DELETE FROM domain_connections WHERE id = $1")
                        .bind(id)
                        .execute(&mut *writing.transaction)
                        .await?;
                }
            }
        }
        Ok(writing.commit().await?)
    }
}
