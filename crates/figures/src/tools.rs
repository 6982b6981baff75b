//! Resources of every run: the built programs, the scenarios, keys, and a folder for files.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use wanbed::AwakeGuard;

use crate::identities::Identities;

/// Programs, scenarios, keys, and a folder.
pub struct Tools {
    /// The `longhaul` binary.
    pub longhaul: PathBuf,
    /// The folder of scenario files.
    pub scenarios: PathBuf,
    /// Folder of sources and copies, memory-backed if possible, so that no disk is measured.
    pub scratch: tempfile::TempDir,
    /// Keys of client, server and depots.
    pub identities: Identities,
    /// In a guest, the guard that keeps its processors from halting. Otherwise labs are late by the
    /// time that the host takes to resume them.
    awake: Option<AwakeGuard>,
}

impl Tools {
    /// Finds the programs in this one's folder, and makes keys and a folder.
    ///
    /// # Errors
    /// `longhaul` or `wanbed` has not been built, or the folder cannot be made.
    pub fn prepare(scenarios: &Path) -> Result<Self> {
        let longhaul = built("longhaul")?;
        let scratch = scratch()?;
        let identities = Identities::create(&longhaul, &scratch.path().join("keys"))?;
        Ok(Self {
            longhaul,
            scenarios: scenarios.to_path_buf(),
            scratch,
            identities,
            awake: AwakeGuard::keep()?,
        })
    }

    /// Returns true if this machine's processors are kept from halting.
    pub fn are_processors_awake(&self) -> bool {
        self.awake.is_some()
    }
}

/// Finds a program of the same build in this one's folder.
///
/// # Errors
/// It has not been built.
pub fn built(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find this program's own folder")?;
    let program = own.with_file_name(name);
    if !program.exists() {
        bail!(
            "{} is missing: build it with `cargo build --release --workspace`",
            program.display()
        );
    }
    Ok(program)
}

/// Finds a program of the distribution; `package` names its package.
///
/// # Errors
/// It is not installed.
pub fn installed(name: &str, package: &str) -> Result<PathBuf> {
    let folders = [
        "/usr/sbin",
        "/usr/bin",
        "/sbin",
        "/bin",
        "/usr/local/sbin",
        "/usr/local/bin",
    ];
    folders
        .iter()
        .map(|folder| Path::new(folder).join(name))
        .find(|path| path.is_file())
        .with_context(|| {
            format!("{name} is not installed: apt-get install {package}, or `make deps`")
        })
}

fn scratch() -> Result<tempfile::TempDir> {
    let memory = Path::new("/dev/shm");
    let base = if memory.is_dir() {
        memory.to_path_buf()
    } else {
        std::env::temp_dir()
    };
    tempfile::Builder::new()
        .prefix("longhaul-figures-")
        .tempdir_in(&base)
        .with_context(|| format!("cannot make a folder in {}", base.display()))
}
