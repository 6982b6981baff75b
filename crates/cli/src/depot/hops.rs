//! Sums of what a depot measured on the hops it relays over, bounded and in the controller's form.
//! Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use longhaul_control_api::measurements::{Conditions, Measurement, Quantity, Source};
use longhaul_depot::{HopEnd, HopReport, Train};

use crate::of_path::{MeasuredPath, convert_limit, loss_share, probe_measurements};

/// Maximum number of paths in one report; sessions over others are not reported.
const MAX_PATHS: usize = 1024;
/// Minimum time for a meaningful rate.
const MIN_RATE_TIME: Duration = Duration::from_millis(500);

/// Sums of one interval.
#[derive(Debug, Default)]
pub struct HopSums {
    paths: BTreeMap<(HopEnd, HopEnd), PathSum>,
    /// Probe results from other depots, each with its time.
    trains: Vec<(HopReport, Train, u64)>,
}

#[derive(Debug, Default)]
struct PathSum {
    sessions: u32,
    rtt: Duration,
    rtts: u32,
    lost: u64,
    segments: u64,
    /// Bytes, duration and limit of the session that moved most.
    most: (u64, Duration),
    limit: Option<drs::Limit>,
    congestion: String,
}

impl HopSums {
    /// Adds an ended session or probe over a hop, at the moment `at_ms`.
    pub fn add(&mut self, report: &HopReport, at_ms: u64) {
        if let Some(train) = report.train {
            if self.trains.len() < MAX_PATHS {
                self.trains.push((report.clone(), train, at_ms));
            }
            return;
        }
        let path = (report.from.clone(), report.to.clone());
        if self.paths.len() >= MAX_PATHS && !self.paths.contains_key(&path) {
            return;
        }
        let (sum, seen) = (self.paths.entry(path).or_default(), &report.observation);
        sum.sessions = sum.sessions.saturating_add(1);
        if !seen.rtt.is_zero() {
            sum.rtt = sum.rtt.saturating_add(seen.rtt);
            sum.rtts = sum.rtts.saturating_add(1);
        }
        sum.lost = sum.lost.saturating_add(seen.lost);
        sum.segments = sum.segments.saturating_add(seen.segments);
        if seen.bytes > sum.most.0 && seen.time >= MIN_RATE_TIME {
            sum.most = (seen.bytes, seen.time);
            sum.limit = seen.tally.dominant_limit().map(|(limit, _)| limit);
            sum.congestion.clone_from(&seen.congestion);
        }
    }

    /// Returns everything as measurements at the moment `at_ms` by the depot named `me`, and resets
    /// the sums.
    pub fn take(&mut self, me: &str, at_ms: u64) -> Vec<Measurement> {
        let mut found = Vec::new();
        let name = |end: HopEnd| match end {
            HopEnd::Here => me.to_owned(),
            HopEnd::Key(key) => key.to_string(),
            HopEnd::At(endpoint) => endpoint.host.to_string(),
        };
        for (report, train, at_ms) in std::mem::take(&mut self.trains) {
            let rtt = Some(report.observation.rtt.as_secs_f64()).filter(|rtt| *rtt > 0.0);
            let ends = (name(report.from), name(report.to));
            found.extend(probe_measurements(ends, at_ms, rtt, Some(&train), None));
        }
        for ((from, to), sum) in std::mem::take(&mut self.paths) {
            let [from, to] = [from, to].map(name);
            let (bytes, time) = sum.most;
            let conditions = Conditions {
                bytes: (bytes > 0).then_some(bytes),
                duration_s: (bytes > 0).then_some(time.as_secs_f64()),
                streams: Some(1),
                congestion: (!sum.congestion.is_empty()).then(|| sum.congestion.clone()),
                limit: sum.limit.and_then(convert_limit),
                transfer: None,
            };
            let path = MeasuredPath {
                from,
                to,
                at_ms,
                source: Source::Relay,
                conditions,
            };
            let rtt = (sum.rtts > 0).then(|| (sum.rtt / sum.rtts).as_secs_f64());
            let rate = (bytes > 0).then(|| bytes as f64 * 8.0 / time.as_secs_f64());
            found.extend(path.measurements([
                (Quantity::Rtt, rtt),
                (Quantity::Loss, loss_share(sum.lost, sum.segments)),
                (Quantity::Rate, rate),
            ]));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use longhaul_control_api::measurements::Limit;
    use longhaul_depot::HopObservation;

    use super::*;

    fn report(to: &str, bytes: u64, rtt_ms: u64) -> HopReport {
        HopReport {
            from: HopEnd::Here,
            to: HopEnd::At(to.parse().unwrap()),
            observation: HopObservation {
                rtt: Duration::from_millis(rtt_ms),
                bytes,
                time: Duration::from_secs(1),
                segments: 1000,
                lost: 10,
                ..HopObservation::default()
            },
            train: None,
        }
    }

    #[test]
    fn probes_of_others_are_reported_with_their_moments() {
        let mut sums = HopSums::default();
        let train = Train {
            bytes: 1_000_000,
            duration: Duration::from_secs(1),
            rate: 50e6,
            still_growing: true,
        };
        let probe = HopReport {
            train: Some(train),
            ..report("h:1", 0, 100)
        };
        sums.add(&probe, 5);
        let reported = sums.take("me", 7);
        let values: Vec<_> = reported
            .iter()
            .map(|one| (one.quantity, one.value, one.at_ms))
            .collect();
        assert_eq!(values, [(Quantity::Rtt, 0.1, 5), (Quantity::Rate, 50e6, 5)]);
        assert!(reported.iter().all(|one| one.source == Source::Probe));
        assert_eq!(reported[1].conditions.limit, Some(Limit::CongestionWindow));
        assert!(sums.take("me", 8).is_empty());
        for _ in 0..2 * MAX_PATHS {
            sums.add(&probe, 5);
        }
        assert_eq!(sums.take("me", 9).len(), 2 * MAX_PATHS);
    }

    #[test]
    fn sessions_over_one_path_are_one_report_and_paths_are_bounded() {
        let mut sums = HopSums::default();
        sums.add(&report("h:1", 1_000_000, 100), 1);
        sums.add(&report("h:1", 2_000_000, 200), 2);
        let reported = sums.take("me", 7);
        let values: Vec<(Quantity, f64)> = reported
            .iter()
            .map(|one| (one.quantity, one.value))
            .collect();
        assert_eq!(
            values,
            [
                (Quantity::Rtt, 0.15),
                (Quantity::Loss, 0.01),
                (Quantity::Rate, 16e6)
            ]
        );
        assert!(
            reported
                .iter()
                .all(|one| (&one.from[..], &one.to[..], one.at_ms) == ("me", "h", 7))
        );
        assert!(sums.take("me", 8).is_empty());
        for path in 0..2 * MAX_PATHS {
            sums.add(&report(&format!("h{path}:1"), 1, 1), 3);
        }
        assert_eq!(sums.take("me", 9).len(), 3 * MAX_PATHS);
    }
}
