//! Grants: the principals that may read and write, and where. Without a grant, access is denied.

#![deny(clippy::indexing_slicing)]
#![cfg_attr(test, allow(clippy::indexing_slicing))]

use std::path::Path;
use std::sync::Arc;

use longhaul_identity::{Identities, Principal, PrincipalPattern};
use longhaul_proto::PublicKey;
use longhaul_proto::text::printable;
use longhaul_session::read_trusted_file;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::path::RelPath;

mod local_accounts;

pub use local_accounts::LocalAccount;
use local_accounts::{FileAccount, LocalAccounts};

/// Kind of access that a principal requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// Receive files from the server.
    Read,
    /// Put files on the server where none exist. Nothing that exists is replaced.
    Create,
    /// Put files on the server, and replace existing ones.
    Write,
}

impl Access {
    /// Returns true if a grant of `self` permits `wanted`. Write access includes create access.
    fn permits(self, wanted: Access) -> bool {
        self == wanted || (self == Self::Write && wanted == Self::Create)
    }
}

/// The grants of one server, and the local accounts of the principals that have one.
#[derive(Debug, Clone, Default)]
pub struct Grants {
    grants: Vec<Grant>,
    /// Local accounts of the principals that have one.
    accounts: LocalAccounts,
    /// Names and groups of keys.
    identities: Arc<Identities>,
    /// If true, a grant or an account is for a name or a group.
    has_names: bool,
}

#[derive(Debug, Clone)]
struct Grant {
    principal: PrincipalPattern,
    access: Access,
    directory: RelPath,
}

/// Error of a grant that cannot be understood.
#[derive(Debug, thiserror::Error)]
pub enum GrantError {
    /// The file can't be read.
    #[error("{file}: {source}")]
    Read {
        /// The file.
        file: String,
        /// Cause.
        source: std::io::Error,
    },
    /// The file is not TOML of the expected form. The message has the line.
    #[error("{file}: {detail}")]
    Form {
        /// The file.
        file: String,
        /// Error and its position.
        detail: String,
    },
    /// The principal or the directory of a grant is invalid. A principal is a key, `name:NAME` or
    /// `group:NAME`. Names with `=` can only be written in the file of grants.
    #[error(
        "grant {grant:?}: {detail}; \
         write KEY or KEY=DIRECTORY, the directory being beneath the root"
    )]
    Grant {
        /// Grant as it was given.
        grant: String,
        /// Reason.
        detail: String,
    },
}

/// The authorisation file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GrantsFile {
    #[serde(default)]
    grant: Vec<FileGrant>,
    #[serde(default)]
    account: Vec<FileAccount>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileGrant {
    key: Option<toml::Spanned<String>>,
    principals: Option<toml::Spanned<Vec<String>>>,
    /// Local user as whom the server works for the principals.
    account: Option<String>,
    #[serde(default)]
    read: Vec<String>,
    #[serde(default)]
    create: Vec<String>,
    #[serde(default)]
    write: Vec<String>,
}

impl Grants {
    /// Creates grants that take the names and groups of keys from `identities`.
    #[must_use]
    pub fn new(identities: Arc<Identities>) -> Self {
        Self {
            identities,
            ..Self::default()
        }
    }

    /// Returns the names and groups of keys.
    #[must_use]
    pub fn identities(&self) -> &Arc<Identities> {
        &self.identities
    }

    /// Adds a grant in command-line form: `KEY` for everything beneath the root, or
    /// `KEY=DIRECTORY`. Instead of the key there may be a name or a group.
    pub fn add(&mut self, access: Access, grant: &str) -> Result<(), GrantError> {
        let (principal, directory) = grant.split_once('=').unwrap_or((grant, "/"));
        self.add_to(access, principal, directory)
            .map_err(|detail| GrantError::Grant {
                grant: grant.to_owned(),
                detail,
            })
    }

