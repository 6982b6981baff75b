//! Standard error of an ssh connection.

use std::sync::Arc;
use std::time::Duration;

use longhaul_output::message;
use longhaul_proto::text::printable;
use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::ChildStderr;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Maximum bytes of a line of standard error that is shown.
const MAX_ERROR_LINE_BYTES: u64 = 4096;
/// Time limit for reading ssh's remaining output.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// Lines of ssh and the far side on standard error. They are shown as they arrive. Only the last
/// one before the far side has started is held back, as it becomes the reason of an error.
#[derive(Debug)]
pub struct StderrLines {
    kept: Arc<Mutex<StderrState>>,
    reading: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct StderrState {
    last: Option<String>,
    begun: bool,
}

impl StderrLines {
    /// Starts to read the lines. Must be called on a runtime.
    pub fn show(stderr: Option<ChildStderr>) -> Self {
        let kept = Arc::new(Mutex::new(StderrState::default()));
        let reading = stderr.map(|stderr| {
            let kept = kept.clone();
            tokio::spawn(async move {
                let mut stderr = BufReader::new(stderr);
                let mut line = Vec::new();
                loop {
                    line.clear();
                    let read = (&mut stderr)
                        .take(MAX_ERROR_LINE_BYTES)
                        .read_until(b'\n', &mut line)
                        .await;
                    if !matches!(read, Ok(1..)) {
                        return;
                    }
                    let text = printable(line.trim_ascii_end());
                    if text.is_empty() {
                        continue;
                    }
                    let mut kept = kept.lock();
                    if let Some(before) = kept.last.replace(text) {
                        message!("{before}");
                    }
                    if kept.begun
                        && let Some(text) = kept.last.take()
                    {
                        message!("{text}");
                    }
                }
            })
        });
        Self {
            kept,
            reading: Mutex::new(reading),
        }
    }

    /// Records that the far side runs: nothing is held back any more.
    pub fn mark_started(&self) {
        let mut kept = self.kept.lock();
        kept.begun = true;
        if let Some(text) = kept.last.take() {
            message!("{text}");
        }
    }

    /// Returns the last line, which has not been shown.
    pub async fn last_line(&self) -> Option<String> {
        let reading = self.reading.lock().take();
        if let Some(reading) = reading {
            let _ = timeout(READ_TIMEOUT, reading).await;
        }
        self.kept.lock().last.take()
    }
}
