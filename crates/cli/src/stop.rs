//! The signals that ask a command to end: SIGINT and SIGTERM, and SIGHUP unless it means to read
//! something again.

use std::io;

use longhaul_platform::process::ignores_signal;
use tokio::signal::unix::{Signal, SignalKind, signal};

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
        Ok(Self {
            hangup: match ignores_signal(hangup.as_raw_value()) {
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

/// The copy was stopped by a signal. The same command resumes.
#[derive(Debug, thiserror::Error)]
#[error("interrupted by a signal")]
pub struct Interrupted;
