//! The signals that ask a command to end: SIGINT and SIGTERM, and SIGHUP unless it means to read
//! something again.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Field with the mask of ignored signals in a process's status (proc(5)).
const IGNORED_FIELD: &str = "SigIgn:";

/// Receiver of the signals, from its creation on.
pub struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Option<Signal>,
}

impl StopSignals {
    /// Takes SIGINT and SIGTERM over from the system. Must be called within a tokio runtime.
    pub fn take() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: None,
        })
    }

    /// Takes over these and SIGHUP, unless SIGHUP is ignored, as under nohup(1).
    pub fn take_with_hangup() -> io::Result<Self> {
        let hangup = SignalKind::hangup();
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        Ok(Self {
            hangup: match is_ignored(&status, hangup.as_raw_value()) {
                true => None,
                false => Some(signal(hangup)?),
            },
            ..Self::take()?
        })
    }

    /// Completes each time a signal has arrived.
    pub async fn received(&mut self) {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = hangup => {}
        }
    }
}

/// Returns true if a process with this status ignores a signal.
fn is_ignored(status: &str, signal: i32) -> bool {
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix(IGNORED_FIELD));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// The copy was stopped by a signal. The same command resumes.
#[derive(Debug, thiserror::Error)]
#[error("interrupted by a signal")]
pub struct Interrupted;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ignored_signal_is_recognised_in_the_status() {
        let status =
            "Name:\tcp\nSigBlk:\t0000000000000002\nSigIgn:\t0000000000001001\nSigCgt:\t0\n";
        assert!(is_ignored(status, 1) && is_ignored(status, 13));
        assert!(!is_ignored(status, 2) && !is_ignored("", 1));
    }
}
