//! A process, and the resources that it used according to the kernel.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time limit for a server to wait for its child processes.
const REAP_TIMEOUT: Duration = Duration::from_secs(5);

/// Resources used by a process and the children that it waited for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Used {
    pub user: f64,
    pub system: f64,
    /// Context switches, voluntary and involuntary.
    pub switches: u64,
}

impl Used {
    /// Returns processor time, in seconds.
    pub fn seconds(&self) -> f64 {
        self.user + self.system
    }
}

/// Runs a client to its end. Returns the wall-clock seconds, and the resources used.
#[allow(clippy::zombie_processes, reason = "wait4 waits for it")]
pub fn run(mut command: Command) -> (f64, Used) {
    let begun = Instant::now();
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
    let child = child.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (status, used) = wait(&child);
    assert_eq!(status, 0, "{command:?} failed");
    (begun.elapsed().as_secs_f64(), used)
}

/// Ends a server that is done with all its connections, and returns the resources used.
pub fn end(server: &Child) -> Used {
    reap(server);
    stop(server)
}

/// Ends a server, or the process that runs it.
pub fn stop(server: &Child) -> Used {
    let pid = rustix::process::Pid::from_child(server);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("a server that runs");
    wait(server).1
}

/// Waits until the server has no children: a child's resources only count once the server has
/// waited for it.
fn reap(server: &Child) {
    let pid = server.id();
    let until = Instant::now() + REAP_TIMEOUT;
    loop {
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        if children.expect("the server's children").trim().is_empty() {
            return;
        }
        assert!(
            Instant::now() < until,
            "a server that does not wait for its children"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn wait(child: &Child) -> (i32, Used) {
    let mut status = 0;
    // SAFETY: rusage is plain numbers, for which zeros are a value.
    #[allow(unsafe_code, reason = "only wait4 reports what one child took")]
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live variables of the types that wait4 writes; the child has not
    // been waited for.
    #[allow(unsafe_code, reason = "only wait4 reports what one child took")]
    let waited =
        unsafe { libc::wait4(child.id().cast_signed(), &raw mut status, 0, &raw mut usage) };
    assert_eq!(waited, child.id().cast_signed(), "wait4");
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    let used = Used {
        user: seconds(usage.ru_utime),
        system: seconds(usage.ru_stime),
        switches: (usage.ru_nvcsw + usage.ru_nivcsw).cast_unsigned(),
    };
    (status, used)
}
