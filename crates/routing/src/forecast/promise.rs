//! Scores of promised copy times.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{Coverage, QUANTILE_LEVELS};
use crate::Quantiles;

/// End of a copy with a promised finishing time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum CopyEnding {
    /// It took so many seconds.
    Took(f64),
    /// It was abandoned, or is still running, after so many seconds.
    MoreThan(f64),
}

/// Reason why a promise is not scored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ScoreError {
    /// The time is not finite and above zero: leave out such copies.
    #[error("the time of a copy must be finite and above 0: leave such copies out")]
    Time,
    /// The promise is not finite, above zero and in order.
    #[error("a forecast needs three times above 0 in ascending order: it cannot be scored")]
    Promise,
}

/// Comparison of promised with actual copy times. All times are in seconds from the start of the
/// copy.
#[derive(Debug, Clone, Copy, Default)]
pub struct PromiseLedger {
    coverage: Coverage,
    /// Number of copies that finished by each of the three times.
    by: [u64; 3],
    within: u64,
    scored: u64,
    undecided: u64,
    brier: f64,
    pinball: f64,
    pinballs: u64,
}

/// Score of the promises so far.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PromiseReport {
    /// Number of scored promises.
    pub scored: u64,
    /// Number of copies that were abandoned before it was clear if they would meet their time.
    pub undecided: u64,
    /// Share of copies that took between p10 and p90; the target is eight in ten.
    pub within: Option<f64>,
    /// The same for the last 100.
    pub within_100: Option<f64>,
    /// The same for the last 1,000.
    pub within_1000: Option<f64>,
    /// Shares that finished by p10, by p50 and by p90.
    pub over_by: Option<[f64; 3]>,
    /// Brier score of the three predictions "finished by then" with probabilities of a tenth, a
    /// half and nine tenths. Lower is better; calibrated promises have 0.143.
    pub brier: Option<f64>,
    /// Mean pinball loss of the three times, in natural logarithms of seconds. At 0.1, promises are
    /// off by some tens of per cent.
    pub pinball: Option<f64>,
}

impl PromiseLedger {
    /// Scores a promise. A copy that was abandoned after its p90 has broken it; one that was
    /// abandoned earlier leaves it undecided.
    ///
    /// # Errors
    /// [`ScoreError`] if the times are invalid; then nothing is recorded.
    pub fn score(&mut self, promised: Quantiles, ending: CopyEnding) -> Result<(), ScoreError> {
        let times = [promised.p10, promised.p50, promised.p90];
        if !times.iter().all(|time| is_valid_time(*time)) || !times.is_sorted() {
            return Err(ScoreError::Promise);
        }
        let (CopyEnding::Took(seconds) | CopyEnding::MoreThan(seconds)) = ending;
        if !is_valid_time(seconds) {
            return Err(ScoreError::Time);
        }
        if let CopyEnding::MoreThan(seconds) = ending
            && seconds <= promised.p90
        {
            self.undecided += 1;
            return Ok(());
        }
        self.scored += 1;
        let within = (promised.p10..=promised.p90).contains(&seconds);
        self.within += u64::from(within);
        self.coverage.record(within);
        for ((time, level), by) in times.into_iter().zip(QUANTILE_LEVELS).zip(&mut self.by) {
            let over = f64::from(u8::from(seconds <= time));
            *by += over as u64;
            self.brier += (over - level).powi(2) / 3.0;
        }
        // An abandoned copy's distance beyond its p90 is unknown, so only the breach is scored.
        if let CopyEnding::Took(seconds) = ending {
            self.pinballs += 1;
            for (time, level) in times.into_iter().zip(QUANTILE_LEVELS) {
                let beyond = seconds.ln() - time.ln();
                self.pinball += (level * beyond).max((level - 1.0) * beyond) / 3.0;
            }
        }
        Ok(())
    }

    /// Returns the score so far.
    #[must_use]
    pub fn report(&self) -> PromiseReport {
        let of = |sum: f64, count: u64| (count > 0).then(|| sum / count as f64);
        PromiseReport {
            scored: self.scored,
            undecided: self.undecided,
            within: of(self.within as f64, self.scored),
            within_100: self.coverage.over_last(100),
            within_1000: self.coverage.over_last(1000),
            over_by: (self.scored > 0).then(|| self.by.map(|by| by as f64 / self.scored as f64)),
            brier: of(self.brier, self.scored),
            pinball: of(self.pinball, self.pinballs),
        }
    }
}

fn is_valid_time(seconds: f64) -> bool {
    seconds.is_finite() && seconds > 0.0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PROMISED: Quantiles = Quantiles {
        p10: 1.0,
        p50: 2.0,
        p90: 4.0,
    };

    #[test]
    fn a_calibrated_promise_scores_what_it_should() {
        let mut ledger = PromiseLedger::default();
        for tenth in 0..10 {
            let seconds = match tenth {
                0 => 0.5,
                1..5 => 1.5,
                5..9 => 3.0,
                _ => 8.0,
            };
            ledger.score(PROMISED, CopyEnding::Took(seconds)).unwrap();
        }
        let report = ledger.report();
        assert_eq!(report.within, Some(0.8));
        assert_eq!(report.over_by, Some([0.1, 0.5, 0.9]));
        assert!(
            (report.brier.unwrap() - 0.43 / 3.0).abs() < 1e-9,
            "{report:?}"
        );
    }

    #[test]
    fn abandoned_copies_count_once_they_exceed_p90() {
        let mut ledger = PromiseLedger::default();
        ledger.score(PROMISED, CopyEnding::MoreThan(3.0)).unwrap();
        assert_eq!((ledger.report().scored, ledger.report().undecided), (0, 1));
        ledger.score(PROMISED, CopyEnding::MoreThan(5.0)).unwrap();
        let report = ledger.report();
        assert_eq!((report.within, report.over_by), (Some(0.0), Some([0.0; 3])));
        assert_eq!(report.pinball, None);
    }

    #[test]
    fn pinball_loss_is_zero_for_exact_promises() {
        let of = |seconds| {
            let mut ledger = PromiseLedger::default();
            ledger
                .score(Quantiles::exactly(2.0), CopyEnding::Took(seconds))
                .unwrap();
            ledger.report().pinball.unwrap()
        };
        assert_eq!(of(2.0), 0.0);
        // Equally far off to either side, for levels that are symmetric about one half.
        assert!((of(4.0) - of(1.0)).abs() < 1e-9 && of(4.0) > 0.3);
    }

    proptest! {
        #[test]
        fn nothing_breaks_the_ledger(
            promises in prop::collection::vec(
                (any::<[f64; 3]>(), any::<f64>(), any::<bool>()),
                0..50,
            ),
        ) {
            let mut ledger = PromiseLedger::default();
            for ([p10, p50, p90], seconds, over) in promises {
                let before = ledger.report();
                let ending = match over {
                    true => CopyEnding::Took(seconds),
                    false => CopyEnding::MoreThan(seconds),
                };
                if ledger.score(Quantiles { p10, p50, p90 }, ending).is_err() {
                    prop_assert_eq!(ledger.report(), before);
                }
                let report = ledger.report();
                prop_assert!(report.brier.is_none_or(|brier| (0.0..=1.0).contains(&brier)));
                prop_assert!(report.pinball.is_none_or(|loss| loss.is_finite() && loss >= 0.0));
            }
        }
    }
}
