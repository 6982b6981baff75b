//! Reports of a server on its end of a stream's connection.

use std::time::Duration;

use drs::{Evidence, FlowObservations, LimitTally, Verdict};
use tokio::time::Instant;

use crate::frame_io::FLOW_REPORT_INTERVAL;
use crate::wire::{FLOW_LIMITS, FlowReport};

/// Delay of the first report. There is no verdict sooner.
const FIRST_REPORT_DELAY: Duration = Duration::from_millis(100);

/// Schedule of a server's reports on its end of a stream. The first one is early, as the peer uses
/// it to decide how many streams to open. The pauses then double up to [`FLOW_REPORT_INTERVAL`].
#[derive(Debug, Default)]
pub(crate) struct ReportSchedule {
    /// Time of the next report, and the pause after it.
    next: Option<(Instant, Duration)>,
}

impl ReportSchedule {
    /// Returns true if a report is due, and then counts it as sent. The first call starts the
    /// schedule.
    pub(crate) fn is_due(&mut self, now: Instant) -> bool {
        match self.next {
            None => {
                self.next = Some((now + FIRST_REPORT_DELAY, FIRST_REPORT_DELAY));
                false
            }
            Some((at, pause)) if now >= at => {
                self.next = Some((
                    now + pause,
                    pause.saturating_mul(2).min(FLOW_REPORT_INTERVAL),
                ));
                true
            }
            Some(_) => false,
        }
    }
}

impl FlowReport {
    /// Creates a report from this end's observations.
    pub(crate) fn from_observation(seen: &FlowObservations) -> Self {
        let evidence = seen.tally.evidence().unwrap_or_default();
        Self {
            held_ms: FLOW_LIMITS.map(|limit| {
                seen.tally
                    .time_of(limit)
                    .as_millis()
                    .try_into()
                    .unwrap_or(u32::MAX)
            }),
            retransmits: seen.retransmits.into(),
            rtt_us: (micros(evidence.rtt), micros(evidence.min_rtt)),
            window: evidence.peer_window,
            send_buffer: evidence.send_buffer,
            streams: seen
                .advised_streams()
                .unwrap_or(0)
                .try_into()
                .unwrap_or(u16::MAX),
        }
    }

    /// Returns the report as a tally, with the evidence that it carried.
    pub(crate) fn tally(&self) -> LimitTally {
        let mut tally = LimitTally::default();
        let held = FLOW_LIMITS.into_iter().zip(self.held_ms);
        for (limit, ms) in held.clone() {
            tally.add_time(limit, Duration::from_millis(ms.into()));
        }
        if let Some((limit, _)) = tally.dominant_limit() {
            // This has no duration of its own: it is the evidence for the time counted above.
            tally.add(&Verdict {
                limit,
                evidence: Evidence {
                    rtt: Duration::from_micros(self.rtt_us.0.into()),
                    min_rtt: Duration::from_micros(self.rtt_us.1.into()),
                    peer_window: self.window,
                    send_buffer: self.send_buffer,
                    ..Evidence::default()
                },
            });
        }
        tally
    }
}

fn micros(time: Duration) -> u32 {
    time.as_micros().try_into().unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use drs::Limit;

    #[test]
    fn first_report_is_early_and_later_ones_twice_a_second() {
        let (mut schedule, begun) = (ReportSchedule::default(), Instant::now());
        let due: Vec<u64> = (0..3_000)
            .filter(|&ms| schedule.is_due(begun + Duration::from_millis(ms)))
            .collect();
        assert_eq!(due, [100, 200, 400, 800, 1_300, 1_800, 2_300, 2_800]);
    }

    #[test]
    fn report_equals_the_observation() {
        let mut seen = FlowObservations::default();
        let evidence = Evidence {
            interval: Duration::from_millis(250),
            rtt: Duration::from_millis(70),
            peer_window: 65536,
            ..Evidence::default()
        };
        for limit in Limit::ALL {
            seen.tally.add(&Verdict { limit, evidence });
        }
        seen.tally.add_time(Limit::Loss, Duration::from_secs(2));
        let reported = FlowReport::from_observation(&seen).tally();
        for limit in Limit::ALL {
            assert_eq!(
                reported.time_of(limit),
                seen.tally.time_of(limit),
                "{limit}"
            );
        }
        assert_eq!(reported.dominant_limit(), seen.tally.dominant_limit());
        assert_eq!(
            reported.evidence().map(|reported| reported.rtt),
            Some(evidence.rtt)
        );
        assert_eq!(FlowReport::default().tally().dominant_limit(), None);
    }
}
