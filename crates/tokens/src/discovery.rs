//! Finds the token that other programs have left for this user, as the WLCG's "Bearer Token
//! Discovery" says: `BEARER_TOKEN`, `BEARER_TOKEN_FILE`, `$XDG_RUNTIME_DIR/bt_u$UID` and
//! `/tmp/bt_u$UID`.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use longhaul_transfer::{BearerToken, MAX_TOKEN_BYTES};
use rustix::fs::OFlags;

use crate::error::LoginError;

/// Permission bits of the group and of others.
const OTHERS_BITS: u32 = 0o077;

/// Places where the token of this user may be.
#[derive(Clone, Default)]
pub(crate) struct Discovery {
    /// `BEARER_TOKEN`: the token itself.
    pub token: Option<OsString>,
    /// `BEARER_TOKEN_FILE`.
    pub file: Option<PathBuf>,
    /// Files with fixed names.
    pub well_known: Vec<PathBuf>,
}

impl Discovery {
    /// Reads the environment of this process.
    pub(crate) fn from_environment() -> Self {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let name = format!("bt_u{}", rustix::process::geteuid().as_raw());
        let runtime = variable("XDG_RUNTIME_DIR").map(PathBuf::from);
        let directories = runtime.into_iter().chain([PathBuf::from("/tmp")]);
        Self {
            token: variable("BEARER_TOKEN"),
            file: variable("BEARER_TOKEN_FILE").map(PathBuf::from),
            well_known: directories.map(|directory| directory.join(&name)).collect(),
        }
    }

    /// Returns the first token that is there.
    ///
    /// # Errors
    /// What a variable names is no token, or cannot be read. Later places do not count then.
    pub(crate) fn find(&self) -> Result<Option<BearerToken>, LoginError> {
        if let Some(token) = &self.token {
            let text = token.to_str().unwrap_or_default();
            return match BearerToken::new(text) {
                Ok(token) => Ok(Some(token)),
                Err(error) => Err(LoginError::file("BEARER_TOKEN", io::Error::other(error))),
            };
        }
        if let Some(file) = &self.file {
            return read_token(file, false).map(Some);
        }
        for file in &self.well_known {
            match read_token(file, true) {
                Ok(token) => return Ok(Some(token)),
                // It may be of other programs, and for other servers.
                Err(error) => tracing::debug!(%error, "not a token of this user"),
            }
        }
        Ok(None)
    }
}

/// Reads a token from a file. If `is_private`, the file must be one of this user alone: anybody can
/// put files into `/tmp`.
///
/// # Errors
/// [`LoginError::File`].
pub(crate) fn read_token(path: &Path, is_private: bool) -> Result<BearerToken, LoginError> {
    let read = || {
        let mut options = std::fs::OpenOptions::new();
        options.read(true);
        if is_private {
            let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
            options.custom_flags(flags.bits().cast_signed());
        }
        let file = options.open(path)?;
        let metadata = file.metadata()?;
        let own = rustix::process::geteuid().as_raw();
        if is_private
            && (!metadata.is_file() || metadata.uid() != own || metadata.mode() & OTHERS_BITS != 0)
        {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "it is not a file of this user alone: run chmod go= on it, or remove it",
            ));
        }
        let mut text = String::new();
        // One byte more shows that it is too long.
        file.take(2 * MAX_TOKEN_BYTES as u64)
            .read_to_string(&mut text)?;
        BearerToken::new(&text).map_err(io::Error::other)
    };
    read().map_err(|source| LoginError::file(path, source))
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn found(discovery: &Discovery) -> Option<String> {
        let token = discovery.find().unwrap();
        token.map(|token| token.secret().to_owned())
    }

    #[test]
    fn places_are_looked_at_in_the_order_of_the_wlcg() {
        let tmp = tempfile::tempdir().unwrap();
        let file = |name: &str| {
            let path = tmp.path().join(name);
            write(&path, format!("{name}\n")).unwrap();
            set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
            path
        };
        let missing = tmp.path().join("missing");
        let mut discovery = Discovery {
            token: Some("variable".into()),
            file: Some(file("named")),
            well_known: vec![missing.clone(), file("runtime"), file("tmp")],
        };
        assert_eq!(found(&discovery).as_deref(), Some("variable"));
        discovery.token = None;
        assert_eq!(found(&discovery).as_deref(), Some("named"));
        discovery.file = None;
        assert_eq!(found(&discovery).as_deref(), Some("runtime"));
        discovery.well_known.remove(1);
        assert_eq!(found(&discovery).as_deref(), Some("tmp"));
        discovery.well_known = vec![missing.clone()];
        assert_eq!(found(&discovery), None);
        // A file that the user named must be there.
        discovery.file = Some(missing);
        assert!(discovery.find().is_err());
    }

    #[test]
    fn file_in_a_common_directory_must_be_private() {
        let tmp = tempfile::tempdir().unwrap();
        let path = tmp.path().join("bt_u1");
        write(&path, "token").unwrap();
        for (mode, is_read) in [(0o600, true), (0o400, true), (0o640, false), (0o606, false)] {
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert_eq!(read_token(&path, true).is_ok(), is_read, "{mode:o}");
        }
        set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let link = tmp.path().join("link");
        symlink(&path, &link).unwrap();
        assert!(read_token(&link, true).is_err());
        assert!(read_token(&link, false).is_ok());
        assert!(read_token(tmp.path(), true).is_err());
        write(&path, "a".repeat(MAX_TOKEN_BYTES + 1)).unwrap();
        let error = read_token(&path, true).unwrap_err().to_string();
        assert!(
            error.contains("not a bearer token") && !error.contains("aaa"),
            "{error}"
        );
    }
}
