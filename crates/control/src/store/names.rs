//! Names of depots, and the keys that own them.
//!
//! A name stays with its key when its registration ends. So nobody can take over what the name
//! stands for elsewhere: measurements, reservations, routes. Only the operator can release it.

use longhaul_api::database::next_numbers;
use longhaul_control_api::map::DepotName;
use longhaul_map::{MAX_NAMES_OF_KEY, Registration, folded};
use longhaul_proto::PublicKey;
use sqlx::{Any, Row as _, Transaction};

use super::{Store, StoreError, loaded};

impl Store {
    /// Returns all names that depots registered, in order.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn depot_names(&self) -> Result<Vec<DepotName>, StoreError> {
        let rows = sqlx::query("SELECT shown, key, since FROM depot_names ORDER BY name")
            .fetch_all(&self.database.pool())
            .await?;
        let name = |row: sqlx::any::AnyRow| {
            Ok(DepotName {
                name: row.try_get("shown")?,
                key: row.try_get("key")?,
                since_ms: loaded(row.try_get("since")?),
            })
        };
        rows.into_iter().map(name).collect()
    }

    /// Binds the names of registrations that were stored before names were bound, the earliest
    /// first. Names for which `may_bind` returns false are left out.
    ///
    /// # Errors
    /// The store does not answer, or has a registration that cannot be read.
    pub async fn bind_registered_names(
        &self,
        may_bind: impl Fn(&Registration) -> bool,
    ) -> Result<(), StoreError> {
        let mut registrations = self.registrations().await?;
        registrations.sort_by(|one, other| one.sent_at.total_cmp(&other.sent_at));
        let known: Vec<DepotName> = self.depot_names().await?;
        let is_bound = |registration: &Registration| {
            let name = folded(&registration.name);
            known.iter().any(|known| folded(&known.name) == name)
        };
        registrations.retain(|registration| may_bind(registration) && !is_bound(registration));
        if registrations.is_empty() {
            return Ok(());
        }
        let mut writing = self.write().await?;
        let now = self.database.now(&mut writing.transaction).await?;
        for registration in &registrations {
            let (name, key) = (&registration.name, &registration.key);
            match bind(&mut writing.transaction, name, key, now).await {
                Ok(()) | Err(StoreError::TooManyNames { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        next_numbers(&mut writing.transaction, "registration", 1).await?;
        Ok(writing.commit().await?)
    }

    /// Releases a name, and ends the registration under it.
    ///
    /// # Errors
    /// The name belongs to no key, or the store does not answer.
    pub async fn release_depot_name(&self, name: &str) -> Result<(), StoreError> {
        let missing = || StoreError::Missing {
            what: "name of a depot that a key registered:",
            name: name.to_owned(),
        };
        let mut writing = self.write().await?;
        let row = sqlx::query("SELECT key FROM depot_names WHERE name = $1")
            .bind(folded(name))
            .fetch_optional(&mut *writing.transaction)
            .await?;
        let key: String = row.ok_or_else(missing)?.try_get("key")?;
        sqlx::query("DELETE FROM depot_names WHERE name = $1")
            .bind(folded(name))
            .execute(&mut *writing.transaction)
            .await?;
        sqlx::query("DELETE FROM registrations WHERE key = $1")
            .bind(key)
            .execute(&mut *writing.transaction)
            .await?;
        next_numbers(&mut writing.transaction, "registration", 1).await?;
        Ok(writing.commit().await?)
    }
}

/// Binds a name to a key, if it belongs to none.
pub(super) async fn bind(
    transaction: &mut Transaction<'static, Any>,
    shown: &str,
    key: &PublicKey,
    now: i64,
) -> Result<(), StoreError> {
    let (name, key) = (folded(shown), key.to_string());
    let known = sqlx::query("SELECT key FROM depot_names WHERE name = $1")
        .bind(&name)
        .fetch_optional(&mut **transaction)
        .await?;
    if known.is_some() {
        return Ok(());
    }
    let row = sqlx::query("SELECT COUNT(*) AS number FROM depot_names WHERE key = $1")
        .bind(&key)
        .fetch_one(&mut **transaction)
        .await?;
    let number: i64 = row.try_get("number")?;
    if usize::try_from(number).unwrap_or(usize::MAX) >= MAX_NAMES_OF_KEY {
        return Err(StoreError::TooManyNames { key });
    }
    // Another controller on the same store may have been first.
    let insert = "INSERT INTO depot_names (name, shown, key, since) VALUES ($1, $2, $3, $4) \
        ON CONFLICT (name) DO NOTHING";
    sqlx::query(insert)
        .bind(name)
        .bind(shown)
        .bind(key)
        .bind(now)
        .execute(&mut **transaction)
        .await?;
    Ok(())
}
