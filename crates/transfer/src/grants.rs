//! Grants: the keys that may read and write, and where. Without a grant, access is denied.

#![deny(clippy::indexing_slicing)]
#![cfg_attr(test, allow(clippy::indexing_slicing))]

use std::path::Path;
use std::sync::Arc;

use longhaul_proto::PublicKey;
use longhaul_proto::text::printable;
use longhaul_session::read_trusted_file;
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};

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

/// The grants of one server, and the local accounts of the keys that have one.
#[derive(Debug, Clone, Default)]
pub struct Grants(Vec<Grant>, LocalAccounts);

#[derive(Debug, Clone)]
struct Grant {
    key: PublicKey,
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
    /// The key or the directory of a grant is invalid.
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
    key: toml::Spanned<String>,
    /// Local user as whom the server works for the key.
    account: Option<String>,
    #[serde(default)]
    read: Vec<String>,
    #[serde(default)]
    create: Vec<String>,
    #[serde(default)]
    write: Vec<String>,
}

impl Grants {
    /// Adds a grant in command-line form: `KEY` for everything beneath the root, or
    /// `KEY=DIRECTORY`.
    pub fn add(&mut self, access: Access, grant: &str) -> Result<(), GrantError> {
        let (key, directory) = grant.split_once('=').unwrap_or((grant, "/"));
        let wrong = |detail: String| GrantError::Grant {
            grant: grant.to_owned(),
            detail,
        };
        let key = key
            .parse()
            .map_err(|error: longhaul_proto::KeyError| wrong(error.to_string()))?;
        let directory =
            RelPath::from_typed(directory.as_bytes()).map_err(|error| wrong(error.to_string()))?;
        self.grant(key, access, directory);
        Ok(())
    }

    /// Grants `key` this access to `directory`, a path beneath the root, and to everything beneath
    /// it.
    pub fn grant(&mut self, key: PublicKey, access: Access, directory: RelPath) {
        self.0.push(Grant {
            key,
            access,
            directory,
        });
    }

    /// Adds the grants of a TOML file. It has tables `[[grant]]` with `key` and the lists `read`,
    /// `create` and `write` of directories, and `account` if the server works as a local user for
    /// the key. Tables `[[account]]` have the settings of these users.
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
            let defined = self.1.define(account);
            defined.map_err(|detail| wrong(account.name.span().start, detail))?;
        }
        for grant in parsed.grant {
            let key_at = grant.key.span().start;
            if let Some(account) = &grant.account {
                let key = grant.key.get_ref().parse();
                let key = key
                    .map_err(|error: longhaul_proto::KeyError| wrong(key_at, error.to_string()))?;
                let assigned = self.1.assign(key, account);
                assigned.map_err(|detail| wrong(key_at, detail))?;
            }
            let lists = [
                (Access::Read, &grant.read),
                (Access::Create, &grant.create),
                (Access::Write, &grant.write),
            ];
            for (access, directories) in lists {
                for directory in directories {
                    let grant = format!("{}={directory}", grant.key.get_ref());
                    self.add(access, &grant).map_err(|error| GrantError::Form {
                        file: at(key_at),
                        detail: error.to_string(),
                    })?;
                }
            }
        }
        Ok(())
    }

    /// Returns true if `key` has this access to `path` and everything beneath it.
    pub fn allows(&self, key: &PublicKey, access: Access, path: &RelPath) -> bool {
        self.0
            .iter()
            .any(|g| g.key == *key && g.access.permits(access) && path.is_within(&g.directory))
    }

    /// Returns the widest directory around `path` to which `key` has this access. The copy is
    /// confined to it.
    pub(crate) fn widest_directory(
        &self,
        key: &PublicKey,
        access: Access,
        path: &RelPath,
    ) -> Option<&RelPath> {
        self.0
            .iter()
            .filter(|g| g.key == *key && g.access.permits(access) && path.is_within(&g.directory))
            .map(|g| &g.directory)
            .min_by_key(|directory| directory.as_bytes().len())
    }

    /// Returns the local account of `key`, as which the server works for it.
    pub fn account_of(&self, key: &PublicKey) -> Option<&Arc<LocalAccount>> {
        self.1.account_of(key)
    }

    /// Returns the local account of this name.
    pub fn account(&self, name: &str) -> Option<&Arc<LocalAccount>> {
        self.1.account(name)
    }

    /// Returns the number of local accounts.
    pub fn accounts(&self) -> usize {
        self.1.len()
    }

    /// Returns what the keys of a local account may do, beneath the root of the account.
    pub fn account_grants(&self, name: &str) -> Vec<(PublicKey, Access, RelPath)> {
        let of = self.0.iter();
        let of = of.filter(|grant| self.1.name_of(&grant.key) == Some(name));
        of.map(|grant| (grant.key, grant.access, grant.directory.clone()))
            .collect()
    }

    /// Returns true if `key` has any grant.
    pub fn has_key(&self, key: &PublicKey) -> bool {
        self.0.iter().any(|g| g.key == *key)
    }

    /// Returns true if `key` may read anything.
    pub fn may_read(&self, key: &PublicKey) -> bool {
        self.0
            .iter()
            .any(|g| g.key == *key && g.access == Access::Read)
    }

    /// Returns true if there are no grants.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The grants in force: one value for all users, which can be replaced at any time.
#[derive(Debug, Default)]
pub struct GrantsInForce(RwLock<Arc<Grants>>);

impl GrantsInForce {
    /// Puts `grants` in force until others replace them.
    pub fn new(grants: Grants) -> Arc<Self> {
        Arc::new(Self(RwLock::new(Arc::new(grants))))
    }

    /// Returns the grants now in force.
    pub fn current(&self) -> Arc<Grants> {
        self.0.read().clone()
    }

    /// Puts `grants` in force from now on.
    pub fn replace(&self, grants: Grants) {
        *self.0.write() = Arc::new(grants);
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
    fn grants_are_replaced_atomically() {
        let in_force = GrantsInForce::new(Grants::default());
        let before = in_force.current();
        let mut grants = Grants::default();
        grants.add(Access::Read, &key(1).to_string()).unwrap();
        in_force.replace(grants);
        assert!(in_force.current().has_key(&key(1)) && !before.has_key(&key(1)));
    }
}
