//! Rights of callers, and the ends that they speak for.

use std::str::FromStr;
use std::sync::Arc;

use longhaul_api::authorized_keys::{Authorized, AuthorizedKeys, Role as KeyRole};
use longhaul_api::{Caller, KeyGate};
use longhaul_control_api::principals::{Permission, Resource};
use longhaul_proto::PublicKey;

use super::{Controller, read, set};
use crate::authority::{OPERATOR, Refused, Subject, decide};
use crate::places::Speaker;
use crate::reservations::Asker;

impl Controller {
    /// Returns the caller as the owner of reservations, with its rights.
    #[must_use]
    pub fn asker(&self, caller: &Caller) -> Asker {
        let Some(key) = &caller.key else {
            return Asker {
                owner: OPERATOR.to_owned(),
                name: caller.user.clone(),
                rights: None,
            };
        };
        let authorities = read(&self.0.authorities);
        let rights = authorities
            .by_key
            .get(key)
            .map(|(_, rights)| rights.clone());
        Asker {
            owner: key.to_string(),
            name: caller.user.clone(),
            rights: Some(rights.unwrap_or_default()),
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
        let authorities = read(&self.0.authorities);
        let name = authorities.by_key.get(&key).map(|(name, _)| name.clone());
        Caller {
            user: name.unwrap_or_else(|| key.to_string()),
            key: Some(key),
        }
    }

    /// Returns the keys of all principals, for a gate.
    #[must_use]
    pub fn keys(&self) -> AuthorizedKeys {
        let authorities = read(&self.0.authorities);
        AuthorizedKeys::of(authorities.by_key.iter().map(|(key, (name, _))| {
            let authorized = Authorized {
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
    ) -> Result<(), Refused> {
        let Some(key) = &caller.key else {
            return Ok(());
        };
        let authorities = read(&self.0.authorities);
        // A principal may have lost its roles a moment ago.
        let rights = authorities
            .by_key
            .get(key)
            .map_or(&[][..], |(_, rights)| rights);
        decide(&caller.user, rights, resource, permission, subject)
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
    pub fn called(&self, end: &str) -> String {
        if end.parse::<PublicKey>().is_ok() {
            return self.speaker_of(end).name().to_owned();
        }
        self.places().meant(end).unwrap_or(end).to_owned()
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
    /// [`crate::places::Places::reporter`].
    pub(super) fn reporter_of(&self, reporter: &str) -> Speaker {
        let Ok(key) = PublicKey::from_str(reporter) else {
            return Speaker::default();
        };
        let authorities = read(&self.0.authorities);
        let name = authorities.by_key.get(&key).map_or("", |(name, _)| name);
        self.places().reporter(&key, name)
    }
}
