//! Processor time of this program, as `/proc/self/stat` counts it.

use std::time::Instant;

use crate::wire::Cpu;

/// Clock that starts when it is created.
pub(crate) struct CpuClock {
    began: Instant,
    /// Clock ticks in user and kernel mode at the beginning; `None` if the system does not report
    /// them.
    ticks: Option<(u64, u64)>,
}

impl CpuClock {
    pub(crate) fn start() -> Self {
        Self {
            began: Instant::now(),
            ticks: ticks(),
        }
    }

    /// Returns the percentages of one processor since the beginning; zeros if the system does not
    /// report them.
    pub(crate) fn read(&self) -> Cpu {
        let (Some(before), Some(now)) = (self.ticks, ticks()) else {
            return Cpu::default();
        };
        let elapsed = self.began.elapsed().as_secs_f64().max(1e-3);
        let percent = |now: u64, before: u64| {
            let seconds =
                now.saturating_sub(before) as f64 / rustix::param::clock_ticks_per_second() as f64;
            seconds / elapsed * 100.0
        };
        let (user, system) = (percent(now.0, before.0), percent(now.1, before.1));
        Cpu {
            total: user + system,
            user,
            system,
        }
    }
}

fn ticks() -> Option<(u64, u64)> {
    parse(&std::fs::read_to_string("/proc/self/stat").ok()?)
}

/// Parses fields 14 and 15 (`utime`, `stime`, proc(5)). The name in field 2 may contain anything,
/// so fields are counted from its end.
fn parse(stat: &str) -> Option<(u64, u64)> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_parsed_for_any_process_name() {
        let line = "42 (a) b) R 1 2 3 4 5 6 7 8 9 10 11 12 13 14";
        assert_eq!(parse(line), Some((11, 12)));
        assert!(parse("42 (x) R 1").is_none() && parse("").is_none());
        assert!(ticks().is_some());
    }
}
