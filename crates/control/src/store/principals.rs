//! Principals, and roles that an operator made.

use std::collections::BTreeMap;

use longhaul_api::database::next_numbers;
use longhaul_control_api::principals::{Principal, Right, Role};
use longhaul_identity::PrincipalPattern;
use sqlx::{Any, Row as _, Transaction};

use super::{ControllerStore, StoreError, from_stored};
use crate::authority::builtin_roles;

impl ControllerStore {
    /// Returns all principals, by name.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn principals(&self) -> Result<Vec<Principal>, StoreError> {
        let select = "SELECT p.key AS key, p.name AS name, p.created AS created, r.role AS role \
            FROM principals p LEFT JOIN principal_roles r ON r.key = p.key \
            ORDER BY p.name, p.key, r.role";
        let rows = sqlx::query(select).fetch_all(&self.database.pool()).await?;
        let mut found: Vec<Principal> = Vec::new();
        for row in rows {
            let key: String = row.try_get("key")?;
            let role: Option<String> = row.try_get("role")?;
            if found.last().is_none_or(|last| last.key != key) {
                found.push(Principal {
                    key,
                    name: row.try_get("name")?,
                    roles: Vec::new(),
                    created_ms: from_stored(row.try_get("created")?),
                });
            }
            if let Some(last) = found.last_mut() {
                last.roles.extend(role);
            }
        }
        Ok(found)
    }

    /// Returns all roles, by name.
    ///
    /// # Errors
    /// The store does not answer, or has a role that cannot be read.
    pub async fn roles(&self) -> Result<Vec<Role>, StoreError> {
        let mut roles = builtin_roles();
        let rows = sqlx::query("SELECT name, rights FROM roles ORDER BY name")
            .fetch_all(&self.database.pool())
            .await?;
        for row in rows {
            let name: String = row.try_get("name")?;
            let rights: String = row.try_get("rights")?;
            let rights: Vec<Right> =
                serde_json::from_str(&rights).map_err(|error| StoreError::Unreadable {
                    what: "role",
                    why: format!("{name}: {error}"),
                })?;
            roles.push(Role {
                name,
                rights,
                builtin: false,
            });
        }
        roles.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(roles)
    }

    /// Grants an existing role to a key, a name or a group, and names it. A new one without a name
    /// is named by the end of its text.
    ///
    /// # Errors
    /// The role does not exist, or the store does not answer.
    pub async fn grant(
        &self,
        who: &PrincipalPattern,
        role: &str,
        name: Option<&str>,
    ) -> Result<(), StoreError> {
        let roles = self.roles().await?;
        if !roles.iter().any(|known| known.name == role) {
            return Err(StoreError::Missing {
                what: "role",
                name: role.to_owned(),
            });
        }
        let key = who.to_string();
        let mut writing = self.write().await?;
        let now = self.database.now(&mut writing.transaction).await?;
        let insert = "INSERT INTO principals (key, name, created) VALUES ($1, $2, $3) \
            ON CONFLICT (key) DO NOTHING";
        sqlx::query(insert)
            .bind(&key)
            .bind(name.map_or_else(|| short(&key), str::to_owned))
            .bind(now)
            .execute(&mut *writing.transaction)
            .await?;
        if let Some(name) = name {
            sqlx::query("UPDATE principals SET name = $1 WHERE key = $2")
                .bind(name)
                .bind(&key)
                .execute(&mut *writing.transaction)
                .await?;
        }
        sqlx::query(
            "INSERT INTO principal_roles (key, role) VALUES ($1, $2) ON CONFLICT (key, role) \
            DO NOTHING",
        )
        .bind(&key)
        .bind(role)
        .execute(&mut *writing.transaction)
        .await?;
        next_numbers(&mut writing.transaction, "change", 1).await?;
        Ok(writing.commit().await?)
    }

    /// Removes a role from a principal, or all roles if none is given. A key without roles is no
    /// longer a principal.
    ///
    /// # Errors
    /// The principal does not have that role, or the store does not answer.
    pub async fn revoke(
        &self,
        who: &PrincipalPattern,
        role: Option<&str>,
    ) -> Result<(), StoreError> {
        let text = who.to_string();
        let mut writing = self.write().await?;
        let delete = "DELETE FROM principal_roles WHERE key = $1 AND ($2 = '' OR role = $2)";
        let gone = sqlx::query(delete)
            .bind(&text)
            .bind(role.unwrap_or_default())
            .execute(&mut *writing.transaction)
            .await?;
        if gone.rows_affected() == 0 {
            return Err(StoreError::Missing {
                what: if role.is_some() {
                    "such role of"
                } else {
                    "principal"
                },
                name: text,
            });
        }
        let none = "DELETE FROM principals WHERE key = $1 AND NOT EXISTS (SELECT 1 \
            FROM principal_roles WHERE key = $1)";
        sqlx::query(none)
            .bind(&text)
            .execute(&mut *writing.transaction)
            .await?;
        end_registrations(&mut writing.transaction).await?;
        next_numbers(&mut writing.transaction, "change", 1).await?;
        Ok(writing.commit().await?)
    }

    /// Creates a role, or changes one that an operator made. Returns true if it is new.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn put_role(&self, name: &str, rights: &[Right]) -> Result<bool, StoreError> {
        let rights = serde_json::to_string(rights).unwrap_or_default();
        let mut writing = self.write().await?;
        let gone = sqlx::query("DELETE FROM roles WHERE name = $1")
            .bind(name)
            .execute(&mut *writing.transaction)
            .await?;
        sqlx::query("INSERT INTO roles (name, rights) VALUES ($1, $2)")
            .bind(name)
            .bind(rights)
            .execute(&mut *writing.transaction)
            .await?;
        next_numbers(&mut writing.transaction, "change", 1).await?;
        writing.commit().await?;
        Ok(gone.rows_affected() == 0)
    }

    /// Removes a role that an operator made, also from the principals that have it.
    ///
    /// # Errors
    /// The role does not exist, or the store does not answer.
    pub async fn remove_role(&self, name: &str) -> Result<(), StoreError> {
        let mut writing = self.write().await?;
        let gone = sqlx::query("DELETE FROM roles WHERE name = $1")
            .bind(name)
            .execute(&mut *writing.transaction)
            .await?;
        if gone.rows_affected() == 0 {
            return Err(StoreError::Missing {
                what: "role that an operator made, named",
                name: name.to_owned(),
            });
        }
        for delete in [
            "DELETE FROM principal_roles WHERE role = $1",
            "DELETE FROM principals WHERE $1 <> '' AND NOT EXISTS (SELECT 1 FROM principal_roles r \
            WHERE r.key = principals.key)",
        ] {
            sqlx::query(delete)
                .bind(name)
                .execute(&mut *writing.transaction)
                .await?;
        }
        end_registrations(&mut writing.transaction).await?;
        next_numbers(&mut writing.transaction, "change", 1).await?;
        Ok(writing.commit().await?)
    }

    /// Returns the name and rights of each key, for decisions.
    ///
    /// # Errors
    /// The store does not answer, or has a role that cannot be read.
    pub async fn authorities(&self) -> Result<BTreeMap<String, (String, Vec<Right>)>, StoreError> {
        let roles: BTreeMap<String, Vec<Right>> = self
            .roles()
            .await?
            .into_iter()
            .map(|role| (role.name, role.rights))
            .collect();
        let principals = self.principals().await?;
        let with_rights = principals.into_iter().map(|principal| {
            let of_role = |role: &String| roles.get(role).cloned().unwrap_or_default();
            let rights = principal.roles.iter().flat_map(of_role).collect();
            (principal.key, (principal.name, rights))
        });
        Ok(with_rights.collect())
    }
}

/// Ends the registrations of keys that are no longer principals. Their names stay bound.
async fn end_registrations(transaction: &mut Transaction<'static, Any>) -> Result<(), StoreError> {
    let orphans = "DELETE FROM registrations WHERE NOT EXISTS (SELECT 1 FROM principals p \
        WHERE p.key = registrations.key)";
    sqlx::query(orphans).execute(&mut **transaction).await?;
    Ok(())
}

/// Returns the end of a key, enough to tell keys apart in a list.
fn short(key: &str) -> String {
    // Names and groups are short themselves.
    let begin = match key.starts_with("lhk1:") {
        true => key.len().saturating_sub(8),
        false => 0,
    };
    key.get(begin..).unwrap_or(key).to_owned()
}
