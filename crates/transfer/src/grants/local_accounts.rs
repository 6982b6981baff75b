//! Local accounts of a server: the users as whom it works for principals, and their settings.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use longhaul_identity::{Principal, PrincipalPattern};
use longhaul_proto::PublicKey;
use quantities::ByteCount;
use serde::Deserialize;

use crate::path::RelPath;
use crate::store::quota::QuotaLimits;

/// Maximum length of the name of an account, in bytes.
const MAX_NAME_BYTES: usize = 64;
/// Permission bits that an umask may have.
const PERMISSION_BITS: u32 = 0o777;
/// Umask of an account that has none.
const DEFAULT_UMASK: u32 = 0o022;

/// A local account: a user of the server's machine, as whom the server works for some principals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalAccount {
    /// Name of the user.
    pub name: String,
    /// Permission bits that new files and directories do not get.
    pub umask: u32,
    /// Limits of what the account may have.
    pub quota: QuotaLimits,
    /// Directory beneath the server's root that its keys see as `/`.
    pub root: RelPath,
}

/// An account as the file of grants has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileAccount {
    pub name: toml::Spanned<String>,
    umask: Option<String>,
    quota: Option<String>,
    files: Option<u64>,
    root: Option<String>,
}

/// The accounts of all principals.
#[derive(Debug, Clone, Default)]
pub(super) struct LocalAccounts {
    all: BTreeMap<String, Arc<LocalAccount>>,
    /// Names of the accounts of keys.
    of_keys: HashMap<PublicKey, String>,
    /// Names of the accounts of the names of principals.
    of_names: BTreeMap<String, String>,
}

impl LocalAccounts {
    /// Adds an account of the file. Its detail says what is wrong with it.
    pub(super) fn define(&mut self, account: &FileAccount) -> Result<(), String> {
        let name = account.name.get_ref();
        check_name(name)?;
        if self.all.contains_key(name) {
            return Err(format!("account {name:?} is there twice"));
        }
        let wrong = |what: &str, text: &str, form: &str| {
            format!("account {name:?}: {what} {text:?} is not {form}")
        };
        let umask = match &account.umask {
            None => DEFAULT_UMASK,
            Some(text) => u32::from_str_radix(text, 8)
                .ok()
                .filter(|umask| umask & !PERMISSION_BITS == 0)
                .ok_or_else(|| wrong("umask", text, "three octal digits such as \"027\""))?,
        };
        let bytes = account.quota.as_deref().map(|text| {
            ByteCount::with_unit(text)
                .map(|quota| quota.0)
                .map_err(|_| wrong("quota", text, "a size with its unit such as \"10 TiB\""))
        });
        let root = account.root.as_deref().unwrap_or("/");
        let quota = QuotaLimits {
            bytes: bytes.transpose()?,
            files: account.files,
        };
        let root = RelPath::from_typed(root.as_bytes())
            .map_err(|error| format!("account {name:?}: root {root:?}: {error}"))?;
        self.insert(LocalAccount {
            name: name.clone(),
            umask,
            quota,
            root,
        });
        Ok(())
    }

    fn insert(&mut self, account: LocalAccount) {
        self.all.insert(account.name.clone(), Arc::new(account));
    }

    /// Has the server work as the account `name` for a principal: a key, or `name:` and a name. An
    /// account that is not defined has the server's root, and no quota. Returns true if the
    /// principal is a name. Errors are descriptions.
    pub(super) fn assign(&mut self, principal: &str, name: &str) -> Result<bool, String> {
        check_name(name)?;
        let pattern: PrincipalPattern = principal
            .parse()
            .map_err(|error: longhaul_identity::InvalidPattern| error.to_string())?;
        let exact = match &pattern {
            PrincipalPattern::Name(pattern) => pattern.exact(),
            _ => None,
        };
        let before = match (&pattern, exact) {
            (PrincipalPattern::Key(key), _) => self.of_keys.insert(*key, name.to_owned()),
            (_, Some(exact)) => self.of_names.insert(exact.to_owned(), name.to_owned()),
            _ => {
                return Err(format!(
                    "{principal:?} cannot have the account {name:?}: an account is for keys and \
                     whole names (name:ana)"
                ));
            }
        };
        if let Some(other) = before.filter(|other| other != name) {
            return Err(format!(
                "{principal} has the account {other:?} already: it can have one account"
            ));
        }
        if !self.all.contains_key(name) {
            self.insert(LocalAccount {
                name: name.to_owned(),
                umask: DEFAULT_UMASK,
                quota: QuotaLimits::default(),
                root: RelPath::root(),
            });
        }
        Ok(exact.is_some())
    }

    /// Returns the account of a principal: that of its key, or else of the first of its names that
    /// have one.
    pub(super) fn account_of(&self, principal: &Principal) -> Option<&Arc<LocalAccount>> {
        let of_key = self.of_keys.get(&principal.key);
        let of_names = || {
            principal
                .names
                .iter()
                .find_map(|name| self.of_names.get(name))
        };
        self.all.get(of_key.or_else(of_names)?)
    }

    /// Returns the account of this name.
    pub(super) fn account(&self, name: &str) -> Option<&Arc<LocalAccount>> {
        self.all.get(name)
    }

    /// Returns the number of accounts.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns true if no principal has an account.
    pub(super) fn is_empty(&self) -> bool {
        self.of_keys.is_empty() && self.of_names.is_empty()
    }
}

