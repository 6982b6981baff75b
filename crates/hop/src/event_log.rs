//! Bound on the log lines that unknown peers and keys can cause: a limited number of lines, and a
//! count of suppressed ones.

use std::collections::HashMap;

use std::time::{Duration, Instant};

use longhaul_proto::LogRate;
use parking_lot::Mutex;

use crate::Payer;

/// Burst and rate (lines per second) for the events of one payer. A copy with many streams ends
/// with one line for each.
const MAX_BURST_LINES: u32 = 256;
const LINES_PER_SECOND: u32 = 20;
/// Burst and rate for all pending connections together, whose peers are unknown.
const STRANGERS_BURST: u32 = 100;
const STRANGERS_LINES_PER_SECOND: u32 = 10;
/// Maximum number of payers whose rate is remembered. Beyond it, those that have been silent are
/// forgotten.
const MAX_PAYERS: usize = 1024;
const FORGET_AFTER: Duration = Duration::from_secs(60);

/// Decides if an event is logged.
#[derive(Debug)]
pub struct EventLog {
    began: Instant,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    strangers: LogRate,
    payers: HashMap<Payer, (LogRate, Duration)>,
}

impl EventLog {
    /// Creates a log with full bursts.
    #[must_use]
    pub fn new() -> Self {
        Self {
            began: Instant::now(),
            state: Mutex::new(State {
                strangers: LogRate::new(STRANGERS_BURST, STRANGERS_LINES_PER_SECOND),
                payers: HashMap::new(),
            }),
        }
    }

    /// Calls `line` for an event of `payer`, or of a pending connection, unless the rate is
    /// exceeded. `line` receives the number of events suppressed since the last line, if any.
    pub fn log(&self, payer: Option<Payer>, line: impl FnOnce(Option<u64>)) {
        if let Some(left_out) = self.admit(payer) {
            line(Some(left_out).filter(|&left_out| left_out > 0));
        }
    }

    fn admit(&self, payer: Option<Payer>) -> Option<u64> {
        let now = self.began.elapsed();
        let mut state = self.state.lock();
        let Some(payer) = payer else {
            return state.strangers.admit(now);
        };
        if !state.payers.contains_key(&payer) && state.payers.len() >= MAX_PAYERS {
            state
                .payers
                .retain(|_, (_, last)| now.saturating_sub(*last) < FORGET_AFTER);
            if state.payers.len() >= MAX_PAYERS {
                return state.strangers.admit(now);
            }
        }
        let fresh = || (LogRate::new(MAX_BURST_LINES, LINES_PER_SECOND), now);
        let (rate, last) = state.payers.entry(payer).or_insert_with(fresh);
        *last = now;
        rate.admit(now)
    }
}

impl Default for EventLog {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use longhaul_proto::PublicKey;

    use super::*;

    fn key(number: u32) -> Payer {
        let mut bytes = [0; 32];
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        Payer::Key(PublicKey::from_bytes(bytes))
    }

    fn lines(log: &EventLog, payer: Option<Payer>, events: u32) -> u32 {
        (0..events).filter(|_| log.admit(payer).is_some()).count() as u32
    }

    /// A thousand times as many events as lines, from unknown peers and from one key; another key's
    /// events are still logged.
    #[test]
    fn a_flood_does_not_silence_others() {
        let log = EventLog::new();
        assert!(lines(&log, None, 100_000) < 2 * STRANGERS_BURST);
        assert!(lines(&log, Some(key(1)), 100_000) < 2 * MAX_BURST_LINES);
        assert_eq!(log.admit(Some(key(2))), Some(0));
    }

    #[test]
    fn endless_payers_cost_bounded_memory() {
        let log = EventLog::new();
        for number in 0..2 * MAX_PAYERS as u32 {
            let _ = log.admit(Some(key(number)));
        }
        assert_eq!(log.state.lock().payers.len(), MAX_PAYERS);
    }
}
