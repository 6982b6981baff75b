//! Who may do what, and for whom.

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
    /// Whoever asks for or after reservations.
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

    /// The operator, as if asking over the controller's socket.
    #[must_use]
    pub fn operator(&self) -> Caller {
        Caller {
            user: self.0.settings.name.clone(),
            key: None,
        }
    }

    /// Whoever has signed a document with this key.
    #[must_use]
    pub fn caller(&self, key: PublicKey) -> Caller {
        let authorities = read(&self.0.authorities);
        let name = authorities.by_key.get(&key).map(|(name, _)| name.clone());
        Caller {
            user: name.unwrap_or_else(|| key.to_string()),
            key: Some(key),
        }
    }

    /// The keys that may ask at all, for a gate.
    #[must_use]
    pub fn keys(&self) -> AuthorizedKeys {
        let authorities = read(&self.0.authorities);
        AuthorizedKeys::of(authorities.by_key.iter().map(|(key, (name, _))| {
            let authorized = Authorized {
                name: name.clone(),
                // What it may is decided for each thing that is asked.
                role: KeyRole::All,
            };
            (*key, authorized)
        }))
    }

    /// Has a gate let in the keys that may ask, from now on.
    pub fn serve_gate(&self, gate: Arc<KeyGate>) {
        gate.replace_keys(self.keys());
        set(&self.0.gate, Some(gate));
    }

    /// Decides whether `caller` may do that. Whoever runs the controller, and asks over its socket,
    /// may do all.
    ///
    /// # Errors
    /// It may not.
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
        // Whom a role was taken from in this moment has none.
        let rights = authorities
            .by_key
            .get(key)
            .map_or(&[][..], |(_, rights)| rights);
        decide(&caller.user, rights, resource, permission, subject)
    }

    /// For which ends `caller` speaks; none of whoever runs the controller.
    #[must_use]
    pub fn speaker(&self, caller: &Caller) -> Option<Speaker> {
        let key = caller.key?;
        Some(self.places().speaker(&key, &caller.user))
    }

    /// What an end is called: the depot or the host of the map that a key, a name or an address
    /// stands for, and itself where there is none.
    #[must_use]
    pub fn called(&self, end: &str) -> String {
        if end.parse::<PublicKey>().is_ok() {
            return self.speaker_of(end).name().to_owned();
        }
        self.places().meant(end).unwrap_or(end).to_owned()
    }

    /// For which ends whoever has that key as text speaks.
    fn speaker_of(&self, reporter: &str) -> Speaker {
        let Ok(key) = PublicKey::from_str(reporter) else {
            return Speaker::default();
        };
        let authorities = read(&self.0.authorities);
        let name = authorities.by_key.get(&key).map_or("", |(name, _)| name);
        self.places().speaker(&key, name)
    }

    /// Ends that reports of a key, given as text, may count for: see
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
