//! Rights of callers, and the ends that they speak for.

use std::str::FromStr;
use std::sync::Arc;

use longhaul_api::authorized_keys::{AuthorizedKey, AuthorizedKeys, KeyRole};
use longhaul_api::key_gate::NamedCallers;
use longhaul_api::{Caller, KeyGate};
use longhaul_control_api::principals::{Permission, Resource, Right};
use longhaul_identity::Principal;
use longhaul_proto::PublicKey;

use super::{Authorities, Controller, read, set};
use crate::authority::{AccessDenied, OPERATOR, Subject, decide};
use crate::places::Speaker;
use crate::reservations::ReservationCaller;

impl Controller {
    /// Returns the caller as the owner of reservations, with its rights.
    #[must_use]
    pub fn asker(&self, caller: &Caller) -> ReservationCaller {
        let Some(key) = &caller.key else {
            return ReservationCaller {
                owner: OPERATOR.to_owned(),
                name: caller.user.clone(),
                rights: None,
            };
        };
        ReservationCaller {
            owner: key.to_string(),
            name: caller.user.clone(),
            rights: Some(
                self.authority(key)
                    .map(|(_, rights)| rights)
                    .unwrap_or_default(),
            ),
        }
    }

    /// Returns the operator as a caller, as over the controller's socket.
    #[must_use]
    pub fn operator(&self) -> Caller {
        Caller {
            user: self.0.settings.name.clone(),
            key: None,
        }
    }

    /// Returns the caller of a document that was signed with this key.
    #[must_use]
    pub fn caller(&self, key: PublicKey) -> Caller {
        let name = self.authority(&key).map(|(name, _)| name);
        Caller {
            user: name.unwrap_or_else(|| key.to_string()),
            key: Some(key),
        }
    }

    /// Returns the keys of all principals, for a gate.
    #[must_use]
    pub fn keys(&self) -> AuthorizedKeys {
        let authorities = read(&self.0.authorities);
        AuthorizedKeys::from_keys(authorities.by_key.iter().map(|(key, (name, _))| {
            let authorized = AuthorizedKey {
                name: name.clone(),
                // Rights are checked for each request.
                role: KeyRole::All,
            };
            (*key, authorized)
        }))
    }

    /// Keeps a gate up to date with the keys of all principals.
    pub fn serve_gate(&self, gate: Arc<KeyGate>) {
        gate.replace_keys(self.keys());
        set(&self.0.gate, Some(gate));
    }

    /// Checks that `caller` may do that. The operator, who calls over the socket, may do
    /// everything.
    ///
    /// # Errors
    /// The caller may not.
    pub fn allow(
        &self,
        caller: &Caller,
        resource: Resource,
        permission: Permission,
        subject: &Subject,
    ) -> Result<(), AccessDenied> {
        let Some(key) = &caller.key else {
            return Ok(());
        };
        // A principal may have lost its roles or names a moment ago.
        let rights = self.authority(key).map(|(_, rights)| rights);
        let rights = rights.unwrap_or_default();
        decide(&caller.user, &rights, resource, permission, subject)
    }

    /// Returns the name and rights of the holder of a key: its own, and those of its names and
    /// groups. `None` if it has none.
    fn authority(&self, key: &PublicKey) -> Option<(String, Vec<Right>)> {
        let authorities = read(&self.0.authorities);
        let own = authorities.by_key.get(key).cloned();
        if authorities.named.is_empty() {
            return own;
        }
        let principal = self.0.settings.identities.principal(key);
        match (own, authorities.rights_by_name(&principal)) {
            (own, None) => own,
            (Some((name, mut rights)), Some(further)) => {
                rights.extend(further);
                Some((name, rights))
            }
            (None, Some(rights)) => Some((name_of(&principal), rights)),
        }
    }

    /// Returns the admission of callers by names and groups, for a gate.
    #[must_use]
    pub fn named_callers(&self) -> NamedCallers {
        // The gate belongs to the controller.
        let state = Arc::downgrade(&self.0);
        NamedCallers {
            identities: Arc::clone(&self.0.settings.identities),
            authorize: Arc::new(move |principal: &Principal| {
                let authorities = read(&state.upgrade()?.authorities);
                authorities.rights_by_name(principal)?;
                Some(AuthorizedKey {
                    name: name_of(principal),
                    // Rights are checked for each request.
                    role: KeyRole::All,
                })
            }),
        }
    }

    /// Returns the ends that `caller` speaks for; `None` for the operator.
    #[must_use]
    pub fn speaker(&self, caller: &Caller) -> Option<Speaker> {
        let key = caller.key?;
        Some(self.places().speaker(&key, &caller.user))
    }

    /// Returns the map's name for an end that is given as a key, a name or an address. An unknown
    /// end is returned unchanged.
    #[must_use]
    pub fn canonical_name(&self, end: &str) -> String {
        if end.parse::<PublicKey>().is_ok() {
            return self.speaker_of(end).name().to_owned();
        }
        self.places().resolve_end(end).unwrap_or(end).to_owned()
    }

    /// Returns the ends that the holder of a key, given as text, speaks for.
    fn speaker_of(&self, reporter: &str) -> Speaker {
        let Ok(key) = PublicKey::from_str(reporter) else {
            return Speaker::default();
        };
        let authorities = read(&self.0.authorities);
        let name = authorities.by_key.get(&key).map_or("", |(name, _)| name);
        self.places().speaker(&key, name)
    }

    /// Returns the ends that reports of a key, given as text, may count for: see
    /// [`crate::places::MapIndex::reporter`].
    pub(super) fn reporter_of(&self, reporter: &str) -> Speaker {
        let Ok(key) = PublicKey::from_str(reporter) else {
            return Speaker::default();
        };
        let authorities = read(&self.0.authorities);
        let name = authorities.by_key.get(&key).map_or("", |(name, _)| name);
        self.places().reporter(&key, name)
    }
}

impl Authorities {
    /// Returns the rights of a principal by its names and groups; `None` if no entry lists it.
    fn rights_by_name(&self, principal: &Principal) -> Option<Vec<Right>> {
        let listing = self.named.iter();
        let mut listing = listing.filter(|(pattern, _)| pattern.matches(principal));
        let (_, first) = listing.next()?;
        let mut rights = first.clone();
        rights.extend(listing.flat_map(|(_, rights)| rights.clone()));
        Some(rights)
    }
}

/// Returns the name of a principal in logs and answers.
fn name_of(principal: &Principal) -> String {
    let name = principal.short_name().map(str::to_owned);
    name.unwrap_or_else(|| principal.key.to_string())
}
