//! Forecasts of series for which they were not tuned: synthetic ones from published statistics, and
//! series recorded in the lab.

mod page;
mod play;
mod record;
mod traces;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use crate::experiment::{Cost, Experiment, Here};
use crate::network::Network;
use crate::page::{Figure, Page};
use crate::runs::Runs;
use crate::tools::Tools;
use play::{Score, play};
use record::Recording;
use traces::Family;

/// The experiment.
pub struct Forecast;

/// Series that is forecast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cell {
    series: SeriesOrigin,
}

/// Kind of series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum SeriesOrigin {
    /// Synthetic series of every family, made from the seed.
    Made,
    /// Recorded series.
    #[serde(untagged)]
    Recorded(Recording),
}

impl Cell {
    /// Series of every family.
    const MADE: Self = Self {
        series: SeriesOrigin::Made,
    };

    const fn recorded(recording: Recording) -> Self {
        Self {
            series: SeriesOrigin::Recorded(recording),
        }
    }
}

/// Forecasts of a series.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Observation {
    scores: Vec<(Origin, Score)>,
    /// Recorded values, in the quantity's unit; synthetic ones are made again from the seed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    values: Vec<f64>,
}

/// Origin of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// Synthetic series.
    Made(Family),
    /// Recorded series.
    Recorded(Recording),
}

impl Origin {
    fn all() -> impl Iterator<Item = Self> {
        let made = Family::ALL.map(Self::Made);
        made.into_iter().chain(Recording::ALL.map(Self::Recorded))
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Made(family) => family.title(),
            Self::Recorded(recording) => recording.title(),
        }
    }

    const fn cell(self) -> Cell {
        match self {
            Self::Made(_) => Cell::MADE,
            Self::Recorded(recording) => Cell::recorded(recording),
        }
    }
}

impl Experiment for Forecast {
    type Cell = Cell;
    type Observation = Observation;
    type Setup = ();

    fn name(&self) -> &'static str {
        "forecast"
    }

    fn title(&self) -> &'static str {
        "Forecasts: their errors, and how often values fall into the band that was told"
    }

    fn cells(&self) -> Vec<Cell> {
        let recorded = Recording::ALL.map(Cell::recorded);
        [Cell::MADE].into_iter().chain(recorded).collect()
    }

    fn seeds(&self, cell: &Cell) -> u64 {
        match cell.series {
            SeriesOrigin::Made => 20,
            SeriesOrigin::Recorded(_) => 2,
        }
    }

    fn cost(&self, cell: &Cell) -> Cost {
        match cell.series {
            SeriesOrigin::Made => Cost::new(0.5, 1.0),
            // All six run in parallel.
            SeriesOrigin::Recorded(_) => Cost::new(0.16, f64::from(record::SECONDS) + 5.0),
        }
    }

    fn prepare(&self, _tools: &Tools) -> Result<()> {
        Ok(())
    }

    fn network(&self, tools: &Tools, (): &(), cell: &Cell, seed: u64) -> Result<Network> {
        match cell.series {
            SeriesOrigin::Made => Ok(Network::none()),
            SeriesOrigin::Recorded(recording) => recording.network(tools, seed),
        }
    }

    fn run(&self, here: &Here<'_, ()>, cell: &Cell) -> Result<Observation> {
        match cell.series {
            SeriesOrigin::Made => Ok(Observation {
                scores: Family::ALL
                    .map(|family| {
                        let score = play(
                            family.quantity(),
                            family.period(),
                            &family.values(here.seed),
                        );
                        (Origin::Made(family), score)
                    })
                    .into(),
                values: vec![],
            }),
            SeriesOrigin::Recorded(recording) => {
                let values = record::record(here, recording)?;
                if values.len() < 2 * play::WARM_UP {
                    bail!("only {} values were recorded", values.len());
                }
                let score = play(recording.quantity(), record::PERIOD, &values);
                Ok(Observation {
                    scores: vec![(Origin::Recorded(recording), score)],
                    values,
                })
            }
        }
    }

    fn outcome(&self, seen: &Observation) -> String {
        let within = |(origin, score): &(Origin, Score)| {
            format!("{} {:.1} %", origin.title(), 100.0 * score.of[0].within)
        };
        seen.scores
            .iter()
            .map(within)
            .collect::<Vec<_>>()
            .join(", ")
    }

    fn page(&self, runs: &Runs<'_, Cell, Observation>) -> Result<Page> {
        page::page(runs)
    }

    fn figures(&self, runs: &Runs<'_, Cell, Observation>) -> Vec<Figure> {
        page::figures(runs)
    }
}
