//! The reaper: a second process that outlives the lab's by a moment, however that ends. It ends the
//! processes that still run inside the lab's namespaces, and removes the lab's directory.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead, Write as _};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::error::{Doing, Result};
use crate::place::{self, Claim};

/// Time between SIGTERM and SIGKILL.
const SIGTERM_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum wait for killed processes to be gone.
const SIGKILL_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The lab's handle of the reaper. The reaper's standard input ends with the lab's process, which
/// tells it to clean up.
#[derive(Debug)]
pub(super) struct Reaper {
    orders: ChildStdin,
    _process: Child,
}

impl Reaper {
    /// Starts the reaper. It holds the claim's lock (as its standard output) until it is done.
    pub(super) fn start(claim: &Claim) -> Result<Self> {
        let lock = claim.lock().doing(|| "keeping the lab's lock".to_owned())?;
        let mut process = Command::new("/proc/self/exe")
            .arg0("wanbed")
            .arg("reaper")
            .arg(&claim.directory)
            .stdin(Stdio::piped())
            .stdout(lock)
            .stderr(Stdio::null())
            .current_dir("/")
            // a Ctrl-C or kill meant for the lab's group must not take its cleaner too
            .process_group(0)
            .spawn()
            .doing(|| "starting the lab's reaper".to_owned())?;
        let orders = process
            .stdin
            .take()
            .ok_or_else(|| io::Error::other("no pipe"))
            .doing(|| "starting the lab's reaper".to_owned())?;
        Ok(Reaper {
            orders,
            _process: process,
        })
    }

    /// Gives the namespaces of a thread of this process to the reaper.
    pub(super) fn watch(&mut self, thread: i32) -> Result<()> {
        let line = format!("/proc/{}/task/{thread}/ns/net\n", std::process::id());
        self.orders
            .write_all(line.as_bytes())
            .doing(|| "telling the lab's reaper of a node".to_owned())
    }
}

/// Runs the reaper: reads which namespaces to watch until its standard input ends, then cleans up.
///
/// # Errors
/// Its instructions cannot be read.
pub fn reap(directory: &Path) -> Result<()> {
    let _ = rustix::thread::set_name(c"wanbed-reaper");
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        // Signals are caught and ignored: only SIGKILL or the end of its work ends the reaper.
        let ignored = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        signal_hook::flag::register(signal, ignored).doing(|| "catching signals".to_owned())?;
    }
    // Held open, so that no other namespace can get the same number during the search.
    let mut namespaces = Vec::new();
    for line in io::stdin().lock().lines() {
        let line = line.doing(|| "reading what to watch over".to_owned())?;
        namespaces.extend(File::open(&line).ok());
    }
    let inodes: HashSet<u64> = namespaces
        .iter()
        .filter_map(|file| Some(file.metadata().ok()?.ino()))
        .collect();
    // The lab's own process may take a moment to end; its main thread is not in these namespaces.
    end_all(&inodes);
    place::sweep(directory);
    Ok(())
}

fn end_all(inodes: &HashSet<u64>) {
    let begun = Instant::now();
    let mut reported = HashSet::new();
    while begun.elapsed() < SIGTERM_TIMEOUT + SIGKILL_TIMEOUT {
        let inside = processes_in(inodes);
        if inside.is_empty() {
            return;
        }
        for process in inside {
            if begun.elapsed() >= SIGTERM_TIMEOUT {
                let _ = kill_process(process, Signal::KILL);
            } else if reported.insert(process) {
                let _ = kill_process(process, Signal::TERM);
                let _ = kill_process(process, Signal::CONT); // a stopped one could not receive it
            }
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Returns the processes whose network namespace is one of these. Processes of other users that
/// cannot be examined do not belong to the lab.
fn processes_in(inodes: &HashSet<u64>) -> Vec<Pid> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let inside = |entry: io::Result<std::fs::DirEntry>| {
        let entry = entry.ok()?;
        let process = Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)?;
        let namespace = std::fs::metadata(entry.path().join("ns/net")).ok()?;
        inodes.contains(&namespace.ino()).then_some(process)
    };
    entries.filter_map(inside).collect()
}
