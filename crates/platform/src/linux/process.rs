//! Threads, programs and signals.

use std::io;
use std::path::PathBuf;

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

/// Field with the mask of ignored signals in a process's status (proc(5)).
const IGNORED_FIELD: &str = "SigIgn:";

/// Sets the niceness of the calling thread.
pub fn set_thread_niceness(niceness: i32) {
    // On Linux, this call changes the calling thread only.
    let _ = rustix::process::setpriority_process(None, niceness);
}

/// Returns a path that leads to the file of the running program, also after it was replaced.
#[must_use]
pub fn own_program() -> PathBuf {
    "/proc/self/exe".into()
}

/// Returns the path from which the running program was started; empty if it is not known.
#[must_use]
pub fn own_program_path() -> PathBuf {
    std::fs::read_link(own_program()).unwrap_or_default()
}

/// Has the system terminate this process in good order when its parent, the process with this
/// number, ends for any reason. Returns false if it has ended already.
///
/// # Errors
/// Those of prctl(2).
pub fn end_with_parent(parent: i32) -> io::Result<bool> {
    set_parent_process_death_signal(Some(Signal::TERM))?;
    // The parent may have ended before that.
    Ok(getppid().map(Pid::as_raw_pid) == Some(parent))
}

/// Returns true if this process ignores a signal, as those of nohup(1) do.
#[must_use]
pub fn ignores_signal(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    is_ignored(&status, signal)
}

/// Returns true if a process with this status ignores a signal.
fn is_ignored(status: &str, signal: i32) -> bool {
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix(IGNORED_FIELD));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// Returns the processor time of this process in user and kernel mode, in clock ticks, as
/// `/proc/self/stat` counts it.
#[must_use]
pub fn processor_ticks() -> Option<(u64, u64)> {
    parse_stat(&std::fs::read_to_string("/proc/self/stat").ok()?)
}

/// Parses fields 14 and 15 (`utime`, `stime`, proc(5)). The name in field 2 may contain anything,
/// so fields are counted from its end.
fn parse_stat(stat: &str) -> Option<(u64, u64)> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_parsed_for_any_process_name() {
        let line = "42 (a) b) R 1 2 3 4 5 6 7 8 9 10 11 12 13 14";
        assert_eq!(parse_stat(line), Some((11, 12)));
        assert!(parse_stat("42 (x) R 1").is_none() && parse_stat("").is_none());
        assert!(processor_ticks().is_some());
    }

    #[test]
    fn an_ignored_signal_is_recognised_in_the_status() {
        let status =
            "Name:\tcp\nSigBlk:\t0000000000000002\nSigIgn:\t0000000000001001\nSigCgt:\t0\n";
        assert!(is_ignored(status, 1) && is_ignored(status, 13));
        assert!(!is_ignored(status, 2) && !is_ignored("", 1));
    }
}
