//! Where keys and known servers are kept.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use longhaul_proto::text::printable;
use longhaul_session::Identity;

/// The directory: `$LONGHAUL_HOME`, else `$XDG_CONFIG_HOME/longhaul`, else `~/.config/longhaul`.
pub fn dir() -> Result<PathBuf> {
    let from = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    if let Some(dir) = from("LONGHAUL_HOME") {
        return Ok(dir);
    }
    if let Some(config) = from("XDG_CONFIG_HOME") {
        return Ok(config.join("longhaul"));
    }
    match from("HOME") {
        Some(home) => Ok(home.join(".config/longhaul")),
        None => bail!("neither LONGHAUL_HOME nor HOME is set: say where keys are to be kept"),
    }
}

/// Where what one copy leaves for the next is kept, and nothing that anybody has to: `$LONGHAUL_STATE`, else `state` in `$LONGHAUL_HOME`,
/// else `$XDG_STATE_HOME/longhaul`, else `~/.local/state/longhaul`; none where nothing says.
pub fn state_dir() -> Option<PathBuf> {
    let from = |name: &str, below: &str| {
        let value = std::env::var_os(name).filter(|value| !value.is_empty())?;
        Some(PathBuf::from(value).join(below))
    };
    from("LONGHAUL_STATE", "")
        .or_else(|| from("LONGHAUL_HOME", "state"))
        .or_else(|| from("XDG_STATE_HOME", "longhaul"))
        .or_else(|| from("HOME", ".local/state/longhaul"))
}

/// The directory, made if it wasn't there, for its owner alone.
pub fn make_dir() -> Result<PathBuf> {
    let dir = dir()?;
    make_private(&dir)?;
    Ok(dir)
}

/// Makes a directory, and those above it, for their owner alone, where they are not there.
pub fn make_private(dir: &Path) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.with_context(|| format!("cannot make the directory {}", dir.display()))
}

/// A path as a person may see it.
pub fn shown(path: &Path) -> String {
    printable(path.as_os_str().as_encoded_bytes())
}

/// The file of servers whose keys were accepted before.
pub fn known_hosts() -> Result<PathBuf> {
    Ok(make_dir()?.join("known_hosts"))
}

/// The file of the identity called `name`; the default one when none.
pub fn identity_file(name: Option<&str>) -> Result<PathBuf> {
    let dir = make_dir()?;
    match name {
        None => Ok(dir.join("identity")),
        Some(name) if is_name(name) => Ok(dir.join(format!("identity-{name}"))),
        Some(name) => bail!("{name:?} can't name a key: use letters, digits, '.', '_' and '-'"),
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 64
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

/// The identity in `file`, or the default one, which is made when it is first needed.
pub fn identity(file: Option<&Path>) -> Result<Identity> {
    if let Some(file) = file {
        return Ok(Identity::load(file)?);
    }
    let file = identity_file(None)?;
    if file.exists() {
        return Ok(Identity::load(&file)?);
    }
    match Identity::create(&file) {
        Ok(identity) => {
            eprintln!(
                "longhaul: made a new key, {}, in {}",
                identity.public(),
                shown(&file)
            );
            Ok(identity)
        }
        // Another command may have made it just now.
        Err(_) if file.exists() => Ok(Identity::load(&file)?),
        Err(error) => Err(error.into()),
    }
}
