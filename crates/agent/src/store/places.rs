//! Places that users have named.

use sqlx::Row as _;

use super::{Store, StoreError};
use crate::places::Place;

impl Store {
    /// Returns the places of a user, by name.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn places(&self, owner: &str) -> Result<Vec<Place>, StoreError> {
        let rows = sqlx::query("SELECT name, root FROM places WHERE owner = $1 ORDER BY name")
            .bind(owner)
            .fetch_all(&self.database.pool())
            .await?;
        let places = rows.iter().map(|row| {
            Ok(Place {
                name: row.try_get("name")?,
                root: row.try_get("root")?,
                builtin: false,
            })
        });
        places.collect()
    }

    /// Creates a place, or changes the root of one.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn put_place(&self, owner: &str, place: &Place) -> Result<(), StoreError> {
        let put = "INSERT INTO places (owner, name, root) VALUES ($1, $2, $3) \
            ON CONFLICT (owner, name) DO UPDATE SET root = excluded.root";
        sqlx::query(put)
            .bind(owner)
            .bind(&place.name)
            .bind(&place.root)
            .execute(&self.database.pool())
            .await?;
        Ok(())
    }

    /// Removes a place. Returns true if it existed.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn remove_place(&self, owner: &str, name: &str) -> Result<bool, StoreError> {
        let removed = sqlx::query("DELETE FROM places WHERE owner = $1 AND name = $2")
            .bind(owner)
            .bind(name)
            .execute(&self.database.pool())
            .await?;
        Ok(removed.rows_affected() > 0)
    }
}
