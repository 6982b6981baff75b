//! Comparison of `longhaul cp` with other programs, counted over all experiments that compare them.

use crate::single::Basis;
use crate::stats::{Gain, Spread};

/// Comparison of `longhaul cp` with the best of the other programs in one case.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Data that is copied, and its path.
    pub case: String,
    /// Best of the other programs.
    pub rival: String,
    /// Rate of `longhaul cp` by that of the best of the others.
    pub ratio: f64,
    /// If true, no other program has a higher rate.
    pub is_first: bool,
    /// Number of runs for the weaker of the two rates.
    pub basis: Basis,
}

impl Gain {
    /// Compares `longhaul cp`, whose rate comes second, with a rival in a case.
    pub fn compare(&self, case: String, rival: String) -> Comparison {
        Comparison {
            case,
            rival,
            ratio: self.ratio(),
            is_first: self.after.median >= self.before.median,
            basis: self.basis(),
        }
    }
}

/// Returns the number of cases in which `longhaul cp` is first, with a mark for cases of one run.
/// Returns `None` without a case.
pub fn first(all: &[Comparison]) -> Option<String> {
    let first = all.iter().filter(|one| one.is_first).count();
    let single = all.iter().filter(|one| one.basis.is_single()).count();
    let text = format!("{first} of {}", all.len());
    match (all.len(), single) {
        (0, _) => None,
        (_, 0) => Some(text),
        (_, single) => Some(format!("{text} (single runs in {single})")),
    }
}

/// Returns the least and the greatest ratio; `None` without a case.
pub fn extremes(all: &[Comparison]) -> Option<String> {
    let ratios: Vec<f64> = all.iter().map(|one| one.ratio).collect();
    Spread::from_samples(&ratios).map(|ratios| format!("{:.2} to {:.2}", ratios.min, ratios.max))
}

/// Returns every case in which another program is faster, with the ratio and that program.
pub fn behind(all: &[Comparison]) -> String {
    let behind = all.iter().filter(|one| !one.is_first);
    let each: Vec<String> = behind
        .map(|one| {
            let text = format!("{:.2} ({})", one.ratio, one.rival);
            format!("{}, {}", uncapitalized(&one.case), one.basis.mark(text))
        })
        .collect();
    match each.is_empty() {
        true => "none".to_owned(),
        false => each.join("; "),
    }
}

/// Returns the text in lower case, for use within a sentence.
fn uncapitalized(text: &str) -> String {
    let mut rest = text.chars();
    rest.next().map_or_else(String::new, |first| {
        format!("{}{}", first.to_lowercase(), rest.as_str())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_counted_with_those_of_one_run() {
        let case = |ratio, runs| Comparison {
            case: "A file".into(),
            rival: "scp".into(),
            ratio,
            is_first: ratio >= 1.0,
            basis: Basis::Runs(runs),
        };
        let all = [case(2.0, 5), case(0.94, 1), case(1.0, 3)];
        assert_eq!(first(&all).unwrap(), "2 of 3 (single runs in 1)");
        assert_eq!(first(&all[..1]).unwrap(), "1 of 1");
        assert_eq!(extremes(&all).unwrap(), "0.94 to 2.00");
        assert_eq!(behind(&all), "a file, 0.94 (scp; single)");
        assert_eq!(behind(&all[..1]), "none");
        assert_eq!((first(&[]), extremes(&[])), (None, None));
    }
}