    /// Grants a principal access to a directory, both as text. Errors are descriptions.
    fn add_to(&mut self, access: Access, principal: &str, directory: &str) -> Result<(), String> {
        let principal: PrincipalPattern = principal
            .parse()
            .map_err(|error: longhaul_identity::InvalidPattern| error.to_string())?;
        // Keys that cost nothing would share the server with its users.
        if principal == PrincipalPattern::Anybody {
            return Err("\"*\" grants nothing: name keys, names or groups".to_owned());
        }
        let directory =
            RelPath::from_typed(directory.as_bytes()).map_err(|error| error.to_string())?;
        self.grant_to(principal, access, directory);
        Ok(())
    }

    /// Grants `key` this access to `directory`, a path beneath the root, and to everything beneath
    /// it.
    pub fn grant(&mut self, key: PublicKey, access: Access, directory: RelPath) {
        self.grant_to(PrincipalPattern::Key(key), access, directory);
    }

    fn grant_to(&mut self, principal: PrincipalPattern, access: Access, directory: RelPath) {
        self.has_names |= !matches!(principal, PrincipalPattern::Key(_));
        self.grants.push(Grant {
            principal,
            access,
            directory,
        });
    }

    /// Adds the grants of a TOML file. It has tables `[[grant]]` with `key` or `principals`, the
    /// lists `read`, `create` and `write` of directories, and `account` if the server works as a
    /// local user for the keys. Tables `[[account]]` have the settings of these users.
    pub fn add_file(&mut self, path: &Path) -> Result<(), GrantError> {
        let file = printable(path.as_os_str().as_encoded_bytes());
        let text = read_trusted_file(path).map_err(|source| GrantError::Read {
            file: file.clone(),
            source,
        })?;
        self.add_text(&text, &file)
    }

