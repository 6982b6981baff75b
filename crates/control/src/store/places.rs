//! The operator's map, and the latest registrations of depots.

use longhaul_api::database::next_numbers;
use longhaul_map::{Map, Registration};
use longhaul_proto::PublicKey;
use serde::de::DeserializeOwned;
use sqlx::Row as _;

use super::{Store, StoreError, names};

impl Store {
    /// Returns the operator's map, which is empty if none is stored.
    ///
    /// # Errors
    /// The store does not answer, or its map cannot be read.
    pub async fn map(&self) -> Result<Map, StoreError> {
        let row = sqlx::query("SELECT content FROM maps WHERE name = 'map'")
            .fetch_optional(&self.database.pool())
            .await?;
        match row {
            None => Ok(Map::default()),
            Some(row) => read("map", row.try_get("content")?),
        }
    }

    /// Replaces the map.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn put_map(&self, map: &Map) -> Result<(), StoreError> {
        let content = serde_json::to_string(map).unwrap_or_default();
        let mut writing = self.write().await?;
        let insert = "INSERT INTO maps (name, content) VALUES ('map', $1) ON CONFLICT (name) \
            DO UPDATE SET content = excluded.content";
        sqlx::query(insert)
            .bind(content)
            .execute(&mut *writing.transaction)
            .await?;
        next_numbers(&mut writing.transaction, "change", 1).await?;
        Ok(writing.commit().await?)
    }

    /// Returns the latest registration of each depot.
    ///
    /// # Errors
    /// The store does not answer, or has a registration that cannot be read.
    pub async fn registrations(&self) -> Result<Vec<Registration>, StoreError> {
        let rows = sqlx::query("SELECT content FROM registrations ORDER BY key")
            .fetch_all(&self.database.pool())
            .await?;
        rows.iter()
            .map(|row| read("registration", row.try_get("content")?))
            .collect()
    }

    /// Stores a registration, replacing the depot's previous one. `name` is bound to its key, if it
    /// belongs to none; `None` if the operator's map names the depot.
    ///
    /// # Errors
    /// The store does not answer, or the key has registered too many names.
    pub async fn register(
        &self,
        registration: &Registration,
        name: Option<&str>,
    ) -> Result<(), StoreError> {
        let content = serde_json::to_string(registration).unwrap_or_default();
        let mut writing = self.write().await?;
        let now = self.database.now(&mut writing.transaction).await?;
        if let Some(name) = name {
            names::bind(&mut writing.transaction, name, &registration.key, now).await?;
        }
        let insert = "INSERT INTO registrations (key, content) VALUES ($1, $2) ON CONFLICT (key) \
            DO UPDATE SET content = excluded.content";
        sqlx::query(insert)
            .bind(registration.key.to_string())
            .bind(content)
            .execute(&mut *writing.transaction)
            .await?;
        next_numbers(&mut writing.transaction, "registration", 1).await?;
        Ok(writing.commit().await?)
    }

    /// Removes the registration of a depot.
    ///
    /// # Errors
    /// There is no registration, or the store does not answer.
    pub async fn unregister(&self, key: &PublicKey) -> Result<(), StoreError> {
        let mut writing = self.write().await?;
        let gone = sqlx::query("DELETE FROM registrations WHERE key = $1")
            .bind(key.to_string())
            .execute(&mut *writing.transaction)
            .await?;
        if gone.rows_affected() == 0 {
            return Err(StoreError::Missing {
                what: "registration of",
                name: key.to_string(),
            });
        }
        next_numbers(&mut writing.transaction, "registration", 1).await?;
        Ok(writing.commit().await?)
    }
}

fn read<T: DeserializeOwned>(what: &'static str, content: String) -> Result<T, StoreError> {
    serde_json::from_str(&content).map_err(|error| StoreError::Unreadable {
        what,
        why: error.to_string(),
    })
}
