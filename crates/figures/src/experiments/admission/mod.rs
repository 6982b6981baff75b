//! Comparison of admission with OSCARS' published rule: the share of the same random requests that
//! is granted on real networks, with every answer checked, and the time of an answer with many
//! reservations on the books.

mod page;

use anyhow::{Result, anyhow};
use longhaul_circuit_trials::check::CheckVerdict;
use longhaul_circuit_trials::load::{self, LoadParameters, LoadResult};
use longhaul_circuit_trials::networks::{NAMES, network};
use longhaul_circuit_trials::trial::{self, TrialParameters};
use longhaul_circuits::time::Volume;
use serde::{Deserialize, Serialize};

use crate::experiment::{Cost, Experiment, Here};
use crate::network::Network;
use crate::page::{Figure, Page};
use crate::runs::Runs;
use crate::tools::Tools;

/// Number of requests of a trial.
pub const REQUESTS: usize = 10_000;
/// Number of reservations on the books before answers are timed.
pub const BOOKED: usize = 100_000;
/// Number of requests that are timed.
pub const TIMED: usize = 5_000;
/// Numbers of paths over which a request may be spread.
pub const PATHS: [usize; 3] = [1, 2, 4];

/// The experiment.
pub struct Admission;

/// A rule on a network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cell {
    /// One of [`NAMES`].
    pub network: String,
    /// Rule that answers the requests.
    #[serde(flatten)]
    pub rule: Rule,
}

/// Rule that answers the requests, and the property that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "rule", rename_all = "kebab-case")]
pub enum Rule {
    /// OSCARS' published rule.
    Oscars,
    /// Longhaul's, over this many paths at once.
    Ours {
        /// Paths.
        paths: usize,
        /// If true, offers close to the request are taken.
        offers: bool,
    },
    /// Longhaul's, with many reservations on the books.
    Load {
        /// If true, counter-offers are computed.
        offers: bool,
    },
}

/// Observed answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Observation {
    /// Answers to the requests of a trial.
    Granted(Granted),
    /// Time that the answers took.
    Took(LoadResult),
}

/// Result of the granted requests.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Granted {
    /// Share of all requests that was granted.
    pub granted: f64,
    /// Share of the bytes of all requests that was booked.
    pub booked: f64,
    /// Share of all requests that was granted by an offer that was taken.
    pub by_offer: f64,
    /// Refusals that the checker proves right: by the greatest flow, by cuts that let too few paths
    /// through, or because all sets of paths were tried.
    pub proved: usize,
    /// Refusals that are neither proved right nor wrong.
    pub open: usize,
    /// Number of offers, each of which was valid when taken at once.
    pub offers: usize,
}

impl Cell {
    /// Returns the demonstrated cells: ESnet, by OSCARS' rule, over one path, and over up to four
    /// with offers.
    pub fn demonstrated() -> [Self; 3] {
        let ours = |paths, offers| Rule::Ours { paths, offers };
        [Rule::Oscars, ours(1, false), ours(4, true)].map(|rule| Self {
            network: "ESnet".to_owned(),
            rule,
        })
    }
}

impl Experiment for Admission {
    type Cell = Cell;
    type Observation = Observation;
    type Setup = ();

    fn name(&self) -> &'static str {
        "admission"
    }

    fn title(&self) -> &'static str {
        "Admission: what is granted of the same requests, beside OSCARS' rule, and how long an \
         answer takes"
    }

    fn cells(&self) -> Vec<Cell> {
        let ours = PATHS
            .into_iter()
            .flat_map(|paths| [false, true].map(|offers| Rule::Ours { paths, offers }));
        let load = [false, true].map(|offers| Rule::Load { offers });
        let rules: Vec<Rule> = [Rule::Oscars].into_iter().chain(ours).chain(load).collect();
        let cells = NAMES.into_iter().flat_map(|network| {
            rules.iter().map(|rule| Cell {
                network: network.to_owned(),
                rule: *rule,
            })
        });
        cells.collect()
    }

    fn seeds(&self, _cell: &Cell) -> u64 {
        3
    }

    fn cost(&self, cell: &Cell) -> Cost {
        match cell.rule {
            Rule::Oscars => Cost::new(0.5, 1.0),
            Rule::Ours { .. } => Cost::new(0.5, 20.0),
            // Timed runs have the machine to themselves.
            Rule::Load { .. } => Cost::new(1.0, 60.0),
        }
    }

    fn prepare(&self, _tools: &Tools) -> Result<()> {
        Ok(())
    }

    fn network(&self, _tools: &Tools, (): &(), _cell: &Cell, _seed: u64) -> Result<Network> {
        Ok(Network::none())
    }

    fn run(&self, here: &Here<'_, ()>, cell: &Cell) -> Result<Observation> {
        let name = NAMES.into_iter().find(|name| *name == cell.network);
        let network = network(name.ok_or_else(|| anyhow!("no network {}", cell.network))?)?;
        let trial = |paths, takes_offers| TrialParameters {
            requests: REQUESTS,
            seed: here.seed,
            paths,
            takes_offers,
        };
        let share = |volume: Volume| {
            volume.0 as f64 / trial::requested_volume(&network, &trial(1, false)).0 as f64
        };
        let of_all = |count: usize| count as f64 / REQUESTS as f64;
        Ok(match cell.rule {
            Rule::Oscars => {
                let (granted, booked) = trial::granted_by_oscars(&network, &trial(1, false));
                Observation::Granted(Granted {
                    granted: of_all(granted),
                    booked: share(booked),
                    ..Granted::default()
                })
            }
            Rule::Ours { paths, offers } => {
                let outcome = trial::run(&network, &trial(paths, offers))?;
                let proved = [
                    CheckVerdict::Flow,
                    CheckVerdict::FewPaths,
                    CheckVerdict::Exhausted,
                ];
                Observation::Granted(Granted {
                    granted: of_all(outcome.granted),
                    booked: share(outcome.booked),
                    by_offer: of_all(outcome.by_offer),
                    proved: proved
                        .iter()
                        .filter_map(|verdict| outcome.verdicts.get(verdict))
                        .sum(),
                    open: outcome.unverified(),
                    offers: outcome.offers,
                })
            }
            Rule::Load { offers } => Observation::Took(load::run(
                &network,
                &LoadParameters {
                    reservations: BOOKED,
                    requests: TIMED,
                    seed: here.seed,
                    offers,
                },
            )?),
        })
    }

    fn outcome(&self, seen: &Observation) -> String {
        match seen {
            Observation::Granted(seen) => format!(
                "{:.1} % granted, {:.1} % of the volume, {} refusals proved, {} open",
                100.0 * seen.granted,
                100.0 * seen.booked,
                seen.proved,
                seen.open
            ),
            Observation::Took(took) => format!(
                "{:.0} requests/s, p99 {:.2} ms",
                took.per_second, took.p99_ms
            ),
        }
    }

    fn is_timed(&self, cell: &Cell) -> bool {
        matches!(cell.rule, Rule::Load { .. })
    }

    fn page(&self, runs: &Runs<'_, Cell, Observation>) -> Result<Page> {
        page::page(runs)
    }

    fn figures(&self, runs: &Runs<'_, Cell, Observation>) -> Vec<Figure> {
        page::figures(runs)
    }
}
