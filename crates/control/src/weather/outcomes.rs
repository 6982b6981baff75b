//! What became of transfers: which routes failed, what they took beside what was expected, and how
//! promises were kept.

use longhaul_control_api::forecasts::{Coverage, Spread};
use longhaul_control_api::transfers::{Outcome as Ended, RouteUsed, Score, TransferReport};
use longhaul_weather::Quantiles;
use longhaul_weather::forecast::Ending;
use longhaul_weather::route::trust::Outcome;
use longhaul_weather::route::{NodeId, Transfer, Via};

use super::intake::reporting_end;
use super::{USUAL_STREAMS, Weather};
use crate::places::Speaker;

impl Weather {
    /// Takes what became of a transfer between two ends, reported by one of them.
    pub fn take_report(&mut self, speaker: &Speaker, report: &TransferReport, now: f64) {
        let (Some(from), Some(to)) = (&report.from, &report.to) else {
            return;
        };
        if report.outcome == Ended::Failed {
            self.failed += 1;
        }
        let ending = match report.outcome {
            Ended::Done => Some(Ending::Took(report.seconds)),
            Ended::Cancelled | Ended::Failed => Some(Ending::MoreThan(report.seconds)),
            // What a file that cannot be read has to do with the network nobody knows.
            Ended::Incomplete => None,
        };
        match (report.promised, ending) {
            (Some(promised), Some(ending)) => _ = self.ledger.settle(quantiles(&promised), ending),
            (None, Some(Ending::Took(_))) => self.unpromised += 1,
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
            streams: USUAL_STREAMS,
        };
        let mut routes = report.routes.iter();
        // Whoever fetched opened its connections towards where the bytes came from.
        let via = |used: &RouteUsed| {
            let via = self.via(&used.via)?;
            Some(if reporter == to { via.reversed() } else { via })
        };
        let failed: Vec<Via> = routes
            .clone()
            .filter(|used| used.failed)
            .filter_map(via)
            .collect();
        let whole = match (routes.next(), routes.next(), report.outcome) {
            (Some(used), None, Ended::Done) => via(used),
            // Where several carried it, what it took says nothing of one of them.
            _ => None,
        };
        for via in failed {
            let _ = self.outcomes.failed(reporter, from, to, &via, now);
        }
        let expected =
            |via: &Via| Some(self.hops.expected(from, via, to, &transfer, now)?.time.p50);
        if let Some(via) = whole
            && let (Some(by_model), Some(direct)) = (expected(&via), expected(&Via::DIRECT))
        {
            let outcome = Outcome {
                expected: by_model,
                direct,
                took: report.seconds,
            };
            let _ = self.outcomes.take(reporter, from, to, &via, &outcome, now);
        }
    }

    /// The depots of a route, named by their names or their addresses.
    pub(super) fn via(&self, depots: &[String]) -> Option<Via> {
        let id = |depot: &String| {
            let name = self.depots.by_address.get(depot).unwrap_or(depot);
            self.ids.get(name).copied()
        };
        let ids: Option<Vec<NodeId>> = depots.iter().map(id).collect();
        Via::new(&ids?)
    }

    /// How promises were kept.
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
