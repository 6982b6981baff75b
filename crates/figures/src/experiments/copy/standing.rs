//! Comparison of `longhaul cp` in a case with the best of the other programs, and with itself at a
//! fixed number of streams. It is computed from runs alone.

use super::cases::Case;
use super::ways::{CopyContender, OWN, OWN_CLEAR, OWN_FIXED, WAYS};
use super::{Cell, Observation};
use crate::runs::Runs;
use crate::stats::Spread;

/// Another program in a case, and the ratio of `longhaul cp` to it.
#[derive(Clone, Debug)]
pub struct Rival {
    /// The program with its options.
    pub way: CopyContender,
    /// Its rates, in Mbit/s.
    pub mbps: Spread,
    /// Ratio of `longhaul cp` to it, for runs of the same seed.
    pub ratio: Spread,
}

/// Result of a case.
#[derive(Clone, Debug)]
pub struct Standing {
    /// Rate of `longhaul cp` without options, in Mbit/s.
    pub own: Spread,
    /// Rate of `longhaul cp --no-encrypt`, in Mbit/s.
    pub clear: Option<Spread>,
    /// Its share of the bottleneck's bytes without options, 0 to 1; `None` if no link is the limit.
    pub share: Option<Spread>,
    /// Ratio of its rate without options to that with 16 streams, for runs of the same seed.
    pub by_fixed: Option<Spread>,
    /// Best of the other programs.
    pub best: Option<Rival>,
    /// Best of the other programs that encrypt.
    pub best_encrypting: Option<Rival>,
    /// Best of the other programs that verify and do not encrypt, compared with
    /// `longhaul cp --no-encrypt`.
    pub best_verifying: Option<Rival>,
    /// Number of seeds in which it was faster than every other program, and number of seeds.
    pub ahead: (usize, usize),
}

impl Standing {
    /// Computes it from a case's runs. Returns `None` if `longhaul cp` has none.
    pub fn from_runs(runs: &Runs<'_, Cell, Observation>, case: &Case) -> Option<Self> {
        let cell = |way: &CopyContender| Cell::new(way, case);
        let own = runs.spread(&cell(&OWN), Observation::at_least_mbps)?;
        let rival = |own: &CopyContender, is_able: fn(&CopyContender) -> bool| {
            let able = WAYS.iter().filter(|way| !way.is_own() && is_able(way));
            let rates = able.filter_map(|way| {
                Some((*way, runs.spread(&cell(way), Observation::at_most_mbps)?))
            });
            let (way, mbps) = rates.max_by(|a, b| a.1.median.total_cmp(&b.1.median))?;
            let ratio = Spread::from_samples(&ratios(runs, case, own, &way))?;
            Some(Rival { way, mbps, ratio })
        };
        Some(Self {
            own,
            clear: runs.spread(&cell(&OWN_CLEAR), Observation::at_least_mbps),
            share: share(runs, &cell(&OWN)),
            by_fixed: Spread::from_samples(&ratios(runs, case, &OWN, &OWN_FIXED)),
            best: rival(&OWN, |_| true),
            best_encrypting: rival(&OWN, |way| way.encrypts),
            best_verifying: rival(&OWN_CLEAR, |way| way.verifies.is_some() && !way.encrypts),
            ahead: ahead(runs, case),
        })
    }

    /// Returns the program with the highest median. Also returns true if it is `longhaul cp`
    /// without options.
    pub fn first(&self) -> (CopyContender, bool) {
        match &self.best {
            Some(best) if best.mbps.median > self.own.median => (best.way, false),
            _ => (OWN, true),
        }
    }
}

/// Returns the share of the bottleneck's bytes in the runs of a cell that were not stopped.
pub fn share(runs: &Runs<'_, Cell, Observation>, cell: &Cell) -> Option<Spread> {
    runs.spread(cell, Observation::share)
}

/// Returns the ratios of the rates of `longhaul cp` and another program, for every seed that both
/// have. A stopped copy is counted to our disadvantage: the other one at the rate that it stayed
/// below, our own at zero.
fn ratios(
    runs: &Runs<'_, Cell, Observation>,
    case: &Case,
    own: &CopyContender,
    by: &CopyContender,
) -> Vec<f64> {
    let others = runs.cell(&Cell::new(by, case));
    let pair = |run: &&crate::record::Record<Cell, Observation>| {
        let other = others
            .iter()
            .find(|other| other.cell.seed == run.cell.seed)?;
        Some(run.seen.at_least_mbps() / other.seen.at_most_mbps())
    };
    runs.cell(&Cell::new(own, case))
        .iter()
        .filter_map(pair)
        .collect()
}

