//! Processor time of this program, as the system counts it.

use std::time::Instant;

use longhaul_platform::process::processor_ticks;

use crate::wire::CpuShare;

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
            ticks: processor_ticks(),
        }
    }

    /// Returns the percentages of one processor since the beginning; zeros if the system does not
    /// report them.
    pub(crate) fn read(&self) -> CpuShare {
        let (Some(before), Some(now)) = (self.ticks, processor_ticks()) else {
            return CpuShare::default();
        };
        let elapsed = self.began.elapsed().as_secs_f64().max(1e-3);
        let percent = |now: u64, before: u64| {
            let seconds =
                now.saturating_sub(before) as f64 / rustix::param::clock_ticks_per_second() as f64;
            seconds / elapsed * 100.0
        };
        let (user, system) = (percent(now.0, before.0), percent(now.1, before.1));
        CpuShare {
            total: user + system,
            user,
            system,
        }
    }
}
