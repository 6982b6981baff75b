//! A running `longhaul cp --json` whose events are received one by one, so that a run can act at a
//! given moment.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// A running copy, killed when it is dropped.
pub struct WatchedCopy {
    child: Child,
    started: Instant,
    lines: mpsc::Receiver<(Instant, Value)>,
    errors: Option<JoinHandle<String>>,
    /// Received events, with the seconds since the copy's start.
    pub events: Vec<(f64, Value)>,
}

/// Result of waiting for an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// The wanted event.
    It,
    /// The copy ended without the event.
    End,
    /// The time was over without the event.
    Nothing,
}

/// End of a copy.
pub struct Ended {
    /// Exit code. `None` if a signal ended the copy.
    pub code: Option<i32>,
    /// The final report, if the copy printed one.
    pub report: Option<Value>,
    /// Standard error of the copy.
    pub errors: String,
}

impl WatchedCopy {
    /// Starts a command that writes JSON lines.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(mut command: Command) -> Result<Self> {
        let started = Instant::now();
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start longhaul cp")?;
        let (sender, lines) = mpsc::channel();
        if let Some(out) = child.stdout.take() {
            thread::spawn(move || {
                for line in BufReader::new(out).lines().map_while(Result::ok) {
                    // The last line of a killed program may be incomplete.
                    if let Ok(event) = serde_json::from_str(&line) {
                        let _ = sender.send((Instant::now(), event));
                    }
                }
            });
        }
        let errors = child.stderr.take().map(|mut pipe| {
            thread::spawn(move || {
                let mut text = String::new();
                let _ = pipe.read_to_string(&mut text);
                text
            })
        });
        Ok(Self {
            child,
            started,
            lines,
            errors,
            events: Vec::new(),
        })
    }

    /// Returns the number of its process.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Receives events until one satisfies `wanted`, for at most `limit`.
    pub fn until(&mut self, limit: Duration, mut wanted: impl FnMut(&Value) -> bool) -> Received {
        let deadline = Instant::now() + limit;
        loop {
            match self
                .lines
                .recv_timeout(deadline.saturating_duration_since(Instant::now()))
            {
                Ok((at, event)) => {
                    let is_it = wanted(&event);
                    let seconds = at.duration_since(self.started).as_secs_f64();
                    self.events.push((seconds, event));
                    if is_it {
                        return Received::It;
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return Received::End,
                Err(RecvTimeoutError::Timeout) => return Received::Nothing,
            }
        }
    }

    /// Kills the copy with SIGKILL. Returns true if it was still running.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub fn kill(&mut self) -> Result<bool> {
        let was_there = self.child.try_wait().context("longhaul cp")?.is_none();
        let _ = self.child.kill();
        self.child.wait().context("longhaul cp")?;
        Ok(was_there)
    }

    /// Waits until the copy ends.
    ///
    /// # Errors
    /// It did not end within `limit`.
    pub fn end(mut self, limit: Duration) -> Result<(Ended, Vec<(f64, Value)>)> {
        if self.until(limit, |_| false) == Received::Nothing {
            let last = self.events.last().map(|(_, event)| event.to_string());
            bail!(
                "longhaul cp did not end within {} s; it said last: {}",
                limit.as_secs(),
                last.unwrap_or_default()
            );
        }
        let status = self.child.wait().context("longhaul cp")?;
        let errors = self.errors.take().and_then(|errors| errors.join().ok());
        let events = std::mem::take(&mut self.events);
        let report = events.iter().rev().map(|(_, event)| event);
        let ended = Ended {
            code: status.code(),
            report: report
                .into_iter()
                .find(|event| event["event"] == "report")
                .cloned(),
            errors: errors.unwrap_or_default(),
        };
        Ok((ended, events))
    }
}

impl Drop for WatchedCopy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
