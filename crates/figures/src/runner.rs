//! Runs an experiment: every requested cell, seed and noise, each in its own lab, with one check of
//! validity and one store.

use std::fmt::Display;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use parking_lot::Mutex;
use wanbed::Lab;

use crate::experiment::{Cost, Experiment, Here};
use crate::ip::IpVersion;
use crate::noise::Noise;
use crate::published::{Change, Published};
use crate::record::{Gate, Key, Provenance, Record};
use crate::schedule::run_all;
use crate::store::Store;
use crate::tools::Tools;

/// First published seed. Thresholds were chosen, and losses fitted, with seeds below it.
pub const FIRST_PUBLISHED_SEED: u64 = 2001;

/// Default number of repeats of a run if the lab did not keep up.
pub const DEFAULT_RETRIES: u32 = 2;

/// Extent of the measurements.
#[derive(Clone, Debug)]
pub struct Extent {
    /// Seeds of each cell, instead of the experiment's own number.
    pub seeds: Option<u64>,
    /// First seed.
    pub first_seed: u64,
    /// If true, valid runs stay, and only missing ones are made.
    pub resume: bool,
    /// Time by which every new run must be expected to end.
    pub until: Option<Instant>,
    /// Number of repeats of a run if the lab did not keep up.
    pub retries: u32,
    /// Kinds of noise.
    pub noises: Vec<Noise>,
    /// Version of IP between the programs.
    pub ip: IpVersion,
    /// Words of which a cell's JSON must contain one. Empty for all cells.
    pub only: Vec<String>,
}

type RecordOf<E> = Record<<E as Experiment>::Cell, <E as Experiment>::Observation>;
type KeyOf<E> = Key<<E as Experiment>::Cell>;

impl Extent {
    /// Returns the runs of an experiment. The seed is the outer loop, so that compared cells are
    /// measured in turn.
    pub fn keys<E: Experiment>(&self, experiment: &E) -> Vec<KeyOf<E>> {
        let cells: Vec<E::Cell> = experiment
            .cells()
            .into_iter()
            .filter(|cell| self.wants(cell))
            .filter(|cell| self.ip.is_ipv4() || experiment.over_ipv6(cell))
            .collect();
        let seeds = |cell: &E::Cell| self.seeds.unwrap_or_else(|| experiment.seeds(cell));
        let most = cells.iter().map(seeds).max().unwrap_or(0);
        let mut keys = Vec::new();
        for &noise in &self.noises {
            for nth in 0..most {
                for cell in &cells {
                    if nth < seeds(cell) && (noise == Noise::None || experiment.under_noise(cell)) {
                        keys.push(Key {
                            factors: cell.clone(),
                            seed: self.first_seed.saturating_add(nth),
                            noise,
                            ip: self.ip,
                        });
                    }
                }
            }
        }
        keys
    }

    fn wants(&self, cell: &impl serde::Serialize) -> bool {
        let text = serde_json::to_string(cell).unwrap_or_default();
        self.only.is_empty() || self.only.iter().any(|word| text.contains(word.as_str()))
    }
}

/// Returns the duration of these runs with as many in parallel as fit.
pub fn about<E: Experiment>(experiment: &E, keys: &[KeyOf<E>]) -> Duration {
    let costs = keys.iter().map(|key| experiment.cost(&key.factors));
    Duration::from_secs_f64(
        costs
            .map(|Cost { share, seconds }| share * seconds)
            .sum::<f64>(),
    )
}

/// Measures the plan, and puts each finished run into `store` instead of the earlier run of the
/// same cell, seed and noise. All other runs stay, and the output names their number and commits.
/// So a partial plan removes nothing from the published runs.
///
/// # Errors
/// A run failed, after all others were made, or the store cannot be read or written.
pub fn measure<E: Experiment>(
    experiment: &E,
    tools: &Tools,
    extent: &Extent,
    store: &Store,
    commit: &str,
) -> Result<()> {
    let published: Published<E::Cell, E::Observation> = Published::new(store.read()?);
    let mut keys = extent.keys(experiment);
    if let Some(kept) = published.kept(&keys) {
        eprintln!("{}: {kept}", experiment.name());
    }
    if extent.resume {
        keys.retain(|key| !published.has(key, commit));
    }
    if keys.is_empty() {
        return Ok(());
    }
    let setup = experiment.prepare(tools)?;
    let cells = experiment.cells();
    let place = |record: &RecordOf<E>| {
        let cell = cells.iter().position(|cell| *cell == record.cell.factors);
        (record.cell.ip, record.cell.noise, cell, record.cell.seed)
    };
    // Light jobs are adjacent, so that they can run in parallel.
    keys.sort_by(|a, b| {
        let share = |key: &KeyOf<E>| experiment.cost(&key.factors).share;
        share(a).total_cmp(&share(b))
    });
    let published = Mutex::new(published);
    let outcomes = run_all(
        &keys,
        |key| experiment.cost(&key.factors).share,
        |key| -> Result<bool> {
            let length = Duration::from_secs_f64(experiment.cost(&key.factors).seconds);
            if extent
                .until
                .is_some_and(|until| Instant::now() + length > until)
            {
                return Ok(false);
            }
            let record = run(experiment, tools, &setup, key, extent.retries, commit)?;
            eprintln!("{}", line(experiment, &record));
            let mut published = published.lock();
            match published.take(record) {
                Change::Taken => {
                    published.sort_by_key(place);
                    store.write(published.records())?;
                }
                Change::Refused => eprintln!(
                    "{} {}: the earlier run, with which the lab kept up, stays",
                    experiment.name(),
                    words(key)
                ),
            }
            Ok(true)
        },
    );
    conclude(experiment.name(), outcomes)
}

