//! Files of logins: one each, in a directory that only their user may read.

use std::fs::{DirBuilder, File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{FlockOperation, flock};

use super::Login;
use crate::error::LoginError;

/// Permission bits of the group and of others.
const OTHERS_BITS: u32 = 0o077;
/// Maximum size of a login, in bytes.
const MAX_LOGIN_BYTES: u64 = 256 << 10;
/// Ending of the names of the files.
const ENDING: &str = "json";
/// File that is locked while a token is renewed. Many issuers accept a refresh token once.
const LOCK: &str = "lock";

/// Directory of logins.
#[derive(Debug, Clone)]
pub struct LoginStore {
    directory: PathBuf,
}

/// Exclusive use of the logins, until this is dropped.
pub(crate) struct StoreLock(#[expect(dead_code, reason = "closed on drop")] File);

impl LoginStore {
    /// Uses this directory. It is created when something is stored.
    #[must_use]
    pub fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Returns all logins, the one that was stored last first.
    ///
    /// # Errors
    /// A file cannot be read, or others may read it.
    pub fn list(&self) -> Result<Vec<Login>, LoginError> {
        let entries = match std::fs::read_dir(&self.directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(LoginError::file(&self.directory, error)),
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| LoginError::file(&self.directory, error))?;
            let path = entry.path();
            if path.extension().is_some_and(|ending| ending == ENDING) {
                let read = read(&path).map_err(|error| LoginError::file(&path, error))?;
                found.extend(read);
            }
        }
        found.sort_by_key(|(stored, _)| std::cmp::Reverse(*stored));
        Ok(found.into_iter().map(|(_, login)| login).collect())
    }

    /// Stores a login, in place of an earlier one of the same kind. Hosts that the earlier one had
    /// stay.
    ///
    /// # Errors
    /// [`LoginError::File`].
    pub fn add(&self, mut login: Login) -> Result<(), LoginError> {
        let _locked = self.lock()?;
        let path = self.path(&login);
        if let Ok(Some((_, earlier))) = read(&path) {
            for host in earlier.hosts {
                if !login.hosts.contains(&host) {
                    login.hosts.push(host);
                }
            }
        }
        self.save(&login, None)
    }

    /// Replaces a login by its renewed one, which keeps its place among the others.
    pub(crate) fn replace(&self, login: &Login) -> Result<(), LoginError> {
        let stored = std::fs::metadata(self.path(login)).and_then(|metadata| metadata.modified());
        self.save(login, stored.ok())
    }

    /// Writes a login. `stored` is the time at which it was made, now if `None`.
    fn save(&self, login: &Login, stored: Option<SystemTime>) -> Result<(), LoginError> {
        let path = self.path(login);
        let written = || {
            // Temporary files are accessible to their owner alone.
            let mut file = tempfile::NamedTempFile::new_in(&self.directory)?;
            serde_json::to_writer_pretty(&mut file, login)?;
            file.write_all(b"\n")?;
            if let Some(stored) = stored {
                file.as_file().set_modified(stored)?;
            }
            file.as_file().sync_all()?;
            file.persist(&path)?;
            Ok(())
        };
        written().map_err(|error| LoginError::file(&path, error))
    }

    /// Removes the logins for which `is_removed` returns true, and returns them.
    ///
    /// # Errors
    /// [`LoginError::File`].
    pub fn remove(&self, is_removed: impl Fn(&Login) -> bool) -> Result<Vec<Login>, LoginError> {
        // A renewal that is under way would store them again.
        let _locked = match self.directory.exists() {
            true => Some(self.lock()?),
            false => None,
        };
        let mut logins = self.list()?;
        logins.retain(|login| is_removed(login));
        for login in &logins {
            let path = self.path(login);
            std::fs::remove_file(&path).map_err(|error| LoginError::file(&path, error))?;
        }
        Ok(logins)
    }

    /// Returns the login as it is stored now.
    pub(crate) fn reload(&self, login: &Login) -> Result<Option<Login>, LoginError> {
        let path = self.path(login);
        let read = read(&path).map_err(|error| LoginError::file(&path, error))?;
        Ok(read.map(|(_, login)| login))
    }

    /// Waits until nobody else changes the logins. Blocking.
    pub(crate) fn lock(&self) -> Result<StoreLock, LoginError> {
        self.flock(FlockOperation::LockExclusive)
    }

    /// Locks the logins, or fails if somebody else changes them now.
    pub(crate) fn try_lock(&self) -> Result<StoreLock, LoginError> {
        self.flock(FlockOperation::NonBlockingLockExclusive)
    }

    fn flock(&self, operation: FlockOperation) -> Result<StoreLock, LoginError> {
        let path = self.directory.join(LOCK);
        let locked = || {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&self.directory)?;
            let file = File::create(&path)?;
            file.set_permissions(Permissions::from_mode(0o600))?;
            flock(&file, operation)?;
            Ok(StoreLock(file))
        };
        locked().map_err(|error| LoginError::file(&path, error))
    }

    fn path(&self, login: &Login) -> PathBuf {
        let mut hasher = blake3::Hasher::new();
        for part in login.identity() {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        let hash = hasher.finalize().to_hex();
        let name = hash.get(..32).unwrap_or_default();
        self.directory.join(format!("{name}.{ENDING}"))
    }
}

/// Reads a login, and the time at which it was stored, in seconds and nanoseconds. Returns `None`
/// if there is none any more.
fn read(path: &Path) -> io::Result<Option<((i64, i64), Login)>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let metadata = file.metadata()?;
    if metadata.mode() & OTHERS_BITS != 0 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "users other than its owner can read or write it: run chmod go= on it",
        ));
    }
    let mut text = Vec::new();
    file.take(MAX_LOGIN_BYTES).read_to_end(&mut text)?;
    // The error would quote the file, which is secret.
    let login = serde_json::from_slice(&text)
        .map_err(|_| io::Error::other("it is not a login: remove it, and log in again"))?;
    Ok(Some(((metadata.mtime(), metadata.mtime_nsec()), login)))
}

