//! A started program, until it ends.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

/// Signals that this process passes to the program without ending itself.
pub struct Passed(Signals);

impl Passed {
    /// Begins to catch the signals.
    ///
    /// # Errors
    /// The signals cannot be handled.
    pub fn begin() -> io::Result<Self> {
        Signals::new([SIGINT, SIGQUIT, SIGTERM, SIGHUP]).map(Self)
    }

    /// Waits for the program. Signals from a terminal reach it by themselves; signals sent to this
    /// process alone are passed on.
    ///
    /// # Errors
    /// The wait fails.
    pub fn wait(mut self, mut child: Child) -> io::Result<ExitStatus> {
        let handle = self.0.handle();
        let number = i32::try_from(child.id())
            .ok()
            .and_then(rustix::process::Pid::from_raw);
        std::thread::scope(|scope| {
            // Without a thread the program still runs, but no signal is passed on.
            let _ = std::thread::Builder::new().spawn_scoped(scope, || {
                for signal in self.0.forever() {
                    let passed_on = match signal {
                        SIGTERM => rustix::process::Signal::TERM,
                        SIGHUP => rustix::process::Signal::HUP,
                        _ => continue,
                    };
                    if let Some(number) = number {
                        let _ = rustix::process::kill_process(number, passed_on);
                    }
                }
            });
            let status = child.wait();
            handle.close();
            status
        })
    }
}

/// Returns the program's exit code, or 128 plus the number of the signal that ended it, or 125 if
/// it has neither.
#[must_use]
pub fn exit_code(status: ExitStatus) -> u8 {
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(125)
}
