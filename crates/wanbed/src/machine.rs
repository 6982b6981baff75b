//! Activity of the machine itself: a figure from an overloaded machine, or one with stolen
//! processor time, is invalid.

use serde::{Deserialize, Serialize};

/// CPU time of all processors together since boot, in ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CpuTicks {
    busy: u64,
    steal: u64,
    all: u64,
}

/// Use of the processors over a span of time, as shares of their time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuUse {
    /// Share of the time spent working, 0 to 1. It excludes programs of low priority (nice(1)),
    /// which yield to a lab.
    pub busy: f64,
    /// Share of the time that the hypervisor gave to others although there was work, 0 to 1.
    pub steal: f64,
}

impl CpuTicks {
    /// Reads `/proc/stat`; all values are zero if it does not exist.
    pub(crate) fn now() -> Self {
        std::fs::read_to_string("/proc/stat")
            .ok()
            .and_then(|text| Self::parse(&text))
            .unwrap_or_default()
    }

    /// Parses the `cpu` line: user, nice, system, idle, iowait, irq, softirq, steal (guest time is
    /// included in user).
    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks: Vec<u64> = line
            .split_ascii_whitespace()
            .take(8)
            .map_while(|tick| tick.parse().ok())
            .collect();
        let [user, nice, system, idle, iowait, irq, softirq, steal] = ticks[..] else {
            return None;
        };
        let busy = user + system + irq + softirq;
        Some(CpuTicks {
            busy,
            steal,
            all: busy + nice + idle + iowait + steal,
        })
    }

    /// Returns the shares between an earlier reading and this one.
    pub(crate) fn since(self, earlier: Self) -> CpuUse {
        let all = self.all.saturating_sub(earlier.all).max(1) as f64;
        CpuUse {
            busy: self.busy.saturating_sub(earlier.busy) as f64 / all,
            steal: self.steal.saturating_sub(earlier.steal) as f64 / all,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_the_time_between_two_readings() {
        let first = CpuTicks::parse("cpu  100 0 50 800 10 5 5 30 0 0\ncpu0 1 2 3\n").unwrap();
        let second = CpuTicks::parse("cpu  130 10 70 830 10 5 5 40 0 0\n").unwrap();
        assert_eq!(
            second.since(first),
            CpuUse {
                busy: 0.5,
                steal: 0.1
            }
        );
        assert_eq!(
            second.since(second),
            CpuUse {
                busy: 0.0,
                steal: 0.0
            }
        );
        assert_eq!(CpuTicks::parse("cpu  1 2 3\n"), None);
    }
}
