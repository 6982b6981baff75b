//! Location of the preload object, and the loader's variable for it.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// File names of the object: as installed, and as cargo builds it.
const NAMES: [&str; 2] = ["liblonghaul-preload.so", "liblonghaul_preload_object.so"];

/// Reason why there is no object to preload. Each message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// The variable does not name a file. `LONGHAUL_PRELOAD` and `DRS_PRELOAD` name the preload
    /// object.
    #[error("{0} names {1}, which is not a file: unset it or correct it")]
    NoFile(&'static str, PathBuf),
    /// The object is in none of the usual places.
    #[error("{object} is neither in {folder} nor in its ../lib/longhaul or ../lib: install it \
        there, or name it in {0}", object = NAMES[0], folder = .1.display())]
    Nowhere(&'static str, PathBuf),
    /// Its path has a character at which the loader would split it.
    #[error(
        "the loader cannot load {1}: move the library to a path without spaces or colons, and \
         name it in {0}"
    )]
    Cut(&'static str, PathBuf),
    /// The folder of this program, or the object, cannot be examined.
    #[error("cannot find {0}: {1}")]
    Lost(PathBuf, std::io::Error),
}

/// Returns the path of the object: the value of the environment's `variable`, else next to this
/// program, in `../lib/longhaul` (where packages install it) or in `../lib`.
///
/// # Errors
/// The object is not found, or its path has a character at which the loader would split it.
pub fn find(variable: &'static str) -> Result<PathBuf, ObjectError> {
    let found = match env::var_os(variable).filter(|path| !path.is_empty()) {
        Some(path) => {
            let path = PathBuf::from(path);
            if !path.is_file() {
                return Err(ObjectError::NoFile(variable, path));
            }
            path
        }
        None => beside_program(variable)?,
    };
    let found = found
        .canonicalize()
        .map_err(|error| ObjectError::Lost(found.clone(), error))?;
    let text = found.as_os_str().as_encoded_bytes();
    if text
        .iter()
        .any(|byte| *byte == b':' || byte.is_ascii_whitespace())
    {
        return Err(ObjectError::Cut(variable, found));
    }
    Ok(found)
}

fn beside_program(variable: &'static str) -> Result<PathBuf, ObjectError> {
    let program = env::current_exe()
        .map_err(|error| ObjectError::Lost("the directory of this program".into(), error))?;
    let folder = program.parent().unwrap_or(Path::new("/"));
    let folders = ["", "../lib/longhaul", "../lib"].map(|relative| folder.join(relative));
    let candidates = folders
        .iter()
        .flat_map(|folder| NAMES.map(|name| folder.join(name)));
    let found = candidates.into_iter().find(|path| path.is_file());
    found.ok_or_else(|| ObjectError::Nowhere(variable, folder.into()))
}

/// Returns the value of `LD_PRELOAD`: the object, followed by what the variable already holds.
#[must_use]
pub fn ld_preload(object: &Path) -> OsString {
    let mut all = object.as_os_str().to_owned();
    if let Some(others) = env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        all.push(":");
        all.push(others);
    }
    all
}
