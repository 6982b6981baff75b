//! Virtual processors that do not halt while something is measured.
//!
//! The host resumes a halted virtual processor when it is needed again, which takes a while where
//! the host is busy: packets of a lab are late by it, and the time counts as stolen. One thread for
//! each processor, with the policy that gives way to every other thread at once (`SCHED_IDLE`,
//! sched(7)), keeps them from halting.

#![allow(unsafe_code)] // No crate wraps sched_setscheduler.

use std::io::{self, Read as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use crate::error::{Doing as _, Result};
use crate::lab::program;

/// The least weight that a process or a session can have.
const LEAST_NICE: i32 = 19;

/// Keeps this machine's processors from halting until it is dropped, or this program ends.
#[derive(Debug)]
pub struct Awake {
    child: Child,
}

impl Awake {
    /// Begins; none where nothing is to be gained (this is no guest, or does not say so) or where a
    /// quota bounds what this program's control group may use.
    ///
    /// # Errors
    /// [`Error::NoProgram`](crate::Error::NoProgram) when the `wanbed` program is not built,
    /// [`Error::System`](crate::Error::System) when it cannot be started.
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
            // Its end is this program's end.
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

/// Whether it pays, by the text of /proc/cpuinfo, how many processors this program may run on, and
/// how many of them its quota is worth.
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

/// The process that [`Awake`] starts: one idle thread for each processor, until standard input
/// ends.
///
/// # Errors
/// The policy or the weight is not granted; nothing has been kept awake then.
pub fn stay_awake() -> io::Result<()> {
    // Threads of a session of its own: where sessions share the processors (sched_autogroup), this
    // one's share is the least.
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
    // SAFETY: the pointer is to an integer that outlives the call, which reads it alone.
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
    fn it_pays_in_guests_alone_and_not_where_a_quota_would_be_used_up() {
        assert!(pays(GUEST, 2, 2));
        assert!(!pays(NO_GUEST, 2, 2));
        assert!(!pays("", 2, 2));
        assert!(!pays(GUEST, 8, 2));
    }
}
