//! Keys that may call the service from other machines: a file with one line for each,
//! `lhk1:... NAME all|read`.

#![deny(clippy::indexing_slicing)] // what is read here comes from a file

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use longhaul_proto::PublicKey;

/// Maximum size of the file, in bytes: room for some thousands of keys.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Maximum length of a name, in bytes.
const MAX_NAME_BYTES: usize = 64;

/// Rights of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyRole {
    /// All that the user may do.
    All,
    /// Read-only requests.
    Read,
}

/// Name and rights of an authorized key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthorizedKey {
    /// Name of the key's holder.
    pub name: String,
    /// Rights of the key.
    pub role: KeyRole,
}

/// Authorized keys by public key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuthorizedKeys(BTreeMap<PublicKey, AuthorizedKey>);

/// The file of authorized keys is not usable.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// The file cannot be read.
    #[error("cannot read the authorized keys {}: {source}", .path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// Others may write the file, and so could admit anybody.
    #[error("{}: users other than its owner can write it (mode {mode:04o}), or its owner is \
             neither this user nor root", .path.display())]
    Exposed {
        /// Path of the file.
        path: PathBuf,
        /// Permissions of the file.
        mode: u32,
    },
    /// A line is malformed.
    #[error("{}:{line}: expected KEY NAME and all or read, with a name of letters, digits, '.', \
             '_', '-' and '@': {why}", .path.display())]
    Line {
        /// Path of the file.
        path: PathBuf,
        /// Number of the line.
        line: usize,
        /// Description of the error.
        why: &'static str,
    },
    /// The file has no key, so nobody could call the service. Add a line with a key.
    #[error("{}: it lists no key: nobody could use the service", .path.display())]
    Empty {
        /// Path of the file.
        path: PathBuf,
    },
}

impl AuthorizedKeys {
    /// Reads a file of authorized keys.
    ///
    /// # Errors
    /// The file cannot be read or parsed, has no key, or can be written by others than `user` and
    /// root.
    pub fn load(path: &Path, user: u32) -> Result<Self, KeysError> {
        let failed = |source| KeysError::File {
            path: path.into(),
            source,
        };
        let file = File::open(path).map_err(failed)?;
        // Metadata of the opened file, so that the file read is the one checked.
        let metadata = file.metadata().map_err(failed)?;
        let mode = metadata.mode() & 0o7777;
        if mode & 0o022 != 0 || (metadata.uid() != user && metadata.uid() != 0) {
            return Err(KeysError::Exposed {
                path: path.into(),
                mode,
            });
        }
        let mut text = String::new();
        file.take(MAX_FILE_BYTES)
            .read_to_string(&mut text)
            .map_err(failed)?;
        Self::parse(&text, path)
    }

    /// Parses the text of such a file; `path` is its name in errors. Empty lines and lines that
    /// begin with `#` are skipped.
    ///
    /// # Errors
    /// A line is malformed, a key is repeated, or there is none.
    pub fn parse(text: &str, path: &Path) -> Result<Self, KeysError> {
        let mut keys = BTreeMap::new();
        for (index, line) in text.lines().enumerate() {
            let wrong = |why| KeysError::Line {
                path: path.into(),
                line: index + 1,
                why,
            };
            let fields: Vec<&str> = line.split_whitespace().collect();
            let (key, name, role) = match fields.as_slice() {
                [] => continue,
                [first, ..] if first.starts_with('#') => continue,
                [key, name, role] => (*key, *name, *role),
                _ => return Err(wrong("not three fields")),
            };
            let key: PublicKey = key.parse().map_err(|_| wrong("not a key, lhk1:..."))?;
            if !is_name(name) {
                return Err(wrong("not a name"));
            }
            let role = match role {
                "all" => KeyRole::All,
                "read" => KeyRole::Read,
                _ => return Err(wrong("neither all nor read")),
            };
            let authorized = AuthorizedKey {
                name: name.to_owned(),
                role,
            };
            if keys.insert(key, authorized).is_some() {
                return Err(wrong("this key is listed twice"));
            }
        }
        match keys.is_empty() {
            true => Err(KeysError::Empty { path: path.into() }),
            false => Ok(Self(keys)),
        }
    }

    /// Creates the set from keys that are stored elsewhere. It may be empty.
    pub fn from_keys(keys: impl IntoIterator<Item = (PublicKey, AuthorizedKey)>) -> Self {
        Self(keys.into_iter().collect())
    }

    /// Returns the entry of a key.
    #[must_use]
    pub fn get(&self, key: &PublicKey) -> Option<&AuthorizedKey> {
        self.0.get(key)
    }

    /// Returns the number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if there are no keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn is_name(name: &str) -> bool {
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"._-@".contains(&byte);
    name.len() <= MAX_NAME_BYTES && name.bytes().all(is_of_name)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn each_line_is_a_key_with_a_name_and_a_role() {
        let (one, two) = (
            PublicKey::from_bytes([1; 32]),
            PublicKey::from_bytes([2; 32]),
        );
        let text = format!("# people\n\n{one} ana all\n  {two}\tben@site read \n");
        let keys = AuthorizedKeys::parse(&text, "keys".as_ref()).unwrap();
        assert_eq!(keys.len(), 2);
        let of = |key| {
            keys.get(&key)
                .map(|found| (found.name.as_str(), found.role))
        };
        assert_eq!(of(one), Some(("ana", KeyRole::All)));
        assert_eq!(of(two), Some(("ben@site", KeyRole::Read)));
        assert_eq!(of(PublicKey::from_bytes([3; 32])), None);
        let long = "x".repeat(65);
        for bad in [
            &format!("{two}"),
            &format!("{two} ben"),
            &format!("{two} ben all more"),
            &format!("{two} ben root"),
            &format!("{two} b/n all"),
            &format!("{two} {long} all"),
            &format!("{one} again all"),
            "lhk1:short ben all",
            "ssh-ed25519 AAAA ben@x",
        ] {
            let error = AuthorizedKeys::parse(&format!("{one} ana all\n{bad}"), "keys".as_ref())
                .unwrap_err();
            assert!(
                matches!(error, KeysError::Line { line: 2, .. }),
                "{bad}: {error}"
            );
        }
        let none = AuthorizedKeys::parse("# nobody\n", "keys".as_ref()).unwrap_err();
        assert!(matches!(none, KeysError::Empty { .. }), "{none}");
    }

    #[test]
    fn a_file_that_others_may_write_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys");
        std::fs::write(&path, format!("{} ana all", PublicKey::from_bytes([1; 32]))).unwrap();
        let user = path.metadata().unwrap().uid();
        let load = |mode, user| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            AuthorizedKeys::load(&path, user)
        };
        assert_eq!(load(0o644, user).unwrap().len(), 1);
        for mode in [0o664, 0o646, 0o622] {
            assert!(
                matches!(load(mode, user), Err(KeysError::Exposed { .. })),
                "{mode:o}"
            );
        }
        if user != 0 {
            assert!(load(0o600, user + 1).is_err());
        }
        let missing = AuthorizedKeys::load(&dir.path().join("none"), user);
        assert!(matches!(missing, Err(KeysError::File { .. })));
    }
}
