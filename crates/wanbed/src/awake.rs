//! Keeping virtual processors from halting while something is measured.
//!
//! The host resumes a halted virtual processor when it is needed again, which takes a while on a
//! busy host. The packets of a lab are late by that time, which also counts as stolen. One thread
//! for each processor, with the policy that yields to every other thread at once (`SCHED_IDLE`,
//! sched(7)), keeps them from halting.

#![allow(unsafe_code)] // No crate wraps sched_setscheduler.

use std::io::{self, Read as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use crate::error::{Doing as _, Result};
use crate::lab::program;

/// Lowest priority that a process or a session can have.
const LEAST_NICE: i32 = 19;

/// Guard that keeps this machine's processors from halting until it is dropped, or this program
/// ends.
#[derive(Debug)]
pub struct Awake {
    child: Child,
}

impl Awake {
    /// Begins to keep the processors awake. Returns `None` if nothing is gained (this machine is
    /// not a guest, or does not say so), or if a quota limits this program's control group.
    ///
    /// # Errors
    /// [`Error::NoProgram`](crate::Error::NoProgram) if the `wanbed` program is not built,
    /// [`Error::System`](crate::Error::System) if it cannot be started.
    pub fn keep() -> Result<Option<Self>> {
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let allowed =
            rustix::thread::sched_getaffinity(None).map_or(0, |processors| processors.count());
        let usable = std::thread::available_parallelism().map_or(1, usize::from);
        if !pays(&cpuinfo, allowed as usize, usable) {
            return Ok(None);
        }
        let program = program()?;
        let child = Command::new(&program)
            .arg0("wanbed")
            .arg("awake")
            // The process ends when this program does.
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .current_dir("/")
            .process_group(0)
            .spawn()
            .doing(|| format!("starting {}", program.display()))?;
        Ok(Some(Self { child }))
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns true if it is worthwhile, given the text of /proc/cpuinfo, the number of processors on
/// which this program may run, and the number that its quota allows.
fn pays(cpuinfo: &str, allowed: usize, usable: usize) -> bool {
    let mut flags = cpuinfo
        .lines()
        .filter_map(|line| line.strip_prefix("flags")?.split_once(':'));
    let is_guest = flags.next().is_some_and(|(_, flags)| {
        flags
            .split_ascii_whitespace()
            .any(|flag| flag == "hypervisor")
    });
    is_guest && usable >= allowed
}

/// Runs the process that [`Awake`] starts: one idle thread for each processor, until standard input
/// ends.
///
/// # Errors
/// The policy or the priority is not permitted; no processor was kept awake then.
pub fn stay_awake() -> io::Result<()> {
    // A session of its own: if sessions share the processors (sched_autogroup), this one gets the
    // least.
    let _ = rustix::process::setsid();
    let _ = std::fs::write("/proc/self/autogroup", LEAST_NICE.to_string());
    rustix::process::nice(LEAST_NICE)?;
    give_way()?;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    for _ in 0..processors {
        std::thread::spawn(|| {
            loop {
                std::hint::spin_loop();
            }
        });
    }
    io::stdin().lock().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// Gives this thread, and those that it starts, the policy `SCHED_IDLE`.
fn give_way() -> io::Result<()> {
    // `struct sched_param` of the kernel: the priority, which is 0 with this policy.
    let priority: libc::c_int = 0;
    // SAFETY: the pointer is to an integer that outlives the call, which only reads it.
    let failed = unsafe {
        libc::syscall(
            libc::SYS_sched_setscheduler,
            0,
            libc::SCHED_IDLE,
            std::ptr::from_ref(&priority),
        )
    };
    match failed {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUEST: &str = "processor\t: 0\nflags\t\t: fpu vme hypervisor lahf_lm\nbugs\t\t:\n";
    const NO_GUEST: &str = "processor\t: 0\nflags\t\t: fpu vme lahf_lm\nbugs\t\t: hypervisor\n";

    #[test]
    fn keeping_awake_pays_only_in_guests_without_quota() {
        assert!(pays(GUEST, 2, 2));
        assert!(!pays(NO_GUEST, 2, 2));
        assert!(!pays("", 2, 2));
        assert!(!pays(GUEST, 8, 2));
    }
}
