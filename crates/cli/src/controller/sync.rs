//! Brings a controller and this machine up to date with each other: what copies measured is
//! reported, and the tables of routes are fetched.
//!
//! A copy that ends leaves its report on the disk and starts this in a process of its own, for
//! which nobody waits. One at a time works; what another copy leaves meanwhile it finds as well.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use longhaul_control_client::Spool;
use longhaul_route_source::ClientSource;
use tokio::time::{sleep, timeout};

use super::none_is_asked;
use crate::cp::routing::reports_dir;
use crate::exit::Exit;
use crate::{answer, home};

/// How long all of it may take: a controller that is slow learns of the rest another time.
const SYNC_TIMEOUT: Duration = Duration::from_secs(20);
/// How long one that a copy has started waits: the copy itself ends first, and what others leave
/// meanwhile is reported with it.
const SYNC_DELAY: Duration = Duration::from_secs(1);
/// By how much its niceness is raised.
const LOWEST_PRIORITY: i32 = 19;
/// Passes over what waits: copies may leave more while it is reported.
const MAX_PASSES: usize = 10;
/// Held by whoever is at it.
const LOCK: &str = "sync.lock";

/// See the module.
#[derive(Args)]
pub struct SyncNow {
    /// The key to ask with [default: the default key, made when first needed].
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
    /// As copies start it: a moment later, and behind everything else on this machine.
    #[arg(long, hide = true)]
    later: bool,
}

impl SyncNow {
    /// Reports and fetches.
    pub async fn run(self) -> Result<Exit> {
        if self.later {
            // Where it stays as it is, it takes a few milliseconds from others.
            let _ = rustix::process::nice(LOWEST_PRIORITY);
            sleep(SYNC_DELAY).await;
        }
        let identity = home::identity(self.identity.as_deref())?;
        let source = ClientSource::of_home(identity.signing_key())?;
        let (controller, state) = source.controller().ok_or_else(none_is_asked)?;
        let Some(_lock) = lock(state)? else {
            answer::line("another one is at it");
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
                "the controller did not receive all within {} s; the rest waits",
                SYNC_TIMEOUT.as_secs()
            )
        })??;
        answer::line(format_args!("{reported} reports were sent"));
        Ok(Exit::Success)
    }
}

/// Held as long as what is returned lives; none where another process has it.
fn lock(state: &Path) -> Result<Option<File>> {
    let path = state.join(LOCK);
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

/// Starts it in a process of its own, which goes on when this one has ended. Where it cannot be
/// started, the end of the next copy tries again.
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
    // A key on the terminal that stops the copy's own group is not meant for it.
    command.process_group(0);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    match command.spawn() {
        // Its parent ends, and whoever takes its place reaps it.
        Ok(child) => drop(child),
        Err(error) => {
            tracing::info!(%error, "this copy is reported to the controller with the next one")
        }
    }
}
