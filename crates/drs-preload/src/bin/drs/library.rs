//! Where the preload library is.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Names of the library: as installed, and as cargo builds it.
const NAMES: [&str; 2] = ["libdrs-preload.so", "libdrs_preload.so"];

/// The library: where `DRS_PRELOAD` says, else beside this program or in `../lib`.
///
/// # Errors
/// It is nowhere, or its path has a character at which the loader would cut it.
pub fn find() -> Result<PathBuf> {
    let found = match env::var_os("DRS_PRELOAD").filter(|path| !path.is_empty()) {
        Some(path) => {
            let path = PathBuf::from(path);
            if !path.is_file() {
                bail!(
                    "DRS_PRELOAD names {}, which is no file: unset it or correct it",
                    path.display()
                );
            }
            path
        }
        None => beside_program()?,
    };
    let found = found
        .canonicalize()
        .with_context(|| format!("cannot find {}", found.display()))?;
    let text = found.as_os_str().as_encoded_bytes();
    if text
        .iter()
        .any(|byte| *byte == b':' || byte.is_ascii_whitespace())
    {
        bail!(
            "the loader cannot be given {}: put the library where the path has no blank and no colon, and name it in DRS_PRELOAD",
            found.display()
        );
    }
    Ok(found)
}

fn beside_program() -> Result<PathBuf> {
    let program = env::current_exe().context("cannot find this program's own folder")?;
    let folder = program.parent().unwrap_or(Path::new("/"));
    let folders = [folder.to_path_buf(), folder.join("../lib")];
    let candidates = folders
        .iter()
        .flat_map(|folder| NAMES.map(|name| folder.join(name)));
    match candidates.into_iter().find(|path| path.is_file()) {
        Some(path) => Ok(path),
        None => bail!(
            "{} is neither in {} nor in its ../lib: install it there, or name it in DRS_PRELOAD",
            NAMES[0],
            folder.display()
        ),
    }
}
