//! `longhaul-reference PROJECT DIRECTORY` writes `errors.md` and `metrics.md` into a directory, for
//! the pages of the book that include them.

#![forbid(unsafe_code)]

use std::env;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use longhaul_reference::{errors, metrics, sources};

fn main() -> Result<()> {
    let mut arguments = env::args_os().skip(1).map(PathBuf::from);
    let (Some(project), Some(directory)) = (arguments.next(), arguments.next()) else {
        anyhow::bail!("name the project's directory and the directory to write the pages into");
    };
    let sources = sources::read(&project)?;
    let errors = errors::page(&errors::collect(&sources));
    let metrics = metrics::page(&metrics::collect(&sources)?);
    fs::create_dir_all(&directory)
        .with_context(|| format!("cannot make {}", directory.display()))?;
    for (name, text) in [("errors.md", errors), ("metrics.md", metrics)] {
        let file = directory.join(name);
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}
