//! Outcomes of transfers: failed routes, actual against expected durations, and the accuracy of
//! promises.

use longhaul_control_api::forecasts::{Coverage, Spread};
use longhaul_control_api::transfers::{Outcome as Ended, RouteUsed, Score, TransferReport};
use longhaul_routing::Quantiles;
use longhaul_routing::forecast::CopyEnding;
use longhaul_routing::route::trust::TransferOutcome;
use longhaul_routing::route::{NodeId, RouteDepots, Transfer};

use super::intake::reporting_end;
use super::{DEFAULT_STREAMS, RoutingState};
use crate::places::Speaker;

impl RoutingState {
    /// Processes the report of a transfer by one of its ends.
    pub fn take_report(&mut self, speaker: &Speaker, report: &TransferReport, now: f64) {
        let (Some(from), Some(to)) = (&report.from, &report.to) else {
            return;
        };
        if report.outcome == Ended::Failed {
            self.failed += 1;
        }
        let ending = match report.outcome {
            Ended::Done => Some(CopyEnding::Took(report.seconds)),
            Ended::Cancelled | Ended::Failed => Some(CopyEnding::MoreThan(report.seconds)),
            // A file that cannot be read says nothing about the network.
            Ended::Incomplete => None,
        };
        match (report.promised, ending) {
            (Some(promised), Some(ending)) => _ = self.ledger.score(quantiles(&promised), ending),
            (None, Some(CopyEnding::Took(_))) => self.unpromised += 1,
            _ => {}
        }
        let ends = [from.as_str(), to.as_str()];
        let (from, to) = (self.id(from), self.id(to));
        let reporter = reporting_end(speaker, (ends[0], from), (ends[1], to));
        let Some(reporter) = reporter else {
            return;
        };
        self.infer(&[from], &[to], now);
        let transfer = Transfer {
            bytes: report.bytes,
            streams: DEFAULT_STREAMS,
        };
        let mut routes = report.routes.iter();
        // For a fetch, the receiver opened the connections, against the direction of the bytes.
        let via = |used: &RouteUsed| {
            let via = self.resolve_route(&used.via)?;
            Some(if reporter == to { via.reversed() } else { via })
        };
        let failed: Vec<RouteDepots> = routes
            .clone()
            .filter(|used| used.failed)
            .filter_map(via)
            .collect();
        let whole = match (routes.next(), routes.next(), report.outcome) {
            (Some(used), None, Ended::Done) => via(used),
            // With several routes, the duration says nothing about a single one.
            _ => None,
        };
        for via in failed {
            let _ = self.outcomes.record_failure(reporter, from, to, &via, now);
        }
        let expected =
            |via: &RouteDepots| Some(self.hops.expected(from, via, to, &transfer, now)?.time.p50);
        if let Some(via) = whole
            && let (Some(by_model), Some(direct)) = (expected(&via), expected(&RouteDepots::DIRECT))
        {
            let outcome = TransferOutcome {
                expected: by_model,
                direct,
                took: report.seconds,
            };
            let _ = self.outcomes.take(reporter, from, to, &via, &outcome, now);
        }
    }

    /// Returns a route with these depots, given by name or address.
    pub(super) fn resolve_route(&self, depots: &[String]) -> Option<RouteDepots> {
        let id = |depot: &String| {
            let name = self.depots.by_address.get(depot).unwrap_or(depot);
            self.ids.get(name).copied()
        };
        let ids: Option<Vec<NodeId>> = depots.iter().map(id).collect();
        RouteDepots::new(&ids?)
    }

    /// Returns the accuracy of promises.
    #[must_use]
    pub fn score(&self) -> Score {
        let report = self.ledger.report();
        Score {
            scored: report.scored,
            undecided: report.undecided,
            within: report.within,
            over_by: report
                .over_by
                .map(|[p10, p50, p90]| Spread { p10, p50, p90 }),
            unpromised: self.unpromised,
            failed: self.failed,
            coverage: Coverage {
                of_100: report.within_100,
                of_1000: report.within_1000,
            },
        }
    }
}

fn quantiles(spread: &Spread) -> Quantiles {
    Quantiles {
        p10: spread.p10,
        p50: spread.p50,
        p90: spread.p90,
    }
}
