//! Scheduling of a link's thread, so that the kernel wakes it in time.
#![allow(unsafe_code)] // Scheduling classes are set by system calls that no crate here wraps.

use std::num::NonZeroU64;

use super::report::Scheduling;

/// Priority above every ordinary thread, and below the kernel's own real-time threads.
const PRIORITY: libc::c_int = 10;
/// Time slice in nanoseconds: the minimum of EEVDF, with which it serves the thread soon.
const SLICE: u64 = 100_000;
const NICE: libc::c_int = -10;

/// Makes the calling thread's wake-ups as prompt as the user's privileges allow. Returns the method
/// used.
pub fn hurry() -> Scheduling {
    // The default of 50 microseconds would be added to every wait.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    if real_time() {
        Scheduling::RealTime
    } else if raised() {
        Scheduling::Raised
    } else if short_slice() {
        Scheduling::ShortSlice
    } else {
        Scheduling::Ordinary
    }
}

fn real_time() -> bool {
    // SAFETY: `sched_param` is plain data, for which all zeroes is a value.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = PRIORITY;
    // A child process must not inherit it.
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the kernel reads one `sched_param`; 0 is the calling thread.
    unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) == 0 }
}

fn raised() -> bool {
    // SAFETY: takes its arguments by value; on Linux 0 is the calling thread, not its process.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) == 0 }
}

/// `struct sched_attr` as of Linux 3.14, 48 bytes.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

const ATTRIBUTES: u32 = size_of::<Attributes>() as u32;

fn short_slice() -> bool {
    let asked = Attributes {
        size: ATTRIBUTES,
        runtime: SLICE,
        ..Attributes::default()
    };
    let mut got = Attributes::default();
    // SAFETY: the kernel reads `size` bytes from `asked`; 0 is the calling thread.
    let set = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const asked, 0) };
    // SAFETY: the kernel writes at most the given number of bytes to `got`.
    let read = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut got, ATTRIBUTES, 0) };
    // Kernels before 6.12 accept the slice silently, and ignore it.
    set == 0 && read == 0 && got.runtime == SLICE
}