    /// Adds the grants of a TOML text. `file` is its name in errors.
    pub(crate) fn add_text(&mut self, text: &str, file: &str) -> Result<(), GrantError> {
        let at = |byte: usize| {
            let before = text.as_bytes().get(..byte).unwrap_or(text.as_bytes());
            let line = 1 + before.iter().filter(|&&b| b == b'\n').count();
            format!("{file}:{line}")
        };
        let parsed: GrantsFile = toml::from_str(text).map_err(|error| GrantError::Form {
            file: error.span().map_or(file.to_owned(), |span| at(span.start)),
            // The message quotes the file.
            detail: printable(error.message().replace('\n', " ").as_bytes()),
        })?;
        let wrong = |byte, detail: String| GrantError::Form {
            file: at(byte),
            detail: printable(detail.as_bytes()),
        };
        for account in &parsed.account {
            let defined = self.accounts.define(account);
            defined.map_err(|detail| wrong(account.name.span().start, detail))?;
        }
        for grant in parsed.grant {
            let (listed, span) = match (grant.key, grant.principals) {
                (Some(key), None) => {
                    let span = key.span();
                    (vec![key.into_inner()], span)
                }
                (None, Some(listed)) => {
                    let span = listed.span();
                    (listed.into_inner(), span)
                }
                (key, _) => {
                    return Err(GrantError::Form {
                        file: key.map_or(file.to_owned(), |key| at(key.span().start)),
                        detail: "a grant has either key = \"lhk1:...\" or principals = [...]"
                            .into(),
                    });
                }
            };
            if let Some(account) = &grant.account {
                for listed in &listed {
                    let assigned = self.accounts.assign(listed, account);
                    self.has_names |= assigned.map_err(|detail| wrong(span.start, detail))?;
                }
            }
            let lists = [
                (Access::Read, &grant.read),
                (Access::Create, &grant.create),
                (Access::Write, &grant.write),
            ];
            for (access, directories) in lists {
                for directory in directories {
                    for principal in &listed {
                        self.add_to(access, principal, directory)
                            .map_err(|detail| GrantError::Form {
                                file: at(span.start),
                                detail: printable(detail.as_bytes()),
                            })?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the principal of a key. Names are looked up only if a grant needs them.
    fn principal(&self, key: &PublicKey) -> Principal {
        match self.has_names {
            true => self.identities.principal(key),
            false => Principal::from_key(*key),
        }
    }

    /// Returns the grants of a principal.
    fn grants_of<'a>(&'a self, principal: &'a Principal) -> impl Iterator<Item = &'a Grant> {
        let grants = self.grants.iter();
        grants.filter(move |grant| grant.principal.matches(principal))
    }

    /// Returns true if `key` has this access to `path` and everything beneath it. A key with a
    /// local account has none here: its worker has the grants of the account.
    pub fn allows(&self, key: &PublicKey, access: Access, path: &RelPath) -> bool {
        let principal = self.principal(key);
        self.accounts.account_of(&principal).is_none()
            && self
                .grants_of(&principal)
                .any(|g| g.access.permits(access) && path.is_within(&g.directory))
    }

    /// Returns the widest directory around `path` to which `key` has this access. The copy is
    /// confined to it. `None` for a key with a local account.
    pub(crate) fn widest_directory(
        &self,
        key: &PublicKey,
        access: Access,
        path: &RelPath,
    ) -> Option<&RelPath> {
        let principal = self.principal(key);
        if self.accounts.account_of(&principal).is_some() {
            return None;
        }
        let around = |g: &&Grant| {
            g.principal.matches(&principal)
                && g.access.permits(access)
                && path.is_within(&g.directory)
        };
        self.grants
            .iter()
            .filter(around)
            .map(|g| &g.directory)
            .min_by_key(|directory| directory.as_bytes().len())
    }

    /// Returns the local account of `key`, as which the server works for it.
    pub fn account_of(&self, key: &PublicKey) -> Option<&Arc<LocalAccount>> {
        match self.accounts.is_empty() {
            true => None,
            false => self.accounts.account_of(&self.principal(key)),
        }
    }

    /// Returns the local account of this name.
    pub fn account(&self, name: &str) -> Option<&Arc<LocalAccount>> {
        self.accounts.account(name)
    }

    /// Returns the number of local accounts.
    pub fn accounts(&self) -> usize {
        self.accounts.len()
    }

    /// Returns what `key` may do beneath the root of `account`, or nothing if that is not its local
    /// account.
    pub fn account_grants(&self, account: &str, key: &PublicKey) -> Vec<(Access, RelPath)> {
        let principal = self.principal(key);
        let own = self.accounts.account_of(&principal);
        if own.is_none_or(|own| own.name != account) {
            return Vec::new();
        }
        self.grants_of(&principal)
            .map(|grant| (grant.access, grant.directory.clone()))
            .collect()
    }

    /// Returns true if `key` has any grant.
    pub fn has_key(&self, key: &PublicKey) -> bool {
        self.grants_of(&self.principal(key)).next().is_some()
    }

    /// Returns true if `key` may read anything.
    pub fn may_read(&self, key: &PublicKey) -> bool {
        self.grants_of(&self.principal(key))
            .any(|g| g.access == Access::Read)
    }

    /// Returns these grants, and the rights of a token as grants of `key`.
    pub(crate) fn with_rights(&self, key: &PublicKey, rights: &[(Access, RelPath)]) -> Self {
        let mut grants = self.clone();
        for (access, directory) in rights {
            grants.grant(*key, *access, directory.clone());
        }
        grants
    }

    /// Returns true if there are no grants.
    pub fn is_empty(&self) -> bool {
        self.grants.is_empty()
    }
}

/// The grants in force: one value for all users, which can be replaced at any time.
#[derive(Debug, Default)]
pub struct GrantsInForce(watch::Sender<Arc<Grants>>);

impl GrantsInForce {
    /// Puts `grants` in force until others replace them.
    pub fn new(grants: Grants) -> Arc<Self> {
        Arc::new(Self(watch::Sender::new(Arc::new(grants))))
    }

    /// Returns the grants now in force.
    pub fn current(&self) -> Arc<Grants> {
        self.0.borrow().clone()
    }

    /// Puts `grants` in force from now on.
    pub fn replace(&self, grants: Grants) {
        self.0.send_replace(Arc::new(grants));
    }

    /// Has them checked again where they are watched, because principals may have lost names or
    /// groups.
    pub fn recheck(&self) {
        self.0.send_modify(|_| {});
    }

    /// Completes when the grants in force do not permit something any more. `is_permitted` returns
    /// true for grants that permit it.
    pub async fn withdrawn(&self, is_permitted: impl Fn(&Grants) -> bool) {
        let mut grants = self.0.subscribe();
        // The sender is borrowed, so the wait does not fail.
        let _ = grants.wait_for(|grants| !is_permitted(grants)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u8) -> PublicKey {
        PublicKey::from_bytes([n; 32])
    }

    fn path(s: &str) -> RelPath {
        RelPath::from_typed(s.as_bytes()).unwrap()
    }

    #[test]
    fn access_without_a_grant_is_denied() {
        let mut grants = Grants::default();
        assert!(!grants.allows(&key(1), Access::Read, &path("/")));
        grants.add(Access::Read, &key(1).to_string()).unwrap();
        grants
            .add(Access::Write, &format!("{}=/in/coming", key(1)))
            .unwrap();
        assert!(grants.allows(&key(1), Access::Read, &path("/any/where")));
        assert!(grants.allows(&key(1), Access::Write, &path("/in/coming/x")));
        assert!(grants.allows(&key(1), Access::Write, &path("/in/coming")));
        for not in ["/", "/in", "/in/comings", "/x"] {
            assert!(!grants.allows(&key(1), Access::Write, &path(not)), "{not}");
        }
        assert!(!grants.allows(&key(2), Access::Read, &path("/x")));
        assert!(grants.has_key(&key(1)) && !grants.has_key(&key(2)));
        assert!(grants.may_read(&key(1)) && !grants.may_read(&key(2)));
        grants.add(Access::Write, &key(3).to_string()).unwrap();
        assert!(grants.has_key(&key(3)) && !grants.may_read(&key(3)));
    }

    #[test]
    fn grants_file_is_parsed_and_errors_have_a_line() {
        let tmp = tempfile::tempdir().unwrap();
        let file = tmp.path().join("grants.toml");
        std::fs::write(
            &file,
            format!(
                "[[grant]]\nkey = \"{}\"\nread = [\"/\"]\nwrite = [\"in\"]\n",
                key(3)
            ),
        )
        .unwrap();
        let mut grants = Grants::default();
        grants.add_file(&file).unwrap();
        assert!(grants.allows(&key(3), Access::Write, &path("in/x")));
        for bad in [
            "[[grant]]\nkey = 5\n",
            "[[grant]]\nkey = \"x\"\nread = [\"/\"]\n",
            "[[grant]]\nkey = \"x\"\nreed = []\n",
            "# \u{e9}\n[[grant]\n",
        ] {
            std::fs::write(&file, bad).unwrap();
            let error = grants.add_file(&file).unwrap_err().to_string();
            assert!(
                error.contains("grants.toml:") && !error.contains('\n'),
                "{error}"
            );
        }
    }

    #[test]
    fn create_access_cannot_replace_and_write_access_can() {
        let mut grants = Grants::default();
        grants
            .add(Access::Create, &format!("{}=in", key(1)))
            .unwrap();
        grants
            .add(Access::Write, &format!("{}=in", key(2)))
            .unwrap();
        grants
            .add(Access::Write, &format!("{}=in/a", key(2)))
            .unwrap();
        assert!(grants.allows(&key(1), Access::Create, &path("in/x")));
        assert!(!grants.allows(&key(1), Access::Write, &path("in/x")));
        assert!(!grants.allows(&key(1), Access::Read, &path("in/x")));
        assert!(grants.allows(&key(2), Access::Create, &path("in/x")));
        assert_eq!(
            grants.widest_directory(&key(2), Access::Create, &path("in/a/b")),
            Some(&path("in"))
        );
        assert_eq!(
            grants.widest_directory(&key(1), Access::Write, &path("in/a/b")),
            None
        );
    }

    #[test]
    fn names_and_groups_need_a_principal_that_has_them() {
        let tmp = tempfile::tempdir().unwrap();
        let file = tmp.path().join("principals.toml");
        let principals = format!(
            "[[principal]]\nname = \"ana\"\nkeys = [\"{}\"]\ngroups = [\"lab\"]\n",
            key(1)
        );
        std::fs::write(&file, principals).unwrap();
        let mut grants = Grants::new(Identities::load(&file).unwrap());
        grants
            .add_text(
                "[[grant]]\nprincipals = [\"group:lab\", \"name:bo\"]\nread = [\"/\"]\n",
                "grants.toml",
            )
            .unwrap();
        grants.add(Access::Write, "name:ana=in").unwrap();
        assert!(grants.allows(&key(1), Access::Read, &path("x")));
        assert!(grants.allows(&key(1), Access::Write, &path("in/x")));
        assert!(!grants.allows(&key(1), Access::Write, &path("x")));
        assert_eq!(
            grants.widest_directory(&key(1), Access::Write, &path("in/x")),
            Some(&path("in"))
        );
        assert!(!grants.has_key(&key(2)) && !grants.may_read(&key(2)));
        assert!(grants.has_key(&key(1)) && grants.may_read(&key(1)));
    }

    #[test]
    fn grants_list_one_form_of_principals_and_not_anybody() {
        let mut grants = Grants::default();
        for text in [
            "[[grant]]\nread = [\"/\"]\n",
            "[[grant]]\nkey = \"lhk1:x\"\nprincipals = []\nread = [\"/\"]\n",
            "[[grant]]\nprincipals = [\"*\"]\nread = [\"/\"]\n",
        ] {
            let error = grants
                .add_text(text, "grants.toml")
                .unwrap_err()
                .to_string();
            assert!(
                error.starts_with("grants.toml") && !error.contains('\n'),
                "{error}"
            );
        }
        assert!(grants.add(Access::Read, "*").is_err() && grants.is_empty());
    }

    #[test]
    fn rights_of_a_token_are_grants_of_its_key_alone() {
        let rights = [(Access::Create, path("in"))];
        let mut grants = Grants::default();
        grants.add(Access::Read, &key(1).to_string()).unwrap();
        let with = grants.with_rights(&key(1), &rights);
        assert!(with.allows(&key(1), Access::Create, &path("in/x")));
        assert!(with.allows(&key(1), Access::Read, &path("x")));
        assert!(!with.allows(&key(1), Access::Write, &path("in/x")));
        assert!(!with.allows(&key(2), Access::Create, &path("in/x")));
        assert!(!grants.allows(&key(1), Access::Create, &path("in/x")));
    }

    #[test]
    fn grants_are_replaced_atomically() {
        let in_force = GrantsInForce::new(Grants::default());
        let before = in_force.current();
        let mut grants = Grants::default();
        grants.add(Access::Read, &key(1).to_string()).unwrap();
        in_force.replace(grants);
        assert!(in_force.current().has_key(&key(1)) && !before.has_key(&key(1)));
    }

    #[tokio::test]
    async fn withdrawal_is_noticed_when_grants_or_names_change() {
        let tmp = tempfile::tempdir().unwrap();
        let file = tmp.path().join("principals.toml");
        let name = |n: u8| {
            let text = format!("[[principal]]\nname = \"ana\"\nkeys = [\"{}\"]\n", key(n));
            std::fs::write(&file, text).unwrap();
        };
        name(1);
        let identities = Identities::load(&file).unwrap();
        let mut grants = Grants::new(identities.clone());
        grants.add(Access::Read, "name:ana").unwrap();
        grants.add(Access::Read, &key(2).to_string()).unwrap();
        let in_force = GrantsInForce::new(grants);
        let withdrawn = |n: u8| in_force.withdrawn(move |grants| grants.has_key(&key(n)));
        let (ana, other) = (withdrawn(1), withdrawn(2));
        tokio::pin!(ana, other);
        let pending = std::time::Duration::ZERO;
        assert!(tokio::time::timeout(pending, &mut ana).await.is_err());
        in_force.recheck();
        assert!(tokio::time::timeout(pending, &mut ana).await.is_err());
        name(3);
        identities.reload().unwrap();
        in_force.recheck();
        ana.await;
        assert!(tokio::time::timeout(pending, &mut other).await.is_err());
        in_force.replace(Grants::default());
        other.await;
    }
}