fn conclude(name: &str, outcomes: Vec<Result<bool>>) -> Result<()> {
    let left = outcomes
        .iter()
        .filter(|outcome| matches!(outcome, Ok(false)))
        .count();
    if left > 0 {
        eprintln!("{name}: time is over; {left} runs are left for `--resume`");
    }
    let failures: Vec<String> = outcomes
        .into_iter()
        .filter_map(Result::err)
        .map(|error| format!("{error:#}"))
        .collect();
    if !failures.is_empty() {
        bail!(
            "{name}: {} runs failed: {}",
            failures.len(),
            failures.join("; ")
        );
    }
    Ok(())
}

/// Returns the result of a run in one line for a person.
pub fn line<E: Experiment>(experiment: &E, record: &RecordOf<E>) -> String {
    let doubt = match record.gate.valid {
        true => String::new(),
        false => format!(
            " (the lab did not keep up: {})",
            record.gate.reasons.join("; ")
        ),
    };
    format!(
        "{} {}: {}{doubt}",
        experiment.name(),
        words(&record.cell),
        experiment.outcome(&record.seen)
    )
}

/// Formats a run's key for people.
fn words<C: serde::Serialize>(key: &Key<C>) -> String {
    let fields = match serde_json::to_value(key) {
        Ok(serde_json::Value::Object(fields)) => fields,
        _ => return String::new(),
    };
    let word = |(name, value): (&String, &serde_json::Value)| match value {
        serde_json::Value::String(text) => text.clone(),
        other => format!("{name} {other}"),
    };
    fields.iter().map(word).collect::<Vec<_>>().join(", ")
}

/// Makes one run. Repeats it if the lab did not keep up, and reports the number of repeats.
///
/// # Errors
/// The lab cannot be started, or the run failed in a lab that kept up.
pub fn run<E: Experiment>(
    experiment: &E,
    tools: &Tools,
    setup: &E::Setup,
    key: &KeyOf<E>,
    retries: u32,
    commit: &str,
) -> Result<RecordOf<E>> {
    let cell = &key.factors;
    let context = || format!("{} {}", experiment.name(), words(key));
    let discard = |why: &dyn Display| eprintln!("thrown away and repeated: {}: {why}", context());
    let mut discarded = 0;
    loop {
        let network = experiment.network(tools, setup, cell, key.seed)?;
        let network = key.noise.add_to(network, experiment.noisy_links(cell));
        let network = key.ip.add_to(network);
        let lab =
            Lab::up(&network.scenario, &network.overrides.seed(key.seed)).with_context(context)?;
        let folder =
            tempfile::tempdir_in(tools.scratch.path()).context("cannot make a folder for a run")?;
        let here = Here {
            tools,
            setup,
            lab: &lab,
            seed: key.seed,
            folder: folder.path(),
        };
        let seen = experiment.run(&here, cell);
        let mut gate = Gate::judge(&lab.links()?, discarded);
        if !experiment.is_timed(cell) {
            gate = gate.of_counts();
        }
        let again = !gate.valid && discarded < retries;
        match seen {
            Ok(_) if again => discard(&gate.reasons.join("; ")),
            // A failure in a delayed lab is no evidence about the program.
            Err(error) if again => discard(&format!("{error:#} ({})", gate.reasons.join("; "))),
            Err(error) => return Err(error).with_context(context),
            Ok(seen) => {
                return Ok(Record {
                    cell: key.clone(),
                    seen,
                    gate,
                    made: Provenance::here(commit, lab.backend(), tools.are_processors_awake()),
                });
            }
        }
        discarded += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::depots::Depots;

    fn extent() -> Extent {
        Extent {
            seeds: Some(2),
            first_seed: 7,
            resume: false,
            until: None,
            retries: 0,
            noises: vec![Noise::None, Noise::Codel],
            ip: IpVersion::Ipv4,
            only: vec![],
        }
    }

    #[test]
    fn every_cell_has_every_seed_and_seeds_go_in_turn() {
        let keys = extent().keys(&Depots);
        let cells = Depots.cells();
        let clean: Vec<_> = keys.iter().filter(|key| key.noise == Noise::None).collect();
        assert_eq!(clean.len(), 2 * cells.len());
        assert!(clean[..cells.len()].iter().all(|key| key.seed == 7));
        let noisy = cells.iter().filter(|cell| Depots.under_noise(cell)).count();
        assert_eq!(keys.len(), clean.len() + 2 * noisy);
    }

    #[test]
    fn ipv6_is_for_cells_whose_programs_can() {
        let ipv6 = Extent {
            ip: IpVersion::Ipv6,
            ..extent()
        };
        let keys = ipv6.keys(&Depots);
        assert!(
            keys.iter()
                .all(|key| key.ip == IpVersion::Ipv6 && Depots.over_ipv6(&key.factors))
        );
        let cells = Depots
            .cells()
            .into_iter()
            .filter(|cell| Depots.over_ipv6(cell))
            .count();
        let clean = keys.iter().filter(|key| key.noise == Noise::None).count();
        assert_eq!(clean, 2 * cells);
    }

    #[test]
    fn a_word_picks_cells() {
        let only = Extent {
            only: vec!["lsl-anl-utk".into()],
            ..extent()
        };
        let keys = only.keys(&Depots);
        assert!(!keys.is_empty());
        assert!(keys.iter().all(|key| words(key).contains("lsl-anl-utk")));
    }
}
