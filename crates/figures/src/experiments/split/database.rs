//! A PostgreSQL server of one run. Its directory is removed with it, and holds its socket.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::children::{Server, succeed_within};

/// Maximum time for creating a cluster, or for starting a server.
const TIMEOUT: Duration = Duration::from_secs(60);
/// User of the server (`nobody`) if this program runs as root, which PostgreSQL refuses.
const NOBODY: u32 = 65534;

/// A database server that runs while this value lives.
pub struct Database {
    // Dropped, and so ended, before its directory is removed.
    _server: Server,
    dir: TempDir,
}

impl Database {
    /// Makes a cluster, and starts it.
    ///
    /// # Errors
    /// PostgreSQL is missing, or does not start.
    pub fn start() -> Result<Self> {
        let dir = tempfile::tempdir().context("cannot make a directory")?;
        if rustix::process::getuid().is_root() {
            std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755))?;
            chown(dir.path(), Some(NOBODY), Some(NOBODY))?;
        }
        let programs = programs()?;
        let cluster = dir.path().join("cluster");
        let mut make = command(&programs.join("initdb"), dir.path());
        make.args([
            "--auth=trust",
            "--username=agent",
            "--no-sync",
            "--locale=C",
            "-D",
        ])
        .arg(&cluster);
        succeed_within(make, "initdb", TIMEOUT)?;
        let mut serve = command(&programs.join("postgres"), dir.path());
        serve.arg("-D").arg(&cluster).arg("-k").arg(dir.path());
        serve.args([
            "-c",
            "listen_addresses=",
            "-c",
            "dynamic_shared_memory_type=mmap",
        ]);
        let server =
            Server::start_within(serve, "PostgreSQL", "ready to accept connections", TIMEOUT)?;
        Ok(Self {
            _server: server,
            dir,
        })
    }

    /// Returns the URL of its only database.
    pub fn url(&self) -> String {
        format!(
            "postgres:///postgres?user=agent&host={}",
            self.dir.path().display()
        )
    }
}

fn command(program: &Path, dir: &Path) -> Command {
    let mut command = match rustix::process::getuid().is_root() {
        false => Command::new(program),
        true => {
            let mut command = Command::new("setpriv");
            command
                .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
                .arg(program);
            command
        }
    };
    command.current_dir(dir).stdin(Stdio::null());
    command
}

/// Returns the folder of the server's programs: Debian has one for each release.
fn programs() -> Result<PathBuf> {
    let in_path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = std::env::split_paths(&in_path).collect();
    if let Ok(releases) = std::fs::read_dir("/usr/lib/postgresql") {
        places.extend(releases.flatten().map(|release| release.path().join("bin")));
    }
    let found = places
        .into_iter()
        .find(|place| place.join("initdb").exists());
    found.context("PostgreSQL is missing: apt-get install postgresql")
}
