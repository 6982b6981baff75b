//! Synchronizes this machine with its controller: reports what copies measured, and fetches the
//! tables of routes.
//!
//! A copy that ends leaves its report on the disk and starts this in a process of its own, which
//! nobody waits for. One process works at a time and also finds the reports that other copies leave
//! meanwhile.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use longhaul_control_client::Spool;
use longhaul_control_client::routes::ClientSource;
use tokio::time::{sleep, timeout};

use super::explain_missing_controller;
use crate::exit::Exit;
use crate::{answer, home};

/// Time limit for one run. Reports that remain are sent in a later run.
const SYNC_TIMEOUT: Duration = Duration::from_secs(20);
/// Delay of a run that a copy has started. The copy ends first, and reports that other copies leave
/// meanwhile are sent along.
const SYNC_DELAY: Duration = Duration::from_secs(1);
/// Increase of the process's niceness.
const LOWEST_PRIORITY: i32 = 19;
/// Maximum passes over waiting reports, as copies may leave more during a pass.
const MAX_PASSES: usize = 10;
/// File that is locked while a process synchronizes.
const LOCK_FILE: &str = "sync.lock";

/// Options of `longhaul controller sync`.
#[derive(Args)]
pub struct SyncCommand {
    /// The key to authenticate with [default: the default key, made when first needed].
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
    /// Run a moment later and at the lowest priority, as copies start it.
    #[arg(long, hide = true)]
    later: bool,
}

impl SyncCommand {
    /// Reports and fetches.
    pub async fn run(self) -> Result<Exit> {
        if self.later {
            // If this fails, the run takes a few milliseconds from other processes.
            let _ = rustix::process::nice(LOWEST_PRIORITY);
            sleep(SYNC_DELAY).await;
        }
        let identity = home::identity(self.identity.as_deref())?;
        let source = ClientSource::from_home(identity.signing_key())?;
        let (controller, state) = source.controller().ok_or_else(explain_missing_controller)?;
        let Some(_lock) = lock(state)? else {
            answer::write_line("another sync is running");
            return Ok(Exit::Success);
        };
        let spool = Spool(reports_dir(state));
        let all = async {
            let mut reported = 0;
            for _ in 0..MAX_PASSES {
                let waiting = spool.waiting().len();
                if waiting == 0 {
                    break;
                }
                spool.report(controller).await?;
                reported += waiting;
            }
            for receives in [false, true] {
                source.refresh(receives).await?;
            }
            Ok::<_, anyhow::Error>(reported)
        };
        let reported = timeout(SYNC_TIMEOUT, all).await.with_context(|| {
            format!(
                "the controller did not receive all reports within {} s; the rest is sent by the \
                 next sync",
                SYNC_TIMEOUT.as_secs()
            )
        })??;
        answer::write_line(format_args!("{reported} reports were sent"));
        Ok(Exit::Success)
    }
}

/// Takes the lock, held as long as the returned file lives. Returns `None` if another process has
/// it.
fn lock(state: &Path) -> Result<Option<File>> {
    let path = state.join(LOCK_FILE);
    let context = || format!("cannot lock {}", path.display());
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .with_context(context)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(std::fs::TryLockError::WouldBlock) => Ok(None),
        Err(std::fs::TryLockError::Error(error)) => Err(error).with_context(context),
    }
}

/// Starts it in a process of its own, which outlives this one. If it cannot be started, the end of
/// the next copy tries again.
pub fn start(identity: Option<&Path>) {
    use std::os::unix::process::CommandExt;
    let Ok(program) = std::env::current_exe() else {
        return;
    };
    let mut command = Command::new(program);
    command.args(["controller", "sync", "--later"]);
    if let Some(identity) = identity {
        command.arg("--identity").arg(identity);
    }
    // Ctrl-C in the copy's terminal is not meant for it.
    command.process_group(0);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    match command.spawn() {
        // Its parent ends; the process that adopts it reaps it.
        Ok(child) => drop(child),
        Err(error) => {
            tracing::info!(%error, "this copy is reported to the controller with the next one")
        }
    }
}

/// Returns the directory of waiting reports, inside the controller's state directory.
pub fn reports_dir(state: &Path) -> PathBuf {
    state.join("reports")
}
