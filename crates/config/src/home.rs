//! Where keys and known servers are kept.

use std::io;
use std::path::{Path, PathBuf};

use longhaul_proto::text::printable;
use longhaul_session::{Error as SessionError, Identity};

/// What keeps this machine from knowing who it is.
#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    /// Nothing says where keys are kept.
    #[error("neither LONGHAUL_HOME nor HOME is set: say where keys are to be kept")]
    Nowhere,
    /// The directory can't be made.
    #[error("cannot make the directory {}", shown(path))]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// No key can have that name.
    #[error("{0:?} can't name a key: use letters, digits, '.', '_' and '-'")]
    KeyName(String),
    /// The file of the identity.
    #[error(transparent)]
    Identity(#[from] SessionError),
}

/// The value of an environment variable that is set to something.
fn from(name: &str) -> Option<PathBuf> {
    std::env::var_os(name)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}

/// The directory: `$LONGHAUL_HOME`, else `$XDG_CONFIG_HOME/longhaul`, else `~/.config/longhaul`.
///
/// # Errors
/// [`HomeError::Nowhere`].
pub fn dir() -> Result<PathBuf, HomeError> {
    from("LONGHAUL_HOME")
        .or_else(|| Some(from("XDG_CONFIG_HOME")?.join("longhaul")))
        .or_else(|| Some(from("HOME")?.join(".config/longhaul")))
        .ok_or(HomeError::Nowhere)
}

/// Where what one command leaves for the next is kept, and nothing that anybody has to:
/// `$LONGHAUL_STATE`, else `state` in `$LONGHAUL_HOME`, else `$XDG_STATE_HOME/longhaul`, else
/// `~/.local/state/longhaul`; none where nothing says.
#[must_use]
pub fn state_dir() -> Option<PathBuf> {
    let below = |name, path| Some(from(name)?.join(path));
    from("LONGHAUL_STATE")
        .or_else(|| below("LONGHAUL_HOME", "state"))
        .or_else(|| below("XDG_STATE_HOME", "longhaul"))
        .or_else(|| below("HOME", ".local/state/longhaul"))
}

/// The directory, made if it wasn't there, for its owner alone.
///
/// # Errors
/// [`HomeError::Nowhere`], [`HomeError::Directory`].
pub fn make_dir() -> Result<PathBuf, HomeError> {
    let dir = dir()?;
    make_private(&dir)?;
    Ok(dir)
}

/// Makes a directory, and those above it, for their owner alone, where they are not there.
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

/// A path as a person may see it.
#[must_use]
pub fn shown(path: &Path) -> String {
    printable(path.as_os_str().as_encoded_bytes())
}

/// The file of servers whose keys were accepted before.
///
/// # Errors
/// As [`make_dir`].
pub fn known_hosts() -> Result<PathBuf, HomeError> {
    Ok(make_dir()?.join("known_hosts"))
}

/// The file of the identity called `name`; the default one when none.
///
/// # Errors
/// As [`make_dir`], and [`HomeError::KeyName`].
pub fn identity_file(name: Option<&str>) -> Result<PathBuf, HomeError> {
    let dir = make_dir()?;
    match name {
        None => Ok(dir.join("identity")),
        Some(name) if is_name(name) => Ok(dir.join(format!("identity-{name}"))),
        Some(name) => Err(HomeError::KeyName(name.to_owned())),
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 64
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

/// The identity in `file`, or the default one, which is made when it is first needed: then `made`
/// is called with it and its file.
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
        // Another command may have made it just now.
        Err(_) if file.exists() => Ok(Identity::load(&file)?),
        Err(error) => Err(error.into()),
    }
}
