//! `cp - DST`: standard input as a source.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use longhaul_transfer::{ProcessLimits, Sources};

use super::shown;
use crate::watch::CopyWatch;

/// Name of standard input in a destination directory.
const STDIN_NAME: &[u8] = b"stdin";
/// Maximum number of bytes of standard input in memory: what is read ahead and what is not yet
/// answered. It is 10 Gbit/s over 200 ms.
const MAX_STDIN_BYTES: usize = 256 << 20;

/// Use of standard input as a source.
#[derive(Debug, Clone, Copy)]
pub enum StdinUse {
    /// It is sent while it is read, if the other end can take that.
    Streamed,
    /// It is stored first, for this reason.
    Stored(&'static str),
}

/// Sources of a copy that this machine reads.
pub struct LocalSources {
    pub found: Sources,
    /// Name of each in a destination directory.
    pub names: Vec<Vec<u8>>,
    /// Name of each in messages.
    pub labels: Vec<String>,
}

impl LocalSources {
    /// Creates sources at another end, which are read as local ones are.
    pub fn relayed(found: Sources, names: Vec<Vec<u8>>, labels: Vec<String>) -> Self {
        Self {
            found,
            names,
            labels,
        }
    }

    /// Opens the sources. With `devices`, block devices are read as files. Standard input (`-`) is
    /// used as `stdin` says, and `watch` is told if it must be stored.
    ///
    /// # Errors
    /// No source can be opened.
    pub fn open(
        sources: &[PathBuf],
        recursive: bool,
        devices: bool,
        stdin: StdinUse,
        watch: &Arc<CopyWatch>,
    ) -> Result<Self> {
        if !sources.iter().any(|source| is_stdin(source)) {
            let (found, names) = match devices {
                true => Sources::local_with_devices(sources, recursive)?,
                false => Sources::local(sources, recursive)?,
            };
            return Ok(Self {
                found,
                names,
                labels: shown(sources),
            });
        }
        if sources.len() > 1 {
            bail!("- (standard input) is the only source of a copy: name a file - as ./-");
        }
        let (max_bytes, reason) = match stdin {
            StdinUse::Streamed => {
                let max_bytes = ProcessLimits::current().input_bytes(MAX_STDIN_BYTES);
                (
                    Some(max_bytes),
                    "the other end takes no file of unknown size",
                )
            }
            StdinUse::Stored(reason) => (None, reason),
        };
        let watch = watch.clone();
        let on_store = move || {
            let directory = std::env::temp_dir();
            watch.notice(&format!(
                "standard input is first stored in {}: {reason}",
                directory.display()
            ));
        };
        let found = open_stdin()
            .and_then(|stdin| Sources::input(stdin, max_bytes, on_store))
            .context("standard input cannot be read")?;
        Ok(Self {
            found,
            names: vec![STDIN_NAME.to_vec()],
            labels: vec!["-".to_owned()],
        })
    }
}

/// Returns true if standard input is the source among these sources and their destination.
pub fn is_source(paths: &[OsString]) -> bool {
    matches!(paths, [source, _] if is_stdin(Path::new(source)))
}

fn is_stdin(source: &Path) -> bool {
    source == Path::new("-")
}

fn open_stdin() -> io::Result<File> {
    Ok(io::stdin().as_fd().try_clone_to_owned()?.into())
}
