//! A program that was started, until it ends.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

/// The signals that reach the program through this process, which does not end of them.
pub struct Passed(Signals);

impl Passed {
    /// From here on.
    ///
    /// # Errors
    /// No signals can be handled.
    pub fn begin() -> io::Result<Self> {
        Signals::new([SIGINT, SIGQUIT, SIGTERM, SIGHUP]).map(Self)
    }

    /// Waits for the program. What a terminal sends reaches it without our help; what is sent to
    /// this process alone is passed on.
    ///
    /// # Errors
    /// It can't be waited for.
    pub fn wait(mut self, mut child: Child) -> io::Result<ExitStatus> {
        let handle = self.0.handle();
        let number = i32::try_from(child.id())
            .ok()
            .and_then(rustix::process::Pid::from_raw);
        std::thread::scope(|scope| {
            // Without a thread the program runs on, and no signal is passed.
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

/// The program's exit code, or 128 and the number of the signal that ended it; 125 where it has
/// neither.
#[must_use]
pub fn exit_code(status: ExitStatus) -> u8 {
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(125)
}
