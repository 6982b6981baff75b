//! `cp - DST`: standard input as a source.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use longhaul_transfer::Sources;
use tempfile::NamedTempFile;

use super::shown;

/// Name of standard input in a destination directory.
const STDIN_NAME: &[u8] = b"stdin";

/// Sources of a copy that this machine reads.
pub struct LocalSources {
    pub found: Sources,
    /// Name of each in a destination directory.
    pub names: Vec<Vec<u8>>,
    /// Name of each in messages.
    pub labels: Vec<String>,
    /// File that holds what came by standard input. It is removed with this.
    _spool: Option<NamedTempFile>,
}

impl LocalSources {
    /// Creates sources at another end, which are read as local ones are.
    pub fn relayed(found: Sources, names: Vec<Vec<u8>>, labels: Vec<String>) -> Self {
        Self {
            found,
            names,
            labels,
            _spool: None,
        }
    }

    /// Opens the sources. With `devices`, block devices are read as files. Standard input (`-`) is
    /// read to its end first, into a temporary file, as a copy needs the size, and reads again what
    /// a lost stream carried.
    ///
    /// # Errors
    /// No source can be opened, or standard input cannot be stored.
    pub async fn open(sources: &[PathBuf], recursive: bool, devices: bool) -> Result<Self> {
        let is_stdin = |path: &PathBuf| path.as_path() == Path::new("-");
        if !sources.iter().any(is_stdin) {
            let (found, names) = match devices {
                true => Sources::local_with_devices(sources, recursive)?,
                false => Sources::local(sources, recursive)?,
            };
            return Ok(Self {
                found,
                names,
                labels: shown(sources),
                _spool: None,
            });
        }
        if sources.len() > 1 {
            bail!("- (standard input) is the only source of a copy: name a file - as ./-");
        }
        let spooling = tokio::task::spawn_blocking(spool_stdin);
        let spool = spooling.await?.with_context(|| {
            let directory = std::env::temp_dir();
            format!("storing standard input in {} failed", directory.display())
        })?;
        let (found, _) = Sources::local(&[spool.path()], false)?;
        Ok(Self {
            found,
            names: vec![STDIN_NAME.to_vec()],
            labels: vec!["-".to_owned()],
            _spool: Some(spool),
        })
    }
}

fn spool_stdin() -> io::Result<NamedTempFile> {
    let spool = NamedTempFile::with_prefix("longhaul-stdin-")?;
    let mut out = BufWriter::with_capacity(1 << 20, spool.as_file());
    io::copy(&mut io::stdin().lock(), &mut out)?;
    out.flush()?;
    drop(out);
    Ok(spool)
}