/// Refuses what cannot be the name of a user.
fn check_name(name: &str) -> Result<(), String> {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'/' && byte != b':';
    let is_name = !name.is_empty() && name.len() <= MAX_NAME_BYTES && !name.starts_with('-');
    match is_name && name.bytes().all(is_plain) {
        true => Ok(()),
        false => Err(format!("account {name:?} is not the name of a local user")),
    }
}

#[cfg(test)]
mod tests {
    use longhaul_identity::Identities;

    use super::super::{Access, Grants};
    use super::*;

    fn key(n: u8) -> PublicKey {
        PublicKey::from_bytes([n; 32])
    }

    fn grants(text: &str) -> Result<Grants, String> {
        let mut grants = Grants::default();
        let added = grants.add_text(text, "grants.toml");
        added.map(|()| grants).map_err(|error| error.to_string())
    }

    #[test]
    fn keys_lead_to_accounts_with_their_settings() {
        let [ana, ben, eve] = [key(1), key(2), key(3)];
        let text = format!(
            "[[account]]\nname = \"ana\"\numask = \"027\"\nquota = \"10 TiB\"\nfiles = 1000000\n\
             root = \"genomics\"\n\
             [[grant]]\nkey = \"{ana}\"\naccount = \"ana\"\nread = [\"/\"]\n\
             [[grant]]\nkey = \"{ben}\"\naccount = \"ben\"\nwrite = [\"in\"]\n\
             [[grant]]\nkey = \"{eve}\"\nread = [\"/\"]\n"
        );
        let grants = grants(&text).unwrap();
        let account = grants.account_of(&ana).unwrap();
        assert_eq!(
            (account.umask, account.quota.files),
            (0o027, Some(1_000_000))
        );
        assert_eq!(account.quota.bytes, Some(10 << 40));
        assert_eq!(account.root.as_bytes(), b"genomics");
        let account = grants.account_of(&ben).unwrap();
        assert_eq!((account.umask, account.quota.is_some()), (0o022, false));
        assert!(account.root.is_root());
        assert!(grants.account_of(&eve).is_none());
        let within = RelPath::from_bytes(b"in").unwrap();
        let of_ben = grants.account_grants("ben", &ben);
        assert_eq!(of_ben, [(Access::Write, within.clone())]);
        assert!(grants.account_grants("ana", &ben).is_empty());
        // The server itself does nothing for them.
        assert!(!grants.allows(&ben, Access::Write, &within));
        assert_eq!(grants.widest_directory(&ben, Access::Write, &within), None);
        assert!(grants.has_key(&ben) && grants.may_read(&ana));
        assert!(grants.allows(&eve, Access::Read, &within));
    }

    #[test]
    fn names_lead_to_accounts_while_a_key_has_them() {
        let [ana, ben, eve] = [key(1), key(2), key(3)];
        let tmp = tempfile::tempdir().unwrap();
        let file = tmp.path().join("principals.toml");
        let principals = format!(
            "[[principal]]\nname = \"ana\"\nkeys = [\"{ana}\", \"{eve}\"]\ngroups = [\"lab\"]\n"
        );
        std::fs::write(&file, &principals).unwrap();
        let identities = Identities::load(&file).unwrap();
        let mut grants = Grants::new(identities.clone());
        let text = format!(
            "[[grant]]\nprincipals = [\"name:ana\"]\naccount = \"ana\"\nread = [\"/\"]\n\
             [[grant]]\nprincipals = [\"group:lab\"]\nwrite = [\"in\"]\n\
             [[grant]]\nkey = \"{eve}\"\naccount = \"eve\"\nread = [\"/\"]\n"
        );
        grants.add_text(&text, "grants.toml").unwrap();
        let name = |key| grants.account_of(key).map(|account| &*account.name);
        assert_eq!((name(&ana), name(&ben)), (Some("ana"), None));
        assert_eq!(
            name(&eve),
            Some("eve"),
            "the account of the key comes first"
        );
        assert_eq!(grants.account_grants("ana", &ana).len(), 2);
        let within = RelPath::from_bytes(b"in").unwrap();
        assert!(!grants.allows(&ana, Access::Write, &within));
        std::fs::write(&file, "").unwrap();
        identities.reload().unwrap();
        assert!(grants.account_of(&ana).is_none() && !grants.has_key(&ana));
        assert!(grants.account_grants("ana", &ana).is_empty());
    }

    #[test]
    fn wrong_accounts_are_refused_in_one_line() {
        let ana = key(1);
        for wrong in [
            "[[account]]\nname = \"\"\n".to_owned(),
            "[[account]]\nname = \"a/b\"\n".to_owned(),
            "[[account]]\nname = \"ana\"\numask = \"999\"\n".to_owned(),
            "[[account]]\nname = \"ana\"\numask = \"7777\"\n".to_owned(),
            "[[account]]\nname = \"ana\"\nquota = \"10\"\n".to_owned(),
            "[[account]]\nname = \"ana\"\nroot = \"../x\"\n".to_owned(),
            "[[account]]\nname = \"ana\"\n[[account]]\nname = \"ana\"\n".to_owned(),
            format!(
                "[[grant]]\nkey = \"{ana}\"\naccount = \"ana\"\n\
                 [[grant]]\nkey = \"{ana}\"\naccount = \"ben\"\n"
            ),
            "[[grant]]\nprincipals = [\"group:lab\"]\naccount = \"ana\"\n".to_owned(),
            "[[grant]]\nprincipals = [\"name:*\"]\naccount = \"ana\"\n".to_owned(),
        ] {
            let error = grants(&wrong).unwrap_err();
            let is_one_line = error.starts_with("grants.toml:") && !error.contains('\n');
            assert!(is_one_line && error.contains("account"), "{error}");
        }
    }
}