/// Returns the number of seeds in which `longhaul cp` without options was faster than every other
/// program measured with the same seed, and the number of seeds.
fn ahead(runs: &Runs<'_, Cell, Observation>, case: &Case) -> (usize, usize) {
    let own = runs.cell(&Cell::new(&OWN, case));
    let others: Vec<_> = WAYS
        .iter()
        .filter(|way| !way.is_own())
        .flat_map(|way| runs.cell(&Cell::new(way, case)))
        .collect();
    let best = |seed: u64| {
        let same = others.iter().filter(|run| run.cell.seed == seed);
        same.map(|run| run.seen.at_most_mbps()).reduce(f64::max)
    };
    let compared: Vec<bool> = own
        .iter()
        .filter_map(|run| Some(run.seen.at_least_mbps() > best(run.cell.seed)?))
        .collect();
    (
        compared.iter().filter(|ahead| **ahead).count(),
        compared.len(),
    )
}

#[cfg(test)]
mod tests {
    use super::super::cases;
    use super::super::tests::{ran, stopped};
    use super::*;

    fn way(name: &str) -> CopyContender {
        *WAYS.iter().find(|way| way.name == name).unwrap()
    }

    fn case() -> Case {
        cases::all().into_iter().next().unwrap()
    }

    #[test]
    fn the_best_is_by_median_and_the_ratio_pairs_seeds() {
        let case = case();
        let records = [
            ran(&OWN, &case, 1, 800.0),
            ran(&OWN, &case, 2, 600.0),
            ran(&OWN_FIXED, &case, 1, 400.0),
            ran(&OWN_FIXED, &case, 2, 600.0),
            ran(&way("gridftp-16"), &case, 1, 400.0),
            ran(&way("gridftp-16"), &case, 2, 800.0),
            ran(&way("rsync-ssh"), &case, 1, 200.0),
            ran(&way("rsync-ssh"), &case, 2, 100.0),
            ran(&OWN_CLEAR, &case, 1, 900.0),
            ran(&way("rsync"), &case, 1, 300.0),
        ];
        let standing = Standing::from_runs(&Runs::select_valid(&records), &case).unwrap();
        let best = standing.best.as_ref().unwrap();
        assert_eq!(best.way.name, "gridftp-16");
        assert_eq!((best.ratio.min, best.ratio.max), (0.75, 2.0));
        let encrypting = standing.best_encrypting.as_ref().unwrap();
        assert_eq!(encrypting.way.name, "rsync-ssh");
        assert_eq!((encrypting.ratio.min, encrypting.ratio.max), (4.0, 6.0));
        let verifying = standing.best_verifying.as_ref().unwrap();
        assert_eq!((verifying.way.name, verifying.ratio.median), ("rsync", 3.0));
        assert_eq!(standing.ahead, (1, 2));
        assert_eq!(standing.by_fixed.unwrap().max, 2.0);
        assert_eq!(standing.first(), (OWN, true));
    }

    #[test]
    fn stopped_copies_count_at_their_worst_for_us() {
        let case = case();
        let records = [
            ran(&OWN, &case, 1, 800.0),
            stopped(&OWN, &case, 2),
            stopped(&way("scp"), &case, 1),
            ran(&way("scp"), &case, 2, 200.0),
        ];
        let standing = Standing::from_runs(&Runs::select_valid(&records), &case).unwrap();
        let (_, bytes) = case.data.extent();
        let bound = 8.0 * bytes as f64 / case.time_limit.as_secs_f64() / 1e6;
        let ratio = standing.best.as_ref().unwrap().ratio;
        assert_eq!((ratio.min, ratio.max), (0.0, 800.0 / bound));
        assert_eq!(standing.share.unwrap().count, 1);
        assert_eq!(standing.ahead, (1, 2));
    }

    #[test]
    fn standing_needs_own_runs_and_allows_no_rivals() {
        let case = case();
        let records = [ran(&way("scp"), &case, 1, 200.0)];
        assert!(Standing::from_runs(&Runs::select_valid(&records), &case).is_none());
        let records = [ran(&OWN, &case, 1, 200.0)];
        let standing = Standing::from_runs(&Runs::select_valid(&records), &case).unwrap();
        assert!(standing.best.is_none());
        assert_eq!(standing.ahead, (0, 0));
    }
}