#[cfg(test)]
pub(super) mod tests {
    use longhaul_transfer::BearerToken;

    use super::super::{IssuerLogin, LoginSource};
    use super::*;

    pub(crate) fn login(issuer: &str, token: &str) -> IssuerLogin {
        IssuerLogin {
            issuer: issuer.into(),
            client_id: "longhaul".into(),
            scope: "storage.read:/".into(),
            audience: None,
            token_endpoint: "https://a.example/token".parse().unwrap(),
            access_token: BearerToken::new(token).unwrap(),
            obtained: 1000,
            expires: Some(1100),
            refresh_token: None,
            renewal_failed: None,
        }
    }

    fn of_issuer(issuer: &str, token: &str, hosts: &[&str]) -> Login {
        Login {
            hosts: hosts.iter().map(|host| host.parse().unwrap()).collect(),
            source: LoginSource::Issuer(Box::new(login(issuer, token))),
        }
    }

    #[test]
    fn stored_login_is_private_and_keeps_its_hosts() {
        let tmp = tempfile::tempdir().unwrap();
        let store = LoginStore::new(tmp.path().join("logins"));
        assert!(store.list().unwrap().is_empty());
        store
            .add(of_issuer("https://a.example/", "one", &["h"]))
            .unwrap();
        store
            .add(of_issuer("https://a.example/", "two", &["g:1"]))
            .unwrap();
        let logins = store.list().unwrap();
        assert_eq!(
            logins,
            [of_issuer("https://a.example/", "two", &["g:1", "h"])]
        );
        for entry in std::fs::read_dir(tmp.path().join("logins")).unwrap() {
            let mode = entry.unwrap().metadata().unwrap().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        let mode = tmp.path().join("logins").metadata().unwrap().mode();
        assert_eq!(mode & 0o777, 0o700);
        assert!(!format!("{logins:?}").contains("two"), "it would be logged");
    }

    #[test]
    fn login_that_others_may_read_is_refused() {
        let tmp = tempfile::tempdir().unwrap();
        let store = LoginStore::new(tmp.path().to_owned());
        let login = of_issuer("https://a.example/", "one", &[]);
        store.add(login.clone()).unwrap();
        std::fs::set_permissions(store.path(&login), Permissions::from_mode(0o640)).unwrap();
        assert!(store.list().unwrap_err().to_string().contains("chmod"));
    }

    #[test]
    fn logins_are_removed_by_issuer() {
        let tmp = tempfile::tempdir().unwrap();
        let store = LoginStore::new(tmp.path().to_owned());
        store
            .add(of_issuer("https://a.example/", "one", &[]))
            .unwrap();
        store
            .add(of_issuer("https://b.example/", "two", &[]))
            .unwrap();
        let file = Login {
            hosts: vec!["h".parse().unwrap()],
            source: LoginSource::File("/run/token".into()),
        };
        store.add(file.clone()).unwrap();
        let is_a = |login: &Login| match &login.source {
            LoginSource::Issuer(login) => login.issuer == "https://a.example/",
            LoginSource::File(_) => false,
        };
        assert_eq!(store.remove(is_a).unwrap().len(), 1);
        assert_eq!(store.list().unwrap().len(), 2);
        assert!(store.list().unwrap().contains(&file));
    }

    #[test]
    fn renewed_login_keeps_its_place_in_the_order() {
        let tmp = tempfile::tempdir().unwrap();
        let store = LoginStore::new(tmp.path().to_owned());
        let earlier = of_issuer("https://a.example/", "one", &[]);
        let later = of_issuer("https://b.example/", "two", &[]);
        let an_hour_ago = SystemTime::now() - std::time::Duration::from_secs(3600);
        store.add(later.clone()).unwrap();
        store.add(earlier.clone()).unwrap();
        let file = File::options().write(true).open(store.path(&earlier));
        file.unwrap().set_modified(an_hour_ago).unwrap();
        assert_eq!(store.list().unwrap(), [later.clone(), earlier]);
        let renewed = of_issuer("https://a.example/", "three", &[]);
        store.replace(&renewed).unwrap();
        assert_eq!(store.list().unwrap(), [later, renewed]);
    }

    #[test]
    fn broken_login_is_named_and_not_quoted() {
        let tmp = tempfile::tempdir().unwrap();
        let store = LoginStore::new(tmp.path().to_owned());
        let login = of_issuer("https://a.example/", "one", &[]);
        store.add(login.clone()).unwrap();
        std::fs::write(store.path(&login), "{\"access_token\": \"secret\", ").unwrap();
        let error = store.list().unwrap_err().to_string();
        assert!(
            error.contains("not a login") && !error.contains("secret"),
            "{error}"
        );
    }
}
