//! Directories and files of keys and known servers.

use std::io;
use std::path::{Path, PathBuf};

use longhaul_proto::text::printable;
use longhaul_session::{Error as SessionError, Identity};

/// File of the default identity.
const DEFAULT_IDENTITY: &str = "identity";

/// Reasons why the directory or the identity of this machine cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    /// No environment variable says where keys are kept: set `LONGHAUL_HOME` or `HOME`.
    #[error("neither LONGHAUL_HOME nor HOME is set: set LONGHAUL_HOME to the directory for keys")]
    Nowhere,
    /// The directory cannot be created: check the permissions of the one above it.
    #[error("cannot make the directory {}", display_path(path))]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The name cannot name a key: use letters, digits, '.', '_' and '-'.
    #[error("{0:?} is not a valid name for a key: use letters, digits, '.', '_' and '-'")]
    KeyName(String),
    /// The file of the identity cannot be read or written.
    #[error(transparent)]
    Identity(#[from] SessionError),
}

/// Returns the value of an environment variable, or `None` if it is unset or empty.
fn env_path(name: &str) -> Option<PathBuf> {
    std::env::var_os(name)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}

/// Returns the directory of keys: `$LONGHAUL_HOME`, else `$XDG_CONFIG_HOME/longhaul`, else
/// `~/.config/longhaul`.
///
/// # Errors
/// [`HomeError::Nowhere`].
pub fn config_dir() -> Result<PathBuf, HomeError> {
    env_path("LONGHAUL_HOME")
        .or_else(|| Some(env_path("XDG_CONFIG_HOME")?.join("longhaul")))
        .or_else(|| Some(env_path("HOME")?.join(".config/longhaul")))
        .ok_or(HomeError::Nowhere)
}

/// Returns the directory of state that one command leaves for the next and that may be deleted at
/// any time: `$LONGHAUL_STATE`, else `state` in `$LONGHAUL_HOME`, else `$XDG_STATE_HOME/longhaul`,
/// else `~/.local/state/longhaul`. Returns `None` if none of these variables nor `HOME` is set.
#[must_use]
pub fn state_dir() -> Option<PathBuf> {
    let below = |name, path| Some(env_path(name)?.join(path));
    env_path("LONGHAUL_STATE")
        .or_else(|| below("LONGHAUL_HOME", "state"))
        .or_else(|| below("XDG_STATE_HOME", "longhaul"))
        .or_else(|| below("HOME", ".local/state/longhaul"))
}

/// Returns the directory of keys. Creates it, accessible to its owner alone, if it does not exist.
///
/// # Errors
/// [`HomeError::Nowhere`], [`HomeError::Directory`].
pub fn make_dir() -> Result<PathBuf, HomeError> {
    let dir = config_dir()?;
    make_private(&dir)?;
    Ok(dir)
}

/// Creates a directory and its missing parents, accessible to their owner alone.
///
/// # Errors
/// [`HomeError::Directory`].
pub fn make_private(dir: &Path) -> Result<(), HomeError> {
    use std::os::unix::fs::DirBuilderExt;
    let made = std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir);
    made.map_err(|source| HomeError::Directory {
        path: dir.to_owned(),
        source,
    })
}

/// Returns a path in printable form.
#[must_use]
pub fn display_path(path: &Path) -> String {
    printable(path.as_os_str().as_encoded_bytes())
}

/// Returns the path of the file of servers whose keys were accepted before.
///
/// # Errors
/// As [`make_dir`].
pub fn known_hosts_file() -> Result<PathBuf, HomeError> {
    Ok(make_dir()?.join("known_hosts"))
}

/// Returns the path of the identity called `name`, or of the default identity.
///
/// # Errors
/// As [`make_dir`], and [`HomeError::KeyName`].
pub fn identity_file(name: Option<&str>) -> Result<PathBuf, HomeError> {
    let dir = make_dir()?;
    match name {
        None => Ok(dir.join(DEFAULT_IDENTITY)),
        Some(name) if is_name(name) => Ok(dir.join(format!("identity-{name}"))),
        Some(name) => Err(HomeError::KeyName(name.to_owned())),
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 64
        // The ending of files beside keys.
        && !name.ends_with(".voucher")
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

/// Loads the default identity if there is one. Creates nothing.
#[must_use]
pub fn existing_identity() -> Option<Identity> {
    Identity::load(&config_dir().ok()?.join(DEFAULT_IDENTITY)).ok()
}

/// Loads the identity in `file`, or the default identity. The default one is created when first
/// needed; then `made` is called with it and its path.
///
/// # Errors
/// As [`make_dir`], and [`HomeError::Identity`].
pub fn identity(
    file: Option<&Path>,
    made: impl FnOnce(&Identity, &Path),
) -> Result<Identity, HomeError> {
    if let Some(file) = file {
        return Ok(Identity::load(file)?);
    }
    let file = identity_file(None)?;
    if file.exists() {
        return Ok(Identity::load(&file)?);
    }
    match Identity::create(&file) {
        Ok(identity) => {
            made(&identity, &file);
            Ok(identity)
        }
        // Another command may have created it meanwhile.
        Err(_) if file.exists() => Ok(Identity::load(&file)?),
        Err(error) => Err(error.into()),
    }
}
