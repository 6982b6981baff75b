//! Fits one loss rate so that a copy reaches the paper's average rate.
//!
//! A Reno flow's rate falls with its loss by a power law (Mathis et al. 1997: loss^-1/2 for an
//! endless flow), so each step is taken on logarithmic axes. The spread of the seeds limits the
//! precision that makes sense.

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use crate::copy::{Copied, Source, copy};
use crate::experiment::{Cost, Experiment, Here};
use crate::network::Network;
use crate::page::Page;
use crate::record::Key;
use crate::runner;
use crate::runs::Runs;
use crate::schedule::run_all;
use crate::setting::{self, CopyRoute, Setting};
use crate::stats::Spread;
use crate::tools::Tools;

/// First seed. The published figures do not use it, so a rate is predicted on losses that it was
/// not fitted to.
const FIRST_SEED: u64 = 1001;

/// Parameters of a fit.
pub struct Fit {
    /// Setting whose scenario holds the loss.
    pub setting: &'static Setting,
    /// Measured route.
    pub way: CopyRoute,
    /// Path of the loss rate in the scenario, which spreads it over the links of the route.
    pub knob: &'static str,
    /// Target of the average goodput, in Mbit/s.
    pub target_mbps: f64,
    /// Bytes of the file.
    pub bytes: u64,
}

/// Loss rates of the LSL scenarios.
#[derive(Clone, Copy, clap::ValueEnum)]
pub enum LslScenario {
    /// Path 1, the direct route's own loss.
    AnlUtkDirect,
    /// Path 1, the loss of the two links by way of ORNL.
    AnlUtkDepots,
    /// Path 2, one loss rate for the whole path.
    UcsdUtk,
}

impl LslScenario {
    /// Returns the parameters to vary and the goal: the paper's averages at 32 MB.
    ///
    /// # Errors
    /// The setting is not in the plan.
    pub fn fit(self) -> Result<Fit> {
        let (setting, way, knob, target_mbps) = match self {
            Self::AnlUtkDirect => (
                "lsl-anl-utk",
                CopyRoute::Direct,
                "spread.direct.loss",
                4.712,
            ),
            Self::AnlUtkDepots => (
                "lsl-anl-utk",
                CopyRoute::Depots,
                "spread.depot.loss",
                11.448,
            ),
            Self::UcsdUtk => ("lsl-ucsd-utk", CopyRoute::Direct, "spread.path.loss", 4.0),
        };
        Ok(Fit {
            setting: setting::named(setting)?,
            way,
            knob,
            target_mbps,
            bytes: 32 << 20,
        })
    }
}

/// Fits by `steps` rounds of `seeds` copies from the loss `start`, and prints each round. Returns
/// the last loss.
///
/// # Errors
/// A round had no valid copy.
pub fn fit(tools: &Tools, fit: &Fit, start: f64, seeds: u64, steps: u32) -> Result<f64> {
    let mut loss = start;
    let mut tried: Vec<(f64, f64)> = vec![];
    for step in 1..=steps {
        let mean = average(tools, fit, loss, seeds)?;
        println!(
            "{} {} step {step}: loss {:.5}% gives a mean of {:.3} Mbit/s ({:.3}..{:.3}, {} runs), \
             wanted {:.3}",
            fit.setting.id,
            fit.way.word(),
            loss * 100.0,
            mean.mean,
            mean.min,
            mean.max,
            mean.count,
            fit.target_mbps
        );
        tried.push((loss, mean.mean));
        loss = next(&tried, fit.target_mbps);
    }
    println!(
        "{} {}: next would be {:.5}%",
        fit.setting.id,
        fit.way.word(),
        loss * 100.0
    );
    Ok(loss)
}

/// Returns the next loss to try. The rate of an endless flow goes with loss^-1/2. The rate of a
/// copy of some megabytes falls faster, because its slow start ends at the first loss. From two
/// tries on, the slope is that of the line through the two nearest to the target rate, on
/// logarithmic axes.
fn next(tried: &[(f64, f64)], wanted: f64) -> f64 {
    let mut nearest = tried.to_vec();
    nearest.sort_by(|a, b| {
        (a.1 / wanted)
            .ln()
            .abs()
            .total_cmp(&(b.1 / wanted).ln().abs())
    });
    let Some(&(loss, rate)) = nearest.first() else {
        return f64::NAN;
    };
    let slope = match nearest.get(1) {
        Some(&(other, other_rate)) if other != loss => {
            ((rate / other_rate).ln() / (loss / other).ln()).clamp(-1.5, -0.4)
        }
        _ => -0.5,
    };
    loss * (wanted / rate).powf(1.0 / slope)
}

fn average(tools: &Tools, fit: &Fit, loss: f64, seeds: u64) -> Result<Spread> {
    let round = Round { fit, loss };
    let keys: Vec<Key<Nothing>> = (FIRST_SEED..FIRST_SEED + seeds)
        .map(|seed| Key::new(Nothing {}, seed))
        .collect();
    let outcomes = run_all(
        &keys,
        |key| round.cost(&key.factors).share,
        |key| runner::run(&round, tools, &(), key, runner::DEFAULT_RETRIES, ""),
    );
    let counted = outcomes.iter().flatten().filter(|record| record.gate.valid);
    let rates: Vec<f64> = counted.map(|record| record.seen.mbps()).collect();
    match Spread::from_samples(&rates) {
        Some(spread) => Ok(spread),
        None => bail!(
            "no valid copy of {}: {:?}",
            fit.setting.id,
            outcomes.into_iter().find_map(Result::err)
        ),
    }
}

/// Copies at one loss rate.
struct Round<'a> {
    fit: &'a Fit,
    loss: f64,
}

/// Only the seed distinguishes the runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Nothing {}

impl Experiment for Round<'_> {
    type Cell = Nothing;
    type Observation = Copied;
    type Setup = ();

    fn name(&self) -> &'static str {
        "fit"
    }

    fn title(&self) -> &'static str {
        "The loss that a scenario needs"
    }

    fn cells(&self) -> Vec<Nothing> {
        vec![Nothing {}]
    }

    fn cost(&self, _cell: &Nothing) -> Cost {
        self.fit.setting.cost(self.fit.way, self.fit.bytes)
    }

    fn prepare(&self, _tools: &Tools) -> Result<()> {
        Ok(())
    }

    fn network(&self, tools: &Tools, (): &(), _cell: &Nothing, _seed: u64) -> Result<Network> {
        let network = self.fit.setting.network(tools, self.fit.way)?;
        Ok(network.set(self.fit.knob, format!("{:e}", self.loss)))
    }

    fn run(&self, here: &Here<'_, ()>, _cell: &Nothing) -> Result<Copied> {
        let source = Source::sized(here.tools, self.fit.bytes)?;
        copy(here, self.fit.setting, self.fit.way, &source, Some(1))
    }

    fn outcome(&self, seen: &Copied) -> String {
        seen.words()
    }

    fn page(&self, _runs: &Runs<'_, Nothing, Copied>) -> Result<Page> {
        Ok(Page::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_loss_lies_on_the_power_law_of_the_last() {
        let one = next(&[(1e-3, 8.0)], 4.0);
        assert!((one - 4e-3).abs() < 1e-9, "{one}");
        // A rate that halves when the loss doubles.
        let two = next(&[(1e-3, 8.0), (4e-3, 2.0)], 4.0);
        assert!((two - 2e-3).abs() < 1e-9, "{two}");
    }
}
