//! The Land Speed Record: senders on its path, and the plots of its slides.

mod courses;
mod senders;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::experiment::{Cost, Experiment, Here};
use crate::network::Network;
use crate::page::{Figure, Page};
use crate::runs::Runs;
use crate::stats::Spread;
use crate::tools::{Tools, installed};
use courses::{Course, CourseSamples};
use senders::{SenderCell, Throughput};

/// Duration of each transfer of a sender, in seconds.
pub const SECONDS: u32 = 30;

/// The experiment.
pub struct Lsr {
    /// Duration of each transfer of a sender, in seconds.
    pub seconds: u32,
}

/// One measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Cell {
    /// The throughput of a sender on the record's path.
    Sender(SenderCell),
    /// The course of one stream, for a plot.
    Course(Course),
}

impl Cell {
    /// `longhaul perf`, untuned.
    pub const LONGHAUL: Self = Self::Sender(SenderCell::LONGHAUL);
}

/// Result of a measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Observation {
    /// Observation of a [`Cell::Sender`].
    Sender(Throughput),
    /// Observation of a [`Cell::Course`].
    Course(CourseSamples),
}

impl Experiment for Lsr {
    type Cell = Cell;
    type Observation = Observation;
    type Setup = ();

    fn name(&self) -> &'static str {
        "lsr"
    }

    fn title(&self) -> &'static str {
        "The Land Speed Record's path: one stream that nobody tuned, beside iperf3"
    }

    fn cells(&self) -> Vec<Cell> {
        let senders = SenderCell::all().into_iter().map(Cell::Sender);
        senders
            .chain(Course::all().into_iter().map(Cell::Course))
            .collect()
    }

    fn seeds(&self, _cell: &Cell) -> u64 {
        1
    }

    fn cost(&self, cell: &Cell) -> Cost {
        Cost {
            share: 1.0,
            seconds: match cell {
                Cell::Sender(_) => f64::from(self.seconds) + 5.0,
                Cell::Course(course) => course.seconds() + 5.0,
            },
        }
    }

    fn prepare(&self, _tools: &Tools) -> Result<()> {
        installed("iperf3", "iperf3").map(|_| ())
    }

    fn network(&self, tools: &Tools, (): &(), cell: &Cell, _seed: u64) -> Result<Network> {
        match cell {
            Cell::Sender(sender) => sender.network(tools),
            Cell::Course(course) => course.network(tools),
        }
    }

    fn run(&self, here: &Here<'_, ()>, cell: &Cell) -> Result<Observation> {
        Ok(match cell {
            Cell::Sender(sender) => {
                Observation::Sender(sender.run(here.tools, here.lab, self.seconds)?)
            }
            Cell::Course(course) => Observation::Course(course.run(here.lab)?),
        })
    }

    fn outcome(&self, seen: &Observation) -> String {
        match seen {
            Observation::Sender(throughput) => throughput.words(),
            Observation::Course(samples) => samples.words(),
        }
    }

    fn under_noise(&self, cell: &Cell) -> bool {
        matches!(cell, Cell::Sender(sender) if sender.under_noise())
    }

    fn noisy_links(&self, _cell: &Cell) -> &'static [&'static str] {
        &["stm16"]
    }

    fn over_ipv6(&self, cell: &Cell) -> bool {
        matches!(cell, Cell::Sender(sender) if sender.under_noise())
    }

    fn page(&self, runs: &Runs<'_, Cell, Observation>) -> Result<Page> {
        let page = senders::page(&sender_spread(runs), self.seconds);
        let samples = |course: &Course| {
            let run = runs
                .cell(&Cell::Course(course.clone()))
                .into_iter()
                .next()?;
            match &run.seen {
                Observation::Course(samples) => Some(samples),
                Observation::Sender(_) => None,
            }
        };
        courses::add_to(page, &samples)
    }

    fn figures(&self, runs: &Runs<'_, Cell, Observation>) -> Vec<Figure> {
        senders::figures(&sender_spread(runs))
    }
}

fn sender_spread<'a>(
    runs: &'a Runs<'_, Cell, Observation>,
) -> impl Fn(&SenderCell, fn(&Throughput) -> f64) -> Option<Spread> + 'a {
    |sender, value| {
        let runs = runs.cell(&Cell::Sender(sender.clone()));
        let values: Vec<f64> = runs
            .iter()
            .filter_map(|run| match &run.seen {
                Observation::Sender(throughput) => Some(value(throughput)),
                Observation::Course(_) => None,
            })
            .collect();
        Spread::from_samples(&values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Key;

    #[test]
    fn keys_of_both_kinds_are_read_back() {
        for cell in (Lsr { seconds: SECONDS }).cells() {
            let key = Key::new(cell, 2001);
            let text = serde_json::to_string(&key).unwrap();
            assert_eq!(
                serde_json::from_str::<Key<Cell>>(&text).unwrap(),
                key,
                "{text}"
            );
        }
        let old = r#"{"sender":"iperf3","seed":2001,"noise":"none"}"#;
        assert!(serde_json::from_str::<Key<Cell>>(old).is_ok());
    }
}
